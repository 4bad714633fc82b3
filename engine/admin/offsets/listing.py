"""Where partitions begin and end, and the offset at a time: asks all leaders at once (ListOffsets).

A partition that cannot be looked up is an ``Unknown`` and delays no other. While a leader is moving, this asks again.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from engine.admin.cluster.asking import FAILURES, PATIENCE_S, ask_all
from engine.admin.cluster.errors import NotFound, Refused, Unknown
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.cluster.wire import WireCluster
from engine.admin.offsets.selection import OffsetTime, PartitionSelection
from engine.common.collection import collector_paused
from engine.common.errors import ErrorCode, error_code
from engine.common.model import (
    CONSUMER_REPLICA_ID,
    EARLIEST_TIMESTAMP,
    LATEST_TIMESTAMP,
    NO_LEADER,
    IsolationLevel,
    TopicPartition,
)
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartition,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopic,
)

Offsets = dict[TopicPartition, int | Unknown]

_PARTITIONS_PER_REQUEST = 2_000

NO_LEADER_TEXT = "no leader"
"""The message for facts that are unknown because the partition has no leader."""


@dataclass(frozen=True, slots=True)
class PartitionOffset:
    """What was found in one partition. ``leader`` -1 is none.

    ``offset`` is None if there is no record at or after the time, and with an ``error``. ``timestamp`` is that of
    the record, None if the offset was not found by time.
    """

    topic: str
    partition: int
    leader: int
    offset: int | None = None
    timestamp: int | None = None
    leader_epoch: int | None = None
    error: str | None = None


# -- offsets alone


async def end_offsets(
    wire: WireCluster,
    partitions: Iterable[TopicPartition],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    patience_s: float = PATIENCE_S,
) -> Offsets:
    """Return the offset after the last record that a reader may see; an Unknown if no leader returns it."""
    return await offsets_at(
        wire, dict.fromkeys(partitions, LATEST_TIMESTAMP), isolation=isolation, patience_s=patience_s
    )


async def start_offsets(wire: WireCluster, partitions: Iterable[TopicPartition]) -> Offsets:
    """Return the first offset that still exists."""
    return await offsets_at(wire, dict.fromkeys(partitions, EARLIEST_TIMESTAMP))


async def offsets_at(
    wire: WireCluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    patience_s: float = PATIENCE_S,
) -> Offsets:
    """Return the first offset at or after a time (milliseconds, or EARLIEST_TIMESTAMP, LATEST_TIMESTAMP) per partition.

    -1 means that no record is that late. A partition that does not exist or has no leader is an Unknown. If its leader
    is moving, this asks again for ``patience_s``; if there is no leader, only once.
    """
    answers = await _found_at(wire, wanted, isolation=isolation, patience_s=patience_s)
    return {name: answer if isinstance(answer, Unknown) else answer[1].offset for name, answer in answers.items()}


# -- all that leaders report


async def look_up(
    wire: WireCluster,
    leaders: Mapping[TopicPartition, int],
    time: OffsetTime,
    *,
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
) -> list[PartitionOffset]:
    """Return the offset of each partition at ``time``, in the given order; ask ``leaders`` first.

    Raises:
        Refused: a broker is too old to know such a time.
    """
    wanted = dict.fromkeys(leaders, time.timestamp)
    answers = await _found_at(wire, wanted, isolation=isolation, leaders=leaders, version_min=time.version_min)
    for offset in answers.values():
        if isinstance(offset, Unknown) and offset.code is ErrorCode.UNSUPPORTED_VERSION:
            message = f"{offset} does not know the time {time.name!r}"
            raise Refused(offset.code, message, hint="ask for earliest, latest or milliseconds")
    return [_partition_offset(name, leaders[name], answers[name]) for name in leaders]


def _partition_offset(name: TopicPartition, leader: int, result: tuple[int, FoundOffset] | Unknown) -> PartitionOffset:
    if isinstance(result, Unknown):
        return PartitionOffset(*name, leader, error=str(result) if result.code is None else result.code.name)
    leader, answer = result
    return PartitionOffset(
        *name,
        leader,
        None if answer.offset < 0 else answer.offset,
        None if answer.timestamp < 0 else answer.timestamp,
        None if answer.leader_epoch < 0 else answer.leader_epoch,
    )


async def _found_at(
    wire: WireCluster,
    wanted: Mapping[TopicPartition, int],
    *,
    isolation: IsolationLevel,
    leaders: Mapping[TopicPartition, int] | None = None,
    version_min: int = 0,
    patience_s: float = PATIENCE_S,
) -> dict[TopicPartition, tuple[int, FoundOffset] | Unknown]:
    """Return who answered what. UNSUPPORTED_VERSION if a leader does not know such a new version of the API."""

    async def ask(
        leader_id: int, partitions: list[TopicPartition]
    ) -> Mapping[TopicPartition, tuple[int, FoundOffset] | Unknown]:
        if version_min and await wire.version(await wire.client_of(leader_id), ApiKey.LIST_OFFSETS) < version_min:
            return dict.fromkeys(partitions, Unknown(f"broker {leader_id}", ErrorCode.UNSUPPORTED_VERSION))
        answers = await ask_offsets(wire, leader_id, {p: wanted[p] for p in partitions}, isolation)
        return {
            name: Unknown.of_code(answer) if isinstance(answer, ErrorCode) else (leader_id, answer)
            for name, answer in answers.items()
        }

    return await ask_all(
        wire,
        wanted,
        lambda partitions: leaders_of(wire, partitions),
        ask,
        batch=_PARTITIONS_PER_REQUEST,
        known={name: leader for name, leader in (leaders or {}).items() if leader != NO_LEADER},
        patience_s=patience_s,
    )


# -- who leads


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


async def choose_partitions(wire: WireCluster, selection: PartitionSelection) -> dict[TopicPartition, int]:
    """Return the chosen partitions with their leaders (-1: none).

    Raises:
        NotFound: a rule matches nothing, or there is nothing to match.
    """
    response = await wire.metadata(selection.topics)
    leaders = {
        TopicPartition(topic.name or "", p.partition_index): p.leader_id
        for topic in response.topics
        for p in topic.partitions
    }
    known: dict[str, list[int]] = {}
    for name in leaders:
        known.setdefault(name.topic, []).append(name.partition)
    chosen = selection.choose(known)
    if unmatched := selection.unmatched(chosen):
        message = f"no partition matches {', '.join(dict.fromkeys(map(str, unmatched)))}"
        hint = Phrase("see topics and partitions with: ", Operation.DESCRIBE_TOPICS)
        raise NotFound(message, hint=hint, topics=list(dict.fromkeys(rule.topics.text for rule in unmatched)))
    return {name: leaders[name] for name in chosen}


# Offsets of partitions by position or time, asked of one broker (ListOffsets). Many at once: ``listing``.


@dataclass(frozen=True, slots=True)
class FoundOffset:
    """A broker's answer for one partition; -1 is none; a timestamp of -1 may also mean "not looked up by time"."""

    offset: int
    timestamp: int
    leader_epoch: int


