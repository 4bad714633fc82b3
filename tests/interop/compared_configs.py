"""Requests about settings: DescribeConfigs, IncrementalAlterConfigs, AlterConfigs. Most only validate."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from side_by_side import SideBySide

from engine.kafka.protocol.apis import alter_configs, incremental_alter_configs
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource

STORED = Path(__file__).resolve().parents[2] / "fixtures" / "config" / "server.properties"
"""What settings may refer to as ``stored``."""

PROVIDERS = {
    "config.providers": "stored",
    "config.providers.stored.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}

TOPIC, BROKER, LOGGER, CLIENT_METRICS, GROUP = 2, 4, 8, 16, 32
SET, DELETE, APPEND, SUBTRACT = range(4)
WORDS = {"error_message"}

Change = tuple[str, int, str | None]


def change(kind: int, name: str, *changes: Change) -> incremental_alter_configs.IncrementalAlterConfigsRequest:
    """Ask whether single settings could change so."""
    resource = incremental_alter_configs.AlterConfigsResource(
        resource_type=kind,
        resource_name=name,
        configs=[
            incremental_alter_configs.AlterableConfig(name=key, config_operation=operation, value=value)
            for key, operation, value in changes
        ],
    )
    return incremental_alter_configs.IncrementalAlterConfigsRequest(resources=[resource], validate_only=True)


def replace(kind: int, name: str, *changes: Change) -> alter_configs.AlterConfigsRequest:
    """Ask whether these could replace all settings."""
    configs = [alter_configs.AlterableConfig(name=key, value=value) for key, _, value in changes]
    resource = alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=configs)
    return alter_configs.AlterConfigsRequest(resources=[resource], validate_only=True)


def described(
    *resources: tuple[int, str], keys: list[str] | None = None, synonyms: bool = False
) -> DescribeConfigsRequest:
    wanted = [DescribeConfigsResource(resource_type=t, resource_name=n, configuration_keys=keys) for t, n in resources]
    return DescribeConfigsRequest(resources=wanted, include_synonyms=synonyms)


def _changes(both: SideBySide, kind: int, name: str, cases: Iterable[Change], *, unlike: Iterable[str] = ()) -> None:
    for case in cases:
        both.ask(f"{kind} {name} {case}", change(kind, name, case), [1], unlike=set(unlike))
        if case[1] == SET:
            both.ask(f"replaced {kind} {name} {case}", replace(kind, name, case), [2], unlike=set(unlike))


OF_TOPICS: tuple[tuple[str, str], ...] = (
    *(("retention.ms", value) for value in ("5", "x", "-2", " 12 ", "", "+5", "5_0", "0x10")),
    *(("cleanup.policy", value) for value in ("foo", "", "compact, delete", "compact,compact", "DELETE")),
    *(("min.insync.replicas", value) for value in ("0", "9")),
    *(("segment.bytes", value) for value in ("13", "3000000000")),
    *(("compression.type", value) for value in ("GZIP", "none", "uncompressed")),
    *(("compression.gzip.level", value) for value in ("99", "0")),
    *(("compression.lz4.level", value) for value in ("18", "0")),
    ("compression.zstd.level", "-200000"),
    *(("min.cleanable.dirty.ratio", value) for value in ("1.5", "0.5f", "NaN")),
    *(("unclean.leader.election.enable", value) for value in ("maybe", "TRUE")),
    *(("message.timestamp.type", value) for value in ("Foo", "LogAppendTime")),
    *(("leader.replication.throttled.replicas", value) for value in ("x:y:z", "*", "0:1", "")),
    *(("message.format.version", value) for value in ("0.9.0", "9.9")),
    ("max.message.bytes", "-1"),
    ("message.timestamp.before.max.ms", "-1"),
    ("remote.storage.enable", "true"),
    ("local.retention.ms", "99999999999"),
    ("preallocate", "1"),
    ("nope", "x"),
    ("", "x"),
)

OF_BROKERS: tuple[tuple[str, str], ...] = (
    *(("log.retention.ms", value) for value in ("5", "x")),
    *((key, "5") for key in ("broker.id", "nope", "log.retention.hours", "zookeeper.connect", "retention.ms")),
    *(("num.io.threads", value) for value in ("0", "4", "16")),
    ("log.cleaner.threads", "2"),
    ("log.cleaner.dedupe.buffer.size", "1"),
    ("max.connections", "5"),
    *(("max.connections.per.ip", value) for value in ("0", "-1")),
    ("max.connections.per.ip.overrides", "127.0.0.1:5"),
    *(("leader.replication.throttled.rate", value) for value in ("5", "-1")),
    ("message.max.bytes", "-1"),
    ("log.segment.bytes", "5"),
    ("log.cleanup.policy", "foo"),
    ("unclean.leader.election.enable", "x"),
    ("min.insync.replicas", "0"),
    ("log.message.timestamp.type", "x"),
    ("producer.id.expiration.ms", "0"),
    ("compression.type", "gzip"),
    ("transaction.partition.verification.enable", "false"),
    ("auto.create.topics.enable", "false"),
    ("log.flush.interval.messages", "0"),
    ("listener.name.plaintext.ssl.keystore.location", "x"),
)


def settings_of_topics(both: SideBySide) -> None:
    """Topics' settings: set at creation, described, changed."""
    of_two = [CreatableTopicConfig(name="retention.ms", value="7777")]
    topics = [
        CreatableTopic(name="s", num_partitions=1, replication_factor=1),
        CreatableTopic(name="s-two", num_partitions=1, replication_factor=1, configs=of_two),
    ]
    both.prepare(CreateTopicsRequest(topics=topics, timeout_ms=15_000), 7)
    for key, value in OF_TOPICS:
        made = CreatableTopic(
            name="s-new",
            num_partitions=1,
            replication_factor=1,
            configs=[CreatableTopicConfig(name=key, value=value)],
        )
        both.ask(f"made with {key}={value}", CreateTopicsRequest(topics=[made], validate_only=True), [7])
    nulls = [CreatableTopicConfig(name=f"nowhere-{number}", value=None) for number in range(5000)]
    made = CreatableTopic(name="s-new", num_partitions=1, replication_factor=1, configs=nulls)
    # A refusal that names them all is too long for an answer.
    both.ask("made with very many", CreateTopicsRequest(topics=[made], validate_only=True), [1, 4, 7])
    both.ask("all", described((TOPIC, "s"), (TOPIC, "s-two")))
    both.ask("synonyms", described((TOPIC, "s"), (TOPIC, "s-two"), synonyms=True), range(1, 5))
    both.ask("some", described((TOPIC, "s"), (TOPIC, "s-two"), keys=["retention.ms", "nope", "cleanup.policy"]))
    both.ask("no keys", described((TOPIC, "s"), keys=[]))
    both.ask("nobody's", described((TOPIC, "nosuch"), (TOPIC, "bad name!"), (TOPIC, "")))
    _changes(both, TOPIC, "s", ((key, SET, value) for key, value in OF_TOPICS))
    others: list[Change] = [("retention.ms", SET, None), ("nope", DELETE, None), ("retention.ms", DELETE, "x")]
    others += [("retention.ms", APPEND, "5"), ("retention.ms", SUBTRACT, "5"), ("cleanup.policy", APPEND, None)]
    others += [("cleanup.policy", operation, "compact") for operation in (APPEND, SUBTRACT)]
    others += [("cleanup.policy", SUBTRACT, "delete"), ("leader.replication.throttled.replicas", APPEND, "x")]
    _changes(both, TOPIC, "s", others)
    for name in ("nosuch", "bad name!", ""):
        _changes(both, TOPIC, name, [("retention.ms", SET, "5")])
    both.ask("twice", change(TOPIC, "s", ("retention.ms", SET, "5"), ("retention.ms", DELETE, None)))
    both.ask("lags", change(TOPIC, "s", ("min.compaction.lag.ms", SET, "50"), ("max.compaction.lag.ms", SET, "5")))
    done = change(TOPIC, "s", ("retention.ms", SET, " 55 "), ("cleanup.policy", APPEND, "compact"))
    done.validate_only = False
    both.ask("done", done)
    both.ask("what was done", described((TOPIC, "s"), synonyms=True), [4])


