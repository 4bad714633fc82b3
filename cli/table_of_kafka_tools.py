"""Kafka's command-line tools, and what each is here. The only list of them; translated by ``framework.kafka_tools``.

Sources: the tools' own help of Kafka 3.9.1, and of earlier releases for what 3.9 no longer has.
"""

from __future__ import annotations

from collections.abc import Mapping

from cli.framework.kafka_tools import Change, Drop, KafkaTool, Milliseconds, Minutes, Properties, Refuse, Rename, Word

_ADMIN_CONFIG: Mapping[str, Change] = {"--admin.config": Rename("--command-config")}
_BROKER_LIST: Mapping[str, Change] = {"--broker-list": Rename("--bootstrap-server")}
_OF_THE_PRODUCERS_BUFFERS = (
    "--batch-size",
    "--max-block-ms",
    "--max-memory-bytes",
    "--max-partition-memory-bytes",
    "--message-send-max-retries",
    "--metadata-expiry-ms",
    "--request-timeout-ms",
    "--retry-backoff-ms",
    "--socket-buffer-size",
    "--timeout",
)
"""``--timeout`` among them: there it is how long a record may wait for its batch, in milliseconds."""
_NO_METADATA_LOG = "a cluster with ZooKeeper has no such topic"
_NO_JAVA = "klamm loads no Java classes; -o json has keys and values as they are"
_JSON_OR_ALL = ("--path-to-json-file", "--topic", "--all-topic-partitions", "--help", "-h")


def _actions(*words: str) -> dict[str, Change]:
    return {f"--{word}": Word(word) for word in words}


def _zookeeper_of_authorizer(properties: Mapping[str, str]) -> list[str] | None:
    return ["--zookeeper", properties["zookeeper.connect"]] if set(properties) == {"zookeeper.connect"} else None


