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

from collections.abc import Iterator

from engine.broker.controller.events import AlterPartitionReassignments, ApiError
from engine.broker.controller.reassignment_requests import REPLICAS_MAX
from engine.broker.handlers.answer_lists import ByTopic, each_once
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import in_lists
from engine.broker.handlers.registry import handles
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    AlterPartitionReassignmentsResponse,
    ReassignablePartitionResponse,
)
from engine.runtime.turns import Breather, carry_out


@handles(ApiKey.ALTER_PARTITION_REASSIGNMENTS, requires=["Alter Cluster"])
async def alter_partition_reassignments(
    context: RequestContext, request: AlterPartitionReassignmentsRequest
) -> AlterPartitionReassignmentsResponse:
    breather = Breather()
    topics = await carry_out(
        ByTopic.of(
            context,
            AlterPartitionReassignmentsResponse,
            "responses.partitions",
            "name",
            lambda: (topic.name for topic in request.topics),
        )
    )
    for batch in in_lists(await carry_out(each_once(context, lambda: _targets(request)))):
        targets = {partition: target for partition, target in batch if partition is not None}
        answer = await context.broker.controller.ask(AlterPartitionReassignments(targets))
        if isinstance(answer, ApiError):
            return AlterPartitionReassignmentsResponse(error_code=answer.code, error_message=answer.message)
        for partition, error in answer.items():
            await breather.give_way()
            entry = ReassignablePartitionResponse(
                partition_index=partition.partition, error_code=error.code, error_message=error.message
            )
            topics.add(partition.topic, entry)
    return AlterPartitionReassignmentsResponse(responses=topics.topics())


def _targets(
    request: AlterPartitionReassignmentsRequest,
) -> Iterator[tuple[TopicPartition | None, tuple[int, ...] | None]]:
    """Yield each partition with its target, and None for each topic: very many may have no partition."""
    for topic in request.topics:
        yield None, None
        for p in topic.partitions:
            # Very many are refused, whatever they are.
            target = None if p.replicas is None else tuple(p.replicas[: REPLICAS_MAX + 1])
            yield TopicPartition(topic.name, p.partition_index), target
