"""klamm's commands on Apache Kafka's brokers, beside Kafka's own tools.

They cover brokers, log dirs, offsets, old records, settings and quotas.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_program import OLD_RECORDS_STAY
from command_rounds import ROUNDS, Operated, Round
from kafka_cluster import kafka_cluster
from kafka_tools import run_tool

from engine.local.zookeeper import EmbeddedZooKeeper

CONFIGS = "kafka.admin.ConfigCommand"
SCRAM = "SCRAM-SHA-256=[iterations=8192,password=secret],SCRAM-SHA-512=[password=secret]"


@pytest.fixture(scope="module")
def addresses(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Bootstrap servers and ZooKeeper of two Kafka brokers."""
    settings = OLD_RECORDS_STAY | {
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        # The last broker cannot hand its partitions to anybody, and would try three times.
        "controlled.shutdown.enable": "false",
    }
    folder = tmp_path_factory.mktemp("commands-on-kafka")
    with kafka_cluster(folder, 2, 21092, settings, log_dirs=("one", "two"), zookeeper=zookeeper) as running:
        yield running.bootstrap, running.zookeeper


@pytest.fixture
def kafka(addresses: tuple[str, str], capsys: pytest.CaptureFixture[str], tmp_path: Path) -> Operated:
    bootstrap, zookeeper = addresses
    return Operated(("--bootstrap-server", bootstrap), ("--zookeeper", zookeeper), capsys, tmp_path)


def theirs(kafka: Operated, main_class: str, *arguments: str) -> str:
    """Run one of Kafka's tools, which must succeed; return what it printed."""
    done = run_tool(main_class, *kafka.by_wire, *arguments)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


@pytest.mark.parametrize("operate", ROUNDS, ids=lambda played: played.__name__)
def test_the_same_as_on_our_brokers(operate: Round, kafka: Operated) -> None:
    operate(kafka, f"round-{operate.__name__}")


def test_log_dirs_and_offsets_as_kafkas_tools_tell_them(kafka: Operated) -> None:
    kafka.fill("compared", 20, 7, 0)
    lines = theirs(kafka, "org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", "compared")
    expected = {
        (broker["broker"], log_dir["logDir"], p["partition"], p["size"], p["offsetLag"], p["isFuture"])
        for broker in json.loads(lines.splitlines()[-1])["brokers"]
        for log_dir in broker["logDirs"]
        for p in log_dir["partitions"]
    }
    rows = kafka.json("brokers", "log-dirs", "--topic-list", "compared")
    assert expected == {
        (
            log_dir["broker"],
            log_dir["log_dir"],
            f"compared-{r['partition']}",
            r["size_bytes"],
            r["offset_lag"],
            r["is_future"],
        )
        for log_dir in rows
        for r in log_dir["replicas"]
    }
    assert len(rows) == 4, "also the log dirs without replicas of the topic"
    for words in (["--time", "-1"], ["--time", "max-timestamp"], ["--time", "1700000005000"]):
        lines = theirs(kafka, "org.apache.kafka.tools.GetOffsetShell", "--topic", "compared", *words)
        ours = kafka.json("offsets", "compared", *words)
        # Kafka's tool prints nothing about a partition without such a record.
        assert lines.split() == [f"compared:{o['partition']}:{o['offset']}" for o in ours if o["offset"] is not None]


