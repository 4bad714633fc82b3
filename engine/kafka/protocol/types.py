"""The wire types of fields.

Not here: their encoding in a given version (compact or not), which is the codec's job.
"""

from __future__ import annotations

from typing import Any, Final, TypeAlias


# Plain classes: dataclasses would slow the import of every tool more than the whole table of APIs does.
class Scalar:
    """A value of fixed size; ``code`` is its letter in the struct module."""

    __slots__ = ("code", "default", "name", "size_bytes")

    def __init__(self, name: str, code: str, size_bytes: int, default: bool | int | float | bytes) -> None:
        self.name = name
        self.code = code
        self.size_bytes = size_bytes
        self.default = default


class Blob:
    """A length followed by that many bytes. ``is_wide``: the length takes 32 bits if it is not compact, not 16."""

    __slots__ = ("default", "is_wide", "name")

    def __init__(self, name: str, is_wide: bool, default: str | bytes | None) -> None:
        self.name = name
        self.is_wide = is_wide
        self.default = default


class Array:
    """A count followed by that many elements: scalars except UUID, strings, or structs. A ``list`` in memory."""

    __slots__ = ("element",)

    def __init__(self, element: Scalar | Blob | type) -> None:
        if isinstance(element, Scalar) and len(element.code) > 1:
            raise TypeError(f"no message has an array of {element.name}")
        self.element = element


BOOL: Final = Scalar("bool", "?", 1, False)
INT8: Final = Scalar("int8", "b", 1, 0)
INT16: Final = Scalar("int16", "h", 2, 0)
INT32: Final = Scalar("int32", "i", 4, 0)
INT64: Final = Scalar("int64", "q", 8, 0)
FLOAT64: Final = Scalar("float64", "d", 8, 0.0)
UUID: Final = Scalar("uuid", "16s", 16, bytes(16))
"""16 bytes in memory, too."""

STRING: Final = Blob("string", False, "")
BYTES: Final = Blob("bytes", True, b"")
RECORDS: Final = Blob("records", True, None)
"""Record batches. Decoding gives a memoryview into the frame; encoding takes bytes or an object with ``size_bytes``."""

Records: TypeAlias = Any
"""Type of a RECORDS attribute.

Reading gives memoryview or None; writing accepts more, which no annotation can express.
"""
