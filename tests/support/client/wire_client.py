"""One blocking connection to a broker, for tests that say exactly what goes over the wire, well-formed or not.

``engine.kafka.protocol`` encodes the messages. The tests of real clients cover what a real client does.
"""

from __future__ import annotations

import socket
import struct
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import (
    CreatableReplicaAssignment,
    CreatableTopic,
    CreatableTopicConfig,
    CreateTopicsRequest,
)
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.declaration import Request
from engine.kafka.protocol.frames import decode_response, encode_request
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

EARLIEST, LATEST = -2, -1


class ConnectionClosed(Exception):
    """The broker closed the connection."""


class WireClient:
    """A connection; use it as a context manager."""

    def __init__(self, address: str, *, timeout_s: float = 20.0, client_id: str | None = "wire") -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=timeout_s)
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._client_id = client_id
        self._correlation_id = 0

    def __enter__(self) -> WireClient:
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def ask(self, request: Request, version: int) -> Any:
        """Send a request and return its answer."""
        self.send(request, version)
        return self.answer(request.api_key, version)

    def send(self, request: Request, version: int) -> None:
        """Send a request; its answer is read later, or never."""
        self._correlation_id += 1
        self.socket.sendall(encode_request(request, version, self._correlation_id, self._client_id))

    def answer(self, key: ApiKey, version: int) -> Any:
        """Return the next answer."""
        return decode_response(self.read_frame(), key, version)[1]

    def read_frame(self) -> bytes:
        """Return the next frame without its length prefix.

        Raises:
            ConnectionClosed: the broker closed the connection instead.
        """
        (size,) = struct.unpack(">i", self._read(4))
        return self._read(size)

    def is_closed_by_peer(self) -> bool:
        """Wait for the end of the connection; return False if something else comes first."""
        try:
            return self.socket.recv(1) == b""
        except ConnectionResetError:
            return True

    def _read(self, size: int) -> bytes:
        received = bytearray()
        while len(received) < size:
            try:
                chunk = self.socket.recv(size - len(received))
            except ConnectionResetError as error:
                raise ConnectionClosed from error
            if not chunk:
                raise ConnectionClosed
            received += chunk
        return bytes(received)


def create_topic(
    address: str,
    topic: str,
    *,
    partitions: int = 1,
    replication_factor: int = 1,
    assignment: Mapping[int, Sequence[int]] | None = None,
    configs: Mapping[str, str] | None = None,
) -> None:
    """Create a topic; return when all its partitions have leaders and the broker at ``address`` knows it."""
    request = CreateTopicsRequest(
        topics=[
            CreatableTopic(
                name=topic,
                num_partitions=-1 if assignment else partitions,
                replication_factor=-1 if assignment else replication_factor,
                assignments=[
                    CreatableReplicaAssignment(partition_index=index, broker_ids=list(brokers))
                    for index, brokers in (assignment or {}).items()
                ],
                configs=[CreatableTopicConfig(name=name, value=value) for name, value in (configs or {}).items()],
            )
        ],
        timeout_ms=20_000,
    )
    result = ask_controller(address, request, 5, lambda answer: [answer.topics[0].error_code]).topics[0]
    assert result.error_code == ErrorCode.NONE, f"{topic}: {result.error_code} {result.error_message}"
    wait_until_led(address, topic)


def ask_controller(
    address: str,
    request: Request,
    version: int,
    errors: Callable[[Any], Iterable[int]],
    timeout_s: float = 20.0,
) -> Any:
    """Ask the controller. Like any client, find it again when the answer says that it has changed.

    ``errors`` finds the error codes in an answer.
    """
    deadline = time.monotonic() + timeout_s
    while True:
        with WireClient(controller_address(address), timeout_s=30.0) as client:
            answer = client.ask(request, version)
        if ErrorCode.NOT_CONTROLLER not in errors(answer) or time.monotonic() > deadline:
            return answer
        time.sleep(0.05)


def controller_address(address: str, timeout_s: float = 40.0) -> str:
    """Return the address of the controller; a broker that has just started learns it a moment later."""
    deadline = time.monotonic() + timeout_s
    with WireClient(address) as client:
        while True:
            response = client.ask(MetadataRequest(topics=[]), 1)
            for broker in response.brokers:
                if broker.node_id == response.controller_id:
                    return f"{broker.host}:{broker.port}"
            assert time.monotonic() < deadline, "no controller"
            time.sleep(0.01)


def wait_until_led(address: str, *topics: str, timeout_s: float = 40.0) -> None:
    """Wait until every partition of the topics has a leader: a new broker learns that from the controller."""
    deadline = time.monotonic() + timeout_s
    with WireClient(address) as client:
        for topic in topics:
            while (description := describe_topic(client, topic)).error_code or any(
                p.error_code for p in description.partitions
            ):
                assert time.monotonic() < deadline, f"{topic} is not led: {description}"
                time.sleep(0.01)


def describe_topic(client: WireClient, topic: str) -> Any:
    """Return what Metadata says of one topic, without creating it."""
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=False)
    return client.ask(request, 12).topics[0]


