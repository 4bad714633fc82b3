"""Loads groups and offsets from a partition of ``__consumer_offsets``, record by record. Pure: the caller paces it."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.broker.coordinator.groups.commit_scan import CommitScan, OffsetName
from engine.broker.coordinator.groups.group import Group
from engine.broker.coordinator.groups.offsets import StoredOffset
from engine.broker.coordinator.groups.records import committed_offset, group_of
from engine.common.errors import KlammError
from engine.common.model import TopicPartition
from engine.kafka.formats.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from engine.kafka.formats.control_records import ControlRecordType, control_record_type
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.iterate import iter_batch_records
from engine.kafka.protocol.records.record import Record

logger = logging.getLogger("kafka.coordinator.group.GroupMetadataManager")

_RECORDS_AT_ONCE: Final = 256
"""How many plain commits are taken, or offsets created, before the caller may do something else."""


class _Removed(NamedTuple):
    """The tombstone of an offset: earlier commits no longer count."""

    value: None
    log_offset: int


class GroupLoader:
    """The state from the records read so far. A record that cannot be read is skipped, counted and logged."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.skipped = 0
        self.loaded: dict[str, Group] = {}
        """The groups that ``finish`` has created."""
        self._commits = CommitScan()
        self._record_count = 0
        self._next_offset = 0
        self._groups: dict[str, GroupMetadataValue] = {}
        self._offsets: dict[OffsetName, StoredOffset | _Removed] = {}
        self._in_transactions: dict[int, dict[OffsetName, StoredOffset]] = {}

    @property
    def record_count(self) -> int:
        """How many records were read."""
        return self._record_count + self._commits.record_count

    @property
    def next_offset(self) -> int:
        """Where to read on after a buffer is used up."""
        return max(self._next_offset, self._commits.next_offset)

    def read(self, buffer: bytes) -> Iterator[None]:
        """Apply the batches of a buffer; yields now and then, so that the caller may do something else.

        Raises:
            KafkaError: CORRUPT_MESSAGE, if not even the next batch can be found.
        """
        position = 0
        while True:
            taken_to = self._commits.take(buffer, position, _RECORDS_AT_ONCE)
            if taken_to == position:
                found = next(iter_batches(buffer, position), None)
                if found is None:
                    return
                taken_to = found[0] + found[1].size_bytes
                yield from self._read_batch(buffer, *found)
            position = taken_to
            yield

    def _read_batch(self, buffer: bytes, position: int, header: BatchHeader) -> Iterator[None]:
        try:
            for record in iter_batch_records(buffer, position, header):
                if header.is_control:
                    self._end_transaction(header, record)
                else:
                    self._take_record(header, record)
                self._record_count += 1
                yield
        except KlammError as error:
            self._skip(header.base_offset, error)
        self._next_offset = header.next_offset

    def finish(self, now_ms: int) -> Iterator[None]:
        """Create the groups with their offsets; those that only keep offsets are empty and have no protocol type.

        Yields now and then, as ``read``.
        """
        groups = self.loaded
        for group_id, value in self._groups.items():
            groups[group_id] = group_of(group_id, value, now_ms)
            yield
        for number, ((group_id, partition), stored) in enumerate(self._offsets.items()):
            if stored.value is not None:
                _group(groups, group_id, now_ms).offsets.load(partition, stored)
            if number % _RECORDS_AT_ONCE == 0:
                yield
        for number, (name, log_offset, committed) in enumerate(self._commits.left()):
            if self._is_later(name, log_offset):
                _group(groups, name[0], now_ms).offsets.load(name[1], StoredOffset(committed, log_offset))
            if number % _RECORDS_AT_ONCE == 0:
                yield
        for producer_id, held in self._in_transactions.items():
            for (group_id, partition), stored in held.items():
                _group(groups, group_id, now_ms).offsets.load_transactional(producer_id, partition, stored)
            yield

    def _take_record(self, header: BatchHeader, record: Record) -> None:
        try:
            if record.key is None:
                raise KlammError("it has no key")
            key = decode_key(record.key)
            value = decode_value(key, record.value)
        except KlammError as error:
            self._skip(record.offset, error)
            return
        if isinstance(key, OffsetCommitKey):
            assert value is None or isinstance(value, OffsetCommitValue)
            self._take_offset(header, record, (key.group, TopicPartition(key.topic, key.partition)), value)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._groups.pop(key.group, None)
            if value is not None:
                self._groups[key.group] = value
        else:
            logger.warning(
                "Unknown message key with version %d while loading offsets and group metadata from %s. Ignoring it. "
                "It could be a left over from an aborted upgrade.",
                key.version,
                self.topic_partition,
            )

    def _take_offset(
        self, header: BatchHeader, record: Record, name: OffsetName, value: OffsetCommitValue | None
    ) -> None:
        if header.is_transactional:
            held = self._in_transactions.setdefault(header.producer_id, {})
            if value is None:
                held.pop(name, None)
            else:
                held[name] = StoredOffset(committed_offset(value), record.offset)
        elif value is None:
            self._offsets[name] = _Removed(None, record.offset)
        else:
            self._offsets[name] = StoredOffset(committed_offset(value), record.offset)

    def _end_transaction(self, header: BatchHeader, record: Record) -> None:
        held = self._in_transactions.pop(header.producer_id, {})
        if control_record_type(record.key) is ControlRecordType.COMMIT:
            for name, stored in held.items():
                if self._is_later(name, stored.log_offset):
                    self._offsets[name] = stored

    def _is_later(self, name: OffsetName, log_offset: int) -> bool:
        """Whether a commit comes later in the log than the known one, which may have been found first."""
        known = self._offsets.get(name)
        return known is None or known.log_offset < log_offset

    def _skip(self, offset: int, error: KlammError) -> None:
        self.skipped += 1
        logger.error(
            "A record of an internal topic cannot be read and is skipped: %s partition=%s offset=%d",
            error,
            self.topic_partition,
            offset,
        )


def _group(groups: dict[str, Group], group_id: str, now_ms: int) -> Group:
    group = groups.get(group_id)
    if group is None:
        group = groups[group_id] = Group(group_id, now_ms)
    return group
