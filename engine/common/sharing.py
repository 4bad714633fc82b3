"""One object for equal values that a cluster has by the ten thousand: who has a replica, who is in sync. Pure."""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache
from typing import TypeVar, cast

T = TypeVar("T", bound=Hashable)


def shared(value: T) -> T:
    """Return the object that stands for this value; it must be immutable."""
    return cast("T", _shared(value))


@lru_cache(maxsize=4096, typed=True)
def _shared(value: Hashable) -> Hashable:
    return value