def produce(
    client: WireClient,
    topic: str,
    records: bytes | None,
    *,
    partition: int = 0,
    acks: int = 1,
    version: int = 9,
    timeout_ms: int = 10_000,
) -> Any:
    """Produce to one partition and return its part of the answer; nothing for acks=0."""
    data = PartitionProduceData(index=partition, records=records)
    request = ProduceRequest(
        acks=acks, timeout_ms=timeout_ms, topic_data=[TopicProduceData(name=topic, partition_data=[data])]
    )
    if acks == 0:
        client.send(request, version)
        return None
    return client.ask(request, version).responses[0].partition_responses[0]


def fetch(
    client: WireClient,
    topic: str,
    offset: int,
    *,
    partition: int = 0,
    version: int = 12,
    max_bytes: int = 50_000_000,
    max_wait_ms: int = 500,
    min_bytes: int = 1,
    topic_id: bytes = bytes(16),
) -> Any:
    """Fetch one partition outside any session and return its part of the answer."""
    wanted = FetchPartition(partition=partition, fetch_offset=offset, partition_max_bytes=max_bytes)
    request = FetchRequest(
        max_wait_ms=max_wait_ms,
        min_bytes=min_bytes,
        max_bytes=max_bytes,
        topics=[FetchTopic(topic=topic, topic_id=topic_id, partitions=[wanted])],
    )
    response = client.ask(request, version)
    assert response.error_code == ErrorCode.NONE
    return response.responses[0].partitions[0]


def list_offset(
    client: WireClient, topic: str, timestamp: int, *, partition: int = 0, committed_only: bool = False
) -> int:
    """Return the offset that ListOffsets 5 gives for a time, EARLIEST or LATEST (with ``committed_only`` the LSO)."""
    wanted = ListOffsetsPartition(partition_index=partition, timestamp=timestamp)
    request = ListOffsetsRequest(
        replica_id=-1,
        isolation_level=int(committed_only),
        topics=[ListOffsetsTopic(name=topic, partitions=[wanted])],
    )
    answer = client.ask(request, 5).topics[0].partitions[0]
    assert answer.error_code == ErrorCode.NONE, answer
    return int(answer.offset)


def wait_until_no_transaction_is_open(address: str, topic: str, *, partition: int = 0, timeout_s: float = 30.0) -> int:
    """Wait until every transaction of a partition has its marker, and return its high watermark.

    A producer learns that its transaction has ended before the markers are written.
    """
    deadline = time.monotonic() + timeout_s
    with WireClient(address) as client:
        while True:
            # The order matters: a marker that comes between the two must not make an older end look stable.
            stable = list_offset(client, topic, LATEST, partition=partition, committed_only=True)
            end = list_offset(client, topic, LATEST, partition=partition)
            if stable == end:
                return end
            assert time.monotonic() < deadline, f"{topic}-{partition} has an open transaction before {end}"
            time.sleep(0.02)


def read_all(client: WireClient, topic: str, *, partition: int = 0) -> list[Record]:
    """Return every record of a partition, from its log start to its current high watermark."""
    offset = list_offset(client, topic, EARLIEST, partition=partition)
    end = list_offset(client, topic, LATEST, partition=partition)
    records: list[Record] = []
    while offset < end:
        answer = fetch(client, topic, offset, partition=partition)
        assert answer.error_code == ErrorCode.NONE, answer
        data = bytes(answer.records)
        # Compaction may have removed this offset's record, and those after it, from the batch.
        reached = max((header.next_offset for _, header in iter_batches(data)), default=offset)
        assert reached > offset, f"{topic}-{partition}: no records at {offset}, the end is {end}"
        records += [record for record in iter_records(data) if record.offset >= offset]
        offset = reached
    return records


_NOW_MS = time.time_ns() // 1_000_000
"""A start forgets a producer whose records are older than a day, as in Kafka."""


class SequencedProducer:
    """One producer id; the caller chooses the first sequence of every batch."""

    def __init__(self, client: WireClient) -> None:
        answer = client.ask(InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=60_000), 4)
        assert answer.error_code == ErrorCode.NONE
        self.producer_id: int = answer.producer_id
        self.producer_epoch: int = answer.producer_epoch

    def batch(self, first_sequence: int, count: int, producer_epoch: int | None = None) -> bytes:
        """Return the batch with these sequences; the same sequences always give the same bytes."""
        values = [(first_sequence + index) % 2**31 for index in range(count)]
        return encode_batch(
            [Record(index, _NOW_MS, None, b"%d:%d" % (self.producer_id, value)) for index, value in enumerate(values)],
            producer_id=self.producer_id,
            producer_epoch=self.producer_epoch if producer_epoch is None else producer_epoch,
            base_sequence=first_sequence,
        )

    def send(
        self, client: WireClient, topic: str, first_sequence: int, count: int, producer_epoch: int | None = None
    ) -> Any:
        """Produce one batch with acks=all; return the partition's answer."""
        return produce(client, topic, self.batch(first_sequence, count, producer_epoch), acks=-1)
