"""The health of successive frames: cached results equal a fresh check, and missing data are no problem."""

from __future__ import annotations

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from types import SimpleNamespace
from typing import Any

import pytest
from event_loop import in_event_loop
from fake_cluster import FakeCluster, small_cluster

from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.groups.scope import FoundGroups
from engine.admin.groups.values import GroupListing, GroupState, GroupType, ListedGroup
from engine.admin.health.report import Check, HealthReport, Severity
from engine.admin.lag.group_lag import LagAnswer
from engine.admin.lag.verdicts import LagStatus
from engine.admin.reassignment.lock_holder import Holder
from engine.admin.watch.by_wire import GroupReader, unmeasured
from engine.admin.watch.frame import BrokerWords, Frame, Link, LinkState, Stage, StageStatus
from engine.admin.watch.judging import CATCHING_UP_MS, HealthMemory
from engine.admin.watch.knowledge import Knowledge
from engine.admin.watch.live_feed import LiveFeed
from engine.common.model import BrokerInfo, TopicPartition
from engine.common.snapshot import SnapshotSource


def _reasons(frame: Frame) -> set[Check]:
    report = HealthMemory().judge(frame)
    assert report is not None
    return {reason.check for reason in report.reasons}


def test_what_is_kept_of_topics_is_what_a_fresh_look_finds() -> None:
    cluster, kept = small_cluster(), HealthMemory()
    steps = (
        lambda: cluster.kill(2),
        lambda: cluster.start(2),
        cluster.advance,
        lambda: cluster.shrink_isr(TopicPartition("orders", 0), 2),
        lambda: cluster.delete_topic("audit"),
    )
    for step in steps:
        step()
        frame = cluster.frame()
        assert _found(kept.judge(frame)) == _found(HealthMemory().judge(frame))


def _found(report: HealthReport | None) -> list[tuple[Check, int, tuple[str, ...]]]:
    assert report is not None
    return sorted((reason.check, reason.count, reason.examples) for reason in report.reasons)


def test_replicas_behind_are_a_warning_only_while_a_broker_that_came_back_catches_up() -> None:
    cluster, health = small_cluster(), HealthMemory()

    def severities() -> dict[Check, Severity]:
        report = health.judge(cluster.frame())
        assert report is not None
        assert report.status.value == max(
            (reason.severity.value for reason in report.reasons), key="ok warning critical".find
        )
        return {reason.check: reason.severity for reason in report.reasons}

    cluster.shrink_isr(TopicPartition("orders", 0), 2)
    assert severities()[Check.UNDER_REPLICATED_LAGGING] is Severity.CRITICAL, "nobody saw a broker come back"
    cluster.kill(2)
    assert Check.UNDER_REPLICATED_LAGGING not in severities()
    cluster.start(2)
    assert severities()[Check.UNDER_REPLICATED_LAGGING] is Severity.WARNING
    cluster.now_ms += CATCHING_UP_MS
    assert severities()[Check.UNDER_REPLICATED_LAGGING] is Severity.CRITICAL, "it should have caught up"


def test_another_min_isr_is_judged_anew_though_the_topic_is_the_same() -> None:
    frame, kept = FakeCluster(3, {"orders": 1}, min_isr=3).frame(), HealthMemory()
    report = kept.judge(frame)
    assert report is not None and not report.reasons
    report = kept.judge(replace(frame, min_isr={"orders": 4}))
    assert report is not None and [reason.check for reason in report.reasons] == [Check.UNDER_MIN_ISR]


