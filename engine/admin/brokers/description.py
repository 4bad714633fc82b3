"""A cluster in a few numbers, and all about single brokers: what they lead and hold, and what lags because of them.

Assignments and settings come from the same source as the cluster's state. Each broker is asked for what only it knows
(its APIs, its log dirs, its protocol version); these stay None if it does not answer or the user lacks the right.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from engine.admin.brokers.access import broker_reader
from engine.admin.brokers.self_report import Registered, SelfReport
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, NotFound
from engine.admin.cluster.members import BrokerDescription, ClusterMembers, read_members
from engine.admin.cluster.target import Source
from engine.admin.log_dirs.describing import note_topics_left_out
from engine.admin.snapshots.taking import read_snapshot
from engine.admin.topics.access import topic_reader
from engine.common.errors import ErrorCode
from engine.common.model import NO_CONTROLLER, Endpoint, TopicPartition
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot

if TYPE_CHECKING:
    from engine.admin.cluster.quorum import FinalizedFeature, Quorum


@dataclass(frozen=True, slots=True)
class ListenerDescription:
    """One endpoint. The listener is None if clients get only an address."""

    listener: str | None
    security_protocol: str | None
    host: str
    port: int

    def __str__(self) -> str:
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{host}:{self.port}" if self.listener is None else f"{self.listener}://{host}:{self.port}"


@dataclass(frozen=True, slots=True)
class BrokerPartitions:
    """A broker's share of the partitions.

    Attributes:
        held: replicas assigned to it.
        led: partitions that it leads; ``preferred`` those that it should lead, ``preferred_led`` how many of these it
        does.
        out_of_sync: partitions that are under-replicated because its replica is not in sync.
        leaderless: those of its partitions that have no leader.
    """

    held: int = 0
    led: int = 0
    preferred: int = 0
    preferred_led: int = 0
    out_of_sync: tuple[str, ...] = ()
    leaderless: tuple[str, ...] = ()
    adding: int = 0
    removing: int = 0

    @property
    def imbalance_percent(self) -> int:
        """How many of the partitions that it should lead others lead; Kafka's controller acts above 10."""
        return round(100 * (self.preferred - self.preferred_led) / self.preferred) if self.preferred else 0


@dataclass(frozen=True, slots=True)
class BrokerDetails:
    """One broker. One that is not ``alive`` is known only from the partitions assigned to it."""

    id: int
    alive: bool
    controller: bool
    rack: str | None
    listeners: tuple[ListenerDescription, ...]
    broker_epoch: int | None
    registered_at_ms: int | None
    jmx_port: int | None
    partitions: BrokerPartitions
    configs: Mapping[str, str]
    report: SelfReport = field(default_factory=SelfReport)


async def describe_brokers(
    cluster: Cluster, ids: Sequence[int] = (), *, notes_hidden: bool = True
) -> list[BrokerDetails]:
    """Return brokers by id (none named: all, including missing ones that have partitions).

    With ``notes_hidden`` the cluster notes the missing right on hidden topics that these brokers have.

    Raises:
        NotFound: a named broker is not alive and has no partitions.
    """
    snapshot = await read_snapshot(cluster)
    shares = partitions_of_brokers(snapshot)
    known = sorted(snapshot.live_broker_ids | set(shares))
    unknown = sorted(set(ids) - set(known))
    if unknown:
        named, existing = ", ".join(map(str, unknown)), ", ".join(map(str, known)) or "none"
        raise NotFound(f"no such broker: {named}", hint=f"brokers: {existing}")
    chosen = sorted(set(ids)) if ids else known
    reader = broker_reader(cluster)
    registered = await reader.registrations()
    asked = [broker_id for broker_id in chosen if broker_id in snapshot.live_broker_ids]
    reports = await reader.self_reports(asked)
    if notes_hidden:
        await note_topics_left_out(cluster, [topic.name for topic in snapshot.topics], brokers=asked)
    return [
        _details(
            snapshot,
            broker_id,
            shares.get(broker_id, BrokerPartitions()),
            registered.get(broker_id, Registered()),
            reports.get(broker_id),
        )
        for broker_id in chosen
    ]


def partitions_of_brokers(snapshot: ClusterSnapshot) -> dict[int, BrokerPartitions]:
    """Return each broker's share of the partitions, for all brokers that have any."""
    counts: dict[int, dict[str, int]] = {}
    lagging: dict[int, list[str]] = {}
    leaderless: dict[int, list[str]] = {}
    for topic in snapshot.topics:
        for partition in topic.partitions:
            name = str(TopicPartition(topic.name, partition.partition))
            for broker in partition.replicas:
                _count(counts.setdefault(broker, {}), partition, broker)
                if partition.is_under_replicated and broker not in partition.isr:
                    lagging.setdefault(broker, []).append(name)
                if partition.leader < 0:
                    leaderless.setdefault(broker, []).append(name)
    return {
        broker: BrokerPartitions(
            **numbers, out_of_sync=tuple(lagging.get(broker, ())), leaderless=tuple(leaderless.get(broker, ()))
        )
        for broker, numbers in counts.items()
    }


