"""Topics in ZooKeeper: their names, ids and assignments, and their removal."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import lt
from typing import Any, Final

from engine.common.errors import CoordinationError
from engine.common.model import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    ReplicaAssignment,
    TopicPartition,
)
from engine.common.topic_id import parse_topic_id, topic_id_text
from engine.common.turns import pieces_of
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ReadOutcome, ZkClient
from engine.kafka.zk.configs import ConfigEntityZNode, ConfigType
from engine.kafka.zk.controller import raise_first, write_guarded
from engine.kafka.zk.errors import BadVersion, NoNode, NotEmpty, ZnodeFormatError, ZooKeeperError
from engine.kafka.zk.operations import ANY_VERSION, Delete, SetData, ZnodeStat
from engine.kafka.zk.reads import Decode, children_or_empty, decoded, read_znode
from engine.kafka.zk.znode_json import Fields, encode_json
from engine.runtime.offload import MANY, beside_loop, beside_loop_if_many


class TopicsZNode:
    """Parent of all topics; the controller watches its children."""

    path: Final = "/brokers/topics"


@dataclass(frozen=True, slots=True)
class TopicIdReplicaAssignment:
    """A topic's id (None if it has none yet) and its partitions' replicas, ordered by partition.

    ``zk_version`` is the version of the znode it came from; None if it was not read.
    """

    topic: str
    topic_id: bytes | None
    assignment: Mapping[int, ReplicaAssignment]
    zk_version: int | None = None

    def by_partition(self) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the assignment under the partitions' full names."""
        return {TopicPartition(self.topic, partition): replicas for partition, replicas in self.assignment.items()}


_ENCODED_AT_ONCE = 1_000
"""Partitions of a topic."""

_LARGE_BYTES = 16_000
"""A topic's znode of this size has about a thousand partitions, which take milliseconds to decode."""


class TopicZNode:
    """A topic: its id, and the brokers that hold each partition. The controller watches its data."""

    @staticmethod
    def path(topic: str) -> str:
        return f"{TopicsZNode.path}/{topic}"

    @staticmethod
    def encode(topic_id: bytes | None, assignment: Mapping[int, ReplicaAssignment]) -> bytes:
        """Return the JSON of version 3, in Kafka 3.9.1's order of keys; partitions in ascending order."""
        # Most are in order, and a sorted copy of very many takes as much memory as they do.
        in_order = all(map(lt, assignment, islice(assignment, 1, None)))
        ordered = assignment if in_order else dict(sorted(assignment.items()))
        # To encode very many in one call would keep the GIL from the event loop.
        pieces = (
            encode_json({str(p): replicas.replicas for p, replicas in portion})[1:-1]
            for portion in pieces_of(ordered.items(), _ENCODED_AT_ONCE)
        )
        values: dict[str, Any] = {} if topic_id is None else {"topic_id": topic_id_text(topic_id)}
        values["adding_replicas"] = {str(p): r.adding_replicas for p, r in ordered.items() if r.adding_replicas}
        values["removing_replicas"] = {str(p): r.removing_replicas for p, r in ordered.items() if r.removing_replicas}
        values["version"] = 3
        return b'{"partitions":{' + b",".join(pieces) + b"}," + encode_json(values)[1:]

    @staticmethod
    def decode(topic: str, data: bytes, zk_version: int | None = None) -> TopicIdReplicaAssignment:
        """Read any version; fields that a version lacks are empty or None."""
        fields = Fields.parse(TopicZNode.path(topic), data)
        partitions = fields.child("partitions")
        adding, removing = fields.optional_child("adding_replicas"), fields.optional_child("removing_replicas")
        ids = {key: _partition_id(fields.path, key) for key in partitions.values}
        assignment = {
            ids[key]: ReplicaAssignment(
                partitions.integers(key),
                adding.integers(key) if key in adding else (),
                removing.integers(key) if key in removing else (),
            )
            for key in sorted(ids, key=ids.__getitem__)
        }
        return TopicIdReplicaAssignment(topic, _topic_id(fields), assignment, zk_version)


class TopicPartitionsZNode:
    """Parent of a topic's partitions; no data."""

    @staticmethod
    def path(topic: str) -> str:
        return f"{TopicZNode.path(topic)}/partitions"


class TopicPartitionZNode:
    """Parent of a partition's state; no data."""

    @staticmethod
    def path(partition: TopicPartition) -> str:
        return f"{TopicPartitionsZNode.path(partition.topic)}/{partition.partition}"


