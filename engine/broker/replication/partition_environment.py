"""What all partitions of a broker share, so that each of them needs one reference."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from engine.broker.metrics.topics import BrokerTopics
from engine.broker.replication.isr_updater import IsrUpdater
from engine.broker.replication.state_change_log import StateChangeLogger
from engine.broker.replication.wakeups import Wakeups
from engine.common.clock import Clock


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
