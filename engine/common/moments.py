"""Moments as people write them, the same everywhere: a date, a time of day, or a duration before now. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone

from engine.common.quantities import parse_duration_s

HINT = "2026-11-21T12:23:04.866 (UTC, or with a zone such as +01:00), 2026-11-21, 02:00 or, back from now, 2h"

_ZONE = r"( ?(?:Z|[+-]\d{2}(?::?\d{2})?))?"
_DATE = re.compile(rf"(\d{{4}}-\d\d-\d\d)(?:[ T](\d\d:\d\d)(?::(\d\d)(?:[.,](\d{{1,9}}))?)?)?{_ZONE}", re.IGNORECASE)
_TIME_OF_DAY = re.compile(rf"(\d\d:\d\d)(?::(\d\d)(?:[.,](\d{{1,9}}))?)?{_ZONE}", re.IGNORECASE)
_BACK = re.compile(r"-?((?:\d+(?:\.\d+)? ?(?:ms|s|m|min|h|d|w) ?)+)(?: ago)?", re.IGNORECASE)
_MS = re.compile(r"\d{1,18}")


def parse_moment(text: str, *, now: datetime, is_end: bool = False) -> datetime:
    """Return the moment that ``text`` means: aware if it names a zone or counts back from ``now``, else naive.

    Takes a date with or without a time of day (``T`` or a space between them, seconds and fractions if given), a time
    of day (the last one before ``now``), a duration back from ``now`` (``2h``, ``90s ago``), or milliseconds of Unix.
    An end that is less exact than a millisecond includes all of its second, minute or day.

    Raises:
        ValueError: it is not a moment.
    """
    cleaned = text.strip().strip("'\"").strip()
    if _MS.fullmatch(cleaned):
        return datetime.fromtimestamp(int(cleaned) / 1000, UTC)
    if (match := _BACK.fullmatch(cleaned)) is not None:
        return now - timedelta(seconds=parse_duration_s(match[1]))
    if (match := _DATE.fullmatch(cleaned)) is not None:
        return _moment(*match.groups(), is_end=is_end)
    if (match := _TIME_OF_DAY.fullmatch(cleaned)) is not None:
        zone = _zone(match[4])
        today = now.astimezone(zone or UTC)
        moment = _moment(today.strftime("%Y-%m-%d"), *match.groups(), is_end=is_end)
        is_ahead = moment.replace(tzinfo=moment.tzinfo or UTC) - timedelta(minutes=1 if is_end else 0) > now
        return moment - timedelta(days=1) if is_ahead else moment
    raise ValueError(f"not a time: {text!r}")


def moment_ms(text: str, *, now: datetime) -> int:
    """Return a moment in milliseconds since 1970; without a zone it is UTC, as in Kafka's tools.

    Raises:
        ValueError: it is not a moment, or before 1970.
    """
    try:
        moment = parse_moment(text, now=now)
        milliseconds = round((moment if moment.tzinfo else moment.replace(tzinfo=UTC)).timestamp() * 1000)
    except OverflowError as error:
        raise ValueError(f"not a time: {text!r}") from error
    return max(0, milliseconds)


def calendar_time(time_ms: int) -> datetime | int:
    """Return a time of a record in UTC. A number that no calendar has stays a number: clients set it as they like."""
    try:
        return datetime.fromtimestamp(time_ms / 1000, UTC)
    except (OverflowError, ValueError, OSError):
        return time_ms


def _moment(
    day: str, minute: str | None, second: str | None, fraction: str | None, zone: str | None, *, is_end: bool
) -> datetime:
    minute = minute or ("23:59" if is_end else "00:00")
    second = second or ("59" if is_end else "00")
    fraction = (fraction or ("999" if is_end else "0"))[:6]
    written = f"{day} {minute}:{second}.{fraction}"
    try:
        return datetime.strptime(written, "%Y-%m-%d %H:%M:%S.%f").replace(tzinfo=_zone(zone))
    except ValueError as error:
        raise ValueError(f"not a time: {written}") from error


def _zone(text: str | None) -> timezone | None:
    if text is None:
        return None
    text = text.strip()
    if text in ("Z", "z"):
        return UTC
    offset = timedelta(hours=int(text[1:3]), minutes=int(text[3:].lstrip(":") or 0))
    return timezone(-offset if text[0] == "-" else offset)
