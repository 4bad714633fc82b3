"""Deletes the oldest records of partitions, on all replicas (DeleteRecords): what it would delete, and the outcome.

It checks everything before it sends anything, because a cluster carries out the request partition by partition, and a
deletion is final. If the caller wants to delete up to the high watermark, the check fixes its value, so that only what
was shown is deleted.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, OutcomeUnknown, Refused, Unknown, Unreachable
from engine.admin.cluster.json_files import check_version, parse_document
from engine.admin.cluster.remedies import Do, Operation, Phrase
from engine.admin.cluster.wire import RETRY_PAUSE_S
from engine.admin.configs.by_wire import read_effective
from engine.admin.log_dirs.describing import read_log_dirs
from engine.admin.offsets.listing import Offsets, end_offsets, start_offsets
from engine.admin.topics.selection import topic_not_found
from engine.common.errors import ErrorCode, RemoteProtocolError, error_code
from engine.common.listing import repeated
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.topic_names import INTERNAL_TOPICS
from engine.kafka.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsResponse,
    DeleteRecordsTopic,
)

HIGH_WATERMARK = -1
_EXAMPLE = 'write {"version":1,"partitions":[{"topic":"orders","partition":0,"offset":100}]}'
_MARGIN_MS = 2000
"""The brokers give up sooner than klamm, so that they can say which partitions they wait for."""

_TRIES = 3
_MOVED = (ErrorCode.NOT_LEADER_OR_FOLLOWER.name, ErrorCode.LEADER_NOT_AVAILABLE.name)


class DeletionResult(StrEnum):
    """The outcome for one partition."""

    DELETED = "deleted"
    NOTHING_TO_DO = "nothing_to_do"
    WOULD_BE_DELETED = "would_be_deleted"
    UNDER_WAY = "under_way"
    FAILED = "failed"


@dataclass(frozen=True, slots=True)
class RecordsDeletion:
    """One partition.

    Attributes:
        start_offset, end_offset: of the log before; the end is the high watermark.
        before_offset: records before it will be, or were, deleted.
        records: how many offsets that is; a compacted log has fewer records.
        estimated_bytes: of one replica, at the log's average; None if its size is unknown.
        low_watermark: the lowest log start of all live replicas afterwards.
    """

    topic: str
    partition: int
    leader: int
    start_offset: int
    end_offset: int
    before_offset: int
    records: int
    estimated_bytes: int | None
    result: DeletionResult
    low_watermark: int | None = None
    error: str | None = None

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


def parse_offset_file(text: str, where: str) -> dict[TopicPartition, int]:
    """Return the offsets of Kafka's ``{"version": 1, "partitions": [{"topic", "partition", "offset"}, …]}``.

    Raises:
        BadRequest: it is not of that form, lists nothing, or lists a partition twice.
    """
    document = parse_document(text, where, _EXAMPLE)
    entries = document.get("partitions")
    if not isinstance(entries, list):
        raise BadRequest("missing partitions field", where=where, hint=_EXAMPLE)
    check_version(document, where)
    wishes = [_wish(entry, where) for entry in entries]
    twice = repeated(name for name, _ in wishes)
    if twice:
        message = f"offset json file contains duplicate topic partitions: {', '.join(map(str, twice))}"
        raise BadRequest(message, where=where)
    if not wishes:
        raise BadRequest("the file lists no partition", where=where, hint=_EXAMPLE)
    return dict(wishes)


def _wish(entry: object, where: str) -> tuple[TopicPartition, int]:
    fields: dict[str, Any] = entry if isinstance(entry, dict) else {}
    topic, partition, offset = fields.get("topic"), fields.get("partition"), fields.get("offset")
    numbers = all(isinstance(number, int) and not isinstance(number, bool) for number in (partition, offset))
    if not isinstance(topic, str) or not numbers or partition < 0 or offset < HIGH_WATERMARK:  # type: ignore[operator]
        message = f"not a partition with an offset: {json.dumps(entry)}"
        raise BadRequest(message, where=where, hint=_EXAMPLE)
    return TopicPartition(topic, partition), offset  # type: ignore[arg-type, return-value]


async def preview_deletion(cluster: Cluster, wanted: Mapping[TopicPartition, int]) -> list[RecordsDeletion]:
    """Return what deleting the records before these offsets would do; nothing is changed.

    Raises:
        NotFound: a topic or partition does not exist.
        BadRequest: an offset is beyond the high watermark, or the topic's records cannot be deleted.
        Refused: a partition has no leader, or its leader refuses to return its offsets.
        Unreachable: a leader does not answer.
    """
    internal = sorted({name.topic for name in wanted if name.topic in INTERNAL_TOPICS})
    if internal:
        raise BadRequest(f"records of Kafka's own topics are not deleted: {', '.join(internal)}")
    leaders = await _leaders(cluster, sorted(wanted))
    await _refuse_compacted(cluster, sorted({name.topic for name in wanted}))
    wire = await cluster.wire()
    starts = _known_offsets(await start_offsets(wire, leaders), "first")
    ends = _known_offsets(await end_offsets(wire, leaders), "end")
    beyond = [name for name in leaders if wanted[name] > ends[name]]
    if beyond:
        listed = ", ".join(f"{name} ends at {ends[name]}, not at {wanted[name]}" for name in beyond)
        hint = Phrase("-1 means the end; see it with: ", Operation.LIST_OFFSETS)
        raise BadRequest(f"offset out of range: {listed}", hint=hint)
    sizes = await _sizes(cluster, leaders)
    previews = []
    for name, leader in leaders.items():
        start, end = starts[name], ends[name]
        before = max(end if wanted[name] == HIGH_WATERMARK else wanted[name], start)
        gone = before - start
        size = sizes.get(name)
        estimate = None if size is None else (round(size * gone / (end - start)) if gone else 0)
        result = DeletionResult.WOULD_BE_DELETED if gone else DeletionResult.NOTHING_TO_DO
        previews.append(RecordsDeletion(*name, leader, start, end, before, gone, estimate, result))
    return previews


def refused(preview: RecordsDeletion, refusal: Refused) -> RecordsDeletion:
    """Return what becomes of a deletion that the brokers would refuse."""
    return replace(preview, result=DeletionResult.FAILED, error=refusal.code.name)


async def delete_records(
    cluster: Cluster, previews: Sequence[RecordsDeletion], *, waits: bool = True
) -> list[RecordsDeletion]:
    """Delete what was previewed; return the outcome for each.

    With ``waits``, wait until all live replicas have done so, at most for the operation's time; else the leader's start
    is enough.
    """
    wanted = [preview for preview in previews if preview.result is DeletionResult.WOULD_BE_DELETED]
    if not wanted:
        return list(previews)
    goes_on = "the brokers still delete what was requested; see what is left with: "
    cluster.accepted(Phrase(goes_on, Operation.LIST_EARLIEST_OFFSETS))
    done: dict[TopicPartition, RecordsDeletion] = {}
    for attempt in range(_TRIES):
        for result in await _delete_once(cluster, wanted, waits=waits):
            done[result.name] = result
        moved = [deletion for deletion in wanted if done[deletion.name].error in _MOVED]
        if not moved or attempt == _TRIES - 1:
            break
        # The leader has changed since. The offsets are fixed, so a repeated request deletes nothing more.
        await asyncio.sleep(RETRY_PAUSE_S)
        leaders = await _known_leaders(cluster, [deletion.name for deletion in moved])
        wanted = [
            replace(deletion, leader=leaders[deletion.name])
            for deletion in moved
            if leaders.get(deletion.name, NO_LEADER) >= 0
        ]
    return [done.get(preview.name, preview) for preview in previews]


async def _delete_once(cluster: Cluster, wanted: Sequence[RecordsDeletion], *, waits: bool) -> list[RecordsDeletion]:
    by_leader: dict[int, list[RecordsDeletion]] = {}
    for deletion in wanted:
        by_leader.setdefault(deletion.leader, []).append(deletion)
    async with asyncio.TaskGroup() as group:
        tasks = [
            group.create_task(_delete_at(cluster, leader, deletions, waits=waits), name=f"delete-records-at-{leader}")
            for leader, deletions in by_leader.items()
        ]
    return [result for task in tasks for result in task.result()]


async def _delete_at(
    cluster: Cluster, leader: int, wanted: Sequence[RecordsDeletion], *, waits: bool
) -> list[RecordsDeletion]:
    topics: dict[str, list[DeleteRecordsPartition]] = {}
    for deletion in wanted:
        entry = DeleteRecordsPartition(partition_index=deletion.partition, offset=deletion.before_offset)
        topics.setdefault(deletion.topic, []).append(entry)
    wait_ms = max(int(cluster.timeout_s * 1000) - _MARGIN_MS, 500) if waits else 0
    request = DeleteRecordsRequest(
        topics=[DeleteRecordsTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
        timeout_ms=wait_ms,
    )
    try:
        wire = await cluster.wire()
        limit_ms = int(cluster.timeout_s * 1000)
        response: DeleteRecordsResponse = await wire.call_broker(leader, request, timeout_ms=limit_ms)
    except OutcomeUnknown as error:
        return [replace(deletion, result=DeletionResult.UNDER_WAY, error=str(error)) for deletion in wanted]
    except (AdminError, RemoteProtocolError) as error:
        return [replace(deletion, result=DeletionResult.FAILED, error=str(error)) for deletion in wanted]
    answers = {
        TopicPartition(topic.name, p.partition_index): (error_code(p.error_code), p.low_watermark)
        for topic in response.topics
        for p in topic.partitions
    }
    return [
        _outcome(deletion, *answers.get(deletion.name, (ErrorCode.UNKNOWN_SERVER_ERROR, -1))) for deletion in wanted
    ]


def _outcome(deletion: RecordsDeletion, code: ErrorCode, low_watermark: int) -> RecordsDeletion:
    """If the time runs out, the leader has begun, and some replica has not followed yet."""
    mark = None if low_watermark < 0 else low_watermark
    if code is ErrorCode.NONE:
        return replace(deletion, result=DeletionResult.DELETED, low_watermark=mark)
    result = DeletionResult.UNDER_WAY if code is ErrorCode.REQUEST_TIMED_OUT else DeletionResult.FAILED
    return replace(deletion, result=result, low_watermark=mark, error=code.name)


async def _leaders(cluster: Cluster, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    known = await _known_leaders(cluster, names)
    unknown_topics = sorted({name.topic for name in names} - {name.topic for name in known})
    if unknown_topics:
        raise topic_not_found(unknown_topics)
    unknown = [name for name in names if name not in known]
    if unknown:
        listed = ", ".join(map(str, unknown))
        raise NotFound(
            f"no such partition: {listed}",
            hint=Phrase("see them with: ", Do(Operation.DESCRIBE_TOPIC, unknown[0].topic)),
        )
    leaderless = [name for name in names if known[name] == NO_LEADER]
    if leaderless:
        raise Refused(ErrorCode.LEADER_NOT_AVAILABLE, "it has no leader", where=", ".join(map(str, leaderless)))
    return {name: known[name] for name in names}


async def _known_leaders(cluster: Cluster, names: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
    """Return the leaders (-1: none) of all partitions of the topics; a topic that does not exist has none."""
    response = await (await cluster.wire()).metadata(sorted({name.topic for name in names}))
    return {
        TopicPartition(topic.name or "", p.partition_index): p.leader_id
        for topic in response.topics
        for p in topic.partitions
        if topic.error_code != ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    }


async def _refuse_compacted(cluster: Cluster, topics: Sequence[str]) -> None:
    # Leaders refuse it as well; this check refuses the whole request, with a hint.
    policies = await read_effective(await cluster.wire(), topics, "cleanup.policy", cluster.complain)
    compacted = sorted(topic for topic, policy in policies.items() if policy is not None and "delete" not in policy)
    if compacted:
        hint = Phrase("add the policy first: ", Do(Operation.ADD_TOPIC_CONFIG, "cleanup.policy=[compact,delete]"))
        raise BadRequest(f"only compacted, so records are not deleted by offset: {', '.join(compacted)}", hint=hint)


def _known_offsets(offsets: Offsets, which: str) -> dict[TopicPartition, int]:
    known = {}
    for name, offset in offsets.items():
        if isinstance(offset, Unknown):
            message = f"its {which} offset is not known: {offset}"
            hint = Phrase("see who leads it: ", Operation.DESCRIBE_TOPICS)
            raise Unreachable(message, where=str(name), hint=hint)
        known[name] = offset
    return known


async def _sizes(cluster: Cluster, leaders: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
    """Return the sizes of the leaders' logs, as far as they report them."""
    dirs = await read_log_dirs(cluster, sorted(set(leaders.values())), list(leaders))
    return {
        name: replica.size_bytes
        for log_dir in dirs
        for replica in log_dir.replicas
        if leaders.get(name := TopicPartition(replica.topic, replica.partition)) == log_dir.broker
        and not replica.is_future
    }
