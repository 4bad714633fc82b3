"""A plan for people: a sentence, the score card, the brokers as heat before and after, the largest moves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from cli.output.report import Column, Kind, Report, Section, Table, Tone
from cli.output.values import human_duration
from cli.views.brokers_load import BEFORE_AND_AFTER
from engine.admin.reassignment.plan_runs import moves_between
from engine.admin.reassignment.waves import WaveCaps, waves_of
from engine.common.quantities import counted, size_text
from plans.options import Strategy
from plans.plan_file import MadePlan, PlanFile, plan_document, sizes_of
from plans.score import Score
from plans.summary import PlannedMove, Units, card_rows, largest, moves_of, summary

LARGEST_MAX = 10
UNITS = Units(size_text, lambda seconds: human_duration(round(seconds * 1000)))

_ENTRIES = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("replicas", Kind.LIST),
    Column("target", Kind.LIST),
    Column("moves", Kind.NUMBER),
    Column("bytes", Kind.BYTES),
)
_DISKS = Column("log_dirs", Kind.LIST, title="Log dirs")
_UNCOPIED = _ENTRIES[:4]
_NAME = ("topic", "partition")


def _violation_tone(row: Sequence[object]) -> Tone | None:
    return Tone.BAD if row[0] == "rack violations" and row[2] else None


_CARD = (
    Column("measure", title=""),
    Column("before", Kind.NUMBER),
    Column("after", Kind.NUMBER, row_tone=_violation_tone),
)
_BROKERS = (
    Column("broker", Kind.NUMBER),
    Column("rack", is_dispensable=True),
    *BEFORE_AND_AFTER,
    Column("bytes_in", Kind.BYTES, title="In", is_dispensable=True),
    Column("bytes_sent", Kind.BYTES, title="Sends", is_dispensable=True),
)
_LOG_DIRS = (
    Column("broker", Kind.NUMBER),
    Column("log_dir"),
    Column("replicas_before", Kind.NUMBER, title="Replicas"),
    Column("replicas_after", Kind.NUMBER, title="after"),
    Column("bytes_before", Kind.BYTES, title="Size"),
    Column("bytes_after", Kind.BYTES, title="after"),
    Column("bytes_in", Kind.BYTES, title="In", is_dispensable=True),
)


def plan_report(made: MadePlan, explained: Sequence[str]) -> Report:
    """The plan file's document for machines, a row per partition in plain, all of it for a person."""
    plan, score = made.plan, made.plan.klamm.score
    moves = moves_of(plan, {partition.name: partition.size for partition in made.problem.partitions})
    entries = (*_ENTRIES, _DISKS) if plan.klamm.strategy is Strategy.LOG_DIRS else _ENTRIES
    rows = [_row(move, entries) for move in moves]
    shown = largest(moves, LARGEST_MAX)
    sections = [Section(text=sentences(made, explained))]
    if rows:
        sections += [_card(score), _heat(score), *_dirs(score)]
    if shown:
        title = "The largest moves" if len(shown) < sum(move.copies > 0 for move in moves) else "The moves"
        sections.append(
            Section(title, Table(entries, [_row(move, entries) for move in shown]).without_empty(keeps=_NAME))
        )
    rest = [_row(move, _UNCOPIED) for move in moves if not move.copies]
    if rest:
        shown_of = f"{LARGEST_MAX} of " if len(rest) > LARGEST_MAX else ""
        title = f"Changed without a copy: {shown_of}{counted(len(rest), 'partition')}"
        sections.append(Section(title, Table(_UNCOPIED, rest[:LARGEST_MAX])))
    return Report(plan_document(plan), Table(entries, rows), sections, is_file=True)


def sentences(made: MadePlan, explained: Sequence[str]) -> list[str]:
    """Return the plan in a sentence, and the explanations that were asked for."""
    score, plan = made.plan.klamm.score, made.plan
    return [summary(score, plan.klamm.options.minimise, len(plan.partitions), UNITS), *explained]


def _row(move: PlannedMove, columns: Sequence[Column]) -> tuple[object, ...]:
    return (*move.name, move.before, move.after, move.copies, move.bytes, move.disks)[: len(columns)]


