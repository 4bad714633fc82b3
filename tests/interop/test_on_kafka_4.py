"""An operator's work on Apache Kafka 4: three nodes that are brokers and controllers, and no ZooKeeper."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import fetch_jars, jars_folder
from group_members import commit, fill, librdkafka_member, new_protocol_member
from klamm_program import Ran, in_process
from kraft_cluster import KAFKA_4_VERSION, KRaftCluster
from new_group_types import join_share_group, join_streams_group
from patience import wait_for
from required_tools import require
from wire_client import WireClient

from engine.admin.cluster.target import ClusterTarget, Origin, parse_addresses
from engine.admin.health.checks import assess
from engine.admin.health.report import Check
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.judging import facts_of
from engine.admin.watch.live_feed import LiveFeed
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.local.addresses import own_loopback_address

Capture = pytest.CaptureFixture[str]
DEADLINE_S = 60.0


@pytest.fixture(scope="module")
def kafka(tmp_path_factory: pytest.TempPathFactory) -> Iterator[KRaftCluster]:
    if not jars_folder(KAFKA_4_VERSION).is_dir():
        require("mvn")
    fetch_jars(KAFKA_4_VERSION)
    settings = {"group.min.session.timeout.ms": "1000", "replica.fetch.max.bytes": "65536"}
    folder = tmp_path_factory.mktemp("kafka-4")
    with KRaftCluster(folder, host=own_loopback_address(), overrides=settings) as cluster:
        yield cluster


class Operator:
    """Runs commands against the cluster. Each must exit with the given code."""

    def __init__(self, kafka: KRaftCluster, capture: Capture) -> None:
        self.servers = kafka.bootstrap
        self.capture = capture

    def run(self, *words: str | Path, code: int = 0, stdin: str = "") -> Ran:
        ran = in_process(*words, "--bootstrap-server", self.servers, capture=self.capture, stdin=stdin)
        assert ran.code == code, (words, ran.code, ran.err)
        return ran

    def json(self, *words: str | Path, code: int = 0) -> Any:
        return self.run(*words, "-o", "json", code=code).json


@pytest.fixture
def klamm(kafka: KRaftCluster, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Operator:
    monkeypatch.chdir(tmp_path)
    return Operator(kafka, capsys)


def test_who_is_in_the_cluster(klamm: Operator, kafka: KRaftCluster) -> None:
    description = klamm.json("cluster", "describe")
    assert description["cluster_id"] == kafka.cluster_id
    quorum, features = (
        description["quorum"],
        {feature["name"]: feature["level"] for feature in description["finalized_features"]},
    )
    assert {member["id"] for member in quorum["members"] if member["is_voter"]} == kafka.node_ids
    leaders = [member["id"] for member in quorum["members"] if member["is_leader"]]
    assert leaders == [quorum["leader_id"]] == [description["controller_id"]]
    assert quorum["leader_epoch"] == description["controller_epoch"] >= 1
    assert all(member["log_end_offset"] > 0 for member in quorum["members"])
    assert features["metadata.version"] >= 25 and features["group.version"] == 1
    shown = klamm.run("cluster", "describe", "-o", "table").out
    assert "metadata.version=" in shown and "leader" in shown and "voter" in shown

    listed = klamm.json("brokers", "list")
    assert [broker["id"] for broker in listed] == sorted(kafka.node_ids)
    assert [broker["id"] for broker in listed if broker["controller"]] == leaders
    described = klamm.json("brokers", "describe", "1")
    assert KAFKA_4_VERSION.startswith(described[0]["release"])
    assert {log_dir["broker"] for log_dir in klamm.json("brokers", "log-dirs")} == kafka.node_ids
    assert len(klamm.json("cluster", "load")) == len(kafka.nodes)


def test_brokers_that_name_any_controller_are_healthy(klamm: Operator, kafka: KRaftCluster) -> None:
    with WireClient(kafka.nodes[0].bootstrap) as client:
        named = {client.ask(MetadataRequest(topics=[]), 9).controller_id for _ in range(60)}
    assert named == kafka.node_ids, "each answer names a broker at random"
    report = klamm.json("cluster", "health")
    assert report["reasons"] == [], report


def test_topics_and_settings(klamm: Operator, tmp_path: Path) -> None:
    klamm.run("topics", "create", "orders", "--partitions", "3", "--replication-factor", "2", "--config",
              "retention.ms=1000000")  # fmt: skip
    wait_for(lambda: "orders" in klamm.run("topics", "list").out.split(), "the topic")
    klamm.run("topics", "alter", "orders", "--partitions", "5", "--yes")
    wait_for(lambda: len(klamm.json("topics", "describe", "orders")[0]["partitions"]) == 5, "its new partitions")
    klamm.run("configs", "alter", "--topic", "orders", "--add-config", "segment.bytes=2000000")
    klamm.run("configs", "alter", "--topic", "orders", "--delete-config", "retention.ms", "--yes")
    wait_for(lambda: _settings(klamm, "--topic", "orders") == {"segment.bytes": "2000000"}, "the settings")
    klamm.run("configs", "alter", "--broker", "1", "--add-config", "log.cleaner.threads=2")
    wait_for(lambda: _settings(klamm, "--broker", "1") == {"log.cleaner.threads": "2"}, "the broker's setting")
    klamm.run("configs", "alter", "--broker", "1", "--delete-config", "log.cleaner.threads")
    klamm.run("configs", "alter", "--user", "ann", "--add-config", "producer_byte_rate=1024")
    wait_for(lambda: _settings(klamm, "--user", "ann") == {"producer_byte_rate": "1024.0"}, "the quota")

    fill(klamm.servers, "orders", 5, 10)
    ends = klamm.json("offsets", "orders")
    assert [row["offset"] for row in ends] == [10] * 5
    read = klamm.run("consume", "orders", "--from-beginning", "--max-messages", "50").out.splitlines()
    assert len(read) == 50
    klamm.run("records", "delete", "--topic", "orders", "--partition", "0", "--before-offset", "4", "--yes")
    assert klamm.json("offsets", "orders", "--time", "earliest")[0]["offset"] == 4
    compared = klamm.json("replicas", "verify", "--topic", "orders")
    assert [row["to_offset"] for row in compared] == [10] * 5
    klamm.run("cluster", "snapshot", "--sizes", tmp_path / "snapshot.json")
    assert "orders" in (tmp_path / "snapshot.json").read_text()
    klamm.run("topics", "delete", "orders", "--yes")
    wait_for(lambda: "orders" not in klamm.run("topics", "list").out.split(), "its deletion")


def _settings(klamm: Operator, *entity: str) -> dict[str, str]:
    settings = klamm.json("configs", "describe", *entity)
    entities = settings if isinstance(settings, list) else [settings]
    return {entry["name"]: entry["value"] for entity in entities for entry in entity["configs"]}


def test_moves_and_elections(klamm: Operator, tmp_path: Path) -> None:
    klamm.run("topics", "create", "moved", "--replica-assignment", "1:2,2:1")
    for partition in ("0", "1"):
        klamm.run("produce", "moved", "--partition", partition, "--acks", "all", stdin=("x" * 999 + "\n") * 1000)
    plan, words = tmp_path / "plan.json", ("--reassignment-json-file", tmp_path / "plan.json")
    moves = [
        {"topic": "moved", "partition": 0, "replicas": [3, 2]},
        {"topic": "moved", "partition": 1, "replicas": [3, 1]},
    ]
    plan.write_text(json.dumps({"version": 1, "partitions": moves}))
    klamm.run("reassign", "execute", *words, "--throttle", "20000", "--rollback-file", tmp_path / "back", code=5)
    assert len(klamm.json("reassign", "list")) == 2
    assert _settings(klamm, "--broker", "3")["follower.replication.throttled.rate"] == "20000"
    assert [move["adding"] for move in klamm.json("reassign", "verify", *words, code=5)] == [[3], [3]]
    assert {row["result"] for row in klamm.json("reassign", "cancel", *words)} == {"cancelled"}
    assert _replicas(klamm) == [[1, 2], [1, 2]]
    assert _settings(klamm, "--topic", "moved") == {} == _settings(klamm, "--broker", "3")
    klamm.run("reassign", "execute", *words, "--throttle", "9000000", "--rollback-file", tmp_path / "back2", "--wait",
              "--timeout", "60")  # fmt: skip
    wait_for(lambda: _replicas(klamm) == [[2, 3], [1, 3]], "the moves")
    klamm.run("reassign", "verify", *words)
    assert _settings(klamm, "--topic", "moved") == {} == _settings(klamm, "--broker", "3")

    # The new preferred leader leads only when asked: nothing balances leaders here.
    elected = klamm.json("elect", "preferred", "--topic", "moved", "--yes")
    assert len(elected) == 2
    wait_for(lambda: _leaders(klamm) == [3, 3], "the election")
    nothing = klamm.json("elect", "unclean", "--topic", "moved", "--yes")
    assert all(row["leader"] == 3 for row in nothing if "leader" in row)
    assert _leaders(klamm) == [3, 3]


def _partitions(klamm: Operator) -> list[dict[str, Any]]:
    return list(klamm.json("topics", "describe", "moved")[0]["partitions"])


def _replicas(klamm: Operator) -> list[list[int]]:
    return [sorted(partition["replicas"]) for partition in _partitions(klamm)]


def _leaders(klamm: Operator) -> list[int]:
    return [partition["leader"] for partition in _partitions(klamm)]


def test_groups_of_every_protocol(klamm: Operator) -> None:
    klamm.run("topics", "create", "read", "--partitions", "3", "--replication-factor", "1")
    wait_for(lambda: "read" in klamm.run("topics", "list").out.split(), "the topic")
    fill(klamm.servers, "read", 3, 10)
    commit(klamm.servers, "assigned", {("read", 0): 4})
    with (
        new_protocol_member(klamm.servers, "read", "new", instance="one"),
        librdkafka_member(klamm.servers, "read", "old", instance="two"),
    ):
        for name in ("new", "old"):
            wait_for(lambda name=name: _committed(klamm, name) == [10, 10, 10], f"group {name} has read everything")
        for join, name in ((join_share_group, "shared"), (join_streams_group, "streaming")):
            codes = {join(address, name, "read") for address in klamm.servers.split(",")}
            assert 0 in codes, (name, codes)
        listed = {group["group"]: group["type"] for group in klamm.json("groups", "list")}
        assert listed == {
            "assigned": "classic", "new": "consumer", "old": "classic", "shared": "share", "streaming": "streams"
        }  # fmt: skip
        assert klamm.run("groups", "list", "--type", "consumer,share").rows == [
            ["new", "consumer"],
            ["shared", "share"],
        ]
        _look_at_the_new_group(klamm)
        refused = klamm.run("groups", "describe", "shared", "streaming", code=4).err
        assert "a share group" in refused and "a streams group" in refused
        assert "does not exist" in klamm.run("groups", "describe", "nobody", code=2).err
        reset = klamm.run("groups", "reset-offsets", "--group", "new", "--topic", "read", "--to-earliest", "--execute",
                          "--yes", code=4).err  # fmt: skip
        assert "new" in reset
        asyncio.run(_watched(klamm.servers))
    _change_empty_groups(klamm)


def _committed(klamm: Operator, group: str) -> list[int | None]:
    ran = klamm.capture
    offsets = in_process("groups", "describe", group, "-o", "json", "--bootstrap-server", klamm.servers, capture=ran)
    return [partition["current_offset"] for partition in offsets.json[0]["partitions"]] if offsets.code == 0 else []


def _look_at_the_new_group(klamm: Operator) -> None:
    (group,) = klamm.json("groups", "describe", "new")
    assert (group["type"], group["state"], group["assignment_strategy"]) == ("consumer", "Stable", "uniform")
    assert [
        (partition["lag"], partition["group_instance_id"], partition["client_id"]) for partition in group["partitions"]
    ] == [(0, "one", "app-of-one")] * 3
    (members,) = klamm.json("groups", "describe", "new", "--members")
    assert [(member["partition_count"], member["assignment"]) for member in members["members"]] == [
        (3, [{"topic": "read", "partitions": [0, 1, 2]}])
    ]
    lag = {group["group"]: group for group in klamm.json("lag", "--samples", "1")}
    assert {"assigned", "new", "old"} == set(lag)
    assert (lag["new"]["type"], lag["new"]["state"], lag["new"]["lag"]) == ("consumer", "Stable", 0)


async def _watched(servers: str) -> None:
    """The dashboard's feed shows groups of both protocols, and copes with brokers that name any controller."""
    feed = LiveFeed(ClusterTarget("kafka", Origin.OPTIONS, bootstrap=parse_addresses(servers)))
    await feed.start()
    try:
        frames: list[Frame] = []
        async with asyncio.timeout(DEADLINE_S):
            async for frame in feed.frames():
                frames.append(frame)
                groups = {group.lag.group: group for group in frame.groups}
                if "new" in groups and groups["new"].has_lag and frame.words and len(frames) > 5:
                    break
        assert groups["new"].lag.type == "consumer" and groups["new"].lag.lag == 0
        assert len(groups["new"].members or ()) == 1
        assert frame.stage(Stage.GROUPS).error == ""
        controllers = {frame.cluster.controller_id for frame in frames if frame.cluster is not None}
        assert len(controllers) == 1, "the first that is named stays"
        checks = {reason.check for reason in assess(facts_of(frame)).reasons}
        assert not checks & {Check.SEVERAL_CONTROLLERS, Check.NO_CONTROLLER}
    finally:
        await feed.close()


