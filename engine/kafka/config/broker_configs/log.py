"""Settings of log dirs, segments, retention, compaction and tiered storage."""

from __future__ import annotations

from engine.kafka.config.definition import (
    AUTO_THREADS,
    BOOLEAN,
    CLASS,
    CLEANUP_POLICY,
    CLUSTER_WIDE,
    COMPRESSION_TYPE,
    DOUBLE,
    DOUBLE_MAX,
    HIGH,
    HOUR_MS,
    IBP,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    MINUTE_MS,
    STRING,
    TIMESTAMP_TYPE,
)
from engine.kafka.config.listeners import parse_csv
from engine.kafka.config.values import LONG_MAX, GzipLevel, NonEmpty, at_least, between

_ROLL = ("log.roll.ms", "log.roll.hours")
_ROLL_JITTER = ("log.roll.jitter.ms", "log.roll.jitter.hours")
_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_FLUSH = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")


def _for_ever_below_zero(ms: int) -> int:
    """Every negative time means forever and becomes -1."""
    return max(ms, -1)


class LogKeys:
    """Logs"""

    log_dirs = (
        STRING(None, HIGH)
        .or_else(lambda broker: broker.log_dir)
        .read_as(parse_csv)
        .with_effect("Folders for the logs, separated by commas, best one per disk. Not set: `log.dir`.")
    )
    log_dir = STRING("/tmp/kafka-logs", HIGH).with_effect("Folder for the logs if `log.dirs` is not set.")
    log_segment_bytes = INT(1_073_741_824, HIGH, at_least(14), CLUSTER_WIDE).with_effect(
        "Size, in bytes, at which a new segment begins. Retention and compaction work on whole segments."
    )
    log_roll_ms = (
        LONG(None, HIGH, dynamic=CLUSTER_WIDE, synonyms=_ROLL)
        .or_else(lambda broker: broker.log_roll_hours * HOUR_MS)
        .with_effect(
            "Age, in milliseconds, at which a new segment begins even if the old one is not full. Not set: "
            "`log.roll.hours`."
        )
    )
    log_roll_hours = INT(168, HIGH, at_least(1), synonyms=_ROLL).with_effect("The same as `log.roll.ms`, in hours.")
    log_roll_jitter_ms = (
        LONG(None, HIGH, dynamic=CLUSTER_WIDE, synonyms=_ROLL_JITTER)
        .or_else(lambda broker: broker.log_roll_jitter_hours * HOUR_MS)
        .with_effect(
            "Maximum milliseconds by which segments begin earlier, at random, so that not all roll at once. Not set: "
            "`log.roll.jitter.hours`."
        )
    )
    log_roll_jitter_hours = INT(0, HIGH, at_least(0), synonyms=_ROLL_JITTER).with_effect(
        "The same as `log.roll.jitter.ms`, in hours."
    )
    log_index_size_max_bytes = INT(10_485_760, MEDIUM, at_least(4), CLUSTER_WIDE).with_effect(
        "Largest size of an offset or time index, in bytes; a full index begins a new segment."
    )
    log_index_interval_bytes = INT(4096, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Bytes of records between two entries of the offset index. Smaller finds offsets with less reading and needs "
        "more index."
    )
    log_preallocate = BOOLEAN(False, MEDIUM, dynamic=CLUSTER_WIDE).with_effect(
        "Reserve a segment's whole size on disk when it is made."
    )
    log_cleanup_policy = LIST(("delete",), MEDIUM, CLEANUP_POLICY, CLUSTER_WIDE).with_effect(
        "What happens to old segments of topics that say nothing else: `delete` (by age and size), `compact` (keep the "
        "last record of each key), or both."
    )
    log_retention_ms = (
        LONG(None, HIGH, dynamic=CLUSTER_WIDE, synonyms=_RETENTION)
        .or_else(lambda broker: broker.log_retention_minutes * MINUTE_MS)
        .read_as(_for_ever_below_zero)
        .with_effect("Milliseconds that records are kept; -1: forever. Not set: `log.retention.minutes`.")
    )
    log_retention_minutes = (
        INT(None, HIGH, synonyms=_RETENTION)
        .or_else(lambda broker: broker.log_retention_hours * 60)
        .with_effect("The same as `log.retention.ms`, in minutes. Not set: `log.retention.hours`.")
    )
    log_retention_hours = INT(168, HIGH, synonyms=_RETENTION).with_effect("The same as `log.retention.ms`, in hours.")
    log_retention_bytes = LONG(-1, HIGH, dynamic=CLUSTER_WIDE).with_effect(
        "Size of a partition, in bytes, above which its oldest segments are deleted; -1: no limit. It counts per "
        "partition, not per topic."
    )
    log_retention_check_interval_ms = LONG(300_000, MEDIUM, at_least(1)).with_effect(
        "Milliseconds between checks for segments to delete."
    )
    log_segment_delete_delay_ms = LONG(60000, HIGH, at_least(0), CLUSTER_WIDE).with_effect(
        "Milliseconds between a segment's removal from the log and the deletion of its files."
    )
    log_flush_interval_messages = LONG(LONG_MAX, HIGH, at_least(1), CLUSTER_WIDE).with_effect(
        "Records that may be written to a partition before it is flushed to disk. The default leaves flushing to the "
        "operating system; replication is the better protection."
    )
    log_flush_interval_ms = (
        LONG(None, HIGH, dynamic=CLUSTER_WIDE, synonyms=_FLUSH)
        .or_else(lambda broker: broker.log_flush_scheduler_interval_ms)
        .with_effect("Milliseconds that a record may stay unflushed. Not set: `log.flush.scheduler.interval.ms`.")
    )
    log_flush_scheduler_interval_ms = LONG(LONG_MAX, HIGH).with_effect(
        "Milliseconds between checks for logs to flush in Kafka. klamm checks each second; here it is only the default "
        "of `log.flush.interval.ms`."
    )
    log_flush_offset_checkpoint_interval_ms = INT(60000, HIGH, at_least(0)).with_effect(
        "Milliseconds between two writes of the recovery points, from which a crashed broker checks its logs."
    )
    log_flush_start_offset_checkpoint_interval_ms = INT(60000, HIGH, at_least(0)).with_effect(
        "Milliseconds between two writes of the log start offsets, which keep deleted records deleted."
    )
    log_initial_task_delay_ms = LONG(30000, LOW, at_least(0), is_internal=True).with_effect(
        "Milliseconds after the start before retention, flushing and checkpoints begin."
    )
    log_message_format_version = STRING("3.0-IV1", MEDIUM, IBP).with_effect(
        "Record format of topics. Ignored since inter-broker protocol 3.0: everything is written in format 2."
    )
    log_message_timestamp_type = STRING("CreateTime", MEDIUM, TIMESTAMP_TYPE, CLUSTER_WIDE).with_effect(
        "Whether records carry the time their producer gave them (`CreateTime`) or the time of their append "
        "(`LogAppendTime`)."
    )
    log_message_timestamp_difference_max_ms = LONG(LONG_MAX, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Deprecated twin of the next two: maximum milliseconds that a record's time may differ from the broker's clock."
    )
    log_message_timestamp_before_max_ms = LONG(LONG_MAX, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Maximum milliseconds that a record's time may be before the broker's clock; older ones are refused. Only for "
        "`CreateTime`."
    )
    log_message_timestamp_after_max_ms = LONG(LONG_MAX, MEDIUM, at_least(0), CLUSTER_WIDE).with_effect(
        "Maximum milliseconds that a record's time may be after the broker's clock; later ones are refused. Only for "
        "`CreateTime`."
    )
    log_message_downconversion_enable = BOOLEAN(True, LOW, dynamic=CLUSTER_WIDE).with_effect(
        "Convert records for consumers too old for format 2 (Fetch 0-3); false: they get UNSUPPORTED_VERSION."
    )
    message_max_bytes = INT(1_048_588, HIGH, at_least(0), CLUSTER_WIDE).with_effect(
        "Largest record batch that is accepted, in bytes, after compression. Consumers and followers read larger ones "
        "than their own limits allow."
    )
    compression_type = STRING("producer", HIGH, COMPRESSION_TYPE, CLUSTER_WIDE).with_effect(
        "Codec in which batches are stored: `producer` keeps what was sent; any other is applied by the broker, at the "
        "cost of its CPU."
    )
    compression_gzip_level = INT(-1, MEDIUM, GzipLevel(), CLUSTER_WIDE).with_effect(
        "Level for batches that the broker compresses with gzip; -1: the library's choice."
    )
    compression_lz4_level = INT(9, MEDIUM, between(1, 17), CLUSTER_WIDE).with_effect(
        "Level for batches that the broker compresses with lz4."
    )
    compression_zstd_level = INT(3, MEDIUM, between(-131_072, 22), CLUSTER_WIDE).with_effect(
        "Level for batches that the broker compresses with zstd."
    )
    num_partitions = INT(1, MEDIUM, at_least(1)).with_effect("Partitions of a topic that is created without a number.")
    default_replication_factor = INT(1, MEDIUM).with_effect("Replicas of a topic that is created without a number.")
    auto_create_topics_enable = BOOLEAN(True, HIGH).with_effect(
        "Create a topic when a client first asks for it by name. A typing error then creates a topic, too."
    )
    delete_topic_enable = BOOLEAN(True, HIGH).with_effect("Allow topics to be deleted.")
    create_topic_policy_class_name = CLASS(None, LOW).without_effect(
        "Java class that judges new topics. No broker of klamm starts with one."
    )
    alter_config_policy_class_name = CLASS(None, LOW).without_effect(
        "Java class that judges changes of settings. No broker of klamm starts with one."
    )
    num_recovery_threads_per_data_dir = INT(1, HIGH, at_least(1), CLUSTER_WIDE).with_effect(
        "How many logs of one log dir are recovered at once after a crash, and flushed at once at the end."
    )
    log_dir_failure_timeout_ms = LONG(30000, LOW, at_least(1)).without_effect(
        "Milliseconds that a KRaft broker may fail to report a broken log dir."
    )
    log_local_retention_ms = LONG(-2, MEDIUM, at_least(-2), CLUSTER_WIDE).without_effect(
        "Milliseconds that segments stay on the broker after their copy to tiered storage."
    )
    log_local_retention_bytes = LONG(-2, MEDIUM, at_least(-2), CLUSTER_WIDE).without_effect(
        "Bytes of a partition that stay on the broker after their copy to tiered storage."
    )


