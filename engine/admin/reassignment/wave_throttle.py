"""The throttle of waves while they are carried out: set before a wave starts, adapted while it copies, removed after.

``adaptive_throttle`` decides how fast a wave may copy; ``throttles`` turns that into settings.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Callable, Iterable, Sequence, Set
from dataclasses import dataclass, field

from engine.admin.cluster.connection import Cluster
from engine.admin.offsets.listing import ask_offsets
from engine.admin.reassignment.access import read_partitions, reassignment_reader
from engine.admin.reassignment.adaptive_throttle import AdaptiveThrottle, ThrottleRange
from engine.admin.reassignment.journal import Journal
from engine.admin.reassignment.moves import flows_of
from engine.admin.reassignment.throttle_settings import Throttle, ThrottleSettings, is_marked
from engine.admin.reassignment.throttles import (
    clear_throttles,
    plan_throttle,
    release_partitions,
    renew_throttle,
    set_throttle,
)
from engine.admin.reassignment.waves import WaveMove
from engine.admin.topics.access import topic_reader
from engine.common.errors import KlammError
from engine.common.listing import first_few
from engine.common.model import TopicPartition
from engine.common.quantities import rate_text

_NAMED_MAX = 5


class WaveThrottle:
    """The throttle of one execution. Without limits nothing is set. Close it at the end."""

    def __init__(
        self,
        cluster: Cluster,
        moves: Sequence[WaveMove],
        limits: ThrottleRange | None,
        journal: Journal,
        say: Callable[[str], None],
    ) -> None:
        self.rate: int | None = None
        """The present rate in bytes a second; None if klamm has set none."""
        self._cluster = cluster
        self._moves = moves
        self._adaptive = None if limits is None else AdaptiveThrottle(limits)
        self._p99_limit_s = None if limits is None else limits.p99_limit_s
        self._probe = None if self._p99_limit_s is None else LatencyProbe(cluster)
        self._journal = journal
        self._say = say
        self._set: ThrottleSettings | None = None
        self._given: set[int] = set()
        """The brokers that have a rate, dead ones too: they still have it when they come back."""
        self._released: set[TopicPartition] = set()
        """Partitions that have arrived, and are off their topics' lists."""
        self._told_at_floor = False

    @property
    def is_wanted(self) -> bool:
        return self._adaptive is not None

    def follow(self, limits: ThrottleRange) -> None:
        """Use other limits from the next setting on; the p99 limit named at first still counts."""
        self._adaptive = AdaptiveThrottle(limits)

    @property
    def p99_s(self) -> float | None:
        """The largest p99 of the brokers that a wave involves, None if it is not measured or not known yet."""
        slowest = None if self._probe is None else self._probe.slowest()
        return None if slowest is None else slowest[1]

    async def put_on(self, moves: Sequence[WaveMove]) -> None:
        """Let these moves copy at the present rate."""
        if self._adaptive is not None:
            await self._put_on(self._adaptive.rate, moves)

    async def renew(self) -> None:
        """Restore what somebody removed after the throttle was set and before the first copy began."""
        if self._set is None:
            return
        try:
            await renew_throttle(self._cluster, self._set)
        except KlammError as error:
            self._cluster.observe(f"cannot find out now whether the throttle is still there: {error}")

    async def wait(self, moves: Sequence[WaveMove], seconds: float) -> None:
        """Wait, and measure during the wait how fast the brokers of these moves answer.

        It measures only in pauses, so that klamm's own work does not make the answers look late.
        """
        if self._probe is None or not moves:
            await asyncio.sleep(seconds)
            return
        brokers = {broker for move in moves for broker in (*move.before, *move.target)}
        await self._probe.measure(brokers, moves[0].name, seconds)

    async def release(self, arrived: Set[TopicPartition]) -> Set[TopicPartition]:
        """Hold back no partition that has arrived, while the rest of its wave copies; return those that were."""
        new = arrived - self._released
        if not new or self._set is None:
            return set()
        try:
            await release_partitions(self._cluster, new)
        except KlammError as error:
            # Nothing else waits for this: the next look tries again.
            self._cluster.observe(f"cannot take {first_few(sorted(new))} off the throttle now: {error}")
            return set()
        self._released |= new
        return new

    async def adapt(self, shrunk: Sequence[TopicPartition], moves: Sequence[WaveMove]) -> None:
        """Halve it if live replicas have left the ISR or the p99 is above its limit; raise it by steps in calm."""
        if self._adaptive is None:
            return
        trouble = f"the ISR of {first_few(shrunk)} has shrunk" if shrunk else self._latency_trouble()
        rate = self._adaptive.next_rate(is_in_trouble=trouble is not None)
        if rate == self.rate:
            if trouble is not None and not self._told_at_floor:
                self._say(f"the throttle is at its floor, {rate_text(rate)}, and {trouble}")
            self._told_at_floor = trouble is not None
            return
        self._say(f"throttle {rate_text(self.rate or 0)} → {rate_text(rate)}: {trouble or 'all is calm'}")
        await self._put_on(rate, moves)
        if self._probe is not None:
            self._probe.forget()

    async def take_off(self) -> tuple[str, ...]:
        """Remove it from what no longer moves, an earlier run's too; return what stays, and why."""
        running = await (await reassignment_reader(self._cluster)).running()
        topics = sorted({move.name.topic for move in self._moves})
        own = {} if self.rate is None else Throttle(self.rate, self.rate).broker_settings
        cleared = await clear_throttles(self._cluster, running.names, topics, own, self._given, holds_lock=True)
        still = sorted({name.topic for name in running.names} & set(topics))
        read = await (await topic_reader(self._cluster)).topics(still) if still else ()
        held = [topic.name for topic in read if topic.configs is None or is_marked(topic.configs)]
        if held:
            return (*cleared.left, f"the throttle of {', '.join(held[:_NAMED_MAX])} stays on while it copies")
        self.rate = self._set = None
        self._given -= set(cleared.brokers)
        return cleared.left

    async def close(self) -> None:
        if self._probe is not None:
            await self._probe.close()

    def _latency_trouble(self) -> str | None:
        slowest = None if self._probe is None else self._probe.slowest()
        if slowest is None or self._p99_limit_s is None or slowest[1] <= self._p99_limit_s:
            return None
        broker, p99_s = slowest
        return f"broker {broker} answers with a p99 of {p99_s * 1000:.0f} ms, above {self._p99_limit_s * 1000:g} ms"

    async def _put_on(self, rate: int, moves: Sequence[WaveMove]) -> None:
        plan = [move.move for move in moves]
        running = await (await reassignment_reader(self._cluster)).running()
        partitions = await read_partitions(self._cluster, {move.name.topic for move in moves})
        present = {name: partition.assignment for name, partition in partitions.items()}
        known = [move for move in plan if move.name in present]
        flows = flows_of(running.assignments, known, present)
        live = await (await topic_reader(self._cluster)).live_brokers()
        throttle = Throttle(rate, rate if any(move.wanted_dirs for move in known) else None)
        planned = await plan_throttle(self._cluster, throttle, flows, known, live)
        if planned.topics or planned.brokers:
            self._journal.write("throttle", rate=rate, topics=list(planned.topics), brokers=list(planned.brokers))
            await set_throttle(self._cluster, planned)
        self.rate, self._set = rate, planned
        self._given |= planned.brokers.keys()


