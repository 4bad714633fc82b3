"""What an operator does with brokers, log dirs, offsets, old records and settings: written once, for every engine.

Each round gets an ``Operated`` cluster of the brokers 0 and 1, and a topic name of its own.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from klamm_program import Ran, in_process

BASE_MS = 1_700_000_000_000
"""2023-11-14T22:13:20Z, the time of the first record. The others follow a second apart."""


@dataclass(frozen=True)
class Operated:
    """A running cluster, reached by either interface."""

    by_wire: tuple[str, ...]
    by_znodes: tuple[str, ...]
    capture: pytest.CaptureFixture[str]
    folder: Path

    def __call__(self, *words: str | Path, znodes: bool = False, stdin: str = "") -> Ran:
        side = self.by_znodes if znodes else self.by_wire
        return in_process(*words, *side, capture=self.capture, stdin=stdin)

    def json(self, *words: str | Path, znodes: bool = False) -> Any:
        ran = self(*words, "-o", "json", znodes=znodes)
        assert ran.code == 0, ran.err
        return ran.json

    def fill(self, topic: str, *counts: int) -> None:
        """Create a topic on both brokers, with this many records in each partition."""
        assignment = ",".join("0:1" if index % 2 == 0 else "1:0" for index in range(len(counts)))
        # The records are from 2023: without this, retention would remove them in the middle of a test.
        kept = ("--config", "retention.ms=-1")
        made = self("topics", "create", topic, "--replica-assignment", assignment, *kept)
        assert made.code == 0, made.err
        for partition, count in enumerate(counts):
            lines = "".join(map(_line, range(count)))
            if count:
                sent = self("produce", topic, "--partition", str(partition), "--input", "jsonl", stdin=lines)
                assert sent.code == 0, sent.err


def _line(number: int) -> str:
    return json.dumps({"value": "x" * 100, "timestamp": f"2023-11-14T22:13:{20 + number % 40}.000Z"}) + "\n"


def _offsets(cluster: Operated, *words: str, znodes: bool = False) -> list[tuple[int, int | None]]:
    rows = cluster.json("offsets", *words, znodes=znodes)
    assert all(row["error"] is None for row in rows)
    return [(row["partition"], row["offset"]) for row in rows]


def offsets(cluster: Operated, topic: str) -> None:
    """Every specification of kafka-get-offsets."""
    cluster.fill(topic, 10, 5, 0)
    for znodes in (False, True):
        assert _offsets(cluster, topic, znodes=znodes) == [(0, 10), (1, 5), (2, 0)]
        assert _offsets(cluster, topic, "--time", "-2", znodes=znodes) == [(0, 0), (1, 0), (2, 0)]
    assert _offsets(cluster, topic, "--time", "earliest-local") == [(0, 0), (1, 0), (2, 0)]
    assert _offsets(cluster, topic, "--time", "latest-tiered") == [(0, None), (1, None), (2, None)]
    assert _offsets(cluster, topic, "--isolation", "read-committed", "--partitions", "0,1") == [(0, 10), (1, 5)]
    newest = cluster.json("offsets", topic, "--time", "max-timestamp")
    assert [(row["offset"], row["timestamp"]) for row in newest] == [
        (9, "2023-11-14T22:13:29.000Z"), (4, "2023-11-14T22:13:24.000Z"), (None, None),
    ]  # fmt: skip
    by_time = cluster.json("offsets", topic, "--time", "2023-11-14T22:13:23.500Z")
    assert [row["offset"] for row in by_time] == [4, 4, None]
    assert by_time[0]["timestamp"] == "2023-11-14T22:13:24.000Z"
    assert _offsets(cluster, topic, "--time", str(BASE_MS + 7000)) == [(0, 7), (1, None), (2, None)]
    assert _offsets(cluster, topic, "--time", "4102444800000") == [(0, None), (1, None), (2, None)]
    assert _offsets(cluster, "--topic-partitions", f"{topic}:1-") == [(1, 5), (2, 0)]
    assert _offsets(cluster, "--topic-partitions", f"{topic}:-1,{topic}:2") == [(0, 10), (2, 0)]
    assert _offsets(cluster, topic, "--partitions", "1") == [(1, 5)]
    as_kafka = cluster("kafka-get-offsets", "--topic", topic, "--time", "-1", "--partitions", "0")
    assert as_kafka.out == f"{topic}:0:10\n"
    for wrong in ([topic, "--partitions", "9"], ["absent-topic"], ["--topic-partitions", f"{topic}:7"]):
        ran = cluster("offsets", *wrong)
        assert (ran.code, ran.out, "no partition matches" in ran.err) == (2, "", True)


def deleted_records(cluster: Operated, topic: str) -> None:
    """Old records are deleted, by option and by Kafka's file.

    Impossible requests are refused before anything is sent.
    """
    cluster.fill(topic, 10, 5, 0)
    words_of_deletion = ("records", "delete", "--topic", topic, "--partition", "0", "--before-offset")
    would = cluster.json(*words_of_deletion, "4", "--dry-run")
    assert [(each["result"], each["records"], each["end_offset"]) for each in would] == [("would_be_deleted", 4, 10)]
    assert 0 < would[0]["estimated_bytes"] < 4000
    refused = cluster(*words_of_deletion, "4")
    assert (refused.code, refused.out, "--yes" in refused.err) == (2, "", True)
    plan = cluster.folder / "offsets.json"

    def write(*wishes: tuple[str, int, int]) -> None:
        partitions = [{"topic": name, "partition": index, "offset": offset} for name, index, offset in wishes]
        plan.write_text(json.dumps({"version": 1, "partitions": partitions}))

    by_file = ("records", "delete", "--offset-json-file", plan, "--yes")
    for wishes, message in (
        ([(topic, 0, 4), (topic, 1, 6)], f"{topic}-1 ends at 5, not at 6"),
        ([(topic, 0, 4), (topic, 3, 1)], f"no such partition: {topic}-3"),
        ([(topic, 0, 4), ("absent-topic", 0, 1)], "'absent-topic' does not exist"),
        ([(topic, 0, 4), (topic, 0, 5)], f"duplicate topic partitions: {topic}-0"),
        ([(topic, 0, 4), ("__consumer_offsets", 0, 1)], "Kafka's own topics are not deleted"),
        ([(topic, 0, -2)], "not a partition with an offset"),
        ([], "lists no partition"),
    ):
        write(*wishes)
        ran = cluster(*by_file)
        assert (ran.code, ran.out) == (2, ""), ran.err
        assert message in ran.err
    assert _offsets(cluster, topic, "--time", "earliest") == [(0, 0), (1, 0), (2, 0)], "nothing was deleted"
    gone = cluster.json(*words_of_deletion, "4", "--yes")
    assert [(each["result"], each["low_watermark"]) for each in gone] == [("deleted", 4)]
    again = cluster.json(*words_of_deletion, "4", "--yes")
    assert [(each["result"], each["records"]) for each in again] == [("nothing_to_do", 0)]
    write((topic, 0, 6), (topic, 1, -1), (topic, 2, 0))
    rest = cluster.json("kafka-delete-records", "--offset-json-file", plan, "--yes", znodes=True)
    assert [(each["result"], each["low_watermark"]) for each in rest] == [
        ("deleted", 6), ("deleted", 5), ("nothing_to_do", None),
    ]  # fmt: skip
    assert _offsets(cluster, topic, "--time", "earliest") == [(0, 6), (1, 5), (2, 0)]


def compacted_records(cluster: Operated, topic: str) -> None:
    """Records of a compacted-only topic are not deleted by offset. Without a leader nothing is tried."""
    made = cluster("topics", "create", topic, "--replica-assignment", "0:1", "--config", "cleanup.policy=compact")
    assert made.code == 0, made.err
    ran = cluster("records", "delete", "--topic", topic, "--partition", "0", "--before-offset", "-1", "--yes")
    assert (ran.code, ran.out, "only compacted" in ran.err) == (2, "", True)


def log_dirs(cluster: Operated, topic: str) -> None:
    """Where replicas are and how large they are."""
    cluster.fill(topic, 50, 0)
    for znodes in (False, True):
        rows = cluster.json("brokers", "log-dirs", "--topic-list", topic, znodes=znodes)
        replicas = [
            (log_dir["broker"], r["partition"], r["size_bytes"]) for log_dir in rows for r in log_dir["replicas"]
        ]
        assert sorted(replica[:2] for replica in replicas) == [(0, 0), (0, 1), (1, 0), (1, 1)]
        full = {size for _, partition, size in replicas if partition == 0}
        assert len(full) == 1, "replicas in sync are equally large"
        assert 50 * 100 < min(full) < 10_000
        assert all(
            log_dir["error"] is None and log_dir["total_bytes"] > log_dir["usable_bytes"] > 0 for log_dir in rows
        )
    only = cluster.json("brokers", "log-dirs", "--broker-list", "1", "--topic-list", topic)
    assert {log_dir["broker"] for log_dir in only} == {1}
    (total,) = cluster.json("brokers", "log-dirs", "--topic", topic, "--summary", "topic")
    assert (total["topic"], total["replica_count"], total["size_bytes"]) == (topic, 4, 2 * min(full))
    by_broker = cluster.json("kafka-log-dirs", "--describe", "--summary", "broker", "--sort", "size")
    assert sorted(log_dir["broker"] for log_dir in by_broker) == [0, 1]
    unknown = cluster("brokers", "log-dirs", "--broker-list", "0,7")
    assert (unknown.code, unknown.out, "not alive: 7" in unknown.err) == (2, "", True)
    absent = cluster("brokers", "log-dirs", "--topic-list", f"{topic},absent-topic")
    assert (absent.code, "'absent-topic' does not exist" in absent.err) == (2, True)
    for wrong in (["--broker-list", "x"], ["--summary", "disk"], ["--sort", "age"]):
        assert cluster("brokers", "log-dirs", *wrong).code == 2
    taken = cluster.folder / "sized.json"
    assert cluster("cluster", "snapshot", "--sizes", taken).code == 0
    offline = in_process(
        "brokers", "log-dirs", "--snapshot", taken, "--topic", topic, "-o", "json", capture=cluster.capture
    )
    assert {r["size_bytes"] for log_dir in offline.json for r in log_dir["replicas"] if r["partition"] == 0} == full


def described_brokers(cluster: Operated, topic: str) -> None:
    """Everything about a broker, from both interfaces."""
    cluster.fill(topic, 3, 3)
    by_wire, by_znodes = (cluster.json("brokers", "describe", znodes=znodes) for znodes in (False, True))
    assert [broker["id"] for broker in by_znodes] == [0, 1] == [broker["id"] for broker in by_wire]
    for wire, znodes in zip(by_wire, by_znodes, strict=True):
        assert wire["alive"] and znodes["alive"]
        assert (wire["release"], znodes["release"]) == ("3.9", "3.9")
        assert wire["inter_broker_protocol"] == "3.9-IV0"
        assert znodes["broker_epoch"] > 0
        assert znodes["registered_at"].endswith("Z")
        assert [listener["port"] for listener in wire["listeners"]] == [
            listener["port"] for listener in znodes["listeners"]
        ]
        assert znodes["listeners"][0]["listener"] == "PLAINTEXT"
        assert wire["partitions"] == znodes["partitions"]
        assert wire["partitions"]["held"] >= wire["partitions"]["led"] >= 1
        assert sum(log_dir["replica_count"] for log_dir in wire["log_dirs"]) == wire["partitions"]["held"]
    assert [broker["controller"] for broker in by_wire].count(True) == 1
    (listed,) = cluster.json("kafka-broker-api-versions", znodes=True)[:1]
    produce = next(api for api in listed["apis"] if api["key"] == 0)
    assert (produce["name"], produce["max_version"]) == ("Produce", 11)
    (only,) = cluster.json("brokers", "describe", "1")
    assert (only["id"], "apis" in only) == (1, False)
    unknown = cluster("brokers", "describe", "0", "7")
    assert (unknown.code, unknown.out, "no such broker: 7" in unknown.err) == (2, "", True)


def settings(cluster: Operated, topic: str) -> None:
    """Both interfaces describe settings of topics, of a broker and of all brokers alike, and both alter them."""
    assert cluster("topics", "create", topic, "--replica-assignment", "0:1").code == 0
    entity = ("--entity-type", "topics", "--entity-name", topic)
    added = "retention.ms=3600000,cleanup.policy=[compact,delete]"
    for znodes in (False, True):
        altered = cluster("configs", "alter", *entity, "--add-config", added, "--yes", znodes=znodes)
        assert altered.code == 0, altered.err
        for side in (False, True):
            (*configs,) = cluster.json("configs", "describe", *entity, znodes=side)["configs"]
            values = {setting["name"]: (setting["value"], setting["source"]) for setting in configs}
            assert values == {
                "cleanup.policy": ("compact,delete", "DYNAMIC_TOPIC_CONFIG"),
                "retention.ms": ("3600000", "DYNAMIC_TOPIC_CONFIG"),
            }
        everything = cluster.json("configs", "describe", "--entity-type", "topics", znodes=znodes)
        assert next(entry for entry in everything if entry["entity_name"] == topic)["configs"]
        dropped = cluster(
            "kafka-configs", "--alter", *entity, "--delete-config", "retention.ms,cleanup.policy", znodes=znodes
        )
        assert dropped.code == 0, dropped.err
    everything = cluster.json("configs", "describe", *entity, "--all")
    assert next(config for config in everything["configs"] if config["name"] == "segment.bytes")["source"] != "UNKNOWN"
    plain = next(config for config in everything["configs"] if config["name"] == "compression.type")
    assert [synonym["source"] for synonym in plain["synonyms"]] == ["DEFAULT_CONFIG"]


def bad_settings(cluster: Operated, topic: str) -> None:
    """Wrong names, keys and values are refused, and nothing changes."""
    assert cluster("topics", "create", topic, "--replica-assignment", "0:1").code == 0
    entity = ("--topic", topic)
    for words, codes, message in (
        ([*entity, "--add-config", "nonsense=1"], (2, 4), "Unknown topic config name: nonsense"),
        ([*entity, "--add-config", "segment.bytes=-5"], (2, 4), "Value must be at least 14"),
        ([*entity, "--add-config", "retention.ms"], (2,), "not KEY=VALUE"),
        ([*entity, "--delete-config", "retention.ms"], (2,), "(not set)"),
        ([*entity], (2,), "nothing to alter"),
        (["--topic", "absent-topic", "--add-config", "retention.ms=1"], (2,), "absent-topic"),
        (["--entity-type", "topics", "--entity-default", "--add-config", "a=1"], (2,), "no default of their own"),
        (["--entity-type", "brokers", "--entity-name", "x", "--add-config", "a=1"], (2,), "not a broker id: 'x'"),
        (["--entity-type", "topics", "--add-config", "a=1"], (2,), "an entity name must be given"),
    ):
        for znodes in (False, True):
            ran = cluster("configs", "alter", *words, znodes=znodes)
            assert ran.code in codes, (words, ran.err)
            assert message in ran.err
    assert cluster.json("configs", "describe", *entity)["configs"] == []


Round = Callable[[Operated, str], None]
ROUNDS: tuple[Round, ...] = (
    offsets,
    deleted_records,
    compacted_records,
    log_dirs,
    described_brokers,
    settings,
    bad_settings,
)
