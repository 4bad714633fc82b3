"""Topics through the znodes: read and changed as the tools of Kafka up to 2.8 did. Reading needs no live broker.

Reads of one kind are in flight together: assignments, settings and deletion marks first, then the partitions' states.
This checks changes as a broker would, with Kafka's texts, because nothing checks them afterwards. A topic is created
without an id; the controller of a cluster with topic ids assigns one. Each change waits until the controller has
carried it out, within the caller's deadline.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Iterator, Mapping, Sequence
from contextlib import contextmanager

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, BadRequest, Refused
from engine.admin.cluster.remedies import USE_BROKERS, Do, Operation, Parameter, Phrase
from engine.admin.cluster.waits import Complain, Observer, OnRead, ignore_line, ignore_progress
from engine.admin.cluster.zookeeper import read_brokers
from engine.admin.configs.by_znode import check_topic_configs, topic_configs_after
from engine.admin.topics.changes import (
    NewTopic,
    ReplicaLists,
    TopicAlteration,
    TopicChange,
    TopicOutcome,
    check_brokers,
    marked_or_gone,
)
from engine.admin.topics.deletion import refused_while_marked, wait_until_gone
from engine.admin.topics.selection import select_topics, topic_not_found
from engine.admin.topics.values import TopicName, min_isr_in, topic_min_isrs, topic_name
from engine.common.assignment import RackAwareMode, assign_replicas, start_index_of_added_partitions, usable_racks
from engine.common.errors import CoordinationError, ErrorCode, KafkaError
from engine.common.model import NO_LEADER, ReplicaAssignment, TopicPartition
from engine.common.quantities import counted
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.common.topic_names import INTERNAL_TOPICS, colliding
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.configs import DEFAULT_ENTITY, ConfigType
from engine.kafka.zk.errors import NodeExists, ZnodeFormatError
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.operations import ANY_VERSION
from engine.kafka.zk.partitions import PartitionStateRead
from engine.kafka.zk.reads import or_raise
from engine.kafka.zk.topics import TopicIdReplicaAssignment

_TOPICS_AT_ONCE = 500
"""This many topics' znodes are read before the next ones are asked for: bounds memory, not the requests in flight."""


class ZkTopicReader:
    """Reads topics from znodes.

    Args:
        on_unreadable: called with topics whose znodes are unreadable; they are then left out. Without it, reading
            one raises ZnodeFormatError.
        on_unknown_settings: called with settings that are unreadable, if ``on_unreadable`` is not; they are None then.
    """

    def __init__(
        self,
        zk: ZkClient,
        *,
        observe: Observer = ignore_line,
        on_read: OnRead = ignore_progress,
        on_unreadable: Complain | None = None,
        on_unknown_settings: Complain | None = None,
    ) -> None:
        self._kafka = KafkaZkClient(zk)
        self._on_unreadable = on_unreadable
        self._on_unknown_settings = on_unreadable or on_unknown_settings
        self._observe = observe
        self._on_read = on_read

    async def names(self) -> list[TopicName]:
        names = await self._kafka.topics.get_all_topics()
        marked = set(await self._kafka.admin.get_topic_deletions())
        self._observe(f"ZooKeeper listed {counted(len(names), 'topic')}")
        return [topic_name(name, name in marked) for name in names]

    async def shapes(self, names: Sequence[str]) -> Mapping[str, tuple[int, int]]:
        shapes = {}
        for name, read in (await self._kafka.topics.read_topics(names)).items():
            with _unreadable_skipped(self._on_unreadable):
                assignment = None if read is None else list(or_raise(read).by_partition().values())
                if assignment:
                    shapes[name] = (len(assignment), len(assignment[0].replicas))
        return shapes

    async def topics(self, names: Sequence[str]) -> list[TopicSnapshot]:
        topics: list[TopicSnapshot] = []
        ordered = sorted(set(names))
        for start in range(0, len(ordered), _TOPICS_AT_ONCE):
            topics += await self._read(ordered[start : start + _TOPICS_AT_ONCE])
            self._on_read(min(start + _TOPICS_AT_ONCE, len(ordered)), len(ordered))
        return topics

    async def live_brokers(self) -> frozenset[int]:
        return frozenset(await self._kafka.brokers.get_broker_ids())

    async def min_isr(self, topics: Sequence[TopicSnapshot]) -> Mapping[str, int]:
        defaults = await self._kafka.configs.get_entity_configs(f"{ConfigType.BROKER.value}/{DEFAULT_ENTITY}")
        self._observe("min.insync.replicas: the topic's, the cluster's dynamic default, or Kafka's default")
        return topic_min_isrs(topics, min_isr_in(defaults))

    async def _read(self, names: Sequence[str]) -> list[TopicSnapshot]:
        reads, configs, marked = await asyncio.gather(
            self._kafka.topics.read_topics(names),
            self._kafka.configs.get_topic_configs(names),
            self._kafka.admin.get_topic_deletions(),
        )
        existing = {name: read for name, read in reads.items() if read is not None}
        topics: list[TopicIdReplicaAssignment] = []
        for read in existing.values():
            with _unreadable_skipped(self._on_unreadable):
                topics.append(or_raise(read))
        states = await self._kafka.partitions.get_partition_states(
            [name for topic in topics for name in topic.by_partition()]
        )
        self._observe(f"ZooKeeper reported {counted(len(existing), 'topic')} with {counted(len(states), 'partition')}")
        readable = []
        for topic in topics:
            with _unreadable_skipped(self._on_unreadable):
                settings = self._settings(configs[topic.topic])
                readable.append(_topic(topic, states, settings, is_marked=topic.topic in marked))
        return readable

    def _settings(self, read: Mapping[str, str] | CoordinationError) -> Mapping[str, str] | None:
        """Return a topic's settings; None if they cannot be understood: the rest of it can."""
        with _unreadable_skipped(self._on_unknown_settings):
            return or_raise(read)
        return None