# How fast brokers answer while a wave moves: small questions, one after the other, and the p99 of the answers.
#
# The question is ListOffsets for the end of a partition. It goes through the same network threads, queue and handlers
# as producers' and consumers' requests, and it changes nothing. Every broker answers it, ours and Apache's, and it
# needs only DESCRIBE on the topic. The client measures the time, so the network counts.

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
    """Measures brokers over separate connections. Close it at the end."""

    def __init__(self, cluster: Cluster) -> None:
        self._own = Cluster(cluster.target, timeout_s=cluster.timeout_s)
        self._latencies: dict[int, Latencies] = {}

    async def measure(self, brokers: Iterable[int], partition: TopicPartition, seconds: float) -> None:
        """Keep asking these brokers for this long. A broker that cannot be reached is left out."""
        asked = sorted(set(brokers))
        pace_s = max(_PACE_S, len(asked) / _RATE_MAX)
        ends_at = time.monotonic() + seconds
        await asyncio.gather(*(self._ask(broker, partition, pace_s, ends_at) for broker in asked))
        await asyncio.sleep(max(0.0, ends_at - time.monotonic()))

    def slowest(self) -> tuple[int, float] | None:
        """Return the broker with the largest p99, and that p99; None if none is known yet."""
        known = [
            (p99_s, broker) for broker, latencies in self._latencies.items() if (p99_s := latencies.p99_s) is not None
        ]
        return None if not known else (max(known)[1], max(known)[0])

    def forget(self) -> None:
        """Start over: the latencies so far belong to another throttle."""
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
