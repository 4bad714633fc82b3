"""Replicas compared: logs in memory behind brokers that answer debugging consumers' ListOffsets and Fetch."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import Any, cast

from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.admin.replicas.comparison import DifferenceKind
from engine.admin.replicas.verification import PartitionVerification, PartitionVerifier
from engine.common.errors import ErrorCode
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import PartitionSnapshot
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchRequest, FetchResponse, PartitionData
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import read_batch_header
from engine.kafka.protocol.records.record import Record

NAME = TopicPartition("t", 0)


def batch(base: int, *values: str, epoch: int = 0, offsets: tuple[int, ...] | None = None) -> bytes:
    records = [
        Record(offset, 1_700_000_000_000 + offset, f"k{offset}".encode(), value.encode())
        for offset, value in zip(offsets or range(base, base + len(values)), values, strict=True)
    ]
    return bytes(encode_batch(records, base_offset=base, partition_leader_epoch=epoch))


@dataclass
class Log:
    """One replica's log."""

    batches: list[bytes]
    start: int = 0

    @property
    def end(self) -> int:
        return read_batch_header(self.batches[-1]).next_offset if self.batches else self.start

    def read(self, offset: int) -> tuple[ErrorCode, bytes]:
        if not self.start <= offset <= self.end:
            return ErrorCode.OFFSET_OUT_OF_RANGE, b""
        batches = [batch for batch in self.batches if read_batch_header(batch).last_offset >= offset]
        return ErrorCode.NONE, b"".join(batches[:2])


class Brokers:
    """Replaces the wire: the leader is broker 1, and a broker without a log does not answer."""

    operation_s = 30.0

    def __init__(self, logs: dict[int, Log], high_watermark: int) -> None:
        self.silent: dict[int, str] = {}
        self.logs = logs
        self.high_watermark = high_watermark
        self.trims: dict[int, int] = {}
        """From the first fetch at this offset on, every broker's log starts there."""

    async def call_broker(self, broker: int, request: Any, **limits: Any) -> Any:
        if broker not in self.logs:
            raise Unreachable("no answer", where=f"broker {broker}")
        log = self.logs[broker]
        if isinstance(request, ListOffsetsRequest):
            asked = request.topics[0].partitions[0]
            latest = log.end if request.replica_id == -2 else self.high_watermark
            offset = latest if asked.timestamp == -1 else log.start
            answer = ListOffsetsPartitionResponse(partition_index=asked.partition_index, offset=offset)
            return ListOffsetsResponse(topics=[ListOffsetsTopicResponse(name="t", partitions=[answer])])
        assert isinstance(request, FetchRequest)
        assert request.replica_id == -2
        wanted = request.topics[0].partitions[0]
        offset = wanted.fetch_offset
        if offset in self.trims and broker == 2:
            log.start = self.trims.pop(offset)
        code, records = log.read(offset)
        data = PartitionData(
            partition_index=wanted.partition, error_code=code, high_watermark=0, records=memoryview(records)
        )
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[data])])


def verified(
    brokers: Brokers, *, is_compacted: bool = False, live: tuple[int, ...] = (1, 2, 3), leader: int = 1
) -> tuple[PartitionVerification, int]:
    replicas = tuple(sorted(set(brokers.logs) | set(live)))
    counted: list[int] = []
    partition = PartitionSnapshot(0, ReplicaAssignment(replicas), leader, replicas)
    verifier = PartitionVerifier(
        cast("WireCluster", brokers), NAME, partition, frozenset(live), is_compacted, counted.append
    )
    return asyncio.run(verifier.run()), sum(counted)


def agreement(result: PartitionVerification) -> list[bool | None]:
    return [replica.agrees for replica in result.replicas]


SOUND = [batch(base, *(f"v{base + i}" for i in range(5))) for base in range(0, 50, 5)]


def test_equal_replicas_agree() -> None:
    result, counted = verified(Brokers({b: Log(list(SOUND)) for b in (1, 2, 3)}, 50))
    assert (result.from_offset, result.to_offset, agreement(result)) == (0, 50, [True] * 3)
    assert (result.is_good, result.first_difference, counted) == (True, None, 50)


def test_what_lies_beyond_the_high_watermark_does_not_count() -> None:
    other = [*SOUND[:8], batch(40, "a", "b"), batch(42, "c")]
    result, _ = verified(Brokers({1: Log(list(SOUND)), 2: Log(other), 3: Log(SOUND[:8])}, 40))
    assert agreement(result) == [True] * 3


def test_another_batch_is_found_at_its_offset_with_both_sides_decoded() -> None:
    other = [*SOUND[:4], batch(20, "v20", "XXX", "v22", "v23", "v24"), *SOUND[5:]]
    result, _ = verified(Brokers({1: Log(list(SOUND)), 2: Log(other), 3: Log(list(SOUND))}, 50))
    assert agreement(result) == [True, False, True]
    difference = result.first_difference
    assert difference is not None
    assert (difference.offset, difference.kind) == (20, DifferenceKind.CHECKSUM)
    values = [[(record["offset"], record["value"]) for record in side.records] for side in difference.sides]
    assert values == [[(21, "v21")], [(21, "XXX")]]


def test_the_first_of_several_differences_is_told() -> None:
    early = [SOUND[0], batch(5, "a", "b", "c", "d", "e"), *SOUND[2:]]
    late = [*SOUND[:8], batch(40, "a", "b", "c", "d", "e"), SOUND[9]]
    result, _ = verified(Brokers({1: Log(list(SOUND)), 2: Log(late), 3: Log(early)}, 50))
    assert agreement(result) == [True, False, False]
    assert result.first_difference is not None and result.first_difference.offset == 5


