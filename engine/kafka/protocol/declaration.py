"""Declares messages: typed fields that name the versions in which they exist.

    class MetadataRequestTopic(Struct):
        '''One requested topic.'''

        topic_id: bytes = field(UUID, since=10)
        name: str | None = field(STRING, nullable_since=10)

    class MetadataRequest(Request, key=ApiKey.METADATA):
        topics: list[MetadataRequestTopic] | None = field(Array(MetadataRequestTopic), nullable_since=1)

The classes are plain and slotted, take keyword arguments, and give every field a default. One declaration serves all
versions: a field that a version lacks has its default after decoding. ``codec`` does the encoding.
"""

from __future__ import annotations

from functools import cache
from importlib import import_module
from typing import Any, ClassVar, cast, dataclass_transform

from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.types import Array, Blob, Scalar

LATEST = 32767
"""An ``until`` that never comes."""


class _NewList:
    """Stands for a new empty list for each value."""

    def __repr__(self) -> str:
        return "[]"


NEW_LIST = _NewList()
_TYPE_DEFAULT = object()


class Field:
    """One field of a struct, as ``field`` declares it."""

    __slots__ = ("default", "ignorable", "name", "nullable_since", "since", "tag", "type", "until")

    def __init__(
        self,
        type: Scalar | Blob | Array | type[Struct],
        since: int,
        until: int,
        default: Any,
        nullable_since: int | None,
        tag: int | None,
        ignorable: bool,
    ) -> None:
        self.name = ""
        self.type = type
        self.since = since
        self.until = until
        self.default = default
        self.nullable_since = nullable_since
        self.tag = tag
        self.ignorable = ignorable

    def is_in(self, version: int) -> bool:
        """Whether the version has the field, tagged or not."""
        return self.since <= version <= self.until

    def is_nullable_in(self, version: int) -> bool:
        """Whether this version can carry None."""
        return self.nullable_since is not None and version >= self.nullable_since

    def has_marker_in(self, version: int) -> bool:
        """Whether a byte before the field says if it is null: a struct that is not tagged (KIP-893)."""
        return isinstance(self.type, type) and self.tag is None and self.is_nullable_in(version)


def field(
    type: Scalar | Blob | Array | type[Struct],
    *,
    since: int = 0,
    until: int | None = None,
    default: Any = _TYPE_DEFAULT,
    nullable_since: int | None = None,
    tag: int | None = None,
    ignorable: bool = True,
) -> Any:
    """Declare a field.

    Args:
        type: its wire type. A tagged Struct is None if it is left out, another if it is nullable and null.
        since: first version that has it.
        until: last version that has it, inclusive.
        default: its value if a version lacks it. Without ``default`` it is zero or empty, but None for records,
            structs, and strings and bytes that were always nullable. Nullable arrays are empty: in most APIs their
            None means "all".
        nullable_since: first version in which it may be None.
        tag: its number among the tagged fields; tagged in all versions that have it, and omitted if it has its default.
        ignorable: whether a version that lacks it may drop a value that is not the default; otherwise encoding fails.
    """
    if default is _TYPE_DEFAULT:
        default = _type_default(type, is_nullable=nullable_since is not None and nullable_since <= since)
    last = LATEST if until is None else until
    return Field(type, since, last, default, nullable_since, tag, ignorable)


def _type_default(type: Scalar | Blob | Array | type[Struct], *, is_nullable: bool) -> Any:
    if isinstance(type, Scalar):
        return type.default
    if isinstance(type, Array):
        return NEW_LIST
    return None if is_nullable or not isinstance(type, Blob) else type.default


@dataclass_transform(kw_only_default=True)
class _StructMeta(type):
    """Turns the fields of a class body into slots."""

    def __new__(mcs, name: str, bases: tuple[type, ...], namespace: dict[str, Any], **keywords: Any) -> _StructMeta:
        fields = []
        for key, value in list(namespace.items()):
            if isinstance(value, Field):
                value.name = key
                fields.append(value)
                del namespace[key]
        namespace["__slots__"] = tuple(declared.name for declared in fields)
        namespace["wire_fields"] = tuple(fields)
        return super().__new__(mcs, name, bases, namespace, **keywords)


class Struct(metaclass=_StructMeta):
    """A group of fields. It compares by value and is mutable, so it is not hashable."""

    wire_fields: ClassVar[tuple[Field, ...]]

    def __init__(self, **values: Any) -> None:
        # Generated on first use: a program never creates most of the structs that it imports.
        cls = type(self)
        cls.__init__ = _compile_init(cls)  # type: ignore[method-assign]
        self.__init__(**values)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        if type(self) is not type(other):
            return NotImplemented
        return all(getattr(self, f.name) == getattr(other, f.name) for f in self.wire_fields)

    __hash__ = None  # type: ignore[assignment]

    def __repr__(self) -> str:
        values = ", ".join(
            f"{f.name}={value!r}" for f in self.wire_fields if not _is_default(f, value := getattr(self, f.name))
        )
        return f"{type(self).__name__}({values})"


class Message(Struct):
    """A struct that stands alone on the wire, so its first flexible version is known."""

    flexible_since: ClassVar[int | None] = None

    def __init_subclass__(cls, *, flexible_since: int | None = None) -> None:
        cls.flexible_since = flexible_since

    @classmethod
    def is_flexible_in(cls, version: int) -> bool:
        """Whether the version uses compact lengths and tagged fields (KIP-482)."""
        return cls.flexible_since is not None and version >= cls.flexible_since


class _ApiMessage(Message):
    api_key: ClassVar[ApiKey]

    def __init_subclass__(cls, *, key: ApiKey | None = None) -> None:
        if key is not None:
            cls.api_key = key
            super().__init_subclass__(flexible_since=API_SPECS[key].flexible_since)


class Request(_ApiMessage):
    """A request of the API ``key``."""


class Response(_ApiMessage):
    """A response of the API ``key``."""


def _is_default(declared: Field, value: object) -> bool:
    return value == [] if declared.default is NEW_LIST else value == declared.default


def _compile_init(cls: type[Struct]) -> Any:
    namespace: dict[str, Any] = {"NEW_LIST": NEW_LIST}
    parameters, body = [], []
    for f in cls.wire_fields:
        namespace[f"default_{f.name}"] = f.default
        parameters.append(f"{f.name}=default_{f.name}")
        body.append(
            f" self.{f.name} = [] if {f.name} is NEW_LIST else {f.name}"
            if f.default is NEW_LIST
            else f" self.{f.name} = {f.name}"
        )
    head = f"def __init__(self, *, {', '.join(parameters)}):" if parameters else "def __init__(self):"
    exec("\n".join([head, *body, " return None"]), namespace)
    return cast("Any", namespace["__init__"])


@cache
def request_class(key: ApiKey) -> type[Request]:
    """Return the request's class; imports its module on first use."""
    spec = API_SPECS[key]
    declared: type[Request] = getattr(import_module(spec.module), f"{spec.name}Request")
    return declared


@cache
def response_class(key: ApiKey) -> type[Response]:
    """Return the answer's class; imports its module on first use."""
    spec = API_SPECS[key]
    declared: type[Response] = getattr(import_module(spec.module), f"{spec.name}Response")
    return declared
