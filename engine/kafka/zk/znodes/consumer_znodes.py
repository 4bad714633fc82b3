"""Znodes of consumers that keep their group in ZooKeeper (as all did before 0.9): ``/consumers``. Codecs only."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from engine.common.model import TopicPartition
from engine.kafka.zk.znodes.fields import Fields, decode_number, decode_text, encode_json


class ConsumerPathZNode:
    """Parent of all groups."""

    path: Final = "/consumers"

    @staticmethod
    def group_path(group: str) -> str:
        return f"/consumers/{group}"


@dataclass(frozen=True, slots=True)
class ConsumerSubscription:
    """What a member reads: topics, or a pattern, with the number of streams; ``pattern`` says which."""

    subscription: Mapping[str, int]
    pattern: str
    timestamp_ms: int


class ConsumerIdZNode:
    """A member of a group; ephemeral."""

    @staticmethod
    def parent_path(group: str) -> str:
        return f"{ConsumerPathZNode.group_path(group)}/ids"

    @staticmethod
    def path(group: str, consumer_id: str) -> str:
        return f"{ConsumerIdZNode.parent_path(group)}/{consumer_id}"

    @staticmethod
    def encode(subscription: ConsumerSubscription) -> bytes:
        return encode_json(
            {
                "version": 1,
                "subscription": dict(subscription.subscription),
                "pattern": subscription.pattern,
                "timestamp": str(subscription.timestamp_ms),
            }
        )

    @staticmethod
    def decode(group: str, consumer_id: str, data: bytes) -> ConsumerSubscription:
        fields = Fields.parse(ConsumerIdZNode.path(group, consumer_id), data)
        streams = fields.child("subscription")
        return ConsumerSubscription(
            {topic: streams.integer(topic) for topic in streams.values},
            fields.text("pattern"),
            fields.number_in_text("timestamp") if "timestamp" in fields else -1,
        )


class ConsumerOwnerZNode:
    """Which stream of which member reads a partition: ``<consumer id>-<stream>``; ephemeral."""

    @staticmethod
    def parent_path(group: str, topic: str) -> str:
        return f"{ConsumerPathZNode.group_path(group)}/owners/{topic}"

    @staticmethod
    def path(group: str, partition: TopicPartition) -> str:
        return f"{ConsumerOwnerZNode.parent_path(group, partition.topic)}/{partition.partition}"

    @staticmethod
    def encode(owner: str) -> bytes:
        return owner.encode("utf-8")

    @staticmethod
    def decode(group: str, partition: TopicPartition, data: bytes) -> str:
        return decode_text(ConsumerOwnerZNode.path(group, partition), data)


class ConsumerOffsetZNode:
    """The offset that a group reads next in a partition."""

    @staticmethod
    def parent_path(group: str, topic: str) -> str:
        return f"{ConsumerPathZNode.group_path(group)}/offsets/{topic}"

    @staticmethod
    def path(group: str, partition: TopicPartition) -> str:
        return f"{ConsumerOffsetZNode.parent_path(group, partition.topic)}/{partition.partition}"

    @staticmethod
    def encode(offset: int) -> bytes:
        return b"%d" % offset

    @staticmethod
    def decode(group: str, partition: TopicPartition, data: bytes) -> int:
        return decode_number(ConsumerOffsetZNode.path(group, partition), data)
