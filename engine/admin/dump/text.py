"""Rows of a dump as the lines that kafka-dump-log 3.9 prints, for eyes and scripts that know those.

Kinds of files that Kafka's tool does not know get lines of the same style.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

from engine.admin.dump.payloads import PayloadDecoder, payload_text
from engine.admin.dump.rows import (
    FINDINGS_OF_TIMES,
    AbortedTransactionRow,
    BatchRow,
    Finding,
    FindingKind,
    LeaderEpochRow,
    OffsetCheckpointRow,
    OffsetIndexRow,
    ProducerRow,
    PropertyRow,
    RecordRow,
    Row,
    SegmentRow,
    TimeIndexRow,
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
    (
        FindingKind.INDEX_MISMATCH,
        "Mismatches in :{path}",
        "  Index offset: {}, log offset: {}",
    ),
    (
        FindingKind.TIMESTAMP_MISMATCH,
        "Found timestamp mismatch in :{path}",
        "  Index timestamp: {}, log timestamp: {}",
    ),
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
    (
        FindingKind.NON_CONSECUTIVE_OFFSETS,
        "Non-consecutive offsets in {path}",
        "  {} is followed by {}",
    ),
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
