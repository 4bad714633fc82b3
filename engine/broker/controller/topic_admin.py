"""Creates topics, grows them and marks them for deletion, for CreateTopics, CreatePartitions, DeleteTopics and
auto-creation. It writes znodes; the controller, wherever it is, sees them and acts.

Checks and their texts are those of ZkAdminManager and AdminZkClient of Kafka 3.9. Errors are KafkaErrors.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Awaitable, Callable, Collection, Iterable, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from dataclasses import dataclass, field
from itertools import islice
from operator import le

from engine.broker.replication.metadata_cache import MetadataCache
from engine.common.assignment import (
    Assignment,
    Draw,
    FromZero,
    RackAwareMode,
    assign_replicas,
    start_index_of_added_partitions,
    usable_racks,
)
from engine.common.errors import ConfigError, CoordinationError, ErrorCode, KafkaError
from engine.common.model import ReplicaAssignment
from engine.common.topic_id import random_topic_id
from engine.common.topic_names import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    check_topic_name,
    colliding,
    has_collision_chars,
)
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.metadata_version import is_topic_id_supported
from engine.kafka.config.topic_config_values import validate_topic_config
from engine.kafka.zk.errors import BadVersion, ControllerMoved, NodeExists, TooLarge
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.operations import ANY_VERSION
from engine.kafka.zk.topics import TopicIdReplicaAssignment, TopicZNode
from engine.runtime.offload import MANY, beside_loop_if_many
from engine.runtime.room import ask_others, waiting_for_others


class MetadataWaiter:
    """Checks conditions after each UpdateMetadata request; costs nothing while no caller waits."""

    def __init__(self, metadata_cache: MetadataCache, *, keeps_all: bool = False) -> None:
        """``keeps_all``: a large request that waits keeps an object for each of its elements."""
        self._metadata_cache, self._keeps_all = metadata_cache, keeps_all
        self._waiting: dict[asyncio.Future[bool], Callable[[], bool]] = {}

    def __len__(self) -> int:
        """Return how many callers wait."""
        return len(self._waiting)

    async def wait(self, is_seen: Callable[[], bool], timeout_ms: int) -> bool:
        """Wait until ``is_seen``; False if that took longer than ``timeout_ms``, or large requests that wait keep too
        much memory.
        """
        if is_seen():
            return True
        if timeout_ms <= 0:
            return False
        future: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

        def end() -> None:
            if not future.done():
                future.set_result(False)

        if not self._waiting:
            self._metadata_cache.update_listeners.append(self._updated)
        self._waiting[future] = is_seen
        try:
            with waiting_for_others(end, keeps_all=self._keeps_all):
                async with asyncio.timeout(timeout_ms / 1000):
                    return await future or is_seen()
        except TimeoutError:
            return is_seen()
        finally:
            del self._waiting[future]
            if not self._waiting:
                self._metadata_cache.update_listeners.remove(self._updated)

    def _updated(self) -> None:
        for future, is_seen in self._waiting.items():
            if not future.done() and is_seen():
                future.set_result(True)


@dataclass(frozen=True, slots=True)
class InternalTopic:
    """The settings of an internal topic, whichever client asks for it first."""

    num_partitions: int
    replication_factor: int
    configs: Mapping[str, str]


def internal_topic(name: str, config: BrokerConfig) -> InternalTopic | None:
    """Return the settings to create the topic with; None if it is not internal."""
    if name == GROUP_METADATA_TOPIC:
        return InternalTopic(
            config.offsets_topic_num_partitions,
            config.offsets_topic_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "producer",
                "segment.bytes": str(config.offsets_topic_segment_bytes),
            },
        )
    if name == TRANSACTION_STATE_TOPIC:
        return InternalTopic(
            config.transaction_state_log_num_partitions,
            config.transaction_state_log_replication_factor,
            {
                "cleanup.policy": "compact",
                "compression.type": "uncompressed",
                "min.insync.replicas": str(config.transaction_state_log_min_isr),
                "segment.bytes": str(config.transaction_state_log_segment_bytes),
                "unclean.leader.election.enable": "false",
            },
        )
    return None


logger = logging.getLogger("kafka.server.ZkAdminManager")

PARTITIONS_TOLD_MAX = 1_000
"""A log line names at most this many partitions."""

BROKER_DEFAULT = -1
"""The number of partitions, or replication factor, that means the broker's default."""


