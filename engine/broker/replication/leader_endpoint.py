"""A follower's requests to its leader: Fetch, ListOffsets and OffsetForLeaderEpoch, in the versions of the
inter-broker protocol. It has one connection and knows nothing about logs.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, Protocol

from engine.broker.replication.follower_fetch_session import TOPIC_IDS_SINCE, FetchPlan, add_to_topics
from engine.broker.replication.settings import ReplicationSettings
from engine.common.errors import ErrorCode, KafkaError, error_code
from engine.common.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, Node, TopicPartition
from engine.common.turns import pieces_of
from engine.kafka.client.broker_client import BrokerClient, ChannelTotals
from engine.kafka.config.metadata_version import (
    fetch_version,
    is_offset_for_leader_epoch_supported,
    is_truncation_on_fetch_supported,
    list_offsets_version,
    offset_for_leader_epoch_version,
)
from engine.kafka.protocol.apis.fetch import FetchRequest, FetchResponse, FetchTopic, ReplicaState
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from engine.kafka.protocol.declaration import Request
from engine.runtime.turns import Breather

ADDED_AT_ONCE = 500
"""Partitions of a request between two looks at the time: a millisecond's work."""


class LeaderConnection(Protocol):
    """The part of ``network.client.BrokerClient`` that followers use."""

    async def send(self, request: Request, api_version: int) -> Any: ...
    async def close(self) -> None: ...


class EpochAnswer:
    """A leader's answer about one epoch: its largest epoch at or below, and that epoch's end offset."""

    __slots__ = ("end_offset", "error", "leader_epoch")

    def __init__(self, error: ErrorCode, leader_epoch: int = -1, end_offset: int = -1) -> None:
        self.error = error
        self.leader_epoch = leader_epoch
        self.end_offset = end_offset


class LeaderEndpoint:
    """One leader, for one fetcher."""

    def __init__(self, node: Node, connection: LeaderConnection, settings: ReplicationSettings) -> None:
        self.node = node
        self._connection = connection
        self._settings = settings
        ibp = settings.inter_broker_protocol_version
        self.truncates_on_fetch = is_truncation_on_fetch_supported(ibp)
        self.knows_epochs = is_offset_for_leader_epoch_supported(ibp)
        self._fetch_version = fetch_version(ibp)
        self._list_offsets_version = list_offsets_version(ibp)
        self._epochs_version = offset_for_leader_epoch_version(ibp)

    @property
    def totals(self) -> ChannelTotals:
        """What its connections have done."""
        connection = self._connection
        return connection.totals if isinstance(connection, BrokerClient) else ChannelTotals()

    async def fetch(self, plan: FetchPlan, broker_epoch: int) -> tuple[FetchResponse, int]:
        """Send one Fetch and return its answer with the version of the request.

        Raises:
            NetworkError, RemoteProtocolError: there is no usable answer.
        """
        version = self._fetch_version
        if version >= TOPIC_IDS_SINCE and not plan.uses_topic_ids:
            version = TOPIC_IDS_SINCE - 1
        settings, breather = self._settings, Breather()
        topics: list[FetchTopic] = []
        for piece in pieces_of(plan.sent.items(), ADDED_AT_ONCE):
            add_to_topics(topics, piece)
            await breather.give_way()
        request = FetchRequest(
            max_wait_ms=settings.replica_fetch_wait_max_ms,
            min_bytes=settings.replica_fetch_min_bytes,
            max_bytes=settings.replica_fetch_response_max_bytes,
            session_id=plan.session_id,
            session_epoch=plan.session_epoch,
            topics=topics,
            forgotten_topics_data=plan.forgotten,
        )
        if version >= 15:
            request.replica_state = ReplicaState(replica_id=settings.broker_id, replica_epoch=broker_epoch)
        else:
            request.replica_id = settings.broker_id
        return await self._connection.send(request, version), version

    async def latest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        """Return the leader's log end offset. Raises KafkaError with the leader's error, NetworkError."""
        return await self._list_offset(topic_partition, leader_epoch, LATEST_TIMESTAMP)

    async def earliest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        """Return the leader's log start offset. Raises KafkaError with the leader's error, NetworkError."""
        return await self._list_offset(topic_partition, leader_epoch, EARLIEST_TIMESTAMP)

    async def epoch_end_offsets(
        self, wanted: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochAnswer]:
        """Ask for the end of one epoch per partition; ``wanted`` maps to (current leader epoch, requested epoch)."""
        topics: dict[str, OffsetForLeaderTopic] = {}
        for (name, index), (current_leader_epoch, leader_epoch) in wanted.items():
            topic = topics.setdefault(name, OffsetForLeaderTopic(topic=name, partitions=[]))
            topic.partitions.append(
                OffsetForLeaderPartition(
                    partition=index, current_leader_epoch=current_leader_epoch, leader_epoch=leader_epoch
                )
            )
        request = OffsetForLeaderEpochRequest(replica_id=self._settings.broker_id, topics=list(topics.values()))
        response = await self._connection.send(request, self._epochs_version)
        return {
            TopicPartition(topic.topic, answer.partition): EpochAnswer(
                error_code(answer.error_code), answer.leader_epoch, answer.end_offset
            )
            for topic in response.topics
            for answer in topic.partitions
        }

    async def close(self) -> None:
        await self._connection.close()

    async def _list_offset(self, topic_partition: TopicPartition, leader_epoch: int, timestamp: int) -> int:
        partition = ListOffsetsPartition(
            partition_index=topic_partition.partition, current_leader_epoch=leader_epoch, timestamp=timestamp
        )
        request = ListOffsetsRequest(
            replica_id=self._settings.broker_id,
            topics=[ListOffsetsTopic(name=topic_partition.topic, partitions=[partition])],
        )
        response = await self._connection.send(request, self._list_offsets_version)
        answer = response.topics[0].partitions[0]
        if answer.error_code != ErrorCode.NONE:
            raise KafkaError(error_code(answer.error_code), f"the leader's offsets of {topic_partition} were asked for")
        offset: int = answer.old_style_offsets[0] if self._list_offsets_version == 0 else answer.offset
        return offset
