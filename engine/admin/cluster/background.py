"""Blocking work outside the event loop. The end of the program does not wait for it."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from collections.abc import Callable
from typing import TypeVar, cast

T = TypeVar("T")


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
