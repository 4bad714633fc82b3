"""For very many lasting values: pauses Python's cycle collector while they are made, and shares equal ones.

A cluster of 50,000 partitions is half a million values without a single cycle: scanning them repeatedly while they are
made takes as long as making them. Reference counting still frees memory in the pauses.
"""

from __future__ import annotations

import gc
from collections.abc import Hashable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import TypeVar, cast

T = TypeVar("T", bound=Hashable)


@contextmanager
def collector_paused() -> Iterator[None]:
    """Collect no cycles inside; nested uses end with the outermost. Do not ``await`` inside."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def leave_uncollected() -> None:
    """Hide everything that is alive now from the collector, after it has scanned the young objects.

    For code that makes very many lasting values over many turns of an event loop: a collection that scans all of them
    would block the loop for hundreds of milliseconds.
    """
    gc.collect(0)
    gc.freeze()


_putting_off = 0
_PUT_OFF = 100


def put_off_full_collections() -> None:
    """Collect young objects as usual, but scan all of them only after a hundred times as many new ones.

    For what makes very many values that are freed together: a scan in between would hold the event loop for hundreds
    of milliseconds, and find nothing. Whoever calls this calls ``allow_full_collections`` once they are freed; the last
    of them counts. Only for the thread of the event loop.
    """
    global _putting_off
    _putting_off += 1
    if _putting_off == 1:
        young, old, full = gc.get_threshold()
        gc.set_threshold(young, old, full * _PUT_OFF)


def allow_full_collections() -> None:
    """Undo one ``put_off_full_collections``."""
    global _putting_off
    _putting_off -= 1
    if not _putting_off:
        young, old, full = gc.get_threshold()
        gc.set_threshold(young, old, full // _PUT_OFF)


@contextmanager
def full_collections_put_off() -> Iterator[None]:
    """Put off full collections during a start that makes many lasting values and ends with ``leave_uncollected``."""
    put_off_full_collections()
    try:
        yield
    finally:
        allow_full_collections()


def shared(value: T) -> T:
    """Return the object that stands for this value; it must be immutable."""
    return cast("T", _shared(value))


@lru_cache(maxsize=4096, typed=True)
def _shared(value: Hashable) -> Hashable:
    return value
