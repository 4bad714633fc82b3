"""Causes, leaders, margins, trends, timelines, clocks and epochs, each against a cluster counted by hand."""

from __future__ import annotations

from array import array
from dataclasses import replace
from typing import NoReturn

import pytest
from fake_cluster import START_MS, FakeCluster, small_cluster

from engine.admin.analysis.causes import Cause, missing_brokers
from engine.admin.analysis.clocks_and_epochs import LASTS_MS, Doubt, Finding, SanityCheck
from engine.admin.analysis.disks import TopicGrowth, dir_trends, room_advice, what_frees
from engine.admin.analysis.history import History, Sample, slope_of
from engine.admin.analysis.tallies import Tallies, Tally, tally_of
from engine.admin.analysis.timeline import Absence, LeaderChange, timelines
from engine.admin.health.checks import assess
from engine.admin.health.report import Check
from engine.admin.watch.events import Event, EventKind
from engine.admin.watch.frame import BrokerRegistration, Frame, Stage, StageSource, StageStatus
from engine.admin.watch.judging import facts_of
from engine.admin.watch.packed_logs import ReplicaLogs
from engine.common.model import TopicPartition
from engine.common.turns import SLICE

ORDERS = TopicPartition("orders", 0)


def _tally(frame: Frame) -> Tally:
    return Tallies().of_frame(frame)


def _played(cluster: FakeCluster, seconds: int) -> tuple[Frame, History]:
    history = History()
    for _ in range(seconds):
        cluster.advance()
        frame = cluster.frame()
        _take(frame, history)
    return frame, history


def _take(frame: Frame, history: History) -> None:
    """Take a frame as the dashboard does, which looks at the disks with each."""
    for _ in history.turns(frame):
        pass
    history.take(frame)
    dir_trends(frame, history)


def test_the_broker_that_most_partitions_miss_is_named_first_with_the_cause() -> None:
    cluster = FakeCluster(3, {"orders": 4}, min_isr=1)
    cluster.kill(3)
    cluster.shrink_isr(TopicPartition("orders", 0), 2)
    frame = cluster.frame()
    first, second = missing_brokers(frame, _tally(frame))
    assert (first.broker, first.missed_by, first.of, first.cause) == (3, 4, 4, Cause.DOWN)
    assert str(first) == "broker 3 is out of the ISR of 4 of 4 under-replicated partitions"
    assert (second.broker, second.missed_by, second.cause) == (2, 1, Cause.LAGGING)


@pytest.mark.parametrize(("fail", "cause"), [("silence", Cause.SILENT), ("fail_log_dir", Cause.LOG_DIR_FAILED)])
def test_a_live_broker_that_is_missed_has_another_cause(fail: str, cause: Cause) -> None:
    cluster = FakeCluster(3, {"orders": 3})
    getattr(cluster, fail)(2)
    cluster.shrink_isr(ORDERS, 2)
    frame = cluster.frame()
    (missing,) = missing_brokers(frame, _tally(frame))
    assert missing.cause is cause and missing.detail


def test_an_election_gives_leaders_back_to_the_preferred_replicas_that_are_in_sync() -> None:
    cluster = FakeCluster(3, {"orders": 6})
    cluster.kill(3)
    tally = _tally(cluster.frame())
    assert tally.electable.total() == 0 and tally.imbalance_percent(3) == 100
    cluster.start(3)
    cluster.advance()
    tally = _tally(cluster.frame())
    assert tally.electable == {3: 2} and tally.leaders[3] == 0 and tally.imbalance_percent(3) == 100
    cluster.elect_preferred()
    tally = _tally(cluster.frame())
    assert tally.leaders == {1: 2, 2: 2, 3: 2} and tally.imbalance_percent(3) == 0


def test_partitions_are_counted_by_their_margin_over_min_isr() -> None:
    cluster = FakeCluster(4, {"orders": 4}, min_isr=1)
    for partition, gone in ((0, 0), (1, 1), (2, 2)):
        replicas = cluster.frame().cluster.partition(TopicPartition("orders", partition)).replicas  # type: ignore[union-attr]
        for broker in replicas[3 - gone :]:
            cluster.shrink_isr(TopicPartition("orders", partition), broker)
    topic = cluster.frame().cluster.topic("orders")  # type: ignore[union-attr]
    assert topic is not None
    alive = frozenset(range(1, 5))
    tally = tally_of(topic, 1, alive)
    assert (tally.below_min, tally.at_min, tally.one_above, tally.well_above, tally.no_min) == (0, 1, 1, 2, 0)
    tally = tally_of(topic, 2, alive)
    assert (tally.below_min, tally.at_min, tally.one_above, tally.well_above) == (1, 1, 2, 0)
    assert tally_of(topic, None, alive).no_min == 4
    assert tally_of(replace(topic, is_marked_for_deletion=True), 1, alive).partitions == 0


