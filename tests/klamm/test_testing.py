"""``klamm.testing``: a cluster in a process of its own; driven, hurt, and never left behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterable
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from patience import within

from engine.kafka.config.properties import parse_properties
from engine.local.addresses import own_loopback_address
from engine.local.cluster_record import ClusterRecord
from engine.local.probe import answers_api_versions, known_broker_ids
from engine.local.processes import LocalProcess, ProcessId, find_process
from klamm.testing import LocalCluster, OperationError

DEADLINE_S = 60.0
QUICK_SESSIONS = {"zookeeper.session.timeout.ms": 2000}


def _processes(directory: Path) -> list[LocalProcess]:
    """Return ZooKeeper and the brokers that are running."""
    record = ClusterRecord.read(directory)
    noted = [record.zookeeper_process, *(process for _, process in record.brokers.values())]
    return [running for pid in noted if pid is not None and (running := find_process(pid)) is not None]


def _all_gone(processes: Iterable[LocalProcess], timeout_s: float = DEADLINE_S) -> bool:
    return all(process.wait(timeout_s) for process in processes)


def _wait_for(condition: Callable[[], bool], what: str) -> None:
    is_in_time = within(DEADLINE_S)
    while not condition():
        assert is_in_time(), what
        time.sleep(0.02)


def test_life_of_a_cluster() -> None:
    settings = {"auto.create.topics.enable": False, "num.partitions": 7, **QUICK_SESSIONS}
    with LocalCluster(
        [1, 2],
        racks=["a", "b"],
        config=settings,
        broker_config={2: {"num.io.threads": 3}},
        log_dir_count=2,
        chroot="/k",
    ) as cluster:
        folder, processes = cluster.directory, _processes(cluster.directory)
        assert len(processes) == 3
        assert cluster.broker_ids == (1, 2)
        assert cluster.zookeeper_connect == f"{cluster.zookeeper.connect_string}/k"
        assert cluster.bootstrap_servers == ",".join(broker.address for broker in cluster.brokers.values())
        assert cluster.controller_id() in (1, 2)
        with pytest.raises(OperationError, match="is not secured"):
            cluster.client_properties()
        _is_started_as_told(folder)
        _hurt_and_mend(cluster)
        _hurt_zookeeper(cluster)
        _add_and_stop(cluster)
        processes += _processes(folder)
    assert _all_gone(processes, timeout_s=0)
    assert not folder.exists()
    cluster.stop()
    assert cluster.broker_ids == (1, 2, 7), "known after the end as well"
    with pytest.raises(OperationError, match="is not running"):
        cluster.kill_broker(1)


@pytest.mark.parametrize("sasl", [None, "plain"])
def test_a_secured_cluster(sasl: str | None) -> None:
    with LocalCluster(1, secure=True, sasl=sasl, acls=True) as cluster:
        properties = parse_properties(cluster.client_properties("alice").read_text())
        assert properties["security.protocol"] == ("SSL" if sasl is None else "SASL_SSL")
        admin = AdminClient(cluster.librdkafka_config())
        admin.create_topics([NewTopic("orders", 1)])["orders"].result(30)
        assert "orders" in admin.list_topics(timeout=30).topics
        assert "orders" not in AdminClient(cluster.librdkafka_config("alice")).list_topics(timeout=30).topics
        with pytest.raises(OperationError, match="no user 'carol'"):
            cluster.client_properties("carol")
        cluster.restart_broker(0)
        # As in Kafka, a broker knows the others a moment before it knows their topics.
        is_in_time = within(30)
        while "orders" not in admin.list_topics(timeout=30).topics:
            assert is_in_time()


def _is_started_as_told(folder: Path) -> None:
    first, second = (parse_properties((folder / f"broker-{n}" / "server.properties").read_text()) for n in (1, 2))
    assert (first["auto.create.topics.enable"], first["num.partitions"]) == ("false", "7")
    assert (first.get("num.io.threads"), second["num.io.threads"]) == (None, "3")
    assert (first["broker.rack"], second["broker.rack"]) == ("a", "b")
    assert len(first["log.dirs"].split(",")) == 2


def _hurt_and_mend(cluster: LocalCluster) -> None:
    broker = cluster.broker(2)
    host, _, port = broker.address.partition(":")
    assert known_broker_ids(host, int(port)) == {1, 2}
    before = broker.pid
    cluster.kill_broker(2)
    assert (broker.is_alive, broker.pid) == (False, None)
    cluster.kill_broker(2)
    cluster.start_broker(2, {"num.io.threads": 4})
    assert broker.is_alive and broker.pid != before
    assert (broker.logs_path / "server.log").exists()
    properties = broker.logs_path.parent / "server.properties"
    assert parse_properties(properties.read_text())["num.io.threads"] == "4"
    cluster.pause_broker(2)
    assert not answers_api_versions(host, int(port))
    cluster.resume_broker(2)
    cluster.wait_until_serving([2])
    cluster.restart_broker(2)
    assert parse_properties(properties.read_text())["num.io.threads"] == "3", "overrides are for one start"


def _hurt_zookeeper(cluster: LocalCluster) -> None:
    server = cluster.zookeeper
    server.kill()
    assert not server.is_running
    server.kill()
    server.start()
    assert server.is_running
    server.pause()
    server.resume()
    server.restart()
    cluster.wait_until_serving()


def _add_and_stop(cluster: LocalCluster) -> None:
    cluster.add_broker(7, rack="c", config={"num.io.threads": 2})
    assert cluster.broker_ids == (1, 2, 7)
    assert cluster.stop_broker(7), "TERM should be enough"
    assert not cluster.broker(7).is_alive
    with pytest.raises(OperationError, match="in this cluster already"):
        cluster.add_broker(7)
    with pytest.raises(OperationError, match="no broker 5 in this cluster\nhint: its brokers are 1, 2, 7"):
        cluster.broker(5)
    with pytest.raises(OperationError, match="line break"):
        cluster.start_broker(7, {"a": "b\nkill 1"})


def test_a_broker_that_has_to_be_killed_is_told() -> None:
    with LocalCluster(1, config={"controlled.shutdown.retry.backoff.ms": 30_000}) as cluster:
        # Without ZooKeeper its shutdown takes longer than this.
        cluster.zookeeper.pause()
        assert not cluster.stop_broker(0, timeout_s=0.05)


def test_a_named_folder_is_kept_and_used_again(tmp_path: Path) -> None:
    cluster = LocalCluster(1, directory=tmp_path, host=own_loopback_address())
    with pytest.raises(OperationError, match="has not been started"):
        _ = cluster.bootstrap_servers
    with cluster:
        cluster_id = _cluster_id(tmp_path)
        assert cluster.directory == tmp_path
        with pytest.raises(OperationError, match="already runs"):
            LocalCluster(1, directory=tmp_path).start()
        assert cluster.brokers[0].is_alive, "the refusal must not have touched it"
    assert not (tmp_path / "local.json").exists()
    with cluster:
        assert _cluster_id(tmp_path) == cluster_id


def _cluster_id(folder: Path) -> str:
    return parse_properties((folder / "broker-0" / "data" / "meta.properties").read_text())["cluster.id"]


def test_what_cannot_start_is_told_with_a_hint(tmp_path: Path) -> None:
    with pytest.raises(OperationError, match=r"^broker 0 ended: (?!error).*num\.io\.threads") as caught:
        LocalCluster(1, directory=tmp_path, config={"num.io.threads": "many"}).start()
    assert caught.value.hint is not None
    assert str(tmp_path) in caught.value.hint
    with pytest.raises(OperationError, match="--chroot must be a path"):
        LocalCluster(1, chroot="kafka").start()
    with pytest.raises(OperationError, match="names a broker twice"):
        LocalCluster([1, 1]).start()


def test_nothing_of_klamms_inside_is_imported() -> None:
    code = (
        "import sys; before = set(sys.modules); import klamm.testing\n"
        "print(*sorted(n for n in set(sys.modules) - before if n.split('.')[0] not in sys.stdlib_module_names))"
    )
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert ran.stdout.split() == ["klamm", "klamm.testing"]


def test_importing_the_plugin_costs_next_to_nothing() -> None:
    code = (
        "import pytest, sys; before = set(sys.modules); import klamm.pytest_plugin\n"
        "print(*sorted(set(sys.modules) - before))"
    )
    # Without plugins: this one would be among them.
    environ = os.environ | {"PYTEST_DISABLE_PLUGIN_AUTOLOAD": "1"}
    ran = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, env=environ)
    assert ran.stdout.split() == ["klamm", "klamm.pytest_plugin"]


_TESTS = """
import os, sys, time, threading
from klamm.testing import LocalCluster
cluster = LocalCluster(1)
starting = threading.Thread(target=cluster.start)
starting.start()
while cluster._holder is None:
    time.sleep(0.01)
