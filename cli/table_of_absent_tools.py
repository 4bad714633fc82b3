"""Kafka's tools that have no command here: what to do instead, tool by tool and option by option.

They are refused under their own names; none is taken for another. The tools that have a command are in
``cli.table_of_kafka_tools``.
"""

from __future__ import annotations

from collections.abc import Mapping

from cli.framework.kafka_tools import AbsentTool

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
