"""A whole local cluster: real processes are started, killed, paused and found again, and none is left behind."""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import sys
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.common.errors import OperationError
from engine.kafka.config.properties import parse_properties
from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster
from engine.local.cluster_record import ClusterRecord, broker_directory
from engine.local.local_broker import LocalBroker, LocalBrokerSpec
from engine.local.probe import answers_api_versions, known_broker_ids
from engine.local.processes import ProcessId, find_process

QUICK_SESSIONS = {"zookeeper.session.timeout.ms": "2000"}


def _all_gone(identities: list[ProcessId], timeout_s: float = 30.0) -> bool:
    return all(process is None or process.wait(timeout_s) for process in map(find_process, identities))


def _identities(cluster: LocalCluster) -> list[ProcessId]:
    processes = [cluster.zookeeper.process, *(broker.process for broker in cluster.brokers.values())]
    return [process.identity for process in processes if process is not None]


def test_life_of_a_cluster() -> None:
    with LocalCluster(2, racks=["a", "b"], config=QUICK_SESSIONS) as cluster:
        folder, identities = cluster.directory, _identities(cluster)
        assert len(identities) == 3
        assert len({(broker.spec.host, broker.spec.port) for broker in cluster.brokers.values()}) == 2
        assert cluster.bootstrap_servers == f"{cluster.host}:9092,{cluster.host}:9093"
        for broker in cluster.brokers.values():
            assert known_broker_ids(broker.spec.host, broker.spec.port) == {0, 1}
        assert cluster.controller_id() in (0, 1)
        record = json.loads((folder / "local.json").read_text())
        assert (record["zookeeper"], record["bootstrap_servers"]) == (
            cluster.zookeeper_connect,
            cluster.bootstrap_servers,
        )
        _kill_and_start_again(cluster, 1)
        _pause_and_resume(cluster, 0)
        _add_and_stop(cluster)
        identities += _identities(cluster)
    assert _all_gone(identities, timeout_s=0)
    assert not folder.exists()


def test_a_wrong_setting_of_a_secured_cluster_is_told_in_one_sentence(tmp_path: Path) -> None:
    cluster = LocalCluster(1, directory=tmp_path / "c", secure=True, sasl="PLAIN", config={"ssl.client.auth": "maybe"})
    with pytest.raises(OperationError, match=r"^broker 0 ended: (?!error).*maybe.*ssl.client.auth") as caught:
        cluster.start()
    assert "\n" not in str(caught.value)


def test_a_secured_cluster_needs_a_library_and_says_which(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "cryptography", None)
    with pytest.raises(OperationError, match="cryptography") as caught:
        LocalCluster(1, directory=tmp_path / "c", secure=True).start()
    assert caught.value.hint == "pip install 'klamm[security]'"


def _kill_and_start_again(cluster: LocalCluster, broker_id: int) -> None:
    before = cluster.status().brokers[broker_id]
    assert before.alive and before.rack == "b" and before.log_dirs
    cluster.kill_broker(broker_id)
    dead = cluster.status().brokers[broker_id]
    assert (dead.alive, dead.pid) == (False, None)
    assert not answers_api_versions(dead.host, dead.port)
    # Its old registration still exists. The broker serves once the new process reports so.
    cluster.start_broker(broker_id)
    again = cluster.status().brokers[broker_id]
    assert again.alive and again.port == before.port and again.pid != before.pid
    cluster.start_broker(broker_id)
    assert cluster.status().brokers[broker_id] == again


def _pause_and_resume(cluster: LocalCluster, broker_id: int) -> None:
    spec = cluster.broker(broker_id).spec
    cluster.pause_broker(broker_id)
    assert not answers_api_versions(spec.host, spec.port)
    cluster.resume_broker(broker_id)
    cluster.wait_until_serving([broker_id])


def _add_and_stop(cluster: LocalCluster) -> None:
    cluster.add_broker(7, rack="c", config={"num.io.threads": "3"})
    properties = parse_properties((cluster.directory / "broker-7" / "server.properties").read_text())
    assert (properties["broker.rack"], properties["num.io.threads"]) == ("c", "3")
    assert cluster.stop_broker(7), "TERM should be enough"
    assert not cluster.broker(7).is_alive
    with pytest.raises(OperationError, match="in this cluster already"):
        cluster.add_broker(7)


