"""What an operator does with groups, written once: the tests play it on our engine and on Apache Kafka.

Everything goes through the program. Members and commits come from real clients.
"""

from __future__ import annotations

import csv
import io
import json
import uuid
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from group_members import commit, fill, kafka_python_member, librdkafka_member
from klamm_program import Ran
from patience import wait_for
from wire_client import WireClient
from znode_writer import Write

from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.offset_fetch import OffsetFetchRequest, OffsetFetchRequestTopic

PARTITIONS = 3
EACH = 10


@dataclass(frozen=True)
class Stage:
    """A cluster, and the program on the wire; ``run_on_both`` also names its ZooKeeper."""

    servers: str
    zookeeper: str
    run_words: Callable[..., Ran]
    folder: Path

    def run(self, *words: str | Path) -> Ran:
        return self.run_words(*words, "--bootstrap-server", self.servers)

    def run_on_both(self, *words: str | Path) -> Ran:
        return self.run_words(*words, "--bootstrap-server", self.servers, "--zookeeper", self.zookeeper)

    def run_on_zookeeper(self, *words: str | Path) -> Ran:
        return self.run_words(*words, "--zookeeper", self.zookeeper)

    def new_topic(self) -> str:
        """Create a topic with ten records in each of its three partitions."""
        topic = f"t-{uuid.uuid4().hex[:8]}"
        made = self.run("topics", "create", topic, "--partitions", str(PARTITIONS), "--replication-factor", "1")
        assert made.code == 0, made.err
        fill(self.servers, topic, PARTITIONS, EACH)
        return topic

    def new_group(self) -> str:
        return f"g-{uuid.uuid4().hex[:8]}"

    def offsets(self, group: str, side: Callable[..., Ran] | None = None) -> dict[tuple[str, int], int | None]:
        """Return what a group has committed, as ``describe`` shows it."""
        ran = (side or self.run)("groups", "describe", group, "-o", "json")
        assert ran.code == 0, ran.err
        (row,) = ran.json
        return {
            (partition["topic"], partition["partition"]): partition["current_offset"] for partition in row["partitions"]
        }

    def describe(self, group: str, *words: str) -> Any:
        ran = self.run("groups", "describe", group, *words, "-o", "json")
        assert ran.code == 0, ran.err
        return ran.json[0]


def a_group_with_members(stage: Stage, look: Callable[[str, str], None] = lambda group, topic: None) -> None:
    """Two members share a topic. ``describe`` lists them, changes are refused with their names, and then they leave.

    ``look`` is called with group and topic while both are there and everything is read.
    """
    topic, group = stage.new_topic(), stage.new_group()

    def all_read() -> bool:
        ran = stage.run("groups", "describe", group, "-o", "json")
        partitions = ran.json[0]["partitions"] if ran.code == 0 and ran.json else []
        owners = {partition["consumer_id"] for partition in partitions}
        return len(owners - {None}) == 2 and {partition["lag"] for partition in partitions} == {0}

    with librdkafka_member(stage.servers, topic, group, instance="node-2"):
        with kafka_python_member(stage.servers, topic, group):
            wait_for(all_read, "two members that have read everything")
            _members_are_told(stage, topic, group)
            _changes_are_refused(stage, topic, group)
            look(group, topic)
        wait_for(lambda: stage.describe(group, "--state")["member_count"] == 1, "one member left")
        assert stage.describe(group, "--members")["members"][0]["group_instance_id"] == "node-2"
    wait_for(lambda: stage.describe(group, "--state")["state"] == "Empty", "the static member's session ended")
    empty = stage.run("groups", "describe", group)
    assert (empty.code, empty.err) == (0, f"consumer group '{group}' has no active members\n")
    assert [row[:6] for row in empty.rows] == [[group, topic, str(p), "10", "10", "0"] for p in range(PARTITIONS)]
    assert {tuple(row[6:]) for row in empty.rows} == {("-",) * 5}


