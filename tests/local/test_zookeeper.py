"""The embedded ZooKeeper: real server, real signals."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from contextlib import ExitStack
from pathlib import Path

import pytest

from engine.common.errors import OperationError
from engine.local.addresses import own_loopback_address
from engine.local.probe import four_letter_word, opens_session
from engine.local.processes import ProcessId, find_process
from engine.local.zookeeper import EmbeddedZooKeeper


def _wait_until_gone(identity: ProcessId, timeout_s: float = 30.0) -> bool:
    process = find_process(identity)
    return process is None or process.wait(timeout_s)


def test_serves_until_stopped_and_leaves_nothing() -> None:
    server = EmbeddedZooKeeper(host=own_loopback_address(), fsync=False)
    with server:
        host, port, folder = server.host, server.port, server.data_dir
        assert server.process is not None
        identity = server.process.identity
        assert port == 2181
        assert "Mode: standalone" in four_letter_word(host, port, "srvr")
        assert opens_session(host, port)
        assert (
            "started" in (folder / "zookeeper.log").read_text() or "binding" in (folder / "zookeeper.log").read_text()
        )
        # The terminal's Ctrl-C goes to the foreground process group, so the child must not be in it.
        assert os.getsid(identity.pid) != os.getsid(0)
        server.pause()
        with pytest.raises(TimeoutError):
            four_letter_word(host, port, "srvr", timeout_s=0.2)
        server.resume()
        assert opens_session(host, port, timeout_s=10)
    assert not server.is_running
    assert not folder.exists()
    assert _wait_until_gone(identity)


def test_data_survives_kill_and_restart(tmp_path: Path) -> None:
    folder = tmp_path / "zk"
    server = EmbeddedZooKeeper(folder, host=own_loopback_address(), fsync=False)
    with server:
        before = _last_zxid(server)
        opens_session(server.host, server.port)
        after_session = _last_zxid(server)
        assert after_session > before
        server.kill()
        assert not opens_session(server.host, server.port)
        server.start()
        assert _last_zxid(server) >= after_session
    assert (folder / "version-2").is_dir()


def _last_zxid(server: EmbeddedZooKeeper) -> int:
    lines = four_letter_word(server.host, server.port, "srvr").splitlines()
    return int(next(line.split()[1] for line in lines if line.startswith("Zxid:")), 16)


def test_detached_server_outlives_its_starter_and_is_found_again(tmp_path: Path) -> None:
    host = own_loopback_address()
    program = (
        "import sys; from pathlib import Path; from engine.local.zookeeper import EmbeddedZooKeeper\n"
        "server = EmbeddedZooKeeper(Path(sys.argv[1]), host=sys.argv[2], port=2181, fsync=False, detached=True)\n"
        "server.start(); identity = server.process.identity; print(identity.pid, identity.start_ticks)"
    )
    started = subprocess.run(
        [sys.executable, "-c", program, tmp_path, host], capture_output=True, text=True, check=True, timeout=60
    )
    pid, start_ticks = map(int, started.stdout.split())
    again = EmbeddedZooKeeper(tmp_path, host=host, port=2181)
    assert not again.attach(ProcessId(pid, start_ticks + 1)), "a reused pid must not be taken for ours"
    assert again.attach(ProcessId(pid, start_ticks))
    assert opens_session(host, 2181)
    again.stop()
    assert _wait_until_gone(ProcessId(pid, start_ticks))
    assert tmp_path.exists()


def test_servers_of_an_ensemble_serve_together_or_not_at_all(tmp_path: Path) -> None:
    hosts = [own_loopback_address(), own_loopback_address()]
    peers = {f"server.{n}": f"{host}:2888:3888" for n, host in enumerate(hosts, 1)}
    with ExitStack() as stack:
        servers = []
        for n, host in enumerate(hosts, 1):
            folder = tmp_path / str(n)
            folder.mkdir()
            (folder / "myid").write_text(f"{n}\n")
            settings = {"initLimit": "20", "syncLimit": "20"} | peers
            server = EmbeddedZooKeeper(folder, host=host, port=2181, fsync=False, settings=settings)
            stack.callback(server.stop)
            server.launch()
            servers.append(server)
        for server in servers:
            server.wait_until_serving()
        modes = [four_letter_word(server.host, server.port, "srvr") for server in servers]
        assert ["Mode: leader" in mode or "Mode: follower" in mode for mode in modes] == [True, True]
        servers[0].kill()
        assert not opens_session(servers[1].host, servers[1].port), "one of two is no majority"


def test_taken_port_is_named() -> None:
    host = own_loopback_address()
    with socket.socket() as other:
        other.bind((host, 2181))
        other.listen()
        with pytest.raises(OperationError, match=rf"cannot listen on {host}:2181"):
            EmbeddedZooKeeper(host=host, port=2181).start()


def test_bad_setting_is_told_with_the_servers_words(tmp_path: Path) -> None:
    server = EmbeddedZooKeeper(tmp_path, host=own_loopback_address(), settings={"tickTime": "soon"})
    (tmp_path / "zookeeper.log").write_text("Caused by: an earlier start\n")
    with pytest.raises(OperationError, match=r'ended while starting: Caused by: .*"soon"') as caught:
        server.start()
    assert str(tmp_path) in (caught.value.hint or "")
    assert not server.is_running
