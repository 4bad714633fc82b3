"""The types a field can have on the wire.

Not here: how they are written in a given version (compact or not), which is the codec's business.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Final, TypeAlias

from engine.common.topic_id import ZERO_TOPIC_ID


@dataclass(frozen=True, slots=True)
class Scalar:
    """A value of fixed size; ``code`` is its letter in the struct module's language."""

    name: str
    code: str
    size_bytes: int
    default: bool | int | float | bytes


@dataclass(frozen=True, slots=True)
class Blob:
    """A length followed by that many bytes. ``wide`` lengths take 32 bits in inflexible versions, others 16."""

    name: str
    wide: bool
    default: str | bytes | None


@dataclass(frozen=True, slots=True)
class Array:
    """A count followed by that many elements: a scalar, a string, or a Struct class. A ``list`` in memory."""

    element: Scalar | Blob | type


BOOL: Final = Scalar("bool", "?", 1, False)
INT8: Final = Scalar("int8", "b", 1, 0)
INT16: Final = Scalar("int16", "h", 2, 0)
INT32: Final = Scalar("int32", "i", 4, 0)
INT64: Final = Scalar("int64", "q", 8, 0)
FLOAT64: Final = Scalar("float64", "d", 8, 0.0)
UUID: Final = Scalar("uuid", "16s", 16, ZERO_TOPIC_ID)
"""16 bytes in memory, too."""

STRING: Final = Blob("string", False, "")
BYTES: Final = Blob("bytes", True, b"")
RECORDS: Final = Blob("records", True, None)
"""Record batches: a memoryview into the frame when decoded. To be encoded: bytes, or an object with ``size_bytes``."""

Records: TypeAlias = Any
"""What a RECORDS attribute holds. Reading gives memoryview or None, writing takes more, which no annotation can say."""
