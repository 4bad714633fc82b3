"""The folder side of a replica's move to another log dir of its broker: ``-future`` copy, swap, giving up.

``engine.broker.replication.log_dir_moves`` copies the records. Source: LogManager of Kafka 3.9 (KIP-113), except for
the mark: the swap is two renames on two disks, and Kafka does not start after a crash between them.
"""

from __future__ import annotations

import logging
import uuid
from collections.abc import Iterator
from pathlib import Path

from engine.broker.log.disk_jobs import DiskJob, SyncJob, run_jobs
from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager
from engine.broker.log.replaced_logs import mark_moved, older_folders
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.common.topic_id import ZERO_TOPIC_ID, topic_id_text
from engine.kafka.formats.log_dir_names import LogDirKind, log_dir_name, suffixed_log_dir_name

logger = logging.getLogger("kafka.log.LogManager")


def create_future_log(manager: LogManager, topic_partition: TopicPartition, log_dir: Path) -> Log:
    """Create the empty log in ``log_dir`` that will replace the partition's log.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR if any dir is offline (the partition may have a future log there) or the disk
            fails.
    """
    if manager.offline_dirs:
        raise KafkaError(
            ErrorCode.KAFKA_STORAGE_ERROR,
            f"Can not create log for {topic_partition} because log directories "
            f"{','.join(map(str, manager.offline_dirs))} are offline",
        )
    name = suffixed_log_dir_name(topic_partition, LogDirKind.FUTURE, uuid.uuid4().hex)
    log = manager.future_logs[topic_partition] = manager.create_log(topic_partition, name, [log_dir])
    manager.preferred_dirs.pop(topic_partition, None)
    return log


def delete_future_log(manager: LogManager, topic_partition: TopicPartition) -> None:
    """Delete a partition's future log, if it has one. Raises KafkaError KAFKA_STORAGE_ERROR."""
    log = manager.future_logs.pop(topic_partition)
    if log is not None:
        manager.retire(log)


def replace_current_with_future(manager: LogManager, topic_partition: TopicPartition) -> Log:
    """Replace the current log with the future log, which must have all its records; return the future log.

    The caller may run ``preparing_jobs`` beforehand; otherwise they run here. It must run ``manager.replaced.jobs``
    afterwards.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR if one of the two is gone, or the future log's disk fails. If the current
            log's disk fails, it no longer matters. INCONSISTENT_TOPIC_ID if the future log is another topic's.
    """
    current, future = manager.logs.get(topic_partition), manager.future_logs.get(topic_partition)
    if current is None or future is None:
        which = "current" if current is None else "future"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, f"The {which} replica for {topic_partition} is offline")
    texts = _log_text(current), _log_text(future)
    logger.info("Attempting to replace current log %s with %s for %s", *texts, topic_partition)
    if not older_folders(future):
        for job in preparing_jobs(manager, current, future):
            run_jobs([job])
            check_prepared(topic_partition, job)
    _take_over_knowledge(current, future)
    keeps_mark = older_folders(future) > 1
    if future.is_flush_due:
        # flush.messages: a flush of this log answers those who wait for a flush of the current one.
        future.flush()
    future.rename_dir(log_dir_name(topic_partition))
    del manager.future_logs[topic_partition]
    manager.logs[topic_partition] = future
    manager.replaced.add(current, future, keeps_mark=keeps_mark)
    logger.info("The current replica is successfully replaced with the future replica for %s", topic_partition)
    return future


def _log_text(log: Log) -> str:
    """Return how Kafka's log line describes a log."""
    topic, partition = log.topic_partition
    topic_id = topic_id_text(ZERO_TOPIC_ID if log.topic_id is None else log.topic_id)
    return (
        f"Log(dir={log.dir}, topicId={topic_id}, topic={topic}, partition={partition}, "
        f"highWatermark={log.high_watermark}, lastStableOffset={log.last_stable_offset}, "
        f"logStartOffset={log.log_start_offset}, logEndOffset={log.log_end_offset})"
    )


def preparing_jobs(manager: LogManager, current: Log, future: Log) -> Iterator[DiskJob]:
    """Mark the future log, and yield one by one the jobs that bring to the disk what it needs to take its place.

    These are the whole move that brought the current log here, which then has no mark any more, and the future log's
    records, topic id and mark.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR when the disk fails; INCONSISTENT_TOPIC_ID if the future log is another topic's.
    """
    yield from manager.replaced.jobs(current.topic_partition)
    _take_over_topic_id(current, future)
    yield SyncJob(manager, future.log_dir, [_mark_moved(manager, current, future)], lambda: None)
    flush = future.begin_flush()
    if flush is not None:
        yield flush
    if current.folder.is_unsynced:
        yield SyncJob(manager, current.log_dir, [current.dir], lambda: None)


def check_prepared(topic_partition: TopicPartition, job: DiskJob) -> None:
    """Raise KafkaError KAFKA_STORAGE_ERROR if one of the ``preparing_jobs`` has failed."""
    if job.error is not None:
        message = f"Error while preparing the move of {topic_partition}: {job.error}"
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from job.error


def _take_over_topic_id(current: Log, future: Log) -> None:
    if current.topic_id is not None:
        future.assign_topic_id(current.topic_id)


def _take_over_knowledge(current: Log, future: Log) -> None:
    """Give the future log what the records do not hold: high watermark, topic id, a leader epoch without records."""
    _take_over_topic_id(current, future)
    latest = current.leader_epochs.latest_entry
    if latest is not None:
        future.assign_leader_epoch(latest.leader_epoch, latest.start_offset)
    future.cleaning = current.cleaning
    future.update_high_watermark(current.high_watermark)
    future.increment_log_start_offset(current.log_start_offset)


def _mark_moved(manager: LogManager, current: Log, future: Log) -> Path:
    try:
        return mark_moved(current, future)
    except OSError as error:
        message = f"Error while marking {future.topic_partition} as moved"
        manager.fail_dir(future.log_dir, message, error)
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, message) from error
