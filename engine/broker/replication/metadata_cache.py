"""What a broker knows about the cluster from UpdateMetadata requests: brokers, topics and partition leadership.

Readers take the snapshot. An update builds a new one (copy on write, topic by topic) and swaps it as a whole, so a
reader that holds a snapshot across an ``await`` keeps a consistent picture. This is not the controller's context, and
it never asks ZooKeeper.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Collection, Generator, Hashable, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol

from engine.broker.replication.state_change_log import StateChangeLogger
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import (
    LEADER_DURING_DELETE,
    NO_LEADER,
    BrokerInfo,
    Endpoint,
    Node,
    SecurityProtocol,
    TopicPartition,
)
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
)
from engine.runtime.turns import Breather

_NO_PARTITIONS: Mapping[int, PartitionMetadata] = {}

_STEP = 100
"""How many partitions are applied without a break: half a millisecond's work."""

_AT_ONCE_MAX = 500


class PartitionMetadata:
    """One partition as the controller announced it. Immutable by convention; ``zk_version`` is the partition epoch."""

    __slots__ = ("controller_epoch", "isr", "leader", "leader_epoch", "offline_replicas", "replicas", "zk_version")

    def __init__(
        self,
        leader: int,
        leader_epoch: int,
        isr: tuple[int, ...],
        zk_version: int,
        replicas: tuple[int, ...],
        offline_replicas: tuple[int, ...] = (),
        controller_epoch: int = 0,
    ) -> None:
        self.leader = leader
        self.leader_epoch = leader_epoch
        self.isr = isr
        self.zk_version = zk_version
        self.replicas = replicas
        self.offline_replicas = offline_replicas
        self.controller_epoch = controller_epoch

    def __repr__(self) -> str:
        return (
            f"PartitionMetadata(leader={self.leader}, leader_epoch={self.leader_epoch}, isr={self.isr}, "
            f"zk_version={self.zk_version}, replicas={self.replicas}, offline_replicas={self.offline_replicas})"
        )


@dataclass(frozen=True, slots=True)
class MetadataSnapshot:
    """The cluster at one moment. ``controller_id`` is None before the first update and while there is no controller."""

    controller_id: int | None = None
    brokers: Mapping[int, BrokerInfo] = field(default_factory=dict)
    nodes: Mapping[str, Mapping[int, Node]] = field(default_factory=dict)
    """Live brokers by listener name, then by id."""
    topics: Mapping[str, Mapping[int, PartitionMetadata]] = field(default_factory=dict)
    topic_ids: Mapping[str, bytes] = field(default_factory=dict)
    topic_names: Mapping[bytes, str] = field(default_factory=dict)
    mark: object = field(default_factory=object, init=False, repr=False, compare=False)
    """Identifies this snapshot to those who must not keep it alive."""


class _TopicIds:
    """Ids by name and names by id of the next snapshot, copied and changed rather than rebuilt: one more topic must
    not cost a scan of all topics."""

    __slots__ = ("by_name", "names")

    def __init__(self, old: MetadataSnapshot) -> None:
        self.by_name = dict(old.topic_ids)
        self.names = dict(old.topic_names)

    def assign(self, topic: str, topic_id: bytes) -> None:
        """Replace a topic's id; the zero id removes it."""
        previous = self.by_name.get(topic, ZERO_TOPIC_ID)
        if previous == topic_id:
            return
        if self.names.get(previous) == topic:
            del self.names[previous]
        if topic_id == ZERO_TOPIC_ID:
            del self.by_name[topic]
        else:
            self.by_name[topic] = topic_id
            self.names[topic_id] = topic


