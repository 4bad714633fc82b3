"""A topic with unreadable znodes: the command reports it, and still shows the others."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest
from klamm_program import in_process, klamm
from znode_trees import load_tree
from znode_writer import znode_writer

from engine.kafka.zk.client import ZkClient

Capture = pytest.CaptureFixture[str]
NOTHING_BUT = "cannot understand the content of /brokers/topics/lag: not JSON"


@pytest.fixture
def damaged(zk_chroot: str) -> str:
    """Return the address of the recorded cluster, in which the znode of topic ``lag`` is overwritten."""

    async def damage() -> None:
        await load_tree(zk_chroot, "leaderless")
        async with await ZkClient.connect(zk_chroot, session_timeout_ms=10_000) as zk:
            await zk.set("/brokers/topics/lag", b"not json", -1)

    asyncio.run(damage())
    return zk_chroot


def test_the_other_topics_are_described_and_this_one_is_told(damaged: str, capsys: Capture) -> None:
    ran = in_process("topics", "describe", "--zookeeper", damaged, "-o", "json", capture=capsys)
    topics = {topic["topic"] for topic in json.loads(ran.out)}
    assert topics
    assert "lag" not in topics
    assert ran.err.startswith(f"warning: {NOTHING_BUT}")


def test_who_names_it_gets_an_error(damaged: str, capsys: Capture) -> None:
    ran = in_process("topics", "describe", "lag", "--zookeeper", damaged, capture=capsys)
    assert (ran.code, ran.out) == (1, "")
    assert NOTHING_BUT in ran.err
    assert "hint: look at it: klamm zk get /brokers/topics/lag --raw" in ran.err


def test_health_is_critical_for_it_and_goes_on(damaged: str, capsys: Capture) -> None:
    ran = in_process("cluster", "health", "--zookeeper", damaged, "-o", "json", capture=capsys)
    reasons = {reason["check"]: reason for reason in json.loads(ran.out)["reasons"]}
    assert ran.code == 1
    assert reasons["unreadable_topics"]["severity"] == "critical"
    assert reasons["unreadable_topics"]["examples"][0].startswith(NOTHING_BUT)
    assert len(reasons) > 1


def test_what_the_engine_logs_is_a_warning_said_once(damaged: str, tmp_path: Path) -> None:
    move = {"topic": "fresh", "partition": 0, "replicas": [0, 1]}
    plan = tmp_path / "plan.json"
    plan.write_text(json.dumps({"version": 1, "partitions": [move]}))
    ran = klamm("reassign", "verify", "--reassignment-json-file", plan, "--zookeeper", damaged, folder=tmp_path)
    warnings = [line for line in ran.err.splitlines() if NOTHING_BUT in line]
    assert any("Leaving out a topic" in line for line in warnings), ran.err
    assert all(line.startswith("warning: ") for line in warnings)
    assert len(set(warnings)) == len(warnings)


def test_all_leaders_can_be_elected_but_its_own(damaged: str, capsys: Capture) -> None:
    words = ("elect", "preferred", "--all-topic-partitions", "--dry-run", "--zookeeper", damaged)
    ran = in_process(*words, capture=capsys)
    assert "lag" not in ran.out
    assert NOTHING_BUT in ran.err


@pytest.mark.parametrize(("data", "configs"), [(b"null", {}), (b'"text"', {}), (b'{"config":', None)])
def test_settings_that_are_not_there_or_not_readable_hide_no_topic(
    zk_chroot: str, capsys: Capture, data: bytes, configs: object
) -> None:
    """What Kafka reads as no settings is that here, too, and can be repaired; the rest is unknown, and told."""

    async def damage() -> None:
        await load_tree(zk_chroot, "leaderless")
        async with await ZkClient.connect(zk_chroot, session_timeout_ms=10_000) as zk:
            await zk.set("/config/topics/lag", data, -1)

    asyncio.run(damage())
    ran = in_process("topics", "describe", "--zookeeper", zk_chroot, "-o", "json", capture=capsys)
    by_topic = {topic["topic"]: topic["configs"] for topic in json.loads(ran.out)}
    assert by_topic["lag"] == configs
    assert ("cannot understand the content of /config/topics/lag" in ran.err) == (configs is None)
    named = in_process("topics", "describe", "lag", "--zookeeper", zk_chroot, "-o", "json", capture=capsys)
    (described,) = named.json
    assert (named.code, described["configs"]) == (1 if configs is None else 0, configs)
    assert [partition["replicas"] for partition in described["partitions"]], "leaders and replicas are known"
    assert ("cannot understand the content of /config/topics/lag" in named.err) == (configs is None)
    if configs is None:
        shown = in_process("configs", "describe", "--topic", "lag", "--zookeeper", zk_chroot, capture=capsys)
        assert shown.code == 1 and "with a change that is made --via wire" in shown.err
    else:
        where = ("--zookeeper", zk_chroot, "--via", "zookeeper")
        added = in_process(
            "configs", "alter", "--topic", "lag", "--add-config", "retention.ms=5000", *where, "--yes", capture=capsys
        )
        assert added.code == 0, added.err
        ran = in_process("configs", "describe", "--topic", "lag", *where, "-o", "json", capture=capsys)
        assert "retention.ms" in ran.out


@pytest.mark.parametrize("broker", ["0", "<default>"])
def test_settings_of_a_broker_that_are_not_readable_hide_nothing_else(
    zk_chroot: str, capsys: Capture, tmp_path: Path, broker: str
) -> None:
    """Health, snapshots and the list of settings ended at the damaged znode."""

    asyncio.run(load_tree(zk_chroot, "leaderless"))
    with znode_writer(zk_chroot) as write:
        write({"/config/brokers/0": b'{"version":1,"config":{"log.cleaner.threads":"1"}}'}, False)
        write({f"/config/brokers/{broker}": b"damaged"}, False)
    complaint = f"cannot understand the content of /config/brokers/{broker}: not JSON"
    where = ("--zookeeper", zk_chroot)
    listed = in_process("configs", "describe", "--entity-type", "brokers", *where, "-o", "json", capture=capsys)
    entries = {entry["entity_name"]: entry for entry in json.loads(listed.out)}
    name = None if broker == "<default>" else broker
    assert (listed.code, entries[name]["configs"]) == (1, []) and complaint in entries[name]["error"]
    assert f"not known: brokers {broker}: {complaint}" in listed.err
    if name is None:
        assert [config["value"] for config in entries["0"]["configs"]] == ["1"]
    health = in_process("cluster", "health", *where, "-o", "json", capture=capsys)
    assert json.loads(health.out)["reasons"] and complaint in health.err
    taken = in_process("cluster", "snapshot", tmp_path / "s.json", *where, capture=capsys)
    assert (taken.code, complaint in taken.err) == (0, True)
