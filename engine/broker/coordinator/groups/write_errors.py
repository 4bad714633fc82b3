"""The errors for clients when their coordinator could not write to ``__consumer_offsets``, mapped as in Kafka 3.9."""

from __future__ import annotations

from engine.broker.coordinator.groups.loading import logger
from engine.broker.coordinator.write_errors import TOO_LARGE, coordinator_error
from engine.common.errors import ErrorCode


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
