"""The controller's requests, byte for byte as Kafka sends them; its brokers' answers as events; old versions."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from fake_zookeeper import broker_info, tp

from engine.broker.controller.broker_requests import (
    BrokerRequest,
    LeaderAndIsrPartition,
    LeaderAndIsrToBroker,
    StopReplicaPartition,
    StopReplicaToBroker,
    UpdateMetadataPartition,
    UpdateMetadataToBroker,
)
from engine.broker.controller.events import (
    LeaderAndIsrResponseReceived,
    StopReplicaResponseReceived,
    UpdateMetadataResponseReceived,
)
from engine.broker.controller.wire_requests import (
    RequestVersions,
    SharedStates,
    WireRequest,
    event_of,
    response_text,
    wire_requests,
)
from engine.common.errors import ErrorCode
from engine.common.model import (
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    LeaderRecoveryState,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from engine.kafka.config.metadata_version import MetadataVersion, parse_metadata_version
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.leader_and_isr import LeaderAndIsrRequest
from engine.kafka.protocol.apis.stop_replica import StopReplicaPartitionError, StopReplicaRequest, StopReplicaResponse
from engine.kafka.protocol.apis.update_metadata import UpdateMetadataRequest
from engine.kafka.protocol.frames import decode_request, decode_response, encode_request

FRAMES = [
    json.loads(line)
    for line in (Path(__file__).parents[3] / "fixtures" / "controller" / "frames.jsonl").read_text().splitlines()
]
REQUESTS = [f for f in FRAMES if f["dir"] == "request"]


def recorded_ibp(frame: dict[str, Any]) -> MetadataVersion:
    return parse_metadata_version("2.6" if frame["scene"].startswith("ibp-2.6") else "3.9")


def as_value(message: Any, broker_id: int) -> BrokerRequest:
    """Convert a decoded request back into the value that the core would have made."""
    match message:
        case LeaderAndIsrRequest():
            parts = tuple(
                LeaderAndIsrPartition(
                    TopicPartition(topic.topic_name, p.partition_index),
                    p.controller_epoch,
                    LeaderAndIsr(
                        p.leader,
                        p.leader_epoch,
                        tuple(p.isr),
                        LeaderRecoveryState(p.leader_recovery_state),
                        p.partition_epoch,
                    ),
                    ReplicaAssignment(tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)),
                    p.is_new,
                )
                for topic in message.topic_states
                for p in topic.partition_states
            )
            leaders = tuple(
                BrokerInfo(x.broker_id, (Endpoint(x.host_name, x.port, "PLAINTEXT", SecurityProtocol.PLAINTEXT),))
                for x in message.live_leaders
            )
            ids = {topic.topic_name: topic.topic_id for topic in message.topic_states}
            return LeaderAndIsrToBroker(broker_id, message.broker_epoch, message.controller_epoch, parts, leaders, ids)
        case UpdateMetadataRequest():
            metadata = tuple(
                UpdateMetadataPartition(
                    TopicPartition(topic.topic_name, p.partition_index),
                    p.controller_epoch,
                    p.leader,
                    p.leader_epoch,
                    tuple(p.isr),
                    p.zk_version,
                    tuple(p.replicas),
                    tuple(p.offline_replicas),
                )
                for topic in message.topic_states
                for p in topic.partition_states
            )
            live = tuple(
                BrokerInfo(
                    b.id,
                    tuple(
                        Endpoint(e.host, e.port, e.listener, SecurityProtocol(e.security_protocol)) for e in b.endpoints
                    ),
                    b.rack,
                )
                for b in message.live_brokers
            )
            ids = {topic.topic_name: topic.topic_id for topic in message.topic_states}
            return UpdateMetadataToBroker(
                broker_id, message.broker_epoch, message.controller_epoch, metadata, live, ids
            )
        case StopReplicaRequest():
            stops = tuple(
                StopReplicaPartition(
                    TopicPartition(topic.topic_name, p.partition_index), p.leader_epoch, p.delete_partition
                )
                for topic in message.topic_states
                for p in topic.partition_states
            )
            return StopReplicaToBroker(broker_id, message.broker_epoch, message.controller_epoch, stops)
    raise AssertionError(message)


def wire_of(frame: dict[str, Any]) -> WireRequest:
    _, message = decode_request(bytes.fromhex(frame["hex"])[4:])
    value = as_value(message, frame["broker"])
    (wire,) = wire_requests(value, int(frame["client"]), RequestVersions.of(recorded_ibp(frame)), "PLAINTEXT")
    return wire


@pytest.mark.parametrize("frame", REQUESTS, ids=lambda f: f"{f['scene']}-{f['api']}-{f['broker']}")
def test_requests_are_kafkas_to_the_byte(frame: dict[str, Any]) -> None:
    wire = wire_of(frame)
    assert wire.api_version == frame["version"]
    encoded = encode_request(wire.message, wire.api_version, frame["correlation"], frame["client"])
    assert bytes(encoded).hex() == frame["hex"]


def named_in(message: Any) -> set[TopicPartition]:
    return {TopicPartition(t.topic_name, p.partition_index) for t in message.topic_states for p in t.partition_states}


@pytest.mark.parametrize("frame", REQUESTS, ids=lambda f: f"{f['scene']}-{f['api']}-{f['broker']}")
def test_answers_become_events(frame: dict[str, Any]) -> None:
    wire = wire_of(frame)
    key = ("scene", "client", "broker", "correlation")
    (answer,) = [f for f in FRAMES if f["dir"] == "response" and all(f[k] == frame[k] for k in key)]
    _, response = decode_response(bytes.fromhex(answer["hex"])[4:], ApiKey(answer["key"]), answer["version"])
    event = event_of(wire, response)
    match event:
        case LeaderAndIsrResponseReceived():
            assert event.partition_errors.keys() == named_in(wire.message)
            assert event.broker_epoch == wire.broker_epoch
        case UpdateMetadataResponseReceived():
            assert event.error is ErrorCode.NONE
        case StopReplicaResponseReceived():
            assert event.deleted.keys() == wire.deleted
            assert set(event.deleted.values()) == {ErrorCode.NONE}
        case None:
            assert wire.deleted == frozenset()


@pytest.mark.parametrize(
    ("ibp", "versions"),
    [("3.9", (7, 8, 4)), ("2.6", (4, 6, 3)), ("2.4", (4, 6, 2)), ("1.0", (1, 4, 0)), ("0.8.2", (0, 0, 0))],
)
def test_versions_follow_the_inter_broker_protocol(ibp: str, versions: tuple[int, int, int]) -> None:
    chosen = RequestVersions.of(parse_metadata_version(ibp))
    assert (chosen.leader_and_isr, chosen.update_metadata, chosen.stop_replica) == versions


LISR = LeaderAndIsrToBroker(
    1,
    77,
    5,
    (
        LeaderAndIsrPartition(
            tp("t-0"),
            5,
            LeaderAndIsr(1, 2, (1, 2), LeaderRecoveryState.RECOVERING, 3),
            ReplicaAssignment((1, 2), (2,), ()),
            True,
        ),
    ),
    (broker_info(1, 77),),
    {"t": bytes(16)},
)
UMD = UpdateMetadataToBroker(
    1, 77, 5, (UpdateMetadataPartition(tp("t-0"), 5, 1, 2, (1,), 3, (1, 2), (2,)),), (broker_info(1, 77, "r"),), {}
)
STOP = StopReplicaToBroker(
    1, 77, 5, (StopReplicaPartition(tp("t-0"), 4, False), StopReplicaPartition(tp("t-1"), 4, True))
)


@pytest.mark.parametrize("ibp", list(MetadataVersion), ids=str)
def test_every_ibp_can_say_everything(ibp: MetadataVersion) -> None:
    for value in (LISR, UMD, STOP):
        for wire in wire_requests(value, 0, RequestVersions.of(ibp), "PLAINTEXT"):
            encoded = bytes(encode_request(wire.message, wire.api_version, 1, "0"))
            _, decoded = decode_request(encoded[4:])
            assert bytes(encode_request(decoded, wire.api_version, 1, "0")) == encoded


def test_what_brokers_share_changes_no_byte() -> None:
    """The second broker gets the same, the third something else."""
    other = (UpdateMetadataPartition(tp("u-1"), 5, 2, 0, (2,), 0, (2,), ()),)
    values = [UMD, replace(UMD, broker_id=2, broker_epoch=78), replace(UMD, broker_id=3, partitions=other), UMD]
    for ibp in MetadataVersion:
        versions = RequestVersions.of(ibp)
        shared = SharedStates(versions.update_metadata)
        for value in values:
            (with_others,) = wire_requests(value, 0, versions, "PLAINTEXT", shared)
            (alone,) = wire_requests(value, 0, versions, "PLAINTEXT")
            version = alone.api_version
            assert encode_request(with_others.message, version, 1, "0") == encode_request(
                alone.message, version, 1, "0"
            )


def test_old_stop_replica_requests_are_split_by_deletion() -> None:
    delete, keep = wire_requests(STOP, 0, RequestVersions(4, 6, 2), "PLAINTEXT")
    assert delete.deleted == {tp("t-1")}
    assert keep.deleted == frozenset()
    assert event_of(keep, StopReplicaResponse(error_code=0)) is None


def test_a_refused_request_is_a_refusal_of_each_deletion() -> None:
    (wire,) = wire_requests(STOP, 0, RequestVersions(7, 8, 4), "PLAINTEXT")
    event = event_of(wire, StopReplicaResponse(error_code=77))
    assert event == StopReplicaResponseReceived(
        1, 77, ErrorCode.STALE_BROKER_EPOCH, {tp("t-1"): ErrorCode.STALE_BROKER_EPOCH}
    )


def test_answers_as_kafka_prints_them() -> None:
    errors = [StopReplicaPartitionError(topic_name="t", partition_index=1, error_code=0)]
    assert response_text(StopReplicaResponse(partition_errors=errors)) == (
        "StopReplicaResponseData(errorCode=0, partitionErrors="
        "[StopReplicaPartitionError(topicName='t', partitionIndex=1, errorCode=0)])"
    )
