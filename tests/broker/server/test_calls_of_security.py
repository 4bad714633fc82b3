"""What security costs a request of one record: nothing on a PLAINTEXT listener, little after a login (E21)."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from types import FrameType
from typing import Any

import pytest
from broker_program import settings
from network_serving import read_frame, run

from engine.broker.network.connection import Connection
from engine.broker.server.kafka_server import KafkaServer
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.produce import (
    PartitionProduceData,
    ProduceRequest,
    TopicProduceData,
)
from engine.kafka.protocol.apis.sasl_authenticate import SaslAuthenticateRequest
from engine.kafka.protocol.apis.sasl_handshake import SaslHandshakeRequest
from engine.kafka.protocol.declaration import Request
from engine.kafka.protocol.frames import decode_response, encode_request
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

PATIENCE_S = 60.0
OF_SECURITY = ("broker/security/", "network/tls.py", "handlers/guard", "handlers/sasl_login.py")
OF_NETWORK = "engine/broker/network/"
PRODUCE_CALLS, FETCH_CALLS = 14, 25
"""Most calls of functions of the network for a request: where a layer would stand that others do not need."""
LOGIN_CALLS = 3
"""What a request costs more of somebody who has logged in, most of it to see whether the login has ended."""
RECORDS = encode_batch([Record(0, 1_700_000_000_000, None, b"v")])
PRODUCE = ProduceRequest(
    acks=1, timeout_ms=5000,
    topic_data=[TopicProduceData(name="orders", partition_data=[PartitionProduceData(index=0, records=RECORDS)])],
)  # fmt: skip
FETCHED = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1)
FETCH = FetchRequest(
    max_wait_ms=0, min_bytes=1, max_bytes=1 << 20, isolation_level=0, session_id=0, session_epoch=-1,
    topics=[FetchTopic(topic="orders", partitions=[FETCHED])],
)  # fmt: skip


def calls_of_requests(monkeypatch: pytest.MonkeyPatch) -> list[list[str]]:
    """Return a list that gets the Python functions which each read of a connection calls, by file and name."""
    reads: list[list[str]] = []
    handle = Connection.buffer_updated

    def watched(self: Connection, nbytes: int) -> None:
        calls: list[str] = []

        def note(frame: FrameType, event: str, _: object) -> None:
            if event == "call":
                calls.append(f"{frame.f_code.co_filename}:{frame.f_code.co_name}")

        before = sys.getprofile()
        sys.setprofile(note)
        try:
            handle(self, nbytes)
        finally:
            sys.setprofile(before)
        reads.append(calls)

    monkeypatch.setattr(Connection, "buffer_updated", watched)
    return reads


def test_a_request_calls_nothing_of_security_on_a_plaintext_listener_and_little_after_a_login(
    tmp_path: Path, zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads = calls_of_requests(monkeypatch)
    host = own_loopback_address()
    ports = {"PLAINTEXT": 9092, "SASL_PLAINTEXT": 9093}
    own = settings(tmp_path, host, f"{zookeeper.connect_string}/calls-of-security") | {
        "listeners": ",".join(f"{protocol}://{host}:{port}" for protocol, port in ports.items()),
        "sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl_plaintext.plain.sasl.jaas.config":
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_alice="alice-pw";',
    }  # fmt: skip
    calls: dict[tuple[str, str], list[str]] = {}

    async def check() -> None:
        server = KafkaServer(BrokerConfig(own))
        await server.start()
        try:
            for protocol, port in ports.items():
                await count(protocol, *await asyncio.open_connection(host, port))
        finally:
            await server.stop()

    async def count(protocol: str, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        async def ask(request: Request, version: int) -> Any:
            writer.write(bytes(encode_request(request, version, 1, "test")))
            return decode_response(await read_frame(reader), request.api_key, version)[1]

        if protocol != "PLAINTEXT":
            await ask(SaslHandshakeRequest(mechanism="PLAIN"), 1)
            assert not (await ask(SaslAuthenticateRequest(auth_bytes=b"\0alice\0alice-pw"), 2)).error_code
        topic = CreatableTopic(name="orders", num_partitions=1, replication_factor=1, assignments=[], configs=[])
        async with asyncio.timeout(PATIENCE_S):
            await ask(CreateTopicsRequest(topics=[topic]), 5)
            while (await ask(PRODUCE, 9)).responses[0].partition_responses[0].error_code:
                await asyncio.sleep(0.05)
                await ask(CreateTopicsRequest(topics=[topic]), 5)
            for name, request, version in (("Produce", PRODUCE, 9), ("Fetch", FETCH, 12)):
                await ask(request, version)
                reads.clear()
                for _ in range(20):
                    await ask(request, version)
                # Now and then a request is timed, which takes one more.
                calls[protocol, name] = min(reads, key=len)
        writer.close()

    run(check)
    for name, most in (("Produce", PRODUCE_CALLS), ("Fetch", FETCH_CALLS)):
        plain, logged_in = calls["PLAINTEXT", name], calls["SASL_PLAINTEXT", name]
        assert not [call for call in plain if any(part in call for part in OF_SECURITY)]
        assert len([call for call in plain if OF_NETWORK in call]) <= most, plain
        assert len(logged_in) <= len(plain) + LOGIN_CALLS, logged_in
