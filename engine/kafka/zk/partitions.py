"""Partition states in ZooKeeper: reads and writes thousands of leaders, ISRs and epochs."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Generic, TypeVar

from engine.common.errors import CoordinationError
from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicPartition
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.controller import WriteOutcome, raise_first, write_guarded
from engine.kafka.zk.errors import BadVersion, NodeExists, NoNode, ZooKeeperError
from engine.kafka.zk.operations import Create, SetData, ZnodeStat
from engine.kafka.zk.reads import Decode, children_or_empty, decoded
from engine.kafka.zk.topics import TopicPartitionStateZNode, TopicPartitionsZNode, TopicPartitionZNode

T = TypeVar("T")

PartitionStateRead = LeaderIsrAndControllerEpoch | CoordinationError | None
"""A partition's state; None if it has none; an error if it cannot be read or decoded."""


@dataclass(slots=True)
class PartitionStateUpdates:
    """Outcomes of conditional writes of state znodes."""

    updated: dict[TopicPartition, LeaderAndIsr] = field(default_factory=dict)
    """Written; ``partition_epoch`` is the znode's new version."""
    failed: dict[TopicPartition, CoordinationError] = field(default_factory=dict)
    """Refused for a reason other than the version, mostly NoNode."""
    to_retry: list[TopicPartition] = field(default_factory=list)
    """Another broker wrote first: read again and decide again."""


@dataclass(frozen=True, slots=True)
class Notifications(Generic[T]):
    """Notices in order: the znodes' names, their contents without repeats, and the names of empty ones."""

    names: tuple[str, ...]
    values: tuple[T, ...]
    malformed: tuple[str, ...] = ()


class PartitionZnodes:
    """Reads and writes of ``/brokers/topics/<topic>/partitions`` and below."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy) -> None:
        self._client = client
        self._acl = acl_policy.acl

    async def get_partition_states(
        self, partitions: Sequence[TopicPartition]
    ) -> dict[TopicPartition, PartitionStateRead]:
        """Return the states of partitions; ``partition_epoch`` is each znode's version."""
        states = await self._client.read_many(
            map(TopicPartitionStateZNode.path, partitions),
            lambda position, outcome: decoded(outcome, _state_of(partitions[position])),
        )
        return dict(zip(partitions, states, strict=True))

    async def get_partition_ids(self, topic: str) -> set[int]:
        """Return the partitions of a topic that have their own znode; none if the topic has no such folder."""
        names = await children_or_empty(self._client, TopicPartitionsZNode.path(topic))
        return {int(name) for name in names if name.isdecimal()}

    async def create_partition_states(
        self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch], epoch_zk_version: int | None
    ) -> dict[TopicPartition, CoordinationError | None]:
        """Create ``partitions``, then each ``partitions/<p>``, then each ``…/state``, all guarded, in Kafka's order.

        Returns:
            None for a state that was created, NodeExists for one that already existed.

        Raises:
            ControllerMoved: another controller has been elected.
        """
        folders = [TopicPartitionsZNode.path(topic) for topic in dict.fromkeys(tp.topic for tp in states)]
        raise_first(await self._create(folders, epoch_zk_version), NodeExists, NoNode)
        raise_first(
            await self._create([TopicPartitionZNode.path(tp) for tp in states], epoch_zk_version), NodeExists, NoNode
        )
        creates = (self._create_state(partition, state) for partition, state in states.items())
        outcomes = await write_guarded(self._client, creates, epoch_zk_version)
        return {
            partition: outcome if isinstance(outcome, ZooKeeperError) else None
            for partition, outcome in zip(states, outcomes, strict=True)
        }

    def _create_state(self, partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> Create:
        path = TopicPartitionStateZNode.path(partition)
        return Create(path, TopicPartitionStateZNode.encode(state), acl=self._acl(path))

    async def _create(self, paths: Sequence[str], epoch_zk_version: int | None) -> list[WriteOutcome]:
        creates = (Create(path, acl=self._acl(path)) for path in paths)
        return await write_guarded(self._client, creates, epoch_zk_version)

    async def update_partition_states(
        self, states: Mapping[TopicPartition, LeaderAndIsr], controller_epoch: int, epoch_zk_version: int | None
    ) -> PartitionStateUpdates:
        """Write each state if its znode's version is still the value's ``partition_epoch``; guarded.

        Raises:
            ControllerMoved: another controller has been elected.
        """
        writes = (
            SetData(
                TopicPartitionStateZNode.path(partition),
                TopicPartitionStateZNode.encode(LeaderIsrAndControllerEpoch(state, controller_epoch)),
                state.partition_epoch,
            )
            for partition, state in states.items()
        )
        updates = PartitionStateUpdates()
        outcomes = await write_guarded(self._client, writes, epoch_zk_version)
        for (partition, state), outcome in zip(states.items(), outcomes, strict=True):
            if isinstance(outcome, BadVersion):
                updates.to_retry.append(partition)
            elif isinstance(outcome, ZooKeeperError):
                updates.failed[partition] = outcome
            elif isinstance(outcome, ZnodeStat):
                updates.updated[partition] = replace(state, partition_epoch=outcome.version)
        return updates

    async def write_partition_state(self, partition: TopicPartition, state: LeaderIsrAndControllerEpoch) -> int | None:
        """Write one state as its leader does before IBP 2.7-IV2: only if the version matches, unguarded.

        Returns:
            The znode's new version, or None if its version was not ``partition_epoch`` or it is gone.
        """
        path, data = TopicPartitionStateZNode.path(partition), TopicPartitionStateZNode.encode(state)
        try:
            return (await self._client.set(path, data, state.leader_and_isr.partition_epoch)).version
        except (BadVersion, NoNode):
            return None


def _state_of(partition: TopicPartition) -> Decode[LeaderIsrAndControllerEpoch]:
    return lambda data, stat: TopicPartitionStateZNode.decode(partition, data, stat.version)
