"""Asks brokers about themselves over the wire. Other modules ask them about the whole cluster."""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping, Sequence

from engine.admin.brokers.self_report import Registered, SelfReport, ask_brokers
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.log_dirs.describing import (
    LogDir,
    note_hidden_topics,
    read_all_log_dirs,
    read_log_dirs,
    topics_in,
    working_dirs,
)
from engine.common.model import TopicPartition
from engine.common.snapshot import LogDirSnapshot, TopicSnapshot

SIZES_WITHIN_S = 5.0
"""If sizes take longer than this, the rest is shown without them."""

ONE_WITHIN_S = 3.0
"""One broker may take this long, so that the others' sizes arrive in time."""


class WireBrokerReader:
    """Asks brokers, those named or those registered in ZooKeeper."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    async def registrations(self) -> Mapping[int, Registered]:
        return {}

    async def self_reports(self, brokers: Iterable[int]) -> Mapping[int, SelfReport]:
        return await ask_brokers(self._cluster, brokers)

    async def log_dirs(self, brokers: Sequence[int] | None, topics: Sequence[TopicSnapshot] | None) -> list[LogDir]:
        if brokers is None:
            return await read_all_log_dirs(self._cluster, topics)
        return await read_log_dirs(self._cluster, brokers, None if topics is None else _partitions_of(topics))

    async def sizes(self, partitions: Iterable[TopicPartition]) -> Mapping[TopicPartition, int]:
        sizes: dict[TopicPartition, int] = {}
        for log_dir in await self._log_dirs_in_time(frozenset(partitions)):
            for replica in log_dir.replicas:
                name = TopicPartition(replica.topic, replica.partition)
                sizes[name] = max(sizes.get(name, 0), replica.size_bytes)
        return sizes

    async def volumes(self) -> Sequence[LogDirSnapshot]:
        return working_dirs(await self._log_dirs_in_time(()))

    async def sizes_of_brokers(self, topics: Sequence[TopicSnapshot], *, are_all: bool) -> Mapping[int, int]:
        sizes: dict[int, int] = {}
        log_dirs = await self._log_dirs_in_time(None if are_all else _partitions_of(topics))
        if are_all and self._cluster.may_hide_topics:
            await note_hidden_topics(self._cluster, topics_in(log_dirs), (topic.name for topic in topics))
        # Nobody knows what a failed log dir holds: the rest would pass for everything on the broker.
        unknown = {log_dir.broker for log_dir in log_dirs if log_dir.error is not None}
        for log_dir in log_dirs:
            if log_dir.broker not in unknown:
                sizes[log_dir.broker] = sizes.get(log_dir.broker, 0) + sum(
                    replica.size_bytes for replica in log_dir.replicas
                )
        return sizes

    async def _log_dirs_in_time(self, partitions: Iterable[TopicPartition] | None) -> list[LogDir]:
        try:
            async with asyncio.timeout(SIZES_WITHIN_S):
                return await read_log_dirs(self._cluster, None, partitions, limit_s=ONE_WITHIN_S)
        except (AdminError, TimeoutError) as error:
            self._cluster.observe(f"brokers do not report sizes: {error or 'no answer in time'}")
            return []


def _partitions_of(topics: Sequence[TopicSnapshot]) -> list[TopicPartition]:
    return [TopicPartition(topic.name, partition.partition) for topic in topics for partition in topic.partitions]


class ZkBrokerReader(WireBrokerReader):
    """Reads registrations from ZooKeeper, and asks brokers."""

    async def registrations(self) -> Mapping[int, Registered]:
        from engine.admin.cluster.zookeeper import read_brokers

        return {
            broker.broker.id: Registered(
                None if broker.timestamp_ms < 0 else broker.timestamp_ms,
                None if broker.jmx_port < 0 else broker.jmx_port,
            )
            for broker in await read_brokers(await self._cluster.zookeeper())
        }
