"""Znodes below ``/admin``, with which tools send requests to the controller. Codecs only."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Final

from engine.common.model import TopicPartition
from engine.kafka.zk.znodes.fields import Fields, encode_json


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