_PARENT = """
import sys, threading, time
from dataclasses import replace
from pathlib import Path
from engine.local.cluster import LocalCluster
cluster = LocalCluster(1, directory=Path(sys.argv[1]), host=sys.argv[2])
# The kernel ties a child to the thread that forked it: it must outlive this one.
starter = threading.Thread(target=cluster.start)
starter.start()
starter.join()
for process in (cluster.zookeeper.process, cluster.broker(0).process):
    print(process.identity.pid, process.identity.start_ticks)
print("up", flush=True)
time.sleep(600)
"""


def test_nothing_outlives_a_killed_parent(tmp_path: Path) -> None:
    parent = subprocess.Popen(
        [sys.executable, "-c", _PARENT, str(tmp_path), own_loopback_address()], stdout=subprocess.PIPE, text=True
    )
    assert parent.stdout is not None
    lines = [parent.stdout.readline().split() for _ in range(3)]
    assert lines[2] == ["up"]
    identities = [ProcessId(*map(int, line)) for line in lines[:2]]
    assert all(find_process(identity) is not None for identity in identities)
    parent.send_signal(signal.SIGKILL)
    parent.wait()
    parent.stdout.close()
    assert _all_gone(identities)


_DETACHED = """
import sys
from pathlib import Path
from engine.local.cluster import LocalCluster
config = {"zookeeper.session.timeout.ms": "1000"}
LocalCluster(1, directory=Path(sys.argv[1]), host=sys.argv[2], config=config, detached=True,
             fsync=True, log_dir_count=2).start()
"""


def _starting_detached(folder: Path, host: str) -> subprocess.Popen[str]:
    return subprocess.Popen([sys.executable, "-c", _DETACHED, str(folder), host], stderr=subprocess.PIPE, text=True)


def _start_detached(folder: Path, host: str) -> None:
    _, said = (starting := _starting_detached(folder, host)).communicate(timeout=60)
    assert starting.returncode == 0, said


def test_clusters_that_start_at_the_same_time_at_the_same_address_share_no_port(tmp_path: Path) -> None:
    host, folders = own_loopback_address(), [tmp_path / name for name in ("one", "other")]
    starting = [_starting_detached(folder, host) for folder in folders]
    try:
        said = [process.communicate(timeout=120)[1] for process in starting]
        assert [process.returncode for process in starting] == [0, 0], said
        clusters = [LocalCluster.attach(folder) for folder in folders]
        assert all(each.status().zookeeper_alive and each.status().brokers[0].alive for each in clusters)
        addresses = [each.zookeeper.connect_string for each in clusters] + [each.bootstrap_servers for each in clusters]
        assert len(set(addresses)) == 4, addresses
    finally:
        for folder in folders:
            if (folder / "local.json").exists():
                LocalCluster.attach(folder).stop()


def test_detached_cluster_is_found_again_and_ended(tmp_path: Path) -> None:
    folder = tmp_path / ".klamm"
    _start_detached(folder, own_loopback_address())
    cluster = LocalCluster.attach(folder)
    try:
        status = cluster.status()
        assert status.zookeeper_alive and status.brokers[0].alive
        with pytest.raises(OperationError, match="already runs"):
            LocalCluster(1, directory=folder).start()
        assert LocalCluster.attach(folder).status() == status, "the refusal must not have touched it"
        cluster.kill_broker(0)
        assert not LocalCluster.attach(folder).status().brokers[0].alive
        LocalCluster.attach(folder).start_broker(0)
        again = LocalCluster.attach(folder)
        assert again.status().brokers[0].alive
        _restart_zookeeper(again)
        again.add_broker(1)
        assert len(again.broker(1).spec.log_dirs) == 2, "as the others"
        identities = _identities(LocalCluster.attach(folder))
        assert len(identities) == 3
    finally:
        LocalCluster.attach(folder).stop()
    assert _all_gone(identities, timeout_s=0)
    assert not (folder / "local.json").exists()
    assert (folder / "broker-0" / "data-0" / "meta.properties").exists()
    with pytest.raises(OperationError, match="no local cluster runs"):
        LocalCluster.attach(folder)


