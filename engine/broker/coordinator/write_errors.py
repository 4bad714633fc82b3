"""The errors for clients when their coordinator could not write to its internal topic, mapped as in Kafka 3.9."""

from __future__ import annotations

import logging

from engine.common.errors import ErrorCode

logger = logging.getLogger("kafka.coordinator.group.GroupMetadataManager")

_ELSEWHERE = {
    ErrorCode.UNKNOWN_TOPIC_OR_PARTITION: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_ENOUGH_REPLICAS_AFTER_APPEND: ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_LEADER_OR_FOLLOWER: ErrorCode.NOT_COORDINATOR,
    ErrorCode.KAFKA_STORAGE_ERROR: ErrorCode.NOT_COORDINATOR,
}
"""Errors after which a client looks for its coordinator again."""

TOO_LARGE = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE, ErrorCode.INVALID_FETCH_SIZE)
"""Errors of a batch that is larger than the topic takes."""


def coordinator_error(error: ErrorCode) -> ErrorCode:
    """Return the error that makes a client look for its coordinator again, if the append's error calls for that."""
    return _ELSEWHERE.get(error, error)


def commit_error(error: ErrorCode) -> ErrorCode:
    """Return the error for a client whose offsets could not be written."""
    return ErrorCode.INVALID_COMMIT_OFFSET_SIZE if error in TOO_LARGE else coordinator_error(error)


def store_error(error: ErrorCode) -> ErrorCode:
    """Return the error for members whose group could not be written."""
    if error is ErrorCode.REQUEST_TIMED_OUT:
        return ErrorCode.REBALANCE_IN_PROGRESS
    if error in TOO_LARGE:
        logger.error("A group's record is larger than the offsets topic takes: %s", error.name)
        return ErrorCode.UNKNOWN_SERVER_ERROR
    return coordinator_error(error)