def test_no_election_gives_a_leader_back_to_a_dead_broker() -> None:
    """The dead broker is the last of the ISR: Kafka keeps it there, and elects nobody."""
    cluster = FakeCluster(3, {"alone": 3}, replication_factor=1, min_isr=1)
    cluster.kill(1)
    tally = _tally(cluster.frame())
    assert (tally.leaderless, tally.led_elsewhere[1]) == (1, 1)
    assert tally.electable.total() == 0


def test_counts_are_those_of_the_health_checks() -> None:
    """A leader that is dead leads nothing, whatever the partition's state still says; what is offline is only that."""
    cluster = FakeCluster(3, {"orders": 6}, min_isr=2)
    frame = cluster.frame()
    assert frame.cluster is not None
    brokers = tuple(broker for broker in frame.cluster.brokers if broker.id != 2)
    gone = replace(frame, cluster=replace(frame.cluster, brokers=brokers))
    for judged, caps in ((gone, False), (replace(gone, min_isr={"orders": 4}), False), (gone, True)):
        words = {broker: replace(said, caps_min_isr=caps) for broker, said in judged.words.items()}
        judged = replace(judged, words=words)
        report = assess(facts_of(judged), examples_max=None)
        counts = {reason.check: reason.count for reason in report.reasons}
        tally = _tally(judged)
        assert (tally.leaderless, tally.below_min) == (
            counts.get(Check.OFFLINE_PARTITIONS, 0), counts.get(Check.UNDER_MIN_ISR, 0),
        )  # fmt: skip
        assert tally.leaderless == 2


def test_kept_counts_are_those_of_a_fresh_count() -> None:
    cluster, kept = small_cluster(), Tallies()
    steps = (
        lambda: cluster.kill(2),
        lambda: cluster.start(2),
        cluster.advance,
        lambda: cluster.delete_topic("audit"),
        lambda: cluster.set_topic_config("orders", "min.insync.replicas", "3"),
    )
    for step in steps:
        step()
        frame = cluster.frame()
        assert kept.of_frame(frame) == _tally(frame)
    frame = replace(frame, min_isr={**frame.min_isr, "clicks": 3})
    assert kept.of_frame(frame) == _tally(frame)


def test_a_slope_says_how_sure_it_is() -> None:
    exact = slope_of([Sample(second * 1000, 5.0 * second) for second in range(10)], 60_000)
    assert exact is not None and exact.per_s == pytest.approx(5.0) and exact.is_rising
    noise = slope_of([Sample(second * 1000, 100.0 * (second % 2)) for second in range(10)], 60_000)
    assert noise is not None and not noise.is_rising
    turned = slope_of([Sample(s * 1000, -abs(s - 50.0)) for s in range(100)], 20_000)
    assert turned is not None and turned.per_s == pytest.approx(-1.0)
    assert slope_of([Sample(0, 1.0), Sample(1, 2.0)], 60_000) is None and slope_of([], 1) is None


def test_a_log_dir_that_fills_says_when_it_is_full() -> None:
    cluster = FakeCluster(2, {"orders": 1}, replication_factor=1, min_isr=1, rate=1_000)
    cluster.fail_log_dir(2)
    frame, history = _played(cluster, 310)
    failed, filling = dir_trends(frame, history)
    assert failed.broker == 2 and failed.error and failed.full_in_s is None
    assert filling.bytes_per_s == pytest.approx(1_000_000)
    assert filling.used_percent == pytest.approx(0.115, abs=0.001)
    assert filling.full_in_s == pytest.approx((2e12 - 2e9 - 301e6) / 1e6)
    frame, history = _played(FakeCluster(1, {"orders": 1}, replication_factor=1, rate=0), 60)
    assert dir_trends(frame, history)[0].full_in_s is None