print(cluster._holder._process.pid, flush=True)
# A child of the tests' that has the pipe as well, and lives on.
child = os.fork()
if child == 0:
    time.sleep(600)
starting.join()
print(child, cluster.directory, flush=True)
time.sleep(600)
"""


def _process(pid: int) -> LocalProcess:
    """Return a process that is running now."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return LocalProcess(ProcessId(pid, int(fields[19])))


def _descendants(pid: int) -> list[LocalProcess]:
    processes: list[LocalProcess] = []
    for path in Path(f"/proc/{pid}/task").glob("*/children"):
        for child in map(int, path.read_text().split()):
            processes += [_process(child), *_descendants(child)]
    return processes


def test_nothing_outlives_killed_tests() -> None:
    with subprocess.Popen([sys.executable, "-c", _TESTS], stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        holder = _process(int(tests.stdout.readline()))
        child, folder = tests.stdout.readline().split()
        processes = [holder, *_processes(Path(folder))]
        assert len(processes) == 3
        try:
            tests.kill()
            tests.wait()
            assert _all_gone(processes)
            assert not Path(folder).exists()
        finally:
            os.kill(int(child), signal.SIGKILL)


def test_nothing_outlives_tests_that_are_killed_while_the_cluster_starts() -> None:
    with subprocess.Popen([sys.executable, "-c", _TESTS], stdout=subprocess.PIPE, text=True) as tests:
        assert tests.stdout is not None
        holder = _process(int(tests.stdout.readline()))
        _wait_for(lambda: bool(_descendants(holder.pid)), "ZooKeeper was not started")
        others = [process for process in _descendants(tests.pid) if process.pid not in (holder.pid, *_pids(holder))]
        processes = [holder, *_descendants(holder.pid)]
        try:
            tests.kill()
            tests.wait()
            assert _all_gone(processes)
        finally:
            for process in others:
                process.kill()


def _pids(process: LocalProcess) -> list[int]:
    return [child.pid for child in _descendants(process.pid)]


def test_a_start_that_takes_long_can_be_interrupted() -> None:
    # It waits for a broker 0, which calls itself 9.
    cluster = LocalCluster(1, config={"broker.id": 9}, start_timeout_s=600)
    processes: list[LocalProcess] = []

    def press_ctrl_c() -> None:
        _wait_for(lambda: cluster._holder is not None, "the process was not started")
        assert cluster._holder is not None
        holder = _process(cluster._holder._process.pid)
        _wait_for(lambda: len(_descendants(holder.pid)) == 2, "ZooKeeper and the broker were not started")
        processes.extend([holder, *_descendants(holder.pid)])
        os.kill(os.getpid(), signal.SIGINT)

    pressing = threading.Thread(target=press_ctrl_c)
    pressing.start()
    with pytest.raises(KeyboardInterrupt):
        cluster.start()
    pressing.join()
    assert len(processes) == 3
    # All are killed by now, but the system may need some milliseconds to end a process.
    assert _all_gone(processes, timeout_s=5)


def test_nothing_outlives_a_killed_holder() -> None:
    cluster = LocalCluster(1)
    cluster.start()
    folder = cluster.directory
    try:
        assert cluster._holder is not None
        holder = cluster._holder._process
        assert os.getsid(holder.pid) != os.getsid(0), "a Ctrl-C in the terminal is not for it"
        processes = _processes(folder)
        holder.kill()
        assert _all_gone(processes)
        with pytest.raises(OperationError, match="ended without a message"):
            cluster.controller_id()
    finally:
        cluster.stop()
        subprocess.run(["rm", "-r", folder], check=True)
