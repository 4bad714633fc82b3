"""Lines of state-change.log of every Kafka since 0.8.2: envelope, partitions, states."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.common.model import TopicPartition
from engine.kafka.formats.state_change_events import PrintedState, state_in
from engine.kafka.formats.state_change_lines import (
    StateChangeLine,
    are_starts,
    controller_epoch_in,
    is_merged_line,
    is_start,
    parse_entry,
    start_of,
    without_merged_prefixes,
)
from engine.kafka.formats.state_change_sentences import mention_of, partitions_in

START = b"[2015-03-01 10:00:00,123]"


def line(text: str, level: str = "TRACE") -> bytes:
    return START + f" {level} {text} (state.change.logger)".encode()


@pytest.mark.parametrize(
    ("text", "broker_id", "is_controller", "epoch", "message"),
    [
        ("Controller 1 epoch 3 changed partition [t,0] state", 1, True, 3, "changed partition [t,0] state"),
        ("Broker 2 handling LeaderAndIsr request", 2, False, None, "handling LeaderAndIsr request"),
        ("Error on broker 2 while processing", 2, False, None, "Error on broker 2 while processing"),
        ("[Controller id=1001 epoch=3] Changed partition t-0", 1001, True, 3, "Changed partition t-0"),
        ("[Controller id=1] Mark replicas t-0", 1, True, None, "Mark replicas t-0"),
        ("[Broker id=2] Leader t-0 starts", 2, False, None, "Leader t-0 starts"),
        ("[Controller id=1 epoch=3] Controller 1 epoch 3 failed to", 1, True, 3, "Controller 1 epoch 3 failed to"),
        ("a sentence of nobody", None, False, None, "a sentence of nobody"),
    ],
)
def test_who_wrote_it(text: str, broker_id: int | None, is_controller: bool, epoch: int | None, message: str) -> None:
    parsed = parse_entry(line(text, "WARN"))
    assert parsed == StateChangeLine(START, "WARN", broker_id, is_controller, epoch, message.encode())


@pytest.mark.parametrize(
    "text", [b"", b"\tat kafka.X", b"[2015-03-01 10:00", START, START + b" no level", b" " + line("x"), b"[0, 1] ..."]
)
def test_what_is_no_entry(text: bytes) -> None:
    assert parse_entry(text) is None


def test_an_entry_keeps_its_stack_trace_and_loses_its_envelope() -> None:
    entry = (
        line("[Broker id=1] Error while processing", "ERROR") + b"\njava.io.IOException: full\n\tat kafka.X(X.scala:1)"
    )
    parsed = parse_entry(entry)
    assert parsed is not None
    assert parsed.message == b"Error while processing\njava.io.IOException: full\n\tat kafka.X(X.scala:1)"
    windows = parse_entry(line("[Broker id=1] Leader t-0") + b"\r")
    assert windows is not None
    assert windows.message == b"Leader t-0"


def test_many_starts_are_judged_at_once() -> None:
    starts = [START, b"[2026-12-31 23:59:59,999]"]
    assert are_starts(starts)
    assert not are_starts([*starts, b"\tat kafka.controller.Contr"])
    assert not are_starts([START, b"[2026-12-31 23:59:59.999]"])
    assert is_start(line("x"))
    assert start_of(line("x")) == START


def test_what_a_merge_writes_is_read_again() -> None:
    assert is_merged_line(b"broker-2 | " + line("x"))
    assert is_merged_line(b"broker-10 | " + line("x"))
    assert not is_merged_line(line("[Broker id=1] a | b"))
    assert (
        without_merged_prefixes(b"broker-2  | [a\nbroker-12 | \tat x\nbroker-? | y\nz | w\n")
        == b"[a\n\tat x\ny\nz | w\n"
    )


def test_whose_request_it_is_about() -> None:
    assert controller_epoch_in(b"handling LeaderAndIsr request from controller 1 epoch 3 starting") == 3
    assert controller_epoch_in(b"received PartitionState(controllerEpoch=4, leader=1") == 4
    assert controller_epoch_in(b"cached (Leader:1,ISR:1,LeaderEpoch:5,ControllerEpoch:6)") == 6
    assert controller_epoch_in(b"leader epoch 3") is None


@pytest.mark.parametrize(
    ("message", "expected"),
    [
        ("changed partition [t,0] state from A to B", ["t-0"]),
        ("changed partition [a-b.c_1, 12] state from A to B", ["a-b.c_1-12"]),
        ("sent request to leader 1 for partition being reassigned [t,0]", ["t-0"]),
        ("received LeaderAndIsr request PartitionState(isr=1,2, replicas=1,2) for partition [t,0]", ["t-0"]),
        ("handling for partition t-0", ["t-0"]),
        ("Changed partition audit_log-2024-7 from A to B", ["audit_log-2024-7"]),
        ("Leader a.b-c-3 starts at leader epoch 4 from offset 5", ["a.b-c-3"]),
        ("Follower t-0 starts at leader epoch 0. Previous leader epoch was -1.", ["t-0"]),
        ("The topic partition t-0 was marked as RECOVERING.", ["t-0"]),
        ("could not do it for partition t-0.", ["t-0"]),
        ("Updating log for t-0 to assign topic ID x", ["t-0"]),
        ("Skipped the become-leader state change for t-0 with topic id Some(x-1)", ["t-0"]),
        ("Cached leader info X(topicName='t', partitionIndex=0, isr=[0, 1]) for partition t-0 in response", ["t-0"]),
        ("Mark replicas t-0,a-b-1,c-2 on broker 1 as offline", ["t-0", "a-b-1", "c-2"]),
        ("Received response {error_code=0,partitions=[{topic=t,partition=0},{topic=u,partition=1}]}", ["t-0", "u-1"]),
        ("Received response LeaderAndIsrResponse(responses={t-0=NONE, u-1=NONE}, error=NONE)", ["t-0", "u-1"]),
        ("Received response X(topicName='t', partitionIndex=0), X(topicName='u', partitionIndex=1)", ["t-0", "u-1"]),
        ("started election for partitions Set([t,0], [u,1])", ["t-0", "u-1"]),
        ("a message that wraps before the partition\nt-0 and goes on for partition\nt-0", ["t-0"]),
        ("Sending LeaderAndIsr request to broker 2 with 1 become-leader and 0 become-follower partitions", []),
        ("Sending UpdateMetadata request to brokers HashSet(0, 1) for 2 partitions", []),
        ("a live broker list [0, 1] and isr=[2, 3] since leader -1 is gone, from 2015-03-01 on", []),
        ("(Leader:1,ISR:1,2,LeaderEpoch:5,ControllerEpoch:3)", []),
        ("changed partition [2024,0] state", ["2024-0"]),
    ],
)  # fmt: skip
def test_which_partitions_are_named(message: str, expected: list[str]) -> None:
    assert [str(partition) for partition in partitions_in(message.encode())] == expected


@pytest.mark.parametrize(
    ("topic", "text", "number"),
    [
        ("t", "for partition t-0", 0),
        ("t", "partition [t,10]", 10),
        ("t", "X(topicName='t', partitionIndex=3)", 3),
        ("t", "{topic=t,partition=4,error_code=0}", 4),
        ("t", "{t-0=NONE}", 0),
        ("a.b", "partition a.b-1.", 1),
        ("t", "partition t-0-1", None),
        ("t", "partition at-0", None),
        ("t", "partition x.t-0", None),
        ("a.b", "partition axb-1", None),
        ("0", "isr=[0, 1]", None),
        ("0", "partition [0, 1]", 1),
        ("2015", "at 2015-03-01", None),
    ],
)
def test_mentions_of_a_topic(topic: str, text: str, number: int | None) -> None:
    assert numbers_of(topic, text) == ([] if number is None else [number])


def numbers_of(topic: str, text: str) -> list[int]:
    pattern = mention_of(topic.encode())
    matches = [match for at in range(len(text)) if (match := pattern.match(text.encode(), at)) is not None]
    return [int(match[match.lastindex or 0]) for match in matches]


NAMES = st.from_regex(r"[A-Za-z0-9._-]{1,40}", fullmatch=True).filter(lambda name: name not in (".", ".."))


@given(NAMES, st.integers(0, 10**6))
def test_every_legal_name_in_every_spelling(name: str, index: int) -> None:
    expected = (TopicPartition(name, index),)
    for text in (
        f"Changed partition {name}-{index} from OnlinePartition to OfflinePartition",
        f"changed partition [{name},{index}] state from OnlinePartition to OfflinePartition",
        f"Leader {name}-{index} with topic id None starts at leader epoch 1",
    ):
        assert partitions_in(text.encode()) == expected
        assert numbers_of(name, text) == [index]


STATES = {
    "0.8.2": "(Leader:1,ISR:1,2,LeaderEpoch:5,ControllerEpoch:3)",
    "0.8.2 in a request": "(LeaderAndIsrInfo:(Leader:1,ISR:1,2,LeaderEpoch:5,ControllerEpoch:3),"
    "ReplicationFactor:2),AllReplicas:1,2)",
    "2.8": "(Leader:1,ISR:1,2,LeaderEpoch:5,ZkVersion:7,ControllerEpoch:3)",
    "3.2": "(Leader:1,ISR:1,2,LeaderRecoveryState:RECOVERED,LeaderEpoch:5,ZkVersion:7,ControllerEpoch:3)",
    "JSON": '{"leader":1,"leader_epoch":5,"isr":[1,2]}',
    "JSON in another order": '{"isr":[1,2],"leader":1,"leader_epoch":5,"controller_epoch":3,"version":1}',
    "1.1": "LeaderAndIsr(leader=1, leaderEpoch=5, isr=List(1, 2), zkVersion=7)",
    "3.2 decided": "LeaderAndIsr(leader=1, leaderEpoch=5, isr=List(1, 2), leaderRecoveryState=RECOVERED, "
    "partitionEpoch=7)",
    "3.5": "LeaderAndIsr(leader=1, leaderEpoch=5, isrWithBrokerEpoch=List(BrokerState(brokerId=1, brokerEpoch=99), "
    "BrokerState(brokerId=2, brokerEpoch=-1)), leaderRecoveryState=RECOVERING, partitionEpoch=7)",
    "0.10": "PartitionState(controllerEpoch=3, leader=1, leaderEpoch=5, isr=1,2, zkVersion=7, replicas=1,2)",
    "1.0 metadata": "PartitionState(controllerEpoch=3, leader=1, leaderEpoch=5, isr=[1, 2], zkVersion=7, "
    "replicas=[1, 2], offlineReplicas=[])",
    "2.4": "LeaderAndIsrPartitionState(topicName='t', partitionIndex=0, controllerEpoch=3, leader=1, leaderEpoch=5, "
    "isr=[1, 2], zkVersion=7, replicas=[1, 2], addingReplicas=[], removingReplicas=[], isNew=false)",
    "3.9": "LeaderAndIsrPartitionState(topicName='t', partitionIndex=0, controllerEpoch=3, leader=1, leaderEpoch=5, "
    "isr=[1, 2], partitionEpoch=7, replicas=[1, 2], addingReplicas=[], removingReplicas=[], isNew=false, "
    "leaderRecoveryState=1)",
}  # fmt: skip


@pytest.mark.parametrize("kind", STATES)
def test_states_in_every_notation(kind: str) -> None:
    state = state_in(f"Sending something {STATES[kind]} to broker 1 for partition t-0")
    assert state is not None
    assert (state.leader, state.leader_epoch, state.isr) == (1, 5, (1, 2))
    has_version = not kind.startswith(("0.8.2", "JSON"))
    assert state.partition_epoch == (7 if has_version else None)
    assert state.is_recovering is {"3.2": False, "3.2 decided": False, "3.5": True, "3.9": True}.get(kind)


def test_states_without_leader_or_isr() -> None:
    state = state_in("(Leader:-1,ISR:,LeaderEpoch:5,ControllerEpoch:3)")
    assert state == PrintedState(-1, 5, (), None, 3)
    assert state_in("(Leader:x,ISR:1,LeaderEpoch:5,ControllerEpoch:3)") is None
    assert state_in('{"leader":1,"leader_epoch":') is None
    assert state_in('{"leader":"one","leader_epoch":[],"isr":3}') is None
    assert state_in("nothing of the kind") is None
