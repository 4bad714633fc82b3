"""Creates, alters and deletes topics over the wire: CreateTopics, CreatePartitions, DeleteTopics at the controller."""

from __future__ import annotations

from collections.abc import Sequence

from engine.admin.cluster.errors import NotFound, Refused, StillUnderWay
from engine.admin.cluster.remedies import Do, Operation
from engine.admin.cluster.wire import WireCluster, answer_limit_ms
from engine.admin.cluster.wire_failures import refuse
from engine.admin.topics.changes import NewTopic, ReplicaLists, TopicChange, TopicOutcome
from engine.common.errors import ErrorCode
from engine.common.topic_id import ZERO_TOPIC_ID, topic_id_text
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsTopic,
)
from engine.kafka.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreatableTopicResult,
    CreateTopicsRequest,
)
from engine.kafka.protocol.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicState


async def create_topic(
    wire: WireCluster, topic: NewTopic, *, timeout_ms: int, validate_only: bool = False
) -> TopicChange:
    """Create a topic, or only have the cluster check that it could be created.

    Raises:
        Refused: the cluster rejects it; the message is the cluster's.
        StillUnderWay: it was accepted, and its partitions have no leader yet.
    """
    request = CreateTopicsRequest(topics=[_creatable(topic)], timeout_ms=timeout_ms, validate_only=validate_only)
    response = await wire.call_controller(
        request, lambda r: [t.error_code for t in r.topics], timeout_ms=answer_limit_ms(timeout_ms)
    )
    result: CreatableTopicResult = response.topics[0]
    if result.error_code == ErrorCode.REQUEST_TIMED_OUT and not validate_only:
        raise StillUnderWay(
            "accepted, but not all partitions have a leader yet",
            where=f"topic {topic.name}",
            hint=Do(Operation.DESCRIBE_TOPIC, topic.name),
        )
    refuse(result.error_code, result.error_message, f"topic {topic.name}")
    return TopicChange(
        topic.name,
        TopicOutcome.WOULD_BE_CREATED if validate_only else TopicOutcome.CREATED,
        None if result.topic_id == ZERO_TOPIC_ID else topic_id_text(result.topic_id),
        _told(result.num_partitions) or topic.partition_count or len(topic.assignment) or None,
        _told(result.replication_factor) or topic.replication_factor or _factor(topic.assignment),
    )


async def add_partitions(
    wire: WireCluster,
    topic: str,
    count: int,
    assignment: ReplicaLists | None,
    *,
    timeout_ms: int,
    validate_only: bool = False,
) -> None:
    """Grow a topic to ``count`` partitions; ``assignment`` is that of the new ones.

    Raises:
        NotFound: there is no such topic.
        Refused: the cluster rejects it, for example because there are as many already.
        StillUnderWay: it was accepted, and the new partitions have no leader yet.
    """
    assignments = None
    if assignment is not None:
        assignments = [CreatePartitionsAssignment(broker_ids=list(replicas)) for replicas in assignment]
    request = CreatePartitionsRequest(
        topics=[CreatePartitionsTopic(name=topic, count=count, assignments=assignments)],
        timeout_ms=timeout_ms,
        validate_only=validate_only,
    )
    response = await wire.call_controller(
        request, lambda r: [t.error_code for t in r.results], timeout_ms=answer_limit_ms(timeout_ms)
    )
    result = response.results[0]
    if result.error_code == ErrorCode.REQUEST_TIMED_OUT and not validate_only:
        message = "accepted, but not all new partitions have a leader yet"
        raise StillUnderWay(message, where=f"topic {topic}", hint=Do(Operation.DESCRIBE_TOPIC, topic))
    refuse(result.error_code, result.error_message, f"topic {topic}")


async def delete_topics(
    wire: WireCluster, names: Sequence[str], *, timeout_ms: int, waits: bool = True
) -> tuple[list[TopicChange], list[Refused | NotFound]]:
    """Delete topics; return the outcome for each, and the refusals.

    Without ``waits`` the answer comes as soon as the controller has accepted the deletion.
    """
    client = await wire.client_of(await wire.reachable_controller_id())
    version = await wire.version(client, ApiKey.DELETE_TOPICS)
    request = _delete_request(names, version, timeout_ms if waits else 0)
    response = await wire.call_controller(
        request, lambda r: [t.error_code for t in r.responses], timeout_ms=answer_limit_ms(timeout_ms)
    )
    changes: list[TopicChange] = []
    refusals: list[Refused | NotFound] = []
    for result in sorted(response.responses, key=lambda r: r.name or ""):
        _sort_out(result, changes, refusals)
    return changes, refusals


def _sort_out(result: DeletableTopicResult, changes: list[TopicChange], refusals: list[Refused | NotFound]) -> None:
    name = result.name or topic_id_text(result.topic_id)
    if result.error_code == ErrorCode.REQUEST_TIMED_OUT:
        changes.append(TopicChange(name, TopicOutcome.MARKED_FOR_DELETION))
        return
    try:
        refuse(result.error_code, result.error_message, f"topic {name}")
    except (Refused, NotFound) as error:
        refusals.append(error)
    else:
        changes.append(TopicChange(name, TopicOutcome.DELETED))


def _delete_request(names: Sequence[str], version: int, timeout_ms: int) -> DeleteTopicsRequest:
    """Return the request with the names in that version's field."""
    if version >= 6:
        return DeleteTopicsRequest(topics=[DeleteTopicState(name=name) for name in names], timeout_ms=timeout_ms)
    return DeleteTopicsRequest(topic_names=list(names), timeout_ms=timeout_ms)


def _creatable(topic: NewTopic) -> CreatableTopic:
    assignments = [
        CreatableReplicaAssignment(partition_index=index, broker_ids=list(replicas))
        for index, replicas in enumerate(topic.assignment)
    ]
    return CreatableTopic(
        name=topic.name,
        num_partitions=-1 if topic.partition_count is None else topic.partition_count,
        replication_factor=-1 if topic.replication_factor is None else topic.replication_factor,
        assignments=assignments,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in topic.configs.items()],
    )


def _told(number: int) -> int | None:
    return number if number > 0 else None


def _factor(assignment: ReplicaLists) -> int | None:
    return len(assignment[0]) if assignment else None
