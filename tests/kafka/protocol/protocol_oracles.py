"""Independent codecs, each behind the same three functions: build its value from ours, encode it, decode bytes.

They are kafka-python's JSON schemas, kafka-python's older hand-written schemas (for versions that the newer ones no
longer know), and kio, which knows every API of Kafka 3.9 in all versions.
"""

from __future__ import annotations

import dataclasses
import datetime
import importlib
import pkgutil
import re
import typing
import uuid
import warnings
from collections.abc import Callable, Iterator
from functools import cache, partial
from io import BytesIO
from typing import Any, Protocol

from kio.index import UnknownEntity, load_request_schema, load_response_schema
from kio.schema.errors import ErrorCode
from kio.serial import entity_reader, entity_writer

from engine.kafka.protocol.declaration import Field, Message, Request, Struct
from engine.kafka.protocol.types import UUID, Array

# It has one partition per topic here, where Kafka's schema has a list.
_WRONG_IN_OLD = {("DescribeLogDirsRequest", 0)}


class Oracle(Protocol):
    """One codec for one message in one version."""

    name: str

    def build(self, value: Message) -> Any:
        """Return the oracle's own value for ours."""

    def encode(self, theirs: Any) -> bytes:
        """Return the oracle's bytes."""

    def decode(self, data: bytes) -> Any:
        """Return the oracle's value of some bytes."""


@cache
def oracles_for(cls: type[Message], version: int) -> list[Oracle]:
    """Return all oracles that know the message in this version."""
    oracles: list[Oracle] = []
    schema = _kafka_python_classes().get(cls.__name__)
    if schema is not None and schema.valid_versions[0] <= version <= schema.valid_versions[1]:
        oracles.append(KafkaPython(schema, version))
    old = _old_kafka_python_classes().get((cls.__name__, version))
    if old is not None and not oracles and (cls.__name__, version) not in _WRONG_IN_OLD:
        oracles.append(OldKafkaPython(old, version))
    load = load_request_schema if issubclass(cls, Request) else load_response_schema
    try:
        oracles.append(Kio(load(cls.api_key, version), version))  # type: ignore[attr-defined]
    except UnknownEntity:
        return oracles
    return oracles


def _present(struct: Struct, version: int) -> Iterator[tuple[Field, Any]]:
    """Yield the fields that the version writes: all untagged ones, and tagged ones that differ from their defaults."""
    default = type(struct)()
    for declared in struct.wire_fields:
        if declared.is_in(version):
            value = getattr(struct, declared.name)
            if declared.tag is None or value != getattr(default, declared.name):
                yield declared, value


class KafkaPython:
    """kafka-python 3, with fields by name."""

    name = "kafka-python"

    def __init__(self, schema: Any, version: int) -> None:
        self._schema = schema
        self._version = version

    def build(self, value: Message) -> Any:
        return self._build(self._schema, value)

    def _build(self, schema: Any, struct: Struct) -> Any:
        fields = schema._struct.fields
        values = {}
        for declared, value in _present(struct, self._version):
            name = _same_name(declared.name, fields)
            inner = fields[name]
            if value is not None and (inner.is_struct() or inner.is_struct_array()):
                data = inner.data_class
                build = partial(self._build, data)
                value = _each_once(build, value) if isinstance(value, list) else build(value)
            elif declared.type is UUID:
                value = None if value == bytes(16) else uuid.UUID(bytes=value)
            elif inner.type_str == "bitfield":
                value = None if value == -(2**31) else {bit for bit in range(32) if value >> bit & 1}
            values[name] = value
        return schema(version=self._version, **values)

    def encode(self, theirs: Any) -> bytes:
        return bytes(theirs.encode(version=self._version))

    def decode(self, data: bytes) -> Any:
        # The schema's own method would not do: ApiVersionsResponse's takes any answer with an error for one of version
        # 0.
        return _api_message().decode.__func__(self._schema, data, version=self._version)


class OldKafkaPython:
    """kafka-python's older schemas, with fields by position."""

    name = "kafka-python (old)"

    def __init__(self, schema: Any, version: int) -> None:
        self._schema = schema
        self._version = version

    def build(self, value: Message) -> Any:
        return self._schema(*self._tuple(value))

    def _tuple(self, struct: Struct) -> tuple[Any, ...]:
        return tuple(self._plain(value) for _, value in _present(struct, self._version))

    def _plain(self, value: Any) -> Any:
        if isinstance(value, Struct):
            return self._tuple(value)
        return [self._plain(item) for item in value] if isinstance(value, list) else value

    def encode(self, theirs: Any) -> bytes:
        return bytes(theirs.encode())

    def decode(self, data: bytes) -> Any:
        return self._schema.decode(BytesIO(data))


