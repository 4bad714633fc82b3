"""What a check reports, and what it does not: on logs of a real Kafka 3.9.1, and on made-up ones of older versions."""

# Log lines are long, and stay here as they are in the log.
# ruff: noqa: E501

from __future__ import annotations

import tracemalloc
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
from state_change_logs import plan_of, said_at, start, write_log

from engine.admin.state_changes.check import CheckResult, ControllerTracking, StateChangeCheck
from engine.admin.state_changes.cluster_comparison import compare_partition
from engine.admin.state_changes.findings import Check, Finding, FindingBook, Severity
from engine.admin.state_changes.merged_rows import row_tag
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot
from engine.kafka.formats.state_change_events import PrintedState

RECORDED = Path(__file__).parents[3] / "fixtures" / "state-changes"
SECOND = 1000
GRACE = 10 * SECOND
LOST = "Changed partition lag-1 state from OnlinePartition to OfflinePartition"
ELECTED = "Changed partition lag-1 from OfflinePartition to OnlinePartition"


def check(*paths: Path, **options: object) -> StateChangeCheck:
    plan = plan_of(*paths)
    checking = StateChangeCheck(**options)  # type: ignore[arg-type]
    clock = plan.utc_clock()
    for batch in plan.merge(row_tag):
        checking.feed(batch, clock)
    checking.end_logs()
    return checking


def bad(result: CheckResult) -> dict[str, int]:
    """Return what is worse than a note, and how often it occurs."""
    return {f.check.label: f.count for f in result.findings if f.check.severity is not Severity.INFO}


def finding(result: CheckResult, wanted: Check) -> Finding:
    (only,) = [finding for finding in result.findings if finding.check is wanted]
    return only


