"""Is a partition stalled, or is its member busy with a backlog in its other partitions? Pure.

A consumer reads its partitions one after the other while there is a backlog: a broker fills an answer from the first
partition that has enough. So a partition that does not move is judged by its member: while other partitions of the
member advance through a backlog, this one waits for its turn. A member that keeps up elsewhere has no such excuse.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from typing import Final, NamedTuple

from engine.admin.lag.pace import sum_of_trends, trend_of
from engine.admin.lag.verdicts import KnownPoint, LagStatus, Reason, Verdict, is_draining, is_working_off
from engine.common.model import TopicPartition

_WAITING: Final = (Reason.STANDS_STILL, Reason.TOO_FEW_SAMPLES, Reason.BETWEEN_COMMITS)


class Owned(NamedTuple):
    """A partition that a member owns, with both offsets known now. ``points`` end now."""

    owner: str
    verdict: Verdict
    points: Sequence[KnownPoint]
    is_lost: bool


class Turn(NamedTuple):
    """The facts about a partition that waits for its turn."""

    verdict: Verdict
    clear_in_ms: int | None


def turns_of(owned: Mapping[TopicPartition, Owned]) -> dict[TopicPartition, Turn]:
    """Return the partitions that wait while their member works off a backlog in others."""
    members: defaultdict[str, dict[TopicPartition, Owned]] = defaultdict(dict)
    for name, partition in owned.items():
        members[partition.owner][name] = partition
    turns: dict[TopicPartition, Turn] = {}
    for of_member in members.values():
        busy = [
            owned_partition.points for owned_partition in of_member.values() if is_working_off(owned_partition.points)
        ]
        if not busy:
            continue
        does_drain = any(is_draining(points) for points in busy)
        clear_in_ms = _member_clear_in(of_member.values())
        for name, partition in of_member.items():
            if partition.verdict.reason in _WAITING:
                turns[name] = Turn(_verdict(partition, does_drain=does_drain), clear_in_ms)
    return turns


def _verdict(owned: Owned, *, does_drain: bool) -> Verdict:
    if owned.is_lost:
        return Verdict(LagStatus.WARN, Reason.RECORDS_LOST)
    if does_drain:
        return Verdict(LagStatus.OK, Reason.MEMBER_DRAINS)
    return Verdict(LagStatus.WARN, Reason.LAG_NEVER_FELL)


def _member_clear_in(of_member: Collection[Owned]) -> int | None:
    trend = sum_of_trends(trend_of(owned_partition.points) for owned_partition in of_member)
    return trend.clear_in_ms(sum(max(0, owned_partition.points[-1].lag) for owned_partition in of_member))