def settings_of_brokers(both: SideBySide) -> None:
    """Settings of brokers and loggers, and of resources that have none."""
    unlike = {"value"}
    # ZooKeeper's address, log dirs and listeners differ from broker to broker.
    own = {"zookeeper.connect", "log.dirs", "listeners", "log.dir"}
    both.ask("all", described((BROKER, "0")), unlike=unlike)
    some = [key for key, _ in OF_BROKERS if key not in own]
    some += ["log.roll.ms", "group.initial.rebalance.delay.ms", *PROVIDERS]
    both.ask("some", described((BROKER, "0"), keys=some, synonyms=True), range(1, 5))
    for name in ("7", "x", "-1", "+0", "00", "-", " 0", "0x0", "2147483648", "9" * 5000):
        both.ask(f"broker {name[:20]}", described((BROKER, name), keys=some))
    for name in ("", "7", "x"):
        both.ask(f"logger {name}", described((LOGGER, name)))
    for kind in (0, 1, 3, CLIENT_METRICS, GROUP, 99, -1):
        both.ask(f"kind {kind}", described((kind, "x"), (TOPIC, "s"), keys=["retention.ms"]), unlike=WORDS)
        _changes(both, kind, "x", [("a", SET, "b")])
    _changes(both, BROKER, "0", ((key, SET, value) for key, value in OF_BROKERS))
    _changes(both, BROKER, "", ((key, SET, value) for key, value in OF_BROKERS))
    stored = f"${{stored:{STORED}:num.io.threads}}"
    elsewhere = (
        ("max.connections.per.ip.overrides", f"localhost:{stored}"),
        ("max.connections.per.ip.overrides", f"::1:{stored}"),
        ("log.cleaner.threads", stored),
    )
    _changes(both, BROKER, "", ((key, SET, value) for key, value in elsewhere))
    too_many = (("num.io.threads", "99"), ("num.io.threads", "1"), ("log.cleaner.threads", "5"))
    limits = ("max.connections", "max.connection.creation.rate", "listener.name.plaintext.max.connections")
    # Kafka puts the name of an exception class into these.
    _changes(both, BROKER, "0", [(key, SET, value) for key, value in too_many], unlike=WORDS)
    _changes(both, BROKER, "", [(key, SET, value) for key in limits for value in ("0", "1")], unlike=WORDS)
    for name in ("7", "x", "-1"):
        _changes(both, BROKER, name, [("log.retention.ms", SET, "5")])
    _changes(
        both, BROKER, "0", [("broker.id", DELETE, None), ("nope", DELETE, None), ("log.retention.ms", APPEND, "5")]
    )
    levels: list[Change] = [("root", SET, "INFO"), ("root", SET, "FOO"), ("root", DELETE, None), ("nope", SET, "INFO")]
    _changes(both, LOGGER, "0", [*levels, ("root", APPEND, "INFO"), ("root", SET, "info"), ("root", SET, None)])
