"""A real Prometheus reads ``klamm exporter`` and brokers: boards find their data, an alert fires and clears."""

from __future__ import annotations

import json
import re
import socket
import threading
import time
import urllib.parse
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from guest_cluster import GuestCluster
from klamm_program import klamm
from patience import wait_for, within
from public_boards import BOARDS
from required_tools import require
from served_pages import serving, until
from wire_client import WireClient, controller_address

from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from engine.local.addresses import PortReservations
from engine.local.cluster import LocalCluster
from engine.local.processes import start_process
from engine.local.zookeeper import EmbeddedZooKeeper

TOPIC = "orders"


@dataclass(frozen=True, slots=True)
class Watched:
    """A cluster, the pages about it, and the Prometheus that reads them each second."""

    cluster: LocalCluster
    exporter: str
    brokers: tuple[str, ...]
    prometheus: str

    def ask(self, path: str, **query: str) -> Any:
        with urllib.request.urlopen(f"{self.prometheus}/api/v1/{path}?{urllib.parse.urlencode(query)}") as answer:
            answer_json = json.load(answer)
        assert answer_json["status"] == "success", answer_json
        return answer_json["data"]

    def value_of(self, expr: str) -> list[Any]:
        result: list[Any] = self.ask("query", query=expr)["result"]
        return result

    def firing(self) -> set[str]:
        """Return the names of the alerts that fire, about brokers and their partitions."""
        alerts = self.ask("alerts")["alerts"]
        return {alert["labels"]["alertname"] for alert in alerts if alert["state"] == "firing"}


def printed(what: str, folder: Path, *words: str) -> Any:
    """Return what ``klamm exporter --print`` prints."""
    ran = klamm("exporter", "--print", what, *words, folder=folder)
    assert (ran.code, ran.err) == (0, "")
    return yaml.safe_load(ran.out)


@contextmanager
def prometheus(folder: Path, host: str, port: int, config: dict[str, Any]) -> Iterator[str]:
    (folder / "prometheus.yml").write_text(yaml.safe_dump(config))
    words = ("--config.file=prometheus.yml", "--storage.tsdb.path=data", f"--web.listen-address={host}:{port}")
    command = ["sh", "-c", 'cd "$0" && exec prometheus "$@"', folder, *words]
    process = start_process(command, output=folder / "prometheus.txt")
    try:
        until(f"http://{host}:{port}/-/ready", 200, "Ready")
        yield f"http://{host}:{port}"
    finally:
        process.stop(30)


@contextmanager
def traffic(address: str) -> Iterator[None]:
    """Write and read all the time; the group ``slow`` has a member that reads one record and then no more."""
    is_over = threading.Event()

    def write_and_read() -> None:
        producer = Producer({"bootstrap.servers": address, "log_level": 0})
        common = {"bootstrap.servers": address, "auto.offset.reset": "earliest", "log_level": 0}
        fast, slow = (Consumer(common | {"group.id": name}) for name in ("fast", "slow"))
        for reader in (fast, slow):
            reader.subscribe([TOPIC])
        has_read = False
        while not is_over.is_set():
            producer.produce(TOPIC, b"x" * 500)
            producer.flush(5)
            fast.poll(0.05)
            if not has_read:
                has_read = slow.poll(0.05) is not None
                if has_read:
                    slow.commit(asynchronous=False)
                    slow.pause(slow.assignment())
            else:
                slow.poll(0)
        for reader in (fast, slow):
            reader.close()

    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(write_and_read)
        try:
            yield
        finally:
            is_over.set()
            working.result(60)


@pytest.fixture(scope="module")
def watched(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Watched]:
    require("promtool")
    folder = tmp_path_factory.mktemp("watched")
    settings = {
        "min.insync.replicas": "1",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "3",
        "group.initial.rebalance.delay.ms": "0",
        "zookeeper.session.timeout.ms": "6000",
        "replica.lag.time.max.ms": "2000",
    }
    with ExitStack() as stack:
        cluster = GuestCluster(zookeeper, 3, directory=folder / "cluster", config=settings, metrics=True)
        stack.enter_context(cluster)
        where = ("-b", cluster.bootstrap_servers)
        words = ("--partitions", "3", "--replication-factor", "2", *where)
        made = klamm("topics", "create", TOPIC, *words, folder=folder)
        assert made.code == 0, made.err
        exporter = stack.enter_context(
            serving(folder, "exporter", "--listen", f"{cluster.host}:0", "--interval", "500ms", *where)
        )
        pages = tuple(f"{broker.metrics}" for broker in cluster.status().brokers)
        rules = printed("alerts", folder)
        for rule in rules["groups"][0]["rules"]:
            rule["for"] = "1s"
        (folder / "alerts.yml").write_text(yaml.safe_dump(rules))
        (job,) = printed("scrape", folder, "--listen", exporter.removeprefix("http://"))["scrape_configs"]
        targets = [page.removeprefix("http://").removesuffix("/metrics") for page in pages]
        config = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": ["alerts.yml"],
            "scrape_configs": [
                job | {"scrape_interval": "1s"},
                {"job_name": "kafka", "static_configs": [{"targets": targets}]},
            ],
        }
        with PortReservations() as ports:
            port = ports.take_any(cluster.host)
        stack.enter_context(traffic(cluster.bootstrap_servers))
        yield Watched(cluster, exporter, pages, stack.enter_context(prometheus(folder, cluster.host, port, config)))


