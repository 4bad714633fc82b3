"""Which partitions a person wants to see: Kafka's filters, as pure predicates of a partition.

Several filters together: one that matches is enough, as in kafka-topics. Source: TopicCommand of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable, Set
from enum import StrEnum

from engine.common.snapshot import PartitionSnapshot


class PartitionFilter(StrEnum):
    """The filters of kafka-topics --describe."""

    UNDER_REPLICATED = "under-replicated"
    UNAVAILABLE = "unavailable"
    UNDER_MIN_ISR = "under-min-isr"
    AT_MIN_ISR = "at-min-isr"


MIN_ISR_FILTERS = frozenset({PartitionFilter.UNDER_MIN_ISR, PartitionFilter.AT_MIN_ISR})
"""Those that need min.insync.replicas."""


def is_unavailable(partition: PartitionSnapshot, live_brokers: Set[int]) -> bool:
    """Nobody leads it, or the leader is not alive."""
    return partition.leader not in live_brokers


def is_under_min_isr(partition: PartitionSnapshot, min_isr: int, live_brokers: Set[int]) -> bool:
    """A producer with acks=all is refused: there is no leader, or too few replicas are in sync."""
    return is_unavailable(partition, live_brokers) or len(partition.isr) < min_isr


def is_at_min_isr(partition: PartitionSnapshot, min_isr: int) -> bool:
    """One replica less and acks=all is refused; partitions without a leader are counted too, as Kafka does."""
    return len(partition.isr) == min_isr


def matches(
    partition: PartitionSnapshot, filters: Iterable[PartitionFilter], *, min_isr: int, live_brokers: Set[int]
) -> bool:
    """Whether one of the filters matches; without a filter every partition does."""
    wanted = list(filters)
    return not wanted or any(_matches(partition, one, min_isr, live_brokers) for one in wanted)


def _matches(partition: PartitionSnapshot, wanted: PartitionFilter, min_isr: int, live_brokers: Set[int]) -> bool:
    match wanted:
        case PartitionFilter.UNDER_REPLICATED:
            return partition.is_under_replicated
        case PartitionFilter.UNAVAILABLE:
            return is_unavailable(partition, live_brokers)
        case PartitionFilter.UNDER_MIN_ISR:
            return is_under_min_isr(partition, min_isr, live_brokers)
        case PartitionFilter.AT_MIN_ISR:
            return is_at_min_isr(partition, min_isr)
