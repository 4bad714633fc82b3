"""Znodes of topics and partitions, below ``/brokers/topics``. Codecs only.

Versions of a topic's znode: 1 replicas (up to 2.3), 2 with those a reassignment adds and removes (2.4), 3 with topic id
(2.8).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final

from engine.common.model import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    ReplicaAssignment,
    TopicPartition,
)
from engine.common.topic_id import parse_topic_id, topic_id_text
from engine.kafka.zk.errors import ZnodeFormatError
from engine.kafka.zk.znodes.fields import Fields, encode_json


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


class TopicZNode:
    """A topic: its id, and the brokers that hold each partition. The controller watches its data."""

    @staticmethod
    def path(topic: str) -> str:
        return f"{TopicsZNode.path}/{topic}"

    @staticmethod
    def encode(topic_id: bytes | None, assignment: Mapping[int, ReplicaAssignment]) -> bytes:
        """Return the JSON of version 3, in Kafka 3.9.1's order of keys; partitions in ascending order."""
        ordered = sorted(assignment.items())
        values: dict[str, Any] = {"partitions": {str(p): replicas.replicas for p, replicas in ordered}}
        if topic_id is not None:
            values["topic_id"] = topic_id_text(topic_id)
        values["adding_replicas"] = {str(p): r.adding_replicas for p, r in ordered if r.adding_replicas}
        values["removing_replicas"] = {str(p): r.removing_replicas for p, r in ordered if r.removing_replicas}
        values["version"] = 3
        return encode_json(values)

    @staticmethod
    def decode(topic: str, data: bytes, zk_version: int | None = None) -> TopicIdReplicaAssignment:
        """Read any version; fields that a version lacks are empty or None."""
        fields = Fields.parse(TopicZNode.path(topic), data)
        partitions = fields.child("partitions")
        adding, removing = fields.optional_child("adding_replicas"), fields.optional_child("removing_replicas")
        assignment = {}
        for key in sorted(partitions.values, key=lambda text: _partition_id(fields.path, text)):
            assignment[_partition_id(fields.path, key)] = ReplicaAssignment(
                partitions.integers(key),
                adding.integers(key) if key in adding else (),
                removing.integers(key) if key in removing else (),
            )
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
