"""Partitions: all of the cluster, of a topic, or on a broker."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

from engine.admin.health.report import Check
from engine.admin.health.topic_checks import partition_checks
from engine.admin.watch.judging import facts_of
from engine.admin.watch.packed_logs import LogEnds, ReplicaLogs
from engine.common.model import NO_LEADER
from tui.drawing.cells import ITEM_ALONE, Cell, Column, Tone, column, figure
from tui.drawing.lines import Line, line
from tui.drawing.units import NOTHING, count, counted, ids, plain, short_count, size, span
from tui.pages.page import Page, View, why_empty
from tui.pages.topics import factor_of
from tui.state.board import Board, PartitionItem
from tui.state.location import Location, Only
from tui.state.table_model import Rows

_BROKERS_NAMED = 12


def items_of(view: View) -> Sequence[PartitionItem]:
    board, where = view.board, view.location
    if where.topic is not None:
        return next((board.items_of(topic) for topic in board.topics if topic.name == where.topic), [])
    if where.broker is not None:
        return [item for item in board.items if where.broker in item.partition.replicas]
    return board.items


def state_of(board: Board, item: PartitionItem) -> tuple[str, Tone]:
    """Return a partition's worst problem, in Kafka's words, by the rules of the health checks."""
    frame, partition = board.frame, item.partition
    min_isr = frame.min_isr.get(item.topic.name)
    if not partition.is_led(board.live):
        return "offline", Tone.BAD
    if min_isr is not None and partition.is_under_min_isr(min_isr, board.live, is_capped=frame.caps_min_isr):
        return "under min ISR", Tone.BAD
    if partition.is_under_replicated:
        return "under-replicated", Tone.BAD
    if partition.assignment.is_being_reassigned:
        return "moving", Tone.ACCENT
    if partition.leader != partition.preferred_leader:
        return "not preferred", Tone.WARN
    return "ok", Tone.QUIET


_CHECKS = {
    Only.OFFLINE: Check.OFFLINE_PARTITIONS,
    Only.UNDER_MIN_ISR: Check.UNDER_MIN_ISR,
    Only.MIN_ISR_ABOVE_FACTOR: Check.MIN_ISR_ABOVE_FACTOR,
    Only.UNDER_REPLICATED: Check.UNDER_REPLICATED_DEAD_BROKER,
    Only.BEHIND: Check.UNDER_REPLICATED_LAGGING,
    Only.AGAINST_RACKS: Check.RACK_VIOLATIONS,
}
"""The checks of single partitions."""


def _kept_by(only: Only | None, board: Board) -> Callable[[PartitionItem], bool] | None:
    """Return what keeps the partitions that a finding is about; they may have worse problems besides."""
    frame = board.frame
    if only is None or frame.cluster is None:
        return None
    if only is Only.HELD_UP:
        held = {transaction.partition for transaction in frame.holding}
        return lambda item: _searched(item) in held
    if only is Only.NOT_PREFERRED:
        return lambda item: item.partition.leader != item.partition.preferred_leader
    check, checks = _CHECKS[only], partition_checks(facts_of(frame))
    return lambda item: check in checks(item.topic, item.partition)


def columns_of(board: Board) -> tuple[Column, ...]:
    """Return the columns; offsets and sizes are the board's."""
    frame = board.frame
    ends = LogEnds.of(frame.offsets)
    logs = ReplicaLogs.of(frame.logs)

    def bytes_of(item: PartitionItem) -> int | None:
        leader = item.partition.leader
        for broker, is_future, size_bytes, _ in logs.numbers(item.name):
            if broker == leader and not is_future:
                return size_bytes
        return None

    def behind(item: PartitionItem) -> int | None:
        """The most that a follower lacks, as its broker reports it."""
        leader = item.partition.leader
        lags = [lag for broker, is_future, _, lag in logs.numbers(item.name) if broker != leader and not is_future]
        return max(lags, default=None)

    def age_s(item: PartitionItem) -> float | None:
        read_at = frame.read_at_ms.get(item.name)
        return None if read_at is None else (frame.at_ms - read_at) / 1000

    # Who is missing matters more than figures, but only while somebody is.
    osr_rank = 1 if board.total.under_replicated else 7

    columns = (
        Column("partition", "PARTITION", lambda i: Cell(str(i.name), Tone.STRONG), lambda i: i.name, is_wide=True,
               width=16, basis=ITEM_ALONE),
        Column("state", "STATE", lambda i: Cell(*state_of(board, i)), lambda i: state_of(board, i)[0], width=10),
        Column("leader", "LEADER", _leader, lambda i: i.partition.leader, is_figure=True, basis=ITEM_ALONE),
        column("replicas", "REPLICAS", "partition.replicas", ids, basis=ITEM_ALONE),
        column("isr", "ISR", "partition.isr", ids, width=5, basis=ITEM_ALONE,
               tone=lambda i: Tone.BAD if i.partition.is_under_replicated else Tone.PLAIN),
        column("osr", "OUT", lambda i: i.partition.osr, lambda osr: ids(osr) if osr else "", rank=osr_rank,
               tone=lambda i: Tone.BAD if i.partition.is_under_replicated else Tone.ACCENT, basis=ITEM_ALONE),
        figure("leader_epoch", "EPOCH", "partition.leader_epoch", tone=Tone.QUIET, rank=6, basis=ITEM_ALONE),
        figure("zk_version", "ZK VERSION", "partition.zk_version", tone=Tone.QUIET, rank=8, basis=ITEM_ALONE),
        figure("end_offset", "END", lambda i: ends.end(i.name), count, rank=2, width=9, basis=ends),
        figure("in_per_s", "IN/S", lambda i: board.rates.partition_in(i.name), short_count, rank=3, width=6),
        figure("bytes", "SIZE", bytes_of, size, rank=4, width=9, basis=logs),
        figure("follower_lag", "BEHIND", behind, short_count, rank=4, width=6, basis=logs,
               tone=lambda i: Tone.WARN if behind(i) else Tone.QUIET),
    )  # fmt: skip
    if frame.read_at_ms:
        return (*columns, figure("age_s", "SEEN", age_s, span, tone=Tone.QUIET, rank=1, is_age=True))
    return columns


