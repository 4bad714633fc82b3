"""Times of log lines, which carry no zone: the user has to say which zone a broker's clock used.

A line's time is the bytes with which it begins, ``[2015-03-01 10:00:00,123]``, which sort as they are. That is the
right order if all logs use the same zone. If zones differ, or clocks were set back in between, klamm uses the same form
in UTC.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta, timezone, tzinfo
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from engine.admin.cluster.errors import BadRequest

Zone = tzinfo | None
"""None is the zone of this machine."""

_OFFSET = re.compile(r"([+-])(\d{2}):?(\d{2})")
_JUMP_BACK_MIN = timedelta(minutes=10)
_MINUTE_BYTES = 17
"""This much of a start is the same for a whole minute."""
_MINUTES_KEPT = 100_000


def parse_zone(text: str) -> Zone:
    """Return the zone called ``text``: a name such as Europe/Berlin, UTC, ``local``, or an offset such as +02:00.

    Raises:
        BadRequest: there is no such zone.
    """
    if text.lower() == "local":
        return None
    if text.upper() in ("UTC", "Z"):
        return UTC
    if (match := _OFFSET.fullmatch(text)) is not None:
        offset = timedelta(hours=int(match[2]), minutes=int(match[3]))
        if offset < timedelta(days=1):
            return timezone(-offset if match[1] == "-" else offset)
    try:
        return ZoneInfo(text)
    except (ZoneInfoNotFoundError, ValueError, OSError):
        hint = "name one as Europe/Berlin, UTC, +02:00 or local"
        raise BadRequest("no such time zone", where=text, hint=hint) from None


def start_of(moment: datetime) -> bytes:
    """Return a moment as the start of a line, its zone left out."""
    return f"[{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}]".encode("ascii")


def moment_of(start: bytes) -> datetime | None:
    """Return a line's time, without a zone; None if there is no such time, as on the 30th of February."""
    try:
        return datetime.strptime(start[1:-1].decode("ascii"), "%Y-%m-%d %H:%M:%S,%f")
    except ValueError:
        return None


def shifted(start: bytes, by: timedelta) -> bytes:
    """Return the start moved by a duration; the same if it is not a time, or would leave the calendar."""
    moment = moment_of(start)
    try:
        return start if moment is None else start_of(moment + by)
    except OverflowError:
        return start


def in_zone(moment: datetime, zone: Zone) -> datetime:
    """Return a moment without a zone as one in ``zone``."""
    return moment.astimezone() if zone is None else moment.replace(tzinfo=zone)


def has_one_offset(zone: Zone, first: bytes, last: bytes) -> bool:
    """Whether clocks of ``zone`` did not change between two local times, plus a day before and after."""
    low, high = moment_of(first), moment_of(last)
    if low is None or high is None:
        return True
    moment, end = low - timedelta(days=1), high + timedelta(days=1)
    offsets = {in_zone(end, zone).utcoffset()}
    while moment < end:
        offsets.add(in_zone(moment, zone).utcoffset())
        if len(offsets) > 1:
            return False
        moment += timedelta(days=7)
    return True


class UtcClock:
    """Turns the starts of one log's lines into UTC, in the order of the log.

    In the hour that occurs twice in autumn, a line means the first one until the log's time has jumped back.
    """

    def __init__(self, zone: Zone) -> None:
        self._zone = zone
        self._minutes: dict[tuple[bytes, int], bytes] = {}
        self._fold = 0
        self._last: datetime | None = None
        self._last_minute = b""

    def starts(self, starts: list[bytes]) -> list[bytes]:
        """Return the starts in UTC; what is not a time stays as it is."""
        shifted = []
        for start in starts:
            minute = start[:_MINUTE_BYTES]
            if minute != self._last_minute:
                self._enter(minute)
            shifted.append(self._utc_minute(minute) + start[_MINUTE_BYTES:])
        return shifted

    def _enter(self, minute: bytes) -> None:
        self._last_minute = minute
        moment = _moment_of_minute(minute)
        if moment is None:
            return
        offsets = [in_zone(moment.replace(fold=fold), self._zone).utcoffset() for fold in (0, 1)]
        if offsets[0] == offsets[1]:
            self._fold = 0
        elif self._last is not None and self._last - moment > _JUMP_BACK_MIN:
            self._fold = 1
        self._last = moment

    def _utc_minute(self, minute: bytes) -> bytes:
        utc_minute = self._minutes.get((minute, self._fold))
        if utc_minute is None:
            moment = _moment_of_minute(minute)
            utc_minute = minute
            if moment is not None:
                utc = in_zone(moment.replace(fold=self._fold), self._zone).astimezone(UTC)
                utc_minute = start_of(utc)[:_MINUTE_BYTES]
            if len(self._minutes) >= _MINUTES_KEPT:
                self._minutes.clear()
            self._minutes[minute, self._fold] = utc_minute
        return utc_minute


def _moment_of_minute(minute: bytes) -> datetime | None:
    return moment_of(minute + b":00,000]")
