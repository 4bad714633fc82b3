"""ConfigDef: a set of settings with their types, defaults, limits and documentation; parsing under Kafka's rules.

The settings themselves stand in ``broker_configs`` and ``topic_configs``.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from enum import Enum

from engine.common.errors import ConfigError
from engine.config.validators import Validator
from engine.config.values import ConfigType, Value, parse_value, value_text


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


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One setting.

    Attributes:
        default: the parsed default; None where Kafka has none.
        doc: what it does, in our words.
        dynamic: topic settings are all changeable, the field says something of broker settings only.
        has_effect: False where klamm knows the key for compatibility but nothing reads it.
        synonyms: broker settings that give this one its value, the most specific first.
        is_internal: Kafka leaves it out of its documentation.
    """

    name: str
    type: ConfigType
    default: Value
    importance: Importance
    doc: str
    validator: Validator | None = None
    dynamic: DynamicMode = DynamicMode.READ_ONLY
    has_effect: bool = False
    synonyms: tuple[str, ...] = ()
    is_internal: bool = False

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


class ConfigDef:
    """Settings by name. Immutable once made; iterates over its keys in the order of their definition."""

    def __init__(self, keys: Iterable[ConfigKey]) -> None:
        self._keys: dict[str, ConfigKey] = {}
        for key in keys:
            if key.name in self._keys:
                raise ConfigError(f"Configuration {key.name} is defined twice.", key=key.name)
            self._keys[key.name] = key

    def __contains__(self, name: object) -> bool:
        return name in self._keys

    def __iter__(self) -> Iterator[ConfigKey]:
        return iter(self._keys.values())

    def __len__(self) -> int:
        return len(self._keys)

    def __getitem__(self, name: str) -> ConfigKey:
        return self._keys[name]

    def get(self, name: str) -> ConfigKey | None:
        """Return the setting of that name, or None."""
        return self._keys.get(name)

    @property
    def names(self) -> tuple[str, ...]:
        return tuple(self._keys)

    def parse(self, properties: Mapping[str, str]) -> dict[str, Value]:
        """Return the value of every setting: the one given, or the default. Unknown properties are not looked at.

        Raises:
            ConfigError: the first value that is not allowed, in Kafka's words.
        """
        return {
            name: key.parse(properties[name]) if name in properties else key.default for name, key in self._keys.items()
        }
