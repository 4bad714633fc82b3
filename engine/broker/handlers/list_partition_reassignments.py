"""ListPartitionReassignments (46): v0.

Behaviour
* The reassignments under way, of the named partitions or of all (topics null). It leaves out partitions that do not
  move or do not exist, without an error. A broker that is not the controller answers NOT_CONTROLLER.
"""

from __future__ import annotations

from collections.abc import Iterator

from engine.broker.controller.events import ApiError, ListPartitionReassignments
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.in_turns import parts_in_lists
from engine.broker.handlers.registry import handles
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
    ListPartitionReassignmentsTopics,
    OngoingPartitionReassignment,
    OngoingTopicReassignment,
)
from engine.runtime.turns import Breather


@handles(ApiKey.LIST_PARTITION_REASSIGNMENTS, requires=["Describe Cluster"])
async def list_partition_reassignments(
    context: RequestContext, request: ListPartitionReassignmentsRequest
) -> ListPartitionReassignmentsResponse:
    breather = Breather()
    assignments: dict[TopicPartition, ReplicaAssignment] = {}
    for wanted in [None] if request.topics is None else parts_in_lists(request.topics, _named):
        await breather.give_way()
        answer = await context.broker.controller.ask(
            ListPartitionReassignments(None if wanted is None else tuple(wanted))
        )
        if isinstance(answer, ApiError):
            return ListPartitionReassignmentsResponse(error_code=answer.code, error_message=answer.message)
        assignments.update(answer)
    topics: dict[str, OngoingTopicReassignment] = {}
    for partition, assignment in assignments.items():
        topic = topics.setdefault(partition.topic, OngoingTopicReassignment(name=partition.topic))
        topic.partitions.append(
            OngoingPartitionReassignment(
                partition_index=partition.partition,
                replicas=list(assignment.replicas),
                adding_replicas=list(assignment.adding_replicas),
                removing_replicas=list(assignment.removing_replicas),
            )
        )
        await breather.give_way()
    return ListPartitionReassignmentsResponse(topics=list(topics.values()))


def _named(topic: ListPartitionReassignmentsTopics) -> Iterator[TopicPartition]:
    return (TopicPartition(topic.name, index) for index in topic.partition_indexes)
