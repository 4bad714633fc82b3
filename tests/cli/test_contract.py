"""What all commands have in common: shared options, exit codes, JSON errors, deadlines, snapshots.

The commands come from the table. If a command needs words of its own to run, they are here. A new command without such
needs is tested automatically.
"""

from __future__ import annotations

import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
from klamm_program import Ran, in_process
from plan_files import plan_of
from spark_traces import one_source, write_checkpoint
from znode_writer import znode_writer

from cli.exit_codes import ExitCode
from cli.framework.options import CLUSTER_PANEL, COMMON_PANEL, Asks
from cli.framework.root import load
from cli.table_of_commands import ENTRIES
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, SnapshotSource, TopicSnapshot
from engine.local.zookeeper import EmbeddedZooKeeper
from plans.plan_file import encode_plan

Capture = pytest.CaptureFixture[str]

PLAN, PLAN_FILE = "plan.json", "smallest.json"
CHECKPOINT = "checkpoint"
RULES = "acls.yaml"
WORDS: dict[str, list[str]] = {
    "topics create": ["t", "--partitions", "1", "--replication-factor", "1"],
    "topics alter": ["t", "--partitions", "2"],
    "topics delete": ["t", "--yes"],
    "configs describe": ["--topic", "t"],
    "configs alter": ["--topic", "t", "--add-config", "retention.ms=1"],
    "quotas describe": ["--client", "c"],
    "quotas set": ["--client", "c", "--producer-byte-rate", "1"],
    "quotas remove": ["--client", "c", "--delete-config", "producer_byte_rate"],
    "elect preferred": ["--all-topic-partitions"],
    "elect unclean": ["--all-topic-partitions", "--yes"],
    "brokers demote": ["0"],
    "brokers restore": [PLAN],
    "reassign generate": ["--topics-to-move-json-file", "topics.json", "--broker-list", "0"],
    "reassign execute": ["--reassignment-json-file", PLAN],
    "reassign verify": ["--reassignment-json-file", PLAN],
    "reassign cancel": ["--reassignment-json-file", PLAN],
    "plan decommission": ["0"],
    "plan replace": ["0=1"],
    "plan expand": ["0"],
    "plan factor": ["1"],
    "plan move": ["--brokers", "0"],
    "plan check": [PLAN_FILE],
    "plan show": [PLAN_FILE],
    "plan diff": [PLAN_FILE, PLAN_FILE],
    "plan apply": [PLAN_FILE],
    "plan resume": [PLAN_FILE],
    "plan rollback": [PLAN_FILE],
    "plan status": [PLAN_FILE],
    "plan verify": [PLAN_FILE],
    "groups describe": ["--all-groups"],
    "groups reset-offsets": ["--group", "g", "--all-topics", "--to-earliest"],
    "groups delete-offsets": ["--group", "g", "--topic", "t", "--yes"],
    "groups delete": ["--group", "g", "--yes"],
    "acls add": ["--allow-principal", "User:u", "--topic", "t"],
    "acls remove": ["--topic", "t", "--yes"],
    "acls explain": ["User:u", "read", "topic:t"],
    "tokens renew": ["id"],
    "tokens expire": ["id", "--yes"],
    "users set": ["u", "--password-file", "-"],
    "users remove": ["u", "--yes"],
    "acls diff": [RULES],
    "acls apply": [RULES, "--yes"],
    "transactions describe": ["id"],
    "transactions producers": ["t-0"],
    "transactions abort": ["t-0", "--start-offset", "0", "--yes"],
    "transactions force-terminate": ["id", "--yes"],
    "lag": ["--all-groups"],
    "records delete": ["--topic", "t", "--partition", "0", "--before-offset", "1", "--yes"],
    "cluster snapshot": ["taken.json"],
    "produce": ["t"],
    "consume": ["t", "--until-end"],
    "perf producer": ["--topic", "t", "--num-records", "1", "--record-size", "1000", "--throughput", "-1"],
    "perf consumer": ["--topic", "t", "--messages", "1"],
    "spark commit": [CHECKPOINT, "--group", "g"],
    "spark lag": ["--out", "lag"],
}
"""Words that make a complete command line."""

ONE_TOPIC = ClusterSnapshot(
    (), (TopicSnapshot("t", (PartitionSnapshot(0, ReplicaAssignment((0,))),)),), SnapshotSource.ZOOKEEPER, 0, "c"
)
"""The cluster that the plan file was made for."""

NAMES_A_CLUSTER_ONLY = {"doctor", "profiles add", "state-changes check", "spark jobs", "top", "exporter"}
"""Commands that accept cluster options but work without a cluster. The dashboard keeps trying."""

CHANGING_WORDS = {
    "create", "alter", "delete", "preferred", "unclean", "execute", "cancel", "reset-offsets", "delete-offsets",
    "produce", "producer", "add", "remove", "apply", "resume", "rollback", "commit",
    "demote", "restore", "set", "abort", "force-terminate", "secure", "open",
}  # fmt: skip

