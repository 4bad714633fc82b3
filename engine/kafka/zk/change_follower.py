"""Follows the notifications by which brokers tell each other what changed in ZooKeeper: settings, access rules, tokens.

A notification says what changed, never how. So a missed or repeated one does no harm.
Source: ZkNodeChangeNotificationListener of Kafka 3.9, whose log lines these are.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping, Sequence
from itertools import takewhile
from typing import Final, Generic, TypeVar

from engine.common.clock import Clock
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NoNode, SessionLost, ZnodeFormatError, ZooKeeperError
from engine.kafka.zk.reads import children_or_empty
from engine.kafka.zk.watches import WatchEvent, WatchEventKind
from engine.runtime.supervisor import Supervisor

NOTIFICATION_AGE_MS_MAX: Final = 15 * 60 * 1000
"""Any broker removes older notifications: the others have read them, or read everything at start."""

_log = logging.getLogger("kafka.common.ZkNodeChangeNotificationListener")

T = TypeVar("T")


class ChangeFollower(Generic[T]):
    """Refreshes what notifications name.

    Args:
        folders: for each folder of notifications, what reads a notification by its name and its data.
        refresh: reads these things again, each named once.
        reload: reads all of them.
        subject: what they are, for the log.
    """

    def __init__(
        self,
        client: ZkClient,
        clock: Clock,
        folders: Mapping[str, Callable[[str, bytes], T]],
        refresh: Callable[[Sequence[T]], Awaitable[None]],
        reload: Callable[[], Awaitable[None]],
        *,
        subject: str,
    ) -> None:
        self._client, self._clock, self._folders = client, clock, folders
        self._refresh, self._reload = refresh, reload
        self._subject = subject
        self._seen: dict[str, dict[str, int]] = {folder: {} for folder in folders}
        """When a folder's notifications were made, the oldest first: their numbers rise."""
        self._wake = asyncio.Event()
        self._must_reload = False
        self._supervisor = Supervisor(subject)

    async def start(self) -> None:
        """Watch the folders, then read everything.

        Raises:
            CoordinationError: it cannot be read.
        """
        for folder in self._folders:
            self._client.watch_children(folder, self._on_event)
        await self._take_notifications(apply=False)
        await self._reload()
        self._supervisor.start(self._follow(), "follow")

    async def stop(self) -> None:
        for folder in self._folders:
            self._client.unwatch(folder, self._on_event)
        await self._supervisor.stop()

    def _on_event(self, event: WatchEvent) -> None:
        # Between two sessions notifications may have come and gone.
        self._must_reload |= event.kind is WatchEventKind.NEW_SESSION
        self._wake.set()

    async def _follow(self) -> None:
        while True:
            await self._wake.wait()
            self._wake.clear()
            must_reload, self._must_reload = self._must_reload, False
            try:
                await self._take_notifications(apply=not must_reload)
                if must_reload:
                    await self._reload()
                await self._purge()
            except SessionLost as error:
                _log.info("The next session will read changes of %s again: %s", self._subject, error)
                self._must_reload = True
            except Exception:
                # Whatever goes wrong with one change, the next one still arrives, and then this reads what it missed.
                paths = ", ".join(self._folders)
                _log.exception("Error while processing notification change for path = %s", paths)
                self._must_reload = True

    async def _take_notifications(self, *, apply: bool) -> None:
        """Read new notifications; with ``apply``, refresh what they name."""
        for folder, decode in self._folders.items():
            names, seen = await children_or_empty(self._client, folder), self._seen[folder]
            # There may be those of the last 15 minutes, each time.
            new = sorted(name for name in names if name not in seen)
            if len(names) - len(new) < len(seen):
                for name in seen.keys() - set(names):
                    del seen[name]
            if not new:
                continue
            if apply:
                _log.info("Processing notification(s) to %s", folder)
            things: dict[T, None] = {}
            answers = await self._client.get_many([f"{folder}/{name}" for name in new])
            for name, answer in zip(new, answers, strict=True):
                if isinstance(answer, SessionLost):
                    raise answer
                if isinstance(answer, ZooKeeperError):
                    _log.warning("read null data from %s: %s", name, answer)
                    continue
                data, stat = answer
                seen[name] = stat.ctime_ms
                try:
                    things[decode(name, data)] = None
                except ZnodeFormatError as error:
                    _log.error("error processing change notification %s: %s", name, error)
                    self._must_reload |= apply
            if apply and things:
                await self._refresh(list(things))

    async def _purge(self) -> None:
        """Remove notifications that every broker saw long ago."""
        oldest_ms = self._clock.now_ms() - NOTIFICATION_AGE_MS_MAX
        for folder, seen in self._seen.items():
            for name in [name for name, _ in takewhile(lambda made: made[1] < oldest_ms, seen.items())]:
                try:
                    await self._client.delete(f"{folder}/{name}")
                except NoNode:
                    _log.debug("Another broker removed %s/%s first", folder, name)
                del seen[name]