def _leader(item: PartitionItem) -> Cell:
    partition = item.partition
    if partition.leader == NO_LEADER:
        return Cell("none", Tone.BAD)
    if partition.leader != partition.preferred_leader:
        return Cell(f"{partition.leader}*", Tone.WARN)
    return Cell(f"{partition.leader} ")


def _rows(view: View) -> Rows:
    only = view.location.only
    return Rows(
        columns_of(view.board),
        items_of(view),
        lambda item: item.name,
        _searched,
        _why_empty(view) if only is None else f"no partition is {only} any more",
        _kept_by(only, view.board),
    )


def _searched(item: PartitionItem) -> str:
    return f"{item.topic.name}-{item.partition.partition}"


def _why_empty(view: View) -> str:
    where = view.location
    if where.topic is not None and view.board.has_metadata:
        return f"there is no topic {where.topic}"
    if where.broker is not None and view.board.has_metadata:
        is_known = where.broker in view.board.broker_ids
        return f"{'no partition has a replica on' if is_known else 'the cluster has no'} broker {where.broker}"
    return why_empty(view, "partitions")


def _summary(view: View, width: int) -> list[Line]:
    board, where = view.board, view.location
    if not board.has_metadata:
        return []
    if where.topic is not None:
        return [*_missing_partition(board, where), *_topic_summary(board, where.topic)]
    if where.broker is not None:
        return [_broker_line(board, where.broker)]
    total = board.total
    sign = "   * not led by the preferred replica" if total.led_elsewhere else ""
    return [line((f"{counted(total.partitions, 'partition')}{sign}", Tone.QUIET))]


def _broker_line(board: Board, broker: int) -> Line:
    if broker not in board.broker_ids:
        known = board.broker_ids
        names = ", ".join(map(str, known[:_BROKERS_NAMED])) + (", …" if len(known) > _BROKERS_NAMED else "")
        return line((f"the cluster has no broker {broker}: it has {names or 'none'}", Tone.BAD))
    total, state, tone = board.total, "is up", Tone.GOOD
    if broker not in board.live:
        state, tone = "is down", Tone.BAD
    elif broker in board.silent:
        state, tone = f"is silent: {plain(board.frame.words[broker].trouble)}", Tone.BAD
    return line(
        (f"broker {broker} {state}", tone),
        f"   leads {counted(total.leaders[broker], 'partition')}, is preferred for {count(total.preferred[broker])},"
        f" holds {count(board.replicas[broker])} replicas, {count(total.missing[broker])} of them out of the ISR",
    )


def _missing_partition(board: Board, where: Location) -> list[Line]:
    """Say so if the partition that the cursor should be on does not exist."""
    numbers = [p.partition for topic in board.topics if topic.name == where.topic for p in topic.partitions]
    if where.row is None or not numbers or where.row in {f"{where.topic}-{number}" for number in numbers}:
        return []
    has = f"{numbers[0]} to {numbers[-1]}" if len(numbers) > 1 else f"only {numbers[0]}"
    return [line((f"there is no partition {where.row}: the topic has {has}", Tone.BAD))]


def _topic_summary(board: Board, name: str) -> list[Line]:
    topic = next((topic for topic in board.topics if topic.name == name), None)
    if topic is None:
        return []
    figures = board.topic_figures(topic)
    under, elsewhere = figures.under_replicated, figures.led_elsewhere.total()
    settings = NOTHING if topic.configs is None else ", ".join(f"{k}={v}" for k, v in sorted(topic.configs.items()))
    facts = line(
        f"{counted(figures.partitions, 'partition')}, factor {factor_of(topic)}   ",
        (f"{count(under)} under-replicated", Tone.BAD if under else Tone.QUIET),
        (f"   {count(elsewhere)} not preferred", Tone.WARN if elsewhere else Tone.QUIET),
    )
    return [facts, line((f"set: {settings or 'nothing of its own'}", Tone.QUIET))]


def _command(view: View, items: Sequence[Any]) -> list[str]:
    topics = dict.fromkeys(item.topic.name for item in items)
    return ["topics", "describe", *(topics or ([view.location.topic] if view.location.topic else []))]


PAGE = Page(
    "partitions",
    _rows,
    _summary,
    lambda view, item: Location("partition", topic=item.topic.name, partition=item.partition.partition),
    lambda view, item: state_of(view.board, item)[1] is Tone.BAD,
    _command,
)
