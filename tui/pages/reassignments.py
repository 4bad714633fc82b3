"""Reassignments under way, copy by copy: how much is copied, how fast, and whether the copy will ever end."""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.analysis.moves import CopyProgress, CopyState
from engine.admin.analysis.throttles import ThrottleVerdict, throttle_texts
from engine.admin.health.report import Check, HealthReason
from engine.admin.watch.frame import Frame, Stage
from engine.common.model import ReplicaAssignment, TopicPartition
from tui.drawing.cells import DENIED, NO_DATA, Cell, Column, Tone, attribute, column, figure
from tui.drawing.lines import Line, folded, line, wrapped
from tui.drawing.units import NOTHING, byte_rate, count, counted, ids, percent, plain, size, span, span_left
from tui.pages.page import Page, View, why_empty
from tui.state.board import Board
from tui.state.location import Location, Only
from tui.state.status import rights_text
from tui.state.table_model import Rows

BAR_MIN = 6
THROTTLES_MAX = 4
"""This many lines are about throttles: brokers with the same one, that does the same, share a line."""
FINISHING = "finishing"
"""A partition that moves and has nothing left to copy."""
_TONES = {
    CopyState.STALLED: Tone.BAD,
    CopyState.FALLING_BEHIND: Tone.BAD,
    CopyState.COPYING: Tone.GOOD,
    CopyState.CATCHING_UP: Tone.GOOD,
    CopyState.DONE: Tone.GOOD,
}


@dataclass(frozen=True, slots=True)
class MoveItem:
    """One new replica of a partition; ``copy`` is None for a partition that gets none.

    ``is_burst``: more goes through its throttle now than that allows in the long run, so the rate foretells nothing.
    """

    name: TopicPartition
    assignment: ReplicaAssignment
    copy: CopyProgress | None
    is_burst: bool = False

    @property
    def broker(self) -> int | None:
        return None if self.copy is None else self.copy.broker

    @property
    def state(self) -> str:
        return FINISHING if self.copy is None else self.copy.state.value

    @property
    def share(self) -> float | None:
        copy = self.copy
        if copy is None or copy.copied_bytes is None or not copy.total_bytes:
            return None
        return min(1.0, copy.copied_bytes / copy.total_bytes)


def items_of(board: Board) -> list[MoveItem]:
    """Return all copies, those that stand still first, then partitions with nothing to copy."""
    moving = board.history.moving(board.frame)
    copies = board.moves.copies
    in_burst = _in_burst(board)
    items = [
        MoveItem(copy.name, moving[copy.name].assignment, copy, not in_burst.isdisjoint(_sides(copy)))
        for copy in copies
    ]
    copied = {copy.name for copy in copies}
    return items + [MoveItem(name, move.assignment, None) for name, move in moving.items() if name not in copied]


def _sides(copy: CopyProgress) -> tuple[tuple[int | None, bool], tuple[int | None, bool]]:
    """Return who sends a copy and who receives it: a throttle holds back either."""
    return (copy.source, True), (copy.broker, False)


def _in_burst(board: Board) -> set[tuple[int | None, bool]]:
    """Return the sides of brokers that copy in a burst, through which more goes than their throttle allows."""
    return {(throttle.broker, throttle.is_leader) for throttle in board.throttles if throttle.is_burst}


def left_text(board: Board) -> str:
    """Return how long all moves take; empty if that is not known, or a burst hides it."""
    moves = board.moves
    if moves.left_s is None or _in_burst(board):
        return ""
    return span_left(moves.left_s, moves.left_low_s, moves.left_high_s)


def bar(share: float | None, width: int = 12) -> str:
    if share is None:
        return ""
    full = int(share * width)
    return "━" * full + "╌" * (width - full)


def _tone(copy: CopyProgress | None) -> Tone:
    if copy is None:
        return Tone.QUIET
    return Tone.WARN if copy.waits_long else _TONES.get(copy.state, Tone.QUIET)


def _left(item: MoveItem) -> Cell:
    """The time left, as a range if the samples leave a wide one."""
    copy = item.copy
    if copy is None or copy.left_s is None or item.is_burst:
        return NO_DATA
    low, high = copy.left_low_s, copy.left_high_s
    is_wide = low is not None and high is not None and high > 1.5 * max(low, 1.0)
    return Cell(f"{span(low)} to {span(high)}" if is_wide else span(copy.left_s))


def waited(copy: CopyProgress) -> str:
    """Return for how long a copy has waited for a byte, in words."""
    ending = "" if copy.copied_bytes else ", nothing copied"
    return f"waiting {'at least ' * copy.is_at_least}{span(copy.stalled_s)}{ending}"


def why_of(copy: CopyProgress) -> str:
    """Return why a copy is not done, as far as it can be known."""
    if copy.state is CopyState.WAITING and copy.stalled_s:
        return f"{waited(copy)}: {copy.reason}"
    if copy.state is CopyState.FALLING_BEHIND and not copy.reason:
        return f"{byte_rate(copy.rate)} are copied, {byte_rate(copy.inflow)} are produced"
    still = f"no byte seen for {span(copy.stalled_s)}" if copy.stalled_s and " for " not in copy.reason else ""
    return ", ".join(part for part in (copy.reason, still) if part)