Allow = Callable[[int], None]
"""Counts partitions that are about to be made, and raises where they must not be."""


def _allow_all(partitions: int) -> None:
    """No client has a quota."""


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A requested topic. ``assignments``: replicas by partition; with them the two numbers stay BROKER_DEFAULT."""

    name: str
    num_partitions: int = BROKER_DEFAULT
    replication_factor: int = BROKER_DEFAULT
    assignments: Assignment = field(default_factory=dict)
    configs: dict[str, str | None] = field(default_factory=dict)

    @property
    def has_numbers(self) -> bool:
        """Whether one of the two numbers is given."""
        return (self.num_partitions, self.replication_factor) != (BROKER_DEFAULT, BROKER_DEFAULT)


@dataclass(frozen=True, slots=True)
class CreatedTopic:
    """A topic whose znodes have been (or would be) written. ``topic_id`` is None before IBP 2.8."""

    name: str
    assignment: Assignment
    topic_id: bytes | None
    overrides: Mapping[str, str]


class TopicAdmin:
    """Writes topics' znodes on behalf of clients."""

    def __init__(
        self,
        zk: KafkaZkClient,
        metadata_cache: MetadataCache,
        config: Callable[[], BrokerConfig],
        *,
        draw: Draw = random.randrange,
    ) -> None:
        self._zk = zk
        self._metadata_cache = metadata_cache
        self._config = config
        self._draw = draw
        self._waiter = MetadataWaiter(metadata_cache)
        self._making_many = asyncio.Lock()
        self.elections = MetadataWaiter(metadata_cache, keeps_all=True)
        """Requests that wait for new leaders."""

    # Create

    async def create_topic(
        self, wanted: NewTopic, *, validate_only: bool = False, allow: Allow = _allow_all
    ) -> CreatedTopic:
        """Check a topic and write its settings and its assignment, if ``allow`` lets this many partitions pass.

        Raises:
            KafkaError: it cannot be created, in Kafka's words; or what ``allow`` raises.
        """
        if wanted.name in self._metadata_cache.topics:
            raise _exists(wanted.name)
        count = len(wanted.assignments) or self._partitions_of(wanted)
        async with self._turn_of(count):
            return await self._create_topic(wanted, count, validate_only, allow)

    def _turn_of(self, count: int) -> AbstractAsyncContextManager[None]:
        """Return what waits until nobody else makes very many partitions: their requests may be small, and count
        nowhere.
        """
        return self._making_many if count > MANY else nullcontext()

    async def _create_topic(self, wanted: NewTopic, count: int, validate_only: bool, allow: Allow) -> CreatedTopic:
        overrides = _checked_nulls(wanted.configs)
        racks = {b: info.rack for b, info in self._metadata_cache.alive_brokers.items()}
        assignment = await beside_loop_if_many(count, self._assignment_of, wanted, racks)
        ask_others()
        try:
            await self._check_new(wanted.name, assignment)
            self._check_configs(overrides)
            has_id = is_topic_id_supported(self._config().inter_broker_protocol_version)
            topic_id = random_topic_id() if has_id else None
            if not validate_only:
                allow(len(assignment))
                await self._write_new(wanted.name, topic_id, overrides, assignment)
        except CoordinationError as error:
            raise _coordination(error) from error
        return CreatedTopic(wanted.name, assignment, topic_id, overrides)

    def _assignment_of(self, wanted: NewTopic, racks: Mapping[int, str | None]) -> Assignment:
        if wanted.assignments:
            if wanted.has_numbers:
                raise KafkaError(
                    ErrorCode.INVALID_REQUEST,
                    "Both numPartitions or replicationFactor and replicasAssignments were set. "
                    "Both cannot be used at the same time.",
                )
            if all(map(le, wanted.assignments, islice(wanted.assignments, 1, None))):
                return wanted.assignments
            return {partition: wanted.assignments[partition] for partition in sorted(wanted.assignments)}
        config = self._config()
        factor = wanted.replication_factor
        if factor == BROKER_DEFAULT:
            factor = config.default_replication_factor
        return assign_replicas(racks, self._partitions_of(wanted), factor, draw=self._draw)

    def _partitions_of(self, wanted: NewTopic) -> int:
        config = self._config()
        return config.num_partitions if wanted.num_partitions == BROKER_DEFAULT else wanted.num_partitions

    async def _check_new(self, name: str, assignment: Assignment) -> None:
        check_topic_name(name)
        if await self._zk.admin.is_topic_marked_for_deletion(name):
            raise KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' is marked for deletion.")
        if await self._zk.topics.topic_exists(name):
            raise _exists(name)
        if has_collision_chars(name):
            topics = await self._zk.topics.get_all_topics()
            if name in topics:
                raise _exists(name)
            others = colliding(name, topics)
            if others:
                raise KafkaError(
                    ErrorCode.INVALID_TOPIC_EXCEPTION,
                    f"Topic '{name}' collides with existing topics: {', '.join(others)}",
                )
        await beside_loop_if_many(len(assignment), _check_assignment, assignment)

    def _check_configs(self, overrides: Mapping[str, str]) -> None:
        try:
            validate_topic_config(overrides, self._config())
        except ConfigError as error:
            raise KafkaError(ErrorCode.INVALID_CONFIG, str(error)) from error

    async def _write_new(
        self, name: str, topic_id: bytes | None, overrides: Mapping[str, str], assignment: Assignment
    ) -> None:
        told = _told(assignment)
        logger.info(
            "Creating topic %s with configuration %s and initial partition assignment %s", name, overrides, told
        )
        await self._zk.configs.set_entity_configs(f"topics/{name}", overrides)
        replicas = await beside_loop_if_many(len(assignment), _replica_assignments, assignment)
        try:
            await self._zk.topics.create_topic_assignment(name, topic_id, replicas)
        except NodeExists:
            raise _exists(name) from None

    async def auto_create(self, names: Iterable[str], allow: Allow = _allow_all) -> dict[str, ErrorCode]:
        """Create topics that a client named, with the broker's defaults; return the error to answer for each.

        Internal topics get ``offsets.topic.*`` and ``transaction.state.log.*``. A factor above the number of brokers is
        refused, as in every Kafka since 0.11: a group's commits must not begin with fewer replicas. Success is
        LEADER_NOT_AVAILABLE: the topic exists, and its leaders follow in a moment.
        """
        errors = {}
        for name in names:
            try:
                created = await self.create_topic(self._topic_asked_for(name), allow=allow)
            except KafkaError as error:
                exists = error.code is ErrorCode.TOPIC_ALREADY_EXISTS
                errors[name] = ErrorCode.LEADER_NOT_AVAILABLE if exists else error.code
            else:
                logger.info("Auto creation of topic %s with %d partitions", name, len(created.assignment))
                errors[name] = ErrorCode.LEADER_NOT_AVAILABLE
        return errors

    def _topic_asked_for(self, name: str) -> NewTopic:
        internal = internal_topic(name, self._config())
        if internal is None:
            return NewTopic(name)
        return NewTopic(name, internal.num_partitions, internal.replication_factor, configs={**internal.configs})

    # Delete

    async def delete_topic(self, name: str) -> None:
        """Mark a topic for deletion; nothing happens if it is marked already.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION, or what ZooKeeper refused.
        """
        ask_others()
        try:
            if not await self._zk.topics.topic_exists(name):
                raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Topic `{name}` to delete does not exist")
            await self._zk.admin.create_topic_deletion(name)
        except NodeExists:
            logger.debug("topic %s is already marked for deletion", name)
        except CoordinationError as error:
            raise _coordination(error) from error

    # Add partitions

    async def add_partitions(
        self,
        name: str,
        count: int,
        assignments: Callable[[], Awaitable[Sequence[Sequence[int]]]] | None,
        *,
        validate_only: bool = False,
        allow: Allow = _allow_all,
    ) -> list[int]:
        """Grow a topic to ``count`` partitions; ``assignments`` are the new ones' replicas. Return all partition ids.

        It asks for the assignments only if the topic exists: there may be very many.

        Raises:
            KafkaError: it cannot be grown like that, in Kafka's words; or what ``allow`` raises.
        """
        ask_others()
        try:
            existing = await self._growable(name)
            brokers = await self._zk.brokers.get_all_brokers_with_epochs()
            racks = usable_racks({b: info.rack for b, info in brokers.items()}, RackAwareMode.ENFORCED)
            given = None if assignments is None else await assignments()
            async with self._turn_of(count):
                while True:
                    new = await beside_loop_if_many(
                        count, self._new_partitions, name, existing.assignment, count, given, racks
                    )
                    if not validate_only:
                        allow(len(new))
                        allow = _allow_all
                    if validate_only or await self._write_grown(existing, new):
                        return sorted({*existing.assignment, *new})
                    existing = await self._growable(name)
        except CoordinationError as error:
            raise _coordination(error) from error

    async def _growable(self, name: str) -> TopicIdReplicaAssignment:
        existing = (await self._zk.topics.get_topic_assignments((name,))).get(name)
        if existing is None or not existing.assignment:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
        if any(replicas.is_being_reassigned for replicas in existing.assignment.values()):
            raise KafkaError(
                ErrorCode.REASSIGNMENT_IN_PROGRESS, f"A partition reassignment is in progress for the topic '{name}'."
            )
        return existing

    def _new_partitions(
        self,
        name: str,
        existing: Mapping[int, ReplicaAssignment],
        count: int,
        assignments: Sequence[Sequence[int]] | None,
        racks: Mapping[int, str | None],
    ) -> Assignment:
        added = count - len(existing)
        if added < 0:
            raise KafkaError(
                ErrorCode.INVALID_PARTITIONS,
                f"Topic currently has {len(existing)} partitions, which is higher than the requested {count}.",
            )
        if added == 0:
            raise KafkaError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {len(existing)} partitions.")
        first = existing.get(0)
        if first is None:
            raise KafkaError(
                ErrorCode.UNKNOWN_SERVER_ERROR,
                f"Unexpected existing replica assignment for topic '{name}', partition id 0 is missing. "
                f"Assignment: {dict(existing)}",
            )
        if assignments is not None:
            return _checked_additions(assignments, len(existing), added, len(first.replicas), racks)
        return assign_replicas(
            racks,
            added,
            len(first.replicas),
            fixed_start_index=start_index_of_added_partitions(sorted(racks), first.replicas[0]),
            start_partition_id=len(existing),
        )

    async def _write_grown(self, existing: TopicIdReplicaAssignment, new: Assignment) -> bool:
        """Write the grown topic unless its znode changed since it was read; return whether it was written."""
        logger.info(
            "Creating %d partitions for '%s' with the following replica assignment: %s.",
            len(new),
            existing.topic,
            _told(new),
        )

        def encoded() -> bytes:
            return TopicZNode.encode(existing.topic_id, {**existing.assignment, **_replica_assignments(new)})

        data = await beside_loop_if_many(len(existing.assignment) + len(new), encoded)
        version = ANY_VERSION if existing.zk_version is None else existing.zk_version
        try:
            await self._zk.client.set(TopicZNode.path(existing.topic), data, version)
        except BadVersion:
            return False
        return True

    # Waiting

    async def wait_for_leaders(self, topic: str, partitions: Collection[int], timeout_ms: int) -> bool:
        """Wait until this broker's metadata has a leader for each partition; False if it took too long."""

        def are_led() -> bool:
            # Each update asks, of a new topic's 60,000 partitions too.
            known = map(self._metadata_cache.partitions(topic).get, partitions)
            return all(partition is not None and partition.leader >= 0 for partition in known)

        return await self._waiter.wait(are_led, timeout_ms)

    async def wait_until_gone(self, topic: str, timeout_ms: int) -> bool:
        """Wait until this broker's metadata no longer has the topic; False if it took too long."""
        return await self._waiter.wait(lambda: topic not in self._metadata_cache.topics, timeout_ms)

    @property
    def waiting(self) -> int:
        """How many requests wait until this broker's metadata shows what they changed."""
        return len(self._waiter)


