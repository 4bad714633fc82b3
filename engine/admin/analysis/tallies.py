"""Partitions counted by topic and in all. A topic that is the same object as before is not counted again. Pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from engine.admin.watch.frame import Frame
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.common.turns import topics_in_turns


@dataclass(slots=True)
class Tally:
    """Counts of some partitions; counters are by broker. Topics marked for deletion are left out.

    Attributes:
        under_replicated: fewer replicas in sync than wanted, not counting those that a reassignment adds.
        missing: of these partitions, how often each broker is out of sync.
        leaderless: those whose leader is not alive, as the health checks count them.
        last_in_sync: of these partitions, how often each dead broker alone has all that was acknowledged.
        below_min, at_min, one_above, well_above: the others by how many replicas in sync they have beyond min ISR;
            ``no_min`` those whose min ISR is not known.
        leaders: partitions by who leads them.
        preferred: partitions by who should lead them, the preferred replica.
        led_elsewhere: of these, those that another replica leads, or none.
        electable: partitions by preferred replica that it does not lead but could at once: it is in sync.
        would_stop: partitions that would refuse writes with acks=all without this broker, and do not refuse them now;
            those that no replica could lead then are in ``would_go`` alone.
        would_go: partitions that no replica could lead without this broker.
        only_here: of these, those that have no other replica, so that no waiting helps.
        unelected: partitions without a leader by live broker in sync: its log dir failed, or an election is due.
        one_only_here: by broker, one of those that have no other replica.
        moving: partitions that are being reassigned.
    """

    partitions: int = 0
    leaderless: int = 0
    under_replicated: int = 0
    below_min: int = 0
    at_min: int = 0
    one_above: int = 0
    well_above: int = 0
    no_min: int = 0
    moving: int = 0
    missing: Counter[int] = field(default_factory=Counter)
    last_in_sync: Counter[int] = field(default_factory=Counter)
    leaders: Counter[int] = field(default_factory=Counter)
    preferred: Counter[int] = field(default_factory=Counter)
    led_elsewhere: Counter[int] = field(default_factory=Counter)
    electable: Counter[int] = field(default_factory=Counter)
    would_stop: Counter[int] = field(default_factory=Counter)
    would_go: Counter[int] = field(default_factory=Counter)
    only_here: Counter[int] = field(default_factory=Counter)
    unelected: Counter[int] = field(default_factory=Counter)
    one_only_here: dict[int, TopicPartition] = field(default_factory=dict)

    def imbalance_percent(self, broker: int) -> int:
        """Return how many of the partitions that a broker should lead it does not, as the controller counts."""
        preferred = self.preferred[broker]
        return round(100 * self.led_elsewhere[broker] / preferred) if preferred else 0

    def add(self, other: Tally) -> None:
        """Add the counts of other partitions."""
        for name in _NUMBERS:
            count = getattr(other, name)
            if count:
                setattr(self, name, getattr(self, name) + count)
        for name in _COUNTERS:
            counts = getattr(other, name)
            if counts:
                mine = getattr(self, name)
                for broker, count in counts.items():
                    mine[broker] += count
        for broker, partition in other.one_only_here.items():
            self.one_only_here.setdefault(broker, partition)


_NUMBERS = (
    "partitions", "leaderless", "under_replicated", "below_min", "at_min", "one_above", "well_above", "no_min",
    "moving",
)  # fmt: skip
_COUNTERS = (
    "missing", "last_in_sync", "leaders", "preferred", "led_elsewhere", "electable", "would_stop", "would_go",
    "only_here", "unelected",
)  # fmt: skip


class Tallies:
    """The counts of one frame after the other."""

    def __init__(self) -> None:
        self._topics: dict[str, tuple[TopicSnapshot, int | None, Tally]] = {}
        self._last: tuple[tuple[TopicSnapshot, ...], Mapping[str, int], Tally] | None = None
        self._live: frozenset[int] = frozenset()
        self._is_capped = False

    def turns(self, frame: Frame) -> Iterator[None]:
        """Count in turns of an event loop; after the last one ``of_frame`` has little to do."""
        if frame.cluster is None:
            return iter(())
        self._take(frame)
        return topics_in_turns(frame.cluster.topics, lambda topic: self._counts(topic, frame.min_isr.get(topic.name)))

    def of_frame(self, frame: Frame) -> Tally:
        """Return the counts of all partitions of a frame."""
        if frame.cluster is None:
            return Tally()
        self._take(frame)
        topics, last = frame.cluster.topics, self._last
        if last is not None and last[0] is topics and last[1] is frame.min_isr:
            return last[2]
        if len(self._topics) > len(topics):
            present = {topic.name for topic in topics}
            self._topics = {name: known for name, known in self._topics.items() if name in present}
        total = Tally()
        for topic in topics:
            total.add(self.of_topic(topic, frame.min_isr.get(topic.name)))
        self._last = topics, frame.min_isr, total
        return total

    def of_topic(self, topic: TopicSnapshot, min_isr: int | None) -> Tally:
        """Return the counts of one topic; ``min_isr`` None is not known."""
        self._counts(topic, min_isr)
        return self._topics[topic.name][2]

    def _take(self, frame: Frame) -> None:
        """Count all again if other brokers are alive, or their min ISR differs."""
        assert frame.cluster is not None
        live, is_capped = frozenset(frame.cluster.live_broker_ids), frame.caps_min_isr
        if (live, is_capped) != (self._live, self._is_capped):
            self._live, self._is_capped, self._topics, self._last = live, is_capped, {}, None

    def _counts(self, topic: TopicSnapshot, min_isr: int | None) -> bool:
        """Count a topic; return whether that was needed."""
        known = self._topics.get(topic.name)
        if known is not None and known[0] is topic and known[1] == min_isr:
            return False
        self._topics[topic.name] = topic, min_isr, tally_of(topic, min_isr, self._live, is_capped=self._is_capped)
        return True


def tally_of(topic: TopicSnapshot, min_isr: int | None, live: frozenset[int], *, is_capped: bool = False) -> Tally:
    """Count the partitions of one topic. ``is_capped``: as for ``PartitionSnapshot.is_under_min_isr``."""
    tally = Tally()
    if not topic.is_marked_for_deletion:
        for partition in topic.partitions:
            wanted = min_isr if min_isr is None or not is_capped else min(min_isr, len(partition.replicas))
            is_led = partition.is_led(live)
            _count(tally, partition, wanted, is_led=is_led)
            if not is_led:
                tally.last_in_sync.update(partition.last_in_sync(live))
                tally.unelected.update(live.intersection(partition.isr))
            elif len(partition.replicas) == 1:
                tally.only_here[partition.leader] += 1
                tally.one_only_here.setdefault(partition.leader, TopicPartition(topic.name, partition.partition))
    return tally


def _count(tally: Tally, partition: PartitionSnapshot, min_isr: int | None, *, is_led: bool) -> None:
    tally.partitions += 1
    tally.moving += partition.assignment.is_being_reassigned
    _count_leadership(tally, partition, is_led=is_led)
    isr = partition.isr
    if partition.is_under_replicated:
        tally.under_replicated += 1
        adding = partition.assignment.adding_replicas
        for broker in partition.osr:
            if broker not in adding:
                tally.missing[broker] += 1
    if len(isr) == 1 and is_led:
        tally.would_go[isr[0]] += 1
    if min_isr is None:
        tally.no_min += 1
        return
    if not is_led:
        return
    margin = len(isr) - min_isr
    if margin < 0:
        tally.below_min += 1
    elif margin == 0:
        tally.at_min += 1
        for broker in isr if len(isr) > 1 else ():
            tally.would_stop[broker] += 1
    elif margin == 1:
        tally.one_above += 1
    else:
        tally.well_above += 1


def _count_leadership(tally: Tally, partition: PartitionSnapshot, *, is_led: bool) -> None:
    leader, preferred = partition.leader, partition.preferred_leader
    if is_led:
        tally.leaders[leader] += 1
    else:
        tally.leaderless += 1
    if preferred == NO_LEADER or partition.assignment.is_being_reassigned:
        return
    tally.preferred[preferred] += 1
    if leader != preferred:
        tally.led_elsewhere[preferred] += 1
        if preferred in partition.isr and is_led:
            # Without a leader no replica of the ISR is alive: the controller would have elected it.
            tally.electable[preferred] += 1
