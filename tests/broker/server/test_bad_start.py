"""What keeps a broker from starting: one line says so and what to do next, the exit code fits, nothing is damaged."""

from __future__ import annotations

import signal
import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_program import BrokerProgram, settings
from wire_client import WireClient, create_topic, produce, read_all, wait_until_led

from engine.broker.server.process import main
from engine.kafka.config.properties import format_properties
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.addresses import own_loopback_address

BATCH = encode_batch([Record(0, 1_700_000_000_000, b"k", b"v")])


@pytest.fixture(scope="module")
def host() -> Iterator[str]:
    yield own_loopback_address()


def assert_refused(broker: BrokerProgram, code: int, *words: str, hint: str | None = None) -> None:
    """Check that the broker ended with this code and one line of error (and one with a hint)."""
    ended_with, lines = broker.refusal()
    assert ended_with == code, lines
    assert len(lines) == (1 if hint is None else 2), lines
    assert lines[0].startswith("error: ")
    for word in words:
        assert word in lines[0]
    if hint is not None:
        assert lines[1].startswith("hint: ") and hint in lines[1]


def test_port_taken(tmp_path: Path, host: str, zk_chroot: str) -> None:
    with socket.create_server((host, 9092)), BrokerProgram(tmp_path, settings(tmp_path, host, zk_chroot)) as broker:
        assert_refused(broker, 2, f"{host}:9092", "taken", "PLAINTEXT", hint="listeners")


def test_address_of_another_machine(tmp_path: Path, zk_chroot: str) -> None:
    with BrokerProgram(tmp_path, settings(tmp_path, "192.0.2.1", zk_chroot)) as broker:
        assert_refused(broker, 2, "192.0.2.1:9092", "cannot be bound", hint="advertised.listeners")


@pytest.mark.parametrize(
    ("stored", "expected"),
    [
        (
            "broker.id=7\n",
            "Stored node id 7 doesn't match previous node id 0 in {folder}/meta.properties. If you moved ",
        ),
        (
            "broker.id=0\ncluster.id=AAAAAAAAAAAAAAAAAAAAAA\n",
            "Invalid cluster.id in: {folder}/meta.properties. Expected ",
        ),
        ("version=0\nbroker.id=zero\n", "broker.id"),
        ("version=9\nbroker.id=0\n", "version"),
    ],
)
def test_data_of_another_broker_or_cluster(
    tmp_path: Path, host: str, zk_chroot: str, stored: str, expected: str
) -> None:
    data = tmp_path / "data"
    data.mkdir()
    text = stored if stored.startswith("version") else f"version=0\n{stored}"
    (data / "meta.properties").write_text(text)
    with BrokerProgram(tmp_path, settings(tmp_path, host, zk_chroot)) as broker:
        code, lines = broker.refusal()
    assert code == 2 and lines[0].startswith("error: ") and len(lines) <= 2
    assert expected.format(folder=data) in lines[0]
    assert (data / "meta.properties").read_text() == text


def test_data_in_use_and_id_in_use(tmp_path: Path, host: str, zk_chroot: str) -> None:
    own = settings(tmp_path, host, zk_chroot)
    with BrokerProgram(tmp_path, own) as running:
        running.wait_until_started()
        create_topic(f"{host}:9092", "t")
        with WireClient(f"{host}:9092") as client:
            assert produce(client, "t", BATCH).error_code == 0
        other = {**own, "listeners": f"PLAINTEXT://{own_loopback_address()}:9092"}
        with BrokerProgram(tmp_path / "same-data", other) as second:
            assert_refused(second, 2, f"{tmp_path}/data", "lock")
        elsewhere = {**other, "log.dirs": str(tmp_path / "same-id" / "data")}
        with BrokerProgram(tmp_path / "same-id", elsewhere) as third:
            assert_refused(third, 2, "broker id 0", f"PLAINTEXT://{host}:9092", "session=", hint="broker.id")
            # The session time-out of 2 s, and 2 s for ZooKeeper to notice. A loaded machine starts slowly.
            assert 4.0 < third.elapsed_s < 25.0
            assert "Waiting for the broker id" in third.server_log
        with WireClient(f"{host}:9092") as client:
            assert [record.value for record in read_all(client, "t")] == [b"v"]
        assert running.terminate() == 0


