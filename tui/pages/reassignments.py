"""Reassignments under way: how much is copied, how fast, and whether it ever ends."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from engine.common.model import TopicPartition
from tui.board import Board, PartitionItem
from tui.cells import NO_DATA, Cell, Column, Tone
from tui.lines import Line, line
from tui.location import Location
from tui.pages.page import Page, View, why_empty
from tui.table_model import Rows
from tui.units import byte_rate, count, ids, percent, size, span


@dataclass(frozen=True, slots=True)
class MoveItem:
    """One partition that moves. Bytes are those of all replicas that it gets; None where brokers do not tell."""

    item: PartitionItem
    copied: int | None
    total: int | None
    bytes_per_s: float | None

    @property
    def name(self) -> TopicPartition:
        return self.item.name

    @property
    def share(self) -> float | None:
        if self.copied is None or not self.total:
            return None
        return min(1.0, self.copied / self.total)

    @property
    def left_s(self) -> float | None:
        if self.copied is None or self.total is None or not self.bytes_per_s:
            return None
        return max(0.0, (self.total - self.copied) / self.bytes_per_s)

    @property
    def state(self) -> str:
        if not self.item.partition.assignment.adding_replicas:
            return "finishing"
        if self.bytes_per_s is None:
            return "measuring"
        return "copying" if self.bytes_per_s > 0 else "stands still"


def items_of(board: Board) -> list[MoveItem]:
    """Return the partitions that are being reassigned."""
    found = []
    for topic in board.topics:
        if board.topic_figures(topic).moving:
            moving = (item for item in board.items_of(topic) if item.partition.assignment.is_being_reassigned)
            found += [_move(board, item) for item in moving]
    return found


def _move(board: Board, item: PartitionItem) -> MoveItem:
    adding = item.partition.assignment.adding_replicas
    logs = board.frame.logs.get(item.name, ()) if board.frame is not None else ()
    sizes = {log.broker: log.size_bytes for log in logs if not log.is_future}
    whole = sizes.get(item.partition.leader)
    copied = sum(min(sizes.get(broker, 0), whole) for broker in adding) if whole is not None else None
    total = None if whole is None else whole * len(adding)
    return MoveItem(item, copied, total, board.copy_rate(item.name, adding))


def _state(move: MoveItem) -> Cell:
    tones = {"stands still": Tone.BAD, "copying": Tone.GOOD}
    return Cell(move.state, tones.get(move.state, Tone.QUIET))


def bar(share: float | None, width: int = 12) -> str:
    """Return a bar for a share of 1."""
    if share is None:
        return ""
    full = int(share * width)
    return "━" * full + "╌" * (width - full)


COLUMNS = (
    Column("partition", "PARTITION", lambda m: Cell(str(m.name), Tone.STRONG), lambda m: m.name, is_wide=True,
           width=16),
    Column("state", "STATE", _state, lambda m: m.state, width=12),
    Column("replicas", "FROM", lambda m: Cell(ids(m.item.partition.assignment.origin_replicas)),
           lambda m: m.item.partition.assignment.origin_replicas, rank=3),
    Column("target", "TO", lambda m: Cell(ids(m.item.partition.assignment.target_replicas)),
           lambda m: m.item.partition.assignment.target_replicas, rank=3),
    Column("adding", "ADDS", lambda m: Cell(ids(m.item.partition.assignment.adding_replicas), Tone.ACCENT),
           lambda m: m.item.partition.assignment.adding_replicas, rank=2),
    Column("removing", "REMOVES", lambda m: Cell(ids(m.item.partition.assignment.removing_replicas), Tone.QUIET),
           lambda m: m.item.partition.assignment.removing_replicas, rank=4),
    Column("bar", "", lambda m: Cell(bar(m.share), Tone.ACCENT), lambda m: m.share, rank=5, width=12),
    Column("share", "DONE", lambda m: NO_DATA if m.share is None else Cell(percent(m.share)), lambda m: m.share,
           is_figure=True, width=5),
    Column("copied_bytes", "COPIED", lambda m: NO_DATA if m.copied is None else Cell(size(m.copied)),
           lambda m: m.copied, rank=4, is_figure=True, width=9),
    Column("total_bytes", "OF", lambda m: NO_DATA if m.total is None else Cell(size(m.total)), lambda m: m.total,
           rank=4, is_figure=True, width=9),
    Column("bytes_per_s", "RATE", lambda m: NO_DATA if m.bytes_per_s is None else Cell(byte_rate(m.bytes_per_s)),
           lambda m: m.bytes_per_s, rank=1, is_figure=True, width=11),
    Column("left_s", "TIME LEFT", lambda m: NO_DATA if m.left_s is None else Cell(span(m.left_s)),
           lambda m: m.left_s, rank=1, is_figure=True, width=8),
)  # fmt: skip


def _rows(view: View) -> Rows:
    return Rows(
        COLUMNS,
        items_of(view.board),
        lambda move: move.name,
        lambda move: f"{move.name} {move.state}",
        "nothing is being moved" if view.board.has_metadata else why_empty(view, "reassignments"),
    )


def _summary(view: View, width: int) -> list[Line]:
    moves = items_of(view.board)
    if not moves:
        return []
    known = [move for move in moves if move.copied is not None and move.total is not None]
    copied, total = sum(move.copied or 0 for move in known), sum(move.total or 0 for move in known)
    rates = [move.bytes_per_s for move in moves if move.bytes_per_s is not None]
    rate = sum(rates) if rates else None
    left = (total - copied) / rate if rate else None
    still = sum(move.state == "stands still" for move in moves)
    share = copied / total if total else None
    lines = [
        line(
            f"{count(len(moves))} partitions moving   ",
            (bar(share, 20), Tone.ACCENT),
            f" {percent(share)}  {size(copied)} of {size(total)}   {byte_rate(rate)}   {span(left)} left",
        )
    ]
    if still:
        lines.append(line((f"{count(still)} stand still: nothing was copied over the last seconds", Tone.BAD)))
    return [*lines, *_throttle(view.board)]


def _throttle(board: Board) -> list[Line]:
    """Say which limit brokers copy under."""
    cluster = board.frame.cluster if board.frame is not None else None
    if cluster is None:
        return []
    key = "follower.replication.throttled.rate"
    rates = {configs[key] for configs in cluster.broker_configs.values() if key in configs}
    if not rates:
        return [line(("no throttle is set   H sets one", Tone.QUIET))]
    told = ", ".join(byte_rate(int(rate)) if rate.isdecimal() else rate for rate in sorted(rates))
    return [line((f"brokers copy at most {told} each   H changes it", Tone.QUIET))]


def _command(view: View, items: Sequence[Any]) -> list[str]:
    return ["reassign", "list"]


PAGE = Page(
    "reassignments",
    _rows,
    _summary,
    lambda view, move: Location("partitions", topic=move.item.topic.name, row=str(move.name)),
    lambda view, move: move.state == "stands still",
    _command,
)