class CleanerKeys:
    """Log cleaner

    The cleaner compacts topics with `cleanup.policy=compact`.
    """

    log_cleaner_enable = BOOLEAN(True, MEDIUM).with_effect(
        "Run the cleaner. Without it compacted topics, including the offsets topic, grow forever."
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


class TieredStorageKeys:
    """Tiered storage

    klamm keeps all segments on its own disks: none of these settings (KIP-405) has an effect.
    """

    remote_log_storage_system_enable = BOOLEAN(False, MEDIUM).without_effect("Switch tiered storage on for the broker.")
    remote_log_storage_manager_class_name = STRING(None, MEDIUM, NonEmpty()).without_effect(
        "Java class that stores segments elsewhere."
    )
    remote_log_storage_manager_class_path = STRING(None, MEDIUM).without_effect("Class path of that class.")
    remote_log_storage_manager_impl_prefix = STRING("rsm.config.", MEDIUM, NonEmpty()).without_effect(
        "Prefix of settings that are handed to that class."
    )
    remote_log_metadata_manager_class_name = STRING(
        "org.apache.kafka.server.log.remote.metadata.storage.TopicBasedRemoteLogMetadataManager", MEDIUM, NonEmpty()
    ).without_effect("Java class that remembers which segments are stored where.")
    remote_log_metadata_manager_class_path = STRING(None, MEDIUM).without_effect("Class path of that class.")
    remote_log_metadata_manager_impl_prefix = STRING("rlmm.config.", MEDIUM, NonEmpty()).without_effect(
        "Prefix of settings that are handed to that class."
    )
    remote_log_metadata_manager_listener_name = STRING(None, MEDIUM, NonEmpty()).without_effect(
        "Listener by which that class reaches the broker itself."
    )
    remote_log_metadata_custom_metadata_max_bytes = INT(128, LOW, at_least(0)).without_effect(
        "Maximum bytes of its own that a storage plug-in may keep with a segment."
    )
    remote_log_index_file_cache_total_size_bytes = LONG(1_073_741_824, LOW, at_least(1), CLUSTER_WIDE).without_effect(
        "Bytes of local disk for indexes of remote segments."
    )
    remote_log_manager_thread_pool_size = INT(10, MEDIUM, at_least(1)).without_effect(
        "Deprecated: threads that copy and delete remote segments."
    )
    remote_log_manager_copier_thread_pool_size = INT(-1, MEDIUM, AUTO_THREADS).without_effect(
        "Threads that copy segments; -1: as `remote.log.manager.thread.pool.size`."
    )
    remote_log_manager_expiration_thread_pool_size = INT(-1, MEDIUM, AUTO_THREADS).without_effect(
        "Threads that delete remote segments; -1: as `remote.log.manager.thread.pool.size`."
    )
    remote_log_manager_task_interval_ms = LONG(30000, LOW, at_least(1)).without_effect(
        "Milliseconds between checks for segments to copy or delete."
    )
    remote_log_manager_task_retry_backoff_ms = LONG(500, LOW, at_least(1), is_internal=True).without_effect(
        "Milliseconds before a failed copy is tried again."
    )
    remote_log_manager_task_retry_backoff_max_ms = LONG(30000, LOW, at_least(1), is_internal=True).without_effect(
        "Maximum milliseconds between two tries of a copy."
    )
    remote_log_manager_task_retry_jitter = DOUBLE(0.2, LOW, between(0, 0.5), is_internal=True).without_effect(
        "Share of random delay added to a retry."
    )
    remote_log_reader_threads = INT(10, MEDIUM, at_least(1)).without_effect("Threads that read remote segments.")
    remote_log_reader_max_pending_tasks = INT(100, MEDIUM, at_least(1)).without_effect(
        "Remote reads that may wait; more are refused."
    )
    remote_log_manager_copy_max_bytes_per_second = LONG(LONG_MAX, MEDIUM, at_least(1), CLUSTER_WIDE).without_effect(
        "Maximum bytes a second copied to remote storage."
    )
    remote_log_manager_copy_quota_window_num = INT(11, MEDIUM, at_least(1)).without_effect(
        "Samples that this limit is averaged over."
    )
    remote_log_manager_copy_quota_window_size_seconds = INT(1, MEDIUM, at_least(1)).without_effect(
        "Seconds of one such sample."
    )
    remote_log_manager_fetch_max_bytes_per_second = LONG(LONG_MAX, MEDIUM, at_least(1), CLUSTER_WIDE).without_effect(
        "Maximum bytes a second read from remote storage."
    )
    remote_log_manager_fetch_quota_window_num = INT(11, MEDIUM, at_least(1)).without_effect(
        "Samples that this limit is averaged over."
    )
    remote_log_manager_fetch_quota_window_size_seconds = INT(1, MEDIUM, at_least(1)).without_effect(
        "Seconds of one such sample."
    )
    remote_fetch_max_wait_ms = INT(500, MEDIUM, at_least(1), CLUSTER_WIDE).without_effect(
        "Maximum milliseconds that a Fetch waits for remote storage."
    )
