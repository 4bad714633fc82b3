"""Groups and offsets out of a partition of ``__consumer_offsets``, record by record. Pure: who reads it paces it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

from engine.common.errors import KlammError
from engine.common.model import TopicPartition
from engine.coordinator.group.group import Group
from engine.coordinator.group.offsets import StoredOffset
from engine.coordinator.group.records import committed_offset, group_of
from engine.formats.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from engine.formats.control_records import ControlRecordType, control_record_type
from engine.protocol.records.header import BatchHeader, iter_batches
from engine.protocol.records.iterate import iter_batch_records
from engine.protocol.records.record import Record

logger = logging.getLogger("kafka.coordinator.group.GroupMetadataManager")

_OffsetName = tuple[str, TopicPartition]


class GroupLoader:
    """What the records read so far amount to. A record that cannot be read is skipped, counted and logged."""

    def __init__(self, topic_partition: TopicPartition) -> None:
        self.topic_partition = topic_partition
        self.next_offset = 0
        """Where to read on after a buffer is used up."""
        self.skipped = 0
        self.record_count = 0
        self._groups: dict[str, tuple[GroupMetadataValue, int]] = {}
        self._offsets: dict[_OffsetName, StoredOffset] = {}
        self._in_transactions: dict[int, dict[_OffsetName, StoredOffset]] = {}

    def read(self, buffer: bytes) -> Iterator[None]:
        """Take over the batches of a buffer; yields after each record, so that the caller may do something else.

        Raises:
            KafkaError: CORRUPT_MESSAGE, where not even the next batch can be found.
        """
        for position, header in iter_batches(buffer):
            try:
                for record in iter_batch_records(buffer, position, header):
                    if header.is_control:
                        self._end_transaction(header, record)
                    else:
                        self._take_record(header, record)
                    self.record_count += 1
                    yield
            except KlammError as error:
                self._skip(header.base_offset, error)
            self.next_offset = header.next_offset

    def finish(self, now_ms: int) -> list[Group]:
        """Return the groups with their offsets; those that only keep offsets are empty and without a protocol type."""
        groups: dict[str, Group] = {}
        for group_id, (value, log_offset) in self._groups.items():
            try:
                groups[group_id] = group_of(group_id, value, now_ms)
            except KlammError as error:
                self._skip(log_offset, error)
        for (group_id, partition), stored in self._offsets.items():
            _group(groups, group_id, now_ms).offsets.load(partition, stored)
        for producer_id, held in self._in_transactions.items():
            for (group_id, partition), stored in held.items():
                _group(groups, group_id, now_ms).offsets.load_transactional(producer_id, partition, stored)
        return list(groups.values())

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
            self._take_offset(header, (key.group, TopicPartition(key.topic, key.partition)), value)
        elif isinstance(key, GroupMetadataKey):
            assert value is None or isinstance(value, GroupMetadataValue)
            self._groups.pop(key.group, None)
            if value is not None:
                self._groups[key.group] = (value, record.offset)
        else:
            logger.warning(
                "Unknown message key with version %d while loading offsets and group metadata from %s. Ignoring it. "
                "It could be a left over from an aborted upgrade.",
                key.version,
                self.topic_partition,
            )

    def _take_offset(self, header: BatchHeader, name: _OffsetName, value: OffsetCommitValue | None) -> None:
        place = self._offsets
        if header.is_transactional:
            place = self._in_transactions.setdefault(header.producer_id, {})
        if value is None:
            place.pop(name, None)
        else:
            place[name] = StoredOffset(committed_offset(value), header.base_offset)

    def _end_transaction(self, header: BatchHeader, record: Record) -> None:
        held = self._in_transactions.pop(header.producer_id, {})
        if control_record_type(record.key) is not ControlRecordType.COMMIT:
            return
        for name, stored in held.items():
            known = self._offsets.get(name)
            if known is None or known.log_offset < stored.log_offset:
                self._offsets[name] = stored

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
