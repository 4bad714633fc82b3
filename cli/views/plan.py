"""A plan for a person: a sentence, the score card, the brokers as heat before and after, the largest moves."""

from __future__ import annotations

from collections.abc import Sequence

from cli.output.report import Column, Drawing, Kind, Report, Section, Table, Tone
from cli.output.values import human_bytes, human_duration
from cli.views.brokers_load import without_empty
from plans.made import MadePlan
from plans.options import Minimise
from plans.plan_file import plan_document
from plans.score import Score

LARGEST_MAX = 10

_ENTRIES = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("replicas", Kind.LIST),
    Column("target", Kind.LIST),
    Column("moves", Kind.NUMBER),
    Column("bytes", Kind.BYTES),
)
_LARGEST = (Column("topic"), *_ENTRIES[1:])


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
    before = {entry.name: entry for entry in plan.klamm.rollback}
    sizes = {one.name: one.size for one in made.problem.partitions}
    rows = []
    for entry in plan.partitions:
        old = before[entry.name]
        placed = set(zip(old.replicas, old.log_dirs, strict=True))
        moves = len(set(zip(entry.replicas, entry.log_dirs, strict=True)) - placed)
        size = sizes.get(entry.name)
        rows.append((*entry.name, old.replicas, entry.replicas, moves, None if size is None else size * moves))
    copied = sorted((row for row in rows if row[4]), key=lambda row: (-(row[5] or 0), row[0], row[1]))
    largest = copied[:LARGEST_MAX]
    sections = [Section(text=[summary(score, plan.klamm.options.minimise, len(rows)), *explained])]
    if rows:
        sections += [_card(score), _heat(score), *_dirs(score)]
    if largest:
        title = "The largest moves" if len(largest) < len(copied) else "The moves"
        sections.append(Section(title, without_empty(Table(_LARGEST, largest), keeps=("topic", "partition"))))
    return Report(plan_document(plan), Table(_ENTRIES, rows), sections)


def summary(score: Score, minimise: Minimise | None, partition_count: int) -> str:
    """Return the plan in a sentence: what it takes, and what is proven."""
    if not partition_count:
        return "Nothing has to be done: no plan is needed."
    copied = "" if score.bytes is None else f", {human_bytes(score.bytes)}"
    took = "" if score.makespan_s is None else f", at least {human_duration(round(score.makespan_s * 1000))}"
    text = f"{_count(score.moves, 'move')}{copied}, {_count(score.leader_changes, 'leader change')}{took}"
    if score.remaining_moves:
        return f"{text}: as much as the cap allows, {_count(score.remaining_moves, 'move')} are left."
    bound = score.lower_bound
    is_bytes = minimise is Minimise.BYTES and bound.bytes is not None and score.bytes is not None
    least = human_bytes(bound.bytes or 0) if is_bytes else f"{bound.moves:,}"
    achieved = score.bytes if is_bytes else score.moves
    if achieved == (bound.bytes if is_bytes else bound.moves):
        also = "" if score.is_optimal else "; there may be one with fewer leader changes"
        return f"{text}: no plan can do with fewer{' bytes' if is_bytes else ' moves'}{also}."
    return f"{text}: at least {least}{'' if is_bytes else ' moves'} are needed."


def _count(count: int, what: str) -> str:
    return f"{count:,} {what}{'' if count == 1 else 's'}"


def _card(score: Score) -> Section:
    old, new = score.before, score.after
    rows: list[tuple[object, ...]] = [
        ("replicas, fullest less emptiest", old.replica_range, new.replica_range),
        ("leaders, fullest less emptiest", old.leader_range, new.leader_range),
        ("bytes, deviation from the mean", _percent(old.bytes_cv), _percent(new.bytes_cv)),
        ("rack violations", old.rack_violations, new.rack_violations),
        ("replicas above their topic's share", old.topic_excess, new.topic_excess),
    ]
    return Section("Brokers that remain, before and after", Table(_CARD, rows))


def _percent(value: float | None) -> str | None:
    return None if value is None else f"{100 * value:.1f} %"


def _heat(score: Score) -> Section:
    rows = [tuple(getattr(one, column.name) for column in _BROKERS) for one in score.brokers]
    return Section("What each broker carries", without_empty(Table(_BROKERS, rows), keeps=("broker",)))


def _dirs(score: Score) -> list[Section]:
    if not score.log_dirs:
        return []
    rows = [tuple(getattr(one, column.name) for column in _LOG_DIRS) for one in score.log_dirs]
    return [Section("What each log dir carries", without_empty(Table(_LOG_DIRS, rows), keeps=("broker", "log_dir")))]
