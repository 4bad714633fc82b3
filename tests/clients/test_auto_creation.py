"""Topics that appear because a client names them (``auto.create.topics.enable``, KIP-361)."""

from __future__ import annotations

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient
from kafka import KafkaProducer
from patience import within
from wire_client import WireClient, describe_topic, read_all

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.local.cluster import LocalCluster


def test_a_producer_makes_its_topic_with_the_defaults(cluster: LocalCluster, topic: str) -> None:
    producer = Producer({"bootstrap.servers": cluster.bootstrap_servers})
    errors: list[object] = []
    producer.produce(topic, b"v", partition=1, on_delivery=lambda error, _: errors.append(error))
    assert producer.flush(40) == 0
    assert errors == [None]
    with WireClient(cluster.bootstrap_servers) as client:
        assert len(describe_topic(client, topic).partitions) == 2, "num.partitions is 2 here"
        assert [record.value for record in read_all(client, topic, partition=1)] == [b"v"]


def test_kafka_python_makes_its_topic(cluster: LocalCluster, topic: str) -> None:
    producer = KafkaProducer(bootstrap_servers=cluster.bootstrap_servers)
    assert producer.send(topic, b"v").get(40).offset == 0
    producer.close()


def test_a_consumer_may_forbid_it(cluster: LocalCluster, topic: str) -> None:
    settings = {"bootstrap.servers": cluster.bootstrap_servers, "group.id": "g", "enable.auto.commit": False}
    consumer = Consumer({**settings, "allow.auto.create.topics": False})
    assert consumer.list_topics(topic, timeout=40).topics[topic].error is not None
    consumer.close()
    assert topic not in AdminClient({"bootstrap.servers": cluster.bootstrap_servers}).list_topics(timeout=40).topics


def test_names_that_cannot_be_topics_are_not_made(cluster: LocalCluster) -> None:
    with WireClient(cluster.bootstrap_servers) as client:
        for name in ("", ".", "..", "a b", "ä", "x" * 250):
            (response,) = client.ask(MetadataRequest(topics=[MetadataRequestTopic(name=name)]), 9).topics
            assert response.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION, name


@pytest.mark.parametrize("version", [1, 9])
def test_metadata_of_a_topic_in_the_making_says_to_come_again(cluster: LocalCluster, topic: str, version: int) -> None:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=topic)], allow_auto_topic_creation=True)
    is_in_time = within(40)
    with WireClient(cluster.bootstrap_servers) as client:
        (first,) = client.ask(request, version).topics
        assert first.error_code in (ErrorCode.LEADER_NOT_AVAILABLE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        while client.ask(request, version).topics[0].error_code != ErrorCode.NONE:
            assert is_in_time()