def _members_are_told(stage: Stage, topic: str, group: str) -> None:
    description = stage.describe(group)
    assert (description["state"], description["type"], description["protocol_type"]) == (
        "Stable",
        "classic",
        "consumer",
    )
    assert (description["assignment_strategy"], description["member_count"], description["error"]) == ("range", 2, None)
    assert description["coordinator"]["port"] in {
        int(address.rpartition(":")[2]) for address in stage.servers.split(",")
    }
    rows = description["partitions"]
    assert [(row["topic"], row["partition"]) for row in rows] == [(topic, index) for index in range(PARTITIONS)]
    assert {(row["current_offset"], row["log_end_offset"], row["lag"]) for row in rows} == {(EACH, EACH, 0)}
    assert {row["client_id"] for row in rows} == {"app-of-node-2", "app-py"}

    members = {member["client_id"]: member for member in stage.describe(group, "--members")["members"]}
    assert members["app-of-node-2"]["group_instance_id"] == "node-2"
    assert members["app-py"]["group_instance_id"] is None
    owned = sorted(
        index
        for member in members.values()
        for assigned in member["assignment"]
        for index in assigned["partitions"]
        if assigned["topic"] == topic
    )
    assert owned == list(range(PARTITIONS))
    assert {member["partition_count"] for member in members.values()} == {1, 2}
    assert group in {row[0] for row in stage.run("groups", "list").rows}
    assert [group, "Stable"] in stage.run("groups", "list", "--state").rows
    as_kafka = stage.run("kafka-consumer-groups", "--list", "--type").out.splitlines()
    assert [group, "Classic"] in [line.split() for line in as_kafka]
    assert group not in stage.run("groups", "list", "--state", "empty,dead").out
    assert group not in stage.run("groups", "list", "--type", "consumer").out


def _changes_are_refused(stage: Stage, topic: str, group: str) -> None:
    before = stage.offsets(group)
    reset = ("reset-offsets", "--group", group, "--all-topics", "--to-earliest")
    for words in ([*reset], [*reset, "--execute", "--yes"], ["delete", group, "--yes"], ["delete", group, "--dry-run"]):
        refused = stage.run("groups", *words)
        assert refused.code == 4, refused
        first = refused.err.splitlines()[0]
        assert "the group is Stable, with 2 members: " in first
        assert "(app-py at /" in first
        assert "(app-of-node-2 at /" in first
        assert "NON_EMPTY_GROUP" in first
        assert "hint: stop its consumers first" in refused.err
    as_json = stage.run("groups", "delete", group, "--yes", "-o", "json")
    assert as_json.error["kafka_error"] == "NON_EMPTY_GROUP"
    assert [(row["group"], row["result"]) for row in as_json.json] == [(group, "failed")]
    for go in ("--dry-run", "--yes"):
        gone = stage.run("groups", "delete-offsets", "--group", group, "--topic", topic, go, "-o", "json")
        assert (gone.code, {row["result"] for row in gone.json}) == (4, {"failed"})
        assert gone.error["kafka_error"] == "GROUP_SUBSCRIBED_TO_TOPIC"
        assert len(gone.err.splitlines()) == 1, "one reason is told once"
    assert stage.offsets(group) == before


