"""Reporters of a running broker: what they write, and what happens when they cannot."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest
from broker_program import BrokerProgram, settings
from patience import wait_for
from wire_client import create_topic

from engine.broker.metrics.mbean import MBean
from engine.broker.server.reporters import reporters
from engine.common.errors import ConfigError
from engine.kafka.config.broker import BrokerConfig
from engine.local.addresses import own_loopback_address

PORT, GRAPHITE = 21092, 21096
CSV = {
    "kafka.metrics.reporters": "kafka.metrics.KafkaCSVMetricsReporter,com.example.Other",
    "kafka.csv.metrics.reporter.enabled": "true",
    "kafka.metrics.polling.interval.secs": "1",
}


def config(own: dict[str, str]) -> BrokerConfig:
    return BrokerConfig.from_properties({"zookeeper.connect": "a:1", "broker.id": "1", **own})


def accept_report(listener: socket.socket) -> str:
    listener.settimeout(30)
    peer, _ = listener.accept()
    with peer, peer.makefile() as lines:
        return lines.read()


def test_all_reporters_write_and_a_gone_peer_is_said_once(tmp_path: Path, zk_chroot: str) -> None:
    host, folder = own_loopback_address(), tmp_path / "csv"
    folder.mkdir()
    (folder / "Old.csv").write_text("# time,value\n")
    (folder / "notes.txt").write_text("mine")
    own = {
        **settings(tmp_path, host, zk_chroot),
        **CSV,
        "listeners": f"PLAINTEXT://{host}:{PORT}",
        "kafka.csv.metrics.dir": str(folder),
        "klamm.metrics.reporters": "graphite, console, log",
        "klamm.metrics.graphite.address": f"{host}:{GRAPHITE}",
    }
    with BrokerProgram(tmp_path, own) as broker:
        broker.wait_until_started()
        said = f"Cannot write metrics to Graphite at {host}:{GRAPHITE}: Connection refused. The broker goes on"
        wait_for(lambda: said in broker.server_log, "the broker says that Graphite is gone")
        file = folder / "PartitionCount.csv"
        wait_for(lambda: file.exists() and file.read_text().count("\n") >= 3, "there are files")
        assert re.fullmatch(r"# time,value\n(\d+,0\n)+(\d+)?,?0?", file.read_text())
        assert not (folder / "Old.csv").exists() and (folder / "notes.txt").read_text() == "mine"
        create_topic(f"{host}:{PORT}", "reported")
        with socket.create_server((host, GRAPHITE)) as listener:
            report = accept_report(listener)
            wait_for(lambda: "Metrics go to Graphite" in broker.server_log, "the broker says that it is back")
        assert re.search(
            r"^kafka\.0\.kafka\.server\.ReplicaManager\.LeaderCount\.value [01] \d+$", report, re.MULTILINE
        )
        assert "reported" not in report and "kafka.cluster" not in report, "partitions are for Prometheus"
        assert "kafka.server:type=ReplicaManager,name=LeaderCount Value=0 (klamm.metrics)" in broker.server_log
        assert "com.example.Other is a Java class that klamm cannot run" in broker.server_log
        assert broker.server_log.count(said) == 1
        assert "Traceback" not in broker.server_log


def test_the_console_gets_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    (reporter,) = reporters(config({"klamm.metrics.reporters": "console"}))
    reporter.write([MBean("kafka.server", "ReplicaManager", "LeaderCount", (), {"Value": 7})])
    head, line = capsys.readouterr().out.splitlines()
    assert head.endswith("===== metrics")
    assert line == "kafka.server:type=ReplicaManager,name=LeaderCount Value=7"


def test_a_folder_that_cannot_be_written_is_said_once_and_nobody_ends(tmp_path: Path, zk_chroot: str) -> None:
    host, blocked = own_loopback_address(), tmp_path / "file"
    blocked.write_text("not a folder")
    own = {
        **settings(tmp_path, host, zk_chroot),
        **CSV,
        "listeners": f"PLAINTEXT://{host}:{PORT}",
        "kafka.csv.metrics.dir": str(blocked),
    }
    with BrokerProgram(tmp_path, own) as broker:
        broker.wait_until_started()
        said = f"Cannot write metrics to CSV files in {blocked}"
        wait_for(lambda: said in broker.server_log, "the broker says so")
        blocked.unlink()
        wait_for(lambda: (blocked / "PartitionCount.csv").exists(), "there are files afterwards")
        assert broker.server_log.count(said) == 1
        assert "Traceback" not in broker.server_log


@pytest.mark.parametrize(
    ("own", "sentence"),
    [
        ({"klamm.metrics.reporters": "ganglia"}, "'ganglia' is not a reporter; known are graphite, console, log"),
        ({"klamm.metrics.reporters": "graphite"}, "klamm.metrics.graphite.address: '' is not an address; write"),
        (
            {"klamm.metrics.reporters": "graphite", "klamm.metrics.graphite.address": "a:99999"},
            "'a:99999' is not an address",
        ),
    ],
)
def test_senseless_settings_are_refused(own: dict[str, str], sentence: str) -> None:
    with pytest.raises(ConfigError, match=re.escape(sentence)):
        reporters(config(own))


def test_csv_is_off_until_it_is_enabled_and_its_settings_say_so_without_it() -> None:
    assert reporters(config({"kafka.metrics.reporters": "kafka.metrics.KafkaCSVMetricsReporter"})) == []
    assert len(reporters(config(CSV))) == 1
    assert config(CSV | {"kafka.csv.metrics.dir": "x"}).warnings == []
    (warning,) = config({"kafka.csv.metrics.dir": "x"}).warnings
    assert "no effect without kafka.metrics.reporters=kafka.metrics.KafkaCSVMetricsReporter" in warning
