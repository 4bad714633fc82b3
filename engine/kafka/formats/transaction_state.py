"""Records of ``__transaction_state``: the coordinator's state of a transactional id. A null value is a tombstone."""

from __future__ import annotations

import struct
from enum import IntEnum
from functools import lru_cache

from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.formats.versioned import decode_versioned, encode_versioned
from engine.kafka.protocol.declaration import Message, Struct, field
from engine.kafka.protocol.types import INT8, INT16, INT32, INT64, STRING, Array

KEY_VERSION = 0
VALUE_VERSION_MAX = 1

_HEAD, _COUNT, _LENGTH, _TAIL = (struct.Struct(form) for form in (">hqhib", ">i", ">h", ">qq"))
"""Version, producer id and epoch, time-out, state; number of topics; length of a name; last update and start."""

_NULL, _NONE = _COUNT.pack(-1), _COUNT.pack(0)

_CACHED_MAX = 50
"""Of as many partitions at most are the bytes kept."""


class TransactionState(IntEnum):
    """State of a transactional id, by the number in the log."""

    EMPTY = 0
    ONGOING = 1
    PREPARE_COMMIT = 2
    PREPARE_ABORT = 3
    COMPLETE_COMMIT = 4
    COMPLETE_ABORT = 5
    DEAD = 6
    PREPARE_EPOCH_FENCE = 7

    @property
    def kafka_name(self) -> str:
        """``Empty``, ``Ongoing``, ``PrepareCommit`` …: the words of Kafka's tools and of DescribeTransactions."""
        return "".join(word.capitalize() for word in self.name.split("_"))


_EMPTY = TransactionState.EMPTY


class TransactionLogKey(Message):
    """Key of a transactional id's state."""

    transactional_id: str = field(STRING)


class TransactionPartitions(Struct):
    """Partitions of one topic that take part."""

    topic: str = field(STRING)
    partition_ids: list[int] = field(Array(INT32))


class TransactionLogValue(Message, flexible_since=1):
    """The state. Kafka 3.9 writes version 0; version 1 belongs to ``transaction.version`` 1 and later (KIP-890)."""

    producer_id: int = field(INT64)
    previous_producer_id: int = field(INT64, since=1, tag=0, default=-1)
    next_producer_id: int = field(INT64, since=1, tag=1, default=-1)
    producer_epoch: int = field(INT16)
    transaction_timeout_ms: int = field(INT32)
    transaction_status: int = field(INT8)
    transaction_partitions: list[TransactionPartitions] | None = field(Array(TransactionPartitions), nullable_since=0)
    """None if the state is Empty."""
    transaction_last_update_timestamp_ms: int = field(INT64)
    transaction_start_timestamp_ms: int = field(INT64)
    client_transaction_version: int = field(INT16, since=1, tag=2)

    @property
    def state(self) -> TransactionState:
        """The status as a state.

        Raises:
            KafkaError: CORRUPT_MESSAGE for a number that no state has.
        """
        try:
            return TransactionState(self.transaction_status)
        except ValueError:
            raise KafkaError(
                ErrorCode.CORRUPT_MESSAGE, f"{self.transaction_status} is no state of a transaction"
            ) from None


def encode_key(transactional_id: str) -> bytes:
    """Return a record's key."""
    return encode_versioned(TransactionLogKey(transactional_id=transactional_id), KEY_VERSION)


def encode_value(value: TransactionLogValue, version: int = 0) -> bytes:
    """Return a record's value, by default in the version that Kafka 3.9 writes."""
    return encode_versioned(value, version)


def encode_state(
    state: TransactionState,
    producer_id: int,
    producer_epoch: int,
    timeout_ms: int,
    partitions: frozenset[TopicPartition],
    last_update_ms: int,
    start_ms: int,
) -> bytes:
    """Return the value of version 0, as ``encode_value`` does for a third of the cost: a transaction has three."""
    if state is _EMPTY:
        encoded = _NULL
    elif not partitions:
        encoded = _NONE
    elif len(partitions) <= _CACHED_MAX:
        encoded = _cached_partitions(partitions)
    else:
        encoded = _encode_partitions(partitions)
    head = _HEAD.pack(0, producer_id, producer_epoch, timeout_ms, state)
    return head + encoded + _TAIL.pack(last_update_ms, start_ms)


def _encode_partitions(partitions: frozenset[TopicPartition]) -> bytes:
    topics: dict[str, list[int]] = {}
    for topic, index in sorted(partitions):
        topics.setdefault(topic, []).append(index)
    parts = [_COUNT.pack(len(topics))]
    for topic, indexes in topics.items():
        name = topic.encode()
        parts += (_LENGTH.pack(len(name)), name, struct.pack(f">{1 + len(indexes)}i", len(indexes), *indexes))
    return b"".join(parts)


_cached_partitions = lru_cache(maxsize=1_000)(_encode_partitions)
"""Each transaction writes the same partitions twice, and the producer's next one probably does too."""


def decode_key(data: bytes) -> TransactionLogKey:
    """Return a record's key.

    Raises:
        KafkaError: CORRUPT_MESSAGE, or UNSUPPORTED_VERSION for a version after 0: Kafka skips such records.
    """
    return decode_versioned(TransactionLogKey, data, KEY_VERSION)


def decode_value(data: bytes | None) -> TransactionLogValue | None:
    """Return a record's value; None for a tombstone.

    Raises:
        KafkaError: CORRUPT_MESSAGE, or UNSUPPORTED_VERSION for a version after 1.
    """
    return None if data is None else decode_versioned(TransactionLogValue, data, VALUE_VERSION_MAX)
