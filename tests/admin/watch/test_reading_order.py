"""What is read when, and how answers are used: schedules, rotation, merging, and a slot for one frame."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from operator import is_

import pytest
from event_loop import in_event_loop
from hypothesis import example, given
from hypothesis import strategies as st

from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.watch import feed, live_feed, merging
from engine.admin.watch.events import Event, EventKind
from engine.admin.watch.feed import FrameBox
from engine.admin.watch.frame import Frame
from engine.admin.watch.knowledge import Knowledge
from engine.admin.watch.live_feed import LiveFeed
from engine.admin.watch.schedule import BACK_OFF_MAX_MS, READS_PER_S, SUSPECTS_PER_S, Rotation, StageSchedule
from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot, SnapshotSource
from engine.kafka.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)

# -- schedules


def twice_read(schedule: StageSchedule, cost_ms: int) -> StageSchedule:
    """Return it after two readings that took that long: one alone says nothing of the next."""
    for start_ms in (-1_000, 0):
        schedule.start(start_ms)
        schedule.succeed(start_ms + cost_ms, 1_000)
    return schedule


def test_waiting_for_a_silent_broker_is_no_work_and_the_share_holds_all_the_same() -> None:
    schedule = twice_read(StageSchedule(None, 0.05), 100)
    assert schedule.interval_ms == 2_000, "100 ms are 5 % of it"
    schedule.start(2_000)
    schedule.succeed(10_000, 1_000, is_partial=True)
    assert schedule.next_ms == 11_000, "a second after 8 s of waiting, not 160 s"
    schedule.start(11_000)
    schedule.succeed(11_050, 1_000, is_partial=True)
    assert schedule.interval_ms == 1_050
    heavy = twice_read(StageSchedule(None, 0.05), 1_000)
    heavy.start(20_000)
    heavy.succeed(28_000, 1_000, is_partial=True)
    assert heavy.interval_ms == 20_000, "a whole reading takes a second of work"


def test_a_stage_that_takes_long_is_read_less_often() -> None:
    schedule = StageSchedule(None, 0.1)
    assert schedule.is_due(0)
    schedule.start(0)
    assert not schedule.is_due(10_000)
    assert schedule.succeed(20, 1_000) == 20
    assert schedule.next_ms == 1_000
    schedule.start(1_000)
    schedule.succeed(1_300, 1_000)
    assert schedule.next_ms == 2_000, "one slow reading alone says nothing: the machine was busy"
    schedule.start(2_000)
    schedule.succeed(2_400, 1_000)
    assert schedule.next_ms == 5_000 and schedule.interval_ms == 3_000, "by the faster one of two"


def test_the_first_reading_which_also_connects_does_not_delay_the_second() -> None:
    schedule = StageSchedule(None, 0.05)
    schedule.start(0)
    schedule.succeed(1_000, 1_000)
    assert schedule.next_ms == 1_000


def test_failures_are_tried_again_later_and_later_and_a_trigger_at_once() -> None:
    schedule, now_ms, waits = StageSchedule(None, 0.5), 0, []
    for _ in range(6):
        schedule.start(now_ms)
        schedule.fail(now_ms, 1_000)
        assert schedule.next_ms is not None
        waits.append(schedule.next_ms - now_ms)
        now_ms = schedule.next_ms
    assert waits == [1_000, 2_000, 4_000, 8_000, BACK_OFF_MAX_MS, BACK_OFF_MAX_MS]
    schedule.trigger(now_ms - 5)
    assert schedule.is_due(now_ms - 5)
    schedule.start(now_ms)
    schedule.fail(now_ms, 1_000)
    assert schedule.next_ms == now_ms + 1_000


def test_a_trigger_while_reading_has_it_read_once_more() -> None:
    schedule = StageSchedule(5_000, 0.5)
    schedule.start(0)
    schedule.trigger(10)
    schedule.trigger(20)
    schedule.succeed(50, 1_000)
    assert schedule.is_due(50)
    schedule.start(50)
    schedule.succeed(60, 1_000)
    assert schedule.next_ms == 5_050


def test_a_stage_may_be_read_at_some_ticks_only() -> None:
    schedule = StageSchedule(10_000, 0.1, ticks=3)
    schedule.start(0)
    schedule.succeed(50, 1_000)
    assert schedule.interval_ms == 10_000, "three ticks of a second are over sooner"
    schedule.start(10_000)
    schedule.succeed(10_050, 10_000)
    assert schedule.next_ms == 10_000 + 30_000


def test_hastening_respects_the_share() -> None:
    schedule = StageSchedule(10_000, 0.1)
    schedule.start(0)
    schedule.hasten(2_000, schedule.succeed(50, 1_000))
    assert schedule.next_ms == 2_000
    schedule.start(2_000)
    schedule.hasten(2_000, schedule.succeed(2_900, 1_000))
    assert schedule.next_ms == 2_000 + 9_000


# -- rotation

NAMES = [TopicPartition("orders", number) for number in range(100)]


def test_states_are_read_in_turn_and_none_is_left_out() -> None:
    rotation = Rotation()
    rotation.set_partitions("orders", set(range(100)))
    rotation.was_read(rotation.take(1.0), 0)
    assert rotation.suspect_count == 0
    seen: list[TopicPartition] = []
    for second in range(1, 14):
        taken = rotation.take(1.0)
        assert len(taken) == READS_PER_S
        rotation.was_read(taken, second)
        seen += taken
    assert set(seen) == set(NAMES) and len(set(seen[:100])) == 100


def test_suspects_come_first_and_are_bounded_too() -> None:
    rotation = Rotation()
    many = [TopicPartition("t", number) for number in range(SUSPECTS_PER_S + 50)]
    rotation.set_partitions("t", set(range(len(many))))
    first = rotation.take(1.0)
    assert len(first) == SUSPECTS_PER_S
    rotation.was_read(first, 1)
    rotation.was_read(rotation.take(1.0), 2)
    assert rotation.suspect_count == 0
    rotation.suspect([many[7], TopicPartition("gone", 0)])
    taken = rotation.take(1.0)
    assert taken[0] == many[7] and len(taken) == READS_PER_S and len(set(taken)) == READS_PER_S


def test_what_is_gone_is_not_read_and_what_is_new_is_suspected() -> None:
    rotation = Rotation()
    rotation.set_partitions("orders", {0, 1, 2})
    rotation.was_read(rotation.take(1.0), 5)
    rotation.set_partitions("orders", {0, 50})
    assert rotation.suspect_count == 1
    assert sorted(rotation.take(1.0)) == [NAMES[0], NAMES[50]]
    assert rotation.age_of_oldest(10, {NAMES[0]: 5}) is None
    assert rotation.age_of_oldest(10, {NAMES[0]: 5, NAMES[50]: 8}) == 5


def test_a_topic_changes_without_the_others() -> None:
    rotation = Rotation()
    rotation.set_partitions("orders", {0, 1})
    rotation.set_partitions("gone", {0})
    rotation.was_read(rotation.take(1.0), 5)
    rotation.set_partitions("gone", frozenset())
    rotation.set_partitions("never there", frozenset())
    assert rotation.take(1.0) == NAMES[:2] and rotation.suspect_count == 0
    rotation.was_read(NAMES[:2], 6)
    rotation.suspect_all()
    assert rotation.suspect_count == 2
    rotation.set_partitions("orders", frozenset())
    assert rotation.is_empty and rotation.suspect_count == 0 and rotation.take(1.0) == []


# -- merging


def _answer(*partitions: MetadataResponsePartition, error: int = 0, name: str = "orders") -> MetadataResponse:
    topic = MetadataResponseTopic(error_code=error, name=name, partitions=list(partitions))
    brokers = [MetadataResponseBroker(node_id=b, host="h", port=9092 + b) for b in (1, 2, 3)]
    return MetadataResponse(brokers=brokers, controller_id=1, topics=[topic])


def _told(
    leader: int, leader_epoch: int, isr: list[int], index: int = 0, replicas: Sequence[int] = (1, 2, 3)
) -> MetadataResponsePartition:
    return MetadataResponsePartition(
        partition_index=index, leader_id=leader, leader_epoch=leader_epoch, replica_nodes=list(replicas), isr_nodes=isr
    )


def _known(answers: list[MetadataResponse]) -> tuple[Knowledge, list[PartitionSnapshot]]:
    knowledge, seen = Knowledge(SnapshotSource.WIRE), []
    for answer in answers:
        knowledge.take_metadata(answer)
        if "orders" in knowledge.topics:
            seen.append(knowledge.topics["orders"].partitions[0])
    return knowledge, seen


def test_an_answer_that_says_the_same_changes_no_object() -> None:
    knowledge, seen = _known([_answer(_told(1, 5, [1, 2])), _answer(_told(1, 5, [1, 2]))])
    assert seen[0] is seen[1]
    topics, brokers = knowledge.topics, knowledge.brokers
    assert knowledge.take_metadata(_answer(_told(1, 5, [1, 2]))) is False
    assert knowledge.topics is topics and knowledge.brokers is brokers


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30))
def test_a_broker_that_is_late_never_takes_a_leader_epoch_back(epochs: list[int]) -> None:
    _, seen = _known([_answer(_told(1 + epoch % 3, epoch, [1, 2, 3])) for epoch in epochs])
    for epoch_so_far, partition in zip((max(epochs[: n + 1]) for n in range(len(epochs))), seen, strict=True):
        assert partition.leader_epoch == epoch_so_far and partition.leader == 1 + epoch_so_far % 3


@given(st.lists(st.integers(0, 20), min_size=1, max_size=30))
def test_an_older_state_znode_never_replaces_a_newer_one(versions: list[int]) -> None:
    partition, newest = PartitionSnapshot(0, ReplicaAssignment((1, 2, 3))), -1
    for zk_version in versions:
        leadership = LeaderAndIsr(1 + zk_version % 3, zk_version // 2, (1, 2), partition_epoch=zk_version)
        before, partition = partition, merging.with_state(partition, LeaderIsrAndControllerEpoch(leadership, 1))
        assert (partition is before) == (zk_version <= newest)
        newest = max(newest, zk_version)
    assert (partition.zk_version, partition.leader) == (newest, 1 + newest % 3)


_WIRE, _ZNODE = st.tuples(st.just("wire"), st.integers(0, 20)), st.tuples(st.just("znode"), st.integers(0, 20))
_OTHERS = st.tuples(st.sampled_from(["assignment", "reassignments", "ends", "settings", "marks"]), st.integers(0, 3))


@given(st.lists(st.one_of(_WIRE, _ZNODE, _OTHERS), min_size=1, max_size=40))
def test_results_of_all_stages_in_any_order_take_nothing_back(results: list[tuple[str, int]]) -> None:
    """Each leader epoch has one leader and each znode version one ISR, whoever reports it and however late."""
    knowledge, name = Knowledge(SnapshotSource.WIRE), TopicPartition("orders", 0)
    knowledge.take_metadata(_answer(_told(1, 0, [1, 2, 3])))
    newest_epoch, newest_version, sequence = 0, -1, 0
    for source, number in results:
        match source:
            case "wire":
                knowledge.take_metadata(_answer(_told(1 + number % 3, number, [1, 2, 3])))
                newest_epoch = max(newest_epoch, number)
            case "znode":
                leadership = LeaderAndIsr(1 + number // 2 % 3, number // 2, (1, 2), partition_epoch=number)
                knowledge.take_states({name: LeaderIsrAndControllerEpoch(leadership, 1)}, 1)
                if number // 2 >= newest_epoch and number > newest_version:
                    newest_epoch, newest_version = number // 2, number
            case "assignment":
                knowledge.take_topic_znodes({"orders": (None, {0: ReplicaAssignment((1, 2, 3))})})
            case "reassignments":
                moving = {name: ReplicaAssignment((1, 2, 3), (3,), (1,))} if number % 2 else {}
                knowledge.take_reassignments(moving)
            case "ends":
                knowledge.take_ends({name: number}, number)
            case "settings":
                knowledge.take_settings({"orders": {"min.insync.replicas": str(number)}})
            case "marks":
                knowledge.take_marks({"orders": 1} if number % 2 else {})
        frame = knowledge.frame(number, {}, {})
        assert frame.cluster is not None and frame.sequence > sequence
        sequence, facts = frame.sequence, frame.cluster.topic("orders").partitions[0]
        assert facts.leader_epoch == newest_epoch
        assert facts.leader == 1 + newest_epoch % 3, "the leader of that epoch, and of no other"


_REPLICAS = ([1, 2, 3], [1, 2])
_STEP = st.tuples(
    st.sampled_from(["wire", "wire", "reassignments", "assignment", "settings", "marks", "watched"]), st.integers(0, 3)
)


@given(st.lists(_STEP, min_size=1, max_size=40))
@example([("reassignments", 1), ("wire", 0), ("reassignments", 0), ("wire", 0)])
def test_an_answer_that_is_the_last_one_may_be_left_out_while_its_basis_is_the_same(
    steps: list[tuple[str, int]],
) -> None:
    name, every, skipping = TopicPartition("orders", 0), Knowledge(SnapshotSource.WIRE), Knowledge(SnapshotSource.WIRE)
    last: tuple[int, tuple[object, ...]] | None = None
    for source, number in [("wire", 0), *steps]:
        moving = {name: ReplicaAssignment((1, 2, 3), (3,), ())} if number % 2 else {}
        for knowledge in (every, skipping):
            match source:
                case "wire":
                    if knowledge is skipping and last is not None:
                        said, basis = last
                        if said == number and all(map(is_, basis, knowledge.basis)):
                            continue
                    knowledge.take_metadata(_answer(_told(1, 5, [1, 2], replicas=_REPLICAS[number % 2])))
                    if knowledge is skipping:
                        last = number, knowledge.basis
                case "reassignments" if not knowledge.assignments_by_znode:
                    knowledge.take_reassignments(moving)
                case "assignment" if knowledge.assignments_by_znode:
                    assignment = ReplicaAssignment((1, 2, 3), (3,) if number % 2 else ())
                    knowledge.take_topic_znodes({"orders": (None, {0: assignment})})
                case "settings":
                    knowledge.take_settings({"orders": {"min.insync.replicas": str(number)}})
                case "marks":
                    knowledge.take_marks({"orders": 1} if number % 2 else {})
                case "watched":
                    knowledge.assignments_by_znode = bool(number % 2)
        assert skipping.topics == every.topics


def test_a_state_znode_older_than_what_a_broker_told_is_not_taken() -> None:
    known = PartitionSnapshot(0, ReplicaAssignment((1, 2)), 2, (1, 2), leader_epoch=7)
    older = LeaderIsrAndControllerEpoch(LeaderAndIsr(1, 6, (1,), partition_epoch=9), 1)
    assert merging.with_state(known, older) is known
    same = LeaderIsrAndControllerEpoch(LeaderAndIsr(2, 7, (2,), partition_epoch=9), 1)
    assert merging.with_state(known, same).isr == (2,)


def test_a_topic_that_a_broker_says_is_gone_is_gone_and_a_leaderless_one_is_not() -> None:
    knowledge, _ = _known([_answer(_told(1, 5, [1, 2]))])
    knowledge.take_metadata(_answer(_told(-1, 6, [2]), error=5))
    assert knowledge.topics["orders"].partitions[0].leader == -1
    knowledge.take_metadata(_answer(error=3))
    assert not knowledge.topics


@pytest.mark.parametrize("is_watched", [True, False])
def test_a_broker_that_is_late_takes_no_reassignment_back_that_zookeeper_has_reported(is_watched: bool) -> None:
    knowledge, _ = _known([_answer(_told(1, 5, [1, 2, 3]))])
    begun, ended = ReplicaAssignment((4, 1, 2, 3), (4,), (3,)), ReplicaAssignment((4, 1, 2))
    knowledge.assignments_by_znode = is_watched
    for assignment in (begun, ended):
        knowledge.take_topic_znodes({"orders": (None, {0: assignment})})
        late = _answer(_told(2, 6, [1, 2, 3]))
        knowledge.take_metadata(late)
        partition = knowledge.topics["orders"].partitions[0]
        assert (partition.leader, partition.isr) == (2, (1, 2, 3)), "it is believed about the leader"
        assert partition.assignment == (assignment if is_watched else ReplicaAssignment((1, 2, 3)))
        assert knowledge.take_metadata(late) is False


def test_a_list_of_reassignments_that_does_not_fit_the_topic_is_left_alone() -> None:
    knowledge, _ = _known([_answer(_told(1, 5, [1, 2, 3]))])
    name = TopicPartition("orders", 0)
    moving = ReplicaAssignment((1, 2, 3), (3,), (1,))
    assert knowledge.take_reassignments({name: moving}) is True
    assert knowledge.topics["orders"].partitions[0].assignment == moving
    assert knowledge.take_reassignments({name: moving}) is False
    knowledge.take_reassignments({name: ReplicaAssignment((7, 8), (7,), ())})
    assert knowledge.topics["orders"].partitions[0].assignment == ReplicaAssignment((1, 2, 3))


@pytest.mark.parametrize("is_raised", [False, True])
def test_a_move_is_no_trouble_whichever_of_its_readings_comes_first(is_raised: bool) -> None:
    """Brokers list what moves in one answer, and say who is in sync in another: a new replica is not missing yet."""

    def told(replicas: list[int], isr: list[int]) -> MetadataResponse:
        return _answer(_told(1, 5, isr, replicas=replicas))

    name = TopicPartition("orders", 0)
    target, removing = ([1, 2, 3], ()) if is_raised else ([1, 3], (2,))
    moving = ReplicaAssignment((1, 3, 2) if removing else (1, 2, 3), (3,), removing)
    during, after = told(list(moving.replicas), [1, 2]), told(target, target)
    knowledge, _ = _known([told([1, 2], [1, 2])])
    for step, take in (
        ("nothing moves", lambda: knowledge.take_reassignments({})),
        ("begun, and not listed yet", lambda: knowledge.take_metadata(during)),
        ("seen once more before the list", lambda: knowledge.take_metadata(during)),
        ("listed", lambda: knowledge.take_reassignments({name: moving})),
        ("ended, and the last answer is older", lambda: knowledge.take_reassignments({})),
        ("and all are in sync", lambda: knowledge.take_metadata(after)),
    ):
        take()
        partition = knowledge.topics["orders"].partitions[0]
        assert not partition.is_under_replicated, step
    assert not partition.assignment.is_being_reassigned
    grown = told([*target, 4], target)
    knowledge.take_metadata(grown)
    knowledge.take_reassignments({})
    knowledge.take_metadata(grown)
    assert knowledge.topics["orders"].partitions[0].is_under_replicated, "two readings say that nothing moves it"


def test_an_isr_that_is_older_than_the_end_of_a_move_is_not_counted_against_it() -> None:
    """ZooKeeper tells of the end at once; the ISR comes later, and has all replicas: else the move would go on."""
    knowledge, _ = _known([_answer(_told(1, 5, [1, 2], replicas=[1, 2]))])
    for assignment in (ReplicaAssignment((1, 2, 3), (3,)), ReplicaAssignment((1, 2, 3))):
        knowledge.take_topic_znodes({"orders": (None, {0: assignment})})
        assert not knowledge.topics["orders"].partitions[0].is_under_replicated
    cancelled = ReplicaAssignment((1, 2, 3, 4), (4,)), ReplicaAssignment((1, 2, 3))
    for assignment in cancelled:
        knowledge.take_topic_znodes({"orders": (None, {0: assignment})})
    assert set(knowledge.topics["orders"].partitions[0].isr) == {1, 2, 3}


def test_a_silent_brokers_ends_and_replicas_stay_and_those_of_deleted_topics_go() -> None:
    knowledge, _ = _known([_answer(_told(1, 5, [1]), _told(2, 5, [2], index=1))])
    first, second = TopicPartition("orders", 0), TopicPartition("orders", 1)
    knowledge.take_ends({first: 10, second: 20}, 1_000)
    kept = knowledge.offsets[second]
    knowledge.take_ends({first: 10}, 2_000)
    assert knowledge.offsets[first].at_ms == 1_000 and knowledge.offsets[second] == kept
    knowledge.take_metadata(_answer(_told(1, 5, [1])))
    knowledge.take_ends({first: 11}, 3_000)
    assert knowledge.offsets == {first: (11, 3_000)}


# -- one frame's room


def _frame(sequence: int) -> Frame:
    return Frame(sequence, sequence, events=(Event(sequence, EventKind.BROKER_UP, str(sequence)),))


@in_event_loop
async def test_who_is_slow_gets_the_newest_frame_with_all_events() -> None:
    box = FrameBox()
    for sequence in (1, 2, 3):
        box.put(_frame(sequence))
    frames = box.frames()
    frame = await anext(frames)
    assert frame.sequence == 3 and [event.subject for event in frame.events] == ["1", "2", "3"]
    assert box.made == 3
    box.put(_frame(4))
    box.close()
    assert [frame.sequence async for frame in frames] == [4]
    assert [frame async for frame in box.frames()] == []


def test_events_that_nobody_takes_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(feed, "WAITING_EVENTS_MAX", 5)

    async def filling() -> Frame:
        box = FrameBox()
        for sequence in range(20):
            box.put(_frame(sequence))
        return await anext(box.frames())

    assert [event.at_ms for event in asyncio.run(filling()).events] == [15, 16, 17, 18, 19]


@in_event_loop
async def test_news_right_after_a_tick_are_in_a_frame_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Only frames with news keep a distance from each other. Else a watch would wait for it after each tick."""
    monkeypatch.setattr(live_feed, "FRAME_GAP_S", 3_600.0)
    watching = LiveFeed(ClusterTarget("nobody", Origin.OPTIONS, zookeeper="127.0.0.1:1"), interval_s=10.0)
    making = asyncio.create_task(watching._make_frames())
    frames = watching.frames()
    async with asyncio.timeout(60):
        first = await anext(frames)
        watching._on_news(True)
        second = await anext(frames)
    assert (first.sequence, second.sequence) == (1, 2)
    making.cancel()
    await asyncio.gather(making, return_exceptions=True)
    await watching.close()
