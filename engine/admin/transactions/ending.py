"""Ends transactions: a marker for a hanging one in one partition, or a fence for a transactional id.

A marker is final. It carries the coordinator epoch that the partition knows, never a later one: leaders refuse markers
with an earlier epoch than the last, so a marker with a later epoch would block the coordinator's own markers.
"""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass
from enum import StrEnum

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, Refused, StillUnderWay, Unknown
from engine.admin.cluster.remedies import Do, Operation, Parameter, Phrase
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster
from engine.admin.groups.group_reading import find_coordinators
from engine.admin.groups.scope import as_error
from engine.admin.offsets.listing import leaders_of
from engine.admin.transactions.hanging import OpenTransaction, explained
from engine.admin.transactions.reading import (
    PartitionProducer,
    TransactionDescription,
    describe_producers,
    describe_transactions,
    transaction_failure,
)
from engine.common.errors import ErrorCode, error_code
from engine.common.model import TopicPartition
from engine.common.topic_names import TRANSACTION_STATE_TOPIC
from engine.kafka.protocol.apis.find_coordinator import KeyType
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest, InitProducerIdResponse
from engine.kafka.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
    WriteTxnMarkersResponse,
)

_SHARE_OF_TIMEOUT = 0.8
"""Waiting ends before the command's own deadline, so that it can say what continues."""

_MOVING = frozenset(
    {ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS}
)


class EndResult(StrEnum):
    """What became of a transaction."""

    ABORTED = "aborted"
    WOULD_BE_ABORTED = "would_be_aborted"
    TERMINATED = "terminated"
    WOULD_BE_TERMINATED = "would_be_terminated"


@dataclass(frozen=True, slots=True)
class Marker:
    """The marker that aborts a producer's transaction in one partition."""

    name: TopicPartition
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    start_offset: int | None = None
    """Where the transaction began, if that was looked up."""


async def marker_for_offset(
    wire: WireCluster, name: TopicPartition, start_offset: int, *, is_forced: bool = False
) -> Marker:
    """Return the marker for the transaction that begins at an offset of a partition.

    Raises:
        NotFound: no open transaction begins there.
        BadRequest: its coordinator will end it, and ``is_forced`` is not set.
    """
    producers = await _producers(wire, name)
    producer = next((candidate for candidate in producers if candidate.start_offset == start_offset), None)
    if producer is None:
        starts = sorted(candidate.start_offset for candidate in producers if candidate.start_offset is not None)
        hint = f"open ones begin at {', '.join(map(str, starts))}" if starts else "none is open in this partition"
        raise NotFound(f"no open transaction of {name} begins at offset {start_offset}", hint=hint)
    if not is_forced:
        await _refuse_known(wire, name, producer)
    return Marker(name, producer.producer_id, producer.producer_epoch, producer.coordinator_epoch or 0, start_offset)


async def marker_for_producer(
    wire: WireCluster,
    name: TopicPartition,
    producer_id: int,
    producer_epoch: int,
    coordinator_epoch: int,
    *,
    is_forced: bool = False,
) -> Marker:
    """Return the marker for a producer's transaction, as the caller gives it (brokers before 2.8 know no other way).

    Raises:
        NotFound: the producer has no open transaction there, and ``is_forced`` is not set.
        BadRequest: its coordinator will end it, or the coordinator epoch is later than any coordinator's.
    """
    latest = await _latest_coordinator_epoch(wire)
    if latest is not None and coordinator_epoch > latest:
        message = f"no coordinator has the epoch {coordinator_epoch} yet: the latest is {latest}"
        hint = Phrase(
            "a marker from the future would keep out the coordinator's own: see the epoch to give with ",
            Do(Operation.DESCRIBE_PRODUCERS, str(name)),
        )
        raise BadRequest(message, where=Parameter.COORDINATOR_EPOCH, hint=hint)
    start_offset = None
    if not is_forced:
        producers = await _producers(wire, name)
        producer = next((candidate for candidate in producers if candidate.producer_id == producer_id), None)
        if producer is None or producer.start_offset is None:
            message = f"producer {producer_id} has no open transaction in {name}"
            raise NotFound(message, hint=Phrase("see who has: ", Do(Operation.DESCRIBE_PRODUCERS, str(name))))
        await _refuse_known(wire, name, producer)
        start_offset = producer.start_offset
    return Marker(name, producer_id, producer_epoch, coordinator_epoch, start_offset)


async def abort(cluster: Cluster, marker: Marker) -> None:
    """Write a marker that aborts the transaction, into the partition's leader.

    Raises:
        NotFound: there is no such partition.
        Refused: it has no leader, or the leader refuses the marker.
        OutcomeUnknown: the answer was lost. Writing the same marker again does no harm.
    """
    wire = await cluster.wire()
    look = Do(Operation.DESCRIBE_PRODUCERS, str(marker.name))
    cluster.accepted(Phrase("the transaction may be aborted already; check with: ", look))
    request = WriteTxnMarkersRequest(
        markers=[
            WritableTxnMarker(
                producer_id=marker.producer_id,
                producer_epoch=marker.producer_epoch,
                transaction_result=False,
                topics=[WritableTxnMarkerTopic(name=marker.name.topic, partition_indexes=[marker.name.partition])],
                coordinator_epoch=marker.coordinator_epoch,
            )
        ]
    )
    deadline = time.monotonic() + cluster.timeout_s * _SHARE_OF_TIMEOUT
    while True:
        code = await _marker_outcome(wire, request, marker.name)
        # Leaders that have moved wrote nothing.
        if code is not ErrorCode.NOT_LEADER_OR_FOLLOWER or time.monotonic() >= deadline:
            break
        await asyncio.sleep(RETRY_PAUSE_S)
    if code is ErrorCode.NONE:
        return
    hints = {
        ErrorCode.INVALID_PRODUCER_EPOCH: Phrase("the producer has a later epoch by now: ", look),
        ErrorCode.TRANSACTION_COORDINATOR_FENCED: Phrase("a later coordinator has written to it: ", look),
    }
    raise Refused(code, where=f"partition {marker.name}", hint=hints.get(code))


