"""The partitions of one fetcher: fetched, cut, paused or given up, and the state of its fetch session.

It sends nothing and touches no log.
"""

from __future__ import annotations

import logging
from collections.abc import Collection, Generator, Iterable
from typing import NamedTuple, Protocol

from engine.broker.log.log import Log
from engine.broker.replication.follower_fetch_session import FetchWanted, FollowerFetchSession
from engine.broker.replication.log_flushes import LogFlushes
from engine.broker.replication.partition import Partition
from engine.broker.replication.settings import ReplicationSettings
from engine.broker.replication.state_change_log import topic_id_option
from engine.broker.replication.throttle import ReplicationQuota
from engine.broker.replication.truncation import UNDEFINED_EPOCH
from engine.common.clock import Clock
from engine.common.errors import KafkaError
from engine.common.model import Node, TopicPartition
from engine.runtime.descriptors import is_out_of_descriptors

logger = logging.getLogger("kafka.server.ReplicaFetcherThread")

FIRST_PAUSE_MS = 50


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
        last_fetched_epoch: int,
        topic_id: bytes,
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


class FollowerHost(Protocol):
    """What a fetcher needs from its broker."""

    @property
    def settings(self) -> ReplicationSettings: ...
    @property
    def clock(self) -> Clock: ...
    @property
    def broker_epoch(self) -> int: ...
    @property
    def follower_quota(self) -> ReplicationQuota: ...
    @property
    def flushes(self) -> LogFlushes: ...
    def hosted_partition(self, topic_partition: TopicPartition) -> Partition | None: ...
    async def settle_cuts(self, logs: Collection[Log]) -> None: ...


