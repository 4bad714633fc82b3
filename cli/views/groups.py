"""How groups look: a section per group on a terminal, rows with kafka-consumer-groups' columns for scripts."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from functools import partial

from cli.exit_codes import ExitCode
from cli.output.report import Column, KafkaText, Kind, Nothing, Report, Section, Table, Tone, cells_of
from cli.views.kafka import groups as kafka
from engine.admin.groups.deleting import DeletedGroup, DeletedOffset, DeletionResult
from engine.admin.groups.describing import GroupsListed
from engine.admin.groups.description import DescribedGroup, DescribedMember, PartitionProgress
from engine.admin.groups.reset_plan import PartitionReset, ResetResult
from engine.admin.groups.values import GroupState, GroupType
from engine.common.listing import first_few
from engine.common.model import TopicPartition
from engine.common.quantities import counted

SECTIONS_MAX = 20
"""More groups than these are one table with a column for the group, as Kafka's tool has it."""

NOTES_MAX = 10
"""If there are more groups, their states are only counted. At most this many errors of a group are shown."""

_UUID = re.compile(r"-([0-9a-f]{8})(-[0-9a-f]{4}){3}-[0-9a-f]{12}$")


def _state_tone(value: object) -> Tone | None:
    if value is None:
        return Tone.BAD
    if isinstance(value, GroupState) and value.is_rebalancing:
        return Tone.WARNING
    return Tone.QUIET if value is GroupState.EMPTY else None


def _lag_tone(value: object) -> Tone | None:
    return Tone.BAD if isinstance(value, int) and value < 0 else None


_GROUP = Column("group")
_TYPE = Column("type")
_STATE = Column("state", tone=_state_tone)
_ERROR = Column("error", tone=Tone.WARNING, falls_below=True)

_PROGRESS = (
    Column("topic"),
    Column("partition", Kind.NUMBER, title="Part."),
    Column("current_offset", Kind.NUMBER, title="Current"),
    Column("log_end_offset", Kind.NUMBER, title="End"),
    Column("lag", Kind.NUMBER, tone=_lag_tone),
)
_OFFSETS = (
    _GROUP,
    *_PROGRESS,
    Column("consumer_id"),
    Column("group_instance_id"),
    Column("host"),
    Column("client_id"),
    _ERROR,
)
_SHOWN_OFFSETS = (*_PROGRESS, Column("consumer_id", title="Consumer"), Column("host"))
"""For a person: who reads a partition, in short, as ``--members`` has the rest; errors are above the table."""

_MEMBERS = (
    _GROUP,
    Column("consumer_id", title="Consumer"),
    Column("group_instance_id", title="Instance"),
    Column("host"),
    Column("client_id", title="Client"),
    Column("partition_count", Kind.NUMBER, title="Partitions"),
    Column("assignment", Kind.LIST, falls_below=True),
)
_STATES = (
    _GROUP,
    _TYPE,
    Column("coordinator"),
    Column("assignment_strategy", title="Strategy"),
    _STATE,
    Column("member_count", Kind.NUMBER, title="Members"),
    _ERROR,
)
_UNREADABLE = "what its members own cannot be read; their protocol is {}"
_KEPT = {column.name for column in (*_OFFSETS, *_MEMBERS, *_STATES)} - {
    "consumer_id", "group_instance_id", "host", "client_id", "error",
}  # fmt: skip
"""People see these columns even if they are empty."""


