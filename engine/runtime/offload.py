"""Runs work in threads beside the loop: slow work that releases the GIL in a few, long Python work in a single one."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


_PYTHON_WORK = ThreadPoolExecutor(1, thread_name_prefix="klamm-python-work")


async def beside_loop(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run long Python work, such as encoding a large request, in the one thread that all such work shares.

    A running Python thread hands the GIL on only after milliseconds. With several of them the loop waits for each in
    turn, and the work is done no sooner.
    """
    return await asyncio.get_running_loop().run_in_executor(_PYTHON_WORK, lambda: function(*args, **kwargs))


class Offloader:
    """A small pool of threads with a limited life, for work that releases the GIL: fsync, large reads, renames.

    Python loops over records do not belong here: a busy Python thread costs every request milliseconds.
    """

    def __init__(self, threads: int = 4) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="klamm-offload")

    @property
    def waiting(self) -> int:
        """Work that no thread has begun."""
        return self._pool._work_queue.qsize()

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function`` in a thread and return its result; exceptions come back as they are."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Wait for running work, then end the threads."""
        self._pool.shutdown(wait=True)
