"""Replication quotas (KIP-73): how fast throttled replicas may copy, on the leader's and on the follower's side.

Only replicas outside the ISR are ever held back; the code that reads or serves decides that. Source:
ReplicationQuotaManager of Kafka 3.9.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from typing import Final

from engine.common.clock import Clock
from engine.common.model import TopicPartition

UNLIMITED: Final = 2**63 - 1

ALL_REPLICAS: Final = frozenset({-1})
"""The meaning of ``*`` in a ``…replication.throttled.replicas`` setting."""


class ReplicationQuota:
    """Bytes per second over a sliding window, for the partitions that are throttled.

    A sample covers ``window_ms``, and ``window_count`` samples are kept. The rate is their sum over the time since the
    oldest of them began, but never over less than one window (Kafka's SimpleRate).
    """

    def __init__(self, clock: Clock, *, window_count: int = 11, window_ms: int = 1000) -> None:
        self.rate_bytes_max = UNLIMITED
        self._clock = clock
        self._window_count = window_count
        self._window_ms = window_ms
        self._samples: deque[list[int]] = deque(maxlen=window_count)
        """[when it began, bytes], oldest first."""
        self.has_recorded = False
        """Whether anything was ever counted."""
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
        self.has_recorded = True
        now_ms = self._clock.monotonic_ms()
        if self._samples and now_ms - self._samples[-1][0] < self._window_ms:
            self._samples[-1][1] += size_bytes
        else:
            self._samples.append([now_ms, size_bytes])

    @property
    def is_exceeded(self) -> bool:
        return self.rate_bytes_max != UNLIMITED and self.rate_bytes() > self.rate_bytes_max

    def rate_bytes(self) -> float:
        """Return the current rate in bytes per second."""
        now_ms = self._clock.monotonic_ms()
        while self._samples and now_ms - self._samples[0][0] >= self._window_count * self._window_ms:
            self._samples.popleft()
        if not self._samples:
            return 0.0
        covered_ms = max(now_ms - self._samples[0][0], self._window_ms)
        return sum(size_bytes for _, size_bytes in self._samples) * 1000 / covered_ms
