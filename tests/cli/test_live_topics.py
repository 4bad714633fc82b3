"""Topics and settings of a running cluster, changed over the wire and through the znodes."""

from __future__ import annotations

import asyncio
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest
from klamm_program import PROGRAM, Ran, environment, in_process
from patience import wait_for

from engine.admin.cluster.wire import WireCluster
from engine.admin.topics import by_wire as by_wire_topics
from engine.admin.topics.changes import NewTopic, TopicChange
from engine.local.cluster import LocalCluster

Capture = pytest.CaptureFixture[str]
WAIT_S = 30.0


class Klamm:
    """Runs commands through one interface of the running cluster."""

    def __init__(self, where: tuple[str, str], capture: Capture) -> None:
        self.where = where
        self._capture = capture

    def __call__(self, *words: str) -> Ran:
        return in_process(*words, *self.where, capture=self._capture)


@pytest.fixture
def by_wire(live_cluster: LocalCluster, capsys: Capture) -> Klamm:
    return Klamm(("--bootstrap-server", live_cluster.bootstrap_servers), capsys)


@pytest.fixture
def by_znodes(live_cluster: LocalCluster, capsys: Capture) -> Klamm:
    return Klamm(("--zookeeper", live_cluster.zookeeper_connect), capsys)


@pytest.fixture(params=["wire", "znodes"])
def klamm_by(request: pytest.FixtureRequest, by_wire: Klamm, by_znodes: Klamm) -> Klamm:
    return by_wire if request.param == "wire" else by_znodes


def test_a_topic_from_its_making_to_its_end(klamm_by: Klamm, by_wire: Klamm, by_znodes: Klamm, topic_name: str) -> None:
    made = klamm_by(
        "topics", "create", topic_name, "--partitions", "3", "--replication-factor", "2",
        "--config", "retention.ms=60000", "-o", "json",
    )  # fmt: skip
    assert made.code == 0, made.err
    assert made.json[0]["result"] == "created"
    assert (made.json[0]["partition_count"], made.json[0]["replication_factor"]) == (3, 2)

    # The controller tells the brokers in a moment about changes through the znodes.
    deadline = time.monotonic() + WAIT_S
    while by_wire("topics", "describe", topic_name).code and time.monotonic() < deadline:
        time.sleep(0.05)
    descriptions = [side("topics", "describe", topic_name, "-o", "json").json[0] for side in (by_wire, by_znodes)]
    assert descriptions[0]["topic_id"] == descriptions[1]["topic_id"] is not None
    assert descriptions[0]["configs"] == descriptions[1]["configs"] == {"retention.ms": "60000"}
    for wire, znodes in zip(descriptions[0]["partitions"], descriptions[1]["partitions"], strict=True):
        assert wire["zk_version"] is None
        assert znodes["zk_version"] == 0
        assert {**wire, "zk_version": 0} == znodes
        assert wire["leader"] == wire["replicas"][0]

    again = klamm_by("topics", "create", topic_name, "--partitions", "3", "--replication-factor", "2")
    assert again.code == 4
    assert "TOPIC_ALREADY_EXISTS" in again.err
    assert klamm_by("topics", "create", topic_name, "--if-not-exists", "--partitions", "3").rows[0][1] == "exists"

    assert (
        klamm_by("topics", "alter", topic_name, "--partitions", "5", "--delete-config", "retention.ms", "--yes").code
        == 0
    )
    after = by_znodes("topics", "describe", topic_name, "-o", "json").json[0]
    assert (after["partition_count"], after["configs"]) == (5, {})
    assert [partition["leader"] >= 0 for partition in after["partitions"]] == [True] * 5
    fewer = klamm_by("topics", "alter", topic_name, "--partitions", "5")
    assert (fewer.code, "Topic already has 5 partitions" in fewer.err) == (4, True)
    assert "warning" not in fewer.err, "what is refused has no effects to warn of"

    refused = klamm_by("topics", "delete", topic_name)
    assert (refused.code, refused.out) == (2, "")
    assert "--yes" in refused.err
    gone = klamm_by("topics", "delete", topic_name, "--yes", "-o", "json")
    assert (gone.code, gone.json[0]["result"]) == (0, "deleted")
    assert klamm_by("topics", "describe", topic_name).code == 2
    assert klamm_by("topics", "delete", topic_name, "--yes", "--if-exists").code == 0