def every_reset(stage: Stage) -> None:
    """Every scenario, dry and carried out, with the exported ranges, and the rollback."""
    topic, group = stage.new_topic(), stage.new_group()
    commit(stage.servers, group, {(topic, 0): 4, (topic, 1): 5})
    description = stage.describe(group)
    assert (description["state"], description["protocol_type"], description["member_count"]) == ("Empty", None, 0)

    def planned(*words: str | Path, code: int = 0) -> tuple[list[int], str]:
        ran = stage.run("groups", "reset-offsets", "--group", group, *words, "-o", "json")
        assert ran.code == code, ran
        assert {row["result"] for row in ran.json} <= {"would_be_reset"}
        return [row["new_offset"] for row in ran.json], ran.err

    all_of_it, committed = ("--topic", topic), ("--all-topics",)
    assert planned(*all_of_it, "--to-earliest")[0] == [0, 0, 0]
    assert planned(*all_of_it, "--to-latest")[0] == [10, 10, 10]
    assert planned(*committed, "--to-latest")[0] == [10, 10], "what it has committed, no more"
    assert planned(*all_of_it, "--to-current")[0] == [4, 5, 10], "its end where nothing is committed"
    assert planned(*all_of_it, "--to-offset", "3")[0] == [3, 3, 3]
    assert planned("--topic", f"{topic}:2,0", "--to-offset", "3")[0] == [3, 3]
    assert planned(*committed, "--shift-by", "-2")[0] == [2, 3]
    assert planned(*all_of_it, "--to-datetime", "2020-01-01T00:00:00.000")[0] == [0, 0, 0]
    assert planned(*all_of_it, "--to-datetime", "2020-01-01T00:00:00.000+02:00")[0] == [0, 0, 0]
    assert planned(*all_of_it, "--by-duration", "PT1H")[0] == [0, 0, 0]

    offsets, said = planned(*all_of_it, "--to-datetime", "2090-01-01T00:00:00.000")
    assert (offsets, said.count("no record that late")) == ([10, 10, 10], 3)
    offsets, said = planned(*all_of_it, "--to-offset", "99999")
    assert (offsets, said.count("new offset 99999 is higher than the latest")) == ([10, 10, 10], 3)
    offsets, said = planned(*committed, "--shift-by", "-1000")
    assert offsets == [0, 0]
    assert f"new offset -996 is lower than the earliest of partition {topic}-0; using 0" in said
    assert "nothing was changed: add --execute to do it" in said
    assert stage.offsets(group) == {(topic, 0): 4, (topic, 1): 5}, "dry runs change nothing"

    offsets, said = planned(*all_of_it, "--shift-by", "1", code=2)
    assert (offsets, f"no offset is committed that could be shifted: group {group}, partition {topic}-2" in said) == (
        [], True,
    )  # fmt: skip
    assert "using" not in planned(*all_of_it, "--shift-by", "1000", code=2)[1], "nothing is reset"
    _there_and_back(stage, topic, group)


def _there_and_back(stage: Stage, topic: str, group: str) -> None:
    way_back = stage.folder / f"{group}.csv"
    words = ("groups", "reset-offsets", "--group", group, "--topic", topic, "--to-offset", "7", "--execute", "--yes")
    done = stage.run(*words, "--rollback-file", way_back, "-o", "json")
    assert (done.code, {row["result"] for row in done.json}) == (0, {"reset"}), done.err
    assert [(row["current_offset"], row["new_offset"]) for row in done.json] == [(4, 7), (5, 7), (None, 7)]
    go_back = f"delete what is set now: klamm groups delete-offsets --group {group} --topic {topic}:2"
    assert f"1 partition had no offset before; to go back, {go_back}" in done.err
    assert stage.offsets(group) == {(topic, index): 7 for index in range(PARTITIONS)}
    assert way_back.read_text() == f"{topic},0,4\n{topic},1,5\n"

    again = stage.run(*words, "--rollback-file", way_back)
    assert (again.code, "file exists" in again.err) == (2, True), "a way back is never overwritten"

    back = stage.run("groups", "reset-offsets", "--group", group, "--from-file", way_back, "--execute", "--yes",
                     "--rollback-file", stage.folder / f"{group}-2.csv")  # fmt: skip
    assert back.code == 0, back.err
    assert stage.offsets(group) == {(topic, 0): 4, (topic, 1): 5, (topic, 2): 7}
    last = stage.run("groups", "delete-offsets", "--group", group, "--topic", f"{topic}:2", "--yes", "-o", "json")
    assert (last.code, [(row["offset"], row["result"]) for row in last.json]) == (0, [(7, "deleted")])
    assert stage.offsets(group) == {(topic, 0): 4, (topic, 1): 5}
    none_left = stage.run("groups", "delete-offsets", group, "--topic", f"{topic}:2,1", "--dry-run")
    assert [row[4] for row in none_left.rows] == ["would_be_deleted", "nothing_committed"]


