"""Consumer groups with their lag; and one group, partition by partition."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import isfinite
from typing import Any

from engine.admin.analysis.rebalances import group_past
from engine.admin.cluster.target import Side
from engine.admin.groups.values import GroupMember
from engine.admin.lag.group_lag import GroupLag, PartitionLag
from engine.admin.lag.verdicts import LagStatus, Reason
from engine.admin.watch.frame import LinkState, Stage, WatchedGroup
from tui.drawing.cells import DENIED, LOADING, NO_DATA, Cell, Column, Tone, attribute, column, figure
from tui.drawing.lines import Line, line, wrapped
from tui.drawing.sparkline import sparkline
from tui.drawing.units import NOTHING, at_least, clock_time, count, counted, plain, short_count, span
from tui.operations.operation import repeated
from tui.pages.page import Page, View, who_sees
from tui.pages.timeline import change_text
from tui.state.location import Location, Only
from tui.state.table_model import Rows

TALL = 30
"""From this many lines on, there is room for more of a group's past."""
Reading = GroupLag | PartitionLag
_TONES = {
    LagStatus.OK: Tone.GOOD,
    LagStatus.RUNNING: Tone.GOOD,
    LagStatus.UNKNOWN: Tone.QUIET,
    LagStatus.WARN: Tone.WARN,
    LagStatus.BEHIND: Tone.WARN,
}


def status_cell(status: LagStatus, reason: Reason | None = None) -> Cell:
    if status is LagStatus.UNKNOWN and reason is Reason.TOO_FEW_SAMPLES:
        # A verdict follows in a few seconds. One about a reader that commits rarely may take hours.
        return Cell("measuring", Tone.QUIET)
    return Cell(status.value, _TONES.get(status, Tone.BAD))


def lag_cell(lag: GroupLag) -> Cell:
    if lag.lag is None:
        return NO_DATA
    text = at_least(count(lag.lag), is_least=lag.has_unknown_lag)
    return Cell(text, Tone.QUIET if lag.lag == 0 else Tone.PLAIN)


def trend_cell(lag: Reading | None) -> Cell:
    """Return whether lag grows or falls, and how fast; not known while the lag is not."""
    growth = growth_of(lag)
    if lag is None or growth is None:
        return NO_DATA
    if abs(growth) < max(0.5, (lag.in_per_sec or 0.0) * 0.01):
        return Cell("→ level", Tone.QUIET)
    arrow, tone = ("↑", Tone.BAD) if growth > 0 else ("↓", Tone.GOOD)
    return Cell(f"{arrow} {short_count(abs(growth))}/s", tone)


def growth_of(lag: Reading | None) -> float | None:
    """Return how many records a second the lag grows; negative if it falls."""
    if lag is None or lag.in_per_sec is None or lag.out_per_sec is None or getattr(lag, "has_unknown_lag", False):
        return None
    return lag.in_per_sec - lag.out_per_sec


def _lag(group: WatchedGroup) -> Cell:
    if group.lag.lag is None and is_hidden(group.lag):
        return DENIED
    return lag_cell(group.lag) if group.has_lag else LOADING


def is_hidden(lag: GroupLag) -> bool:
    """Whether a group is not known more closely because a right is missing."""
    return lag.error is not None and "AUTHORIZATION_FAILED" in lag.error


def _state(group: WatchedGroup) -> Cell:
    state = group.lag.state
    return NO_DATA if state is None else Cell(state.value, Tone.WARN if "Rebalance" in state.value else Tone.PLAIN)


def time_lag_cell(reading: Reading | None) -> Cell:
    if reading is None or reading.time_lag_ms is None:
        return NO_DATA
    is_least = isinstance(reading, GroupLag) and reading.has_unknown_time_lag
    text = at_least(span(reading.time_lag_ms / 1000), is_least=is_least)
    return Cell(text, Tone.WARN if reading.time_lag_ms > 60_000 else Tone.PLAIN)


def why_of(lag: GroupLag, still_s: float | None = None) -> str:
    """Return the reason of a group's status: for how long it stands still, or the verdict's, and what is not known."""
    if still_s is not None:
        return f"has committed nothing for {span(still_s)}"
    reason = plain(lag.error) if lag.error is not None else (lag.reason or "").replace("_", " ")
    if lag.reason is Reason.STANDS_STILL and lag.is_rebalancing:
        reason = "rebalancing"
    missing = f"lag of {unknown_text(lag)}" if lag.has_unknown_lag else ""
    return ", ".join(part for part in (reason, missing) if part)


def unknown_text(lag: GroupLag) -> str:
    """Return of how many partitions the lag is not known."""
    unknown = sum(partition.lag is None and partition.has_lag for partition in lag.partitions)
    return f"{count(unknown)} of {count(lag.partition_count)} unknown"


