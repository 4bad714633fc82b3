"""What all partitions of a broker share, so that each of them needs one reference."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Hashable
from dataclasses import dataclass, field

from engine.broker.metrics.topics import BrokerTopics
from engine.broker.replication.isr_updater import IsrUpdater
from engine.broker.replication.state_change_log import StateChangeLogger
from engine.common.clock import Clock
from engine.runtime.purgatory import Purgatory


@dataclass(slots=True)
class IsrStatistics:
    """Counters of ISR changes since the start, of all partitions."""

    expands_total: int = 0
    shrinks_total: int = 0
    failed_updates_total: int = 0


@dataclass(frozen=True, slots=True)
class PartitionEnvironment:
    """What all partitions of a broker share."""

    broker_id: int
    clock: Clock
    replica_lag_time_max_ms: int
    is_alive: Callable[[int], bool]
    isr_updater: IsrUpdater
    wakeups: Wakeups
    state_change_log: StateChangeLogger
    statistics: IsrStatistics = field(default_factory=IsrStatistics)
    topics: BrokerTopics = field(default_factory=BrokerTopics)


class Wakeups:
    """Collects partitions that changed and lets the purgatories check them in the loop's next turn.

    Many appends and follower fetches of one turn change the same partition; a waiting request checks it only once.
    """

    def __init__(self, *purgatories: Purgatory[Hashable]) -> None:
        self._purgatories = purgatories
        self._watched = [purgatory.watched_keys for purgatory in purgatories]
        self._marked: dict[Hashable, None] = {}
        self._loop = asyncio.get_running_loop()

    def mark(self, key: Hashable) -> None:
        """Note that a partition, or one of a session, has changed (``Partition.changed``). Cheap if nothing waits."""
        # A key's hash costs more than all the rest, and most purgatories are empty.
        if self._marked and key in self._marked:
            return
        for watched in self._watched:
            if watched and key in watched:
                if not self._marked:
                    self._loop.call_soon(self.flush)
                self._marked[key] = None
                return

    def flush(self) -> None:
        """Check every marked partition now. Partitions marked during the check wait for the next turn."""
        marked, self._marked = self._marked, {}
        for purgatory in self._purgatories:
            purgatory.check_and_complete(marked)
