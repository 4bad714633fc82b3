"""What kafka-consumer-groups prints."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

from cli.output.report import KafkaText
from cli.views.kafka.hash_order import in_hash_order
from engine.admin.groups.deleting import DeletedGroup, DeletedOffset, DeletionResult
from engine.admin.groups.description import DescribedGroup, DescribedMember, PartitionProgress
from engine.admin.groups.reset_plan import PartitionReset
from engine.admin.groups.values import GroupState, ListedGroup
from engine.common.model import TopicPartition
from engine.kafka.formats.consumer_protocol import CONSUMER_PROTOCOL_TYPE

_MISSING = "-"
_DRY_RUN_IMPLIED = (
    "WARN: No action will be performed as the --execute option is missing.In a future major release, the default "
    "behavior of this command will be to prompt the user before executing the reset rather than doing a dry run. "
    "You should add the --dry-run option explicitly if you are scripting this command and want to keep the current "
    "default behavior without prompting.\n"
)
_NO_SUCH_PARTITION = (
    "Error: :org.apache.kafka.common.errors.UnknownTopicOrPartitionException: This server does not host this "
    "topic-partition."
)
_WIDTH, _INSTANCE_WIDTH, _NAME_PAD = 15, 17, 10


def listed_text(groups: Sequence[ListedGroup], *, with_state: bool, with_type: bool) -> KafkaText:
    """``--list``: the ids; in columns with the type and the state that were asked for."""
    ordered = in_hash_order(groups, lambda listed: listed.group)
    if not (with_state or with_type):
        return KafkaText("".join(f"{listed.group}\n" for listed in ordered))
    width = max([_WIDTH, *(len(listed.group) for listed in ordered)]) + _NAME_PAD
    rows = [("GROUP", "TYPE", "STATE")]
    rows += [(listed.group, listed.type.value.capitalize(), str(listed.state or "Unknown")) for listed in ordered]
    lines = []
    for group, kind, state in rows:
        wanted = ((kind, with_type), (state, with_state))
        shown = [f"{cell:<20}" for cell, is_wanted in wanted if is_wanted]
        lines.append(" ".join([f"{group:<{width}}", *shown]) + "\n")
    return KafkaText("".join(lines))


def offsets_text(groups: Sequence[DescribedGroup]) -> KafkaText | None:
    """``--describe``: a table for each group, with the partitions of the member that has most of them first."""
    return _of_groups(groups, lambda group: _offsets_table(group) if group.partitions else "")


def members_text(groups: Sequence[DescribedGroup], *, is_verbose: bool) -> KafkaText | None:
    """``--describe --members``: a table for each group; its head comes even without members."""
    return _of_groups(groups, lambda group: _members_table(group, is_verbose=is_verbose))


def states_text(groups: Sequence[DescribedGroup]) -> KafkaText | None:
    """``--describe --state``: a table of one row for each group."""
    return _of_groups(groups, _state_table)


def _of_groups(groups: Sequence[DescribedGroup], table: Callable[[DescribedGroup], str]) -> KafkaText | None:
    """Return None if one is no consumer group: Kafka's tool ends with a stack trace, and klamm shows what it knows."""
    if any(group.protocol_type not in ("", CONSUMER_PROTOCOL_TYPE) for group in groups):
        return None
    known = [group for group in groups if group.state is not None]
    return KafkaText("".join(map(table, known)), "".join(map(_said, known)))


def _said(group: DescribedGroup) -> str:
    if group.state is GroupState.EMPTY:
        return f"\nConsumer group '{group.group}' has no active members.\n"
    if group.state is not None and group.state.is_rebalancing:
        return f"\nWarning: Consumer group '{group.group}' is rebalancing.\n"
    return ""


def _offsets_table(group: DescribedGroup) -> str:
    rows = [
        (
            group.group,
            partition.topic,
            str(partition.partition),
            _or_missing(partition.current_offset),
            _or_missing(partition.log_end_offset),
            _or_missing(partition.lag),
            _or_missing(partition.consumer_id),
            _or_missing(partition.host),
            _or_missing(partition.client_id),
        )
        for partition in _by_consumer(group.partitions)
    ]
    rows.insert(
        0,
        ("GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST", "CLIENT-ID"),
    )
    wide = [max(_WIDTH, *(len(row[index]) for row in rows)) for index in (0, 1, 6, 7)]
    widths = (wide[0], wide[1], 10, 15, 15, 15, wide[2], wide[3], 0)
    return "".join("\n" + _padded(row, widths) for row in rows) + "\n"


def _by_consumer(partitions: Sequence[PartitionProgress]) -> list[PartitionProgress]:
    """Return the rows as the tool has them: members with the most partitions first, what nobody owns last."""
    owned: dict[str, list[PartitionProgress]] = {}
    nobody: list[PartitionProgress] = []
    for partition in partitions:
        (nobody if partition.consumer_id is None else owned.setdefault(partition.consumer_id, [])).append(partition)
    members = sorted(owned.values(), key=len, reverse=True)
    return [
        partition for rows in (*members, nobody) for partition in in_hash_order(sorted(rows, key=_partition), _name)
    ]


