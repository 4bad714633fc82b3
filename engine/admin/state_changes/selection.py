"""Selects lines by time, topic, partition and broker."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import timedelta

from engine.admin.cluster.errors import BadRequest
from engine.admin.state_changes.zones import shifted
from engine.common.listing import repeated
from engine.common.topic_names import invalid_topic_name
from engine.kafka.formats.state_change_sentences import mention_of

ORDER_SLACK = timedelta(minutes=61)
"""How far a log may be out of order: enough for clocks that are put back by an hour."""


@dataclass(frozen=True, slots=True)
class Selection:
    """What is wanted; an empty set wants all. ``start`` and ``end`` are both included, in the merge's own times."""

    start: bytes | None = None
    end: bytes | None = None
    topics: frozenset[bytes] = frozenset()
    partitions: frozenset[int] = frozenset()
    brokers: frozenset[int] = frozenset()

    @property
    def mentions(self) -> list[tuple[bytes, re.Pattern[bytes]]]:
        """The wanted topics, each with a pattern of how a line names a partition of it."""
        return [(topic, mention_of(topic)) for topic in sorted(self.topics)]

    def wants_partition(self, mention: re.Match[bytes]) -> bool:
        """Whether the partition that a line names is wanted."""
        return not self.partitions or int(mention[mention.lastindex or 0]) in self.partitions

    @property
    def reads_from(self) -> bytes | None:
        """Nothing before this can be wanted, even if a log is as much out of order as allowed."""
        return None if self.start is None else shifted(self.start, -ORDER_SLACK)

    @property
    def reads_to(self) -> bytes | None:
        """Nothing after this can be wanted."""
        return None if self.end is None else shifted(self.end, ORDER_SLACK)


def wanted_topics(names: list[str]) -> frozenset[bytes]:
    """Return topics by the given names; a text may have several, separated by commas.

    Raises:
        BadRequest: one of them cannot be a topic's name.
    """
    topics = [name.strip() for text in names for name in text.split(",") if name.strip()]
    for name in topics:
        if (reason := invalid_topic_name(name)) is not None:
            raise BadRequest(f"not a topic's name: {reason}", where=name)
    return frozenset(name.encode("ascii") for name in topics)


def wanted_numbers(texts: list[str], noun: str) -> frozenset[int]:
    """Return partitions or brokers by their numbers; a text may have several, separated by commas.

    Raises:
        BadRequest: one is not a number, or is named twice.
    """
    words = [word.strip() for text in texts for word in text.split(",") if word.strip()]
    for word in words:
        if not word.isdecimal() or len(word) > 10:
            raise BadRequest(f"not the number of a {noun}", where=word)
    numbers = [int(word) for word in words]
    if twice := repeated(numbers):
        raise BadRequest(f"a {noun} is named more than once", where=", ".join(map(str, twice)))
    return frozenset(numbers)