@pytest.mark.parametrize(
    ("seconds", "is_told"),
    [
        ([10] * 4, True),  # Half a minute at a rate that fills it within five.
        ([0] * 20 + [1] * 3, False),  # A burst, seen for twenty seconds, is no trend of hours.
        ([1] * 40, True),  # More than five minutes of the same: hours ahead are a trend.
        ([1] * 40 + [0] * 30, False),  # It filled, and no longer does.
        ([0] * 9 + [30, 60] + [0.01] * 2, True),  # A burst on a small disk that may go on.
        ([0] * 9 + [30, 60] + [0.01] * 3, False),  # It is over: what else the volume takes is no part of it.
        ([0] * 9 + [30] * 6 + [0] * 4, True),  # A longer one has to rest for longer.
        ([0] * 9 + [20] * 6 + [0] * 6, False),
        (([6] * 2 + [0] * 8) * 3 + [6], True),  # It fills in steps, a hundred seconds apart.
        (([6] * 2 + [0] * 8) * 4, True),
    ],
)
def test_what_was_seen_briefly_or_has_ended_is_no_trend(seconds: list[float], is_told: bool) -> None:
    (trend,) = dir_trends(*_filled(seconds))
    assert (trend.full_in_s is not None) == is_told, trend


@pytest.mark.parametrize(
    ("after", "is_overtaken", "full_in_s"),
    [
        ([], True, 240),  # Nothing was read since, so all that can be said is what was true before.
        ([0] * 2, True, 244),
        ([0.5] * 3, False, 2_370),
        ([0] * 3, False, None),  # It does not fill any more.
        ([20] * 3, False, 30),  # They were let go.
    ],
)
def test_a_quota_on_producers_makes_what_was_foretold_before_it_count_no_more(
    after: list[float], is_overtaken: bool, full_in_s: int | None
) -> None:
    frame, history = _filled([5] * 36 + after)
    (trend,) = dir_trends(frame, history, frame.at_ms - 10_000 * len(after) + 1)
    expected = full_in_s and pytest.approx(full_in_s, rel=0.01)
    assert (trend.is_overtaken, trend.full_in_s) == (is_overtaken, expected)


def _filled(seconds: list[float]) -> tuple[Frame, History]:
    """Read every ten seconds a log dir that takes so many megabytes a second, with 3 GB of room."""
    cluster = FakeCluster(1, {"orders": 1}, replication_factor=1, rate=0)
    frame, history = cluster.frame(), History()
    (log_dir,) = frame.log_dirs
    room = 3_000_000_000
    for number, rate in enumerate(seconds):
        room -= int(rate * 10_000_000)
        at_ms = cluster.now_ms + 10_000 * number
        stages = {**frame.stages, Stage.LOG_DIRS: replace(frame.stage(Stage.LOG_DIRS), read_at_ms=at_ms)}
        dirs = (replace(log_dir, usable_bytes=room),)
        frame = replace(frame, sequence=frame.sequence + 1, at_ms=at_ms, stages=stages, log_dirs=dirs)
        history.take(frame)
    return frame, history


def _big_and_small(**configs: str) -> FakeCluster:
    """One broker, almost full: ``big`` has four of the five partitions that grow."""
    cluster = FakeCluster(1, {"small": 1}, replication_factor=1, rate=1_000, partition_bytes=390_000_000_000)
    cluster.create_topic("big", 4, replication_factor=1, **configs)
    return cluster


def _advice(frame: Frame, history: History) -> str:
    trends = dir_trends(frame, history)
    return str(room_advice(trends[0], trends, frame, history))


def test_a_log_dir_that_fills_names_the_topic_that_grows_most_in_it() -> None:
    frame, history = _played(_big_and_small(), 25)
    (trend,) = dir_trends(frame, history)
    assert trend.grower == TopicGrowth("big", pytest.approx(4_000_000))
    assert trend.recent_per_s == pytest.approx(5_000_000)
    assert len(history.readings) <= 3
    frame, history = _played(_big_and_small(file_delete_delay_ms="1000"), 25)
    grower = dir_trends(frame, history)[0].grower
    assert grower is not None and grower.delay_ms == 1_000
    frame, history = _played(FakeCluster(1, {"small": 5}, replication_factor=1, rate=0,
                                         partition_bytes=390_000_000_000), 25)  # fmt: skip
    (trend,) = dir_trends(frame, history)
    assert trend.is_filling and trend.grower is None