def _replica_assignments(assignment: Assignment) -> Mapping[int, ReplicaAssignment]:
    # Most partitions of a large topic have the same replicas as others.
    made: dict[tuple[int, ...], ReplicaAssignment] = {}
    values = [made.get(of) or made.setdefault(of, ReplicaAssignment(of)) for of in assignment.values()]
    return FromZero(values) if isinstance(assignment, FromZero) else dict(zip(assignment, values, strict=True))


def _told(assignment: Assignment) -> str:
    """Return what a log line says of an assignment: a whole line of megabytes would hold the loop."""
    if len(assignment) <= PARTITIONS_TOLD_MAX:
        return str(assignment)
    return f"{dict(islice(assignment.items(), PARTITIONS_TOLD_MAX))} and {len(assignment) - PARTITIONS_TOLD_MAX} more"


def _exists(name: str) -> KafkaError:
    return KafkaError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _coordination(error: CoordinationError) -> KafkaError:
    if isinstance(error, ControllerMoved):
        return KafkaError(ErrorCode.NOT_CONTROLLER, str(error))
    if isinstance(error, TooLarge):
        return KafkaError(ErrorCode.INVALID_REQUEST, str(error))
    logger.error("A topic's znodes could not be read or written", exc_info=error)
    return KafkaError(ErrorCode.UNKNOWN_SERVER_ERROR, f"ZooKeeper: {error}")


