"""Reassignments by the wire: AlterPartitionReassignments at the controller (Kafka 2.4 and newer)."""

from __future__ import annotations

from engine.admin.cluster.wire import WireCluster, answer_limit_ms, refuse
from engine.admin.reassignment.running import Refusal, Targets
from engine.common.errors import ErrorCode, error_code
from engine.common.model import TopicPartition
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)


async def check_wire(wire: WireCluster) -> None:
    """Raise Refused where the controller knows no reassignments by the wire."""
    client = await wire.client_of(await wire.reachable_controller_id())
    await wire.version(client, ApiKey.ALTER_PARTITION_REASSIGNMENTS)


async def alter_by_wire(wire: WireCluster, targets: Targets, *, timeout_ms: int) -> list[Refusal]:
    """Start and cancel reassignments; return the partitions that were refused.

    Raises:
        Refused: the controller refused the request as a whole.
    """
    topics: dict[str, list[ReassignablePartition]] = {}
    for (topic, partition), replicas in targets.items():
        wanted = None if replicas is None else list(replicas)
        topics.setdefault(topic, []).append(ReassignablePartition(partition_index=partition, replicas=wanted))
    request = AlterPartitionReassignmentsRequest(
        timeout_ms=timeout_ms,
        topics=[ReassignableTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
    )
    response: AlterPartitionReassignmentsResponse = await wire.call_controller(
        request, lambda r: [r.error_code], timeout_ms=answer_limit_ms(timeout_ms)
    )
    refuse(response.error_code, response.error_message, "reassignment")
    return [
        Refusal(TopicPartition(topic.name, p.partition_index), error_code(p.error_code), p.error_message)
        for topic in response.responses
        for p in topic.partitions
        if p.error_code != ErrorCode.NONE
    ]
