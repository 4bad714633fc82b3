"""The times between which lines are wanted, as a person gives them: ISO 8601, log4j's form, or ``2h`` back from now."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime

from engine.admin.cluster.errors import BadRequest
from engine.admin.state_changes.zones import Zone, in_zone, start_of
from engine.common.moments import HINT, parse_moment

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


def parse_bound(text: str, *, now: datetime, is_end: bool) -> Bound | None:
    """Return what ``--start`` or ``--end`` means; None if it is the beginning of all time, as in Kafka's tool.

    Durations are counted back from ``now``. An end that is less exact than a millisecond includes all of its second,
    minute or day.

    Raises:
        BadRequest: it is not a time.
    """
    if text.strip(" '\"").startswith(_KAFKAS_BEGINNING):
        return None
    try:
        return Bound(parse_moment(text, now=now, is_end=is_end))
    except OverflowError:
        return None
    except ValueError:
        raise BadRequest("not a time", where=text, hint=f"give it as {HINT}") from None
