"""Topics of a recorded cluster: every format, Kafka's filters, what a person sees at two widths."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml
from golden import GOLDEN, check_text
from klamm_program import in_process, klamm

pytestmark = pytest.mark.usefixtures("own_folder")

Recorded = Callable[[str], str]
Capture = pytest.CaptureFixture[str]


def test_json_has_what_the_contract_says(recorded: Recorded, capsys: Capture) -> None:
    topics = in_process(
        "topics", "describe", "move", "--zookeeper", recorded("reassignment-under-way"), "-o", "json", capture=capsys
    )
    (topic,) = topics.json
    partitions = topic.pop("partitions")
    assert topic == {
        "topic": "move",
        "topic_id": "C-R1OLrYS4eZEio_cOxPaw",
        "partition_count": 2,
        "replication_factor": 3,
        "internal": False,
        "configs": {
            "follower.replication.throttled.replicas": "0:2,1:0",
            "leader.replication.throttled.replicas": "0:0,0:1,1:1,1:2",
        },
        "marked_for_deletion": False,
    }
    assert partitions[0] == {
        "partition": 0,
        "leader": 0,
        "replicas": [1, 2, 0],
        "isr": [0, 1],
        "osr": [2],
        "adding_replicas": [2],
        "removing_replicas": [0],
        "leader_epoch": 1,
        "zk_version": 1,
    }


def test_all_formats_tell_the_same(recorded: Recorded, capsys: Capture) -> None:
    words = ("topics", "describe", "lag", "--zookeeper", recorded("leaderless"))
    document = in_process(*words, "-o", "json", capture=capsys).json
    assert yaml.safe_load(in_process(*words, "-o", "yaml", capture=capsys).out) == document
    lines = in_process(*words, "-o", "jsonl", capture=capsys).out.splitlines()
    assert [json.loads(line) for line in lines] == document
    plain = in_process(*words, "-o", "plain", capture=capsys).rows
    assert plain == [
        ["lag", "0", "0", "0,2", "0,2", "-", "-", "-", "0", "2"],
        ["lag", "1", "-1", "1,2", "1", "2", "-", "-", "1", "2"],
    ]
    rows = list(csv.DictReader(io.StringIO(in_process(*words, "-o", "csv", capture=capsys).out)))
    assert rows[1]["leader"] == "-1"
    assert rows[1]["osr"] == "2"
    assert rows[0]["adding_replicas"] == ""


FILTERS = {
    "--under-replicated-partitions": ["move-0", "t1-0", "t1-1", "t1-2", "t1-3", "t1-4"],
    "--unavailable-partitions": ["lag-1"],
    # min.insync.replicas is 2 for t1, 1 for the others.
    "--under-min-isr-partitions": ["lag-1"],
    "--at-min-isr-partitions": ["lag-1", "move-0", "t1-0", "t1-1", "t1-2", "t1-3", "t1-4"],
}


@pytest.mark.parametrize("option", FILTERS)
def test_filters(recorded: Recorded, capsys: Capture, option: str) -> None:
    ran = in_process("topics", "describe", option, "--zookeeper", recorded("leaderless"), capture=capsys)
    names = [f"{row[0]}-{row[1]}" for row in ran.rows]
    # One replica of lag-1 is in sync, and it is the wanted one: under-replicated too.
    wanted = sorted(["lag-1", *FILTERS[option]]) if option == "--under-replicated-partitions" else FILTERS[option]
    assert names == wanted


def test_overrides_only(recorded: Recorded, capsys: Capture) -> None:
    ran = in_process(
        "topics", "describe", "--topics-with-overrides", "--zookeeper", recorded("leaderless"), capture=capsys
    )
    assert ran.rows == [["t1", "5", "3", "min.insync.replicas=2"]]


def test_a_topic_by_its_id(recorded: Recorded, capsys: Capture) -> None:
    where = ("--zookeeper", recorded("leaderless"))
    ran = in_process("topics", "describe", "--topic-id", "sVcPyRJQSayrfUSsdlAxyA", *where, "-o", "json", capture=capsys)
    assert [topic["topic"] for topic in ran.json] == ["lag"]
    ran = in_process("topics", "describe", "--topic-id", "AAAAAAAAAAAAAAAAAAAAAQ", *where, capture=capsys)
    assert (ran.code, ran.err.splitlines()[0]) == (2, "error: no topic has the id 'AAAAAAAAAAAAAAAAAAAAAQ'")
    assert in_process("topics", "describe", "--topic-id", "zz", *where, capture=capsys).code == 2


def test_listing(recorded: Recorded, capsys: Capture) -> None:
    where = ("--zookeeper", recorded("deletion-waits"))
    assert in_process("topics", "list", *where, capture=capsys).rows == [["lag"], ["move"], ["t1"]]
    assert in_process("topics", "list", "m.*|t1", *where, capture=capsys).rows == [["move"], ["t1"]]
    topics = in_process("topics", "list", *where, "-o", "json", capture=capsys).json
    assert topics[0] == {
        "topic": "lag",
        "internal": False,
        "marked_for_deletion": True,
        "partition_count": 2,
        "replication_factor": 2,
        "size_bytes": None,
    }
    table = in_process("topics", "list", *where, "-o", "table", capture=capsys).out
    assert "marked for deletion" in table


def test_kafkas_own_words_work(recorded: Recorded, capsys: Capture) -> None:
    where = ("--zookeeper", recorded("leaderless"))
    expected = in_process("topics", "describe", "lag", *where, "-o", "kafka", capture=capsys).out
    assert expected.startswith("Topic: lag\t")
    for words in (
        ["kafka-topics", "--describe", "--topic", "lag", *where],
        ["kafka-topics.sh", *where, "--topic", "lag", "--describe"],
        ["topic", "describe", "--topic", "lag", *where, "-o", "kafka"],
    ):
        assert in_process(*words, capture=capsys).out == expected


@pytest.mark.parametrize(
    ("words", "message"),
    [
        (["describe", "absent"], "error: topic 'absent' does not exist"),
        (["describe", "absent", "lag"], "error: topic 'absent' does not exist"),
        (["describe", "x.*y"], "error: topic 'x.*y' does not exist"),
        (
            ["describe", "la*"],
            "error: topic 'la*' does not exist\nhint: patterns are regular expressions, such as 'la.*'; ",
        ),
        (["describe", "*"], "error: neither a topic's name nor a regular expression"),
        (["describe", "lags"], "error: topic 'lags' does not exist\nhint: did you mean lag? list the topics with: "),
        (["delete", "lags", "--yes"], "error: topic 'lags' does not exist\nhint: did you mean lag? "),
        (["describe", "a["], "error: neither a topic's name nor a regular expression"),
        (["describe", "--topics-with-overrides", "--unavailable-partitions"], "error: --topics-with-overrides cannot"),
    ],
)
def test_what_is_not_there_is_code_2(recorded: Recorded, capsys: Capture, words: list[str], message: str) -> None:
    ran = in_process("topics", *words, "--zookeeper", recorded("leaderless"), capture=capsys)
    assert (ran.code, ran.out) == (2, "")
    assert ran.err.startswith(message)


@pytest.mark.parametrize("text", ["manual", "man.*"])
def test_moves_are_generated_for_topics_by_name_and_pattern(recorded: Recorded, capsys: Capture, text: str) -> None:
    where = ("--zookeeper", recorded("reassignment-under-way"), "-o", "json")
    ran = in_process("reassign", "generate", text, "--broker-list", "0,2", *where, capture=capsys)
    moved = ran.json["proposed"]["partitions"]
    assert (ran.code, {row["topic"] for row in moved}) == (0, {"manual"}), ran.err
    assert all(set(row["replicas"]) <= {0, 2} for row in moved)


def test_a_dry_run_of_a_demotion_says_who_is_dead(recorded: Recorded, capsys: Capture) -> None:
    words = ("brokers", "demote", "1", "--dry-run", "--zookeeper", recorded("leaderless"))
    ran = in_process(*words, capture=capsys)
    assert ran.err.startswith("warning: broker 1 is not alive\n"), ran.err


def test_if_exists(recorded: Recorded, capsys: Capture) -> None:
    ran = in_process(
        "topics", "describe", "absent", "--if-exists", "--zookeeper", recorded("leaderless"), capture=capsys
    )
    assert (ran.code, ran.out, ran.err) == (0, "", "no topics\n")


def test_a_snapshot_reads_the_same_offline(recorded: Recorded, tmp_path: Path, capsys: Capture) -> None:
    where = ("--zookeeper", recorded("leaderless"))
    ran = in_process("cluster", "snapshot", "s.json", *where, capture=capsys)
    assert (ran.code, ran.err) == (0, "wrote s.json: 2 brokers, 3 topics, 9 partitions\n")
    for words in (
        ["topics", "describe"],
        ["topics", "list"],
        ["topics", "describe", "--under-min-isr-partitions"],
        ["brokers", "list"],
    ):
        live = in_process(*words, *where, "-o", "json", capture=capsys)
        assert in_process(*words, "--snapshot", "s.json", "-o", "json", capture=capsys).json == live.json
    ran = in_process("topics", "delete", "lag", "--yes", "--snapshot", "s.json", capture=capsys)
    assert (ran.code, ran.err) == (2, "error: a snapshot cannot be changed: s.json\n")


@pytest.mark.parametrize("width", [80, 140])
@pytest.mark.parametrize("scene", ["reassignment-under-way", "leaderless"])
def test_what_a_person_sees(recorded: Recorded, tmp_path: Path, scene: str, width: int) -> None:
    words = ("topics", "describe", "move|lag|t1", "--zookeeper", recorded(scene), "-o", "table")
    ran = klamm(*words, folder=tmp_path, env={"COLUMNS": str(width)})
    assert ran.code == 0
    check_text(GOLDEN / f"topics-describe-{scene}-{width}.txt", ran.out)
    assert all(len(line) <= width for line in ran.out.splitlines())
