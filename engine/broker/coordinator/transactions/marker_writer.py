"""Writes the markers that end transactions into the partitions that this broker leads."""

from __future__ import annotations

from collections.abc import Callable, Collection
from functools import partial
from typing import NamedTuple

from engine.broker.coordinator.writer import ReplicatedWriter
from engine.broker.log.append_origin import CommitMarker, OwnBatch
from engine.broker.log.log_append import NO_OFFSET
from engine.broker.replication.replica_manager import ReplicaManager
from engine.common.clock import Clock
from engine.common.errors import NO_ERROR, ErrorCode
from engine.common.model import TopicPartition
from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.kafka.formats.control_records import ControlRecordType, EndTransactionMarker, encode_end_transaction_batch

MarkerErrors = dict[TopicPartition, ErrorCode]
Ended = Callable[[TopicPartition, ErrorCode, int], None]
"""Receives the outcome for a partition, and the offset of the marker (``NO_OFFSET`` with an error)."""

MAGIC_OF_TRANSACTIONS = 2
"""Older formats have no room for a producer id."""


class Marker(NamedTuple):
    """The outcome of a producer's transaction."""

    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    is_commit: bool


class MarkerWriter:
    """Appends markers, and reports once the in-sync replicas have them."""

    def __init__(
        self,
        replica_manager: ReplicaManager,
        clock: Clock,
        *,
        timeout_ms: int,
        offsets_ended: Callable[[int, int, bool], None],
    ) -> None:
        """``offsets_ended`` is told the partition of the offsets topic, the producer id and whether to commit."""
        self._replica_manager = replica_manager
        self._clock = clock
        self._writer = ReplicatedWriter(replica_manager, timeout_ms)
        self._offsets_ended = offsets_ended

    def write(self, marker: Marker, partitions: Collection[TopicPartition], ended: Ended) -> None:
        """Write a marker to each of the partitions; ``ended`` is called once for each, with its outcome."""
        producer_id, producer_epoch, coordinator_epoch, is_commit = marker
        now_ms = self._clock.now_ms()
        batch = encode_end_transaction_batch(
            EndTransactionMarker(ControlRecordType.COMMIT if is_commit else ControlRecordType.ABORT, coordinator_epoch),
            producer_id=producer_id,
            producer_epoch=producer_epoch,
            timestamp_ms=now_ms,
        )
        own = None
        if is_commit:
            own = OwnBatch(1, now_ms, commit=CommitMarker(producer_id, producer_epoch, coordinator_epoch))
        for topic_partition in partitions:
            partition = self._replica_manager.hosted_partition(topic_partition)
            if partition is None or partition.log is None:
                ended(topic_partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, NO_OFFSET)
            elif partition.log.config.record_magic < MAGIC_OF_TRANSACTIONS:
                ended(topic_partition, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT, NO_OFFSET)
            elif partition.leader_log is None:
                ended(topic_partition, ErrorCode.NOT_LEADER_OR_FOLLOWER, NO_OFFSET)
            else:
                done = partial(ended, topic_partition)
                if topic_partition.topic == GROUP_METADATA_TOPIC:
                    done = partial(self._note_offsets, marker, topic_partition, ended)
                # The log stamps each batch.
                self._writer.append(partition, memoryview(bytearray(batch)), done, own=own)

    def _note_offsets(
        self, marker: Marker, topic_partition: TopicPartition, ended: Ended, error: ErrorCode, offset: int
    ) -> None:
        if error is NO_ERROR:
            self._offsets_ended(topic_partition.partition, marker.producer_id, marker.is_commit)
        ended(topic_partition, error, offset)
