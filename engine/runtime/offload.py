"""Runs work in threads beside the loop.

Slow work that releases the GIL shares a few threads, long Python work a single one. Work that may hang has its own
thread, for which the program does not wait at its end.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import ParamSpec, TypeVar, cast

P = ParamSpec("P")
T = TypeVar("T")


_PYTHON_WORK = ThreadPoolExecutor(1, thread_name_prefix="klamm-python-work")


def in_daemon_thread(function: Callable[[], T], name: str) -> asyncio.Future[T]:
    """Run ``function`` in a thread that the end of the program does not wait for: a file system may hang forever.

    The future gets its result or exception.
    """
    loop = asyncio.get_running_loop()
    outcome: asyncio.Future[T] = loop.create_future()
    # A caller that gave up waiting does not need the error.
    outcome.add_done_callback(lambda future: future.cancelled() or future.exception())

    def tell(result: T | None, error: Exception | None) -> None:
        if outcome.done():
            return
        if error is not None:
            outcome.set_exception(error)
        else:
            outcome.set_result(cast("T", result))

    def run() -> None:
        result: T | None = None
        error: Exception | None = None
        try:
            result = function()
        except Exception as failure:
            error = failure
        with contextlib.suppress(RuntimeError):  # the loop is closed
            loop.call_soon_threadsafe(tell, result, error)

    threading.Thread(target=run, name=name, daemon=True).start()
    return outcome


async def beside_loop(function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run long Python work, such as encoding a large request, in the one thread that all such work shares.

    A running Python thread hands the GIL on only after milliseconds. With several of them the loop waits for each in
    turn, and the work is done no sooner.
    """
    return await asyncio.get_running_loop().run_in_executor(_PYTHON_WORK, lambda: function(*args, **kwargs))


MANY = 1_000
"""Python work on more things than these takes milliseconds."""


async def beside_loop_if_many(count: int, function: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs) -> T:
    """Run Python work on this many things: at once if they are few, else beside the loop."""
    return await beside_loop(function, *args, **kwargs) if count > MANY else function(*args, **kwargs)


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
