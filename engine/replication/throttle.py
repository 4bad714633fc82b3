"""Replication quotas (KIP-73): how fast throttled replicas may copy, on the leader's and on the follower's side.

Only replicas outside the ISR are ever held back; whoever reads or serves decides that. Source: ReplicationQuotaManager
of Kafka 3.9.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine.common.clock import Clock
from engine.common.model import TopicPartition

UNLIMITED: Final = 2**63 - 1

ALL_REPLICAS: Final = frozenset({-1})
"""What ``*`` in a ``…replication.throttled.replicas`` setting means."""


class ReplicationQuota:
    """Bytes per second over a sliding window, for the partitions that are throttled.

    The rate is that of all samples of the window over the time they cover, but never over less than all windows but
    one, so that a burst at the start does not count as a high rate for ever nor as a low one at once.
    """

    def __init__(self, clock: Clock, *, window_count: int = 11, window_ms: int = 1000) -> None:
        self.rate_bytes_max = UNLIMITED
        self._clock = clock
        self._window_count = window_count
        self._window_ms = window_ms
        self._samples: dict[int, int] = {}
        """Bytes by window number."""
        self._throttled: dict[str, frozenset[int]] = {}

    @property
    def has_throttled(self) -> bool:
        """Whether any partition is throttled at all: cheap, for hot paths."""
        return bool(self._throttled)

    def throttle(self, topic: str, partitions: Iterable[int]) -> None:
        """Throttle these partitions of the topic; ``ALL_REPLICAS`` means every one, an empty set none."""
        wanted = frozenset(partitions)
        if wanted:
            self._throttled[topic] = wanted
        else:
            self._throttled.pop(topic, None)

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        partitions = self._throttled.get(topic_partition[0])
        return partitions is not None and (partitions is ALL_REPLICAS or topic_partition[1] in partitions)

    def record(self, size_bytes: int) -> None:
        """Count bytes that were copied for throttled partitions."""
        window = self._clock.monotonic_ms() // self._window_ms
        self._samples[window] = self._samples.get(window, 0) + size_bytes
        self._forget_before(window - self._window_count + 1)

    @property
    def is_exceeded(self) -> bool:
        return self.rate_bytes_max != UNLIMITED and self.rate_bytes() > self.rate_bytes_max

    def rate_bytes(self) -> float:
        """Return the present rate in bytes per second."""
        now_ms = self._clock.monotonic_ms()
        self._forget_before(now_ms // self._window_ms - self._window_count + 1)
        if not self._samples:
            return 0.0
        covered_ms = now_ms - min(self._samples) * self._window_ms
        return sum(self._samples.values()) * 1000 / max(covered_ms, (self._window_count - 1) * self._window_ms)

    def _forget_before(self, window: int) -> None:
        for old in [w for w in self._samples if w < window]:
            del self._samples[old]