class MetadataCache:
    """Holder of the current snapshot, with the look-ups that handlers need."""

    def __init__(self, broker_id: int) -> None:
        self.snapshot = MetadataSnapshot()
        self.update_listeners: list[Callable[[], None]] = []
        """Called after every update, for callers that wait until a topic is led or gone."""
        self.derived: dict[Hashable, Any] = {}
        """Values that readers derived from the snapshot and want to keep. They compare the parts of the snapshot by
        identity: an update keeps brokers, nodes and topics that it does not change."""
        self.known = asyncio.Event()
        """Set once a controller has told this broker of the cluster, or has had the time to."""
        self.expects_topics = False
        """The broker has replicas, so there are topics: a new controller names all brokers first and topics later."""
        self._log = StateChangeLogger(broker_id)

    @property
    def controller_id(self) -> int | None:
        return self.snapshot.controller_id

    @property
    def alive_brokers(self) -> Mapping[int, BrokerInfo]:
        return self.snapshot.brokers

    @property
    def topics(self) -> Collection[str]:
        return self.snapshot.topics.keys()

    def has_alive_broker(self, broker_id: int) -> bool:
        return broker_id in self.snapshot.brokers

    def node(self, broker_id: int, listener_name: str) -> Node | None:
        """Return a live broker's address on a listener; None if it is not alive or has no such listener."""
        return self.snapshot.nodes.get(listener_name, {}).get(broker_id)

    def contains(self, topic_partition: TopicPartition) -> bool:
        return topic_partition[1] in self.snapshot.topics.get(topic_partition[0], _NO_PARTITIONS)

    def check_has(self, topic: str, index: int) -> None:
        """Check that the partition exists: the replica of a deleted topic stays here until the broker has to stop it.

        As in KafkaApis of Kafka 3.9, Produce, Fetch, DeleteRecords and DescribeProducers ask this before they look for
        a replica. ListOffsets, OffsetForLeaderEpoch and AlterReplicaLogDirs do not: such a replica still answers them.

        Raises:
            KafkaError: UNKNOWN_TOPIC_OR_PARTITION.
        """
        try:
            # Each Produce and Fetch comes here: a subscript takes fewer steps than ``get`` and ``in``.
            self.snapshot.topics[topic][index]
        except KeyError:
            raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION) from None

    def partitions(self, topic: str) -> Mapping[int, PartitionMetadata]:
        """Return the topic's partitions by index; empty if the topic is unknown."""
        return self.snapshot.topics.get(topic, _NO_PARTITIONS)

    def partition_info(self, topic_partition: TopicPartition) -> PartitionMetadata | None:
        return self.snapshot.topics.get(topic_partition[0], _NO_PARTITIONS).get(topic_partition[1])

    def topic_id(self, topic: str) -> bytes:
        """Return the topic's id; the zero id if the topic is unknown or has none."""
        return self.snapshot.topic_ids.get(topic, ZERO_TOPIC_ID)

    def topic_name(self, topic_id: bytes) -> str | None:
        return self.snapshot.topic_names.get(topic_id)

    def update(self, request: UpdateMetadataRequest, correlation_id: int) -> list[TopicPartition]:
        """Apply the controller's update and return the partitions that it says are being deleted.

        Brokers are replaced as a whole, partitions are merged. The caller has checked the epochs.
        """
        steps = self._steps(request, correlation_id)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]

    async def update_in_turns(self, request: UpdateMetadataRequest, correlation_id: int) -> list[TopicPartition]:
        """Do the same, but give way to the event loop now and then; readers have the old snapshot until all is done.

        No other update may begin before this one ends.
        """
        steps, breather = self._steps(request, correlation_id), Breather(makes_what_lasts=True)
        while True:
            try:
                next(steps)
            except StopIteration as done:
                return done.value  # type: ignore[no-any-return]
            await breather.give_way()

    def _steps(
        self, request: UpdateMetadataRequest, correlation_id: int
    ) -> Generator[None, None, list[TopicPartition]]:
        old = self.snapshot
        brokers, nodes = yield from _brokers_and_nodes(request.live_brokers)
        if brokers == old.brokers and nodes == old.nodes:
            brokers, nodes = old.brokers, old.nodes
        ids = _TopicIds(old)
        topics = dict(old.topics)
        source = (
            f"in response to UpdateMetadata request sent by controller {request.controller_id} "
            f"epoch {request.controller_epoch} with correlation id {correlation_id}"
        )
        retired: list[object] = []
        deleted, count = yield from self._merge(topics, ids, request, source, retired)
        has_new_brokers = brokers is not old.brokers
        if has_new_brokers:
            yield from _retire_brokers(old, retired)
        del old
        self.snapshot = MetadataSnapshot(
            controller_id=request.controller_id if request.controller_id >= 0 else None,
            brokers=brokers,
            nodes=nodes,
            topics=topics,
            topic_ids=ids.by_name,
            topic_names=ids.names,
        )
        if deleted or has_new_brokers:
            self.derived.clear()
        if brokers and (count or not self.expects_topics):
            self.known.set()
        if count:
            added = count - len(deleted)
            self._log.info(f"Add {added} partitions and deleted {len(deleted)} partitions from metadata cache {source}")
        for listener in list(self.update_listeners):
            listener()
        # Freeing them takes a while, too.
        for _ in range(len(retired)):
            retired.pop()
            yield
        return deleted

    def _merge(
        self,
        topics: dict[str, Mapping[int, PartitionMetadata]],
        ids: _TopicIds,
        request: UpdateMetadataRequest,
        source: str,
        retired: list[object],
    ) -> Generator[None, None, tuple[list[TopicPartition], int]]:
        """Merge the request; return the deleted partitions and how many it names. Yields now and then.

        ``retired`` receives the replaced values.
        """
        for number, topic_state in enumerate(request.topic_states, start=1):
            ids.assign(topic_state.topic_name, topic_state.topic_id)
            if number % _STEP == 0:
                yield
        copied: dict[str, dict[int, PartitionMetadata]] = {}
        deleted: dict[TopicPartition, None] = {}
        is_tracing = self._log.is_tracing
        count = 0
        for number, (topic, state) in enumerate(_partition_states(request), start=1):
            if number % _STEP == 0:
                yield
            if state is None:
                continue
            count += 1
            partitions = copied.get(topic)
            if partitions is None:
                present = topics.get(topic, _NO_PARTITIONS)
                partitions = copied[topic] = dict(present)
                retired.append(present)
            if state.leader == LEADER_DURING_DELETE:
                partitions.pop(state.partition_index, None)
                deleted[TopicPartition(topic, state.partition_index)] = None
            else:
                partitions[state.partition_index] = _partition_metadata(state)
                if deleted:
                    deleted.pop(TopicPartition(topic, state.partition_index), None)
            if is_tracing:
                self._trace(topic, state, source)
        for number, (topic, partitions) in enumerate(copied.items()):
            if partitions:
                topics[topic] = partitions
            else:
                topics.pop(topic, None)
                ids.assign(topic, ZERO_TOPIC_ID)
            if number % _STEP == _STEP - 1:
                yield
        return list(deleted), count

    def _trace(self, topic: str, state: UpdateMetadataPartitionState, source: str) -> None:
        where = f"partition {topic}-{state.partition_index}"
        if state.leader == LEADER_DURING_DELETE:
            self._log.trace(f"Deleted {where} from metadata cache {source}")
        else:
            self._log.trace(f"Cached leader info {_state_text(topic, state)} for {where} {source}")


