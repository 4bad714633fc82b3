"""The history of a group, from the events of a feed."""

from __future__ import annotations

from dataclasses import replace

from fake_cluster import FakeCluster

from engine.admin.analysis.rebalances import group_past
from engine.admin.groups.values import GroupMember, GroupState
from engine.admin.lag.verdicts import LagStatus, Reason
from engine.admin.watch.diff import diff
from engine.admin.watch.events import Event, EventKind
from engine.admin.watch.frame import Frame
from tui.pages.asides import aside_of
from tui.pages.groups import GROUP_PAGE
from tui.pages.page import View
from tui.state.board import Board
from tui.state.location import Location
from tui.state.problems import problems_of


def member(number: int, instance: str | None = None) -> GroupMember:
    return GroupMember(f"m-{number}", instance, "app", f"/10.0.0.{number}", ())


def first_frame() -> Frame:
    cluster = FakeCluster(3, {"orders": 2})
    cluster.add_group("billing", "orders", reads=50)
    return cluster.frame()


def with_group(frame: Frame, state: GroupState, *members: GroupMember, after_ms: int = 5_000) -> Frame:
    """Return a later frame whose only group is in this state, with members."""
    (group,) = frame.groups
    changed = replace(group, lag=replace(group.lag, state=state), members=members)
    later = replace(frame, sequence=frame.sequence + 1, at_ms=frame.at_ms + after_ms, groups=(changed,), events=())
    return replace(later, events=diff(frame, later))


def story() -> list[Frame]:
    first, second, third = member(1), member(2), member(3)
    frames = [with_group(first_frame(), GroupState.STABLE, first, second)]
    for state, members in (
        (GroupState.PREPARING_REBALANCE, (first, second)),
        (GroupState.COMPLETING_REBALANCE, (first, third)),
        (GroupState.STABLE, (first, third)),
        (GroupState.STABLE, (first,)),
    ):
        frames.append(with_group(frames[-1], state, *members))
    return frames


def test_states_with_their_times_and_who_came_and_left() -> None:
    events = [event for frame in story()[1:] for event in frame.events]
    past = group_past([Event(0, EventKind.GROUP_STATE_CHANGED, "group other", "Stable", "Empty"), *events], "billing")
    assert [(c.event.before, c.event.after, c.event.reason, c.lasted_ms) for c in past.changes] == [
        ("2", "1", "app at /10.0.0.3 left", None),
        ("CompletingRebalance", "Stable", "", 5_000),
        ("2", "2", "app at /10.0.0.2 left, app at /10.0.0.3 joined", None),
        ("PreparingRebalance", "CompletingRebalance", "", 5_000),
        ("Stable", "PreparingRebalance", "", None),
    ]
    assert past.rebalances == 2, "the two halves of the first are one; of the last only the members were seen"
    left = [Event(0, EventKind.GROUP_MEMBERS_CHANGED, "group billing", "1", "0")]
    assert group_past(left, "billing").rebalances == 0, "nobody is left to share partitions"


def test_a_static_member_that_restarts_and_members_that_nobody_knows_are_no_change() -> None:
    before = with_group(first_frame(), GroupState.STABLE, member(1, "a"), member(2, "b"))
    assert with_group(before, GroupState.STABLE, member(1, "a"), member(9, "b")).events == ()
    (group,) = before.groups
    unknown = replace(before, groups=(replace(group, members=None),))
    assert diff(unknown, before) == diff(before, unknown) == ()


def test_many_members_are_counted() -> None:
    empty = with_group(first_frame(), GroupState.STABLE)
    (event,) = with_group(empty, GroupState.STABLE, *map(member, range(1, 10))).events
    assert (event.before, event.after) == ("0", "9")
    assert event.reason.endswith("app at /10.0.0.6 joined and 3 more")


def test_the_page_of_a_group_shows_its_past() -> None:
    board = Board()
    for frame in story():
        board.take(frame)
    for height, count in ((40, 4), (24, 1)):
        view = View(board, Location("group", group="billing"), height=height)
        lines = ["".join(text for text, _ in line) for line in GROUP_PAGE.summary(view, 100)]
        at = next(index for index, text in enumerate(lines) if "rebalanced at least 3 times" in text)
        shown = lines[at + 1 : at + 1 + count]
        assert len(shown) == count and "2 → 1 members   app at /10.0.0.3 left" in shown[0]
        if count > 1:
            assert "CompletingRebalance → Stable   after 5s" in shown[1]


def test_members_that_come_and_go_are_named_where_their_group_is_in_trouble() -> None:
    """A consumer that crashes on one record and is started again is a member most of the time."""
    frames = [with_group(first_frame(), GroupState.STABLE, member(1))]
    (group,) = frames[0].groups
    stall = replace(group, lag=replace(group.lag, status=LagStatus.STALL, reason=Reason.STANDS_STILL))
    frames[0] = replace(frames[0], groups=(stall,), events=())
    for number in range(2, 5):
        frames.append(with_group(frames[-1], GroupState.STABLE, member(number)))
    board = Board()
    for at, frame in enumerate(frames):
        board.take(frame)
        (problem,) = [problem for problem in problems_of(board) if problem.key == "group billing"]
        named = [example for example in problem.examples if "times in the last minute" in example]
        reasons = ["its members left or joined 3 times in the last minute: see whether they crash"]
        assert named == (reasons if at == 3 else [])
    aside = [
        "".join(text for text, _ in line) for line in aside_of(View(board, Location("groups")), "groups", stall, 90)
    ]
    assert any("group members changed" in line for line in aside), aside
    later = replace(frames[-1], sequence=99, at_ms=frames[-1].at_ms + 61_000, events=())
    board.take(later)
    assert not any("minute" in example for problem in problems_of(board) for example in problem.examples)
