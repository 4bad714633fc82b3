"""What the sentences of state-change.log say, in the wording of every Kafka since 0.8.2."""

# Log lines are long, and stay here as they are in the log.
# ruff: noqa: E501

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.common.model import TopicPartition
from engine.kafka.formats.state_change_events import (
    LeaderElected,
    MoveFailed,
    OldController,
    PartitionDeleted,
    PartitionHandled,
    PartitionMoved,
    PartitionSent,
    PartitionsForgotten,
    PrintedState,
    Reassigned,
    Refusal,
    Refused,
    ReplicaAsBefore,
    ReplicasOffline,
    RequestHandled,
    RequestKind,
    RequestSent,
    RoleStarted,
    StateRole,
    StateSeen,
    UncleanlyElected,
)
from engine.kafka.formats.state_change_lines import parse_entry
from engine.kafka.formats.state_change_sentences import events_of

T0 = TopicPartition("t", 0)
START = b"[2015-03-01 10:00:00,123]"
LEADER_AND_ISR, STOP_REPLICA = RequestKind.LEADER_AND_ISR, RequestKind.STOP_REPLICA


def line(text: str, level: str = "TRACE") -> bytes:
    return START + f" {level} {text} (state.change.logger)".encode()


def events(text: str, level: str = "TRACE") -> list[object]:
    parsed = parse_entry(line(text, level))
    assert parsed is not None
    return list(events_of(parsed))


