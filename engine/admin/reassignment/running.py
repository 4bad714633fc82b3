"""What is under way in a cluster, and the topics of a reassignment. ``access`` chooses whom to ask."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.members import read_members
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.reassignment.access import reassignment_reader
from engine.admin.reassignment.moves import RunningReassignment
from engine.admin.reassignment.plan_file import PartitionMove
from engine.admin.topics.access import topic_reader
from engine.admin.topics.values import partitions_of
from engine.common.listing import first_few
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.quantities import plural
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot


async def read_topics(cluster: Cluster, names: Iterable[str]) -> dict[str, TopicSnapshot]:
    """Return the topics that exist, by name; without their settings if no broker returns these soon."""
    reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
    return {topic.name: topic for topic in await reader.topics(sorted(set(names)))}


async def read_partitions(cluster: Cluster, topics: Iterable[str]) -> dict[TopicPartition, PartitionSnapshot]:
    """Return the partitions of the topics that exist."""
    return partitions_of((await read_topics(cluster, topics)).values())


async def list_running(cluster: Cluster) -> list[RunningReassignment]:
    """Return the reassignments under way by name: those that move first, then those that wait for their turn."""
    running = await (await reassignment_reader(cluster)).running()
    rows = []
    for name in sorted(running.names, key=lambda name: (name not in running.assignments, name)):
        assignment = running.assignments.get(name) or ReplicaAssignment(running.listed[name])
        rows.append(
            RunningReassignment(*name, assignment.replicas, assignment.adding_replicas, assignment.removing_replicas)
        )
    return rows


async def running_moves(cluster: Cluster) -> list[PartitionMove]:
    """Return what is under way in the cluster by name, in the form of a file's moves."""
    return [
        PartitionMove(TopicPartition(row.topic, row.partition), target)
        for row in await list_running(cluster)
        if (target := tuple(replica for replica in row.replicas if replica not in row.removing))
    ]


async def check_planned_for(cluster: Cluster, cluster_id: str | None, where: str) -> None:
    """Raise BadRequest if a file was written for another cluster; one that names no cluster fits all."""
    if cluster_id is None:
        return
    own = (await read_members(cluster)).cluster_id
    if own is not None and own != cluster_id:
        message = f"the file is for cluster {cluster_id}, and this is cluster {own}"
        raise BadRequest(message, where=where, hint="name the cluster that it was written for")


def require_partitions(names: Sequence[TopicPartition], partitions: Mapping[TopicPartition, object]) -> None:
    """Raise BadRequest if a named partition does not exist."""
    missing = [name for name in names if name not in partitions]
    if missing:
        hint = Phrase("list what exists with: ", Operation.DESCRIBE_TOPICS)
        raise BadRequest(f"unable to find {plural('partition', len(missing))}: {first_few(missing)}", hint=hint)