class Night:
    """Makes the logs of one night: each controller and broker writes its lines to its own log."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.lines: dict[int, list[tuple[int, str]]] = {}
        self.ms = 0

    def at(self, ms: int) -> Night:
        self.ms = ms
        return self

    def write(self, broker: int, text: str, level: str = "INFO") -> Night:
        self.lines.setdefault(broker, []).append((self.ms, f"{start(self.ms)} {level} {text} (state.change.logger)"))
        return self

    def controller(self, text: str, *, broker: int = 1, epoch: int = 3, level: str = "INFO") -> Night:
        return self.write(broker, f"[Controller id={broker} epoch={epoch}] {text}", level)

    def broker(self, broker: int, text: str, level: str = "INFO") -> Night:
        return self.write(broker, f"[Broker id={broker}] {text}", level)

    def state(
        self, partition: str, leader: int, isr: str, leader_epoch: int, version: int, *, moved: str = "", by: int = 1
    ) -> Night:
        """The controller decides on a state, in the words of Kafka 3.9: broker 1, or another one after it."""
        say = partial(self.controller, broker=by, epoch=2 + by)
        if not moved:
            return say(
                f"Partition {partition} state changed to (Leader:{leader},ISR:{isr},LeaderRecoveryState:RECOVERED,"
                f"LeaderEpoch:{leader_epoch},ZkVersion:{version},ControllerEpoch:3) after removing replica 9 from the ISR "
                "as part of transition to OfflineReplica"
            )
        brokers = ", ".join(f"BrokerState(brokerId={broker}, brokerEpoch=-1)" for broker in isr.split(","))
        return say(
            f"Changed partition {partition} from {moved} to OnlinePartition with state LeaderAndIsr(leader={leader}, "
            f"leaderEpoch={leader_epoch}, isrWithBrokerEpoch=List({brokers}), leaderRecoveryState=RECOVERED, "
            f"partitionEpoch={version})"
        )

    def check(self, **options: object) -> StateChangeCheck:
        for broker, lines in self.lines.items():
            ordered = sorted(lines, key=lambda line: line[0])
            write_log(self.folder / f"broker-{broker}" / "state-change.log", [text for _, text in ordered])
        return check(self.folder, **options)

    def result(self, **options: object) -> CheckResult:
        return self.check(**options).result()


@pytest.fixture
def night(tmp_path: Path) -> Night:
    return Night(tmp_path)


def test_a_broker_that_dies_while_others_are_in_sync_is_nothing_bad() -> None:
    result = check(RECORDED / "broker-killed").result()
    assert bad(result) == {}
    assert finding(result, Check.LEADER_CHANGES).count == 2
    assert (result.broker_ids, result.severity) == ((0, 1), Severity.INFO)


def test_a_topic_that_is_deleted_is_nothing_bad() -> None:
    checking = check(RECORDED / "topic-deleted")
    assert bad(checking.result()) == {}
    assert checking.states == {}


@pytest.mark.parametrize("scene", ["topic-deleted", "broker-killed", "leaderless", "unclean-election"])
def test_the_default_level_tells_the_same(tmp_path: Path, scene: str) -> None:
    """Since 2.6 a broker logs at INFO by default: far less, but what went wrong is still visible."""
    for log in (RECORDED / scene).rglob("state-change.log"):
        lines = [line for line in log.read_text().splitlines() if "] TRACE " not in line]
        write_log(tmp_path / log.parent.name / "state-change.log", lines)
    assert bad(check(tmp_path).result()) == bad(check(RECORDED / scene).result())


def test_a_partition_without_a_leader() -> None:
    result = check(RECORDED / "leaderless").result()
    assert bad(result) == {"left_offline": 1, "failed_changes": 1}
    assert finding(result, Check.LEFT_OFFLINE).examples == (
        f"{said_at(RECORDED / 'leaderless', LOST)} lag-1: without a leader since then, ISR [1]",
    )


def test_an_unclean_election_as_kafka_marks_it() -> None:
    result = check(RECORDED / "leaderless", RECORDED / "unclean-election").result()
    lost, elected = said_at(RECORDED / "leaderless", LOST), said_at(RECORDED / "unclean-election", ELECTED)
    seconds = (datetime.fromisoformat(elected) - datetime.fromisoformat(lost)).total_seconds()
    assert bad(result) == {"unclean_election": 1, "offline_partitions": 1, "failed_changes": 1}
    assert finding(result, Check.UNCLEAN_ELECTION).examples == (
        f"{elected} lag-1: broker 2 was elected (leader epoch 2); ISR was [1]",
    )
    assert finding(result, Check.OFFLINE_PARTITIONS).examples == (
        f"{lost} lag-1: without a leader for {seconds:.3g} s",
    )


def test_an_unclean_election_is_seen_without_the_mark(night: Night) -> None:
    night.state("t-0", 1, "1", 5, 7).at(SECOND).state("t-0", 2, "2", 6, 8, moved="OfflinePartition")
    assert bad(night.result()) == {"unclean_election": 1}


def test_a_replica_that_came_back_unseen_is_elected_cleanly(night: Night) -> None:
    """The leader took it back into the ISR, which the log does not show. Versions reveal a change in between."""
    night.state("t-0", 1, "1", 5, 7).at(SECOND).state("t-0", 2, "2", 6, 9, moved="OfflinePartition")
    result = night.result()
    assert bad(result) == {}
    assert finding(result, Check.UNLOGGED_CHANGES).count == 1


def test_before_kafka_marked_them_such_an_election_may_have_been_unclean(night: Night) -> None:
    old = "Partition t-0 state changed to (Leader:{0},ISR:{0},LeaderEpoch:{1},ZkVersion:{2},ControllerEpoch:3) after removing"
    night.controller(old.format(1, 5, 7)).at(SECOND).controller(old.format(2, 6, 9))
    assert bad(night.result()) == {"possibly_unclean_election": 1}


def test_leadership_that_goes_back_and_forth(night: Night) -> None:
    for turn in range(5):
        night.at(turn * 60 * SECOND).state("t-0", 1 + turn % 2, "1,2", turn, turn, moved="OnlinePartition")
    result = night.result()
    assert bad(result) == {"leader_ping_pong": 2}
    assert finding(result, Check.LEADER_PING_PONG).examples[0] == "2026-11-21 02:03:00.000 t-0: 1 → 2 → 1 → 2 in 2 min"
    assert bad(night.result(window=timedelta(seconds=100))) == {}


def test_a_rolling_restart_is_no_ping_pong(night: Night) -> None:
    night.state("t-0", 1, "1,2,3", 0, 0, moved="NewPartition")
    night.at(SECOND).state("t-0", 2, "2,3", 1, 1, moved="OnlinePartition")
    night.at(60 * SECOND).state("t-0", 1, "1,2,3", 2, 3, moved="OnlinePartition")
    assert bad(night.result()) == {}


def test_an_isr_that_flaps(night: Night) -> None:
    for turn, isr in enumerate(["1,2", "1", "1,2", "1", "1,2"]):
        night.at(turn * 30 * SECOND).state("t-0", 1, isr, 0, turn)
    result = night.result()
    assert bad(result) == {"isr_flapping": 1}
    assert finding(result, Check.ISR_FLAPPING).examples == (
        "2026-11-21 02:01:30.000 t-0: broker 2 left the ISR again, 60 s after the last time",
    )
    assert (finding(result, Check.ISR_SHRINKS).count, finding(result, Check.ISR_EXPANDS).count) == (2, 2)


class Moves:
    """A reassignment of t-0 in the words of Kafka 3.9, as its controller and its leaders log it."""

    def __init__(self, night: Night) -> None:
        self.night = night

    def sent(
        self, isr: str, version: int, replicas: str, adding: str = "", removing: str = "", leader: int = 1
    ) -> Moves:
        self.night.controller(
            f"Sent LeaderAndIsr request (Leader:{leader},ISR:{isr},LeaderRecoveryState:RECOVERED,LeaderEpoch:{version},"
            f"ZkVersion:{version},ControllerEpoch:3) with new replica assignment ReplicaAssignment(replicas={replicas}, "
            f"addingReplicas={adding}, removingReplicas={removing}) to leader {leader} for partition being reassigned t-0"
        )
        return self

    def leads(self, isr: str, version: int, adding: str = "", removing: str = "", leader: int = 1) -> Moves:
        self.night.broker(
            leader,
            f"Leader t-0 with topic id Some(C-R1OLrYS4eZEio_cOxPaw) starts at leader epoch {version} from offset 0 with "
            f"partition epoch {version}, high watermark 0, ISR [{isr}], adding replicas [{adding}] and removing replicas "
            f"[{removing}] . Previous leader Some(1) and previous leader epoch was 0.",
        )
        return self

    def left(self, isr: str, version: int, leader: int = 1) -> Moves:
        self.night.at(self.night.ms + 10).state("t-0", leader, isr, version, version)
        return self

    def later(self) -> Moves:
        self.night.at(self.night.ms + 30 * SECOND)
        return self


def counts(result: CheckResult, *wanted: Check) -> tuple[int, ...]:
    counted = {finding.check: finding.count for finding in result.findings}
    return tuple(counted.get(check, 0) for check in wanted)


MOVED_OR_SHRUNK = (Check.REPLICAS_MOVED, Check.ISR_SHRINKS)


def test_a_replica_less_and_back_and_less_again_has_moved_and_does_not_flap(night: Night) -> None:
    moves = Moves(night).sent("1,2,3", 1, "1,2").left("1,2", 2).later()
    moves.sent("1,2", 3, "1,2,3", adding="3").leads("1,2", 3, adding="3").later()
    moves.sent("1,2,3", 5, "1,2,3").later().sent("1,2,3", 6, "1,2").left("1,2", 7)
    result = night.result()
    assert (bad(result), counts(result, *MOVED_OR_SHRUNK)) == ({}, (2, 0))
    assert finding(result, Check.REPLICAS_MOVED).examples[0] == (
        "2026-11-21 02:00:00.010 t-0: ISR [1,2,3] → [1,2]: broker 3 is no longer a replica"
    )


def test_leaders_alone_tell_that_a_replica_moves(night: Night) -> None:
    """The controller's log is not there. A leader takes office before the old replica leaves, and names it no more."""
    moves = (
        Moves(night).leads("1,2", 1, adding="3", removing="2").later().leads("1,2,3", 2).later().leads("1,3", 3).later()
    )
    moves.leads("1,3", 4, adding="2", removing="3").later().leads("1,2,3", 5).later().leads("1,2", 6)
    result = night.result()
    assert (bad(result), counts(result, *MOVED_OR_SHRUNK)) == ({}, (2, 0))


