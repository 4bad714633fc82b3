"""Where the fields of a record batch are: version 2 (KIP-98) first, then the messages of v0 and v1.

Offsets are from the batch's first byte in the log. The bytes are in a ``Buffer``: any of Python's contiguous ones.
"""

from __future__ import annotations

import struct

LOG_OVERHEAD = 12
"""Bytes of base offset and length, which every log entry has, whatever its magic."""

BATCH_OVERHEAD = 61
"""Bytes of a version 2 batch before its first record."""

BASE_OFFSET = 0
BATCH_LENGTH = 8
PARTITION_LEADER_EPOCH = 12
MAGIC = 16
CRC = 17
ATTRIBUTES = 21
LAST_OFFSET_DELTA = 23
BASE_TIMESTAMP = 27
MAX_TIMESTAMP = 35
PRODUCER_ID = 43
BASE_SEQUENCE = 53
RECORD_COUNT = 57

BATCH_HEADER = struct.Struct(">qiibIhiqqqhii")
"""base_offset, batch_length, partition_leader_epoch, magic, crc, attributes, last_offset_delta, base_timestamp,
max_timestamp, producer_id, producer_epoch, base_sequence, record_count."""

CODEC_MASK = 0x07
TIMESTAMP_TYPE_BIT = 0x08
TRANSACTIONAL_BIT = 0x10
CONTROL_BIT = 0x20
DELETE_HORIZON_BIT = 0x40

NO_TIMESTAMP = -1
NO_PRODUCER_ID = -1
NO_PRODUCER_EPOCH = -1
NO_SEQUENCE = -1

LEGACY_CRC = 12
LEGACY_KEY_V0 = 18
LEGACY_KEY_V1 = 26
"""Formats v0 and v1: CRC-32 over everything from the magic on; then magic, attributes, (v1) timestamp, key, value."""

LEGACY_HEADER_V0 = struct.Struct(">qiIbb")
"""offset, size, crc, magic, attributes."""

LEGACY_HEADER_V1 = struct.Struct(">qiIbbq")
"""offset, size, crc, magic, attributes, timestamp."""

Buffer = bytes | bytearray | memoryview
