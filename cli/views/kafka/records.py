"""What kafka-console-consumer prints: the lines of its DefaultMessageFormatter."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final

from engine.admin.records.consumed import ConsumedRecord
from engine.common.errors import ConfigError

_PRINTED: Final = ("timestamp", "partition", "offset", "headers", "key", "value")
"""Parts of a line in the formatter's order, whatever order they are asked in."""
_DEFAULTS: Final[dict[str, str]] = {
    **{f"print.{part}": "false" for part in _PRINTED},
    "print.value": "true",
    "key.separator": "\t",
    "line.separator": "\n",
    "headers.separator": ",",
    "null.literal": "null",
}
_AS_BYTES: Final = tuple(
    f"org.apache.kafka.common.serialization.{kind}Deserializer" for kind in ("String", "ByteArray")
)
"""These two print the bytes as they are."""


def formatter(properties: Mapping[str, str]) -> Callable[[ConsumedRecord], bytes]:
    """Return what makes a record a line, as the properties of ``--property`` want it.

    Raises:
        ConfigError: a property needs a Java class, or the formatter has none of this name.
    """
    for name, value in properties.items():
        if name.endswith(".deserializer"):
            if value not in _AS_BYTES:
                raise ConfigError(f"--property {name}={value}: klamm loads no Java classes")
        elif name not in _DEFAULTS:
            raise ConfigError(f"--property: kafka-console-consumer has no {name}; it has {', '.join(_DEFAULTS)}")
    chosen = _DEFAULTS | dict(properties)
    parts = [part for part in _PRINTED if chosen[f"print.{part}"].strip().lower() == "true"]
    between, end, comma, null = (
        chosen[name].encode() for name in ("key.separator", "line.separator", "headers.separator", "null.literal")
    )

    def part_of(part: str, consumed: ConsumedRecord) -> bytes:
        record = consumed.record
        match part:
            case "timestamp":
                kind = consumed.timestamp_type.kafka_name
                return b"NO_TIMESTAMP" if record.timestamp_ms < 0 else f"{kind}:{record.timestamp_ms}".encode()
            case "partition":
                return b"Partition:%d" % consumed.partition
            case "offset":
                return b"Offset:%d" % record.offset
            case "headers":
                pairs = (key.encode() + b":" + (null if value is None else value) for key, value in record.headers)
                return comma.join(pairs) or b"NO_HEADERS"
        value = record.key if part == "key" else record.value
        return null if value is None else value

    return lambda consumed: between.join(part_of(part, consumed) for part in parts) + (end if parts else b"")