def test_an_address_that_another_broker_tells_clients(tmp_path: Path, host: str, zk_chroot: str) -> None:
    with BrokerProgram(tmp_path / "first", settings(tmp_path / "first", host, zk_chroot)) as first:
        first.wait_until_started()
        own = settings(tmp_path / "second", own_loopback_address(), zk_chroot)
        others = {**own, "broker.id": "1", "advertised.listeners": f"PLAINTEXT://{host}:9092"}
        with BrokerProgram(tmp_path / "second", others) as second:
            # As in Kafka's KafkaServer.createBrokerInfo.
            complaint = f"Configured end points {host}:9092 in advertised listeners are already registered by broker 0"
            assert_refused(second, 2, complaint, hint="advertised.listeners")
        with BrokerProgram(tmp_path / "third", {**own, "broker.id": "1"}) as second:
            second.wait_until_started()
            taken = AlterableConfig(name="advertised.listeners", config_operation=0, value=f"PLAINTEXT://{host}:9092")
            change = AlterConfigsResource(resource_type=4, resource_name="1", configs=[taken])
            with WireClient(own["listeners"].removeprefix("PLAINTEXT://")) as client:
                (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[change]), 1).responses
            assert answer.error_code == 0
            second.wait_until_it_says(complaint)
            with WireClient(f"{host}:9092") as client:
                known = {broker.node_id: broker.host for broker in client.ask(MetadataRequest(topics=[]), 9).brokers}
            assert known == {0: host, 1: own["listeners"].removeprefix("PLAINTEXT://").removesuffix(":9092")}
            assert second.terminate() == 0
        assert first.terminate() == 0


def test_a_terminal_that_closes_ends_the_broker_in_order(tmp_path: Path, host: str, zk_chroot: str) -> None:
    # The tests themselves may run under nohup, which their children inherit.
    before = signal.signal(signal.SIGHUP, signal.SIG_DFL)
    try:
        broker = BrokerProgram(tmp_path, settings(tmp_path, host, zk_chroot))
    finally:
        signal.signal(signal.SIGHUP, before)
    with broker:
        broker.wait_until_started()
        broker.process.send_signal(signal.SIGHUP)
        assert broker.process.wait(60) == 0
        assert "shut down completed" in broker.server_log
        assert (tmp_path / "data" / ".kafka_cleanshutdown").exists()


def test_a_broker_started_by_nohup_outlives_its_terminal(tmp_path: Path, host: str, zk_chroot: str) -> None:
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        broker = BrokerProgram(tmp_path, settings(tmp_path, host, zk_chroot))
    finally:
        signal.signal(signal.SIGHUP, before)
    with broker:
        broker.wait_until_started()
        broker.process.send_signal(signal.SIGHUP)
        with WireClient(f"{host}:9092") as client:
            assert client.ask(ApiVersionsRequest(client_software_name="t", client_software_version="1"), 3).api_keys
        assert broker.terminate() == 0


def test_zookeeper_away(tmp_path: Path, host: str) -> None:
    own = settings(tmp_path, host, f"{host}:2199/k", zookeeper_connection_timeout_ms="1500")
    with BrokerProgram(tmp_path, own) as broker:
        assert_refused(broker, 3, f"{host}:2199")
        assert 1.5 < broker.elapsed_s < 20.0
    assert not (tmp_path / "data").exists()


def test_zookeeper_that_is_not_named(tmp_path: Path, host: str) -> None:
    with BrokerProgram(tmp_path, settings(tmp_path, host, "")) as broker:
        assert_refused(broker, 2, "zookeeper.connect", "HOST:PORT")


def test_zookeeper_that_does_not_answer(tmp_path: Path, host: str) -> None:
    """Something listens there, but it is not ZooKeeper."""
    with socket.create_server((host, 2198)):
        own = settings(tmp_path, host, f"{host}:2198/k", zookeeper_connection_timeout_ms="1500")
        with BrokerProgram(tmp_path, own) as broker:
            assert_refused(broker, 3, f"{host}:2198")
            assert broker.elapsed_s < 20.0


