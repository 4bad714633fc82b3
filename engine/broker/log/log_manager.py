"""All logs of a broker, in one or more log dirs: creates, finds, checkpoints and deletes them; handles failed dirs.

It runs on the event loop, except for ``load`` (before the loop serves) and ``shutdown`` (after). Slow disk work is
returned as jobs: the server runs each in a thread, one after the other, and finishes it on the loop.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

from engine.broker.log.disk_jobs import CreateJob, DeleteJob, DiskJob, run_jobs
from engine.broker.log.environment import Flushable
from engine.broker.log.flush_state import DueFlushes
from engine.broker.log.log import Log
from engine.broker.log.log_checkpoints import LogCheckpoints
from engine.broker.log.log_dir_loader import LogDirLoader
from engine.broker.log.log_dirs import LogDirs
from engine.broker.log.log_loader import Checkpoints, load_log
from engine.broker.log.log_table import LogTable
from engine.broker.log.partition_folder import shared_path
from engine.broker.log.replaced_logs import ReplacedLogs, choose_of_two, older_folders, unmark_moved
from engine.broker.log.retention import DROPPED_AT_ONCE_MAX
from engine.common.clock import Clock
from engine.common.errors import CorruptFileError, ErrorCode, KafkaError, StorageError
from engine.common.model import TopicPartition
from engine.common.turns import pieces_of
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.log_dir_names import LogDirKind, log_dir_name, parse_log_dir_name, suffixed_log_dir_name
from engine.runtime.descriptors import is_out_of_descriptors, make_room_for_a_file

logger = logging.getLogger(__name__)

CONFIGURED_AT_ONCE = 100
"""Logs that take over changed settings in one step: some milliseconds."""

FLUSH_THREADS = 8
"""How many files are synced at once when the broker stops: the disk's own queue does the rest."""


@dataclass(frozen=True, slots=True)
class LogManagerConfig:
    """Broker settings that concern all logs. Names are Kafka's keys with underscores."""

    log_dirs: tuple[Path, ...]
    num_recovery_threads_per_data_dir: int = 1
    producer_id_expiration_ms: int = 86_400_000
    log_segment_delete_delay_ms: int = 60_000
    transaction_partition_verification_enable: bool = False
    takes_zstd: bool = True
    """``inter.broker.protocol.version`` is 2.1 or later."""
    keeps_topic_ids: bool = True
    """It is 2.8 or later."""
    log_cleaner_enable: bool = True


@contextmanager
def _fault_of_one(what: str, log: Log) -> Iterator[None]:
    """Log what goes wrong with a log: the work on the others goes on."""
    try:
        yield
    except Exception:
        logger.exception("%s failed partition=%s", what, log.topic_partition)


