"""Which topics a caller means: exact names, or regular expressions as Kafka's tools take them.

A text that could be a topic's name is a name; anything else is a pattern that must match the whole name, in which a
comma separates alternatives. A dot alone makes no pattern, because names may contain dots. Exact names are looked up
without listing all topics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import SEE_TOPICS, Phrase, Words
from engine.common.snapshot import PartitionSnapshot
from engine.common.topic_names import invalid_topic_name

_GLOB = re.compile(r"(?<![\\.)\]}])\*")
"""A star as a shell uses it: nothing before it that a regular expression would repeat."""


@dataclass(frozen=True, slots=True)
class TopicSelection:
    """The requested topics. Naming nothing means all topics."""

    names: tuple[str, ...] = ()
    patterns: tuple[re.Pattern[str], ...] = ()

    @property
    def is_all(self) -> bool:
        return not self.names and not self.patterns

    @property
    def wants_list(self) -> bool:
        """The names of all topics are needed to find the matches."""
        return self.is_all or bool(self.patterns)

    def choose(self, known: Iterable[str]) -> list[str]:
        """Return the chosen ones of the existing topics, by name; unknown exact names are left out."""
        return sorted(
            name
            for name in known
            if self.is_all or name in self.names or any(pattern.fullmatch(name) for pattern in self.patterns)
        )

    def unmatched(self, known: Iterable[str]) -> list[str]:
        """Return names and patterns that match no known topic."""
        existing = set(known)
        missing = [name for name in self.names if name not in existing]
        missing += [p.pattern for p in self.patterns if not any(p.fullmatch(name) for name in existing)]
        return missing


def select_topics(texts: Sequence[str]) -> TopicSelection:
    """Return the selection that the texts mean.

    Raises:
        BadRequest: a text is neither a name nor a regular expression.
    """
    names: list[str] = []
    patterns: list[re.Pattern[str]] = []
    for text in texts:
        parts = [part.strip() for part in text.strip("\"'").split(",")]
        if all(invalid_topic_name(part) is None for part in parts):
            names.extend(parts)
            continue
        try:
            patterns.append(re.compile("|".join(parts)))
        except re.error as error:
            raise BadRequest(
                f"neither a topic's name nor a regular expression ({error})", where=text, hint=_hint(text, ())
            ) from error
    return TopicSelection(tuple(dict.fromkeys(names)), tuple(patterns))


def topic_not_found(missing: Sequence[str], known: Iterable[str] = ()) -> NotFound:
    """Return the error for named topics that do not exist; ``known`` are those that do."""
    if len(missing) == 1:
        message = f"topic {missing[0]!r} does not exist"
    else:
        message = f"topics do not exist: {', '.join(missing)}"
    return NotFound(message, hint=_hint(missing[0], known), topics=missing)


def _hint(missing: str, known: Iterable[str]) -> Words:
    from difflib import get_close_matches

    if (pattern := _GLOB.sub(".*", missing)) != missing:
        return Phrase(f"patterns are regular expressions, such as {pattern!r}; ", SEE_TOPICS)
    if close := get_close_matches(missing, known):
        return Phrase(f"did you mean {' or '.join(close)}? ", SEE_TOPICS)
    return SEE_TOPICS


# Which partitions a person wants to see: Kafka's filters, as pure predicates of a partition.
#
# Several filters together: one that matches is enough, as in kafka-topics. Source: TopicCommand of Kafka 3.9.


class PartitionFilter(StrEnum):
    """The filters of kafka-topics --describe."""

    UNDER_REPLICATED = "under-replicated"
    UNAVAILABLE = "unavailable"
    UNDER_MIN_ISR = "under-min-isr"
    AT_MIN_ISR = "at-min-isr"


MIN_ISR_FILTERS = frozenset({PartitionFilter.UNDER_MIN_ISR, PartitionFilter.AT_MIN_ISR})
"""Those that need min.insync.replicas."""


def is_unavailable(partition: PartitionSnapshot, live_brokers: Set[int]) -> bool:
    """It has no leader, or the leader is not alive."""
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
    return not wanted or any(_matches(partition, condition, min_isr, live_brokers) for condition in wanted)


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
