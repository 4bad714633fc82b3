"""Status by rule: every rule by name, all short series, and what must hold for any series."""

from __future__ import annotations

from itertools import pairwise, product

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.lag.verdicts import (
    STUCK_MS,
    KnownPoint,
    LagStatus,
    Point,
    Reason,
    Rhythm,
    Verdict,
    group_verdict,
    is_doubtful,
    judge,
    known_points,
    went_back,
    with_aborted,
    without_records,
)

OK, UNKNOWN, WARN = LagStatus.OK, LagStatus.UNKNOWN, LagStatus.WARN
STALL, STOP, REWIND = LagStatus.STALL, LagStatus.STOP, LagStatus.REWIND


def series(*pairs: tuple[int | None, int | None], step_ms: int = 5_000) -> list[Point]:
    """Return points of (committed, end) at a steady pace."""
    return [Point(1_000_000 + index * step_ms, *pair) for index, pair in enumerate(pairs)]


@pytest.mark.parametrize(
    ("pairs", "status", "reason"),
    [
        ([(None, 9)], UNKNOWN, Reason.NOTHING_COMMITTED),
        ([(5, 9), (6, 9), (None, 9)], UNKNOWN, Reason.NOTHING_COMMITTED),
        ([(5, 9), (6, 9), (7, None)], UNKNOWN, Reason.END_UNKNOWN),
        ([(9, 9)], OK, Reason.CAUGHT_UP),
        ([(0, 0)], OK, Reason.CAUGHT_UP),
        ([(5, 9)], UNKNOWN, Reason.TOO_FEW_SAMPLES),
        ([(5, 9), (6, 9)], UNKNOWN, Reason.TOO_FEW_SAMPLES),
        ([(12, 9)], REWIND, Reason.AHEAD_OF_LOG),
        ([(9, 12), (10, 14), (12, 14), (12, 5)], REWIND, Reason.AHEAD_OF_LOG),
        ([(8, 9), (3, 9)], REWIND, Reason.WENT_BACK),
        ([(8, 9), (3, 9), (5, 9), (7, 20)], REWIND, Reason.WENT_BACK),
        ([(8, 9), (3, 9), (9, 12), (11, 14)], OK, Reason.KEEPS_UP),
        ([(8, 9), (3, 9), (9, 9)], OK, Reason.CAUGHT_UP),
        ([(5, 9), (9, 12), (12, 15)], OK, Reason.KEEPS_UP),
        ([(9, 9), (9, 10), (9, 11)], OK, Reason.KEEPS_UP),
        ([(9, 9), (9, 10), (9, 11), (9, 12)], STALL, Reason.STANDS_STILL),
        ([(5, 9), (5, 9), (5, 9)], STALL, Reason.STANDS_STILL),
        ([(5, 90), (6, 91), (7, 92), (8, 93)], WARN, Reason.LAG_NEVER_FELL),
        ([(5, 90), (6, 95), (7, 99), (8, 120)], WARN, Reason.LAG_NEVER_FELL),
        ([(5, 90), (6, 95), (20, 99), (21, 120)], OK, Reason.LAG_FELL),
        # It moved for 5 s, then stood for 10 s: not more than twice as long.
        ([(5, 90), (6, 90), (6, 90), (6, 90)], OK, Reason.LAG_FELL),
        ([(5, 90), (6, 90), (6, 90), (6, 90), (6, 90)], STALL, Reason.STANDS_STILL),
        # It moved at each sample, then stood for more than twice as long as ever before.
        ([(5, 90), (6, 91), (26, 92), (27, 93), (28, 94), (28, 95), (28, 96)], OK, Reason.LAG_FELL),
        ([(5, 90), (6, 91), (26, 92), (27, 93), (28, 94), (28, 95), (28, 96), (28, 97)], WARN, Reason.STANDS_STILL),
        # It commits at every third sample.
        ([(5, 90), *[(15, 90)] * 3, *[(25, 90)] * 3, *[(35, 90)] * 6], OK, Reason.LAG_FELL),
        # The log was created again: what came before does not count.
        ([(50, 90), (60, 95), (1, 3), (2, 4)], UNKNOWN, Reason.TOO_FEW_SAMPLES),
        ([(50, 90), (60, 95), (1, 30), (2, 40), (3, 50)], WARN, Reason.LAG_NEVER_FELL),
        # Unknown values in between are left out.
        ([(5, 90), (None, None), (5, 91), (None, 91), (5, 92)], STALL, Reason.STANDS_STILL),
    ],
)
def test_each_rule(pairs: list[tuple[int | None, int | None]], status: LagStatus, reason: Reason) -> None:
    assert judge(series(*pairs), is_owned=True) == Verdict(status, reason)


