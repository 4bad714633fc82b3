"""Transactions: one broker of ours beside one of Apache Kafka 3.9.1 in the same run (E18), which take turns.

``python bench_transactions.py HOST:PORT …`` is the client, a process that costs little: each connection takes its
transactional ids in turn, encodes requests once, and sends one after the other, as a producer does.
``KLAMM_BENCH_ONLY=1x1,100x10,offsets`` runs some rows, ``KLAMM_BENCH_ENGINES=klamm`` leaves Kafka out.
"""

from __future__ import annotations

import argparse
import json
import selectors
import shutil
import socket
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.add_offsets_to_txn import AddOffsetsToTxnRequest
from engine.kafka.protocol.apis.add_partitions_to_txn import AddPartitionsToTxnRequest, AddPartitionsToTxnTopic
from engine.kafka.protocol.apis.end_txn import EndTxnRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.apis.txn_offset_commit import (
    TxnOffsetCommitRequest,
    TxnOffsetCommitRequestPartition,
    TxnOffsetCommitRequestTopic,
)
from engine.kafka.protocol.declaration import Request
from engine.kafka.protocol.frames import decode_response, encode_request
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

TOPIC = "read"
COUNT = 2_000
IDS_PER_CONNECTION = 4
RECORD_BYTES = 100
RETRY_S = 0.001
TRANSACTION_KEY_TYPE = 1
NOT_YET = (
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
)


class Shape(NamedTuple):
    """What each transaction holds; no records means offsets of a group."""

    records: int
    partitions: int


class Step:
    """One request of a transaction, encoded once. Batches get their sequences anew, and so their checksums."""

    def __init__(self, request: Request, version: int, batch: bytes = b"") -> None:
        self.request, self.version = request, version
        self.frame = bytearray(encode_request(request, version, 7, "bench"))
        self._batch_bytes = len(batch)
        self._batches = []
        at = self.frame.find(batch) if batch else -1
        while at >= 0:
            self._batches.append(at)
            at = self.frame.find(batch, at + len(batch))
        self.accepted: set[bytes] = set()

    def number(self, sequence: int) -> None:
        """Let the batches begin with this sequence."""
        for at in self._batches:
            struct.pack_into(">i", self.frame, at + layout.BASE_SEQUENCE, sequence)
            stamp_crc(self.frame, at, self._batch_bytes)

    def has_to_wait(self, answer: bytes) -> bool:
        """Look for errors; return whether the transaction before is still being ended."""
        plain = self._without_offsets(answer) if self._batches else answer
        if plain in self.accepted:
            return False
        codes = set(_codes(decode_response(answer, self.request.api_key, self.version)[1])) - {ErrorCode.NONE}
        if codes == {ErrorCode.CONCURRENT_TRANSACTIONS}:
            return True
        if codes:
            raise SystemExit(f"{type(self.request).__name__} failed: {codes}")
        self.accepted.add(plain)
        return False

    def _without_offsets(self, answer: bytes) -> bytes:
        """Return the parts of an answer to Produce 7 that are the same if all is well: partition and error."""
        first = 4 + 4 + 2 + len(TOPIC) + 4
        return b"".join(answer[at : at + 6] for at in range(first, first + 30 * len(self._batches), 30))


def _codes(answer: object) -> list[int]:
    """Return every error code in an answer."""
    codes = []
    for name in getattr(answer, "__slots__", ()) or vars(answer):
        value = getattr(answer, name)
        if name.endswith("error_code"):
            codes.append(value)
        elif isinstance(value, list):
            codes += [code for part in value for code in _codes(part)]
    return codes


