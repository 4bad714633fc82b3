"""Where partitions begin and end, and what offset stands at a time: asked of all leaders at once (ListOffsets)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from engine.admin.groups.asking import FAILURES, PATIENCE_S, ask_all
from engine.admin.groups.values import Unknown
from engine.admin.offsets import EARLIEST, LATEST, list_offsets
from engine.admin.wire import WireCluster
from engine.common.errors import ErrorCode
from engine.common.model import NO_LEADER, IsolationLevel, TopicPartition

Offsets = dict[TopicPartition, int | Unknown]

_PARTITIONS_PER_REQUEST = 2_000

NO_LEADER_TEXT = "no leader"
"""The message of what is not known because nobody leads the partition."""


async def end_offsets(
    wire: WireCluster,
    partitions: Iterable[TopicPartition],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    patience_s: float = PATIENCE_S,
) -> Offsets:
    """Return the offset after the last record that a reader may see; an Unknown where no leader tells it."""
    return await offsets_at(wire, dict.fromkeys(partitions, LATEST), isolation=isolation, patience_s=patience_s)


async def start_offsets(
    wire: WireCluster, partitions: Iterable[TopicPartition], *, patience_s: float = PATIENCE_S
) -> Offsets:
    """Return the first offset that is still there."""
    return await offsets_at(wire, dict.fromkeys(partitions, EARLIEST), patience_s=patience_s)


async def offsets_at(
    wire: WireCluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    patience_s: float = PATIENCE_S,
) -> Offsets:
    """Return the first offset at or after a time (milliseconds, or EARLIEST, LATEST) per partition.

    -1 means that no record is as late. A partition that does not exist or has no leader is an Unknown; one whose leader
    is just moving is asked for again for ``patience_s``, but one without any leader only once.
    """

    async def ask(leader_id: int, partitions: list[TopicPartition]) -> Mapping[TopicPartition, int | Unknown]:
        offsets, errors = await list_offsets(wire, leader_id, {p: wanted[p] for p in partitions}, isolation)
        return offsets | {partition: Unknown.of_code(code) for partition, code in errors.items()}

    return await ask_all(
        wire,
        wanted,
        lambda partitions: leaders_of(wire, partitions),
        ask,
        batch=_PARTITIONS_PER_REQUEST,
        patience_s=patience_s,
    )


async def leaders_of(wire: WireCluster, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, int | Unknown]:
    """Ask once who leads each partition."""
    wanted = list(partitions)
    try:
        metadata = await wire.metadata(sorted({partition.topic for partition in wanted}))
    except FAILURES as error:
        return dict.fromkeys(wanted, Unknown.of_error(error))
    leaders: dict[TopicPartition, int | Unknown] = {}
    refused: dict[str, Unknown] = {}
    for topic in metadata.topics:
        name = topic.name or ""
        if topic.error_code not in (ErrorCode.NONE, ErrorCode.LEADER_NOT_AVAILABLE):
            refused[name] = Unknown.of_code(topic.error_code)
        for partition in topic.partitions:
            has_leader = partition.leader_id != NO_LEADER
            leaders[TopicPartition(name, partition.partition_index)] = (
                partition.leader_id if has_leader else Unknown(NO_LEADER_TEXT, ErrorCode.LEADER_NOT_AVAILABLE)
            )
    absent = Unknown.of_code(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return {partition: leaders.get(partition, refused.get(partition.topic, absent)) for partition in wanted}
