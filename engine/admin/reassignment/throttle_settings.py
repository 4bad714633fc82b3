"""Replication throttles as settings, with a mark that tells klamm's from other people's. Pure.

A throttle is a rate on brokers and lists of replicas on topics (KIP-73). klamm's part of a list begins with an entry
that no broker can match: ``<rate>:2147483647`` (for moves between log dirs: ``<rate>:2147483646``). Entries before the
mark are not klamm's and stay; entries after it are klamm's. The mark contains the rate, so that klamm does not mistake
a rate that somebody set later for its own. Every Kafka since 0.10.1 accepts and ignores such an entry.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Set
from dataclasses import dataclass

from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import Do, Give, Operation, Parameter, Phrase
from engine.admin.reassignment.moves import Flows

LEADER_REPLICAS = "leader.replication.throttled.replicas"
FOLLOWER_REPLICAS = "follower.replication.throttled.replicas"
LEADER_RATE = "leader.replication.throttled.rate"
FOLLOWER_RATE = "follower.replication.throttled.rate"
LOG_DIRS_RATE = "replica.alter.log.dirs.io.max.bytes.per.second"

REPLICA_LISTS = (LEADER_REPLICAS, FOLLOWER_REPLICAS)
RATES = (LEADER_RATE, FOLLOWER_RATE, LOG_DIRS_RATE)
THROTTLE_SETTINGS = frozenset((*REPLICA_LISTS, *RATES))
"""The settings that a plan writes while it is carried out."""

_REPLICATION_MARK = "2147483647"
_LOG_DIRS_MARK = "2147483646"
_MARKS = {_REPLICATION_MARK: (LEADER_RATE, FOLLOWER_RATE), _LOG_DIRS_MARK: (LOG_DIRS_RATE,)}
_ALL = "*"
RATE_MIN = 1024
"""Below 1 KiB/s a throttle does not let even a request through in time."""


@dataclass(frozen=True, slots=True)
class Throttle:
    """Bytes a second between brokers, and between a broker's log dirs; None is no throttle."""

    replication_rate: int | None = None
    log_dirs_rate: int | None = None

    @property
    def is_set(self) -> bool:
        return self.replication_rate is not None or self.log_dirs_rate is not None

    def check(self) -> None:
        """Raise BadRequest if a rate is invalid."""
        for throttle, rate in (
            (Parameter.THROTTLE, self.replication_rate),
            (Parameter.LOG_DIRS_THROTTLE, self.log_dirs_rate),
        ):
            if rate is not None and rate < RATE_MIN:
                hint = "the unit is bytes a second: 50000000 is 50 MB/s"
                raise BadRequest(f"a throttle below {RATE_MIN} B/s", where=Give(throttle, str(rate)), hint=hint)

    @property
    def broker_settings(self) -> dict[str, str]:
        """The settings that each broker concerned gets."""
        settings: dict[str, str] = {}
        if self.replication_rate is not None:
            settings |= {LEADER_RATE: str(self.replication_rate), FOLLOWER_RATE: str(self.replication_rate)}
        if self.log_dirs_rate is not None:
            settings[LOG_DIRS_RATE] = str(self.log_dirs_rate)
        return settings

    @property
    def marks(self) -> tuple[str, ...]:
        mark_texts = [] if self.replication_rate is None else [f"{self.replication_rate}:{_REPLICATION_MARK}"]
        mark_texts += [] if self.log_dirs_rate is None else [f"{self.log_dirs_rate}:{_LOG_DIRS_MARK}"]
        return tuple(mark_texts)


@dataclass(frozen=True, slots=True)
class ThrottleSettings:
    """What a throttle will write, determined and checked before anything is written."""

    topics: Mapping[str, Mapping[str, str]]
    brokers: Mapping[int, Mapping[str, str]]
    warnings: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class ThrottledList:
    """A topic's list, parsed: the entries of others, klamm's marks (one for each rate it has used), its entries."""

    others: tuple[str, ...] = ()
    marks: tuple[str, ...] = ()
    ours: tuple[str, ...] = ()

    def __str__(self) -> str:
        return ",".join((*self.others, *self.marks, *self.ours))


def read_list(value: str | None) -> ThrottledList:
    """Parse the value of ``REPLICA_LISTS``."""
    entries = [entry.strip() for entry in (value or "").split(",") if entry.strip()]
    first = next((index for index, entry in enumerate(entries) if _rate_key_of(entry)), len(entries))
    marks = tuple(entry for entry in entries[first:] if _rate_key_of(entry))
    ours = tuple(entry for entry in entries[first:] if not _rate_key_of(entry))
    return ThrottledList(tuple(entries[:first]), marks, ours)


