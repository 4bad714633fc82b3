"""Reads what people type for a plan's options: lists of brokers, aims, sizes. Pure.

``what`` names the option or the field in the message about a wrong text.
"""

from __future__ import annotations

from enum import StrEnum
from typing import TypeVar

from engine.common.quantities import parse_size
from plans.errors import BadOption
from plans.options import Aim, Minimise, Replacement

Member = TypeVar("Member", bound=StrEnum)


def words_of(text: str) -> list[str]:
    """Return the words between commas."""
    return [word.strip() for word in text.split(",") if word.strip()]


def aims(text: str, what: str) -> tuple[Aim, ...]:
    """Return the aims that ``replicas,leaders`` names."""
    return tuple(_member(Aim, word, what) for word in words_of(text))


def minimise(text: str, what: str) -> Minimise:
    """Return which figure comes first."""
    return _member(Minimise, text, what)


def size(text: str, what: str) -> int:
    """Return the bytes of ``200GB``."""
    try:
        return parse_size(text)
    except ValueError as error:
        raise BadOption(f"{what}: {error}") from error


def broker_ids(text: str, what: str) -> tuple[int, ...]:
    """Return the broker ids of ``1,2,3``, each once, in order."""
    try:
        ids = tuple(sorted({int(word) for word in words_of(text)}))
    except ValueError:
        raise BadOption(f"{what}: needs broker ids such as 1,2,3, not {text!r}") from None
    if not ids:
        raise BadOption(f"{what} needs at least one broker id")
    return ids


def replacements(text: str, what: str) -> tuple[Replacement, ...]:
    """Return the pairs of ``7=8,9=10``: an old broker and the one that takes its place."""
    pairs = []
    for word in words_of(text):
        old, equals, new = word.partition("=")
        if not equals or not old.strip().isdecimal() or not new.strip().isdecimal():
            raise BadOption(f"{what} must be OLD=NEW, such as 7=8, not {word!r}")
        pairs.append(Replacement(int(old), int(new)))
    if not pairs:
        raise BadOption(f"{what} must be OLD=NEW, such as 7=8")
    return tuple(pairs)


def _member(kind: type[Member], word: str, what: str) -> Member:
    if word not in list(kind):
        raise BadOption(f"{what} takes {', '.join(kind)}, not {word!r}")
    return kind(word)
