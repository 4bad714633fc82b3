"""A broker of ours beside a bare loop, the limit for any broker in Python: CPU of a transaction, and of a commit.

The bare loop reads the same requests and splits their frames, checks the checksums of batches and stamps their offsets,
appends as many bytes to as many files by as many writes, and answers. What the coordinator writes and what it answers
is made once. It decodes, decides and remembers nothing, so no broker that does can reach it.
With commits there is a second loop, which does what any coordinator has to: it decodes them, encodes their records, in
one batch for all that come in a turn of the event loop, and their answers, with the codecs of the broker.
``KLAMM_BENCH_ONLY=100x1,1x10,commitx10`` runs some rows.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import shutil
import struct
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from statistics import median
from typing import ClassVar, cast

import bench_transactions
import commit_load
import uvloop
from bench_transactions import TOPIC
from coordinator_world import offset_records
from crc32c import crc32c

from engine.broker.coordinator.groups.commit_form import CommittedOffset, Offsets
from engine.broker.coordinator.groups.commit_gathering import commit_batch
from engine.broker.coordinator.groups.records import OFFSETS_BASE_SEQUENCE
from engine.broker.coordinator.transactions.records import transition_batch
from engine.broker.coordinator.transactions.transaction import Transition
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.formats.control_records import ControlRecordType, EndTransactionMarker, encode_end_transaction_batch
from engine.kafka.formats.transaction_state import TransactionState
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.add_partitions_to_txn import (
    AddPartitionsToTxnPartitionResult,
    AddPartitionsToTxnResponse,
    AddPartitionsToTxnTopicResult,
)
from engine.kafka.protocol.apis.end_txn import EndTxnResponse
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdResponse
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitResponse,
    OffsetCommitResponsePartition,
    OffsetCommitResponseTopic,
)
from engine.kafka.protocol.apis.produce import PartitionProduceResponse, ProduceResponse, TopicProduceResponse
from engine.kafka.protocol.codec import decoder, encoder
from engine.kafka.protocol.frames import decode_request, decode_request_header, encode_response
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.encode import encode_batch

SHAPES = {f"{r}x{p}": (r, p) for p in (1, 10) for r in (1, 10, 100)} | {"commitx1": (0, 1), "commitx10": (0, 10)}
"""Records in each partition, and partitions; without records it is a group's commit."""
GROUPS = 1_000
IBP = parse_metadata_version("3.9")
BUFFER_BYTES = 1024 * 1024

_FRAME = struct.Struct(">ih")
_BASE_OFFSET = struct.Struct(">q")
_CRC = struct.Struct(">I")
_HEAD = struct.Struct(">iiB")
"""Of an answer: size, correlation id, no tags."""
_FILE_OF_STATE = 0


Appends = dict[int, list[tuple[int, bytes]]]
"""What to write for each API beside what its requests bring: file and bytes."""


