"""Messages per second: our compiled codecs beside kafka-python 3 (compiled) and kio (closures), all pure Python.

Decoding starts with the body's bytes, encoding with a finished value. The ratio is against the faster peer. "Frame"
rows add the header and the length, as the broker's request path does. The garbage collector is on, but ignores what was
loaded before a row.
"""

from __future__ import annotations

import gc
import os
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from protocol_oracles import KafkaPython, Kio, oracles_for

from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from engine.kafka.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from engine.kafka.protocol.apis.metadata import (
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from engine.kafka.protocol.apis.produce import (
    PartitionProduceData,
    PartitionProduceResponse,
    ProduceRequest,
    ProduceResponse,
    TopicProduceData,
    TopicProduceResponse,
)
from engine.kafka.protocol.codec import Outgoing, decoder, encoder
from engine.kafka.protocol.declaration import Message
from engine.kafka.protocol.frames import decode_request_header, encode_request, encode_response

ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "5"))
SECONDS_PER_ROUND = 0.05
PARTITIONS = 10_000
TOPIC_ID = bytes(range(16))


@dataclass(frozen=True)
class FileRange:
    """Represents a part of a segment file. Encoding must not depend on its size."""

    size_bytes: int


def main() -> None:
    """Print all figures."""
    print(f"best of {ROUNDS}; µs a message")
    print(f"{'':48} {'ours':>9} {'kafka-py':>9} {'kio':>9} {'ratio':>7} {'a second':>12}")
    for version in (8, 11):
        _rows(f"Produce {version} request, 1 partition", produce_request(), version)
        _rows(f"Produce {version} answer, 1 partition", produce_response(), version)
    for version in (11, 17):
        _rows(f"Fetch {version} request, 1 partition", fetch_request(version, 1), version)
        _rows(f"Fetch {version} request, 100 partitions", fetch_request(version, 100), version)
        _rows(f"Fetch {version} answer, 1 partition", fetch_response(version, 1), version)
        _rows(f"Fetch {version} answer, 100 partitions", fetch_response(version, 100), version)
    _frame_rows()
    for version in (8, 12):
        _rows(f"Metadata {version} answer, {PARTITIONS:,} partitions", metadata_response(), version)
    for version in (4, 7):
        _rows(f"LeaderAndIsr {version} request, {PARTITIONS:,} partitions", leader_and_isr_request(), version)


def produce_request() -> ProduceRequest:
    """One record of 100 bytes."""
    partition = PartitionProduceData(index=3, records=bytes(170))
    return ProduceRequest(
        acks=-1, timeout_ms=30_000, topic_data=[TopicProduceData(name="orders", partition_data=[partition])]
    )


def produce_response() -> ProduceResponse:
    """The answer to it."""
    partition = PartitionProduceResponse(index=3, base_offset=1000, log_start_offset=0)
    return ProduceResponse(responses=[TopicProduceResponse(name="orders", partition_responses=[partition])])


def fetch_request(version: int, count: int) -> FetchRequest:
    """A consumer's full fetch."""
    partitions = [FetchPartition(partition=i, fetch_offset=1000, partition_max_bytes=1 << 20) for i in range(count)]
    names = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "orders"}
    return FetchRequest(max_wait_ms=500, min_bytes=1, topics=[FetchTopic(partitions=partitions, **names)])


def fetch_response(version: int, count: int, records: Any = b"") -> FetchResponse:
    """The answer to it."""
    partitions = [
        PartitionData(partition_index=i, high_watermark=2000, aborted_transactions=None, records=records)
        for i in range(count)
    ]
    names = {"topic_id": TOPIC_ID} if version >= 13 else {"topic": "orders"}
    return FetchResponse(session_id=7, responses=[FetchableTopicResponse(partitions=partitions, **names)])