def several_groups_at_once(stage: Stage) -> None:
    """Offsets of several groups are exported to one file and imported from it; then the groups are deleted."""
    topic, first, second = stage.new_topic(), stage.new_group(), stage.new_group()
    new = ("groups", "reset-offsets", "--group", first, "--group", second, "--topic", topic)
    made = stage.run(*new, "--to-latest", "--execute", "--yes")
    assert (made.code, made.err.count("does not exist yet")) == (0, 2), made.err

    exported = stage.run("kafka-consumer-groups", "--reset-offsets", "--group", first, "--group", second,
                         "--all-topics", "--to-current", "--export", "--dry-run")  # fmt: skip
    # Like Kafka's tool, it ends with an empty line.
    lines = [line for line in csv.reader(io.StringIO(exported.out)) if line]
    assert sorted(lines) == [[g, topic, str(p), "10"] for g in sorted((first, second)) for p in range(PARTITIONS)]
    file = stage.folder / f"{first}-both.csv"
    file.write_text(exported.out.replace(",10\n", ",3\n"))
    done = stage.run("groups", "reset-offsets", "--all-groups", "--from-file", file, "--execute", "--yes",
                     "--rollback-file", stage.folder / f"{first}-back.csv")  # fmt: skip
    assert done.code == 0, done.err
    assert set(stage.offsets(first).values()) == set(stage.offsets(second).values()) == {3}
    back = stage.folder / f"{first}-back.csv"
    assert sorted(back.read_text().splitlines()) == sorted(exported.out.split())

    described = stage.run("groups", "describe", first, second, "absent", "-o", "json")
    assert (described.code, sorted(group["group"] for group in described.json)) == (2, sorted((first, second)))
    assert json.loads(described.err.splitlines()[0])["error"]["message"] == "consumer group 'absent' does not exist"
    dry = stage.run("groups", "delete", first, second, "--dry-run")
    assert (dry.code, [row[2] for row in dry.rows]) == (0, ["would_be_deleted"] * 2)
    assert stage.run("groups", "delete", first).code == 2, "nobody can be asked, and --yes was not given"
    gone = stage.run("groups", "delete", first, second, "absent", "--yes", "-o", "json")
    assert (gone.code, {(row["group"], row["result"]) for row in gone.json}) == (
        2,
        {(first, "deleted"), (second, "deleted")},
    )
    assert stage.run("groups", "describe", first).code == 2


def groups_in_zookeeper(stage: Stage, write: Write) -> None:
    """Groups of consumers before 0.9: listed, described, reset and deleted, but never while a member lives."""
    topic, group = stage.new_topic(), stage.new_group()
    base, member = f"/consumers/{group}", f"{group}_host-1.example-1700000000000-0a1b2c3d"
    offset = f"{base}/offsets/{topic}"
    write({f"{offset}/0": b"4", f"{offset}/1": b"six", f"{base}/offsets/deleted-topic/0": b"3"}, False)
    live = {
        f"{base}/ids/{member}": b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1700000000000"}',
        f"{base}/owners/{topic}/0": f"{member}-0".encode(),
        f"{base}/owners/{topic}/2": f"{member}-1".encode(),
    }
    write(live, True)
    _old_group_is_told(stage, topic, group, member)
    reset = ("groups", "reset-offsets", "--group", group, "--topic", topic, "--to-offset", "2", "--execute", "--yes")
    for words in ([*reset], ["groups", "delete", group, "--yes"]):
        refused = stage.run_on_both(*words)
        assert (refused.code, member in refused.err, "the group is Active" in refused.err) == (4, True, True), refused
    some = stage.run_on_both("groups", "delete-offsets", "--group", group, "--topic", f"{topic}:0", "--yes")
    assert (some.code, "a member of the group reads the topic" in some.err) == (4, True)

    write(dict.fromkeys(live, b""), True)
    listed = stage.run_on_both("groups", "list", "--state", "empty", "--type", "zookeeper")
    assert [group, "zookeeper", "Empty"] in listed.rows
    back = stage.folder / f"{group}-zk.csv"
    done = stage.run_on_zookeeper(*reset, "--rollback-file", back)
    assert done.code == 0, done.err
    assert back.read_text() == f"{topic},0,4\n"
    offsets = stage.offsets(group, stage.run_on_zookeeper)
    assert offsets == {("deleted-topic", 0): 3, (topic, 0): 2, (topic, 1): 2, (topic, 2): 2}
    assert stage.run_on_zookeeper("zk", "get", f"{offset}/2", "--raw", "-o", "json").json["data"] == "2"
    latest = stage.run_on_both("groups", "reset-offsets", "--group", group, "--all-topics", "--to-latest")
    assert [row[4] for row in latest.rows] == ["10", "10", "10"]
    assert "deleted-topic-0 does not exist any more; its offset is left alone" in latest.err
    gone = stage.run_on_both("groups", "delete-offsets", "--group", group, "--topic", "deleted-topic", "--yes")
    assert (gone.code, gone.rows[0][3:5]) == (0, ["3", "deleted"]), gone.err
    _old_group_beside_a_new_one(stage, topic, group)


