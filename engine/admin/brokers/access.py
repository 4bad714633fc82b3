"""The interface to facts about single brokers. Only this module chooses where to read them."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Refused
from engine.admin.cluster.target import Source
from engine.admin.topics.access import topic_reader
from engine.admin.topics.describing import read_selected
from engine.admin.topics.selection import TopicSelection
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.snapshot import LogDirSnapshot, TopicSnapshot

if TYPE_CHECKING:
    from engine.admin.brokers.self_report import Registered, SelfReport
    from engine.admin.log_dirs.describing import LogDir


class BrokerReader(Protocol):
    """Reads facts about single brokers of one cluster."""

    async def registrations(self) -> Mapping[int, Registered]:
        """Return when the live brokers registered; nothing if ZooKeeper is not asked."""

    async def self_reports(self, brokers: Iterable[int]) -> Mapping[int, SelfReport]:
        """Return what each of these live brokers says about itself; nothing if none may be asked."""

    async def log_dirs(self, brokers: Sequence[int] | None, topics: Sequence[TopicSnapshot] | None) -> list[LogDir]:
        """Return the log dirs of brokers (None: of all) with the replicas of topics in them (None: of all topics)."""

    async def sizes(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        """Return the bytes of partitions; nothing if no broker reports them in time. Never fails."""

    async def volumes(self) -> Sequence[LogDirSnapshot]:
        """Return the working log dirs with their free space, without brokers that are silent too long. Never fails."""

    async def sizes_of_brokers(self, topics: Sequence[TopicSnapshot], *, are_all: bool) -> Mapping[int, int]:
        """Return the bytes that brokers hold of topics, or of all (``topics`` are those that a list has). Never fails.

        Leaves out a broker that does not report them, or cannot because a log dir has failed.
        """


def broker_reader(cluster: Cluster) -> BrokerReader:
    """Return the reader of brokers for this cluster. Nothing is opened before it is needed."""
    match cluster.source:
        case Source.SNAPSHOT:
            from engine.admin.brokers.by_snapshot import SnapshotBrokerReader

            return SnapshotBrokerReader(cluster.snapshot())
        case Source.ZOOKEEPER:
            from engine.admin.brokers.by_wire import ZkBrokerReader

            return ZkBrokerReader(cluster)
        case Source.WIRE:
            from engine.admin.brokers.by_wire import WireBrokerReader

            return WireBrokerReader(cluster)


async def read_selected_log_dirs(
    cluster: Cluster, brokers: Sequence[int] | None = None, selection: TopicSelection | None = None
) -> list[LogDir]:
    """Return the log dirs of brokers (None: of all, missing ones too) with the chosen topics in them (None: all).

    Raises:
        NotFound: a named broker or topic does not exist.
        BadRequest: the snapshot was taken without sizes.
        Refused: no broker shows its log dirs.
        Unreachable: no broker answers at all.
    """
    from engine.admin.log_dirs.describing import NOT_ALLOWED

    topics = None
    if selection is not None:
        reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
        topics = await read_selected(reader, selection, if_exists=False)
    log_dirs = await broker_reader(cluster).log_dirs(brokers, topics)
    if log_dirs and all(broker.error == NOT_ALLOWED for broker in log_dirs):
        raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, where="log dirs")
    return log_dirs
