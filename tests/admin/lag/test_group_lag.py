"""From samples to the answer: no unknown value becomes a number, and sums say how much is missing."""

from __future__ import annotations

import pytest

from engine.admin.cluster.errors import Unknown
from engine.admin.groups.values import GroupState, GroupType
from engine.admin.lag.group_lag import GroupLag, doubtful_places, group_lag, place_of_newest, place_of_unread
from engine.admin.lag.pace import Trend, sum_of_trends, trend_of
from engine.admin.lag.sampling import GroupSample, PartitionSample
from engine.admin.lag.unread import Behind, Place, Times, UnreadRecord
from engine.admin.lag.verdicts import KnownPoint, LagStatus, Point, Reason
from engine.common.model import TopicPartition

NOW = 1_000_000
A, B, C = (TopicPartition("t", number) for number in range(3))


def sample(committed: int | None, end: int | None, start: int | None = 0, why: Reason | None = None) -> PartitionSample:
    return PartitionSample(committed, end, start, True, "m-1", why)


def answer(
    partitions: dict[TopicPartition, PartitionSample],
    series: dict[TopicPartition, list[Point]] | None = None,
    times: Times | None = None,
    behind: Behind | None = None,
) -> GroupLag:
    points = {name: [Point(NOW, partition.committed, partition.end)] for name, partition in partitions.items()}
    group = GroupSample("g", GroupType.CLASSIC, GroupState.STABLE, partitions)
    return group_lag(group, points | (series or {}), times or {}, NOW, behind=behind or Behind())


def test_sums_are_over_what_is_known() -> None:
    group = answer(
        {A: sample(5, 9), B: sample(5, None, why=Reason.NO_LEADER), C: sample(None, 9)},
        times={Place(A, 5): UnreadRecord(5, NOW - 700), Place(A, 8): UnreadRecord(8, NOW - 100)},
    )
    assert (group.lag, group.time_lag_ms, group.partition_count, group.unknown_partition_count) == (4, 700, 3, 2)
    partition_lag, leaderless, fresh = group.partitions
    assert (partition_lag.lag, partition_lag.time_lag_ms, partition_lag.span_ms, partition_lag.consumer_id) == (
        4,
        700,
        600,
        "m-1",
    )
    assert (leaderless.lag, leaderless.time_lag_ms, leaderless.committed_offset) == (None, None, 5)
    assert (fresh.lag, fresh.reason) == (None, Reason.NOTHING_COMMITTED)


def test_what_is_not_known_of_one_partition_is_no_zero() -> None:
    """All that is known is read: the partition without a leader may hold any number of unread records."""
    offline = sample(5, None, why=Reason.NO_LEADER)
    group = answer({A: sample(9, 9), B: offline})
    assert (group.lag, group.time_lag_ms, group.status, group.where) == (None, None, LagStatus.UNKNOWN, "t-1")
    assert group.has_unknown_lag and group.has_unknown_time_lag
    group = answer({A: sample(5, 9), B: offline}, times={Place(A, 5): UnreadRecord(5, NOW - 700)})
    assert (group.lag, group.time_lag_ms, group.has_unknown_lag, group.has_unknown_time_lag) == (4, 700, True, True)
    group = answer({A: sample(9, 9), B: sample(5, 9)})
    assert (group.lag, group.time_lag_ms, group.has_unknown_lag) == (4, None, False), "the times were not read"


def test_a_partition_without_a_lag_leaves_nothing_unknown() -> None:
    for other in (sample(None, 9), sample(5, None, why=Reason.NO_SUCH_PARTITION)):
        group = answer({A: sample(9, 9), B: other})
        assert (group.lag, group.time_lag_ms, group.unknown_partition_count) == (0, 0, 1)
        assert not group.has_unknown_lag and not group.has_unknown_time_lag


def test_where_nothing_is_known_nothing_is_told() -> None:
    for partitions in ({}, {A: sample(None, 9)}, {A: sample(5, None)}, {A: sample(9, 5)}):
        group = answer(partitions)
        figures = (group.lag, group.time_lag_ms, group.in_per_sec, group.out_per_sec, group.clear_in_ms)
        assert figures == (None,) * 5


