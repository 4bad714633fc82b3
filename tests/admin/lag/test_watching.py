"""Lag measured again and again, on a cluster that goes away and comes back."""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from contextlib import aclosing
from datetime import UTC, datetime
from typing import Any, cast

import pytest
from virtual_time import in_virtual_time

from engine.admin.cluster.errors import Refused, Unreachable
from engine.admin.groups.values import GroupState, GroupType
from engine.admin.lag import measuring
from engine.admin.lag.group_lag import LagAnswer
from engine.admin.lag.history import History
from engine.admin.lag.measuring import LagMeter, LagOptions, watch_lag
from engine.admin.lag.sampling import GroupSample, PartitionSample, Sample
from engine.admin.lag.unread import Place, Times, UnreadRecord
from engine.admin.lag.verdicts import LagStatus, Reason
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition

ANSWER = LagAnswer(datetime(2026, 11, 21, tzinfo=UTC), ())
AWAY = Unreachable("nobody answers")
MEASURING_S = SHOWING_S = 1.0
"""How long a measurement and the display of its answer take, in virtual time; the interval includes both."""


class ScriptedMeter:
    """Gives the answers and raises the errors in order."""

    def __init__(self, *answers: LagAnswer | Exception) -> None:
        self._answers = list(answers)
        self.began_at: list[float] = []

    async def measure(self) -> tuple[LagAnswer, list[str]]:
        self.began_at.append(asyncio.get_running_loop().time())
        await asyncio.sleep(MEASURING_S)
        answer = self._answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer, ["complaint"]


@in_virtual_time
async def test_an_answer_every_interval_and_failures_between() -> None:
    meter = ScriptedMeter(ANSWER, AWAY, ANSWER)
    answers: list[object] = []
    async with aclosing(watch_lag(cast("LagMeter", meter), 5.0)) as watched:
        async for answer in watched:
            answers.append(answer)
            await asyncio.sleep(SHOWING_S)
            if len(answers) == 3:
                break
    assert answers == [(ANSWER, ["complaint"]), AWAY, (ANSWER, ["complaint"])]
    first, *later = meter.began_at
    assert [at - first for at in later] == [5.0, 10.0]


@pytest.mark.parametrize(
    "answers", [(AWAY,), (ANSWER, Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED))], ids=["never there", "refused"]
)
@in_virtual_time
async def test_a_cluster_that_was_never_there_or_refuses_ends_it(answers: tuple[LagAnswer | Exception, ...]) -> None:
    meter = ScriptedMeter(*answers)
    shown = []
    with pytest.raises(type(answers[-1])):
        async for answer in watch_lag(cast("LagMeter", meter), 5.0):
            shown.append(answer)
    assert len(shown) == len(answers) - 1


def test_the_pace_is_judged_with_who_is_known_to_have_no_owner(monkeypatch: pytest.MonkeyPatch) -> None:
    owned = {TopicPartition("t", 0): True, TopicPartition("t", 1): False, TopicPartition("t", 2): None}
    partitions = {name: PartitionSample(5, 9, 0, is_owned) for name, is_owned in owned.items()}
    groups = {("g", GroupType.CLASSIC): GroupSample("g", GroupType.CLASSIC, GroupState.STABLE, partitions)}
    history = History()
    for second in range(0, 60, 10):
        history.add(Sample(second * 1_000, groups))
    asked: dict[str, Any] = {}

    async def within_pace(wire: object, still: object, now_ms: int, **options: Any) -> frozenset[Any]:
        asked.update(options, still=still)
        return frozenset()

    class Brokers:
        async def wire(self) -> None:
            return None

    monkeypatch.setattr(measuring, "readers_within_pace", within_pace)
    meter = LagMeter(cast("Any", Brokers()), None, lambda topic: True, LagOptions())
    asyncio.run(meter._within_pace(cast("Any", groups), history, {}))
    assert asked["still"] == {("g", name): 5 for name in owned}
    assert asked["unowned"] == {("g", TopicPartition("t", 1))}
    asyncio.run(meter._within_pace(cast("Any", groups), history, {Place(TopicPartition("t", 0), 5): None}))
    assert asked["still"].keys() == {("g", TopicPartition("t", number)) for number in (1, 2)}, "it has nothing to read"


def test_a_record_behind_a_marker_has_not_waited_since_the_marker_came(monkeypatch: pytest.MonkeyPatch) -> None:
    """The reader had only a marker before it in three looks, and a record came just before the fourth."""
    name, kind = TopicPartition("t", 0), GroupType.CLASSIC

    async def read(wire: object, places: Collection[Place], **_: Any) -> Times:
        return {place: UnreadRecord(10, 0) if end > 10 else None for place in places}

    async def nobody(*_: Any, **__: Any) -> frozenset[Any]:
        return frozenset()

    class Brokers:
        async def wire(self) -> None:
            return None

    monkeypatch.setattr(measuring, "read_times", read)
    monkeypatch.setattr(measuring, "readers_within_pace", nobody)
    meter = LagMeter(cast("Any", Brokers()), None, lambda topic: True, LagOptions())
    history, reasons = History(), []
    looks = [(0, 9, 10), (10, 9, 10), (20, 9, 10), (30, 9, 11), (60, 9, 11), (90, 9, 11), (95, 11, 11)]
    for second, committed, end in looks:
        partitions = {name: PartitionSample(committed, end, 0, True, "m-1")}
        groups = {("g", kind): GroupSample("g", kind, GroupState.STABLE, partitions)}
        history.add(Sample(second * 1_000, cast("Any", groups)))
        (group,) = asyncio.run(meter._groups(cast("Any", groups), history))
        reasons.append((group.status, group.reason))
    fine = (LagStatus.OK, Reason.NO_RECORDS)
    assert reasons == [
        *[fine] * 3,
        *[(LagStatus.OK, Reason.KEEPS_UP)] * 2,
        (LagStatus.STALL, Reason.STANDS_STILL),
        (LagStatus.OK, Reason.CAUGHT_UP),
    ]