@contextmanager
def _unreadable_skipped(tell: Complain | None) -> Iterator[None]:
    """Report an unreadable znode and continue; without a callback, raise its error."""
    try:
        yield
    except ZnodeFormatError as error:
        if tell is None:
            raise
        tell(str(error))


def _topic(
    topic: TopicIdReplicaAssignment,
    states: Mapping[TopicPartition, PartitionStateRead],
    configs: Mapping[str, str] | None,
    *,
    is_marked: bool,
) -> TopicSnapshot:
    return TopicSnapshot(
        name=topic.topic,
        partitions=tuple(
            _partition(name.partition, assignment, states[name]) for name, assignment in topic.by_partition().items()
        ),
        topic_id=topic.topic_id,
        configs=configs,
        is_marked_for_deletion=is_marked,
    )


def _partition(index: int, assignment: ReplicaAssignment, read: PartitionStateRead) -> PartitionSnapshot:
    if read is None:
        return PartitionSnapshot(index, assignment)
    state = or_raise(read)
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


POLL_PAUSE_S = 0.05

_WAITING_SHARE = 0.8
"""The share of an operation's time for a deletion, so that there is time left to say what it waits for."""


class ZkTopicChanger:
    """Changes topics by writing znodes."""

    def __init__(self, cluster: Cluster, zk: ZkClient, *, is_rack_aware: bool = True) -> None:
        self._cluster = cluster
        self._zk = zk
        self._kafka = KafkaZkClient(zk)
        self._racks = RackAwareMode.ENFORCED if is_rack_aware else RackAwareMode.DISABLED

    async def exists(self, name: str, *, if_exists: bool) -> bool:
        if await self._kafka.topics.topic_exists(name):
            return True
        if if_exists:
            return False
        raise topic_not_found([name])

    async def create(self, topic: NewTopic, *, if_not_exists: bool = False, validate_only: bool = False) -> TopicChange:
        await self._check_unmarked(topic.name)
        if await self._kafka.topics.topic_exists(topic.name):
            if if_not_exists:
                return TopicChange(topic.name, TopicOutcome.EXISTS)
            raise _refused(topic.name, ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{topic.name}' already exists")
        await self._check_name(topic.name)
        check_topic_configs(topic.configs)
        assignment = await self._assignment(topic)
        change = TopicChange(
            topic.name,
            TopicOutcome.WOULD_BE_CREATED if validate_only else TopicOutcome.CREATED,
            partition_count=len(assignment),
            replication_factor=len(assignment[0].replicas),
        )
        self._cluster.observe(f"assignment: {_shown(assignment)}")
        if validate_only:
            return change
        has_controller = await self._kafka.controller.controller_exists()
        # Said before the write: a write stays written even if its answer never arrives.
        look = Do(Operation.DESCRIBE_TOPIC, topic.name)
        self._cluster.accepted(Phrase("the controller creates the topic: ", look))
        await self._kafka.configs.set_entity_configs(
            f"topics/{topic.name}", topic.configs, check_controller=has_controller
        )
        try:
            await self._kafka.topics.create_topic_assignment(topic.name, None, assignment)
        except NodeExists as error:
            message = f"Topic '{topic.name}' already exists"
            raise _refused(topic.name, ErrorCode.TOPIC_ALREADY_EXISTS, message) from error
        await self._wait_for_leaders(topic.name, list(assignment))
        return change

    async def alter(self, wanted: TopicAlteration, *, validate_only: bool = False) -> TopicChange:
        if not validate_only:
            self._cluster.check_may_change()
        configs: Mapping[str, str] | None = None
        if wanted.changes_configs:
            configs = await topic_configs_after(self._kafka, wanted.name, wanted.additions, wanted.deletions)
        if wanted.partition_count is not None:
            await self._add_partitions(wanted, validate_only=validate_only)
        if configs is not None and not validate_only:
            has_controller = await self._kafka.controller.controller_exists()
            path = f"topics/{wanted.name}"
            await self._kafka.configs.change_entity_configs(path, configs, check_controller=has_controller)
        outcome = TopicOutcome.WOULD_BE_ALTERED if validate_only else TopicOutcome.ALTERED
        return TopicChange(wanted.name, outcome, partition_count=wanted.partition_count)

    async def to_be_deleted(self, texts: Sequence[str], *, if_exists: bool) -> list[str]:
        selection = select_topics(texts)
        known = await self._kafka.topics.get_all_topics()
        missing = selection.unmatched(known)
        if missing and not if_exists:
            raise topic_not_found(missing, known)
        internal = [name for name in selection.names if name in INTERNAL_TOPICS]
        if internal:
            message = f"topic {internal[0]} is a kafka internal topic and is not allowed to be marked for deletion"
            raise BadRequest(message, hint=Phrase("it can be deleted over the wire: ", USE_BROKERS))
        return [name for name in selection.choose(known) if name not in INTERNAL_TOPICS]

    async def delete(self, names: Sequence[str], *, waits: bool) -> tuple[list[TopicChange], Sequence[AdminError]]:
        replicas = await self._replicas_of(names)
        for number, name in enumerate(names):
            try:
                await self._kafka.admin.create_topic_deletion(name)
            except NodeExists:
                self._cluster.observe(f"topic {name} is already marked for deletion")
            if number == 0:
                goes_on = Phrase("the controller deletes what is marked; check with: ", Operation.LIST_TOPICS)
                self._cluster.accepted(goes_on)
        limit_s = self._cluster.timeout_s * _WAITING_SHARE if waits else 0.0
        left = await wait_until_gone(names, replicas, self._left_of, self._live_brokers, limit_s)
        return [marked_or_gone(TopicChange(name, TopicOutcome.DELETED), left) for name in names], []

    async def _left_of(self, names: Sequence[str]) -> Collection[str]:
        """Return which topics are marked or exist: the controller removes the topic first, and its mark last."""
        marked = set(await self._kafka.admin.get_topic_deletions())
        exist = await asyncio.gather(*map(self._kafka.topics.topic_exists, names))
        return [name for name, is_there in zip(names, exist, strict=True) if is_there or name in marked]

    async def _replicas_of(self, names: Sequence[str]) -> dict[str, frozenset[int]]:
        """Return the brokers that hold replicas of each topic, as far as its znode can be read."""
        assignments = (await self._kafka.topics.read_topics(names)).values()
        return {
            assignment.topic: frozenset(
                broker for partition in assignment.by_partition().values() for broker in partition.replicas
            )
            for assignment in assignments
            if isinstance(assignment, TopicIdReplicaAssignment)
        }

    async def _live_brokers(self) -> frozenset[int]:
        return frozenset(await self._kafka.brokers.get_broker_ids())

    async def _check_unmarked(self, name: str) -> None:
        if await self._kafka.admin.is_topic_marked_for_deletion(name):
            replicas = (await self._replicas_of([name])).get(name, frozenset())
            raise refused_while_marked(name, sorted(replicas - await self._live_brokers()))

    async def _check_name(self, name: str) -> None:
        others = colliding(name, await self._kafka.topics.get_all_topics())
        if others:
            message = f"Topic '{name}' collides with existing topics: {', '.join(others)}"
            raise _refused(name, ErrorCode.INVALID_TOPIC_EXCEPTION, message)

    async def _assignment(self, topic: NewTopic) -> dict[int, ReplicaAssignment]:
        if topic.assignment:
            check_brokers(topic.assignment, [registration.broker.id for registration in await read_brokers(self._zk)])
            return {p: ReplicaAssignment(replicas) for p, replicas in enumerate(topic.assignment)}
        if topic.partition_count is None or topic.replication_factor is None:
            message = Phrase(Parameter.PARTITIONS, " and ", Parameter.REPLICATION_FACTOR, " are needed")
            hint = Phrase("the cluster's defaults are not in ZooKeeper: give both, or ", USE_BROKERS)
            raise BadRequest(message, hint=hint)
        brokers = await self._brokers()
        chosen = _assigned(topic.name, brokers, topic.partition_count, topic.replication_factor)
        return {p: ReplicaAssignment(replicas) for p, replicas in chosen.items()}

    async def _brokers(self) -> dict[int, str | None]:
        racks = {registration.broker.id: registration.broker.rack for registration in await read_brokers(self._zk)}
        try:
            return usable_racks(racks, self._racks)
        except KafkaError as error:
            raise Refused(error.code, error.message) from error

    async def _add_partitions(self, wanted: TopicAlteration, *, validate_only: bool) -> None:
        existing = (await self._kafka.topics.get_topic_assignments([wanted.name])).get(wanted.name)
        if existing is None:
            raise topic_not_found([wanted.name])
        count, present = wanted.partition_count or 0, len(existing.assignment)
        _check_increase(wanted.name, existing, count)
        new = await self._new_partitions(wanted, existing)
        self._cluster.observe(f"assignment of the new partitions: {_shown(new)}")
        if validate_only:
            return
        look = Do(Operation.DESCRIBE_TOPIC, wanted.name)
        self._cluster.accepted(Phrase("the controller creates the partitions: ", look))
        expected = ANY_VERSION if existing.zk_version is None else existing.zk_version
        await self._kafka.topics.set_topic_assignment(
            wanted.name, existing.topic_id, {**existing.assignment, **new}, zk_version=expected
        )
        await self._wait_for_leaders(wanted.name, list(range(present, count)))

    async def _new_partitions(
        self, wanted: TopicAlteration, present_assignment: TopicIdReplicaAssignment
    ) -> dict[int, ReplicaAssignment]:
        present, first = len(present_assignment.assignment), present_assignment.assignment[0].replicas
        by_hand = wanted.assignment_after(present)
        brokers = await self._brokers()
        if by_hand is not None:
            _check_by_hand(by_hand, len(first), brokers)
            return {present + index: ReplicaAssignment(replicas) for index, replicas in enumerate(by_hand)}
        start = start_index_of_added_partitions(sorted(brokers), first[0])
        added = (wanted.partition_count or 0) - present
        chosen = _assigned(wanted.name, brokers, added, len(first), start_index=start, start_partition=present)
        return {p: ReplicaAssignment(replicas) for p, replicas in chosen.items()}

    async def _wait_for_leaders(self, topic: str, partitions: Sequence[int]) -> None:
        waiting = [TopicPartition(topic, partition) for partition in partitions]
        while waiting:
            reads = await self._kafka.partitions.get_partition_states(waiting)
            states = {partition: or_raise(read) for partition, read in reads.items() if read is not None}
            # A partition with only dead brokers gets a state without a leader: there is nothing to wait for.
            waiting = [partition for partition in waiting if partition not in states]
            leaderless = [p for p, state in states.items() if state.leader_and_isr.leader == NO_LEADER]
            if leaderless:
                self._cluster.observe(f"no live replica: {', '.join(map(str, leaderless))}")
            if waiting:
                await asyncio.sleep(POLL_PAUSE_S)


def _assigned(
    topic: str,
    brokers: Mapping[int, str | None],
    partition_count: int,
    replication_factor: int,
    *,
    start_index: int | None = None,
    start_partition: int = 0,
) -> dict[int, tuple[int, ...]]:
    try:
        return assign_replicas(
            brokers,
            partition_count,
            replication_factor,
            fixed_start_index=start_index,
            start_partition_id=start_partition,
        )
    except KafkaError as error:
        raise _refused(topic, error.code, error.message or error.code.name) from error


def _check_increase(topic: str, existing: TopicIdReplicaAssignment, count: int) -> None:
    present = len(existing.assignment)
    if topic in INTERNAL_TOPICS:
        message = f"The number of partitions for the internal topic {topic} cannot be changed."
        raise _refused(topic, ErrorCode.INVALID_PARTITIONS, message)
    if any(assignment.is_being_reassigned for assignment in existing.assignment.values()):
        message = f"A partition reassignment is in progress for the topic '{topic}'."
        raise _refused(topic, ErrorCode.REASSIGNMENT_IN_PROGRESS, message)
    if 0 not in existing.assignment:
        raise _refused(topic, ErrorCode.INVALID_PARTITIONS, f"Topic '{topic}' has no partition 0.")
    if count == present:
        raise _refused(topic, ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partitions.")
    if count < present:
        message = f"Topic currently has {present} partitions, which is higher than the requested {count}."
        raise _refused(topic, ErrorCode.INVALID_PARTITIONS, message)


def _check_by_hand(assignment: ReplicaLists, replication_factor: int, brokers: Mapping[int, str | None]) -> None:
    check_brokers(assignment, brokers)
    if any(len(replicas) != replication_factor for replicas in assignment):
        message = f"every partition of this topic has {counted(replication_factor, 'replica')}"
        raise BadRequest(message, where=Parameter.REPLICA_ASSIGNMENT)


def _refused(topic: str, code: ErrorCode, message: str) -> Refused:
    return Refused(code, message, where=f"topic {topic}")


def _shown(assignment: Mapping[int, ReplicaAssignment]) -> str:
    return ", ".join(f"{p}: {':'.join(map(str, a.replicas))}" for p, a in sorted(assignment.items()))
