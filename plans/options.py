"""The input of the planner: the strategy, all limits, and how users write both. Pure.

If a function reads a text, ``option`` is the name of the option or field, for the message about a wrong value.
"""

from __future__ import annotations

import tomllib
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

from engine.common.quantities import parse_size
from plans.errors import BadOption


class Strategy(StrEnum):
    """What a plan is for."""

    REBALANCE = "rebalance"
    DECOMMISSION = "decommission"
    REPLACE = "replace"
    EXPAND = "expand"
    RACKS = "racks"
    FACTOR = "factor"
    MOVE = "move"
    LEADERS = "leaders"
    LOG_DIRS = "log-dirs"


class Aim(StrEnum):
    """What should be level between the brokers when the plan is done."""

    REPLICAS = "replicas"
    LEADERS = "leaders"
    BYTES = "bytes"


class Minimise(StrEnum):
    """Which figure comes first among plans that meet the aim."""

    MOVES = "moves"
    BYTES = "bytes"


@dataclass(frozen=True, slots=True)
class Replacement:
    """What broker ``old`` holds goes to broker ``new``."""

    old: int
    new: int


@dataclass(frozen=True, slots=True)
class BrokerCapacity:
    """How many bytes of partitions a broker may hold."""

    broker: int
    bytes: int


@dataclass(frozen=True, slots=True)
class LogDirCapacity:
    """How many bytes of partitions a log dir may hold."""

    broker: int
    log_dir: str
    bytes: int


@dataclass(frozen=True, slots=True)
class PlanOptions:
    """Everything that a plan depends on, apart from the cluster.

    ``brokers`` is the argument of decommission, expand, move and log-dirs; ``replication_factor`` that of factor.
    ``aim`` and ``minimise`` are None for the strategy's default; the options of a finished plan name what was used.
    ``pins`` and the like are texts as they were typed.
    """

    brokers: tuple[int, ...] = ()
    replacements: tuple[Replacement, ...] = ()
    replication_factor: int | None = None
    aim: tuple[Aim, ...] | None = None
    topics: tuple[str, ...] = ()
    exclude_topics: tuple[str, ...] = ()
    exclude_brokers: tuple[int, ...] = ()
    pins: tuple[str, ...] = ()
    minimise: Minimise | None = None
    tolerance_percent: float = 5.0
    max_moves: int | None = None
    max_bytes: int | None = None
    broker_capacities: tuple[BrokerCapacity, ...] = ()
    log_dir_capacities: tuple[LogDirCapacity, ...] = ()
    keep_dead: bool = False
    throttle: int | None = None
    time_limit_s: float | None = None


Member = TypeVar("Member", bound=StrEnum)

_HOW_TO_WRITE_CAPACITIES = 'write [brokers] and 7 = "2 TB", or [log-dirs] and "7:/data/a" = "500 GB"'


def words_of(text: str) -> list[str]:
    """Return the words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def aims(text: str, option: str) -> tuple[Aim, ...]:
    """Return the aims that ``replicas,leaders`` names."""
    return tuple(_member(Aim, word, option) for word in words_of(text))


def minimise(text: str, option: str) -> Minimise:
    """Return which figure comes first."""
    return _member(Minimise, text, option)


def size(text: str, option: str) -> int:
    """Return the bytes of ``200GB``."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise BadOption(f"{option}: {error}") from error


def broker_ids(text: str, option: str) -> tuple[int, ...]:
    """Return the broker ids of ``1,2,3``, each once, in order."""
    try:
        ids = tuple(sorted({int(word) for word in words_of(text)}))
    except ValueError:
        raise BadOption(f"{option}: needs broker ids such as 1,2,3, not {text!r}") from None
    if not ids:
        raise BadOption(f"{option} needs at least one broker id")
    return ids


def replacements(text: str, option: str) -> tuple[Replacement, ...]:
    """Return the pairs of ``7=8,9=10``: an old broker and the one that takes its place."""
    pairs = []
    for word in words_of(text):
        old, equals, new = word.partition("=")
        if not equals or not old.strip().isdecimal() or not new.strip().isdecimal():
            raise BadOption(f"{option} must be OLD=NEW, such as 7=8, not {word!r}")
        pairs.append(Replacement(int(old), int(new)))
    if not pairs:
        raise BadOption(f"{option} must be OLD=NEW, such as 7=8")
    return tuple(pairs)


def parse_capacities(text: str, where: str) -> tuple[tuple[BrokerCapacity, ...], tuple[LogDirCapacity, ...]]:
    """Return the capacities in the text of a TOML file, in order; ``where`` names the file.

    Raises:
        BadOption: it is not TOML, or has an unknown key or size.
    """
    try:
        document = tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        raise BadOption(f"not TOML: {error}: {where}", hint=_HOW_TO_WRITE_CAPACITIES) from error
    for key in document:
        if key not in ("brokers", "log-dirs") or not isinstance(document[key], dict):
            raise BadOption(f"unknown key {key!r}: {where}", hint=_HOW_TO_WRITE_CAPACITIES)
    brokers = []
    for key, value in document.get("brokers", {}).items():
        if not key.isdecimal():
            raise BadOption(f"[brokers] {key}: not a broker id: {where}", hint=_HOW_TO_WRITE_CAPACITIES)
        brokers.append(BrokerCapacity(int(key), _capacity("brokers", key, value, where)))
    dirs = []
    for key, value in document.get("log-dirs", {}).items():
        broker, colon, path = key.partition(":")
        if not colon or not broker.isdecimal() or not path:
            raise BadOption(f"[log-dirs] {key}: must be BROKER:DIRECTORY: {where}", hint=_HOW_TO_WRITE_CAPACITIES)
        dirs.append(LogDirCapacity(int(broker), path, _capacity("log-dirs", key, value, where)))
    return (
        tuple(sorted(brokers, key=lambda capacity: capacity.broker)),
        tuple(sorted(dirs, key=lambda capacity: (capacity.broker, capacity.log_dir))),
    )


def _member(kind: type[Member], word: str, option: str) -> Member:
    if word not in list(kind):
        raise BadOption(f"{option} takes {', '.join(kind)}, not {word!r}")
    return kind(word)


def _capacity(section: str, key: str, value: object, where: str) -> int:
    if isinstance(value, int) and not isinstance(value, bool) and value >= 0:
        return value
    try:
        return parse_size(value if isinstance(value, str) else "")
    except ValueError as error:
        raise BadOption(f"[{section}] {key}: {error}: {where}", hint=_HOW_TO_WRITE_CAPACITIES) from error
