"""Typed attributes of BrokerConfig: each names its setting once and is looked up once. Not the settings' definitions.

An attribute is worked out on first use and then kept in the instance: reading it again costs what any attribute costs.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Generic, TypeVar, overload

if TYPE_CHECKING:
    from engine.config.broker import BrokerConfig

T = TypeVar("T")


class Setting(Generic[T]):
    """An attribute of type T; ``read`` works it out from the settings."""

    def __init__(self, read: Callable[[BrokerConfig], T]) -> None:
        self.read = read
        self._attribute = ""

    def __set_name__(self, owner: type[BrokerConfig], name: str) -> None:
        self._attribute = name

    @overload
    def __get__(self, config: None, owner: type[BrokerConfig]) -> Setting[T]: ...
    @overload
    def __get__(self, config: BrokerConfig, owner: type[BrokerConfig]) -> T: ...
    def __get__(self, config: BrokerConfig | None, owner: type[BrokerConfig]) -> T | Setting[T]:
        if config is None:
            return self
        value = self.read(config)
        vars(config)[self._attribute] = value
        return value


def int_of(name: str) -> Setting[int]:
    """A whole number that is always there."""
    return Setting(lambda config: config.get_int(name))


def bool_of(name: str) -> Setting[bool]:
    """A switch."""
    return Setting(lambda config: config.get_bool(name))


def str_of(name: str) -> Setting[str]:
    """A text that is always there."""
    return Setting(lambda config: config.get_str(name))


def optional_str_of(name: str) -> Setting[str | None]:
    """A text that may be left out."""
    return Setting(lambda config: config.get_optional_str(name))


def retention_ms_of(*names_and_units: tuple[str, int]) -> Setting[int]:
    """As ``first_int_of``; every negative time means for ever and becomes -1."""
    first = first_int_of(*names_and_units)
    return Setting(lambda config: max(first.read(config), -1))


def first_int_of(*names_and_units: tuple[str, int]) -> Setting[int]:
    """The first of several settings that has a value, times its unit: ms over minutes over hours."""

    def read(config: BrokerConfig) -> int:
        for name, unit in names_and_units:
            value = config.get_optional_int(name)
            if value is not None:
                return value * unit
        raise AssertionError(f"no value in {names_and_units}")

    return Setting(read)