class BareLoop(asyncio.BufferedProtocol):
    """One connection."""

    def __init__(
        self, files: list[int], answers: dict[int, bytes], appends: dict[int, list[tuple[int, bytes]]]
    ) -> None:
        self._files, self._answers, self._appends = files, answers, appends
        self._buffer = bytearray(BUFFER_BYTES)
        self._end = self._offset = 0
        self._batches: dict[int, list[tuple[int, int]]] = {}
        """Where the batches are in a Produce of this size: all of one size have the same form."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.WriteTransport", transport)

    def get_buffer(self, sizehint: int) -> memoryview:
        return memoryview(self._buffer)[self._end :]

    def buffer_updated(self, nbytes: int) -> None:
        self._end += nbytes
        start, out = 0, bytearray()
        while self._end - start >= _FRAME.size:
            size, key = _FRAME.unpack_from(self._buffer, start)
            if start + 4 + size > self._end:
                break
            if key == ApiKey.PRODUCE:
                self._append_batches(start, size)
            out += self._answer(key, memoryview(self._buffer)[start + 4 : start + 4 + size])
            start += 4 + size
        self._buffer[: self._end - start] = self._buffer[start : self._end]
        self._end -= start
        self._transport.write(out)

    def _answer(self, key: int, frame: memoryview) -> bytes:
        for file, data in self._appends.get(key, ()):
            os.write(self._files[file], data)
        return self._answers[key]

    def _append_batches(self, start: int, size: int) -> None:
        places = self._batches.get(size)
        if places is None:
            places = self._batches[size] = _places_of_batches(bytes(self._buffer[start + 4 : start + 4 + size]))
        frame = memoryview(self._buffer)[start + 4 : start + 4 + size]
        for file, (position, length) in enumerate(places, _FILE_OF_STATE + 1):
            batch = frame[position : position + length]
            assert crc32c(batch[layout.ATTRIBUTES :]) == _CRC.unpack_from(batch, layout.CRC)[0]
            self._offset += 1
            _BASE_OFFSET.pack_into(batch, 0, self._offset)
            os.write(self._files[file], batch)


class CommitLoop(BareLoop):
    """Decodes and encodes commits; those of all connections that come in one turn are written together."""

    turn: ClassVar[list[tuple[CommitLoop, OffsetCommitRequest]]] = []
    decode = staticmethod(decoder(OffsetCommitRequest, commit_load.VERSION))
    encode = staticmethod(encoder(OffsetCommitResponse, commit_load.VERSION))

    def _answer(self, key: int, frame: memoryview) -> bytes:
        if not self.turn:
            asyncio.get_running_loop().call_soon(self._write)
        _, body = decode_request_header(frame)
        self.turn.append((self, self.decode(frame, body)[0]))
        return b""

    def _write(self) -> None:
        now_ms = int(time.time() * 1000)
        commits = [(request.group_id, _offsets(request, now_ms)) for _, request in self.turn]
        os.write(self._files[_FILE_OF_STATE], commit_batch(commits, now_ms, Codec.NONE, IBP))
        for connection, request in self.turn:
            out = bytearray(_HEAD.size)
            self.encode(out, _response(request))
            _HEAD.pack_into(out, 0, len(out) - 4, 7, 0)
            connection._transport.write(out)
        self.turn.clear()


def _offsets(request: OffsetCommitRequest, now_ms: int) -> Offsets:
    return {
        TopicPartition(topic.name, asked.partition_index): CommittedOffset(
            asked.committed_offset, "", asked.committed_leader_epoch, now_ms
        )
        for topic in request.topics
        for asked in topic.partitions
    }


def _response(request: OffsetCommitRequest) -> OffsetCommitResponse:
    return OffsetCommitResponse(
        topics=[
            OffsetCommitResponseTopic(
                name=topic.name,
                partitions=[OffsetCommitResponsePartition(partition_index=p.partition_index) for p in topic.partitions],
            )
            for topic in request.topics
        ]
    )


def _places_of_batches(frame: bytes) -> list[tuple[int, int]]:
    _, request = decode_request(memoryview(frame))
    places, position = [], 0
    for data in request.topic_data[0].partition_data:
        position = frame.index(bytes(data.records), position)
        places.append((position, len(data.records)))
        position += len(data.records)
    return places


def _answers(partitions: int) -> dict[int, bytes]:
    indexes = range(partitions)
    added = [AddPartitionsToTxnPartitionResult(partition_index=p, partition_error_code=0) for p in indexes]
    written = [PartitionProduceResponse(index=p, base_offset=0) for p in indexes]
    answer = partial(encode_response, correlation_id=7)
    return {
        ApiKey.INIT_PRODUCER_ID: bytes(
            answer(InitProducerIdResponse(producer_id=1, producer_epoch=0), ApiKey.INIT_PRODUCER_ID, 1)
        ),
        ApiKey.ADD_PARTITIONS_TO_TXN: bytes(
            answer(
                AddPartitionsToTxnResponse(
                    results_by_topic_v3_and_below=[
                        AddPartitionsToTxnTopicResult(name=TOPIC, results_by_partition=added)
                    ]
                ),
                ApiKey.ADD_PARTITIONS_TO_TXN,
                1,
            )
        ),
        ApiKey.PRODUCE: bytes(
            answer(
                ProduceResponse(responses=[TopicProduceResponse(name=TOPIC, partition_responses=written)]),
                ApiKey.PRODUCE,
                7,
            )
        ),
        ApiKey.END_TXN: bytes(answer(EndTxnResponse(), ApiKey.END_TXN, 1)),
        ApiKey.OFFSET_COMMIT: commit_load.answer(TOPIC, partitions),
    }


def _appends(partitions: int) -> Appends:
    now_ms = int(time.time() * 1000)
    names = [TopicPartition(TOPIC, p) for p in range(partitions)]

    def state(of: TransactionState, left: list[TopicPartition]) -> tuple[int, bytes]:
        transition = Transition(of, 1, 0, 1, -1, 60_000, frozenset(left), now_ms, now_ms)
        return _FILE_OF_STATE, bytes(transition_batch("bench-10-1", transition, now_ms))

    marker = encode_end_transaction_batch(
        EndTransactionMarker(ControlRecordType.COMMIT, 0), producer_id=1, producer_epoch=0, timestamp_ms=now_ms
    )
    offsets = {name: CommittedOffset(1_000, "", 0, now_ms) for name in names}
    commit = encode_batch(offset_records("bench-100", offsets, now_ms, IBP), base_sequence=OFFSETS_BASE_SEQUENCE)
    return {
        ApiKey.ADD_PARTITIONS_TO_TXN: [state(TransactionState.ONGOING, names)],
        ApiKey.END_TXN: [
            state(TransactionState.PREPARE_COMMIT, names),
            *((_FILE_OF_STATE + 1 + p, bytes(marker)) for p in range(partitions)),
            state(TransactionState.COMPLETE_COMMIT, []),
        ],
        ApiKey.OFFSET_COMMIT: [(_FILE_OF_STATE, bytes(commit))],
    }


async def _serve(folder: Path, partitions: int, loop: type[BareLoop]) -> None:
    files = [os.open(folder / str(p), os.O_CREAT | os.O_WRONLY | os.O_APPEND) for p in range(partitions + 1)]
    answers, appends = _answers(partitions), _appends(partitions)
    server = await asyncio.get_running_loop().create_server(lambda: loop(files, answers, appends), "127.0.0.1", 0)
    print(server.sockets[0].getsockname()[1], flush=True)
    await server.serve_forever()


def main() -> None:
    """Measure both for each shape, in turns."""
    from bench_broker import cpu_seconds
    from bench_groups import ONLY, ROUNDS, SCALE, WARM_UPS, broker_pid, one_broker

    folder = Path(tempfile.mkdtemp(prefix="klamm-bench-"))

    def cost(pid: int, address: str, records: int, partitions: int) -> float:
        """Run one round; return the microseconds of CPU for each."""
        count = int((2_000 if records else 20_000) * SCALE)
        program = bench_transactions if records else commit_load
        own = ["--records", str(records)] if records else ["--groups", str(GROUPS), "--topic", TOPIC]
        command = [sys.executable, str(program.__file__), address, "--partitions", str(partitions), *own]
        before_s = cpu_seconds(pid)
        said = subprocess.run(
            [*command, "--count", str(count)], capture_output=True, text=True, check=True, timeout=600
        )
        json.loads(said.stdout)
        return (cpu_seconds(pid) - before_s) * 1e6 / count

    print(f"{'CPU, us each':28} {'klamm':>9} {'bare loop':>9} {'ratio':>7} {'with codecs':>12} {'ratio':>7}")
    try:
        with one_broker("klamm", folder / "klamm") as cluster:
            for name, (records, partitions) in SHAPES.items():
                if ONLY and name not in ONLY:
                    continue
                (files := folder / name).mkdir()
                command = [sys.executable, __file__, str(files), str(partitions)]
                with ExitStack() as stack:
                    ends = [(broker_pid(cluster), cluster.bootstrap_servers)]
                    for option in ((), ("--with-codecs",))[: 1 if records else 2]:
                        bare = stack.enter_context(
                            subprocess.Popen([*command, *option], stdout=subprocess.PIPE, text=True)
                        )
                        stack.callback(bare.terminate)
                        assert bare.stdout is not None
                        ends.append((bare.pid, f"127.0.0.1:{int(bare.stdout.readline())}"))
                    costs = [[cost(*end, records, partitions) for end in ends] for _ in range(WARM_UPS + ROUNDS)]
                ours, *limits = (median(column) for column in zip(*costs[WARM_UPS:], strict=True))
                shown = "".join(f" {limit:9.0f} {ours / limit:6.1f}x" for limit in limits)
                print(f"{name:28} {ours:9.0f}{shown}", flush=True)
    finally:
        shutil.rmtree(folder, ignore_errors=True)


if __name__ == "__main__":
    parser = argparse.ArgumentParser()
    parser.add_argument("folder", type=Path)
    parser.add_argument("partitions", type=int)
    parser.add_argument("--with-codecs", action="store_true")
    options = parser.parse_args()
    uvloop.run(_serve(options.folder, options.partitions, CommitLoop if options.with_codecs else BareLoop))