def test_two_samples_that_are_far_apart_tell() -> None:
    apart = series((5, 9), (5, 12), step_ms=300_000)
    assert judge(apart, is_owned=True) == Verdict(STALL, Reason.STANDS_STILL)
    assert judge(series((5, 90), (7, 99), step_ms=10_000), is_owned=True).status is WARN
    assert judge(series((5, 90), (7, 99), step_ms=9_999), is_owned=True).status is UNKNOWN


@pytest.mark.parametrize(("is_owned", "status"), [(True, STALL), (False, STOP), (None, STALL)])
def test_who_reads_tells_a_stall_from_a_stop(is_owned: bool | None, status: LagStatus) -> None:
    assert judge(series((5, 9), (5, 9), (5, 9)), is_owned=is_owned).status is status


@pytest.mark.parametrize(
    ("pairs", "status", "reason"),
    [
        # One jump is a reset, not reading, wherever it leads.
        ([(5, 90), (5, 90), (60, 90)], UNKNOWN, Reason.TOO_FEW_SAMPLES),
        ([(5, 90), (5, 90), (90, 95)], UNKNOWN, Reason.TOO_FEW_SAMPLES),
        ([(5, 90), (5, 90), (60, 90), (60, 91)], UNKNOWN, Reason.TOO_FEW_SAMPLES),
        ([(5, 90), (5, 90), (60, 90), (60, 90), (60, 90)], STOP, Reason.NOBODY_READS),
        ([(5, 90), (5, 90), (90, 90)], OK, Reason.CAUGHT_UP),
        ([(5, 5), (5, 5), (5, 90), (90, 95)], OK, Reason.KEEPS_UP),
        ([(50, 90), (50, 90), (5, 90)], REWIND, Reason.WENT_BACK),
        # Consumers moved it at each sample, and are gone.
        ([(5, 90), (10, 90), (15, 90), (20, 90), (20, 90)], OK, Reason.LAG_FELL),
        ([(5, 90), (10, 90), (15, 90), (20, 90), (20, 90), (20, 90)], STOP, Reason.NOBODY_READS),
        # They moved it, were gone for a while, and then it was reset.
        ([(5, 90), (10, 90), (10, 90), (10, 90), (60, 90)], UNKNOWN, Reason.TOO_FEW_SAMPLES),
        ([(5, 90), (7, 90), (9, 90), (9, 90), (9, 90), (80, 90), (80, 91)], UNKNOWN, Reason.TOO_FEW_SAMPLES),
        ([(5, 90), (7, 90), (9, 90), (9, 90), (9, 90), (80, 90), (80, 91), (80, 91)], STOP, Reason.NOBODY_READS),
        # A consumer that chose its partitions itself is no member. It moves at every second or third sample.
        ([(5, 90), (15, 90), (15, 90), (25, 90), (25, 90), (25, 90)], OK, Reason.LAG_FELL),
        ([(5, 90), (15, 90), (15, 90), (25, 90), (25, 90), (25, 90), (25, 90)], STOP, Reason.NOBODY_READS),
        ([(5, 90), *[(15, 90)] * 3, *[(25, 90)] * 3, (35, 90), (35, 90), (35, 90)], OK, Reason.LAG_FELL),
        ([(5, 90), *[(15, 90)] * 3, *[(25, 90)] * 3, *[(35, 90)] * 4], OK, Reason.LAG_FELL),
        ([(5, 90), *[(15, 90)] * 3, *[(25, 90)] * 3, *[(35, 90)] * 5], STOP, Reason.NOBODY_READS),
        ([(5, 9), (9, 12), (12, 15)], OK, Reason.KEEPS_UP),
        # It moves as rarely as it did at first, though it was quicker meanwhile.
        ([(5, 90), *[(15, 90)] * 4, *[(25, 90)] * 2, *[(35, 90)] * 3, (45, 90)], OK, Reason.LAG_FELL),
        # It had read everything, and went on when there was something again.
        ([(5, 90), (90, 90), (90, 90), (90, 120), (115, 120)], OK, Reason.KEEPS_UP),
    ],
)
def test_where_nobody_owns_the_partition_a_lag_that_fell_says_less(
    pairs: list[tuple[int, int]], status: LagStatus, reason: Reason
) -> None:
    assert judge(series(*pairs), is_owned=False) == Verdict(status, reason)


