"""The installed wheel: alone, among foreign packages and folders with the names of its own packages, and in tests."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from textwrap import dedent

import pytest
from installed_klamm import CODE, Installed, foreign_wheel, new_environment, write_tree
from patience import wait_for
from small_clusters import cluster

from engine.common.snapshot_json import snapshot_to_json
from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster
from engine.local.processes import ProcessId, find_process

pytestmark = pytest.mark.timeout(900)

INTRUDER = """\
import os, sys
with open(os.environ["KLAMM_TEST_INTRUDERS"], "a") as file:
    file.write(f"{__name__} of {__file__} in {sys.argv}\\n")
raise ImportError(f"{__name__} is not klamm's")
"""
"""The content of packages that must not be imported."""

INTRUDERS = {f"{name}/__init__.py": INTRUDER for name in CODE}


def test_without_extras_it_works_anywhere(installed: Installed, tmp_path: Path) -> None:
    for words in (("klamm", "--version"), ("python", "-m", "klamm", "--version")):
        ran = installed.run(*words, folder=tmp_path, env={"PYTHONPATH": ""})
        assert (ran.code, ran.out.split()[0]) == (0, "klamm"), ran.err
    doctor = installed.run("klamm", "doctor", "-o", "json", folder=tmp_path, env={"PYTHONPATH": ""})
    missing = {check["name"] for check in doctor.json if check["status"] == "missing"}
    without_mvn = {"zookeeper jars"} if shutil.which("mvn") is None else set()
    assert missing - {"java"} == without_mvn, "they come with an extra or through mvn, and Java may come with an extra"
    assert doctor.code == (1 if missing else 0)
    with LocalCluster(1) as cluster:
        words = ("topics", "list", "-b", cluster.bootstrap_servers, "--zookeeper", cluster.zookeeper_connect)
        made = installed.run("klamm", "topics", "create", "orders", *words[2:], folder=tmp_path)
        assert made.code == 0, made.err
        assert installed.run("klamm", *words, folder=tmp_path).out.split() == ["orders"]


def test_it_works_with_the_newest_versions_that_are_allowed(wheel: Path, tmp_path: Path) -> None:
    """Users install those; constraints.txt is for us. HiGHS 1.16 greets on stdout, where only data may be."""
    newest = new_environment(tmp_path)
    newest.pip("install", f"{wheel}[plan,security]")
    snapshot = tmp_path / "cluster.json"
    crowded = cluster({1: "a", 2: "b", 3: "c"}, {"t": [(1, 2)] * 12})
    snapshot.write_text(snapshot_to_json(crowded), encoding="utf-8")
    words = ("plan", "rebalance", "--snapshot", snapshot, "-o", "json")
    ran = newest.run("klamm", *words, folder=tmp_path, env={"PYTHONPATH": ""})
    assert (ran.code, ran.err.count("Traceback")) == (0, 0), ran.err
    assert ran.out.startswith("{"), ran.out[:200]
    assert ran.json["partitions"]
    helped = newest.run("klamm", "topics", "create", "--help", folder=tmp_path, env={"PYTHONPATH": ""})
    assert (helped.code, "--replica-assignment" in helped.out) == (0, True), helped.err


def test_only_klamm_can_be_imported(installed: Installed, tmp_path: Path) -> None:
    code = f"import importlib.util as u, klamm.testing; print([n for n in {CODE} if u.find_spec(n) is not None])"
    assert installed.run("python", "-c", code, folder=tmp_path).out.strip() == "[]"


@pytest.fixture
def among_intruders(installed: Installed, tmp_path: Path) -> Iterator[Installed]:
    """klamm beside a foreign package that ships ``cli``, ``engine``, ``plans`` and ``tui``."""
    installed.pip("install", foreign_wheel(tmp_path, INTRUDERS))
    assert (installed.site_packages / "engine" / "__init__.py").exists()
    try:
        yield installed
    finally:
        installed.pip("uninstall", "-y", "foreign")


def test_foreign_packages_and_folders_of_the_same_names_are_never_imported(
    among_intruders: Installed, tmp_path: Path
) -> None:
    """This holds even in a folder that has them: every program and child process of klamm's runs klamm's own code."""
    folder = tmp_path / "project"
    write_tree(folder, INTRUDERS)
    seen = tmp_path / "intruders"
    env = {"KLAMM_TEST_INTRUDERS": str(seen), "PYTHONPATH": f"{among_intruders.jars}::{folder}"}

    def klamm(*words: str, stdin: str = "") -> str:
        ran = among_intruders.run("klamm", *words, folder=folder, env=env, stdin=stdin)
        assert ran.code == 0, (words, ran.err)
        return ran.out

    assert among_intruders.run("python", "-m", "klamm", "--version", folder=folder, env=env).code == 0
    backoff = ("--config", "log.cleaner.backoff.ms=100")
    klamm("local", "up", "--detach", "--host", own_loopback_address(), "--no-fsync", *backoff)
    try:
        _records_are_kept_and_compacted(klamm)
        klamm("local", "kill", "0")
        klamm("local", "start", "0")
        assert klamm("consume", "compacted", "--until-end").split()[-1] == "5"
        assert among_intruders.processes(), "the test sees them"
    finally:
        klamm("local", "down")
    assert not seen.exists(), seen.read_text()
    assert among_intruders.processes() == []


def _records_are_kept_and_compacted(klamm: Callable[..., str]) -> None:
    compacted = ("cleanup.policy=compact", "segment.bytes=100", "min.cleanable.dirty.ratio=0.01")
    klamm("topics", "create", "compacted", *(word for setting in compacted for word in ("--config", setting)))
    klamm("topics", "create", "plain")
    assert klamm("topics", "list").split() == ["compacted", "plain"]
    klamm("produce", "plain", stdin="one\ntwo\n")
    assert klamm("consume", "plain", "--until-end").split() == ["one", "two"]
    for value in range(6):
        klamm("produce", "compacted", "--key-separator", ":", stdin=f"key:{value}\n")
    # The cleaner process has done its work when old values of the key are gone.
    wait_for(lambda: "0" not in klamm("consume", "compacted", "--until-end").split(), "a compaction")


def test_a_foreign_package_goes_without_taking_files_along(among_intruders: Installed, tmp_path: Path) -> None:
    before = set((among_intruders.site_packages / "klamm").rglob("*.py"))
    among_intruders.pip("uninstall", "-y", "foreign")
    assert set((among_intruders.site_packages / "klamm").rglob("*.py")) == before
    assert among_intruders.run("klamm", "--version", folder=tmp_path).code == 0


PROJECT = {
    "engine/__init__.py": "NAME = 'mine'\n",
    "cli.py": "NAME = 'mine too'\n",
    "conftest.py": """\
        import json
        import pytest


        @pytest.fixture(scope="session")
        def kafka_options():
            return {"config": {"num.partitions": 2}}


        @pytest.fixture
        def note(request):
            def write(cluster):
                with open("started.jsonl", "a") as file:
                    file.write(json.dumps(json.loads((cluster.directory / "local.json").read_text())) + "\\n")
            return write
        """,
    "test_orders.py": """\
        import sys

        import pytest
        from confluent_kafka import Consumer, Producer, TopicPartition

        import cli
        import engine


        def send_and_read(cluster, value):
            producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
            producer.produce("orders", value, partition=0)
            assert producer.flush(30) == 0
            consumer = Consumer({"bootstrap.servers": cluster.bootstrap_servers, "group.id": "tests"})
            consumer.assign([TopicPartition("orders", 0, 0)])
            record = consumer.poll(30)
            consumer.close()
            return record.value()


        def test_a_record_goes_through(kafka, note):
            note(kafka)
            assert send_and_read(kafka, b"1") == b"1"
            assert len(kafka.brokers) == 1


        def test_the_cluster_is_shared_and_as_its_options_say(kafka):
            assert send_and_read(kafka, b"2") == b"1", "of the test before"
            listed = Consumer({"bootstrap.servers": kafka.bootstrap_servers, "group.id": "g"}).list_topics("orders", 30)
            assert len(listed.topics["orders"].partitions) == 2


        @pytest.mark.kafka_cluster([4, 5], racks=["a", "b"])
        def test_a_cluster_can_be_hurt(kafka_cluster, note):
            note(kafka_cluster)
            assert list(kafka_cluster.brokers) == [4, 5]
            kafka_cluster.kill_broker(4)
            kafka_cluster.start_broker(4)
            assert send_and_read(kafka_cluster, b"3") == b"3"


        def test_my_own_packages_are_mine(kafka):
            assert (vars(engine)["NAME"], vars(cli)["NAME"]) == ("mine", "mine too")
            assert [name for name in sys.modules if name.startswith("klamm.") and name not in EXPECTED] == []


        EXPECTED = {"klamm.testing", "klamm.pytest_plugin"}
        """,
}


def test_the_fixtures_work_where_only_klamm_pytest_and_a_client_are(with_client: Installed, tmp_path: Path) -> None:
    write_tree(tmp_path, {name: dedent(text) for name, text in PROJECT.items()})
    options = ("--strict-markers", "-W", "error", "-p", "no:cacheprovider")
    # The current folder makes the user's own packages available, as python -m pytest does.
    ran = with_client.run("python", "-m", "pytest", "-q", *options, folder=tmp_path)
    assert ran.code == 0, ran.out + ran.err
    assert "4 passed" in ran.out
    assert with_client.processes() == []
    started = [json.loads(line) for line in (tmp_path / "started.jsonl").read_text().splitlines()]
    assert len(started) == 2
    for record in started:
        assert not Path(record["dir"]).exists()
        for process in (record["zookeeper_process"], *(broker["process"] for broker in record["brokers"])):
            assert find_process(ProcessId(process["pid"], process["start_ticks"])) is None
