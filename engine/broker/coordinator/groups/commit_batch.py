"""Writes a batch of commits, which every client sends every few seconds, straight into its bytes. Pure.

``offset_records`` and ``encode_batch`` give the same bytes, but make objects of each offset on the way.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable
from typing import Final

from engine.broker.coordinator.groups.records import OFFSETS_BASE_SEQUENCE, offset_value
from engine.broker.coordinator.groups.values import Offsets
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.formats.consumer_offsets import OFFSET_KEY_VERSION
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.compression import compress
from engine.kafka.protocol.records.varint import VARINTS

_MAGIC: Final = 2
_VALUE_VERSION: Final = 3
_KEY_HEAD = struct.Struct(">hh")
"""The key's version and the length of the group's id."""

_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_PLAIN = struct.Struct(">iBhqihqB")
"""The end of a record whose value is of version 3 and has no text: partition, the value's length as a varint, version,
offset, leader epoch, length 0, commit timestamp; no headers."""

_PLAIN_SIZE: Final = VARINTS[struct.calcsize(">hqihq")][0]

_NO_DELTAS: Final = b"\0\0"
"""A record's attributes and its timestamp delta: all records of a commit have the batch's timestamp."""


def commit_batch(commits: Iterable[tuple[str, Offsets]], now_ms: int, codec: Codec, ibp: MetadataVersion) -> memoryview:
    """Return one batch of the commits of groups, in their order, into which a log may stamp its offset."""
    batch = bytearray(layout.BATCH_OVERHEAD)
    count = 0
    for group_id, offsets in commits:
        _add_records(batch, count, group_id, offsets, ibp)
        count += len(offsets)
    if codec is not Codec.NONE:
        batch[layout.BATCH_OVERHEAD :] = compress(codec, batch[layout.BATCH_OVERHEAD :])
    size_bytes = len(batch)
    layout.BATCH_HEADER.pack_into(
        batch,
        0,
        0,
        size_bytes - layout.LOG_OVERHEAD,
        -1,
        _MAGIC,
        0,
        codec,
        count - 1,
        now_ms,
        now_ms,
        layout.NO_PRODUCER_ID,
        layout.NO_PRODUCER_EPOCH,
        OFFSETS_BASE_SEQUENCE,
        count,
    )
    stamp_crc(batch, 0, size_bytes)
    return memoryview(batch)


def _add_records(out: bytearray, first: int, group_id: str, offsets: Offsets, ibp: MetadataVersion) -> None:
    """Add one commit's records, the first of which is the batch's record number ``first``."""
    varints, join, pack = VARINTS, b"".join, _PLAIN.pack
    group = group_id.encode()
    key_head = _KEY_HEAD.pack(OFFSET_KEY_VERSION, len(group)) + group
    is_plain_version = ibp >= MetadataVersion.IBP_2_1_IV1
    topic_before = None
    topic_head = b""
    plain_size = 0
    for number, ((topic, partition), committed) in enumerate(offsets.items(), first):
        if topic is not topic_before:
            name = topic.encode()
            key_size = len(key_head) + _LENGTH.size + len(name) + _PARTITION.size
            topic_head = varints[key_size] + key_head + _LENGTH.pack(len(name)) + name
            plain_size = len(_NO_DELTAS) + len(topic_head) + _PLAIN.size
            topic_before = topic
        offset, metadata, leader_epoch, timestamp_ms, expire_ms = committed
        delta = varints[number]
        if metadata or expire_ms is not None or not is_plain_version:
            value = offset_value(committed, ibp)
            end = _PARTITION.pack(partition) + varints[len(value)] + value + b"\0"
            size = plain_size - _PLAIN.size + len(end) + len(delta)
        else:
            end = pack(partition, _PLAIN_SIZE, _VALUE_VERSION, offset, leader_epoch, 0, timestamp_ms, 0)
            size = plain_size + len(delta)
        out += join((varints[size], _NO_DELTAS, delta, topic_head, end))
