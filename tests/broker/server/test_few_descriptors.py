"""A broker that may open few files: connections do not take the descriptors that its logs need."""

from __future__ import annotations

import contextlib
import socket
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from broker_program import BrokerProgram
from patience import within
from wire_client import ConnectionClosed, WireClient, create_topic, produce, read_all

from engine.common.errors import ErrorCode
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.addresses import own_loopback_address

OPEN_FILES = 200
CONNECTIONS = 400
PARTITIONS = 30
PATIENCE_S = 30.0
BATCH = encode_batch([Record(value=b"v" * 3000, timestamp_ms=1)])


@contextmanager
def few_descriptors(folder: Path, zk_chroot: str) -> Iterator[tuple[BrokerProgram, str]]:
    host = own_loopback_address()
    settings = {
        "broker.id": "0",
        "listeners": f"PLAINTEXT://{host}:9092",
        "log.dirs": str(folder / "data"),
        "zookeeper.connect": zk_chroot,
        "zookeeper.session.timeout.ms": "6000",
        "log.segment.bytes": "10000",
        "log.index.interval.bytes": "0",
        "log.flush.offset.checkpoint.interval.ms": "200",
        "log.flush.start.offset.checkpoint.interval.ms": "200",
        "replica.high.watermark.checkpoint.interval.ms": "200",
        "offsets.topic.replication.factor": "1",
    }
    with BrokerProgram(folder, settings, open_files_max=OPEN_FILES) as broker:
        broker.wait_until_started()
        yield broker, f"{host}:9092"


def insist(what: Callable[[], object]) -> None:
    """Call it, and repeat the call when the broker closed the connection to make room for another."""
    is_in_time = within(PATIENCE_S)
    while True:
        try:
            what()
            return
        except (ConnectionClosed, OSError):
            assert is_in_time(), "a client is never served"


def write_everywhere(address: str, times: int) -> None:
    with WireClient(address) as client:
        for index in range(PARTITIONS * times):
            answer = produce(client, "t", BATCH, partition=index % PARTITIONS)
            assert answer.error_code in (ErrorCode.NONE,)


def test_idle_connections_neither_stop_the_broker_nor_keep_clients_out(tmp_path: Path, zk_chroot: str) -> None:
    with few_descriptors(tmp_path, zk_chroot) as (broker, address), ExitStack() as stack:
        create_topic(address, "t", partitions=PARTITIONS)
        write_everywhere(address, 1)
        host, port = address.split(":")
        for _ in range(CONNECTIONS):
            stack.enter_context(contextlib.closing(socket.create_connection((host, int(port)), timeout=20)))
        for _ in range(3):
            insist(lambda: write_everywhere(address, 4))

        def everything_is_read() -> None:
            with WireClient(address) as client:
                for index in range(PARTITIONS):
                    assert len(read_all(client, "t", partition=index)) >= 13

        insist(everything_is_read)
        assert broker.process.poll() is None
        assert "goes offline" not in broker.server_log
        assert "The limit of open files is 200" in broker.server_log
        assert "Closing silent connections to make room for new ones" in broker.server_log
        assert broker.terminate() == 0
