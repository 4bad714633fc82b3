"""Which partitions a caller means: names or patterns of topics, with numbers or ranges of partitions.

The rules of ``--topic-partitions`` are those of kafka-get-offsets: ``t1:1,t2:0-3,t3,t4:5-,t5:-3``, where a range
excludes its end and a missing topic means every topic. A text that could be a topic's name is a name, dots included;
only others are patterns.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import Parameter, Phrase
from engine.common.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
    TopicPartition,
)
from engine.common.moments import HINT, moment_ms
from engine.common.topic_names import INTERNAL_TOPICS, invalid_topic_name

_RULE = re.compile(r"(?P<topic>[^:,]*)(?::(?P<range>(?P<one>\d+)|(?P<low>\d*)-(?P<high>\d*))?)?")


@dataclass(frozen=True, slots=True)
class TopicRule:
    """The topics meant: one by its name, or (``pattern``) all whose whole name matches."""

    text: str
    pattern: re.Pattern[str] | None

    def means(self, topic: str) -> bool:
        return topic == self.text if self.pattern is None else self.pattern.fullmatch(topic) is not None


_EVERY_TOPIC = TopicRule(".*", re.compile(".*"))


@dataclass(frozen=True, slots=True)
class PartitionRule:
    """One rule: these topics' partitions from ``low`` up to but excluding ``high`` (None: no end)."""

    topics: TopicRule
    low: int = 0
    high: int | None = None

    def means(self, name: TopicPartition) -> bool:
        is_in_range = self.low <= name.partition and (self.high is None or name.partition < self.high)
        return is_in_range and self.topics.means(name.topic)

    def __str__(self) -> str:
        if self.high is None:
            partitions = f":{self.low}-" if self.low else ""
        else:
            partitions = f":{self.low}" if self.high == self.low + 1 else f":{self.low}-{self.high}"
        return self.topics.text + partitions


