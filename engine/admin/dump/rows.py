"""The rows of a dump of Kafka's files, one plain value per line, and their texts as kafka-dump-log prints them.

``kind`` tells rows apart. Timestamps are milliseconds since 1970 as in the files, -1 for none. Kinds of files that
Kafka's tool does not know get lines of the same style.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from pathlib import Path
from typing import Any, TypeAlias

from engine.admin.dump.payloads import PayloadDecoder, payload_text


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
    kind: str = field(default="offset_index_entry", init=False)
    offset: int
    position: int


@dataclass(frozen=True, slots=True)
class TimeIndexRow:
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


TimeText = Callable[[int], str]
"""How a time, milliseconds since 1970 or -1 for none, is written. Kafka's tool writes the number."""


def row_line(
    row: Row, path: Path, decoder: PayloadDecoder = PayloadDecoder.TEXT, *, time_text: TimeText = str
) -> str | None:
    """Return the row's line on stdout; None for a finding that belongs at the end (``problem_lines``)."""
    match row:
        case SegmentRow():
            return None if row.base_offset is None else f"Log starting offset: {row.base_offset}"
        case BatchRow():
            return _batch_line(row, time_text)
        case RecordRow():
            return _record_line(row, decoder, time_text)
        case OffsetIndexRow():
            return f"offset: {row.offset} position: {row.position}"
        case TimeIndexRow():
            return f"timestamp: {time_text(row.timestamp_ms)} offset: {row.offset}"
        case AbortedTransactionRow():
            return (
                f"version: {row.format_version} producerId: {row.producer_id} firstOffset: {row.first_offset} "
                f"lastOffset: {row.last_offset} lastStableOffset: {row.last_stable_offset}"
            )
        case ProducerRow():
            return _producer_line(row, time_text)
        case OffsetCheckpointRow():
            return f"topic: {row.topic} partition: {row.partition} offset: {row.offset}"
        case LeaderEpochRow():
            return f"leaderEpoch: {row.leader_epoch} startOffset: {row.start_offset}"
        case PropertyRow():
            return f"{row.name}: {'' if row.value is None else row.value}"
        case Finding():
            return _finding_line(row, path)


def problem_lines(path: Path, findings: Sequence[Finding], *, time_text: TimeText = str) -> Iterator[str]:
    """Yield what Kafka's tool says on stderr, after all files, about the problems of one."""
    for kind, head, line in _PROBLEMS:
        concerned = [finding for finding in findings if finding.finding is kind]
        if concerned:
            yield head.format(path=path)
        text = time_text if kind in FINDINGS_OF_TIMES else str
        for finding in concerned:
            yield line.format(*(text(number) for number in (finding.subject, finding.found) if number is not None))
    for finding in findings:
        if finding.finding in (FindingKind.CORRUPT, FindingKind.UNVERIFIED, FindingKind.UNDECODABLE):
            place = "" if finding.subject is None else f" {_PLACES[finding.finding]} {finding.subject}"
            yield f"{path}{place}: {finding.message}"


_PROBLEMS = (
    (FindingKind.INDEX_MISMATCH, "Mismatches in :{path}", "  Index offset: {}, log offset: {}"),
    (FindingKind.TIMESTAMP_MISMATCH, "Found timestamp mismatch in :{path}", "  Index timestamp: {}, log timestamp: {}"),
    (
        FindingKind.TIMESTAMP_OUT_OF_ORDER,
        "Found out of order timestamp in :{path}",
        "  Index timestamp: {}, Previously indexed timestamp: {}",
    ),
    (
        FindingKind.OFFSET_NOT_FOUND,
        "The following indexed offsets are not found in the log.",
        "Indexed offset: {}, found log offset: {}",
    ),
    (FindingKind.NON_CONSECUTIVE_OFFSETS, "Non-consecutive offsets in {path}", "  {} is followed by {}"),
)
_PLACES = {FindingKind.CORRUPT: "at position", FindingKind.UNDECODABLE: "at offset", FindingKind.UNVERIFIED: ""}


def _finding_line(finding: Finding, path: Path) -> str | None:
    match finding.finding:
        case FindingKind.EMPTY:
            return f"{path} is empty."
        case FindingKind.SANE:
            return f"{path} passed sanity check."
        case FindingKind.TRAILING_BYTES:
            return f"Found {finding.subject} invalid bytes at the end of {path.name}"
        case _:
            return None


def _batch_line(row: BatchRow, time_text: TimeText) -> str:
    if row.magic >= 2:
        start = (
            f"baseOffset: {row.base_offset} lastOffset: {row.last_offset} count: {row.count} "
            f"baseSequence: {row.base_sequence} lastSequence: {row.last_sequence} producerId: {row.producer_id} "
            f"producerEpoch: {row.producer_epoch} partitionLeaderEpoch: {row.partition_leader_epoch} "
            f"isTransactional: {_flag(row.is_transactional)} isControl: {_flag(row.is_control)} "
            f"deleteHorizonMs: {_optional(row.delete_horizon_ms, time_text)}"
        )
    else:
        start = f"offset: {row.last_offset}"
    return (
        f"{start} position: {row.position} {row.timestamp_type}: {time_text(row.max_timestamp_ms)} "
        f"size: {row.size_bytes} "
        f"magic: {row.magic} compresscodec: {row.codec} crc: {row.crc} isvalid: {_flag(row.is_valid)}"
    )


def _record_line(row: RecordRow, decoder: PayloadDecoder, time_text: TimeText) -> str:
    line = (
        f"| offset: {row.offset} {row.timestamp_type}: {time_text(row.timestamp_ms)} keySize: {row.key_size_bytes} "
        f"valueSize: {row.value_size_bytes}"
    )
    if row.sequence is not None:
        line += f" sequence: {row.sequence} headerKeys: [{','.join(header['key'] or '' for header in row.headers)}]"
    if row.is_valid is not None:
        # The brace is Kafka's own slip; parsers of its output expect it.
        line += f" isValid: {_flag(row.is_valid)} crc: {row.crc}}}"
    if row.coordinator_epoch is not None:
        line += f" endTxnMarker: {row.control} coordinatorEpoch: {row.coordinator_epoch}"
    elif row.control is not None:
        line += f" controlType: {row.control}({row.control_type_id})"
    key, value = payload_text(row.key, row.value, decoder)
    if key is not None:
        line += f" key: {key}"
    return line if value is None else f"{line} payload: {value}"


def _producer_line(row: ProducerRow, time_text: TimeText) -> str:
    last = time_text(row.last_timestamp_ms)
    line = (
        f"producerId: {row.producer_id} producerEpoch: {row.producer_epoch} coordinatorEpoch: {row.coordinator_epoch} "
        f"currentTxnFirstOffset: {_optional(row.current_txn_first_offset)} lastTimestamp: {last} "
    )
    if row.last_offset < 0:
        return line
    return (
        f"{line}firstSequence: {row.first_sequence} lastSequence: {row.last_sequence} lastOffset: {row.last_offset} "
        f"offsetDelta: {row.offset_delta} timestamp: {last}"
    )


def _optional(number: int | None, text: Callable[[int], str] = str) -> str:
    return "OptionalLong.empty" if number is None else f"OptionalLong[{text(number)}]"


def _flag(value: bool) -> str:
    return "true" if value else "false"