def test_while_it_is_not_known_who_reads_a_jump_counts_as_reading() -> None:
    for is_owned in (True, None):
        assert judge(series((5, 90), (5, 90), (60, 90)), is_owned=is_owned) == Verdict(OK, Reason.LAG_FELL)


def test_two_samples_are_too_few_to_tell_that_a_reader_without_an_owner_has_stopped() -> None:
    moved = [Point(1_000_000 + 1_000 * second, 5 + second, 90) for second in range(3)]
    assert judge([*moved, Point(1_005_000, 7, 90)], is_owned=False).status is OK
    assert judge([*moved, Point(1_015_000, 7, 90)], is_owned=False).status is STOP


def test_records_that_were_deleted_unread() -> None:
    moving = series((5, 90), (50, 95), (90, 99))
    assert judge(moving, is_owned=True, start=90).status is OK
    assert judge(moving, is_owned=True, start=91) == Verdict(WARN, Reason.RECORDS_LOST)
    still = series((5, 90), (5, 90), (5, 90))
    assert judge(still, is_owned=False, start=91) == Verdict(STOP, Reason.NOBODY_READS)
    assert judge(series((5, 90)), is_owned=True, start=6) == Verdict(WARN, Reason.RECORDS_LOST)


def test_why_something_is_unknown_is_told() -> None:
    for reason in (Reason.NO_LEADER, Reason.NO_SUCH_PARTITION, Reason.COMMITTED_UNKNOWN):
        assert judge(series((5, None)), is_owned=True, why_unknown=reason) == Verdict(UNKNOWN, reason)
        assert judge(series((None, None)), is_owned=True, why_unknown=reason) == Verdict(UNKNOWN, reason)


def test_all_short_series() -> None:
    """Every series of up to four points with small offsets: the claim of each verdict is true."""
    values = (None, 0, 1, 2, 3)
    seen = set()
    for length in (1, 2, 3, 4):
        pairs = list(product(values, repeat=2)) if length < 4 else list(product(values[1:], repeat=2))
        for chosen in product(pairs, repeat=length):
            points = series(*chosen)
            verdict = judge(points, is_owned=False)
            seen.add(verdict)
            _is_justified(points, verdict)
    assert {status for status, _ in seen} == {OK, UNKNOWN, WARN, STOP, REWIND}


def _is_justified(points: list[Point], verdict: Verdict) -> None:
    _, committed, end = points[-1]
    known = known_points(points) if committed is not None and end is not None else []
    offsets = [point.committed for point in known]
    match verdict.reason:
        case Reason.NOTHING_COMMITTED:
            assert committed is None
        case Reason.END_UNKNOWN:
            assert end is None
        case Reason.CAUGHT_UP:
            assert committed == end
        case Reason.AHEAD_OF_LOG:
            assert known[-1].lag < 0
        case Reason.WENT_BACK:
            assert offsets != sorted(offsets)
            assert known[-1].lag > 0
            assert offsets[-1] < max(offsets)
        case Reason.TOO_FEW_SAMPLES:
            moves = [before for before, after in pairwise(offsets) if before != after]
            assert len(known) < 3 or (len(moves) == 1 and len(set(offsets[-3:])) > 1)
        case Reason.KEEPS_UP:
            assert offsets[-1] >= min(point.end for point in known[-3:])
        case Reason.NOBODY_READS:
            assert len(set(offsets[-2:])) == 1
            assert known[-1].lag > 0
        case Reason.LAG_FELL:
            assert any(after.lag < before.lag for before, after in pairwise(known))
        case Reason.LAG_NEVER_FELL:
            lags = [point.lag for point in known]
            assert lags == sorted(lags)
            assert len(set(offsets)) > 1
        case _:
            raise AssertionError(f"not a reason for such a series: {verdict}")