def group_list_report(listed: GroupsListed, *, with_state: bool, with_type: bool, exit_code: ExitCode) -> Report:
    """Names alone in a pipe, with what was asked for; all of it on a terminal."""
    columns = (
        _GROUP,
        replace(_TYPE, in_plain=with_type),
        replace(_STATE, in_plain=with_state),
        Column("protocol_type", in_plain=False, title="Protocol"),
        Column("coordinator", Kind.NUMBER, in_plain=False),
    )
    rows = [(g.group, g.type, g.state, g.protocol_type, _coordinator(g.coordinator)) for g in listed.groups]
    table = Table(columns, rows)
    notes = () if rows or exit_code is not ExitCode.DONE else (Nothing("no groups"),)
    if listed.others:
        named = first_few(f"{group.group} ({group.protocol_type})" for group in listed.others)
        notes = (*notes, f"groups of other protocols are not listed: {named}")
    return Report(
        table.records(),
        table,
        (Section(body=table.with_only(("group", "type", "state"))),),
        notes,
        exit_code,
        as_kafka=lambda: kafka.listed_text(listed.groups, with_state=with_state, with_type=with_type),
    )


def offsets_report(groups: Sequence[DescribedGroup], *, exit_code: ExitCode) -> Report:
    """Partitions of each group, and how far they have been read."""
    data = [_summary(group) | {"error": group.error, "partitions": group.partitions} for group in groups]
    rows = [row for group in groups for row in _rows(group)]
    if len(groups) > SECTIONS_MAX:
        shown = [
            (group.group, *_shown_row(partition), partition.error) for group in groups for partition in group.partitions
        ]
        sections: tuple[Section, ...] = _one_table((_GROUP, *_SHOWN_OFFSETS, _ERROR), shown, groups)
    else:
        sections = tuple(_section(group, _SHOWN_OFFSETS, map(_shown_row, group.partitions)) for group in groups)
    return Report(
        data,
        Table(_OFFSETS, rows),
        sections,
        _notes(groups, exit_code),
        exit_code,
        as_kafka=lambda: kafka.offsets_text(groups),
    )


def _rows(group: DescribedGroup) -> list[tuple[object, ...]]:
    """A row per partition, and one per member that has none; a group without either still gets a row."""
    nothing = (None,) * len(_PROGRESS)
    # A consumer of ZooKeeper's time owns a partition with each of its threads: its id, and a number.
    readers = {
        name
        for partition in group.partitions
        for name in (partition.consumer_id, (partition.consumer_id or "").rpartition("-")[0])
    }
    rows: list[tuple[object, ...]] = [
        (group.group, *cells_of(_OFFSETS[1:], partition)) for partition in group.partitions
    ]
    for member in group.members:
        if member.consumer_id not in readers:
            error = _UNREADABLE.format(group.protocol_type or "unknown") if member.assignment is None else None
            rows.append((group.group, *nothing, *_member_row(member)[:4], error))
    return rows or [(group.group, *nothing, None, None, None, None, group.error)]


def members_report(groups: Sequence[DescribedGroup], *, is_verbose: bool, exit_code: ExitCode) -> Report:
    """Members of each group; a person sees their partitions when that is wanted."""
    data = [_summary(group) | {"error": group.error, "members": group.members} for group in groups]
    rows = [(group.group, *_member_row(member)) for group in groups for member in group.members]
    shown = _MEMBERS[1:] if is_verbose else _MEMBERS[1:-1]
    if len(groups) > SECTIONS_MAX:
        cells = [row[: len(shown) + 1] for row in rows]
        sections: tuple[Section, ...] = _one_table((_GROUP, *shown), cells, groups)
    else:
        sections = tuple(
            _section(group, shown, (_member_row(member)[: len(shown)] for member in group.members)) for group in groups
        )
    return Report(
        data,
        Table(_MEMBERS, rows),
        sections,
        _notes(groups, exit_code),
        exit_code,
        as_kafka=lambda: kafka.members_text(groups, is_verbose=is_verbose),
    )