class FetchTable:
    """All states by partition. ``who`` is the prefix of log lines."""

    def __init__(self, host: FollowerHost, failed: set[TopicPartition], who: str, *, truncates_on_fetch: bool) -> None:
        self.session = FollowerFetchSession(who)
        self.states: dict[TopicPartition, FetchState] = {}
        self.truncating: dict[TopicPartition, FetchState] = {}
        self.who = who
        self._host = host
        self._failed = failed
        self.leaves_out = False
        """Some partitions are throttled at the moment."""
        self.delayed: dict[TopicPartition, FetchState] = {}
        self._truncates_on_fetch = truncates_on_fetch

    def add(self, topic_partition: TopicPartition, initial: InitialFetchState) -> None:
        """Begin to fetch a partition; if it is fetched under this leader epoch already, nothing changes."""
        self._failed.discard(topic_partition)
        present = self.states.get(topic_partition)
        if present is not None and present.leader_epoch == initial.leader_epoch:
            return
        self.remove(topic_partition)
        last_epoch = self.last_epoch(topic_partition)
        # Without epochs in the log, with a gap in it, or with an old leader, it is cut before it is fetched.
        state = FetchState(
            topic_partition,
            fetch_offset=initial.fetch_offset,
            leader_epoch=initial.leader_epoch,
            is_truncating=not self._truncates_on_fetch
            or last_epoch == UNDEFINED_EPOCH
            or self._has_gap(topic_partition),
            last_fetched_epoch=last_epoch,
            topic_id=initial.topic_id,
        )
        self.states[topic_partition] = state
        self._resume(state)

    def remove(self, topic_partition: TopicPartition) -> FetchState | None:
        """Stop fetching a partition and return its state; None if it was not fetched here."""
        state = self.states.pop(topic_partition, None)
        if state is not None:
            self.truncating.pop(topic_partition, None)
            self.delayed.pop(topic_partition, None)
            self.session.drop(topic_partition)
        return state

    def is_current(self, state: FetchState) -> bool:
        """Return whether the state is still the partition's: it may have changed while an answer was awaited."""
        return self.states.get(state.topic_partition) is state

    def update_topic_id(self, topic_partition: TopicPartition, topic_id: bytes) -> None:
        """Name the topic by another id from the next request on; the zero id means by name."""
        state = self.states.get(topic_partition)
        if state is not None:
            state.topic_id = topic_id
            if state.is_ready:
                self.want(state)

    def want(self, state: FetchState, *, is_last: bool = False) -> None:
        """Put the partition into the next request, with its current state; last if its answer had records."""
        partition = self._host.hosted_partition(state.topic_partition)
        if partition is None or partition.log is None or state.is_throttled:
            self.session.drop(state.topic_partition)
            return
        wanted = FetchWanted(
            state.topic_id,
            state.fetch_offset,
            partition.log.log_start_offset,
            self._host.settings.replica_fetch_max_bytes,
            state.leader_epoch,
            state.last_fetched_epoch if self._truncates_on_fetch else UNDEFINED_EPOCH,
            state,
        )
        self.session.want(state.topic_partition, wanted, is_last=is_last)

    def truncated(self, state: FetchState) -> None:
        """Resume fetching after the log has been cut."""
        state.is_truncating = False
        self.truncating.pop(state.topic_partition, None)
        self.want(state)

    def _has_gap(self, topic_partition: TopicPartition) -> bool:
        partition = self._host.hosted_partition(topic_partition)
        return partition is not None and partition.log is not None and partition.log.gap is not None

    def hold(self, state: FetchState) -> None:
        """Leave a partition out until ``truncated`` is called: its log is not ready for more."""
        state.is_truncating = True
        self.truncating.pop(state.topic_partition, None)
        self.session.drop(state.topic_partition)

    def last_epoch(self, topic_partition: TopicPartition) -> int:
        """Return the latest leader epoch in the follower's own log, -1 if there is none."""
        partition = self._host.hosted_partition(topic_partition)
        if partition is None or partition.log is None:
            return UNDEFINED_EPOCH
        return partition.log.leader_epochs.latest_epoch

    # -- pauses and failures

    def throttle(self) -> None:
        """Leave out partitions that are throttled, over the quota and not in sync; include them when that ends."""
        quota = self._host.follower_quota
        is_exceeded = quota.is_exceeded
        self.leaves_out = False
        for topic_partition, state in self.states.items():
            is_throttled = is_exceeded and not state.is_in_sync and quota.is_throttled(topic_partition)
            self.leaves_out |= is_throttled
            if is_throttled != state.is_throttled:
                state.is_throttled = is_throttled
                if is_throttled:
                    self.session.drop(topic_partition)
                elif state.is_ready:
                    self.want(state)

    def delay(self, states: Iterable[FetchState]) -> None:
        """Pause these partitions: briefly at first, up to ``replica.fetch.backoff.ms`` if they keep failing.

        Kafka always pauses that long, so a follower that learns of a new leader before the leader does loses a second.
        """
        now_ms = self._host.clock.monotonic_ms()
        backoff_ms = self._host.settings.replica_fetch_backoff_ms
        for state in states:
            if self.is_current(state) and state.delayed_until_ms is None:
                state.delayed_until_ms = now_ms + min(backoff_ms, FIRST_PAUSE_MS << min(state.failures, 16))
                state.failures += 1
                self.delayed[state.topic_partition] = state
                self.truncating.pop(state.topic_partition, None)
                self.session.drop(state.topic_partition)

    def delay_all(self) -> None:
        """Pause everything: the leader does not answer."""
        self.delay(list(self.states.values()))

    def end_delays(self) -> Generator[None, None, None]:
        """Resume partitions that have paused long enough, in turns: to resume 20,000 takes 40 ms."""
        now_ms = self._host.clock.monotonic_ms()
        for topic_partition, state in list(self.delayed.items()):
            is_delayed = self.delayed.get(topic_partition) is state
            if is_delayed and state.delayed_until_ms is not None and state.delayed_until_ms <= now_ms:
                state.delayed_until_ms = None
                del self.delayed[topic_partition]
                self._resume(state)
            yield

    def next_turn_ms(self) -> int:
        """Return how long to wait if there is nothing to fetch: until the first pause ends, at most the back-off."""
        wait_ms = self._host.settings.replica_fetch_backoff_ms
        if self.delayed:
            now_ms = self._host.clock.monotonic_ms()
            due_ms = min(s.delayed_until_ms or now_ms for s in self.delayed.values())
            wait_ms = min(wait_ms, due_ms - now_ms)
        return max(1, wait_ms)

    def fenced(self, state: FetchState) -> None:
        """Set a partition aside because the leader has a newer leader epoch."""
        logger.info(
            "%s Partition %s has an older epoch (%d) than the current leader. Will await the new LeaderAndIsr state "
            "before resuming fetching.",
            self.who,
            state.topic_partition,
            state.leader_epoch,
        )
        self._mark_failed(state)

    def give_up(self, state: FetchState, sentence: str, error: BaseException) -> None:
        """Set a partition aside until a LeaderAndIsr request names it again; the others continue.

        A partition that only lacks a file descriptor pauses.
        """
        logger.error(
            "%s %s for partition %s: %s",
            self.who,
            sentence,
            state.topic_partition,
            error,
            exc_info=None if isinstance(error, KafkaError) else error,
        )
        if is_out_of_descriptors(error):
            self.delay([state])
        else:
            self._mark_failed(state)

    def _mark_failed(self, state: FetchState) -> None:
        self._failed.add(state.topic_partition)
        self.remove(state.topic_partition)
        logger.warning("%s Partition %s marked as failed", self.who, state.topic_partition)

    def _resume(self, state: FetchState) -> None:
        if state.is_truncating:
            self.truncating[state.topic_partition] = state
        else:
            self.want(state)


def continued(state: FetchState, leader: Node) -> InitialFetchState:
    """Return how a removed partition continues in another fetcher."""
    return InitialFetchState(state.topic_id, leader, state.leader_epoch, state.fetch_offset)
