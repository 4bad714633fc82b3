"""A member that drains a backlog partition by partition: those whose turn has not come are not stalled."""

from __future__ import annotations

import pytest

from engine.admin.groups.values import GroupState, GroupType
from engine.admin.lag.group_lag import GroupLag, PartitionLag, group_lag
from engine.admin.lag.sampling import GroupSample, PartitionSample
from engine.admin.lag.verdicts import LagStatus, Point, Reason
from engine.common.model import TopicPartition

Pairs = list[tuple[int | None, int]]
STEP_MS = 5_000
WAITS: Pairs = [(0, 600), (0, 600), (0, 600)]
DRAINED: Pairs = [(100, 600), (200, 600), (300, 600)]
KEPT_UP: Pairs = [(96, 100), (195, 199), (297, 300)]
DRAINS = (LagStatus.OK, Reason.MEMBER_DRAINS)
STALLS = (LagStatus.STALL, Reason.STANDS_STILL)


def group_of(*readers: tuple[str | None, Pairs], starts: tuple[int, ...] = (), paced: int | None = None) -> GroupLag:
    """Return the group whose n-th partition has the n-th owner and samples."""
    partitions: dict[TopicPartition, PartitionSample] = {}
    series: dict[TopicPartition, list[Point]] = {}
    for number, (owner, pairs) in enumerate(readers):
        name = TopicPartition("t", number)
        committed, end = pairs[-1]
        start = starts[number] if number < len(starts) else 0
        partitions[name] = PartitionSample(committed, end, start, owner is not None, owner)
        series[name] = [Point(index * STEP_MS, *pair) for index, pair in enumerate(pairs)]
    within_pace = () if paced is None else (TopicPartition("t", paced),)
    sample = GroupSample("g", GroupType.CLASSIC, GroupState.STABLE, partitions)
    return group_lag(sample, series, {}, 10 * STEP_MS, within_pace)


def told(row: PartitionLag | GroupLag) -> tuple[LagStatus, Reason | None]:
    return row.status, row.reason


def test_a_partition_whose_turn_has_not_come_is_drained_with_its_member() -> None:
    group = group_of(("m-1", DRAINED), ("m-1", WAITS))
    assert told(group.partitions[1]) == DRAINS
    assert group.status is LagStatus.OK
    # 900 records are left, and the member reads 20 a second.
    assert group.partitions[1].clear_in_ms == group.clear_in_ms == 45_000


def test_what_another_member_reads_says_nothing() -> None:
    group = group_of(("m-2", DRAINED), ("m-1", WAITS))
    assert told(group.partitions[1]) == told(group) == STALLS
    assert group.clear_in_ms is None


def test_without_an_owner_there_is_no_member() -> None:
    group = group_of((None, DRAINED), (None, WAITS))
    assert group.partitions[1].status is LagStatus.STOP


def test_a_member_that_keeps_up_elsewhere_is_stuck_here() -> None:
    """One record that it cannot handle holds one partition; there is no backlog that it is busy with."""
    assert told(group_of(("m-1", KEPT_UP), ("m-1", WAITS))) == STALLS


def test_a_member_that_stands_still_everywhere_is_stalled() -> None:
    once_moved: Pairs = [(0, 600), (100, 600), *[(100, 600)] * 6]
    assert told(group_of(("m-1", once_moved), ("m-1", [(0, 600)] * 8))) == STALLS


def test_a_member_that_was_done_with_its_backlog_long_ago_is_stalled() -> None:
    done: Pairs = [(0, 600), (300, 600), *[(600, 600)] * 8]
    assert told(group_of(("m-1", done), ("m-1", [(0, 600)] * 10))) == STALLS


def test_between_one_partition_and_the_next_it_drains() -> None:
    done: Pairs = [(0, 600), (300, 600), (600, 600), (600, 600)]
    assert told(group_of(("m-1", done), ("m-1", [(0, 600)] * 4)).partitions[1]) == DRAINS


def test_a_first_commit_is_not_too_few_samples_while_the_member_drains() -> None:
    group = group_of(("m-1", DRAINED), ("m-1", [(None, 600), (None, 600), (50, 600)]), ("m-1", [(None, 600)] * 3))
    assert told(group.partitions[1]) == DRAINS
    assert told(group.partitions[2]) == (LagStatus.UNKNOWN, Reason.NOTHING_COMMITTED)
    assert group.status is LagStatus.OK


def test_a_member_that_drains_is_not_merely_between_two_commits() -> None:
    assert told(group_of(("m-1", DRAINED), ("m-1", WAITS), paced=1).partitions[1]) == DRAINS


def test_a_member_whose_backlog_grows_does_not_drain() -> None:
    grows: Pairs = [(100, 600), (200, 800), (300, 1_000)]
    group = group_of(("m-1", grows), ("m-1", WAITS))
    assert told(group.partitions[1]) == (LagStatus.WARN, Reason.LAG_NEVER_FELL)
    assert group.clear_in_ms is None


@pytest.mark.parametrize("start", [0, 1])
def test_records_lost_meanwhile_are_told(start: int) -> None:
    waiting = group_of(("m-1", DRAINED), ("m-1", WAITS), starts=(0, start)).partitions[1]
    assert told(waiting) == ((LagStatus.WARN, Reason.RECORDS_LOST) if start else DRAINS)


def test_one_that_went_back_is_still_told() -> None:
    back: Pairs = [(50, 600), (0, 600), (0, 600)]
    assert told(group_of(("m-1", DRAINED), ("m-1", back))) == (LagStatus.REWIND, Reason.WENT_BACK)
