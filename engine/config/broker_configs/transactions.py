"""Settings of producer ids and transactions."""

from __future__ import annotations

from engine.config.definition import ConfigKey
from engine.config.validators import at_least
from engine.config.vocabulary import BOOLEAN, CLUSTER_WIDE, HIGH, INT, LOW, SHORT

KEYS = (
    ConfigKey(
        "producer.id.expiration.ms",
        INT,
        86_400_000,
        LOW,
        "Milliseconds without a write after which a partition forgets a producer's sequence numbers.",
        at_least(1),
        dynamic=CLUSTER_WIDE,
        has_effect=True,
    ),
    ConfigKey(
        "producer.id.expiration.check.interval.ms",
        INT,
        600_000,
        LOW,
        "Milliseconds between two looks for producer ids to forget.",
        at_least(1),
        has_effect=True,
        is_internal=True,
    ),
    ConfigKey(
        "transactional.id.expiration.ms",
        INT,
        604_800_000,
        HIGH,
        "Milliseconds without a word from its producer after which a transactional id is forgotten.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.max.timeout.ms",
        INT,
        900_000,
        HIGH,
        "Longest transaction time-out, in milliseconds, that a producer may ask for.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.partition.verification.enable",
        BOOLEAN,
        True,
        LOW,
        ("Check with the coordinator that a partition belongs to the transaction before writing to it (KIP-890)."),
        dynamic=CLUSTER_WIDE,
    ),
    ConfigKey(
        "transaction.state.log.num.partitions",
        INT,
        50,
        HIGH,
        "Partitions of the transaction topic; must not change once it exists.",
        at_least(1),
        has_effect=True,
    ),
    ConfigKey(
        "transaction.state.log.replication.factor",
        SHORT,
        3,
        HIGH,
        "Replicas of the transaction topic; it is not created before there are as many brokers.",
        at_least(1),
        has_effect=True,
    ),
    ConfigKey(
        "transaction.state.log.min.isr",
        INT,
        2,
        HIGH,
        "`min.insync.replicas` of the transaction topic.",
        at_least(1),
        has_effect=True,
    ),
    ConfigKey(
        "transaction.state.log.segment.bytes",
        INT,
        104_857_600,
        HIGH,
        "Segment size of the transaction topic in bytes; small ones load fast.",
        at_least(1),
        has_effect=True,
    ),
    ConfigKey(
        "transaction.state.log.load.buffer.size",
        INT,
        5_242_880,
        HIGH,
        "Bytes read at once when a coordinator loads the transaction topic.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.abort.timed.out.transaction.cleanup.interval.ms",
        INT,
        10000,
        LOW,
        "Milliseconds between two looks for transactions that ran out of time.",
        at_least(1),
    ),
    ConfigKey(
        "transaction.remove.expired.transaction.cleanup.interval.ms",
        INT,
        3_600_000,
        LOW,
        "Milliseconds between two looks for transactional ids to forget.",
        at_least(1),
    ),
)
