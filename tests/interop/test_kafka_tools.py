"""Kafka's own command-line tools, and through them the Java clients, against our broker."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from apache_kafka import run_tool as run_tool_alone
from broker_logs import assert_no_fault
from kafka_tools import run_tool
from segments_on_disk import codecs_on_disk
from wire_client import create_topic

from engine.local.cluster import LocalCluster

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
KINDS = {".log", ".index", ".timeindex", ".snapshot"}
OFFSETS = "org.apache.kafka.tools.GetOffsetShell"


@pytest.fixture(scope="module")
def cluster() -> Iterator[LocalCluster]:
    small_files = {"log.segment.bytes": "30000", "log.index.interval.bytes": "200"}
    with LocalCluster(1, config={"num.partitions": "2", **small_files}, log_dir_count=2) as running:
        yield running
        assert_no_fault(running.broker(0).logs_path)


def run(cluster: LocalCluster, main_class: str, *arguments: str, text_input: str = "") -> str:
    """Run a tool that must succeed; return its stdout."""
    done = run_tool(main_class, "--bootstrap-server", cluster.bootstrap_servers, *arguments, text_input=text_input)
    assert done.returncode == 0, done.stdout + done.stderr
    assert "Exception" not in done.stderr, done.stderr
    return done.stdout


def test_topics_and_configs(cluster: LocalCluster) -> None:
    create = ("--create", "--topic", "t", "--partitions", "2", "--config", "retention.ms=3600000")
    assert run(cluster, TOPICS, *create).strip() == "Created topic t."
    run(cluster, TOPICS, "--alter", "--topic", "t", "--partitions", "3")
    change = ("--alter", "--entity-type", "topics", "--entity-name", "t")
    output = run(cluster, CONFIGS, *change, "--add-config", "cleanup.policy=compact", "--delete-config", "retention.ms")
    assert output.strip() == "Completed updating config for topic t."
    described = run(cluster, TOPICS, "--describe", "--topic", "t").splitlines()
    assert re.fullmatch(
        r"Topic: t\tTopicId: \S{22}\tPartitionCount: 3\tReplicationFactor: 1\tConfigs: cleanup.policy=compact,\S+",
        described[0],
    )
    assert [line.split("\t")[1:6] for line in described[1:]] == [
        ["Topic: t", f"Partition: {index}", "Leader: 0", "Replicas: 0", "Isr: 0"] for index in range(3)
    ]
    assert run(cluster, CONFIGS, "--describe", "--entity-type", "topics", "--entity-name", "t").splitlines()[1:] == [
        "  cleanup.policy=compact sensitive=false synonyms={DYNAMIC_TOPIC_CONFIG:cleanup.policy=compact, "
        "DEFAULT_CONFIG:log.cleanup.policy=delete}"
    ]
    run(cluster, TOPICS, "--delete", "--topic", "t")
    assert "t" not in run(cluster, TOPICS, "--list").split()


def test_broker_configs_at_run_time(cluster: LocalCluster) -> None:
    broker = ("--entity-type", "brokers", "--entity-name", "0")
    run(cluster, CONFIGS, "--alter", *broker, "--add-config", "log.retention.ms=7200000")
    assert "log.retention.ms=7200000" in run(cluster, CONFIGS, "--describe", *broker)
    run(cluster, CONFIGS, "--alter", *broker, "--delete-config", "log.retention.ms")


@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_java_producer_stores_every_codec(cluster: LocalCluster, codec: str) -> None:
    topic = f"java-{codec}"
    lines = "".join(f"key {number}\tthe castle above the village {number}\n" for number in range(200))
    run(
        cluster,
        "kafka.tools.ConsoleProducer",
        *("--topic", topic, "--compression-codec", codec, "--property", "parse.key=true"),
        text_input=lines,
    )
    codecs: set[str] = set()
    for log_dir in cluster.broker(0).spec.log_dirs:
        for partition in (0, 1):
            codecs |= codecs_on_disk(log_dir, topic, partition)
    assert codecs == {codec}


def test_java_consumer_offsets_and_deleted_records(cluster: LocalCluster, tmp_path: Path) -> None:
    create_topic(cluster.bootstrap_servers, "v")
    verifiable = ("--bootstrap-server", cluster.bootstrap_servers, "--topic", "v", "--max-messages", "500")
    # It tells what it has done when its JVM ends.
    produced = run_tool_alone("org.apache.kafka.tools.VerifiableProducer", *verifiable, "--acks", "-1")
    assert produced.returncode == 0, produced.stderr
    events = [json.loads(line) for line in produced.stdout.splitlines() if line.startswith("{")]
    assert events[-1]["acked"] == 500
    sent = sorted((e["offset"], e["value"]) for e in events if e["name"] == "producer_send_success")
    consumed = run(
        cluster,
        "org.apache.kafka.tools.consumer.ConsoleConsumer",
        *("--topic", "v", "--partition", "0", "--offset", "earliest", "--max-messages", "500"),
        *("--property", "print.offset=true"),
    )
    read = [line.split("\t") for line in consumed.splitlines()]
    assert [(int(offset.removeprefix("Offset:")), value) for offset, value in read] == sent
    assert run(cluster, OFFSETS, "--topic", "v").split() == ["v:0:500"]
    wish = tmp_path / "offsets.json"
    wish.write_text(json.dumps({"partitions": [{"topic": "v", "partition": 0, "offset": 5}], "version": 1}))
    deleted = run(cluster, "org.apache.kafka.tools.DeleteRecordsCommand", "--offset-json-file", str(wish))
    assert "partition: v-0\tlow_watermark: 5" in deleted
    assert run(cluster, OFFSETS, "--topic", "v", "--time", "earliest").split() == ["v:0:5"]


def test_log_dirs_are_described(cluster: LocalCluster) -> None:
    create_topic(cluster.bootstrap_servers, "d", partitions=2)
    output = run(cluster, "org.apache.kafka.tools.LogDirsCommand", "--describe", "--topic-list", "d")
    (broker,) = json.loads(output.splitlines()[-1])["brokers"]
    dirs = {each["logDir"]: [p["partition"] for p in each["partitions"]] for each in broker["logDirs"]}
    assert sorted(dirs) == sorted(map(str, cluster.broker(0).spec.log_dirs))
    assert sorted(partition for partitions in dirs.values() for partition in partitions) == ["d-0", "d-1"]
    assert all(each["error"] is None for each in broker["logDirs"])


def test_kafka_reads_every_file_of_a_busy_broker(cluster: LocalCluster) -> None:
    """kafka-dump-log and its sanity checks read segments, indexes and snapshots of all tests above."""
    create_topic(cluster.bootstrap_servers, "indexed", partitions=1)
    for _ in range(3):
        # Each call sends a batch of its own, and only a later one in a segment gets an entry in its index.
        run(cluster, "kafka.tools.ConsoleProducer", "--topic", "indexed", text_input="x" * 300)
    cluster.stop_broker(0)
    files = [
        str(path)
        for log_dir in cluster.broker(0).spec.log_dirs
        for path in sorted(log_dir.glob("*-*/*"))
        if not path.parent.name.endswith("-delete") and path.suffix in KINDS and path.stat().st_size
    ]
    assert {Path(path).suffix for path in files} == KINDS
    output = run_tool("kafka.tools.DumpLogSegments", "--deep-iteration", "--files", ",".join(files))
    assert output.returncode == 0, output.stderr
    for complaint in ("Mismatches", "out of order", "isvalid: false", "Could not", "Exception"):
        assert complaint not in output.stdout + output.stderr
    assert output.stdout.count("Dumping ") == len(files)