TOOLS = (
    KafkaTool(
        "kafka-topics",
        ("topics",),
        {
            **_actions("list", "describe", "create", "alter", "delete"),
            "--force": Drop(kept_for=("alter", "delete")),
            "--partition-size-limit-per-response": Drop(has_value=True),
        },
        changes=("create", "alter", "delete"),
        main="TopicCommand",
    ),
    KafkaTool(
        "kafka-configs",
        ("configs",),
        {
            **_actions("describe", "alter"),
            "--force": Drop(kept_for=("alter",)),
            "--bootstrap-controller": Refuse("klamm does not ask KRaft controllers; give --bootstrap-server"),
        },
        changes=("alter",),
        main="ConfigCommand",
    ),
    KafkaTool(
        "kafka-leader-election",
        ("elect",),
        {"--election-type": Word(), **_ADMIN_CONFIG},
        changes=("preferred", "unclean"),
        main="LeaderElectionCommand",
    ),
    KafkaTool(
        "kafka-preferred-replica-election",
        ("elect", "preferred"),
        _ADMIN_CONFIG,
        unless=((_JSON_OR_ALL, "--all-topic-partitions"),),
        changes=("preferred",),
        main="PreferredReplicaLeaderElectionCommand",
    ),
    KafkaTool(
        "kafka-reassign-partitions",
        ("reassign",),
        {**_actions("generate", "execute", "verify", "cancel", "list"), "--timeout": Milliseconds("--timeout")},
        changes=("execute", "cancel"),
        defaults={"execute": ("--allow-replication-factor-change", "--started-is-done")},
        main="ReassignPartitionsCommand",
    ),
    KafkaTool(
        "kafka-consumer-groups",
        ("groups",),
        {
            **_actions("list", "describe", "reset-offsets", "delete-offsets", "delete"),
            "--timeout": Milliseconds("--timeout"),
        },
        changes=("reset-offsets", "delete-offsets", "delete"),
        main="ConsumerGroupCommand",
    ),
    KafkaTool(
        "kafka-acls",
        ("acls",),
        {
            **_actions("list", "add", "remove"),
            "--cluster": Rename("--cluster-resource"),
            "--force": Drop(),
            "--authorizer": Drop(has_value=True),
            "--authorizer-properties": Properties(_zookeeper_of_authorizer),
            "--bootstrap-controller": Refuse("klamm does not ask KRaft controllers; give --bootstrap-server"),
        },
        changes=("add", "remove"),
        main="AclCommand",
    ),
    KafkaTool(
        "kafka-transactions",
        ("transactions",),
        {
            "list": Word("list"),
            "describe": Word("describe"),
            "describe-producers": Word("producers"),
            "find-hanging": Word("find-hanging"),
            "abort": Word("abort"),
            "force-terminate": Word("force-terminate"),
            "--duration-filter": Milliseconds("--duration-filter"),
            "--max-transaction-timeout": Minutes("--max-transaction-timeout"),
        },
        changes=("abort", "force-terminate"),
        defaults={"abort": ("--force",)},
        main="TransactionsCommand",
    ),
    KafkaTool(
        "kafka-delegation-tokens",
        ("tokens",),
        {
            **_actions("create", "renew", "expire"),
            "--describe": Word("list"),
            **{
                option: Milliseconds(option)
                for option in ("--max-life-time-period", "--renew-time-period", "--expiry-time-period")
            },
        },
        changes=("create", "renew", "expire"),
        main="DelegationTokenCommand",
    ),
    KafkaTool("kafka-log-dirs", ("brokers", "log-dirs"), {"--describe": Drop()}, main="LogDirsCommand"),
    KafkaTool("kafka-broker-api-versions", ("brokers", "describe", "--api-versions"), main="BrokerApiVersionsCommand"),
    KafkaTool(
        "kafka-get-offsets",
        ("offsets",),
        {**_BROKER_LIST, "--offsets": Drop(has_value=True), "--max-wait-ms": Drop(has_value=True)},
        main="GetOffsetShell",
    ),
    KafkaTool("kafka-delete-records", ("records", "delete"), changes=("delete",), main="DeleteRecordsCommand"),
    KafkaTool(
        "kafka-replica-verification",
        ("replicas", "verify"),
        {
            **_BROKER_LIST,
            "--topic-white-list": Rename("--topic"),
            "--topics-include": Rename("--topic"),
            "--time": Drop(has_value=True),
            "--fetch-size": Drop(has_value=True),
            "--max-wait-ms": Drop(has_value=True),
            "--report-interval-ms": Drop(has_value=True),
        },
        main="ReplicaVerificationTool",
    ),
    KafkaTool(
        "kafka-dump-log",
        ("dump",),
        {
            "--max-message-size": Drop(has_value=True),
            "--cluster-metadata-decoder": Refuse(_NO_METADATA_LOG),
            "--remote-log-metadata-decoder": Refuse(_NO_METADATA_LOG),
            "--key-decoder-class": Refuse(_NO_JAVA),
            "--value-decoder-class": Refuse(_NO_JAVA),
            "--skip-record-metadata": Refuse("use -o json and drop the fields you do not want, for example with jq"),
        },
        main="DumpLogSegments",
    ),
    KafkaTool(
        "kafka-cluster",
        ("cluster",),
        {
            "cluster-id": Word("describe"),
            "--config": Rename("--command-config"),
            "unregister": Refuse(
                "brokers of a cluster with ZooKeeper register themselves; for KRaft use Kafka's own tool"
            ),
            "list-endpoints": Refuse("klamm brokers list has the addresses of the brokers"),
        },
        main="ClusterTool",
    ),
    KafkaTool("kafka.tools.StateChangeLogMerger", ("state-changes", "merge"), main="StateChangeLogMerger"),
    KafkaTool(
        "zookeeper-shell",
        ("zk",),
        {"ls": Word("tree"), "get": Word("get")},
        first="--zookeeper",
        main="ZooKeeperMainWithTlsSupportForKafka",
    ),
    KafkaTool(
        "zookeeper-security-migration",
        ("zk",),
        {
            "--zookeeper.acl": Word(values={"unsecure": "open"}),
            "--zookeeper.connect": Rename("--zookeeper"),
            "--zookeeper.connection.timeout": Milliseconds("--timeout"),
            "--zookeeper.session.timeout": Drop(has_value=True),
            "--enable.path.check": Rename("--enable-path-check"),
        },
        changes=("secure", "open"),
        main="ZkSecurityMigrator",
    ),
    KafkaTool(
        "kafka-console-producer",
        ("produce",),
        {
            **_BROKER_LIST,
            "--compression-codec": Rename("--compression", without_value="gzip"),
            "--request-required-acks": Rename("--acks", {"-1": "all"}),
            "--sync": Drop(),
            **{option: Drop(has_value=True) for option in _OF_THE_PRODUCERS_BUFFERS},
        },
        main="ConsoleProducer",
    ),
    KafkaTool(
        "kafka-console-consumer",
        ("consume",),
        {
            "--isolation-level": Rename(
                "--isolation", {"read_committed": "read-committed", "read_uncommitted": "read-uncommitted"}
            ),
            "--whitelist": Rename("--topic"),
            "--enable-systest-events": Refuse("only the tests of Kafka itself want it"),
        },
        main="ConsoleConsumer",
    ),
    KafkaTool("kafka-server-start", ("broker", "start"), main="Kafka"),
    KafkaTool("zookeeper-server-start", ("zookeeper", "start"), main="QuorumPeerMain"),
    KafkaTool("kafka-producer-perf-test", ("perf", "producer"), main="ProducerPerformance"),
    KafkaTool(
        "kafka-consumer-perf-test",
        ("perf", "consumer"),
        {**_BROKER_LIST, "--timeout": Milliseconds("--timeout")},
        main="ConsumerPerformance",
    ),
)