class TopicPartitionStateZNode:
    """Leader and ISR of a partition. The znode's version is the partition epoch."""

    @staticmethod
    def path(partition: TopicPartition) -> str:
        return f"{TopicPartitionZNode.path(partition)}/state"

    @staticmethod
    def encode(state: LeaderIsrAndControllerEpoch) -> bytes:
        """Return the JSON in Kafka's order of keys; the recovery state only while it is not RECOVERED (KIP-704)."""
        leader_and_isr = state.leader_and_isr
        values: dict[str, Any] = {
            "controller_epoch": state.controller_epoch,
            "leader": leader_and_isr.leader,
            "version": 1,
        }
        if leader_and_isr.leader_recovery_state is not LeaderRecoveryState.RECOVERED:
            values["leader_recovery_state"] = int(leader_and_isr.leader_recovery_state)
        values |= {"leader_epoch": leader_and_isr.leader_epoch, "isr": leader_and_isr.isr}
        return encode_json(values)

    @staticmethod
    def decode(partition: TopicPartition, data: bytes, zk_version: int) -> LeaderIsrAndControllerEpoch:
        """Read a state; ``zk_version`` becomes its partition epoch."""
        fields = Fields.parse(TopicPartitionStateZNode.path(partition), data)
        recovery = fields.integer("leader_recovery_state") if "leader_recovery_state" in fields else 0
        if recovery not in set(LeaderRecoveryState):
            raise fields.complaint("leader_recovery_state", "0 or 1")
        leader_and_isr = LeaderAndIsr(
            fields.integer("leader"),
            fields.integer("leader_epoch"),
            fields.integers("isr"),
            LeaderRecoveryState(recovery),
            zk_version,
        )
        return LeaderIsrAndControllerEpoch(leader_and_isr, fields.integer("controller_epoch"))


def _partition_id(path: str, text: str) -> int:
    if not text.isdecimal():
        raise ZnodeFormatError(path, f"not a partition id: {text!r}")
    return int(text)


def _topic_id(fields: Fields) -> bytes | None:
    text = fields.optional_text("topic_id")
    if text is None:
        return None
    try:
        return parse_topic_id(text)
    except ValueError as error:
        raise fields.complaint("topic_id", "a topic id") from error


_log = logging.getLogger("engine.kafka.zk")

DELETE_TRIES = 3
"""How often to try removing a topic's znodes level by level while others create new ones."""


_Read = TopicIdReplicaAssignment | CoordinationError | None


