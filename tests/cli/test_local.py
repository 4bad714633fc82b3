"""A local cluster from the command line: up, inspected, hurt, repaired, down. One cluster for the whole story."""

from __future__ import annotations

import json
import signal
import subprocess
import urllib.request
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from klamm_program import PROGRAM, Ran, environment, in_process, klamm

from cli.commands.local import up as local_up
from cli.views.local import running_notes
from engine.local.addresses import own_loopback_address
from engine.local.cluster import ClusterStatus
from engine.local.cluster_record import ClusterRecord


def is_running(pid: int) -> bool:
    """Whether a process lives; one that has ended but was not yet reaped by its parent does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    return fields[0] not in "ZX"


def test_the_life_of_a_local_cluster(tmp_path: Path) -> None:
    def run(*words: str, stdin: str = "") -> Ran:
        return klamm(*words, folder=tmp_path, stdin=stdin)

    dry = run("local", "up", "--brokers", "2", "--dry-run", "-o", "json")
    assert (dry.code, (tmp_path / ".klamm").exists()) == (0, False)
    assert dry.json == {"dir": ".klamm", "brokers": [{"id": 0}, {"id": 1}]}
    assert run("local", "status").code == 2

    quick = (
        "--metrics",
        "--config",
        "controlled.shutdown.retry.backoff.ms=100",
        "--config",
        "zookeeper.session.timeout.ms=2000",
    )
    up = run("local", "up", "--brokers", "2", "--racks", "a,b", "--detach", "--host", own_loopback_address(), *quick)
    assert up.code == 0, up.err
    try:
        status = run("local", "status", "-o", "json")
        assert status.code == 0
        seen = status.json
        assert set(seen) >= {"zookeeper", "bootstrap_servers", "dir", "brokers"}
        assert [(b["id"], b["rack"], b["alive"]) for b in seen["brokers"]] == [(0, "a", True), (1, "b", True)]
        fields = {"id", "pid", "host", "port", "rack", "log_dirs", "alive", "paused", "metrics"}
        assert set(seen["brokers"][0]) == fields
        assert json.loads((tmp_path / ".klamm" / "local.json").read_text())["zookeeper"] == seen["zookeeper"]

        # Commands in this folder find the cluster by themselves.
        assert run("topics", "create", "t", "--partitions", "2", "--replication-factor", "2").code == 0
        assert run("produce", "t", stdin="one\ntwo\n").code == 0

        tried = run("local", "kill", "1", "--dry-run", "-o", "json")
        assert (tried.code, tried.json) == (0, seen)
        assert run("local", "kill", "1").code == 0
        hurt = run("local", "status", "-o", "json")
        assert (hurt.code, [b["alive"] for b in hurt.json["brokers"]]) == (1, [True, False])
        dead = run("local", "kill", "1")
        assert (dead.code, dead.err.splitlines()[0]) == (2, "error: broker 1 is not running")
        assert run("local", "start", "1").code == 0
        assert sorted(run("consume", "t", "--until-end").out.split()) == ["one", "two"]
        assert run("local", "stop", "1").code == 0
        assert run("local", "start", "1", "--config", "num.io.threads=3").code == 0
        assert "num.io.threads=3" in (tmp_path / ".klamm/broker-1/server.properties").read_text()
        _zookeeper_can_be_hurt_too(run)
        nameless = run("local", "add")
        assert (nameless.code, "klamm local add 2" in nameless.err) == (2, True)
        assert run("local", "add", "4", "--rack", "c", "--config", "num.io.threads=2").code == 0
        added = run("local", "wait", "4", "-o", "json").json["brokers"]
        assert added[2]["rack"] == "c"
        for broker in added:
            with urllib.request.urlopen(broker["metrics"], timeout=30) as page:
                assert b"kafka_server_brokertopicmetrics_messagesin_total" in page.read()
        assert len({broker["metrics"] for broker in added}) == 3
        assert run("local", "controller").out.strip() in ("0", "1", "4")
        assert run("local", "stop", "4").code == 0
        assert run("local", "kill", "7").code == 2
        assert run("local", "kill", "nobody").code == 2
        assert run("local", "start", "zookeeper", "--config", "a=b").code == 2
        assert run("local", "kill", "0", "--signal", "HUP").code == 2
        again = run("local", "up", "--detach")
        assert (again.code, "already runs" in again.err) == (2, True)
        pids = [broker["pid"] for broker in run("local", "status", "-o", "json").json["brokers"] if broker["pid"]]
    finally:
        down = run("local", "down", "-o", "json")
    assert down.code == 0, down.err
    assert {broker["alive"] for broker in down.json["brokers"]} == {False}
    assert not (tmp_path / ".klamm" / "local.json").exists()
    assert not [pid for pid in pids if is_running(pid)]
    assert (tmp_path / ".klamm" / "broker-0" / "data").is_dir(), "the data stays"


def _zookeeper_can_be_hurt_too(run: Callable[..., Ran]) -> None:
    assert run("local", "kill", "zookeeper", "--signal", "STOP").code == 0
    stopped = run("local", "status", "-o", "json")
    assert (stopped.code, stopped.json["zookeeper_alive"], stopped.json["zookeeper_paused"]) == (1, True, True)
    assert "(stopped (SIGSTOP))" in run("local", "status", "-o", "table").out
    assert [row.split("\t")[0] for row in run("local", "status", "-o", "plain").out.splitlines()][-1] == "zookeeper"
    assert run("local", "kill", "zookeeper", "--signal", "CONT").code == 0
    killed = run("local", "kill", "zookeeper", "-o", "json")
    assert (killed.code, killed.json["zookeeper_alive"]) == (0, False)
    assert run("local", "kill", "zookeeper").err.splitlines()[0] == "error: ZooKeeper is not running"
    assert run("local", "start", "zookeeper", "-o", "json").json["zookeeper_alive"]
    assert run("local", "stop", "zookeeper").code == 0
    assert run("local", "start", "zookeeper").code == 0
    assert run("local", "wait").code == 0


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        (("--temporary", "--dir", "d"), "--temporary and --dir contradict"),
        (("--temporary", "--detach"), "--temporary ends the cluster"),
        (("--stdin", "--detach"), "--stdin ends the cluster"),
        (("--broker-ids", "1,x"), "--broker-ids must be whole numbers"),
        (("--broker-ids", "1,1"), "--broker-ids names a broker twice"),
        (("--brokers", "3", "--broker-ids", "1,2"), "--brokers 3 and --broker-ids 1,2 contradict each other"),
        (("--broker-config", "a=b"), "--broker-config must be ID:K=V"),
        (("--broker-config", "0:a"), "a setting is written K=V, not 'a'"),
        (("--config", "num.partitions"), "a setting is written K=V, not 'num.partitions'"),
        (("--broker-config", "2:a=b", "--brokers", "2"), "--broker-config names broker 2: the brokers are 0, 1"),
        (("--racks", " "), "--racks names no rack"),
        (("--chroot", "/a//b"), "--chroot must be a path"),
        (("--chroot", "k"), "--chroot must be a path"),
        (("--sasl", "plain"), "--sasl needs --secure"),
        (("--acls",), "--acls needs --secure"),
        (("--secure", "--sasl", "gssapi"), "--sasl must be one of plain, scram-sha-256, scram-sha-512"),
        (("--secure", "--config", "listeners=SSL://:9092"), "--secure and --config listeners contradict"),
    ],
)
def test_what_cannot_be_is_refused_before_anything_is_started(
    tmp_path: Path, words: tuple[str, ...], expected: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ran = in_process("local", "up", *words, "--dry-run", capture=capsys)
    assert ran.code == 2
    assert expected in ran.err


def test_a_secured_cluster_is_used_by_its_files_and_leaves_none_of_them(tmp_path: Path) -> None:
    def run(*words: str, stdin: str = "") -> Ran:
        return klamm(*words, folder=tmp_path, stdin=stdin)

    def kcat(user: str, *words: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        command = ["kcat", "-F", str(tmp_path / ".klamm" / f"{user}.kcat"), *words]
        return subprocess.run(command, input=stdin, capture_output=True, text=True, timeout=60, check=False)

    secure = ("--secure", "--sasl", "scram-sha-512", "--acls")
    up = run("local", "up", *secure, "--detach", "--host", own_loopback_address())
    assert up.code == 0, up.err
    try:
        assert "alice may do nothing yet" in up.err
        folder = tmp_path / ".klamm"
        status = run("local", "status", "-o", "json")
        assert (status.code, status.json["command_config"]) == (0, str(folder / "client.properties"))
        # Commands in this folder are admin's, unless they name somebody else's properties.
        assert run("topics", "create", "orders").code == 0
        as_alice = ("--command-config", str(folder / "alice.properties"))
        refused = run("produce", "orders", *as_alice, stdin="one\n")
        assert (refused.code, "TOPIC_AUTHORIZATION_FAILED" in refused.err) == (4, True), refused.err
        assert "authorization failed" in kcat("alice", "-P", "-t", "orders", stdin="one\n").stderr.lower()
        assert run("acls", "add", "--allow-principal", "User:alice", "--topic", "orders", "--yes").code == 0
        sent = kcat("alice", "-P", "-t", "orders", stdin="one\n")
        assert sent.returncode == 0, sent.stderr
        assert run("consume", "orders", "--until-end", *as_alice).out == "one\n"
        assert "authorization failed" in kcat("bob", "-P", "-t", "orders", stdin="two\n").stderr.lower()
        assert run("local", "add", "4").code == 0
        assert run("local", "controller").out.strip() in ("0", "4")
        address = status.json["bootstrap_servers"]
        assert run("topics", "list", "-b", address).code == 3, "nobody gets in without a login"
        # It can be ended without its files, too.
        (folder / "client.properties").unlink()
    finally:
        down = run("local", "down")
    assert down.code == 0, down.err
    assert sorted(path.name for path in folder.iterdir()) == ["broker-0", "broker-4", "zookeeper"]


def test_a_program_holds_a_cluster_and_gives_it_commands(tmp_path: Path) -> None:
    lines = (
        "status -o json", "kill 3", "status -o json", 'start 3 --config "num.io.threads=3"', "kill 9 -o json",
        'stop "3', "up", "", "controller -o json --timeout 5", "down", "status",
    )  # fmt: skip
    up = ("local", "up", "--broker-ids", "3", "--temporary", "--host", "own", "--stdin", "-o", "jsonl")
    # All at once: every command that came before the end of the input is done before the cluster ends.
    ran = klamm(*up, folder=tmp_path, stdin="\n".join(lines))
    assert ran.code == 0, ran.err
    first, *answers = map(json.loads, ran.out.splitlines())
    assert [answer["code"] for answer in answers] == [0, 0, 1, 0, 2, 2, 2, 0, 0, 2]
    status, killed, hurt, started, unknown, broken, up_again, controller, _, gone = answers
    assert json.loads(status["stdout"]) == first
    assert [broker["id"] for broker in first["brokers"]] == [3]
    assert killed["stderr"] == "sent KILL to broker 3\n"
    assert not json.loads(hurt["stdout"])["brokers"][0]["alive"]
    assert started["stderr"].startswith("broker 3 serves at ")
    assert json.loads(unknown["stderr"])["error"]["hint"] == "its brokers are 3"
    assert "No closing quotation" in broken["stderr"]
    assert "the cluster is up" in up_again["stderr"]
    assert json.loads(controller["stdout"]) == {"controller": 3}
    assert "call start() first" in gone["stderr"]
    assert not Path(first["dir"]).exists()
    assert not is_running(first["brokers"][0]["pid"])


def test_a_signal_ends_a_held_cluster_in_the_middle_of_a_command(tmp_path: Path) -> None:
    up = ["local", "up", "--temporary", "--host", "own", "--stdin", "-o", "jsonl"]
    with subprocess.Popen(
        [PROGRAM, *up], cwd=tmp_path, stdin=subprocess.PIPE, stdout=subprocess.PIPE, env=environment(tmp_path)
    ) as process:
        assert process.stdin is not None
        assert process.stdout is not None
        first = json.loads(process.stdout.readline())
        # A paused broker never says that it knows the others, so this waits for a minute.
        process.stdin.write(b"kill 0 --signal STOP\nwait 0\n")
        process.stdin.flush()
        assert json.loads(process.stdout.readline())["code"] == 0
        process.send_signal(signal.SIGTERM)
        rest = [json.loads(line) for line in process.stdout]
        assert process.wait(30) == 0
    assert [answer["code"] for answer in rest] in ([], [130])
    assert not is_running(first["brokers"][0]["pid"])
    assert not Path(first["dir"]).exists()


def test_a_cluster_in_another_folder_is_ended_and_reached_by_name() -> None:
    status = ClusterStatus("127.0.0.1:2181", True, "127.0.0.1:9092", "/tmp/my cluster", ())
    assert running_notes(status, is_elsewhere=False) == ("running; stop it with: klamm local down",)
    assert running_notes(status, is_elsewhere=True) == (
        "running; stop it with: klamm local down --dir '/tmp/my cluster'",
        "reach it with: klamm topics list -b 127.0.0.1:9092 --zookeeper 127.0.0.1:2181",
    )


def test_in_the_foreground_it_ends_on_term(tmp_path: Path) -> None:
    process = subprocess.Popen(
        [PROGRAM, "local", "up", "--host", own_loopback_address(), "-o", "jsonl"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment(tmp_path),
    )
    assert process.stdout is not None
    started = json.loads(process.stdout.readline())
    pid = started["brokers"][0]["pid"]
    assert is_running(pid)
    # It was stopped on purpose and recorded so, which is no reason to give up.
    assert klamm("local", "kill", "zookeeper", folder=tmp_path).code == 0
    assert klamm("local", "start", "zookeeper", folder=tmp_path).code == 0
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.decode().splitlines()[-1]) == (0, "stopping")
    assert not is_running(pid)


def test_an_end_of_zookeeper_that_is_noted_late_is_no_reason_to_give_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``local kill`` first kills the process and then records it. The cluster in the foreground may look in between."""
    process = SimpleNamespace(is_alive=False, identity="as started")
    cluster = cast("Any", SimpleNamespace(directory=tmp_path, zookeeper=SimpleNamespace(process=process)))
    noted = SimpleNamespace(zookeeper_process=process.identity)
    now_s = 1000.0
    monkeypatch.setattr(ClusterRecord, "read", lambda directory: noted)
    monkeypatch.setattr(local_up.time, "monotonic", lambda: now_s)
    is_up = local_up._looks_for_zookeeper(cluster)
    assert is_up()
    now_s += local_up._NOTED_WITHIN_S - 1
    assert is_up()
    noted.zookeeper_process = None
    now_s += 60
    assert is_up()
    noted.zookeeper_process = process.identity
    assert not is_up(), "nobody has noted it in all that time"


def test_a_zookeeper_in_the_foreground(tmp_path: Path) -> None:
    config = tmp_path / "zoo.cfg"
    host = own_loopback_address()
    config.write_text(f"clientPort=21810\ndataDir={tmp_path}/zk\nclientPortAddress={host}\ntickTime=1000\n")
    process = subprocess.Popen(
        [PROGRAM, "zookeeper", "start", config, "-o", "jsonl"],
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=environment(tmp_path),
    )
    with process:
        assert process.stdout is not None
        started = json.loads(process.stdout.readline())
        assert started["zookeeper"] == f"{host}:21810"
        assert klamm("zk", "tree", "--zookeeper", started["zookeeper"], "--depth", "1", folder=tmp_path).code == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not is_running(started["pid"])


def test_a_broker_with_a_bad_file_says_so(tmp_path: Path) -> None:
    assert klamm("broker", "start", "absent.properties", folder=tmp_path).code == 2
    (tmp_path / "server.properties").write_text("zookeeper.connect=127.0.0.1:1\nnum.io.threads=many\n")
    ran = klamm("broker", "start", "server.properties", folder=tmp_path)
    assert ran.code == 2
    assert "num.io.threads" in ran.err
    assert "Traceback" not in ran.err
