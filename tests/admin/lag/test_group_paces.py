"""What a group that has stopped read before is in none of its rates: the same rule for every face."""

from __future__ import annotations

from contextlib import aclosing
from dataclasses import replace
from datetime import UTC, datetime
from typing import cast

from virtual_time import in_virtual_time

from engine.admin.groups.values import GroupState, GroupType
from engine.admin.lag.group_lag import GroupLag, LagAnswer, group_lag
from engine.admin.lag.group_paces import Paces
from engine.admin.lag.measuring import LagMeter, watch_lag
from engine.admin.lag.sampling import GroupSample, PartitionSample
from engine.admin.lag.spark_positions import ReaderKind
from engine.admin.lag.unread import Place, UnreadRecord
from engine.admin.lag.verdicts import Point
from engine.common.model import TopicPartition

NAME = TopicPartition("t", 0)
RATE = 100
STOPPED_AT_S = 20
INTERVAL_S = 5


def measured(at_s: int, kind: GroupType = GroupType.CLASSIC, *, stops: bool = True) -> GroupLag:
    """Return a group as it is measured over half a minute; it reads half of what comes in, and stops."""
    points = [
        Point(s * 1000, RATE // 2 * (min(s, STOPPED_AT_S) if stops else s), RATE * s)
        for s in range(max(0, at_s - 30), at_s + 1, INTERVAL_S)
    ]
    _, committed, end = points[-1]
    sample = GroupSample("g", kind, GroupState.STABLE, {NAME: PartitionSample(committed, end, 0, True, "m-1", None)})
    return group_lag(sample, {NAME: points}, {}, at_s * 1000)


class Meter:
    """Measures the group again and again."""

    def __init__(self) -> None:
        self._at_s = 0

    async def measure(self) -> tuple[LagAnswer, list[str]]:
        self._at_s += INTERVAL_S
        return LagAnswer(datetime.fromtimestamp(self._at_s, UTC), (measured(self._at_s),)), []


@in_virtual_time
async def test_who_watches_lag_does_not_see_what_a_stopped_group_read_before() -> None:
    rates: dict[int, float | None] = {}
    async with aclosing(watch_lag(cast("LagMeter", Meter()), INTERVAL_S)) as watched:
        async for look in watched:
            assert isinstance(look, tuple)
            answer, _ = look
            (group,) = answer.groups
            (partition,) = group.partitions
            assert partition.out_per_sec == group.out_per_sec
            rates[round(answer.time.timestamp())] = group.out_per_sec
            if len(rates) == 8:
                break
    assert rates[STOPPED_AT_S] == rates[10] == RATE / 2
    assert rates[STOPPED_AT_S + 5] not in (None, 0.0), "one look without a commit says nothing"
    assert rates[STOPPED_AT_S + 10] == rates[STOPPED_AT_S + 20] == 0.0


def test_what_was_not_measured_again_says_nothing_of_a_standstill() -> None:
    """With very many groups a reading measures some of them, and learns the states of all."""
    paces, first = Paces(), measured(10)
    paces.take([first], 10_000)
    for at_s in range(15, 60, INTERVAL_S):
        (changes,) = paces.take([replace(first, state=GroupState.EMPTY)], at_s * 1000)
        assert (changes.state, changes.out_per_sec, paces.still_s(changes)) == (GroupState.EMPTY, RATE / 2, None)


def test_groups_of_one_name_have_paces_of_their_own() -> None:
    paces, lags = Paces(), ()
    for at_s in range(10, 45, INTERVAL_S):
        lags = paces.take([measured(at_s), measured(at_s, GroupType.ZOOKEEPER, stops=False)], at_s * 1000)
    assert [pace.out_per_sec for pace in lags] == [0.0, RATE / 2]
    assert [paces.still_s(pace) for pace in lags] == [20.0, None]


def test_queries_of_spark_pass_as_they_are() -> None:
    paces, lag = Paces(), replace(measured(60), kind=ReaderKind.CHECKPOINT)
    for at_s in range(10, 60, INTERVAL_S):
        assert paces.take([lag], at_s * 1000) == (lag,)


def test_a_group_that_has_only_a_marker_before_it_has_not_stopped() -> None:
    """A record that comes after a long time behind the marker has waited for no longer than since it came."""
    paces, changes = Paces(), []
    # It has read two records and stands before a marker for a minute; then one comes, and it commits nothing more.
    for at_s, committed, end in (
        (0, 5, 6),
        (5, 7, 8),
        (10, 9, 10),
        (70, 9, 10),
        (75, 9, 11),
        (80, 9, 11),
        (100, 9, 12),
    ):
        sample = GroupSample(
            "g", GroupType.CLASSIC, GroupState.STABLE, {NAME: PartitionSample(committed, end, 0, True, "m-1", None)}
        )
        unread = {Place(NAME, committed): None if end - committed == 1 else UnreadRecord(10, 75_000)}
        lag = group_lag(sample, {NAME: [Point(at_s * 1000, committed, end)]}, unread, at_s * 1000)
        paces.take([lag], at_s * 1000)
        changes.append((at_s, paces.still_s(lag), paces.is_late(lag)))
    assert changes[:-1] == [(at_s, None, False) for at_s in (0, 5, 10, 70, 75, 80)]
    assert changes[-1] == (100, 25.0, True)
