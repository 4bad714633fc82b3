"""ConfigKey: one setting's row, and the attribute that reads it. ConfigDef: a set of rows, parsed under Kafka's rules.

The settings themselves are in ``broker_configs`` and ``topic_configs``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from enum import Enum
from typing import Any, Final, Generic, TypedDict, TypeVar, Unpack, cast, overload

from engine.common.errors import ConfigError
from engine.kafka.config.metadata_version import MetadataVersion, parse_metadata_version
from engine.kafka.config.values import (
    ConfigType,
    ListOf,
    OneOf,
    Parsed,
    Password,
    Validator,
    Value,
    parse_value,
    value_text,
)


class Importance(Enum):
    """How likely an operator is to care, as Kafka ranks it."""

    HIGH = "high"
    MEDIUM = "medium"
    LOW = "low"


class DynamicMode(Enum):
    """Whether a broker setting can be changed while the broker runs, and for whom (KIP-226)."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


T = TypeVar("T")
R = TypeVar("R")


class ConfigKey(Generic[T]):
    """One setting: its row, and the attribute by which it is read.

    A class of settings holds its rows as attributes. The attribute's name is the setting's, with underscores for dots,
    and the row gives its type. The first read through an instance computes it from the instance's ``get`` and stores it
    there: later reads cost what any attribute costs.

    Attributes:
        default: the parsed default; None if Kafka has none.
        doc: what it does, in our words.
        dynamic: only for broker settings; topic settings can all be changed.
        has_effect: False if klamm knows the key for compatibility but nothing reads it.
        synonyms: broker settings that give this one its value, the most specific first.
        is_internal: Kafka leaves it out of its documentation.
    """

    def __init__(
        self,
        type_: ConfigType,
        default: Value,
        importance: Importance,
        validator: Validator | None = None,
        dynamic: DynamicMode = DynamicMode.READ_ONLY,
        *,
        synonyms: tuple[str, ...] = (),
        is_internal: bool = False,
    ) -> None:
        self.name = ""
        self.attribute = ""
        self.type = type_
        self.default = default
        self.importance = importance
        self.doc = ""
        self.validator = validator
        self.dynamic = dynamic
        self.has_effect = False
        self.synonyms = synonyms
        self.is_internal = is_internal
        self._stand_in: Callable[[Any], Any] | None = None
        self._convert: Callable[[Any], Any] | None = None

    # --- the row's last words

    def with_effect(self, doc: str) -> ConfigKey[T]:
        """Say what the setting does."""
        self.doc, self.has_effect = doc, True
        return self

    def without_effect(self, doc: str) -> ConfigKey[T]:
        """Say what the setting does in Kafka; klamm only knows it."""
        self.doc = doc
        return self

    def or_else(self: ConfigKey[R | None], stand_in: Callable[[Any], R]) -> ConfigKey[R]:
        """Let the attribute take its value from other settings if this one is not set."""
        self._stand_in = stand_in
        return cast("ConfigKey[R]", self)

    def required(self: ConfigKey[R | None]) -> ConfigKey[R]:
        """Make an attribute that is never None: ``rules`` refuses settings without it."""
        return cast("ConfigKey[R]", self)

    def read_as(self, convert: Callable[[T], R]) -> ConfigKey[R]:
        """Let ``convert`` turn the value into the attribute."""
        self._convert = convert
        return cast("ConfigKey[R]", self)

    # --- the attribute

    def __set_name__(self, owner: type, attribute: str) -> None:
        self.attribute = attribute
        self.name = attribute.replace("_", ".")

    @overload
    def __get__(self, settings: None, owner: type) -> ConfigKey[T]: ...
    @overload
    def __get__(self, settings: object, owner: type) -> T: ...
    def __get__(self, settings: Any, owner: type) -> T | ConfigKey[T]:
        if settings is None:
            return self
        value = settings.get(self.name)
        if value is None and self._stand_in is not None:
            value = self._stand_in(settings)
        if self._convert is not None:
            value = self._convert(value)
        vars(settings)[self.attribute] = value
        return cast("T", value)

    def of(self, settings: object) -> T:
        """Return the attribute of these settings, for code that iterates over rows."""
        return cast("T", getattr(settings, self.attribute))

    # --- the text

    @property
    def is_sensitive(self) -> bool:
        """The value must never be shown."""
        return self.type is ConfigType.PASSWORD

    @property
    def default_text(self) -> str | None:
        return value_text(self.default, self.type)

    def parse(self, text: str | None) -> Value:
        """Read and check a value's text.

        Raises:
            ConfigError: in Kafka's words.
        """
        value = parse_value(self.name, text, self.type)
        if self.validator is not None:
            self.validator.ensure_valid(self.name, value)
        return value


AnyKey = ConfigKey[Any]


class Facts(TypedDict, total=False):
    """Facts that few rows have."""

    synonyms: tuple[str, ...]
    is_internal: bool


class KeyType(Generic[T]):
    """A type of settings, called to make a row: ``log_segment_bytes = INT(1_073_741_824, HIGH, at_least(14))``."""

    def __init__(self, type_: ConfigType) -> None:
        self.type = type_

    @overload
    def __call__(
        self,
        default: None,
        importance: Importance,
        validator: Validator | None = ...,
        dynamic: DynamicMode = ...,
        **facts: Unpack[Facts],
    ) -> ConfigKey[T | None]: ...
    @overload
    def __call__(
        self,
        default: T,
        importance: Importance,
        validator: Validator | None = ...,
        dynamic: DynamicMode = ...,
        **facts: Unpack[Facts],
    ) -> ConfigKey[T]: ...
    def __call__(
        self,
        default: Any,
        importance: Importance,
        validator: Validator | None = None,
        dynamic: DynamicMode = DynamicMode.READ_ONLY,
        **facts: Unpack[Facts],
    ) -> AnyKey:
        return ConfigKey(self.type, default, importance, validator, dynamic, **facts)


class ConfigDef:
    """Settings by name. Immutable once made; iterates over its keys in the order of their definition."""

    def __init__(self, keys: Iterable[AnyKey]) -> None:
        self._keys: dict[str, AnyKey] = {}
        for key in keys:
            if key.name in self._keys:
                raise ConfigError(f"Configuration {key.name} is defined twice.", key=key.name)
            self._keys[key.name] = key

    @classmethod
    def of(cls, *owners: type) -> ConfigDef:
        """Return the rows of these classes, in their order there."""
        return cls(row for owner in owners for row in vars(owner).values() if isinstance(row, ConfigKey))

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __iter__(self) -> Iterator[AnyKey]:
        return iter(self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, name: str) -> AnyKey:
        return self._keys[name]

    def get(self, name: str) -> AnyKey | None:
        """Return the setting of that name, or None."""
        return self._keys.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def parse(self, properties: Mapping[str, str]) -> dict[str, Value]:
        """Return the value of every setting: the one given, or the default. Unknown properties are ignored.

        Raises:
            ConfigError: the first value that is not allowed, in Kafka's words.
        """
        return {
            name: key.parse(properties[name]) if name in properties else key.default for name, key in self._keys.items()
        }


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