COLUMNS = (
    Column("partition", "PARTITION", lambda m: Cell(str(m.name), Tone.STRONG), lambda m: m.name, is_wide=True,
           width=16),
    figure("broker", "TO BROKER", "broker", tone=Tone.ACCENT, rank=1),
    column("state", "STATE", "state", tone=lambda m: _tone(m.copy), width=12),
    column("replicas", "FROM", "assignment.origin_replicas", ids, rank=3),
    column("target", "TO", "assignment.target_replicas", ids, rank=3),
    Column("bar", "", lambda m: Cell(bar(m.share), Tone.ACCENT), lambda m: m.share, rank=5, width=12),
    figure("share", "DONE", "share", percent, width=5),
    figure("copied_bytes", "COPIED", "copy.copied_bytes", size, rank=4, width=9),
    figure("total_bytes", "OF", "copy.total_bytes", size, rank=4, width=9),
    figure("rate", "RATE", "copy.rate", byte_rate, rank=2, width=11),
    Column("left_s", "TIME LEFT", _left, attribute("copy.left_s"), rank=1, is_figure=True, width=8),
    column("reason", "WHY", lambda m: why_of(m.copy) if m.copy else "", tone=Tone.QUIET, rank=2, is_wide=True,
           needs_max=20, width=12),
)  # fmt: skip


def _rows(view: View) -> Rows:
    is_stuck = view.location.only is Only.STUCK
    return Rows(
        COLUMNS,
        items_of(view.board),
        lambda move: (move.name, move.broker),
        lambda move: f"{move.name} {move.state} {move.broker}",
        "no copy is stuck any more" if is_stuck else _why_empty(view),
        (lambda move: _is_trouble(view, move)) if is_stuck else None,
    )


def _is_trouble(view: View, move: MoveItem) -> bool:
    return _tone(move.copy) in (Tone.BAD, Tone.WARN)


def _why_empty(view: View) -> str:
    frame = view.board.frame
    if not view.board.has_metadata:
        return why_empty(view, "reassignments")
    if frame.stage(Stage.REASSIGNMENTS).is_denied:
        return f"{DENIED.text} reassignments are hidden: {rights_text(frame)}"
    return "nothing is being moved"


def _summary(view: View, width: int) -> list[Line]:
    board = view.board
    moves = board.moves
    left_behind = _left_behind(board.frame)
    if not moves.partitions:
        return left_behind
    share = moves.copied_bytes / moves.total_bytes if moves.total_bytes else None
    moving = f"{counted(moves.partitions, 'partition')} moving   "
    text = f"{NOTHING if share is None else percent(share)}  {size(moves.copied_bytes)} of {size(moves.total_bytes)}"
    if moves.copies and moves.unknown_count == len(moves.copies):
        is_soon_read = any(copy.state is CopyState.MEASURING for copy in moves.copies)
        text = CopyState.MEASURING.value if is_soon_read else "sizes are not known"
    text += "" if moves.rate is None else f"   {byte_rate(moves.rate)}{', in a burst' * bool(_in_burst(board))}"
    text += f"   {left}" if (left := left_text(board)) else ""
    # The time left matters more than the bar.
    room = min(20, width - len(moving) - len(text) - 1)
    drawn = f"{bar(share, room)} " if room >= BAR_MIN else ""
    lines = [line(moving, (drawn, Tone.ACCENT), text)]
    if moves.stalled_count:
        still = "1 copy stands" if moves.stalled_count == 1 else f"{count(moves.stalled_count)} copies stand"
        lines.append(line((f"{still} still", Tone.BAD)))
    lines += _waiting_long([copy for copy in moves.copies if copy.waits_long])
    return [*lines, *_throttles(board, width), *left_behind]


def leaked_throttles(frame: Frame) -> HealthReason | None:
    """Return the finding of throttles that no move needs, if there are any."""
    reasons = () if frame.health is None else frame.health.reasons
    return next((reason for reason in reasons if reason.check is Check.LEAKED_THROTTLES), None)


def _left_behind(frame: Frame) -> list[Line]:
    """Say that there are throttles which no move needs: they slow down ordinary replication."""
    leaked = leaked_throttles(frame)
    if leaked is None:
        return []
    text = f"{counted(leaked.count, 'throttle setting')} {'serves' if leaked.count == 1 else 'serve'} no move"
    rest = leaked.count - len(leaked.examples)
    return [
        line((text, Tone.WARN), ("   X removes klamm's, then those of others", Tone.QUIET)),
        *(line(f"  {plain(example)}") for example in leaked.examples),
        *([line((f"  and {counted(rest, 'other')}", Tone.QUIET))] if rest > 0 else []),
    ]


def _waiting_long(copies: list[CopyProgress]) -> list[Line]:
    """Point to the copy that has waited longest: whether it is stuck is not known from outside."""
    if not copies:
        return []
    worst = max(copies, key=lambda copy: copy.stalled_s or 0)
    more = f"   and {counted(len(copies) - 1, 'other')}" if len(copies) > 1 else ""
    text = f"{worst.name} to broker {worst.broker}: {waited(worst)}{more}"
    return [line((text, Tone.WARN), (f"   if it is stuck, broker {worst.broker}'s log says why", Tone.QUIET))]


def _throttles(board: Board, width: int) -> list[Line]:
    """Say what the throttles do, beginning with those that never let it end."""
    throttles = throttle_texts(board.throttles)
    if not throttles:
        return [line(("no throttle limits these copies   H sets one", Tone.QUIET))]
    lines: list[Line] = []
    for text, verdict in throttles[:THROTTLES_MAX]:
        lines += folded(line((text, Tone.BAD if verdict is ThrottleVerdict.NEVER_ENDS else Tone.QUIET)), width)
    more = len(throttles) - THROTTLES_MAX
    words = [line((f"and {counted(more, 'other throttle')}", Tone.QUIET))] if more > 0 else [lines.pop()]
    return [
        *lines,
        *wrapped([*words, line((f"H changes {'it' if len(throttles) == 1 else 'them'}", Tone.QUIET))], width),
    ]


PAGE = Page(
    "reassignments",
    _rows,
    _summary,
    lambda view, move: Location("partitions", topic=move.name.topic, row=str(move.name)),
    _is_trouble,
    lambda view, items: ["reassign", "list"],
)
