"""Pauses Python's collector of cycles while very many values are made that live on.

A cluster of 50,000 partitions is half a million values without one cycle: looking through them again and again while
they are made takes as long as making them. Memory is freed by counting references all the while.
"""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collector_paused() -> Iterator[None]:
    """Let no cycles be collected within; nested uses end with the outermost. Hold no ``await`` within."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()


def leave_uncollected() -> None:
    """Take everything that is alive now out of the collector's sight; what is young is looked through first.

    For one who makes very many lasting values over many turns of an event loop: a collection that looks through all of
    them would hold the loop for hundreds of milliseconds.
    """
    gc.collect(0)
    gc.freeze()
