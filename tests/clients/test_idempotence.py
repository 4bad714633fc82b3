"""Idempotent producers (KIP-98): what is sent twice is stored once, and gaps are noticed.

``tests/faults`` proves that this memory survives restarts and crashes.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from confluent_kafka import Producer
from kafka import KafkaProducer
from segments_on_disk import stored_batches
from wire_client import SequencedProducer, WireClient, create_topic, read_all

from engine.common.errors import ErrorCode
from engine.local.cluster import LocalCluster

REMEMBERED_BATCHES = 5


@pytest.fixture
def client(cluster: LocalCluster, topic: str) -> Iterator[WireClient]:
    create_topic(cluster.bootstrap_servers, topic)
    with WireClient(cluster.bootstrap_servers) as connected:
        yield connected


def test_duplicates_are_answered_with_their_first_offset(client: WireClient, topic: str) -> None:
    producer, other = SequencedProducer(client), SequencedProducer(client)
    assert producer.producer_id != other.producer_id
    for number in range(REMEMBERED_BATCHES + 2):
        answer = producer.send(client, topic, number * 3, 3)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number * 3)
    for number in range(2, REMEMBERED_BATCHES + 2):
        answer = producer.send(client, topic, number * 3, 3)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, number * 3)
    forgotten = producer.send(client, topic, 0, 3)
    assert (forgotten.error_code, forgotten.base_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1)
    assert other.send(client, topic, 0, 1).base_offset == 21
    values = [record.value for record in read_all(client, topic)]
    assert values == [*(b"%d:%d" % (producer.producer_id, n) for n in range(21)), b"%d:0" % other.producer_id]


def test_gaps_and_halves_of_batches_are_refused(client: WireClient, topic: str) -> None:
    producer = SequencedProducer(client)
    # The broker knows nothing of the producer, so any sequence may be its first here, as after retention.
    assert producer.send(client, topic, 5, 2).error_code == ErrorCode.NONE
    for first, count in ((8, 1), (6, 1), (5, 1), (0, 2)):
        answer = producer.send(client, topic, first, count)
        assert (answer.error_code, answer.base_offset) == (ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER, -1), (first, count)
    assert producer.send(client, topic, 7, 1).base_offset == 2


def test_epochs_fence_and_begin_again(client: WireClient, topic: str) -> None:
    producer = SequencedProducer(client)
    assert producer.send(client, topic, 0, 2, producer_epoch=1).error_code == ErrorCode.NONE
    fenced = producer.send(client, topic, 2, 1, producer_epoch=0)
    assert fenced.error_code == ErrorCode.INVALID_PRODUCER_EPOCH
    assert producer.send(client, topic, 4, 1, producer_epoch=2).error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producer.send(client, topic, 0, 1, producer_epoch=2).base_offset == 2


def test_sequences_wrap_around(client: WireClient, topic: str) -> None:
    producer = SequencedProducer(client)
    assert producer.send(client, topic, 2**31 - 2, 4).base_offset == 0
    assert producer.send(client, topic, 2, 3).base_offset == 4
    assert producer.send(client, topic, 2**31 - 2, 4).base_offset == 0
    assert producer.send(client, topic, 2, 3).base_offset == 4
    assert len(read_all(client, topic)) == 7


def test_librdkafka_and_kafka_python_keep_their_sequences(
    client: WireClient, cluster: LocalCluster, topic: str
) -> None:
    errors: list[object] = []
    librdkafka = Producer({"bootstrap.servers": cluster.bootstrap_servers, "enable.idempotence": True, "linger.ms": 1})
    for number in range(500):
        librdkafka.produce(topic, b"%d" % number, partition=0, on_delivery=lambda error, _: errors.append(error))
        librdkafka.poll(0)
    assert librdkafka.flush(40) == 0
    assert errors == [None] * 500
    python = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers, enable_idempotence=True, linger_ms=1)
    futures = [python.send(topic, b"%d" % number, partition=0) for number in range(500, 700)]
    assert [future.get(40).offset for future in futures] == list(range(500, 700))
    python.close()
    assert [record.value for record in read_all(client, topic)] == [b"%d" % number for number in range(700)]
    (log_dir,) = cluster.broker(0).spec.log_dirs
    next_sequences: dict[int, int] = {}
    for batch in stored_batches(log_dir, topic):
        assert batch.producer_id >= 0
        assert batch.base_sequence == next_sequences.get(batch.producer_id, 0)
        next_sequences[batch.producer_id] = batch.base_sequence + batch.count
    assert sorted(next_sequences.values()) == [200, 500]
