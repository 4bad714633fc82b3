"""Throttles and settings on brokers that learn of their own settings a moment late, as Kafka's do."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable

import pytest
from event_loop import staged
from scripted_brokers import SILENCE, ScriptedCluster, scripted_cluster
from znode_writer import znode_writer

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.configs.access import alter_entity
from engine.admin.configs.values import Entity, EntityType
from engine.admin.reassignment import throttles
from engine.admin.reassignment.throttle_settings import (
    FOLLOWER_RATE,
    FOLLOWER_REPLICAS,
    LEADER_RATE,
    LEADER_REPLICAS,
    LOG_DIRS_RATE,
    Throttle,
    ThrottleSettings,
)
from engine.admin.reassignment.throttles import clear_throttles, delete_throttles, set_throttle
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterConfigsResourceResponse,
    IncrementalAlterConfigsRequest,
    IncrementalAlterConfigsResponse,
)
from engine.kafka.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsResponse
from engine.kafka.zk.errors import SessionLost

TOPIC, BROKER = 2, 4
_SOURCE = {TOPIC: 1, BROKER: 2}
MARKED = {LEADER_REPLICAS: "50000:2147483647,0:0", FOLLOWER_REPLICAS: "50000:2147483647,0:1"}
RATES = Throttle(50_000).broker_settings


class LateSettings:
    """Settings of topics and brokers. A broker reports its new ones after it was asked ``deaf_for`` times."""

    def __init__(self) -> None:
        self.deaf_for = 2
        self.refuses: set[int] = set()
        """Kinds of resources whose settings cannot be altered."""
        self.is_frozen = False
        """Whether it leaves requests for settings unanswered."""
        self.stored: dict[tuple[int, str], dict[str, str]] = {}
        self._told: dict[tuple[int, str], dict[str, str]] = {}
        self._asked: dict[tuple[int, str], int] = {}

    def told(self, kind: int, of: str) -> dict[str, str]:
        """The last report."""
        return self._told.get((kind, of), {})

    def alter(self, request: IncrementalAlterConfigsRequest) -> IncrementalAlterConfigsResponse:
        (resource,) = request.resources
        name = resource.resource_type, resource.resource_name
        if name[0] in self.refuses:
            return _altered(name, ErrorCode.POLICY_VIOLATION)
        changed = dict(self.stored.get(name, {}))
        for config in resource.configs:
            if config.config_operation == 0:
                changed[config.name] = config.value
            else:
                changed.pop(config.name, None)
        self.stored[name], self._asked[name] = changed, 0
        return _altered(name, ErrorCode.NONE)

    def describe(self, request: DescribeConfigsRequest) -> object:
        for resource in request.resources:
            assert resource.resource_type == TOPIC or resource.configuration_keys, "a broker has hundreds of settings"
        return (
            SILENCE
            if self.is_frozen
            else DescribeConfigsResponse(
                results=[self._result(resource.resource_type, resource.resource_name) for resource in request.resources]
            )
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


def _altered(name: tuple[int, str], error: ErrorCode) -> IncrementalAlterConfigsResponse:
    return IncrementalAlterConfigsResponse(
        responses=[AlterConfigsResourceResponse(error_code=error, resource_type=name[0], resource_name=name[1])]
    )


def play(
    scene: Callable[[Cluster, LateSettings], Awaitable[None]],
    complain: Callable[[str], None] = pytest.fail,
    zookeeper: str | None = None,
) -> None:
    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(1) as brokers:
            settings = LateSettings()
            _script(brokers, settings)
            target = ClusterTarget("scripted", Origin.OPTIONS, zookeeper, tuple(brokers.bootstrap))
            async with Cluster(target, complain=complain, timeout_s=20) as cluster:
                await scene(cluster, settings)

    asyncio.run(playing())


def _script(brokers: ScriptedCluster, settings: LateSettings) -> None:
    brokers.leaders = {"t": [0], "u": [0]}
    answers = brokers.brokers[0].answers
    answers[ApiKey.INCREMENTAL_ALTER_CONFIGS] = settings.alter
    answers[ApiKey.DESCRIBE_CONFIGS] = settings.describe
    answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: ListPartitionReassignmentsResponse()


@staged(play)
async def test_a_throttle_taken_off_at_once_leaves_no_rate_behind(cluster: Cluster, settings: LateSettings, /) -> None:
    await set_throttle(cluster, ThrottleSettings({"t": MARKED}, {0: RATES}))
    assert settings.stored[(BROKER, "0")] == {LEADER_RATE: "50000", FOLLOWER_RATE: "50000"}
    cleared = await clear_throttles(cluster, frozenset(), ["t"])
    assert (cleared.topics, cleared.brokers, cleared.left) == (("t",), (0,), ())
    assert settings.stored == {(TOPIC, "t"): {}, (BROKER, "0"): {}}
    assert settings.told(BROKER, "0") == {}, "who looks next finds no rate that no mark explains"


def test_brokers_themselves_are_asked_where_zookeeper_is_named_too(zk_chroot: str) -> None:
    """The znode has the rate before the broker knows it."""

    async def scene(cluster: Cluster, settings: LateSettings) -> None:
        await set_throttle(cluster, ThrottleSettings({}, {0: RATES}))
        assert settings.told(BROKER, "0") == RATES

    with znode_writer(zk_chroot) as write:
        write({"/config/brokers/0": json.dumps({"version": 1, "config": RATES}).encode()}, False)
        play(scene, zookeeper=zk_chroot)


@staged(play)
async def test_a_throttle_stays_while_one_of_its_topics_moves(cluster: Cluster, settings: LateSettings, /) -> None:
    """A topic that has arrived loses its marks.

    Rates stay until nothing moves: without them the rest would run at full speed.
    """
    settings.deaf_for = 0
    settings.stored = {(TOPIC, "t"): MARKED, (TOPIC, "u"): MARKED, (BROKER, "0"): RATES}
    cleared = await clear_throttles(cluster, {TopicPartition("u", 0)}, None)
    assert (cleared.topics, cleared.brokers, cleared.left) == (("t",), (), ())
    assert settings.stored == {(TOPIC, "t"): {}, (TOPIC, "u"): MARKED, (BROKER, "0"): RATES}
    cleared = await clear_throttles(cluster, frozenset(), None)
    assert (cleared.topics, cleared.brokers, cleared.left) == (("u",), (0,), ())
    assert settings.stored == {(TOPIC, "t"): {}, (TOPIC, "u"): {}, (BROKER, "0"): {}}


@staged(play)
async def test_a_plan_without_a_throttle_takes_none_off(cluster: Cluster, settings: LateSettings, /) -> None:
    """Another reassignment may move under the same rate: here that of ``u``."""
    settings.deaf_for = 0
    settings.stored = {(TOPIC, "u"): MARKED, (BROKER, "0"): RATES}
    before = dict(settings.stored)
    cleared = await clear_throttles(cluster, {TopicPartition("u", 0)}, ["t"], RATES)
    assert (cleared.topics, cleared.brokers, cleared.left) == ((), (), ())
    assert settings.stored == before


@staged(play)
async def test_a_list_of_replicas_that_somebody_else_throttles_is_named_where_all_topics_are_looked_at(
    cluster: Cluster, settings: LateSettings, /
) -> None:
    settings.deaf_for = 0
    settings.stored = {(TOPIC, "u"): {LEADER_REPLICAS: "0:0"}}
    cleared = await clear_throttles(cluster, frozenset(), None, names_foreign=True)
    assert cleared.left == (f"topic u keeps {LEADER_REPLICAS}: no mark says that klamm set it",)
    assert settings.stored == {(TOPIC, "u"): {LEADER_REPLICAS: "0:0"}}
    moving = await clear_throttles(cluster, {TopicPartition("u", 0)}, None, names_foreign=True)
    assert (moving.left, moving.foreign) == ((), {}), "it may be needed"
    ended = await clear_throttles(cluster, frozenset(), None)
    assert ended.left == (), "it is no matter of a plan or of a cancellation"


@staged(play)
async def test_throttles_of_others_are_deleted_once_nothing_moves(cluster: Cluster, settings: LateSettings, /) -> None:
    settings.deaf_for = 0
    theirs = {(BROKER, "0"): {**RATES}, (TOPIC, "u"): {LEADER_REPLICAS: "0:0"}}
    settings.stored = {**theirs}
    cleared = (await clear_throttles(cluster, frozenset(), None, names_foreign=True)).foreign
    of_broker, of_topic = Entity(EntityType.BROKER, "0"), Entity(EntityType.TOPIC, "u")
    assert cleared == {of_broker: RATES, of_topic: {LEADER_REPLICAS: "0:0"}}
    assert settings.stored == theirs, "they are named, and stay"
    assert await delete_throttles(cluster, cleared) == {}
    assert not any(settings.stored.values())


@staged(play)
async def test_rates_whose_topics_are_deleted_come_off_for_whoever_set_them(
    cluster: Cluster, settings: LateSettings, /
) -> None:
    """The marks went with the topics. No topic has a mark, so only the command that set a rate knows whose it is."""
    settings.deaf_for = 0
    settings.stored = {(BROKER, "0"): RATES}
    cleared = await clear_throttles(cluster, frozenset(), None)
    assert cleared.brokers == ()
    assert cleared.left == tuple(f"broker 0 keeps {key}=50000: no mark says that klamm set it" for key in sorted(RATES))
    assert settings.stored == {(BROKER, "0"): RATES}
    assert (await clear_throttles(cluster, frozenset(), None, RATES)).brokers == (0,)
    assert settings.stored == {(BROKER, "0"): {}}


@staged(play)
async def test_marks_stay_while_a_rate_of_klamms_cannot_be_taken_off(
    cluster: Cluster, settings: LateSettings, /
) -> None:
    """They tell later readers that the rate is klamm's. A rate that somebody else set keeps no mark."""
    foreign = {LOG_DIRS_RATE: "7000"}
    settings.deaf_for = 0
    settings.stored = {(TOPIC, "t"): MARKED, (BROKER, "0"): RATES | foreign}
    settings.refuses = {BROKER}
    cleared = await clear_throttles(cluster, frozenset(), ["t"])
    assert (cleared.topics, cleared.brokers, len(cleared.left)) == ((), (), 2)
    assert settings.stored == {(TOPIC, "t"): MARKED, (BROKER, "0"): RATES | foreign}
    settings.refuses = set()
    cleared = await clear_throttles(cluster, frozenset(), ["t"])
    assert (cleared.topics, cleared.brokers, len(cleared.left)) == (("t",), (0,), 1)
    assert settings.stored == {(TOPIC, "t"): {}, (BROKER, "0"): foreign}


