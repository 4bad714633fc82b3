"""Under the names of Kafka's tools klamm prints what they print: the same line, both outputs, byte for byte.

What must differ is masked: the name of what each of the two makes, times of a perf test, warnings of log4j.
"""

from __future__ import annotations

import base64
import json
import re
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import run_tool as run_tool_alone
from kafka_tools import run_tool
from klamm_program import Ran, klamm
from patience import wait_for
from wire_client import wait_until_led

from engine.kafka.formats.consumer_offsets import partition_for
from engine.local.cluster import LocalCluster

CLASSES = {
    "kafka-topics": "org.apache.kafka.tools.TopicCommand",
    "kafka-get-offsets": "org.apache.kafka.tools.GetOffsetShell",
    "kafka-console-consumer": "org.apache.kafka.tools.consumer.ConsoleConsumer",
    "kafka-consumer-groups": "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand",
    "kafka-configs": "kafka.admin.ConfigCommand",
    "kafka-log-dirs": "org.apache.kafka.tools.LogDirsCommand",
    "kafka-reassign-partitions": "org.apache.kafka.tools.reassign.ReassignPartitionsCommand",
    "kafka-leader-election": "org.apache.kafka.tools.LeaderElectionCommand",
    "kafka-acls": "kafka.admin.AclCommand",
    "kafka-broker-api-versions": "kafka.admin.BrokerApiVersionsCommand",
    "kafka-delete-records": "org.apache.kafka.tools.DeleteRecordsCommand",
    "kafka-cluster": "org.apache.kafka.tools.ClusterTool",
}
KAFKA, KLAMM = "by-kafka", "by-klamm"
_LOGGED = re.compile(r"(log4j|SLF4J):.*\n")
RECORDS = [
    {"key": "k1", "value": "one", "headers": [{"key": "src", "value": "cli"}, {"key": "n", "value": None}]},
    {"key": "k2", "value": None},
    {"key": None, "value": "drei ä"},
    {"key": "k4", "value": ""},
]


class Side:
    """One of the two that a line is given to. ``own`` is in the names of all that it makes."""

    def __init__(self, own: str, folder: Path, cluster: LocalCluster) -> None:
        self.own = own
        self.folder = folder
        self.bootstrap = cluster.bootstrap_servers

    def ran(self, tool: str, *words: str) -> Ran:
        words = ("--bootstrap-server", self.bootstrap, *(word.replace("OWN", self.own) for word in words))
        if tool == "kafka-cluster":
            words = ("cluster-id", *words)
        if self.own == KAFKA:
            done = run_tool(CLASSES[tool], *words)
            said = Ran(done.returncode, done.stdout, _LOGGED.sub("", done.stderr))
        else:
            said = klamm(tool, *words, folder=self.folder)
        return Ran(said.code, *(re.sub(f"{KAFKA}|{KLAMM}", "OWN", text) for text in (said.out, said.err)))