def _change_empty_groups(klamm: Operator) -> None:
    klamm.run("groups", "reset-offsets", "--group", "assigned", "--topic", "read:0", "--to-offset", "7", "--execute",
              "--yes")  # fmt: skip
    assert _committed(klamm, "assigned") == [7]
    klamm.run("groups", "delete-offsets", "assigned", "--topic", "read", "--yes")
    commit(klamm.servers, "gone", {("read", 0): 4})
    klamm.run("groups", "delete", "gone", "--yes")
    assert "gone" not in klamm.run("groups", "list").out.split()


def test_speed_is_measured(klamm: Operator) -> None:
    klamm.run("topics", "create", "fast", "--partitions", "2", "--replication-factor", "3")
    wait_for(lambda: "fast" in klamm.run("topics", "list").out.split(), "the topic")
    words = ("--topic", "fast", "--num-records", "2000", "--record-size", "100", "--throughput", "-1")
    klamm.run("perf", "producer", *words, "--producer-props", "acks=all", "compression.type=zstd")
    klamm.run("perf", "producer", *words, "--fresh")
    assert sum(row["offset"] for row in klamm.json("offsets", "fast")) == 4000
    klamm.run("perf", "consumer", "--topic", "fast", "--messages", "4000", "--group", "measured")
    assert sum(end or 0 for end in _committed(klamm, "measured")) >= 4000
    before = set(klamm.run("topics", "list").out.split())
    cases = klamm.json("perf", "suite", "--quick", "--experiment", "pair", "--seconds", "1", "--yes")["cases"]
    assert cases and all(case["sent_per_sec"] and case["read_per_sec"] for case in cases), cases
    assert set(klamm.run("topics", "list").out.split()) == before, "the suite's own topics are gone"


