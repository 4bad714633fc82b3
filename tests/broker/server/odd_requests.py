"""Requests of every API in every version, with values drawn from a seed, and frames of them that are damaged.

Nothing in them waits for long, unless the damage hits a time.
"""

from __future__ import annotations

import random
import struct
from collections.abc import Sequence
from typing import Any

from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.declaration import Field, Struct, request_class
from engine.kafka.protocol.frames import encode_request
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.kafka.protocol.types import BOOL, FLOAT64, RECORDS, STRING, UUID, Array, Blob, Scalar

ODD_NAMES = ("", "a", "*", "größer", "x\x00y", "../..", "n" * 250, "kafka-cluster", "0", "1", "__consumer_offsets",
             "__transaction_state", "PLAIN", "SCRAM-SHA-256", "User:admin", "User", "Group", "/", "retention.ms",
             "consumer", "range", "user", "client-id", "consumer_byte_rate")  # fmt: skip
BATCH = encode_batch([Record(0, 1_700_000_000_000, b"k", b"v")])
IN_TRANSACTION = encode_batch(
    [Record(0, 1_700_000_000_000, b"k", b"v")], transactional=True, producer_id=1, producer_epoch=0,
    base_sequence=0,
)  # fmt: skip
NUMBERS = (-2, -1, 0, 1, 2, 3, 4, 5, 100, 16_777_216)
REQUESTS = [
    (key, version) for key, spec in API_SPECS.items() for version in range(spec.min_version, spec.max_version + 1)
]


def odd_request(draw: random.Random, key: ApiKey, version: int, names: Sequence[str]) -> bytes:
    """Return the frame of a well-formed request."""
    request = _struct(draw, request_class(key), version, (*names, *names, *ODD_NAMES))
    return bytes(encode_request(request, version, draw.randrange(2**30), draw.choice(("c", "", None))))


def long_request(key: ApiKey, version: int, count: int) -> bytes:
    """Return the frame of a request that names so many topics, groups, or whatever its first list is about."""
    cls = request_class(key)
    listed = next(f for f in cls.wire_fields if isinstance(f.type, Array) and f.is_in(version))
    named: list[Any] = [f"name-{number}" for number in range(count)]
    if listed.type.element is not STRING:
        text = next(f.name for f in listed.type.element.wire_fields if f.type is STRING)
        kind = {"resource_type": 2} if key is ApiKey.DESCRIBE_CONFIGS else {}
        named = [listed.type.element(**{text: name}, **kind) for name in named]
    request = cls(**{listed.name: named}, **({"acks": 1} if key is ApiKey.PRODUCE else {}))
    return bytes(encode_request(request, version, 1, "c"))


def damaged(draw: random.Random, frame: bytes) -> bytes:
    """Return the frame with something wrong: bytes, length, API, or an end that comes too soon or too late."""
    data = bytearray(frame)
    for _ in range(draw.choice((1, 1, 2, 3))):
        kind, where = draw.randrange(6), draw.randrange(len(data) + 1)
        if kind <= 1:
            data[where : where + 1] = bytes((draw.choice((0, 1, 2, 0x7F, 0x80, 0xFE, 0xFF, draw.randrange(256))),))
        elif kind == 2:
            del data[where : where + draw.randint(1, 8)]
        elif kind == 3:
            data[where:where] = draw.randbytes(draw.randint(1, 8))
        elif kind == 4:
            data[4:8] = struct.pack(">hh", *draw.choice(REQUESTS))
        else:
            data[:4] = struct.pack(">i", draw.choice((-1, 0, 7, 2**31 - 1, draw.randrange(2**31))))
            return bytes(data)
    # The length is right, so that the damage reaches the decoder and the handler.
    data[:4] = struct.pack(">i", max(0, len(data) - 4))
    return bytes(data)


def _struct(draw: random.Random, cls: type[Struct], version: int, names: Sequence[str]) -> Any:
    return cls(**{f.name: _value(draw, f, f.type, version, names) for f in cls.wire_fields if f.is_in(version)})


def _value(
    draw: random.Random, declared: Field, kind: Scalar | Blob | Array | type, version: int, names: Sequence[str]
) -> Any:
    if kind is declared.type and declared.is_nullable_in(version) and draw.random() < 0.2:
        return None
    if isinstance(kind, Scalar):
        return _number(draw, declared, kind)
    if isinstance(kind, Array):
        count = draw.choice((0, 1, 1, 1, 2, 3))
        return [_value(draw, declared, kind.element, version, names) for _ in range(count)]
    if kind is RECORDS:
        return draw.choice((None, b"", BATCH, IN_TRANSACTION, BATCH[:50], draw.randbytes(70)))
    if isinstance(kind, Blob):
        return draw.choice(names) if kind is STRING else draw.randbytes(draw.randrange(80))
    return _struct(draw, kind, version, names)


def _number(draw: random.Random, declared: Field, kind: Scalar) -> Any:
    if kind is BOOL:
        return draw.random() < 0.5
    if kind is FLOAT64:
        return draw.choice((0.0, 1.5, -1.0, 1e308, float("nan"), float("inf")))
    if kind is UUID:
        return draw.choice((bytes(16), b"\xff" * 16, draw.randbytes(16)))
    if declared.name in ("max_wait_ms", "timeout_ms", "rebalance_timeout_ms", "session_timeout_ms"):
        return draw.choice((-1, 0, 1, 5))
    bound = 2 ** (8 * kind.size_bytes - 1)
    number = draw.choice((*NUMBERS, -bound, bound - 1, draw.randrange(-bound, bound)))
    return number if -bound <= number < bound else 1
