"""Moves of replicas between the log dirs of this broker (KIP-113): which are under way, and which worker copies.

A few workers, ``num.replica.alter.log.dirs.threads`` of them, copy one partition each at a time; they are tasks, not
threads. Source: ReplicaAlterLogDirsManager of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager
from engine.broker.log.log_moves import create_future_log, delete_future_log
from engine.broker.replication.fetch_table import InitialFetchState
from engine.broker.replication.fetcher_manager import fetcher_id, scala_map, scala_set
from engine.broker.replication.log_dir_copy import LogDirCopy, RunSlow
from engine.broker.replication.partition import Partition
from engine.broker.replication.settings import ReplicationSettings
from engine.broker.replication.throttle import ReplicationQuota
from engine.common.clock import Clock
from engine.common.errors import ErrorCode, KafkaError, KlammError
from engine.common.model import Node, TopicPartition
from engine.runtime.supervisor import Supervisor
from engine.runtime.turns import Turns

logger = logging.getLogger("kafka.server.ReplicaAlterLogDirsManager")
worker_logger = logging.getLogger("kafka.server.ReplicaAlterLogDirsThread")
endpoint_logger = logging.getLogger("kafka.server.LocalLeaderEndPoint")
partition_logger = logging.getLogger("kafka.cluster.Partition")

LONGEST_PAUSE_MS = 60_000
"""The time between two tries of a move that keeps failing."""

IDLE_MS = 100
"""How long a worker waits if it is over the quota, or all its partitions pause."""


class LogDirMoves:
    """Owner of the moves. ``quota`` bounds all of them together."""

    def __init__(self, settings: ReplicationSettings, clock: Clock, log_manager: LogManager, run_slow: RunSlow) -> None:
        self.quota = ReplicationQuota(
            clock,
            window_count=settings.alter_log_dirs_quota_window_count,
            window_ms=settings.alter_log_dirs_quota_window_ms,
        )
        self._settings = settings
        self._clock = clock
        self._log_manager = log_manager
        self._run_slow = run_slow
        self._worker_count = settings.num_replica_alter_log_dirs_threads or len(log_manager.config.log_dirs)
        self._copies: dict[TopicPartition, LogDirCopy] = {}
        self._workers: dict[int, asyncio.Task[None]] = {}
        self._supervisor = Supervisor("log-dir-moves")
        self._who = f"[ReplicaAlterLogDirsManager on broker {settings.broker_id}]"

    @property
    def moving(self) -> frozenset[TopicPartition]:
        return frozenset(self._copies)

    # -- begin and end

    def move(self, partition: Partition, log_dir: Path) -> None:
        """Begin to move a replica that has a log and no future log elsewhere; nothing happens if it is there already.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR.
        """
        current = partition.log
        assert current is not None
        if current.log_dir == log_dir:
            partition_logger.info(
                "[Partition %s broker=%d] Current log directory %s is same as requested log dir %s. Skipping future "
                "replica creation.",
                partition.topic_partition,
                self._settings.broker_id,
                current.log_dir,
                log_dir,
            )
            return
        if partition.future_log is None:
            partition.future_log = self._create(current, log_dir)
        self._begin(partition, partition.future_log)

    def resume(self, partition: Partition) -> None:
        """Resume a move that was under way before the broker stopped, or before the replica's role changed."""
        future, current = self._log_manager.future_logs.get(partition.topic_partition), partition.log
        if future is None or current is None:
            return
        is_of_other_topic = None not in (future.topic_id, current.topic_id) and future.topic_id != current.topic_id
        if future.log_dir == current.log_dir or is_of_other_topic:
            logger.warning("%s A future log is no longer needed and is deleted dir=%s", self._who, future.dir)
            self.cancel(partition)
            return
        partition.future_log = future
        self._begin(partition, future)

    def cancel(self, partition: Partition) -> None:
        """Leave a replica where it is and drop what was copied. Raises KafkaError KAFKA_STORAGE_ERROR."""
        self.remove([partition.topic_partition])
        partition.future_log = None
        delete_future_log(self._log_manager, partition.topic_partition)

    def remove(self, topic_partitions: Iterable[TopicPartition]) -> None:
        """Stop copying these replicas; their future logs stay."""
        names = list(topic_partitions)
        for name in names:
            copy = self._copies.pop(name, None)
            if copy is not None:
                copy.is_cancelled = True
        if names:
            logger.info("%s Removed fetcher for partitions %s", self._who, scala_set(names))

    async def stop(self) -> None:
        """Stop copying; the next start resumes."""
        logger.info("%s shutting down", self._who)
        for copy in self._copies.values():
            copy.is_cancelled = True
        self._copies.clear()
        await self._supervisor.stop()
        logger.info("%s shutdown completed", self._who)

    def _create(self, current: Log, log_dir: Path) -> Log:
        name = current.topic_partition
        future = create_future_log(self._log_manager, name, log_dir)
        if current.topic_id is not None:
            future.assign_topic_id(current.topic_id)
        who = f"[Partition {name} broker={self._settings.broker_id}]"
        partition_logger.info("%s No checkpointed highwatermark is found for partition %s", who, name)
        partition_logger.info(
            "%s Log loaded for partition %s with initial high watermark %d", who, name, future.high_watermark
        )
        return future

    def _begin(self, partition: Partition, future: Log) -> None:
        name = partition.topic_partition
        present = self._copies.get(name)
        if present is not None and present.future is future and present.partition is partition:
            return
        number = fetcher_id(name, self._worker_count)
        self._copies[name] = LogDirCopy(
            partition,
            future,
            log_manager=self._log_manager,
            quota=self.quota,
            read_bytes_max=self._settings.replica_fetch_max_bytes,
            run_slow=self._to_its_end,
            who=f"[ReplicaAlterLogDirsThread-{number}]",
        )
        leader = Node(self._settings.broker_id, "localhost", -1)
        state = InitialFetchState(partition.topic_id, leader, partition.leader_epoch, future.high_watermark)
        logger.info(
            "%s Added log dir fetcher for partitions with initial offsets %s", self._who, scala_map({name: state})
        )
        worker = self._workers.get(number)
        if worker is None or worker.done():
            self._workers[number] = self._supervisor.start(self._work(number), f"worker-{number}")

    # -- workers

    async def _work(self, number: int) -> None:
        """Copy this worker's partitions, one after the other, until none is left."""
        who = f"[ReplicaAlterLogDirsThread-{number}]"
        worker_logger.info("%s: Starting", who)
        present: LogDirCopy | None = None
        try:
            while mine := [c for name, c in self._copies.items() if fetcher_id(name, self._worker_count) == number]:
                now_ms = self._clock.monotonic_ms()
                ready = [copy for copy in mine if copy.paused_until_ms <= now_ms]
                if self.quota.is_exceeded or not ready:
                    await asyncio.sleep(IDLE_MS / 1000)
                    continue
                if present not in ready:
                    present = min(ready, key=lambda copy: copy.topic_partition)
                    endpoint_logger.info(
                        "Beginning/resuming copy of partition %s from offset %d. Including this partition, there are "
                        "%d remaining partitions to copy by this thread.",
                        present.topic_partition,
                        present.future.log_end_offset,
                        len(mine),
                    )
                await self._step(present, who)
                await Turns.of_loop().wait()
        finally:
            for word in ("Shutting down", "Stopped", "Shutdown completed"):
                worker_logger.info("%s: %s", who, word)

    async def _step(self, copy: LogDirCopy, who: str) -> None:
        if not copy.is_wanted:
            self._forget(copy)
            return
        try:
            is_done = await copy.step()
        except KafkaError as error:
            if error.code is ErrorCode.KAFKA_STORAGE_ERROR:
                self._give_up(copy, who, error)
            else:
                self._pause(copy, who, error)
        except KlammError as error:
            self._pause(copy, who, error)
        except Exception:
            self._pause_longer(copy, who)
        else:
            copy.failures = 0
            if is_done:
                self._forget(copy)

    def _pause(self, copy: LogDirCopy, who: str, error: Exception) -> None:
        if not copy.is_cancelled:
            worker_logger.error("%s: Error while copying partition %s: %s", who, copy.topic_partition, error)
        copy.paused_until_ms = self._clock.monotonic_ms() + self._settings.replica_fetch_backoff_ms

    def _pause_longer(self, copy: LogDirCopy, who: str) -> None:
        """The cause is unknown, so try again, less and less often: a step begins by checking both logs.

        Kafka would leave the move alone until a request names the replica again.
        """
        pause_ms = min(self._settings.replica_fetch_backoff_ms << min(copy.failures, 16), LONGEST_PAUSE_MS)
        copy.failures += 1
        copy.paused_until_ms = self._clock.monotonic_ms() + pause_ms
        worker_logger.exception(
            "%s: Unexpected error while copying partition %s, tried again in %d ms failures=%d",
            who,
            copy.topic_partition,
            pause_ms,
            copy.failures,
        )

    def _give_up(self, copy: LogDirCopy, who: str, error: Exception) -> None:
        """Stop copying the partition until a request or a change of its role names it again."""
        worker_logger.warning("%s: Partition %s marked as failed: %s", who, copy.topic_partition, error)
        self._forget(copy)

    def _forget(self, copy: LogDirCopy) -> None:
        if self._copies.get(copy.topic_partition) is copy:
            del self._copies[copy.topic_partition]

    async def _to_its_end(self, work: Callable[[], bytes | None]) -> bytes | None:
        """Run slow work; a thread cannot be stopped, so a caller that is cancelled waits for it."""
        running = asyncio.create_task(_started(self._run_slow(work)), name="slow work of a move")
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            await asyncio.wait([running])
            if (error := running.exception()) is not None:
                worker_logger.warning("%s A disk failed while a move was stopped: %s", self._who, error)
            raise


async def _started(waiting: Awaitable[bytes | None]) -> bytes | None:
    return await waiting
