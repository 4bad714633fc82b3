"""Requests about records: Produce, Fetch, ListOffsets, OffsetForLeaderEpoch, DeleteRecords, idempotent producers."""

from __future__ import annotations

import struct
import time
from collections.abc import Callable

from patience import within
from side_by_side import Side, SideBySide

from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from engine.kafka.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from engine.kafka.protocol.apis.describe_producers import DescribeProducersRequest, TopicRequest
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

BEGIN_MS = 1_700_000_000_000
"""Time of the first record. No topic here deletes old records."""

WORDS = {"error_message", "batch_index_error_message"}
BATCHES = (3, 7, 8, 11)
"""Versions of Produce that carry format 2, each with a different form of answer."""


def make(both: SideBySide, name: str, partitions: int = 1, **settings: str) -> None:
    """Create a topic that keeps its records forever."""
    configs = {"retention.ms": "-1", **{key.replace("_", "."): value for key, value in settings.items()}}
    topic = CreatableTopic(
        name=name,
        num_partitions=partitions,
        replication_factor=1,
        configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
    )
    both.prepare(CreateTopicsRequest(topics=[topic], timeout_ms=15_000), 7)


def batch(
    count: int = 3, begin_ms: int = BEGIN_MS, *, step_ms: int = 1, codec: Codec = Codec.NONE, key: bytes | None = b"k"
) -> bytearray:
    records = [Record(n, begin_ms + n * step_ms, key, b"value %d" % n * 4, []) for n in range(count)]
    return bytearray(encode_batch(records, codec=codec))


def changed(shape: str, position: int, value: int, *, is_sealed: bool = True) -> bytearray:
    """Return a batch with one header field changed, and a checksum that fits."""
    made = batch()
    struct.pack_into(shape, made, position, value)
    if is_sealed:
        stamp_crc(made, 0, len(made))
    return made


def write(*parts: tuple[str, int, bytes | bytearray], acks: int = 1) -> ProduceRequest:
    by_topic: dict[str, list[PartitionProduceData]] = {}
    for topic, partition, records in parts:
        by_topic.setdefault(topic, []).append(PartitionProduceData(index=partition, records=bytes(records)))
    topics = [TopicProduceData(name=name, partition_data=data) for name, data in by_topic.items()]
    return ProduceRequest(acks=acks, timeout_ms=5_000, topic_data=topics)