def states_report(groups: Sequence[DescribedGroup], *, exit_code: ExitCode) -> Report:
    """One row per group."""
    data = [_summary(group) | {"error": group.error} for group in groups]
    rows = [
        (
            group.group,
            group.type,
            None if group.coordinator is None else str(group.coordinator),
            group.assignment_strategy or None,
            group.state,
            _member_count(group),
            group.error,
        )
        for group in groups
    ]
    shown = Table(_STATES, rows).without_empty(keeps=_KEPT)
    return Report(
        data,
        Table(_STATES, rows),
        (Section(body=shown),),
        _notes(groups, exit_code),
        exit_code,
        as_kafka=lambda: kafka.states_text(groups),
    )


def _one_table(
    columns: tuple[Column, ...], rows: Sequence[Sequence[object]], groups: Sequence[DescribedGroup]
) -> tuple[Section, ...]:
    errors = [f"{group.group}: {group.error}" for group in groups if group.error is not None]
    return (Section(body=Table(columns, rows).without_empty(keeps=_KEPT), text=errors),)


def _section(group: DescribedGroup, columns: tuple[Column, ...], rows: Iterable[Sequence[object]]) -> Section:
    facts = [group.state.value if group.state is not None else "state not known"]
    if group.type is not GroupType.CLASSIC:
        facts.append(group.type.value)
    if group.assignment_strategy:
        facts.append(group.assignment_strategy)
    if group.state is not None:
        facts.append(counted(len(group.members), "member"))
    if group.coordinator is not None:
        facts.append(f"coordinator {group.coordinator}")
    if group.partitions:
        facts.append(_lag_fact(group.partitions))
    lines = [" · ".join(facts)]
    lines += [] if group.error is None else [group.error]
    if any(member.assignment is None for member in group.members):
        lines.append(_UNREADABLE.format(group.protocol_type or "unknown"))
    lines += _errors(group.partitions)
    body = Table(columns, list(rows)).without_empty(keeps=_KEPT)
    return Section(group.group, body if body.rows else None, lines)


def _errors(partitions: Sequence[PartitionProgress]) -> list[str]:
    lines = [f"{partition.name}: {partition.error}" for partition in partitions if partition.error is not None]
    more = len(lines) - NOTES_MAX
    return lines if more <= 0 else [*lines[:NOTES_MAX], f"… and {more} more"]


def _shown_row(partition: PartitionProgress) -> tuple[object, ...]:
    consumer = None if partition.consumer_id is None else _UUID.sub(r"-\1", partition.consumer_id)
    return (*cells_of(_PROGRESS, partition), consumer, partition.host)


def _lag_fact(partitions: Sequence[PartitionProgress]) -> str:
    known = [partition.lag for partition in partitions if partition.lag is not None]
    unknown = len(partitions) - len(known)
    text = f"lag {sum(max(0, lag) for lag in known)}" if known else "lag not known"
    return f"{text}, not known of {counted(unknown, 'partition')}" if unknown and known else text


def _summary(group: DescribedGroup) -> dict[str, object]:
    return {
        "group": group.group,
        "type": group.type,
        "state": group.state,
        "protocol_type": group.protocol_type or None,
        "assignment_strategy": group.assignment_strategy or None,
        "coordinator": group.coordinator,
        "member_count": _member_count(group),
    }


def _member_row(member: DescribedMember) -> tuple[object, ...]:
    return (
        member.consumer_id,
        member.group_instance_id,
        member.host or None,
        member.client_id or None,
        member.partition_count,
        None if member.assignment is None else tuple(str(topic) for topic in member.assignment),
    )


def _notes(groups: Sequence[DescribedGroup], exit_code: ExitCode) -> tuple[str, ...]:
    """Return what Kafka's tool says beside its rows."""
    if not groups:
        return (Nothing("no groups"),) if exit_code is ExitCode.DONE else ()
    empty = [group.group for group in groups if group.state is GroupState.EMPTY]
    moving = [group.group for group in groups if group.state is not None and group.state.is_rebalancing]
    if len(empty) + len(moving) > NOTES_MAX:
        notes = [_note(empty, "no active members"), _note(moving, "a rebalance going on")]
        return tuple(text for text in notes if text)
    notes = [f"consumer group '{name}' has no active members" for name in empty]
    return (*notes, *(f"consumer group '{name}' is rebalancing" for name in moving))


