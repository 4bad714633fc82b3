"""What happened between two frames: each kind of event, its cause, and what is not an event."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_cluster import FakeCluster, small_cluster

from engine.admin.analysis.timeline import timelines
from engine.admin.cluster.target import Side
from engine.admin.watch.diff import WATCHED_WITHIN_MS, diff
from engine.admin.watch.events import Event, EventKind
from engine.admin.watch.frame import BrokerWords, Frame, Link, LinkState, Stage, StageSource, StageStatus
from engine.common.model import NO_CONTROLLER, NO_LEADER, ReplicaAssignment, TopicPartition
from engine.common.snapshot import TopicSnapshot

ORDERS = TopicPartition("orders", 0)


@pytest.fixture
def cluster() -> FakeCluster:
    """Three brokers and one partition that 1 leads, after the first frame."""
    made = FakeCluster(3, {"orders": 1})
    made.frame()
    made.advance()
    return made


def _events(cluster: FakeCluster) -> list[Event]:
    return list(cluster.frame().events)


def _kinds(cluster: FakeCluster) -> list[EventKind]:
    return [event.kind for event in _events(cluster)]


def test_a_first_frame_and_one_in_which_nothing_changed_have_no_events() -> None:
    cluster = small_cluster()
    assert cluster.frame().events == ()
    cluster.advance()
    assert cluster.frame().events == ()


def test_a_dead_broker_comes_before_what_it_causes(cluster: FakeCluster) -> None:
    cluster.kill(1)
    down, controller, leader, isr = _events(cluster)
    assert (down.kind, down.broker, down.within_ms) == (EventKind.BROKER_DOWN, 1, WATCHED_WITHIN_MS)
    assert (controller.kind, controller.before, controller.after) == (EventKind.CONTROLLER_MOVED, "1", "2")
    assert controller.reason == "broker 1 is down"
    assert (leader.kind, leader.before, leader.after) == (EventKind.LEADER_CHANGED, "1", "2")
    assert (leader.reason, leader.within_ms, leader.topic_partition) == ("broker 1 is down", 1000, ORDERS)
    assert (isr.kind, isr.before, isr.after, isr.broker) == (EventKind.ISR_SHRANK, "1,2,3", "2,3", 1)
    assert isr.reason == "1 left, down"


def test_a_broker_that_comes_back_and_its_replica(cluster: FakeCluster) -> None:
    cluster.kill(3)
    cluster.frame()
    cluster.start(3)
    assert _kinds(cluster) == [EventKind.BROKER_UP]
    cluster.advance()
    (grew,) = _events(cluster)
    assert (grew.kind, grew.reason) == (EventKind.ISR_GREW, "3 caught up")


def test_a_registration_that_no_frame_saw_missing_is_told_by_the_broker_epoch(cluster: FakeCluster) -> None:
    cluster.kill(3)
    cluster.start(3)
    cluster.advance()
    assert _kinds(cluster) == [EventKind.BROKER_REREGISTERED]


def test_a_broker_that_falls_silent_and_answers_again(cluster: FakeCluster) -> None:
    answers = cluster.frame()
    assert answers.cluster is not None
    hangs = replace(answers, words={**answers.words, 2: BrokerWords(trouble="no answer for 1 s")})
    longer = replace(answers, words={**answers.words, 2: BrokerWords(trouble="no answer for 2 s")})
    (silent,) = diff(answers, hangs)
    assert (silent.kind, silent.subject, silent.broker) == (EventKind.BROKER_SILENT, "broker 2", 2)
    assert silent.reason == "no answer for 1 s"
    assert diff(hangs, longer) == ()
    assert [event.kind for event in diff(longer, answers)] == [EventKind.BROKER_ANSWERS]
    others = tuple(broker for broker in answers.cluster.brokers if broker.id != 2)
    down = replace(answers, cluster=replace(answers.cluster, brokers=others))
    assert [event.kind for event in diff(hangs, down)] == [EventKind.BROKER_DOWN], "it is down, and does not answer"
    nobody = replace(answers, words=dict.fromkeys(answers.words, BrokerWords(trouble="no answer within 5 s")))
    assert diff(answers, nobody) == diff(nobody, answers) == (), "the connection is lost: that is told once"
    assert diff(hangs, nobody) == diff(nobody, hangs) == ()
    unasked = replace(answers, words={})
    assert diff(unasked, hangs) == (), "what becomes known for the first time is no event"


def test_leadership_that_goes_back_and_a_partition_without_a_leader(cluster: FakeCluster) -> None:
    cluster.move_leader(ORDERS, 2)
    assert _events(cluster)[0].reason == ""
    cluster.elect_preferred()
    assert _events(cluster)[0].reason == "the preferred replica leads"
    for broker in (3, 2):
        cluster.kill(broker)
    cluster.frame()
    cluster.kill(1)
    offline = next(event for event in _events(cluster) if event.kind is EventKind.PARTITION_OFFLINE)
    assert (offline.before, offline.after, offline.reason) == ("1", "none", "broker 1 is down")


def test_a_leader_whose_replica_moved_away_says_so(cluster: FakeCluster) -> None:
    """The new leader is the preferred one then, which is not why it leads."""
    before = cluster.frame()
    assert before.cluster is not None
    (topic,) = before.cluster.topics
    moved = replace(topic.partitions[0], assignment=ReplicaAssignment((2, 3)), leader=2, isr=(2, 3))
    after = replace(before, cluster=replace(before.cluster, topics=(replace(topic, partitions=(moved,)),)))
    reasons = {event.kind: event.reason for event in diff(before, after)}
    assert reasons[EventKind.LEADER_CHANGED] == "broker 1 has no replica any more"


def test_an_isr_in_another_order_is_no_event_and_one_that_swapped_is_one(cluster: FakeCluster) -> None:
    before = cluster.frame()
    assert before.cluster is not None

    def with_isr(*isr: int) -> tuple[TopicSnapshot, ...]:
        topic = before.cluster.topics[0]  # type: ignore[union-attr]
        return (replace(topic, partitions=(replace(topic.partitions[0], isr=isr),)),)

    turned = replace(before, cluster=replace(before.cluster, topics=with_isr(3, 1, 2)))
    assert diff(before, turned) == ()
    small, other = (replace(before, cluster=replace(before.cluster, topics=with_isr(*isr))) for isr in ((1, 2), (1, 3)))
    (event,) = diff(small, other)
    assert (event.kind, event.reason, event.broker) == (EventKind.ISR_CHANGED, "2 left, 3 caught up", None)


def test_a_new_partition_gets_its_first_leader_and_nobody_comes_back(cluster: FakeCluster) -> None:
    led = cluster.frame()
    assert led.cluster is not None
    (topic,) = led.cluster.topics

    def with_partition(**state: object) -> Frame:
        partition = replace(topic.partitions[0], **state)  # type: ignore[arg-type]
        return replace(led, cluster=replace(led.cluster, topics=(replace(topic, partitions=(partition,)),)))  # type: ignore[type-var]

    new = with_partition(leader=NO_LEADER, isr=())
    (first,) = diff(new, led)
    assert (first.kind, first.before, first.after, first.broker) == (EventKind.FIRST_LEADER, "", "1", 1)
    assert (first.reason, first.topic_partition) == ("created with ISR 1,2,3", ORDERS)
    (row,) = timelines([first])
    assert (row.absences, [(leader.before, leader.after) for leader in row.leaders]) == ((), [(None, 1)])
    assert diff(new, with_partition(leader=NO_LEADER, isr=())) == ()
    offline = with_partition(leader=NO_LEADER, isr=(1,))
    assert [change.kind for change in diff(offline, led)] == [EventKind.LEADER_CHANGED, EventKind.ISR_GREW], (
        "it had a state"
    )
    assert diff(offline, led)[0].reason == "the preferred replica leads"
    assert diff(with_partition(leader=NO_LEADER, isr=(3,)), led)[0].reason == "an unclean election: it was not in sync"


def test_a_replica_that_a_reassignment_adds_does_not_come_back(cluster: FakeCluster) -> None:
    after = cluster.frame()
    assert after.cluster is not None
    (topic,) = after.cluster.topics
    moving = ReplicaAssignment((1, 2, 3), adding_replicas=(3,))
    partition = replace(topic.partitions[0], assignment=moving, isr=(1, 2))
    grown = replace(partition, isr=(1, 2, 3))
    before, after = (
        replace(after, cluster=replace(after.cluster, topics=(replace(topic, partitions=(changed,)),)))
        for changed in (partition, grown)
    )
    (grew,) = diff(before, after)
    assert (grew.kind, grew.reason) == (EventKind.ISR_GREW, "3 caught up")


def test_topics_come_grow_change_and_go(cluster: FakeCluster) -> None:
    cluster.create_topic("new", 2)
    (created,) = _events(cluster)
    assert (created.kind, created.subject, created.after) == (EventKind.TOPIC_CREATED, "new", "2")
    cluster.set_topic_config("new", "retention.ms", "5")
    (changed,) = _events(cluster)
    assert (changed.kind, changed.before, changed.after) == (EventKind.TOPIC_CONFIG_CHANGED, "", "retention.ms=5")
    cluster.delete_topic("new")
    assert _kinds(cluster) == [EventKind.TOPIC_DELETED]


def test_a_topic_of_the_same_name_with_another_id_is_another_topic(cluster: FakeCluster) -> None:
    before = cluster.frame()
    assert before.cluster is not None
    (topic,) = before.cluster.topics
    other = replace(topic, topic_id=b"x" * 16, partitions=(replace(topic.partitions[0], leader=3, leader_epoch=0),))
    after = replace(before, cluster=replace(before.cluster, topics=(other,)))
    assert [event.kind for event in diff(before, after)] == [EventKind.TOPIC_RECREATED]
    grown = replace(topic, partitions=(*topic.partitions, replace(topic.partitions[0], partition=1)))
    after = replace(before, cluster=replace(before.cluster, topics=(grown,)))
    (event,) = diff(before, after)
    assert (event.kind, event.before, event.after) == (EventKind.PARTITIONS_ADDED, "1", "2")
    marked = replace(before, cluster=replace(before.cluster, topics=(replace(topic, is_marked_for_deletion=True),)))
    assert [event.kind for event in diff(before, marked)] == [EventKind.TOPIC_DELETION_STARTED]


def test_a_reassignment_begins_changes_ends_and_is_cancelled() -> None:
    cluster = FakeCluster(5, {"orders": 1}, copy_rate=10**12)
    cluster.frame()
    cluster.reassign(ORDERS, (4, 5, 1))
    (started,) = _events(cluster)
    assert (started.kind, started.before, started.after) == (EventKind.REASSIGNMENT_STARTED, "1,2,3", "4,5,1")
    cluster.cancel(ORDERS)
    assert _kinds(cluster) == [EventKind.REASSIGNMENT_CANCELLED]
    cluster.reassign(ORDERS, (4, 5, 1))
    cluster.frame()
    cluster.advance()
    kinds = _kinds(cluster)
    assert EventKind.REASSIGNMENT_FINISHED in kinds and EventKind.REASSIGNMENT_CANCELLED not in kinds


def test_secrets_of_brokers_are_hidden(cluster: FakeCluster) -> None:
    cluster.set_broker_config(None, "log.cleaner.threads", "2")
    (event,) = _events(cluster)
    assert (event.kind, event.subject, event.after) == (
        EventKind.BROKER_CONFIG_CHANGED,
        "all brokers",
        "log.cleaner.threads=2",
    )
    cluster.set_broker_config(2, "ssl.keystore.password", "hunter2")
    (event,) = _events(cluster)
    assert event.after == "ssl.keystore.password=[hidden]" and event.broker == 2


def test_log_dirs_and_groups() -> None:
    cluster = small_cluster()
    cluster.frame()
    cluster.fail_log_dir(2)
    (failed,) = _events(cluster)
    assert (failed.kind, failed.broker, failed.reason) == (EventKind.LOG_DIR_FAILED, 2, "KAFKA_STORAGE_ERROR")
    cluster.add_group("new", "orders", reads=1)
    (appeared,) = _events(cluster)
    assert (appeared.kind, appeared.subject, appeared.after) == (EventKind.GROUP_APPEARED, "group new", "Stable")


def test_groups_that_are_read_for_the_first_time_have_not_appeared() -> None:
    cluster = small_cluster()
    cluster.fail_stage(Stage.GROUPS, "no answer")
    cluster.frame()
    cluster.heal_stage(Stage.GROUPS)
    cluster.advance()
    frame = cluster.frame()
    assert frame.groups and frame.events == ()


def test_a_lost_connection_is_told_and_nothing_is_invented_of_the_cluster() -> None:
    cluster = small_cluster()
    cluster.frame()
    for side in Side:
        cluster.set_link(side, LinkState.LOST, "gone")
    cluster.kill(2)
    assert _kinds(cluster) == [EventKind.CONNECTION_LOST] * 2
    cluster.advance()
    assert _kinds(cluster) == []
    for side in Side:
        cluster.set_link(side, LinkState.CONNECTED)
    kinds = _kinds(cluster)
    assert kinds[:2] == [EventKind.CONNECTION_BACK] * 2 and EventKind.BROKER_DOWN in kinds


def test_the_first_connection_is_no_event_and_no_controller_is_none() -> None:
    cluster = small_cluster()
    cluster.set_link(Side.WIRE, LinkState.CONNECTING)
    cluster.frame()
    cluster.set_link(Side.WIRE, LinkState.CONNECTED)
    assert EventKind.CONNECTION_BACK not in _kinds(cluster)
    before = cluster.frame()
    never = {side: Link(LinkState.LOST, "there", cause="refused") for side in Side}
    cluster.advance()
    assert diff(replace(before, links=never), cluster.frame()) == (), "it had never answered before"
    cluster.move_controller(NO_CONTROLLER)
    assert [event.after for event in _events(cluster) if event.kind is EventKind.CONTROLLER_MOVED] == ["none"]


def test_in_rotation_each_partition_tells_its_own_precision(cluster: FakeCluster) -> None:
    before = cluster.frame()
    stages = dict(before.stages)
    stages[Stage.METADATA] = replace(stages[Stage.METADATA], source=StageSource.ROTATION)
    before = replace(before, stages=stages, read_at_ms={ORDERS: 5_000})
    cluster.move_leader(ORDERS, 2)
    after = replace(cluster.frame(), stages=stages, read_at_ms={ORDERS: 65_000})
    (event,) = diff(before, after)
    assert event.within_ms == 60_000
    (event,) = diff(replace(before, read_at_ms={}), after)
    assert event.within_ms is None


def test_equal_texts_of_events_are_one_object() -> None:
    """Viewers keep events by the ten thousand: a text for each would take more memory than the events."""
    cluster = FakeCluster(3, {"orders": 3})
    shrank = []
    for _ in range(3):
        cluster.frame()
        cluster.kill(3)
        cluster.advance()
        shrank.append([event for event in cluster.frame().events if event.kind is EventKind.ISR_SHRANK])
        cluster.start(3)
        cluster.advance()
    for row, again in zip(*shrank[1:], strict=True):
        for name in ("subject", "before", "after", "reason"):
            assert getattr(row, name) is getattr(again, name), name
    assert len(shrank[1]) == 3
    assert shrank[1][0].within_ms == 1000 and len({id(row.within_ms) for row in shrank[1]}) == 1


def test_settings_of_brokers_that_are_read_for_the_first_time_are_no_change(cluster: FakeCluster) -> None:
    before = cluster.frame()
    cluster.set_broker_config(1, "follower.replication.throttled.rate", "8000000")
    after = cluster.frame()
    assert [event.kind for event in diff(before, after)] == [EventKind.BROKER_CONFIG_CHANGED]
    unread = replace(before, stages={**before.stages, Stage.SETTINGS: StageStatus()})
    assert diff(unread, after) == ()
