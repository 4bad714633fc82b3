"""Every word that may follow ``klamm``, with its one-line help. Help for the root is made from this table alone."""

from __future__ import annotations

from cli.framework.root import Entry

_LOCAL = "This machine"
_CLUSTER = "A cluster"
_DATA = "Records and files"
_TOOL = "klamm itself"

ENTRIES = (
    Entry("local", "cli.commands.local", "A real ZooKeeper and brokers on this machine", _LOCAL),
    Entry("broker", "cli.commands.broker", "One broker in the foreground, from a server.properties", _LOCAL),
    Entry("zookeeper", "cli.commands.zookeeper", "The embedded ZooKeeper in the foreground", _LOCAL),
    Entry(
        "topics", "cli.commands.topics", "List, describe, create, alter and delete topics", _CLUSTER,
        aliases=("topic", "kafka-topics", "kafka-topics.sh"),
    ),
    Entry(
        "configs", "cli.commands.configs", "Describe and alter settings of topics and brokers", _CLUSTER,
        aliases=("config", "kafka-configs", "kafka-configs.sh"),
    ),
    Entry(
        "elect", "cli.commands.elect", "Give partitions back to their preferred leaders, or elect any", _CLUSTER,
        aliases=("kafka-leader-election", "kafka-leader-election.sh", "kafka-preferred-replica-election"),
    ),
    Entry(
        "reassign", "cli.commands.reassign", "Move partitions: generate, execute, verify, cancel, list", _CLUSTER,
        aliases=("reassignments", "kafka-reassign-partitions", "kafka-reassign-partitions.sh"),
    ),
    Entry(
        "replicas", "cli.commands.replicas", "Compare the replicas of partitions", _CLUSTER,
        aliases=("replica", "kafka-replica-verification", "kafka-replica-verification.sh"),
    ),
    Entry(
        "brokers", "cli.commands.brokers", "Who is in the cluster, and what lies on each", _CLUSTER,
        aliases=("broker-list",),
    ),
    Entry(
        "offsets", "cli.commands.offsets", "Where the logs of partitions begin and end, and offsets by time", _CLUSTER,
        attribute="command", aliases=("offset", "kafka-get-offsets", "kafka-get-offsets.sh"),
    ),
    Entry(
        "records", "cli.commands.records", "Delete the oldest records of partitions", _CLUSTER,
        aliases=("record", "kafka-delete-records", "kafka-delete-records.sh"),
    ),
    Entry("cluster", "cli.commands.cluster", "The cluster as a whole", _CLUSTER, aliases=("clusters", "kafka-cluster")),
    Entry("zk", "cli.commands.zk", "Look at the znodes, decoded", _CLUSTER, aliases=("zookeeper-shell",)),
    Entry(
        "produce", "cli.commands.produce", "Send a record a line from stdin", _DATA, attribute="command",
        aliases=("kafka-console-producer", "kafka-console-producer.sh"),
    ),
    Entry(
        "consume", "cli.commands.consume", "Print records, one a line", _DATA, attribute="command",
        aliases=("kafka-console-consumer", "kafka-console-consumer.sh"),
    ),
    Entry(
        "perf", "cli.commands.perf", "Load a cluster with records, or read them, and measure", _DATA,
        aliases=("performance",),
    ),
    Entry(
        "dump", "cli.commands.dump", "Decode segments, indexes, snapshots and checkpoints", _DATA, attribute="command",
        aliases=("kafka-dump-log", "kafka-dump-log.sh"),
    ),
    Entry(
        "state-changes", "cli.commands.state_changes", "Merge brokers' state-change logs, see what happened", _DATA,
        aliases=("state-change",),
    ),
    Entry("profiles", "cli.commands.profiles", "Named clusters in clusters.toml", _TOOL, aliases=("profile",)),
    Entry(
        "doctor", "cli.commands.doctor", "Say what is missing on this machine and how to get it", _TOOL,
        attribute="command",
    ),
)  # fmt: skip
