"""Takes a ClusterSnapshot of a live cluster, from the znodes or from one Metadata answer and related requests."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import FailureKind, Refused, Unreachable
from engine.admin.cluster.members import read_members
from engine.admin.cluster.target import Source
from engine.admin.cluster.waits import Complain
from engine.admin.topics.access import topic_reader
from engine.common.acl import ResourceType
from engine.common.clock import Clock, SystemClock
from engine.common.errors import ErrorCode
from engine.common.snapshot import ClusterSnapshot, SnapshotSource

if TYPE_CHECKING:
    from engine.admin.log_dirs.describing import LogDir


@dataclass(frozen=True, slots=True)
class TakenSnapshot:
    """A snapshot, and the log dirs whose replicas it lacks: ``error`` of each says why."""

    snapshot: ClusterSnapshot
    failed_dirs: tuple[LogDir, ...] = ()

    @property
    def unknown_sizes(self) -> list[str]:
        """Which sizes are not known, and why."""
        return [
            f"sizes of broker {failed_dir.broker} are not known: {failed_dir.error}" for failed_dir in self.failed_dirs
        ]


async def take_snapshot(cluster: Cluster, *, has_sizes: bool = False) -> TakenSnapshot:
    """Return the whole cluster as it is now. With ``has_sizes`` ask brokers where replicas are, and how large."""
    from engine.admin.log_dirs.describing import (
        note_hidden_topics,
        note_topics_left_out,
        read_log_dirs,
        topics_in,
        with_sizes,
    )

    snapshot = await read_snapshot(cluster)
    if not snapshot.topics:
        # Moves are asked for beside topics only.
        await note_topics_left_out(cluster, ())
    _refuse_blind(cluster)
    if not has_sizes:
        return TakenSnapshot(snapshot)
    dirs = await read_log_dirs(cluster)
    await note_hidden_topics(cluster, topics_in(dirs), (topic.name for topic in snapshot.topics))
    return TakenSnapshot(with_sizes(snapshot, dirs), tuple(log_dir for log_dir in dirs if log_dir.error))


def _refuse_blind(cluster: Cluster) -> None:
    """Refuse a snapshot that lacks the moves under way: a plan made from it would take their halves for the whole.

    Raises:
        Refused: the cluster does not let its moves be seen.
    """
    if any(right.resource_type is ResourceType.CLUSTER and not right.is_of_settings for right in cluster.denied):
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, "moves under way cannot be seen")


async def take_for_planning(cluster: Cluster, warn: Complain) -> ClusterSnapshot:
    """Return the cluster with the sizes that its brokers report; what they do not report goes to ``warn``."""
    if cluster.source is Source.SNAPSHOT:
        return cluster.snapshot()
    try:
        taken = await take_snapshot(cluster, has_sizes=True)
    except Unreachable as error:
        warn(f"sizes are not known: {error.message}")
        return await read_snapshot(cluster)
    for warning in taken.unknown_sizes:
        warn(warning)
    return taken.snapshot


async def read_snapshot(
    cluster: Cluster, clock: Clock | None = None, *, on_unreadable: Complain | None = None
) -> ClusterSnapshot:
    """Return the whole cluster as it is now; read a named snapshot from its file.

    Topics with unreadable znodes are left out and passed to ``on_unreadable``, else to ``cluster.complain``, which also
    gets settings that no broker returns.
    """
    if cluster.source is Source.SNAPSHOT:
        return cluster.snapshot()
    members = await read_members(cluster)
    reader = await topic_reader(
        cluster, on_unreadable=on_unreadable or cluster.complain, on_unknown_settings=cluster.complain
    )
    topics = await reader.topics([entry.topic for entry in await reader.names()])
    return ClusterSnapshot(
        brokers=members.brokers,
        topics=tuple(topics),
        source=SnapshotSource(cluster.source.value),
        taken_at_ms=(clock or SystemClock()).now_ms(),
        cluster_id=members.cluster_id,
        controller_id=members.controller_id,
        controller_epoch=members.controller_epoch,
        broker_configs=await _broker_configs(cluster),
    )


async def _broker_configs(cluster: Cluster) -> Mapping[int | None, Mapping[str, str]]:
    """Return the dynamic settings of brokers that have any; the cluster-wide defaults are under None.

    Only ZooKeeper knows those of brokers that are dead.
    """
    from engine.admin.configs.access import config_reader
    from engine.admin.configs.values import Entity, EntityType, settings_of
    from engine.kafka.zk.errors import NoAuth

    configs: dict[int | None, Mapping[str, str]] = {}
    try:
        described = await (await config_reader(cluster)).describe_all(EntityType.BROKER, include_all=False)
    except Refused as error:
        if error.kind is not FailureKind.AUTHORIZATION:
            raise
        cluster.observe(f"the settings of brokers are not known: {error}")
        return configs
    except NoAuth as error:
        cluster.note_hidden_znode(error.path or "")
        return configs
    for entity in described:
        broker_id = None if entity.entity_name is None else int(entity.entity_name)
        if entity.error is not None:
            # A broker that is silent is named elsewhere, a znode that is damaged is not.
            tell = cluster.complain if cluster.source is Source.ZOOKEEPER else cluster.observe
            tell(f"the settings of {Entity(EntityType.BROKER, entity.entity_name)} are not known: {entity.error}")
        settings = settings_of(entity)
        if settings:
            configs[broker_id] = settings
    return configs
