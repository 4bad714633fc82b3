"""The program without the calls, constants and files that macOS lacks: it works, or says that it needs Linux."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from broker_program import settings
from klamm_program import PROGRAM, ROOT, Ran, environment, klamm
from macos import as_on_macos, only_on_linux

from engine.kafka.config.properties import format_properties
from engine.local.addresses import PortReservations
from engine.local.cluster import LocalCluster

EVERY_MODULE = """\
import importlib, pkgutil

import cli, engine, klamm, plans, tui

for package in (cli, engine, klamm, plans, tui):
    for module in pkgutil.walk_packages(package.__path__, f"{package.__name__}."):
        if not module.name.startswith(("engine.spark", "klamm._app")) and not module.name.endswith("__main__"):
            importlib.import_module(module.name)
"""

COMMAND_AFTER_COMMAND = """\
import io, json, os, sys, tempfile

from cli.main import main

asked, told = sys.stdin, sys.stdout
for line in asked:
    words, folder, given = json.loads(line)
    os.chdir(folder)
    with tempfile.TemporaryFile("w+b") as file, io.TextIOWrapper(file) as sys.stdin:
        file.write(given.encode())
        file.seek(0)
        sys.stdout, sys.stderr = (io.TextIOWrapper(io.BytesIO(), write_through=True) for _ in range(2))
        code = main(words)
        said = [stream.buffer.getvalue().decode() for stream in (sys.stdout, sys.stderr)]
    print(json.dumps([code, *said]), file=told, flush=True)
