"""Requests of any API made from its declaration: with one array or one text grown, legal, about nothing that exists."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import count
from typing import Any

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Field, Struct, request_class
from engine.kafka.protocol.types import BYTES, INT8, INT16, STRING, UUID, Array, Scalar

Path = tuple[str, ...]
"""Names of fields, from the request down to what grows."""

Sizes = tuple[int, int]
"""What an array and a text grow to."""

TEXT_BYTES_MAX = 32_767
"""No text is longer in any version."""


def growing(key: ApiKey, version: int) -> Iterator[Path]:
    """Yield the path of each array, text and run of bytes in a request of this version."""
    yield from _paths(request_class(key), version)


def _paths(cls: type[Struct], version: int) -> Iterator[Path]:
    for declared in cls.wire_fields:
        if not declared.is_in(version):
            continue
        kind = declared.type
        if kind in (STRING, BYTES) or isinstance(kind, Array):
            yield (declared.name,)
        inner = kind.element if isinstance(kind, Array) else kind
        if isinstance(kind, Array) and inner is STRING:
            yield declared.name, ""
        elif isinstance(inner, type):
            yield from ((declared.name, *rest) for rest in _paths(inner, version))


def grown(key: ApiKey, version: int, path: Path, elements: int, length: int, **values: Any) -> Any:
    """Return a request whose part at ``path`` is grown: an array to so many elements, a text or bytes to a length.

    Every other array has one element. ``values`` fixes the values of some fields.
    """
    request = _made(request_class(key), version, path, (elements, length), count())
    for name, value in values.items():
        if hasattr(request, name):
            setattr(request, name, value)
    return request


def _made(cls: type[Struct], version: int, path: Path, sizes: Sizes, numbers: Iterator[int]) -> Any:
    return cls(
        **{
            f.name: _value(f, version, path[1:] if path and path[0] == f.name else None, sizes, numbers)
            for f in cls.wire_fields
            if f.is_in(version) and (f.tag is None or path[:1] == (f.name,))
        }
    )


def _value(declared: Field, version: int, path: Path | None, sizes: Sizes, numbers: Iterator[int]) -> Any:
    """Return a field's value; ``path`` leads on from it to what grows, and is None elsewhere."""
    kind = declared.type
    if isinstance(kind, Array):
        length = sizes[0] if path == () else 1
        element = kind.element
        if isinstance(element, type):
            # The arrays inside very many elements are empty.
            inner = _made if path != () else _hollow
            return [inner(element, version, path or (), sizes, numbers) for _ in range(length)]
        if path == ("",):
            return ["x" * min(sizes[1], TEXT_BYTES_MAX)]
        return [f"nowhere-{next(numbers)}" if element is STRING else next(numbers) for _ in range(length)]
    if isinstance(kind, type):
        return _made(kind, version, path or (), sizes, numbers)
    if path == ():
        return "x" * min(sizes[1], TEXT_BYTES_MAX) if kind is STRING else bytes(sizes[1])
    return _scalar(declared, next(numbers))


def _hollow(cls: type[Struct], version: int, path: Path, sizes: Sizes, numbers: Iterator[int]) -> Any:
    fields = [f for f in cls.wire_fields if f.is_in(version) and f.tag is None]
    return cls(
        **{f.name: [] if isinstance(f.type, Array) else _value(f, version, None, (0, 0), numbers) for f in fields}
    )


def _scalar(declared: Field, number: int) -> Any:
    if declared.type is UUID:
        return number.to_bytes(16, "big")
    if declared.type is STRING and declared.default == "":
        return f"nowhere-{number}"
    if isinstance(declared.type, Scalar) and declared.type not in (INT8, INT16) and "index" in declared.name:
        return number
    return declared.default