def test_what_a_topic_grows_by_takes_a_look_at_its_own_log_dirs_only() -> None:
    """A large cluster has a thousand of them, and thousands of topics."""

    class Places(tuple[tuple[int, bool, str], ...]):
        def __iter__(self) -> NoReturn:
            raise AssertionError("looked at all")

    places = Places((broker, False, "/d") for broker in range(1000))
    then, now = (ReplicaLogs(places, {"t": array("q", [0, 7, size, 0])}) for size in (100, 350))
    frame = replace(small_cluster().frame(), logs=now)
    history = History()
    history.readings.append(((frame.stage(Stage.LOG_DIRS).read_at_ms or 0) - 1_000, then))
    assert history.growers(frame) == {}, "nobody has asked before"
    assert not [*history.turns(frame)], "few replicas take one turn"
    assert history.growers(frame) == {(7, "/d"): (250.0, "t")}


def test_what_topics_grow_by_is_counted_in_turns_and_only_once_a_reading() -> None:
    cluster = FakeCluster(3, {f"t{n}": 100 for n in range(60)}, rate=10)
    frame, history = _played(cluster, 11)
    cluster.advance(20_000)
    newer = cluster.frame()
    assert not [*History().turns(newer)], "nobody asks for it"
    asked = history.growers(frame)
    assert asked
    assert len([*history.turns(newer)]) == 60 * 300 // SLICE, "18,000 replicas"
    history.take(newer)
    assert history.growers(newer) == asked, "all grow as fast as before"
    assert not [*history.turns(replace(newer, sequence=newer.sequence + 1))], "the disks were not read again"


def test_what_makes_up_little_of_what_a_volume_takes_is_not_named() -> None:
    """Records of the topic that fills it were deleted, or programs beside the broker fill it."""
    cluster = _big_and_small()
    history = History()
    for _ in range(25):
        cluster.advance()
        frame = cluster.frame()
        taken = 20_000_000 * (cluster.now_ms - START_MS) // 1000
        dirs = [replace(log_dir, usable_bytes=(log_dir.usable_bytes or 0) - taken) for log_dir in frame.log_dirs]
        frame = replace(frame, log_dirs=tuple(dirs))
        _take(frame, history)
    (trend,) = dir_trends(frame, history)
    assert trend.is_filling and trend.grower is None and trend.recent_per_s == pytest.approx(25_000_000)


@pytest.mark.parametrize(("policy", "is_told"), [("delete", True), ("compact,delete", True), ("compact", False)])
def test_only_a_topic_whose_retention_deletes_is_to_have_a_lower_one(policy: str, is_told: bool) -> None:
    advice = _advice(*_played(_big_and_small(cleanup_policy=policy), 25))
    assert ("retention of big: " in advice) is is_told, advice


def test_nobody_is_told_to_lower_the_retention_of_a_topic_of_kafkas_own() -> None:
    """It would delete the offsets of groups that commit rarely, whatever its cleanup policy says."""
    cluster = FakeCluster(1, {"small": 1}, replication_factor=1, rate=1_000, partition_bytes=390_000_000_000)
    cluster.create_topic("__consumer_offsets", 4, replication_factor=1, cleanup_policy="delete")
    frame, history = _played(cluster, 25)
    grower = dir_trends(frame, history)[0].grower
    assert grower is not None and (grower.topic, grower.is_deleted) == ("__consumer_offsets", False)
    assert "retention of __consumer_offsets" not in _advice(frame, history)


def test_a_full_log_dir_is_told_which_broker_has_room_and_which_moves_fill_it() -> None:
    def played(*free: int) -> tuple[Frame, History]:
        cluster = FakeCluster(3, {"big": 3}, rate=0)
        cluster.reassign(TopicPartition("big", 0), (1, 2))
        frame = cluster.frame()
        usable = {1: 40_000_000_000} | dict(enumerate(free, start=2))
        dirs = [replace(log_dir, usable_bytes=usable[log_dir.broker]) for log_dir in frame.log_dirs]
        frame = replace(frame, log_dirs=tuple(dirs))
        history = History()
        history.take(frame)
        return frame, history

    assert _advice(*played(900_000_000_000, 1_500_000_000_000)).endswith("(broker 3 has most room)")
    assert "has most room" not in _advice(*played(100_000_000_000, 50_000_000_000)), "they are as full"
    cluster = FakeCluster(4, {"big": 3}, rate=0, partition_bytes=650_000_000_000)
    cluster.create_topic("quiet", 1)
    cluster.copy_rate = 1_000_000_000
    cluster.reassign(TopicPartition("big", 0), (4, 2, 3))
    frame, history = _played(cluster, 25)
    trend = replace(next(trend for trend in dir_trends(frame, history) if trend.broker == 4), used_percent=99.0)
    assert trend.is_filling and trend.grower is not None and trend.grower.is_copied
    assert str(room_advice(trend, [trend], frame, history)).startswith("cancel the moves of big to it: ")


