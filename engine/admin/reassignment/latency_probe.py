"""How fast brokers answer while a wave moves: small questions, one after the other, and the p99 of the answers.

The question is ListOffsets for the end of a partition. It goes through the same network threads, queue and handlers as
producers' and consumers' requests, and it changes nothing. Every broker answers it, ours and Apache's, and it needs
only DESCRIBE on the topic. The client measures the time, so the network counts.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Iterable
from dataclasses import dataclass, field

from engine.admin.cluster.connection import Cluster
from engine.admin.offsets.asking import ask_offsets
from engine.common.errors import KlammError
from engine.common.model import TopicPartition

SAMPLES_MIN = 100
"""With fewer answers from a broker, its p99 is unknown."""

_SAMPLES_MAX = 300
_PACE_S = 0.05
_RATE_MAX = 200.0
"""This many questions a second go to all brokers together."""

_PATIENCE_S = 2.0
"""A broker that takes longer is asked again next time."""

_LATEST = -1


@dataclass(slots=True)
class Latencies:
    """The latest answering times of one broker, in seconds. Pure."""

    seen: deque[float] = field(default_factory=lambda: deque(maxlen=_SAMPLES_MAX))

    def add(self, took_s: float, pace_s: float) -> None:
        """Take one answer into account, and the questions that were not asked because it took so long."""
        while took_s > 0:
            self.seen.append(took_s)
            took_s -= pace_s

    @property
    def p99_s(self) -> float | None:
        """The p99 (nearest rank), None if there are too few answers."""
        count = len(self.seen)
        return None if count < SAMPLES_MIN else sorted(self.seen)[-(-count * 99 // 100) - 1]


class LatencyProbe:
    """Measures brokers over connections of its own. Close it at the end."""

    def __init__(self, cluster: Cluster) -> None:
        self._own = Cluster(cluster.target, timeout_s=cluster.timeout_s)
        self._latencies: dict[int, Latencies] = {}

    async def measure(self, brokers: Iterable[int], partition: TopicPartition, seconds: float) -> None:
        """Ask these brokers again and again for this long. A broker that cannot be reached is left out."""
        asked = sorted(set(brokers))
        pace_s = max(_PACE_S, len(asked) / _RATE_MAX)
        ends_at = time.monotonic() + seconds
        await asyncio.gather(*(self._ask(broker, partition, pace_s, ends_at) for broker in asked))
        await asyncio.sleep(max(0.0, ends_at - time.monotonic()))

    def slowest(self) -> tuple[int, float] | None:
        """Return the broker with the largest p99, and that p99; None if none is known yet."""
        known = [(p99_s, broker) for broker, one in self._latencies.items() if (p99_s := one.p99_s) is not None]
        return None if not known else (max(known)[1], max(known)[0])

    def forget(self) -> None:
        """Start over: what was seen belongs to another throttle."""
        self._latencies.clear()

    async def close(self) -> None:
        await self._own.close()

    async def _ask(self, broker: int, partition: TopicPartition, pace_s: float, ends_at: float) -> None:
        try:
            wire = await self._own.wire()
            await wire.client_of(broker)
            while (began := time.monotonic()) < ends_at:
                try:
                    async with asyncio.timeout(_PATIENCE_S):
                        await ask_offsets(wire, broker, {partition: _LATEST})
                except TimeoutError:
                    # Answers come in the order of the questions: this connection would return the late one first.
                    await (await wire.client_of(broker)).close()
                took_s = time.monotonic() - began
                self._latencies.setdefault(broker, Latencies()).add(took_s, pace_s)
                await asyncio.sleep(max(0.0, min(pace_s - took_s, ends_at - time.monotonic())))
        except KlammError:
            # The gate checks whether a broker is dead.
            return