class Producer:
    """The requests of one transactional id."""

    def __init__(self, connection: socket.socket, name: str, shape: Shape) -> None:
        request = InitProducerIdRequest(transactional_id=name, transaction_timeout_ms=60_000)
        while (answer := _ask(connection, request, 1)).error_code in NOT_YET:
            time.sleep(0.02)
            # The first question creates the coordinator's topic.
            _ask(connection, FindCoordinatorRequest(key=name, key_type=TRANSACTION_KEY_TYPE), 1)
        assert answer.error_code == ErrorCode.NONE, answer
        producer_id, epoch = answer.producer_id, answer.producer_epoch
        self._records, self._sequence = shape.records, 0
        if shape.records:
            self.steps = self._written(name, producer_id, epoch, shape)
        else:
            offsets = [TxnOffsetCommitRequestPartition(partition_index=p, committed_offset=7) for p in range(10)]
            commit = TxnOffsetCommitRequest(
                transactional_id=name,
                group_id=name,
                producer_id=producer_id,
                producer_epoch=epoch,
                topics=[TxnOffsetCommitRequestTopic(name=TOPIC, partitions=offsets[: shape.partitions])],
            )
            add = AddOffsetsToTxnRequest(
                transactional_id=name, producer_id=producer_id, producer_epoch=epoch, group_id=name
            )
            self.steps = [Step(add, 1), Step(commit, 2)]
        end = EndTxnRequest(transactional_id=name, producer_id=producer_id, producer_epoch=epoch, committed=True)
        self.steps.append(Step(end, 1))

    @staticmethod
    def _written(name: str, producer_id: int, epoch: int, shape: Shape) -> list[Step]:
        partitions = list(range(shape.partitions))
        add = AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=name,
            v3_and_below_producer_id=producer_id,
            v3_and_below_producer_epoch=epoch,
            v3_and_below_topics=[AddPartitionsToTxnTopic(name=TOPIC, partitions=partitions)],
        )
        batch = encode_batch(
            [Record(timestamp_ms=int(time.time() * 1000), value=b"v" * RECORD_BYTES)] * shape.records,
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=0,
            transactional=True,
        )
        produce = ProduceRequest(
            transactional_id=name,
            acks=-1,
            timeout_ms=30_000,
            topic_data=[
                TopicProduceData(
                    name=TOPIC, partition_data=[PartitionProduceData(index=p, records=batch) for p in partitions]
                )
            ],
        )
        return [Step(add, 1), Step(produce, 7, batch)]

    def begin(self) -> None:
        """Give the next batches their sequences."""
        for step in self.steps:
            step.number(self._sequence)
        self._sequence += self._records


class Connection:
    """One connection, which takes its transactional ids in turn."""

    def __init__(self, address: str, names: list[str], shape: Shape) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)))
        self.socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._producers = [Producer(self.socket, name, shape) for name in names]
        self._turn = self._step = 0
        self._sent_s = 0.0
        self._received = b""
        self.commits_ms: list[float] = []
        self.retries = 0
        self.due_s = 0.0
        """When to send a request again; 0 if there is none."""

    def begin(self) -> None:
        """Begin a transaction of the next transactional id."""
        self._turn, self._step = (self._turn + 1) % len(self._producers), 0
        self._producers[self._turn].begin()
        self.send()

    def send(self) -> None:
        """Send the next request."""
        self.due_s = 0.0
        self._sent_s = time.perf_counter()
        self.socket.sendall(self._producers[self._turn].steps[self._step].frame)

    def receive(self) -> bool:
        """Receive what came, and go on; return whether a transaction is over."""
        self._received += self.socket.recv(65536)
        if len(self._received) < 4 or len(self._received) < 4 + int.from_bytes(self._received[:4], "big"):
            return False
        answer, self._received = self._received[4:], b""
        steps = self._producers[self._turn].steps
        if steps[self._step].has_to_wait(answer):
            self.retries += 1
            self.due_s = time.perf_counter() + RETRY_S
            return False
        self._step += 1
        if self._step < len(steps):
            self.send()
            return False
        self.commits_ms.append((time.perf_counter() - self._sent_s) * 1000)
        return True


def _ask(connection: socket.socket, request: Request, version: int) -> Any:
    connection.sendall(encode_request(request, version, 7, "bench"))
    received = connection.recv(65536)
    while len(received) < 4 + int.from_bytes(received[:4], "big"):
        received += connection.recv(65536)
    return decode_response(received[4:], request.api_key, version)[1]


def run(connections: list[Connection], count: int) -> float:
    """Run this many transactions; return the seconds that took."""
    selector = selectors.DefaultSelector()
    for connection in connections:
        selector.register(connection.socket, selectors.EVENT_READ, connection)
    begin_s = time.perf_counter()
    for connection in connections:
        connection.begin()
    begun, ended = len(connections), 0
    while ended < begun:
        due = [connection for connection in connections if connection.due_s]
        for connection in due:
            if connection.due_s <= time.perf_counter():
                connection.send()
        for key, _ in selector.select(RETRY_S if due else None):
            if key.data.receive():
                ended += 1
                if begun < count:
                    begun += 1
                    key.data.begin()
    return time.perf_counter() - begin_s


