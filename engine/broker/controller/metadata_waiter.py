"""Waits until a broker's metadata shows a change: new leaders, new topics, deleted topics."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.broker.replication.metadata_cache import MetadataCache


class MetadataWaiter:
    """Checks conditions after each UpdateMetadata request; costs nothing while no caller waits."""

    def __init__(self, metadata_cache: MetadataCache) -> None:
        self._metadata_cache = metadata_cache
        self._waiting: dict[asyncio.Future[None], Callable[[], bool]] = {}

    def __len__(self) -> int:
        """Return how many callers wait."""
        return len(self._waiting)

    async def wait(self, is_seen: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until ``is_seen``; False if that took longer than ``timeout_ms``."""
        if is_seen():
            return True
        if timeout_ms <= 0:
            return False
        future: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        if not self._waiting:
            self._metadata_cache.update_listeners.append(self._updated)
        self._waiting[future] = is_seen
        try:
            async with asyncio.timeout(timeout_ms / 1000):
                await future
        except TimeoutError:
            return is_seen()
        finally:
            del self._waiting[future]
            if not self._waiting:
                self._metadata_cache.update_listeners.remove(self._updated)
        return True

    def _updated(self) -> None:
        for future, is_seen in self._waiting.items():
            if not future.done() and is_seen():
                future.set_result(None)