def test_an_assignment_by_hand(klamm_by: Klamm, topic_name: str) -> None:
    made = klamm_by("topics", "create", topic_name, "--replica-assignment", "0:1,1:0,1")
    assert (made.code, "different replication factor" in made.err) == (2, True)
    assert klamm_by("topics", "create", topic_name, "--replica-assignment", "0:1,1:0").code == 0
    wider = klamm_by("topics", "alter", topic_name, "--partitions", "3", "--replica-assignment", "0:1,1:0,1:0", "--yes")
    assert wider.code == 0, wider.err
    partitions = klamm_by("topics", "describe", topic_name, "-o", "json").json[0]["partitions"]
    assert [partition["replicas"] for partition in partitions] == [[0, 1], [1, 0], [1, 0]]


def test_a_deadline_amid_many_topics_says_how_far_it_came(
    by_wire: Klamm, topic_name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It said of each topic that is there that it may still be created."""
    create_topic = by_wire_topics.create_topic

    async def slow(wire: WireCluster, topic: NewTopic, **options: Any) -> TopicChange:
        if topic.name.endswith("-2"):
            await asyncio.Event().wait()
        return await create_topic(wire, topic, **options)

    monkeypatch.setattr(by_wire_topics, "create_topic", slow)
    names = [f"{topic_name}-{number}" for number in range(4)]
    ran = by_wire("topics", "create", *names, "--partitions", "1", "--timeout", "5", "-o", "json")
    assert (ran.code, ran.error["code"]) == (5, 5), ran.err
    assert ran.error["hint"] == (
        "2 of 4 topics exist now; for the others run it again with --if-not-exists; "
        f"the topic may still be created: klamm topics describe {names[2]} {' '.join(by_wire.where)}"
    )
    rest = by_wire("topics", "create", *names[:2], "--partitions", "1", "--if-not-exists", "-o", "json")
    assert [change["result"] for change in rest.json] == ["exists", "exists"]


def test_a_dry_run_checks_and_writes_nothing(klamm_by: Klamm, topic_name: str) -> None:
    shape = ("--partitions", "2", "--replication-factor")
    would = klamm_by("topics", "create", topic_name, *shape, "2", "--dry-run", "-o", "json")
    assert (would.code, would.json[0]["result"]) == (0, "would_be_created")
    assert "dry run: would create topic" in would.err
    cannot = klamm_by("topics", "create", topic_name, *shape, "3", "--dry-run")
    assert (cannot.code, "would" in cannot.err) == (4, False)
    assert klamm_by("topics", "describe", topic_name).code == 2
    assert klamm_by("topics", "create", topic_name, *shape, "2").code == 0
    assert klamm_by("topics", "alter", topic_name, "--partitions", "9", "--dry-run").code == 0
    for words in (["--dry-run"], [], ["--verbose"]):
        cannot = klamm_by("topics", "alter", topic_name, "--partitions", "1", *words)
        assert (cannot.code, "would" in cannot.err, "warning" in cannot.err) == (4, False, False)
    assert (
        "warning: with more partitions" in klamm_by("topics", "alter", topic_name, "--partitions", "9", "--dry-run").err
    )
    assert klamm_by("topics", "delete", topic_name, "--dry-run").code == 0
    assert klamm_by("topics", "describe", topic_name, "-o", "json").json[0]["partition_count"] == 2


def test_partitions_are_not_added_where_a_setting_beside_them_is_refused(klamm_by: Klamm, topic_name: str) -> None:
    assert klamm_by("topics", "create", topic_name, "--partitions", "2", "--replication-factor", "1").code == 0
    both = klamm_by("topics", "alter", topic_name, "--partitions", "3", "--config", "retention.ms=soon")
    assert both.code in (2, 4)
    assert klamm_by("topics", "describe", topic_name, "-o", "json").json[0]["partition_count"] == 2


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["a/b"], 2, "topic name is invalid: 'a/b' contains one or more characters other than"),
        (["x", "--replication-factor", "3", "--partitions", "1"], 4, "larger than available brokers: 2"),
        (["x", "--replication-factor", "0"], 2, "between 1 and 32767"),
        (["x", "--partitions", "1", "--replication-factor", "1", "--config", "nonsense=1"], (2, 4), "Unknown topic"),
        (
            ["x", "--partitions", "1", "--replication-factor", "1", "--config", "segment.bytes=-5"],
            (2, 4),
            "Invalid value -5 for configuration segment.bytes: Value must be at least 14",
        ),
        (["x", "--config", "segment.bytes"], 2, "not KEY=VALUE"),
    ],
)
def test_topics_that_cannot_be_made(
    klamm_by: Klamm, words: list[str], code: int | tuple[int, int], message: str
) -> None:
    ran = klamm_by("topics", "create", *words)
    assert ran.code in (code if isinstance(code, tuple) else (code,)), ran.err
    assert message in ran.err


def test_the_clusters_defaults_are_known_by_the_wire_only(by_wire: Klamm, by_znodes: Klamm, topic_name: str) -> None:
    assert by_znodes("topics", "create", topic_name).code == 2
    made = by_wire("topics", "create", topic_name, "-o", "json")
    assert (made.json[0]["partition_count"], made.json[0]["replication_factor"]) == (2, 2)


def test_names_that_collide_in_metrics(by_znodes: Klamm, topic_name: str) -> None:
    shape = ("--partitions", "1", "--replication-factor", "1")
    first = by_znodes("topics", "create", f"{topic_name}.x", *shape)
    assert (first.code, "warning:" in first.err) == (0, True)
    second = by_znodes("topics", "create", f"{topic_name}_x", *shape)
    assert (second.code, "collides with existing topics" in second.err) == (4, True)


def test_settings_of_a_topic(klamm_by: Klamm, by_wire: Klamm, topic_name: str) -> None:
    by_wire("topics", "create", topic_name)
    alter = ("configs", "alter", "--topic", topic_name)
    assert klamm_by(*alter, "--add-config", "retention.ms=1000,cleanup.policy=[compact,delete]", "--yes").code == 0
    assert klamm_by(*alter, "--delete-config", "retention.ms", "--yes").code == 0
    absent = klamm_by(*alter, "--delete-config", "retention.ms")
    assert (absent.code, "not set" in absent.err) == (2, True)
    bad = klamm_by(*alter, "--add-config", "retention.ms=soon")
    assert bad.code in (2, 4)
    assert "Invalid value soon for configuration retention.ms" in bad.err
    dry = klamm_by(*alter, "--add-config", "retention.ms=5", "--dry-run")
    assert (dry.code, "dry run" in dry.err) == (0, True)
    for side in (klamm_by, by_wire):
        configs = side("configs", "describe", "--topic", topic_name, "-o", "json").json
        assert [(c["name"], c["value"], c["source"]) for c in configs["configs"]] == [
            ("cleanup.policy", "compact,delete", "DYNAMIC_TOPIC_CONFIG")
        ]
    everything = klamm_by("configs", "describe", "--topic", topic_name, "--all", "-o", "json").json
    names = [config["name"] for config in everything["configs"]]
    assert names == sorted(names)
    assert {"retention.ms", "min.insync.replicas"} <= set(names)
    assert klamm_by("configs", "describe", "--topic", "absent").code == 2


def broker_defaults(run: Klamm) -> list[tuple[str, str, str]]:
    defaults = run("configs", "describe", "--broker-defaults", "-o", "json").json
    return [(config["name"], config["value"], config["source"]) for config in defaults["configs"]]


def test_settings_of_a_broker_that_is_not_there_are_not_told_as_none(klamm_by: Klamm) -> None:
    ran = klamm_by("configs", "describe", "--broker", "77")
    assert (ran.code, ran.out) == (2, "")
    assert "no live broker has the id 77" in ran.err


def test_settings_of_brokers(klamm_by: Klamm, tmp_path: Path) -> None:
    file = tmp_path / "add.properties"
    file.write_text("log.cleaner.threads=2\n")
    assert klamm_by("configs", "alter", "--broker-defaults", "--add-config-file", str(file)).code == 0
    set_now = [("log.cleaner.threads", "2", "DYNAMIC_DEFAULT_BROKER_CONFIG")]
    wait_for(lambda: broker_defaults(klamm_by) == set_now)
    assert klamm_by("configs", "alter", "--broker-defaults", "--delete-config", "log.cleaner.threads").code == 0
    wait_for(lambda: broker_defaults(klamm_by) == [])
    for words in (("--broker-defaults",), ("--broker", "0")):
        typed = ("log.cleaner.thread=2", "my.plugin=x", "log.cleaner.threads=1")
        odd = klamm_by("configs", "alter", *words, "--dry-run", "--add-config", ",".join(typed))
        assert [line for line in odd.err.splitlines() if "know no setting" in line] == [
            "warning: brokers know no setting log.cleaner.thread, and keep it for plug-ins only; did you mean "
            "log.cleaner.threads?",
            "warning: brokers know no setting my.plugin, and keep it for plug-ins only",
        ]
    fixed = klamm_by("configs", "alter", "--broker", "0", "--add-config", "broker.rack=z")
    assert fixed.code in (2, 4), fixed.err
    assert klamm_by("configs", "alter", "--broker", "zero", "--add-config", "a=b").code == 2


def test_who_is_in_the_cluster(klamm_by: Klamm, by_znodes: Klamm) -> None:
    listed = klamm_by("brokers", "list", "-o", "json").json
    assert [(broker["id"], broker["rack"]) for broker in listed] == [(0, "a"), (1, "b")]
    assert sum(broker["controller"] for broker in listed) == 1
    described = klamm_by("cluster", "describe", "-o", "json").json
    assert described["cluster_id"] == by_znodes("zk", "get", "/cluster/id", "-o", "json").json["data"]
    assert described["brokers"] == listed


def test_who_was_asked_is_said(by_wire: Klamm, by_znodes: Klamm) -> None:
    assert "answered Metadata" in by_wire("topics", "list", "--verbose").err
    assert "ZooKeeper listed" in by_znodes("topics", "list", "--verbose").err
    quiet = by_wire("topics", "list", "no-such-.*", "--quiet")
    assert (quiet.code, quiet.out, quiet.err) == (0, "", "")


def test_both_sides_named(live_cluster: LocalCluster, capsys: Capture, topic_name: str) -> None:
    """State comes from ZooKeeper, changes go over the wire; --via forces one interface."""
    both = ("--zookeeper", live_cluster.zookeeper_connect, "--bootstrap-server", live_cluster.bootstrap_servers)
    made = in_process("topics", "create", topic_name, *both, "-v", capture=capsys)
    assert (made.code, "answered CreateTopics" in made.err) == (0, True)
    seen = in_process("topics", "describe", topic_name, *both, "-v", capture=capsys)
    assert "ZooKeeper reported 1 topic with" in seen.err
    seen = in_process("topics", "describe", topic_name, *both, "-v", "--via", "wire", capture=capsys)
    assert "answered Metadata" in seen.err


def test_a_read_only_profile_is_not_changed(
    live_cluster: LocalCluster, capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, topic_name: str
) -> None:
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    where = ("--bootstrap-server", live_cluster.bootstrap_servers)
    assert in_process("profiles", "add", "prod", *where, "--read-only", capture=capsys).code == 0
    assert in_process("topics", "list", capture=capsys).code == 0, "the first profile is the default"
    for words in (["topics", "create", topic_name], ["topics", "delete", "x", "--yes"], ["produce", "x"]):
        ran = in_process(*words, "--cluster", "prod", capture=capsys)
        assert (ran.code, ran.err.splitlines()[0]) == (2, "error: this profile is read-only: prod")


def test_znodes_of_a_living_cluster(by_znodes: Klamm, by_wire: Klamm, topic_name: str) -> None:
    by_wire("topics", "create", topic_name)
    tree = by_znodes("zk", "tree", f"/brokers/topics/{topic_name}", "-o", "json").json
    assert [z["kind"] for z in tree if z["kind"]] == ["TopicZNode", *["TopicPartitionStateZNode"] * 2]
    controller = by_znodes("zk", "get", "/controller", "-o", "json").json
    assert controller["ephemeral_owner"].startswith("0x")
    assert controller["data"]["broker"] in (0, 1)
    raw = by_znodes("zk", "get", "/controller", "--raw", "-o", "json").json
    assert raw["data"].startswith('{"version":2')
    assert by_znodes("zk", "get", "/nothing").code == 2
    assert by_znodes("zk", "get", "nothing").code == 2
    assert by_wire("zk", "tree").code == 2


def test_a_full_disk_below_stdout_does_not_hide_that_the_change_was_made(
    by_wire: Klamm, topic_name: str, tmp_path: Path
) -> None:
    def onto_a_full_disk(*words: str) -> tuple[int, list[str]]:
        with Path("/dev/full").open("wb") as full:
            ran = subprocess.run(
                [PROGRAM, *words, *by_wire.where],
                stdout=full, stderr=subprocess.PIPE, env=environment(tmp_path), check=False, timeout=60,
            )  # fmt: skip
        return ran.returncode, ran.stderr.decode().splitlines()

    said = "error: no space left on device: stdout"
    made = "hint: the change was made: only its report could not be written"
    assert onto_a_full_disk("topics", "create", topic_name) == (2, [said, made])
    assert by_wire("topics", "describe", topic_name).code == 0
    assert onto_a_full_disk("topics", "list") == (2, [said])