def load() -> None:
    """Read the arguments, run, and print."""
    parser = argparse.ArgumentParser()
    parser.add_argument("address")
    parser.add_argument("--records", type=int, default=1)
    parser.add_argument("--partitions", type=int, default=1)
    parser.add_argument("--count", type=int, default=COUNT)
    parser.add_argument("--connections", type=int, default=16)
    options = parser.parse_args()
    shape = Shape(options.records, options.partitions)
    connections = [
        Connection(options.address, [f"bench-{number}-{turn}" for turn in range(IDS_PER_CONNECTION)], shape)
        for number in range(options.connections)
    ]
    elapsed_s = run(connections, options.count)
    commits_ms = sorted(ms for connection in connections for ms in connection.commits_ms)
    p50, p99 = (commits_ms[int(len(commits_ms) * share)] for share in (0.5, 0.99))
    retries = sum(connection.retries for connection in connections)
    print(json.dumps({"elapsed_s": elapsed_s, "p50_ms": p50, "p99_ms": p99, "retries": retries}))


def main() -> None:
    """Start both, measure, and stop everything."""
    from bench_broker import cpu_seconds, row
    from bench_groups import ENGINES, ONLY, ROUNDS, SCALE, WARM_UPS, broker_pid, one_broker

    from engine.local.cluster import LocalCluster

    def once(shape: Shape, connections: int, count: int, cluster: LocalCluster) -> dict[str, float]:
        before_s = cpu_seconds(broker_pid(cluster))
        command = [sys.executable, __file__, cluster.bootstrap_servers, "--connections", str(connections)]
        command += ["--records", str(shape.records), "--partitions", str(shape.partitions), "--count", str(count)]
        said = subprocess.run(command, capture_output=True, text=True, timeout=600)
        if said.returncode:
            raise RuntimeError(said.stderr)
        figures: dict[str, float] = json.loads(said.stdout)
        return figures | {"cpu_s": cpu_seconds(broker_pid(cluster)) - before_s}

    def medians(shape: Shape, connections: int, count: int) -> dict[str, dict[str, float]]:
        measure = partial(once, shape, connections, count)
        seen: dict[str, list[dict[str, float]]] = {name: [] for name in clusters}
        for number in range(WARM_UPS + ROUNDS):
            for name, cluster in clusters.items():
                figures = measure(cluster)
                if number >= WARM_UPS:
                    seen[name].append(figures)
        nothing = dict.fromkeys(("elapsed_s", "p50_ms", "p99_ms", "retries", "cpu_s"), float("nan"))
        return {"klamm": nothing, "kafka": nothing} | {
            name: {key: sorted(f[key] for f in rounds)[len(rounds) // 2] for key in nothing}
            for name, rounds in seen.items()
        }

    folder = Path(tempfile.mkdtemp(prefix="klamm-bench-"))
    shapes = {f"{r}x{p}": Shape(r, p) for r, p in ((1, 1), (10, 1), (100, 1), (1, 10), (10, 10), (100, 10))}
    print(f"{'':44} {'klamm':>12} {'Kafka 3.9.1':>12} {'':12} {'ratio':>7}")
    try:
        with ExitStack() as stack:
            clusters = {name: stack.enter_context(one_broker(name, folder / name)) for name in ENGINES}
            for name, shape in (shapes | {"offsets": Shape(0, 1), "offsetsx10": Shape(0, 10)}).items():
                if ONLY and name not in ONLY:
                    continue
                count = int(COUNT * SCALE)
                measured = medians(shape, 16, count)
                ours, kafkas = measured["klamm"], measured["kafka"]
                row(f"transactions {name}", count / ours["elapsed_s"], count / kafkas["elapsed_s"], "/s", ">= 1.5")
                scale = 1e6 / count
                row("  broker CPU", ours["cpu_s"] * scale, kafkas["cpu_s"] * scale, "us each", "<= 0.6")
                print(f"{'  answers to wait':44} {ours['retries']:12.0f} {kafkas['retries']:12.0f}")
                alone = medians(shape, 1, count // 8)
                for key in ("p50_ms", "p99_ms"):
                    row(f"  commit alone, {key}", alone["klamm"][key], alone["kafka"][key], "ms", "<= 1.0")
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    load()