class TopicZnodes:
    """Reads and writes of ``/brokers/topics`` and its children."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy) -> None:
        self._client = client
        self._acl = acl_policy.acl

    async def get_all_topics(self) -> list[str]:
        """Return the names of all topics, sorted; arms the children callbacks of ``/brokers/topics``."""
        return sorted(await children_or_empty(self._client, TopicsZNode.path))

    async def topic_exists(self, topic: str) -> bool:
        return await self._client.exists(TopicZNode.path(topic)) is not None

    async def partition_count(self, topic: str) -> int:
        """Return how many partitions a topic has; 0: there is no such topic.

        Raises:
            CoordinationError: its znode cannot be read or decoded.
        """
        topic_znode = await read_znode(self._client, TopicZNode.path(topic), _assignment_of(topic))
        return 0 if topic_znode is None else len(topic_znode.assignment)

    async def get_topic_assignments(self, topics: Sequence[str]) -> dict[str, TopicIdReplicaAssignment]:
        """Return id, assignment and version of topics; arms the data callbacks of their znodes.

        Topics without a znode are left out, and so are those that cannot be decoded, which are logged.
        """
        assignments = {}
        for topic, outcome in (await self.read_topics(topics)).items():
            if isinstance(outcome, CoordinationError):
                _log.error("Leaving out a topic: %s", outcome)
            elif outcome is not None:
                assignments[topic] = outcome
        return assignments

    async def read_topics(self, topics: Sequence[str]) -> dict[str, _Read]:
        """Like ``get_topic_assignments``, with None for a topic without a znode and an error for a broken one.

        Large znodes are decoded beside the event loop: one of 60,000 partitions takes 200 ms.
        """

        def decoded_if_small(position: int, outcome: ReadOutcome) -> _Read | ReadOutcome:
            is_large = isinstance(outcome, tuple) and len(outcome[0]) > _LARGE_BYTES
            return outcome if is_large else decoded(outcome, _assignment_of(topics[position]))

        assignments: dict[str, _Read] = {}
        outcomes = await self._client.read_many(map(TopicZNode.path, topics), decoded_if_small)
        for topic, outcome in zip(topics, outcomes, strict=True):
            if isinstance(outcome, tuple):
                assignments[topic] = await beside_loop(decoded, outcome, _assignment_of(topic))
            else:
                assignments[topic] = outcome
        return assignments

    async def create_topic_assignment(
        self, topic: str, topic_id: bytes | None, assignment: Mapping[int, ReplicaAssignment]
    ) -> None:
        """Create a topic's znode, from which the controller creates the topic. Write its settings first.

        Raises:
            NodeExists: the topic exists.
        """
        path = TopicZNode.path(topic)
        data = await beside_loop_if_many(len(assignment), TopicZNode.encode, topic_id, assignment)
        await self._client.create(path, data, acl=self._acl(path))

    async def set_topic_assignment(
        self,
        topic: str,
        topic_id: bytes | None,
        assignment: Mapping[int, ReplicaAssignment],
        epoch_zk_version: int | None = None,
        zk_version: int = ANY_VERSION,
    ) -> int:
        """Write a topic's assignment and return the znode's new version.

        Args:
            epoch_zk_version: the controller's guard; None for other brokers and tools.
            zk_version: expected version of the znode; Kafka does not check it.

        Raises:
            ControllerMoved, NoNode, BadVersion: as they say.
        """
        wanted = TopicIdReplicaAssignment(topic, topic_id, assignment, zk_version)
        outcome = (await self.set_topic_assignments([wanted], epoch_zk_version))[topic]
        if isinstance(outcome, ZooKeeperError):
            raise outcome
        return outcome

    async def set_topic_assignments(
        self, wanted: Iterable[TopicIdReplicaAssignment], epoch_zk_version: int | None
    ) -> dict[str, int | ZooKeeperError]:
        """Write many topics' assignments, each only if its znode still has the value's ``zk_version`` (None: any).

        Returns:
            The new version by topic, or BadVersion, NoNode … of that topic alone.

        Raises:
            ControllerMoved: another controller has been elected.
        """
        topics = list(wanted)
        large = {
            each.topic: await beside_loop(TopicZNode.encode, each.topic_id, each.assignment)
            for each in topics
            if len(each.assignment) > MANY
        }
        writes = (
            SetData(
                TopicZNode.path(each.topic),
                large.get(each.topic) or TopicZNode.encode(each.topic_id, each.assignment),
                ANY_VERSION if each.zk_version is None else each.zk_version,
            )
            for each in topics
        )
        outcomes = await write_guarded(self._client, writes, epoch_zk_version)
        return {each.topic: _version(outcome) for each, outcome in zip(topics, outcomes, strict=True)}

    async def delete_topic_znode(self, topic: str, epoch_zk_version: int | None) -> None:
        """Remove a topic's znode and all below it, children first, each guarded; missing znodes are no error.

        Raises:
            ControllerMoved: another controller has been elected.
            NotEmpty: another client keeps creating znodes below it.
        """
        partitions = await self._partitions_below(topic)
        in_order = [
            p(partition) for partition in partitions for p in (TopicPartitionStateZNode.path, TopicPartitionZNode.path)
        ]
        try:
            # In Kafka's order, all at once: ZooKeeper handles a connection's requests in order.
            parents = [TopicPartitionsZNode.path(topic), TopicZNode.path(topic)]
            await self._delete_all([*in_order, *parents], epoch_zk_version)
            return
        except NotEmpty:
            _log.info("Some of a topic's znodes remain; removing them level by level topic=%s", topic)
        for tries_left in reversed(range(DELETE_TRIES)):
            try:
                await self._delete_by_levels(topic, epoch_zk_version)
                return
            except NotEmpty:
                if not tries_left:
                    raise

    async def _delete_by_levels(self, topic: str, epoch_zk_version: int | None) -> None:
        """Finish each level before removing its parents.

        If the connection breaks, requests sent over it may be lost while later ones on the next connection arrive:
        then parents would be removed before their children.
        """
        partitions = await self._partitions_below(topic)
        await self._delete_all(map(TopicPartitionStateZNode.path, partitions), epoch_zk_version)
        await self._delete_all(map(TopicPartitionZNode.path, partitions), epoch_zk_version)
        await self._delete_all([TopicPartitionsZNode.path(topic)], epoch_zk_version)
        await self._delete_all([TopicZNode.path(topic)], epoch_zk_version)

    async def _partitions_below(self, topic: str) -> list[TopicPartition]:
        names = await children_or_empty(self._client, TopicPartitionsZNode.path(topic))
        return sorted(TopicPartition(topic, int(name)) for name in names if name.isdecimal())

    async def _delete_all(self, paths: Iterable[str], epoch_zk_version: int | None) -> None:
        raise_first(await write_guarded(self._client, map(Delete, paths), epoch_zk_version), NoNode)

    async def delete_topic_configs(self, topics: Iterable[str], epoch_zk_version: int | None) -> None:
        """Remove topics' settings, guarded; missing settings are no error."""
        deletes = [Delete(ConfigEntityZNode.path(ConfigType.TOPIC, topic)) for topic in topics]
        raise_first(await write_guarded(self._client, deletes, epoch_zk_version), NoNode)


def _assignment_of(topic: str) -> Decode[TopicIdReplicaAssignment]:
    return lambda data, stat: TopicZNode.decode(topic, data, stat.version)


def _version(outcome: object) -> int | ZooKeeperError:
    if isinstance(outcome, ZooKeeperError):
        return outcome
    return outcome.version if isinstance(outcome, ZnodeStat) else BadVersion("no version in the answer")
