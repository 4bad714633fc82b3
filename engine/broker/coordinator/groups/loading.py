"""Loads groups and offsets from a partition of ``__consumer_offsets``, record by record. Pure: the caller paces it."""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from engine.broker.coordinator.groups.commit_form import CommittedOffset
from engine.broker.coordinator.groups.group import Group
from engine.broker.coordinator.groups.offsets import StoredOffset
from engine.broker.coordinator.groups.records import committed_offset, group_of
from engine.common.errors import KafkaError, KlammError
from engine.common.model import TopicPartition
from engine.kafka.formats.consumer_offsets import (
    OFFSET_KEY_VERSION,
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from engine.kafka.formats.control_records import ControlRecordType, control_record_type
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.record import Record
from engine.kafka.protocol.records.varint import VARINTS, read_varint

OffsetName = tuple[str, TopicPartition]
"""A group, and a partition for which it has committed an offset."""

_HEAD = struct.Struct(">qi4xB4xhi30xi")
"""Fields of a batch's header: base offset, length, magic, attributes, last offset delta, number of records."""

_TAIL = struct.Struct(">qihq")
"""What follows the version in a value without a text: offset, leader epoch, length of the text, timestamp."""

_KEY_HEAD = struct.Struct(">hh")
"""A key's version and the length of the group's id."""

_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_KEY_BYTES_AFTER_GROUP: Final = _LENGTH.size + _PARTITION.size
_KEY_BYTES_MIN: Final = _KEY_HEAD.size + _KEY_BYTES_AFTER_GROUP
_TAIL_BYTES: Final = _TAIL.size + 1
_VALUE_VERSION: Final = b"\0\3"
_PLAIN_VALUE: Final = VARINTS[len(_VALUE_VERSION) + _TAIL.size] + _VALUE_VERSION
"""How a plain commit's value begins: its length and its version."""

_LENGTH_MIN: Final = layout.BATCH_OVERHEAD - layout.LOG_OVERHEAD
_MAGIC: Final = 2


class CommitScan:
    """The last plain commit of each group and partition among the records read so far."""

    def __init__(self) -> None:
        self.record_count = 0
        self.next_offset = 0
        """The offset after the last batch taken."""
        self._names: dict[bytes, OffsetName] = {}
        self._topics: dict[str, str] = {}
        """One string for each topic's name, shared by thousands of offsets."""
        self._latest: dict[bytes, tuple[int, bytes]] = {}
        self._names_in_batches: dict[bytes, OffsetName] = {}
        self._latest_in_batches: dict[bytes, tuple[int, bytes]] = {}

    def take(self, buffer: bytes, position: int, records_max: int) -> int:
        """Take plain commits from the position on; return where it stopped.

        That is before a batch that has other records or is not all there, or after ``records_max`` records (a
        batch is taken whole).
        """
        latest, read_head, no_text = self._latest, _HEAD.unpack_from, b"\0\0"
        overhead, log_overhead, tail_bytes = layout.BATCH_OVERHEAD, layout.LOG_OVERHEAD, _TAIL_BYTES
        end = len(buffer)
        last_head = end - overhead
        taken = 0
        next_offset = self.next_offset
        while position <= last_head and taken < records_max:
            base, length, magic, attributes, last_delta, count = read_head(buffer, position)
            following = position + log_overhead + length
            if magic != _MAGIC or attributes or length < _LENGTH_MIN or following > end:
                break
            if count == 1:
                # A batch too short for a record leaves no bytes here, and no commit begins with none.
                tail_at = following - tail_bytes
                prefix = buffer[position + overhead : tail_at]
                if prefix not in latest and not self._learn(prefix):
                    break
                # Two bytes of the text's length; after the timestamp one of the headers' number.
                if buffer[tail_at + 12 : tail_at + 14] != no_text or buffer[following - 1]:
                    break
                latest[prefix] = (base, buffer[tail_at : following - 1])
            elif not self._take_records(buffer, position + overhead, following, base, count):
                break
            taken += count
            next_offset = base + last_delta + 1
            position = following
        self.record_count += taken
        self.next_offset = next_offset
        return position

    def _take_records(self, buffer: bytes, position: int, end: int, base_offset: int, count: int) -> bool:
        """Take the records of one batch if all of them are plain; return whether they were."""
        latest = self._latest_in_batches
        records = []
        for number in range(count):
            if position + 3 > end:
                return False
            size = buffer[position]
            body_at = position + 1
            if size > 127:
                more = buffer[body_at]
                if more > 127:
                    return False
                size += (more << 7) - 128
                body_at += 1
            following = body_at + (size >> 1)
            if size & 1 or following > end or size >> 1 <= _TAIL_BYTES + 4 or buffer[body_at + 1] > 127:
                return False
            # The attributes, a timestamp delta of one byte, an offset delta of one or two.
            key_at = body_at + 3
            if buffer[body_at + 2] > 127:
                if buffer[key_at] > 127:
                    return False
                key_at += 1
            prefix = buffer[key_at : following - _TAIL_BYTES]
            if prefix not in latest and not self._learn_in_batch(prefix):
                return False
            if buffer[following - 11 : following - 9] != b"\0\0" or buffer[following - 1]:
                return False
            # Within a batch, too, the later one wins; only the order of the offsets counts.
            records.append((prefix, (base_offset + number, buffer[following - _TAIL_BYTES : following - 1])))
            position = following
        if position != end:
            return False
        latest.update(records)
        return True

    def _learn(self, prefix: bytes) -> bool:
        """Remember whose commits begin like this; False for a record that is not plain."""
        key = _key_of_record(prefix)
        name = None if key is None else self._name_of(key)
        if name is None:
            return False
        self._names[prefix] = name
        return True

    def _learn_in_batch(self, prefix: bytes) -> bool:
        """Like ``_learn``, for a record without the bytes before its key."""
        key = _key_of(prefix, 0)
        name = None if key is None else self._name_of(key)
        if name is None:
            return False
        self._names_in_batches[prefix] = name
        return True

    def _name_of(self, key: bytes) -> OffsetName | None:
        """Return the group and partition of the key; None for another kind of key, or a damaged one."""
        version, group_size = _KEY_HEAD.unpack_from(key)
        topic_at = _KEY_HEAD.size + group_size
        if not 0 <= version <= OFFSET_KEY_VERSION or group_size < 0 or len(key) < topic_at + _KEY_BYTES_AFTER_GROUP:
            return None
        (topic_size,) = _LENGTH.unpack_from(key, topic_at)
        topic_at += _LENGTH.size
        if topic_size < 0 or topic_at + topic_size + _PARTITION.size != len(key):
            return None
        try:
            group = key[_KEY_HEAD.size : _KEY_HEAD.size + group_size].decode()
            topic = key[topic_at : topic_at + topic_size].decode()
        except UnicodeDecodeError:
            return None
        (index,) = _PARTITION.unpack_from(key, len(key) - _PARTITION.size)
        return group, TopicPartition(self._topics.setdefault(topic, topic), index)

    def left(self) -> Iterator[tuple[OffsetName, int, CommittedOffset]]:
        """Yield the last commits, with their offsets in the log; a partition may come more than once."""
        for names, latest in ((self._names, self._latest), (self._names_in_batches, self._latest_in_batches)):
            for prefix, (log_offset, tail) in latest.items():
                offset, leader_epoch, _, timestamp_ms = _TAIL.unpack(tail)
                yield names[prefix], log_offset, CommittedOffset(offset, "", leader_epoch, timestamp_ms)


def _key_of_record(prefix: bytes) -> bytes | None:
    """Return the key of the record that begins like this, if its value is plain and ends with the last 23 bytes."""
    try:
        body_size, position = read_varint(prefix, 0)
        if body_size != len(prefix) - position + _TAIL_BYTES:
            return None
        # The record's attributes, which are unused, and its timestamp and offset deltas.
        _, position = read_varint(prefix, position + 1)
        _, position = read_varint(prefix, position)
    except (IndexError, KafkaError):
        return None
    return _key_of(prefix, position)


def _key_of(prefix: bytes, position: int) -> bytes | None:
    """Return the key whose size is at the position, if only a plain value's beginning follows it."""
    try:
        key_size, position = read_varint(prefix, position)
    except (IndexError, KafkaError):
        return None
    end = position + key_size
    return prefix[position:end] if key_size >= _KEY_BYTES_MIN and prefix[end:] == _PLAIN_VALUE else None


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
                batch = next(iter_batches(buffer, position), None)
                if batch is None:
                    return
                taken_to = batch[0] + batch[1].size_bytes
                yield from self._read_batch(buffer, *batch)
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
