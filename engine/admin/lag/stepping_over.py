"""Whether one record holds a group up, and where its reader goes on behind that record. Pure."""

from __future__ import annotations

from collections.abc import Iterable

from engine.admin.lag.results import GroupLag, PartitionLag
from engine.admin.lag.verdicts import Reason


def stands(one: PartitionLag) -> bool:
    """Whether a member fails, or hangs, before the next record of a partition."""
    return one.reason is Reason.STANDS_STILL and bool(one.consumer_id)


def may_step_over(group: GroupLag) -> bool:
    """Whether one record may hold up what stands still: if many partitions stand, and no other moves, members hang."""
    waiting = [one for one in group.partitions if one.is_behind]
    stuck = [one for one in waiting if one.reason is Reason.STANDS_STILL and one.status.is_bad]
    return len(stuck) == 1 or 0 < len(stuck) < len(waiting)


def scope_text(partitions: Iterable[PartitionLag]) -> str:
    """Return partitions as ``parse_topic_scope`` reads them: ``orders:0,1 audit:3``."""
    numbers: dict[str, list[int]] = {}
    for one in partitions:
        numbers.setdefault(one.topic, []).append(one.partition)
    return " ".join(f"{topic}:{','.join(map(str, sorted(found)))}" for topic, found in numbers.items())