def test_a_group_without_any_offset_says_so() -> None:
    """Kafka leaves out the topics that somebody may not describe, so they may as well be hidden."""
    group = answer({})
    assert (group.status, group.reason, group.error) == (LagStatus.UNKNOWN, Reason.NO_OFFSETS_SHOWN, None)


def test_nothing_unread_waits_for_no_time() -> None:
    group = answer({A: sample(9, 9)})
    assert (group.lag, group.time_lag_ms, group.clear_in_ms, group.status) == (0, 0, 0, LagStatus.OK)


@pytest.mark.parametrize(
    ("record", "time_lag_ms"),
    [
        (UnreadRecord(7, NOW - 5), 5),
        (UnreadRecord(7, NOW + 2_000), 0),
        (UnreadRecord(7, NOW + 2_001), None),
        (UnreadRecord(7, None), None),
        (Unknown("refused"), None),
        (None, 0),
    ],
)
def test_the_time_of_the_first_unread_record(record: UnreadRecord | Unknown | None, time_lag_ms: int | None) -> None:
    group = answer({A: sample(5, 9)}, times={Place(A, 5): record})
    nothing = (LagStatus.OK, Reason.NO_RECORDS)
    expected = nothing if record is None else (LagStatus.UNKNOWN, Reason.TOO_FEW_SAMPLES)
    assert (group.status, group.reason) == expected
    assert group.partitions[0].time_lag_ms == time_lag_ms
    assert group.partitions[0].span_ms is None
    assert answer({A: sample(5, 9)}).time_lag_ms is None, "the times were not read"


def test_lost_records_are_counted_and_the_next_one_is_looked_for() -> None:
    lost = sample(5, 20, 12)
    assert place_of_unread(A, lost) == Place(A, 12)
    assert place_of_newest(A, lost) == Place(A, 19)
    assert place_of_unread(A, sample(9, 9)) is None
    assert place_of_newest(A, sample(12, 9)) is None
    group = answer({A: lost}, times={Place(A, 12): UnreadRecord(12, NOW - 10)})
    assert (group.partitions[0].lost_records, group.partitions[0].time_lag_ms, group.lag) == (7, 10, 15)


def test_a_group_is_through_when_its_last_partition_is() -> None:
    def points(*pairs: tuple[int, int]) -> list[Point]:
        return [Point(NOW - 10_000 * (len(pairs) - 1 - index), *pair) for index, pair in enumerate(pairs)]

    fast, slow = points((0, 100), (90, 100)), points((0, 1000), (20, 1000))
    group = answer({A: sample(90, 100), B: sample(20, 1000)}, {A: fast, B: slow})
    assert [partition.clear_in_ms for partition in group.partitions] == [1111, 490_000]
    assert (group.clear_in_ms, group.in_per_sec, group.out_per_sec) == (490_000, 0.0, 11.0)
    behind = points((0, 1000), (20, 1100))
    group = answer({A: sample(90, 100), B: sample(20, 1100)}, {A: fast, B: behind})
    assert (group.clear_in_ms, group.in_per_sec) == (None, 10.0), "never, as things are"
    group = answer({A: sample(90, 100), B: sample(20, None)}, {A: fast})
    assert group.clear_in_ms is None, "not known of every partition"


def test_rates() -> None:
    points = [KnownPoint(0, 0, 10), KnownPoint(2000, 30, 50)]
    assert trend_of(points) == Trend(20.0, 15.0)
    assert trend_of(points[:1]) == Trend(None, None)
    assert trend_of([KnownPoint(0, 30, 50), KnownPoint(2000, 10, 50)]) == Trend(0.0, None), "it went back"
    assert Trend(20.0, 15.0).clear_in_ms(5) is None
    assert Trend(20.0, 20.0).clear_in_ms(5) is None
    assert Trend(10.0, 20.0).clear_in_ms(5) == 500
    assert Trend(None, 20.0).clear_in_ms(5) is None
    assert Trend(None, None).clear_in_ms(0) == 0
    assert Trend(1.0, 2.0).clear_in_ms(None) is None
    assert sum_of_trends([Trend(1.0, None), Trend(2.0, 4.0)]) == Trend(3.0, 4.0)
    assert sum_of_trends([]) == Trend(None, None)


