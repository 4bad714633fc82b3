"""Offsets that consumer groups keep in ZooKeeper: ``/consumers/<group>/offsets/<topic>/<partition>``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from engine.common.errors import CoordinationError
from engine.common.model import TopicPartition
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NodeExists, NoNode, ZooKeeperError
from engine.kafka.zk.operations import Create, Operation, SetData
from engine.kafka.zk.reads import Decode, decoded
from engine.kafka.zk.znode_json import Fields, decode_number, decode_text, encode_json


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


GroupPartition = tuple[str, TopicPartition]


class ConsumerZnodes:
    """Reads and writes of offsets below ``/consumers``."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy) -> None:
        self._client = client
        self._acl = acl_policy.acl

    async def get_consumer_offsets(
        self, wanted: Sequence[GroupPartition]
    ) -> dict[GroupPartition, int | CoordinationError | None]:
        """Return offsets by group and partition; None if there is none, an error if it cannot be read."""
        offsets = await self._client.read_many(
            (ConsumerOffsetZNode.path(group, partition) for group, partition in wanted),
            lambda position, outcome: decoded(outcome, _offset_of(*wanted[position])),
        )
        return dict(zip(wanted, offsets, strict=True))

    async def set_or_create_consumer_offsets(
        self, group: str, offsets: Mapping[TopicPartition, int]
    ) -> dict[TopicPartition, ZooKeeperError | None]:
        """Write a group's offsets, creating missing znodes; return each partition's error, or None."""
        paths = {partition: ConsumerOffsetZNode.path(group, partition) for partition in offsets}
        sets = {p: SetData(paths[p], ConsumerOffsetZNode.encode(offset)) for p, offset in offsets.items()}
        errors = await self._write(sets)
        missing: dict[str, list[TopicPartition]] = {}
        for partition in _failed(errors, NoNode):
            missing.setdefault(partition.topic, []).append(partition)
        creates: dict[TopicPartition, Operation] = {}
        for topic, partitions in missing.items():
            refusal = await self._make_folder(group, topic)
            if refusal is None:
                creates |= {p: Create(paths[p], sets[p].data, acl=self._acl(paths[p])) for p in partitions}
            else:
                errors |= dict.fromkeys(partitions, refusal)
        errors |= await self._write(creates)
        # Another client created these between our two writes.
        return errors | await self._write({p: sets[p] for p in _failed(errors, NodeExists)})

    async def _make_folder(self, group: str, topic: str) -> ZooKeeperError | None:
        path = ConsumerOffsetZNode.parent_path(group, topic)
        try:
            await self._client.ensure_path(path, self._acl(path))
        except ZooKeeperError as refusal:
            return refusal
        return None

    async def _write(self, writes: Mapping[TopicPartition, Operation]) -> dict[TopicPartition, ZooKeeperError | None]:
        outcomes = await self._client.write_many(writes.values())
        errors = (outcome if isinstance(outcome, ZooKeeperError) else None for outcome in outcomes)
        return dict(zip(writes, errors, strict=True))


def is_group_znode_name(group: str) -> bool:
    """Return whether a group id can be the name of a znode."""
    return group not in ("", ".", "..") and "/" not in group and "\0" not in group


def _offset_of(group: str, partition: TopicPartition) -> Decode[int]:
    return lambda data, _: ConsumerOffsetZNode.decode(group, partition, data)


def _failed(errors: Mapping[TopicPartition, ZooKeeperError | None], kind: type[ZooKeeperError]) -> list[TopicPartition]:
    return [partition for partition, error in errors.items() if isinstance(error, kind)]
