"""Settings of log dirs, segments, retention and flushing: defaults that topics may override, and the broker's own."""

from __future__ import annotations

from engine.kafka.config.definition import (
    BOOLEAN,
    CLASS,
    CLEANUP_POLICY,
    CLUSTER_WIDE,
    COMPRESSION_TYPE,
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
from engine.kafka.config.validators import GzipLevel, at_least, between
from engine.kafka.config.values import LONG_MAX

_ROLL = ("log.roll.ms", "log.roll.hours")
_ROLL_JITTER = ("log.roll.jitter.ms", "log.roll.jitter.hours")
_RETENTION = ("log.retention.ms", "log.retention.minutes", "log.retention.hours")
_FLUSH = ("log.flush.interval.ms", "log.flush.scheduler.interval.ms")


def _for_ever_below_zero(ms: int) -> int:
    """Every negative time means for ever and becomes -1."""
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
        .with_effect("Milliseconds that records are kept; -1: for ever. Not set: `log.retention.minutes`.")
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
    log_flush_scheduler_interval_ms = LONG(LONG_MAX, HIGH).with_effect("Milliseconds between checks for logs to flush.")
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
    create_topic_policy_class_name = CLASS(None, LOW).without_effect("Java class that judges new topics.")
    alter_config_policy_class_name = CLASS(None, LOW).without_effect("Java class that judges changes of settings.")
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
