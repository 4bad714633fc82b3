"""The operator's story of groups on Apache Kafka 3.9.1, compared field by field with Kafka's own tool."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

import group_story
import pytest
from group_members import commit
from group_story import Stage
from kafka_cluster import kafka_cluster
from kafka_tools import run_tool
from klamm_program import in_process
from znode_writer import znode_writer

from engine.local.zookeeper import EmbeddedZooKeeper

TOOL = "org.apache.kafka.tools.consumer.group.ConsumerGroupCommand"
Capture = pytest.CaptureFixture[str]


@pytest.fixture(scope="module")
def kafka(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Two Kafka brokers that share the groups; their addresses, and ZooKeeper's."""
    settings = {"group.min.session.timeout.ms": "1000", "auto.create.topics.enable": "false"}
    with kafka_cluster(tmp_path_factory.mktemp("groups-on-kafka"), 2, 21192, settings, zookeeper=zookeeper) as running:
        yield running.bootstrap, running.zookeeper


@pytest.fixture
def stage(kafka: tuple[str, str], capsys: Capture, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Stage:
    monkeypatch.chdir(tmp_path)
    return Stage(*kafka, lambda *words: in_process(*words, capture=capsys), tmp_path)


def said_by_theirs(stage: Stage, *words: str) -> str:
    """Run Kafka's tool and return its output. It gets a long time-out: its 5 s are too short on a loaded machine."""
    ran = run_tool(TOOL, "--bootstrap-server", stage.servers, "--timeout", "60000", *words)
    assert "Error:" not in ran.stdout, ran.stdout
    return ran.stdout


def theirs(stage: Stage, *words: str) -> list[list[str]]:
    """Run Kafka's tool, and return its output as lines of words."""
    return [re.split(r" +", line.strip()) for line in said_by_theirs(stage, *words).splitlines() if line.strip()]


def compare(stage: Stage, group: str, topic: str) -> None:
    """Look at a group through both tools: klamm has the value of every column of Kafka's."""
    header, *rows = theirs(stage, "--describe", "--group", group)
    assert header == ["GROUP", "TOPIC", "PARTITION", "CURRENT-OFFSET", "LOG-END-OFFSET", "LAG", "CONSUMER-ID", "HOST",
                      "CLIENT-ID"]  # fmt: skip
    ours = [[*row[:7], *row[8:10]] for row in stage.run("groups", "describe", group).rows]
    assert sorted(rows) == sorted(ours)

    header, *rows = theirs(stage, "--describe", "--group", group, "--members")
    members = stage.run("groups", "describe", group, "--members").rows
    ours = [[cell for cell in row[:6] if cell != "-"] for row in members]
    assert header[:3] == ["GROUP", "CONSUMER-ID", "GROUP-INSTANCE-ID"]
    assert sorted(rows) == sorted(ours)

    _, (*named, strategy, state, count) = theirs(stage, "--describe", "--group", group, "--state")
    (row,) = stage.run("groups", "describe", group, "--state").rows
    assert (named, strategy, state, count) == ([row[0], *row[2].split(" ")], row[3], row[4], row[5])

    for words in (["--list", "--state", "Stable,Empty"], ["--list", "--type"]):
        ours = [line.split() for line in stage.run("kafka-consumer-groups", *words).out.splitlines()]
        assert sorted(theirs(stage, *words)) == sorted(ours), words


def test_a_group_with_members_as_both_tools_see_it(stage: Stage) -> None:
    group_story.a_group_with_members(stage, lambda group, topic: compare(stage, group, topic))


def test_every_reset(stage: Stage) -> None:
    group_story.every_reset(stage)


def test_several_groups_at_once(stage: Stage) -> None:
    group_story.several_groups_at_once(stage)


def test_groups_in_zookeeper(stage: Stage) -> None:
    with znode_writer(stage.zookeeper) as write:
        group_story.groups_in_zookeeper(stage, write)


def test_an_old_client_goes_on_where_a_reset_says(stage: Stage) -> None:
    group_story.an_old_client_goes_on_where_a_reset_says(stage)


def test_bad_input(stage: Stage) -> None:
    group_story.bad_input(stage)


def test_both_tools_plan_the_same_and_read_each_others_files(stage: Stage) -> None:
    topic, group = stage.new_topic(), stage.new_group()
    commit(stage.servers, group, {(topic, 0): 4, (topic, 1): 5, (topic, 2): 6})
    export = ("--reset-offsets", "--group", group, "--dry-run", "--export")
    for words in (
        ["--all-topics", "--shift-by", "-5"],
        ["--topic", f"{topic}:0,2", "--to-offset", "99"],
    ):
        lines = said_by_theirs(stage, *export, *words)
        ours = stage.run("kafka-consumer-groups", *export, *words).out
        assert sorted(lines.split()) == sorted(ours.split()) != [], words
    mine, file = stage.folder / "mine.csv", stage.folder / "file.csv"
    mine.write_text(stage.run("kafka-consumer-groups", *export, "--all-topics", "--to-earliest").out)
    assert theirs(stage, "--reset-offsets", "--group", group, "--from-file", str(mine), "--execute")
    assert set(stage.offsets(group).values()) == {0}
    file.write_text(said_by_theirs(stage, *export, "--all-topics", "--to-latest"))
    done = stage.run("groups", "reset-offsets", "--group", group, "--from-file", file, "--execute", "--yes")
    assert done.code == 0, done.err
    assert set(stage.offsets(group).values()) == {10}
