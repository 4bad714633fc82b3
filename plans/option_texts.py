"""Reads what people write for a plan's options: lists of brokers, aims, sizes, the file of ``--capacity``. Pure.

``option`` names the option or the field in the message about a wrong text.
"""

from __future__ import annotations

import tomllib
from enum import StrEnum
from typing import TypeVar

from engine.common.quantities import parse_size
from plans.errors import BadOption
from plans.options import Aim, BrokerCapacity, LogDirCapacity, Minimise, Replacement

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