OFFSETS = st.one_of(st.none(), st.integers(0, 50))
SERIES = st.lists(st.tuples(st.integers(1, 60_000), OFFSETS, OFFSETS), min_size=1, max_size=12)
OWNED = st.sampled_from([True, False, None])


def _of(steps: list[tuple[int, int | None, int | None]], *, shift: int = 0, start_ms: int = 0) -> list[Point]:
    points, now = [], start_ms
    for pause, committed, end in steps:
        now += pause
        moved = [None if value is None else value + shift for value in (committed, end)]
        points.append(Point(now, *moved))
    return points


@given(SERIES, OWNED)
def test_nothing_unread_is_ok_and_nothing_known_is_unknown(
    steps: list[tuple[int, int | None, int | None]], is_owned: bool | None
) -> None:
    *before, (pause, _, _) = steps
    for offset in (0, 7):
        assert judge(_of([*before, (pause, offset, offset)]), is_owned=is_owned).status is OK
    for committed, end in ((None, 7), (7, None), (None, None)):
        assert judge(_of([*before, (pause, committed, end)]), is_owned=is_owned).status is UNKNOWN


@given(SERIES, OWNED, st.integers(0, 2**40), st.integers(0, 2**40))
def test_only_differences_count(
    steps: list[tuple[int, int | None, int | None]], is_owned: bool | None, shift: int, start_ms: int
) -> None:
    verdict = judge(_of(steps), is_owned=is_owned)
    assert judge(_of(steps, shift=shift, start_ms=start_ms), is_owned=is_owned) == verdict
    # The presence of a reader decides only between a stall and a stop, and whether moves before count.
    other = judge(_of(steps), is_owned=False)
    differs = {STALL, STOP} if verdict.status is STALL else {OK, WARN, STOP, UNKNOWN}
    assert verdict == other or {verdict.status, other.status} <= differs
    assert verdict == other or other.status in (STOP, UNKNOWN)


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(1, 60)), min_size=3, max_size=12), st.integers(0, 20), OWNED)
def test_a_reader_of_what_was_there_before_is_never_bad(
    arrivals: list[tuple[int, int]], backlog: int, is_owned: bool | None
) -> None:
    """At each look it commits what was the end at the look before, however much arrives."""
    now = end = 0
    committed, points = -1, []
    end = backlog
    for count, pause in arrivals:
        now, committed = now + pause * 1000, max(committed, end if committed >= 0 else 0)
        end += count
        points.append(Point(now, committed, end))
    assert not judge(points, is_owned=is_owned).status.is_bad
    if len(points) > 3:
        assert judge(points, is_owned=is_owned).status is OK


@given(st.integers(1, 50), st.lists(st.integers(0, 9), min_size=2, max_size=12), OWNED)
def test_a_reader_that_never_moves_is_always_found(backlog: int, arrivals: list[int], is_owned: bool | None) -> None:
    points, end = [Point(0, 100, 100 + backlog)], 100 + backlog
    for index, count in enumerate(arrivals, 1):
        end += count
        points.append(Point(index * 5_000, 100, end))
    assert judge(points, is_owned=is_owned).status is (STOP if is_owned is False else STALL)


@given(st.lists(st.integers(0, 30), min_size=2, max_size=12))
def test_went_back_means_that_it_is_below_where_it_was(offsets: list[int]) -> None:
    points = [KnownPoint(index, offset, 99) for index, offset in enumerate(offsets)]
    if went_back(points):
        assert offsets != sorted(offsets)
        assert offsets[-1] < max(offsets)
    else:
        assert offsets[-1] == max(offsets) or offsets == sorted(offsets)


def test_where_no_record_is_unread_nothing_is_wrong() -> None:
    for reason in Reason:
        for status in LagStatus:
            verdict = without_records(Verdict(status, reason))
            assert verdict in (Verdict(OK, Reason.NO_RECORDS), Verdict(status, reason))
    assert without_records(Verdict(STALL, Reason.STANDS_STILL)).status is OK
    for reason in (Reason.AHEAD_OF_LOG, Reason.RECORDS_LOST, Reason.NO_LEADER, Reason.NOTHING_COMMITTED):
        assert without_records(Verdict(WARN, reason)) == Verdict(WARN, reason)