def an_old_client_goes_on_where_a_reset_says(stage: Stage) -> None:
    """A client of Kafka 0.8.1 commits (version 0: into ZooKeeper), is reset, and reads its offset back."""
    topic, group = stage.new_topic(), stage.new_group()
    with WireClient(stage.servers.partition(",")[0]) as client:
        own = OffsetCommitRequestPartition(partition_index=1, committed_offset=3, committed_metadata="")
        wanted = OffsetCommitRequest(group_id=group, topics=[OffsetCommitRequestTopic(name=topic, partitions=[own])])
        answer = client.ask(wanted, 0)
        assert answer.topics[0].partitions[0].error_code == 0
        assert stage.run_on_zookeeper("groups", "describe", group).rows[0][:6] == [group, topic, "1", "3", "10", "7"]
        reset = ("groups", "reset-offsets", "--group", group, "--all-topics", "--shift-by", "4", "--execute", "--yes")
        done = stage.run_on_zookeeper(*reset)
        assert (done.code, done.rows) == (0, [[group, topic, "1", "3", "7", "reset", "-"]]), done.err
        question = OffsetFetchRequest(
            group_id=group, topics=[OffsetFetchRequestTopic(name=topic, partition_indexes=[1])]
        )
        assert client.ask(question, 0).topics[0].partitions[0].committed_offset == 7


def _old_group_is_told(stage: Stage, topic: str, group: str, member: str) -> None:
    assert [group, "zookeeper", "Active"] in stage.run_on_both("groups", "list", "--type", "--state").rows
    assert [group, "zookeeper"] in stage.run_on_zookeeper("groups", "list", "--type", "zookeeper").rows
    assert group not in stage.run("groups", "list").out
    for side in (stage.run_on_both, stage.run_on_zookeeper):
        rows = side("groups", "describe", group).rows
        assert [row[1:7] for row in rows] == [
            ["deleted-topic", "0", "3", "-", "-", "-"],
            [topic, "0", "4", "10", "6", f"{member}-0"],
            [topic, "1", "-", "10", "-", "-"],
            [topic, "2", "-", "10", "-", f"{member}-1"],
        ]
        assert [row[8] for row in rows] == ["-", "host-1.example", "-", "host-1.example"]
        assert rows[0][10] == "the topic or partition does not exist"
        assert f"/offsets/{topic}/1" in rows[2][10], "a znode that is not a number is named"
    (answers,) = stage.run_on_both("groups", "describe", group, "--members", "-o", "json").json
    assert (answers["type"], answers["state"], answers["coordinator"], answers["member_count"]) == (
        "zookeeper",
        "Active",
        None,
        1,
    )
    assert answers["members"][0]["consumer_id"] == member
    assert answers["members"][0]["assignment"] == [{"topic": topic, "partitions": [0, 2]}]