def test_a_leader_that_is_removed_hands_over_and_has_moved(night: Night) -> None:
    """No line names the new assignment, because the others are in sync already."""
    moves = Moves(night).leads("1,2", 1)
    night.at(SECOND).state("t-0", 2, "1,2", 2, 2, moved="OnlinePartition")
    moves.left("2", 3, leader=2)
    assert counts(night.result(), *MOVED_OR_SHRUNK) == (1, 0)


def test_a_replica_that_falls_out_twice_flaps_although_another_moves(night: Night) -> None:
    moves = Moves(night).sent("1,2,3", 1, "1,2,3").later().left("1,3", 2).later().left("1,2,3", 3).later()
    moves.sent("1,2,3", 4, "1,2,3,4", adding="4", removing="3").later().left("1,3", 5)
    result = night.result()
    assert (bad(result), counts(result, *MOVED_OR_SHRUNK)) == ({"isr_flapping": 1}, (0, 2))


def test_a_replica_that_fell_out_before_it_is_moved_away_does_not_flap(night: Night) -> None:
    moves = Moves(night).sent("1,2,3", 1, "1,2,3").later().left("1,2", 2).later().left("1,2,3", 3).later()
    moves.sent("1,2,3", 4, "1,2").left("1,2", 5)
    result = night.result()
    assert (bad(result), counts(result, *MOVED_OR_SHRUNK)) == ({}, (1, 1))