def test_a_cluster_at_an_address_of_ipv6(tmp_path: Path) -> None:
    folder = tmp_path / ".klamm"
    _start_detached(folder, "::1")
    try:
        LocalCluster.attach(folder).kill_broker(0)
        LocalCluster.attach(folder).start_broker(0)
        again = LocalCluster.attach(folder)
        status = again.status()
        assert status.zookeeper_alive and status.brokers[0].alive
        assert (again.host, status.zookeeper[:6], status.bootstrap_servers[:6]) == ("::1", "[::1]:", "[::1]:")
    finally:
        LocalCluster.attach(folder).stop()


def _restart_zookeeper(cluster: LocalCluster) -> None:
    """A later command finds the new process, which still flushes as promised."""
    assert cluster.stop_zookeeper(), "TERM should be enough"
    assert not LocalCluster.attach(cluster.directory).status().zookeeper_alive
    cluster.start_zookeeper()
    process = LocalCluster.attach(cluster.directory).zookeeper.process
    assert process is not None
    assert b"-Dzookeeper.forceSync=yes" in Path(f"/proc/{process.pid}/cmdline").read_bytes().split(b"\0")
    cluster.kill_zookeeper()
    assert not LocalCluster.attach(cluster.directory).status().zookeeper_alive
    cluster.start_zookeeper()


def test_a_record_of_an_earlier_version_is_read(tmp_path: Path) -> None:
    ClusterRecord("127.0.0.1:2181", None, False, {}, {}).write(tmp_path)
    document = json.loads((tmp_path / "local.json").read_text())
    del document["fsync"]
    (tmp_path / "local.json").write_text(json.dumps(document))
    assert ClusterRecord.read(tmp_path).fsync


def test_a_held_broker_that_is_never_let_go_can_be_ended(tmp_path: Path) -> None:
    broker = LocalBroker(LocalBrokerSpec(0, own_loopback_address(), 9092, broker_directory(tmp_path, 0)))
    broker.start({"zookeeper.connect": "127.0.0.1:1"}, {}, detached=False, held=True)
    process = broker.process
    assert process is not None
    broker.stop(30)
    assert not process.is_alive
    broker.let_go()


def test_a_paused_broker_is_known_as_such_by_whoever_finds_it(tmp_path: Path) -> None:
    with LocalCluster(1, directory=tmp_path) as cluster:
        cluster.pause_broker(0)
        assert LocalCluster.attach(tmp_path).broker(0).is_paused
        assert LocalCluster.attach(tmp_path).controller_id() is None, "nobody is asked who cannot answer"
        cluster.resume_broker(0)
        assert not LocalCluster.attach(tmp_path).broker(0).is_paused
        cluster.kill_broker(0)
        assert not cluster.broker(0).is_paused


def test_reused_pid_is_not_taken_for_a_broker(tmp_path: Path) -> None:
    mine = ProcessId(os.getpid(), 1)
    spec = LocalBrokerSpec(0, own_loopback_address(), 9092, broker_directory(tmp_path, 0), log_dir_count=2)
    record = ClusterRecord(f"{spec.host}:2181/chroot", mine, True, {"a": "b"}, {0: (spec, mine)})
    record.write(tmp_path)
    assert ClusterRecord.read(tmp_path) == record
    stale = LocalCluster.attach(tmp_path)
    assert not stale.status().zookeeper_alive and not stale.status().brokers[0].alive
    stale.stop()


def test_damaged_record_is_told(tmp_path: Path) -> None:
    for text in ("not json", "{}", "[]"):
        (tmp_path / "local.json").write_text(text)
        with pytest.raises(OperationError, match="not the record of a local cluster"):
            LocalCluster.attach(tmp_path)


def test_broker_that_cannot_start_is_told_in_its_own_words(tmp_path: Path) -> None:
    cluster = LocalCluster(1, directory=tmp_path, config={"num.io.threads": "many"})
    with pytest.raises(OperationError, match=r"^broker 0 ended: (?!error).*num\.io\.threads") as caught:
        cluster.start()
    assert str(tmp_path) in (caught.value.hint or "")
    assert not cluster.zookeeper.is_running
    assert not (tmp_path / "local.json").exists()


