"""What a broker counts of its topics: ``kafka.server:type=BrokerTopicMetrics`` of Kafka, for each topic and for all."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping
from itertools import repeat
from operator import attrgetter
from typing import Final

from engine.broker.metrics.measures import Meter, Occasional
from engine.kafka.protocol.records.append_rules import RefusedAs

TOPIC_METERS: Final = {
    "bytes_in": ("BytesInPerSec", "bytes"),
    "bytes_out": ("BytesOutPerSec", "bytes"),
    "bytes_rejected": ("BytesRejectedPerSec", "bytes"),
    "failed_fetches": ("FailedFetchRequestsPerSec", "requests"),
    "failed_produces": ("FailedProduceRequestsPerSec", "requests"),
    "fetch_conversions": ("FetchMessageConversionsPerSec", "requests"),
    "fetches": ("TotalFetchRequestsPerSec", "requests"),
    "messages_in": ("MessagesInPerSec", "messages"),
    "produce_conversions": ("ProduceMessageConversionsPerSec", "requests"),
    "produces": ("TotalProduceRequestsPerSec", "requests"),
}
BROKER_METERS: Final = {
    "invalid_crc": ("InvalidMessageCrcRecordsPerSec", "requests"),
    "invalid_magic": ("InvalidMagicNumberRecordsPerSec", "requests"),
    "invalid_sequence": ("InvalidOffsetOrSequenceRecordsPerSec", "requests"),
    "no_key": ("NoKeyCompactedTopicRecordsPerSec", "requests"),
    "reassignment_bytes_in": ("ReassignmentBytesInPerSec", "bytes"),
    "reassignment_bytes_out": ("ReassignmentBytesOutPerSec", "bytes"),
    "replication_bytes_in": ("ReplicationBytesInPerSec", "bytes"),
    "replication_bytes_out": ("ReplicationBytesOutPerSec", "bytes"),
}


_READ: Final = attrgetter(*TOPIC_METERS)


class TopicCounts:
    """The counters of one topic. Appends and reads are only noted until ``fold``: to append to a list is the cheapest
    that Python has.
    """

    __slots__ = (*TOPIC_METERS, "appends", "reads", "sent", "skipped")

    bytes_in: int
    bytes_out: int
    bytes_rejected: int
    failed_fetches: int
    failed_produces: int
    fetch_conversions: int
    fetches: int
    messages_in: int
    produce_conversions: int
    produces: int

    def __init__(self) -> None:
        self.appends: list[int] = []
        """Two entries for each append since ``fold``: bytes and records."""
        self.reads: list[None] = []
        """An entry for each partition that a Fetch has read."""
        self.skipped: list[int] = []
        """How many requests of a fetch session have left a partition out because nothing was new there: Kafka reads it
        again each time.
        """
        self.sent: list[int] = []
        """Bytes of records in answers to consumers, by partition."""
        for name in TOPIC_METERS:
            setattr(self, name, 0)

    def fold(self) -> None:
        """Add up what is noted."""
        appends = self.appends
        if appends:
            self.produces += len(appends) // 2
            self.bytes_in += sum(appends[::2])
            self.messages_in += sum(appends[1::2])
            appends.clear()
        if self.reads or self.sent:
            self.fetches += len(self.reads)
            self.bytes_out += sum(self.sent)
            self.reads.clear()
            self.sent.clear()
        if self.skipped:
            self.fetches += sum(self.skipped)
            self.skipped.clear()


class Conversions:
    """Records of requests that had to be given another form."""

    __slots__ = ("size_bytes", "times_ms")

    def __init__(self) -> None:
        self.times_ms = Occasional()
        self.size_bytes = Occasional()
        """Of the records in their new form, which needed memory beside those that there were."""

    def add(self, took_s: float, size_bytes: int) -> None:
        self.times_ms.add(1000 * took_s)
        self.size_bytes.add(size_bytes)


class BrokerTopics:
    """The counters of all topics that this broker hosts, and those that only the broker as a whole has."""

    def __init__(self) -> None:
        self.invalid_crc = self.invalid_magic = self.invalid_sequence = self.no_key = 0
        self.reassignment_bytes_in = self.reassignment_bytes_out = 0
        self.replication_bytes_in = self.replication_bytes_out = 0
        self.not_produced = 0
        """Of the appends, those that no answer to a Produce request has called a success."""
        self.produce_errors: Counter[int] = Counter()
        self.fetched: list[int] = []
        """Error codes of the partitions in answers to Fetch since ``fold``; most are 0."""
        self.fetch_errors: Counter[int] = Counter()
        """Those that are folded."""
        self.produced_conversions, self.fetched_conversions = Conversions(), Conversions()
        self._topics: dict[str, TopicCounts] = {}
        self._meters: dict[str, dict[str, Meter]] = {}
        """A topic's counters that are not 0 any more."""
        self._all: dict[str, Meter] = {}
        self._gone = dict.fromkeys(TOPIC_METERS, 0)
        """What topics counted that are not here any more."""

    @property
    def produced(self) -> int:
        """Partitions of answered Produce requests whose records were appended."""
        self.fold()
        return self._gone["produces"] + sum(counts.produces for counts in self._topics.values()) - self.not_produced

    def fold(self) -> None:
        """Add up what each topic has noted, and the error codes of Fetch."""
        self.fetch_errors.update(self.fetched)
        self.fetched.clear()
        for counts in self._topics.values():
            counts.fold()

    def of(self, topic: str) -> TopicCounts:
        counts = self._topics.get(topic)
        if counts is None:
            counts = self._topics[topic] = TopicCounts()
        return counts

    def count_produce_conversions(self, topic: str, records: int, took_s: float, size_bytes: int) -> None:
        """Count records that a leader stored in another form than it received them."""
        self.of(topic).produce_conversions += records
        self.produced_conversions.add(took_s, size_bytes)

    def count_refused(self, counted: Mapping[RefusedAs, int]) -> None:
        """Count refused batches and records."""
        for kind, number in counted.items():
            setattr(self, kind.value, getattr(self, kind.value) + number)

    def forget(self, topic: str) -> None:
        """Stop showing a topic that this broker no longer hosts. The sums of the broker never fall."""
        counts = self._topics.pop(topic, None)
        self._meters.pop(topic, None)
        if counts is not None:
            counts.fold()
            for name in TOPIC_METERS:
                self._gone[name] += getattr(counts, name)

    def forget_all_but(self, topics: Collection[str]) -> None:
        """Forget the topics that this broker does not host."""
        for topic in self._topics.keys() - topics:
            self.forget(topic)

    def tick(self, ticks: int, now_s: float) -> Iterator[None]:
        """Bring the rates up to date; yields after each topic."""
        self._count_all(now_s, ticks)
        for meter in self._all.values():
            meter.tick(ticks)
        for topic, counts in list(self._topics.items()):
            for meter in self._meters_of(topic, counts, now_s, ticks).values():
                meter.tick(ticks)
            yield

    def _meters_of(self, topic: str, counts: TopicCounts, now_s: float, ticks: int) -> dict[str, Meter]:
        counts.fold()
        meters = self._meters.get(topic)
        for name, (_, event_type) in TOPIC_METERS.items():
            count = getattr(counts, name)
            if count:
                if meters is None:
                    meters = self._meters[topic] = {}
                if name not in meters:
                    meters[name] = Meter(event_type, now_s, max(0, ticks - 1))
                meters[name].count = count
        return meters or {}

    def _count_all(self, now_s: float, ticks: int) -> None:
        if not self._all:
            self._all = {
                name: Meter(event_type, now_s, ticks)
                for name, (_, event_type) in {**TOPIC_METERS, **BROKER_METERS}.items()
            }
        self.fold()
        of_all = map(sum, zip(*map(_READ, self._topics.values()), strict=True)) if self._topics else repeat(0)
        for name, count in zip(TOPIC_METERS, of_all, strict=False):
            self._all[name].count = self._gone[name] + count
        for name in BROKER_METERS:
            self._all[name].count = getattr(self, name)

    def of_broker(self, now_s: float, ticks: int) -> Iterator[tuple[str, dict[str, object]]]:
        """Yield name and attributes of each meter of all topics together."""
        self._count_all(now_s, ticks)
        names = {**TOPIC_METERS, **BROKER_METERS}
        for name, meter in self._all.items():
            yield names[name][0], meter.attributes(now_s, ticks)

    def of_topics(self, now_s: float, ticks: int) -> Iterator[tuple[str, str, dict[str, object]]]:
        """Yield name, topic and attributes of each meter of a topic."""
        for topic, counts in list(self._topics.items()):
            for name, meter in self._meters_of(topic, counts, now_s, ticks).items():
                yield TOPIC_METERS[name][0], topic, meter.attributes(now_s, ticks)

    def counted(self) -> Iterator[tuple[str, list[tuple[str, int]]]]:
        """Yield each topic with the names and counts of its meters: less work than the meters themselves."""
        names = [name for name, _ in TOPIC_METERS.values()]
        for topic, counts in list(self._topics.items()):
            counts.fold()
            yield topic, [named for named in zip(names, _READ(counts), strict=True) if named[1]]
