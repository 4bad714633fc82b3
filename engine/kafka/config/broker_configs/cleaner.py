"""Settings of the log cleaner, which compacts topics with `cleanup.policy=compact`."""

from __future__ import annotations

from engine.kafka.config.definition import BOOLEAN, CLUSTER_WIDE, DOUBLE, DOUBLE_MAX, INT, LONG, MEDIUM
from engine.kafka.config.validators import at_least, between
from engine.kafka.config.values import LONG_MAX


class CleanerKeys:
    """Log cleaner"""

    log_cleaner_enable = BOOLEAN(True, MEDIUM).with_effect(
        "Run the cleaner. Without it compacted topics, including the offsets topic, grow for ever."
    )
    log_cleaner_threads = INT(1, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "How many logs to clean at once, each by its own process, which starts when there is work."
    )
    log_cleaner_io_max_bytes_per_second = DOUBLE(DOUBLE_MAX, MEDIUM, dynamic=CLUSTER_WIDE).with_effect(
        "Maximum bytes a second that the cleaner reads and writes together."
    )
    log_cleaner_dedupe_buffer_size = LONG(134_217_728, MEDIUM, dynamic=CLUSTER_WIDE).with_effect(
        "Bytes for the cleaner's maps of keys, over all threads. A larger map cleans more in one pass. A key takes 100 "
        "to 200 bytes here; in Apache Kafka it takes 24."
    )
    log_cleaner_io_buffer_size = INT(524_288, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Bytes for the cleaner's read and write buffers, over all threads."
    )
    log_cleaner_io_buffer_load_factor = DOUBLE(0.9, MEDIUM, dynamic=CLUSTER_WIDE).with_effect(
        "Share of the map of keys that may be used, 0 to 1."
    )
    log_cleaner_backoff_ms = LONG(15000, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Milliseconds to sleep when there is nothing to clean."
    )
    log_cleaner_min_cleanable_ratio = DOUBLE(0.5, MEDIUM, between(0, 1), CLUSTER_WIDE).with_effect(
        "Share of a log that must be dirty before it is cleaned, 0 to 1. Higher wastes space, lower wastes work."
    )
    log_cleaner_delete_retention_ms = LONG(86_400_000, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Milliseconds that tombstones of a compacted topic are kept, so that slow consumers still see them."
    )
    log_cleaner_min_compaction_lag_ms = LONG(0, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Milliseconds for which a new record is safe from compaction."
    )
    log_cleaner_max_compaction_lag_ms = LONG(LONG_MAX, MEDIUM, at_least(1), CLUSTER_WIDE).with_effect(
        "Milliseconds after which a record must be compacted, however little of the log is dirty."
    )