def pace_columns(of: str, *ranks: int) -> tuple[Column, ...]:
    """Return since when readers are behind, how that changes, and when it ends; ``of`` names the attribute with lag."""
    lag = attribute(of)
    return (
        Column("time_lag_ms", "BEHIND FOR", lambda i: time_lag_cell(lag(i)), attribute(f"{of}.time_lag_ms"),
               rank=ranks[0], is_figure=True, width=8),
        Column("trend", "TREND", lambda i: trend_cell(lag(i)), lambda i: growth_of(lag(i)), rank=ranks[1], width=9),
        figure("clear_in_ms", "CLEAR IN", f"{of}.clear_in_ms", lambda ms: span(ms / 1000), rank=ranks[2], width=8),
    )  # fmt: skip


COLUMNS = (
    column("group", "GROUP", "name", tone=Tone.STRONG, is_wide=True, width=16),
    Column("status", "STATUS", lambda g: status_cell(g.lag.status, g.lag.reason), lambda g: g.lag.status.rank, width=9),
    Column("state", "STATE", _state, lambda g: g.lag.state.value if g.lag.state else None, rank=3, width=8),
    figure("member_count", "MEMBERS", lambda g: None if g.members is None else len(g.members), rank=2),
    Column("lag", "LAG", _lag, lambda g: g.lag.lag, is_figure=True, width=9),
    *pace_columns("lag", 1, 1, 4),
    figure("in_per_sec", "IN/S", "lag.in_per_sec", short_count, rank=5, width=6),
    figure("out_per_sec", "OUT/S", "lag.out_per_sec", short_count, rank=5, width=6),
    figure("partition_count", "PARTITIONS", "lag.partition_count", count, rank=6),
    figure("coordinator", "COORDINATOR", "coordinator", rank=7),
    Column("reason", "WHY", lambda g: Cell(why_of(g.lag), Tone.QUIET), lambda g: g.lag.reason, rank=1, width=12),
)


def _rows(view: View) -> Rows:
    return Rows(
        COLUMNS,
        view.board.frame.groups,
        lambda group: (group.name, group.lag.type),
        lambda group: f"{group.name} {group.lag.status} {group.lag.state or ''}",
        _why_empty(view),
    )


def _why_empty(view: View) -> str:
    status = view.board.frame.stage(Stage.GROUPS)
    if status.is_denied:
        return f"{DENIED.text} the cluster does not let you see groups: {status.error}"
    if status.error:
        return f"groups could not be read: {status.error}"
    if status.read_at_ms is None:
        return "groups have not been read yet"
    return f"no consumer group{who_sees(view)}"


def groups_text(number: int, lag: int | None, *, is_least: bool = False) -> str:
    """Return how many groups there are, and how far behind they are as a whole; at least that, if more is unknown."""
    text = "lag not known" if lag is None else f"{'at least ' * is_least}{counted(lag, 'record')} behind"
    return f"{counted(number, 'group')}, {text}"


def _summary(view: View, width: int) -> list[Line]:
    frame = view.board.frame
    bad = sum(group.lag.status.is_trouble for group in frame.groups)
    words = [
        line(groups_text(len(frame.groups), view.board.lag, is_least=view.board.has_unknown_lag)),
        line((f"{count(bad)} unhealthy", Tone.BAD if bad else Tone.QUIET)),
    ]
    # Without groups, the table says why.
    words = words if frame.groups else []
    if frame.link(Side.WIRE).state is LinkState.UNUSED:
        words.append(line(("only groups in ZooKeeper, without lag: brokers are not asked", Tone.QUIET)))
    return wrapped(words, width)


def _command(view: View, items: Sequence[Any]) -> list[str]:
    return ["lag", *(repeated("--group", (group.name for group in items)) or ["--all-groups"])]


PAGE = Page(
    "groups",
    _rows,
    _summary,
    lambda view, group: Location("group", group=group.name),
    lambda view, group: group.lag.status.is_trouble,
    _command,
)


# One group


WHICH_PARTITION = (
    Column("partition", "PARTITION", lambda p: Cell(p.name, Tone.STRONG), lambda p: (p.topic, p.partition),
           is_wide=True, width=16),
    Column("status", "STATUS", lambda p: status_cell(p.status, p.reason), lambda p: p.status.rank, width=9),
)  # fmt: skip
PARTITION_COLUMNS = (
    *WHICH_PARTITION,
    figure("committed_offset", "COMMITTED", "committed_offset", count, rank=1, width=9),
    figure("log_end_offset", "END", "log_end_offset", count, rank=2, width=9),
    figure("lag", "LAG", "lag", count, width=7),
    *pace_columns("", 1, 2, 3),
    Column("reason", "WHY", lambda p: Cell(p.reason.replace("_", " "), Tone.QUIET), lambda p: p.reason, rank=3),
    Column("consumer_id", "READ BY", lambda p: Cell(p.consumer_id) if p.consumer_id else Cell("nobody", Tone.QUIET),
           lambda p: p.consumer_id, rank=4),
)  # fmt: skip