def produced(both: SideBySide) -> None:
    """Produce: what is accepted, what is refused, and with which error."""
    make(both, "p", 2)
    make(both, "p-append", message_timestamp_type="LogAppendTime")
    make(both, "p-keys", cleanup_policy="compact")
    make(both, "p-small", max_message_bytes="300")
    make(both, "p-gzip", compression_type="gzip")
    make(both, "p-plain", compression_type="uncompressed")
    make(both, "p-late", message_timestamp_before_max_ms="10000")
    make(both, "p-isr", min_insync_replicas="2")
    p = both.ask
    for acks in (1, -1, 2, -2):
        p(f"acks {acks}", write(("p", 0, batch()), ("p-isr", 0, batch()), acks=acks), BATCHES, unlike=WORDS)
    nowhere = [("nosuch", 0), ("p", 7), ("p", -1), ("bad name!", 0), ("", 0)]
    p("nowhere", write(*((topic, index, batch()) for topic, index in nowhere)), BATCHES, unlike=WORDS)
    whole = batch()
    cuts = {"nothing": b"", "a header's part": whole[:40], "cut": whole[:-3], "a tail": whole + b"xyz"}
    cuts |= {"too long": changed(">i", 8, len(whole)), "too short": changed(">i", 8, 10), "zeroes": whole + bytes(80)}
    for kind, sent in cuts.items():
        p(kind, write(("p", 0, sent)), BATCHES, unlike=WORDS)
    p("two", write(("p", 0, whole + whole)), BATCHES, unlike={*WORDS, "log_start_offset"})
    for magic in (0, 1, 3, 255):
        p(f"magic {magic}", write(("p", 0, changed(">B", 16, magic, is_sealed=False))), BATCHES, unlike=WORDS)
    p("checksum", write(("p", 0, changed(">B", 80, 1, is_sealed=False))), BATCHES, unlike=WORDS)
    attributes = {"control": 0x20, "transactional": 0x10, "append time": 0x08, "horizon": 0x40, "unused": 0x4000}
    fields = [(kind, changed(">h", 21, bits)) for kind, bits in attributes.items()]
    fields += [(f"count {count}", changed(">i", 57, count)) for count in (5, 2, 0, -1)]
    fields += [(f"last {delta}", changed(">i", 23, delta)) for delta in (7, 1, -1)]
    fields += [(f"base {offset}", changed(">q", 0, offset)) for offset in (100, -5)]
    fields += [("no time", changed(">q", 27, -1)), ("no largest time", changed(">q", 35, -1))]
    fields += [("an epoch", changed(">i", 12, 77))]
    for kind, sent in fields:
        p(kind, write(("p", 0, sent)), [9], unlike=WORDS)
    for codec in Codec:
        everywhere = ("p", "p-gzip", "p-plain", "p-append")
        p(codec.name, write(*((name, 0, batch(codec=codec)) for name in everywhere)), BATCHES, unlike=WORDS)
    for codec in (Codec.NONE, Codec.GZIP):
        p("no key", write(("p-keys", 0, batch(key=None, codec=codec))), BATCHES, unlike=WORDS)
        p("keys", write(("p-keys", 0, batch(codec=codec))), [9])
        p("small", write(("p-small", 0, batch(40, codec=codec))), BATCHES, unlike=WORDS)
        p("late", write(("p-late", 0, batch(codec=codec))), BATCHES, unlike=WORDS)
    _produced_idempotently(both)


def wait_for_ids(both: SideBySide) -> None:
    """Wait until both hand out producer ids: Kafka has none before the first request for one."""
    is_in_time = within(20)
    for side in both.sides.values():
        while side.ask(InitProducerIdRequest(transaction_timeout_ms=1000), 4).error_code:
            assert is_in_time(), "no producer id"
            time.sleep(0.02)


def _produced_idempotently(both: SideBySide) -> None:
    """Sequences and epochs, one after the other."""
    wait_for_ids(both)
    for transactional_id in (None, ""):
        both.ask("id", InitProducerIdRequest(transactional_id=transactional_id, transaction_timeout_ms=1000))
    for producer_id, epoch in ((5, -1), (-1, 5), (5, 5)):
        asked = InitProducerIdRequest(transaction_timeout_ms=1000, producer_id=producer_id, producer_epoch=epoch)
        both.ask(f"id {producer_id} epoch {epoch}", asked, range(3, 6))
    story = [(0, 0), (0, 0), (3, 0), (0, 0), (9, 0), (4, 0), (6, 0), (9, 0), (12, 0), (15, 0), (0, 0), (3, 0), (18, 0)]
    story += [(21, 1), (0, 1), (21, 0), (3, 1), (3, 1), (0, 9), (3, -1), (-1, 9), (-2, 9), (3, 9)]
    wrapping = [(2**31 - 2, 0), (1, 0), (0, 0)]
    for producer, steps in ((90_001, story), (90_002, [(100, 0), (103, 0)]), (90_003, wrapping)):
        for sequence, epoch in steps:
            records = [Record(n, BEGIN_MS, b"k", b"v", []) for n in range(3)]
            sent = encode_batch(records, producer_id=producer, producer_epoch=epoch, base_sequence=sequence)
            context = f"producer {producer} sequence {sequence} epoch {epoch}"
            both.ask(context, write(("p", 1, sent)), [9], unlike=WORDS)
    asked = [TopicRequest(name=name, partition_indexes=[0, 1, 1, 7, -1]) for name in ("p", "nosuch")]
    both.ask("producers", DescribeProducersRequest(topics=asked), unlike=WORDS)


