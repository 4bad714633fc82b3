"""Writes batches to partitions that this broker leads, above all those of the coordinators' own topics."""

from __future__ import annotations

import logging
from collections.abc import Callable

from engine.broker.log.append_origin import AppendOrigin, OwnBatch
from engine.broker.replication.partition import Partition
from engine.broker.replication.replica_manager import ReplicaManager
from engine.common.errors import NO_ERROR, ErrorCode, KafkaError
from engine.common.model import ACKS_ALL
from engine.runtime.purgatory import DelayedOperation

Done = Callable[[ErrorCode, int], None]
"""Receives the outcome, and the offset of the batch (-1 with an error)."""

logger = logging.getLogger("kafka.coordinator.group.GroupMetadataManager")

_COORDINATOR = AppendOrigin.COORDINATOR

_ELSEWHERE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""Errors after which a client looks for its coordinator again."""

TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
"""Errors of a batch that is larger than the topic takes."""


class ReplicatedWriter:
    """Appends as coordinator. The callback comes once the in-sync replicas have the batch.

    If ``flush.messages`` is reached, that is after a flush, as for any producer.
    """

    def __init__(self, replica_manager: ReplicaManager, timeout_ms: int) -> None:
        self._replica_manager = replica_manager
        self._timeout_ms = timeout_ms

    def append(
        self,
        partition: Partition | None,
        batch: memoryview,
        done: Done,
        timeout_ms: int | None = None,
        own: OwnBatch | None = None,
    ) -> bool:
        """Append a batch; ``done`` is called when it is replicated or failed. Return whether that happened at once.

        ``partition`` is None if this broker does not lead it. ``timeout_ms`` bounds the wait for the replicas.
        If ``own`` says what the batch is, the log need not look.
        """
        log = None if partition is None else partition.leader_log
        if partition is None or log is None:
            done(ErrorCode.NOT_LEADER_OR_FOLLOWER, -1)
            return True
        try:
            if own is None:
                result = partition.append_records_to_leader(batch, ACKS_ALL, origin=_COORDINATOR)
                first_offset, end_offset = result.first_offset, result.last_offset + 1
            else:
                first_offset = partition.append_own(batch, own)
                end_offset = first_offset + own.record_count
        except KafkaError as error:
            done(error.code, -1)
            return True
        partition.environment.topics.not_produced += 1
        if not log.is_flush_due:
            if partition.followers:
                return self._wait(partition, first_offset, end_offset, done, timeout_ms)
            # The append has raised the high watermark.
            done(NO_ERROR, first_offset)
            return True

        def flushed(error: ErrorCode) -> None:
            if error is NO_ERROR:
                self._wait(partition, first_offset, end_offset, done, timeout_ms)
            else:
                done(error, -1)

        self._replica_manager.flushes.when_flushed(log, flushed)
        return False

    def _wait(
        self, partition: Partition, first_offset: int, end_offset: int, done: Done, timeout_ms: int | None
    ) -> bool:
        """Report when the in-sync replicas have the batch; return whether they have it already."""
        is_done, error_code = partition.check_enough_replicas_reach_offset(end_offset)
        if is_done or error_code is not NO_ERROR:
            done(error_code, first_offset if error_code is NO_ERROR else -1)
            return True
        limit_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        operation = _DelayedAppend(limit_ms, partition, first_offset, end_offset, done)
        return self._replica_manager.delayed_produce.try_complete_else_watch(operation, [partition.topic_partition])

    def append_without_waiting(self, partition: Partition | None, batch: memoryview) -> ErrorCode:
        """Append a batch that may be lost with this broker: tombstones, which are written again."""
        log = None if partition is None else partition.leader_log
        if partition is None or log is None:
            return ErrorCode.NOT_LEADER_OR_FOLLOWER
        try:
            partition.append_records_to_leader(batch, 0, origin=_COORDINATOR)
        except KafkaError as error:
            return error.code
        partition.environment.topics.not_produced += 1
        if log.is_flush_due:
            self._replica_manager.flushes.when_flushed(log, lambda _: None)
        return NO_ERROR


class _DelayedAppend(DelayedOperation):
    """A batch that waits for the in-sync replicas."""

    __slots__ = ("_done", "_end_offset", "_error", "_first_offset", "_partition")

    def __init__(self, delay_ms: int, partition: Partition, first_offset: int, end_offset: int, done: Done) -> None:
        super().__init__(delay_ms)
        self._partition = partition
        self._first_offset = first_offset
        self._end_offset = end_offset
        self._done = done
        self._error = ErrorCode.REQUEST_TIMED_OUT

    def try_complete(self) -> bool:
        """Done when the high watermark has passed the batch, or never will."""
        is_done, error = self._partition.check_enough_replicas_reach_offset(self._end_offset)
        if not is_done and error is NO_ERROR:
            return False
        self._error = error
        return self.force_complete()

    def on_complete(self) -> None:
        """Report the result."""
        error = self._error
        self._done(error, self._first_offset if error is NO_ERROR else -1)

    def on_fault(self) -> None:
        """Report a failure: nobody must wait forever."""
        self._done(ErrorCode.UNKNOWN_SERVER_ERROR, -1)


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """Return the error that makes a client look for its coordinator again, if the append's error calls for that."""
    return _ELSEWHERE.get(error, error)


def commit_error(error: ErrorCode) -> ErrorCode:
    """Return the error for a client whose offsets could not be written."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error in TOO_LARGE else coordinator_error(error)


def store_error(error: ErrorCode) -> ErrorCode:
    """Return the error for members whose group could not be written."""
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    if error in TOO_LARGE:
        logger.error("A group's record is larger than the offsets topic takes: %s", error.name)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return coordinator_error(error)
