"""Follows the notices by which brokers report changes in ZooKeeper to each other: of access rules, and of tokens.

A notice says what changed, never how. So a missed or repeated notice does no harm.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from itertools import takewhile
from typing import Final, Generic, TypeVar

from engine.common.clock import Clock
from engine.kafka.zk.errors import NoNode, SessionLost, ZnodeFormatError
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.reads import children_or_empty
from engine.kafka.zk.watches import WatchEvent, WatchEventKind
from engine.runtime.supervisor import Supervisor

NOTIFICATION_AGE_MS_MAX: Final = 15 * 60 * 1000
"""Any broker removes older notices: the others have read them, or read everything at start."""

T = TypeVar("T")


class ChangeFollower(Generic[T]):
    """Refreshes what notices name.

    Args:
        folders: for each folder of notices, what reads a notice by its name and its data.
        refresh: reads one thing again.
        reload: reads all of them.
        subject: what they are, for the log.
    """

    def __init__(
        self,
        zk: KafkaZkClient,
        clock: Clock,
        folders: Mapping[str, Callable[[str, bytes], T]],
        refresh: Callable[[T], Awaitable[None]],
        reload: Callable[[], Awaitable[None]],
        *,
        subject: str,
        log: logging.Logger,
    ) -> None:
        self._zk, self._clock, self._folders = zk, clock, folders
        self._refresh, self._reload = refresh, reload
        self._subject, self._log = subject, log
        self._seen: dict[str, dict[str, int]] = {folder: {} for folder in folders}
        """When a folder's notices were made, the oldest first: their numbers rise."""
        self._wake = asyncio.Event()
        self._must_reload = False
        self._supervisor = Supervisor(subject)

    async def start(self) -> None:
        """Watch the folders, which exist, then read everything.

        Raises:
            CoordinationError: it cannot be read.
        """
        for folder in self._folders:
            self._zk.client.watch_children(folder, self._on_event)
        await self._take_notices(apply=False)
        await self._reload()
        self._supervisor.start(self._follow(), "follow")

    async def stop(self) -> None:
        """Stop following changes."""
        for folder in self._folders:
            self._zk.client.unwatch(folder, self._on_event)
        await self._supervisor.stop()

    def _on_event(self, event: WatchEvent) -> None:
        # Between two sessions notices may have come and gone.
        self._must_reload |= event.kind is WatchEventKind.NEW_SESSION
        self._wake.set()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            must_reload, self._must_reload = self._must_reload, False
            try:
                await self._take_notices(apply=not must_reload)
                if must_reload:
                    await self._reload()
                await self._purge()
            except SessionLost as error:
                self._log.info("The next session will read changes of %s again: %s", self._subject, error)
                self._must_reload = True
            except Exception:
                # Whatever goes wrong with one change, the next one still arrives, and then this reads what it missed.
                self._log.exception("Cannot take a change of %s", self._subject)
                self._must_reload = True

    async def _take_notices(self, *, apply: bool) -> None:
        for folder, decode in self._folders.items():
            names, seen = await children_or_empty(self._zk.client, folder), self._seen[folder]
            # There may be those of the last 15 minutes, each time.
            new = sorted(name for name in names if name not in seen)
            if len(names) - len(new) < len(seen):
                for name in seen.keys() - set(names):
                    del seen[name]
            for name in new:
                try:
                    data, stat = await self._zk.client.get(f"{folder}/{name}")
                    seen[name] = stat.ctime_ms
                    if apply:
                        await self._refresh(decode(name, data))
                except NoNode:
                    continue
                except ZnodeFormatError as error:
                    self._log.error("A notification about %s is malformed: %s", self._subject, error)
                    self._must_reload = True

    async def _purge(self) -> None:
        """Remove notices that every broker saw long ago."""
        oldest_ms = self._clock.now_ms() - NOTIFICATION_AGE_MS_MAX
        for folder, seen in self._seen.items():
            for name in [name for name, _ in takewhile(lambda made: made[1] < oldest_ms, seen.items())]:
                try:
                    await self._zk.client.delete(f"{folder}/{name}")
                except NoNode:
                    self._log.debug("Another broker removed %s/%s first", folder, name)
                del seen[name]