def _checked_nulls(configs: Mapping[str, str | None]) -> dict[str, str]:
    nulls = [name for name, value in configs.items() if value is None]
    if nulls:
        raise KafkaError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {','.join(nulls)}")
    return {name: value for name, value in configs.items() if value is not None}


def _check_assignment(assignment: Assignment) -> None:
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    sizes = {len(replicas) for replicas in assignment.values()}
    if len(sizes) != 1:
        raise KafkaError(code, "All partitions should have the same number of replicas")
    if sizes == {0}:
        raise KafkaError(code, "The manual partition assignment includes an empty replica list.")
    if any(len(set(replicas)) != len(replicas) for replicas in assignment.values()):
        texts = ", ".join(f"{p} -> List({', '.join(map(str, r))})" for p, r in assignment.items())
        raise KafkaError(code, f"Duplicate replica assignment found: Map({texts})")
    if min(assignment) != 0 or max(assignment) != len(assignment) - 1:
        raise KafkaError(code, "partitions should be a consecutive 0-based integer sequence")


def _checked_additions(
    assignments: Sequence[Sequence[int]],
    existing_count: int,
    added: int,
    replication_factor: int,
    racks: Mapping[int, str | None],
) -> Assignment:
    """Return the given replicas of new partitions by partition id.

    Raises:
        KafkaError: INVALID_REPLICA_ASSIGNMENT, in Kafka's words.
    """
    code = ErrorCode.INVALID_REPLICA_ASSIGNMENT
    unknown = sorted({b for replicas in assignments for b in replicas} - racks.keys())
    if unknown:
        raise KafkaError(code, f"Unknown broker(s) in replica assignment: {', '.join(map(str, unknown))}.")
    if len(assignments) != added:
        raise KafkaError(
            code, f"Increasing the number of partitions by {added} but {len(assignments)} assignments provided."
        )
    new = {existing_count + i: tuple(replicas) for i, replicas in enumerate(assignments)}
    for partition, replicas in new.items():
        if not replicas:
            raise KafkaError(code, f"Cannot have replication factor of 0 for partition id {partition}.")
        if len(set(replicas)) != len(replicas):
            raise KafkaError(
                code,
                f"Duplicate brokers not allowed in replica assignment: {', '.join(map(str, replicas))} "
                f"for partition id {partition}.",
            )
    bad = {p: len(replicas) for p, replicas in new.items() if len(replicas) != replication_factor}
    if bad:
        raise KafkaError(
            code,
            f"Inconsistent replication factor between partitions, partition 0 has {replication_factor} while "
            f"partitions [{', '.join(map(str, bad))}] have replication factors "
            f"[{', '.join(map(str, bad.values()))}], respectively.",
        )
    return new
