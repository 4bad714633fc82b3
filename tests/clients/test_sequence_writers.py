"""The clients of the fault tests do what every program must do where librdkafka leaves it to the program."""

from __future__ import annotations

import asyncio

from event_loop import in_event_loop
from scripted_brokers import SILENCE, scripted_cluster
from sequence_writers import LibrdkafkaSender, read_topic

from engine.common.model import NO_LEADER
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.list_offsets import (
    ListOffsetsPartitionResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
    ListOffsetsTopicResponse,
)
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.apis.produce import ProduceRequest

PATIENCE_MS = 0
"""librdkafka counts from when it first heard of a topic, so for an old topic this time is over."""


@in_event_loop
async def test_a_topic_that_a_new_broker_does_not_know_yet_is_asked_for_again() -> None:
    """A broker that has just started knows no topic, and librdkafka gives up a topic that it has known for long."""
    async with scripted_cluster(1) as cluster:
        (broker,) = cluster.brokers
        broker.answers[ApiKey.PRODUCE] = lambda _: SILENCE
        cluster.leaders["t"] = [broker.id]
        settings = {"enable.idempotence": False, "acks": "1", "topic.metadata.propagation.max.ms": PATIENCE_MS}
        sender = LibrdkafkaSender(f"{broker.host}:{broker.port}", **settings)
        try:
            await asyncio.to_thread(sender.send, "t", 0, b"first", lambda *_: None)
            async with asyncio.timeout(30):
                while not broker.requests(ProduceRequest):
                    await asyncio.sleep(0.01)
            known, cluster.leaders = cluster.leaders, {}
            # librdkafka learns that the topic does not exist.
            await asyncio.to_thread(sender._ask_again, "t")
            asked = len(broker.requests(MetadataRequest))
            sending = asyncio.create_task(asyncio.to_thread(sender.send, "t", 0, b"second", lambda *_: None))
            async with asyncio.timeout(30):
                while len(broker.requests(MetadataRequest)) == asked and not sending.done():
                    await asyncio.sleep(0.01)
                assert not sending.done(), "librdkafka has taken it, or the writer has given up"
                cluster.leaders = known
                await sending
        finally:
            await asyncio.to_thread(sender.close)


@in_event_loop
async def test_a_partition_that_had_no_leader_for_a_moment_is_read() -> None:
    """librdkafka keeps what it heard of a topic, and asks for the ends of a partition without a leader no more."""

    def no_records(request: ListOffsetsRequest) -> ListOffsetsResponse:
        topics = [
            ListOffsetsTopicResponse(
                name=topic.name,
                partitions=[
                    ListOffsetsPartitionResponse(partition_index=p.partition_index, offset=0) for p in topic.partitions
                ],
            )
            for topic in request.topics
        ]
        return ListOffsetsResponse(topics=topics)

    async with scripted_cluster(1) as cluster:
        (broker,) = cluster.brokers
        broker.answers[ApiKey.LIST_OFFSETS] = no_records
        cluster.leaders["t"] = [broker.id, NO_LEADER]
        reading = asyncio.create_task(
            asyncio.to_thread(read_topic, f"{broker.host}:{broker.port}", "t", 2, timeout_s=15)
        )
        async with asyncio.timeout(30):
            while not broker.requests(ListOffsetsRequest):
                await asyncio.sleep(0.01)
        cluster.leaders["t"] = [broker.id, broker.id]
        assert await reading == [[], []]
