"""Decides which fetcher copies which partition: one fetcher per leader and fetcher id.

Source: AbstractFetcherManager of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection, Iterable, Mapping

from engine.broker.replication.fetch_table import FollowerHost, InitialFetchState
from engine.broker.replication.fetcher import ReplicaFetcher
from engine.broker.replication.leader_endpoint import LeaderConnection, LeaderEndpoint
from engine.common.listing import listed
from engine.common.model import Node, TopicPartition
from engine.kafka.client.broker_client import BrokerClient
from engine.runtime.supervisor import Supervisor

logger = logging.getLogger("kafka.server.ReplicaFetcherManager")

Connect = Callable[[Node, str], LeaderConnection]
"""Makes a connection to a leader, under a client id; it is opened on first use."""


class FetcherManager:
    """Owner of all fetchers of a broker."""

    def __init__(self, host: FollowerHost, connect: Connect | None = None) -> None:
        self.failed: set[TopicPartition] = set()
        """Partitions that were given up until a LeaderAndIsr request names them again."""
        self._host = host
        self._connect = connect or self._connect_by_network
        self._fetcher_count = host.settings.num_replica_fetchers
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._tasks: dict[tuple[int, int], asyncio.Task[None]] = {}
        self._home: dict[TopicPartition, tuple[int, int]] = {}
        self._supervisor = Supervisor("replica-fetchers")
        self._who = f"[ReplicaFetcherManager on broker {host.settings.broker_id}]"

    @property
    def fetchers(self) -> Collection[ReplicaFetcher]:
        return self._fetchers.values()

    def fetcher_of(self, topic_partition: TopicPartition) -> ReplicaFetcher | None:
        key = self._home.get(topic_partition)
        return None if key is None else self._fetchers.get(key)

    def max_lag(self) -> int:
        """Return the largest lag of any partition, in records behind the leader's high watermark."""
        return max((fetcher.max_lag() for fetcher in self._fetchers.values()), default=0)

    def lags(self) -> dict[TopicPartition, int]:
        """Return how many records each fetched partition is behind the leader's high watermark, if that is known.

        Kafka shows this as FetcherLagMetrics, ConsumerLag; ``failed`` is its FailedPartitionsCount.
        """
        return {tp: lag for fetcher in self._fetchers.values() for tp, lag in fetcher.lags()}

    def add(self, partitions: Mapping[TopicPartition, InitialFetchState]) -> None:
        """Begin to fetch these partitions from their leaders."""
        by_fetcher: dict[tuple[int, int], dict[TopicPartition, InitialFetchState]] = {}
        for topic_partition, initial in partitions.items():
            key = (initial.leader.id, fetcher_id(topic_partition, self._fetcher_count))
            by_fetcher.setdefault(key, {})[topic_partition] = initial
        for key, members in by_fetcher.items():
            fetcher = self._fetcher(key, next(iter(members.values())).leader)
            for topic_partition, initial in members.items():
                fetcher.add(topic_partition, initial)
                self._home[topic_partition] = key
            logger.info("%s Added fetcher to broker %d for partitions %s", self._who, key[0], scala_map(members))

    def remove(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, InitialFetchState]:
        """Stop fetching these partitions; return those that were fetched and how each continues."""
        wanted = list(partitions)
        removed = {}
        for topic_partition in wanted:
            self.failed.discard(topic_partition)
            key = self._home.pop(topic_partition, None)
            fetcher = None if key is None else self._fetchers.get(key)
            if fetcher is not None and (state := fetcher.remove(topic_partition)) is not None:
                removed[topic_partition] = state
        if wanted:
            logger.info("%s Removed fetcher for partitions %s", self._who, scala_set(wanted))
        return removed

    def update_topic_ids(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Name these partitions' topics by other ids; the zero id means by name."""
        for topic_partition, topic_id in topic_ids.items():
            fetcher = self.fetcher_of(topic_partition)
            if fetcher is not None:
                fetcher.update_topic_id(topic_partition, topic_id)

    def end_idle(self) -> None:
        """End the fetchers without partitions."""
        for key in [key for key, fetcher in self._fetchers.items() if not fetcher.partitions]:
            self._end(key)

    def resize(self, fetcher_count: int) -> None:
        """Use this many fetchers per leader from now on (``num.replica.fetchers``, which may change at run time)."""
        if fetcher_count == self._fetcher_count:
            return
        logger.info("%s Resizing fetcher thread pool size from %d to %d", self._who, self._fetcher_count, fetcher_count)
        self._fetcher_count = fetcher_count
        moving = self.remove(list(self._home))
        for key in list(self._fetchers):
            self._end(key)
        self.add(moving)

    async def stop(self) -> None:
        """End all fetchers and wait for them."""
        logger.info("%s shutting down", self._who)
        self._fetchers.clear()
        self._tasks.clear()
        self._home.clear()
        await self._supervisor.stop()
        logger.info("%s shutdown completed", self._who)

    def _fetcher(self, key: tuple[int, int], leader: Node) -> ReplicaFetcher:
        present = self._fetchers.get(key)
        if present is not None and (present.leader.node.host, present.leader.node.port) == (leader.host, leader.port):
            return present
        moving: dict[TopicPartition, InitialFetchState] = {}
        if present is not None:
            # The leader came back at another address.
            for topic_partition in list(present.partitions):
                if (state := present.remove(topic_partition)) is not None:
                    moving[topic_partition] = state._replace(leader=leader)
            self._end(key)
        client_id = f"broker-{self._host.settings.broker_id}-fetcher-{key[1]}"
        endpoint = LeaderEndpoint(leader, self._connect(leader, client_id), self._host.settings)
        fetcher = self._fetchers[key] = ReplicaFetcher(endpoint, key[1], self._host, self.failed)
        for topic_partition, initial in moving.items():
            fetcher.add(topic_partition, initial)
        self._tasks[key] = self._supervisor.start(fetcher.run(), f"leader-{key[0]}-{key[1]}")
        return fetcher

    def _end(self, key: tuple[int, int]) -> None:
        del self._fetchers[key]
        self._tasks.pop(key).cancel()

    def _connect_by_network(self, leader: Node, client_id: str) -> LeaderConnection:
        settings = self._host.settings
        return BrokerClient(
            leader.host,
            leader.port,
            client_id=client_id,
            setup_timeouts=settings.setup_timeouts.steady,
            connect_timeout_ms=settings.replica_socket_timeout_ms,
            request_timeout_ms=settings.request_timeout_ms,
            lends_answers=True,
            security=settings.inter_broker_security(),
        )


def fetcher_id(topic_partition: TopicPartition, fetcher_count: int) -> int:
    """Return which of this many fetchers copies a partition, as Kafka spreads them."""
    if fetcher_count == 1:
        return 0
    return _java_abs(31 * _java_hash(topic_partition.topic) + topic_partition.partition) % fetcher_count


def _java_hash(text: str) -> int:
    """Return Java's String.hashCode of a topic name, which is ASCII."""
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value


def _java_abs(value: int) -> int:
    """Return Kafka's Utils.abs of an int that overflowed."""
    value &= 0xFFFFFFFF
    signed = value - (1 << 32) if value & 0x80000000 else value
    return 0 if signed == -(1 << 31) else abs(signed)


def scala_map(partitions: Mapping[TopicPartition, InitialFetchState]) -> str:
    """Return partitions and where fetching begins as Kafka's log lines write a map."""
    name = "Map" if len(partitions) <= 4 else "HashMap"
    return f"{name}({', '.join(listed(partitions.items(), lambda entry: f'{entry[0]} -> {entry[1]}'))})"


def scala_set(partitions: Collection[TopicPartition]) -> str:
    """Return partitions as Kafka's log lines write a set."""
    name = "Set" if len(partitions) <= 4 else "HashSet"
    return f"{name}({', '.join(listed(partitions))})"