def test_records_deleted_as_kafkas_tool_deletes_them(kafka: Operated) -> None:
    kafka.fill("by-ours", 20, 7)
    kafka.fill("by-theirs", 20, 7)
    marks = {}
    for topic in ("by-ours", "by-theirs"):
        plan = kafka.folder / f"{topic}.json"
        wishes = [{"topic": topic, "partition": index, "offset": offset} for index, offset in ((0, 11), (1, -1))]
        plan.write_text(json.dumps({"version": 1, "partitions": wishes}))
        if topic == "by-ours":
            gone = kafka.json("records", "delete", "--offset-json-file", plan, "--yes")
            marks[topic] = {(row["partition"], row["low_watermark"]) for row in gone}
        else:
            output = theirs(kafka, "org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(plan))
            lines = re.findall(r"partition: by-theirs-(\d+)\tlow_watermark: (\d+)", output)
            marks[topic] = {(int(partition), int(mark)) for partition, mark in lines}
    assert marks["by-ours"] == marks["by-theirs"] == {(0, 11), (1, 7)}


def test_settings_as_kafkas_tool_tells_them(kafka: Operated) -> None:
    kafka.fill("settled", 0)
    entity = ("--entity-type", "topics", "--entity-name", "settled")
    added = "min.insync.replicas=2,cleanup.policy=[compact,delete],retention.ms=5"
    assert kafka("configs", "alter", *entity, "--add-config", added, "--yes").code == 0
    for words in ([], ["--all"]):
        lines = theirs(kafka, CONFIGS, "--describe", *entity, *words).splitlines()[1:]
        ours = [
            f"  {config['name']}={'null' if config['value'] is None else config['value']} "
            f"sensitive={str(config['sensitive']).lower()} synonyms={{{', '.join(map(_synonym, config['synonyms']))}}}"
            for config in kafka.json("configs", "describe", *entity, *words)["configs"]
        ]
        assert ours == lines


def _synonym(one: dict[str, str]) -> str:
    return f"{one['source']}:{one['name']}={one['value']}"


def test_quotas_of_zero_and_less_are_taken_as_kafka_configs_takes_them(kafka: Operated) -> None:
    """Byte rates of 0 limit nobody: test_quotas_on_kafka shows it. Of the others, Kafka refuses whole ones below 0."""
    added = "producer_byte_rate=0,consumer_byte_rate=0,request_percentage=0,controller_mutation_rate=-1"
    theirs(kafka, CONFIGS, "--alter", "--entity-type", "clients", "--entity-name", "theirs", "--add-config", added)
    for name, znodes in (("by_wire", False), ("by_znode", True)):
        ran = kafka("quotas", "set", "--client", name, "--add-config", added, znodes=znodes)
        assert ran.code == 0 and "producer_byte_rate=0 limits nobody" in ran.err, ran.err
    expected = {key: f"{float(text)}" for key, text in (pair.split("=") for pair in added.split(","))}
    for name in ("theirs", "by_wire", "by_znode"):
        configs = kafka.json("configs", "describe", "--client", name)["configs"]
        assert {config["name"]: config["value"] for config in configs} == expected, name
        assert kafka("quotas", "remove", "--client", name).code == 0
    for kind, name, refused in (
        ("client", "refused", "producer_byte_rate=-1"),
        ("ip", "127.0.0.9", "connection_creation_rate=-1"),
    ):
        words = ("--entity-type", f"{kind}s", "--entity-name", name, "--add-config", refused)
        tool = run_tool(CONFIGS, *kafka.by_wire, "--alter", *words)
        assert tool.returncode == 1, tool.stdout
        for znodes in (False, True):
            ran = kafka("quotas", "set", f"--{kind}", name, "--add-config", refused, znodes=znodes)
            assert (ran.code, "must be a whole number, 0 or more" in ran.err) == (2, True), ran.err


def test_quotas_and_credentials(kafka: Operated) -> None:
    theirs(kafka, CONFIGS, "--alter", "--entity-type", "users", "--entity-name", "alice", "--add-config", SCRAM)
    pair = ("--user", "alice", "--client", "app/1")
    for words in (
        [*pair, "--add-config", "producer_byte_rate=1024,request_percentage=50.5"],
        ["--user-defaults", "--add-config", "consumer_byte_rate=2048"],
        ["--client-defaults", "--add-config", "controller_mutation_rate=5"],
        ["--ip", "127.0.0.1", "--add-config", "connection_creation_rate=100"],
    ):
        altered = kafka("configs", "alter", *words)
        assert altered.code == 0, altered.err
    credentials = {"SCRAM-SHA-256": "iterations=8192", "SCRAM-SHA-512": "iterations=4096"}
    of_pair = {"producer_byte_rate": "1024.0", "request_percentage": "50.5"}
    for kind, expected in (
        (["users"], [(None, {"consumer_byte_rate": "2048.0"}), ("alice", credentials)]),
        (["users", "clients"], [("alice/app%2F1", of_pair)]),
        (["clients"], [(None, {"controller_mutation_rate": "5.0"})]),
        (["ips"], [("127.0.0.1", {"connection_creation_rate": "100.0"})]),
    ):
        words = [word for entity_type in kind for word in ("--entity-type", entity_type)]
        for znodes in (False, True):
            entries = kafka.json("configs", "describe", *words, znodes=znodes)
            by_name = [(entry["entity_name"], {c["name"]: c["value"] for c in entry["configs"]}) for entry in entries]
            assert by_name == expected, (kind, znodes)
    assert "secret" not in str(kafka.json("configs", "describe", "--user", "alice", znodes=True))
    of_alice = ("--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients")
    for znodes in (False, True):
        assert [entry["entity_name"] for entry in kafka.json("configs", "describe", *of_alice, znodes=znodes)] == [
            "alice/app%2F1"
        ]
        assert kafka.json("configs", "describe", "--user", "bob", "--entity-type", "clients", znodes=znodes) == []
    said = theirs(
        kafka, CONFIGS, "--describe", "--entity-type", "users", "--entity-name", "alice", "--entity-type", "clients"
    )
    assert "Quota configs for user-principal 'alice', client-id 'app/1' are" in said
    for words, code, message in (
        ([*pair, "--add-config", "consumer_byte_rate=1.5"], 2, "must be a whole number"),
        ([*pair, "--add-config", "nonsense=1"], 2, "only quotas can be set"),
        ([*pair, "--delete-config", "consumer_byte_rate"], 2, "(not set)"),
        (["--user-defaults", "--add-config", "SCRAM-SHA-256=[password=x]"], 2, "credentials cannot be altered"),
        (["--ip", "not-an-ip.invalid", "--add-config", "connection_creation_rate=1"], 4, "not-an-ip.invalid"),
    ):
        refused = kafka("configs", "alter", *words)
        assert (refused.code, message in refused.err) == (code, True), refused.err
    by_znodes = kafka("configs", "alter", *pair, "--add-config", "producer_byte_rate=1", znodes=True)
    assert by_znodes.code == 0, by_znodes.err
    by_name = kafka.json("configs", "describe", *pair)["configs"]
    assert {setting["name"]: setting["value"] for setting in by_name}["producer_byte_rate"] == "1.0"
    assert kafka("configs", "alter", *pair, "--delete-config", "producer_byte_rate,request_percentage").code == 0
    assert kafka.json("configs", "describe", *pair)["configs"] == []
