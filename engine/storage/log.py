"""A partition's log."""

from __future__ import annotations

from engine.storage.log_append import LogAppends
from engine.storage.log_maintenance import LogMaintenance
from engine.storage.log_read import LogReads
from engine.storage.log_times import LogTimes


class Log(LogAppends, LogReads, LogTimes, LogMaintenance):
    """The records of one replica: append, read, search by time, truncate, retain.

    Made by ``log_loader.load_log`` or the log manager. Every method runs on the broker's event loop; disk jobs that
    methods return run anywhere. Offsets to look at: ``log_start_offset``, ``high_watermark``, ``last_stable_offset``,
    ``log_end_offset`` (the next record's), ``recovery_point`` (all before it is on the disk).

    An OSError of the disk is reported to the environment, which takes the whole log dir offline, and raised as
    KafkaError KAFKA_STORAGE_ERROR; from then on the log refuses everything that needs the disk.
    """

    __slots__ = ("__weakref__",)