def test_where_all_unread_records_are_aborted_nobody_knows() -> None:
    seen = set()
    for reason in Reason:
        for status in LagStatus:
            verdict = Verdict(status, reason)
            judged = with_aborted(verdict)
            assert judged == (Verdict(LagStatus.UNKNOWN, Reason.ONLY_ABORTED) if is_doubtful(verdict) else verdict)
            if is_doubtful(verdict):
                assert status.is_trouble
                seen.add(reason)
    assert seen == {Reason.STANDS_STILL, Reason.NOBODY_READS, Reason.LAG_NEVER_FELL}


def test_a_group_is_as_bad_as_its_worst_partition() -> None:
    fine, behind = Verdict(OK, Reason.CAUGHT_UP), Verdict(WARN, Reason.LAG_NEVER_FELL)
    stopped, empty = Verdict(STOP, Reason.NOBODY_READS), Verdict(UNKNOWN, Reason.NOTHING_COMMITTED)
    leaderless = Verdict(UNKNOWN, Reason.NO_LEADER)
    assert group_verdict([]) == (None, None)
    assert group_verdict([("a-0", fine), ("a-1", stopped), ("a-2", behind)]) == (stopped, "a-1")
    assert group_verdict([("a-0", fine), ("a-1", empty)]) == (fine, "a-0"), "nobody has read a-1 yet"
    assert group_verdict([("a-0", empty), ("a-1", empty)]) == (empty, "a-0")
    assert group_verdict([("a-0", fine), ("a-1", leaderless)]) == (leaderless, "a-1")
    assert group_verdict([("a-0", behind), ("a-1", leaderless)]) == (behind, "a-0")
    less = Verdict(OK, Reason.LAG_FELL)
    assert group_verdict([("a-0", fine), ("a-1", less)]) == (less, "a-1"), "the group has not caught up"


# -- queries of Spark

IDLE = Rhythm(None, 2_000, False)
LATE = Rhythm(None, 2_000, True)
RUNS = Rhythm(1_000, 2_000, None)
KEEPING_UP = ((0, 10), (10, 20), (20, 30), (30, 31))
FALLING = ((0, 90), (5, 92), (30, 95), (50, 99))
GROWING = ((0, 90), (5, 96), (10, 103), (15, 111))


