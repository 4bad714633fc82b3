"""The controller's requests in the versions of the protocol, and the brokers' answers as events.

Versions follow ``inter.broker.protocol.version`` and are never negotiated, as in Kafka: a broker that does not know
them is too old for this controller.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, TypeVar

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
    ControllerEvent,
    LeaderAndIsrResponseReceived,
    StopReplicaResponseReceived,
    UpdateMetadataResponseReceived,
)
from engine.broker.controller.instructions import slices
from engine.common.errors import ErrorCode, error_code
from engine.common.model import BrokerInfo, SecurityProtocol, TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID, topic_id_text
from engine.kafka.config.metadata_version import (
    MetadataVersion,
    leader_and_isr_version,
    stop_replica_version,
    update_metadata_version,
)
from engine.kafka.protocol.apis.leader_and_isr import (
    LeaderAndIsrLiveLeader,
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrResponse,
    LeaderAndIsrTopicState,
)
from engine.kafka.protocol.apis.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaResponse,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from engine.kafka.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataResponse,
    UpdateMetadataTopicState,
)
from engine.kafka.protocol.declaration import Request, Response

_FIRST_LISR_BY_TOPIC = 2
_FIRST_LISR_WITH_RECOVERY_STATE = 6
_FIRST_UMD_BY_TOPIC = 5
_FIRST_STOP_BY_TOPIC = 1
_FIRST_STOP_PER_PARTITION = 3

OfTopic = TypeVar("OfTopic", LeaderAndIsrPartition, StopReplicaPartition)


@dataclass(frozen=True, slots=True)
class RequestVersions:
    leader_and_isr: int
    update_metadata: int
    stop_replica: int

    @classmethod
    def of(cls, ibp: MetadataVersion) -> RequestVersions:
        return cls(leader_and_isr_version(ibp), update_metadata_version(ibp), stop_replica_version(ibp))


@dataclass(frozen=True, slots=True)
class WireRequest:
    """One message to send.

    ``topic_ids`` are those of a LeaderAndIsr, whose answer names topics by them; ``deleted`` are the partitions that a
    StopReplica deletes.
    """

    message: Request
    api_version: int
    broker_id: int
    broker_epoch: int
    partition_count: int
    topic_ids: Mapping[str, bytes]
    deleted: frozenset[TopicPartition]


class _States(list[Any]):
    """A list that ``weakref`` can watch."""


class SharedStates:
    """The partitions of UpdateMetadata requests in wire form, made once for all brokers that get the same ones.

    It lives while the requests of one step are assembled. The messages share the values, which are only encoded.

    Args:
        version: of the messages.
        on_unused: is given all that was made, in pieces, once the last message is gone; called in any thread.
    """

    __slots__ = ("_made_of", "_on_unused", "_states", "_version")

    def __init__(self, version: int, on_unused: Callable[[Iterable[object]], object] | None = None) -> None:
        self._version = version
        self._on_unused = on_unused
        self._made_of: UpdateMetadataToBroker | None = None
        self._states = _States()

    def prepare(self, request: UpdateMetadataToBroker) -> Iterator[None]:
        """Make the states in pieces, with a yield after each, so that ``of`` has nothing left to do."""
        known = self._made_of
        if known is not None and known.partitions is request.partitions and known.topic_ids is request.topic_ids:
            return
        states, pieces = _States(), list[object]()
        by_topic: dict[str, list[UpdateMetadataPartitionState]] = {}
        for piece in slices(request.partitions):
            made = [_metadata_state(part) for part in piece]
            pieces.append((piece, made))
            if self._version < _FIRST_UMD_BY_TOPIC:
                states.extend(made)
            else:
                topics = _sorted_in(made, by_topic, request.topic_ids)
                states.extend(topics)
                pieces.append(topics)
            yield
        self._made_of, self._states = request, states
        if self._on_unused is not None:
            weakref.finalize(states, self._on_unused, pieces).atexit = False

    def of(self, request: UpdateMetadataToBroker) -> list[Any]:
        """Return the states of the partitions: by topic, or one by one in versions without topics."""
        for _ in self.prepare(request):
            pass
        return self._states


def _sorted_in(
    states: Iterable[UpdateMetadataPartitionState],
    by_topic: dict[str, list[UpdateMetadataPartitionState]],
    topic_ids: Mapping[str, bytes],
) -> list[UpdateMetadataTopicState]:
    """Put each state with the others of its topic; return the topics that are new."""
    new = []
    for state in states:
        topic = state.topic_name
        of_topic = by_topic.get(topic)
        if of_topic is None:
            of_topic = by_topic[topic] = []
            topic_id = topic_ids.get(topic, ZERO_TOPIC_ID)
            new.append(UpdateMetadataTopicState(topic_name=topic, topic_id=topic_id, partition_states=of_topic))
        of_topic.append(state)
    return new


def wire_requests(
    request: BrokerRequest,
    controller_id: int,
    versions: RequestVersions,
    inter_broker_listener: str,
    shared: SharedStates | None = None,
) -> list[WireRequest]:
    """Return the messages for one request: one, or two for a StopReplica that old versions cannot express in one."""
    match request:
        case LeaderAndIsrToBroker():
            message = _leader_and_isr(request, controller_id, versions.leader_and_isr, inter_broker_listener)
            return [_wire(request, message, versions.leader_and_isr, topic_ids=request.topic_ids)]
        case UpdateMetadataToBroker():
            states = (SharedStates(versions.update_metadata) if shared is None else shared).of(request)
            metadata = _update_metadata(request, controller_id, versions.update_metadata, states)
            return [_wire(request, metadata, versions.update_metadata)]
        case StopReplicaToBroker():
            return _stop_replica(request, controller_id, versions.stop_replica)


def _wire(
    request: BrokerRequest,
    message: Request,
    version: int,
    *,
    topic_ids: Mapping[str, bytes] = MappingProxyType({}),
    deleted: frozenset[TopicPartition] = frozenset(),
) -> WireRequest:
    return WireRequest(
        message, version, request.broker_id, request.broker_epoch, len(request.partitions), topic_ids, deleted
    )


def event_of(wire: WireRequest, response: Response) -> ControllerEvent | None:
    """Return the event for an answer; None if no caller waits for it."""
    broker_id, broker_epoch = wire.broker_id, wire.broker_epoch
    if isinstance(response, LeaderAndIsrResponse):
        error = error_code(response.error_code)
        text = "" if error is ErrorCode.NONE else response_text(response)
        errors = _leader_and_isr_errors(response, wire.topic_ids)
        return LeaderAndIsrResponseReceived(broker_id, broker_epoch, error, errors, text)
    if isinstance(response, UpdateMetadataResponse):
        error = error_code(response.error_code)
        return UpdateMetadataResponseReceived(broker_id, broker_epoch, error, response_text(response))
    if isinstance(response, StopReplicaResponse) and wire.deleted:
        by_partition = {
            TopicPartition(e.topic_name, e.partition_index): e.error_code for e in response.partition_errors
        }
        error = error_code(response.error_code)
        # A refusal of the whole request may name no partition; it applies to each of them.
        deleted = {p: error_code(by_partition.get(p, response.error_code)) for p in sorted(wire.deleted)}
        return StopReplicaResponseReceived(broker_id, broker_epoch, error, deleted)
    return None


def _by_topic(parts: Iterable[OfTopic]) -> dict[str, list[OfTopic]]:
    topics: dict[str, list[OfTopic]] = {}
    for part in parts:
        topics.setdefault(part.topic_partition.topic, []).append(part)
    return topics


def _leader_and_isr(
    request: LeaderAndIsrToBroker, controller_id: int, version: int, listener: str
) -> LeaderAndIsrRequest:
    message = LeaderAndIsrRequest(
        controller_id=controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        live_leaders=[
            LeaderAndIsrLiveLeader(broker_id=b.id, host_name=e.host, port=e.port)
            for b in request.leaders
            if (e := b.endpoint_for(listener)) is not None
        ],
    )
    if version < _FIRST_LISR_BY_TOPIC:
        message.ungrouped_partition_states = [_leader_and_isr_state(p, version) for p in request.partitions]
    else:
        message.topic_states = [
            LeaderAndIsrTopicState(
                topic_name=topic,
                topic_id=request.topic_ids.get(topic, ZERO_TOPIC_ID),
                partition_states=[_leader_and_isr_state(p, version) for p in partitions],
            )
            for topic, partitions in _by_topic(request.partitions).items()
        ]
    return message


def _leader_and_isr_state(part: LeaderAndIsrPartition, version: int) -> LeaderAndIsrPartitionState:
    state, assignment = part.state, part.assignment
    return LeaderAndIsrPartitionState(
        topic_name=part.topic_partition.topic,
        partition_index=part.topic_partition.partition,
        controller_epoch=part.controller_epoch,
        leader=state.leader,
        leader_epoch=state.leader_epoch,
        isr=list(state.isr),
        partition_epoch=state.partition_epoch,
        replicas=list(assignment.replicas),
        adding_replicas=list(assignment.adding_replicas),
        removing_replicas=list(assignment.removing_replicas),
        is_new=part.is_new,
        leader_recovery_state=int(state.leader_recovery_state) if version >= _FIRST_LISR_WITH_RECOVERY_STATE else 0,
    )


def _update_metadata(
    request: UpdateMetadataToBroker, controller_id: int, version: int, states: list[Any]
) -> UpdateMetadataRequest:
    message = UpdateMetadataRequest(
        controller_id=controller_id,
        controller_epoch=request.controller_epoch,
        broker_epoch=request.broker_epoch,
        live_brokers=[_metadata_broker(b, version) for b in request.live_brokers],
    )
    if version < _FIRST_UMD_BY_TOPIC:
        message.ungrouped_partition_states = states
    else:
        message.topic_states = states
    return message


def _metadata_broker(broker: BrokerInfo, version: int) -> UpdateMetadataBroker:
    if version == 0:
        plain = broker.endpoint_for(SecurityProtocol.PLAINTEXT)
        host, port = ("", -1) if plain is None else (plain.host, plain.port)
        return UpdateMetadataBroker(id=broker.id, v0_host=host, v0_port=port)
    endpoints = [
        UpdateMetadataEndpoint(
            port=e.port, host=e.host, listener=e.listener_name, security_protocol=int(e.security_protocol)
        )
        for e in broker.endpoints
    ]
    return UpdateMetadataBroker(id=broker.id, endpoints=endpoints, rack=broker.rack)


def _metadata_state(part: UpdateMetadataPartition) -> UpdateMetadataPartitionState:
    return UpdateMetadataPartitionState(
        topic_name=part.topic_partition.topic,
        partition_index=part.topic_partition.partition,
        controller_epoch=part.controller_epoch,
        leader=part.leader,
        leader_epoch=part.leader_epoch,
        isr=list(part.isr),
        zk_version=part.partition_epoch,
        replicas=list(part.replicas),
        offline_replicas=list(part.offline_replicas),
    )


def _stop_replica(request: StopReplicaToBroker, controller_id: int, version: int) -> list[WireRequest]:
    if version >= _FIRST_STOP_PER_PARTITION:
        message = _empty_stop_replica(request, controller_id)
        message.topic_states = [
            StopReplicaTopicState(
                topic_name=topic,
                partition_states=[
                    StopReplicaPartitionState(
                        partition_index=p.topic_partition.partition,
                        leader_epoch=p.leader_epoch,
                        delete_partition=p.delete,
                    )
                    for p in partitions
                ],
            )
            for topic, partitions in _by_topic(request.partitions).items()
        ]
        deleted = frozenset(p.topic_partition for p in request.partitions if p.delete)
        return [_wire(request, message, version, deleted=deleted)]
    wires = []
    for delete in (True, False):
        parts = [p for p in request.partitions if p.delete is delete]
        if parts:
            deleted = frozenset(p.topic_partition for p in parts) if delete else frozenset()
            message = _old_stop_replica(request, controller_id, version, parts, delete=delete)
            wires.append(_wire(request, message, version, deleted=deleted))
    return wires


def _empty_stop_replica(request: StopReplicaToBroker, controller_id: int) -> StopReplicaRequest:
    return StopReplicaRequest(
        controller_id=controller_id, controller_epoch=request.controller_epoch, broker_epoch=request.broker_epoch
    )


def _old_stop_replica(
    request: StopReplicaToBroker, controller_id: int, version: int, parts: list[StopReplicaPartition], *, delete: bool
) -> StopReplicaRequest:
    message = _empty_stop_replica(request, controller_id)
    message.delete_partitions = delete
    if version < _FIRST_STOP_BY_TOPIC:
        message.ungrouped_partitions = [
            StopReplicaPartitionV0(topic_name=p.topic_partition.topic, partition_index=p.topic_partition.partition)
            for p in parts
        ]
    else:
        message.topics = [
            StopReplicaTopicV1(name=topic, partition_indexes=[p.topic_partition.partition for p in of_topic])
            for topic, of_topic in _by_topic(parts).items()
        ]
    return message


def _leader_and_isr_errors(
    response: LeaderAndIsrResponse, topic_ids: Mapping[str, bytes]
) -> dict[TopicPartition, ErrorCode]:
    errors = {TopicPartition(e.topic_name, e.partition_index): _code(e.error_code) for e in response.partition_errors}
    names = {topic_id: topic for topic, topic_id in topic_ids.items()}
    for topic in response.topics:
        name = names.get(topic.topic_id)
        if name is not None:
            errors.update(
                {TopicPartition(name, e.partition_index): _code(e.error_code) for e in topic.partition_errors}
            )
    return errors


def _code(code: int) -> ErrorCode:
    """Return the error; fast for NONE, which thousands of partitions answer."""
    return error_code(code) if code else ErrorCode.NONE


def response_text(response: Any) -> str:
    """Return an answer as Kafka's generated classes print it."""
    if isinstance(response, LeaderAndIsrResponse):
        topics = ", ".join(
            f"LeaderAndIsrTopicError(topicId={topic_id_text(t.topic_id)}, "
            f"partitionErrors=[{_partition_errors('LeaderAndIsrPartitionError', t.partition_errors)}])"
            for t in response.topics
        )
        errors = _partition_errors("LeaderAndIsrPartitionError", response.partition_errors)
        return (
            f"LeaderAndIsrResponseData(errorCode={response.error_code}, partitionErrors=[{errors}], topics=[{topics}])"
        )
    if isinstance(response, StopReplicaResponse):
        errors = _partition_errors("StopReplicaPartitionError", response.partition_errors)
        return f"StopReplicaResponseData(errorCode={response.error_code}, partitionErrors=[{errors}])"
    return f"UpdateMetadataResponseData(errorCode={response.error_code})"


def _partition_errors(name: str, errors: Iterable[Any]) -> str:
    return ", ".join(
        f"{name}(topicName='{e.topic_name}', partitionIndex={e.partition_index}, errorCode={e.error_code})"
        for e in errors
    )