def metadata_response() -> MetadataResponse:
    """100 topics of 100 partitions, three replicas each."""
    brokers = [MetadataResponseBroker(node_id=i, host=f"broker-{i}", port=9092, rack="a") for i in range(3)]
    partitions = [
        MetadataResponsePartition(
            partition_index=i, leader_id=i % 3, leader_epoch=4, replica_nodes=[0, 1, 2], isr_nodes=[0, 1, 2]
        )
        for i in range(100)
    ]
    topics = [MetadataResponseTopic(name=f"topic-{i}", topic_id=TOPIC_ID, partitions=partitions) for i in range(100)]
    return MetadataResponse(brokers=brokers, cluster_id="cluster", controller_id=1, topics=topics)


def leader_and_isr_request() -> LeaderAndIsrRequest:
    """What a controller sends to a broker that is starting."""
    states = [
        LeaderAndIsrPartitionState(partition_index=i, leader=1, leader_epoch=4, isr=[0, 1, 2], replicas=[0, 1, 2])
        for i in range(100)
    ]
    topics = [LeaderAndIsrTopicState(topic_name=f"topic-{i}", partition_states=states) for i in range(100)]
    return LeaderAndIsrRequest(controller_id=1, controller_epoch=5, topic_states=topics)


def _rows(name: str, value: Message, version: int) -> None:
    encode, decode = encoder(type(value), version), decoder(type(value), version)
    out = Outgoing()
    encode(out, value)
    body = bytes(out)
    # As it comes from a socket: a view of a shared buffer.
    received = memoryview(bytearray(body))
    peers = {type(oracle): oracle for oracle in oracles_for(type(value), version)}
    theirs = {kind: oracle.build(value) for kind, oracle in peers.items()}
    _row(
        f"decode {name}",
        lambda: decode(received, 0),
        *(_call(peers, kind, lambda oracle: oracle.decode(body)) for kind in (KafkaPython, Kio)),
    )
    _row(
        f"encode {name}",
        lambda: encode(Outgoing(), value),
        *(_call(peers, kind, lambda oracle: oracle.encode(theirs[type(oracle)])) for kind in (KafkaPython, Kio)),
    )


def _call(peers: dict[type, Any], kind: type, use: Callable[[Any], object]) -> Callable[[], object] | None:
    oracle = peers.get(kind)
    return None if oracle is None else lambda: use(oracle)


def _frame_rows() -> None:
    frame = memoryview(encode_request(produce_request(), 11, 7, "rdkafka"))[4:]
    _row("decode request header, version 2", lambda: decode_request_header(frame, 0))
    produced = produce_response()
    _row("encode Produce 11 answer's frame", lambda: encode_response(produced, ApiKey.PRODUCE, 11, 7))
    fetched = fetch_response(17, 1, FileRange(1_000_000))
    _row("encode Fetch 17 answer's frame, file range", lambda: encode_response(fetched, ApiKey.FETCH, 17, 7))
    _row("make a Produce answer's value", produce_response)
    _row("make a Fetch answer's value", lambda: fetch_response(17, 1))


def _row(name: str, ours: Callable[[], object], *peers: Callable[[], object] | None) -> None:
    best = _best(ours)
    others = [None if peer is None else _best(peer) for peer in peers]
    columns = "".join(f" {'–' if other is None else f'{other * 1e6:.2f}':>9}" for other in others or (None, None))
    known = [other for other in others if other is not None]
    ratio = f"{min(known) / best:.1f}" if known else "–"
    print(f"{name:48} {best * 1e6:9.2f}{columns} {ratio:>7} {1 / best:12,.0f}", flush=True)


def _best(call: Callable[[], object]) -> float:
    """Return the seconds of one call: the best mean of the rounds."""
    call()
    gc.collect()
    gc.freeze()
    start = time.perf_counter()
    call()
    count = max(1, int(SECONDS_PER_ROUND / (time.perf_counter() - start)))
    means = []
    for _ in range(ROUNDS):
        start = time.perf_counter()
        for _ in range(count):
            call()
        means.append((time.perf_counter() - start) / count)
    return min(means)


if __name__ == "__main__":
    main()
