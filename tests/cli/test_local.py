"""A cluster on this machine by the command line: up, looked at, hurt, mended, down. One for the whole story."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path

from klamm_program import PROGRAM, Ran, environment, klamm

from cli.views.local import running_notes
from engine.local.addresses import own_loopback_address
from engine.local.cluster import ClusterStatus


def is_running(pid: int) -> bool:
    """Whether a process lives; one that has ended and is not yet collected by its parent does not."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:
        return False
    return fields[0] not in "ZX"


def test_the_life_of_a_local_cluster(tmp_path: Path) -> None:
    def run(*words: str, stdin: str = "") -> Ran:
        return klamm(*words, folder=tmp_path, stdin=stdin)

    dry = run("local", "up", "--brokers", "2", "--dry-run")
    assert (dry.code, (tmp_path / ".klamm").exists()) == (0, False)
    assert run("local", "status").code == 2

    quick = ("--config", "controlled.shutdown.retry.backoff.ms=100", "--config", "zookeeper.session.timeout.ms=2000")
    up = run("local", "up", "--brokers", "2", "--racks", "a,b", "--detach", "--host", own_loopback_address(), *quick)
    assert up.code == 0, up.err
    try:
        status = run("local", "status", "-o", "json")
        assert status.code == 0
        found = status.json
        assert set(found) >= {"zookeeper", "bootstrap_servers", "dir", "brokers"}
        assert [(b["id"], b["rack"], b["alive"]) for b in found["brokers"]] == [(0, "a", True), (1, "b", True)]
        assert set(found["brokers"][0]) == {"id", "pid", "host", "port", "rack", "log_dirs", "alive"}
        assert json.loads((tmp_path / ".klamm" / "local.json").read_text())["zookeeper"] == found["zookeeper"]

        # Commands in this folder find the cluster by themselves.
        assert run("topics", "create", "t", "--partitions", "2", "--replication-factor", "2").code == 0
        assert run("produce", "t", stdin="one\ntwo\n").code == 0

        assert run("local", "kill", "1").code == 0
        hurt = run("local", "status", "-o", "json")
        assert (hurt.code, [b["alive"] for b in hurt.json["brokers"]]) == (1, [True, False])
        dead = run("local", "kill", "1")
        assert (dead.code, dead.err.splitlines()[0]) == (2, "error: broker 1 does not run")
        assert run("local", "start", "1").code == 0
        assert sorted(run("consume", "t", "--until-end").out.split()) == ["one", "two"]
        assert run("local", "stop", "1").code == 0
        assert run("local", "kill", "7").code == 2
        assert run("local", "kill", "0", "--signal", "HUP").code == 2
        again = run("local", "up", "--detach")
        assert (again.code, "already runs" in again.err) == (2, True)
        pids = [broker["pid"] for broker in run("local", "status", "-o", "json").json["brokers"] if broker["pid"]]
    finally:
        down = run("local", "down")
    assert down.code == 0, down.err
    assert not (tmp_path / ".klamm" / "local.json").exists()
    assert not [pid for pid in pids if is_running(pid)]
    assert (tmp_path / ".klamm" / "broker-0" / "data").is_dir(), "the data stays"


def test_a_cluster_in_another_folder_is_ended_and_reached_by_name() -> None:
    status = ClusterStatus("127.0.0.1:2181", True, "127.0.0.1:9092", "/tmp/my cluster", ())
    assert running_notes(status, is_elsewhere=False) == ("running; end it with: klamm local down",)
    assert running_notes(status, is_elsewhere=True) == (
        "running; end it with: klamm local down --dir '/tmp/my cluster'",
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
    found = json.loads(process.stdout.readline())
    pid = found["brokers"][0]["pid"]
    assert is_running(pid)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert (process.returncode, err.decode().splitlines()[-1]) == (0, "stopping")
    assert not is_running(pid)


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
        found = json.loads(process.stdout.readline())
        assert found["zookeeper"] == f"{host}:21810"
        assert klamm("zk", "tree", "--zookeeper", found["zookeeper"], "--depth", "1", folder=tmp_path).code == 0
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
        assert not is_running(found["pid"])


def test_a_broker_with_a_bad_file_says_so(tmp_path: Path) -> None:
    assert klamm("broker", "start", "absent.properties", folder=tmp_path).code == 2
    (tmp_path / "server.properties").write_text("zookeeper.connect=127.0.0.1:1\nnum.io.threads=many\n")
    ran = klamm("broker", "start", "server.properties", folder=tmp_path)
    assert ran.code == 2
    assert "num.io.threads" in ran.err
    assert "Traceback" not in ran.err
