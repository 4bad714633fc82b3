"""Short names for the definitions of settings: types, importance, modes, extreme numbers, shared limits."""

from __future__ import annotations

from typing import Final

from engine.kafka.config.definition import DynamicMode, Importance, KeyType
from engine.kafka.config.metadata_version import MetadataVersion, parse_metadata_version
from engine.kafka.config.validators import ListOf, OneOf, Parsed
from engine.kafka.config.values import INT_MAX, LONG_MAX, ConfigType, Password

__all__ = [
    "AUTO_THREADS",
    "BOOLEAN",
    "CLASS",
    "CLEANUP_POLICY",
    "CLUSTER_WIDE",
    "COMPRESSION_TYPE",
    "DOUBLE",
    "DOUBLE_MAX",
    "HIGH",
    "HOUR_MS",
    "IBP",
    "INT",
    "INT_MAX",
    "LIST",
    "LONG",
    "LONG_MAX",
    "LOW",
    "MEDIUM",
    "MINUTE_MS",
    "PASSWORD",
    "PER_BROKER",
    "SHORT",
    "STRING",
    "TIMESTAMP_TYPE",
]

BOOLEAN: Final = KeyType[bool](ConfigType.BOOLEAN)
STRING: Final = KeyType[str](ConfigType.STRING)
INT: Final = KeyType[int](ConfigType.INT)
SHORT: Final = KeyType[int](ConfigType.SHORT)
LONG: Final = KeyType[int](ConfigType.LONG)
DOUBLE: Final = KeyType[float](ConfigType.DOUBLE)
LIST: Final = KeyType[tuple[str, ...]](ConfigType.LIST)
CLASS: Final = KeyType[str](ConfigType.CLASS)
PASSWORD: Final = KeyType[Password](ConfigType.PASSWORD)

HIGH: Final = Importance.HIGH
MEDIUM: Final = Importance.MEDIUM
LOW: Final = Importance.LOW

PER_BROKER: Final = DynamicMode.PER_BROKER
CLUSTER_WIDE: Final = DynamicMode.CLUSTER_WIDE

DOUBLE_MAX: Final = 1.7976931348623157e308
MINUTE_MS: Final = 60_000
HOUR_MS: Final = 60 * MINUTE_MS


def _thread_count_or_automatic(text: str) -> None:
    if int(text) < -1 or int(text) == 0:
        raise ValueError("Value can be -1 or greater than 0")


IBP: Final = Parsed(parse_metadata_version, f"[{', '.join(version.text for version in MetadataVersion)}]")
COMPRESSION_TYPE: Final = OneOf(("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"))
TIMESTAMP_TYPE: Final = OneOf(("CreateTime", "LogAppendTime"))
CLEANUP_POLICY: Final = ListOf(("compact", "delete"))
AUTO_THREADS: Final = Parsed(_thread_count_or_automatic, "-1 or [1,...]")
