"""Runs slow work that releases the GIL (fsync, large reads and writes, renames) in a few threads beside the loop.

Python loops over records do not belong here: a busy Python thread costs every request milliseconds.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Offloader:
    """A small pool of threads with a limited life."""

    def __init__(self, threads: int = 4) -> None:
        self._pool = ThreadPoolExecutor(threads, thread_name_prefix="klamm-offload")

    async def run(self, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
        """Run ``function`` in a thread and return its result; exceptions come back as they are."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: function(*args, **kwargs))

    def close(self) -> None:
        """Wait for running work, then end the threads."""
        self._pool.shutdown(wait=True)
