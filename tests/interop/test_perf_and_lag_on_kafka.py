"""Performance tests and lag on Apache Kafka 3.9.1, and the same output as Kafka's own performance tools on ours."""

from __future__ import annotations

import re
import time
import uuid
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka import Producer
from group_members import commit
from kafka_cluster import kafka_cluster
from kafka_tools import run_tool
from klamm_program import Ran, in_process
from lag_story import every_kind_of_reader, readers_of_transactions, readers_that_commit_seldom
from spark_traces import one_source, write_checkpoint
from wire_client import wait_until_no_transaction_is_open

from engine.common.topic_names import SUITE_TOPIC_PREFIX
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

PRODUCER = "org.apache.kafka.tools.ProducerPerformance"
CONSUMER = "org.apache.kafka.tools.ConsumerPerformance"
COUNT = 20_000
_WHOLE = re.compile(r"(?<![\d.])\d+")
_DIGIT = re.compile(r"\d")


@pytest.fixture(scope="module")
def kafka(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """One Kafka broker."""
    settings = {"auto.create.topics.enable": "false", "group.min.session.timeout.ms": "1000"}
    with kafka_cluster(tmp_path_factory.mktemp("perf-on-kafka"), 1, 21292, settings, zookeeper=zookeeper) as running:
        yield running.bootstrap


@pytest.fixture
def program(kafka: str, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Program:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", kafka)
    return Program(capsys)


class Program:
    """Runs commands on Kafka's broker."""

    def __init__(self, capture: pytest.CaptureFixture[str]) -> None:
        self._capture = capture

    def __call__(self, *words: str | Path) -> Ran:
        return in_process(*words, capture=self._capture)

    def new_topic(self) -> str:
        topic = f"t-{uuid.uuid4().hex[:8]}"
        assert self("topics", "create", topic, "--partitions", "2", "--replication-factor", "1").code == 0
        return topic


def shape(line: str) -> str:
    """Return a line without its numbers and times; how many decimals each has is kept."""
    return _DIGIT.sub("0", _WHOLE.sub("#", line))


@pytest.mark.parametrize("options", [[], ["--acks", "1", "--compression", "lz4"], ["--acks", "0"]], ids=str)
def test_what_is_produced_is_there(program: Program, options: list[str]) -> None:
    topic = program.new_topic()
    load = ("--num-records", str(COUNT), "--record-size", "50")
    ran = program("perf", "producer", "--topic", topic, *load, *options, "-o", "json")
    assert (ran.code, ran.json["records_sent"]) == (0, COUNT), ran.err
    read = program("perf", "consumer", "--topic", topic, "--messages", str(COUNT), "--decode", "-o", "json")
    assert read.json["consumed_records"] == COUNT
    assert read.json["consumed_mb"] == round(COUNT * 50 / 2**20, 4)


def test_a_member_of_a_group(program: Program) -> None:
    topic = program.new_topic()
    load = ("perf", "producer", topic, "--num-records", "500", "--record-size", "50", "-q")
    read = ("perf", "consumer", topic, "--messages", "500", "--group", f"{topic}-g", "-o", "json")
    for _ in range(2):
        assert program(*load).code == 0
        assert program(*read).json["consumed_records"] == 500, "it goes on where it ended"
    (group,) = program("lag", f"{topic}-g", "-o", "json").json
    assert (group["lag"], group["state"], group["status"]) == (0, "Empty", "OK")


def test_the_suite_runs_there_and_leaves_nothing(program: Program) -> None:
    short = ("--experiment", "pair", "--seconds", "4s", "--producer-bytes", "1M", "--yes")
    ran = program("perf", "suite", *short, "--yes", "-o", "json", "--plot", "pair.svg")
    assert ran.code == 0, ran.err
    (case,) = ran.json["cases"]
    assert case["sent_per_sec"] > 0 and case["read_per_sec"] > 0 and case["p99_latency_ms"] > 0
    assert "<svg" in Path("pair.svg").read_text()
    assert [name for name in program("topics", "list").out.split() if name.startswith(SUITE_TOPIC_PREFIX)] == []


def test_lines_are_those_of_kafkas_tools(program: Program, kafka: str, tmp_path: Path) -> None:
    topic = program.new_topic()
    load = ("--topic", topic, "--num-records", "500", "--record-size", "50", "--throughput", "-1")
    theirs = run_tool(PRODUCER, *load, "--producer-props", f"bootstrap.servers={kafka}", "acks=1")
    ours = program("kafka-producer-perf-test", *load, "--producer-props", f"bootstrap.servers={kafka}", "acks=1")
    assert ours.code == 0, ours.err
    assert shape(ours.out) == shape(theirs.stdout)
    (payloads := tmp_path / "payloads").write_text("a\nbb\n")
    drawn = ("--topic", program.new_topic(), "--num-records", "500", "--throughput", "-1")
    drawn += ("--payload-file", f"{payloads}")
    theirs = run_tool(PRODUCER, *drawn, "--producer-props", f"bootstrap.servers={kafka}")
    ours = program("kafka-producer-perf-test", *drawn, "--producer-props", f"bootstrap.servers={kafka}")
    assert shape(ours.out) == shape(theirs.stdout)
    read = ("--topic", topic, "--messages", "1000", "--bootstrap-server", kafka)
    for details in ((), ("--show-detailed-stats", "--reporting-interval", "1")):
        their_header, *their_rows = run_tool(CONSUMER, *read, *details).stdout.splitlines()
        our_header, *our_rows = program("kafka-consumer-perf-test", *read, *details, "--decode").out.splitlines()
        assert our_rows
        assert our_header == their_header
        assert {shape(row) for row in our_rows} <= {shape(row) for row in their_rows}
        if not details:
            counted = [row.split(", ")[2:5:2] for row in (*our_rows, *their_rows)]
            assert counted[0] == counted[1], "as many MB, as many records"


def test_too_few_records_are_told_as_kafkas_tool_does(program: Program, kafka: str) -> None:
    topic = program.new_topic()
    assert program("perf", "producer", topic, "--num-records", "10", "--record-size", "50", "-q").code == 0
    read = ("--topic", topic, "--messages", "1000", "--timeout", "2000", "--bootstrap-server", kafka)
    theirs, ours = run_tool(CONSUMER, *read), program("kafka-consumer-perf-test", *read)
    assert (shape(ours.out), ours.code) == (shape(theirs.stdout), theirs.returncode)


def test_kafkas_tools_load_our_broker(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with LocalCluster(1, directory=tmp_path / "ours") as cluster:
        where = ("--bootstrap-server", cluster.bootstrap_servers)
        made = in_process(
            "topics", "create", "p", "--partitions", "2", "--replication-factor", "1", *where, capture=capsys
        )
        assert made.code == 0, made.err
        load = ("--topic", "p", "--num-records", "5000", "--record-size", "100", "--throughput", "-1")
        sent = run_tool(PRODUCER, *load, "--producer-props", f"bootstrap.servers={cluster.bootstrap_servers}")
        assert sent.stdout.startswith("5000 records sent"), sent.stdout + sent.stderr
        read = run_tool(CONSUMER, *where, "--topic", "p", "--messages", "5000", "--timeout", "30000")
        assert read.stdout.splitlines()[-1].split(", ")[4] == "5000", read.stdout + read.stderr
        ours = in_process("perf", "consumer", "p", "--messages", "5000", *where, "-o", "json", capture=capsys)
        assert ours.json["consumed_records"] == 5000


def test_every_kind_of_reader_is_named_right(program: Program, kafka: str) -> None:
    every_kind_of_reader(program, kafka, program.new_topic())


def test_who_commits_seldom_does_not_stand_still(program: Program, kafka: str) -> None:
    readers_that_commit_seldom(program, kafka, program.new_topic())


def test_before_markers_and_aborted_records_nobody_stands_still(program: Program, kafka: str) -> None:
    readers_of_transactions(program, kafka, program.new_topic())


def test_markers_of_transactions_are_lag_but_nobody_waits_for_them(
    program: Program, kafka: str, tmp_path: Path
) -> None:
    topic, group = program.new_topic(), f"g-{uuid.uuid4().hex[:8]}"
    producer = Producer({"bootstrap.servers": kafka, "transactional.id": group, "log_level": 2})
    producer.init_transactions(20)
    for text in (b"first", b"second"):
        producer.begin_transaction()
        producer.produce(topic, text, partition=0)
        producer.commit_transaction(20)
    # Offsets 1 and 3 are markers.
    assert wait_until_no_transaction_is_open(kafka, topic) == 4
    commit(kafka, group, {(topic, 0): 3})
    (partition_row,) = program("lag", "--group", group, "--samples", "1", "--partitions", "-o", "json").json[0][
        "partitions"
    ]
    assert (partition_row["log_end_offset"], partition_row["lag"], partition_row["time_lag_ms"]) == (4, 1, 0)
    assert (partition_row["status"], partition_row["reason"]) == ("OK", "no_records")
    commit(kafka, group, {(topic, 0): 1})
    (partition_row,) = program("lag", "--group", group, "--samples", "1", "--partitions", "-o", "json").json[0][
        "partitions"
    ]
    assert (partition_row["lag"], partition_row["span_ms"]) == (3, None), "the newest is a marker, and has no time"
    assert partition_row["time_lag_ms"] > 0
    producer.begin_transaction()
    producer.produce(topic, b"open", partition=0)
    assert producer.flush(30) == 0
    commit(kafka, group, {(topic, 0): 4})
    now_ms = time.time_ns() // 1_000_000
    checkpoint = write_checkpoint(tmp_path / "query", [one_source(now_ms - 9, now_ms - 8, topic, 4)])
    for isolation, lag in (("read-uncommitted", 1), ("read-committed", 0)):
        words = (group, "--checkpoint", checkpoint, "--samples", "1", "--isolation", isolation, "-o", "json")
        assert {row["kind"]: row["lag"] for row in program("lag", *words).json} == {"group": lag, "checkpoint": lag}
    producer.abort_transaction(20)
