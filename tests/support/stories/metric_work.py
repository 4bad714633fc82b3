"""The same work for a broker of either engine whose metrics are then compared.

``counted_work`` sends requests one by one, so that both count the same. ``all_kinds_of_work`` makes a broker register
what it registers on first use; what its clients send differs from run to run.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

from confluent_kafka import Consumer
from patience import within
from transactional_clients import CLIENTS
from wire_client import WireClient, create_topic, fetch, list_offset, produce, wait_until_led

from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from engine.kafka.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest
from engine.kafka.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.list_groups import ListGroupsRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

COUNTED = "counted"
OTHERS = "others"
DEADLINE_S = 60.0


def counted_work(address: str, replicas: Sequence[int] = (0,)) -> None:
    """Produce and fetch on partition 0 of ``counted``, well and badly, with requests that nobody else sends."""
    create_topic(address, COUNTED, assignment={0: replicas, 1: replicas})
    with WireClient(address, client_id="counting") as client:
        client.ask(ApiVersionsRequest(client_software_name="klamm-tests", client_software_version="1.2"), 3)
        records = encode_batch([Record(n, int(time.time() * 1000), b"k", b"value %d" % n, []) for n in range(3)])
        for acks in (1, 1, 1, -1, -1):
            assert produce(client, COUNTED, records, acks=acks, version=8).error_code == ErrorCode.NONE
        spoiled = bytearray(records)
        spoiled[-1] ^= 1
        assert produce(client, COUNTED, bytes(spoiled), version=8).error_code == ErrorCode.CORRUPT_MESSAGE
        assert produce(client, COUNTED, records, partition=7, version=8).error_code != ErrorCode.NONE
        for offset in (0, 3, 12):
            assert fetch(client, COUNTED, offset, version=11).records
        assert not fetch(client, COUNTED, 15, version=11, max_wait_ms=200).records
        assert fetch(client, COUNTED, 99, version=11).error_code == ErrorCode.OFFSET_OUT_OF_RANGE
        assert list_offset(client, COUNTED, -1) == 15
        for _ in range(4):
            client.ask(MetadataRequest(topics=[]), 9)


DEPRECATED = "kafka.network:type=RequestMetrics,name=DeprecatedRequestsPerSec,request={},version={}," + (
    "clientSoftwareName={},clientSoftwareVersion={}"
)


def deprecated_work(address: str) -> dict[str, int]:
    """Send requests in versions that Kafka 4.0 does not take; return how often Kafka 3.9.1 counts which."""
    named, unknown = ("klamm-tests", "1.2"), ("unknown", "unknown")
    with WireClient(address) as client, WireClient(address) as silent:
        client.ask(ApiVersionsRequest(client_software_name=named[0], client_software_version=named[1]), 3)
        for version in (3, 3, 2):
            assert fetch(client, COUNTED, 14, version=version, max_wait_ms=0).error_code == ErrorCode.NONE
        for asking in (client, silent, silent):
            asking.ask(DescribeConfigsRequest(resources=[]), 0)
        silent.ask(DescribeConfigsRequest(resources=[]), 1)
    return {
        DEPRECATED.format(*of): count
        for of, count in {
            ("FetchConsumer", 3, *named): 2,
            ("Fetch", 3, *named): 2,
            ("FetchConsumer", 2, *named): 1,
            ("Fetch", 2, *named): 1,
            ("DescribeConfigs", 0, *named): 1,
            ("DescribeConfigs", 0, *unknown): 2,
        }.items()
    }


def all_kinds_of_work(address: str) -> None:
    """Use groups, transactions and administration once."""
    create_topic(address, OTHERS, partitions=2)
    with WireClient(address) as client:
        # It makes the broker create the topic; the client would be refused if it came earlier.
        client.ask(FindCoordinatorRequest(key="measured-group"), 0)
        client.ask(FindCoordinatorRequest(key="measured", key_type=1), 1)
    wait_until_led(address, "__consumer_offsets", "__transaction_state")
    producer = CLIENTS["confluent-kafka"](address, "measured")
    for ends in (producer.commit, producer.abort):
        producer.begin()
        producer.send(OTHERS, 0, b"in a transaction")
        producer.send_offset("measured-group", OTHERS, 0, 1)
        ends()
    producer.close()
    consumer = Consumer(
        {"bootstrap.servers": address, "group.id": "measured", "auto.offset.reset": "earliest", "log_level": 0}
    )
    consumer.subscribe([OTHERS])
    is_in_time = within(DEADLINE_S)
    while consumer.poll(0.5) is None:
        assert is_in_time(), "a group reads nothing"
    consumer.commit(asynchronous=False)
    consumer.close()
    with WireClient(address, client_id="administering") as client:
        client.ask(CreatePartitionsRequest(topics=[CreatePartitionsTopic(name=OTHERS, count=3)], timeout_ms=9000), 1)
        client.ask(ListGroupsRequest(), 4)
        client.ask(DescribeGroupsRequest(groups=["measured"]), 5)
        wanted = DeleteRecordsPartition(partition_index=0, offset=1)
        client.ask(
            DeleteRecordsRequest(topics=[DeleteRecordsTopic(name=COUNTED, partitions=[wanted])], timeout_ms=9000), 2
        )
    create_topic(address, "doomed")
    with WireClient(address) as client:
        client.ask(DeleteTopicsRequest(topic_names=["doomed"], timeout_ms=9000), 3)
