"""Events that follow from one failure are one incident, from its cause to the last replica that has caught up."""

from __future__ import annotations

from engine.admin.analysis.incidents import INCIDENTS_MAX, Incidents, Run, runs_around
from engine.admin.watch.events import Event, EventKind


def down(at_ms: int, broker: int) -> Event:
    return Event(at_ms, EventKind.BROKER_DOWN, f"broker {broker}", broker=broker)


def up(at_ms: int, broker: int) -> Event:
    return Event(at_ms, EventKind.BROKER_UP, f"broker {broker}", broker=broker)


def of(at_ms: int, kind: EventKind, before: str, after: str, partition: int = 0) -> Event:
    return Event(at_ms, kind, f"orders-{partition}", before, after, topic="orders", partition=partition)


LOST = [
    down(1_000, 2),
    of(1_000, EventKind.LEADER_CHANGED, "2", "1"),
    of(3_200, EventKind.ISR_SHRANK, "2,1", "1"),
    of(3_200, EventKind.ISR_SHRANK, "2,3", "3", 1),
    of(3_500, EventKind.ISR_SHRANK, "3,1", "3", 2),
    Event(4_000, EventKind.GROUP_APPEARED, "group g"),
]


def folds_of(incidents: Incidents) -> list[int]:
    return [fold.fold if isinstance(fold, Run) else fold for fold in incidents.folds]


def test_what_follows_from_a_failure_is_told_by_kind_with_its_first_time() -> None:
    incidents = Incidents(LOST, 100)
    assert folds_of(incidents) == [1, -1, -1, -1, 0, 0], "a replica of another broker left for another reason"
    incident = incidents[1]
    shrunk = incident.effects[EventKind.ISR_SHRANK]
    assert (shrunk.count, shrunk.first_ms) == (2, 3_200)
    assert incident.new_leaders == {1: 1}
    assert incident.ended_ms is None and len(incident.out) == 2
    assert incident.lasted_s(61_000) == 60


def test_it_ends_when_the_last_replica_has_caught_up_not_when_the_broker_is_back() -> None:
    incidents = Incidents(LOST, 100)
    incidents.take([up(9_000, 2), of(10_000, EventKind.ISR_GREW, "1", "1,2")])
    assert incidents[1].ended_ms is None and incidents.around(2) is incidents[1]
    incidents.take([of(12_000, EventKind.ISR_GREW, "3", "3,2", 1), of(13_000, EventKind.LEADER_CHANGED, "1", "2")])
    assert incidents[1].ended_ms == 12_000 and incidents.around(2) is None
    assert incidents[1].lasted_s(99_000) == 11
    assert folds_of(incidents)[-4:] == [-1, -1, -1, 0]


def test_who_leads_after_nobody_did_follows_from_what_left_it_without_a_leader() -> None:
    offline = [
        of(1_100, EventKind.PARTITION_OFFLINE, "2", "none", 5),
        of(1_100, EventKind.PARTITION_OFFLINE, "3", "none", 6),
    ]
    elected = [of(2_000 + n, EventKind.LEADER_CHANGED, "none", "1", n) for n in (5, 6)]
    incidents = Incidents(
        [down(1_000, 2), *offline, *elected, of(3_000, EventKind.LEADER_CHANGED, "none", "3", 5)], 100
    )
    assert folds_of(incidents) == [1, -1, 0, -1, 0, 0], "another time, it is for another reason"
    assert incidents[1].new_leaders == {1: 1}


def test_a_broker_that_fails_again_meanwhile_goes_on_with_its_incident() -> None:
    incidents = Incidents([*LOST, up(5_000, 2), down(6_000, 2)], 100)
    incidents.take([of(7_000, EventKind.ISR_GREW, "1", "1,2"), of(7_000, EventKind.ISR_GREW, "3", "3,2", 1)])
    assert incidents[1].ended_ms is None, "nothing is out of sync, but the broker is down"
    incidents.take([up(8_000, 2)])
    assert incidents[1].ended_ms == 8_000
    incidents.take([down(20_000, 2)])
    assert incidents.folds[-1] == 2, "another time is another incident"


def test_two_brokers_that_fail_have_an_incident_each() -> None:
    incidents = Incidents([down(1, 1), down(1, 2), of(2, EventKind.PARTITION_OFFLINE, "2", "")], 100)
    assert list(incidents.folds) == [1, 2, -2]


def test_only_so_many_are_kept_as_events_are() -> None:
    incidents = Incidents((), 50)
    for number in range(INCIDENTS_MAX + 5):
        incidents.take([down(number * 10, 1), up(number * 10 + 1, 1)])
    assert len(incidents.folds) == 50
    assert 5 not in incidents and 6 in incidents


def test_replicas_that_were_deleted_or_moved_away_keep_no_incident_open() -> None:
    for first, last in ((0, 1), (1, 0)):
        incidents = Incidents([*LOST, up(9_000, 2)], 100)
        moved = of(10_000, EventKind.REASSIGNMENT_FINISHED, "1,2", "1,3", first)
        stays = of(10_500, EventKind.REASSIGNMENT_FINISHED, "1,2", "2,3", last)
        incidents.take([moved, stays])
        assert incidents[1].ended_ms is None and len(incidents[1].out) == 1
        incidents.take([Event(11_000, EventKind.TOPIC_DELETED, "orders", topic="orders")])
        assert incidents[1].ended_ms == 11_000 and incidents.around(2) is None
        assert folds_of(incidents)[-3:] == [0, 0, 0], "they are events of their own"


