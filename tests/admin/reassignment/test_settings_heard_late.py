"""Brokers that hear of their own settings a moment after they took them, as Kafka's do by ZooKeeper's notification."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from scripted_brokers import ScriptedCluster, scripted_cluster

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.configs.access import alter_entity
from engine.admin.configs.values import Entity, EntityType
from engine.admin.reassignment.throttle_settings import FOLLOWER_RATE, LEADER_RATE, LEADER_REPLICAS, Throttle
from engine.admin.reassignment.throttles import ThrottleSettings, clear_throttles, set_throttle
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from engine.protocol.apis.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from engine.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsResponse

TOPIC, BROKER = 2, 4
_SOURCE = {TOPIC: 1, BROKER: 2}


class LateSettings:
    """Settings of topics and brokers; what brokers have is told once they were asked ``deaf_for`` times."""

    def __init__(self) -> None:
        self.deaf_for = 2
        self.stored: dict[tuple[int, str], dict[str, str]] = {}
        self._told: dict[tuple[int, str], dict[str, str]] = {}
        self._asked: dict[tuple[int, str], int] = {}

    def alter(self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        (resource,) = request.resources
        name = resource.resource_type, resource.resource_name
        changed = dict(self.stored.get(name, {}))
        for config in resource.configs:
            if config.config_operation == 0:
                changed[config.name] = config.value
            else:
                changed.pop(config.name, None)
        self.stored[name], self._asked[name] = changed, 0
        return IncrementalAlterConfigsResponse(
            responses=[AlterConfigsResourceResponse(resource_type=name[0], resource_name=name[1])]
        )

    def describe(self, request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        return DescribeConfigsResponse(
            results=[self._result(resource.resource_type, resource.resource_name) for resource in request.resources]
        )

    def _result(self, kind: int, of: str) -> DescribeConfigsResult:
        name = kind, of
        self._asked[name] = self._asked.get(name, 0) + 1
        if kind == TOPIC or self._asked[name] > self.deaf_for:
            self._told[name] = self.stored.get(name, {})
        configs = [
            DescribeConfigsResourceResult(name=key, value=value, config_source=_SOURCE[kind])
            for key, value in self._told.get(name, {}).items()
        ]
        return DescribeConfigsResult(resource_type=kind, resource_name=of, configs=configs)


def play(
    scene: Callable[[Cluster, LateSettings], Awaitable[None]], complain: Callable[[str], None] = pytest.fail
) -> None:
    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(1) as brokers:
            settings = LateSettings()
            _script(brokers, settings)
            target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
            async with Cluster(target, complain=complain, timeout_s=20) as cluster:
                await scene(cluster, settings)

    asyncio.run(playing())


def _script(brokers: ScriptedCluster, settings: LateSettings) -> None:
    brokers.leaders = {"t": [0]}
    answers = brokers.brokers[0].answers
    answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = settings.alter
    answers[ApiKey.DESCRIBE_CONFIGS] = settings.describe
    answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: ListPartitionReassignmentsResponse()


def test_a_throttle_taken_off_at_once_leaves_no_rate_behind() -> None:
    async def scene(cluster: Cluster, settings: LateSettings) -> None:
        rates = Throttle(50_000).broker_settings
        marked = {LEADER_REPLICAS: "50000:2147483647,0:0"}
        await set_throttle(cluster, ThrottleSettings({"t": marked}, {0: rates}))
        assert settings.stored[(BROKER, "0")] == {LEADER_RATE: "50000", FOLLOWER_RATE: "50000"}
        cleared = await clear_throttles(cluster, frozenset(), ["t"])
        assert (cleared.topics, cleared.brokers, cleared.left) == (("t",), (0,), ())
        assert settings.stored == {(TOPIC, "t"): {}, (BROKER, "0"): {}}

    play(scene)


def test_a_broker_that_never_hears_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(cluster: Cluster, settings: LateSettings) -> None:
        settings.deaf_for = 10**9
        await set_throttle(cluster, ThrottleSettings({}, {0: Throttle(50_000).broker_settings}))

    monkeypatch.setattr("engine.admin.reassignment.throttles.HEARD_S_MAX", 0.1)
    complaints: list[str] = []
    play(scene, complaints.append)
    assert [complaint[:32] for complaint in complaints] == ["broker 0 does not tell of the th"]


def test_a_brokers_setting_is_deleted_right_after_it_was_made() -> None:
    async def scene(cluster: Cluster, settings: LateSettings) -> None:
        broker = Entity(EntityType.BROKER, "0")
        await alter_entity(cluster, broker, {"num.io.threads": "10"}, ())
        await alter_entity(cluster, broker, {}, ("num.io.threads",))
        assert settings.stored == {(BROKER, "0"): {}}
        with pytest.raises(BadRequest, match="not set"):
            await alter_entity(cluster, broker, {}, ("log.cleaner.threads",))

    play(scene)
