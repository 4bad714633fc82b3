"""Checks what a Produce request may carry, by its version and batch headers. The log checks everything else."""

from __future__ import annotations

import struct

from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.layout import (
    ATTRIBUTES,
    BATCH_OVERHEAD,
    CODEC_MASK,
    LOG_OVERHEAD,
    MAGIC,
    TRANSACTIONAL_BIT,
)

FIRST_BATCH_VERSION = 3
"""From this version on a producer sends one v2 batch per partition; before, message sets of magic 0 and 1."""

ZSTD_VERSION = 7

_LENGTH_AND_MAGIC = struct.Struct(">8xi4xb")
_PLAIN = struct.Struct(">8xi4xb4xh")
"""batch_length, magic and attributes of format 2: enough for client batches."""

_LENGTH_MIN = 14
"""Size in bytes of the smallest message, which has format 0."""


def check_request(request: ProduceRequest) -> None:
    """Check what can fail the whole request: one bad partition is enough, and then nothing is written.

    Raises:
        KafkaError: TRANSACTIONAL_ID_AUTHORIZATION_FAILED, CORRUPT_MESSAGE.
    """
    has_id = request.transactional_id is not None
    for topic in request.topic_data:
        for data in topic.partition_data:
            records = data.records
            if records is None:
                continue
            if len(records) >= _PLAIN.size:
                length, magic, attributes = _PLAIN.unpack_from(records)
                if magic == 2 and length >= _LENGTH_MIN and (has_id or not attributes & TRANSACTIONAL_BIT):
                    continue
            _check_batch(records, has_id)


def _check_batch(records: memoryview | bytes, has_id: bool) -> None:
    if len(records) < _LENGTH_AND_MAGIC.size:
        return
    length, magic = _LENGTH_AND_MAGIC.unpack_from(records)
    if length < _LENGTH_MIN:
        raise KafkaError(
            ErrorCode.CORRUPT_MESSAGE, f"Record size {length} is less than the minimum record overhead ({_LENGTH_MIN})"
        )
    if not 0 <= magic <= 2:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    is_whole = BATCH_OVERHEAD <= LOG_OVERHEAD + length <= len(records)
    if magic == 2 and is_whole and not has_id and records[ATTRIBUTES + 1] & TRANSACTIONAL_BIT:
        # Nobody would end such a transaction, and readers of committed records would wait forever.
        raise KafkaError(
            ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED, "Transactional records come without a transactional id"
        )


def checked_records(records: memoryview | bytes | None, version: int) -> memoryview:
    """Return a partition's records if this version may carry them.

    Raises:
        KafkaError: INVALID_RECORD, UNSUPPORTED_COMPRESSION_TYPE.
    """
    if version < FIRST_BATCH_VERSION:
        return memoryview(records or b"")
    if records is None or len(records) < BATCH_OVERHEAD:
        raise not_one_batch(version)
    if records[MAGIC] != 2:
        raise KafkaError(
            ErrorCode.INVALID_RECORD,
            f"Produce requests with version {version} are only allowed to contain record batches with magic version 2",
        )
    if version < ZSTD_VERSION and records[ATTRIBUTES + 1] & CODEC_MASK == Codec.ZSTD:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
            f"Produce requests with version {version} are not allowed to use ZStandard compression",
        )
    # A call of ``cast`` for each batch would cost more than the checks.
    return records  # type: ignore[return-value]


def not_one_batch(version: int) -> KafkaError:
    """Return the error for records that are not exactly one batch."""
    return KafkaError(
        ErrorCode.INVALID_RECORD,
        f"Produce requests with version {version} must have exactly one record batch per partition",
    )


Parts = dict[TopicPartition, PartitionProduceData]


def names_a_partition_twice(request: ProduceRequest) -> bool:
    """Return whether a request names a partition more than once, which no client does."""
    topics = request.topic_data
    if len(topics) == 1:
        data = topics[0].partition_data
        return len(data) > 1 and len({partition.index for partition in data}) < len(data)
    return len({(topic.name, partition.index) for topic in topics for partition in topic.partition_data}) < sum(
        len(topic.partition_data) for topic in topics
    )


def last_of_each(request: ProduceRequest, version: int) -> tuple[Parts, Parts]:
    """Return each partition's last records that may be appended, and the last that may not."""
    good: Parts = {}
    bad: Parts = {}
    for topic in request.topic_data:
        for data in topic.partition_data:
            (good if may_append(data, version) else bad)[TopicPartition(topic.name, data.index)] = data
    return good, bad


def may_append(data: PartitionProduceData, version: int) -> bool:
    """Return whether this version may carry a partition's records."""
    try:
        checked_records(data.records, version)
    except KafkaError:
        return False
    return True
