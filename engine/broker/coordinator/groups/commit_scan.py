"""The fast path for the most frequent records of ``__consumer_offsets``: plain commits, one after the other. Pure.

Nearly every record is an offset without a text, and most repeat an earlier one with another number. Such a record
differs from the last one of its group and partition only in its last 23 bytes: offset, leader epoch, length of the text
(0), timestamp, number of headers (0). The bytes before are decoded once. If they belong to a plain commit, they say
where everything is in each record with the same beginning. So a commit costs one lookup of those bytes, and only the
offsets left at the end of the log are decoded.

Batches with other records are left to the caller.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from engine.broker.coordinator.groups.values import CommittedOffset
from engine.common.errors import KafkaError
from engine.common.model import TopicPartition
from engine.kafka.formats.consumer_offsets import OFFSET_KEY_VERSION
from engine.kafka.protocol.records import layout
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
                # A batch too short for a record leaves nothing here, which is no commit's beginning.
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
        found = []
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
            found.append((prefix, (base_offset + number, buffer[following - _TAIL_BYTES : following - 1])))
            position = following
        if position != end:
            return False
        latest.update(found)
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
        # The record's attributes, which nobody uses, and its timestamp and offset deltas.
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