def test_a_replica_whose_removal_was_cancelled_falls_out_as_any_other(night: Night) -> None:
    moves = Moves(night).sent("1,2", 1, "1,3,2", adding="3", removing="2").later().sent("1,2", 2, "1,2")
    moves.later().left("1", 3).later().left("1,2", 4).later().left("1", 5)
    result = night.result()
    assert (bad(result), counts(result, *MOVED_OR_SHRUNK)) == ({"isr_flapping": 1}, (0, 2))


def test_before_kafka_2_4_the_controller_names_the_new_list(night: Night) -> None:
    state = "(Leader:1,ISR:{},LeaderEpoch:{},ControllerEpoch:3)"
    list_of = (
        "Sent LeaderAndIsr request {} with new assigned replica list {} to leader 1 for partition being reassigned t-0"
    )
    night.controller(list_of.format(state.format("1,2,3", 1), "1,2"))
    old = "Partition t-0 state changed to (Leader:1,ISR:1,2,LeaderEpoch:2,ZkVersion:9,ControllerEpoch:3) after removing"
    night.at(1).controller(old)
    assert counts(night.result(), *MOVED_OR_SHRUNK) == (1, 0)


def test_a_reassignment_that_is_asked_for_again_is_no_error(night: Night) -> None:
    """kafka-reassign-partitions does so to change a throttle, and the controller logs it as an error."""
    night.controller(
        "Controller 1 epoch 3 initiated state change of replica 2 for partition t-0 from NewReplica to NewReplica failed",
        level="ERROR",
    )
    assert bad(night.result()) == {}


def test_states_that_are_told_again_or_late_count_once(night: Night) -> None:
    sent = (
        "Cached leader info UpdateMetadataPartitionState(topicName='t', partitionIndex=0, controllerEpoch=3, leader={}, "
        "leaderEpoch={}, isr=[{}], zkVersion={}, replicas=[1, 2], offlineReplicas=[]) for partition t-0 in response to x"
    )
    states = [(1, 0, "1, 2", 0), (1, 0, "1", 1), (1, 0, "1, 2", 2)]
    for broker in (1, 2, 3):
        for number, state in enumerate(states):
            night.at(broker * SECOND + number).broker(broker, sent.format(*state), "TRACE")
    result = night.result()
    assert {f.check: f.count for f in result.findings} == {Check.ISR_SHRINKS: 1, Check.ISR_EXPANDS: 1}


def test_old_states_without_version_are_taken_from_the_controller_alone(night: Night) -> None:
    def old(leader_isr: str) -> str:
        return f"(Leader:1,ISR:{leader_isr},LeaderEpoch:5,ControllerEpoch:3)"

    for number, isr in enumerate(["1,2", "1"]):
        night.at(number).write(
            1, f"Controller 1 epoch 3 sending UpdateMetadata request {old(isr)} to broker 2 for partition [t,0]"
        )
    # A slow broker logs both later, one after the other.
    for number, isr in enumerate(["1,2", "1"]):
        night.at(SECOND + number).write(
            2, f"Broker 2 cached leader info {old(isr)} for partition [t,0] in response to x"
        )
    result = night.result()
    assert {f.check: f.count for f in result.findings} == {Check.ISR_SHRINKS: 1}


