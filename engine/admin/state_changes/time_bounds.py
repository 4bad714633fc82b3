"""The times between which lines are wanted, as a person gives them: ISO 8601, log4j's form, or ``2h`` back from now."""

from __future__ import annotations

import re
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

from engine.admin.cluster.errors import BadRequest
from engine.admin.state_changes.zones import Zone, in_zone, parse_zone, start_of

_RELATIVE = re.compile(r"(\d{1,9}(?:\.\d+)?) ?(ms|s|m|h|d|w)(?: ago)?")
_ABSOLUTE = re.compile(
    r"(\d{4}-\d{2}-\d{2})(?:[ T](\d{2}:\d{2})(?::(\d{2})(?:[.,](\d{1,6}))?)?)? ?(Z|[+-]\d{2}:?\d{2})?"
)
_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86400, "w": 604800}
_KAFKAS_BEGINNING = "0000-00-00"


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a range of time. A moment without a zone has the zone of the lines."""

    moment: datetime

    def start_in(self, zone: Zone, *, as_utc: bool) -> bytes:
        """Return it as the start of a line, in the zone's local time or in UTC."""
        if self.moment.tzinfo is not None:
            return start_of(self.moment.astimezone(UTC if as_utc else zone))
        return start_of(in_zone(self.moment, zone).astimezone(UTC) if as_utc else self.moment)


def parse_duration(text: str) -> timedelta | None:
    """Return a duration such as ``2h`` or ``90s``; None if ``text`` is not one."""
    match = _RELATIVE.fullmatch(text.strip())
    try:
        return None if match is None else timedelta(seconds=float(match[1]) * _UNITS[match[2]])
    except OverflowError:
        return None


def parse_bound(text: str, *, now: datetime, is_end: bool) -> Bound | None:
    """Return what ``--start`` or ``--end`` means; None if it is the beginning of all time, as in Kafka's tool.

    Durations are counted back from ``now``. An end that is less exact than a millisecond includes all of its second,
    minute or day.

    Raises:
        BadRequest: it is not a time.
    """
    cleaned = text.strip().strip("'\"").strip()
    if (ago := parse_duration(cleaned)) is not None:
        try:
            return Bound(now - ago)
        except OverflowError:
            return None
    match = _ABSOLUTE.fullmatch(cleaned)
    if match is not None and match[1] == _KAFKAS_BEGINNING:
        return None
    try:
        if match is not None:
            return Bound(_moment(match, is_end=is_end))
    except ValueError:
        match = None
    hint = "give it as 2026-11-21 12:23:04,866, 2026-11-21T12:23Z, 2026-11-21 or, counted back from now, 2h"
    raise BadRequest("not a time", where=text, hint=hint)


def _moment(match: re.Match[str], *, is_end: bool) -> datetime:
    day, minute, second, fraction, zone = match.groups()
    minute = minute or ("23:59" if is_end else "00:00")
    second = second or ("59" if is_end else "00")
    fraction = fraction or ("999" if is_end else "0")
    moment = datetime.strptime(f"{day} {minute}:{second}.{fraction}", "%Y-%m-%d %H:%M:%S.%f")
    return moment if zone is None else moment.replace(tzinfo=parse_zone(zone))