def _fill(both: SideBySide, topic: str, partition: int = 0) -> None:
    for number in range(6):
        both.prepare(write((topic, partition, batch(begin_ms=BEGIN_MS + number * 1000))), 9)
    both.prepare(write((topic, partition, batch(begin_ms=BEGIN_MS + 2500, step_ms=-100))), 9)
    both.prepare(write((topic, partition, batch(begin_ms=BEGIN_MS + 9000, step_ms=-10, codec=Codec.LZ4))), 9)


def _wanted(
    *parts: tuple[str, int, int],
    limit: int = 1_000_000,
    leader_epoch: int = -1,
    last_epoch: int = -1,
    session: tuple[int, int] = (0, -1),
    max_bytes: int = 50_000_000,
    isolation: int = 0,
    wait_ms: int = 0,
) -> Callable[[Side], FetchRequest]:
    def build(side: Side) -> FetchRequest:
        topics = []
        for name, partition, offset in parts:
            wanted = FetchPartition(
                partition=partition,
                fetch_offset=offset,
                partition_max_bytes=limit,
                current_leader_epoch=leader_epoch,
                last_fetched_epoch=last_epoch,
            )
            topics.append(FetchTopic(topic=name, topic_id=side.id_of(name), partitions=[wanted]))
        return FetchRequest(
            max_wait_ms=wait_ms,
            min_bytes=1,
            max_bytes=max_bytes,
            isolation_level=isolation,
            session_id=session[0],
            session_epoch=session[1],
            topics=topics,
        )

    return build


def fetched(both: SideBySide) -> None:
    """Fetch: offsets, limits, epochs, sessions.

    For a failed partition Kafka sends [] if there are no aborted transactions.
    """
    make(both, "f", 2)
    make(both, "f-empty")
    make(both, "f-rolled", segment_bytes="400")
    for topic in ("f", "f-rolled"):
        _fill(both, topic)
    both.prepare(write(("f", 1, batch())), 9)
    versions = (4, 5, 7, 11, 12, 13, 17)
    aborted = {"aborted_transactions"}
    for offset in (0, 1, 5, 17, 23, 24, 25, -1, 2**62):
        both.ask(f"at {offset}", _wanted(("f", 0, offset), ("f-rolled", 0, offset)), versions, unlike=aborted)
    nowhere = [("nosuch", 0, 0), ("f", 9, 0), ("f-empty", 0, 0)]
    both.ask("nowhere", _wanted(*nowhere), versions, unlike=aborted)
    both.ask("nothing", _wanted(), versions)
    three = (("f", 0, 0), ("f", 1, 0), ("f-empty", 0, 0))
    for limit in (0, 1, 50, 260):
        both.ask(f"limit {limit}", _wanted(*three, limit=limit), versions)
        both.ask(f"in all {limit}", _wanted(*three, max_bytes=limit), versions)
    both.ask("committed", _wanted(*three, isolation=1), versions)
    both.ask("wait", _wanted(("f-empty", 0, 0), wait_ms=20), versions)
    for epoch in (0, 1, 7):
        both.ask(f"epoch {epoch}", _wanted(*three, leader_epoch=epoch), (9, 12, 17), unlike=aborted)
        both.ask(f"last epoch {epoch}", _wanted(*three, last_epoch=epoch), (12, 17), unlike=aborted)
    for session in ((0, 0), (5, 0), (5, 1), (0, 1), (5, -1)):
        both.ask(f"session {session}", _wanted(*three, session=session), (7, 12, 17))


