"""The entry point to record batches: headers, checksums, reading and writing records.

Code that needs only headers imports ``header``, and so avoids importing the checksum library.
"""

from __future__ import annotations

from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import compute_crc, stamp_crc, verify_crc
from engine.kafka.protocol.records.decode import iter_batch_records, iter_records
from engine.kafka.protocol.records.encode import empty_batch, encode_batch
from engine.kafka.protocol.records.header import BatchHeader, iter_batches, read_batch_header
from engine.kafka.protocol.records.record import Record

__all__ = [
    "BatchHeader",
    "Codec",
    "Record",
    "TimestampType",
    "compute_crc",
    "empty_batch",
    "encode_batch",
    "iter_batch_records",
    "iter_batches",
    "iter_records",
    "read_batch_header",
    "stamp_crc",
    "verify_crc",
]
