"""Every word that may follow ``klamm``, with its one-line help. ``klamm --help`` needs only this table."""

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
        "top", "cli.commands.top", "The dashboard: a cluster live, with every operation in reach", _CLUSTER,
        attribute="command",
    ),
    Entry(
        "topics", "cli.commands.topics", "List, describe, create, alter and delete topics", _CLUSTER,
        aliases=("topic",),
    ),
    Entry(
        "configs", "cli.commands.configs", "Settings of topics and brokers, quotas of users and clients", _CLUSTER,
        aliases=("config",),
    ),
    Entry(
        "quotas", "cli.commands.quotas", "What users, client ids and addresses may use of the brokers", _CLUSTER,
        aliases=("quota",),
    ),
    Entry("elect", "cli.commands.elections", "Give partitions back to their preferred leaders, or elect any", _CLUSTER),
    Entry(
        "reassign", "cli.commands.reassignment", "Move partitions: generate, execute, verify, cancel, list", _CLUSTER,
        aliases=("reassignments",),
    ),
    Entry(
        "plan", "cli.commands.plan", "The smallest safe reassignment: planned, checked, carried out in waves", _CLUSTER,
        aliases=("plans",),
    ),
    Entry(
        "groups", "cli.commands.groups", "Consumer groups: list, describe, reset and delete", _CLUSTER,
        aliases=("group",),
    ),
    Entry(
        "acls", "cli.commands.acls", "Who may do what: access rules, explained and checked", _CLUSTER,
        aliases=("acl",),
    ),
    Entry(
        "users", "cli.commands.users", "Users' passwords (SCRAM): list, set, remove", _CLUSTER, aliases=("user",),
    ),
    Entry(
        "transactions", "cli.commands.transactions", "Transactions: list, describe, find those that hang, end them",
        _CLUSTER, aliases=("transaction",),
    ),
    Entry(
        "tokens", "cli.commands.tokens", "Delegation tokens: list, create, renew, expire", _CLUSTER,
        aliases=("token",),
    ),
    Entry(
        "lag", "cli.commands.lag", "Which readers are behind, and whether they catch up", _CLUSTER, attribute="command"
    ),
    Entry(
        "exporter", "cli.commands.exporter", "A cluster's metrics for Prometheus, with a board and alerts", _CLUSTER,
        attribute="command",
    ),
    Entry(
        "replicas", "cli.commands.replicas", "Compare the replicas of partitions", _CLUSTER,
        aliases=("replica",),
    ),
    Entry(
        "brokers", "cli.commands.brokers", "The brokers of the cluster, and what each holds", _CLUSTER,
        aliases=("broker-list",),
    ),
    Entry(
        "offsets", "cli.commands.offsets", "Where the logs of partitions begin and end, and offsets by time", _CLUSTER,
        attribute="command", aliases=("offset",),
    ),
    Entry(
        "records", "cli.commands.records", "Delete the oldest records of partitions", _CLUSTER,
        aliases=("record",),
    ),
    Entry("cluster", "cli.commands.cluster", "The cluster as a whole", _CLUSTER, aliases=("clusters",)),
    Entry("zk", "cli.commands.znodes", "Look at the znodes, decoded, and say who may change them", _CLUSTER),
    Entry("produce", "cli.commands.produce", "Send each line of stdin as a record", _DATA, attribute="command"),
    Entry("consume", "cli.commands.consume", "Print records, one per line", _DATA, attribute="command"),
    Entry(
        "perf", "cli.commands.perf", "Load-test a cluster: send or read records, and measure", _DATA,
        aliases=("performance",),
    ),
    Entry(
        "dump", "cli.commands.dump", "Decode segments, indexes, snapshots and checkpoints", _DATA, attribute="command"
    ),
    Entry(
        "state-changes", "cli.commands.state_changes", "Merge brokers' state-change logs, see what happened", _DATA,
        aliases=("state-change",),
    ),
    Entry("spark", "cli.commands.spark", "Spark: merges and verification on a cluster, positions of jobs", _DATA),
    Entry("profiles", "cli.commands.profiles", "Named clusters in clusters.toml", _TOOL, aliases=("profile",)),
    Entry(
        "completion", "cli.commands.completion", "Make the Tab key of your shell complete klamm's words", _TOOL,
        attribute="command",
    ),
    Entry(
        "shims", "cli.commands.shims", "Kafka's tool names as scripts, for old scripts that call them", _TOOL,
        attribute="command",
    ),
    Entry(
        "doctor", "cli.commands.doctor", "Say what is missing on this machine and how to get it", _TOOL,
        attribute="command",
    ),
)  # fmt: skip
