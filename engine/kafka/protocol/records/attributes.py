"""The enums in a batch's attributes: compression codec and timestamp type."""

from __future__ import annotations

from enum import IntEnum

from engine.common.errors import ErrorCode, KafkaError


class Codec(IntEnum):
    """Compression of a batch: the lowest three bits of its attributes. Kafka's name is the member in lower case."""

    NONE = 0
    GZIP = 1
    SNAPPY = 2
    LZ4 = 3
    ZSTD = 4

    @property
    def kafka_name(self) -> str:
        """``none``, ``gzip``, ``snappy``, ``lz4`` or ``zstd``."""
        return self.name.lower()


class TimestampType(IntEnum):
    """What the timestamps of a batch mean. Format v0 has none at all."""

    NO_TIMESTAMP_TYPE = -1
    CREATE_TIME = 0
    LOG_APPEND_TIME = 1

    @property
    def kafka_name(self) -> str:
        """``NoTimestampType``, ``CreateTime`` or ``LogAppendTime``: the words of configs and tools."""
        return _TIMESTAMP_NAMES[self]


_TIMESTAMP_NAMES = {
    TimestampType.NO_TIMESTAMP_TYPE: "NoTimestampType",
    TimestampType.CREATE_TIME: "CreateTime",
    TimestampType.LOG_APPEND_TIME: "LogAppendTime",
}
_CODECS = {codec.value: codec for codec in Codec}
_CODECS_BY_NAME = {codec.kafka_name: codec for codec in Codec} | {"uncompressed": Codec.NONE}


def codec_of(attributes: int) -> Codec:
    """Return the codec that a batch's attributes name.

    Raises:
        KafkaError: CORRUPT_MESSAGE for one of the three numbers that no codec has.
    """
    codec = _CODECS.get(attributes & 0x07)
    if codec is None:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"unknown compression codec {attributes & 0x07} in a record batch")
    return codec


def codec_named(name: str) -> Codec:
    """Return the codec for a value of ``compression.type``; ``uncompressed`` is none.

    Raises:
        ValueError: no codec has this name (nor does ``producer``, which leaves the choice to the producer).
    """
    codec = _CODECS_BY_NAME.get(name)
    if codec is None:
        raise ValueError(f"unknown compression type {name!r}; known are {', '.join(_CODECS_BY_NAME)}")
    return codec
