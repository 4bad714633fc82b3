"""Plan files that the dashboard was pointed to, beside the cluster as it is; and what is under way."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from engine.admin.cluster.errors import AdminError
from engine.admin.reassignment.plan_file import PartitionMove, parse_plan
from engine.common.model import TopicPartition
from tui.board import Board, PartitionItem
from tui.cells import NO_DATA, Cell, Column, Tone
from tui.lines import Line, line
from tui.location import Location
from tui.pages.page import View
from tui.table_model import Rows
from tui.units import count, ids, size

_SHADES = " ░▒▓█"
_BROKERS_MAX = 16


@dataclass(frozen=True, slots=True)
class PlanFile:
    """A file in Kafka's form, read; or why it cannot be."""

    path: Path
    moves: tuple[PartitionMove, ...] = ()
    error: str = ""


@dataclass(frozen=True, slots=True)
class PlannedItem:
    """One partition of a plan beside the cluster. ``present`` is None where there is no such partition."""

    name: TopicPartition
    target: tuple[int, ...]
    present: PartitionItem | None
    copied_bytes: int | None

    @property
    def state(self) -> str:
        if self.present is None:
            return "not found"
        assignment = self.present.partition.assignment
        if assignment.is_being_reassigned:
            return "under way" if assignment.target_replicas == self.target else "going elsewhere"
        return "done" if assignment.replicas == self.target else "to do"


def read_plan_file(path: Path) -> PlanFile:
    """Read a plan; what is wrong with it stands in ``error``."""
    try:
        return PlanFile(path, parse_plan(path.read_text(encoding="utf-8"), str(path)))
    except (OSError, UnicodeDecodeError, AdminError) as error:
        return PlanFile(path, error=str(error))


def items_of(board: Board, plan: PlanFile | None) -> list[PlannedItem]:
    """Return the partitions of a plan; without one those that are under way."""
    if plan is None:
        moving = [item for item in board.items if item.partition.assignment.is_being_reassigned]
        return [_planned(board, item.name, item.partition.assignment.target_replicas, item) for item in moving]
    wanted = {move.name.topic for move in plan.moves}
    present = {item.name: item for topic in board.topics if topic.name in wanted for item in board.items_of(topic)}
    return [_planned(board, move.name, move.replicas, present.get(move.name)) for move in plan.moves]


def _planned(board: Board, name: TopicPartition, target: tuple[int, ...], item: PartitionItem | None) -> PlannedItem:
    if item is None or board.frame is None:
        return PlannedItem(name, target, item, None)
    logs = board.frame.logs.get(name, ())
    own = [log.size_bytes for log in logs if log.broker == item.partition.leader and not log.is_future]
    new = [broker for broker in target if broker not in item.partition.assignment.origin_replicas]
    return PlannedItem(name, target, item, own[0] * len(new) if own else None)


def _state(item: PlannedItem) -> Cell:
    tones = {"done": Tone.GOOD, "under way": Tone.ACCENT, "not found": Tone.BAD, "going elsewhere": Tone.BAD}
    return Cell(item.state, tones.get(item.state, Tone.PLAIN))


def _now(item: PlannedItem) -> tuple[int, ...]:
    return () if item.present is None else item.present.partition.assignment.origin_replicas


COLUMNS = (
    Column("partition", "PARTITION", lambda i: Cell(str(i.name), Tone.STRONG), lambda i: i.name, is_wide=True,
           width=16),
    Column("state", "STATE", _state, lambda i: i.state, width=9),
    Column("replicas", "NOW", lambda i: Cell(ids(_now(i))), _now),
    Column("target", "THEN", lambda i: Cell(ids(i.target), Tone.ACCENT), lambda i: i.target),
    Column("adds", "ADDS", lambda i: Cell(ids(tuple(b for b in i.target if b not in _now(i)))),
           lambda i: tuple(b for b in i.target if b not in _now(i)), rank=2),
    Column("copied_bytes", "TO COPY", lambda i: NO_DATA if i.copied_bytes is None else Cell(size(i.copied_bytes)),
           lambda i: i.copied_bytes, rank=1, is_figure=True, width=9),
)  # fmt: skip


def rows_of(view: View, plan: PlanFile | None) -> Rows:
    """Return the partitions of the plan."""
    empty = "no plan file is open and nothing is under way   :plan FILE opens one"
    if plan is not None:
        empty = plan.error or "the plan names no partition"
    return Rows(
        COLUMNS, items_of(view.board, plan), lambda item: item.name, lambda item: f"{item.name} {item.state}", empty
    )


def summary_of(view: View, plan: PlanFile | None, width: int) -> list[Line]:
    """Return where the plan comes from, how far it is, and the brokers before and after."""
    items = items_of(view.board, plan)
    what = "reassignments under way   :plan FILE opens a plan" if plan is None else str(plan.path)
    if plan is not None and plan.error:
        return [line((what, Tone.STRONG), (f"   {plan.error}", Tone.BAD))]
    states = Counter(item.state for item in items)
    told = ", ".join(f"{count(number)} {state}" for state, number in states.items())
    lines = [line((what, Tone.STRONG), (f"   {told}", Tone.QUIET))]
    return [*lines, *_heat(view.board, items)] if items else lines


def _heat(board: Board, items: Sequence[PlannedItem]) -> list[Line]:
    """Return replicas and leaders of each broker before and after, shaded by one scale each."""
    replicas, leaders = Counter(board.replicas), Counter(board.total.preferred)
    later_replicas, later_leaders = Counter(replicas), Counter(leaders)
    for item in items:
        present = item.present.partition.assignment.replicas if item.present is not None else ()
        later_replicas.subtract(present)
        later_replicas.update(item.target)
        later_leaders.subtract(present[:1])
        later_leaders.update(item.target[:1])
    brokers = sorted(set(replicas) | set(later_replicas) | board.live)[:_BROKERS_MAX]
    lines = [line((f"{'broker':<18}" + "".join(f"{broker:>8}" for broker in brokers), Tone.QUIET))]
    for label, before, after in (
        ("replicas", replicas, later_replicas),
        ("preferred leaders", leaders, later_leaders),
    ):
        top = max([*before.values(), *after.values(), 1])
        for word, counts in (("now", before), ("then", after)):
            cells = "".join(f"{_shade(counts[broker], top)}{counts[broker]:>6}" for broker in brokers)
            tone = Tone.PLAIN if word == "now" else Tone.ACCENT
            lines.append(line((f"{label if word == 'now' else '':<18}"[:18], Tone.QUIET), (f"{cells} {word}", tone)))
    return lines


def _shade(value: int, top: int) -> str:
    return "  " if value <= 0 else _SHADES[min(4, max(1, round(value / top * 4)))] * 2


def opens(view: View, item: Any) -> Location | None:
    """Go to the partition."""
    return Location("partitions", topic=item.name.topic, row=str(item.name))


def command(view: View, items: Sequence[Any]) -> list[str]:
    """Return the words that show the same."""
    return ["reassign", "list"]
