"""Groups that have stopped: a warning before the verdict of a standstill is ready, and the events. Pure.

A verdict looks at the last minute, in which the group may have moved. A group whose pace is known and that commits
nothing while records arrive is WARN within two or three frames.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import replace

from engine.admin.lag.group_lag import GroupLag, PartitionLag
from engine.admin.lag.group_paces import Paces
from engine.admin.lag.verdicts import LagStatus, Reason
from engine.admin.watch.events import Event, EventKind
from engine.admin.watch.frame import Frame, Stage, WatchedGroup
from engine.common.quantities import span_text

_MOVES = (Reason.KEEPS_UP, Reason.LAG_FELL, Reason.LAG_NEVER_FELL, Reason.MEMBER_DRAINS)
"""What is said of a group that moves, or moved within the last minute."""


class Standstills:
    """Follows the groups of a feed's frames."""

    def __init__(self) -> None:
        self._paces = Paces()
        self._stalled: dict[str, int] = {}
        """For how many seconds each has committed nothing."""
        self._held: frozenset[tuple[str, str, int | None]] = frozenset()
        """Groups, partitions, and the offsets of the records that hold them up."""
        self._at_ms = 0
        self._read_ms: int | None = None

    def take(self, frame: Frame) -> Frame:
        """Take a newer frame, and return it with what is known of groups that have stopped, or read again.

        A frame from another time (a seek in a recording) starts afresh.
        """
        if frame.at_ms < self._at_ms:
            self._stalled.clear()
            self._held = frozenset()
        self._at_ms = frame.at_ms
        measured = self._paces.take((group.lag for group in frame.groups), frame.at_ms)
        lags = [_warned(lag) if self._is_still(lag) else lag for lag in measured]
        pairs = zip(frame.groups, lags, strict=True)
        groups = tuple(group if group.lag is lag else replace(group, lag=lag) for group, lag in pairs)
        self._held = frozenset(self._held_in(groups))
        events = tuple(self._events(frame, groups))
        if not events and all(new is old for new, old in zip(groups, frame.groups, strict=True)):
            return frame
        return replace(frame, groups=groups, events=(*frame.events, *events))

    def still_s(self, group: WatchedGroup) -> float | None:
        """Return for how long a group has committed nothing, before the verdict on a standstill is there."""
        is_early = group.lag.status is LagStatus.WARN and group.lag.reason is Reason.STANDS_STILL
        return self._paces.still_s(group.lag) if is_early else None

    def holds_up(self, group: str, partition: PartitionLag) -> bool:
        """Whether the next record seems to hold up the reader of a partition, or did so until that reader left."""
        return (group, partition.name, partition.committed_offset) in self._held

    def _held_in(self, groups: Iterable[WatchedGroup]) -> Iterator[tuple[str, str, int | None]]:
        for group in groups:
            if group.lag.status.is_fine:
                continue
            may_hold = may_step_over(group.lag)
            for partition in group.lag.partitions:
                if (may_hold and stands(partition)) or (
                    not partition.consumer_id and self.holds_up(group.name, partition)
                ):
                    yield group.name, partition.name, partition.committed_offset

    def _is_still(self, lag: GroupLag) -> bool:
        never_fell = lag.reason is Reason.LAG_NEVER_FELL and self._paces.still_s(lag) is not None
        return never_fell or self._paces.is_late(lag)

    def _events(self, frame: Frame, groups: tuple[WatchedGroup, ...]) -> Iterator[Event]:
        read_ms = frame.stage(Stage.GROUPS).read_at_ms
        if read_ms is None or read_ms == self._read_ms:
            return
        within_ms = None if self._read_ms is None else read_ms - self._read_ms
        self._read_ms = read_ms
        before, self._stalled = self._stalled, {}
        for group in groups:
            still_s = self._paces.still_s(group.lag)
            is_stalled = still_s is not None and group.lag.reason is Reason.STANDS_STILL
            if still_s is not None and (is_stalled or group.name in before):
                self._stalled[group.name] = round(still_s)
            if group.name in self._stalled and group.name not in before:
                kind, why = EventKind.GROUP_STALLED, f"no commit for {span_text(self._stalled[group.name])}"
            elif group.name in before and group.name not in self._stalled:
                kind, why = EventKind.GROUP_READS_AGAIN, f"no commit for {span_text(before[group.name])} before"
            else:
                continue
            yield Event(frame.at_ms, kind, f"group {group.name}", within_ms=within_ms, reason=why)


def _warned(lag: GroupLag) -> GroupLag:
    if lag.reason not in _MOVES:
        return lag
    partitions = tuple(
        replace(partition, status=LagStatus.WARN, reason=Reason.STANDS_STILL)
        if partition.reason in _MOVES
        else partition
        for partition in lag.partitions
    )
    return replace(lag, partitions=partitions, status=LagStatus.WARN, reason=Reason.STANDS_STILL)


def stands(partition: PartitionLag) -> bool:
    """Whether a member fails, or hangs, before the next record of a partition."""
    return partition.reason is Reason.STANDS_STILL and bool(partition.consumer_id)


def may_step_over(group: GroupLag) -> bool:
    """Whether one record may hold up what stands still: if many partitions stand, and no other moves, members hang."""
    waiting = [partition for partition in group.partitions if partition.is_behind]
    stuck = [partition for partition in waiting if partition.reason is Reason.STANDS_STILL and partition.status.is_bad]
    return len(stuck) == 1 or 0 < len(stuck) < len(waiting)


def scope_text(partitions: Iterable[PartitionLag]) -> str:
    """Return partitions as ``parse_topic_scope`` reads them: ``orders:0,1 audit:3``."""
    numbers: dict[str, list[int]] = {}
    for partition in partitions:
        numbers.setdefault(partition.topic, []).append(partition.partition)
    return " ".join(f"{topic}:{','.join(map(str, sorted(partitions_of)))}" for topic, partitions_of in numbers.items())