def _partition(partition: PartitionProgress) -> int:
    return partition.partition


def _name(partition: PartitionProgress) -> TopicPartition:
    return partition.name


def _members_table(group: DescribedGroup, *, is_verbose: bool) -> str:
    members = group.members
    with_instance = any(member.group_instance_id for member in members)
    rows: list[tuple[str, ...]] = [
        ("GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID", "HOST", "CLIENT-ID", "#PARTITIONS", "ASSIGNMENT")
    ]
    rows += [_member_cells(group.group, member) for member in members]
    wide = [max(_WIDTH, *(len(row[index]) for row in rows)) for index in range(5)]
    wide[2] = max(_INSTANCE_WIDTH, *(len(row[2]) for row in rows))
    lines = []
    for row in rows:
        cells = [f"{cell:<{width}} " for cell, width in zip(row[:5], wide, strict=True)]
        if not with_instance:
            del cells[2]
        lines.append("".join(cells) + f"{row[5]:<15} " + (row[6] if is_verbose else ""))
    return "\n" + "".join(f"{line}\n" for line in lines)


def _member_cells(group: str, member: DescribedMember) -> tuple[str, ...]:
    assigned = [f"({','.join(sorted(map(str, topic.partitions)))})" for topic in member.assignment or ()]
    return (
        group,
        member.consumer_id,
        member.group_instance_id or "",
        member.host,
        member.client_id,
        str(member.partition_count or 0),
        ", ".join(sorted(assigned)) or _MISSING,
    )


def _state_table(group: DescribedGroup) -> str:
    at = group.coordinator
    coordinator = "-" if at is None else f"{at.host}:{at.port}  ({at.id})"
    widths = (max(25, len(coordinator)), 25, 20, 15, 0)
    head = ("GROUP", "COORDINATOR (ID)", "ASSIGNMENT-STRATEGY", "STATE", "#MEMBERS")
    row = (group.group, coordinator, group.assignment_strategy, str(group.state), str(len(group.members)))
    return "".join("\n" + _padded(cells, widths) for cells in (head, row)) + "\n"


def reset_text(rows: Sequence[PartitionReset], exported: str | None = None, *, is_implicit: bool = False) -> KafkaText:
    """``--reset-offsets``: the new offsets, whether they were set or not; with ``--export`` as lines of CSV.

    ``is_implicit``: neither ``--execute`` nor ``--dry-run`` was given.
    """
    warning = _DRY_RUN_IMPLIED if is_implicit else ""
    if exported is not None:
        return KafkaText(f"{exported}\n", warning)
    groups: dict[str, list[PartitionReset]] = {}
    for row in rows:
        groups.setdefault(row.group, []).append(row)
    cells = [("GROUP", "TOPIC", "PARTITION", "NEW-OFFSET")] if rows else []
    for name in in_hash_order(groups, lambda name: name):
        of_group = sorted(groups[name], key=lambda row: row.partition)
        cells += [
            (name, row.topic, str(row.partition), str(row.new_offset))
            for row in in_hash_order(of_group, lambda row: row.name)
        ]
    return KafkaText("".join("\n" + _padded(row, (30, 30, 10, 15)) for row in cells) + "\n", warning)


def deleted_text(rows: Sequence[DeletedGroup]) -> KafkaText | None:
    """``--delete``; None if not all were deleted, which klamm says in its own words."""
    if not rows or any(row.result is not DeletionResult.DELETED for row in rows):
        return None
    names = ", ".join(f"'{row.group}'" for row in in_hash_order(rows, lambda row: row.group))
    return KafkaText(f"Deletion of requested consumer groups ({names}) was successful.\n")


def deleted_offsets_text(
    groups: Sequence[str], topics: Iterable[str], rows: Sequence[DeletedOffset], absent: Sequence[TopicPartition]
) -> KafkaText | None:
    """``--delete-offsets``; None if a deletion failed, or of several groups, which Kafka's tool does not take."""
    done = (DeletionResult.DELETED, DeletionResult.NOTHING_COMMITTED)
    if len(groups) != 1 or any(row.result not in done for row in rows):
        return None
    status = dict.fromkeys((row.name for row in rows), "Successful") | dict.fromkeys(absent, _NO_SUCH_PARTITION)
    cells = [("TOPIC", "PARTITION", "STATUS")]
    for name in sorted(status, key=lambda name: f"{name.topic}{name.partition}"):
        cells.append((name.topic, "Not Provided" if name.partition < 0 else str(name.partition), status[name]))
    table = "".join("\n" + _padded(row, (30, 15, 15)) for row in cells)
    head = f"Request succeed for deleting offsets with topic {', '.join(topics)} group {groups[0]}"
    if any(name.partition >= 0 for name in absent):
        head = "\nError: Encounter some partition level error, see the follow-up details:"
    return KafkaText(f"{head}\n{table}\n")


def _padded(cells: Sequence[str], widths: Sequence[int]) -> str:
    return " ".join(f"{cell:<{width}}" if width else cell for cell, width in zip(cells, widths, strict=True))


def _or_missing(value: object) -> str:
    return _MISSING if value is None else str(value)