def _old_group_beside_a_new_one(stage: Stage, topic: str, group: str) -> None:
    """A group of the same name on the brokers: both are listed, and a change must say which one it means."""
    state = ("groups", "describe", group, "--state")
    commit(stage.servers, group, {(topic, 0): 1})
    twice = stage.run_on_both("groups", "delete", group, "--yes")
    assert (twice.code, "exists both on brokers and in ZooKeeper" in twice.err) == (2, True), twice
    assert [row[1] for row in stage.run_on_both(*state).rows] == ["classic", "zookeeper"]
    deleted = stage.run_on_both("groups", "delete", group, "--yes", "--via", "zookeeper")
    assert (deleted.code, deleted.rows) == (0, [[group, "zookeeper", "deleted", "-"]]), deleted.err
    assert stage.run_on_zookeeper("zk", "get", f"/consumers/{group}").code == 2
    assert [row[1] for row in stage.run_on_both(*state).rows] == ["classic"]


def bad_input(stage: Stage) -> None:
    """Each mistake of a caller has its message and code 2, and changes nothing."""
    topic, group = stage.new_topic(), stage.new_group()
    commit(stage.servers, group, {(topic, 0): 4})
    file = stage.folder / f"{group}-bad.csv"

    def refused(*words: str | Path) -> str:
        ran = stage.run("groups", *words)
        assert (ran.code, ran.out) == (2, ""), ran
        return ran.err.splitlines()[0]

    reset = ("reset-offsets", "--group", group)
    assert refused("describe", "absent") == "error: consumer group 'absent' does not exist"
    assert refused("describe", "--group", "") == "error: the group id is empty: --group"
    assert "give --group" in refused("describe")
    assert "give --group" in refused("describe", group, "--all-groups")
    assert "at most one" in refused("describe", group, "--members", "--state")
    assert "not a group state: 'nonsense'" in refused("list", "--state", "nonsense")
    assert "not a group type: 'connect'" in refused("list", "--type", "connect")
    assert refused("delete", "absent", "--yes") == "error: consumer group 'absent' does not exist"
    assert refused(*reset, "--topic", "absent", "--to-earliest") == "error: topic 'absent' does not exist"
    assert f"partition {topic}-9 does not exist" in refused(*reset, "--topic", f"{topic}:9", "--to-earliest")
    assert "not a topic with partitions" in refused(*reset, "--topic", f"{topic}:x", "--to-earliest")
    assert "give one of --topic" in refused(*reset, "--to-earliest")
    assert "give one of --to-earliest" in refused(*reset, "--all-topics")
    assert "give one of --to-earliest" in refused(*reset, "--all-topics", "--to-earliest", "--to-latest")
    assert "give one of --execute and --dry-run" in refused(
        *reset, "--all-topics", "--to-latest", "--execute", "--dry-run"
    )
    assert "not a time: 'yesterday'" in refused(*reset, "--all-topics", "--to-datetime", "yesterday")
    assert "not a duration: 'soon'" in refused(*reset, "--all-topics", "--by-duration", "soon")
    assert "no such file" in refused(*reset, "--from-file", stage.folder / "absent.csv")
    assert "the group has committed nothing in topic 'absent'" in refused(
        "delete-offsets", "--group", group, "--topic", "absent", "--yes"
    )
    assert "'another' does not exist" in refused(
        "delete-offsets", group, "--group", "another", "--topic", topic, "--yes"
    )
    for words in (["--topic", topic], [group]):
        assert "give a group and --topic" in refused("delete-offsets", *words, "--yes")
    for text, message in (
        (f"{topic},0,x\n", "not an offset of a partition"),
        (f"{topic},0\n", "not an offset of a partition"),
        (f"{topic},0,1\n{topic},0,2\n", "occurs twice"),
        ("\n", "the file has no offsets"),
        (f"{topic},7,1\n", "does not exist"),
        (f"other,{topic},0,1\n", "the file has no offsets for the group"),
    ):
        file.write_text(text)
        assert message in refused(*reset, "--from-file", file, "--execute", "--yes"), text
    assert stage.offsets(group) == {(topic, 0): 4}