def names_many(request: UpdateMetadataRequest, known: Mapping[int, BrokerInfo]) -> bool:
    """Return whether to apply the request in turns: a hundred thousand partitions hold the loop for a second.

    It may replace all brokers that are known.
    """
    count = len(request.ungrouped_partition_states) + len(request.topic_states)
    count += sum(len(broker.endpoints) + 1 for broker in known.values())
    if count + len(request.live_brokers) > _AT_ONCE_MAX:
        # To look at each of very many holds the loop, too.
        return True
    count += sum(len(broker.endpoints) + 1 for broker in request.live_brokers)
    return count + sum(len(topic.partition_states) for topic in request.topic_states) > _AT_ONCE_MAX


def _partition_states(request: UpdateMetadataRequest) -> Iterator[tuple[str, UpdateMetadataPartitionState | None]]:
    """Yield all partition states with their topics, grouped (version 5 and later) or not.

    It yields each topic without a state as well: very many may have no partition.
    """
    for topic in request.topic_states:
        yield topic.topic_name, None
        for state in topic.partition_states:
            yield topic.topic_name, state
    if not request.topic_states:
        for state in request.ungrouped_partition_states:
            yield state.topic_name, state


def _partition_metadata(state: UpdateMetadataPartitionState) -> PartitionMetadata:
    return PartitionMetadata(
        state.leader,
        state.leader_epoch,
        tuple(state.isr),
        state.zk_version,
        tuple(state.replicas),
        tuple(state.offline_replicas),
        state.controller_epoch,
    )


