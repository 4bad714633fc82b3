"""Asks a cluster's controller for reassignments over the wire, in plain terms."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from fault_cluster import FaultCluster
from wire_client import WireClient

from engine.common.errors import ErrorCode, error_code
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)


def reassign(
    cluster: FaultCluster, targets: Mapping[TopicPartition, Sequence[int] | None]
) -> dict[TopicPartition, ErrorCode]:
    """Start, replace or (None) cancel reassignments; return the controller's result for each."""
    topics: dict[str, ReassignableTopic] = {}
    for (name, index), replicas in targets.items():
        topic = topics.setdefault(name, ReassignableTopic(name=name, partitions=[]))
        wanted = None if replicas is None else list(replicas)
        topic.partitions.append(ReassignablePartition(partition_index=index, replicas=wanted))
    request = AlterPartitionReassignmentsRequest(topics=list(topics.values()))
    answer = cluster.wait_for("a controller answers", lambda: _answer_of_controller(cluster, request))
    assert answer.error_code == ErrorCode.NONE, answer
    return {
        TopicPartition(topic.name, partition.partition_index): error_code(partition.error_code)
        for topic in answer.responses
        for partition in topic.partitions
    }


def _answer_of_controller(cluster: FaultCluster, request: AlterPartitionReassignmentsRequest) -> Any:
    """Ask the controller that ZooKeeper names; None if there is none, or if it does not consider itself controller."""
    controller = cluster.controller_id()
    if controller is None:
        return None
    with WireClient(cluster.broker(controller).address) as client:
        answer = client.ask(request, 0)
    return None if answer.error_code == ErrorCode.NOT_CONTROLLER else answer


def start_reassignment(cluster: FaultCluster, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
    """Start reassignments, all of which must be accepted."""
    errors = reassign(cluster, targets)
    assert set(errors.values()) == {ErrorCode.NONE}, errors


def wait_reassigned(
    cluster: FaultCluster, targets: Mapping[TopicPartition, Sequence[int]], *, timeout_s: float = 60.0
) -> None:
    """Wait until ZooKeeper has exactly these replicas, and no more than these are in the ISR."""
    topics = {partition.topic for partition in targets}

    def look() -> bool:
        assignments, states = cluster.assignments(topics), cluster.states(topics)
        return all(
            assignments[p].replicas == tuple(replicas)
            and not assignments[p].is_being_reassigned
            and set(states[p].leader_and_isr.isr) == set(replicas)
            for p, replicas in targets.items()
        )

    cluster.wait_for(f"reassignment to {dict(targets)}", look, timeout_s=timeout_s)