GOING_ON_AFTERWARDS = {"topics delete", "reassign execute", "reassign verify", "records delete"}
"""Commands that are accepted at once and done later: a user may wait for them or not."""


def _commands() -> dict[str, Any]:
    commands = {}
    for entry in ENTRIES:
        command: Any = load(entry)
        for word, subcommand in getattr(command, "commands", {"": command}).items():
            commands[f"{entry.name} {word}".strip()] = subcommand
    return commands


COMMANDS = _commands()
OPTIONS = {words: {name for param in command.params for name in param.opts} for words, command in COMMANDS.items()}
OF_CLUSTERS = sorted(
    words for words, names in OPTIONS.items() if "--zookeeper" in names and words not in NAMES_A_CLUSTER_ONLY
)
CHANGING = sorted(words for words, names in OPTIONS.items() if "--dry-run" in names and words in OF_CLUSTERS)


@pytest.fixture(autouse=True)
def files(own_folder: Path) -> None:
    """Only the files that commands want."""
    partition = {"topic": "t", "partition": 0, "replicas": [0]}
    (own_folder / PLAN).write_text(json.dumps({"version": 1, "partitions": [partition]}))
    (own_folder / RULES).write_text("acls: [{resource_type: topic, name: t, principal: User:u, operation: read}]")
    write_checkpoint(own_folder / CHECKPOINT, [one_source(1, 2, "t", 1)])
    (own_folder / "topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": "t"}]}))
    (own_folder / PLAN_FILE).write_text(encode_plan(plan_of(ONE_TOPIC, {TopicPartition("t", 0): (0,)})))


def run(words: str, *more: str, capture: Capture) -> Ran:
    return in_process(*words.split(), *WORDS.get(words, []), *more, capture=capture, stdin="x\n")


@pytest.mark.parametrize("words", sorted(COMMANDS))
def test_shared_options_are_there(words: str) -> None:
    own = OPTIONS[words]
    panels = {name: getattr(param, "rich_help_panel", None) for param in COMMANDS[words].params for name in param.opts}
    for names in ({"--output", "-o"}, {"--quiet", "-q"}, {"--verbose", "-v"}, {"--timeout"}):
        assert names <= own, "every command"
        assert {panels[name] for name in names} == {COMMON_PANEL}
    cluster = {"--zookeeper", "--bootstrap-server", "-b", "--cluster", "--snapshot", "--command-config", "--via"}
    if cluster & own and words != "profiles add":
        assert cluster <= own, "one way to name a cluster, all ways"
        assert {panels[name] for name in cluster} == {CLUSTER_PANEL}
    if words.split()[-1] in CHANGING_WORDS:
        assert {"--dry-run", "--yes", "-y"} <= own, "a change can be looked at before, and be confirmed beforehand"
    assert ("--dry-run" in own) == ("--yes" in own)
    if words in GOING_ON_AFTERWARDS:
        assert {"--wait", "--no-wait"} <= own | {
            name for param in COMMANDS[words].params for name in param.secondary_opts
        }


@pytest.mark.parametrize("words", OF_CLUSTERS)
def test_no_cluster_named(words: str, capsys: Capture) -> None:
    ran = run(words, "-o", "json", capture=capsys)
    assert (ran.code, ran.out) == (ExitCode.USAGE, ""), ran.err
    assert ran.error["message"] == "no cluster is named"
    assert "klamm local up" in ran.error["hint"]


@pytest.mark.parametrize(
    ("words", "option"),
    [(words, "--zookeeper") for words in OF_CLUSTERS]
    + [(words, "--bootstrap-server") for words in OF_CLUSTERS if not words.startswith("zk ")],
)
def test_nobody_there(words: str, option: str, capsys: Capture) -> None:
    ran = run(words, option, "127.0.0.1:1", "--timeout", "0.15", "-o", "json", capture=capsys)
    if ran.error["message"].startswith("no answer within"):
        # A busy machine has not even tried by then.
        ran = run(words, option, "127.0.0.1:1", "--timeout", "5", "-o", "json", capture=capsys)
    assert (ran.code, ran.out) == (ExitCode.UNREACHABLE, ""), ran.err
    assert (ran.error["code"], ran.error["kind"]) == (3, "unreachable")
    assert "127.0.0.1:1" in ran.error["message"]
    assert ran.error["hint"]


@pytest.mark.parametrize("words", OF_CLUSTERS)
def test_a_wrong_chroot_is_named(words: str, zookeeper: EmbeddedZooKeeper, capsys: Capture) -> None:
    ran = run(words, "--zookeeper", f"{zookeeper.connect_string}/absent", "-o", "json", capture=capsys)
    assert (ran.code, ran.out) == (ExitCode.UNREACHABLE, ""), ran.err
    assert "the chroot does not exist" in ran.error["message"]
    assert "/absent" in ran.error["message"]