def _broker_info(broker: UpdateMetadataBroker) -> Generator[None, None, BrokerInfo]:
    """Return a broker of the request; versions 0 to 2 name no listener, so the security protocol's name is used.

    Yields now and then.

    Raises:
        KafkaError: the security protocol is unknown.
    """
    if not broker.endpoints:
        alone = Endpoint.of_protocol(broker.v0_host, broker.v0_port, SecurityProtocol.PLAINTEXT)
        return BrokerInfo(broker.id, (alone,), broker.rack)
    endpoints = []
    for number, each in enumerate(broker.endpoints, start=1):
        try:
            protocol = SecurityProtocol(each.security_protocol)
        except ValueError as error:
            raise KafkaError(ErrorCode.INVALID_REQUEST, f"broker {broker.id}: {error}") from None
        endpoints.append(Endpoint(each.host, each.port, each.listener or protocol.name, protocol))
        if number % _STEP == 0:
            yield
    return BrokerInfo(broker.id, tuple(endpoints), broker.rack)


def _brokers_and_nodes(
    live: Iterable[UpdateMetadataBroker],
) -> Generator[None, None, tuple[Mapping[int, BrokerInfo], Mapping[str, Mapping[int, Node]]]]:
    """Return the live brokers by id, and their addresses by listener and id. Yields now and then."""
    brokers: dict[int, BrokerInfo] = {}
    for number, named in enumerate(live, start=1):
        brokers[named.id] = yield from _broker_info(named)
        if number % _STEP == 0:
            yield
    nodes: dict[str, dict[int, Node]] = {}
    named_here = ((broker, endpoint) for broker in brokers.values() for endpoint in broker.endpoints)
    for number, (broker, endpoint) in enumerate(named_here, start=1):
        by_id = nodes.setdefault(endpoint.listener_name, {})
        by_id[broker.id] = Node(broker.id, endpoint.host, endpoint.port, broker.rack)
        if number % _STEP == 0:
            yield
    return brokers, nodes


def _retire_brokers(old: MetadataSnapshot, retired: list[object]) -> Iterator[None]:
    """Add the brokers of a snapshot and their addresses. The last go first: what holds others before these."""
    for number, broker in enumerate(old.brokers.values(), start=1):
        retired += broker.endpoints
        retired.append(broker)
        if number % _STEP == 0:
            yield
    for number, by_id in enumerate(old.nodes.values(), start=1):
        retired += by_id.values()
        retired.append(by_id)
        if number % _STEP == 0:
            yield
    yield


def _state_text(topic: str, state: UpdateMetadataPartitionState) -> str:
    return (
        f"UpdateMetadataPartitionState(topicName='{topic}', partitionIndex={state.partition_index}, "
        f"controllerEpoch={state.controller_epoch}, leader={state.leader}, leaderEpoch={state.leader_epoch}, "
        f"isr={list(state.isr)}, zkVersion={state.zk_version}, replicas={list(state.replicas)}, "
        f"offlineReplicas={list(state.offline_replicas)})"
    )


class HostedReplica(Protocol):
    """What a LeaderAndIsr request has said about this broker's own replica."""

    leader_id: int | None
    leader_epoch: int


class LeaderHints:
    """Looks up leaders for one answer to a client that asked the wrong broker (KIP-951).

    The controller tells the replicas first, so the one that has just stopped leading knows its successor before the
    cache does. ``nodes`` collects the leaders' addresses on the listener that the client uses.
    """

    __slots__ = ("_cache", "_hosted", "_listener_name", "nodes")

    def __init__(
        self, cache: MetadataCache, hosted: Mapping[TopicPartition, HostedReplica], listener_name: str
    ) -> None:
        self._cache = cache
        self._hosted = hosted
        self._listener_name = listener_name
        self.nodes: dict[int, Node] = {}

    def leader_of(self, topic_partition: TopicPartition) -> tuple[int, int] | None:
        """Return (leader, leader epoch); None if this broker does not know the partition.

        As in Kafka, a partition without a leader has -1, with its epoch.
        """
        known, hosted = self._cache.partition_info(topic_partition), self._hosted.get(topic_partition)
        leader, epoch = (NO_LEADER, -1) if known is None else (known.leader, known.leader_epoch)
        if hosted is not None and hosted.leader_id is not None and hosted.leader_epoch > epoch:
            leader, epoch = hosted.leader_id, hosted.leader_epoch
        if epoch < 0:
            return None
        node = self._cache.node(leader, self._listener_name)
        if node is not None:
            self.nodes[node.id] = node
        return leader, epoch
