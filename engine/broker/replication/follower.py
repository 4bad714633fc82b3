"""What a follower does to its own log with a leader's answer. No network here.

Source: ReplicaFetcherThread and Partition of Kafka 3.9.
"""

from __future__ import annotations

import logging

from engine.broker.log.log import Log
from engine.broker.log.log_append import UnexpectedAppendOffset
from engine.broker.replication.partition import Partition
from engine.broker.replication.truncation import Truncation
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.protocol.apis.fetch import PartitionData

logger = logging.getLogger("kafka.server.ReplicaFetcherThread")


def hosted_log(partition: Partition | None) -> Log:
    """Return the replica's log.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR if the replica is gone or its log dir is offline.
    """
    if partition is None or partition.log is None:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR, "the replica has no log here")
    return partition.log


def append_fetched(partition: Partition, fetch_offset: int, leader_epoch: int, data: PartitionData) -> int:
    """Append what was fetched from ``fetch_offset``, take over the leader's offsets, and return the new log end offset.

    ``leader_epoch`` is that of the request: batches of a later one are left out.

    Raises:
        KafkaError: CORRUPT_MESSAGE or INVALID_RECORD (worth another try), KAFKA_STORAGE_ERROR, OFFSET_OUT_OF_RANGE
            if the log's end is not where the fetch began.
    """
    log = hosted_log(partition)
    if fetch_offset != log.log_end_offset:
        raise KafkaError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"Offset mismatch for partition {partition.topic_partition}: fetched offset = {fetch_offset}, "
            f"log end offset = {log.log_end_offset}.",
        )
    records = data.records
    if records is not None and len(records):
        append_copied(log, records, leader_epoch)
    high_watermark = min(data.high_watermark, log.log_end_offset)
    if high_watermark >= 0 and high_watermark != log.high_watermark:
        log.update_high_watermark(high_watermark)
        partition.changed()
    if log.log_start_offset < data.log_start_offset <= log.high_watermark:
        log.increment_log_start_offset(data.log_start_offset)
    return log.log_end_offset


def truncate(partition: Partition, truncation: Truncation, who: str) -> None:
    """Cut the log to the offset. A cut below the high watermark logs a warning: committed records may be lost.

    Raises:
        KafkaError: KAFKA_STORAGE_ERROR.
    """
    log = hosted_log(partition)
    if truncation.offset < log.high_watermark:
        logger.warning(
            "%s Truncating %s to offset %d below high watermark %d",
            who,
            partition.topic_partition,
            truncation.offset,
            log.high_watermark,
        )
    # At the log's end too: this removes epochs of a leadership that wrote nothing.
    if log.truncate_to(truncation.offset):
        partition.changed()


def append_copied(log: Log, records: memoryview, leader_epoch: int | None = None) -> None:
    """Append batches that come from another log; an empty log then begins with the first one.

    The other log may start in the middle of a batch (DeleteRecords). Its reader still gets that batch whole, so an
    empty log that is to begin with the start offset gets a batch that begins earlier.

    Raises what ``Log.append_as_follower`` raises, which also says what ``leader_epoch`` does.
    """
    try:
        log.append_as_follower(records, leader_epoch)
    except UnexpectedAppendOffset as error:
        if not error.first_offset < log.log_end_offset == log.log_start_offset <= error.last_offset:
            raise
        logger.info(
            "Unexpected offset in append to %s. First offset %d is less than log start offset %d. Since this is the "
            "first record to be appended to the follower's log, will start the log from offset %d.",
            log.topic_partition,
            error.first_offset,
            log.log_start_offset,
            error.first_offset,
        )
        log.truncate_fully_and_start_at(error.first_offset)
        log.append_as_follower(records, leader_epoch)
