"""A request of any API with as many elements as wanted, made from its declaration: legal, about nothing that exists.

Arrays of topics have a hundred elements each inside, so that both levels are long. Every name and number is different.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Field, Struct, request_class
from engine.kafka.protocol.types import INT8, INT16, STRING, UUID, Array, Scalar

_INNER = 100


def large_request(key: ApiKey, version: int, elements: int, **values: Any) -> Any:
    """Return a request; ``values`` fixes the values of some fields. A request without arrays is small."""
    request = _filled(request_class(key), version, elements, count())
    for name, value in values.items():
        setattr(request, name, value)
    return request


def _filled(cls: type[Struct], version: int, elements: int, numbers: Any) -> Any:
    fields = [f for f in cls.wire_fields if f.is_in(version) and f.tag is None]
    arrays = [f for f in fields if isinstance(f.type, Array)]
    values = {f.name: _scalar(f, next(numbers)) for f in fields if not isinstance(f.type, Array)}
    for declared in arrays:
        values[declared.name] = _array(declared, version, elements // len(arrays), numbers)
    return cls(**values)


def _array(declared: Field, version: int, elements: int, numbers: Any) -> list[Any]:
    assert isinstance(declared.type, Array)
    element = declared.type.element
    if not isinstance(element, type):
        return [f"nowhere-{next(numbers)}" if element is STRING else next(numbers) % 100 for _ in range(elements)]
    is_deep = any(isinstance(f.type, Array) and f.is_in(version) and f.tag is None for f in element.wire_fields)
    if not is_deep:
        return [_filled(element, version, 0, numbers) for _ in range(elements)]
    inner = min(_INNER, elements)
    return [_filled(element, version, inner, numbers) for _ in range(elements // max(inner, 1))]


def _scalar(declared: Field, number: int) -> Any:
    if declared.type is UUID:
        return number.to_bytes(16, "big")
    if declared.type is STRING and declared.default == "":
        return f"nowhere-{number}"
    if isinstance(declared.type, Scalar) and declared.type not in (INT8, INT16) and "index" in declared.name:
        return number % _INNER
    return declared.default
