"""The whole path of a setting, against a real ZooKeeper: request, znode, change notification, settings in force."""

from __future__ import annotations

import json
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any, cast

from event_loop import in_event_loop, until

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.incremental_alter_configs import incremental_alter_configs
from engine.common.clock import SystemClock
from engine.common.errors import ErrorCode
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import DynamicConfigs
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.config_changes import ConfigChangeListener
from engine.kafka.zk.kafka_client import KafkaZkClient

TOPIC, BROKER = 2, 4
SET, DELETE = 0, 1


class Stand:
    """The settings of two brokers on one ZooKeeper: broker 0 gets the requests, both listen."""

    def __init__(self, client: ZkClient) -> None:
        self.client = client
        self.zk = KafkaZkClient(client)
        self.configs = [
            DynamicConfigs(BrokerConfig.from_properties({"zookeeper.connect": "z:1", "broker.id": str(broker_id)}))
            for broker_id in (0, 1)
        ]
        self.listeners = [ConfigChangeListener(client, configs, SystemClock()) for configs in self.configs]

    async def ask(self, resource_type: int, name: str, *changes: tuple[str, int, str | None]) -> tuple[int, str | None]:
        broker = SimpleNamespace(
            broker_id=0,
            dynamic_configs=self.configs[0],
            zk=self.zk,
            metadata_cache=SimpleNamespace(topics={"t"}),
        )
        context = cast("RequestContext", SimpleNamespace(broker=broker, size_bytes=0))
        configs = [
            AlterableConfig(name=key, config_operation=operation, value=text) for key, operation, text in changes
        ]
        resource = AlterConfigsResource(resource_type=resource_type, resource_name=name, configs=configs)
        answer = await incremental_alter_configs(context, IncrementalAlterConfigsRequest(resources=[resource]))
        return answer.responses[0].error_code, answer.responses[0].error_message

    async def json_of(self, path: str) -> Any:
        return json.loads((await self.client.get(path))[0])


@asynccontextmanager
async def stand(connect_string: str, *, has_controller: bool = True) -> AsyncIterator[Stand]:
    client = await ZkClient.connect(connect_string, session_timeout_ms=6_000)
    made = Stand(client)
    try:
        await made.zk.cluster.make_persistent_paths()
        if has_controller:
            await client.create("/controller", b'{"version":2,"brokerid":0,"timestamp":"1","kraftControllerEpoch":-1}')
        for listener in made.listeners:
            await listener.start()
        yield made
    finally:
        for listener in made.listeners:
            await listener.stop()
        await client.close()


@in_event_loop
async def test_a_topic_setting_reaches_all_brokers(zk_chroot: str) -> None:
    async with stand(zk_chroot) as made:
        outcome = await made.ask(TOPIC, "t", ("retention.ms", SET, "3600000"), ("min.insync.replicas", SET, "2"))
        assert outcome == (ErrorCode.NONE, None)
        expected = LogConfig(retention_ms=3_600_000, min_insync_replicas=2)
        await until(lambda: [configs.log_config("t") for configs in made.configs] == [expected] * 2)
        assert await made.json_of("/config/topics/t") == {
            "version": 1,
            "config": {"retention.ms": "3600000", "min.insync.replicas": "2"},
        }
        assert await made.json_of("/config/changes/config_change_0000000000") == {
            "version": 2,
            "entity_path": "topics/t",
        }
        await made.ask(TOPIC, "t", ("retention.ms", DELETE, None), ("min.insync.replicas", DELETE, None))
        await until(lambda: [configs.log_config("t") for configs in made.configs] == [LogConfig()] * 2)
        assert await made.json_of("/config/topics/t") == {"version": 1, "config": {}}


@in_event_loop
async def test_broker_settings_reach_whom_they_are_for(zk_chroot: str) -> None:
    async with stand(zk_chroot) as made:
        await made.ask(BROKER, "", ("message.max.bytes", SET, "1000"))
        await until(lambda: [configs.current.message_max_bytes for configs in made.configs] == [1000, 1000])
        await made.ask(BROKER, "0", ("message.max.bytes", SET, "2000"))
        await until(lambda: [configs.current.message_max_bytes for configs in made.configs] == [2000, 1000])
        assert await made.json_of("/config/brokers/<default>") == {
            "version": 1,
            "config": {"message.max.bytes": "1000"},
        }
        assert await made.json_of("/config/brokers/0") == {"version": 1, "config": {"message.max.bytes": "2000"}}


@in_event_loop
async def test_without_a_controller_nothing_is_written(zk_chroot: str) -> None:
    async with stand(zk_chroot, has_controller=False) as made:
        code, message = await made.ask(TOPIC, "t", ("retention.ms", SET, "5"))
        assert code == ErrorCode.REQUEST_TIMED_OUT
        assert message is not None and "there is no controller" in message
        assert await made.client.children("/config/topics") == []
        assert await made.client.children("/config/changes") == []