STILL = [Point(NOW - 10_000 * ago, 5, 9) for ago in (2, 1, 0)]


@pytest.mark.parametrize(
    ("record", "behind", "expected", "time_lag_ms"),
    [
        (UnreadRecord(5, NOW - 7, True), Behind(), (LagStatus.STALL, Reason.STANDS_STILL, True), 7),
        (Unknown("refused"), Behind(), (LagStatus.STALL, Reason.STANDS_STILL, True), None),
        (
            UnreadRecord(5, NOW - 7, True),
            Behind(aborted=frozenset({Place(A, 5)})),
            (LagStatus.UNKNOWN, Reason.ONLY_ABORTED, False),
            None,
        ),
        (None, Behind(), (LagStatus.OK, Reason.NO_RECORDS, False), 0),
        # It came after the sample, or is in a transaction that is open.
        (UnreadRecord(9, NOW), Behind(), (LagStatus.OK, Reason.NO_RECORDS, False), 0),
        (UnreadRecord(8, NOW - 7), Behind(), (LagStatus.STALL, Reason.STANDS_STILL, True), 7),
    ],
)
def test_a_reader_stands_still_only_in_front_of_records(
    record: UnreadRecord | Unknown | None,
    behind: Behind,
    expected: tuple[LagStatus, Reason, bool],
    time_lag_ms: int | None,
) -> None:
    group = answer({A: sample(5, 9)}, {A: STILL}, {Place(A, 5): record}, behind)
    (partition_lag,) = group.partitions
    assert (partition_lag.status, partition_lag.reason, partition_lag.is_behind) == expected
    assert (group.status, group.reason) == expected[:2]
    assert (partition_lag.time_lag_ms, partition_lag.lag) == (time_lag_ms, 4), "offsets are counted as Kafka's tools do"
    assert partition_lag.clear_in_ms == (0 if partition_lag.reason is Reason.NO_RECORDS else None)


def test_where_records_were_not_read_a_look_behind_tells() -> None:
    group = answer({A: sample(5, 9)}, {A: STILL}, behind=Behind(nothing=frozenset({Place(A, 5)})))
    assert (group.status, group.reason, group.time_lag_ms) == (LagStatus.OK, Reason.NO_RECORDS, 0)


@pytest.mark.parametrize(
    ("points", "times", "in_pace", "is_doubtful"),
    [
        (STILL, {}, (), True),
        (STILL, {Place(A, 5): UnreadRecord(5, NOW, True)}, (), True),
        (STILL, {Place(A, 5): UnreadRecord(5, NOW)}, (), False),
        (STILL, {Place(A, 5): Unknown("refused")}, (), False),
        (STILL, {Place(A, 5): None}, (), False),
        (STILL, {}, (A,), False),
        (STILL[-1:], {}, (), False),
        ([*STILL[:2], Point(NOW, 9, 9)], {}, (), False),
    ],
)
def test_only_what_would_be_called_stuck_is_looked_behind(
    points: list[Point], times: Times, in_pace: tuple[TopicPartition, ...], is_doubtful: bool
) -> None:
    now = sample(points[-1].committed, points[-1].end)
    group = GroupSample("g", GroupType.CLASSIC, GroupState.STABLE, {A: now})
    assert doubtful_places([(group, {A: points}, in_pace)], times) == ({Place(A, 5): 9} if is_doubtful else {})


def test_of_groups_that_stand_at_the_same_offset_the_furthest_end_counts() -> None:
    def seen(end: int) -> tuple[GroupSample, dict[TopicPartition, list[Point]], tuple[()]]:
        points = [point._replace(end=end) for point in STILL]
        return GroupSample(f"g{end}", GroupType.CLASSIC, GroupState.STABLE, {A: sample(5, end)}), {A: points}, ()

    assert doubtful_places([seen(7), seen(9), seen(8)], {}) == {Place(A, 5): 9}
