"""Clients from 0.8.2 on: message sets of magic 0 and 1 go in and out, stored as v2. Old answers keep their old forms.

librdkafka still speaks every version when it is told which broker it talks to. kafka-python makes and reads the message
sets on the wire, not the code under test.
"""

from __future__ import annotations

import pytest
from kafka.record.memory_records import MemoryRecords, MemoryRecordsBuilder
from real_clients import ConfluentKafka, Sent
from segments_on_disk import CODECS, codecs_on_disk, stored_batches
from wire_client import WireClient, create_topic, fetch, list_offset, produce, read_all

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.kafka.protocol.records.record import Record
from engine.local.cluster import LocalCluster

TIME_MS = 1_700_000_000_000
NO_TIME = -1
OLD_CODECS = CODECS[:4]


def message_set(magic: int, codec: str, count: int) -> bytes:
    """Return records as an old producer sends them: one message, or one compressed wrapper."""
    builder = MemoryRecordsBuilder(magic, OLD_CODECS.index(codec), 1_000_000)
    for number in range(count):
        assert builder.append(TIME_MS + number if magic else None, b"key %d" % number, b"value %d " % number * 9)
    builder.close()
    return bytes(builder.buffer())


def expected_record(number: int, offset: int, *, has_time: bool) -> Record:
    return Record(offset, TIME_MS + number if has_time else NO_TIME, b"key %d" % number, b"value %d " % number * 9)


@pytest.mark.parametrize("version", [0, 1, 2])
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_old_message_sets_are_stored_as_v2(cluster: LocalCluster, topic: str, version: int, codec: str) -> None:
    create_topic(cluster.bootstrap_servers, topic)
    (log_dir,) = cluster.broker(0).spec.log_dirs
    magic = 1 if version == 2 else 0
    with WireClient(cluster.bootstrap_servers) as client:
        for first in (0, 20):
            answer = produce(client, topic, message_set(magic, codec, 20), version=version)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, first)
        assert {(batch.magic, batch.codec) for batch in stored_batches(log_dir, topic)} == {(2, codec)}
        expected = [expected_record(offset % 20, offset, has_time=magic == 1) for offset in range(40)]
        assert read_all(client, topic) == expected


@pytest.mark.parametrize("version", range(4))
@pytest.mark.parametrize("codec", OLD_CODECS)
def test_old_readers_get_message_sets(cluster: LocalCluster, topic: str, version: int, codec: str) -> None:
    create_topic(cluster.bootstrap_servers, topic)
    count = 30
    sent = [Sent(0, b"k%d" % n, None if n == 3 else b"value" * n, (("gone", b"in old formats"),)) for n in range(count)]
    ConfluentKafka().produce(cluster.bootstrap_servers, topic, codec, sent)
    with WireClient(cluster.bootstrap_servers) as client:
        for start in (0, 7, count - 1):
            answer = fetch(client, topic, start, version=version)
            assert (answer.error_code, answer.high_watermark) == (ErrorCode.NONE, count)
            records = _parse(bytes(answer.records))
            assert {magic for magic, *_ in records} == {0 if version < 2 else 1}
            messages = [(offset, key, value) for _, offset, key, value in records if offset >= start]
            assert messages == [(n, record.key, record.value) for n, record in enumerate(sent) if n >= start]
        assert bytes(fetch(client, topic, count, version=version, max_wait_ms=0).records) == b""
        refused = fetch(client, topic, count + 1, version=version)
        assert refused.error_code == ErrorCode.OFFSET_OUT_OF_RANGE


def _parse(message_set_bytes: bytes) -> list[tuple[int, int, bytes | None, bytes | None]]:
    """Return every record as (magic, offset, key, value)."""
    rows = []
    records = MemoryRecords(message_set_bytes)
    while records.has_next():
        batch = records.next_batch()
        assert batch.validate_crc()
        rows += [(batch.magic, record.offset, record.key, record.value) for record in batch]
    return rows


