"""What scripts can rely on in every command that changes a cluster: dry runs have a body, exit codes do not lie.

A new command that changes a cluster needs a row in ``ROWS``.
"""

from __future__ import annotations

import io
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from freezing import Ice, Question, ice
from golden import Seen, check_json
from guest_cluster import GuestCluster
from klamm_program import Ran, in_process
from plan_files import write_plan
from spark_traces import one_source, write_checkpoint
from transaction_story import hang

from cli.exit_codes import ExitCode
from cli.framework.root import load
from cli.main import main
from cli.table_of_commands import ENTRIES
from engine.admin.reassignment.wave_execution import LEAVING_LIMIT_S
from engine.common.model import TopicPartition
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

__all__ = ["ice"]

Capture = pytest.CaptureFixture[str]
TIMEOUT_S = 8.0
LATEST_S = TIMEOUT_S + LEAVING_LIMIT_S
"""A command that applies a plan needs this time to leave after its time-out."""

ROWS = {
    "topics create": "new-{own} --partitions 1 --replication-factor 1",
    "topics alter": "altered-{own} --partitions 3 --config retention.ms=1000000 --yes",
    "topics delete": "doomed-{own} --yes",
    "configs alter": "--topic set-{own} --add-config retention.ms=7200000 --delete-config retention.bytes --yes",
    "quotas set": "--client set-{own} --producer-byte-rate 1M --request-percentage 50",
    "quotas remove": "--client kept-{own}",
    "elect preferred": "--topic second-{own}",
    "elect unclean": "--topic second-{own} --yes",
    "reassign execute": "--reassignment-json-file moves.json --throttle 1000000",
    "reassign verify": "--reassignment-json-file moves.json",
    "reassign cancel": "--reassignment-json-file moves.json",
    "brokers demote": "1 --rollback-file demoted.json --yes",
    "brokers restore": "demoted.json --yes",
    "plan apply": "plan.json --throttle 50M --lock-timeout 1s --stall 5s",
    "plan resume": "plan.json --lock-timeout 1s",
    "plan rollback": "plan.json --lock-timeout 1s",
    "plan verify": "plan.json",
    "groups reset-offsets": "--group g-{own} --topic kept --to-earliest --execute --yes",
    "groups delete-offsets": "--group g-{own} --topic kept --yes",
    "groups delete": "--group gone-{own} --yes",
    "transactions abort": "hung-{own}-0 --start-offset 0 --yes",
    "transactions force-terminate": "tx-{own} --yes",
    "records delete": "--topic moving-{own} --partition 0 --before-offset 1 --yes",
    "produce": "kept",
    "perf producer": "--topic kept --num-records 1 --record-size 1000 --throughput -1",
    "spark commit": "checkpoint --group mirrored-{own}",
    "perf suite": "--experiment pair --quick --yes",
}
"""Words that make each command change something in the cluster below."""

FREEZE_ELSEWHERE = {"perf suite"}
"""Separate processes make its load: test_perf_suite.py covers its exits."""

BY_ZNODES = (
    "topics create",
    "topics alter",
    "topics delete",
    "configs alter",
    "quotas set",
    "quotas remove",
    "elect preferred",
    "reassign execute",
    "reassign verify",
    "brokers demote",
    "brokers restore",
    "plan apply",
    "plan resume",
    "plan rollback",
    "plan verify",
)
"""Commands that use the znodes if only ZooKeeper is named. The others need brokers."""

CHANGE_NOTHING_HERE = {
    "elect unclean",
    "reassign verify",
    "reassign cancel",
    "plan resume",
    "plan rollback",
    "plan verify",
}
"""Without anything leaderless, moving, left over or out of place, these commands change nothing."""

OWN = tuple(f"{run}-{side}" for side in ("wire", "znodes") for run in ("recorded", "frozen"))
"""Every run has its own topics and groups, because another run cannot repeat what one has changed."""
MOVED = (*OWN, *(f"{own}-wait" for own in OWN))
"""Those with a topic to move."""


OF_AUTHORIZERS = ("acls", "tokens", "users")
"""Groups of commands that only a secured cluster carries out: tests/interop has one."""


def changing() -> list[str]:
    commands = []
    for entry in ENTRIES:
        command = load(entry)
        for word, subcommand in getattr(command, "commands", {"": command}).items():
            names = {name for param in subcommand.params for name in param.opts}
            # tests/interop has an authorizer, and test_secured_zookeeper.py the login that those of ``zk`` need.
            if {"--dry-run", "--zookeeper"} <= names and entry.name not in ("profiles", "zk", *OF_AUTHORIZERS):
                commands.append(f"{entry.name} {word}".strip())
    return commands