class LogManager:
    """The logs by partition. ``on_dir_failure`` is called with a log dir that has just failed."""

    def __init__(
        self,
        config: LogManagerConfig,
        topic_config: Callable[[str], LogConfig],
        clock: Clock,
        on_dir_failure: Callable[[Path], None],
    ) -> None:
        """Create and lock the log dirs; unusable ones are offline from the start.

        ``topic_config`` returns a topic's effective settings. The code that meets a failure calls
        ``on_dir_failure``, on the event loop: it should only note it for later.

        Raises:
            StorageError: a dir is in use by another broker, is named twice, or none can be used.
        """
        self.config = config
        self.clock = clock
        self.logs = LogTable()
        self.future_logs = LogTable()
        self.preferred_dirs: dict[TopicPartition, Path] = {}
        """The dirs in which future logs should be created (AlterReplicaLogDirs)."""
        self.on_converted: Callable[[str, int, float, int], None] = lambda topic, records, took_s, size_bytes: None
        """Counts records that are stored in another form than they came in, by topic."""
        self._topic_config = topic_config
        self._on_dir_failure = on_dir_failure
        self._dirs = LogDirs(config.log_dirs)
        self._checkpoints = LogCheckpoints(self, self._dirs, self.logs, self.future_logs)
        self._deletions: list[tuple[int, Path, list[Path]]] = []
        self._flushes = DueFlushes()
        self._dirs_to_checkpoint: set[Path] = set()
        self._retired: set[TopicPartition] = set()
        self.replaced = ReplacedLogs(self, self.retire)
        self.is_stopping = False
        self._dirs.open(self.fail_dir)

    # --- environment of the logs

    @property
    def producer_id_expiration_ms(self) -> int:
        return self.config.producer_id_expiration_ms

    @property
    def verifies_transactions(self) -> bool:
        return self.config.transaction_partition_verification_enable

    @property
    def takes_zstd(self) -> bool:
        return self.config.takes_zstd

    @property
    def keeps_topic_ids(self) -> bool:
        return self.config.keeps_topic_ids

    def note_converted(self, topic: str, records: int, took_s: float, size_bytes: int) -> None:
        self.on_converted(topic, records, took_s, size_bytes)

    def fail_dir(self, log_dir: Path, message: str, error: OSError) -> None:
        """Take a log dir offline: its logs refuse everything, those in other dirs go on.

        A missing descriptor says nothing about the disk: the operation is refused, and the dir stays online.
        """
        if is_out_of_descriptors(error):
            logger.error("No file descriptor is left path=%s: %s", log_dir, message, exc_info=error)
            return
        failed = self._dirs[log_dir]
        if not failed.is_online:
            return
        failed.is_online = False
        logger.error("A log dir has failed and goes offline path=%s: %s", log_dir, message, exc_info=error)
        where = shared_path(log_dir)
        for logs in (self.logs, self.future_logs):
            # Their files close as they are freed: to close those of 20,000 takes as long as all of this.
            for log in [log for log in logs.values() if log.folder.log_dir is where]:
                log.folder.is_offline = True
                del logs[log.topic_partition]
        self.replaced.dir_failed(log_dir)
        failed.unlock()
        self._on_dir_failure(log_dir)

    def delete_later(self, log_dir: Path, paths: list[Path], delay_ms: int) -> None:
        """Remove files and folders after ``delay_ms``."""
        self._deletions.append((self.clock.now_ms() + delay_ms, log_dir, paths))

    def flush_soon(self, log: Flushable, offset: int) -> None:
        """Put a log on the list of those to flush."""
        self._flushes.add(log, offset)

    # --- log dirs

    @property
    def live_dirs(self) -> list[Path]:
        """Usable log dirs, in the order of ``log.dirs``."""
        return self._dirs.live

    @property
    def offline_dirs(self) -> list[Path]:
        return self._dirs.offline

    def check_identity(self, cluster_id: str | None, broker_id: int | None) -> tuple[str | None, int | None]:
        """Check ``meta.properties`` of all dirs; return cluster and broker id as they are known now.

        Raises:
            ConfigError: a dir belongs to another broker or cluster, in Kafka's words.
            CorruptFileError: a file is damaged.
        """
        return self._dirs.check_identity(cluster_id, broker_id, self.fail_dir)

    def write_identity(self, cluster_id: str, broker_id: int) -> None:
        """Write ``meta.properties`` if it is missing or incomplete."""
        self._dirs.write_identity(cluster_id, broker_id, self.clock.now_ms(), self.fail_dir)

    def release(self) -> None:
        """Release the log dirs without closing the logs."""
        self._dirs.release()

    # --- start and stop

    def load(self) -> None:
        """Open all logs; recover those of a dir that was not cleanly closed. May take long.

        Raises:
            StorageError: a dir holds something else than partitions, a partition is in two dirs, or no dir is usable.
            LoadingStopped: after ``stop_loading``, from another thread; only ``release`` is left to do.
        """
        threads, delay_ms = self.config.num_recovery_threads_per_data_dir, self.config.log_segment_delete_delay_ms
        loader = LogDirLoader(self, self._topic_config, threads, delay_ms)
        for path, loaded in loader.load([self._dirs[path] for path in self.live_dirs]):
            if isinstance(loaded, OSError):
                if is_out_of_descriptors(loaded):
                    raise StorageError(f"Too few file descriptors to open the logs: {loaded}", path=str(path))
                self.fail_dir(path, "Error while loading the log dir", loaded)
            else:
                self._take_in(loaded)
        self._dirs.check_any_is_live()
        run_jobs(self.replaced.jobs())
        run_jobs(self._dirs.renaming_jobs(self))
        if not self.offline_dirs:
            for log in [log for log in self.logs.values() if older_folders(log)]:
                unmark_moved(log)

    def stop_loading(self) -> None:
        """End a recovery under way soon: ``load`` raises LoadingStopped. Cleanly closed dirs are still loaded."""
        self.is_stopping = True

    def _take_in(self, log: Log) -> None:
        logs = self.future_logs if log.dir.name.endswith(LogDirKind.FUTURE) else self.logs
        self._dirs[log.log_dir].log_count += 1
        previous = logs.setdefault(log.topic_partition, log)
        if previous is not log:
            chosen, left_over = choose_of_two(previous, log)
            logs[log.topic_partition] = chosen
            self.replaced.add(left_over, chosen, keeps_mark=older_folders(chosen) > 1)

    def shutdown(self) -> None:
        """Flush and close all logs, write the checkpoints and the clean-shutdown mark, and release the dirs."""
        run_jobs(self.replaced.jobs())
        for path in self.live_dirs:
            if self._close_logs(path) and (self._dirs[path].had_clean_shutdown or self._dirs[path].is_loaded):
                self._dirs.mark_clean(path, self.fail_dir)
        self.release()

    def _close_logs(self, path: Path) -> bool:
        """Close the logs of a dir, flush them and write its checkpoints.

        Return whether all went well and no log has a gap: a start after an orderly stop looks for none.
        """
        jobs: list[DiskJob] = []
        logs = self._checkpoints.logs_in(path)
        for log in logs:
            try:
                log.close()
                job = log.begin_flush(is_closing=True)
            except KafkaError as error:
                logger.warning("A log could not be closed partition=%s: %s", log.topic_partition, error)
                return False
            jobs += [] if job is None else [job]
        with ThreadPoolExecutor(FLUSH_THREADS, thread_name_prefix="log-closing") as pool:
            list(pool.map(lambda job: job.run(), jobs))
        for done in jobs:
            done.finish()
        run_jobs(self._checkpoints.jobs(path))
        return self._dirs[path].is_online and all(log.gap is None for log in logs)

    # --- logs

    def get(self, topic_partition: TopicPartition) -> Log | None:
        """Return a partition's log, or None if there is none, or its dir is offline."""
        return self.logs.get(topic_partition)

    def get_or_create(
        self,
        topic_partition: TopicPartition,
        *,
        topic_id: bytes | None = None,
        is_new: bool,
        preferred_dir: Path | None = None,
    ) -> Log:
        """Return a partition's log; create it in ``preferred_dir``, or in the dir with the fewest logs.

        ``is_new``: the controller has just created the partition; otherwise its log may be in an offline dir.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if dirs are offline or fail, INCONSISTENT_TOPIC_ID for another topic's.
        """
        log = self.logs.get(topic_partition)
        if log is None:
            if not is_new and self.offline_dirs:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"Can not create log for {topic_partition} because log directories "
                    f"{', '.join(map(str, self.offline_dirs))} are offline",
                )
            preferred_dir = preferred_dir or self.preferred_dirs.get(topic_partition)
            candidates = self._dirs.by_load if preferred_dir is None else [preferred_dir]
            log = self.create_log(topic_partition, log_dir_name(topic_partition), candidates)
            self.logs[topic_partition] = log
            self.preferred_dirs.pop(topic_partition, None)
        if topic_id is not None:
            log.assign_topic_id(topic_id)
        return log

    def creation_jobs(
        self, topic_partitions: Iterable[TopicPartition], topic_ids: Mapping[TopicPartition, bytes] | None = None
    ) -> list[DiskJob]:
        """Return the jobs that create missing logs, for ``get_or_create`` to find afterwards.

        Each takes the disk about a millisecond: a caller that needs hundreds lets threads create them, and waits.
        """
        folders: dict[Path, list[Path]] = {}
        for topic_partition in topic_partitions:
            is_wanted = topic_partition not in self.logs and topic_partition not in self.preferred_dirs
            if is_wanted and self.live_dirs:
                path = self._dirs.by_load[0]
                self._dirs[path].log_count += 1
                folders.setdefault(path, []).append(path / log_dir_name(topic_partition))
        ids = topic_ids or {}

        def make(folder: Path) -> Log:
            log = self._open(folder)
            topic_id = ids.get(log.topic_partition)
            if topic_id is not None and log.topic_id is None and self.keeps_topic_ids:
                log.folder.write_topic_id(topic_id)
            return log

        return [
            CreateJob(self, path, names, make, self._created, self._forget_in(path, names))
            for path, names in folders.items()
        ]

    def _forget_in(self, path: Path, folders: list[Path]) -> list[DiskJob]:
        """Return the checkpoints to write before logs are created: those that may name an earlier one of that name."""
        return self._checkpoints.jobs_without(path, [parse_log_dir_name(folder.name)[0] for folder in folders])

    def _open(self, folder: Path) -> Log:
        """Open or create a partition's folder. Raises OSError if the disk fails, or a damaged one was left there."""
        topic_partition, _ = parse_log_dir_name(folder.name)
        make_room_for_a_file()
        try:
            return load_log(folder, self._topic_config(topic_partition.topic), self, Checkpoints())
        except CorruptFileError as error:
            raise OSError(str(error)) from error

    def _created(self, logs: list[Log]) -> None:
        for log in logs:
            if self._dirs[log.log_dir].is_online and self.logs.setdefault(log.topic_partition, log) is log:
                self._refresh_config(log)
                logger.info("Created log partition=%s dir=%s", log.topic_partition, log.dir)

    def create_log(self, topic_partition: TopicPartition, name: str, candidates: list[Path]) -> Log:
        """Open or create the folder ``name`` in the first usable dir; the caller keeps the log.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if none can.
        """
        cause: OSError | None = None
        for path in candidates:
            if path not in self._dirs or not self._dirs[path].is_online:
                continue
            forgetting = self._forget_in(path, [path / name])
            run_jobs(forgetting)
            if errors := [job.error for job in forgetting if job.error is not None]:
                cause = errors[0]
                continue
            try:
                log = self._open(path / name)
            except OSError as error:
                self.fail_dir(path, f"Error while creating log for {topic_partition}", error)
                cause = error
                continue
            self._dirs[path].log_count += 1
            logger.info("Created log partition=%s dir=%s", topic_partition, log.dir)
            return log
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"No log directories available for {topic_partition}. Tried {', '.join(map(str, candidates))}",
        ) from cause

    def delete(self, topic_partition: TopicPartition) -> None:
        """Delete a partition's log, and a copy that is moving to another dir. Nothing happens if there is no log.

        The files go after ``log.segment.delete.delay.ms``. The deletion counts once ``forgetting_jobs`` are done.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR if it may be in a dir that is offline, or the disk fails.
        """
        self.replaced.give_up(topic_partition)
        future = self.future_logs.pop(topic_partition)
        if future is not None:
            self.retire(future)
        log = self.logs.get(topic_partition)
        if log is None:
            if self.offline_dirs:
                raise KafkaError(
                    ErrorCode.KAFKA_STORAGE_ERROR,
                    f"Failed to delete log for {topic_partition} because it may be in one of the offline directories "
                    f"{', '.join(map(str, self.offline_dirs))}",
                )
            return
        self.retire(log)
        del self.logs[topic_partition]

    def retire(self, log: Log) -> None:
        """Rename a log's folder and have it removed later; the caller takes the log out of use, before or afterwards.

        Raises:
            KafkaError: KAFKA_STORAGE_ERROR when the disk fails.
        """
        topic_partition = log.topic_partition
        log.rename_dir(suffixed_log_dir_name(topic_partition, LogDirKind.DELETE, uuid.uuid4().hex))
        log.is_retired = True
        self._dirs[log.log_dir].renames += 1
        self._dirs[log.log_dir].log_count -= 1
        log.abandon()
        self.delete_later(log.log_dir, [log.dir], self.config.log_segment_delete_delay_ms)
        self._retired.add(topic_partition)
        logger.info("A log is renamed and will be deleted partition=%s dir=%s", topic_partition, log.dir)

    def may_be_named(self, topic_partition: TopicPartition) -> bool:
        """Return whether a deleted partition's folder or a checkpoint on disk may still have its name."""
        return topic_partition in self._retired or self._checkpoints.may_name(topic_partition)

    def forgetting_jobs(self, topic_partitions: Collection[TopicPartition]) -> list[DiskJob]:
        """Return the jobs that must reach the disk before the deletion of these partitions is reported.

        These are the folders' new names, and checkpoints without the partitions: old entries would apply to the next
        topic of that name.
        """
        self._retired.difference_update(topic_partitions)
        checkpoints = [job for path in self.live_dirs for job in self._checkpoints.jobs_without(path, topic_partitions)]
        return [*self._dirs.renaming_jobs(self), *checkpoints]

    def update_settings(
        self,
        *,
        num_recovery_threads_per_data_dir: int,
        producer_id_expiration_ms: int,
        log_segment_delete_delay_ms: int,
        transaction_partition_verification_enable: bool,
    ) -> None:
        """Apply broker settings that may change while it runs."""
        self.config = replace(
            self.config,
            num_recovery_threads_per_data_dir=num_recovery_threads_per_data_dir,
            producer_id_expiration_ms=producer_id_expiration_ms,
            log_segment_delete_delay_ms=log_segment_delete_delay_ms,
            transaction_partition_verification_enable=transaction_partition_verification_enable,
        )
        for log in (*self.logs.values(), *self.future_logs.values()):
            log.update_producer_expiration(producer_id_expiration_ms)

    def update_topic_config(self, topic: str, config: LogConfig) -> None:
        for log in (*self.logs.of_topic(topic), *self.future_logs.of_topic(topic)):
            log.update_config(config)

    def config_steps(self) -> Iterator[None]:
        """Apply its topic's current settings to every log, some in each step; the server gives way between them."""
        for logs in pieces_of([*self.logs.values(), *self.future_logs.values()], CONFIGURED_AT_ONCE):
            for log in logs:
                if not log.is_retired:
                    self._refresh_config(log)
            yield

    def _refresh_config(self, log: Log) -> None:
        config = self._topic_config(log.topic_partition.topic)
        if log.config is not config and log.config != config:
            log.update_config(config)

    def settling_jobs(self, logs: Collection[Log]) -> list[DiskJob]:
        """Return the jobs that must reach the disk before anything is appended to logs that were cut."""
        return self._checkpoints.settling_jobs([log for log in logs if not log.is_offline])

    def checkpoint_soon(self, log_dir: Path) -> None:
        """Have a dir's checkpoints written with the next due jobs."""
        self._dirs_to_checkpoint.add(log_dir)

    # --- periodic work

    def retention_steps(self) -> Iterator[int]:
        """Apply retention to one log after the other; yield after each the number of deleted segments, and after some
        of very many.

        Without the cleaner, logs of compacted topics keep everything, whatever else their policy says, as in Kafka.
        The server gives way between the steps.
        """
        for log in [*self.logs.values(), *self.future_logs.values()]:
            with _fault_of_one("Retention", log):
                deleted = DROPPED_AT_ONCE_MAX
                while deleted >= DROPPED_AT_ONCE_MAX:
                    is_left = log.config.is_compacted and not self.config.log_cleaner_enable
                    is_left = is_left or log.is_offline or log.cleaning.is_in_progress
                    yield (deleted := 0 if is_left else log.delete_old_segments(self.clock.now_ms()))

    def producer_expiry_steps(self) -> Iterator[None]:
        """Forget producers that were silent too long (``producer.id.expiration.check.interval.ms``), log by log."""
        for log in list(self.logs.values()):
            with _fault_of_one("Expiring producers", log):
                log.expire_producers(self.clock.now_ms())
            yield

    def close_files(self) -> None:
        """Close all segment files that nobody is reading: they are opened again when needed."""
        for log in [*self.logs.values(), *self.future_logs.values()]:
            for segment in log.segments:
                segment.close_file()

    def idle_file_steps(self) -> Iterator[None]:
        """Close segment files that nobody has used since the last call, log by log; call it every few minutes."""
        for log in [*self.logs.values(), *self.future_logs.values()]:
            with _fault_of_one("Closing idle files", log):
                log.release_idle_files()
            yield

    def flush_jobs(self) -> Iterator[DiskJob]:
        """Yield the flushes due now, after rolls and by ``flush.ms``; do one before asking for the next."""
        return self._flushes.jobs(self.logs.values(), self.clock.now_ms())

    def deletion_jobs(self) -> list[DiskJob]:
        """Return the removals that are due now."""
        now_ms = self.clock.now_ms()
        due = [deletion for deletion in self._deletions if deletion[0] <= now_ms]
        self._deletions = [deletion for deletion in self._deletions if deletion[0] > now_ms]
        return [DeleteJob(self, log_dir, paths) for _, log_dir, paths in due if self._dirs[log_dir].is_online]

    def due_jobs(self) -> Iterator[DiskJob]:
        """Yield flushes, removals and checkpoints that are due; ask every second or so, and after ``flush_soon``."""
        yield from self.flush_jobs()
        yield from self.replaced.jobs()
        dirs, self._dirs_to_checkpoint = self._dirs_to_checkpoint, set()
        online = [path for path in sorted(dirs) if self._dirs[path].is_online]
        checkpoints = [job for path in online for job in self._checkpoints.jobs(path)]
        checkpoints += self.forgetting_jobs(frozenset(self._retired))
        # Names first: files are removed from a folder only when it cannot come back under its old name.
        yield from (*checkpoints, *self.deletion_jobs())

    def checkpoint_jobs(self, name: str) -> list[DiskJob]:
        """Return the jobs that write the checkpoint of this name in each usable dir."""
        return [self._checkpoints.job(path, name) for path in self.live_dirs]
