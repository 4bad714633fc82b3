"""Fetch sessions (KIP-227): only what changed travels, and nothing is missed."""

from __future__ import annotations

from typing import Any

from confluent_kafka import Consumer, Producer, TopicPartition
from wire_client import WireClient, create_topic

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic
from engine.local.cluster import LocalCluster

PARTITIONS = 20
VERSION = 11


def fetch_in_session(
    client: WireClient, topic: str, session_id: int, session_epoch: int, offsets: dict[int, int], **more: Any
) -> Any:
    partitions = [
        FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=1_000_000) for p, offset in offsets.items()
    ]
    request = FetchRequest(
        max_wait_ms=0,
        min_bytes=0,
        max_bytes=10_000_000,
        session_id=session_id,
        session_epoch=session_epoch,
        topics=[FetchTopic(topic=topic, partitions=partitions)] if partitions else [],
        **more,
    )
    return client.ask(request, VERSION)


def answered(response: Any) -> dict[int, int]:
    """Return the bytes of records by partition."""
    return {p.partition_index: len(p.records or b"") for topic in response.responses for p in topic.partitions}


def send(cluster: LocalCluster, topic: str, partition: int) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    producer.produce(topic, b"v", partition=partition)
    assert producer.flush(40) == 0


def test_only_changed_partitions_are_answered(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap_servers, topic, partitions=PARTITIONS)
    with WireClient(cluster.bootstrap_servers) as client:
        opened = fetch_in_session(client, topic, 0, 0, dict.fromkeys(range(PARTITIONS), 0))
        assert opened.session_id != 0
        assert answered(opened) == dict.fromkeys(range(PARTITIONS), 0)
        session_id = opened.session_id
        assert answered(fetch_in_session(client, topic, session_id, 1, {})) == {}
        send(cluster, topic, 7)
        changed = answered(fetch_in_session(client, topic, session_id, 2, {}))
        assert list(changed) == [7] and changed[7] > 0
        assert answered(fetch_in_session(client, topic, session_id, 3, {7: 1})) == {}
        forgotten = [ForgottenTopic(topic=topic, partitions=[3])]
        send(cluster, topic, 3)
        send(cluster, topic, 4)
        partitions = answered(fetch_in_session(client, topic, session_id, 4, {}, forgotten_topics_data=forgotten))
        assert list(partitions) == [4]
        wrong = fetch_in_session(client, topic, session_id, 9, {})
        assert wrong.error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        unknown = fetch_in_session(client, topic, session_id + 1, 1, {})
        assert unknown.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        closed = fetch_in_session(client, topic, session_id, -1, {4: 1})
        assert (closed.error_code, closed.session_id) == (ErrorCode.NONE, 0)


def test_librdkafka_follows_many_partitions(cluster: LocalCluster, topic: str) -> None:
    create_topic(cluster.bootstrap_servers, topic, partitions=PARTITIONS)
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer({**settings, "fetch.wait.max.ms": 50})
    consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    values_read: dict[int, list[bytes | None]] = {partition: [] for partition in range(PARTITIONS)}
    for turn in range(5):
        for partition in range(turn % 2, PARTITIONS, 2):
            producer.produce(topic, b"%d" % turn, partition=partition)
        assert producer.flush(40) == 0
        for _ in range(PARTITIONS // 2):
            message = consumer.poll(40)
            assert message is not None and message.error() is None
            values_read[message.partition()].append(message.value())
    consumer.close()
    for partition, values in values_read.items():
        assert values == [b"%d" % turn for turn in range(5) if turn % 2 == partition % 2]
