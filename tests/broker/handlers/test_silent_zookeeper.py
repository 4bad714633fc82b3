"""A large request whose ZooKeeper does not answer keeps no other large request waiting."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from event_loop import in_event_loop

from engine.broker.controller.topic_admin import TopicAdmin
from engine.broker.handlers.alter_client_quotas import alter_client_quotas
from engine.broker.handlers.create_partitions import create_partitions
from engine.broker.handlers.create_topics import create_topics
from engine.broker.handlers.delete_topics import delete_topics
from engine.broker.handlers.describe_configs import describe_configs
from engine.broker.handlers.incremental_alter_configs import incremental_alter_configs
from engine.broker.handlers.user_scram_credentials import alter_user_scram_credentials
from engine.kafka.protocol.apis.alter_client_quotas import (
    AlterClientQuotasRequest,
    RequestEntityData,
    RequestEntryData,
)
from engine.kafka.protocol.apis.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    ScramCredentialDeletion,
)
from engine.kafka.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from engine.kafka.protocol.apis.create_topics import CreatableReplicaAssignment, CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from engine.kafka.protocol.apis.incremental_alter_configs import AlterConfigsResource as IncrementalResource
from engine.kafka.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from engine.runtime.room import Room

TOPIC, BROKER = 2, 4
"""Types of resources."""


class Silent:
    """A client of ZooKeeper none of whose calls ends."""

    def __init__(self) -> None:
        self.calls = 0

    def __getattr__(self, _: str) -> Any:
        return self if _ in ("admin", "brokers", "configs", "topics") else self._call

    async def _call(self, *_: Any) -> None:
        self.calls += 1
        await asyncio.get_running_loop().create_future()


REQUESTS: dict[str, tuple[Any, Any]] = {
    "CreateTopics": (
        create_topics,
        CreateTopicsRequest(
            topics=[
                CreatableTopic(
                    name="new",
                    num_partitions=-1,
                    replication_factor=-1,
                    assignments=[CreatableReplicaAssignment(partition_index=0, broker_ids=[0])],
                )
            ]
        ),
    ),
    "CreatePartitions": (create_partitions, CreatePartitionsRequest(topics=[CreatePartitionsTopic(name="t", count=3)])),
    "DeleteTopics": (delete_topics, DeleteTopicsRequest(topic_names=["t"])),
    "DescribeConfigs": (
        describe_configs,
        DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=TOPIC, resource_name="t")]),
    ),
    "IncrementalAlterConfigs, a topic": (
        incremental_alter_configs,
        IncrementalAlterConfigsRequest(resources=[IncrementalResource(resource_type=TOPIC, resource_name="t")]),
    ),
    "IncrementalAlterConfigs, a broker": (
        incremental_alter_configs,
        IncrementalAlterConfigsRequest(resources=[IncrementalResource(resource_type=BROKER, resource_name="0")]),
    ),
    "AlterClientQuotas": (
        alter_client_quotas,
        AlterClientQuotasRequest(
            entries=[RequestEntryData(entity=[RequestEntityData(entity_type="user", entity_name="u")])]
        ),
    ),
    "AlterUserScramCredentials": (
        alter_user_scram_credentials,
        AlterUserScramCredentialsRequest(deletions=[ScramCredentialDeletion(name="u", mechanism=1)]),
    ),
}


@pytest.mark.parametrize("name", REQUESTS)
@in_event_loop
async def test_room_is_given_on_while_zookeeper_is_silent(name: str) -> None:
    handler, request = REQUESTS[name]
    zk, room = Silent(), Room(10)
    cache: Any = SimpleNamespace(
        topics={"t": {0: None}} if name != "CreateTopics" else {}, partitions=lambda _: {0: None}, alive_brokers={}
    )
    broker = SimpleNamespace(
        broker_id=0,
        zk=zk,
        metadata_cache=cache,
        controller=SimpleNamespace(is_active=True, is_topic_queued_for_deletion=lambda _: False),
        quotas=SimpleNamespace(mutation_quota=lambda *_, **__: SimpleNamespace(record=lambda _: None)),
        config=SimpleNamespace(delete_topic_enable=True),
        topic_admin=TopicAdmin(zk, cache, SimpleNamespace),  # type: ignore[arg-type]
    )
    context = SimpleNamespace(api_version=1, broker=broker, size_bytes=0, session=None)

    async def large_request() -> None:
        async with room.held(10, 4, "a"):
            await handler(context, request)

    waiting = asyncio.create_task(large_request())
    async with asyncio.timeout(30):
        while not zk.calls:
            if waiting.done():
                await waiting
            await asyncio.sleep(0)
        async with room.held(10, 4, "b"):
            assert not waiting.done()
    waiting.cancel()