def _count(numbers: dict[str, int], partition: PartitionSnapshot, broker: int) -> None:
    is_preferred, leads = partition.preferred_leader == broker, partition.leader == broker
    for key, counts in (
        ("held", True),
        ("led", leads),
        ("preferred", is_preferred),
        ("preferred_led", is_preferred and leads),
        ("adding", broker in partition.assignment.adding_replicas),
        ("removing", broker in partition.assignment.removing_replicas),
    ):
        numbers[key] = numbers.get(key, 0) + counts


def _details(
    snapshot: ClusterSnapshot,
    broker_id: int,
    share: BrokerPartitions,
    registered: Registered,
    report: SelfReport | None,
) -> BrokerDetails:
    broker = snapshot.broker(broker_id)
    is_by_wire = snapshot.source.value == "wire"
    return BrokerDetails(
        id=broker_id,
        alive=broker is not None,
        controller=broker is not None and broker_id == snapshot.controller_id,
        rack=None if broker is None else broker.rack,
        listeners=() if broker is None else tuple(_listener(e, is_by_wire=is_by_wire) for e in broker.endpoints),
        broker_epoch=None if broker is None or broker.broker_epoch < 0 else broker.broker_epoch,
        registered_at_ms=registered.at_ms,
        jmx_port=registered.jmx_port,
        partitions=share,
        configs=dict(sorted(snapshot.broker_configs.get(broker_id, {}).items())),
        report=report or SelfReport(),
    )


def _listener(endpoint: Endpoint, *, is_by_wire: bool) -> ListenerDescription:
    """The wire reports the address of the listener that was asked, but not its name."""
    if is_by_wire:
        return ListenerDescription(None, None, endpoint.host, endpoint.port)
    return ListenerDescription(endpoint.listener_name, endpoint.security_protocol.name, endpoint.host, endpoint.port)


def has_trouble(details: BrokerDetails) -> bool:
    """Whether something is wrong with the broker itself: dead, silent, or with a failed log dir."""
    return (
        not details.alive
        or details.report.trouble is not None
        or any(log_dir.error not in (None, ErrorCode.NONE.name) for log_dir in details.report.log_dirs or ())
    )


@dataclass(frozen=True, slots=True)
class ClusterDescription:
    """The cluster in a few numbers. ``controller_id`` -1 is none; on KRaft it is the quorum's leader."""

    cluster_id: str | None
    controller_id: int
    controller_epoch: int | None
    brokers: list[BrokerDescription]
    topic_count: int
    zookeeper: str | None
    told_by: str
    quorum: Quorum | None = None
    """Of KRaft's controllers; None on a cluster with ZooKeeper."""
    finalized_features: tuple[FinalizedFeature, ...] = ()


async def list_brokers(cluster: Cluster) -> list[BrokerDescription]:
    """Return the live brokers, and which of them is the controller."""
    members, _ = await _members_and_quorum(cluster)
    return members.descriptions


async def describe_cluster(cluster: Cluster, *, tells_hidden: bool = True) -> ClusterDescription:
    """Return the cluster in a few numbers. With ``tells_hidden`` the cluster notes the topics that are not counted."""
    members, quorum = await _members_and_quorum(cluster)
    topics = await (await topic_reader(cluster)).names()
    if tells_hidden:
        await note_topics_left_out(cluster, [entry.topic for entry in topics])
    return ClusterDescription(
        members.cluster_id,
        members.controller_id,
        members.controller_epoch,
        members.descriptions,
        len(topics),
        cluster.target.zookeeper,
        cluster.source.value,
        quorum,
        await _features(cluster) if cluster.source is Source.WIRE else (),
    )


async def _features(cluster: Cluster) -> tuple[FinalizedFeature, ...]:
    from engine.admin.cluster.quorum import read_finalized_features

    return await read_finalized_features(await cluster.wire())


async def _members_and_quorum(cluster: Cluster) -> tuple[ClusterMembers, Quorum | None]:
    """Return who is in the cluster. On KRaft brokers name any broker as the controller, so ask the quorum."""
    members = await read_members(cluster)
    if cluster.source is not Source.WIRE or not await (wire := await cluster.wire()).is_kraft():
        return members, None
    from engine.admin.cluster.quorum import read_quorum

    try:
        quorum = await read_quorum(wire)
    except AdminError as error:
        cluster.complain(f"the leader of the controller quorum is not known: {error}")
        return replace(members, controller_id=NO_CONTROLLER), None
    return replace(members, controller_id=quorum.leader_id, controller_epoch=quorum.leader_epoch), quorum
