"""All replicas that a broker hosts: finds them, changes their roles as the controller says, shrinks ISRs.

It belongs to the broker's event loop. The log manager owns the files and writes the checkpoints; the fetcher manager
copies; requests that wait for a partition are in one of the purgatories here. Source: ReplicaManager of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Callable, Collection, Coroutine, Hashable, Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any, TypeVar

from engine.broker.log.disk_jobs import DiskJob, FlushJob
from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager
from engine.broker.log.partition_folder import shared_path
from engine.broker.metrics.measures import Timer
from engine.broker.replication import isr_proposals
from engine.broker.replication.fetcher_manager import Connect, FetcherManager
from engine.broker.replication.isr_updater import IsrUpdater
from engine.broker.replication.log_dir_copy import RunSlow
from engine.broker.replication.log_dir_moves import LogDirMoves
from engine.broker.replication.log_flushes import LogFlushes
from engine.broker.replication.metadata_cache import MetadataCache
from engine.broker.replication.partition import Partition
from engine.broker.replication.partition_environment import PartitionEnvironment, Wakeups
from engine.broker.replication.replica_selector import ReplicaSelector, ReplicaView
from engine.broker.replication.roles import make_nothing
from engine.broker.replication.settings import ReplicationSettings
from engine.broker.replication.state_change_log import StateChangeLogger
from engine.broker.replication.throttle import ReplicationQuota
from engine.common.clock import Clock
from engine.common.errors import ErrorCode, KafkaError
from engine.common.listing import listed
from engine.common.model import TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID
from engine.common.turns import pieces_of
from engine.kafka.protocol.apis.update_metadata import UpdateMetadataRequest
from engine.runtime.discards import Discards, in_pieces
from engine.runtime.purgatory import Purgatory
from engine.runtime.supervisor import Supervisor
from engine.runtime.turns import Breather, begin

logger = logging.getLogger("kafka.server.ReplicaManager")
partition_logger = logging.getLogger("kafka.cluster.Partition")

T = TypeVar("T")

LeadershipListener = Callable[[list[Partition], list[Partition]], None]
"""Receives the partitions that this broker leads, or follows, since a LeaderAndIsr request."""

StopListener = Callable[[list[TopicPartition]], None]
"""Receives the replicas that a StopReplica request has stopped."""


ENDED_AT_ONCE = 1_000
"""Replicas of a failed log dir that end in one turn of the event loop: some milliseconds."""


class ReplicaManager:
    """Owner of the partitions. Create it on the running event loop."""

    def __init__(
        self,
        settings: ReplicationSettings,
        *,
        clock: Clock,
        log_manager: LogManager,
        metadata_cache: MetadataCache,
        isr_updater: IsrUpdater,
        broker_epoch: Callable[[], int],
        run_slow: RunSlow,
        selector: ReplicaSelector | None = None,
        connect: Connect | None = None,
    ) -> None:
        """``run_slow`` runs in a thread what waits for a disk."""
        self.settings = settings
        self.clock = clock
        self.log_manager = log_manager
        self.metadata_cache = metadata_cache
        self.controller_epoch = 0
        """The highest epoch in any controller's request so far."""
        self.is_shutting_down = False
        self.partitions: dict[TopicPartition, Partition] = {}
        self.delayed_produce: Purgatory[Hashable] = Purgatory("Produce")
        self.delayed_fetch: Purgatory[Hashable] = Purgatory("Fetch")
        self.delayed_delete_records: Purgatory[Hashable] = Purgatory("DeleteRecords")
        self.wakeups = Wakeups(self.delayed_fetch, self.delayed_produce, self.delayed_delete_records)
        self.leader_quota, self.follower_quota = (
            ReplicationQuota(
                clock,
                window_count=settings.replication_quota_window_count,
                window_ms=settings.replication_quota_window_ms,
            )
            for _ in range(2)
        )
        self.state_change_log = StateChangeLogger(settings.broker_id)
        self.leadership_listeners: list[LeadershipListener] = []
        self.stop_listeners: list[StopListener] = []
        self.environment = PartitionEnvironment(
            broker_id=settings.broker_id,
            clock=clock,
            replica_lag_time_max_ms=settings.replica_lag_time_max_ms,
            is_alive=metadata_cache.has_alive_broker,
            isr_updater=isr_updater,
            wakeups=self.wakeups,
            state_change_log=self.state_change_log,
        )
        self.fetchers = FetcherManager(self, connect)
        self.flushes = LogFlushes(self._carry_out)
        self.log_dir_moves = LogDirMoves(settings, clock, log_manager, run_slow)
        self._broker_epoch = broker_epoch
        self._selector = selector
        self._run_slow = run_slow
        self.flush_times = Timer(time.monotonic())
        self._offline: set[TopicPartition] = set()
        self._made_now: set[TopicPartition] = set()
        """Logs that were created for a change and are not opened yet: no checkpoint has their high watermark."""
        self._changes = StateChangeQueue()
        self._metadata_updates = StateChangeQueue()
        self._supervisor = Supervisor("replica-manager")

    # -- start and stop

    def start(self) -> None:
        """Start the periodic work."""
        self._supervisor.every(max(1, self.settings.replica_lag_time_max_ms // 2), self.shrink_isrs, "isr-expiration")

    def begin_shutdown(self) -> None:
        """Start no more fetchers: controlled shutdown makes this broker a follower of everything."""
        self.is_shutting_down = True

    async def stop(self) -> None:
        """End fetchers and periodic work, and answer all waiting requests. Logs stay open."""
        logger.info("[ReplicaManager broker=%d] Shutting down", self.settings.broker_id)
        self.is_shutting_down = True
        await self._supervisor.stop()
        await self.fetchers.stop()
        await self.log_dir_moves.stop()
        await self.flushes.stop()
        for purgatory in (self.delayed_fetch, self.delayed_produce, self.delayed_delete_records):
            purgatory.complete_all()
        logger.info("[ReplicaManager broker=%d] Shut down completely", self.settings.broker_id)

    @property
    def broker_epoch(self) -> int:
        return self._broker_epoch()

    # -- finding

    def partition(self, topic: str, index: int) -> Partition:
        """Return a hosted partition.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR (its log dir is offline), NOT_LEADER_OR_FOLLOWER (hosted elsewhere),
                UNKNOWN_TOPIC_OR_PARTITION.
        """
        partition = self.partitions.get((topic, index))  # type: ignore[call-overload]
        if partition is not None:
            return partition  # type: ignore[no-any-return]
        topic_partition = TopicPartition(topic, index)
        if topic_partition in self._offline:
            raise KafkaError(
                ErrorCode.KAFKA_STORAGE_ERROR, f"Partition {topic_partition} is in an offline log directory"
            )
        if self.metadata_cache.contains(topic_partition):
            # Other brokers host it, or this one will after the next LeaderAndIsr request: clients look for the leader.
            raise KafkaError(
                ErrorCode.NOT_LEADER_OR_FOLLOWER, f"Partition {topic_partition} is not hosted by this broker"
            )
        raise KafkaError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"Partition {topic_partition} does not exist")

    def hosted_partition(self, topic_partition: TopicPartition) -> Partition | None:
        return self.partitions.get(topic_partition)

    @property
    def offline_count(self) -> int:
        """Replicas on log dirs that have failed."""
        return len(self._offline)

    def is_offline(self, topic_partition: TopicPartition) -> bool:
        return topic_partition in self._offline

    def log_of(self, topic_partition: TopicPartition) -> Log | None:
        """Return the replica's log, whether or not the controller has named it yet."""
        partition = self.partitions.get(topic_partition)
        if partition is not None and partition.log is not None:
            return partition.log
        return self.log_manager.get(topic_partition)

    def known_topic_id(self, topic_partition: TopicPartition) -> bytes:
        """Return the topic id in the replica's log; the zero id if there is no log or no id."""
        log = self.log_of(topic_partition)
        return ZERO_TOPIC_ID if log is None or log.topic_id is None else log.topic_id

    # -- requests of the controller

    async def undisturbed(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Carry a change out to its end, even if its requester goes away.

        Otherwise a follower that has its new epoch but no fetcher yet would stay like that: a repeated request changes
        nothing.
        """
        return await asyncio.shield(self._supervisor.start(self._changes.run(change), "state change"))

    def update_metadata(self, request: UpdateMetadataRequest, *, correlation_id: int) -> list[TopicPartition]:
        """Apply an UpdateMetadata request; return the partitions that are being deleted.

        Not while ``is_updating_metadata``.

        Raises:
            KafkaError: STALE_CONTROLLER_EPOCH.
        """
        self._take_controller_epoch(request, correlation_id)
        return self.metadata_cache.update(request, correlation_id)

    async def update_metadata_in_turns(
        self, request: UpdateMetadataRequest, *, correlation_id: int
    ) -> list[TopicPartition]:
        """Do the same after earlier updates, and give way to the event loop now and then."""

        async def update() -> list[TopicPartition]:
            self._take_controller_epoch(request, correlation_id)
            return await self.metadata_cache.update_in_turns(request, correlation_id)

        return await self._metadata_updates.run(update)

    @property
    def is_updating_metadata(self) -> bool:
        """Whether an update in turns is under way: the next one has to wait for it."""
        return self._metadata_updates.is_busy

    def _take_controller_epoch(self, request: UpdateMetadataRequest, correlation_id: int) -> None:
        if request.controller_epoch < self.controller_epoch:
            sentence = (
                f"Received update metadata request with correlation id {correlation_id} from an old controller "
                f"{request.controller_id} with epoch {request.controller_epoch}. Latest known controller epoch is "
                f"{self.controller_epoch}"
            )
            self.state_change_log.warning(sentence)
            raise KafkaError(ErrorCode.STALE_CONTROLLER_EPOCH, sentence)
        self.controller_epoch = request.controller_epoch

    def host(self, topic_partition: TopicPartition) -> Partition:
        """Return the partition, created if it is not hosted yet. For state changes only."""
        partition = self.partitions.get(topic_partition)
        if partition is None:
            partition = self.partitions[topic_partition] = Partition(topic_partition, self.environment)
        return partition

    def forget_if_idle(self, topic_partition: TopicPartition) -> None:
        """Drop a partition that was created for a change which failed before it got a log."""
        partition = self.partitions.get(topic_partition)
        if partition is not None and partition.log is None:
            del self.partitions[topic_partition]

    async def create_logs(self, topic_ids: Mapping[TopicPartition, bytes]) -> None:
        """Create missing logs in threads; ``open_log`` finds them, or finds out what is wrong."""
        missing = [tp for tp in topic_ids if self.log_manager.get(tp) is None]
        if not missing:
            return
        self._made_now.update(missing)
        known_ids = {tp: topic_id for tp, topic_id in topic_ids.items() if topic_id != ZERO_TOPIC_ID}
        await self._carry_out(self.log_manager.creation_jobs(missing, known_ids))

    async def _carry_out(self, jobs: Iterable[DiskJob]) -> None:
        """Do disk work in threads, to its end."""
        running = [asyncio.create_task(self._run(job), name="disk job") for job in jobs]
        if not running:
            return
        try:
            await asyncio.shield(asyncio.gather(*running))
        except asyncio.CancelledError:
            # Threads cannot be stopped, and must not outlive the shutdown.
            await asyncio.wait(running)
            raise

    async def _run(self, job: DiskJob) -> None:
        begun_s = time.monotonic()
        await self._run_slow(job.run)
        job.finish()
        if isinstance(job, FlushJob):
            now_s = time.monotonic()
            self.flush_times.add(1000 * (now_s - begun_s), now_s)

    def open_log(self, topic_partition: TopicPartition, topic_id: bytes, *, is_new: bool) -> Log:
        """Return the replica's log, created if there is none. Raises KafkaError."""
        partition = self.partitions.get(topic_partition)
        is_first_time = partition is None or partition.log is None
        has_no_mark = topic_partition in self._made_now or self.log_manager.get(topic_partition) is None
        self._made_now.discard(topic_partition)
        log = self.log_manager.get_or_create(
            topic_partition, topic_id=None if topic_id == ZERO_TOPIC_ID else topic_id, is_new=is_new
        )
        if is_first_time:
            who = f"[Partition {topic_partition} broker={self.settings.broker_id}]"
            if has_no_mark:
                partition_logger.info(
                    "%s No checkpointed highwatermark is found for partition %s", who, topic_partition
                )
            partition_logger.info(
                "%s Log loaded for partition %s with initial high watermark %d",
                who,
                topic_partition,
                log.high_watermark,
            )
        return log

    async def forget_logs(self, topic_partitions: Collection[TopicPartition]) -> bool:
        """Remove deleted logs from the checkpoints on disk; return whether none of them names these logs now."""
        jobs = self.log_manager.forgetting_jobs(topic_partitions)
        await self._carry_out(jobs)
        return all(job.error is None for job in jobs)

    async def settle_cuts(self, logs: Collection[Log]) -> None:
        """Finish the cuts of these logs, before anything is appended to them: on disk, and in producer states.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when a disk fails.
        """
        unsettled = {log: log.truncation_count for log in logs if log.is_unsettled}
        jobs = self.log_manager.settling_jobs(unsettled)
        await self._carry_out(jobs)
        if any(job.error is not None for job in jobs):
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "A cut of a log could not be noted on disk")
        for log, cuts in unsettled.items():
            if log.truncation_count == cuts and not log.is_retired:
                log.has_unsettled_cut = False
                log.build_producers()

    def leadership_changed(self, leaders: list[Partition], followers: list[Partition]) -> None:
        if leaders or followers:
            for listener in self.leadership_listeners:
                listener(leaders, followers)

    def replicas_stopped(self, topic_partitions: list[TopicPartition]) -> None:
        if topic_partitions:
            for listener in self.stop_listeners:
                listener(topic_partitions)

    # -- log dirs

    def resume_log_dir_moves(self, partitions: list[Partition]) -> None:
        """Resume moves of replicas whose role is known now."""
        if not self.log_manager.future_logs:
            return
        for partition in partitions:
            try:
                self.log_dir_moves.resume(partition)
            except KafkaError as error:
                logger.error("A move between log dirs cannot go on partition=%s: %s", partition.topic_partition, error)

    def mark_offline(self, topic_partition: TopicPartition) -> None:
        """Stop hosting the partition: its log dir has failed. Only a restart brings it back."""
        self._offline.add(topic_partition)
        partition = self.partitions.pop(topic_partition, None)
        if partition is not None:
            make_nothing(partition)

    def handle_log_dir_failure(self, log_dir: Path) -> None:
        """Take all replicas of a log dir offline. The caller tells the controller through ZooKeeper.

        From now on no request finds them, and this broker leads none of them. What they were doing ends in turns: for
        20,000 that takes 100 ms.
        """
        who = f"[ReplicaManager broker={self.settings.broker_id}]"
        logger.warning(
            "%s Stopping serving replicas in dir %s with uuid None because the log directory has failed.", who, log_dir
        )
        where = shared_path(log_dir)
        failed = [p for p in self.partitions.values() if p.log is not None and p.log.log_dir is where]
        moving = [p for p in self.partitions.values() if p.future_log is not None and p.future_log.log_dir is where]
        for partition in failed:
            self._offline.add(partition.topic_partition)
            del self.partitions[partition.topic_partition]
            # An ISR change that is still asked for or answered must not confirm what only the failed disk has.
            partition.leader_log = None
        self.log_dir_moves.remove([partition.topic_partition for partition in moving])
        for partition in moving:
            partition.future_log = None
        begin(self._end_failed(failed))
        logger.warning(
            "%s Broker %d stopped fetcher for partitions %s and stopped moving logs for partitions %s because they are "
            "in the failed log directory %s.",
            who,
            self.settings.broker_id,
            *(",".join(listed(these, lambda p: str(p.topic_partition))) for these in (failed, moving)),
            log_dir,
        )

    def _end_failed(self, failed: list[Partition]) -> Iterator[None]:
        for portion in pieces_of(failed, ENDED_AT_ONCE):
            names = [partition.topic_partition for partition in portion]
            self.fetchers.remove(names)
            self.log_dir_moves.remove(names)
            # The partitions are the last to have them.
            Discards.of_loop().put(in_pieces([partition.log for partition in portion]))
            for partition in portion:
                make_nothing(partition)
            yield

    # -- periodic work

    async def shrink_isrs(self) -> None:
        """Request the removal of followers that lag too long from the ISRs.

        In turns: a broker that is frozen falls out of all of its partitions' ISRs at once.
        """
        breather = Breather()
        for partition in list(self.partitions.values()):
            await breather.give_way()
            if partition.leader_log is None or not partition.followers:
                continue
            isr_proposals.maybe_shrink(partition)
            # A follower about to join holds the high watermark back; if it dies, nothing else would release it.
            if partition.advance_high_watermark():
                partition.changed()

    # -- reading from followers, and throttles

    def preferred_read_replica(
        self, partition: Partition, *, rack: str, replica_id: int, fetch_offset: int, listener_name: str
    ) -> int:
        """Return the broker from which a consumer should preferably read (KIP-392); -1 for this one.

        Only a leader sends consumers elsewhere, and only to in-sync replicas that have the offset.
        """
        log = partition.leader_log
        if self._selector is None or replica_id >= 0 or log is None:
            return -1
        now_ms = self.clock.monotonic_ms()
        node = self.metadata_cache.node
        own = node(self.settings.broker_id, listener_name)
        leader = ReplicaView(self.settings.broker_id, None if own is None else own.rack, log.log_end_offset, 0)
        replicas = [leader]
        for follower in partition.followers.values():
            address = node(follower.broker_id, listener_name)
            is_in_sync = follower.broker_id in partition.isr_state.committed
            has_offset = follower.log_start_offset <= fetch_offset <= follower.log_end_offset
            if is_in_sync and has_offset and address is not None:
                lag_ms = now_ms - follower.last_caught_up_ms
                replicas.append(ReplicaView(follower.broker_id, address.rack, follower.log_end_offset, lag_ms))
        selected = self._selector(rack, leader, replicas)
        return -1 if selected == leader.broker_id else selected

    def should_leader_throttle(self, partition: Partition, replica_id: int) -> bool:
        """Whether to send this follower nothing now: it is throttled, over the quota, and not in sync."""
        quota = self.leader_quota
        return (
            quota.has_throttled
            and replica_id not in partition.isr_state.committed
            and quota.is_throttled(partition.topic_partition)
            and quota.is_exceeded
        )

    # -- figures


class StateChangeQueue:
    """One state change at a time, each in its caller's task, in order of arrival.

    A change gives way to the event loop now and then, so that creating a thousand logs does not block producers.
    Without this queue the next request could come in between.
    """

    def __init__(self) -> None:
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._is_busy = False

    @property
    def is_busy(self) -> bool:
        return self._is_busy

    async def run(self, change: Callable[[], Coroutine[Any, Any, T]]) -> T:
        """Wait for this change's turn, carry it out, and return its result."""
        if self._is_busy:
            turn = asyncio.get_running_loop().create_future()
            self._waiting.append(turn)
            try:
                await turn
            except asyncio.CancelledError:
                if turn.done() and not turn.cancelled():
                    self._next()
                raise
        self._is_busy = True
        try:
            return await change()
        finally:
            self._next()

    def _next(self) -> None:
        """Hand over without a gap: the first in the queue gets the turn, not the next one to ask."""
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._is_busy = False
