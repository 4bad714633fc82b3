"""Tests that are coroutines: each runs in its own event loop."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import wraps
from typing import ParamSpec

P = ParamSpec("P")


def in_event_loop(test: Callable[P, Awaitable[None]]) -> Callable[P, None]:
    """Run a coroutine as a test. Tasks that it leaves behind end with it."""

    @wraps(test)
    def run(*args: P.args, **kwargs: P.kwargs) -> None:
        async def awaiting() -> None:
            await test(*args, **kwargs)

        asyncio.run(awaiting())

    return run