@pytest.mark.parametrize(
    "words", ["topics list", "topics describe", "brokers list", "cluster describe", "reassign list", "acls list"]
)
def test_a_zookeeper_without_a_cluster_is_no_empty_cluster(words: str, zk_chroot: str, capsys: Capture) -> None:
    with znode_writer(zk_chroot) as write:
        write({"/something": b"else"}, False)
    ran = run(words, "--zookeeper", zk_chroot, "-o", "json", capture=capsys)
    assert (ran.code, ran.out) == (ExitCode.UNREACHABLE, ""), ran.err
    assert ran.error["message"] == f"no cluster's znodes are there: {zk_chroot}"
    assert "after the slash" in ran.error["hint"]
    assert in_process("zk", "tree", "--zookeeper", zk_chroot, capture=capsys).code == 0


@contextmanager
def serving(says: bytes = b"") -> Iterator[str]:
    """Yield the address of a server that accepts every connection, says something or nothing, and never more."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        taken: list[socket.socket] = []

        def take() -> None:
            while True:
                try:
                    taken.append(server.accept()[0])
                except OSError:
                    return
                with suppress(OSError):
                    taken[-1].sendall(says)

        thread = threading.Thread(target=take, name="silent-server")
        thread.start()
        yield f"127.0.0.1:{server.getsockname()[1]}"
        server.shutdown(socket.SHUT_RDWR)
        thread.join(10)
        for connection in taken:
            connection.close()


@pytest.fixture(scope="module")
def silent() -> Iterator[str]:
    with serving() as address:
        yield address


@pytest.fixture(scope="module")
def web_server() -> Iterator[str]:
    with serving(b"HTTP/1.1 400 Bad Request\r\nConnection: close\r\n\r\n") as address:
        yield address


@pytest.mark.parametrize("words", [words for words in OF_CLUSTERS if not words.startswith("zk ")])
def test_something_else_than_kafka_is_there(words: str, web_server: str, capsys: Capture) -> None:
    ran = run(words, "--bootstrap-server", web_server, "--timeout", "2", "-o", "json", capture=capsys)
    assert (ran.code, ran.out) == (ExitCode.UNREACHABLE, ""), ran.err
    assert web_server in ran.error["message"]


@pytest.mark.parametrize("words", OF_CLUSTERS)
def test_somebody_there_who_says_nothing(words: str, silent: str, capsys: Capture) -> None:
    option = "--zookeeper" if words.startswith("zk ") else "--bootstrap-server"
    started = time.monotonic()
    ran = run(words, option, silent, "--timeout", "0.2", "-o", "json", capture=capsys)
    assert (ran.code, ran.out) == (ExitCode.UNREACHABLE, ""), ran.err
    assert ran.error["kind"] == "unreachable"
    assert time.monotonic() - started < 20, "--timeout bounds every wait"


@pytest.mark.parametrize("words", CHANGING)
def test_a_snapshot_cannot_be_changed(words: str, capsys: Capture, tmp_path: Path) -> None:
    (tmp_path / "s.json").write_text("{}")
    ran = run(words, "--snapshot", "s.json", "-o", "json", capture=capsys)
    assert (ran.code, ran.out) == (ExitCode.USAGE, ""), ran.err
    assert "snapshot" in ran.error["message"]


@pytest.mark.parametrize("words", sorted(set(OF_CLUSTERS) - set(CHANGING)))
def test_a_snapshot_is_read_or_refused(
    words: str, recorded: Callable[[str], str], capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    where = recorded("reassignment-under-way")
    taken = in_process("cluster", "snapshot", "s.json", "--zookeeper", where, capture=capsys)
    assert taken.code == 0, taken.err
    Path("topics.json").write_text(json.dumps({"version": 1, "topics": [{"topic": "move"}]}))
    monkeypatch.setitem(WORDS, "configs describe", ["--topic", "move"])
    generate = ["--topics-to-move-json-file", "topics.json", "--broker-list", "0,1,2"]
    monkeypatch.setitem(WORDS, "reassign generate", generate)
    ran = run(words, "--snapshot", "s.json", "-o", "json", capture=capsys)
    if words in ("brokers log-dirs", "plan log-dirs"):
        assert (ran.code, "--sizes" in ran.error["hint"]) == (ExitCode.USAGE, True), "this one was taken without"
    elif COMMANDS[words].needs.asks is Asks.EITHER:
        assert ran.code in (ExitCode.DONE, ExitCode.BAD_ANSWER), ran.err
        assert not ran.out or json.loads(ran.out) is not None
    else:
        assert (ran.code, ran.out) == (ExitCode.USAGE, ""), ran.err
        assert "snapshot" in ran.error["message"]
        assert "--bootstrap-server" in ran.error["hint"] or "--zookeeper" in ran.error["hint"]


@pytest.mark.parametrize("words", OF_CLUSTERS)
def test_quiet_and_verbose_exclude_each_other(words: str, capsys: Capture) -> None:
    ran = run(words, "-q", "-v", capture=capsys)
    assert (ran.code, "contradict" in ran.err) == (ExitCode.USAGE, True)