async def _marker_outcome(wire: WireCluster, request: WriteTxnMarkersRequest, name: TopicPartition) -> ErrorCode:
    leader = (await leaders_of(wire, [name]))[name]
    if isinstance(leader, Unknown):
        raise partition_failure(name, leader)
    response: WriteTxnMarkersResponse = await wire.call_broker(leader, request)
    return next(
        (
            error_code(partition.error_code)
            for marker in response.markers
            for topic in marker.topics
            for partition in topic.partitions
        ),
        ErrorCode.UNKNOWN_SERVER_ERROR,
    )


async def describe_to_terminate(wire: WireCluster, transactional_id: str) -> TransactionDescription:
    """Return what a fence would end.

    Raises:
        NotFound: there is no such transactional id. A fence would create the id, so a typing error would go unnoticed.
    """
    described = (await describe_transactions(wire, [transactional_id]))[transactional_id]
    if isinstance(described, Unknown):
        raise transaction_failure(transactional_id, described)
    return described


async def force_terminate(cluster: Cluster, transactional_id: str) -> TransactionDescription:
    """Fence the producer of a transactional id, which aborts its open transaction; return the state afterwards.

    It waits until the markers are written. A transaction that is being committed is committed.

    Raises:
        Refused: the coordinator refuses it.
        OutcomeUnknown, StillUnderWay: the answer was lost, or markers are not written yet.
    """
    wire = await cluster.wire()
    look = Do(Operation.DESCRIBE_TRANSACTION, transactional_id)
    cluster.accepted(Phrase("the transaction is ended meanwhile; check with: ", look))
    request = InitProducerIdRequest(
        transactional_id=transactional_id, transaction_timeout_ms=int(cluster.timeout_s * 1000)
    )
    deadline = time.monotonic() + cluster.timeout_s * _SHARE_OF_TIMEOUT
    while True:
        code = await _fence_outcome(wire, request)
        if code is ErrorCode.NONE:
            return await describe_to_terminate(wire, transactional_id)
        if code is not ErrorCode.CONCURRENT_TRANSACTIONS and code not in _MOVING:
            raise Refused(code, where=f"transactional id {transactional_id}")
        if time.monotonic() >= deadline:
            raise StillUnderWay(f"transactional id {transactional_id!r}: {code.name}", hint=Phrase("look: ", look))
        await asyncio.sleep(RETRY_PAUSE_S)


async def _fence_outcome(wire: WireCluster, request: InitProducerIdRequest) -> ErrorCode:
    transactional_id = request.transactional_id or ""
    home = (await find_coordinators(wire, [transactional_id], KeyType.TRANSACTION))[transactional_id]
    if isinstance(home, Unknown):
        if home.code in _MOVING:
            return home.code or ErrorCode.COORDINATOR_NOT_AVAILABLE
        raise as_error(home, f"transactional id {transactional_id}")
    response: InitProducerIdResponse = await wire.call_broker(home, request)
    return error_code(response.error_code)


async def _producers(wire: WireCluster, name: TopicPartition) -> tuple[PartitionProducer, ...]:
    answer = (await describe_producers(wire, [name]))[name]
    if isinstance(answer, Unknown):
        raise partition_failure(name, answer)
    return answer


def partition_failure(name: TopicPartition, why: Unknown) -> AdminError:
    """Return the failure of a partition whose producers cannot be read or ended."""
    if why.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
        hint = Phrase("see them with: ", Operation.DESCRIBE_TOPICS)
        return NotFound(f"there is no partition {name}", hint=hint, topics=[name.topic])
    return as_error(why, f"partition {name}")


async def _refuse_known(wire: WireCluster, name: TopicPartition, producer: PartitionProducer) -> None:
    """Refuse to abort in one partition what a coordinator will end everywhere: it would be committed in part."""
    judged = await explained(wire, [OpenTransaction(name, producer, producer.start_offset or 0, None)])
    if not judged.transactions:
        raise judged.failures[0]
    (transaction,) = judged.transactions
    if transaction.is_hanging or transaction.description is None:
        return
    known = transaction.description
    raise BadRequest(
        f"it is not hanging: transactional id {known.transactional_id!r} is {known.state} with this partition",
        where=f"partition {name}",
        hint=Phrase(
            "end it in all its partitions with: ", Do(Operation.TERMINATE_TRANSACTION, known.transactional_id),
            "; ", Parameter.FORCE, " aborts it in this one alone, so that a commit would be seen in part",
        ),
    )  # fmt: skip


async def _latest_coordinator_epoch(wire: WireCluster) -> int | None:
    """Return the latest leader epoch of the coordinators' partitions; None if no broker reports it (before 2.1)."""
    metadata = await wire.metadata([TRANSACTION_STATE_TOPIC])
    epochs = [partition.leader_epoch for topic in metadata.topics for partition in topic.partitions]
    return max(epochs, default=-1) if max(epochs, default=-1) >= 0 else None