@dataclass(frozen=True, slots=True)
class PartitionSelection:
    """The partitions that any rule matches; without rules all."""

    rules: tuple[PartitionRule, ...] = ()
    exclude_internal: bool = False

    @property
    def topics(self) -> list[str] | None:
        """The topics that must be read; None means all, because they are not known in advance."""
        if not self.rules or any(rule.topics.pattern is not None for rule in self.rules):
            return None
        return sorted({rule.topics.text for rule in self.rules})

    def choose(self, partitions: Mapping[str, Iterable[int]]) -> list[TopicPartition]:
        """Return the chosen ones of the existing partitions, by topic, sorted."""
        names = (TopicPartition(topic, index) for topic, indexes in partitions.items() for index in indexes)
        return sorted(
            name
            for name in names
            if not (self.exclude_internal and name.topic in INTERNAL_TOPICS)
            and (not self.rules or any(rule.means(name) for rule in self.rules))
        )

    def choose_topics(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that may have a chosen partition."""
        return [
            topic
            for topic in topics
            if not (self.exclude_internal and topic in INTERNAL_TOPICS)
            and (not self.rules or any(rule.topics.means(topic) for rule in self.rules))
        ]

    def unmatched(self, chosen: Iterable[TopicPartition]) -> list[PartitionRule]:
        """Return the rules that match none of the chosen partitions."""
        existing = list(chosen)
        return [rule for rule in self.rules if not any(rule.means(name) for name in existing)]


def select_partitions(
    topics: Iterable[str], partitions: str | None, topic_partitions: str | None, *, exclude_internal: bool = False
) -> PartitionSelection:
    """Return the selection of ``--topic`` with ``--partitions``, or of ``--topic-partitions``.

    Raises:
        BadRequest: both ways are used, or something is not well-formed.
    """
    named = list(topics)
    if topic_partitions is not None:
        if named or partitions is not None:
            raise BadRequest(
                Phrase(
                    Parameter.TOPIC_PARTITIONS, " cannot be used with ", Parameter.TOPIC, " or ", Parameter.PARTITIONS
                )
            )
        rules = [_rule(text.strip()) for text in topic_partitions.split(",")]
        return PartitionSelection(tuple(rules), exclude_internal)
    chosen = [_topics(text, Parameter.TOPIC) for text in named] or [_EVERY_TOPIC]
    if partitions is None:
        rules = [PartitionRule(topics_meant) for topics_meant in chosen] if named else []
        return PartitionSelection(tuple(rules), exclude_internal)
    indexes = _indexes(partitions)
    rules = [PartitionRule(topics_meant, index, index + 1) for topics_meant in chosen for index in indexes]
    return PartitionSelection(tuple(rules), exclude_internal)


def _rule(text: str) -> PartitionRule:
    match = _RULE.fullmatch(text)
    if match is None:
        hint = "write t1:1, t2:0-3 (without 3), t3, t4:5- or t5:-3, with commas between them"
        raise BadRequest(f"invalid rule: {text!r}", where=Parameter.TOPIC_PARTITIONS, hint=hint)
    topics = _topics(match["topic"], Parameter.TOPIC_PARTITIONS) if match["topic"] else _EVERY_TOPIC
    if match["one"] is not None:
        return PartitionRule(topics, int(match["one"]), int(match["one"]) + 1)
    return PartitionRule(topics, int(match["low"] or 0), int(match["high"]) if match["high"] else None)


def _topics(text: str, where: Parameter) -> TopicRule:
    if invalid_topic_name(text) is None:
        return TopicRule(text, None)
    try:
        return TopicRule(text, re.compile(text))
    except re.error as error:
        raise BadRequest(f"not a regular expression ({error}): {text!r}", where=where) from error


def _indexes(text: str) -> list[int]:
    try:
        indexes = [int(part) for part in text.split(",")]
    except ValueError:
        raise BadRequest(
            f"not a list of partitions: {text!r}", where=Parameter.PARTITIONS, hint="write 0,1,2"
        ) from None
    if any(index < 0 for index in indexes):
        raise BadRequest("partitions are counted from 0", where=Parameter.PARTITIONS)
    return sorted(set(indexes))


# Points of a log as kafka-get-offsets names them: latest, earliest, a timestamp; klamm also accepts a date.
#
# Kafka's numbers for the named points are those of ListOffsets, each since some version of it.

_NAMES = {
    "latest": LATEST_TIMESTAMP,
    "earliest": EARLIEST_TIMESTAMP,
    "max-timestamp": MAX_TIMESTAMP,
    "earliest-local": EARLIEST_LOCAL_TIMESTAMP,
    "latest-tiered": LATEST_TIERED_TIMESTAMP,
}
_SINCE = {MAX_TIMESTAMP: 7, EARLIEST_LOCAL_TIMESTAMP: 8, LATEST_TIERED_TIMESTAMP: 9}
_NUMBER = re.compile(r"-?\d+")


@dataclass(frozen=True, slots=True)
class OffsetTime:
    """A point of a log: ``timestamp`` in milliseconds, or one of Kafka's negative numbers."""

    name: str
    timestamp: int

    @property
    def version_min(self) -> int:
        """The first version of ListOffsets that knows it."""
        if self.timestamp >= 0:
            return 1
        return _SINCE.get(self.timestamp, 0)


def parse_offset_time(text: str) -> OffsetTime:
    """Return the point that a text names.

    Raises:
        BadRequest: it is not one.
    """
    word = text.strip()
    if word in _NAMES:
        return OffsetTime(word, _NAMES[word])
    if _NUMBER.fullmatch(word):
        number = int(word)
        named = next((name for name, code in _NAMES.items() if code == number), None)
        if (number < 0 and named is None) or number >= 1 << 63:
            raise _malformed(text)
        return OffsetTime(named or word, number)
    try:
        return OffsetTime(word, moment_ms(word, now=datetime.now(UTC)))
    except ValueError:
        raise _malformed(text) from None


def _malformed(text: str) -> BadRequest:
    known = ", ".join(f"{name} ({code})" for name, code in _NAMES.items())
    hint = f"give one of {known}, milliseconds since 1970, {HINT}"
    return BadRequest(f"not a time: {text!r}", where=Parameter.TIME, hint=hint)
