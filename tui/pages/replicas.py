"""One partition, replica by replica: which are in sync, how much each has, and where it is."""

from __future__ import annotations

from typing import NamedTuple

from engine.common.snapshot import PartitionSnapshot, ReplicaLog
from tui.drawing.cells import Cell, Column, Tone, column, figure
from tui.drawing.lines import Line, line
from tui.drawing.units import NOTHING, count, ids, plain, short_count, size
from tui.pages.page import Page, View, why_empty
from tui.pages.partitions import items_of, state_of
from tui.state.board import Board, PartitionItem
from tui.state.location import Location
from tui.state.table_model import Rows


class Replica(NamedTuple):
    """A replica as the controller has it, and its log as its broker reports it."""

    broker: int
    partition: PartitionSnapshot
    log: ReplicaLog | None
    is_up: bool

    @property
    def is_future(self) -> bool:
        """It is being copied to another log dir of the same broker."""
        return self.log is not None and self.log.is_future

    @property
    def role(self) -> str:
        leads = self.broker == self.partition.leader
        name = "leader" if leads else "follower"
        return f"{name}, preferred" if self.broker == self.partition.preferred_leader else name

    @property
    def state(self) -> tuple[str, Tone]:
        assignment = self.partition.assignment
        if not self.is_up:
            return "broker down", Tone.BAD
        if self.is_future:
            return "copies to another dir", Tone.ACCENT
        if self.broker in assignment.adding_replicas and self.broker not in self.partition.isr:
            return "being added", Tone.ACCENT
        if self.broker in assignment.removing_replicas:
            return "being removed", Tone.ACCENT
        if self.broker in self.partition.isr:
            return "in sync", Tone.GOOD
        return "out of sync", Tone.BAD


COLUMNS = (
    figure("broker", "BROKER", "broker", tone=Tone.STRONG),
    column("role", "ROLE", "role", width=19),
    Column("state", "STATE", lambda r: Cell(*r.state), lambda r: r.state[0], width=12),
    figure("bytes", "SIZE", "log.size_bytes", size, width=9),
    figure("offset_lag", "BEHIND", "log.offset_lag", short_count, width=6,
           tone=lambda r: Tone.WARN if r.log.offset_lag else Tone.QUIET),
    column("log_dir", "LOG DIR", "log.log_dir", plain, rank=2, is_wide=True, width=20),
)  # fmt: skip


def chosen(view: View) -> list[PartitionItem]:
    """Return the partition at this location; none if it is gone."""
    return [item for item in items_of(view) if item.partition.partition == view.location.partition]


def _replicas(view: View) -> list[Replica]:
    return [replica for item in chosen(view) for replica in replicas_of(view.board, item)]


def replicas_of(board: Board, item: PartitionItem) -> list[Replica]:
    """Return the replicas of a partition, then those being copied to another log dir."""
    logs = board.frame.logs.get(item.name, ())
    by_broker = {log.broker: log for log in logs if not log.is_future}
    live = board.live
    replicas = [Replica(b, item.partition, by_broker.get(b), b in live) for b in item.partition.replicas]
    return replicas + [Replica(log.broker, item.partition, log, log.broker in live) for log in logs if log.is_future]


def _rows(view: View) -> Rows:
    where = view.location
    gone = f"there is no partition {where.topic}-{where.partition}"
    return Rows(
        COLUMNS,
        _replicas(view),
        lambda replica: (replica.broker, replica.is_future),
        lambda replica: f"{replica.broker} {replica.role} {replica.state[0]}",
        gone if view.board.has_metadata else why_empty(view, "replicas"),
    )


def _summary(view: View, width: int) -> list[Line]:
    frame, chosen_items = view.board.frame, chosen(view)
    if not chosen_items:
        return []
    (item,) = chosen_items
    partition = item.partition
    min_isr = frame.min_isr.get(item.topic.name)
    end = frame.offsets.get(item.name)
    epochs = [("leader epoch", partition.leader_epoch), ("version", partition.zk_version)]
    text = "   ".join(f"{name} {NOTHING if value is None else value}" for name, value in epochs)
    return [
        line(
            state_of(view.board, item),
            f"   ISR {ids(partition.isr)} of {ids(partition.replicas)},"
            f" min ISR {NOTHING if min_isr is None else min_isr}"
            f"   end {count(None if end is None else end.end)}   {text}",
        )
    ]


PAGE = Page(
    "partition",
    _rows,
    _summary,
    lambda view, replica: Location("partitions", broker=replica.broker),
    lambda view, replica: replica.state[1] is Tone.BAD,
    lambda view, items: ["topics", "describe", view.location.topic or ""],
)
