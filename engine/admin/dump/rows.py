"""The rows of a dump of Kafka's files: one plain value per line. ``kind`` tells them apart.

Timestamps are milliseconds since 1970 as in the files, -1 for none.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeAlias


class FindingKind(StrEnum):
    """What was noticed about a file. All but the first two are faults, or look like them."""

    EMPTY = "empty"
    SANE = "sane"
    """The check that a broker makes when it starts passed."""
    CORRUPT = "corrupt"
    TRAILING_BYTES = "trailing_bytes"
    """Bytes after the last whole batch: torn by a crash, or being written just now."""
    NON_CONSECUTIVE_OFFSETS = "non_consecutive_offsets"
    """A hole between two records; usual in compacted topics and after aborted appends."""
    INDEX_MISMATCH = "index_mismatch"
    """The batch at an index entry's position does not end with the entry's offset."""
    OFFSET_NOT_FOUND = "offset_not_found"
    """No batch of the log ends with a time index entry's offset."""
    TIMESTAMP_MISMATCH = "timestamp_mismatch"
    TIMESTAMP_OUT_OF_ORDER = "timestamp_out_of_order"
    UNVERIFIED = "unverified"
    """The file that this one should be compared with is not there."""
    UNDECODABLE = "undecodable"
    """A record of an internal topic that could not be decoded; it is shown without key and value."""


FINDINGS_OF_TIMES = (FindingKind.TIMESTAMP_MISMATCH, FindingKind.TIMESTAMP_OUT_OF_ORDER)
"""Their ``subject`` and ``found`` are times."""


@dataclass(frozen=True, slots=True)
class SegmentRow:
    """The start of a segment."""

    kind: str = field(default="segment", init=False)
    base_offset: int | None
    """From the file's name; None if the name has none."""


@dataclass(frozen=True, slots=True)
class BatchRow:
    """One batch; or one message of v0 or v1. A wrapper message has neither first offset nor count."""

    kind: str = field(default="batch", init=False)
    base_offset: int | None
    last_offset: int
    count: int | None
    base_sequence: int
    last_sequence: int
    producer_id: int
    producer_epoch: int
    partition_leader_epoch: int
    is_transactional: bool
    is_control: bool
    delete_horizon_ms: int | None
    position: int
    timestamp_type: str
    max_timestamp_ms: int
    size_bytes: int
    magic: int
    codec: str
    crc: int
    is_valid: bool
    """The checksum matches."""


@dataclass(frozen=True, slots=True)
class RecordRow:
    """One record. ``key`` and ``value`` are text, for internal topics objects, and None if they were not asked for."""

    kind: str = field(default="record", init=False)
    offset: int
    timestamp_type: str
    timestamp_ms: int
    key_size_bytes: int
    """-1 for null; so is ``value_size_bytes``."""
    value_size_bytes: int
    sequence: int | None
    """-1 for a batch without sequence; None in v0 and v1, which have none."""
    headers: list[dict[str, str | None]]
    is_valid: bool | None
    """v0 and v1 only: the message's own checksum matches."""
    crc: int | None
    control: str | None
    """Type of a control record, e.g. COMMIT; None for all others."""
    control_type_id: int | None
    coordinator_epoch: int | None
    key: Any
    value: Any


@dataclass(frozen=True, slots=True)
class OffsetIndexRow:
    """One entry of an offset index."""

    kind: str = field(default="offset_index_entry", init=False)
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeIndexRow:
    """One entry of a time index."""

    kind: str = field(default="time_index_entry", init=False)
    timestamp_ms: int
    offset: int


@dataclass(frozen=True, slots=True)
class AbortedTransactionRow:
    """One entry of a transaction index."""

    kind: str = field(default="aborted_transaction", init=False)
    format_version: int
    producer_id: int
    first_offset: int
    last_offset: int
    last_stable_offset: int


@dataclass(frozen=True, slots=True)
class ProducerRow:
    """One producer of a snapshot; sequences and offset are -1 for one that has only written markers."""

    kind: str = field(default="producer", init=False)
    producer_id: int
    producer_epoch: int
    coordinator_epoch: int
    current_txn_first_offset: int | None
    last_timestamp_ms: int
    first_sequence: int
    last_sequence: int
    last_offset: int
    offset_delta: int


@dataclass(frozen=True, slots=True)
class OffsetCheckpointRow:
    """One partition's line of an offset checkpoint."""

    kind: str = field(default="offset_checkpoint", init=False)
    topic: str
    partition: int
    offset: int


@dataclass(frozen=True, slots=True)
class LeaderEpochRow:
    """One line of a leader epoch checkpoint."""

    kind: str = field(default="leader_epoch", init=False)
    leader_epoch: int
    start_offset: int


@dataclass(frozen=True, slots=True)
class PropertyRow:
    """One setting of a small file."""

    kind: str = field(default="property", init=False)
    name: str
    value: str | int | None


@dataclass(frozen=True, slots=True)
class Finding:
    """Something about the file that its reader should know. ``subject`` and ``found`` are the numbers concerned.

    INDEX_MISMATCH, OFFSET_NOT_FOUND: offset in the index, offset in the log (-1: none). TIMESTAMP_MISMATCH: time in the
    index, time in the log. TIMESTAMP_OUT_OF_ORDER: time, time before it. NON_CONSECUTIVE_OFFSETS: offset, offset after
    it. TRAILING_BYTES: their number, where they start.
    """

    kind: str = field(default="finding", init=False)
    finding: FindingKind
    subject: int | None = None
    found: int | None = None
    message: str | None = None


Row: TypeAlias = (
    SegmentRow
    | BatchRow
    | RecordRow
    | OffsetIndexRow
    | TimeIndexRow
    | AbortedTransactionRow
    | ProducerRow
    | OffsetCheckpointRow
    | LeaderEpochRow
    | PropertyRow
    | Finding
)