def test_a_controller_that_went_on(night: Night) -> None:
    night.controller("Sending UpdateMetadata request to brokers HashSet() for 0 partitions", broker=1, epoch=3)
    night.at(SECOND).controller(
        "Sending UpdateMetadata request to brokers HashSet() for 0 partitions", broker=2, epoch=4
    )
    night.at(SECOND + 500).controller("Sending UpdateMetadata request to brokers HashSet()", broker=1, epoch=3)
    assert bad(night.result()) == {}, "the last words of a controller that was just replaced"
    night.at(5 * SECOND).controller("Sending UpdateMetadata request to brokers HashSet()", broker=1, epoch=3)
    night.broker(3, "Ignoring LeaderAndIsr request from controller 1 with correlation id 12 since its controller epoch 3 is old. "
                    "Latest known controller epoch is 4", "WARN")  # fmt: skip
    result = night.result()
    assert bad(result) == {"stale_controller": 2}
    assert finding(result, Check.STALE_CONTROLLER).examples == (
        "2026-11-21 02:00:05.000 broker 1 wrote as controller with epoch 3, while broker 2 had 4",
        "2026-11-21 02:00:05.000 broker 3 turned controller 1 away: its epoch 3 is older than 4",
    )
    assert finding(result, Check.CONTROLLER_CHANGES).examples == (
        "2026-11-21 02:00:01.000 broker 2 with controller epoch 4, after broker 1",
    )


def test_two_controllers_with_one_epoch(night: Night) -> None:
    night.controller("a", broker=1, epoch=3).at(SECOND).controller("b", broker=2, epoch=3)
    assert bad(night.result()) == {"two_controllers": 1}


SENT = "Sending LeaderAndIsr request to broker 2 with 1 become-leader and 2 become-follower partitions"
HANDLED = "Handling LeaderAndIsr request correlationId 7 from controller 1 for 3 partitions"


def test_a_change_that_a_broker_missed(night: Night) -> None:
    night.controller(SENT).at(1).broker(2, HANDLED)
    night.at(SECOND).controller(SENT)
    night.at(GRACE).controller("x").broker(2, "y")
    result = night.result()
    assert bad(result) == {"missed_changes": 1}
    assert finding(result, Check.MISSED_CHANGES).examples == (
        "2026-11-21 02:00:01.000 LeaderAndIsr to broker 2 for 3 partitions; its log goes on without it",
    )


def test_a_broker_whose_log_ends_missed_it(night: Night) -> None:
    night.broker(2, "y").at(SECOND).controller(SENT).at(GRACE).controller("x")
    result = night.result()
    assert finding(result, Check.MISSED_CHANGES).examples == (
        "2026-11-21 02:00:01.000 LeaderAndIsr to broker 2 for 3 partitions; its log ends at 2026-11-21 02:00:00.000",
    )


def test_what_was_sent_just_before_the_logs_end_may_be_on_its_way(night: Night) -> None:
    night.broker(2, "y").at(GRACE).controller(SENT)
    assert bad(night.result()) == {}


def test_what_a_later_request_replaces_was_not_missed(night: Night) -> None:
    night.controller(SENT).at(SECOND).controller(SENT.replace("2 become-f", "7 become-f"))
    night.at(SECOND + 1).broker(2, HANDLED.replace("for 3", "for 8"))
    night.at(GRACE).controller("x").broker(2, "y")
    result = night.result()
    assert bad(result) == {}
    assert finding(result, Check.OVERTAKEN_REQUESTS).count == 1


MINUTES = 60 * SECOND


def handled_after(night: Night, delays_ms: list[int]) -> CheckResult:
    """The controller sends a request every 20 s; by its clock broker 2 handles each so much later."""
    for number, delay_ms in enumerate(delays_ms):
        night.at(10 * MINUTES + number * 20 * SECOND).controller(SENT)
        night.ms += delay_ms
        night.broker(2, HANDLED)
    return night.result()


@pytest.mark.parametrize(("apart_ms", "words"), [(5 * MINUTES + 40, "ahead of"), (-5 * MINUTES, "behind")])
def test_a_broker_whose_clock_is_wrong(night: Night, apart_ms: int, words: str) -> None:
    result = handled_after(night, [apart_ms + delay for delay in (2, 30, 700, 5)])
    assert bad(result) == {"clocks_apart": 1}
    assert finding(result, Check.CLOCKS_APART).examples == (
        f"{finding(result, Check.CLOCKS_APART).first_start.decode()[1:-1].replace(',', '.')} broker 2's log is 300 s "  # type: ignore[union-attr]
        f"{words} that of broker 1, the controller, by requests on 4 occasions",
    )