def _frees(size_of_logs: int, used: int, *, later_s: int = 10, moves: bool = False, alters: str = "") -> str:
    """Return what frees room in a full log dir whose logs take so much after 100 MB, and its volume after 950 MB."""
    cluster = _big_and_small()
    history, frame = History(), cluster.frame()
    for at_s, in_logs, in_volume in ((0, 100, 950), (10, size_of_logs, used), (10 + later_s, size_of_logs, used)):
        (log_dir,) = frame.log_dirs
        events = (
            [Event(frame.at_ms, EventKind.TOPIC_CONFIG_CHANGED, "big", after=alters, topic="big")] if alters else []
        )
        shown = replace(
            frame, at_ms=START_MS + at_s * 1000, sequence=at_s + 1, events=tuple(events) if at_s == 10 else (),
            stages={**frame.stages, Stage.LOG_DIRS: StageStatus(read_at_ms=START_MS + at_s * 1000)},
            log_dirs=(replace(log_dir, size_bytes=in_logs * 10**6, total_bytes=10**9,
                              usable_bytes=10**9 - in_volume * 10**6),),
        )  # fmt: skip
        _take(shown, history)
        cluster.advance(10_000)
        frame = cluster.frame()
    (trend,) = dir_trends(shown, history)
    return what_frees(trend, shown, history)


def test_what_was_deleted_is_told_until_its_files_are_gone() -> None:
    assert _frees(38, 951).startswith("62.0 MB are deleted; the space comes back within a minute")
    assert _frees(38, 890) == "", "the files are gone"
    assert _frees(101, 951) == "", "nothing was deleted"
    assert _frees(101, 990) == "", "others write to the volume"
    assert _frees(38, 951, later_s=90) == "", "what is still there after the delay are other files"


def test_a_new_retention_is_told_until_brokers_have_looked_at_it() -> None:
    assert _frees(101, 951, alters="retention.ms=1").startswith("the retention of big changed 10s ago: ")
    assert _frees(101, 951, alters="retention.ms=1", later_s=400) == ""
    assert _frees(101, 951, alters="segment.bytes=1") == ""


def test_a_new_retention_is_looked_for_among_changes_of_settings_only() -> None:
    """Each frame looks for one, and a broker that fails makes 20,000 events."""
    frame, history = _played(_big_and_small(), 25)
    trend = dir_trends(frame, history)[0]
    changed = Event(frame.at_ms, EventKind.TOPIC_CONFIG_CHANGED, "big", after="retention.ms=1", topic="big")
    shrunk = Event(frame.at_ms, EventKind.ISR_SHRANK, "small-0", topic="small")
    history.take(replace(frame, sequence=frame.sequence + 1, events=(changed, *[shrunk] * 5)))
    assert list(history.altered) == [changed]
    assert what_frees(trend, frame, history).startswith("the retention of big changed 0s ago")
    history.take(replace(frame, sequence=frame.sequence + 2, at_ms=frame.at_ms - 1, events=()))
    assert not history.altered, "a jump back in a recording takes it back"


@pytest.mark.parametrize(("left_s", "is_urgent"), [(419.0, True), (421.0, False), (None, False)])
def test_a_disk_that_is_full_before_a_lower_retention_makes_room_needs_its_producers_held_back(
    left_s: float | None, is_urgent: bool
) -> None:
    frame, history = _played(_big_and_small(), 25)
    trend = replace(dir_trends(frame, history)[0], full_in_s=left_s)
    advice = str(room_advice(trend, [trend], frame, history))
    assert advice.startswith("hold the producers back, ") is is_urgent, advice
    assert ("then lower file.delete.delay.ms" in advice) is is_urgent, advice
    held = str(room_advice(trend, [trend], frame, history, is_held=True))
    assert held.startswith("lower file.delete.delay.ms" if is_urgent else "lower the retention"), held
    history.altered.append(
        Event(frame.at_ms, EventKind.TOPIC_CONFIG_CHANGED, "big", after="retention.bytes=1", topic="big")
    )
    advice = str(room_advice(trend, [trend], frame, history))
    assert (", too late at this rate: hold the producers back" in advice) is is_urgent, advice
    assert "too late" not in str(room_advice(trend, [trend], frame, history, is_held=True))
    assert trend.grower is not None
    copied = replace(trend, grower=trend.grower._replace(is_copied=True))
    assert "hold the producers back" not in str(room_advice(copied, [copied], frame, history))
    soon = replace(trend, full_in_s=361.0, grower=trend.grower._replace(delay_ms=1_000))
    assert not soon.is_urgent, "its files go after a second"


