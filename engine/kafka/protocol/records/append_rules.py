"""What a topic demands of appended records, and the errors for records that do not comply."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import NamedTuple

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.config.values import LONG_MAX
from engine.kafka.protocol.records.attributes import Codec, TimestampType, codec_named

_PRODUCER = "producer"
_SHOWN_MAX = 3

REFUSED_MAX = 1000
"""Maximum refused records to find and name per batch: a small batch may unpack to millions."""


@dataclass(frozen=True, slots=True)
class AppendRules:
    """The topic settings that decide how to store produced batches, parsed once per change of settings."""

    codec: Codec | None = None
    """The codec to store with; None keeps the producer's."""
    level: int | None = None
    """Level for that codec; None is Kafka's default."""
    timestamp_type: TimestampType = TimestampType.CREATE_TIME
    timestamp_before_max_ms: int = LONG_MAX
    timestamp_after_max_ms: int = LONG_MAX
    is_compacted: bool = False
    magic: int = 2
    """The format to store in."""

    @classmethod
    def of(cls, config: LogConfig) -> AppendRules:
        """Derive the rules from a topic's settings.

        ``message.timestamp.difference.max.ms`` applies to each limit that is not set, as in Kafka 3.6 and later.
        """
        codec = None if config.compression_type == _PRODUCER else codec_named(config.compression_type)
        difference = config.message_timestamp_difference_max_ms
        before = config.message_timestamp_before_max_ms
        after = config.message_timestamp_after_max_ms
        return cls(
            codec=codec,
            level=_level(config, codec),
            timestamp_type=(
                TimestampType.LOG_APPEND_TIME
                if config.message_timestamp_type == "LogAppendTime"
                else TimestampType.CREATE_TIME
            ),
            timestamp_before_max_ms=difference if before == LONG_MAX else before,
            timestamp_after_max_ms=difference if after == LONG_MAX else after,
            is_compacted=config.is_compacted,
            magic=config.record_magic,
        )

    @property
    def has_timestamp_bounds(self) -> bool:
        return self.timestamp_before_max_ms != LONG_MAX or self.timestamp_after_max_ms != LONG_MAX

    @property
    def concerns_records(self) -> bool:
        """Whether the records must be checked; if not, the header alone is enough to store a batch with a fitting
        codec.
        """
        if self.is_compacted or self.magic < 2:
            return True
        return self.timestamp_type is TimestampType.CREATE_TIME and self.has_timestamp_bounds


class RefusedAs(Enum):
    """What Kafka counts of refused batches and records."""

    INVALID_CRC = "invalid_crc"
    INVALID_MAGIC = "invalid_magic"
    INVALID_SEQUENCE = "invalid_sequence"
    """Offsets or sequences that cannot be."""

    NO_KEY = "no_key"
    """No key in a compacted topic."""


class RefusedAppend(KafkaError):
    """The records of an append are refused for something that Kafka counts."""

    def __init__(self, code: ErrorCode, message: str, counted: Mapping[RefusedAs, int]) -> None:
        super().__init__(code, message)
        self.counted = counted


class RecordError(NamedTuple):
    """One refused record: its index in the batch, and why."""

    batch_index: int
    message: str
    counted: RefusedAs | None = None


class RecordValidationError(RefusedAppend):
    """Single records cause the refusal of the whole batch; Produce 8 and later names them (KIP-467)."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError]) -> None:
        super().__init__(code, message, Counter(error.counted for error in record_errors if error.counted is not None))
        self.record_errors = tuple(record_errors)


def refuse_records(refused: Sequence[tuple[ErrorCode, RecordError]]) -> None:
    """Raise the error for the refused records, if there are any. The list may end after ``REFUSED_MAX``.

    Raises:
        RecordValidationError: INVALID_TIMESTAMP if any record is refused for its timestamp, else INVALID_RECORD.
    """
    if not refused:
        return
    errors = [error for _, error in refused]
    named = errors[:REFUSED_MAX]
    if any(code is ErrorCode.INVALID_TIMESTAMP for code, _ in refused):
        raise RecordValidationError(
            ErrorCode.INVALID_TIMESTAMP, "One or more records have been rejected due to invalid timestamp", named
        )
    total = f"more than {REFUSED_MAX}" if len(errors) > REFUSED_MAX else str(len(errors))
    shown = "; ".join(f"record {error.batch_index}: {error.message}" for error in errors[:_SHOWN_MAX])
    raise RecordValidationError(
        ErrorCode.INVALID_RECORD,
        f"One or more records have been rejected: {total} record errors in total, the first of them: {shown}",
        named,
    )


def _level(config: LogConfig, codec: Codec | None) -> int | None:
    levels = {
        Codec.GZIP: config.compression_gzip_level,
        Codec.LZ4: config.compression_lz4_level,
        Codec.ZSTD: config.compression_zstd_level,
    }
    return None if codec is None else levels.get(codec)