def test_missing_batches_and_other_epochs() -> None:
    missing, _ = verified(Brokers({1: Log(list(SOUND)), 2: Log([*SOUND[:4], *SOUND[5:]])}, 50), live=(1, 2))
    assert missing.first_difference is not None
    assert (missing.first_difference.kind, missing.first_difference.offset) == (DifferenceKind.OFFSETS, 20)
    assert missing.first_difference.sides[1].first_offset is None
    newer = [*SOUND[:9], batch(45, *(f"v{o}" for o in range(45, 50)), epoch=3)]
    epochs, _ = verified(Brokers({1: Log(list(SOUND)), 2: Log(newer)}, 50), live=(1, 2))
    assert epochs.first_difference is not None
    assert epochs.first_difference.kind is DifferenceKind.LEADER_EPOCH


def rotten(sound: bytes) -> bytes:
    return sound[:-2] + bytes([sound[-2] ^ 1]) + sound[-1:]


def test_bytes_that_went_bad() -> None:
    follower, _ = verified(Brokers({1: Log(list(SOUND)), 2: Log([*SOUND[:9], rotten(SOUND[9])])}, 50), live=(1, 2))
    assert agreement(follower) == [True, False]
    assert follower.first_difference is not None and follower.first_difference.kind is DifferenceKind.CORRUPT
    bad = [SOUND[0], rotten(SOUND[1]), *SOUND[2:]]
    leader, _ = verified(Brokers({1: Log(list(bad)), 2: Log(list(SOUND)), 3: Log(list(SOUND))}, 50))
    assert agreement(leader) == [False, None, None]
    everywhere, _ = verified(Brokers({1: Log(list(bad)), 2: Log(list(bad))}, 50), live=(1, 2))
    assert agreement(everywhere) == [False, False]


def test_a_compacted_log_may_have_holes_but_no_other_records() -> None:
    cleaned = [batch(0, "v3", offsets=(3,)), *SOUND[2:]]
    brokers = {1: Log(list(SOUND)), 2: Log(cleaned), 3: Log([*SOUND[1:4], *SOUND[5:]])}
    result, counted = verified(Brokers(brokers, 50), is_compacted=True)
    assert (agreement(result), counted) == ([True] * 3, 50)
    changed = [*cleaned[:3], batch(20, "v22", "XXX", offsets=(22, 23)), *cleaned[4:]]
    result, _ = verified(Brokers({1: Log(cleaned), 2: Log(changed)}, 50), is_compacted=True, live=(1, 2))
    assert result.first_difference is not None
    assert (result.first_difference.kind, result.first_difference.offset) == (DifferenceKind.RECORD, 23)


def test_a_replica_that_lags_is_compared_as_far_as_it_is() -> None:
    result, _ = verified(Brokers({1: Log(list(SOUND)), 2: Log(SOUND[:6]), 3: Log([])}, 50))
    assert agreement(result) == [True] * 3
    assert [(replica.log_end_offset, replica.lag) for replica in result.replicas] == [(50, 0), (30, 20), (0, 50)]


def test_retention_is_no_difference() -> None:
    trimmed, counted = verified(Brokers({1: Log(list(SOUND)), 2: Log(SOUND[3:], start=17)}, 50), live=(1, 2))
    assert (trimmed.from_offset, agreement(trimmed), counted) == (17, [True, True], 33)
    brokers = Brokers({1: Log(list(SOUND)), 2: Log(list(SOUND))}, 50)
    brokers.trims[20] = 35
    meanwhile, counted = verified(brokers, live=(1, 2))
    assert (agreement(meanwhile), counted) == ([True, True], 50)


def test_who_cannot_be_read_does_not_agree_and_does_not_differ() -> None:
    dead, _ = verified(Brokers({1: Log(list(SOUND)), 2: Log(list(SOUND)), 3: Log([])}, 50), live=(1, 2))
    assert (agreement(dead), dead.replicas[2].error, dead.is_good) == ([True, True, None], "its broker is dead", False)
    silent, _ = verified(Brokers({1: Log(list(SOUND)), 2: Log(list(SOUND))}, 50))
    assert (agreement(silent), silent.replicas[2].error) == ([True, True, None], "no answer")
    nobody, _ = verified(Brokers({1: Log(list(SOUND)), 2: Log(list(SOUND))}, 50), leader=-1)
    assert (agreement(nobody), nobody.from_offset) == ([None] * 3, None)


class Frozen(Brokers):
    """Broker 3 keeps its connections open and answers nothing."""

    operation_s = 0.1

    def __init__(self, logs: dict[int, Log], high_watermark: int) -> None:
        super().__init__(logs, high_watermark)
        self.asked_in_vain = 0

    async def call_broker(self, broker: int, request: Any, **limits: Any) -> Any:
        if broker != 3:
            return await super().call_broker(broker, request, **limits)
        self.asked_in_vain += 1
        await asyncio.Event().wait()
        raise AssertionError("nobody sets it")


def test_a_frozen_broker_is_waited_for_once_whatever_the_number_of_partitions() -> None:
    brokers = Frozen({b: Log(list(SOUND)) for b in (1, 2, 3)}, 50)
    partition = PartitionSnapshot(0, ReplicaAssignment((1, 2, 3)), 1, (1, 2, 3))

    async def all_of_them() -> list[PartitionVerification]:
        wire, live = cast("WireCluster", brokers), frozenset((1, 2, 3))
        return [
            await PartitionVerifier(wire, TopicPartition("t", n), partition, live, False, lambda _: None).run()
            for n in range(3)
        ]

    results = asyncio.run(all_of_them())
    assert [agreement(result) for result in results] == [[True, True, None]] * 3
    assert {result.replicas[2].error for result in results} == {"no answer within 0.04 s"}
    assert brokers.asked_in_vain == 1
