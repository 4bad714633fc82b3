"""Batches that have their place: their offsets and leader epochs are stamped, but nothing is written yet.

This file also has what a topic's settings demand of an append. It works on values only: ``log_append`` checks,
``Log`` writes.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

from engine.broker.log.append_origin import AppendOrigin
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.index_entries import RELATIVE_OFFSET_MAX
from engine.kafka.protocol.records.append_rules import AppendRules
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.header import BatchHeader, read_batch_header
from engine.kafka.protocol.records.layout import (
    ATTRIBUTES,
    CODEC_MASK,
    CONTROL_BIT,
    MAX_TIMESTAMP,
    NO_TIMESTAMP,
    TIMESTAMP_TYPE_BIT,
    TRANSACTIONAL_BIT,
)

NO_APPEND_TIME = -1

STAMP = struct.Struct(">qii")
"""base_offset, batch_length, partition_leader_epoch: one call for the two fields that the leader sets."""

_ATTRIBUTES = struct.Struct(">h")
_TIMESTAMP = struct.Struct(">q")

PositionedHeader = tuple[int, BatchHeader]
"""Where a batch begins, and its header."""


class PlacedBatches(NamedTuple):
    """Whole batches that are about to be written."""

    records: memoryview
    headers: list[PositionedHeader]
    first_offset: int
    last_offset: int
    max_timestamp_ms: int
    max_timestamp_offset: int
    log_append_time_ms: int

    @property
    def lowest_offset(self) -> int:
        """A lower bound of the records' offsets. A compressed message of v0 or v1 hides its first offset."""
        return self.last_offset - RELATIVE_OFFSET_MAX if self.headers[0][1].is_wrapper else self.first_offset


@dataclass(frozen=True, slots=True)
class AppendTerms:
    """What a topic's settings demand of an append, ready for the hot path."""

    rules: AppendRules
    in_place_attributes: frozenset[int]
    """Attributes of a client's batch that the log may accept by its header alone."""
    coordinators_attributes: frozenset[int]
    """The same of a coordinator's batch, each of whose records has a key."""
    in_place_bytes_max: int
    own_bytes_max: int
    """The same for batches of the broker's own coordinators; 0 if none may be stored as it was made."""
    stamps_append_time: bool

    @staticmethod
    @lru_cache(maxsize=256)
    def of(config: LogConfig, *, takes_zstd: bool = True) -> AppendTerms:
        """Derive them from a topic's settings. Thousands of partitions share a few."""
        rules = AppendRules.of(config)
        codecs = frozenset(map(int, tuple(Codec) if rules.codec is None else (rules.codec,)))
        if not takes_zstd:
            codecs -= {Codec.ZSTD}
        stamps_append_time = rules.timestamp_type is TimestampType.LOG_APPEND_TIME
        clients: frozenset[int] = frozenset() if rules.concerns_records else codecs
        bytes_max = min(config.max_message_bytes, config.segment_bytes)
        is_stored_as_made = rules.magic >= 2 and not stamps_append_time
        return AppendTerms(
            rules,
            clients,
            clients | codecs if is_stored_as_made else clients,
            bytes_max,
            bytes_max if is_stored_as_made else 0,
            stamps_append_time,
        )

    def takes_as_it_is(self, header: BatchHeader, origin: AppendOrigin) -> bool:
        """Return whether the log may store the batch without looking at its records."""
        if header.magic != 2 or self.rules.magic < 2:
            return False
        attributes = header.attributes
        if origin is AppendOrigin.CLIENT:
            if not self.stamps_append_time and (
                header.max_timestamp < header.base_timestamp or header.max_timestamp < 0
            ):
                return False
            return attributes & ~TRANSACTIONAL_BIT in self.in_place_attributes
        if attributes & CONTROL_BIT:
            return not self.stamps_append_time
        return not self.stamps_append_time and attributes & CODEC_MASK in self.coordinators_attributes


def stamp_append_time(records: memoryview, position: int, size_bytes: int, attributes: int, now_ms: int) -> None:
    """Give the batch at ``position`` the time of its append and a matching checksum."""
    _ATTRIBUTES.pack_into(records, position + ATTRIBUTES, attributes | TIMESTAMP_TYPE_BIT)
    _TIMESTAMP.pack_into(records, position + MAX_TIMESTAMP, now_ms)
    stamp_crc(records, position, size_bytes)


def stamped(
    records: memoryview,
    headers: list[PositionedHeader],
    *,
    first_offset: int,
    leader_epoch: int,
    append_time_ms: int = NO_APPEND_TIME,
) -> PlacedBatches:
    """Stamp batches that are stored as they are. ``append_time_ms`` is for topics with LogAppendTime."""
    next_offset = first_offset
    max_timestamp_ms, max_timestamp_offset = NO_TIMESTAMP, next_offset
    placed = []
    for position, header in headers:
        STAMP.pack_into(records, position, next_offset, header.batch_length, leader_epoch)
        if append_time_ms != NO_APPEND_TIME:
            stamp_append_time(records, position, header.size_bytes, header.attributes, append_time_ms)
        header = read_batch_header(records, position)
        if header.max_timestamp > max_timestamp_ms:
            max_timestamp_ms, max_timestamp_offset = header.max_timestamp, header.last_offset
        placed.append((position, header))
        next_offset = header.next_offset
    end = headers[-1][0] + headers[-1][1].size_bytes
    return PlacedBatches(
        records[:end], placed, first_offset, next_offset - 1, max_timestamp_ms, max_timestamp_offset, append_time_ms
    )


def replicated(records: memoryview, headers: list[PositionedHeader]) -> PlacedBatches:
    """Return the batches in ``records``, which their leader has stamped."""
    max_timestamp_ms, max_timestamp_offset = NO_TIMESTAMP, headers[0][1].base_offset
    for _, header in headers:
        if header.max_timestamp > max_timestamp_ms:
            max_timestamp_ms, max_timestamp_offset = header.max_timestamp, header.last_offset
    start = headers[0][0]
    end = headers[-1][0] + headers[-1][1].size_bytes
    return PlacedBatches(
        records[start:end],
        [(position - start, header) for position, header in headers],
        headers[0][1].base_offset,
        headers[-1][1].last_offset,
        max_timestamp_ms,
        max_timestamp_offset,
        NO_APPEND_TIME,
    )


def segment_runs(headers: list[PositionedHeader], segment_bytes: int) -> list[list[PositionedHeader]]:
    """Group adjacent batches so that each group fits into one segment."""
    first_position = headers[0][0]
    if headers[-1][0] + headers[-1][1].size_bytes - first_position <= segment_bytes:
        return [headers]
    runs: list[list[PositionedHeader]] = []
    run_bytes = 0
    for position, header in headers:
        if not runs or run_bytes + header.size_bytes > segment_bytes:
            runs.append([])
            run_bytes = 0
        runs[-1].append((position, header))
        run_bytes += header.size_bytes
    return runs
