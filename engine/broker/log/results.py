"""What appends and reads of a log return, and what they raise besides wire errors."""

from __future__ import annotations

from typing import NamedTuple

from engine.broker.log.file_range import FileRange
from engine.common.errors import KlammError

NO_OFFSET = -1
NO_APPEND_TIME = -1


class AppendResult:
    """Where records went. All offsets are -1 if there was nothing to append.

    ``log_append_time_ms`` is -1 except for topics with LogAppendTime and for duplicates. A duplicate has the offsets
    of the batch that was appended before. ``size_bytes`` is what came, also of a duplicate; another form may be stored.
    """

    __slots__ = (
        "first_offset",
        "is_duplicate",
        "last_offset",
        "leader_epoch",
        "log_append_time_ms",
        "log_start_offset",
        "record_count",
        "size_bytes",
    )

    def __init__(
        self,
        first_offset: int,
        last_offset: int,
        log_append_time_ms: int,
        log_start_offset: int,
        record_count: int,
        size_bytes: int,
        leader_epoch: int,
        is_duplicate: bool = False,
    ) -> None:
        self.first_offset = first_offset
        self.last_offset = last_offset
        self.log_append_time_ms = log_append_time_ms
        self.log_start_offset = log_start_offset
        self.record_count = record_count
        self.size_bytes = size_bytes
        self.leader_epoch = leader_epoch
        self.is_duplicate = is_duplicate

    def __repr__(self) -> str:
        return (
            f"AppendResult(first_offset={self.first_offset}, last_offset={self.last_offset}, "
            f"records={self.record_count}, bytes={self.size_bytes}, is_duplicate={self.is_duplicate})"
        )


class LogPosition(NamedTuple):
    """Where an offset is: its segment, and the byte in it. Positions compare in log order."""

    segment_base_offset: int
    position: int


class LogRead:
    """What a read found. ``records`` is None if there are none below the limit.

    ``position`` is where the first batch begins. That batch holds the offset asked for and may begin before it. The
    bytes may end within a batch.
    """

    __slots__ = ("is_first_batch_incomplete", "position", "records")

    def __init__(
        self, records: FileRange | None, position: LogPosition, is_first_batch_incomplete: bool = False
    ) -> None:
        self.records = records
        self.position = position
        self.is_first_batch_incomplete = is_first_batch_incomplete

    def __repr__(self) -> str:
        return f"LogRead(records={self.records!r}, position={self.position})"

    @property
    def size_bytes(self) -> int:
        return 0 if self.records is None else self.records.size_bytes


class OffsetAtTime(NamedTuple):
    """An offset, the timestamp of its record (-1: none), and the leader epoch it was written under (None: unknown)."""

    offset: int
    timestamp_ms: int
    leader_epoch: int | None


class UnexpectedAppendOffset(KlammError):
    """A follower's fetched records begin before the end of its log. Kafka's UnexpectedAppendOffsetException."""

    def __init__(self, message: str, *, first_offset: int, last_offset: int) -> None:
        super().__init__(message)
        self.first_offset = first_offset
        self.last_offset = last_offset


class OffsetsOutOfOrder(KlammError):
    """A follower's fetched batches are not in ascending order. Kafka's OffsetsOutOfOrderException."""
