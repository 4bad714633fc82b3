"""Topics: how many partitions each has, and their state."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from engine.admin.analysis.tallies import Tally
from engine.admin.health.checks import DELETION_STUCK_MS
from engine.admin.watch.judging import facts_of
from engine.common.acl import AclOperation, ResourceType
from engine.common.snapshot import TopicSnapshot
from tui.drawing.cells import DENIED, NO_DATA, Cell, Column, Tone, figure, tinted
from tui.drawing.lines import Line, line, wrapped
from tui.drawing.units import NOTHING, at_least, byte_rate, count, counted, short_count, size
from tui.pages.page import Page, View, why_empty
from tui.state.board import Board
from tui.state.location import Location, Only
from tui.state.table_model import Rows


def _rows(view: View) -> Rows:
    only = view.location.only
    return Rows(
        columns_of(view.board),
        view.board.topics,
        lambda topic: topic.name,
        lambda topic: topic.name,
        why_empty(view, "topics") if only is None else f"no topic any more: {only}",
        _kept_by(only, view.board),
    )


def _kept_by(only: Only | None, board: Board) -> Callable[[TopicSnapshot], bool] | None:
    """Return what keeps the topics that a finding is about."""
    frame = board.frame
    if only is None or frame.cluster is None:
        return None
    facts = facts_of(frame)
    if only is Only.DELETION_STUCK:
        stuck = {name for name, age_ms in facts.deletion_ages_ms.items() if age_ms > DELETION_STUCK_MS}
        return lambda topic: topic.name in stuck
    return lambda topic: topic.configs is None and topic.name not in facts.hidden_settings


def columns_of(board: Board) -> tuple[Column, ...]:
    """Return the columns; their counts come from the board."""

    def tally(name: str, title: str, rank: int, of: Callable[[Tally], int], tone: Tone = Tone.BAD) -> Column:
        def value(topic: TopicSnapshot) -> int:
            return of(board.topic_figures(topic))

        return Column(name, title, lambda t: tinted(value(t), count(value(t)), tone=tone), value, rank, is_figure=True)

    def min_isr(topic: TopicSnapshot) -> int | None:
        return board.frame.min_isr.get(topic.name)

    def known(value: float | None, text: str, *, is_hidden: bool) -> Cell:
        return Cell(text) if value is not None else DENIED if is_hidden else NO_DATA

    def hides(topic: TopicSnapshot) -> bool:
        return board.lacks(AclOperation.DESCRIBE_CONFIGS, ResourceType.TOPIC, topic.name)

    def traffic(name: str, title: str, place: int) -> Column:
        def value(topic: TopicSnapshot) -> float | None:
            traffic = board.frame.traffic.get(topic.name)
            return None if traffic is None else traffic[place]

        def cell(topic: TopicSnapshot) -> Cell:
            figure = value(topic)
            if figure is None:
                return NO_DATA
            is_least = bool(board.untold(topic))
            return Cell(at_least(byte_rate(figure), is_least=is_least), Tone.PLAIN if figure else Tone.QUIET)

        return Column(name, title, cell, value, rank=3, is_figure=True, width=9)

    figures = (traffic("bytes_in_per_s", "BYTES IN", 0), traffic("bytes_out_per_s", "BYTES OUT", 1))
    bytes_of = board.topic_bytes

    def policy(topic: TopicSnapshot) -> Cell:
        return DENIED if topic.configs is None and hides(topic) else Cell(_policy(topic), Tone.QUIET)

    return (
        Column("topic", "TOPIC", _name, lambda t: t.name, is_wide=True, width=16),
        figure("partition_count", "PARTITIONS", lambda t: len(t.partitions), count),
        figure("replication_factor", "RF", factor_of, rank=1),
        Column("min_isr", "MIN ISR", lambda t: known(min_isr(t), str(min_isr(t)), is_hidden=hides(t)), min_isr, rank=4,
               is_figure=True),
        tally("under_replicated", "UNDER-REPL", 0, lambda counts: counts.under_replicated),
        tally("offline", "OFFLINE", 1, lambda counts: counts.leaderless),
        tally("under_min_isr", "UNDER MIN", 2, lambda counts: counts.below_min),
        tally("not_preferred", "NOT PREF", 3, lambda counts: counts.led_elsewhere.total(), Tone.WARN),
        tally("moving", "MOVING", 4, lambda counts: counts.moving, Tone.ACCENT),
        figure("in_per_s", "IN/S", board.rates.topic_in, short_count, rank=2, width=6),
        *(figures if board.reports_figures else ()),
        Column("bytes", "ON DISK", lambda t: known(bytes_of(t), size(bytes_of(t)), is_hidden=board.hides_log_dirs),
               bytes_of, rank=3, is_figure=True, width=9),
        Column("cleanup_policy", "CLEANUP", policy, _policy, rank=6, width=7),
    )  # fmt: skip


def factor_of(topic: TopicSnapshot) -> int:
    """Return the replicas of partition 0, without those that a reassignment adds."""
    return len(topic.partitions[0].assignment.origin_replicas) if topic.partitions else 0


def _name(topic: TopicSnapshot) -> Cell:
    if topic.is_marked_for_deletion:
        return Cell(f"{topic.name} (being deleted)", Tone.WARN)
    return Cell(topic.name, Tone.QUIET if topic.is_internal else Tone.STRONG)


def _policy(topic: TopicSnapshot) -> str:
    """Return the override; without one the brokers' default holds, which is not shown here."""
    return NOTHING if topic.configs is None else topic.configs.get("cleanup.policy", "default")


def _summary(view: View, width: int) -> list[Line]:
    board = view.board
    if not board.has_metadata:
        return []
    total = board.total
    margin = f"min ISR: {count(total.below_min)} below, {count(total.at_min)} at it, {count(total.one_above)} one above"
    words = (
        (f"{counted(len(board.topics), 'topic')}, {counted(total.partitions, 'partition')}", Tone.PLAIN),
        (f"{count(total.under_replicated)} under-replicated", _bad(total.under_replicated)),
        (f"{count(total.leaderless)} offline", _bad(total.leaderless)),
        (margin, _bad(total.below_min)),
    )
    return wrapped(map(line, words), width)


def _bad(number: int) -> Tone:
    return Tone.BAD if number else Tone.QUIET


def _is_trouble(view: View, topic: Any) -> bool:
    figures = view.board.topic_figures(topic)
    return bool(figures.under_replicated or figures.leaderless or figures.below_min or topic.is_marked_for_deletion)


PAGE = Page(
    "topics",
    _rows,
    _summary,
    lambda view, topic: Location("partitions", topic=topic.name),
    _is_trouble,
    lambda view, items: ["topics", "describe", *(topic.name for topic in items)],
)
