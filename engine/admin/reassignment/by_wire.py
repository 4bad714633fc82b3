"""Reassignments over the wire: AlterPartitionReassignments at the controller (Kafka 2.4 and newer)."""

from __future__ import annotations

import math

from engine.admin.cluster.asking import answer_limit_s
from engine.admin.cluster.wire import WireCluster, answer_limit_ms
from engine.admin.cluster.wire_failures import refuse
from engine.admin.reassignment.moves import Refusal, RunningReassignments, Targets
from engine.admin.topics.by_wire import read_reassignments
from engine.common.errors import ErrorCode, error_code
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartition,
    ReassignableTopic,
)


class WireReassignments:
    """Asks the controller."""

    # The controller knows what is under way, any broker knows what exists; one may know a topic before the other.
    may_be_late = True
    is_live = True
    is_znode = False

    def __init__(self, wire: WireCluster, *, timeout_ms: int) -> None:
        self._wire = wire
        self._timeout_ms = timeout_ms

    async def running(self) -> RunningReassignments:
        """Return what is under way. Only a caller that has begun a change waits for a silent controller."""
        silence_s = math.inf if self._wire.change_count else answer_limit_s(self._wire)
        return RunningReassignments(await read_reassignments(self._wire, silence_s=silence_s), {})

    async def configured_brokers(self) -> set[int]:
        """Only live brokers can be asked, and only for their own settings: no API lists the others."""
        return set()

    async def orders_wait(self) -> bool:
        return False

    async def check(self, targets: Targets) -> None:
        client = await self._wire.client_of(await self._wire.reachable_controller_id())
        await self._wire.version(client, ApiKey.ALTER_PARTITION_REASSIGNMENTS)

    async def alter(self, targets: Targets) -> list[Refusal]:
        topics: dict[str, list[ReassignablePartition]] = {}
        for (topic, partition), replicas in targets.items():
            wanted = None if replicas is None else list(replicas)
            topics.setdefault(topic, []).append(ReassignablePartition(partition_index=partition, replicas=wanted))
        request = AlterPartitionReassignmentsRequest(
            timeout_ms=self._timeout_ms,
            topics=[ReassignableTopic(name=topic, partitions=partitions) for topic, partitions in topics.items()],
        )
        response: AlterPartitionReassignmentsResponse = await self._wire.call_controller(
            request, lambda r: [r.error_code], timeout_ms=answer_limit_ms(self._timeout_ms)
        )
        refuse(response.error_code, response.error_message, "reassignment")
        return [
            Refusal(TopicPartition(topic.name, p.partition_index), error_code(p.error_code), p.error_message)
            for topic in response.responses
            for p in topic.partitions
            if p.error_code != ErrorCode.NONE
        ]
