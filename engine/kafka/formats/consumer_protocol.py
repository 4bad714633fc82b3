"""The content of the group protocol's opaque bytes for consumers: subscription and assignment, versions 0-3.

It reads newer versions as version 3: Kafka promises that they only add fields at the end.
"""

from __future__ import annotations

from typing import TypeVar

from engine.common.errors import ErrorCode, KafkaError, RemoteProtocolError
from engine.kafka.formats.versioned import encode_versioned, read_version
from engine.kafka.protocol.codec import decoder
from engine.kafka.protocol.declaration import Message, Struct, field
from engine.kafka.protocol.types import BYTES, INT32, STRING, Array

CONSUMER_PROTOCOL_TYPE = "consumer"
VERSION_MAX = 3

M = TypeVar("M", bound=Message)


class ConsumerProtocolPartitions(Struct):
    topic: str = field(STRING)
    partitions: list[int] = field(Array(INT32))


class ConsumerProtocolSubscription(Message):
    """What a member wants, and (from version 1) had so far."""

    topics: list[str] = field(Array(STRING))
    user_data: bytes | None = field(BYTES, nullable_since=0)
    owned_partitions: list[ConsumerProtocolPartitions] = field(Array(ConsumerProtocolPartitions), since=1)
    generation_id: int = field(INT32, since=2, default=-1)
    rack_id: str | None = field(STRING, since=3, nullable_since=3)


class ConsumerProtocolAssignment(Message):
    """What the group's leader gave a member."""

    assigned_partitions: list[ConsumerProtocolPartitions] = field(Array(ConsumerProtocolPartitions))
    user_data: bytes | None = field(BYTES, nullable_since=0)


def encode_subscription(subscription: ConsumerProtocolSubscription, version: int = VERSION_MAX) -> bytes:
    return encode_versioned(subscription, version)


def encode_assignment(assignment: ConsumerProtocolAssignment, version: int = VERSION_MAX) -> bytes:
    return encode_versioned(assignment, version)


def decode_subscription(data: bytes) -> ConsumerProtocolSubscription:
    """Return a member's subscription.

    Raises:
        KafkaError: CORRUPT_MESSAGE; clients may put anything there, so callers continue without it.
    """
    return _decode(ConsumerProtocolSubscription, data)


def decode_assignment(data: bytes) -> ConsumerProtocolAssignment:
    """Return a member's assignment; no bytes mean an empty one. Errors as for subscriptions."""
    return _decode(ConsumerProtocolAssignment, data) if data else ConsumerProtocolAssignment()


def _decode(cls: type[M], data: bytes) -> M:
    version = read_version(data)
    if version < 0:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"a {cls.__name__} of version {version}")
    message: M
    try:
        message, _ = decoder(cls, min(version, VERSION_MAX))(data, 2)
    except RemoteProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"malformed {cls.__name__}: {error}") from None
    return message