@pytest.mark.parametrize(
    ("apart", "later", "is_again"),
    [(5, 13, "8 min"), (5, 16, ""), (-5, 8, ""), (-5, 4, "9 min"), (0, 9, "9 min"), (0, 11, "")],
)
def test_what_happens_again_by_the_clock_of_another_broker_is_judged_by_how_far_that_is_ahead(
    night: Night, apart: int, later: int, is_again: str
) -> None:
    """The window is ten minutes. The second time the controller is broker 2, whose clock may be wrong."""
    handled_after(night, [apart * MINUTES + 5] * 4)
    night.at(20 * MINUTES).state("t-0", 1, "1,3", 0, 0).state("t-0", 1, "1", 0, 1).state("t-0", 1, "1,3", 0, 2)
    night.state("u-0", 1, "1,2", 0, 0).state("u-0", 2, "1,2", 1, 1, moved="OnlinePartition")
    night.state("u-0", 1, "1,2", 2, 2, moved="OnlinePartition")
    night.at((20 + later) * MINUTES).state("t-0", 1, "1", 0, 3, by=2)
    night.state("u-0", 2, "1,2", 3, 3, moved="OnlinePartition", by=2)
    result = night.result()
    expected = {"isr_flapping": 1, "leader_ping_pong": 1} if is_again else {}
    assert {label: count for label, count in bad(result).items() if label != "clocks_apart"} == expected
    if is_again:
        assert f"left the ISR again, {is_again} after the last time" in finding(result, Check.ISR_FLAPPING).examples[0]
        assert finding(result, Check.LEADER_PING_PONG).examples[0].endswith(f"u-0: 1 → 2 → 1 → 2 in {is_again}")


def test_a_controller_whose_clock_was_ahead_did_not_go_on(night: Night) -> None:
    """Its last lines seem to come after the first ones of the next controller, by as much as its clock is ahead."""
    for number in range(4):
        night.at(10 * MINUTES + number * 20 * SECOND).controller(SENT, epoch=4)
        night.ms += 5 * MINUTES
        night.broker(2, HANDLED)
    for late_ms, told in ((4 * MINUTES, 0), (7 * MINUTES, 1)):
        night.at(10 * MINUTES + late_ms).controller("Sending UpdateMetadata request", broker=2, epoch=3)
        assert bad(night.result()).get("stale_controller", 0) == told