async def ask_offsets(
    wire: WireCluster,
    broker_id: int,
    wanted: Mapping[TopicPartition, int],
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED,
    *,
    replica_id: int = CONSUMER_REPLICA_ID,
) -> dict[TopicPartition, FoundOffset | ErrorCode]:
    """Ask one broker for the offsets of times (milliseconds, or Kafka's negative numbers); return offsets or errors.

    Only a partition's leader returns them to a consumer, up to the high watermark. With DEBUGGING_REPLICA_ID every
    broker returns those of its own replica, up to the log's end.
    """
    topics: dict[str, list[ListOffsetsPartition]] = {}
    with collector_paused():
        for (topic, partition), timestamp in wanted.items():
            topics.setdefault(topic, []).append(ListOffsetsPartition(partition_index=partition, timestamp=timestamp))
    request = ListOffsetsRequest(
        replica_id=replica_id,
        isolation_level=isolation,
        topics=[ListOffsetsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    response: ListOffsetsResponse = await wire.call_broker(broker_id, request)
    offsets: dict[TopicPartition, FoundOffset | ErrorCode] = {}
    with collector_paused():
        for answered in response.topics:
            for answer in answered.partitions:
                code = error_code(answer.error_code)
                # Version 0 returns segment offsets instead, newest first.
                offset = answer.old_style_offsets[0] if answer.old_style_offsets else answer.offset
                looked_up = FoundOffset(offset, answer.timestamp, answer.leader_epoch)
                offsets[TopicPartition(answered.name, answer.partition_index)] = (
                    looked_up if code is ErrorCode.NONE else code
                )
    return offsets
