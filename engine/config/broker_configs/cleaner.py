"""Settings of the log cleaner, which compacts topics with `cleanup.policy=compact`."""

from __future__ import annotations

from engine.config.definition import ConfigKey
from engine.config.validators import at_least, between
from engine.config.vocabulary import (
    BOOLEAN,
    CLUSTER_WIDE,
    DOUBLE,
    DOUBLE_MAX,
    INT,
    LONG,
    LONG_MAX,
    MEDIUM,
)

KEYS = (
    ConfigKey(
        "log.cleaner.enable",
        BOOLEAN,
        True,
        MEDIUM,
        "Run the cleaner. Without it compacted topics, the offsets topic among them, grow for ever.",
        has_effect=True,
    ),
    ConfigKey(
        "log.cleaner.threads",
        INT,
        1,
        MEDIUM,
        "How many logs are cleaned at once, each by a process of its own that is started when there is work.",
        at_least(0),
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "log.cleaner.io.max.bytes.per.second",
        DOUBLE,
        DOUBLE_MAX,
        MEDIUM,
        "Most bytes a second that the cleaner reads and writes together.",
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "log.cleaner.dedupe.buffer.size",
        LONG,
        134_217_728,
        MEDIUM,
        (
            "Bytes for the cleaner's maps of keys, over all threads. A larger map cleans more in one pass. A key takes "
            "100 to 200 bytes here, where it takes 24 in Apache Kafka."
        ),
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.size",
        INT,
        524_288,
        MEDIUM,
        "Bytes for the cleaner's read and write buffers, over all threads.",
        at_least(0),
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "log.cleaner.io.buffer.load.factor",
        DOUBLE,
        0.9,
        MEDIUM,
        "Share of the bytes for the map of keys that may be used, 0 to 1.",
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "log.cleaner.backoff.ms",
        LONG,
        15000,
        MEDIUM,
        "Milliseconds to sleep when there is nothing to clean.",
        at_least(0),
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "log.cleaner.min.cleanable.ratio",
        DOUBLE,
        0.5,
        MEDIUM,
        ("Share of a log that must be dirty before it is cleaned, 0 to 1. Higher wastes space, lower wastes work."),
        between(0, 1),
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "log.cleaner.delete.retention.ms",
        LONG,
        86_400_000,
        MEDIUM,
        "Milliseconds that tombstones of a compacted topic are kept, so that slow consumers still see them.",
        at_least(0),
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "log.cleaner.min.compaction.lag.ms",
        LONG,
        0,
        MEDIUM,
        "Milliseconds for which a new record is safe from compaction.",
        at_least(0),
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "log.cleaner.max.compaction.lag.ms",
        LONG,
        LONG_MAX,
        MEDIUM,
        "Milliseconds after which a record must be compacted, however little of the log is dirty.",
        at_least(1),
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
)