def test_a_broker_that_is_missing_is_neither_silent_nor_asked_for_the_controller() -> None:
    """Brokers are probed only now and then: what a dead one said before it died no longer counts."""
    cluster = small_cluster()
    cluster.kill(2)
    frame = cluster.frame()
    old = {2: BrokerWords(controller_id=7), 3: BrokerWords(trouble="no answer within 5 s")}
    assert _reasons(replace(frame, words={**frame.words, **old})) >= {Check.MISSING_BROKERS, Check.SILENT_BROKERS}
    old[3] = BrokerWords(controller_id=1)
    assert Check.SEVERAL_CONTROLLERS not in _reasons(replace(frame, words={**frame.words, **old}))
    old = {2: BrokerWords(trouble="no answer within 5 s")}
    assert Check.SILENT_BROKERS not in _reasons(replace(frame, words={**frame.words, **old}))


@pytest.mark.parametrize(
    ("status", "is_trouble"),
    [
        (StageStatus(read_at_ms=5), False),
        (StageStatus(read_at_ms=5, missing=("the settings of topic orders",)), True),
        (StageStatus(error="no answer"), True),
    ],
)
def test_settings_of_a_topic_created_since_they_were_read_are_no_trouble(status: StageStatus, is_trouble: bool) -> None:
    frame = FakeCluster(3, {"orders": 1}).frame()
    assert frame.cluster is not None
    topics = tuple(replace(topic, configs=None) for topic in frame.cluster.topics)
    stages = {**frame.stages, Stage.SETTINGS: status}
    frame = replace(frame, cluster=replace(frame.cluster, topics=topics), stages=stages)
    assert (Check.UNKNOWN_SETTINGS in _reasons(frame)) == is_trouble


@pytest.mark.parametrize(
    ("zookeeper", "wire", "lost_ms", "is_trouble"),
    [
        (LinkState.LOST, LinkState.CONNECTED, 5_000, True),
        (LinkState.LOST, LinkState.CONNECTED, 4_000, False),
        (LinkState.CONNECTED, LinkState.CONNECTED, 60_000, False),
        (LinkState.LOST, LinkState.LOST, 60_000, False),
    ],
    ids=["silent", "only just", "answers", "klamm may be cut off itself"],
)
def test_a_zookeeper_that_only_brokers_outlive_is_critical(
    zookeeper: LinkState, wire: LinkState, lost_ms: int, is_trouble: bool
) -> None:
    frame = FakeCluster(3, {"orders": 1}).frame()
    lost = Link(zookeeper, "zk:2181", frame.at_ms - lost_ms, "no answer within 4 s")
    frame = replace(frame, links={Side.ZOOKEEPER: lost, Side.WIRE: Link(wire)})
    report = HealthMemory().judge(frame)
    assert report is not None
    examples = {reason.check: reason.examples for reason in report.reasons}
    assert examples.get(Check.ZOOKEEPER_UNREACHABLE) == (("no answer within 4 s",) if is_trouble else None)


def test_without_any_reading_of_partitions_nothing_is_said() -> None:
    frame = small_cluster().frame()
    assert HealthMemory().judge(replace(frame, stages={})) is None
    assert HealthMemory().judge(replace(frame, cluster=None)) is None


def test_another_controller_counts_when_a_broker_names_it_twice() -> None:
    """A broker hears of a new controller a moment after ZooKeeper has it: that was critical for 10 s."""
    knowledge = Knowledge(SnapshotSource.ZOOKEEPER)
    knowledge.take_members((), {}, 2, 1, "id")
    late = {1: BrokerWords(0, ()), 2: BrokerWords(2, ())}
    assert knowledge.take_words(late), "ask again soon"
    assert {said.controller_id for said in knowledge.words.values()} == {None}
    assert not knowledge.take_words({1: BrokerWords(2, ()), 2: BrokerWords(2, ())})
    assert {said.controller_id for said in knowledge.words.values()} == {2}
    assert knowledge.take_words(late)
    assert not knowledge.take_words(late)
    assert {said.controller_id for said in knowledge.words.values()} == {0, 2}


