"""The open plan beside the cluster as it is, and its run; without a plan, what is under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.common.model import TopicPartition
from engine.common.quantities import counted
from tui.drawing.cells import Cell, Column, Tone, column, figure
from tui.drawing.lines import Line, beside, folded, line, text_of, width_of, wrapped
from tui.drawing.units import count, ids, size
from tui.pages.page import View
from tui.planning.card import CARD_WIDTH, Load, bar_lines, card_lines, loads_of, run_lines, sentence
from tui.planning.opened_plan import OpenedPlan
from tui.planning.plan_run import PlanRunState
from tui.state.board import Board, PartitionItem
from tui.state.table_model import Rows

TALL = 30
"""From this many lines on, there is room for all measures and for more than one line of reasons."""
WIDE = 140
"""From this many columns on, the reason takes one line."""
_BROKERS_MIN = 4
"""This many brokers are shown where there is little room."""
_EMPTY = "no plan is open and nothing is under way   N makes a plan   o opens a file"


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """One partition of a plan beside the cluster. ``present`` is None if there is no such partition."""

    name: TopicPartition
    before: tuple[int, ...]
    target: tuple[int, ...]
    present: PartitionItem | None
    copied_bytes: int | None
    wave: int | None = None

    @property
    def adds(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.target if broker not in self.before)

    @property
    def state(self) -> str:
        if self.present is None:
            return "not found"
        assignment = self.present.partition.assignment
        if assignment.is_being_reassigned:
            ways = {self.before: "going back", self.target: "under way"}
            return ways.get(assignment.target_replicas, "going elsewhere")
        return "done" if assignment.replicas == self.target else "to do"


def items_of(board: Board, plan: OpenedPlan | None) -> list[PlannedItem]:
    """Return the partitions of a plan; without a plan, those under way."""
    if plan is None:
        moving = [item for item in board.items if item.partition.assignment.is_being_reassigned]
        moves = [(PartitionMove(item.name, item.partition.assignment.target_replicas), item) for item in moving]
        return [_planned(board, move, None, item, None) for move, item in moves]
    before = {move.name: move.before for move in plan.moves}
    wanted = {move.name.topic for move in plan.targets}
    present = {item.name: item for topic in board.topics if topic.name in wanted for item in board.items_of(topic)}
    return [
        _planned(board, move, before.get(move.name), present.get(move.name), plan.wave_of.get(move.name))
        for move in plan.targets
    ]


def _planned(
    board: Board, move: PartitionMove, before: tuple[int, ...] | None, item: PartitionItem | None, wave: int | None
) -> PlannedItem:
    if before is None:
        before = () if item is None else item.partition.assignment.origin_replicas
    planned = PlannedItem(move.name, before, move.replicas, item, None, wave)
    leader = None if item is None else item.partition.leader
    logs = board.frame.logs.get(move.name, ())
    own = [log.size_bytes for log in logs if log.broker == leader and not log.is_future]
    return replace(planned, copied_bytes=own[0] * len(planned.adds)) if own else planned


_TONES = {
    "done": Tone.GOOD,
    "under way": Tone.ACCENT,
    "going back": Tone.ACCENT,
    "not found": Tone.BAD,
    "going elsewhere": Tone.BAD,
}


COLUMNS = (
    Column("partition", "PARTITION", lambda i: Cell(str(i.name), Tone.STRONG), lambda i: i.name, is_wide=True,
           width=16),
    column("state", "STATE", "state", tone=lambda i: _TONES.get(i.state, Tone.PLAIN), width=9),
    column("replicas", "BEFORE", "before", ids),
    column("target", "AFTER", "target", ids, tone=Tone.ACCENT),
    column("adds", "ADDS", "adds", ids, rank=2),
    figure("wave", "WAVE", "wave", rank=3),
    figure("copied_bytes", "TO COPY", "copied_bytes", size, rank=1, width=9),
)  # fmt: skip


def rows_of(view: View, plan: OpenedPlan | None) -> Rows:
    empty = _EMPTY if plan is None else plan.error or "there is nothing to do"
    items = items_of(view.board, plan)
    return Rows(COLUMNS, items, lambda item: item.name, lambda item: f"{item.name} {item.state}", empty)


def summary_of(
    view: View, plan: OpenedPlan | None, run: PlanRunState | None, cursor: TopicPartition | None, width: int
) -> list[Line]:
    """Return what the plan is and its progress, brokers before and after, and why the row's partition moves."""
    moves = view.board.moves if run is not None and run.is_under_way else None
    ran = [] if run is None else run_lines(run, moves)
    if plan is None:
        items = items_of(view.board, None)
        head = line(("reassignments under way", Tone.STRONG), ("   N makes a plan   o opens a file", Tone.QUIET))
        return [head, *ran, *_brokers(view, None, items, width)] if items else [*ran]
    if plan.error:
        return [line((str(plan.path), Tone.STRONG), (f"   {plan.error}", Tone.BAD)), *ran]
    items = items_of(view.board, plan)
    lines = [*folded(line((sentence(plan), Tone.STRONG)), width), *_standing(plan, items, width), *ran]
    if items:
        lines += [()] * (view.height >= TALL) + _brokers(view, plan, items, width)
        lines += _why(plan, cursor, width, is_tall=view.height >= TALL)
    return lines


