"""``klamm lag --serve``: a page for Prometheus, whatever its scrapers and the cluster do."""

from __future__ import annotations

import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from klamm_program import PROGRAM, Ran, environment, in_process
from typer._click.exceptions import UsageError

from cli.framework.quantities import address_option
from engine.local.cluster import LocalCluster

Capture = pytest.CaptureFixture[str]
Program = Callable[..., Ran]


@pytest.fixture
def program(live_cluster: LocalCluster, capsys: Capture, monkeypatch: pytest.MonkeyPatch) -> Program:
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", live_cluster.bootstrap_servers)
    return lambda *words, stdin="": in_process(*words, stdin=stdin, capture=capsys)


def free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port: int = free.getsockname()[1]
        return port


@contextmanager
def serving(folder: Path, port: int, *words: str) -> Iterator[subprocess.Popen[str]]:
    """Serve, until an interrupt at the end."""
    process = subprocess.Popen(
        [PROGRAM, "lag", *words, "--serve", f"127.0.0.1:{port}", "--interval", "1s"],
        stderr=subprocess.PIPE, cwd=folder, env=environment(folder), text=True,
    )  # fmt: skip
    assert process.stderr is not None
    try:
        assert f"serving http://127.0.0.1:{port}/metrics" in process.stderr.readline()
        yield process
    finally:
        process.send_signal(signal.SIGINT)
        process.communicate(timeout=30)
    assert process.returncode == 130


def page_with(port: int, line: str) -> str:
    """Return the page once it has a line."""
    page, deadline = "", time.monotonic() + 60
    while line not in page.splitlines():
        assert time.monotonic() < deadline, page
        with urllib.request.urlopen(f"http://127.0.0.1:{port}/metrics", timeout=30) as answer:
            page = answer.read().decode()
        time.sleep(0.1)
    return page


def test_lag_is_served_for_prometheus(
    program: Program, topic_name: str, live_cluster: LocalCluster, tmp_path: Path
) -> None:
    assert program("topics", "create", topic_name, "--partitions", "1").code == 0
    assert program("produce", topic_name, stdin="1\n2\n3\n").code == 0
    assert program("consume", topic_name, "--group", topic_name, "--from-beginning", "-n", "1").code == 0
    port = free_port()
    with serving(tmp_path, port, "--group", topic_name, "-b", live_cluster.bootstrap_servers):
        page = page_with(port, "klamm_lag_up 1")
        assert f'kafka_consumergroup_group_lag{{group="{topic_name}",source="classic",topic="{topic_name}"' in page
        assert any(
            line.startswith("kafka_consumergroup_group_sum_lag") and line.endswith(" 2") for line in page.splitlines()
        )


def test_a_page_says_when_the_cluster_is_away_and_when_it_is_back(tmp_path: Path) -> None:
    with LocalCluster(1, directory=tmp_path / "cluster", config={"offsets.topic.num.partitions": "1"}) as cluster:
        port, where = free_port(), ("-b", cluster.bootstrap_servers, "--timeout", "3")
        with serving(tmp_path, port, "--all-groups", *where):
            page_with(port, "klamm_lag_up 1")
            cluster.kill_broker(0)
            assert "kafka_consumergroup" not in page_with(port, "klamm_lag_up 0")
            cluster.start_broker(0)
            page_with(port, "klamm_lag_up 1")
            cluster.pause_broker(0)
            page_with(port, "klamm_lag_up 0")
            cluster.resume_broker(0)
            page_with(port, "klamm_lag_up 1")


def test_health_and_log_dirs_are_told_for_prometheus(program: Program, live_cluster: LocalCluster) -> None:
    ran = program("cluster", "health", "-o", "prometheus")
    told = ran.out.splitlines()
    assert ("klamm_cluster_health 2" in told) == (ran.code == 1)
    assert len([line for line in told if line.startswith("klamm_cluster_health ")]) == 1
    assert 'klamm_cluster_health_findings{check="offline_log_dirs",severity="critical"} 0' in told
    told = program("brokers", "log-dirs", "-o", "prometheus").out.splitlines()
    folders = {
        f'broker="{one.id}",log_dir="{folder}"' for one in live_cluster.status().brokers for folder in one.log_dirs
    }
    for name in ("size_bytes", "replica_count", "usable_bytes"):
        found = {
            line.partition("{")[2].partition("}")[0] for line in told if line.startswith(f"klamm_log_dir_{name}{{")
        }
        assert found == folders
    by_topic = program("brokers", "log-dirs", "--summary", "topic", "-o", "prometheus").out
    assert "log_dir=" not in by_topic


def test_serve_wants_an_address(capsys: Capture) -> None:
    ran = in_process("lag", "--serve", "somewhere", capture=capsys)
    assert (ran.code, "--serve must be [HOST]:PORT" in ran.err) == (2, True)
    assert address_option("--serve", "[::1]:9308") == ("::1", 9308)
    assert address_option("--serve", ":9308") == ("", 9308)
    assert address_option("--serve", "example.net:65535") == ("example.net", 65535)
    with pytest.raises(UsageError):
        address_option("--serve", ":65536")
    ran = in_process("lag", "--serve", ":9308", "--watch", capture=capsys)
    assert (ran.code, "give one of" in ran.err) == (2, True)


def test_a_port_that_is_taken_is_named(program: Program) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        ran = program("lag", "--serve", f"127.0.0.1:{port}")
    assert (ran.code, ran.out) == (2, "")
    assert f"--serve cannot listen at 127.0.0.1:{port}" in ran.err