def offsets(both: SideBySide) -> None:
    """ListOffsets and OffsetForLeaderEpoch."""
    make(both, "o")
    make(both, "o-empty")
    make(both, "o-rolled", segment_bytes="400")
    for topic in ("o", "o-rolled"):
        _fill(both, topic)
    places = [("o", 0), ("o-empty", 0), ("o-rolled", 0)]
    nowhere = [("nosuch", 0), ("o", 9), ("o", -1), ("bad name!", 0), ("", 0)]

    def find(
        timestamp: int, where: list[tuple[str, int]], *, replica_id: int = -1, epoch: int = -1, count: int = 1
    ) -> ListOffsetsRequest:
        topics = []
        for name, partition in where:
            wanted = ListOffsetsPartition(
                partition_index=partition, timestamp=timestamp, current_leader_epoch=epoch, max_num_offsets=count
            )
            topics.append(ListOffsetsTopic(name=name, partitions=[wanted]))
        return ListOffsetsRequest(replica_id=replica_id, topics=topics)

    times = [BEGIN_MS + ms for ms in (-1, 0, 1, 1001, 2450, 5002, 5003, 8990, 9000, 9001)]
    for timestamp in (-1, -2, -3, -4, -5, -6, 0, 2**63 - 1, -(2**63), *times):
        both.ask(f"time {timestamp}", find(timestamp, places), (1, 4, 7, 9))
        both.ask(f"segments before {timestamp}", find(timestamp, places, count=10), [0])
    both.ask("nowhere", find(-1, nowhere))
    both.ask("twice", find(-1, [("o", 0), ("o", 0)]))
    for count in (0, 1, 2, 3):
        both.ask(f"{count} segments", find(-1, places, count=count), [0])
    for replica_id in (-2, 0, 5):
        both.ask(f"replica {replica_id}", find(-1, places, replica_id=replica_id))
    for epoch in (-1, 0, 5, 2**31 - 1):
        both.ask(f"epoch {epoch}", find(-1, places, epoch=epoch), (4, 9))
        for known in (-1, 0, 5):
            topics = [
                OffsetForLeaderTopic(
                    topic=name,
                    partitions=[
                        OffsetForLeaderPartition(partition=index, leader_epoch=epoch, current_leader_epoch=known)
                    ],
                )
                for name, index in (*places, *nowhere)
            ]
            both.ask(f"end of epoch {epoch}", OffsetForLeaderEpochRequest(replica_id=-1, topics=topics))


def deleted_records(both: SideBySide) -> None:
    """DeleteRecords, and where the log begins afterwards."""
    for name, policy in (("d", "delete"), ("d-compact", "compact"), ("d-both", "compact,delete")):
        make(both, name, cleanup_policy=policy)
        _fill(both, name)

    def delete(topic: str, offset: int, partition: int = 0) -> DeleteRecordsRequest:
        wanted = DeleteRecordsPartition(partition_index=partition, offset=offset)
        return DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=topic, partitions=[wanted])], timeout_ms=5_000)

    for topic, partition in (("nosuch", 0), ("d", 9), ("d", -1), ("bad name!", 0), ("", 0)):
        both.ask("nowhere", delete(topic, 1, partition))
    for topic in ("d", "d-compact", "d-both"):
        for offset in (-2, 100, 0, 2, 1):
            both.ask(f"{topic} before {offset}", delete(topic, offset))
        for offset in (0, 2):
            both.ask(f"{topic} read", _wanted((topic, 0, offset)), [12], unlike={"aborted_transactions"})
    both.ask("all", delete("d", -1))


def written(both: SideBySide) -> None:
    """Write to topics whose names begin with ``w``, so that the files can be compared."""
    make(both, "w", 2)
    make(both, "w-empty")
    make(both, "w-rolled", segment_bytes="400")
    make(both, "w-indexed", index_interval_bytes="200")
    make(both, "w-plain", compression_type="uncompressed")
    make(both, "w-keys", cleanup_policy="compact")
    for topic in ("w", "w-rolled", "w-indexed", "w-plain", "w-keys"):
        _fill(both, topic)
    for producer in (90_001, 90_002):
        for sequence in (0, 3, 3, 6):
            records = [Record(n, BEGIN_MS + sequence, b"k", b"v", []) for n in range(3)]
            for topic, partition in (("w", 1), ("w-rolled", 0)):
                sent = encode_batch(records, producer_id=producer, producer_epoch=0, base_sequence=sequence)
                both.prepare(write((topic, partition, sent)), 9)
    wanted = [DeleteRecordsPartition(partition_index=0, offset=5)]
    topics = [DeleteRecordsTopic(name=name, partitions=wanted) for name in ("w", "w-indexed")]
    both.prepare(DeleteRecordsRequest(topics=topics, timeout_ms=5_000), 2)
