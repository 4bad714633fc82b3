"""Requests of tools to the controller through ``/admin``: deletions, reassignments, preferred elections."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from engine.common.model import TopicPartition
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.controller import raise_first, write_guarded
from engine.kafka.zk.errors import NoNode
from engine.kafka.zk.operations import Create, Delete, SetData
from engine.kafka.zk.reads import children_or_empty, or_raise, read_znode
from engine.kafka.zk.znode_json import Fields, encode_json


class DeleteTopicsZNode:
    """Parent of the deletion marks of topics; the controller watches its children."""

    path: Final = "/admin/delete_topics"


class DeleteTopicsTopicZNode:
    """Marks a topic for deletion; no data. The controller removes it when the topic is gone."""

    @staticmethod
    def path(topic: str) -> str:
        return f"{DeleteTopicsZNode.path}/{topic}"


class ReassignPartitionsZNode:
    """Partitions to move, as tools before Kafka 2.4 ask for it; 3.9 still carries it out."""

    path: Final = "/admin/reassign_partitions"

    @staticmethod
    def encode(reassignments: Mapping[TopicPartition, Sequence[int]]) -> bytes:
        return encode_json(
            {
                "version": 1,
                "partitions": [
                    {"topic": tp.topic, "partition": tp.partition, "replicas": list(replicas)}
                    for tp, replicas in reassignments.items()
                ],
            }
        )

    @staticmethod
    def decode(data: bytes) -> dict[TopicPartition, tuple[int, ...]]:
        """Read the wanted replicas without checking them; if a partition appears twice, the last list counts."""
        fields = Fields.parse(ReassignPartitionsZNode.path, data)
        return {_partition(entry): entry.integers("replicas") for entry in fields.children("partitions")}


class PreferredReplicaElectionZNode:
    """Partitions that their preferred replicas should lead, as tools before Kafka 2.4 ask for it."""

    path: Final = "/admin/preferred_replica_election"

    @staticmethod
    def encode(partitions: Iterable[TopicPartition]) -> bytes:
        return encode_json({"version": 1, "partitions": partition_list(partitions)})

    @staticmethod
    def decode(data: bytes) -> tuple[TopicPartition, ...]:
        fields = Fields.parse(PreferredReplicaElectionZNode.path, data)
        return decode_partition_list(fields)


def partition_list(partitions: Iterable[TopicPartition]) -> list[dict[str, object]]:
    """Return partitions as Kafka lists them in JSON."""
    return [{"topic": tp.topic, "partition": tp.partition} for tp in partitions]


def decode_partition_list(fields: Fields) -> tuple[TopicPartition, ...]:
    """Return the partitions of a ``partitions`` list, each once."""
    return tuple(dict.fromkeys(_partition(entry) for entry in fields.children("partitions")))


def _partition(entry: Fields) -> TopicPartition:
    return TopicPartition(entry.text("topic"), entry.integer("partition"))


class AdminZnodes:
    """Reads and writes below ``/admin``. The controller's writes take ``epoch_zk_version``; a tool's writes do not."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy) -> None:
        self._client = client
        self._acl = acl_policy.acl

    async def get_topic_deletions(self) -> list[str]:
        """Return the topics marked for deletion, sorted; arms the children callbacks of ``/admin/delete_topics``."""
        return sorted(await children_or_empty(self._client, DeleteTopicsZNode.path))

    async def get_topic_deletion_times(self) -> dict[str, int]:
        """Return when each topic was marked for deletion, in milliseconds of ZooKeeper's clock."""
        topics = await self.get_topic_deletions()
        stats = await self._client.exists_many(map(DeleteTopicsTopicZNode.path, topics))
        return {topic: stat.ctime_ms for topic, stat in zip(topics, map(or_raise, stats), strict=True) if stat}

    async def is_topic_marked_for_deletion(self, topic: str) -> bool:
        return await self._client.exists(DeleteTopicsTopicZNode.path(topic)) is not None

    async def create_topic_deletion(self, topic: str) -> None:
        """Mark a topic for deletion, unguarded. Like Kafka, make the parent if no controller has made it yet.

        Raises:
            NodeExists: it is already marked.
        """
        path, parent = DeleteTopicsTopicZNode.path(topic), DeleteTopicsZNode.path
        try:
            await self._client.create(path, acl=self._acl(path))
        except NoNode:
            await self._client.ensure_path(parent, self._acl(parent))
            await self._client.create(path, acl=self._acl(path))

    async def delete_topic_deletions(self, topics: Iterable[str], epoch_zk_version: int | None) -> None:
        """Remove deletion marks, guarded; a mark that is already gone is no error."""
        deletes = [Delete(DeleteTopicsTopicZNode.path(topic)) for topic in topics]
        raise_first(await write_guarded(self._client, deletes, epoch_zk_version), NoNode)

    async def get_reassignments(self) -> dict[TopicPartition, tuple[int, ...]] | None:
        """Return what ``/admin/reassign_partitions`` asks for, None if it does not exist; arms its data callbacks.

        Raises:
            ZnodeFormatError: it cannot be understood.
        """
        path = ReassignPartitionsZNode.path
        return await read_znode(self._client, path, lambda data, _: ReassignPartitionsZNode.decode(data))

    async def create_reassignments(self, reassignments: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Ask the controller to move partitions, as tools before Kafka 2.4 do.

        Raises:
            NodeExists: an earlier request is still being carried out.
        """
        path = ReassignPartitionsZNode.path
        await self._client.create(path, ReassignPartitionsZNode.encode(reassignments), acl=self._acl(path))

    async def set_reassignments(
        self, reassignments: Mapping[TopicPartition, Sequence[int]], epoch_zk_version: int | None
    ) -> None:
        """Write the moves that remain, guarded; remove the znode if none is left.

        Raises:
            ControllerMoved: another controller has been elected.
        """
        path = ReassignPartitionsZNode.path
        if not reassignments:
            raise_first(await write_guarded(self._client, [Delete(path)], epoch_zk_version), NoNode)
            return
        data = ReassignPartitionsZNode.encode(reassignments)
        outcomes = await write_guarded(self._client, [SetData(path, data)], epoch_zk_version)
        if isinstance(outcomes[0], NoNode):
            creates = [Create(path, data, acl=self._acl(path))]
            outcomes = await write_guarded(self._client, creates, epoch_zk_version)
        raise_first(outcomes)

    async def get_preferred_election(self) -> tuple[TopicPartition, ...] | None:
        """Return what ``/admin/preferred_replica_election`` asks for, None if it does not exist; arms its callbacks.

        Raises:
            ZnodeFormatError: it cannot be understood.
        """
        path = PreferredReplicaElectionZNode.path
        return await read_znode(self._client, path, lambda data, _: PreferredReplicaElectionZNode.decode(data))

    async def create_preferred_election(self, partitions: Iterable[TopicPartition]) -> None:
        """Ask for preferred replicas to lead these partitions, as tools before Kafka 2.4 do.

        Raises:
            NodeExists: an earlier request is still being carried out.
        """
        path = PreferredReplicaElectionZNode.path
        await self._client.create(path, PreferredReplicaElectionZNode.encode(partitions), acl=self._acl(path))

    async def delete_preferred_election(self, epoch_zk_version: int | None) -> None:
        """Remove ``/admin/preferred_replica_election``, guarded. Usually it does not exist."""
        outcomes = await write_guarded(self._client, [Delete(PreferredReplicaElectionZNode.path)], epoch_zk_version)
        raise_first(outcomes, NoNode)
