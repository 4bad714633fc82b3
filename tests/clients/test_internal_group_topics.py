"""Kafka's internal topics: a client creates them by naming them, and only coordinators may write them."""

from __future__ import annotations

import time
from typing import Any

import pytest
from patience import within
from wire_client import WireClient

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.cluster import LocalCluster

TOPIC_RESOURCE = 2
OVERRIDDEN = 1
"""The source of a value that is set on the topic itself."""

EXPECTED = {
    "__consumer_offsets": (
        50,
        {"cleanup.policy": "compact", "compression.type": "producer", "segment.bytes": "104857600"},
    ),
    "__transaction_state": (
        50,
        {
            "cleanup.policy": "compact",
            "compression.type": "uncompressed",
            "min.insync.replicas": "1",
            "segment.bytes": "104857600",
            "unclean.leader.election.enable": "false",
        },
    ),
}


def made_by_metadata(client: WireClient, name: str) -> Any:
    """Ask for the topic until it exists and has leaders."""
    is_in_time = within(30)
    request = MetadataRequest(topics=[MetadataRequestTopic(name=name)], allow_auto_topic_creation=True)
    while True:
        (topic,) = client.ask(request, 9).topics
        if topic.error_code == ErrorCode.NONE and not any(p.error_code for p in topic.partitions):
            return topic
        assert topic.error_code in (
            ErrorCode.NONE,
            ErrorCode.LEADER_NOT_AVAILABLE,
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        )
        assert is_in_time(), topic
        time.sleep(0.02)


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_who_names_an_internal_topic_gets_it_with_its_own_settings(cluster: LocalCluster, name: str) -> None:
    partitions, configs = EXPECTED[name]
    with WireClient(cluster.bootstrap_servers) as client:
        topics = made_by_metadata(client, name)
        assert (len(topics.partitions), topics.is_internal) == (partitions, True)
        resource = DescribeConfigsResource(resource_type=TOPIC_RESOURCE, resource_name=name, configuration_keys=None)
        (described,) = client.ask(DescribeConfigsRequest(resources=[resource]), 4).results
    assert {c.name: c.value for c in described.configs if c.config_source == OVERRIDDEN} == configs


@pytest.mark.parametrize("name", sorted(EXPECTED))
@pytest.mark.parametrize("acks", [1, -1])
def test_clients_may_not_write_internal_topics(cluster: LocalCluster, name: str, acks: int) -> None:
    batch = encode_batch([Record(timestamp_ms=1, key=b"\0\7none", value=b"")])
    data = PartitionProduceData(index=7, records=batch)
    request = ProduceRequest(
        acks=acks, timeout_ms=10_000, topic_data=[TopicProduceData(name=name, partition_data=[data])]
    )

    def error_as(client_id: str) -> int:
        with WireClient(cluster.bootstrap_servers, client_id=client_id) as client:
            made_by_metadata(client, name)
            error: int = client.ask(request, 9).responses[0].partition_responses[0].error_code
            return error

    assert error_as("producer") == ErrorCode.INVALID_TOPIC_EXCEPTION
    assert error_as("__admin_client") == ErrorCode.NONE
    data.index = 70
    assert error_as("producer") == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