class Both:
    """Gives lines to Kafka's tool and to klamm, at the same time."""

    def __init__(self, folder: Path, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.folder = folder
        self.sides = (Side(KAFKA, folder, cluster), Side(KLAMM, folder, cluster))

    def ran(self, tool: str, *words: str) -> tuple[Ran, Ran]:
        with ThreadPoolExecutor() as pool:
            theirs, ours = pool.map(lambda side: side.ran(tool, *words), self.sides)
        return theirs, ours

    def same(self, tool: str, *words: str, any_order: bool = False, runs_together: bool = False) -> str:
        """Assert that both end well and print the same; return it.

        ``any_order``: of lines, where theirs is chance. ``runs_together``: tools of Kafka 3.7 to 3.9 forget line ends
        that those before and after them print, and klamm.
        """
        theirs, ours = self.ran(tool, *words)
        assert theirs.code == 0, theirs
        if any_order:
            assert sorted(ours.out.splitlines()) == sorted(theirs.out.splitlines())
        elif runs_together:
            assert ours.out.replace("\n", "") == theirs.out.replace("\n", "")
        else:
            assert ours.out == theirs.out
        assert (ours.code, ours.err) == (0, theirs.err)
        return ours.out

    def file(self, name: str, document: object) -> str:
        path = self.folder / name
        path.write_text(json.dumps(document))
        return str(path)


@pytest.fixture(scope="module")
def both(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    folder = tmp_path_factory.mktemp("words")
    config = {
        "num.partitions": "2",
        "log.segment.delete.delay.ms": "7000",
        "offsets.topic.num.partitions": "3",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:ANONYMOUS",
    }
    with LocalCluster(3, config=config, racks=("a", "b", "c")) as cluster:
        pair = Both(folder, cluster)
        _fill(pair)
        yield pair


def _fill(pair: Both) -> None:
    """Make topics, records and groups for the lines that only read."""
    at = ("-b", pair.cluster.bootstrap_servers)
    for name, count, factor in (("orders", 3, 3), ("a.b", 2, 2), ("x-long-name-of-a-topic", 4, 1), ("defaults", 1, 1)):
        settings = ("--config", "retention.ms=3600000", "--config", "segment.ms=7200000")
        made = klamm(
            *("topics", "create", name, "--partitions", str(count), "--replication-factor", str(factor), *at),
            # The brokers' files alone say something of the last one.
            *(() if name == "defaults" else settings),
            folder=pair.folder,
        )
        assert made.code == 0, made.err
    wait_until_led(pair.cluster.broker(0).address, "orders", "a.b", "x-long-name-of-a-topic", "defaults")
    lines = "".join(json.dumps(record) + "\n" for record in RECORDS)
    for name, partition in (("orders", 0), ("orders", 1), ("a.b", 1), ("defaults", 0)):
        sent = klamm(
            "produce", name, "--partition", str(partition), "--input", "jsonl", *at, folder=pair.folder, stdin=lines
        )
        assert sent.code == 0, sent.err
    for group in ("g1", "a-group-with-a-long-name"):
        words = ("--to-earliest", "--execute", "--yes")
        for topic in ("orders", "defaults"):
            reset = klamm(
                "groups", "reset-offsets", "--group", group, "--topic", topic, *words, *at, folder=pair.folder
            )
            assert reset.code == 0, reset.err


def test_topics_are_read(both: Both) -> None:
    topics = "kafka-topics"
    assert both.same(topics, "--list").split() == [
        *("__consumer_offsets", "a.b", "defaults", "orders", "x-long-name-of-a-topic"),
    ]
    assert both.same(topics, "--list", "--topic", "absent") == "\n"
    both.same(topics, "--list", "--exclude-internal", "--topic", "o.*")
    assert both.same(topics, "--describe").count("TopicId: ") == 5
    both.same(topics, "--describe", "--topic", "orders,a.b")
    told = both.same(topics, "--describe", "--topics-with-overrides")
    assert "Topic: defaults\t" in told, "the brokers' files override a default, too"
    for given in ("under-replicated", "unavailable", "under-min-isr", "at-min-isr"):
        both.same(topics, "--describe", f"--{given}-partitions")


def test_topics_are_changed(both: Both) -> None:
    create = ("--create", "--topic", "OWN.t", "--partitions", "1", "--replication-factor", "2")
    assert both.same("kafka-topics", *create).startswith("WARNING: Due to limitations")
    both.same("kafka-topics", *create, "--if-not-exists")
    both.same("kafka-topics", "--alter", "--topic", "OWN.t", "--partitions", "2")
    change = ("kafka-configs", "--alter", "--entity-type", "topics", "--entity-name", "OWN.t")
    both.same(*change, "--add-config", "segment.bytes=100000,cleanup.policy=[compact,delete]")
    both.same("kafka-configs", "--describe", "--topic", "OWN.t")
    both.same(*change, "--delete-config", "segment.bytes")
    both.same("kafka-topics", "--delete", "--topic", "OWN.t")
    both.same("kafka-topics", "--delete", "--topic", "OWN.t", "--if-exists")


def test_offsets(both: Both) -> None:
    offsets = "kafka-get-offsets"
    assert both.same(offsets, "--topic", "orders") == "orders:0:4\norders:1:4\norders:2:0\n"
    both.same(offsets)
    both.same(offsets, "--exclude-internal-topics", "--time", "-2")
    both.same(offsets, "--topic-partitions", "orders:0,a.b:1-,d.*:-2", "--time", "earliest")
    both.same(offsets, "--topic", "orders", "--time", "max-timestamp")
    assert both.same(offsets, "--topic", "orders", "--time", "4102444800000") == ""
    both.same(offsets, "--topic", "orders", "--partitions", "0,2")


@pytest.mark.parametrize(
    "properties",
    [
        "",
        "print.key=true",
        "print.key=true print.value=false",
        "print.timestamp=true print.partition=true print.offset=true print.headers=true print.key=true",
        "print.headers=true print.key=TRUE key.separator=| headers.separator=; null.literal=NIL line.separator=$",
        "key.deserializer=org.apache.kafka.common.serialization.StringDeserializer print.key=true",
    ],
)
def test_records(both: Both, properties: str) -> None:
    words = [word for pair in properties.split() for word in ("--property", pair)]
    read = ("--topic", "orders", "--partition", "0", "--offset", "earliest", "--max-messages", "4")
    both.same("kafka-console-consumer", *read, *words)


def test_groups(both: Both) -> None:
    groups = "kafka-consumer-groups"
    assert sorted(both.same(groups, "--list").split()) == ["a-group-with-a-long-name", "g1"]
    for extra in (("--state",), ("--type",), ("--state", "Empty", "--type", "classic"), ("--state", "Stable")):
        both.same(groups, "--list", *extra)
    assert "has no active members" in both.ran(groups, "--describe", "--group", "g1")[1].err
    for extra in ((), ("--members",), ("--members", "--verbose"), ("--state",), ("--offsets", "--verbose")):
        runs_together = "--members" not in extra and "--state" not in extra
        both.same(groups, "--describe", "--group", "g1", *extra, runs_together=runs_together)
        both.same(groups, "--describe", "--all-groups", *extra, runs_together=runs_together)


def test_groups_are_reset_and_deleted(both: Both) -> None:
    groups = "kafka-consumer-groups"
    reset = (groups, "--reset-offsets", "--group", "g1")
    assert both.ran(*reset, "--all-topics", "--to-latest")[1].err.startswith("WARN: No action will be performed")
    both.same(*reset, "--all-topics", "--to-latest", runs_together=True)
    both.same(*reset, "--all-topics", "--to-latest", "--dry-run", runs_together=True)
    both.same(*reset, "--topic", "orders:0,1", "--to-offset", "3", "--dry-run", runs_together=True)
    both.same(
        *reset, "--topic", "orders:0,1", "--to-datetime", "2020-01-01T00:00:00.000", "--dry-run", runs_together=True
    )
    both.same(*reset, "--all-topics", "--to-current", "--export", "--dry-run")
    both.same(groups, "--reset-offsets", "--all-groups", "--all-topics", "--to-current", "--export", "--dry-run")
    theirs, ours = both.ran(
        groups, "--reset-offsets", "--group", "OWN-g", "--topic", "orders", "--to-latest", "--execute"
    )
    assert (ours.code, ours.out.replace("\n", "")) == (0, theirs.out.replace("\n", ""))
    assert all(line.startswith("warning: ") for line in ours.err.splitlines())
    both.same(groups, "--delete-offsets", "--group", "OWN-g", "--topic", "orders:0", runs_together=True)
    for absent in ("no-such", "no-such:0", "orders:99"):
        theirs, ours = both.ran(groups, "--delete-offsets", "--group", "OWN-g", "--topic", absent)
        assert ours.out.replace("\n", "") == theirs.out.replace("\n", "")
        assert (theirs.code, ours.code, "does not exist" in ours.err or "there is no" in ours.err) == (0, 2, True)
    both.same(groups, "--delete", "--group", "OWN-g")


def test_configs(both: Both) -> None:
    configs = "kafka-configs"
    for words in (
        "--entity-type topics --entity-name orders",
        "--topic orders",
        "--topic orders --all",
        "--entity-type brokers --entity-name 0",
        "--entity-type brokers",
        "--broker-defaults",
        "--broker-logger 0",
    ):
        both.same(configs, "--describe", *words.split())
    # Topics of one bucket of Java's HashMap come as the broker listed them.
    both.same(configs, "--describe", "--entity-type", "topics", any_order=True)
    for words in (
        "--broker-defaults --add-config log.cleaner.threads=2",
        "--entity-type brokers --entity-name 0 --add-config log.cleaner.threads=1",
        "--entity-type users --entity-name alice --add-config producer_byte_rate=1048576000,request_percentage=12.5",
        "--entity-type users --entity-default --add-config consumer_byte_rate=1024",
        "--user alice --client app --add-config producer_byte_rate=512",
        "--client-defaults --add-config controller_mutation_rate=5",
        "--ip 10.0.0.1 --add-config connection_creation_rate=9",
        "--user bob --add-config SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]",
    ):
        both.same(configs, "--alter", *words.split())
    for words in (
        "--broker 0",
        "--entity-type users",
        "--entity-type clients",
        "--entity-type ips",
        "--entity-type users --entity-type clients",
        "--user alice",
        "--user-defaults",
        "--user bob",
    ):
        both.same(configs, "--describe", *words.split(), any_order=True)


def test_log_dirs_versions_and_cluster(both: Both) -> None:
    both.same("kafka-log-dirs", "--describe", "--topic-list", "orders,a.b", "--broker-list", "0,2")
    # Partitions of one bucket of Java's HashMap come as the broker listed them.
    theirs, ours = both.ran("kafka-log-dirs", "--describe")
    assert [sorted(ours.out), ours.out.splitlines()[:2]] == [sorted(theirs.out), theirs.out.splitlines()[:2]]
    both.same("kafka-cluster")
    theirs, ours = both.ran("kafka-broker-api-versions")
    assert _blocks(ours.out, "\n)\n") == _blocks(theirs.out, "\n)\n")
    assert (ours.code, ours.err, theirs.code) == (0, theirs.err, 0)


def _blocks(text: str, end: str) -> list[str]:
    return sorted(text.split(end))


def test_reassignment(both: Both) -> None:
    reassign = "kafka-reassign-partitions"
    assert both.same(reassign, "--list") == "No partition reassignments found.\n"
    both.same("kafka-topics", "--create", "--topic", "OWN-m", "--replica-assignment", "0:1,1:2")
    moves = both.file("moves.json", {})
    for side in both.sides:
        entries = [
            {"topic": f"{side.own}-m", "partition": index, "replicas": replicas, "log_dirs": ["any", "any"]}
            for index, replicas in enumerate(([2, 1], [1, 0]))
        ]
        both.file(f"{side.own}-moves.json", {"version": 1, "partitions": entries})
    own = moves.replace("moves.json", "OWN-moves.json")
    # Beside the other tool's moves, which may still be under way.
    words = ("--execute", "--additional", "--reassignment-json-file", own, "--throttle", "50000000")
    theirs, ours = both.ran(reassign, *words)
    assert (theirs.code, ours.code, ours.out) == (0, 0, theirs.out), ours.err
    assert ours.err.startswith("the rollback is in ") and ours.err.count("\n") == 1
    _verified(both, own)
    both.same(reassign, "--verify", "--reassignment-json-file", own, "--preserve-throttles")
    both.same(reassign, "--cancel", "--reassignment-json-file", own)


def _verified(both: Both, own: str) -> None:
    """Both take throttles off. Kafka's tool says so even where there are none any more, so it comes last."""
    words = ("kafka-reassign-partitions", "--verify", "--reassignment-json-file", own)
    wait_for(lambda: not any("in progress" in ran.out for ran in both.ran(*words, "--preserve-throttles")), "the moves")
    ours, theirs = (side.ran(*words) for side in reversed(both.sides))
    assert (ours.code, ours.out, ours.err) == (0, theirs.out, theirs.err)
    assert "Clearing broker-level throttles on brokers 0,1,2\n" in ours.out


def test_elections(both: Both) -> None:
    elect = ("kafka-leader-election", "--election-type")
    both.same(*elect, "preferred", "--topic", "orders", "--partition", "0")
    both.same(*elect, "PREFERRED", "--all-topic-partitions")
    both.same(*elect, "unclean", "--topic", "orders", "--partition", "1")
    assert both.same(*elect, "unclean", "--all-topic-partitions") == ""


def _entries(text: str) -> list[list[str]]:
    """Return rules by resource in a fixed order: theirs is by the identities of Java's objects."""
    lines = text.splitlines(keepends=True)
    # It stands above the first resource, whichever that is.
    titles = [line for line in lines if line.startswith("ACLs for principal ")]
    rest = "".join(line for line in lines if line not in titles)
    return [titles, *(sorted(line.strip() for line in block.splitlines()) for block in _blocks(rest, " \n\n"))]


def test_access_rules(both: Both) -> None:
    def same(*words: str) -> None:
        theirs, ours = both.ran("kafka-acls", *words)
        assert _entries(ours.out) == _entries(theirs.out)
        assert (theirs.code, ours.code, ours.err) == (0, 0, theirs.err)

    add = ("--add", "--allow-principal", "User:OWN")
    same(*add, "--operation", "Read", "--operation", "Describe", "--topic", "orders")
    same(*add, "--producer", "--topic", "ord", "--resource-pattern-type", "prefixed")
    same(*add, "--consumer", "--topic", "orders", "--group", "readers")
    same("--add", "--deny-principal", "User:OWN", "--deny-host", "10.0.0.1", "--operation", "All", "--cluster")
    same(*add, "--operation", "Write", "--transactional-id", "app")
    same("--list")
    same("--list", "--topic", "orders")
    same("--list", "--topic", "orders", "--resource-pattern-type", "match")
    same("--list", "--principal", "User:OWN")
    same("--list", "--topic", "absent")
    same("--remove", "--force", "--topic", "orders")


def test_records_are_deleted(both: Both) -> None:
    wanted = {"version": 1, "partitions": [{"topic": "defaults", "partition": 0, "offset": 2},
                                           {"topic": "a.b", "partition": 1, "offset": -1}]}  # fmt: skip
    both.same("kafka-delete-records", "--offset-json-file", both.file("delete.json", wanted))


def test_records_of_numbers(both: Both) -> None:
    klamm_at = ("-b", both.cluster.bootstrap_servers)
    numbers = [(0.1, 0.1, 7), (-1.5e300, 3.4e38, -1), (1e7, 1e-3, 1 << 40), (0.0, -0.0, 0)]
    rows = [
        {
            "key": struct.pack(">f", small),
            "value": struct.pack(">d", large),
            "headers": [(f"h{index}", struct.pack(">q", whole))],
        }
        for index, (large, small, whole) in enumerate(numbers)
    ]
    assert klamm("topics", "create", "numbers", "--partitions", "1", *klamm_at, folder=both.folder).code == 0
    sent = klamm(
        "produce", "numbers", "--input", "jsonl", *klamm_at, folder=both.folder, stdin="".join(map(_json_line, rows))
    )
    assert sent.code == 0, sent.err
    kinds = "org.apache.kafka.common.serialization"
    words = (
        *("--topic", "numbers", "--partition", "0", "--offset", "earliest", "--max-messages", "4"),
        *("--key-deserializer", f"{kinds}.FloatDeserializer", "--value-deserializer", f"{kinds}.DoubleDeserializer"),
        *("--property", f"headers.deserializer={kinds}.LongDeserializer"),
        *("--property", "print.key=true", "--property", "print.headers=true"),
    )
    assert both.same("kafka-console-consumer", *words).splitlines()[1] == "h1:-1\t3.4E38\t-1.5E300"


def _json_line(row: dict[str, Any]) -> str:
    def text(data: bytes) -> dict[str, str]:
        return {"value": base64.b64encode(data).decode(), "value_encoding": "base64"}

    key = {"key": base64.b64encode(row["key"]).decode(), "key_encoding": "base64"}
    headers = [{"key": name, **text(data)} for name, data in row["headers"]]
    return json.dumps({**key, **text(row["value"]), "headers": headers}) + "\n"


@pytest.mark.parametrize("formatter", ["DefaultMessageFormatter", "NoOpMessageFormatter", "LoggingMessageFormatter"])
@pytest.mark.parametrize("package", ["kafka.tools", "org.apache.kafka.tools.consumer"])
def test_formatters(both: Both, package: str, formatter: str) -> None:
    config = both.folder / "formatter.properties"
    config.write_text("print.key=true\nkey.separator=:\n")
    read = ("--topic", "orders", "--partition", "0", "--offset", "earliest", "--max-messages", "4")
    words = (*read, "--formatter", f"{package}.{formatter}", "--formatter-config", str(config))
    theirs, ours = both.ran("kafka-console-consumer", *words)
    assert (theirs.code, ours.code, ours.out) == (0, 0, theirs.out)
    assert bool(ours.out) == (formatter != "NoOpMessageFormatter")


@pytest.mark.parametrize(
    ("topic", "old", "formatter"),
    [
        ("__consumer_offsets", "kafka.coordinator.group.GroupMetadataManager$", "OffsetsMessageFormatter"),
        ("__consumer_offsets", "kafka.coordinator.group.GroupMetadataManager$", "GroupMetadataMessageFormatter"),
        ("__transaction_state", "kafka.coordinator.transaction.TransactionLog$", "TransactionLogMessageFormatter"),
    ],
)
def test_formatters_of_internal_topics(both: Both, topic: str, old: str, formatter: str) -> None:
    at = ("-b", both.cluster.bootstrap_servers)
    seen = klamm("consume", "orders", "--group", "reader", "-e", *at, folder=both.folder)
    sent = klamm("produce", "a.b", "--transactional-id", "tx", *at, folder=both.folder, stdin="x\n")
    assert (seen.code, sent.code) == (0, 0), (seen.err, sent.err)
    owner = "reader" if topic == "__consumer_offsets" else "tx"
    described = klamm("topics", "describe", topic, "-o", "json", *at, folder=both.folder).json
    partition = partition_for(owner, described[0]["partition_count"])
    name = f"{topic}:{partition}"
    ends = klamm("kafka-get-offsets", "--topic-partitions", name, *at, folder=both.folder)
    assert ends.out.startswith(f"{name}:"), ends
    end = ends.out.strip().removeprefix(f"{name}:")
    for package in (old, "org.apache.kafka.tools.consumer."):
        words = ("--topic", topic, "--partition", str(partition), "--offset", "earliest", "--max-messages", end)
        theirs, ours = both.ran("kafka-console-consumer", *words, "--formatter", package + formatter)
        assert (theirs.code, ours.code) == (0, 0), (theirs, ours)
        assert ours.out.replace("\n", "") == theirs.out.replace("\n", "")
        assert owner in ours.out


def test_lines_are_read_alike(both: Both) -> None:
    """Both console producers send the same lines, and one consumer reads them."""
    reader = both.folder / "reader.properties"
    reader.write_text("parse.key=true\nparse.headers=true\nheaders.separator=;\nheaders.key.separator==\n")
    lines = "a=1;b=NULL|k:v\nNULL|NULL:v\n|k:NULL\nno separators\nonly:key\n"
    words = ("--reader-config", str(reader), "--property", "headers.delimiter=|", "--property", "key.separator=:")
    more = ("--property", "null.marker=NULL", "--property", "ignore.error=true", "--compression-codec")
    shown = []
    for side in both.sides:
        topic = f"lines-{side.own}"
        at = ("--bootstrap-server", side.bootstrap)
        assert klamm("topics", "create", topic, "--partitions", "1", *at, folder=both.folder).code == 0
        line = (*at, "--topic", topic, *words, *more)
        if side.own == KAFKA:
            done = run_tool("kafka.tools.ConsoleProducer", *line, text_input=lines)
            assert (done.returncode, done.stdout) == (0, "")
        else:
            assert klamm("kafka-console-producer", *line, folder=both.folder, stdin=lines) == Ran(0, "", "")
        told = klamm("consume", topic, "-e", "-o", "jsonl", *at, folder=both.folder).out.splitlines()
        shown.append([{name: json.loads(row)[name] for name in ("key", "value", "headers")} for row in told])
    assert shown[0] == shown[1]
    assert len(shown[0]) == 5


@pytest.mark.parametrize(
    "words", ["ls /", "ls /brokers/ids", "ls -R /brokers/topics/defaults", "get /controller", "get /brokers"]
)
def test_znodes(both: Both, words: str) -> None:
    line = (both.cluster.zookeeper_connect, *words.split())
    theirs = run_tool_alone("org.apache.zookeeper.ZooKeeperMainWithTlsSupportForKafka", "-server", *line)
    ours = klamm("zookeeper-shell", *line, folder=both.folder)
    assert (theirs.returncode, ours.code, ours.err) == (0, 0, ""), (theirs, ours)
    assert ours.out == theirs.stdout


@pytest.mark.parametrize(
    ("words", "code"),
    [
        ("kafka-topics", 1),
        ("kafka-topics --describe --topic absent", 1),
        ("kafka-topics --list", 0),
        ("kafka-console-consumer --topic orders --partition 0 --offset earliest --max-messages 4", 0),
    ],
)
def test_in_a_jvm_of_many_a_tool_ends_as_in_its_own(both: Both, words: str, code: int) -> None:
    """A test that runs many tools relies on this: what one leaves behind does not meet the next."""
    tool, *more = words.split()
    where = ("--bootstrap-server", both.cluster.bootstrap_servers) if more else ()
    line = (CLASSES[tool], *where, *more)
    endings = [
        (ran.returncode, ran.stdout, _LOGGED.sub("", ran.stderr))
        for ran in (run_tool_alone(*line), run_tool(*line), run_tool(*line))
    ]
    assert endings[1:] == [endings[0]] * 2
    assert endings[0][0] == code
