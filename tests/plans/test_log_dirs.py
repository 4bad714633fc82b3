"""Disks inside brokers: levelled by bytes or by count, including empty ones, each broker by itself."""

from dataclasses import replace

import pytest
from small_clusters import cluster

from engine.common.model import TopicPartition
from engine.common.snapshot import ClusterSnapshot, FailedLogDir, LogDirSnapshot, ReplicaLog
from engine.common.snapshot_json import snapshot_from_json, snapshot_to_json
from plans.errors import BadOption
from plans.explaining import explanations, lines_of_file
from plans.options import Aim, LogDirCapacity, PlanOptions, Strategy
from plans.planning import make_plan
from plans.score import Score
from plans.summary import moves_of

DIRS = tuple(LogDirSnapshot(broker, path, 1000, 500) for broker in (1, 2) for path in ("/a", "/b"))


def two_disks(sizes: tuple[int, ...] = (10, 10, 10, 10)) -> ClusterSnapshot:
    """Return two brokers. All replicas of broker 1 are on /a and /b is empty; on broker 2 they are level."""
    plain = cluster({1: None, 2: None}, {"t": [(1, 2)] * len(sizes)})
    topic = plain.topics[0]
    parts = tuple(
        replace(
            partition,
            replica_logs=(
                ReplicaLog(1, "/a", size),
                ReplicaLog(2, "/a" if number % 2 else "/b", size),
            ),
        )
        for number, (partition, size) in enumerate(zip(topic.partitions, sizes, strict=True))
    )
    return replace(plain, topics=(replace(topic, partitions=parts),), log_dirs=DIRS)


@pytest.mark.parametrize("aim", [Aim.BYTES, Aim.REPLICAS])
def test_an_empty_disk_gets_its_half(aim: Aim) -> None:
    plan = make_plan(two_disks(), Strategy.LOG_DIRS, PlanOptions(aim=(aim,))).plan
    score = plan.klamm.score
    assert [(e.replicas, e.log_dirs) for e in plan.partitions] == [((1, 2), ("/b", "any"))] * 2
    assert [e.log_dirs for e in plan.klamm.rollback] == [("/a", "any")] * 2
    assert (score.moves, score.bytes) == (2, 20)
    assert score.is_optimal
    assert [(r.broker, r.log_dir, r.replicas_after, r.bytes_after) for r in score.log_dirs] == [
        (1, "/a", 2, 20),
        (1, "/b", 2, 20),
        (2, "/a", 2, 20),
        (2, "/b", 2, 20),
    ]


def test_an_explanation_names_the_disks() -> None:
    made = make_plan(two_disks(), Strategy.LOG_DIRS, PlanOptions(aim=(Aim.BYTES,)))
    moved = made.plan.partitions[0].name
    assert explanations(made, [str(moved)]) == (
        f"{moved} stays on 1, 2 and changes its log dir:",
        "  broker 1: /a → /b",
    )
    assert lines_of_file(made.plan, moved)[-1] == "  broker 1: /a → /b"
    changed = {partition.name for partition in made.plan.partitions}
    stays = next(name for name in (TopicPartition("t", number) for number in range(4)) if name not in changed)
    assert explanations(made, [str(stays)]) == (f"{stays} stays on 1, 2: moving it gains nothing",)
    assert [move.disks for move in moves_of(made.plan, {})] == [("1: /a → /b",)] * 2


def test_log_dirs_survive_the_snapshots_file() -> None:
    assert snapshot_from_json(snapshot_to_json(two_disks())) == two_disks()


def test_only_the_brokers_that_are_named() -> None:
    plan = make_plan(two_disks(), Strategy.LOG_DIRS, PlanOptions(brokers=(2,))).plan
    assert plan.partitions == ()
    assert {row.broker for row in plan.klamm.score.log_dirs} == {2}


def test_a_disk_has_its_capacity() -> None:
    capacity = (LogDirCapacity(1, "/a", 10),)
    rows = make_plan(
        two_disks(), Strategy.LOG_DIRS, PlanOptions(log_dir_capacities=capacity, tolerance_percent=60)
    ).plan.klamm.score.log_dirs
    assert rows[0].bytes_after is not None
    assert rows[0].bytes_after <= 10