def _note(names: Sequence[str], trouble: str) -> str:
    if not names:
        return ""
    return f"consumer group '{names[0]}' has {trouble}" if len(names) == 1 else f"{len(names)} groups have {trouble}"


def _member_count(group: DescribedGroup) -> int | None:
    return None if group.state is None else len(group.members)


def _coordinator(broker_id: int) -> int | None:
    return None if broker_id < 0 else broker_id


_TONES = {
    ResetResult.RESET: Tone.GOOD,
    ResetResult.FAILED: Tone.BAD,
    DeletionResult.DELETED: Tone.GOOD,
    DeletionResult.FAILED: Tone.BAD,
    DeletionResult.NOTHING_COMMITTED: Tone.QUIET,
}


_PARTITION = (Column("group"), Column("topic"), Column("partition", Kind.NUMBER))
_OUTCOME = (Column("result", tone=_TONES), Column("error", falls_below=True))


def reset_report(
    rows: Sequence[PartitionReset], *, exit_code: ExitCode, is_implicit: bool = False, exported: str | None = None
) -> Report:
    """One row per partition: the offset as it was, and the new one.

    ``is_implicit``: the dry run was not asked for, which Kafka's tool warns of. ``exported`` is what it prints instead.
    """
    columns = (
        *_PARTITION,
        Column("current_offset", Kind.NUMBER, title="Current"),
        Column("new_offset", Kind.NUMBER, title="New"),
        *_OUTCOME,
    )
    is_dry = any(row.result is ResetResult.WOULD_BE_RESET for row in rows)
    hint = ("nothing was changed: add --execute to do it",) if is_dry else ()
    notes = hint if rows else _nothing("no offsets to reset", exit_code)
    as_kafka = partial(kafka.reset_text, rows, exported, is_implicit=is_implicit)
    return _report(rows, columns, notes, exit_code, as_kafka)


def planned_lines(rows: Sequence[PartitionReset]) -> list[str]:
    """Return what would be set, a line per partition."""
    return [
        f"{row.group}: {row.name}: {'-' if row.current_offset is None else row.current_offset} → {row.new_offset}"
        for row in rows
    ]


def deleted_groups_report(rows: Sequence[DeletedGroup], *, exit_code: ExitCode) -> Report:
    columns = (Column("group"), Column("type"), *_OUTCOME)
    notes = () if rows else _nothing("no groups", exit_code)
    return _report(rows, columns, notes, exit_code, lambda: kafka.deleted_text(rows))


def deleted_offsets_report(
    rows: Sequence[DeletedOffset],
    *,
    exit_code: ExitCode,
    groups: Sequence[str],
    topics: Sequence[str],
    absent: Sequence[TopicPartition] = (),
) -> Report:
    """One row per partition, with what was committed.

    ``topics`` are as the user named them. Kafka's text has a row for each partition that is ``absent``, too.
    """
    columns = (*_PARTITION, Column("offset", Kind.NUMBER), *_OUTCOME)
    return _report(rows, columns, (), exit_code, lambda: kafka.deleted_offsets_text(groups, topics, rows, absent))


def _nothing(text: str, exit_code: ExitCode) -> tuple[str, ...]:
    """Say that there was nothing to do, unless it was said why."""
    return (text,) if exit_code is ExitCode.DONE else ()


def _report(
    rows: Sequence[object],
    columns: tuple[Column, ...],
    notes: tuple[str, ...],
    exit_code: ExitCode,
    as_kafka: Callable[[], KafkaText | None],
) -> Report:
    """The column of errors is shown to a person only if there is one."""
    table = Table.of(columns, rows)
    return Report(rows, table, (Section(body=table.unless_empty("error")),), notes, exit_code, as_kafka=as_kafka)