"""


@pytest.fixture(scope="module")
def macos(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    return as_on_macos(tmp_path_factory.mktemp("macos"))


@pytest.fixture(scope="module")
def commands(macos: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[..., Ran]]:
    """Runs commands in a folder, one after the other in a process that has loaded their code."""
    folder = tmp_path_factory.mktemp("commands")
    process = subprocess.Popen(
        [sys.executable, "-c", COMMAND_AFTER_COMMAND],
        cwd=ROOT,
        env=environment(folder, **macos),
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )
    asked, pipes = process.stdin, process.stdout
    assert asked is not None and pipes is not None

    def run(*words: str, folder: Path, stdin: str = "") -> Ran:
        print(json.dumps([words, str(folder), stdin]), file=asked, flush=True)
        return Ran(*json.loads(pipes.readline()))

    with process:
        yield run


@pytest.fixture
def program(commands: Callable[..., Ran], live_cluster: LocalCluster, tmp_path: Path) -> Callable[..., Ran]:
    """Runs commands against the cluster."""
    where = ("-b", live_cluster.bootstrap_servers)
    return lambda *words, stdin="": commands(
        *words, *(() if "--zookeeper" in words else where), folder=tmp_path, stdin=stdin
    )


def python(code: str, folder: Path, macos: dict[str, str]) -> Ran:
    ran = subprocess.run(
        [sys.executable, "-c", code], cwd=folder, env=environment(folder, **macos), capture_output=True, check=False
    )
    return Ran(ran.returncode, ran.stdout.decode(), ran.stderr.decode())


def test_what_is_missing_there(tmp_path: Path, macos: dict[str, str]) -> None:
    """This proves that the tests below run without it."""
    assert {"pidfd_open", "memfd_create", "posix_fallocate"} <= only_on_linux("os/__init__")
    assert {"TCP_INFO", "MSG_MORE", "SOCK_CLOEXEC"} <= only_on_linux("socket")
    assert not only_on_linux("os/__init__") & {"sendfile", "preadv", "fsync", "fork"}
    looks = (
        "import os, pathlib, select, socket, sys",
        "print(sys.platform, hasattr(os, 'pidfd_open'), hasattr(select, 'epoll'), hasattr(socket, 'MSG_MORE'))",
        "print(hasattr(os, 'sendfile'), pathlib.Path('/etc').is_dir())",
        "list(pathlib.Path('/proc').iterdir())",
    )
    ran = python("\n".join(looks), tmp_path, macos)
    assert ran.out.splitlines() == ["darwin False False False", "True True"]
    assert ran.err.splitlines()[-1] == "FileNotFoundError: [Errno 2] No such file or directory: '/proc'"


def test_every_module_can_be_imported(tmp_path: Path, macos: dict[str, str]) -> None:
    ran = python(EVERY_MODULE, ROOT, macos)
    assert (ran.code, ran.err) == (0, "")


def test_help(commands: Callable[..., Ran], macos: dict[str, str], tmp_path: Path) -> None:
    others = [commands(*words, "--help", folder=tmp_path) for words in (("top",), ("local", "up"))]
    for ran in (klamm("--help", folder=tmp_path, env=macos), *others):
        assert (ran.code, ran.err) == (0, "") and "Usage" in ran.out


def test_topics_and_records(program: Callable[..., Ran], topic_name: str) -> None:
    created = program("topics", "create", topic_name, "--partitions", "2", "--replication-factor", "2")
    assert created.code == 0, created.err
    assert topic_name in program("topics", "list").out.split()
    sent = program("produce", topic_name, "--compression", "zstd", stdin="a\nb\nc\n")
    assert sent.code == 0, sent.err
    read = program("consume", topic_name, "--from-beginning", "--max-messages", "3", "--group", topic_name)
    assert (read.code, sorted(read.out.split())) == (0, ["a", "b", "c"]), read.err
    # The second look reads what the first has written.
    for _ in range(2):
        lag = program("lag", topic_name, "--samples", "1", "--history", "lag.jsonl", "-o", "json")
        assert (lag.code, lag.json[0]["lag"]) == (0, 0), lag.err
    assert program("groups", "list", "-o", "json").code == 0
    assert program("topics", "delete", topic_name, "--yes").code == 0


def test_cluster_and_plans(program: Callable[..., Ran], live_cluster: LocalCluster, topic_name: str) -> None:
    assert program("topics", "create", topic_name, "--partitions", "4", "--replication-factor", "1").code == 0
    assert program("cluster", "health").code in (0, 1)
    assert program("brokers", "list", "-o", "json").json
    plan = program("plan", "rebalance", "--out", "plan.json")
    assert plan.code in (0, 1), plan.err
    assert program("reassign", "list", "-o", "json").json == []
    controller = program("zk", "get", "/controller", "-o", "json", "--zookeeper", live_cluster.zookeeper_connect)
    assert controller.code == 0 and controller.json["kind"] == "ControllerZNode", controller.err


def test_dashboard(program: Callable[..., Ran], tmp_path: Path) -> None:
    ran = program("top", "--screenshot", "top.svg")
    assert ran.code == 0, ran.err
    assert "<svg" in (tmp_path / "top.svg").read_text()


@pytest.fixture
def broker(zk_chroot: str, tmp_path: Path, macos: dict[str, str]) -> Iterator[str]:
    """A broker that was started there, at 127.0.0.1: macOS has no other loopback address."""
    file = tmp_path / "server.properties"
    with PortReservations() as ports:
        port = ports.take_any("127.0.0.1")
    own = settings(tmp_path, "127.0.0.1", zk_chroot) | {"listeners": f"PLAINTEXT://127.0.0.1:{port}"}
    file.write_text(format_properties(own))
    process = subprocess.Popen(
        [PROGRAM, "broker", "start", file, "--log-folder", tmp_path / "logs"],
        cwd=tmp_path,
        env=environment(tmp_path, **macos),
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stderr is not None
        said = [process.stderr.readline()]
        while said[-1] and not said[-1].startswith("started broker "):
            said.append(process.stderr.readline())
        assert said[-1], f"it ended: {said}"
        yield f"127.0.0.1:{port}"
        process.terminate()
        assert process.wait(60) == 0
    finally:
        process.kill()
        process.communicate()


def test_a_broker_and_its_load(broker: str, tmp_path: Path, macos: dict[str, str]) -> None:
    words = ("--experiment", "pair", "--quick", "--seconds", "2s", "--producer-bytes", "2M", "--yes", "-o", "json")
    ran = klamm("perf", "suite", *words, "--yes", "-b", broker, folder=tmp_path, env=macos)
    assert ran.code == 0, ran.err
    assert [case["broker_cpu_s_per_million"] for case in ran.json["cases"]] == [None], "nothing there tells it"
    assert ran.json["cases"][0]["read_records"] > 0


@pytest.mark.parametrize(
    "words", [("local", "up"), ("local", "up", "--host", "own", "--stdin", "--temporary"), ("zookeeper", "start")]
)
def test_what_needs_linux_says_so(words: tuple[str, ...], commands: Callable[..., Ran], tmp_path: Path) -> None:
    before = set(os.listdir(tmp_path))
    ran = commands(*words, "-o", "json", folder=tmp_path)
    assert (ran.code, ran.out) == (2, "")
    assert ran.error["message"] == "klamm local and klamm zookeeper need Linux, and this is darwin"
    assert "container" in ran.error["hint"]
    assert set(os.listdir(tmp_path)) == before


def test_clusters_for_tests_say_so_too(tmp_path: Path, macos: dict[str, str]) -> None:
    ran = python("from klamm.testing import LocalCluster\n\nLocalCluster(1).start()", tmp_path, macos)
    assert "OperationError: klamm local and klamm zookeeper need Linux, and this is darwin\nhint: " in ran.err


def test_doctor_asks_for_nothing_that_would_not_help(commands: Callable[..., Ran], tmp_path: Path) -> None:
    ran = commands("doctor", "-o", "json", folder=tmp_path)
    checks = {check["name"]: check for check in ran.json}
    assert (ran.code, checks["linux"]["status"], checks["linux"]["found"]) == (0, "optional", "this is darwin")
    assert not {"java", "zookeeper jars"} & set(checks)
