"""The fast way through the records that ``__consumer_offsets`` is full of: plain commits, one after the other. Pure.

Nearly every record is an offset without a text, and most repeat one before with another number. Such a record differs
from the last one of its group and partition in its last 23 bytes only: offset, leader epoch, length of the text (0),
timestamp, number of headers (0). The bytes before, once a record with them was read the slow way and found to be
plain, say where everything is. So a commit is one lookup of those bytes, and nothing is decoded but what is left at
the end of the log.

What is not plain is left to the caller, batch by batch.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final

from engine.common.model import TopicPartition
from engine.coordinator.group.values import CommittedOffset
from engine.protocol.records import layout
from engine.protocol.records.header import BatchHeader
from engine.protocol.records.record import Record
from engine.protocol.records.varint import VARINTS

OffsetName = tuple[str, TopicPartition]
"""A group, and a partition that it has committed an offset for."""

_HEAD = struct.Struct(">qi4xB4xhi30xi")
"""Of a batch's header: base offset, length, magic, attributes, last offset delta, number of records."""

_TAIL = struct.Struct(">qihq")
"""What follows the version in a value without a text: offset, leader epoch, length of the text, timestamp."""

_TAIL_BYTES: Final = _TAIL.size + 1
_VALUE_VERSION: Final = b"\0\3"
_VALUE_BYTES: Final = len(_VALUE_VERSION) + _TAIL.size
_LENGTH_MIN: Final = layout.BATCH_OVERHEAD - layout.LOG_OVERHEAD
_MAGIC: Final = 2


class CommitScan:
    """The last plain commit of each group and partition among the records read so far."""

    def __init__(self) -> None:
        self.record_count = 0
        self.next_offset = 0
        """The offset after the last batch that was taken."""
        self._names: dict[bytes, OffsetName] = {}
        self._latest: dict[bytes, tuple[int, bytes]] = {}

    def take(self, buffer: bytes, position: int, records_max: int) -> int:
        """Take plain commits from the position on; return where that ended.

        That is before a batch that is not known to be plain or not all there, or after ``records_max`` records (a
        batch is taken whole).
        """
        names, latest, read_head = self._names, self._latest, _HEAD.unpack_from
        end = len(buffer) - layout.BATCH_OVERHEAD
        overhead, log_overhead = layout.BATCH_OVERHEAD, layout.LOG_OVERHEAD
        while records_max > 0 and position <= end:
            base, length, magic, attributes, last_delta, count = read_head(buffer, position)
            following = position + log_overhead + length
            if magic != _MAGIC or attributes or length < _LENGTH_MIN or following > end + overhead:
                break
            if count == 1:
                prefix = buffer[position + overhead : following - _TAIL_BYTES]
                # Two bytes of the text's length, eight of the timestamp, one of the headers' number.
                if prefix not in names or buffer[following - 11 : following - 9] != b"\0\0" or buffer[following - 1]:
                    break
                latest[prefix] = (base, buffer[following - _TAIL_BYTES : following - 1])
            elif not self._take_records(buffer, position + overhead, following, base, count):
                break
            records_max -= count
            self.record_count += count
            self.next_offset = base + last_delta + 1
            position = following
        return position

    def _take_records(self, buffer: bytes, position: int, end: int, base_offset: int, count: int) -> bool:
        """Take the records of one batch if all of them are plain; return whether they were."""
        names = self._names
        found = []
        for number in range(count):
            if position + 2 > end:
                return False
            size = buffer[position]
            following = position + 1
            if size > 127:
                more = buffer[following]
                if more > 127:
                    return False
                size += (more << 7) - 128
                following += 1
            following += size >> 1
            prefix = buffer[position : following - _TAIL_BYTES]
            if size & 1 or following > end or prefix not in names:
                return False
            if buffer[following - 11 : following - 9] != b"\0\0" or buffer[following - 1]:
                return False
            # Within a batch, too, the later one wins; the offsets' order is all that counts.
            found.append((prefix, (base_offset + number, buffer[following - _TAIL_BYTES : following - 1])))
            position = following
        if position != end:
            return False
        self._latest.update(found)
        return True

    def learn(self, header: BatchHeader, record: Record, name: OffsetName) -> bool:
        """Remember what a plain commit looks like, and take it; False for a record that is not plain.

        ``record`` is one that was read the slow way and stands in the log as it is, in the batch of this header.
        """
        value = record.value
        if header.magic != _MAGIC or header.attributes or value is None or len(value) != _VALUE_BYTES:
            return False
        if record.headers or not value.startswith(_VALUE_VERSION) or _TAIL.unpack_from(value, 2)[2]:
            return False
        prefix = _prefix_of(header, record)
        self._names[prefix] = name
        self._latest[prefix] = (record.offset, value[len(_VALUE_VERSION) :])
        return True

    def left(self) -> Iterator[tuple[OffsetName, int, CommittedOffset]]:
        """Yield what was committed last, with its offset in the log; a partition may come more than once."""
        names = self._names
        for prefix, (log_offset, tail) in self._latest.items():
            offset, leader_epoch, _, timestamp_ms = _TAIL.unpack(tail)
            yield names[prefix], log_offset, CommittedOffset(offset, "", leader_epoch, timestamp_ms)


def _prefix_of(header: BatchHeader, record: Record) -> bytes:
    """Return a plain record's bytes up to its last 23, as every producer of records writes them."""
    key = record.key
    assert key is not None
    body = b"".join(
        (
            b"\0",
            VARINTS[record.timestamp_ms - header.base_timestamp],
            VARINTS[record.offset - header.base_offset],
            VARINTS[len(key)],
            key,
            VARINTS[_VALUE_BYTES],
            _VALUE_VERSION,
        )
    )
    return VARINTS[len(body) + _TAIL_BYTES] + body