def replica_lists(flows: Flows) -> dict[str, dict[str, tuple[str, ...]]]:
    """For each topic with something to copy, return the entries of both lists, sorted as texts as Kafka does."""
    lists_of: dict[str, dict[str, set[str]]] = {}
    for (topic, partition), flow in flows.items():
        if flow.destinations:
            lists = lists_of.setdefault(topic, {LEADER_REPLICAS: set(), FOLLOWER_REPLICAS: set()})
            lists[LEADER_REPLICAS].update(f"{partition}:{broker}" for broker in flow.sources)
            lists[FOLLOWER_REPLICAS].update(f"{partition}:{broker}" for broker in flow.destinations)
    return {topic: {key: tuple(sorted(v)) for key, v in lists.items()} for topic, lists in sorted(lists_of.items())}


def throttled_settings(
    topic: str,
    present: Mapping[str, str],
    lists: Mapping[str, tuple[str, ...]],
    throttle: Throttle,
    *,
    keeps_all: bool = False,
) -> dict[str, str]:
    """Return the settings that throttle a topic's replicas, and keep what others have set.

    Another client's list of all replicas takes no mark; ``keeps_all`` leaves it as it is.

    Raises:
        BadRequest: there is such a list, and it must not be kept.
    """
    settings = {}
    for key in REPLICA_LISTS:
        before = read_list(present.get(key))
        if _ALL in before.others:
            if keeps_all:
                continue
            look = Do(Operation.DESCRIBE_TOPIC_CONFIGS, topic)
            hint = Phrase("check it: ", look, "; then delete it, or leave the throttle out")
            raise BadRequest(f"{key} is set to *, not by klamm", where=f"topic {topic}", hint=hint)
        marks = tuple(sorted({*before.marks, *throttle.marks}))
        ours = tuple(sorted({*before.ours, *lists.get(key, ())}))
        settings[key] = str(ThrottledList(before.others, marks, ours))
    return settings


def merged_lists(present: Mapping[str, str], wanted: Mapping[str, str]) -> dict[str, str]:
    """Return the lists of a topic that lack something of ``wanted``, completed.

    Somebody else may have written to them since ``wanted`` was made: existing entries stay.
    """
    merged = {}
    for key, value in wanted.items():
        before, more = read_list(present.get(key)), read_list(value)
        marks, ours = {*before.marks, *more.marks}, {*before.ours, *more.ours}
        if marks != {*before.marks} or ours != {*before.ours}:
            merged[key] = str(ThrottledList(before.others, tuple(sorted(marks)), tuple(sorted(ours))))
    return merged


def unthrottled_settings(
    present: Mapping[str, str], rates_left: Mapping[str, Set[str]] | None = None
) -> tuple[dict[str, str], tuple[str, ...]]:
    """Return what removes klamm's throttle from a topic: the settings to write, and those to delete.

    Marks of ``rates_left`` (values by rate setting) stay, but no replica of the topic does.
    """
    additions: dict[str, str] = {}
    deletions: list[str] = []
    for key in REPLICA_LISTS:
        throttled = read_list(present.get(key))
        if not throttled.marks:
            continue
        kept = ThrottledList(
            throttled.others, tuple(mark for mark in throttled.marks if _is_of(mark, rates_left or {}))
        )
        if kept == throttled:
            continue
        if kept.others or kept.marks:
            additions[key] = str(kept)
        else:
            deletions.append(key)
    return additions, tuple(deletions)


def released_settings(present: Mapping[str, str], partitions: Set[int]) -> dict[str, str]:
    """Return the lists of a topic without klamm's entries of some partitions, if there are any; marks stay."""
    released, numbers = {}, {str(partition) for partition in partitions}
    for key in REPLICA_LISTS:
        throttled = read_list(present.get(key))
        ours = tuple(entry for entry in throttled.ours if entry.partition(":")[0] not in numbers)
        if ours != throttled.ours:
            released[key] = str(ThrottledList(throttled.others, throttled.marks, ours))
    return released


def is_marked(configs: Mapping[str, str]) -> bool:
    """Whether klamm throttles some of a topic's replicas."""
    return any(read_list(configs.get(key)).marks for key in REPLICA_LISTS)


def is_mark_alone(value: str) -> bool:
    """Whether a list throttles no replica, but only marks a rate as klamm's."""
    throttled = read_list(value)
    return bool(throttled.marks) and not throttled.others and not throttled.ours


def marked_rates(topics: Iterable[Mapping[str, str]]) -> dict[str, frozenset[str]]:
    """For each rate setting of brokers, return the values that klamm gave it, according to the marks on topics."""
    rates: dict[str, set[str]] = {key: set() for key in RATES}
    for configs in topics:
        for mark in (mark for key in REPLICA_LISTS for mark in read_list(configs.get(key)).marks):
            for key in _rate_key_of(mark):
                rates[key].add(mark.partition(":")[0])
    return {key: frozenset(values) for key, values in rates.items()}


def _is_of(mark: str, rates: Mapping[str, Set[str]]) -> bool:
    rate = mark.partition(":")[0]
    return any(rate in rates.get(key, ()) for key in _rate_key_of(mark))


def _rate_key_of(entry: str) -> tuple[str, ...]:
    """Return the rate settings that a mark refers to; none if it is an ordinary entry."""
    rate, _, broker = entry.partition(":")
    return _MARKS.get(broker, ()) if rate.isdigit() else ()