def test_each_target_is_scraped(watched: Watched) -> None:
    def health() -> list[str]:
        return [target["health"] for target in watched.ask("targets")["activeTargets"]]

    wait_for(lambda: health() == ["up"] * 4)


def families(page: str) -> set[str]:
    return set(re.findall(r"^# TYPE (\S+)", page, re.MULTILINE))


def test_scrapes_at_once_are_each_whole_and_a_reader_that_never_reads_holds_nobody(watched: Watched) -> None:
    pages = (f"{watched.exporter}/metrics", *watched.brokers)
    until(pages[0], 200, "kafka_consumergroup_group_sum_lag")

    def scrape(page: str) -> tuple[str, float]:
        began = time.monotonic()
        with urllib.request.urlopen(page, timeout=30) as answer:
            return answer.read().decode(), time.monotonic() - began

    with ExitStack() as stack, ThreadPoolExecutor(5 * len(pages)) as threads:
        for page in pages:
            parts = urllib.parse.urlsplit(page)
            silent = stack.enter_context(socket.create_connection((parts.hostname, parts.port)))
            silent.sendall(b"GET /metrics HTTP/1.1\r\nHost: klamm\r\n\r\n")
        alone = {page: families(scrape(page)[0]) for page in pages}
        for page, (text, took_s) in zip(pages * 5, threads.map(scrape, pages * 5), strict=True):
            assert text.endswith("\n") and alone[page] <= families(text), page
            assert took_s < 10, page


@pytest.mark.parametrize("board", BOARDS)
def test_public_boards_have_data_from_brokers(watched: Watched, board: str) -> None:
    lacking = set(BOARDS[board].split())

    def nothing_lacks() -> bool:
        for wanted in sorted(lacking):
            name, _, labels = wanted.rstrip("}").partition("{")
            chosen = ", ".join(f'{label}!=""' for label in labels.split(",") if label)
            series = f'{name}{{{chosen}{", " if chosen else ""}job="kafka"}}'
            value = watched.value_of(f"sum(rate({series}[1m]))" if name.endswith("_total") else f"sum({series})")
            if value and value[0]["value"][1] != "NaN":
                lacking.discard(wanted)
        return not lacking

    is_in_time = within(60)
    while not nothing_lacks():
        assert is_in_time(), lacking
        time.sleep(0.5)


def test_each_alert_watches_something_that_is_there(watched: Watched, tmp_path: Path) -> None:
    """An alert about series that nobody writes would never fire."""
    (group,) = printed("alerts", tmp_path)["groups"]
    lacking = {re.split(" (?:==|<|>) ", rule["expr"])[0]: rule["alert"] for rule in group["rules"]}
    assert not set(lacking) & {rule["expr"] for rule in group["rules"]}
    # They come with the first series that is left out, and with the first right that is missing; test_exporter_metrics
    # shows both.
    for name in ("series_left_out", "rights_missing"):
        del lacking[f"klamm_exporter_{name}"]
    is_in_time = within(30)
    while lacking:
        lacking = {expr: alert for expr, alert in lacking.items() if not watched.value_of(expr)}
        assert is_in_time(), lacking
        time.sleep(0.5)
    (evaluated,) = watched.ask("rules")["groups"]
    assert {rule["health"] for rule in evaluated["rules"]} == {"ok"}, evaluated


def test_a_killed_broker_fires_alerts_gives_each_panel_data_and_clears(watched: Watched, tmp_path: Path) -> None:
    panels = {
        target["expr"]: panel["title"]
        for panel in printed("grafana", tmp_path)["panels"]
        for target in panel.get("targets", ())
    }
    cluster, lacking = watched.cluster, set(panels)
    wait_for(lambda: watched.value_of("klamm_cluster_up == 1"))
    about_brokers = {"KafkaMissingBrokers", "KafkaUnderReplicatedDeadBroker"}
    assert not watched.firing() & about_brokers

    def ask_all() -> None:
        for expr in sorted(lacking):
            if watched.value_of(expr):
                lacking.discard(expr)

    # A replica on a broker that hangs copies nothing: the reassignment stays.
    controller = controller_address(f"{cluster.host}:{cluster.status().brokers[0].port}")
    killed = min(broker.id for broker in cluster.status().brokers if broker.id != cluster.controller_id())
    cluster.pause_broker(killed)
    partitions = [ReassignablePartition(partition_index=number, replicas=[0, 1, 2]) for number in range(3)]
    request = AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name=TOPIC, partitions=partitions)])
    with WireClient(controller) as client:
        assert client.ask(request, 0).error_code == 0
    is_in_time = within(40)
    while "sum(klamm_reassignment_left_bytes)" in lacking:
        ask_all()
        assert is_in_time(), lacking
        time.sleep(0.2)
    cluster.resume_broker(killed)
    cluster.kill_broker(killed)
    wait_for(lambda: watched.firing() >= about_brokers)
    is_in_time = within(90)
    while lacking:
        ask_all()
        assert is_in_time(), {expr: panels[expr] for expr in lacking}
        time.sleep(0.5)
    cluster.start_broker(killed)
    wait_for(lambda: not watched.firing() & about_brokers, "no alert fires", 90)