def test_what_cannot_be_levelled_is_levelled_as_far_as_it_goes() -> None:
    made = make_plan(two_disks((100, 1)), Strategy.LOG_DIRS, PlanOptions())
    score = made.plan.klamm.score
    assert sorted(row.bytes_after or 0 for row in score.log_dirs if row.broker == 1)[-1] == 100
    assert (score.is_optimal, score.gap) == (False, None)
    assert score.remaining_bytes > 0
    assert any("of broker 1 stays" in note and "outside the tolerance" in note for note in made.notes), made.notes


def disks_of(score: Score, broker: int) -> list[int]:
    return sorted(row.bytes_after or 0 for row in score.log_dirs if row.broker == broker)


def on_disks(sizes_by_broker: dict[int, list[int]], disks: int) -> ClusterSnapshot:
    """Return brokers with so many log dirs, and all of the replicas on the first; each partition has one replica."""
    owners = [(broker, size) for broker, sizes in sizes_by_broker.items() for size in sizes]
    plain = cluster(dict.fromkeys(sizes_by_broker), {"t": [(broker,) for broker, _ in owners]})
    topic = plain.topics[0]
    parts = tuple(
        replace(partition, replica_logs=(ReplicaLog(broker, "/d0", size),))
        for partition, (broker, size) in zip(topic.partitions, owners, strict=True)
    )
    dirs = tuple(LogDirSnapshot(broker, f"/d{number}") for broker in sizes_by_broker for number in range(disks))
    return replace(plain, topics=(replace(topic, partitions=parts),), log_dirs=dirs)


def test_a_partition_too_large_for_a_share_has_a_disk_for_itself_and_the_others_are_level() -> None:
    made = make_plan(on_disks({1: [520, *[10] * 12]}, 4), Strategy.LOG_DIRS, PlanOptions())
    score = made.plan.klamm.score
    assert disks_of(score, 1) == [40, 40, 40, 520]
    assert (score.bytes, score.gap, score.is_optimal) == (120, None, False)
    assert score.remaining_bytes > 0
    assert any("t-0 alone has 520 bytes" in note for note in made.notes), made.notes


def test_a_broker_that_cannot_be_level_takes_nothing_from_the_others() -> None:
    sizes = [7, 11, 13, 17, 19, 23, 29, 31, 37, 41]
    alone = make_plan(on_disks({2: sizes}, 3), Strategy.LOG_DIRS, PlanOptions()).plan.klamm.score
    beside = make_plan(on_disks({1: [500, 1], 2: sizes}, 3), Strategy.LOG_DIRS, PlanOptions()).plan.klamm.score
    assert (alone.is_optimal, alone.remaining_bytes) == (True, 0)
    assert disks_of(beside, 2) == disks_of(alone, 2)
    assert beside.bytes == (alone.bytes or 0) + 1


def test_a_failed_disk_is_named_with_its_replicas() -> None:
    whole = two_disks()
    parts = tuple(
        replace(
            partition,
            replica_logs=tuple(log for log in partition.replica_logs if (log.broker, log.log_dir) != (2, "/a")),
        )
        for partition in whole.topics[0].partitions
    )
    failed = FailedLogDir(2, "/a", "KAFKA_STORAGE_ERROR")
    broken = replace(
        whole,
        topics=(replace(whole.topics[0], partitions=parts),),
        log_dirs=tuple(log_dir for log_dir in DIRS if (log_dir.broker, log_dir.log_dir) != (2, "/a")),
        failed_log_dirs=(failed,),
    )
    made = make_plan(broken, Strategy.LOG_DIRS, PlanOptions())
    assert made.notes == (
        "broker 2 cannot use /a (KAFKA_STORAGE_ERROR): t-1, t-3 are in no working log dir and stay out of the plan",
    )
    assert {e.replicas for e in made.plan.partitions} == {(1, 2)}
    assert make_plan(broken, Strategy.LOG_DIRS, PlanOptions(brokers=(1,))).notes == ()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (PlanOptions(brokers=(7,)), "no broker 7"),
        (PlanOptions(aim=(Aim.LEADERS,)), "log-dirs levels one thing"),
        (PlanOptions(log_dir_capacities=(LogDirCapacity(1, "/c", 1),)), "a capacity names log dir /c of broker 1"),
    ],
)
def test_bad_options_are_told(options: PlanOptions, message: str) -> None:
    with pytest.raises(BadOption, match=message):
        make_plan(two_disks(), Strategy.LOG_DIRS, options)