def test_a_log_dir_that_has_stopped_filling_says_so() -> None:
    frame, history = _played(_big_and_small(), 25)
    (trend,) = dir_trends(frame, history)
    advice = str(room_advice(replace(trend, recent_per_s=-5.0), [trend], frame, history))
    assert advice == "it has stopped filling: see whether that lasts"


def test_a_retention_that_was_just_changed_is_not_advised_again() -> None:
    frame, history = _played(_big_and_small(), 25)
    event = Event(frame.at_ms, EventKind.TOPIC_CONFIG_CHANGED, "big", after="retention.bytes=1", topic="big")
    history.altered.append(event)
    assert _advice(frame, history) == (
        "the retention of big changed 0s ago: brokers look every 5 minutes unless log.retention.check.interval.ms"
        " is set; the space comes back 1m later; if it fills on after that: add a disk or a broker"
    )


def test_the_timeline_says_who_was_out_how_long_and_who_led() -> None:
    cluster, events, frames = FakeCluster(3, {"orders": 1}), [], []
    for step in (lambda: None, lambda: cluster.kill(1), lambda: None, lambda: cluster.start(1), lambda: None):
        cluster.advance()
        step()
        frames.append(cluster.frame())
        events += frames[-1].events
    down_ms, back_ms = frames[1].at_ms, frames[4].at_ms
    (row,) = timelines(events)
    assert row.name == ORDERS and row.absences == (Absence(1, down_ms, back_ms),)
    assert row.absences[0].lasted_s(0) == 3.0
    assert row.leaders == (LeaderChange(down_ms, 1, 2, "broker 1 is down"),)


def test_an_absence_without_a_beginning_or_an_end_is_told_as_such() -> None:
    def isr(at_ms: int, kind: EventKind, before: str, after: str) -> Event:
        return Event(at_ms, kind, "orders-0", before, after, topic="orders", partition=0)

    (row,) = timelines(
        [isr(1000, EventKind.ISR_GREW, "1,2", "1,2,3"), isr(2000, EventKind.ISR_CHANGED, "1,2,3", "1,3")]
    )
    assert row.absences == (Absence(3, None, 1000), Absence(2, 2000, None))
    assert row.absences[0].lasted_s(5000) is None and row.absences[1].lasted_s(5000) == 3.0


def test_a_registration_in_the_future_is_doubted() -> None:
    frame = small_cluster().frame()
    registrations = {1: BrokerRegistration(frame.at_ms - 9000), 3: BrokerRegistration(frame.at_ms + 60_000)}
    findings = SanityCheck().check(replace(frame, registrations=registrations))
    assert [(finding.doubt, finding.subject) for finding in findings] == [(Doubt.FUTURE_REGISTRATION, "broker 3")]