def test_what_came_at_the_same_moment_is_one_run_apart_from_what_followed_from_a_failure() -> None:
    elected = [of(20_000, EventKind.LEADER_CHANGED, "1", "2", number) for number in range(3)]
    incidents = Incidents([*LOST, *elected[:1], of(20_000, EventKind.ISR_GREW, "1", "1,3", 7), *elected[1:]], 100)
    *_, first, grew, second, third = incidents.folds
    assert isinstance(first, Run) and first is second is third and grew == 0
    assert (first.count, first.subjects, first.fold) == (3, ["orders-0", "orders-1", "orders-2"], 0)
    shrunk = list(incidents.folds)[2]
    assert isinstance(shrunk, Run) and (shrunk.count, shrunk.fold) == (2, -1), "that of another broker is none of them"
    incidents.take([of(21_000, EventKind.LEADER_CHANGED, "1", "3")])
    assert incidents.folds[-1] == 0, "another moment"
    short = Incidents(elected, 2)
    assert [isinstance(fold, Run) for fold in short.folds] == [True, True], "the first is forgotten, the run is not"


def around(events: list[Event], since_ms: int, setting: str = "") -> list[Run]:
    return runs_around(
        Incidents(events, 100).runs, events, since_ms, lambda event: event.kind is not EventKind.ISR_SHRANK, setting
    )


def test_what_happened_then_is_the_gravest_in_the_order_of_time() -> None:
    events = [
        of(1_000, EventKind.LEADER_CHANGED, "2", "1"),
        *(of(1_500 + n, EventKind.FIRST_LEADER, "", "1") for n in range(5)),
        of(2_000, EventKind.ISR_SHRANK, "2,1", "1"),
        down(2_500, 2),
        down(9_000, 3),
        up(30_000, 2),
    ]
    kinds = [(run.event.at_ms, run.event.kind) for run in around(events, 2_600)]
    assert kinds == [
        (1_000, EventKind.LEADER_CHANGED), (2_000, EventKind.ISR_SHRANK), (2_500, EventKind.BROKER_DOWN),
        (30_000, EventKind.BROKER_UP),
    ]  # fmt: skip
    assert not around(events, 20_000), "what came back in another moment is of another failure"


def test_isr_shrinks_do_not_push_out_that_leaders_moved() -> None:
    events = [
        down(1_000, 2),
        of(1_100, EventKind.ISR_SHRANK, "2,1", "1"),
        of(1_200, EventKind.ISR_SHRANK, "3,1", "1", 1),
        of(1_300, EventKind.LEADER_CHANGED, "2", "1", 2),
        of(1_400, EventKind.PARTITION_OFFLINE, "2", "none", 3),
    ]
    for without in range(3, 5):
        kept = [event for number, event in enumerate(events) if number != without]
        assert [run.event for run in around(kept, 1_000)] == [kept[0], kept[1], kept[3]]
    assert [run.event for run in around(events, 1_000)] == [events[0], *events[3:]]


def test_what_happened_then_includes_the_end_of_a_silent_brokers_session() -> None:
    silent = Event(1_000, EventKind.BROKER_SILENT, "broker 2", broker=2)
    lost = [down(7_000, 2), of(7_100, EventKind.ISR_SHRANK, "2,1", "1"), of(7_200, EventKind.LEADER_CHANGED, "2", "1")]

    def kinds(*events: Event) -> list[EventKind]:
        return [run.event.kind for run in around([*events], 1_000)]

    assert kinds(silent, *lost) == [
        EventKind.BROKER_SILENT, EventKind.BROKER_DOWN, EventKind.ISR_SHRANK, EventKind.LEADER_CHANGED,
    ]  # fmt: skip
    answers = Event(4_000, EventKind.BROKER_ANSWERS, "broker 2", broker=2)
    assert kinds(silent, answers, *lost) == [EventKind.BROKER_SILENT, EventKind.BROKER_ANSWERS], "another failure"
    assert kinds(silent, down(7_000, 3)) == [EventKind.BROKER_SILENT], "another broker"


def test_all_changes_of_the_settings_concerned_are_told_for_a_minute() -> None:
    def altered(at_ms: int, broker: int, after: str) -> Event:
        return Event(at_ms, EventKind.BROKER_CONFIG_CHANGED, f"broker {broker}", "", after, broker=broker)

    rate = "leader.replication.throttled.rate=1000"
    events = [
        altered(1_000, 9, rate), altered(62_000, 8, "log.retention.ms=1"),
        *(altered(63_000 + 2_000 * broker, broker, rate) for broker in range(4)),
        Event(70_000, EventKind.TOPIC_CONFIG_CHANGED, "orders", "", "leader.replication.throttled.replicas=*"),
    ]  # fmt: skip
    brokers, topic = around(events, 71_000, "throttled")
    assert (brokers.count, brokers.subjects) == (4, [f"broker {broker}" for broker in range(4)])
    assert brokers.is_alike and brokers.event.after == rate and topic.subjects == ["orders"]
    (brokers, _) = around([*events, altered(70_500, 5, rate + "0")], 71_000, "throttled")
    assert not brokers.is_alike, "they changed to different values"
    assert [run.event.subject for run in around(events, 1_000, "quota")] == ["broker 9"], "no such setting was changed"
