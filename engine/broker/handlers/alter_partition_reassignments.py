"""AlterPartitionReassignments (45): v0.

Behaviour
* Starts, replaces or (replicas null) cancels reassignments. The answer says whether each was accepted, not that it is
  done: ListPartitionReassignments shows that.
* NOT_CONTROLLER applies to all; a single partition can have INVALID_REPLICA_ASSIGNMENT, UNKNOWN_TOPIC_OR_PARTITION or
  NO_REASSIGNMENT_IN_PROGRESS with Kafka's texts.
* A request that would remove the last in-sync replicas, usually a cancellation, is INVALID_REPLICA_ASSIGNMENT too, as
  in KRaft. Kafka with ZooKeeper allows it and loses the records that only they had.
"""

from __future__ import annotations

from engine.broker.controller.events import AlterPartitionReassignments, ApiError
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import pieces
from engine.broker.handlers.registry import handles
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
    ReassignableTopicResponse,
)
from engine.runtime.turns import Breather


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, requires=["Alter Cluster"])
async def alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    """Start, replace or cancel reassignments."""
    breather = Breather()
    targets: dict[TopicPartition, tuple[int, ...] | None] = {}
    for wanted in pieces(request.topics, "partitions"):
        for p in wanted.partitions:
            name = TopicPartition(wanted.name, p.partition_index)
            targets[name] = None if p.replicas is None else tuple(p.replicas)
        await breather.give_way()
    answer = await context.broker.controller.ask(AlterPartitionReassignments(targets))
    if isinstance(answer, ApiError):
        return AlterPartitionReassignmentsResponse(error_code=answer.code, error_message=answer.message)
    topics: dict[str, ReassignableTopicResponse] = {}
    for partition, error in answer.items():
        await breather.give_way()
        topic = topics.setdefault(partition.topic, ReassignableTopicResponse(name=partition.topic))
        topic.partitions.append(
            ReassignablePartitionResponse(
                partition_index=partition.partition, error_code=error.code, error_message=error.message
            )
        )
    return AlterPartitionReassignmentsResponse(responses=list(topics.values()))