def test_spark_reads_and_writes(klamm: Operator, spark: Any, tmp_path: Path) -> None:
    klamm.run("topics", "create", "rows", "--partitions", "3", "--replication-factor", "3")
    wait_for(lambda: "rows" in klamm.run("topics", "list").out.split(), "the topic")
    kafka = {"kafka.bootstrap.servers": klamm.servers, "topic": "rows"}
    numbers = spark.range(600).selectExpr("cast(id as string) as key", "cast(id * 2 as string) as value")
    numbers.write.format("klamm-kafka").options(**kafka).mode("append").save()
    reads = {"kafka.bootstrap.servers": klamm.servers, "subscribe": "rows", "startingOffsets": "earliest"}
    read = spark.read.format("klamm-kafka").options(**reads).load()
    rows = read.selectExpr("cast(key as string) as key", "cast(value as string) as value").collect()
    assert sorted((int(record.key), int(record.value)) for record in rows) == [(n, 2 * n) for n in range(600)]

    checkpoint = tmp_path / "checkpoint"
    stream = spark.readStream.format("klamm-kafka").options(**reads).load()
    query = stream.writeStream.format("noop").option("checkpointLocation", str(checkpoint))
    query.trigger(availableNow=True).start().awaitTermination(DEADLINE_S)
    lag = [row for row in klamm.json("lag", "--checkpoint", checkpoint, "--samples", "1") if row["kind"] != "group"]
    assert [(row["kind"], row["partition_count"], row["lag"]) for row in lag] == [("checkpoint", 3, 0)], lag
    klamm.run("spark", "commit", checkpoint, "--group", "mirrored")
    assert sum(end or 0 for end in _committed(klamm, "mirrored")) == 600


def test_files_of_kafka_4(klamm: Operator, kafka: KRaftCluster) -> None:
    data = kafka.nodes[0].folder / "data"
    (segment,) = (data / "__cluster_metadata-0").glob("*0.log")
    ran = in_process("dump", segment, capture=klamm.capture)
    assert ran.code == 0 and "isvalid: true" in ran.out and "isvalid: false" not in ran.out
    offsets = sorted(data.glob("__consumer_offsets-*/*0.log"))
    ran = in_process("dump", "--offsets-decoder", *offsets, capture=klamm.capture)
    assert ran.code == 0 and "assigned" in ran.out, "records of new kinds stand between those that are known"


def test_what_needs_zookeeper_says_so(klamm: Operator) -> None:
    error = klamm.run("zk", "tree", code=2).err
    assert "this needs ZooKeeper" in error and "KRaft" in error and "over the wire" in error
