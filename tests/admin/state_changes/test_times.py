"""Times without a zone, and the bounds that a person gives."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path
from zoneinfo import ZoneInfo

import pytest
from state_change_logs import merged_rows, merged_text, plan_of, write_log

from engine.admin.cluster.errors import BadRequest
from engine.admin.state_changes.merge import Bound, MergeWish, parse_bound
from engine.admin.state_changes.merged_rows import epoch_ms, iso_time
from engine.admin.state_changes.zones import UtcClock, has_one_offset, parse_zone

NOW = datetime(2026, 11, 21, 12, tzinfo=UTC)
BERLIN = ZoneInfo("Europe/Berlin")


@pytest.mark.parametrize(
    ("text", "start", "end"),
    [
        ("2026-11-21 02:03:04,005", "02:03:04.005", "02:03:04.005"),
        ("'2026-11-21 02:03:04,005'", "02:03:04.005", "02:03:04.005"),
        ("2026-11-21T02:03:04.5", "02:03:04.500", "02:03:04.500"),
        ("2026-11-21T02:03:04", "02:03:04.000", "02:03:04.999"),
        ("2026-11-21 02:03", "02:03:00.000", "02:03:59.999"),
        ("2026-11-21", "00:00:00.000", "23:59:59.999"),
        ("2026-11-21T02:03:04.005Z", "02:03:04.005", "02:03:04.005"),
        ("2026-11-21T02:03:04.005+01:00", "01:03:04.005", "01:03:04.005"),
        ("2h", "10:00:00.000", "10:00:00.000"),
        ("90 m ago", "10:30:00.000", "10:30:00.000"),
        ("0.5h", "11:30:00.000", "11:30:00.000"),
    ],
)
def test_bounds(text: str, start: str, end: str) -> None:
    for is_end, expected in ((False, start), (True, end)):
        bound = parse_bound(text, now=NOW, is_end=is_end)
        assert bound is not None
        assert bound.start_in(UTC, as_utc=True).decode() == f"[2026-11-21 {expected.replace('.', ',')}]"


def test_kafkas_own_bounds() -> None:
    assert parse_bound("0000-00-00 00:00:00,000", now=NOW, is_end=False) is None
    last = parse_bound("9999-12-31 23:59:59,999", now=NOW, is_end=True)
    assert last is not None
    assert last.start_in(UTC, as_utc=False) == b"[9999-12-31 23:59:59,999]"


@pytest.mark.parametrize("text", ["", "soon", "30m2h", "2026-02-30", "2026-11-21 25:00", "21.11.2026", "2x"])
def test_what_is_no_time(text: str) -> None:
    with pytest.raises(BadRequest, match="not a time"):
        parse_bound(text, now=NOW, is_end=False)


def test_zones() -> None:
    assert parse_zone("UTC") is UTC
    assert parse_zone("local") is None
    assert parse_zone("+02:30") == timezone(timedelta(hours=2, minutes=30))
    assert parse_zone("-0100") == timezone(-timedelta(hours=1))
    assert parse_zone("Europe/Berlin") == BERLIN
    for text in ("Mars/Olympus", "+99:00", "", "../etc/passwd"):
        with pytest.raises(BadRequest, match="no such time zone"):
            parse_zone(text)


def test_a_bound_is_meant_in_the_zone_of_the_logs() -> None:
    local = Bound(datetime(2026, 7, 1, 12))
    assert local.start_in(BERLIN, as_utc=False) == b"[2026-07-01 12:00:00,000]"
    assert local.start_in(BERLIN, as_utc=True) == b"[2026-07-01 10:00:00,000]"
    absolute = Bound(datetime(2026, 7, 1, 12, tzinfo=UTC))
    assert absolute.start_in(BERLIN, as_utc=False) == b"[2026-07-01 14:00:00,000]"


def test_local_time_becomes_utc() -> None:
    starts = [b"[2026-07-01 12:34:56,789]", b"[2026-12-01 12:34:56,789]", b"[2026-13-01 12:34:56,789]"]
    assert UtcClock(BERLIN).starts(starts) == [
        b"[2026-07-01 10:34:56,789]",
        b"[2026-12-01 11:34:56,789]",
        b"[2026-13-01 12:34:56,789]",
    ]


def test_the_hour_that_comes_twice() -> None:
    """On 25 October 2026 Berlin's clocks go back from 3:00 to 2:00, so a log has that hour twice."""
    local = ["01:59:59", "02:10:00", "02:50:00", "02:05:00", "02:50:00", "03:10:00"]
    utc = ["23:59:59", "00:10:00", "00:50:00", "01:05:00", "01:50:00", "02:10:00"]
    starts = [f"[2026-10-25 {time},000]".encode() for time in local]
    starts_in_utc = UtcClock(BERLIN).starts(starts)
    assert [start[12:20].decode() for start in starts_in_utc] == utc
    assert not has_one_offset(BERLIN, starts[0], starts[-1])
    assert has_one_offset(BERLIN, b"[2026-11-01 00:00:00,000]", b"[2026-12-01 00:00:00,000]")
    assert not has_one_offset(BERLIN, b"[2026-03-01 00:00:00,000]", b"[2026-12-01 00:00:00,000]")


def log_of(folder: Path, broker: int, times: list[str]) -> Path:
    lines = [f"[{time},000] INFO [Broker id={broker}] at {time}" for time in times]
    return write_log(folder / f"broker-{broker}" / "state-change.log", lines)


def test_brokers_of_several_zones_are_merged_in_true_order(tmp_path: Path) -> None:
    log_of(tmp_path, 1, ["2026-11-21 12:00:00", "2026-11-21 12:00:02"])
    log_of(tmp_path, 2, ["2026-11-21 13:00:01", "2026-11-21 13:00:03"])
    wish = MergeWish(start="2026-11-21T12:00:01Z", zones={None: UTC, 2: BERLIN})
    rows = merged_rows(plan_of(tmp_path, wish=wish))
    assert [(iso_time(row.utc_start), row.broker) for row in rows] == [
        ("2026-11-21T12:00:01.000Z", 2),
        ("2026-11-21T12:00:02.000Z", 1),
        ("2026-11-21T12:00:03.000Z", 2),
    ]
    assert "[2026-11-21 13:00:01,000]" in merged_text(plan_of(tmp_path, wish=wish)), "the lines stay as they are"


def test_clocks_that_are_put_back_do_not_mix_the_two_hours(tmp_path: Path) -> None:
    for broker in (1, 2):
        log_of(tmp_path, broker, [f"2026-10-25 02:{minute:02d}:0{broker}" for minute in (*range(0, 60, 9), *range(60))])
    plan = plan_of(tmp_path, wish=MergeWish(zones={None: BERLIN}))
    assert plan.is_utc
    rows = merged_rows(plan)
    assert len(rows) == 2 * 67
    assert [row.broker for row in rows] == [1, 2] * 67
    assert [row.utc_start for row in rows] == sorted(row.utc_start or b"" for row in rows)
    assert plan.problems == []


def test_times_for_people_and_machines() -> None:
    assert iso_time(b"[2026-11-21 12:00:00,005]") == "2026-11-21T12:00:00.005Z"
    assert epoch_ms(b"[1970-01-01 00:00:01,005]") == 1005
    for start in (None, b"[2026-13-21 12:00:00,005]", b"[2026-02-30 12:00:00,005]", b"[2026-02-01 12:00:77,005]"):
        assert iso_time(start) is None
        assert epoch_ms(start) is None
