"""``klamm exporter``, ``lag --serve`` and ``-o prometheus``: pages for Prometheus, whatever the cluster does."""

from __future__ import annotations

import json
import re
import socket
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from guest_cluster import GuestCluster
from klamm_program import in_process
from required_tools import require
from served_pages import serving, until
from typer._click.exceptions import UsageError
from znode_writer import znode_writer

from cli.framework.option_values import address_option
from cli.views.exporter import _GUIDES
from engine.admin.cluster.target import Side
from engine.admin.health.report import Check
from engine.admin.watch import live_feed
from engine.admin.watch.frame import Frame, LinkState
from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

Capture = pytest.CaptureFixture[str]
ROOT = Path(__file__).parents[2]
GUIDE = ROOT / "docs/guides/watch-with-prometheus.md"


EXPORT = ("exporter", "--listen", "127.0.0.1:0", "--interval", "500ms")
SERVE_LAG = ("lag", "--serve", "127.0.0.1:0", "--interval", "1s")


def printed(what: str, capture: Capture, *words: str) -> str:
    ran = in_process("exporter", "--print", what, *words, capture=capture)
    assert (ran.code, ran.err) == (0, "")
    return ran.out


def rules(capture: Capture) -> list[dict[str, Any]]:
    (group,) = yaml.safe_load(printed("alerts", capture))["groups"]
    alert_rules: list[dict[str, Any]] = group["rules"]
    return alert_rules


def group_of_three(name: str, where: tuple[str, ...], capture: Capture) -> None:
    """Make a topic of three records, and a group that has read one of them."""
    assert in_process("topics", "create", name, "--partitions", "3", *where, capture=capture).code == 0
    assert in_process("produce", name, *where, stdin="1\n2\n3\n", capture=capture).code == 0
    reads = ("consume", name, "--group", name, "--from-beginning", "-n", "1")
    assert in_process(*reads, *where, capture=capture).code == 0


def test_a_whole_page_once(live_cluster: LocalCluster, topic_name: str, capsys: Capture, tmp_path: Path) -> None:
    where = ("-b", live_cluster.bootstrap_servers)
    group_of_three(topic_name, where, capsys)
    ran = in_process("exporter", "--once", "--topic", topic_name, "--group", topic_name, *where, capture=capsys)
    assert (ran.code, ran.err) == (0, "")
    lines = ran.out.splitlines()
    assert f"kafka_brokers {len(live_cluster.status().brokers)}" in lines
    assert f'klamm_topic_end_offsets_total{{topic="{topic_name}"}} 3' in lines
    assert f'kafka_consumergroup_group_sum_lag{{group="{topic_name}",source="classic"}} 2' in lines
    require("promtool")
    checked = subprocess.run(["promtool", "check", "metrics"], input=ran.out, capture_output=True, text=True)
    assert (checked.returncode, checked.stderr) == (0, "")


def test_nobody_answers_once(capsys: Capture) -> None:
    ran = in_process("exporter", "--once", "-b", "127.0.0.1:1", "--timeout", "5", capture=capsys)
    assert (ran.code, ran.out, "127.0.0.1:1" in ran.err) == (3, "", True)