@pytest.mark.parametrize("release", ["0.8.2", "0.9.0", "0.10.0", "0.11.0"])
def test_librdkafka_as_of_an_old_release(cluster: LocalCluster, topic: str, release: str) -> None:
    create_topic(cluster.bootstrap_servers, topic, partitions=2)
    (log_dir,) = cluster.broker(0).spec.log_dirs
    client = ConfluentKafka(**{"api.version.request": False, "broker.version.fallback": release})
    sent = []
    for codec in OLD_CODECS:
        batch = [Sent(number % 2, b"k", b"v%d " % number * 20) for number in range(60)]
        client.produce(cluster.bootstrap_servers, topic, codec, batch)
        sent += batch
    assert codecs_on_disk(log_dir, topic) == set(OLD_CODECS)
    records_read = client.consume(cluster.bootstrap_servers, topic, 2, len(sent))
    for partition in (0, 1):
        assert [r for r in records_read if r.partition == partition] == [r for r in sent if r.partition == partition]


def test_zstd_is_refused_to_old_producers_and_readers(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap_servers, topic)
    ConfluentKafka().produce(cluster.bootstrap_servers, topic, "zstd", [Sent(0, b"k", b"v" * 100)] * 10)
    with WireClient(cluster.bootstrap_servers) as client:
        for version in (0, 3):
            assert fetch(client, topic, 0, version=version).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        # From Fetch 4 on Kafka looks at the topic's setting, not at its batches.
        batch = bytes(fetch(client, topic, 0, version=9).records)
        assert bytes(fetch(client, topic, 0, version=10).records) == batch
        refused = produce(client, topic, batch, version=6)
        assert refused.error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert produce(client, topic, batch, version=7).error_code == ErrorCode.NONE
        create_topic(cluster.bootstrap_servers, f"{topic}-z", configs={"compression.type": "zstd"})
        assert produce(client, f"{topic}-z", message_set(1, "gzip", 3), version=2).error_code == ErrorCode.NONE
        assert fetch(client, f"{topic}-z", 0, version=9).error_code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        assert [record.offset for record in read_all(client, f"{topic}-z")] == [0, 1, 2]


def test_metadata_0_means_all_topics_by_none_named(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap_servers, topic, partitions=3)
    with WireClient(cluster.bootstrap_servers) as client:
        everything = client.ask(MetadataRequest(topics=[]), 0)
        assert topic in {named_topic.name for named_topic in everything.topics}
        named = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=topic)]), 0)
        (named_topic,) = named.topics
        assert [(p.partition_index, p.leader_id, p.replica_nodes, p.isr_nodes) for p in named_topic.partitions] == [
            (index, 0, [0], [0]) for index in range(3)
        ]
        assert [f"{b.host}:{b.port}" for b in named.brokers] == [cluster.bootstrap_servers]


def test_list_offsets_0_answers_segments_newest_first(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap_servers, topic, configs={"segment.bytes": "1000"})
    with WireClient(cluster.bootstrap_servers) as client:
        for _ in range(6):
            assert produce(client, topic, message_set(1, "none", 8), version=2).error_code == ErrorCode.NONE
        (log_dir,) = cluster.broker(0).spec.log_dirs
        bases = sorted(int(path.stem) for path in (log_dir / f"{topic}-0").glob("*.log"))
        assert len(bases) > 2

        def ask(timestamp: int, limit: int) -> list[int]:
            wanted = ListOffsetsPartition(partition_index=0, timestamp=timestamp, max_num_offsets=limit)
            request = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
            answer = client.ask(request, 0).topics[0].partitions[0]
            assert answer.error_code == ErrorCode.NONE
            return list(answer.old_style_offsets)

        assert ask(-1, 100) == [48, *reversed(bases)]
        assert ask(-1, 1) == [48]
        assert ask(-2, 100) == [0]
        assert list_offset(client, topic, TIME_MS + 3) == 3
