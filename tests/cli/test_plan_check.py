"""``klamm plan check`` and ``diff`` on snapshots: findings with their lines, in the formats of code hosts."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from xml.etree import ElementTree

import pytest
from golden import Seen, check_json
from klamm_program import Ran, in_process
from plan_files import plan_of
from small_clusters import cluster

from cli.output.report import Table
from cli.views.plan_check import diff_report
from engine.common.model import BrokerInfo, ReplicaAssignment, TopicPartition
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, ReplicaLog, SnapshotSource, TopicSnapshot
from engine.common.snapshot_json import snapshot_to_json
from plans.comparing import FigureDifference, PlanDifference
from plans.options import PlanOptions, Strategy
from plans.plan_file import encode_plan
from plans.planning import make_plan

Capture = pytest.CaptureFixture[str]
T0 = TopicPartition("odd,name%", 0)
POLICY = "[limits]\nmoves = 0\n"


class Files:
    """A snapshot, a plan for it, a policy that it breaks, and commands on them."""

    def __init__(self, folder: Path, capture: Capture) -> None:
        topic = TopicSnapshot("odd,name%", (PartitionSnapshot(0, ReplicaAssignment((0, 1)), 0, (0, 1)),), b"1" * 16)
        brokers = tuple(BrokerInfo(broker, (), None) for broker in range(3))
        self.cluster = ClusterSnapshot(brokers, (topic,), SnapshotSource.ZOOKEEPER, 1, "c")
        self.snapshot, self.plan, self.policy = (
            folder / name for name in ("snapshot.json", "plan.json", "policy.toml")
        )
        self.plan.write_text(encode_plan(plan_of(self.cluster, {T0: (0, 2)})))
        self.policy.write_text(POLICY)
        self._capture = capture
        self.save(self.cluster)

    def save(self, cluster: ClusterSnapshot) -> None:
        self.snapshot.unlink(missing_ok=True)
        self.snapshot.write_text(snapshot_to_json(cluster))

    def check(self, *words: str | Path) -> Ran:
        return in_process("plan", "check", self.plan, "--snapshot", self.snapshot, *words, capture=self._capture)


@pytest.fixture
def files(tmp_path: Path, capsys: Capture) -> Files:
    return Files(tmp_path, capsys)


def test_a_plan_that_fits(files: Files) -> None:
    fits = files.check("-o", "json")
    assert (fits.code, fits.json, fits.err) == (0, [], "the plan fits the cluster\n")
    for form, empty in (("github", ""), ("gitlab", "[]\n")):
        assert (files.check("--format", form).code, files.check("--format", form).out) == (0, empty)
    assert ElementTree.fromstring(files.check("--format", "junit").out)[0].get("failures") == "0"
    markdown = files.check("--format", "markdown").out
    assert markdown.startswith(f"### Plan `{files.plan}`: fits\n")
    assert files.check("-o", "markdown").out == markdown, "as plan show, which has no other form"


def test_findings_with_file_line_and_rule(files: Files) -> None:
    ran = files.check("--policy", files.policy, "-o", "json")
    assert (ran.code, len(ran.json)) == (1, 1)
    (finding,) = ran.json
    assert (finding["file"], finding["check"], finding["rule"]) == (str(files.plan), "moves", f"{files.policy}:2")
    assert '"score":' in files.plan.read_text().splitlines()[finding["line"] - 1]


def test_github_escapes_what_has_a_meaning(files: Files) -> None:
    files.save(replace(files.cluster, topics=()))
    lines = files.check("--policy", files.policy, "--format", "github").out.splitlines()
    assert len(lines) == 3
    assert lines[0].endswith("::odd,name%25-0 does not exist any more")
    assert lines[0].startswith(f"::error file={files.plan},line=4,title=klamm plan check%3A drift::")
    assert lines[2].endswith(f"::1 move, the policy allows 0 moves (limits.moves, {files.policy}:2)")


def test_a_change_beside_the_plan_is_told_and_is_no_error(files: Files) -> None:
    files.plan.write_text(encode_plan(make_plan(files.cluster, Strategy.MOVE, PlanOptions(brokers=(0, 2))).plan))
    files.save(replace(files.cluster, topics=(*files.cluster.topics, replace(files.cluster.topics[0], name="new"))))
    ran = files.check("-o", "json")
    assert (ran.code, ran.err) == (0, "the plan fits the cluster\n")
    assert [(finding["check"], finding["severity"]) for finding in ran.json] == [("digest", "note")]
    github = files.check("--format", "github")
    assert (github.code, github.out.startswith("::notice file=")) == (0, True)
    assert files.check("--format", "gitlab").json[0]["severity"] == "info"
    (suite,) = ElementTree.fromstring(files.check("--format", "junit").out)
    (digest,) = (case for case in suite if case.get("name") == "digest")
    assert (suite.get("failures"), [line.tag for line in digest]) == ("0", ["system-out"])
    markdown = files.check("--format", "markdown").out
    assert markdown.startswith(f"### Plan `{files.plan}`: fits\n") and "| digest | note |" in markdown
    files.policy.write_text("[cluster]\nunchanged = true\n")
    strict = files.check("--policy", files.policy, "-o", "json")
    assert (strict.code, strict.json[0]["severity"], strict.json[0]["rule"]) == (1, "error", f"{files.policy}:2")


def test_a_plan_that_is_carried_out_leaves_nothing_to_do(files: Files, capsys: Capture) -> None:
    (topic,) = files.cluster.topics
    there = PartitionSnapshot(0, ReplicaAssignment((0, 2)), 0, (0, 2))
    files.save(replace(files.cluster, topics=(replace(topic, partitions=(there,)),)))
    ran = files.check("-o", "json")
    messages = [finding["message"] for finding in ran.json]
    assert (ran.code, messages) == (0, ["the plan is carried out already (1 partition)"])
    words = ("plan", "apply", files.plan, "--dry-run", "--snapshot", files.snapshot)
    applied = in_process(*words, capture=capsys)
    assert (applied.code, applied.err) == (0, "nothing to do: the plan is carried out already\n")


def changed_replicas(files: Files) -> None:
    files.plan.write_text(files.plan.read_text().replace('"replicas": [0, 2]', '"replicas": [2, 1]'))


def grown(files: Files) -> None:
    (topic,) = files.cluster.topics
    partition = PartitionSnapshot(1, ReplicaAssignment((1, 0)), 1, (1, 0))
    files.save(replace(files.cluster, topics=(replace(topic, partitions=(*topic.partitions, partition)),)))


@pytest.mark.parametrize(
    ("change", "message", "way_on"),
    [
        (
            lambda files: files.save(replace(files.cluster, cluster_id="d")),
            "this plan is for cluster c, not for d", "name the cluster that the plan was made for",
        ),
        (
            changed_replicas,
            "the partitions make 1 and 1: the file was edited by hand", "plan again with other options",
        ),
        (
            lambda files: files.save(replace(files.cluster, topics=())),
            "odd,name%-0 does not exist any more", "plan again from the cluster as it is",
        ),
        (grown, "its own partitions have not: it can be applied", "plan again from the cluster as it is"),
        (
            lambda files: files.save(replace(files.cluster, brokers=files.cluster.brokers[:2])),
            "is to go to broker 2, which is not alive", "klamm plan resume {plan}",
        ),
    ],
    ids=["another cluster", "edited", "deleted", "grown", "broker gone"],
)  # fmt: skip
def test_what_is_wrong_comes_with_what_to_do(
    files: Files, change: Callable[[Files], None], message: str, way_on: str
) -> None:
    change(files)
    ran = files.check("-o", "json")
    assert (ran.code, any(message in finding["message"] for finding in ran.json)) == (1, True), ran.out
    check_json("plan check", Seen(ran.code, ran.out, ran.err))
    hints = [finding["hint"] or "" for finding in ran.json if finding["severity"] == "error"]
    assert all(hints) and any(way_on.format(plan=files.plan) in hint for hint in hints), hints


def test_what_breaks_the_policy_comes_with_what_to_do(files: Files) -> None:
    ran = files.check("--policy", files.policy, "-o", "table")
    assert ran.code == 1
    # The cells of the table wrap. How much depends on the length of the policy's path.
    table, _, below = ran.out.partition("What to do")
    assert "moves" in table, ran.out
    assert "plan again within the policy" in " ".join(below.split()), ran.out
    for form in ("json", "plain", "csv"):
        assert "plan again within the policy" in files.check("--policy", files.policy, "-o", form).out
    assert "\nWhat to do:\n\n* plan again within" in files.check("--policy", files.policy, "--format", "markdown").out


def test_what_cannot_be_told_comes_with_what_is_missing(files: Files) -> None:
    files.policy.write_text('[log_dirs.capacity]\n"1:/data/a" = "1 GB"\n')
    ran = files.check("--policy", files.policy, "-o", "json")
    check_json("plan check", Seen(ran.code, ran.out, ran.err))
    (finding,) = ran.json
    assert (ran.code, finding["check"], finding["rule"]) == (1, "capacity", f"{files.policy}:2")
    assert "is kept is unknown" in finding["message"] and "a snapshot with sizes" in finding["hint"]


@pytest.mark.parametrize(
    ("policy", "message", "way_on"),
    [
        ('[limits]\ntime = "1s"\n', "the plan has no throttle", "plan again with --throttle, or take"),
        (
            '[log_dirs.capacity]\n"1:/data/b" = "1 GB"\n',
            "has no log dir /data/b; it has /data/a",
            "name the log dir in",
        ),
    ],
)
def test_each_lack_has_its_own_way_on(files: Files, policy: str, message: str, way_on: str) -> None:
    (topic,) = files.cluster.topics
    logs = tuple(ReplicaLog(broker, "/data/a", 10) for broker in (0, 1))
    sized = (replace(topic.partitions[0], replica_logs=logs),)
    files.save(replace(files.cluster, topics=(replace(topic, partitions=sized),)))
    files.policy.write_text(policy)
    (finding,) = files.check("--policy", files.policy, "-o", "json").json
    assert message in finding["message"] and finding["hint"].startswith(way_on), finding


def test_a_plan_that_fits_needs_nothing(files: Files) -> None:
    assert "What to do" not in files.check("-o", "table").out
    assert "What to do" not in files.check("--format", "markdown").out


def test_gitlab_gets_a_code_quality_report(files: Files) -> None:
    ran = files.check("--policy", files.policy, "--format", "gitlab")
    (entry,) = ran.json
    assert ran.code == 1
    assert (entry["check_name"], entry["severity"]) == ("klamm-plan-moves", "major")
    assert entry["location"] == {"path": str(files.plan), "lines": {"begin": entry["location"]["lines"]["begin"]}}
    again = files.check("--policy", files.policy, "--format", "gitlab").json
    assert again[0]["fingerprint"] == entry["fingerprint"] and len(entry["fingerprint"]) == 64


def test_junit_has_a_case_for_each_check(files: Files) -> None:
    ran = files.check("--policy", files.policy, "--format", "junit")
    (suite,) = ElementTree.fromstring(ran.out)
    cases = {case.get("name"): case for case in suite}
    assert (ran.code, suite.get("tests"), suite.get("failures")) == (1, str(len(cases)), "1")
    (failure,) = cases["moves"]
    assert "the policy allows 0 moves" in (failure.text or "")
    assert len(cases["drift"]) == 0


def test_markdown_shows_the_score_card_and_the_findings(files: Files) -> None:
    ran = files.check("--policy", files.policy, "--format", "markdown")
    assert ran.code == 1
    assert "`move` of 1 partition: 1 move, 0 leader changes: no plan needs fewer moves." in ran.out
    assert "| replicas, most minus fewest | 0 | 0 |" in ran.out
    assert "| moves | error | 1 move, the policy allows 0 moves" in ran.out


def test_an_unknown_key_of_a_policy_is_named_with_its_line(files: Files) -> None:
    files.policy.write_text("[limits]\nmovs = 1\n")
    ran = files.check("--policy", files.policy)
    assert (ran.code, ran.out) == (2, "")
    assert f"error: unknown key 'movs': {files.policy}:2" in ran.err
    assert "hint: known here: moves" in ran.err


def test_what_is_no_plan_is_named_with_its_place(files: Files) -> None:
    files.plan.write_text(files.plan.read_text().replace('"replicas": [0, 2]', '"replicas": [2, 2]'))
    ran = files.check()
    assert (ran.code, "partitions[0].replicas: a broker appears twice" in ran.err) == (2, True), ran.err
    assert str(files.plan) in ran.err


def test_a_person_reads_bytes_with_their_unit() -> None:
    figures = (FigureDifference("bytes", 101_284_452, None), FigureDifference("moves", 1, 19))
    report = diff_report(PlanDifference((), figures))
    body = report.sections[0].body
    assert isinstance(body, Table)
    assert body.rows == [("bytes", "101 MB", "none"), ("moves", "1", "19")]


def test_plans_are_compared(files: Files, tmp_path: Path, capsys: Capture) -> None:
    new = tmp_path / "new.json"
    new.write_text(encode_plan(plan_of(files.cluster, {T0: (1, 2)})))
    same = in_process("plan", "diff", files.plan, files.plan, "-o", "json", capture=capsys)
    assert (same.code, same.json["partitions"]) == (0, [])
    differs = in_process("plan", "diff", files.plan, new, "-o", "json", capture=capsys)
    assert differs.code == 1
    assert [(partition["change"], partition["after"]) for partition in differs.json["partitions"]] == [
        ("changed", [1, 2])
    ]
    assert differs.json["figures"] == [{"name": "leader_changes", "before": 0, "after": 1}]
    assert "1 partition and 1 figure differ\n" in differs.err


def test_a_plan_is_shown_partition_by_partition_without_a_cluster(tmp_path: Path, capsys: Capture) -> None:
    snapshot = cluster({1: None, 2: None, 3: None}, {"t": [(1, 2), (1, 2), (2, 1)]}, {"t": [1 << 20, 2 << 20, 3 << 20]})
    made = make_plan(snapshot, Strategy.DECOMMISSION, PlanOptions(brokers=(1,)))
    plan = tmp_path / "plan.json"
    plan.write_text(encode_plan(made.plan), encoding="utf-8")
    ran = in_process("plan", "show", plan, "-o", "json", capture=capsys)
    check_json("plan show", Seen(ran.code, ran.out, ran.err))
    rows = {row["partition"]: row for row in ran.json}
    assert [(row["bytes"], set(row["from"]), set(row["to"])) for row in rows.values()] == [
        (size << 20, {1, 2}, {2, 3}) for size in (1, 2, 3)
    ]
    assert [(row["leader_from"], row["leader_to"] == row["to"][0]) for row in rows.values()] == [
        (1, True), (1, True), (2, True),
    ]  # fmt: skip
    assert rows[2]["wave"] < max(rows[0]["wave"], rows[1]["wave"]), "leaders move last"
    output = in_process("plan", "show", plan, "-o", "markdown", capture=capsys).out
    checked = tmp_path / "cluster.json"
    checked.write_text(snapshot_to_json(snapshot), encoding="utf-8")
    comment = in_process("plan", "check", plan, "--snapshot", checked, "--format", "markdown", capture=capsys).out
    for document in (output, comment):
        assert (
            "<details><summary>3 partitions</summary>\n\n| partition | from | to | copies | leader | wave |" in document
        )
        assert re.search(r"^\| t-2 \| 2, 1 \| (2, 3|3, 2) \| 3\.1 MB \| ", document, re.M)
        assert document.endswith("\n</details>\n")
    old = json.loads(plan.read_text(encoding="utf-8"))
    del old["klamm"]["sizes"], old["klamm"]["score"]["remaining_bytes"]
    plan.write_text(json.dumps(old), encoding="utf-8")
    ran = in_process("plan", "show", plan, "-o", "json", capture=capsys)
    assert [row["bytes"] for row in ran.json] == [None] * 3, "earlier releases kept no sizes"
    old["klamm"]["sizes"] = [1]
    plan.write_text(json.dumps(old), encoding="utf-8")
    assert "klamm.sizes: must have one for each partition" in in_process("plan", "show", plan, capture=capsys).err
