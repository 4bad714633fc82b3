"""Many clients, slow clients, silent clients: what they cost, and that nobody has to wait for them."""

from __future__ import annotations

import socket
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
from wire_client import WireClient, create_topic, fetch, produce

from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.frames import encode_request
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.cluster import LocalCluster

CONNECTIONS = 1000
BYTES_PER_CONNECTION = 50_000
PATIENCE_S = 10.0
"""Far more than a request needs on a loaded machine. A broker that waits for a slow client waits forever."""

FLOOD_S = 2.0


@pytest.fixture
def pid(cluster: LocalCluster) -> int:
    broker_pid = cluster.broker(0).pid
    assert broker_pid is not None
    return broker_pid


def anonymous_bytes(pid: int) -> int:
    """Return RssAnon: the memory that the process has for itself, without mapped files."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("RssAnon:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no RssAnon")


def ask_in_time(address: str) -> None:
    """Check that a new client gets its answer in time."""
    begin = time.monotonic()
    with WireClient(address, timeout_s=PATIENCE_S) as client:
        assert client.ask(MetadataRequest(topics=None), 12).brokers
    assert time.monotonic() - begin < PATIENCE_S


def test_a_thousand_connections_at_once(address: str, pid: int, many_files: None) -> None:
    request = bytes(encode_request(MetadataRequest(topics=None), 12, 1, "many"))
    ask_in_time(address)
    before = anonymous_bytes(pid)
    with ExitStack() as stack:
        begin = time.monotonic()
        clients = [stack.enter_context(WireClient(address, client_id="many")) for _ in range(CONNECTIONS)]
        assert time.monotonic() - begin < PATIENCE_S, "connections wait to be accepted"
        for client in clients:
            client.socket.sendall(request)
        for client in clients:
            assert client.answer(ApiKey.METADATA, 12).controller_id == 0
        grown = anonymous_bytes(pid) - before
        print(f"{grown / CONNECTIONS:.0f} bytes per connection")
        assert grown / CONNECTIONS < BYTES_PER_CONNECTION
        ask_in_time(address)


def test_half_a_frame_holds_up_nobody(address: str, pid: int) -> None:
    whole = bytes(encode_request(MetadataRequest(topics=None), 12, 1, "half"))
    with ExitStack() as stack:
        slow = [stack.enter_context(WireClient(address)) for _ in range(20)]
        for number, client in enumerate(slow):
            client.socket.sendall(whole[: number + 1])
        # One client announces much and sends little: the broker reserves nothing for what it announces.
        before = anonymous_bytes(pid)
        greedy = stack.enter_context(WireClient(address))
        greedy.socket.sendall((9_000_000).to_bytes(4, "big") + whole[4:])
        ask_in_time(address)
        assert anonymous_bytes(pid) - before < 9_000_000
        for number, client in enumerate(slow):
            client.socket.sendall(whole[number + 1 :])
            assert client.answer(ApiKey.METADATA, 12).controller_id == 0


def test_who_never_reads_holds_up_nobody(address: str, topic: str, pid: int) -> None:
    create_topic(address, topic)
    with WireClient(address) as client:
        value = b"x" * 900_000
        for _ in range(8):
            batch = encode_batch([Record(0, 1_700_000_000_000, None, value)])
            assert produce(client, topic, batch).error_code == ErrorCode.NONE
        before = anonymous_bytes(pid)
        with WireClient(address) as deaf, WireClient(address) as deaf_to_metadata:
            deaf.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=8_000_000)
            wanted = FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=topic, partitions=[part])])
            flood(deaf.socket, bytes(encode_request(wanted, 12, 1, "deaf")))
            flood(deaf_to_metadata.socket, bytes(encode_request(MetadataRequest(topics=None), 12, 1, "deaf")))
            for _ in range(5):
                ask_in_time(address)
                begin = time.monotonic()
                assert len(fetch(client, topic, 0).records) > 7_000_000
                assert time.monotonic() - begin < PATIENCE_S
            assert anonymous_bytes(pid) - before < 30_000_000


def flood(connection: socket.socket, request: bytes, count: int = 3000) -> None:
    """Send requests without reading any answer, until the broker accepts no more."""
    connection.setblocking(False)
    sent = 0
    deadline = time.monotonic() + FLOOD_S
    while sent < count and time.monotonic() < deadline:
        try:
            connection.send(request)
            sent += 1
        except BlockingIOError:
            time.sleep(0.01)
    connection.setblocking(True)
