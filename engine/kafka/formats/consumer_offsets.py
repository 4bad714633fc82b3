"""Records of ``__consumer_offsets``: committed offsets and the groups of the classic protocol, all versions.

It also computes which partition of the topic has a group's records.

A key's version gives the type of record: 0 and 1 a committed offset, 2 a group. A null value is a tombstone. Keys
above 2 belong to the group protocol of KIP-848, which a cluster on ZooKeeper does not write: they decode to
UnknownKey. The inter-broker protocol decides which version of a value to write:
``engine.kafka.config.metadata_version``.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

from engine.common.errors import ErrorCode, KafkaError, RemoteProtocolError
from engine.kafka.formats.versioned import decode_versioned, encode_versioned, read_version
from engine.kafka.protocol.codec import decoder
from engine.kafka.protocol.declaration import Message, Struct, field
from engine.kafka.protocol.types import BYTES, INT32, INT64, STRING, Array

OFFSET_KEY_VERSION = 1
GROUP_KEY_VERSION = 2
OFFSET_VALUE_VERSION_MAX = 4
GROUP_VALUE_VERSION_MAX = 4
NO_TIMESTAMP = -1

_INT_MAX = 2**31


class OffsetCommitKey(Message):
    """Key of one group's offset in one partition. Versions 0 and 1 are the same bytes."""

    group: str = field(STRING)
    topic: str = field(STRING)
    partition: int = field(INT32)


class GroupMetadataKey(Message):
    group: str = field(STRING)


@dataclass(frozen=True, slots=True)
class UnknownKey:
    """Key of a record type that this code does not know; Kafka skips such records too."""

    version: int


Key: TypeAlias = OffsetCommitKey | GroupMetadataKey | UnknownKey


class OffsetCommitValue(Message, flexible_since=4):
    """A committed offset. 0.8.2 writes version 0, 0.9 to 2.0 version 1; 4 is only read (KIP-915)."""

    offset: int = field(INT64)
    leader_epoch: int = field(INT32, since=3, default=-1)
    metadata: str = field(STRING)
    commit_timestamp: int = field(INT64)
    expire_timestamp: int = field(INT64, since=1, until=1, default=NO_TIMESTAMP)


class MemberMetadata(Struct):
    """One member of a group. Subscription and assignment are the protocol's bytes (``consumer_protocol``)."""

    member_id: str = field(STRING)
    group_instance_id: str | None = field(STRING, since=3, nullable_since=3)
    client_id: str = field(STRING)
    client_host: str = field(STRING)
    rebalance_timeout: int = field(INT32, since=1, default=-1)
    session_timeout: int = field(INT32)
    subscription: bytes = field(BYTES)
    assignment: bytes = field(BYTES)


class GroupMetadataValue(Message, flexible_since=4):
    """A group at the end of a rebalance, or empty. Version 4 is only read (KIP-915)."""

    protocol_type: str = field(STRING)
    generation: int = field(INT32)
    protocol: str | None = field(STRING, nullable_since=0)
    leader: str | None = field(STRING, nullable_since=0)
    current_state_timestamp: int = field(INT64, since=2, default=NO_TIMESTAMP)
    members: list[MemberMetadata] = field(Array(MemberMetadata))


Value: TypeAlias = OffsetCommitValue | GroupMetadataValue


def encode_offset_key(group: str, topic: str, partition: int) -> bytes:
    """Return the key of a committed offset as Kafka 0.9 to 3.9 writes it."""
    return encode_versioned(OffsetCommitKey(group=group, topic=topic, partition=partition), OFFSET_KEY_VERSION)


def encode_group_key(group: str) -> bytes:
    return encode_versioned(GroupMetadataKey(group=group), GROUP_KEY_VERSION)


def encode_offset_value(value: OffsetCommitValue, version: int = 3) -> bytes:
    """Return a committed offset's bytes, by default in the version that Kafka 3.9 writes."""
    return encode_versioned(value, version)


def encode_group_value(value: GroupMetadataValue, version: int = 3) -> bytes:
    """Return a group's bytes, by default in the version that Kafka 3.9 writes."""
    return encode_versioned(value, version)


def decode_key(data: bytes) -> Key:
    """Return a record's key.

    Raises:
        KafkaError: CORRUPT_MESSAGE for bytes that are not a key.
    """
    version = read_version(data)
    if not 0 <= version <= GROUP_KEY_VERSION:
        return UnknownKey(version)
    cls: type[OffsetCommitKey | GroupMetadataKey]
    cls = GroupMetadataKey if version == GROUP_KEY_VERSION else OffsetCommitKey
    key: OffsetCommitKey | GroupMetadataKey
    try:
        key, _ = decoder(cls, version)(data, 2)
    except RemoteProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"malformed {cls.__name__}: {error}") from None
    return key


def decode_value(key: Key, data: bytes | None) -> Value | None:
    """Return the value for the key; None for a tombstone or an unknown key.

    Raises:
        KafkaError: CORRUPT_MESSAGE, or UNSUPPORTED_VERSION for a version after 4.
    """
    if data is None or isinstance(key, UnknownKey):
        return None
    if isinstance(key, OffsetCommitKey):
        return decode_versioned(OffsetCommitValue, data, OFFSET_VALUE_VERSION_MAX)
    return decode_versioned(GroupMetadataValue, data, GROUP_VALUE_VERSION_MAX)


def java_hash(text: str) -> int:
    """Return Java's ``String.hashCode``: over UTF-16 units, signed 32 bits."""
    units = text.encode("utf-16-be", "surrogatepass")
    value = 0
    for index in range(0, len(units), 2):
        value = (31 * value + (units[index] << 8 | units[index + 1])) & 0xFFFFFFFF
    return value - 2**32 if value >= _INT_MAX else value


@lru_cache(maxsize=10_000)
def partition_for(group_id: str, partition_count: int) -> int:
    """Return the partition of ``__consumer_offsets`` for a group."""
    value = java_hash(group_id)
    return (0 if value == -_INT_MAX else abs(value)) % partition_count
