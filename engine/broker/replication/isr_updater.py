"""The seam between a leader that wants another ISR and the code that carries it out.

Two implementations: ``alter_partition`` asks the controller (inter-broker protocol 2.7-IV2 and later). Earlier,
``ZkIsrUpdater`` has the leader write the partition's state znode itself, and a notification tells the controller. The
write is conditional on the znode's version, so a deposed leader cannot undo its successor's work. Notifications are
gathered, because each costs the controller a read and an UpdateMetadata request. Source: ZkAlterPartitionManager of
Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from dataclasses import dataclass, replace
from typing import Protocol

from engine.common.clock import Clock
from engine.common.errors import CoordinationError, ErrorCode
from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicPartition
from engine.runtime.supervisor import Supervisor

logger = logging.getLogger("kafka.server.ZkAlterPartitionManager")

CHECK_INTERVAL_MS = 2500
LINGER_MS = 5000
"""The time without another change before a notification."""

DELAY_MS_MAX = 60_000
"""How long a change may wait for its notification while others follow."""

RETRY_PAUSE_MS = 50

WriteState = Callable[[TopicPartition, LeaderIsrAndControllerEpoch], Awaitable[int | None]]
"""Writes the state znode if it still has version ``state.leader_and_isr.partition_epoch``.

Returns its new version; None if the version was different. Raises CoordinationError.
"""

PropagateChanges = Callable[[Iterable[TopicPartition]], Awaitable[None]]
"""Creates one notification that names these partitions. Raises CoordinationError."""


@dataclass(frozen=True, slots=True)
class IsrUpdate:
    """A requested change. ``leader_and_isr.partition_epoch`` is the one it is based on; ``topic_id`` may be zero."""

    topic_partition: TopicPartition
    topic_id: bytes
    leader_and_isr: LeaderAndIsr
    controller_epoch: int


IsrOutcome = LeaderAndIsr | ErrorCode
"""The outcome: the partition's state with its new epoch, or why there is none."""


class IsrUpdater(Protocol):
    """Carries ISR changes out, one at a time per partition."""

    def submit(self, update: IsrUpdate, on_done: Callable[[IsrOutcome], None], *, is_retry: bool = False) -> None:
        """Begin the change; the event loop calls ``on_done`` once, later, never within this call.

        ``is_retry`` says that the same change failed a moment ago, so that a pause is due.
        """


class ZkIsrUpdater:
    """An ``IsrUpdater``; ``start`` starts the periodic notifications, on the given supervisor."""

    def __init__(
        self, write_state: WriteState, propagate: PropagateChanges, clock: Clock, supervisor: Supervisor
    ) -> None:
        self._write_state = write_state
        self._propagate = propagate
        self._clock = clock
        self._supervisor = supervisor
        self._untold: set[TopicPartition] = set()
        self._last_change_ms = clock.monotonic_ms()
        self._last_told_ms = clock.monotonic_ms()

    def start(self) -> None:
        self._supervisor.every(CHECK_INTERVAL_MS, self.tell_if_due, "isr-change-propagation")

    def submit(self, update: IsrUpdate, on_done: Callable[[IsrOutcome], None], *, is_retry: bool = False) -> None:
        """Write the state znode; a failed condition gives INVALID_UPDATE_VERSION."""
        self._supervisor.start(self._write(update, on_done, is_retry), f"isr-{update.topic_partition}")

    async def tell_if_due(self) -> None:
        """Create the notification if changes are pending, and it has been quiet or they have waited long enough."""
        now_ms = self._clock.monotonic_ms()
        is_quiet = self._last_change_ms + LINGER_MS < now_ms
        is_late = self._last_told_ms + DELAY_MS_MAX < now_ms
        if not self._untold or not (is_quiet or is_late):
            return
        telling, self._untold = self._untold, set()
        try:
            await self._propagate(sorted(telling))
        except CoordinationError:
            self._untold |= telling
            raise
        self._last_told_ms = now_ms

    async def _write(self, update: IsrUpdate, on_done: Callable[[IsrOutcome], None], is_retry: bool) -> None:
        if is_retry:
            await asyncio.sleep(RETRY_PAUSE_MS / 1000)
        state = LeaderIsrAndControllerEpoch(update.leader_and_isr, update.controller_epoch)
        try:
            new_version = await self._write_state(update.topic_partition, state)
        except CoordinationError as error:
            logger.warning("The ISR of %s could not be written to ZooKeeper: %s", update.topic_partition, error)
            on_done(ErrorCode.UNKNOWN_SERVER_ERROR)
            return
        if new_version is None:
            on_done(ErrorCode.INVALID_UPDATE_VERSION)
            return
        self._untold.add(update.topic_partition)
        self._last_change_ms = self._clock.monotonic_ms()
        on_done(replace(update.leader_and_isr, partition_epoch=new_version))