def test_an_epoch_that_was_read_before_the_controller_moved_is_not_that_of_the_new_one() -> None:
    """It was raised a moment later, and looked as if the new controller had been elected again."""
    knowledge = Knowledge(SnapshotSource.ZOOKEEPER)
    epochs, is_soon = [], []
    for now_ms, (controller_id, epoch) in enumerate(((1, 7), (2, 7), (2, 8), (-1, 8), (2, 9))):
        is_soon.append(knowledge.take_members((), {}, controller_id, epoch, "id"))
        cluster = knowledge.frame(now_ms, {}, {}).cluster
        epochs.append(None if cluster is None else cluster.controller_epoch)
    assert epochs == [7, None, 8, 8, 9]
    assert is_soon == [False, True, False, False, False], "nothing else would tell that it was raised"


def test_a_new_controller_begins_new_doubts() -> None:
    knowledge = Knowledge(SnapshotSource.ZOOKEEPER)
    late = {1: BrokerWords(0, ())}
    for controller in (2, 3):
        knowledge.take_members((), {}, controller, controller, "id")
        assert knowledge.take_words(late)


@pytest.mark.parametrize("missing", [("broker 1: cannot connect",), ()])
@in_event_loop
async def test_a_broker_that_falls_silent_or_comes_back_is_probed_at_once(
    missing: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def read_ends(*_: object) -> object:
        return {}, missing, 1

    async def wire(*_: object) -> None:
        return None

    monkeypatch.setattr("engine.admin.watch.by_wire.read_ends", read_ends)
    monkeypatch.setattr("engine.admin.cluster.connection.Cluster.wire", wire)
    feed = LiveFeed(ClusterTarget("t", Origin.OPTIONS, bootstrap=(("127.0.0.1", 1),)))
    feed._readings._misses_ends = not missing
    schedule = feed._schedules[Stage.PROBES]
    schedule.next_ms = in_an_hour = 3_600_000 + feed._clock.monotonic_ms()
    await feed._readings._read_offsets()
    assert schedule.next_ms <= feed._clock.monotonic_ms()
    schedule.next_ms = in_an_hour
    await feed._readings._read_offsets()
    assert schedule.next_ms == in_an_hour, "once"


def test_what_a_broker_said_before_it_was_started_again_means_nothing() -> None:
    def members(*epochs: int) -> tuple[BrokerInfo, ...]:
        return tuple(BrokerInfo(id_, (), broker_epoch=epoch) for id_, epoch in enumerate(epochs, 1))

    knowledge = Knowledge(SnapshotSource.ZOOKEEPER)
    knowledge.take_members(members(10, 11), {}, 1, 1, "id")
    failed = BrokerWords(1, ("/var/lib/kafka",))
    knowledge.take_words({1: BrokerWords(1), 2: failed})
    knowledge.take_members(members(10, 11), {}, 1, 1, "id")
    assert knowledge.words[2] is failed
    knowledge.take_members(members(10, 12), {}, 1, 1, "id")
    assert list(knowledge.words) == [1]


def test_a_broker_that_fell_silent_says_nothing_whatever_it_said_before() -> None:
    knowledge = Knowledge(SnapshotSource.WIRE)
    knowledge.words = {1: BrokerWords(1), 2: BrokerWords(1)}
    assert knowledge.frame(1, {}, {}).words == knowledge.words
    knowledge.silent_ms = {2: 3_400}
    assert knowledge.frame(2, {}, {}).words == {1: BrokerWords(1), 2: BrokerWords(trouble="no answer for 3 s")}
    knowledge.silent_ms = {}
    assert knowledge.frame(3, {}, {}).words[2] == BrokerWords(1)


def test_where_znodes_have_no_min_isr_the_strictest_broker_says_it() -> None:
    knowledge = Knowledge(SnapshotSource.ZOOKEEPER)
    knowledge.assignments_by_znode = True
    knowledge.take_settings({"own": {"min.insync.replicas": "1"}, "default": {}}, {})
    assert knowledge.min_isr == {"own": 1}, "a file may say anything"
    knowledge.take_words({1: BrokerWords(1, min_isr=2), 2: BrokerWords(1, min_isr=3), 3: BrokerWords(1)})
    knowledge.take_settings({"new": {}})
    assert knowledge.min_isr == {"own": 1, "default": 3, "new": 3}
    knowledge.take_words({1: BrokerWords(trouble="no answer within 5 s")})
    assert knowledge.min_isr["default"] == 3, "nobody has said otherwise"
    knowledge.take_settings({}, {None: {"min.insync.replicas": "1"}, 2: {"min.insync.replicas": "2"}})
    assert knowledge.min_isr == {"own": 1, "default": 2, "new": 2}


@pytest.mark.parametrize("unread", [Stage.METADATA, Stage.REASSIGNMENTS, Stage.SETTINGS, Stage.PROBES])
def test_no_cluster_is_called_healthy_before_all_is_read(unread: Stage) -> None:
    cluster = small_cluster()
    frame = cluster.frame()
    assert not _reasons(frame)
    stages = {**frame.stages, unread: StageStatus()}
    assert HealthMemory().judge(replace(frame, stages=stages)) is None
    denied = {**frame.stages, unread: StageStatus(error="refused")}
    if unread is not Stage.METADATA:
        assert HealthMemory().judge(replace(frame, stages=denied)) is not None, "it will never be read"
    cluster.kill(2)
    frame = replace(cluster.frame(), stages=stages)
    is_told = unread in (Stage.SETTINGS, Stage.PROBES)
    assert (HealthMemory().judge(frame) is not None) == is_told, "what is wrong is told as soon as it is known"


def test_min_isr_is_what_the_brokers_make_of_it() -> None:
    """Since Kafka 3.7 they want no more in sync than a partition has replicas (``klamm cluster health`` knows)."""
    frame = FakeCluster(3, {"alone": 1}, replication_factor=1, min_isr=2).frame()
    assert _reasons(frame) == {Check.UNDER_MIN_ISR}
    words = {broker: replace(said, caps_min_isr=True) for broker, said in frame.words.items()}
    assert _reasons(replace(frame, words=words)) == {Check.MIN_ISR_ABOVE_FACTOR}


def test_a_throttle_is_leaked_once_it_is_known_that_no_plan_needs_it() -> None:
    cluster = small_cluster()
    cluster.set_topic_config("orders", "leader.replication.throttled.replicas", "0:1")
    frame = replace(cluster.frame(), plan=None)
    assert Check.LEAKED_THROTTLES not in _reasons(frame), "nobody has looked who holds the lock"
    assert _reasons(replace(frame, plan="")) == {Check.LEAKED_THROTTLES}
    assert frame.cluster is not None
    by_wire = replace(frame, plan="", cluster=replace(frame.cluster, source=SnapshotSource.WIRE))
    assert _reasons(by_wire) == {Check.LEAKED_THROTTLES}
    refused = StageStatus(error="CLUSTER_AUTHORIZATION_FAILED", is_denied=True)
    blind = replace(by_wire, stages={**by_wire.stages, Stage.REASSIGNMENTS: refused})
    assert Check.LEAKED_THROTTLES not in _reasons(blind), "nobody knows what moves"
    report = HealthMemory().judge(replace(frame, plan="bo@here (pid 1) since 2026: apply plan.json"))
    assert report is not None
    (reason,) = report.reasons
    assert reason.check is Check.RUNNING_REASSIGNMENTS
    assert "bo@here (pid 1) since 2026: apply plan.json" in reason.examples[0]


@in_event_loop
async def test_the_lock_is_looked_up_while_something_is_throttled(monkeypatch: pytest.MonkeyPatch) -> None:
    holders: list[Holder | None] = [Holder("bo", "2026", "apply plan.json"), None]

    async def plan_in_the_way(*_: object) -> Holder | None:
        return holders.pop(0)

    monkeypatch.setattr("engine.admin.watch.stage_readings.plan_in_the_way", plan_in_the_way)
    feed = LiveFeed(ClusterTarget("t", Origin.OPTIONS, bootstrap=(("127.0.0.1", 1),)))
    cluster = small_cluster()
    cluster.set_topic_config("orders", "leader.replication.throttled.replicas", "0:1")
    for holder in ("bo since 2026: apply plan.json", ""):
        snapshot = cluster.frame().cluster
        assert snapshot is not None
        await feed._readings._read_plan_lock(snapshot)
        assert feed._knowledge.frame(1, {}, {}).plan == holder
    calm = small_cluster().frame().cluster
    assert calm is not None
    await feed._readings._read_plan_lock(calm)
    assert feed._knowledge.frame(2, {}, {}).plan is None


async def _no_lag(*_: object, **__: object) -> tuple[LagAnswer, list[str]]:
    return LagAnswer(datetime.now(UTC), ()), []


def test_groups_of_other_protocols_are_there_too(monkeypatch: pytest.MonkeyPatch) -> None:
    async def list_groups(*_: object) -> GroupListing:
        workers = ListedGroup("connect-1", GroupType.CLASSIC, "connect", GroupState.STABLE, 2)
        return GroupListing((workers, ListedGroup("billing", GroupType.CLASSIC, "consumer", GroupState.EMPTY, 1)), {})

    async def nodes() -> dict[int, object]:
        return {1: None, 2: None}

    monkeypatch.setattr("engine.admin.watch.by_wire.list_groups", list_groups)
    meter: Any = SimpleNamespace(measure=_no_lag, forget_all_but=lambda names: None, latest={})
    wire: Any = SimpleNamespace(nodes=nodes)
    read = asyncio.run(GroupReader(meter).read(wire, 1))
    billing, workers = read.groups
    assert (billing.name, workers.name, workers.protocol, workers.coordinator) == ("billing", "connect-1", "connect", 2)
    assert (workers.lag.status, workers.lag.state) == (LagStatus.UNKNOWN, GroupState.STABLE)
    assert "a group of protocol connect" in str(workers.lag.error)


@pytest.mark.parametrize(
    ("has_stalled", "readings", "expected"),
    [
        (False, 3, [("g0", "g1"), ("g2", "g3"), ("g4", "g0")]),
        (True, 6, [("g0", "g1"), ("g2", "g3"), ("g3", "g4"), ("g3", "g0"), ("g3", "g1"), ("g3", "g2")]),
    ],
    ids=["none in trouble", "one in trouble, which is read each time, and all others in turn"],
)
def test_groups_are_measured_in_turn_as_many_at_once_as_the_reader_may(
    monkeypatch: pytest.MonkeyPatch, *, has_stalled: bool, readings: int, expected: list[tuple[str, ...]]
) -> None:
    names = [f"g{number}" for number in range(5)]
    measured: list[tuple[str, ...]] = []

    async def list_groups(*_: object) -> GroupListing:
        return GroupListing(
            tuple(ListedGroup(name, GroupType.CLASSIC, "consumer", GroupState.EMPTY, 1) for name in names), {}
        )

    async def nodes() -> dict[int, object]:
        return {1: None}

    async def measure(*, chosen: FoundGroups) -> tuple[LagAnswer, list[str]]:
        measured.append(chosen.brokers)
        stalled = replace(unmeasured("g3", GroupType.CLASSIC, GroupState.STABLE), status=LagStatus.STALL)
        return LagAnswer(datetime.now(UTC), (stalled,) if has_stalled and "g3" in chosen.brokers else ()), []

    monkeypatch.setattr("engine.admin.watch.by_wire.list_groups", list_groups)
    meter: Any = SimpleNamespace(measure=measure, forget_all_but=lambda names: None, latest={})
    wire: Any = SimpleNamespace(nodes=nodes)
    reader = GroupReader(meter, per_reading=2)
    for _ in range(readings):
        asyncio.run(reader.read(wire, 1))
    assert measured == expected
