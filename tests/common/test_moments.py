"""One grammar for times, whichever option takes them."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest

from engine.admin.cluster.errors import BadRequest
from engine.admin.groups.reset_plan import parse_datetime, parse_iso_duration
from engine.admin.offsets.selection import parse_offset_time
from engine.admin.state_changes.merge import parse_bound
from engine.common.moments import calendar_time, moment_ms, parse_moment

NOW = datetime(2026, 11, 28, 3, 0, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21T12:23:04.866", "2026-11-21T12:23:04.866+00:00"),
        ("2026-11-21 12:23:04,866", "2026-11-21T12:23:04.866+00:00"),
        ("2026-11-21T12:23Z", "2026-11-21T12:23:00.000+00:00"),
        ("2026-11-21T12:23:04+0100", "2026-11-21T11:23:04.000+00:00"),
        ("2026-11-21", "2026-11-21T00:00:00.000+00:00"),
        ("02:00", "2026-11-28T02:00:00.000+00:00"),
        ("04:00", "2026-11-27T04:00:00.000+00:00"),
        ("04:00+02:00", "2026-11-28T02:00:00.000+00:00"),
        ("2h", "2026-11-28T01:00:30.000+00:00"),
        ("1h 5m ago", "2026-11-28T01:55:30.000+00:00"),
        ("90s ago", "2026-11-28T02:59:00.000+00:00"),
        ("1w", "2026-11-21T03:00:30.000+00:00"),
        ("1763727784866", "2025-11-21T12:23:04.866+00:00"),
    ],
)
def test_a_moment(text: str, expected: str) -> None:
    wanted = round(datetime.fromisoformat(expected).timestamp() * 1000)
    assert moment_ms(text, now=NOW) == wanted
    assert moment_ms(f" '{text}' ", now=NOW) == wanted


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("2026-11-21", "2026-11-21T23:59:59.999"),
        ("2026-11-21T12:23", "2026-11-21T12:23:59.999"),
        ("03:00", "2026-11-28T03:00:59.999"),
        ("2026-11-21T12:23:04.5", "2026-11-21T12:23:04.500"),
    ],
)
def test_an_end_includes_all_of_what_it_names(text: str, expected: str) -> None:
    assert parse_moment(text, now=NOW, is_end=True) == datetime.fromisoformat(expected)


@pytest.mark.parametrize("time_ms", [253_402_300_800_000, 1_796_069_067_347_000_000, 2**63 - 1])
def test_a_time_that_no_calendar_has_stays_a_number(time_ms: int) -> None:
    assert calendar_time(time_ms) == time_ms
    assert calendar_time(1_796_069_067_347) == datetime(2026, 11, 30, 20, 4, 27, 347_000, UTC)


def test_every_option_takes_them() -> None:
    moment = "2026-11-21 12:23"
    wanted = moment_ms(moment, now=NOW)
    assert parse_datetime(moment) == parse_offset_time(moment).timestamp == wanted
    bound = parse_bound(moment, now=NOW, is_end=False)
    assert bound is not None and bound.moment.replace(tzinfo=UTC).timestamp() * 1000 == wanted
    assert parse_iso_duration("PT2H") == parse_iso_duration("2h") == parse_iso_duration("120 min")


@pytest.mark.parametrize("text", ["", "soon", "2026-13-01", "25:00", "2026-11-21T12", "-", "2x", "1" * 30])
def test_what_is_none(text: str) -> None:
    with pytest.raises(ValueError):
        moment_ms(text, now=NOW)
    with pytest.raises(BadRequest, match="not a time"):
        parse_datetime(text)