@pytest.mark.parametrize("is_frozen", [False, True])
def test_a_broker_that_never_hears_is_named(monkeypatch: pytest.MonkeyPatch, is_frozen: bool) -> None:
    """A broker that froze when it got its rate delays nobody for long."""

    async def scene(cluster: Cluster, settings: LateSettings) -> None:
        settings.deaf_for = 10**9
        settings.is_frozen = is_frozen
        await set_throttle(cluster, ThrottleSettings({}, {0: RATES}))

    monkeypatch.setattr("engine.admin.reassignment.throttles.HEARD_S_MAX", 0.1)
    complaints: list[str] = []
    play(scene, complaints.append)
    assert [complaint[:32] for complaint in complaints] == ["broker 0 does not report the thr"]


def test_a_broker_that_never_hears_that_its_throttle_is_off_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scene(cluster: Cluster, settings: LateSettings) -> None:
        settings.deaf_for = 0
        settings.stored = {(TOPIC, "t"): MARKED, (BROKER, "0"): RATES}
        assert (await throttles._rates_of_brokers(cluster, [0]))[0] == RATES
        settings.deaf_for = 10**9
        cleared = await clear_throttles(cluster, frozenset(), ["t"])
        assert (cleared.topics, cleared.brokers, cleared.left) == (("t",), (0,), ())
        assert settings.stored == {(TOPIC, "t"): {}, (BROKER, "0"): {}}

    monkeypatch.setattr("engine.admin.reassignment.throttles.HEARD_S_MAX", 0.1)
    complaints: list[str] = []
    play(scene, complaints.append)
    assert [complaint[:46] for complaint in complaints] == ["broker 0 still reports the throttle that klamm"]