LOOK_AT_MEMBERS = "its members commit nothing: look at what they log, or restart them"


def group_of(view: View) -> WatchedGroup | None:
    return next((group for group in view.board.frame.groups if group.name == view.location.group), None)


def _group_rows(view: View) -> Rows:
    group = group_of(view)
    is_read = view.board.frame.stage(Stage.GROUPS).read_at_ms is not None
    empty = f"there is no group {view.location.group}" if is_read else "groups have not been read yet"
    is_narrowed = view.location.only is Only.UNHEALTHY
    nothing = "no partition of it is unhealthy any more" if is_narrowed else "it has committed nothing"
    return Rows(
        PARTITION_COLUMNS,
        () if group is None else group.lag.partitions,
        lambda partition: partition.name,
        lambda partition: f"{partition.name} {partition.status} {partition.consumer_id or ''}",
        empty if group is None else nothing,
        (lambda partition: partition.status.is_trouble) if is_narrowed else None,
    )


def _group_summary(view: View, width: int) -> list[Line]:
    group, frame = group_of(view), view.board.frame
    if group is None:
        return []
    state = NOTHING if group.lag.state is None else group.lag.state.value
    members = f"{NOTHING} members" if group.members is None else counted(len(group.members), "member")
    since = span((frame.at_ms - group.since_ms) / 1000) if group.since_ms else NOTHING
    coordinator = NOTHING if group.coordinator is None else group.coordinator
    facts = f"{state} for {since}, {members}, protocol {group.protocol or NOTHING}, coordinator {coordinator}"
    why = why_of(group.lag, view.board.standstills.still_s(group))
    lines = [line(status_cell(group.lag.status, group.lag.reason), f" {why}   {facts}")]
    if group.members:
        lines.append(line((f"members: {', '.join(map(_member_text, group.members[:6]))}", Tone.QUIET)))
    return [*lines, *_past_lag(view, group.name, width), *_past_changes(view, group.name)]


def _member_text(member: GroupMember) -> str:
    return f"{plain(member.client_id)} at {plain(member.host)} ({len(member.assignment or ())})"


def member_lines(group: WatchedGroup, lines_max: int) -> list[Line]:
    """Return a line for each member, with how many partitions it reads."""
    if not group.members:
        return [line(("not known" if group.members is None else "nobody", Tone.QUIET))]
    lines = [line(_member_text(member)) for member in group.members[:lines_max]]
    more = len(group.members) - len(lines)
    return [*lines, line((f"and {count(more)} more", Tone.QUIET))] if more else lines


def readers_of(group: WatchedGroup) -> dict[str, str]:
    """Return by its id who each member is, and where that process is to be found."""
    return {member.member_id: f"{plain(member.client_id)} at {plain(member.host)}" for member in group.members or ()}


def reader_of(readers: Mapping[str, str], partition: PartitionLag) -> str:
    """Return which of these reads a partition; empty: nobody."""
    member_id = partition.consumer_id or ""
    return readers[member_id] if member_id in readers else plain(member_id)


def _past_lag(view: View, group: str, width: int) -> list[Line]:
    """Return the group's lag since the dashboard started, as a chart that begins at zero."""
    samples = view.board.history.lag.of(group)
    values = [sample.value for sample in samples]
    known = [value for value in values if isfinite(value)]
    if len(samples) < 2 or not known:
        return []
    text = f"   least {count(min(known))}   most {count(max(known))}"
    text += f"   over {span((samples[-1].at_ms - samples[0].at_ms) / 1000)}"
    room = max(8, min(len(values), width - len(text) - 6))
    return [line(("lag   ", Tone.QUIET), (sparkline(values, room), Tone.ACCENT), (text, Tone.QUIET))]


def _past_changes(view: View, group: str) -> list[Line]:
    """Return what the group went through since the dashboard started, as far as there is room."""
    past = group_past(view.board.events, group)
    if not past.changes:
        return []
    seen = f"rebalanced at least {counted(past.rebalances, 'time')}" if past.rebalances else "no rebalance seen"
    lines = [line((f"{seen} since the dashboard started", Tone.QUIET))]
    for change in past.changes[: 4 if view.height >= TALL else 1]:
        after = "" if change.lasted_ms is None else f"   after {span(change.lasted_ms / 1000)}"
        text = f"{change_text(change.event)}{' members' if change.is_of_members else after}"
        why = f"   {plain(change.event.reason)}" if change.event.reason else ""
        lines.append(line((f"{clock_time(change.event.at_ms)}  ", Tone.QUIET), text, (why, Tone.QUIET)))
    return lines


GROUP_PAGE = Page(
    "group",
    _group_rows,
    _group_summary,
    lambda view, partition: Location("partitions", topic=partition.topic, row=partition.name),
    lambda view, partition: partition.status.is_trouble,
    lambda view, items: ["groups", "describe", "--group", view.location.group or ""],
)