@pytest.mark.parametrize(
    ("free", "expected"), [(4096, "it left no message"), (4095, "it left no message: the disk of")]
)
def test_a_broker_that_could_not_write_why_it_ended_is_told_apart(
    free: int, expected: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = LocalBroker(LocalBrokerSpec(0, "127.0.0.1", 1, tmp_path))
    full = shutil.disk_usage(tmp_path)._replace(free=free)
    monkeypatch.setattr(shutil, "disk_usage", lambda folder: full)
    with pytest.raises(OperationError) as caught:
        broker.has_started()
    assert str(caught.value) == f"broker 0 ended: {expected}{f' {tmp_path} is full' * (free < 4096)}"


@pytest.mark.parametrize("entry", ["PLAINTEXT://{host}:{other}", "A://{host}:{other}, B://:{another}"])
def test_listeners_elsewhere_than_where_the_broker_is_expected_are_refused_at_once(tmp_path: Path, entry: str) -> None:
    """Nobody would find the broker there, and the start would wait for it until it times out."""
    address = own_loopback_address()
    spec = LocalBrokerSpec(0, address, 9092, tmp_path, command=("/bin/false",))
    listeners = entry.format(host=address, other=9093, another=9094)
    with pytest.raises(OperationError, match=r"broker 0 is expected on port 9092, .* no such port") as caught:
        LocalBroker(spec).start({"listeners": listeners}, {}, detached=False)
    assert caught.value.hint == "let listeners name port 9092, or give the first broker's port with --port"
    assert not (tmp_path / "server.properties").exists()


def test_listeners_may_name_the_broker_s_port_at_any_address(tmp_path: Path) -> None:
    spec = LocalBrokerSpec(0, own_loopback_address(), 9092, tmp_path, command=("/bin/true",))
    broker = LocalBroker(spec)
    broker.start({"listeners": "A://[::1]:9094,PLAINTEXT://0.0.0.0:9092"}, {}, detached=False)
    broker.kill()


def test_unknown_broker_is_told_with_those_that_are_there() -> None:
    with pytest.raises(OperationError, match="no broker 5") as caught:
        LocalCluster(2).broker(5)
    assert caught.value.hint == "its brokers are none"


def test_a_broker_that_dies_is_no_longer_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    """The controller may die before it has told the others who started; it will never know that itself."""
    cluster = LocalCluster(2, start_timeout_s=2)
    started, dying = SimpleNamespace(id=0, is_alive=True, is_paused=False), SimpleNamespace(id=1, is_alive=True)
    cluster.brokers = {0: started, 1: dying}  # type: ignore[dict-item]

    def knows(broker: Any, wanted: list[int]) -> bool:
        dying.is_alive = False
        return broker is started

    dying.is_paused = False
    monkeypatch.setattr(cluster, "_is_serving", lambda broker: True)
    monkeypatch.setattr(cluster, "_knows", knows)
    cluster.wait_until_serving([0])
    assert not dying.is_alive


def test_a_name_that_nobody_knows_is_told_and_leaves_no_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Nameless(socket.socket):
        def bind(self, address: Any) -> None:
            raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("socket.socket", Nameless)
    cluster = LocalCluster(1, directory=tmp_path / "new", host="nohost")
    with pytest.raises(OperationError, match="the name nohost cannot be resolved"):
        cluster.start()
    assert not (tmp_path / "new").exists()


def test_log_dirs_that_a_brokers_own_settings_name_are_its_log_dirs(tmp_path: Path) -> None:
    spec = LocalBrokerSpec(2, "127.0.0.1", 9092, tmp_path, log_dir_count=3)
    assert [path.name for path in spec.log_dirs] == ["data-0", "data-1", "data-2"]
    own = replace(spec, overrides={"log.dirs": "/one, /two"})
    assert own.log_dirs == (Path("/one"), Path("/two"))


def test_several_log_dirs_and_own_settings(tmp_path: Path) -> None:
    cluster = LocalCluster(
        [3], directory=tmp_path, log_dir_count=2, broker_config={3: {"num.io.threads": "5"}}, chroot="/kafka/a"
    )
    with cluster:
        properties = parse_properties((tmp_path / "broker-3" / "server.properties").read_text())
        assert properties["zookeeper.connect"].endswith("/kafka/a")
        assert properties["num.io.threads"] == "5"
        assert [Path(path).name for path in properties["log.dirs"].split(",")] == ["data-0", "data-1"]
        assert all((tmp_path / "broker-3" / name / "meta.properties").exists() for name in ("data-0", "data-1"))
        assert (tmp_path / "broker-3" / "logs" / "server.log").exists()
