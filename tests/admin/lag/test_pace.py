"""A reader's own last commits tell whether it commits seldom or is stuck."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.lag.pace import (
    COMMITS_MAX,
    Commit,
    between_commits,
    is_batch_late,
    is_within_pace,
    seems_still,
    steps_of,
)
from engine.admin.lag.verdicts import LagStatus, Reason, Verdict

MINUTE_MS = 60_000
NOW_MS = 100 * MINUTE_MS


def commits(*pairs: tuple[float, int]) -> list[Commit]:
    """Return commits of (minutes ago, offset)."""
    return [Commit(round(NOW_MS - ago * MINUTE_MS), offset) for ago, offset in pairs]


def is_in_pace(
    made: list[Commit],
    came_ago: dict[int, float] | None = None,
    committed: int | None = None,
    *,
    is_owned: bool | None = True,
) -> bool:
    """Judge a reader of records that came long ago, except for the given ones."""
    came_ms = dict.fromkeys((reading.offset for reading in made), 0)
    came_ms |= {offset: round(NOW_MS - ago * MINUTE_MS) for offset, ago in (came_ago or {}).items()}
    steps = steps_of(made, made[-1].offset if committed is None else committed)
    return is_within_pace(steps, came_ms, NOW_MS, is_owned=is_owned)


@pytest.mark.parametrize(
    ("made", "is_in"),
    [
        (commits((3, 10), (2, 20), (1, 30)), True),
        (commits((4, 10), (3, 20), (2, 30)), True),
        (commits((4.1, 10), (3.1, 20), (2.1, 30)), False),
        # The longest time counts.
        (commits((30, 10), (10, 20), (9, 30)), True),
        # One step gives no pace, and neither does one commit.
        (commits((2, 10), (1, 20)), False),
        (commits((1, 10)), False),
        # It commits again at the same offset.
        (commits((3, 10), (2, 20), (1, 30), (0.5, 30)), False),
        (commits((4, 10), (3, 10), (3, 20), (2, 20), (1, 30)), True),
        # It went back: what came before does not count.
        (commits((5, 30), (4, 40), (3, 50), (2, 10), (1, 20)), False),
        (commits((5, 30), (4, 40), (3, 10), (2, 20), (1, 30)), True),
    ],
)
def test_the_last_commits_tell_the_pace(made: list[Commit], is_in: bool) -> None:
    assert is_in_pace(made) is is_in


def test_where_nobody_reads_a_late_step_is_a_reset_and_no_pace() -> None:
    reset = commits((12, 10), (11, 20), (10, 30), (1, 900))
    assert is_in_pace(reset), "somebody reads: it was late once"
    assert is_in_pace(reset, is_owned=None), "not known while the group rebalances"
    assert not is_in_pace(reset, is_owned=False)
    assert is_in_pace(commits((6, 10), (5, 20), (4, 30), (2.5, 900)), is_owned=False), "not twice as late"
    assert is_in_pace(commits((9, 10), (8, 20), (5, 30), (1, 40)), is_owned=False), "it was as late before"
    regular = commits((3, 10), (2, 20), (1, 30))
    assert is_in_pace(regular, is_owned=False), "a consumer that chose its partitions itself is no member"
    # It commits once a minute; the first records came just before a commit.
    assert is_in_pace(regular, {10: 2.05, 20: 2}, is_owned=False)
    # Nothing came for long; what came then was committed as quickly as ever.
    assert is_in_pace(commits((22, 10), (21, 20), (1, 30)), {20: 2}, is_owned=False)


def test_time_without_anything_to_read_is_no_pace() -> None:
    made = commits((60, 10), (30, 20), (3, 30))
    assert is_in_pace(made)
    # It waited for records, and had them for a minute each time.
    assert not is_in_pace(made, {10: 31, 20: 4})
    assert is_in_pace(made, {10: 31, 20: 4, 30: 1.5})


def test_records_that_are_gone_tell_nothing() -> None:
    steps = steps_of(commits((3, 10), (2, 20), (1, 30)), 30)
    assert is_within_pace(steps, {10: 0, 20: 0, 30: 0}, NOW_MS)
    for gone in (10, 20, 30):
        assert not is_within_pace(steps, {offset: 0 for offset in (10, 20, 30) if offset != gone}, NOW_MS)


def test_commits_that_are_not_what_the_coordinator_tells_say_nothing() -> None:
    assert not is_in_pace(commits((3, 10), (2, 20), (1, 30)), committed=40)
    assert not is_within_pace(steps_of([], 5), {}, NOW_MS)


@given(st.lists(st.tuples(st.integers(0, 60), st.integers(0, 9)), max_size=40))
def test_steps_go_forward_and_end_where_the_reader_is(pairs: list[tuple[int, int]]) -> None:
    made = commits(*sorted(pairs, reverse=True))
    steps = steps_of(made, made[-1].offset if made else 0)
    assert len(steps) != 1 and len(steps) <= COMMITS_MAX
    assert all(step.after.offset > step.before.offset for step in steps)
    assert all(later.before.offset >= earlier.after.offset for earlier, later in pairwise(steps))
    assert not steps or steps[-1].after == made[-1]


@pytest.mark.parametrize("reason", Reason)
def test_only_who_seems_to_stand_still_is_pardoned(reason: Reason) -> None:
    verdict = Verdict(LagStatus.STALL, reason)
    pardoned = Verdict(LagStatus.UNKNOWN, Reason.BETWEEN_COMMITS)
    assert between_commits(verdict) == (pardoned if seems_still(verdict) else verdict)
    assert seems_still(verdict) is (reason in (Reason.STANDS_STILL, Reason.NOBODY_READS))


# -- queries of Spark: is the next batch late?

S = 1_000


def batches(*pairs: tuple[int, int]) -> list[Commit]:
    return [Commit(time_s * S, offset) for time_s, offset in pairs]


HOURLY = batches((0, 10), (3600, 20), (7200, 30))
CAME_EVERY_HOUR = {10: 10 * S, 20: 3610 * S, 30: 7210 * S}


@pytest.mark.parametrize(
    ("commits", "came_ms", "now_s", "expected"),
    [
        # Records wait for an hour, which is fine for two.
        (HOURLY, CAME_EVERY_HOUR, 7200 + 3600, False),
        (HOURLY, CAME_EVERY_HOUR, 7210 + 2 * 3590, False),
        (HOURLY, CAME_EVERY_HOUR, 7210 + 2 * 3590 + 1, True),
        # It waited for records, not the other way round: the last one came just now.
        (HOURLY, {**CAME_EVERY_HOUR, 30: 99_000 * S}, 99_009, False),
        # A batch came within a second of its records. Nothing is late within ten seconds.
        (batches((0, 10), (100, 20), (200, 30)), {10: 99 * S, 20: 199 * S, 30: 299 * S}, 308, False),
        (batches((0, 10), (100, 20), (200, 30)), {10: 99 * S, 20: 199 * S, 30: 299 * S}, 310, True),
        # Without times of records: for longer than is known of it.
        (HOURLY, {}, 7200 + 7200, False),
        (HOURLY, {}, 7200 + 7201, True),
        (batches((0, 10)), {}, 99_999, None),
        (batches((0, 10)), {}, 5, False),
        ([], {}, 5, None),
    ],
)
def test_whether_the_next_batch_is_late(
    commits: list[Commit], came_ms: dict[int, int], now_s: int, expected: bool | None
) -> None:
    committed = commits[-1].offset if commits else 0
    assert is_batch_late(commits, committed, came_ms, now_s * S) is expected