def test_the_lines_of_a_controller_that_went_on_are_counted_not_kept() -> None:
    """It may have written gigabytes of them."""
    book = FindingBook(3)
    tracking = ControllerTracking(book)
    tracking.controller_line(b"[2015-03-01 10:00:00,000]", 1, 3)
    tracking.controller_line(b"[2015-03-01 10:00:01,000]", 2, 4)
    tracemalloc.start()
    try:
        for number in range(20_000):
            tracking.controller_line(b"[2015-03-01 10:%02d:10,%03d]" % (number // 1000, number % 1000), 1, 3)
        assert tracemalloc.get_traced_memory()[0] < 100_000
    finally:
        tracemalloc.stop()
    tracking.finish(lambda first, last: 0)
    (stale,) = (finding for finding in book.findings if finding.check is Check.STALE_CONTROLLER)
    assert (stale.count, stale.first_start, stale.last_start) == (
        20_000,
        b"[2015-03-01 10:00:10,000]",
        b"[2015-03-01 10:19:10,999]",
    )


def test_requests_that_came_late_do_not_speak_of_a_clock(night: Night) -> None:
    """A broker that was frozen handles what has come meanwhile at once, and later requests in time."""
    assert bad(handled_after(night, [65 * SECOND, 45 * SECOND, 25 * SECOND, 5 * SECOND, 3])) == {}


def test_the_requests_of_one_restart_are_no_evidence_of_a_clock(night: Night) -> None:
    """A rolling restart brings the same requests again; of one time there is only the broker's log, of one another's."""
    for second in range(4):
        night.at(second * SECOND).broker(2, HANDLED)
        night.at(MINUTES + second * SECOND).controller(SENT)
    assert "clocks_apart" not in bad(night.result())


def test_two_requests_are_no_evidence_of_a_clock(night: Night) -> None:
    assert bad(handled_after(night, [5 * MINUTES, 5 * MINUTES])) == {}


def test_a_log_that_goes_further_back_does_not_speak_of_a_clock(night: Night) -> None:
    """Requests of equal size come every ten minutes; the controller's log lacks all but the last of them."""
    for number in range(4):
        night.at(number * 10 * MINUTES).broker(2, HANDLED)
    night.controller(SENT)
    assert bad(night.result()) == {}


def test_a_clock_that_is_behind_makes_no_missed_change(night: Night) -> None:
    """By its own clock the broker handles a request before the controller sends it."""
    night.broker(2, HANDLED).at(300).controller(SENT).at(GRACE).controller("x").broker(2, "y")
    assert bad(night.result()) == {}


def test_a_broker_whose_log_is_not_here_is_not_accused(night: Night) -> None:
    night.controller(SENT).at(GRACE).controller("x")
    result = night.result()
    assert bad(result) == {}
    assert finding(result, Check.LOGS_NOT_GIVEN).count == 1


def test_partitions_are_followed_where_the_controller_logs_each(night: Night) -> None:
    def sent(partition: str, leader_epoch: int) -> str:
        state = (
            f"PartitionState(controllerEpoch=3, leader=2, leaderEpoch={leader_epoch}, isr=2, zkVersion=7, replicas=2)"
        )
        return f"Sending become-leader LeaderAndIsr request {state} to broker 2 for partition {partition}"

    def received(partition: str) -> str:
        return f"Handling LeaderAndIsr request correlationId 7 from controller 1 epoch 3 starting the become-leader transition for partition {partition}"  # fmt: skip

    for number in range(7):
        night.at(number).controller(sent(f"t-{number}", 5), level="TRACE")
    night.at(100).broker(2, received("t-3"), "TRACE")
    night.at(GRACE).controller("x").broker(2, "y")
    result = night.result()
    assert bad(result) == {"missed_changes": 6}
    assert finding(result, Check.MISSED_CHANGES).examples == (
        "2026-11-21 02:00:00.000 LeaderAndIsr to broker 2 of t-0, t-1, t-2, t-4, t-5 and 1 more; its log goes on without it",
    )


def test_replicas_in_a_failed_log_dir(night: Night) -> None:
    night.write(1, "[Controller id=1] Mark replicas t-0,t-1 on broker 2 as offline")
    night.broker(2, "Ignoring LeaderAndIsr request from controller 1 with correlation id 7 epoch 3 for partition t-0 as the "
                    "local replica for the partition is in an offline log directory", "WARN")  # fmt: skip
    night.at(9).broker(2, "Ignoring StopReplica request (delete=false) from controller 1 with correlation id 8 epoch 3 for "
                          "partition t-2 as the local replica for the partition is in an offline log directory", "WARN")  # fmt: skip
    result = night.result()
    assert bad(result) == {"offline_log_dir": 3}, "replicas, however often the log names them"
    assert finding(result, Check.OFFLINE_LOG_DIR).examples == (
        "2026-11-21 02:00:00.000 broker 2: t-0, t-1",
        "2026-11-21 02:00:00.009 t-2: broker 2 has it in a log dir that failed",
    )


def test_who_was_offline_longest_is_named_first(night: Night) -> None:
    for name in "tu":
        night.write(
            1, f"Controller 1 epoch 3 changed partition [{name},0] state from OnlinePartition to OfflinePartition"
        )
    for name, seconds in (("t", 15), ("u", 180)):
        night.at(seconds * SECOND).write(
            1,
            f"Controller 1 epoch 3 changed partition [{name},0] from OfflinePartition to OnlinePartition with leader 2",
        )
    offline = finding(night.result(), Check.OFFLINE_PARTITIONS)
    assert [example.split()[2] for example in offline.examples] == ["u-0:", "t-0:"]
    book = FindingBook(2)
    for name, seconds in (("a", 15), ("b", 11), ("c", 180), ("d", 15)):
        book.note(Check.OFFLINE_PARTITIONS, None, name, gravity=seconds)
    (kept,) = book.findings
    assert (kept.count, kept.examples) == (4, ("c", "a"))


def test_other_errors_are_named(night: Night) -> None:
    night.broker(2, "Error while processing LeaderAndIsr request correlationId 7 received from controller 1 epoch 3 for "
                    "partition t-0\njava.io.IOException: full", "ERROR")  # fmt: skip
    result = night.result()
    assert bad(result) == {"errors": 1}
    (example,) = finding(result, Check.ERRORS).examples
    assert example.startswith("2026-11-21 02:00:00.000 broker 2: Error while processing LeaderAndIsr request")
    assert "java" not in example


def test_kafka_0_8_without_a_leader(night: Night) -> None:
    """These lines have no versions and no ISR; the state machine shows it."""
    night.write(
        1, "Controller 1 epoch 3 changed partition [t,0] state from OnlinePartition to OfflinePartition", "TRACE"
    )
    night.write(
        1, "Controller 1 epoch 3 changed partition [u,0] state from OnlinePartition to OfflinePartition", "TRACE"
    )
    night.at(2).write(1, "Controller 1 epoch 3 initiated state change for partition [t,0] from OfflinePartition to "
                         "OnlinePartition failed", "ERROR")  # fmt: skip
    night.at(3).write(
        1, "Controller 1 epoch 3 changed partition [u,0] from OfflinePartition to OnlinePartition with leader 2"
    )
    night.at(90 * SECOND).write(
        1, "Controller 1 epoch 3 changed partition [t,0] from OfflinePartition to OnlinePartition with leader 2"
    )
    result = night.result()
    assert bad(result) == {"offline_partitions": 1, "failed_changes": 1}
    assert finding(result, Check.OFFLINE_PARTITIONS).examples == (
        "2026-11-21 02:00:00.000 t-0: without a leader for 90 s",
    )


def test_a_topic_that_is_made_again_begins_anew(night: Night) -> None:
    night.state("t-0", 1, "1,2", 8, 20, moved="OnlinePartition")
    night.at(1).controller("Changed partition t-0 state from OfflinePartition to NonExistentPartition", level="TRACE")
    night.at(2).controller(
        "Changed partition t-0 state from NonExistentPartition to NewPartition with assigned replicas 3"
    )
    night.at(3).state("t-0", 3, "3", 0, 0, moved="NewPartition")
    checking = night.check()
    assert [finding.examples for finding in checking.result().findings] == [
        ("2026-11-21 02:00:00.000 t-0: ? → 1 (leader epoch 8)",)
    ]
    assert checking.states == {TopicPartition("t", 0): PrintedState(3, 0, (3,), 0, is_recovering=False)}


def test_nothing_at_all(tmp_path: Path) -> None:
    log = write_log(tmp_path / "state-change.log", [])
    result = check(log).result()
    assert (result.findings, result.line_count, result.first_start, result.severity) == ((), 0, None, Severity.INFO)


def test_examples_are_bounded_and_counts_are_not(night: Night) -> None:
    for number in range(10):
        night.at(number).broker(2, f"Error number {number}", "ERROR")
    errors = finding(night.result(examples_max=2), Check.ERRORS)
    assert (errors.count, len(errors.examples)) == (10, 2)
    assert (errors.first_start, errors.last_start) == (start(0).encode(), start(9).encode())
    assert finding(night.result(examples_max=0), Check.ERRORS).examples == ()


T0 = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("logged", "present", "expected"),
    [
        (PrintedState(1, 5, (1, 2), 7), (1, (2, 1), 5, 7), None),
        (PrintedState(1, 5, (1, 2), 7), (1, (1,), 5, 8), Check.CHANGED_SINCE),
        (PrintedState(1, 5, (1, 2), 7), (1, (1,), 5, 7), Check.DIFFERS_FROM_CLUSTER),
        (PrintedState(1, 5, (1, 2), 7), (2, (1, 2), 5, 7), Check.DIFFERS_FROM_CLUSTER),
        (PrintedState(1, 5, (1, 2), 7), (1, (1, 2), 5, 6), Check.DIFFERS_FROM_CLUSTER),
        (PrintedState(1, 5, (1, 2)), (1, (1, 2), 5, 7), None),
        (PrintedState(1, 5, (1, 2)), (1, (1,), 5, 7), Check.CHANGED_SINCE),
        (PrintedState(1, 5, (1, 2)), (2, (1, 2), 5, 7), Check.DIFFERS_FROM_CLUSTER),
        (PrintedState(1, 5, (1, 2)), (2, (1, 2), 6, 7), Check.CHANGED_SINCE),
        (PrintedState(1, 5, (1, 2)), (1, (1, 2), 4, None), Check.DIFFERS_FROM_CLUSTER),
        (PrintedState(1, 5, (1, 2), 7), (-1, (), None, None), Check.DIFFERS_FROM_CLUSTER),
        (PrintedState(1, 5, (1, 2), 7), None, Check.GONE_FROM_CLUSTER),
    ],
)
def test_the_last_state_against_the_cluster(
    logged: PrintedState, present: tuple[int, tuple[int, ...], int | None, int | None] | None, expected: Check | None
) -> None:
    snapshot = None
    if present is not None:
        leader, isr, leader_epoch, version = present
        assignment = ReplicaAssignment((1, 2))
        snapshot = PartitionSnapshot(0, assignment, leader, isr, leader_epoch=leader_epoch, zk_version=version)
    book = FindingBook(3)
    compare_partition(T0, logged, snapshot, book)
    assert [checks.check for checks in book.findings] == ([] if expected is None else [expected])
