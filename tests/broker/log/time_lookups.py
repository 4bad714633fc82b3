"""Offsets by time, from a log alone, in the steps of a broker's search outside its event loop."""

from __future__ import annotations

from engine.broker.log.log import Log
from engine.broker.log.log_times import OffsetAtTime, newest_batch, step_by_time


def offset_for_timestamp(log: Log, timestamp_ms: int) -> OffsetAtTime | None:
    """Return the first record whose timestamp is at least ``timestamp_ms``, or None."""
    step = step_by_time(log, timestamp_ms, 0)
    while step is not None:
        record = None if step.batch is None else step.batch.first_record()
        if record is not None:
            return record
        step = step_by_time(log, timestamp_ms, step.next_offset)
    return None


def offset_of_max_timestamp(log: Log) -> OffsetAtTime | None:
    """Return the first record that has the log's largest timestamp, or None if none has one."""
    batch = newest_batch(log)
    return None if batch is None else batch.first_record()
