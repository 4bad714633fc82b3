"""How topics look: a line per topic above a table of its partitions; rows for scripts; the outcome of changes."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Nothing, Report, Section, Table, Tone, cells_of
from cli.views.kafka import topics as kafka
from cli.views.kafka.topics import changes_text
from engine.admin.topics.changes import TopicChange, TopicOutcome
from engine.admin.topics.describing import TopicDescription
from engine.admin.topics.values import TopicName
from engine.common.model import NO_LEADER
from engine.common.quantities import counted


def _leader_tone(leader: object, replicas: object) -> Tone | None:
    """Bad if nobody leads; worth a look if it is not the preferred replica."""
    if leader == NO_LEADER:
        return Tone.BAD
    return Tone.WARNING if isinstance(replicas, tuple) and replicas and replicas[0] != leader else None


def _partition_columns(first: int) -> tuple[Column, ...]:
    """Return the columns of a partition; the ``first`` of them are at that place in a row."""
    return (
        Column("partition", Kind.NUMBER),
        Column("leader", Kind.NUMBER, row_tone=lambda row: _leader_tone(row[first + 1], row[first + 2])),
        Column("replicas", Kind.LIST),
        Column("isr", Kind.LIST, title="ISR"),
        Column("osr", Kind.LIST, title="OSR", tone=Tone.WARNING),
    )


_REASSIGNMENT = (
    Column("adding_replicas", Kind.LIST, title="Adding"),
    Column("removing_replicas", Kind.LIST, title="Removing"),
)
_EPOCHS = (
    Column("leader_epoch", Kind.NUMBER, title="Epoch", is_dispensable=True),
    Column("zk_version", Kind.NUMBER, title="zkVersion", is_dispensable=True),
)
_ALL = (Column("topic"), *_partition_columns(1), *_REASSIGNMENT, *_EPOCHS)
_KEPT = ("topic", *(column.name for column in _partition_columns(1)))
"""People see these columns even if they are empty: usually no reassignment is under way."""


_SHAPE = (
    Column("partition_count", Kind.NUMBER, title="Partitions", in_plain=False),
    Column("replication_factor", Kind.NUMBER, title="Factor", in_plain=False),
    Column("size_bytes", Kind.BYTES, title="Size", in_plain=False),
)


def topic_list_report(topics: Sequence[TopicName]) -> Report:
    """Names alone in a pipe; on a terminal with their shapes, and what is special about them."""
    columns = (
        Column("topic"),
        Column("internal", Kind.FLAG, in_plain=False),
        Column("marked_for_deletion", Kind.FLAG, in_plain=False),
        *_SHAPE,
    )
    noted = [(topic.topic, *cells_of(_SHAPE, topic), _note(topic)) for topic in topics]
    shown = Table((Column("topic"), *_SHAPE, Column("note", tone=lambda _: Tone.QUIET)), noted)
    return Report(
        topics,
        Table.of(columns, topics),
        (Section(body=shown.without_empty(keeps=("topic",))),),
        notes=() if topics else (Nothing("no topics"),),
        as_kafka=lambda: kafka.names_text([topic.topic for topic in topics]),
    )


def topics_report(topics: Sequence[TopicDescription], *, is_filtered: bool) -> Report:
    """A section per topic, or with a filter one table of the matches."""
    rows = [(topic.topic, *cells_of(_ALL[1:], partition)) for topic in topics for partition in topic.partitions]
    table = Table(_ALL, rows)
    sections = (
        (Section(body=table.without_empty(keeps=_KEPT)),) if is_filtered else tuple(_section(topic) for topic in topics)
    )
    notes = ("no partition matches" if is_filtered else Nothing("no topics"),) if not topics else ()
    return Report(topics, table, sections, notes)


def topics_as_kafka(
    topics: Sequence[TopicDescription],
    settings: Mapping[str, kafka.Settings],
    *,
    is_filtered: bool,
    with_partitions: bool,
) -> Report:
    text = kafka.described_text(topics, settings, is_filtered=is_filtered, with_partitions=with_partitions)
    return Report(topics, Table((), ()), as_kafka=lambda: text)


def topic_overrides_report(topics: Sequence[TopicDescription]) -> Report:
    """One row per topic with its settings."""
    columns = (
        Column("topic"),
        Column("partition_count", Kind.NUMBER, title="Partitions"),
        Column("replication_factor", Kind.NUMBER, title="Factor"),
        Column("configs"),
    )
    return Report(topics, Table.of(columns, topics), notes=() if topics else ("no topic has settings of its own",))


def _section(topic: TopicDescription) -> Section:
    facts = [counted(topic.partition_count, "partition"), f"factor {topic.replication_factor}"]
    if topic.topic_id is not None:
        facts.append(f"id {topic.topic_id}")
    if topic.internal:
        facts.append("internal")
    if topic.marked_for_deletion:
        facts.append("MARKED FOR DELETION")
    lines = [" · ".join(facts)]
    if topic.configs is None:
        lines.append("  settings unknown")
    else:
        lines += [f"  {key}={value}" for key, value in topic.configs.items()]
    table = Table.of((*_partition_columns(0), *_REASSIGNMENT, *_EPOCHS), topic.partitions)
    return Section(topic.topic, table.without_empty(keeps=_KEPT), lines)


def _note(topic: TopicName) -> str | None:
    if topic.marked_for_deletion:
        return "marked for deletion"
    return "internal" if topic.internal else None


def _tone(value: object) -> Tone | None:
    return Tone.WARNING if value is TopicOutcome.MARKED_FOR_DELETION else Tone.GOOD


_COLUMNS = (
    Column("topic"),
    Column("result", tone=_tone),
    Column("topic_id", title="Id"),
    Column("partition_count", Kind.NUMBER, title="Partitions"),
    Column("replication_factor", Kind.NUMBER, title="Factor"),
)


def topic_changes_report(changes: Sequence[TopicChange], *, exit_code: ExitCode = ExitCode.DONE) -> Report:
    """One row per topic."""
    table = Table.of(_COLUMNS, changes)
    shown = table.without_empty(keeps=("topic", "result"))
    return Report(changes, table, (Section(body=shown),), exit_code=exit_code, as_kafka=lambda: changes_text(changes))