@staged(play)
async def test_a_brokers_setting_is_deleted_right_after_it_was_made(
    cluster: Cluster, settings: LateSettings, /
) -> None:
    broker = Entity(EntityType.BROKER, "0")
    await alter_entity(cluster, broker, {"num.io.threads": "10"}, ())
    await alter_entity(cluster, broker, {}, ("num.io.threads",))
    assert settings.stored == {(BROKER, "0"): {}}
    with pytest.raises(BadRequest, match="not set"):
        await alter_entity(cluster, broker, {}, ("log.cleaner.threads",))


@staged(play)
async def test_a_zookeeper_that_falls_silent_leaves_a_rate_untold(
    cluster: Cluster, settings: LateSettings, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers are asked in parallel: an error of ZooKeeper for one must not end the others as a bug."""

    async def silent(cluster: Cluster, broker: int, *, wants_broker: bool = False) -> dict[str, str]:
        raise SessionLost("ZooKeeper does not answer")

    settings.deaf_for = 0
    settings.stored = {(TOPIC, "t"): MARKED, (BROKER, "0"): RATES}
    monkeypatch.setattr(throttles, "_broker_rates", silent)
    cleared = await clear_throttles(cluster, frozenset(), ["t"])
    assert cleared.brokers == ()
    assert any("ZooKeeper does not answer" in line for line in cleared.left), cleared.left
    assert settings.stored[(BROKER, "0")] == RATES
