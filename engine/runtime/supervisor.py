"""Tasks with a parent and a name. A task that fails is logged and ends alone; its siblings continue."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any

logger = logging.getLogger(__name__)


class Supervisor:
    """Owner of the background tasks of one part of the broker."""

    def __init__(self, name: str) -> None:
        self.name = name
        self._tasks: set[asyncio.Task[Any]] = set()

    def start(self, coroutine: Coroutine[Any, Any, Any], name: str) -> asyncio.Task[Any]:
        """Run ``coroutine`` as a task that this supervisor owns."""
        task = asyncio.get_running_loop().create_task(coroutine, name=f"{self.name}:{name}")
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def every(self, interval_ms: int, work: Callable[[], Awaitable[None] | None], name: str) -> asyncio.Task[Any]:
        """Run ``work`` each time ``interval_ms`` after its last run ended; log failing runs."""
        return self.start(self._repeat(interval_ms, work, name), name)

    async def stop(self) -> None:
        """Cancel every task and wait until all have ended."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    async def _repeat(self, interval_ms: int, work: Callable[[], Awaitable[None] | None], name: str) -> None:
        while True:
            await asyncio.sleep(interval_ms / 1000)
            try:
                pending = work()
                if pending is not None:
                    await pending
            except Exception:
                logger.exception("A periodic task failed; it runs again at its next turn task=%s:%s", self.name, name)

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and task.exception() is not None:
            logger.error("A task failed task=%s", task.get_name(), exc_info=task.exception())
