"""Every setting of a topic that Kafka 3.9 knows. ``synonyms`` are the broker settings that are its default, in order.

``topic_config_values`` combines them; a topic's values are a ``LogConfig``.
"""

from __future__ import annotations

from typing import Final

from engine.kafka.config.definition import (
    BOOLEAN,
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    DOUBLE,
    IBP,
    INT,
    LIST,
    LONG,
    LOW,
    MEDIUM,
    STRING,
    TIMESTAMP_TYPE,
    ConfigDef,
)
from engine.kafka.config.values import LONG_MAX, GzipLevel, ThrottledReplicas, at_least, between


class TopicKeys:
    """The rows, each an attribute of ``LogConfig``."""

    __slots__ = ()

    cleanup_policy = LIST(("delete",), MEDIUM, CLEANUP_POLICY, synonyms=("log.cleanup.policy",)).with_effect(
        "What happens to old segments: `delete` (by age and size), `compact` (keep the last record of each key), or "
        "both."
    )
    retention_ms = LONG(
        604_800_000, MEDIUM, at_least(-1), synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours")
    ).with_effect("Milliseconds that records are kept if the policy deletes; -1: forever.")
    retention_bytes = LONG(-1, MEDIUM, synonyms=("log.retention.bytes",)).with_effect(
        "Size of a partition, in bytes, above which its oldest segments are deleted; -1: no limit. It counts per "
        "partition, not per topic."
    )
    segment_bytes = INT(1_073_741_824, MEDIUM, at_least(14), synonyms=("log.segment.bytes",)).with_effect(
        "Size, in bytes, at which a new segment begins. Retention and compaction work on whole segments."
    )
    segment_ms = LONG(604_800_000, MEDIUM, at_least(1), synonyms=("log.roll.ms", "log.roll.hours")).with_effect(
        "Age, in milliseconds, at which a new segment begins even if the old one is not full, so that retention can "
        "reach it."
    )
    segment_jitter_ms = LONG(
        0, MEDIUM, at_least(0), synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours")
    ).with_effect("Maximum milliseconds by which segments begin earlier, at random, so that not all roll at once.")
    segment_index_bytes = INT(10_485_760, MEDIUM, at_least(4), synonyms=("log.index.size.max.bytes",)).with_effect(
        "Largest size of an offset or time index, in bytes; a full index begins a new segment."
    )
    index_interval_bytes = INT(4096, MEDIUM, at_least(0), synonyms=("log.index.interval.bytes",)).with_effect(
        "Bytes of records between two entries of the offset index. Smaller finds offsets with less reading and needs "
        "more index."
    )
    preallocate = BOOLEAN(False, MEDIUM, synonyms=("log.preallocate",)).with_effect(
        "Reserve a segment's whole size on disk when it is made."
    )
    file_delete_delay_ms = LONG(60000, MEDIUM, at_least(0), synonyms=("log.segment.delete.delay.ms",)).with_effect(
        "Milliseconds between a segment's removal from the log and the deletion of its files."
    )
    flush_messages = LONG(LONG_MAX, MEDIUM, at_least(1), synonyms=("log.flush.interval.messages",)).with_effect(
        "Records that may be written before the log is flushed to disk. The default leaves flushing to the operating "
        "system; replication is the better protection."
    )
    flush_ms = LONG(
        LONG_MAX, MEDIUM, at_least(0), synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms")
    ).with_effect("Milliseconds that a record may stay unflushed. The default leaves flushing to the operating system.")
    max_message_bytes = INT(1_048_588, MEDIUM, at_least(0), synonyms=("message.max.bytes",)).with_effect(
        "Largest record batch that is accepted, in bytes, after compression."
    )
    min_insync_replicas = INT(1, MEDIUM, at_least(1), synonyms=("min.insync.replicas",)).with_effect(
        "Replicas that must be in the ISR for a write with `acks=all` to be accepted."
    )
    unclean_leader_election_enable = BOOLEAN(False, MEDIUM, synonyms=("unclean.leader.election.enable",)).with_effect(
        "Let a replica outside the ISR lead when no other is left. The partition lives on and may lose records."
    )
    compression_type = STRING("producer", MEDIUM, COMPRESSION_TYPE, synonyms=("compression.type",)).with_effect(
        "Codec in which batches are stored: `producer` keeps what was sent; any other is applied by the broker, at the "
        "cost of its CPU."
    )
    compression_gzip_level = INT(-1, MEDIUM, GzipLevel(), synonyms=("compression.gzip.level",)).with_effect(
        "Level for batches that the broker compresses with gzip; -1: the library's choice."
    )
    compression_lz4_level = INT(9, MEDIUM, between(1, 17), synonyms=("compression.lz4.level",)).with_effect(
        "Level for batches that the broker compresses with lz4."
    )
    compression_zstd_level = INT(3, MEDIUM, between(-131_072, 22), synonyms=("compression.zstd.level",)).with_effect(
        "Level for batches that the broker compresses with zstd."
    )
    message_timestamp_type = STRING(
        "CreateTime", MEDIUM, TIMESTAMP_TYPE, synonyms=("log.message.timestamp.type",)
    ).with_effect(
        "Whether records carry the time their producer gave them (`CreateTime`) or the time of their append "
        "(`LogAppendTime`)."
    )
    message_timestamp_before_max_ms = LONG(
        LONG_MAX, MEDIUM, at_least(0), synonyms=("log.message.timestamp.before.max.ms",)
    ).with_effect(
        "Maximum milliseconds that a record's time may be before the broker's clock; older ones are refused. Only for "
        "`CreateTime`."
    )
    message_timestamp_after_max_ms = LONG(
        LONG_MAX, MEDIUM, at_least(0), synonyms=("log.message.timestamp.after.max.ms",)
    ).with_effect(
        "Maximum milliseconds that a record's time may be after the broker's clock; later ones are refused. Only for "
        "`CreateTime`."
    )
    message_timestamp_difference_max_ms = LONG(
        LONG_MAX, MEDIUM, at_least(0), synonyms=("log.message.timestamp.difference.max.ms",)
    ).with_effect(
        "Deprecated twin of the two before it: maximum milliseconds that a record's time may differ from the broker's "
        "clock."
    )
    message_downconversion_enable = BOOLEAN(True, LOW, synonyms=("log.message.downconversion.enable",)).with_effect(
        "Convert records for consumers too old for format 2 (Fetch 0-3); false: they get UNSUPPORTED_VERSION."
    )
    message_format_version = STRING("3.0-IV1", MEDIUM, IBP, synonyms=("log.message.format.version",)).with_effect(
        "Record format. Ignored since inter-broker protocol 3.0: everything is written in format 2."
    )
    delete_retention_ms = LONG(
        86_400_000, MEDIUM, at_least(0), synonyms=("log.cleaner.delete.retention.ms",)
    ).with_effect("Milliseconds that tombstones of a compacted topic are kept, so that slow consumers still see them.")
    min_cleanable_dirty_ratio = DOUBLE(
        0.5, MEDIUM, between(0, 1), synonyms=("log.cleaner.min.cleanable.ratio",)
    ).with_effect(
        "Share of a log that must be dirty before it is compacted, 0 to 1. Higher wastes space, lower wastes work."
    )
    min_compaction_lag_ms = LONG(0, MEDIUM, at_least(0), synonyms=("log.cleaner.min.compaction.lag.ms",)).with_effect(
        "Milliseconds for which a new record is safe from compaction."
    )
    max_compaction_lag_ms = LONG(
        LONG_MAX, MEDIUM, at_least(1), synonyms=("log.cleaner.max.compaction.lag.ms",)
    ).with_effect("Milliseconds after which a record must be compacted, however little of the log is dirty.")
    leader_replication_throttled_replicas = LIST((), MEDIUM, ThrottledReplicas()).with_effect(
        "Replicas whose leaders send under the throttle `leader.replication.throttled.rate`: `partition:broker,…`, or "
        "`*` for all."
    )
    follower_replication_throttled_replicas = LIST((), MEDIUM, ThrottledReplicas()).with_effect(
        "Replicas whose followers fetch under the throttle `follower.replication.throttled.rate`: "
        "`partition:broker,…`, or `*` for all."
    )
    remote_storage_enable = BOOLEAN(False, MEDIUM).without_effect(
        "Keep old segments in tiered storage. klamm has none."
    )
    local_retention_ms = LONG(-2, MEDIUM, at_least(-2), synonyms=("log.local.retention.ms",)).without_effect(
        "Milliseconds that segments stay on the broker after their copy to tiered storage; -2: as `retention.ms`."
    )
    local_retention_bytes = LONG(-2, MEDIUM, at_least(-2), synonyms=("log.local.retention.bytes",)).without_effect(
        "Bytes that stay on the broker after their copy to tiered storage; -2: as `retention.bytes`."
    )
    remote_log_copy_disable = BOOLEAN(False, MEDIUM).without_effect("Stop copying segments to tiered storage (KRaft).")
    remote_log_delete_on_disable = BOOLEAN(False, MEDIUM).without_effect(
        "Delete what is in tiered storage when it is switched off (KRaft)."
    )


TOPIC_CONFIG_DEF: Final = ConfigDef.of(TopicKeys)