@pytest.mark.parametrize(
    ("pairs", "rhythm", "status", "reason"),
    [
        ([(9, 9)], LATE, OK, Reason.CAUGHT_UP),
        ([(9, 9)], Rhythm(10**9, 1, None), OK, Reason.CAUGHT_UP),
        ([(12, 9)], IDLE, LagStatus.AHEAD, Reason.AHEAD_OF_LOG),
        ([(None, 9)], RUNS, UNKNOWN, Reason.NOTHING_COMMITTED),
        ([(9, None)], RUNS, UNKNOWN, Reason.END_UNKNOWN),
        ([(8, 9), (3, 9), (3, 9)], RUNS, REWIND, Reason.WENT_BACK),
        (KEEPING_UP, IDLE, OK, Reason.KEEPS_UP),
        (KEEPING_UP, RUNS, LagStatus.RUNNING, Reason.BATCH_RUNS),
        (KEEPING_UP, LATE, STOP, Reason.BATCH_IS_LATE),
        (FALLING, IDLE, OK, Reason.LAG_FELL),
        (FALLING, RUNS, LagStatus.RUNNING, Reason.BATCH_RUNS),
        (GROWING, IDLE, LagStatus.BEHIND, Reason.LAG_NEVER_FELL),
        (GROWING, RUNS, LagStatus.BEHIND, Reason.LAG_NEVER_FELL),
        # Three points are two batches and the present.
        (GROWING[:3], RUNS, LagStatus.RUNNING, Reason.BATCH_RUNS),
        (GROWING[:3], IDLE, UNKNOWN, Reason.TOO_FEW_SAMPLES),
        (GROWING[:1], LATE, STOP, Reason.BATCH_IS_LATE),
        (GROWING, Rhythm(STUCK_MS + 1, 2_000, None), LagStatus.STUCK, Reason.BATCH_TOO_LONG),
        (GROWING, Rhythm(STUCK_MS, 2_000, None), LagStatus.BEHIND, Reason.LAG_NEVER_FELL),
        # Long batches may take long.
        (FALLING, Rhythm(5 * 60_000, 60_000, None), LagStatus.RUNNING, Reason.BATCH_RUNS),
        (FALLING, Rhythm(5 * 60_000 + 1, 60_000, None), LagStatus.STUCK, Reason.BATCH_TOO_LONG),
        # Nobody runs the batch of a query that has ended, however lately it began.
        (FALLING, Rhythm(1_000, 2_000, None, has_ended=True), STOP, Reason.ENDED_IN_BATCH),
        (GROWING[:1], Rhythm(1_000, None, None, has_ended=True), STOP, Reason.ENDED_IN_BATCH),
        ([(9, 9)], Rhythm(1_000, 2_000, None, has_ended=True), OK, Reason.CAUGHT_UP),
        # One that ended between two batches may begin again by its plan: a job for now and then.
        (FALLING, Rhythm(None, 2_000, False, has_ended=True), OK, Reason.LAG_FELL),
        # A running batch is not late.
        (FALLING, Rhythm(1_000, 2_000, True), LagStatus.RUNNING, Reason.BATCH_RUNS),
        # Before a batch has finished nobody knows how long is too long.
        (FALLING, Rhythm(10**9, None, None), LagStatus.RUNNING, Reason.BATCH_RUNS),
        # It stands still while batches come and go.
        ([(5, 90), (5, 91), (5, 92), (5, 93)], RUNS, STALL, Reason.STANDS_STILL),
        ([(4, 90), (5, 91), (5, 92), (5, 93)], RUNS, LagStatus.BEHIND, Reason.LAG_NEVER_FELL),
        ([(5, 5), (5, 5), (5, 5), (5, 93)], RUNS, LagStatus.RUNNING, Reason.BATCH_RUNS),
    ],
)
def test_each_rule_for_queries(
    pairs: list[tuple[int | None, int | None]], rhythm: Rhythm, status: LagStatus, reason: Reason
) -> None:
    assert judge(series(*pairs), is_owned=None, rhythm=rhythm) == Verdict(status, reason)


def test_a_query_whose_records_were_deleted() -> None:
    lost = Verdict(LagStatus.DATA_LOSS, Reason.RECORDS_LOST)
    for rhythm in (IDLE, LATE, RUNS, Rhythm(10**9, 1, None)):
        assert judge(series(*FALLING), is_owned=None, start=51, rhythm=rhythm) == lost
        assert judge(series(*FALLING), is_owned=None, start=50, rhythm=rhythm) != lost
    assert judge(series((12, 9)), is_owned=None, start=13, rhythm=IDLE).status is LagStatus.AHEAD


def test_a_query_before_which_only_markers_stand() -> None:
    for rhythm in (IDLE, LATE, RUNS):
        verdict = judge(series(*GROWING), is_owned=None, rhythm=rhythm)
        assert without_records(verdict) == Verdict(OK, Reason.NO_RECORDS)
    stuck = judge(series(*GROWING), is_owned=None, rhythm=Rhythm(10**9, 1, None))
    assert without_records(stuck) == stuck


def test_how_bad_each_status_is() -> None:
    words = ("OK", "RUNNING", "UNKNOWN", "WARN", "BEHIND", "STALL", "STUCK", "STOP", "DATA_LOSS", "AHEAD", "REWIND")
    assert [str(status) for status in sorted(LagStatus, key=lambda status: status.rank)] == list(words)
    assert [str(status) for status in LagStatus if status.is_fine] == ["OK", "RUNNING"]
    assert [str(status) for status in LagStatus if status.is_bad] == list(words[5:])


@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(0, 40)), min_size=1, max_size=9),
    st.sampled_from([IDLE, LATE, RUNS, Rhythm(10**9, 1, None), Rhythm()]),
)
def test_zero_lag_always_wins(pairs: list[tuple[int, int]], rhythm: Rhythm) -> None:
    verdict = judge(series(*pairs), is_owned=None, rhythm=rhythm)
    committed, end = pairs[-1]
    assert (verdict.reason is Reason.CAUGHT_UP) == (committed == end)
    assert (verdict.status is LagStatus.AHEAD) == (committed > end)
