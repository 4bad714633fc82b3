"""Pauses Python's cycle collector while very many lasting values are made.

A cluster of 50,000 partitions is half a million values without one cycle: scanning them repeatedly while they are made
takes as long as making them. Reference counting still frees memory meanwhile.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


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


@contextmanager
def full_collections_put_off() -> Iterator[None]:
    """Inside, collect young objects as usual, and scan all of them only after a hundred times as many new ones.

    For a start that makes very many lasting values over many turns of an event loop, and ends with
    ``leave_uncollected``.
    """
    thresholds = gc.get_threshold()
    gc.set_threshold(*thresholds[:2], 100 * thresholds[2])
    try:
        yield
    finally:
        gc.set_threshold(*thresholds)