class Kio:
    """kio, with fields by position and by name."""

    name = "kio"

    def __init__(self, entity: Any, version: int) -> None:
        self._entity = entity
        self._version = version
        self._write = entity_writer(entity)
        self._read = entity_reader(entity)
        self._paired: dict[type[Struct], list[tuple[Field, Any]]] = {}

    def build(self, value: Message) -> Any:
        return self._build(self._entity, value)

    def _build(self, entity: Any, struct: Struct) -> Any:
        written = {declared.name: value for declared, value in _present(struct, self._version)}
        values = {}
        for declared, their in self._pairs(entity, type(struct)):
            if declared.name in written:
                values[their.name] = self._value(entity, declared, their, written[declared.name])
        return entity(**values)

    def _pairs(self, entity: Any, cls: type[Struct]) -> list[tuple[Field, Any]]:
        """Return the fields of ours and theirs, which are the same in the same order."""
        pairs = self._paired.get(cls)
        if pairs is None:
            ours = [f for f in cls.wire_fields if f.is_in(self._version)]
            theirs = dataclasses.fields(entity)
            assert len(ours) == len(theirs), (entity, [f.name for f in ours], [f.name for f in theirs])
            pairs = self._paired[cls] = list(zip(ours, theirs, strict=True))
            for declared, their in pairs:
                assert _squeezed(declared.name) == _squeezed(their.name)
        return pairs

    def _value(self, entity: Any, declared: Field, their: Any, value: Any) -> Any:
        if isinstance(value, Struct):
            return self._build(_entity_within(entity, their.name), value)
        if isinstance(declared.type, Array) and value is not None:
            if isinstance(declared.type.element, type):
                inner = _entity_within(entity, their.name)
                return tuple(_each_once(partial(self._build, inner), value))
            return tuple(value)
        return _kio_scalar(their.metadata.get("kafka_type"), value)

    def encode(self, theirs: Any) -> bytes:
        out = BytesIO()
        self._write(out, theirs)
        return out.getvalue()

    def decode(self, data: bytes) -> Any:
        value, _ = self._read(data, 0)
        return value


def _each_once(build: Callable[[Struct], Any], items: list[Struct]) -> list[Any]:
    """Build a value for each item, and the same value for an item that comes again."""
    built = {id(item): build(item) for item in {id(item): item for item in items}.values()}
    return [built[id(item)] for item in items]


def _kio_scalar(kind: str | None, value: Any) -> Any:
    if value is None:
        return None
    if kind == "error_code":
        return ErrorCode(value)
    if kind in ("timedelta_i32", "timedelta_i64"):
        return datetime.timedelta(milliseconds=value)
    if kind == "datetime_i64":
        epoch = datetime.datetime(1970, 1, 1, tzinfo=datetime.UTC)
        return None if value == -1 else epoch + datetime.timedelta(milliseconds=value)
    if kind == "uuid":
        return None if value == bytes(16) else uuid.UUID(bytes=value)
    return value


@cache
def _entity_within(entity: Any, name: str) -> Any:
    def innermost(hint: Any) -> Any:
        if dataclasses.is_dataclass(hint):
            return hint
        return next((inner for arg in typing.get_args(hint) if (inner := innermost(arg)) is not None), None)

    return innermost(typing.get_type_hints(entity)[name])


def _squeezed(name: str) -> str:
    return name.replace("_", "").removesuffix("ms")


@cache
def _squeezed_names(names: tuple[str, ...]) -> dict[str, str]:
    return {_squeezed(name): name for name in names}


def _same_name(name: str, names: Any) -> str:
    if name in names:
        return name
    if name in ("cluster_authorized_operations", "topic_authorized_operations"):
        return "authorized_operations"
    return _squeezed_names(tuple(names))[_squeezed(name)]


def _modules(package: str) -> list[Any]:
    with warnings.catch_warnings():
        # kafka-python reads its schemas with a function that Python 3.11 deprecates.
        warnings.simplefilter("ignore", DeprecationWarning)
        module = importlib.import_module(package)
        names = [f"{package}.{info.name}" for info in pkgutil.iter_modules(module.__path__)]
        return [importlib.import_module(name) for name in names if not name.endswith("generate_stubs")]


@cache
def _kafka_python_classes() -> dict[str, Any]:
    for package in ("", ".admin", ".consumer", ".metadata", ".producer"):
        _modules(f"kafka.protocol{package}")
    classes: dict[str, Any] = {}
    for cls in _api_message().__subclasses__():
        if cls._class_version is None:
            classes[cls._json["name"]] = cls
    return classes


def _api_message() -> Any:
    return importlib.import_module("kafka.protocol.api_message").ApiMessage


@cache
def _old_kafka_python_classes() -> dict[tuple[str, int], Any]:
    classes = {}
    for module in _modules("kafka.protocol.old"):
        for name, cls in vars(module).items():
            match = re.fullmatch(r"(\w+(?:Request|Response))_v(\d+)", name)
            if match:
                classes[match[1], int(match[2])] = cls
    return classes