class Unread:
    """Replaces a capture where nobody reads the output."""

    def readouterr(self) -> Any:
        return SimpleNamespace(out="", err="")


@pytest.fixture(scope="module")
def cluster(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    """Two brokers with a topic of three records, a group that read them, and a partition led by its second replica."""
    folder = tmp_path_factory.mktemp("outcomes")
    settings = {
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        "controlled.shutdown.retry.backoff.ms": "100",
        "offsets.topic.num.partitions": "1",
        # The lock of plans outlives a frozen operator by its session time-out.
        "group.min.session.timeout.ms": "200",
        "transaction.state.log.num.partitions": "1",
        "transaction.partition.verification.enable": "false",
    }
    with GuestCluster(zookeeper, 2, directory=folder, config=settings) as cluster:
        where = ("-b", cluster.bootstrap_servers)

        def run(*words: str, stdin: str = "") -> None:
            ran = in_process(*words, *where, capture=Unread(), stdin=stdin)  # type: ignore[arg-type]
            assert ran.code == 0, words

        def make(assignment: str, topics: Sequence[str], *more: str) -> None:
            run("topics", "create", *topics, "--replica-assignment", assignment, *more)

        def each(*names: str) -> list[str]:
            return [f"{name}-{own}" for name in names for own in OWN]

        make("0:1,1:0", ["kept"])
        run("produce", "kept", "--partition", "0", stdin="a\nb\nc\n")
        make("0", each("altered", "doomed", "hung"))
        make("0", [f"moving-{own}" for own in MOVED])
        make("0", each("set"), "--config", "retention.ms=3600000", "--config", "retention.bytes=1000000")
        make("1:0", each("second"))
        make("0:1", each("planned"))
        reset = ("groups", "reset-offsets", *each("g", "gone"), "--topic", "kept", "--to-latest")
        run(*reset, "--execute", "--yes", "--rollback-file", str(folder / "offsets.json"))
        for own in OWN:
            run("quotas", "set", "--client", f"kept-{own}", "--producer-byte-rate", "1M")
            hang(cluster.bootstrap_servers.split(",")[0], f"hung-{own}")
            run("produce", "kept", "--transactional-id", f"tx-{own}")
        for own in MOVED:
            run("produce", f"moving-{own}", stdin="a\nb\nc\n")
        order = {(f"second-{own}", 0): [0, 1] for own in OWN}
        execute = ("reassign", "execute", "--wait", "--yes", "--reassignment-json-file")
        back = ("--rollback-file", str(folder / "back.json"))
        run(*execute, str(plan_file(folder / "order.json", order)), *back)
        yield cluster


def plan_file(path: Path, replicas: Mapping[tuple[str, int], Sequence[int]]) -> Path:
    entries = [
        {"topic": topic, "partition": index, "replicas": replica} for (topic, index), replica in replicas.items()
    ]
    path.write_text(json.dumps({"version": 1, "partitions": entries}))
    return path


@pytest.fixture(autouse=True)
def wanted_files(own_folder: Path) -> None:
    """The files that commands want."""
    write_checkpoint(own_folder / "checkpoint", [one_source(1, 2, "kept", 2)])


def files(words: str, own: str, folder: Path, cluster: LocalCluster, capture: Capture) -> None:
    """Write the files that the commands of a run want."""
    plan_file(folder / "moves.json", {(f"moving-{own}", 0): [1]})
    if words == "brokers restore":
        plan_file(folder / "demoted.json", {(f"second-{own}", 0): [1, 0]})
    if not words.startswith("plan "):
        return
    (folder / "taken.json").unlink(missing_ok=True)
    ran = in_process("cluster", "snapshot", "taken.json", "-b", cluster.bootstrap_servers, capture=capture)
    assert ran.code == 0, ran.err
    write_plan(folder / "plan.json", folder / "taken.json", {TopicPartition(f"planned-{own}", 0): (1, 0)})


def row(words: str, own: str) -> list[str]:
    return [*words.split(), *ROWS[words].format(own=own).split()]


def test_every_changing_command_has_a_row() -> None:
    assert set(ROWS) == set(changing())


def dry(words: str) -> list[str]:
    """Return a row as a dry run; a reset of offsets is one if ``--execute`` is missing."""
    return [word for word in row(words, OWN[0]) if word not in ("--execute", "--yes")]


@pytest.mark.parametrize("words", ROWS)
def test_a_dry_run_has_a_body_and_a_read_only_profile_allows_it(
    words: str, cluster: LocalCluster, untouched: list[object], capsys: Capture, tmp_path: Path
) -> None:
    files(words, OWN[0], tmp_path, cluster, capsys)
    profile = tmp_path / "klamm" / "clusters.toml"
    profile.parent.mkdir()
    addresses = {"bootstrap_servers": cluster.bootstrap_servers, "zookeeper": cluster.zookeeper_connect}
    for side, address in addresses.items():
        profile.write_text(f'[clusters.safe]\n{side} = "{address}"\nread_only = true\n')
        ran = in_process(*dry(words), "--cluster", "safe", "--dry-run", "-o", "json", capture=capsys, stdin="x\n")
        assert ran.code in (ExitCode.DONE, ExitCode.BAD_ANSWER, ExitCode.UNDER_WAY), ran.err
        assert ran.json is not None
        tenses = [line for line in ran.err.splitlines() if line.startswith("dry run") and "dry run: would " not in line]
        assert tenses == [], "all speak of what would happen"
    if words not in ("reassign verify", "plan verify"):
        refused = in_process(*row(words, OWN[0]), "--cluster", "safe", capture=capsys, stdin="x\n")
        assert (refused.code, "read-only" in refused.err) == (ExitCode.USAGE, True), refused.err


@pytest.fixture(scope="module")
def untouched(cluster: LocalCluster) -> list[object]:
    """The cluster as it was before the first test."""
    return state_of(cluster)


def state_of(cluster: LocalCluster) -> list[object]:
    zookeeper = ("zk", "tree", "/brokers/topics", "--zookeeper", cluster.zookeeper_connect)
    groups = ("groups", "describe", "--all-groups", "-b", cluster.bootstrap_servers)
    ends = ("offsets", "-b", cluster.bootstrap_servers)
    starts = (*ends, "--time", "earliest")
    with redirect_stdout(io.StringIO()) as output:
        codes = [main([*words, "-o", "csv"]) for words in (zookeeper, groups, ends, starts)]
    return [codes, output.getvalue()]


def test_no_dry_run_has_changed_anything(cluster: LocalCluster, untouched: list[object]) -> None:
    assert state_of(cluster) == untouched


def test_a_dry_run_of_a_reassignment_says_how_much_is_copied(
    cluster: LocalCluster, capsys: Capture, tmp_path: Path
) -> None:
    files("reassign execute", OWN[0], tmp_path, cluster, capsys)
    where = ("-b", cluster.bootstrap_servers, "-o", "json")
    ran = in_process(*row("reassign execute", OWN[0]), "--dry-run", *where, capture=capsys)
    lying = in_process("brokers", "log-dirs", "--topic", f"moving-{OWN[0]}", *where, capture=capsys).json
    (size,) = [replica["size_bytes"] for broker in lying for replica in broker["replicas"]]
    assert [(move["adding"], move["removing"], move["bytes_to_copy"]) for move in ran.json] == [([1], [0], size)], (
        ran.err
    )
    assert size > 0


@pytest.mark.parametrize("words", ["reassign execute", "reassign verify", "reassign cancel"])
def test_a_file_for_another_cluster_is_refused(words: str, cluster: LocalCluster, capsys: Capture) -> None:
    plan = plan_file(Path("moves.json"), {(f"moving-{OWN[0]}", 0): [1]})
    plan.write_text(json.dumps(json.loads(plan.read_text()) | {"klamm": {"cluster_id": "another"}}))
    ran = in_process(*row(words, OWN[0]), "-b", cluster.bootstrap_servers, capture=capsys)
    assert (ran.code, "the file is for cluster another" in ran.err) == (ExitCode.USAGE, True), ran.err


def test_altered_settings_are_told_before_and_after(cluster: LocalCluster, capsys: Capture) -> None:
    where = ("-b", cluster.bootstrap_servers, "-o", "json")
    ran = in_process(*row("configs alter", OWN[0]), "--dry-run", *where, capture=capsys)
    check_json("configs alter", Seen(ran.code, ran.out, ran.err))
    rest = {"sensitive": False, "inherited": None, "warnings": []}
    assert ran.json == {
        "entity_type": "topics",
        "entity_name": f"set-{OWN[0]}",
        "result": "would_be_altered",
        "changes": [
            {"name": "retention.bytes", "old": "1000000", "new": None, **rest},
            {"name": "retention.ms", "old": "3600000", "new": "7200000", **rest},
        ],
    }


def ran_frozen(
    words: str,
    own: str,
    at: int | None,
    side: str,
    cluster: LocalCluster,
    capture: Capture,
    folder: Path,
    ice: Ice,
    more: Sequence[str] = (),
) -> Ran:
    """Run a row on a cluster that freezes. It must not wait longer than its time-out."""
    folder.mkdir()
    os.chdir(folder)
    write_checkpoint(folder / "checkpoint", [one_source(1, 2, "kept", 2)])
    files(words, own, folder, cluster, capture)
    if words.startswith(("reassign ", "brokers ")):
        # Through ZooKeeper one reassignment follows the other, and the last run may have begun one.
        idle = ("reassign", "verify", "--all", "--wait", "--timeout", "60", "-b", cluster.bootstrap_servers)
        assert in_process(*idle, capture=capture).code == 0
    where = ("-b", cluster.bootstrap_servers) if side == "wire" else ("--zookeeper", cluster.zookeeper_connect)
    bound = ("--timeout", f"{TIMEOUT_S:g}", "-o", "json")
    with ice.freezing(at, side):
        ran = in_process(*row(words, own), *more, *where, *bound, capture=capture, stdin="x\n")
    since = [request.kind for request in ice.asked[at or 0 :]]
    assert ice.waited_s < LATEST_S, f"frozen at {at}, it waited {ice.waited_s:.0f} s and asked {since}: {ran}"
    return ran


def check_outcome(ran: Ran, at: int, ice: Ice) -> None:
    """Check that a sent change is never called unsent, and an unsent one never called under way."""
    sent, last = any(request.is_change for request in ice.asked), ice.asked[at]
    frozen = f"frozen at {last}, after {[request.kind for request in ice.asked[:at]]}: {ran.code} {ran.out} {ran.err}"
    allowed = {ExitCode.DONE, ExitCode.BAD_ANSWER, ExitCode.UNDER_WAY if sent else ExitCode.UNREACHABLE}
    assert ran.code in ({ExitCode.UNDER_WAY} if last.is_change else allowed), frozen
    assert "Traceback" not in ran.err and "client is closed" not in ran.err, frozen
    if ran.code == ExitCode.UNDER_WAY:
        assert "klamm " in ran.err or "under_way" in ran.out or "in_progress" in ran.out, frozen


FREEZING = sorted(
    [(words, side) for side in ("wire", "znodes") for words in (ROWS if side == "wire" else BY_ZNODES)],
    # A demotion leaves nothing to elect.
    key=lambda row: row[0].startswith("brokers "),
)


# The garbage collector may close a connection that is given up while it opens: the program is at its end.
@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
@pytest.mark.parametrize(("words", "side"), [row for row in FREEZING if row[0] not in FREEZE_ELSEWHERE])
def test_whoever_answers_freezes_at_each_step(
    words: str, side: str, cluster: LocalCluster, capsys: Capture, tmp_path: Path, ice: Ice
) -> None:
    freeze_at_each_step(words, side, cluster, capsys, tmp_path, ice)


@pytest.mark.parametrize("side", ["wire", "znodes"])
@pytest.mark.parametrize("words", ["reassign execute", "reassign verify"])
def test_who_waits_does_not_wait_for_a_frozen_cluster(
    words: str, side: str, cluster: LocalCluster, capsys: Capture, tmp_path: Path, ice: Ice
) -> None:
    freeze_at_each_step(words, side, cluster, capsys, tmp_path, ice, ("--wait",))


def freeze_at_each_step(
    words: str,
    side: str,
    cluster: LocalCluster,
    capture: Capture,
    folder: Path,
    ice: Ice,
    more: Sequence[str] = (),
) -> None:
    recorded, frozen = (f"{run}-{side}{'-wait' if more else ''}" for run in ("recorded", "frozen"))
    whole = ran_frozen(words, recorded, 1_000_000, side, cluster, capture, folder / "whole", ice, more)
    assert whole.code in (ExitCode.DONE, ExitCode.BAD_ANSWER, ExitCode.UNDER_WAY), whole.err
    asked = list(ice.asked)
    assert any(request.is_change for request in asked) or words in CHANGE_NOTHING_HERE
    for step in steps(asked, words):
        ran = ran_frozen(words, frozen, step, side, cluster, capture, folder / f"{step}", ice, more)
        if len(ice.asked) > step:
            check_outcome(ran, step, ice)


def steps(asked: Sequence[Question], words: str) -> list[int]:
    """Return where to freeze: at every change, and at the first request of every kind; for plans, as they begin."""
    changes = [index for index, request in enumerate(asked) if request.is_change]
    first = {question: index for index, question in reversed(list(enumerate(asked)))}
    return changes if words in ("plan resume", "plan rollback") else sorted({*first.values(), *changes})