def test_brokers_that_all_refuse_are_told_of_once(
    zk_chroot: str, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    host = own_loopback_address()
    broker = {"version": 4, "host": host, "port": 21813, "jmx_port": -1, "endpoints": [f"PLAINTEXT://{host}:21813"],
              "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}, "timestamp": "1"}  # fmt: skip
    topic = {"version": 2, "partitions": {"0": [7]}, "adding_replicas": {}, "removing_replicas": {}}
    with znode_writer(zk_chroot) as write:
        write({"/brokers/ids/7": json.dumps(broker).encode(), "/brokers/topics/t": json.dumps(topic).encode()}, False)
    ran = in_process("exporter", "--once", "--zookeeper", zk_chroot, "--timeout", "60", capture=capsys)
    assert ran.code == 3
    assert "error: no broker answers, so what only brokers know is missing" in ran.err and f"{host}:21813" in ran.err
    assert "is it running there?" in ran.err
    assert "kafka_brokers 1" in ran.out.splitlines()
    read = live_feed.first_frame_with

    async def refused(*args: Any, **options: Any) -> Frame:
        frame = await read(*args, **options)
        link = replace(frame.link(Side.WIRE), state=LinkState.DENIED, cause="the login failed")
        return replace(frame, links={**frame.links, Side.WIRE: link})

    monkeypatch.setattr(live_feed, "first_frame_with", refused)
    ran = in_process("exporter", "--once", "--zookeeper", zk_chroot, "--timeout", "60", capture=capsys)
    said = "error: no broker lets klamm in, so what only brokers know is missing: the login failed\n"
    assert (ran.code, ran.err) == (3, said), "it runs: nobody is to start it"


def test_it_outlives_the_cluster(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> None:
    config = {"offsets.topic.num.partitions": "1"}
    with (
        GuestCluster(zookeeper, 1, directory=tmp_path / "cluster", config=config) as cluster,
        serving(tmp_path, *EXPORT, "-b", cluster.bootstrap_servers) as exporter,
        serving(tmp_path, *SERVE_LAG, "--all-groups", "-b", cluster.bootstrap_servers, "--timeout", "3") as lag,
    ):

        def both(up: int, status: int, why: str) -> None:
            for address in (exporter, lag):
                until(f"{address}/metrics", 200, f"\nklamm_cluster_up {up}\n")
                until(f"{address}/healthz", status, why)

        both(1, 200, "ok: read ")
        cluster.kill_broker(0)
        both(0, 503, cluster.bootstrap_servers)
        cluster.start_broker(0)
        both(1, 200, "ok: read ")
        cluster.pause_broker(0)
        both(0, 503, "")
        cluster.resume_broker(0)
        both(1, 200, "ok: read ")
        until(f"{exporter}/metrics", 200, "\nkafka_brokers 1\n")


def test_lag_alone_is_served(live_cluster: LocalCluster, topic_name: str, capsys: Capture, tmp_path: Path) -> None:
    where = ("-b", live_cluster.bootstrap_servers)
    group_of_three(topic_name, where, capsys)
    with serving(tmp_path, *SERVE_LAG, "--group", topic_name, *where) as address:
        until(f"{address}/metrics", 200, f'_sum_lag{{group="{topic_name}",source="classic"}} 2\n')


def test_the_rules_are_rules_and_fire(capsys: Capture, tmp_path: Path) -> None:
    require("promtool")
    (tmp_path / "alerts.yml").write_text(printed("alerts", capsys), "utf-8")
    findings = 'klamm_cluster_health_findings{check="offline_partitions",severity="critical"}'
    status = 'kafka_consumergroup_group_status{group="g",source="classic",status="STALL"}'
    labels = {"severity": "critical", "check": "offline_partitions"}
    fires = {"alertname": "KafkaOfflinePartitions", "exp_alerts": [{"exp_labels": labels}]}
    case = {
        "interval": "1m",
        "input_series": [
            {"series": findings, "values": "0 3 3 3 0 0"},
            {"series": status, "values": "1 1 1 1 0 0"},
        ],
        "alert_rule_test": [
            {"eval_time": "1m", "alertname": "KafkaOfflinePartitions", "exp_alerts": []},
            {"eval_time": "3m", **fires},
            {"eval_time": "5m", "alertname": "KafkaOfflinePartitions", "exp_alerts": []},
            {"eval_time": "5m", "alertname": "KafkaReaderStandsStill", "exp_alerts": []},
        ],
    }
    (rule,) = [rule for rule in rules(capsys) if rule["alert"] == "KafkaOfflinePartitions"]
    expected = {**rule["annotations"], "summary": "offline partitions: 3"}
    fires["exp_alerts"] = [{"exp_labels": labels, "exp_annotations": expected}]
    case["alert_rule_test"][1].update(fires)  # type: ignore[index, attr-defined]
    (tmp_path / "test.yml").write_text(yaml.safe_dump({"rule_files": ["alerts.yml"], "tests": [case]}), "utf-8")
    for words in (["check", "rules", "alerts.yml"], ["test", "rules", "test.yml"]):
        ran = subprocess.run(["promtool", *words], cwd=tmp_path, capture_output=True, text=True)
        assert ran.returncode == 0, ran.stdout + ran.stderr
    (tmp_path / "prometheus.yml").write_text(printed("scrape", capsys, "--listen", ":9400"), "utf-8")
    ran = subprocess.run(["promtool", "check", "config", "prometheus.yml"], cwd=tmp_path, capture_output=True)
    assert ran.returncode == 0 and b"localhost:9400" in (tmp_path / "prometheus.yml").read_bytes()


def test_each_check_has_an_alert_and_each_alert_a_guide(capsys: Capture) -> None:
    alerts = rules(capsys)
    for check in Check:
        (rule,) = [rule for rule in alerts if f'check="{check.value}"' in rule["expr"]]
        assert rule["labels"]["severity"] == check.severity.value
        assert rule["annotations"]["todo"]
    for rule in alerts:
        assert (ROOT / rule["annotations"]["guide"]).is_file(), rule
    assert set(_GUIDES) < set(Check)


def test_board_and_rules_ask_for_metrics_that_exist(capsys: Capture) -> None:
    board = json.loads(printed("grafana", capsys))
    asked = [target["expr"] for panel in board["panels"] for target in panel.get("targets", ())]
    assert len(asked) > 20
    inside = (ROOT / "fixtures/metrics/jmx-exporter-1.0.1-broker-1.txt").read_text("utf-8")
    known = {*re.findall(r"`([a-z_]+)", GUIDE.read_text("utf-8")), *re.findall(r"kafka_[a-z_]+", inside)}
    known |= {"process_cpu_seconds_total"}
    for expr in [*asked, *(rule["expr"] for rule in rules(capsys))]:
        named = set(re.findall(r"\b(?:klamm|kafka|process)_[a-z_]+", expr))
        assert named <= known or expr.startswith("up{"), (expr, named - known)


@pytest.mark.parametrize(
    ("words", "error"),
    [
        (("--print", "zabbix"), "--print must be one of grafana, alerts, scrape"),
        (("--listen", "here"), "--listen must be [HOST]:PORT"),
        (("--interval", "1h"), "--interval must be 500ms to 10s"),
        (("--group", "("), "--group: '(' is not a regular expression"),
        (("--series-max", "0"), "--series-max"),
    ],
)
def test_bad_words(words: tuple[str, ...], error: str, capsys: Capture) -> None:
    ran = in_process("exporter", "-b", "127.0.0.1:1", *words, capture=capsys)
    assert (ran.code, ran.out, error in ran.err) == (2, "", True), ran.err


@pytest.mark.parametrize(("command", "option"), [("exporter", "--listen"), ("lag", "--serve")])
def test_a_port_that_is_taken_is_named(command: str, option: str, live_cluster: LocalCluster, capsys: Capture) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        where = f"127.0.0.1:{taken.getsockname()[1]}"
        ran = in_process(command, "-b", live_cluster.bootstrap_servers, option, where, capture=capsys)
    assert (ran.code, ran.out, f"{option} cannot listen at {where}" in ran.err) == (2, "", True)


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


def test_health_and_log_dirs_are_told_for_prometheus(
    live_cluster: LocalCluster, capsys: Capture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("KLAMM_BOOTSTRAP_SERVER", live_cluster.bootstrap_servers)
    ran = in_process("cluster", "health", "-o", "prometheus", capture=capsys)
    lines = ran.out.splitlines()
    assert ("klamm_cluster_health 2" in lines) == (ran.code == 1)
    assert len([line for line in lines if line.startswith("klamm_cluster_health ")]) == 1
    assert 'klamm_cluster_health_findings{check="offline_log_dirs",severity="critical"} 0' in lines
    lines = in_process("brokers", "log-dirs", "-o", "prometheus", capture=capsys).out.splitlines()
    folders = {
        f'broker="{broker.id}",log_dir="{folder}"'
        for broker in live_cluster.status().brokers
        for folder in broker.log_dirs
    }
    for name in ("size_bytes", "replicas", "usable_bytes"):
        labels = {
            line.partition("{")[2].partition("}")[0] for line in lines if line.startswith(f"klamm_log_dir_{name}{{")
        }
        assert labels == folders
    by_topic = in_process("brokers", "log-dirs", "--summary", "topic", "-o", "prometheus", capture=capsys).out
    assert "log_dir=" not in by_topic
