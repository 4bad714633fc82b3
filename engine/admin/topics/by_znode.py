"""Topics as the znodes tell them, as the tools of Kafka up to 2.8 read them. Works with no broker alive.

Reads of one kind are in flight together: assignments, settings and deletion marks first, then the partitions' states.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager

from engine.admin.cluster.observer import Complain, Observer, OnRead, tell_nobody, tell_nobody_how_far
from engine.admin.cluster.zookeeper import children_or_none, get_or_none
from engine.admin.topics.reader import TopicName, topic_min_isrs, topic_name
from engine.common.model import LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.zk.client import ZkClient
from engine.zk.errors import NoNode, ZnodeFormatError, ZooKeeperError
from engine.zk.operations import ZnodeStat
from engine.zk.znodes.admin_znodes import DeleteTopicsTopicZNode, DeleteTopicsZNode
from engine.zk.znodes.broker_znodes import BrokerIdsZNode
from engine.zk.znodes.config_znodes import DEFAULT_ENTITY, ConfigEntityZNode, ConfigType
from engine.zk.znodes.topic_znodes import (
    TopicIdReplicaAssignment,
    TopicPartitionStateZNode,
    TopicsZNode,
    TopicZNode,
)

_Answer = tuple[bytes, ZnodeStat] | ZooKeeperError
_TOPICS_AT_ONCE = 500
"""So many topics' znodes are read before the next ones are asked for: bounds memory, not the requests in flight."""


class ZkTopicReader:
    """Reads topics from znodes.

    Args:
        on_unreadable: is told of topics whose znodes nobody understands, which are left out then. Without it, reading
            one raises ZnodeFormatError.
    """

    def __init__(
        self,
        zk: ZkClient,
        *,
        observe: Observer = tell_nobody,
        on_read: OnRead = tell_nobody_how_far,
        on_unreadable: Complain | None = None,
    ) -> None:
        self._zk = zk
        self._on_unreadable = on_unreadable
        self._observe = observe
        self._on_read = on_read

    async def names(self) -> list[TopicName]:
        names = await children_or_none(self._zk, TopicsZNode.path)
        marked = set(await children_or_none(self._zk, DeleteTopicsZNode.path))
        self._observe(f"ZooKeeper listed {len(names)} topics")
        return [topic_name(name, name in marked) for name in sorted(names)]

    async def topics(self, names: Sequence[str]) -> list[TopicSnapshot]:
        found: list[TopicSnapshot] = []
        ordered = sorted(set(names))
        for start in range(0, len(ordered), _TOPICS_AT_ONCE):
            found += await self._read(ordered[start : start + _TOPICS_AT_ONCE])
            self._on_read(min(start + _TOPICS_AT_ONCE, len(ordered)), len(ordered))
        return found

    async def live_brokers(self) -> frozenset[int]:
        names = await children_or_none(self._zk, BrokerIdsZNode.path)
        return frozenset(int(name) for name in names if name.isdigit())

    async def min_isr(self, topics: Sequence[TopicSnapshot]) -> Mapping[str, int]:
        path = ConfigEntityZNode.path(ConfigType.BROKER, DEFAULT_ENTITY)
        data = await get_or_none(self._zk, path)
        default = None if data is None else ConfigEntityZNode.decode(path, data).get("min.insync.replicas")
        self._observe("min.insync.replicas: the topic's, the cluster's dynamic default, or Kafka's default")
        return topic_min_isrs(topics, default)

    async def _read(self, names: Sequence[str]) -> list[TopicSnapshot]:
        paths = [TopicZNode.path(name) for name in names]
        paths += [ConfigEntityZNode.path(ConfigType.TOPIC, name) for name in names]
        paths += [DeleteTopicsTopicZNode.path(name) for name in names]
        answers = await self._zk.get_many(paths)
        count = len(names)
        there = [
            (name, data_of(topic), answers[count + index], answers[2 * count + index])
            for index, (name, topic) in enumerate(zip(names, answers[:count], strict=True))
            if is_there(topic)
        ]
        decoded: dict[str, TopicIdReplicaAssignment] = {}
        for name, data, _, _ in there:
            with self._unreadable_told():
                decoded[name] = TopicZNode.decode(name, data)
        partitions = [TopicPartition(name, p) for name, topic in decoded.items() for p in topic.assignment]
        states = dict(zip(partitions, await self._zk.get_many(list(map(_state_path, partitions))), strict=True))
        self._observe(f"ZooKeeper told {len(there)} topics with {len(states)} partitions")
        found = []
        for name, _, config, mark in there:
            if name in decoded:
                with self._unreadable_told():
                    found.append(_topic(name, decoded[name], states, config, is_marked=is_there(mark)))
        return found

    @contextmanager
    def _unreadable_told(self) -> Iterator[None]:
        """Tell of a znode that nobody understands and go on, where somebody wants to be told."""
        try:
            yield
        except ZnodeFormatError as error:
            if self._on_unreadable is None:
                raise
            self._on_unreadable(str(error))


async def read_states(
    zk: ZkClient, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, LeaderIsrAndControllerEpoch]:
    """Return the states of partitions; one that has none yet is left out."""
    answers = await zk.get_many(list(map(_state_path, partitions)))
    return {
        partition: _state(partition, answer)
        for partition, answer in zip(partitions, answers, strict=True)
        if is_there(answer)
    }


def is_there(answer: _Answer) -> bool:
    """Whether the znode was read; False where it does not exist. Raises any other error."""
    if isinstance(answer, NoNode):
        return False
    if isinstance(answer, ZooKeeperError):
        raise answer
    return True


def data_of(answer: _Answer) -> bytes:
    if isinstance(answer, ZooKeeperError):
        raise answer
    return answer[0]


def stat_of(answer: _Answer) -> ZnodeStat:
    if isinstance(answer, ZooKeeperError):
        raise answer
    return answer[1]


def _state_path(partition: TopicPartition) -> str:
    return TopicPartitionStateZNode.path(partition)


def _state(partition: TopicPartition, answer: _Answer) -> LeaderIsrAndControllerEpoch:
    return TopicPartitionStateZNode.decode(partition, data_of(answer), stat_of(answer).version)


def _topic(
    name: str,
    topic: TopicIdReplicaAssignment,
    states: Mapping[TopicPartition, _Answer],
    config: _Answer,
    *,
    is_marked: bool,
) -> TopicSnapshot:
    partitions = []
    for index, assignment in topic.assignment.items():
        partition = TopicPartition(name, index)
        answer = states[partition]
        partitions.append(_partition(index, assignment, _state(partition, answer) if is_there(answer) else None))
    return TopicSnapshot(
        name=name,
        partitions=tuple(partitions),
        topic_id=topic.topic_id,
        configs=_configs(name, config),
        is_marked_for_deletion=is_marked,
    )


def _configs(topic: str, answer: _Answer) -> dict[str, str]:
    if not is_there(answer):
        return {}
    return ConfigEntityZNode.decode(ConfigEntityZNode.path(ConfigType.TOPIC, topic), data_of(answer))


def _partition(
    index: int, assignment: ReplicaAssignment, state: LeaderIsrAndControllerEpoch | None
) -> PartitionSnapshot:
    if state is None:
        return PartitionSnapshot(index, assignment)
    leadership = state.leader_and_isr
    return PartitionSnapshot(
        partition=index,
        assignment=assignment,
        leader=leadership.leader,
        isr=leadership.isr,
        leader_epoch=leadership.leader_epoch,
        controller_epoch=state.controller_epoch,
        zk_version=leadership.partition_epoch,
        leader_recovery_state=leadership.leader_recovery_state,
    )
