"""Topics as brokers tell them: one Metadata answer, overrides by DescribeConfigs, reassignments by the controller.

The wire does not tell zk versions, and a topic marked for deletion is not in it any more.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from engine.admin.cluster.asking import ONLY_ANSWER_SHARE, beside_limit_s
from engine.admin.cluster.errors import Refused, Unreachable
from engine.admin.cluster.observer import Complain, Observer, tell_nobody
from engine.admin.cluster.wire import WireCluster, refuse
from engine.admin.configs.by_wire import read_effective, read_overrides
from engine.admin.topics.reader import DEFAULT_MIN_ISR, TopicName, topic_name
from engine.common.errors import ErrorCode
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from engine.protocol.apis.metadata import MetadataResponsePartition, MetadataResponseTopic

_GONE = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.INVALID_TOPIC_EXCEPTION)


class WireTopicReader:
    """Reads topics from brokers."""

    def __init__(
        self, wire: WireCluster, *, observe: Observer = tell_nobody, on_unknown: Complain | None = None
    ) -> None:
        """With ``on_unknown`` settings that nobody tells soon are told as unknown; otherwise reading them raises."""
        self._wire = wire
        self._observe = observe
        self._on_unknown = on_unknown

    async def names(self) -> list[TopicName]:
        response = await self._wire.metadata(None)
        names = sorted(topic.name for topic in response.topics if topic.name is not None)
        return [topic_name(name, False) for name in names]

    async def topics(self, names: Sequence[str]) -> list[TopicSnapshot]:
        if not names:
            return []
        response = await self._wire.metadata(names)
        answers = [topic for topic in response.topics if topic.error_code not in _GONE]
        for topic in answers:
            if topic.error_code != ErrorCode.LEADER_NOT_AVAILABLE:
                refuse(topic.error_code, None, f"topic {topic.name}")
        there = sorted(topic.name for topic in answers if topic.name is not None)
        overrides = await read_overrides(self._wire, there, self._on_unknown)
        reassignments = await self._reassignments() if there else {}
        answers.sort(key=lambda topic: topic.name or "")
        return [topic_from_metadata(topic, overrides.get(topic.name or ""), reassignments) for topic in answers]

    async def _reassignments(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return what is under way; a controller that has just died is no reason to tell nothing about topics."""
        try:
            return await read_reassignments(self._wire, limit_s=beside_limit_s(self._wire), is_patient=False)
        except Unreachable as error:
            tell = self._on_unknown or self._observe
            tell(f"reassignments are not known: {error}{f': {error.where}' if error.where else ''}")
            return {}

    async def live_brokers(self) -> frozenset[int]:
        return frozenset(await self._wire.nodes())

    async def min_isr(self, topics: Sequence[TopicSnapshot]) -> Mapping[str, int]:
        names = [topic.name for topic in topics if topic.configs is not None]
        effective = await read_effective(self._wire, names, "min.insync.replicas", self._on_unknown)
        return {name: int(value or DEFAULT_MIN_ISR) for name, value in effective.items()}


async def read_reassignments(
    wire: WireCluster, *, limit_s: float | None = None, is_patient: bool = True
) -> dict[TopicPartition, ReplicaAssignment]:
    """Return the partitions that are being reassigned; none where the cluster is too old to tell.

    Raises:
        Unreachable: no controller tells within ``limit_s`` (None: most of the operation's time), or (not
            ``is_patient``) it is gone and the next one not elected yet.
    """
    request = ListPartitionReassignmentsRequest(topics=None)
    limit_s = wire.operation_s * ONLY_ANSWER_SHARE if limit_s is None else limit_s
    try:
        response: ListPartitionReassignmentsResponse = await wire.ask_controller(
            request, lambda r: [r.error_code], limit_s=limit_s, is_patient=is_patient
        )
    except Refused as error:
        if error.code is ErrorCode.UNSUPPORTED_VERSION:
            return {}
        raise
    refuse(response.error_code, response.error_message, "controller")
    return {
        TopicPartition(topic.name, p.partition_index): ReplicaAssignment(
            tuple(p.replicas), tuple(p.adding_replicas), tuple(p.removing_replicas)
        )
        for topic in response.topics
        for p in topic.partitions
    }


def topic_from_metadata(
    answer: MetadataResponseTopic,
    overrides: Mapping[str, str] | None,
    reassignments: Mapping[TopicPartition, ReplicaAssignment],
) -> TopicSnapshot:
    """Return a topic as Metadata and the other answers tell it."""
    name = answer.name or ""
    partitions = sorted(answer.partitions, key=lambda partition: partition.partition_index)
    return TopicSnapshot(
        name=name,
        partitions=tuple(_partition(name, partition, reassignments) for partition in partitions),
        topic_id=None if answer.topic_id == ZERO_TOPIC_ID else answer.topic_id,
        configs=overrides,
    )


def _partition(
    topic: str,
    answer: MetadataResponsePartition,
    reassignments: Mapping[TopicPartition, ReplicaAssignment],
) -> PartitionSnapshot:
    index = answer.partition_index
    assignment = reassignments.get(TopicPartition(topic, index)) or ReplicaAssignment(tuple(answer.replica_nodes))
    return PartitionSnapshot(
        partition=index,
        assignment=assignment,
        leader=answer.leader_id,
        isr=tuple(answer.isr_nodes),
        leader_epoch=None if answer.leader_epoch < 0 else answer.leader_epoch,
    )
