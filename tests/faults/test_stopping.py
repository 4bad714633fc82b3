"""TERM stops a broker quickly and cleanly, whatever it is doing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_program import BrokerProgram, settings
from producing import Witness
from wire_client import ConnectionClosed, WireClient, controller_address, create_topic, wait_until_led

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

LIMIT_S = 12.0
"""Far below the waits here (15 s of controlled shutdown, 30 s of a session, 60 s of a fetch)."""


@pytest.fixture
def host() -> Iterator[str]:
    yield own_loopback_address()


def test_under_load_with_waiting_and_silent_clients(tmp_path: Path, host: str, zk_chroot: str) -> None:
    address = f"{host}:9092"
    own = settings(tmp_path, host, zk_chroot)
    with ExitStack() as stack:
        broker = stack.enter_context(BrokerProgram(tmp_path, own))
        broker.wait_until_started()
        create_topic(address, "t", partitions=3)
        create_topic(address, "empty")
        witness = Witness(address, "t", 3, {"enable.idempotence": True})
        witness.start()
        stack.enter_context(WireClient(address))
        half = stack.enter_context(WireClient(address))
        half.socket.sendall((1000).to_bytes(4, "big") + b"\0\1")
        waiting = stack.enter_context(WireClient(address))
        wanted = FetchTopic(topic="empty", partitions=[FetchPartition(partition=0, partition_max_bytes=1000)])
        waiting.send(FetchRequest(max_wait_ms=60_000, min_bytes=1, topics=[wanted]), 12)
        witness.wait_for_more(1000)
        begin = time.monotonic()
        assert broker.terminate() == 0
        assert time.monotonic() - begin < LIMIT_S
        with pytest.raises(ConnectionClosed):
            waiting.answer(ApiKey.FETCH, 12)
        assert "Traceback" not in broker.server_log
        assert "Cannot handle a request" not in broker.server_log
        assert [line for line in broker.stderr.splitlines() if not line.startswith("started broker")] == []
        again = stack.enter_context(BrokerProgram(tmp_path, own))
        again.wait_until_started()
        wait_until_led(address, "t")
        witness.wait_for_more(1000)
        witness.stop()
        witness.check(address, exactly_once=True)
        assert again.terminate() == 0


def test_while_it_waits_for_its_id(tmp_path: Path, host: str, zk_chroot: str) -> None:
    with BrokerProgram(tmp_path / "a", settings(tmp_path / "a", host, zk_chroot)) as holder:
        holder.wait_until_started()
        other = own_loopback_address()
        slow = settings(tmp_path / "b", other, zk_chroot, zookeeper_session_timeout_ms="30000")
        with BrokerProgram(tmp_path / "b", slow) as second:
            second.wait_until_it_says("Waiting for the broker id")
            assert_ends_soon(second)
        assert holder.terminate() == 0


def test_right_after_the_start(tmp_path: Path, host: str, zk_chroot: str) -> None:
    with BrokerProgram(tmp_path, settings(tmp_path, host, zk_chroot)) as broker:
        broker.wait_until_started()
        assert_ends_soon(broker)


def test_while_it_looks_for_zookeeper(tmp_path: Path, host: str) -> None:
    away = settings(tmp_path, host, f"{host}:2181", zookeeper_connection_timeout_ms="60000")
    with BrokerProgram(tmp_path, away) as broker:
        broker.wait_until_it_says("Connecting to zookeeper")
        assert_ends_soon(broker)


def test_when_zookeeper_is_gone(tmp_path: Path, host: str) -> None:
    with (
        EmbeddedZooKeeper(host=host, fsync=False) as zookeeper,
        BrokerProgram(tmp_path, settings(tmp_path, host, zookeeper.connect_string)) as broker,
    ):
        broker.wait_until_started()
        controller_address(f"{host}:9092")
        zookeeper.stop()
        broker.wait_until_it_says("Lost the connection to ZooKeeper")
        assert_ends_soon(broker)


def assert_ends_soon(broker: BrokerProgram) -> None:
    begin = time.monotonic()
    assert broker.terminate() == 0
    assert time.monotonic() - begin < LIMIT_S
    assert "Traceback" not in broker.stderr + broker.server_log
