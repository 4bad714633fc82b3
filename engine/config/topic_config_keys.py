"""Every setting of a topic that Kafka 3.9 knows. ``synonyms`` are the broker settings that are its default, in order.

What they mean together, and the LogConfig made of them, stands in ``topic_configs``.
"""

from __future__ import annotations

from typing import Final

from engine.config.definition import ConfigDef, ConfigKey
from engine.config.validators import GzipLevel, ThrottledReplicas, at_least, between
from engine.config.vocabulary import (
    BOOLEAN,
    CLEANUP_POLICY,
    COMPRESSION_TYPE,
    DOUBLE,
    IBP,
    INT,
    LIST,
    LONG,
    LONG_MAX,
    LOW,
    MEDIUM,
    STRING,
    TIMESTAMP_TYPE,
)

TOPIC_CONFIG_DEF: Final = ConfigDef(
    (
        ConfigKey(
            "cleanup.policy",
            LIST,
            ("delete",),
            MEDIUM,
            (
                "What happens to old segments: `delete` (by age and size), `compact` (keep the last record of each "
                "key), or both."
            ),
            CLEANUP_POLICY,
            has_effect=True,
            synonyms=("log.cleanup.policy",),
        ),
        ConfigKey(
            "retention.ms",
            LONG,
            604_800_000,
            MEDIUM,
            "Milliseconds that records are kept where the policy deletes; -1: for ever.",
            at_least(-1),
            has_effect=True,
            synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
        ),
        ConfigKey(
            "retention.bytes",
            LONG,
            -1,
            MEDIUM,
            (
                "Size of a partition, in bytes, above which its oldest segments are deleted; -1: no limit. It counts "
                "per partition, not per topic."
            ),
            has_effect=True,
            synonyms=("log.retention.bytes",),
        ),
        ConfigKey(
            "segment.bytes",
            INT,
            1_073_741_824,
            MEDIUM,
            "Size, in bytes, at which a new segment begins. Retention and compaction work on whole segments.",
            at_least(14),
            has_effect=True,
            synonyms=("log.segment.bytes",),
        ),
        ConfigKey(
            "segment.ms",
            LONG,
            604_800_000,
            MEDIUM,
            (
                "Age, in milliseconds, at which a new segment begins even if the old one is not full, so that "
                "retention can reach it."
            ),
            at_least(1),
            has_effect=True,
            synonyms=("log.roll.ms", "log.roll.hours"),
        ),
        ConfigKey(
            "segment.jitter.ms",
            LONG,
            0,
            MEDIUM,
            "Most milliseconds by which segments begin earlier, at random, so that not all roll at once.",
            at_least(0),
            has_effect=True,
            synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
        ),
        ConfigKey(
            "segment.index.bytes",
            INT,
            10_485_760,
            MEDIUM,
            "Largest size of an offset or time index, in bytes; a full index begins a new segment.",
            at_least(4),
            has_effect=True,
            synonyms=("log.index.size.max.bytes",),
        ),
        ConfigKey(
            "index.interval.bytes",
            INT,
            4096,
            MEDIUM,
            (
                "Bytes of records between two entries of the offset index. Smaller finds offsets with less reading "
                "and needs more index."
            ),
            at_least(0),
            has_effect=True,
            synonyms=("log.index.interval.bytes",),
        ),
        ConfigKey(
            "preallocate",
            BOOLEAN,
            False,
            MEDIUM,
            "Reserve a segment's whole size on disk when it is made.",
            has_effect=True,
            synonyms=("log.preallocate",),
        ),
        ConfigKey(
            "file.delete.delay.ms",
            LONG,
            60000,
            MEDIUM,
            "Milliseconds between a segment's removal from the log and the deletion of its files.",
            at_least(0),
            has_effect=True,
            synonyms=("log.segment.delete.delay.ms",),
        ),
        ConfigKey(
            "flush.messages",
            LONG,
            LONG_MAX,
            MEDIUM,
            (
                "Records that may be written before the log is flushed to disk. The default leaves flushing to the "
                "operating system; replication is the better safety."
            ),
            at_least(1),
            has_effect=True,
            synonyms=("log.flush.interval.messages",),
        ),
        ConfigKey(
            "flush.ms",
            LONG,
            LONG_MAX,
            MEDIUM,
            "Milliseconds that a record may stay unflushed. The default leaves flushing to the operating system.",
            at_least(0),
            has_effect=True,
            synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
        ),
        ConfigKey(
            "max.message.bytes",
            INT,
            1_048_588,
            MEDIUM,
            "Largest record batch that is accepted, in bytes, after compression.",
            at_least(0),
            has_effect=True,
            synonyms=("message.max.bytes",),
        ),
        ConfigKey(
            "min.insync.replicas",
            INT,
            1,
            MEDIUM,
            "Replicas that must be in the ISR for a write with `acks=all` to be accepted.",
            at_least(1),
            has_effect=True,
            synonyms=("min.insync.replicas",),
        ),
        ConfigKey(
            "unclean.leader.election.enable",
            BOOLEAN,
            False,
            MEDIUM,
            ("Let a replica outside the ISR lead when no other is left. The partition lives on and may lose records."),
            has_effect=True,
            synonyms=("unclean.leader.election.enable",),
        ),
        ConfigKey(
            "compression.type",
            STRING,
            "producer",
            MEDIUM,
            (
                "Codec in which batches are stored: `producer` keeps what was sent; any other is applied by the "
                "broker, at the cost of its CPU."
            ),
            COMPRESSION_TYPE,
            has_effect=True,
            synonyms=("compression.type",),
        ),
        ConfigKey(
            "compression.gzip.level",
            INT,
            -1,
            MEDIUM,
            "Level for batches that the broker compresses with gzip; -1: the library's choice.",
            GzipLevel(),
            has_effect=True,
            synonyms=("compression.gzip.level",),
        ),
        ConfigKey(
            "compression.lz4.level",
            INT,
            9,
            MEDIUM,
            "Level for batches that the broker compresses with lz4.",
            between(1, 17),
            has_effect=True,
            synonyms=("compression.lz4.level",),
        ),
        ConfigKey(
            "compression.zstd.level",
            INT,
            3,
            MEDIUM,
            "Level for batches that the broker compresses with zstd.",
            between(-131_072, 22),
            has_effect=True,
            synonyms=("compression.zstd.level",),
        ),
        ConfigKey(
            "message.timestamp.type",
            STRING,
            "CreateTime",
            MEDIUM,
            (
                "Whether records carry the time their producer gave them (`CreateTime`) or the time of their append "
                "(`LogAppendTime`)."
            ),
            TIMESTAMP_TYPE,
            has_effect=True,
            synonyms=("log.message.timestamp.type",),
        ),
        ConfigKey(
            "message.timestamp.before.max.ms",
            LONG,
            LONG_MAX,
            MEDIUM,
            (
                "Most milliseconds that a record's time may lie before the broker's clock; older ones are refused. "
                "Counts for `CreateTime` only."
            ),
            at_least(0),
            has_effect=True,
            synonyms=("log.message.timestamp.before.max.ms",),
        ),
        ConfigKey(
            "message.timestamp.after.max.ms",
            LONG,
            LONG_MAX,
            MEDIUM,
            (
                "Most milliseconds that a record's time may lie after the broker's clock; later ones are refused. "
                "Counts for `CreateTime` only."
            ),
            at_least(0),
            has_effect=True,
            synonyms=("log.message.timestamp.after.max.ms",),
        ),
        ConfigKey(
            "message.timestamp.difference.max.ms",
            LONG,
            LONG_MAX,
            MEDIUM,
            (
                "Deprecated twin of the two before it: most milliseconds that a record's time may differ from the "
                "broker's clock."
            ),
            at_least(0),
            has_effect=True,
            synonyms=("log.message.timestamp.difference.max.ms",),
        ),
        ConfigKey(
            "message.downconversion.enable",
            BOOLEAN,
            True,
            LOW,
            "Convert records for consumers too old for format 2 (Fetch 0-3); false: they get UNSUPPORTED_VERSION.",
            synonyms=("log.message.downconversion.enable",),
            has_effect=True,
        ),
        ConfigKey(
            "message.format.version",
            STRING,
            "3.0-IV1",
            MEDIUM,
            "Record format. Ignored since inter-broker protocol 3.0: everything is written in format 2.",
            IBP,
            synonyms=("log.message.format.version",),
            has_effect=True,
        ),
        ConfigKey(
            "delete.retention.ms",
            LONG,
            86_400_000,
            MEDIUM,
            "Milliseconds that tombstones of a compacted topic are kept, so that slow consumers still see them.",
            at_least(0),
            has_effect=True,
            synonyms=("log.cleaner.delete.retention.ms",),
        ),
        ConfigKey(
            "min.cleanable.dirty.ratio",
            DOUBLE,
            0.5,
            MEDIUM,
            (
                "Share of a log that must be dirty before it is compacted, 0 to 1. Higher wastes space, lower wastes "
                "work."
            ),
            between(0, 1),
            has_effect=True,
            synonyms=("log.cleaner.min.cleanable.ratio",),
        ),
        ConfigKey(
            "min.compaction.lag.ms",
            LONG,
            0,
            MEDIUM,
            "Milliseconds for which a new record is safe from compaction.",
            at_least(0),
            has_effect=True,
            synonyms=("log.cleaner.min.compaction.lag.ms",),
        ),
        ConfigKey(
            "max.compaction.lag.ms",
            LONG,
            LONG_MAX,
            MEDIUM,
            "Milliseconds after which a record must be compacted, however little of the log is dirty.",
            at_least(1),
            has_effect=True,
            synonyms=("log.cleaner.max.compaction.lag.ms",),
        ),
        ConfigKey(
            "leader.replication.throttled.replicas",
            LIST,
            (),
            MEDIUM,
            (
                "Replicas whose leaders send under the throttle `leader.replication.throttled.rate`: "
                "`partition:broker,…`, or `*` for all."
            ),
            ThrottledReplicas(),
            has_effect=True,
        ),
        ConfigKey(
            "follower.replication.throttled.replicas",
            LIST,
            (),
            MEDIUM,
            (
                "Replicas whose followers fetch under the throttle `follower.replication.throttled.rate`: "
                "`partition:broker,…`, or `*` for all."
            ),
            ThrottledReplicas(),
            has_effect=True,
        ),
        ConfigKey(
            "remote.storage.enable",
            BOOLEAN,
            False,
            MEDIUM,
            "Keep old segments in tiered storage. klamm has none.",
        ),
        ConfigKey(
            "local.retention.ms",
            LONG,
            -2,
            MEDIUM,
            (
                "Milliseconds that segments stay on the broker after their copy to tiered storage; -2: as "
                "`retention.ms`."
            ),
            at_least(-2),
            synonyms=("log.local.retention.ms",),
        ),
        ConfigKey(
            "local.retention.bytes",
            LONG,
            -2,
            MEDIUM,
            "Bytes that stay on the broker after their copy to tiered storage; -2: as `retention.bytes`.",
            at_least(-2),
            synonyms=("log.local.retention.bytes",),
        ),
        ConfigKey(
            "remote.log.copy.disable",
            BOOLEAN,
            False,
            MEDIUM,
            "Stop copying segments to tiered storage (KRaft).",
        ),
        ConfigKey(
            "remote.log.delete.on.disable",
            BOOLEAN,
            False,
            MEDIUM,
            "Delete what is in tiered storage when it is switched off (KRaft).",
        ),
    )
)