def _standing(plan: OpenedPlan, items: Sequence[PlannedItem], width: int) -> list[Line]:
    """Return the file, the progress of the partitions, and how good the plan is."""
    name = (str(plan.path or ""), Tone.QUIET)
    if plan.path is None and plan.targets:
        name = ("not saved yet: w saves it", Tone.WARN)
    states = Counter(item.state for item in items)
    parts = [", ".join(f"{count(number)} {state}" for state, number in states.items())]
    if plan.wave_count:
        parts.append(counted(plan.wave_count, "wave"))
    return wrapped([line(name), *(line((text, Tone.QUIET)) for text in parts)], width)


def _brokers(view: View, plan: OpenedPlan | None, items: Sequence[PlannedItem], width: int) -> list[Line]:
    """Return the brokers before and after, with the score card beside or below if there is room for it."""
    score = None if plan is None or plan.file is None else plan.file.klamm.score
    if score is not None and score.brokers:
        loads, brokers = loads_of(score), [row.broker for row in score.brokers]
    else:
        loads, brokers = _loads_of_items(view.board, items)
    is_tall = view.height >= TALL
    lines = bar_lines(loads if is_tall else loads[:2], brokers, width, view.height // 5 if is_tall else _BROKERS_MIN)
    if score is None or not score.brokers:
        return lines
    left = max(width_of(text) for text in lines)
    if left + 4 + CARD_WIDTH <= width:
        return beside(lines, card_lines(score), left_width=left, gap=4)
    return [*lines, (), *card_lines(score)] if view.height >= TALL + 10 else lines


def _loads_of_items(board: Board, items: Sequence[PlannedItem]) -> tuple[list[Load], list[int]]:
    """Return replicas and preferred leaders of each broker, as the cluster is and as it would be."""
    replicas, leaders = Counter(board.replicas), Counter(board.total.preferred)
    later_replicas, later_leaders = Counter(replicas), Counter(leaders)
    for item in items:
        present = item.present.partition.assignment.replicas if item.present is not None else ()
        later_replicas.subtract(present)
        later_replicas.update(item.target)
        later_leaders.subtract(present[:1])
        later_leaders.update(item.target[:1])
    brokers = sorted(set(replicas) | set(later_replicas) | board.live)
    return [Load("replicas", replicas, later_replicas), Load("preferred leaders", leaders, later_leaders)], brokers


def _why(plan: OpenedPlan, cursor: TopicPartition | None, width: int, *, is_tall: bool) -> list[Line]:
    """Return why the partition under the cursor moves, in a constant number of lines, so that rows stay in place."""
    texts = [text.strip() for text in plan.explained(cursor)] if cursor is not None else []
    first, why = "".join(texts[:1]), "; ".join(texts[1:])
    rows = 1 if width >= WIDE else 2
    if not is_tall:
        # The first line says where it was and will be, as its row does.
        return _in_rows(f"{cursor}: {why}" if why else first, width, rows)
    return [(), line((first, Tone.PLAIN)), *_in_rows(why, width, rows)]


def _in_rows(text: str, width: int, rows: int) -> list[Line]:
    """Return a text in exactly ``rows`` lines. If the text is too long, so is the last line: drawing cuts it."""
    lines = [text_of(part) for part in folded(line(text), width)]
    kept = [*lines[: rows - 1], " ".join(lines[rows - 1 :]), *[""] * rows][:rows]
    return [line((text, Tone.QUIET)) for text in kept]


def command_of(plan: OpenedPlan | None) -> list[str]:
    """Return the words of the command that makes the plan, or shows its progress."""
    if plan is None:
        return ["reassign", "list"]
    if plan.path is not None:
        return ["plan", "status", str(plan.path)] if plan.file is not None else ["reassign", "list"]
    return plan.making_words
