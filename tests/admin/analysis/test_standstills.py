"""Groups that stop: when a frame warns of them, for how long they have committed nothing, and which events tell it."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from engine.admin.analysis.standstills import Standstills
from engine.admin.groups.values import GroupState, GroupType
from engine.admin.lag.group_lag import GroupLag, group_lag
from engine.admin.lag.sampling import GroupSample, PartitionSample
from engine.admin.lag.verdicts import LagStatus, Point, Reason
from engine.admin.watch.events import EventKind
from engine.admin.watch.frame import Frame, Stage, StageStatus, WatchedGroup
from engine.common.model import TopicPartition

READ, IDLE = TopicPartition("t", 0), TopicPartition("t", 1)
EVERY_S = 5
"""Groups are read once in so many seconds, and there is a frame each second."""
WINDOW_S = 60


@dataclass(frozen=True)
class Story:
    """What a group does, by seconds."""

    comes: int = 100
    """Records a second."""
    behind: int = 1_000
    """At its start."""
    reads: int = 101
    """Records a second, while it reads."""
    stops_at_s: int = 40
    starts_at_s: int = 10_000
    commits_every_s: int = 5
    leaves_at_s: int = 10_000
    """Then nobody reads it."""

    def point(self, at_s: int) -> Point:
        read_s = min(at_s, self.stops_at_s) + max(0, at_s - self.starts_at_s)
        read_s -= read_s % self.commits_every_s
        end = self.behind + self.comes * at_s
        return Point(at_s * 1000, min(end, self.reads * read_s), end)

    def lag(self, at_s: int) -> GroupLag:
        """Return it as it is measured at this time; one of its two partitions gets no records."""
        points = [self.point(s) for s in range(max(0, at_s - WINDOW_S), at_s + 1, EVERY_S)]
        _, committed, end = points[-1]
        owner = "m-1" if at_s < self.leaves_at_s else None
        state = GroupState.EMPTY if owner is None else GroupState.STABLE
        read = PartitionSample(committed, end, 0, owner is not None, owner)
        idle = PartitionSample(7, 7, 0, owner is not None, owner)
        sample = GroupSample("g", GroupType.CLASSIC, state, {READ: read, IDLE: idle})
        return group_lag(sample, {READ: points, IDLE: [Point(s, 7, 7) for s, _, _ in points]}, {}, at_s * 1000)


def frames_of(story: Story, first_s: int, last_s: int) -> list[Frame]:
    """Return a frame for each second; a group that was not read again stays the same value."""
    frames, group, read_s = [], None, first_s
    for at_s in range(first_s, last_s + 1):
        if group is None or at_s % EVERY_S == 0:
            group, read_s = WatchedGroup(story.lag(at_s)), at_s
        stages = {Stage.GROUPS: StageStatus(read_at_ms=read_s * 1000)}
        frames.append(Frame(at_s, at_s * 1000, stages=stages, groups=(group,)))
    return frames


READS_WELL = Story()
AGAIN = Story(starts_at_s=60)
SELDOM = Story(commits_every_s=20, reads=120, stops_at_s=10_000)
CAUGHT_UP = Story(comes=0, behind=0)
LEFT = Story(leaves_at_s=55)
SLOW = Story(reads=90, stops_at_s=10_000)
NEVER_FELL = Story(reads=90, stops_at_s=5)


@pytest.mark.parametrize(
    ("story", "at_s", "status", "reason", "still_s"),
    [
        pytest.param(READS_WELL, 39, LagStatus.OK, Reason.KEEPS_UP, None, id="it reads"),
        pytest.param(READS_WELL, 49, LagStatus.OK, Reason.LAG_FELL, None, id="too early to tell"),
        pytest.param(READS_WELL, 50, LagStatus.WARN, Reason.STANDS_STILL, 10, id="two looks without a commit"),
        pytest.param(READS_WELL, 57, LagStatus.WARN, Reason.STANDS_STILL, 15, id="as of the last look"),
        pytest.param(READS_WELL, 105, LagStatus.STALL, Reason.STANDS_STILL, None, id="the verdict tells it itself"),
        pytest.param(AGAIN, 65, LagStatus.OK, None, None, id="it reads again"),
        pytest.param(SELDOM, 79, LagStatus.OK, None, None, id="its pace is slow"),
        pytest.param(CAUGHT_UP, 80, LagStatus.OK, None, None, id="it has nothing to read"),
        pytest.param(SLOW, 60, LagStatus.WARN, Reason.LAG_NEVER_FELL, None, id="it reads, but less than comes"),
        pytest.param(LEFT, 59, LagStatus.STOP, Reason.NOBODY_READS, None, id="its members have left"),
        pytest.param(NEVER_FELL, 15, LagStatus.WARN, Reason.STANDS_STILL, 10, id="it never read well"),
    ],
)  # fmt: skip
def test_a_group_that_has_stopped_is_warned_of(
    story: Story, at_s: int, status: LagStatus, reason: Reason | None, still_s: float | None
) -> None:
    standstills = Standstills()
    for frame in frames_of(story, 0, at_s):
        events = standstills.take(frame)
    (group,) = events.groups
    assert group.lag.status is status
    assert reason is None or group.lag.reason is reason
    assert standstills.still_s(group) == still_s
    by_partition = {
        TopicPartition(partition.topic, partition.partition): partition.reason for partition in group.lag.partitions
    }
    assert (by_partition[READ] is Reason.STANDS_STILL) is (reason is Reason.STANDS_STILL)
    assert by_partition[IDLE] is not Reason.STANDS_STILL, "it waits for nothing"


def test_a_member_that_stops_amid_a_backlog_is_no_excuse_for_its_other_partitions() -> None:
    """It drained one after the other for 20 seconds, and those whose turn had not come wait for nothing any more."""
    standstills, group, read_s = Standstills(), None, 0
    for at_s in range(61):
        if group is None or at_s % EVERY_S == 0:
            group, read_s = WatchedGroup(_draining(at_s)), at_s
        frame = Frame(at_s, at_s * 1000, stages={Stage.GROUPS: StageStatus(read_at_ms=read_s * 1000)}, groups=(group,))
        lag = standstills.take(frame).groups[0].lag
        if at_s in (15, 20, 25):
            assert lag.status is LagStatus.OK, "it drains"
        if at_s >= 30:
            assert group.lag.reason is Reason.MEMBER_DRAINS, "so says the last minute"
            assert (lag.status, lag.reason) == (LagStatus.WARN, Reason.STANDS_STILL), at_s
            assert {partition.reason for partition in lag.partitions} == {Reason.STANDS_STILL}


def _draining(at_s: int) -> GroupLag:
    """Return the lag of a member that reads 7,000 records a second of twelve partitions in turn, for 20 seconds."""
    partitions, series = {}, {}
    for number in range(12):
        name = TopicPartition("t", number)
        series[name] = [
            Point(s * 1000, min(12_000, max(0, min(s, 20) * 7_000 - number * 12_000)), 12_000 + 25 * s)
            for s in range(max(0, at_s - WINDOW_S), at_s + 1, EVERY_S)
        ]
        _, committed, end = series[name][-1]
        partitions[name] = PartitionSample(committed, end, 0, True, "m-1")
    return group_lag(GroupSample("g", GroupType.CLASSIC, GroupState.STABLE, partitions), series, {}, at_s * 1000)


@pytest.mark.parametrize(
    ("story", "expected"),
    [
        pytest.param(Story(stops_at_s=10_000), [], id="reads"),
        pytest.param(
            SELDOM,
            [
                (10, EventKind.GROUP_STALLED, "no commit for 10s"),
                (20, EventKind.GROUP_READS_AGAIN, "no commit for 15s before"),
            ],
            id="commits seldom: later pauses are its pace",
        ),
        pytest.param(CAUGHT_UP, [], id="nothing to read"),
        pytest.param(READS_WELL, [(50, EventKind.GROUP_STALLED, "no commit for 10s")], id="stops"),
        pytest.param(
            AGAIN,
            [
                (50, EventKind.GROUP_STALLED, "no commit for 10s"),
                (65, EventKind.GROUP_READS_AGAIN, "no commit for 20s before"),
            ],
            id="stops, and reads again",
        ),
        pytest.param(
            LEFT,
            [(50, EventKind.GROUP_STALLED, "no commit for 10s")],
            id="stops, then its members leave",
        ),
    ],
)
def test_events_tell_once_that_a_group_stops_and_reads_again(
    story: Story, expected: list[tuple[int, EventKind, str]]
) -> None:
    standstills = Standstills()
    events = [event for frame in frames_of(story, 0, 120) for event in standstills.take(frame).events]
    assert [(event.at_ms // 1000, event.kind, event.reason) for event in events] == expected
    assert {(event.subject, event.within_ms) for event in events} <= {("group g", EVERY_S * 1000)}


def test_a_frame_in_which_no_group_has_stopped_stays_the_same_value() -> None:
    """The feed's frames are compared by identity."""
    standstills = Standstills()
    for frame in frames_of(Story(stops_at_s=10_000), 0, 60):
        assert standstills.take(frame) is frame


def test_a_seek_to_another_time_starts_afresh() -> None:
    standstills = Standstills()
    for frame in frames_of(READS_WELL, 0, 60):
        standstills.take(frame)
    events = [standstills.take(frame) for frame in frames_of(READS_WELL, 41, 49)]
    assert not any(frame.events for frame in events)
    assert events[-1].groups[0].lag.status is LagStatus.OK
    assert standstills.still_s(events[-1].groups[0]) is None
