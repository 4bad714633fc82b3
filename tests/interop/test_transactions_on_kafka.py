"""The operator's story of transactions on Apache Kafka 3.9.1, compared field by field with Kafka's own tool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

import pytest
import transaction_story
from kafka_cluster import kafka_cluster
from kafka_tools import run_tool
from klamm_program import in_process
from transaction_story import SETTINGS, Stage, hang

from engine.local.zookeeper import EmbeddedZooKeeper

TOOL = "org.apache.kafka.tools.TransactionsCommand"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def servers(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    with kafka_cluster(
        tmp_path_factory.mktemp("transactions-on-kafka"), 1, 21392, SETTINGS, zookeeper=zookeeper
    ) as running:
        yield running.bootstrap


@pytest.fixture
def stage(servers: str, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    return Stage(servers, lambda *words, stdin="": in_process(*words, capture=capsys, stdin=stdin))


def theirs(stage: Stage, *words: str) -> list[dict[str, str]]:
    """Run Kafka's tool, and return the rows of its table."""
    ran = run_tool(TOOL, "--bootstrap-server", stage.servers, *words)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    header, *rows = [re.split(r"\s*\t", line.strip()) for line in ran.stdout.splitlines() if line.strip()]
    return [dict(zip(header, row, strict=True)) for row in rows]


def ours(stage: Stage, tool_words: list[str]) -> list[dict[str, object]]:
    """Give klamm the words of Kafka's tool."""
    ran = stage.run("kafka-transactions", *tool_words, "-o", "json")
    rows: list[dict[str, object]] = ran.json
    return rows


def said(value: object) -> str:
    """Return one of our values as Kafka's tool says it."""
    if value is None:
        return "None"
    if isinstance(value, str) and re.fullmatch(r"\d{4}-.*Z", value):
        return str(int(datetime.fromisoformat(value).timestamp() * 1000))
    return str(value)


def test_an_open_transaction(stage: Stage) -> None:
    def look(name: str, topic: str) -> None:
        listed = {row["TransactionalId"]: row for row in theirs(stage, "list")}[name]
        (own,) = [transaction for transaction in ours(stage, ["list"]) if transaction["transactional_id"] == name]
        assert list(listed.values()) == [
            said(own[key]) for key in ("transactional_id", "coordinator", "producer_id", "state")
        ]
        (described,) = theirs(stage, "describe", "--transactional-id", name)
        (description,) = ours(stage, ["describe", "--transactional-id", name])
        assert described.pop("TopicPartitions") == f"{topic}-1"
        assert abs(int(described.pop("TransactionDurationMs")) - int(str(description["duration_ms"]))) < 60_000
        assert list(described.values()) == [
            said(description[key])
            for key in (
                "coordinator",
                "transactional_id",
                "producer_id",
                "producer_epoch",
                "state",
                "timeout_ms",
                "start_time",
            )
        ]
        words = ["describe-producers", "--topic", topic, "--partition", "1"]
        (writer,), (written,) = theirs(stage, *words), ours(stage, words)
        keys = ("producer_id", "producer_epoch", "coordinator_epoch", "last_sequence", "last_timestamp", "start_offset")
        # The tool has no word for an unknown coordinator epoch.
        written["coordinator_epoch"] = -1 if written["coordinator_epoch"] is None else written["coordinator_epoch"]
        assert list(writer.values()) == [said(written[key]) for key in keys]

    transaction_story.an_open_transaction(stage, look)


def test_a_hanging_transaction(stage: Stage) -> None:
    def look(topic: str) -> None:
        words = ["find-hanging", "--topic", topic, "--max-transaction-timeout", "60"]
        (row,), (own,) = theirs(stage, *words), ours(stage, words)
        own["coordinator_epoch"] = -1 if own["coordinator_epoch"] is None else own["coordinator_epoch"]
        keys = (
            "topic",
            "partition",
            "producer_id",
            "producer_epoch",
            "coordinator_epoch",
            "start_offset",
            "last_timestamp",
        )
        assert list(row.values())[:-1] == [said(own[key]) for key in keys]
        assert abs(int(row["Duration(min)"]) - int(str(own["age_ms"])) // 60_000) <= 1

    transaction_story.a_hanging_transaction(stage, look)


def test_one_transaction_for_stdin(stage: Stage) -> None:
    transaction_story.one_transaction_for_stdin(stage)


def test_load_in_transactions(stage: Stage) -> None:
    transaction_story.load_in_transactions(stage)


def test_kafkas_tool_ends_what_klamm_ends(stage: Stage) -> None:
    topics = [stage.new_topic(), stage.new_topic()]
    for topic in topics:
        hang(stage.servers, topic)
    words = ["abort", "--partition", "0", "--start-offset", "0", "--topic"]
    assert ours(stage, [*words, topics[0]])[0]["result"] == "aborted"
    ran = run_tool(TOOL, "--bootstrap-server", stage.servers, *words, topics[1])
    assert ran.returncode == 0, ran.stderr
    producers = [ours(stage, ["describe-producers", "--topic", topic, "--partition", "0"])[0] for topic in topics]
    assert [
        (producer["producer_epoch"], producer["coordinator_epoch"], producer["start_offset"]) for producer in producers
    ] == [(0, 0, None)] * 2