def test_what_lasts_stays_told_until_it_is_over_and_what_went_back_stays() -> None:
    cluster, check = FakeCluster(3, {"orders": 1, "still": 3}), SanityCheck()
    assert check.check(cluster.frame()) == []
    cluster.move_leader(ORDERS, 9)
    first = cluster.frame()
    assert [finding.doubt for finding in check.check(first)] == [Doubt.LEADER_NOT_IN_ISR], (
        "replicas may be those of before"
    )
    for _ in range(LASTS_MS // 1_000):
        assert Doubt.LEADER_NOT_A_REPLICA not in {finding.doubt for finding in check.check(cluster.frame())}
        cluster.advance()
    findings = check.check(cluster.frame())
    assert {finding.doubt for finding in findings} == {Doubt.LEADER_NOT_IN_ISR, Doubt.LEADER_NOT_A_REPLICA}
    assert {finding.at_ms for finding in findings} == {first.at_ms}, "seen first at the same time"
    cluster.move_leader(ORDERS, 2)
    older = cluster.frame()
    assert check.check(older) == []
    assert older.cluster is not None
    topics = tuple(
        replace(t, partitions=tuple(replace(p, leader_epoch=0) for p in t.partitions)) if t.name == "orders" else t
        for t in older.cluster.topics
    )
    back = replace(older, sequence=99, cluster=replace(older.cluster, topics=topics, controller_epoch=3))
    findings = check.check(back)
    assert {finding.doubt for finding in findings} >= {Doubt.LEADER_EPOCH_WENT_BACK, Doubt.CONTROLLER_EPOCH_WENT_BACK}
    later = check.check(replace(back, sequence=100))
    assert {finding.doubt for finding in later} >= {Doubt.LEADER_EPOCH_WENT_BACK, Doubt.CONTROLLER_EPOCH_WENT_BACK}


def _not_a_replica(check: SanityCheck, frame: Frame, at_ms: int, read_at_ms: int) -> bool:
    """Whether a check finds that in a frame of states that are read in turn."""
    stages = {**frame.stages, Stage.METADATA: replace(frame.stage(Stage.METADATA), source=StageSource.ROTATION)}
    frame = replace(frame, sequence=at_ms, at_ms=at_ms, stages=stages, read_at_ms={ORDERS: read_at_ms})
    return Doubt.LEADER_NOT_A_REPLICA in {finding.doubt for finding in check.check(frame)}


def test_a_leader_read_in_turn_is_doubted_once_it_was_read_after_the_replicas() -> None:
    cluster, check = FakeCluster(9, {"orders": 1}), SanityCheck()
    start, late = START_MS, START_MS + 10 * LASTS_MS
    assert not _not_a_replica(check, cluster.frame(), start, start - 1_000)
    cluster.move_leader(ORDERS, 9)
    edited = cluster.frame()
    for at_ms in (start + 1_000, late):
        assert not _not_a_replica(check, edited, at_ms, start), "its state may be that of before"
    assert not _not_a_replica(check, edited, late + 1_000, start + 1_000), "or of the same moment"
    assert _not_a_replica(check, edited, late + 2_000, late)
    cluster.reassign(ORDERS, (4, 5, 6))
    edited = cluster.frame()
    for at_ms in (late + 3_000, 2 * late):
        assert not _not_a_replica(check, edited, at_ms, late + 2_500), "the replicas have changed again"
    assert _not_a_replica(check, edited, 2 * late + 1_000, late + 3_001)


def test_the_epoch_of_a_state_is_compared_with_that_of_the_controller_in_each_frame() -> None:
    """Topics that have not changed are judged again when the epoch is known, or catches up."""
    cluster, check = FakeCluster(3, {"orders": 1, "still": 3}), SanityCheck()
    cluster.move_controller(2)
    cluster.move_leader(ORDERS, 2)
    whole = cluster.frame()
    assert whole.cluster is not None and whole.cluster.controller_epoch == 8

    def ahead(seconds: int, epoch: int | None) -> list[str]:
        assert whole.cluster is not None
        known = replace(whole.cluster, controller_epoch=epoch)
        frame = replace(whole, sequence=whole.sequence + seconds, at_ms=whole.at_ms + 1_000 * seconds, cluster=known)
        return [finding.subject for finding in check.check(frame) if finding.doubt is Doubt.CONTROLLER_EPOCH_AHEAD]

    assert [ahead(seconds, None) for seconds in (0, 1, 20)] == [[]] * 3
    assert [ahead(seconds, 7) for seconds in (21, 22, 40)] == [[], [], ["orders-0"]]
    assert ahead(41, 8) == []


def lasting(frame: Frame) -> list[Finding]:
    """Return what is told of a state that lasts, and of which nothing is told at first."""
    check = SanityCheck()
    assert check.check(frame) == []
    return check.check(replace(frame, sequence=frame.sequence + 1, at_ms=frame.at_ms + LASTS_MS))


def test_two_controllers_and_a_dead_one_are_told() -> None:
    cluster = small_cluster()
    frame = cluster.frame()
    words = {broker: replace(said, controller_id=2) if broker == 3 else said for broker, said in frame.words.items()}
    (only,) = lasting(replace(frame, words=words))
    assert only.doubt is Doubt.TWO_CONTROLLERS and "broker 3 believes it is 2" in only.evidence
    cluster.move_controller(9)
    assert Doubt.CONTROLLER_NOT_ALIVE in {finding.doubt for finding in lasting(cluster.frame())}