@pytest.mark.parametrize(
    ("key", "value", "words"),
    [
        ("num.io.threads", "many", ("num.io.threads", "many")),
        ("num.io.threads", "0", ("num.io.threads", "0", "at least 1")),
        ("log.cleanup.policy", "burn", ("log.cleanup.policy", "burn", "delete")),
        ("listeners", "PLAINTEXT://:notaport", ("listeners", "notaport")),
        ("listeners", "FAST://:9092", ("FAST",)),
        ("broker.id", "-7", ("broker.id",)),
        ("inter.broker.protocol.version", "9.9", ("inter.broker.protocol.version", "9.9")),
    ],
)
def test_bad_setting(
    tmp_path: Path, host: str, key: str, value: str, words: tuple[str, ...], capsys: pytest.CaptureFixture[str]
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(format_properties({**settings(tmp_path, host, f"{host}:2199"), key: value}))
    assert main([str(properties)]) == 2
    lines = capsys.readouterr().err.splitlines()
    assert lines[0].startswith("error: ") and len(lines) <= 2
    for word in words:
        assert word in lines[0]


_FILES = {
    "config.providers": "files",
    "config.providers.files.class": "org.apache.kafka.common.config.provider.FileConfigProvider",
}


def test_settings_that_stand_in_another_file(tmp_path: Path, host: str, zk_chroot: str) -> None:
    """KIP-421."""
    (tmp_path / "others").write_text(f"where={tmp_path / 'elsewhere'}\nbytes=77777\n")
    own = settings(tmp_path, host, zk_chroot) | _FILES
    own |= {
        "log.dirs": f"${{files:{tmp_path}/others:where}}",
        "message.max.bytes": f"${{files:{tmp_path}/others:bytes}}",
    }
    with BrokerProgram(tmp_path, own) as broker:
        broker.wait_until_started()
        assert (tmp_path / "elsewhere" / "meta.properties").exists()
        with WireClient(f"{host}:9092") as client:
            wanted = DescribeConfigsResource(
                resource_type=4, resource_name=own["broker.id"], configuration_keys=["message.max.bytes"]
            )
            answer = client.ask(DescribeConfigsRequest(resources=[wanted]), 4)
        assert [entry.value for entry in answer.results[0].configs] == ["77777"]
        assert "config.providers" not in broker.server_log
        assert broker.terminate() == 0


def test_a_setting_that_leads_nowhere(tmp_path: Path, host: str, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "others").write_text("password=s3cret\n")
    properties = tmp_path / "server.properties"
    own = settings(tmp_path, host, f"{host}:2199") | _FILES
    properties.write_text(format_properties(own | {"log.dirs": f"${{files:{tmp_path}/others:where}}"}))
    assert main([str(properties)]) == 2
    complaint = f"error: the file has no such key: log.dirs=${{files:{tmp_path}/others:where}}\n"
    assert capsys.readouterr().err == complaint


def test_bad_words_on_the_command_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    missing = str(tmp_path / "none.properties")
    assert main([missing]) == 2
    assert capsys.readouterr().err == f"error: cannot read {missing}: No such file or directory\n"
    assert main([missing, "--override", "num.io.threads"]) == 2
    assert "num.io.threads" in capsys.readouterr().err


def test_what_the_command_line_says_wins_over_the_file(
    tmp_path: Path, host: str, capsys: pytest.CaptureFixture[str]
) -> None:
    properties = tmp_path / "server.properties"
    properties.write_text(format_properties(settings(tmp_path, host, f"{host}:2199", num_io_threads="8")))
    assert main([str(properties), "--override", "num.io.threads=0"]) == 2
    assert "num.io.threads" in capsys.readouterr().err


def test_unknown_setting_is_only_warned_about(tmp_path: Path, host: str, zk_chroot: str) -> None:
    own = settings(tmp_path, host, zk_chroot, num_io_threats="7")
    with BrokerProgram(tmp_path, own) as broker:
        broker.wait_until_started()
        assert "num.io.threats" in broker.server_log
        assert broker.terminate() == 0


def test_log_dir_that_is_a_file(tmp_path: Path, host: str, zk_chroot: str) -> None:
    (tmp_path / "data").write_text("")
    with BrokerProgram(tmp_path, settings(tmp_path, host, zk_chroot)) as broker:
        code, lines = broker.refusal()
    assert code == 2 and f"{tmp_path}/data" in lines[0] and len(lines) <= 2, lines


def test_one_log_dir_of_two_cannot_be_used(tmp_path: Path, host: str, zk_chroot: str) -> None:
    (tmp_path / "bad").write_text("")
    own = settings(tmp_path, host, zk_chroot, log_dirs=f"{tmp_path / 'bad'},{tmp_path / 'good'}")
    with BrokerProgram(tmp_path, own) as broker:
        broker.wait_until_started()
        create_topic(f"{host}:9092", "t", partitions=3)
        wait_until_led(f"{host}:9092", "t")
        with WireClient(f"{host}:9092") as client:
            for partition in range(3):
                assert produce(client, "t", BATCH, partition=partition).error_code == 0
        assert str(tmp_path / "bad") in broker.server_log
        assert broker.terminate() == 0


def test_checkpoint_that_cannot_be_read(tmp_path: Path, host: str, zk_chroot: str) -> None:
    """Its offsets count as unknown, as in Kafka: the logs are searched from the start, and nothing is lost."""
    own = settings(tmp_path, host, zk_chroot)
    with BrokerProgram(tmp_path, own) as broker:
        broker.wait_until_started()
        create_topic(f"{host}:9092", "t")
        with WireClient(f"{host}:9092") as client:
            assert produce(client, "t", BATCH).error_code == 0
        assert broker.terminate() == 0
    for name in ("recovery-point-offset-checkpoint", "replication-offset-checkpoint", "log-start-offset-checkpoint"):
        (tmp_path / "data" / name).write_text("0\n1\nmalformed\n")
    with BrokerProgram(tmp_path, own) as broker:
        broker.wait_until_started()
        wait_until_led(f"{host}:9092", "t")
        assert str(tmp_path / "data" / "recovery-point-offset-checkpoint") in broker.server_log
        with WireClient(f"{host}:9092") as client:
            assert [record.value for record in read_all(client, "t")] == [b"v"]
        assert broker.terminate() == 0


def test_a_held_broker_reads_nothing_until_its_input_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "server.properties"

    class Input:
        """An input that ends once the file has been written."""

        buffer: Input

        def read(self) -> bytes:
            file.write_text("zookeeper.connect=127.0.0.1:1\nnum.io.threads=many\n")
            return b""

    held = Input()
    held.buffer = held
    monkeypatch.setattr("sys.stdin", held)
    assert main(["--hold", str(file)]) == 2
    assert "num.io.threads" in capsys.readouterr().err
