"""Kafka's command-line tools, and their equivalents here. The only list of them; ``framework.kafka_tools`` uses it.

klamm refuses tools that have no command here under their own names, and never takes one tool for another. For each
tool and option, the table says what to do instead.

Sources: the tools' own help in Kafka 3.9.1, and in earlier releases for what 3.9 no longer has.
"""

from __future__ import annotations

from collections.abc import Mapping

from cli.framework.kafka_tools import (
    AbsentTool,
    Change,
    Drop,
    KafkaTool,
    Milliseconds,
    Minutes,
    Properties,
    Refuse,
    Rename,
    Word,
)

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


_KAFKAS_OWN = "klamm has nothing for it yet: use Kafka's own tool"
_QUORUM = "klamm cluster describe shows the quorum; for changes use Kafka's own tool"
_FEATURES = "klamm cluster describe shows the features; for changes use Kafka's own tool"
_FOR_KRAFT_NODES = "it prepares nodes for KRaft, and klamm starts brokers on ZooKeeper: use Kafka's own tool"

ABSENT_TOOLS: Mapping[str, AbsentTool] = {
    "kafka-metadata-quorum": AbsentTool(
        _QUORUM, dict.fromkeys(("describe", "--status", "--replication"), "klamm cluster describe")
    ),
    "kafka-metadata-shell": AbsentTool("it is about KRaft; for ZooKeeper: klamm zk tree"),
    "kafka-storage": AbsentTool(_FOR_KRAFT_NODES, {"info": "klamm brokers log-dirs"}),
    "kafka-features": AbsentTool(_FEATURES, {"describe": "klamm cluster describe"}),
    "kafka-client-metrics": AbsentTool(_KAFKAS_OWN),
    "kafka-mirror-maker": AbsentTool(
        "to copy a topic once: klamm consume TOPIC --until-end -o jsonl | klamm produce TOPIC --input jsonl",
        {
            "--include": "klamm consume takes patterns of topics",
            "--whitelist": "klamm consume takes patterns of topics",
            "--consumer.config": "klamm consume takes --command-config",
            "--producer.config": "klamm produce takes --command-config",
        },
    ),
    "kafka-streams-application-reset": AbsentTool(
        "its steps are klamm groups reset-offsets and klamm topics delete",
        {
            "--application-id": "klamm groups reset-offsets --group",
            "--bootstrap-servers": "every command takes --bootstrap-server",
            "--config-file": "every command takes --command-config",
            "--dry-run": "both commands take --dry-run",
            "--force": "the members have to end first",
            "--input-topics": "klamm groups reset-offsets --topic",
            "--intermediate-topics": "klamm groups reset-offsets --topic TOPIC --to-latest",
            "--internal-topics": "klamm topics delete takes patterns",
            **{
                option: f"klamm groups reset-offsets {option}"
                for option in (
                    *("--by-duration", "--from-file", "--shift-by", "--to-datetime", "--to-earliest", "--to-latest"),
                    "--to-offset",
                )
            },
        },
    ),
    "kafka-jmx": AbsentTool("klamm brokers metrics shows what brokers report by JMX; klamm exporter is for Prometheus"),
    "kafka-verifiable-producer": AbsentTool(
        "to put a load on a cluster: klamm perf producer",
        {
            "--topic": "klamm perf producer --topic",
            "--max-messages": "klamm perf producer --num-records",
            "--throughput": "klamm perf producer --throughput",
            "--acks": "klamm perf producer --producer-props acks=N",
            "--producer.config": "klamm perf producer --producer.config",
            "--repeating-keys": "klamm produce TOPIC --key-separator TEXT, with lines of your own",
            "--value-prefix": "klamm produce TOPIC, with lines of your own",
            "--message-create-time": "klamm produce TOPIC --input jsonl, with times of your own",
        },
    ),
    "kafka-verifiable-consumer": AbsentTool(
        "to read as a group: klamm consume TOPIC --group GROUP -o jsonl",
        {
            "--topic": "klamm consume TOPIC",
            "--group-id": "klamm consume --group",
            "--max-messages": "klamm consume --max-messages",
            "--verbose": "klamm consume -o jsonl",
            "--enable-autocommit": "klamm consume --group commits what it has printed",
            "--reset-policy": "klamm consume --from-beginning is earliest; the default is latest",
            "--consumer.config": "klamm consume --command-config",
            "--group-protocol": "klamm consume --group speaks the classic protocol",
            "--assignment-strategy": "klamm consume --group shares partitions by range",
        },
    ),
    "kafka-e2e-latency": AbsentTool("for latencies: klamm perf producer --acks all"),
    "kafka-run-class": AbsentTool("it takes the classes of Kafka's tools, such as kafka.admin.TopicCommand"),
    "kafka-server-stop": AbsentTool("it takes TERM; brokers of klamm local up end with: klamm local down"),
    "zookeeper-server-stop": AbsentTool("it takes TERM; what klamm local up started ends with: klamm local down"),
}