def _card(score: Score) -> Section:
    return Section("Brokers that remain, before and after", Table(_CARD, card_rows(score)))


def _heat(score: Score) -> Section:
    return Section("What each broker carries", Table.of(_BROKERS, score.brokers).without_empty(keeps=("broker",)))


def _dirs(score: Score) -> list[Section]:
    if not score.log_dirs:
        return []
    table = Table.of(_LOG_DIRS, score.log_dirs)
    return [Section("What each log dir carries", table.without_empty(keeps=("broker", "log_dir")))]


@dataclass(frozen=True, slots=True)
class ShownMove:
    """One partition of a plan. ``bytes`` is what it copies, ``wave`` the one in which ``plan apply`` moves it."""

    topic: str
    partition: int
    before: tuple[int, ...]
    after: tuple[int, ...]
    bytes: int | None
    leader_before: int
    leader_after: int
    wave: int
    log_dirs: tuple[str, ...]


_SHOWN = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("from", Kind.LIST),
    Column("to", Kind.LIST),
    Column("bytes", Kind.BYTES, title="Copies"),
    Column("leader_from", Kind.NUMBER),
    Column("leader_to", Kind.NUMBER),
    Column("wave", Kind.NUMBER),
    Column("log_dirs", Kind.LIST),
)


def shown_moves(plan: PlanFile) -> list[ShownMove]:
    """Return the partitions of a plan as its file has them, with the waves of ``plan apply`` without options."""
    moves = moves_between(plan.klamm.rollback, plan.partitions)
    waves = {move.name: number for number, wave in enumerate(waves_of(moves, WaveCaps()), 1) for move in wave}
    return [
        ShownMove(
            *move.name, move.before, move.after, move.bytes, move.before[0], move.after[0], waves[move.name], move.disks
        )
        for move in moves_of(plan, sizes_of(plan))
    ]


def show_report(plan: PlanFile) -> Report:
    """What the file says, without a cluster: a sentence, the score card, and a row per partition."""
    moves, score = shown_moves(plan), plan.klamm.score
    rows = [
        (m.topic, m.partition, m.before, m.after, m.bytes, m.leader_before, m.leader_after, m.wave, m.log_dirs)
        for m in moves
    ]
    sentence = summary(score, plan.klamm.options.minimise, len(rows), UNITS)
    table = Table(_SHOWN, rows)
    sections = [Section(text=(f"{plan.klamm.strategy.value} of {counted(len(rows), 'partition')}: {sentence}",))]
    if rows:
        sections += [_card(score), _heat(score), *_dirs(score), Section("Partitions", table.without_empty(keeps=_NAME))]
    return Report(table.records(), table, sections)


PARTITIONS_MAX = 500
"""A comment lists this many partitions, because code hosts limit its length."""


def partitions_markdown(plan: PlanFile) -> list[str]:
    """Return a folded table of all partitions for a code host; nothing for an empty plan."""
    moves = shown_moves(plan)
    if not moves:
        return []
    lines = ["", f"<details><summary>{counted(len(moves), 'partition')}</summary>", ""]
    lines += ["| partition | from | to | copies | leader | wave |", "|---|---|---|---:|---|---:|"]
    for move in moves[:PARTITIONS_MAX]:
        copies = "?" if move.bytes is None else size_text(move.bytes)
        is_led_on = move.leader_before == move.leader_after
        leader = str(move.leader_before) if is_led_on else f"{move.leader_before} → {move.leader_after}"
        places = "".join(f"<br>{path}" for path in move.log_dirs)
        cells = (
            f"{move.topic}-{move.partition}",
            _ids(move.before),
            f"{_ids(move.after)}{places}",
            copies,
            leader,
            move.wave,
        )
        lines.append("".join(f"| {markdown_cell(str(cell))} " for cell in cells) + "|")
    more = len(moves) - PARTITIONS_MAX
    return [*lines, *([f"| … and {more} more | | | | | |"] if more > 0 else []), "", "</details>"]


def markdown_cell(text: str) -> str:
    return text.replace("|", "\\|").replace("\n", " ")


def _ids(brokers: Sequence[int]) -> str:
    return ", ".join(map(str, brokers))
