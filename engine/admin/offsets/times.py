"""Points of a log as kafka-get-offsets names them: latest, earliest, a timestamp; klamm also accepts a date.

Kafka's numbers for the named points are those of ListOffsets, each since some version of it.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime

from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import Parameter
from engine.common.model import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from engine.common.moments import HINT, moment_ms

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