OLD = "(Leader:1,ISR:1,2,LeaderEpoch:5,ControllerEpoch:3)"
OLD_STATE = PrintedState(1, 5, (1, 2), None, 3)
NEW = "LeaderAndIsr(leader=1, leaderEpoch=5, isr=List(1, 2), zkVersion=7)"
NEW_STATE = PrintedState(1, 5, (1, 2), 7)
REQUEST = "PartitionState(controllerEpoch=3, leader=1, leaderEpoch=5, isr=1,2, zkVersion=7, replicas=1,2)"
REQUEST_STATE = PrintedState(1, 5, (1, 2), 7, 3)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # 0.8.2 – 0.11
        ("Controller 1 epoch 3 changed partition [t,0] state from OnlinePartition to OfflinePartition",
         [PartitionMoved(T0, "OnlinePartition", "OfflinePartition")]),
        ("Controller 1 epoch 3 changed partition [t,0] from NewPartition to OnlinePartition with leader 1",
         [PartitionMoved(T0, "NewPartition", "OnlinePartition"), LeaderElected(T0, 1)]),
        ("Controller 1 epoch 3 initiated state change for partition [t,0] from OfflinePartition to OnlinePartition failed",
         [MoveFailed(T0, "OfflinePartition", "OnlinePartition")]),
        (f"Controller 1 epoch 3 sending become-leader LeaderAndIsr request {OLD} with correlationId 12 to broker 2 for partition [t,0]",
         [StateSeen(T0, OLD_STATE, StateRole.SENT), PartitionSent(LEADER_AND_ISR, 2, T0, 5)]),
        (f"Controller 1 epoch 3 sending UpdateMetadata request {OLD} to brokers Set(1, 2) for partition t-0",
         [StateSeen(T0, OLD_STATE, StateRole.SENT)]),
        (f"Controller 1 epoch 3 sent LeaderAndIsr request {OLD} with new assigned replica list 1,2 to leader 1 for partition being reassigned [t,0]",
         [Reassigned(T0, (), (), (1, 2)), StateSeen(T0, OLD_STATE, StateRole.DECIDED)]),
        ("Controller 1 epoch 3 changed state of replica 1 for partition [t,0] from OnlineReplica to OfflineReplica", []),
        ("Controller 1 epoch 3 initiated state change of replica 1 for partition [t,0] from A to B failed", []),
        ("Controller 1 epoch 3 initiated state change of replica 1 for partition t-0 from NewReplica to NewReplica failed",
         [ReplicaAsBefore(T0)]),
        (f"Broker 2 received LeaderAndIsr request {REQUEST} correlation id 12 from controller 1 epoch 3 for partition [t,0]",
         [PartitionHandled(LEADER_AND_ISR, T0, 5), StateSeen(T0, REQUEST_STATE, StateRole.RECEIVED)]),
        ("Broker 2 handling LeaderAndIsr request correlationId 12 from controller 1 epoch 3 starting the become-leader transition for partition t-0",
         [PartitionHandled(LEADER_AND_ISR, T0, None)]),
        ("Broker 2 ignoring LeaderAndIsr request from controller 1 with correlation id 12 since its controller epoch 2 is old. Latest known controller epoch is 3",
         [OldController(1, 2, 3)]),
        ("Broker 2 received stop replica request from an old controller epoch 2. Latest known controller epoch is %d 3",
         [OldController(None, 2, 3)]),
        ("Broker 2 received update metadata request with correlation id 12 from an old controller 1 with epoch 2. Latest known controller epoch is 3",
         [OldController(1, 2, 3)]),
        ("Broker 2 ignoring LeaderAndIsr request from controller 1 with correlation id 12 epoch 3 for partition [t,0] since its associated leader epoch 4 is old. Current leader epoch is 5",
         [PartitionHandled(LEADER_AND_ISR, T0, None), Refused(T0, Refusal.OLD_LEADER_EPOCH)]),
        ("Broker 2 ignoring LeaderAndIsr request from controller 1 with correlation id 12 epoch 3 for partition t-0 since its associated leader epoch 5 is not higher than the current leader epoch 5",
         [PartitionHandled(LEADER_AND_ISR, T0, None)]),
        ("Broker 2 ignoring LeaderAndIsr request from controller 1 with correlation id 12 epoch 3 for partition [t,0] as itself is not in assigned replica list 1,3",
         [PartitionHandled(LEADER_AND_ISR, T0, None), Refused(T0, Refusal.NOT_A_REPLICA)]),
        ("Broker 2 handling stop replica (delete=false) for partition [t,0]", [PartitionHandled(STOP_REPLICA, T0, None)]),
        (f"Broker 2 cached leader info {OLD} for partition [t,0] in response to UpdateMetadata request sent by controller 1 epoch 3",
         [StateSeen(T0, OLD_STATE, StateRole.CACHED)]),
        ("Broker 2 deleted partition [t,0] from metadata cache in response to UpdateMetadata request", [PartitionDeleted(T0)]),
        # 1.0 – 2.5
        (f"[Controller id=1 epoch=3] Changed partition t-0 from OnlinePartition to OnlinePartition with state {NEW}",
         [PartitionMoved(T0, "OnlinePartition", "OnlinePartition"), StateSeen(T0, NEW_STATE, StateRole.DECIDED, "OnlinePartition")]),
        ("[Controller id=1 epoch=3] Controller 1 epoch 3 failed to change state for partition t-0 from OfflinePartition to OnlinePartition",
         [MoveFailed(T0, "OfflinePartition", "OnlinePartition")]),
        ("[Controller id=1] Mark replicas t-0,u-1 on broker 2 as offline", [ReplicasOffline(2, (T0, TopicPartition("u", 1)))]),
        ("[Broker id=2] Ignoring stop replica (delete=true) for partition t-0 due to storage exception",
         [PartitionHandled(STOP_REPLICA, T0, None), Refused(T0, Refusal.OFFLINE_LOG_DIR)]),
        # 2.6 – 3.9
        ("[Controller id=1 epoch=3] Sending LeaderAndIsr request to broker 2 with 3 become-leader and 4 become-follower partitions",
         [RequestSent(LEADER_AND_ISR, 2, 7)]),
        ("[Controller id=1 epoch=3] Sending StopReplica request for 2 replicas to broker 2", [RequestSent(STOP_REPLICA, 2, 2)]),
        ("[Controller id=1 epoch=3] Sending StopReplica request (delete = true) for 2 replicas to broker 2", [RequestSent(STOP_REPLICA, 2, 2)]),
        ("[Controller id=1 epoch=3] Sending StopReplica request StopReplicaPartitionState(partitionIndex=0, leaderEpoch=5, deletePartition=false) to broker 2 for partition t-0",
         [PartitionSent(STOP_REPLICA, 2, T0, None)]),
        ("[Controller id=1 epoch=3] Sending UpdateMetadata request to brokers HashSet(1, 2) for 7 partitions", []),
        ("[Controller id=1 epoch=3] Partition t-0 state changed to (Leader:1,ISR:1,LeaderEpoch:6,ZkVersion:8,ControllerEpoch:3) after removing replica 2 from the ISR as part of transition to OfflineReplica",
         [StateSeen(T0, PrintedState(1, 6, (1,), 8, 3), StateRole.DECIDED)]),
        ("[Broker id=2] Handling LeaderAndIsr request correlationId 12 from controller 1 for 7 partitions", [RequestHandled(LEADER_AND_ISR, 1, 7)]),
        ("[Broker id=2] Leader t-0 starts at leader epoch 5 from offset 0 with high watermark 0 ISR [1,2] addingReplicas [] removingReplicas []. Previous leader epoch was -1.",
         [RoleStarted(T0, True, 5, None, (1, 2), False), PartitionHandled(LEADER_AND_ISR, T0, 5)]),
        ("[Broker id=2] Leader t-0 with topic id Some(x) starts at leader epoch 5 from offset 0 with partition epoch 7, high watermark 0, ISR [1], adding replicas [] and removing replicas [] (under-min-isr). Previous leader None and previous leader epoch was -1.",
         [RoleStarted(T0, True, 5, 7, (1,), True), PartitionHandled(LEADER_AND_ISR, T0, 5)]),
        ("[Broker id=2] Follower t-0 starts at leader epoch 5 from offset 0 with partition epoch 7 and high watermark 0. Current leader is 1. Previous leader Some(1)",
         [RoleStarted(T0, False, 5, 7, None, False), PartitionHandled(LEADER_AND_ISR, T0, 5)]),
        ("[Broker id=2] The topic partition t-0 was marked as RECOVERING. Marking the topic partition as RECOVERED.", [UncleanlyElected(T0)]),
        ("[Broker id=2] Add 0 partitions and deleted 3 partitions from metadata cache in response to UpdateMetadata request", [PartitionsForgotten(3)]),
        ("[Broker id=2] Add 7 partitions and deleted 0 partitions from metadata cache in response to UpdateMetadata request", []),
        ("[Broker id=2] Ignoring StopReplica request (delete=false) from controller 1 with correlation id 14 epoch 3 for partition t-0 since its associated leader epoch 4 is smaller than the current leader epoch 5",
         [PartitionHandled(STOP_REPLICA, T0, None), Refused(T0, Refusal.OLD_LEADER_EPOCH)]),
        ("[Broker id=2] Received LeaderAndIsrRequest with correlation id 3 from controller 2 epoch 5 for partition t-0 (last update controller epoch 5) but cannot become follower since the new leader -1 is unavailable.",
         [PartitionHandled(LEADER_AND_ISR, T0, None), Refused(T0, Refusal.LEADER_UNAVAILABLE)]),
        ("[Controller id=1 epoch=3] Received response LeaderAndIsrResponseData(errorCode=0, partitionErrors=[X(topicName='t', partitionIndex=0)])", []),
        ("[Broker id=2] Finished LeaderAndIsr request in 35ms correlationId 12 from controller 1 for 7 partitions", []),
        ("[Broker id=2] Cached leader info UpdateMetadataPartitionState(topicName='t', partitionIndex=0, controllerEpoch=3, leader=-2, leaderEpoch=5, isr=[], zkVersion=1, replicas=[]) for partition t-0",
         [PartitionDeleted(T0)]),
        ("a word that no Kafka begins with", []),
    ],
)  # fmt: skip
def test_what_a_sentence_says(text: str, expected: list[object]) -> None:
    assert events(text) == expected


def test_a_sentence_that_wraps_is_read_as_one() -> None:
    entry = line(
        f"Controller 1 epoch 3 sending become-leader LeaderAndIsr request {OLD}\nto broker 2 for\npartition [t,0]"
    )
    parsed = parse_entry(entry)
    assert parsed is not None
    assert list(events_of(parsed)) == [
        StateSeen(T0, OLD_STATE, StateRole.SENT),
        PartitionSent(LEADER_AND_ISR, 2, T0, 5),
    ]


@given(
    st.text(max_size=200), st.sampled_from(["Changed partition", "Leader", "Received", "Sending", "Ignoring", "Cached"])
)
def test_garbage_raises_nothing(text: str, word: str) -> None:
    for message in (f"{word} {text}", f"{word} t-0 {text}", f"{word} {text} for partition [t,0]"):
        parsed = parse_entry(START + b" INFO [Broker id=1] " + message.encode())
        assert parsed is not None
        list(events_of(parsed))
