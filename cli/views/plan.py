"""A plan for a person: a sentence, the score card, the brokers as heat before and after, the largest moves."""

from __future__ import annotations

from collections.abc import Sequence

from cli.output.report import Column, Drawing, Kind, Report, Section, Table, Tone
from cli.output.values import human_bytes, human_duration
from cli.views.brokers_load import without_empty
from engine.common.quantities import counted
from plans.made import MadePlan
from plans.options import Strategy
from plans.plan_file import plan_document
from plans.score import Score
from plans.telling import PlannedMove, Units, card_rows, largest, moves_of, summary

LARGEST_MAX = 10
UNITS = Units(human_bytes, lambda seconds: human_duration(round(seconds * 1000)))

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
    Column("replicas_before", Kind.NUMBER, title="Replicas", drawing=Drawing.HEAT, scale="replicas"),
    Column("replicas_after", Kind.NUMBER, title="after", drawing=Drawing.HEAT, scale="replicas"),
    Column("leaders_before", Kind.NUMBER, title="Leads", drawing=Drawing.HEAT, scale="leaders"),
    Column("leaders_after", Kind.NUMBER, title="after", drawing=Drawing.HEAT, scale="leaders"),
    Column("bytes_before", Kind.BYTES, title="Size", drawing=Drawing.HEAT, scale="bytes"),
    Column("bytes_after", Kind.BYTES, title="after", drawing=Drawing.HEAT, scale="bytes"),
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
    moves = moves_of(plan, {one.name: one.size for one in made.problem.partitions})
    entries = (*_ENTRIES, _DISKS) if plan.klamm.strategy is Strategy.LOG_DIRS else _ENTRIES
    rows = [_row(one, entries) for one in moves]
    told = largest(moves, LARGEST_MAX)
    sections = [Section(text=sentences(made, explained))]
    if rows:
        sections += [_card(score), _heat(score), *_dirs(score)]
    if told:
        title = "The largest moves" if len(told) < sum(one.copies > 0 for one in moves) else "The moves"
        sections.append(
            Section(title, without_empty(Table(entries, [_row(one, entries) for one in told]), keeps=_NAME))
        )
    rest = [_row(one, _UNCOPIED) for one in moves if not one.copies]
    if rest:
        some = f"{LARGEST_MAX} of " if len(rest) > LARGEST_MAX else ""
        title = f"Changed without a copy: {some}{counted(len(rest), 'partition')}"
        sections.append(Section(title, Table(_UNCOPIED, rest[:LARGEST_MAX])))
    return Report(plan_document(plan), Table(entries, rows), sections)


def sentences(made: MadePlan, explained: Sequence[str]) -> list[str]:
    """Return the plan in a sentence, and the explanations that were asked for."""
    score, plan = made.plan.klamm.score, made.plan
    return [summary(score, plan.klamm.options.minimise, len(plan.partitions), UNITS), *explained]


def _row(one: PlannedMove, columns: Sequence[Column]) -> tuple[object, ...]:
    return (*one.name, one.before, one.after, one.copies, one.bytes, one.disks)[: len(columns)]


def _card(score: Score) -> Section:
    return Section("Brokers that remain, before and after", Table(_CARD, card_rows(score)))


def _heat(score: Score) -> Section:
    rows = [tuple(getattr(one, column.name) for column in _BROKERS) for one in score.brokers]
    return Section("What each broker carries", without_empty(Table(_BROKERS, rows), keeps=("broker",)))


def _dirs(score: Score) -> list[Section]:
    if not score.log_dirs:
        return []
    rows = [tuple(getattr(one, column.name) for column in _LOG_DIRS) for one in score.log_dirs]
    return [Section("What each log dir carries", without_empty(Table(_LOG_DIRS, rows), keeps=("broker", "log_dir")))]
