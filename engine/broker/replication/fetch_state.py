"""The progress of a follower with one partition."""

from __future__ import annotations

from typing import NamedTuple

from engine.broker.replication.state_change_log import topic_id_option
from engine.common.model import Node, TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID


class InitialFetchState(NamedTuple):
    """How fetching begins: from which leader, under which leader epoch, at which offset."""

    topic_id: bytes
    leader: Node
    leader_epoch: int
    fetch_offset: int

    def __str__(self) -> str:
        endpoint = f"BrokerEndPoint(id={self.leader.id}, host={self.leader.host}:{self.leader.port})"
        return f"InitialFetchState({topic_id_option(self.topic_id)},{endpoint},{self.leader_epoch},{self.fetch_offset})"


class FetchState:
    """One partition of a fetcher. Each leader epoch gets a new one, so that identity reveals an old answer."""

    __slots__ = (
        "delayed_until_ms",
        "failures",
        "fetch_offset",
        "is_throttled",
        "is_truncating",
        "lag",
        "last_fetched_epoch",
        "leader_epoch",
        "topic_id",
        "topic_partition",
    )

    def __init__(
        self,
        topic_partition: TopicPartition,
        *,
        fetch_offset: int,
        leader_epoch: int,
        is_truncating: bool,
        last_fetched_epoch: int = -1,
        topic_id: bytes = ZERO_TOPIC_ID,
    ) -> None:
        self.topic_partition = topic_partition
        self.topic_id = topic_id
        self.fetch_offset = fetch_offset
        self.leader_epoch = leader_epoch
        self.is_truncating = is_truncating
        self.last_fetched_epoch = last_fetched_epoch
        self.lag: int | None = None
        """Records behind the leader's high watermark; None before the first answer."""
        self.delayed_until_ms: int | None = None
        self.failures = 0
        """Failures since the last usable answer."""
        self.is_throttled = False

    @property
    def is_ready(self) -> bool:
        return not self.is_truncating and self.delayed_until_ms is None

    @property
    def is_in_sync(self) -> bool:
        return self.lag is not None and self.lag <= 0
