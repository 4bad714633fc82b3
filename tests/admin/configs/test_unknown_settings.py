"""Topics whose settings no broker reports: everything else about them is shown, and nothing is assumed."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest
from event_loop import in_event_loop, staged
from scripted_brokers import SILENCE, ScriptedCluster, scripted_cluster

from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Refused, Unreachable, ZooKeeperUnreachable
from engine.admin.cluster.settings_silence import (
    DEAD_ZOOKEEPER,
    FIRST_REST_S,
    ZOOKEEPER_REST_S,
    SettingsSilence,
)
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.cluster.wire import WireCluster
from engine.admin.configs import by_wire
from engine.admin.configs.access import SnapshotConfigReader
from engine.admin.configs.by_wire import (
    WireConfigReader,
    alter_configs,
    describe_clients,
    read_effective,
    read_overrides,
)
from engine.admin.configs.values import Entity, EntityType
from engine.admin.health.checks import assess
from engine.admin.health.report import Check, HealthFacts
from engine.admin.topics.access import SnapshotTopicReader
from engine.admin.topics.by_wire import WireTopicReader, create_topic
from engine.admin.topics.changes import NewTopic
from engine.admin.topics.describing import DescribeOptions, describe_topics
from engine.admin.topics.selection import PartitionFilter, select_topics
from engine.admin.watch.by_wire import read_wire_settings
from engine.common.errors import ErrorCode
from engine.common.model import BrokerInfo
from engine.common.snapshot import ClusterSnapshot, SnapshotSource
from engine.common.snapshot_json import snapshot_from_json, snapshot_to_json
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_topics import CreateTopicsRequest
from engine.kafka.protocol.apis.describe_configs import (
    DescribeConfigsRequest,
    DescribeConfigsResourceResult,
    DescribeConfigsResponse,
    DescribeConfigsResult,
)
from engine.kafka.protocol.apis.incremental_alter_configs import IncrementalAlterConfigsRequest
from engine.kafka.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsResponse
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

Scene = Callable[[ScriptedCluster, WireTopicReader], Awaitable[None]]


def play(scene: Scene, complaints: list[str] | None) -> None:
    """Play with a reader that may take 0.2 s for the settings of two topics with a partition each."""

    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(1) as cluster:
            cluster.leaders = {"t": [0], "u": [0]}
            cluster.brokers[0].answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: (
                ListPartitionReassignmentsResponse()
            )
            properties = ClientProperties(request_timeout_ms=20_000)
            wire = WireCluster(cluster.bootstrap, properties=properties, request_timeout_s=1.0)
            on_unknown = None if complaints is None else complaints.append
            try:
                await scene(cluster, WireTopicReader(wire, on_unknown=on_unknown))
            finally:
                await wire.close()

    asyncio.run(playing())


def answering(codes: Iterable[ErrorCode]) -> Callable[[DescribeConfigsRequest], DescribeConfigsResponse]:
    """Answer with an override for each resource whose code is NONE."""
    override = DescribeConfigsResourceResult(name="retention.ms", value="7", config_source=1)
    return lambda request: DescribeConfigsResponse(
        results=[
            DescribeConfigsResult(
                error_code=code,
                error_message=None if code is ErrorCode.NONE else "damaged",
                resource_type=2,
                resource_name=resource.resource_name,
                configs=[override] if code is ErrorCode.NONE else [],
            )
            for resource, code in zip(request.resources, codes, strict=True)
        ]
    )


@staged(play, None)
async def test_settings_of_many_topics_are_taken_answer_by_answer(
    cluster: ScriptedCluster, _: WireTopicReader, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All answers together would hold the event loop, and take memory for each setting of each topic."""
    monkeypatch.setattr(by_wire, "_TOPICS_PER_REQUEST", 1)
    asked: list[list[str]] = []

    def answer(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        asked.append([resource.resource_name for resource in request.resources])
        return answering([ErrorCode.NONE])(request)

    cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = answer
    wire = WireCluster(cluster.bootstrap, properties=ClientProperties(), request_timeout_s=1.0)
    try:
        settings = by_wire._describe_topics(wire, ["t", "u"], keys=None)
        assert (await anext(settings)).resource_name == "t"
        assert asked == [["t"]]
        assert [setting.resource_name async for setting in settings] == ["u"]
        assert await read_overrides(wire, ["t", "u"]) == {"t": {"retention.ms": "7"}, "u": {"retention.ms": "7"}}
    finally:
        await wire.close()


@staged(play, None)
async def test_a_watch_asks_once_for_overrides_and_the_min_isr(
    cluster: ScriptedCluster, reader: WireTopicReader, /
) -> None:
    """A second request could stay without an answer on a busy broker: the min ISR of all topics would be unknown."""
    names: list[list[str]] = []

    def answer(request: DescribeConfigsRequest) -> DescribeConfigsResponse:
        response = answering([ErrorCode.NONE] * len(request.resources))(request)
        for result in response.results:
            result.configs += [DescribeConfigsResourceResult(name="min.insync.replicas", value="2", config_source=5)]
        names.append([resource.resource_name for resource in request.resources])
        return response

    cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = answer
    wire = WireCluster(cluster.bootstrap, properties=ClientProperties(), request_timeout_s=1.0)
    try:
        configs, _, min_isr, missing = await read_wire_settings(wire, await reader.topics(["t", "u"]))
    finally:
        await wire.close()
    assert configs == {"t": {"retention.ms": "7"}, "u": {"retention.ms": "7"}}
    assert (min_isr, missing) == ({"t": 2, "u": 2}, ())
    assert names.count(["t", "u"]) == 2, "the reader of topics has asked first"


def test_where_settings_are_waited_for_the_rest_is_told() -> None:
    complaints: list[str] = []

    async def scene(cluster: ScriptedCluster, reader: WireTopicReader) -> None:
        cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: SILENCE
        described = await describe_topics(reader, select_topics(["t", "u"]), DescribeOptions())
        assert [(t.topic, t.configs, t.partitions[0].leader) for t in described] == [("t", None, 0), ("u", None, 0)]
        assert complaints == ["settings of 2 topics are not known: no answer within 0.2 s"]
        unavailable = DescribeOptions((PartitionFilter.UNAVAILABLE,))
        assert await describe_topics(reader, select_topics(["t"]), unavailable) == []

    play(scene, complaints)


@pytest.mark.parametrize(
    "options",
    [
        DescribeOptions((PartitionFilter.UNDER_MIN_ISR,)),
        DescribeOptions((PartitionFilter.UNAVAILABLE, PartitionFilter.AT_MIN_ISR)),
        DescribeOptions(with_overrides_only=True),
    ],
    ids=["under-min-isr", "at-min-isr", "overrides"],
)
@staged(play, [])
async def test_who_asks_by_settings_is_refused(
    cluster: ScriptedCluster, reader: WireTopicReader, /, options: DescribeOptions
) -> None:
    cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: SILENCE
    with pytest.raises(Unreachable, match=r"not known") as caught:
        await describe_topics(reader, select_topics(["t"]), options)
    assert "ZooKeeper" in str(caught.value.hint)


@pytest.mark.parametrize("whose", ["one", "all"])
@staged(play, None)
async def test_who_asks_for_settings_alone_hears_whose_silence_it_is(
    cluster: ScriptedCluster, _: WireTopicReader, /, whose: str
) -> None:
    cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: SILENCE
    wire = WireCluster(cluster.bootstrap, properties=ClientProperties(), request_timeout_s=1.0)
    try:
        with pytest.raises(Unreachable, match=r"no answer within 0.8 s") as caught:
            if whose == "one":
                await WireConfigReader(wire).describe(Entity(EntityType.TOPIC, "t"), include_all=False)
            else:
                await WireConfigReader(wire).describe_all(EntityType.TOPIC, include_all=False)
    finally:
        await wire.close()
    assert "ZooKeeper" in str(caught.value.hint)


@staged(play, None)
async def test_a_broker_that_waits_for_zookeeper_is_not_given_more_to_wait_for(
    cluster: ScriptedCluster, reader: WireTopicReader, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kafka's broker has eight threads for requests, and each such request blocks one."""
    complaints: list[str] = []
    broker = cluster.brokers[0]
    broker.answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: SILENCE
    silence = SettingsSilence()
    for _ in range(3):
        # As ``--watch`` does: each look has its own connections.
        wire = WireCluster(cluster.bootstrap, request_timeout_s=1.0, settings=silence)
        reader = WireTopicReader(wire, on_unknown=complaints.append)
        try:
            assert len(await reader.topics(["t", "u"])) == 2
            assert await reader.min_isr(await reader.topics(["t"])) == {}
            with pytest.raises(Unreachable, match=r"no answer within 0.2 s"):
                await WireConfigReader(wire).describe(Entity(EntityType.TOPIC, "t"), include_all=False)
        finally:
            await wire.close()
    assert len(broker.requests(DescribeConfigsRequest)) == 1
    assert set(complaints) == {
        "settings of 2 topics are not known: no answer within 0.2 s",
        "settings of 1 topic are not known: no answer within 0.2 s",
    }
    broker.answers[ApiKey.DESCRIBE_CONFIGS] = answering([ErrorCode.NONE])
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + FIRST_REST_S)
    wire = WireCluster(cluster.bootstrap, request_timeout_s=1.0, settings=silence)
    try:
        assert (await WireTopicReader(wire).topics(["t"]))[0].configs == {"retention.ms": "7"}, "asked again"
    finally:
        await wire.close()


NO_ROUTE = "255.255.255.255:2181"
"""The kernel refuses connections to it, whatever the machine's network."""


@contextmanager
def silent_address() -> Iterator[str]:
    with socket.create_server((own_loopback_address(), 0)) as frozen:
        host, port = frozen.getsockname()
        yield f"{host}:{port}"


@contextmanager
def dead_zookeeper(how: str) -> Iterator[str]:
    refusing = f"{own_loopback_address()}:1"
    with silent_address() as silent:
        yield {"silent": silent, "refusing": refusing, "both": f"{refusing},{silent}/chroot"}[how]


@pytest.mark.parametrize("how", ["silent", "refusing", "both"])
@staged(play, None)
async def test_where_zookeeper_itself_counts_as_dead_nobody_is_asked_for_settings(
    cluster: ScriptedCluster, _: WireTopicReader, /, how: str
) -> None:
    complaints: list[str] = []
    silence = SettingsSilence()
    with dead_zookeeper(how) as zookeeper:
        error = await find_zookeeper_away(cluster, zookeeper, silence)
    assert error.counts_as_dead
    for _again in range(2):
        async with Cluster(brokers_of(cluster), settings=silence) as opened:
            wire = await opened.wire()
            (topic,) = await WireTopicReader(wire, on_unknown=complaints.append).topics(["t"])
            assert topic.configs is None
            with pytest.raises(Unreachable, match="brokers were not asked") as refused:
                await describe_clients(wire, EntityType.USER, None)
            assert "side=wire asks the brokers all the same" in str(refused.value.hint)
    assert set(complaints) == {f"settings of 1 topic are not known: {DEAD_ZOOKEEPER}"}
    assert not cluster.brokers[0].requests(DescribeConfigsRequest)


@pytest.mark.parametrize("how", ["silent", "refusing", "both"])
@staged(play, None)
async def test_zookeeper_is_looked_at_before_brokers_are_asked_for_what_it_keeps(
    cluster: ScriptedCluster, _: WireTopicReader, /, how: str
) -> None:
    """A command that needs nothing from ZooKeeper itself does not know yet whether it is alive."""
    with dead_zookeeper(how) as zookeeper:
        async with Cluster(brokers_of(cluster, zookeeper)) as opened:
            wire = await opened.wire()
            checks = (
                read_effective(wire, ["t"], "cleanup.policy"),
                alter_configs(wire, Entity(EntityType.TOPIC, "t"), {"retention.ms": "7"}, [], validate_only=True),
                create_topic(wire, NewTopic("t"), timeout_ms=1000, validate_only=True),
            )
            for outcome in await asyncio.gather(*checks, return_exceptions=True):
                assert (type(outcome), str(outcome)) == (Unreachable, DEAD_ZOOKEEPER)
    broker = cluster.brokers[0]
    for asked in (DescribeConfigsRequest, IncrementalAlterConfigsRequest, CreateTopicsRequest):
        assert not broker.requests(asked)


@pytest.mark.parametrize("how", ["lives", "no route", "--via wire"])
@staged(play, None)
async def test_brokers_are_asked_unless_zookeeper_counts_as_dead(
    cluster: ScriptedCluster, _: WireTopicReader, /, how: str
) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.write(b"Zookeeper version")
        await reader.read()
        writer.close()

    cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = answering([ErrorCode.NONE])
    async with await asyncio.start_server(serve, own_loopback_address(), 0) as lives:
        host, port = lives.sockets[0].getsockname()
        with dead_zookeeper("both") as dead:
            zookeeper = {"lives": f"{dead.split('/')[0]},{host}:{port}", "no route": NO_ROUTE, "--via wire": dead}
            target = brokers_of(cluster, zookeeper[how])
            target = replace(target, via=Side.WIRE) if how == "--via wire" else target
            async with Cluster(target) as opened:
                await read_effective(await opened.wire(), ["t"], "cleanup.policy")
    assert len(cluster.brokers[0].requests(DescribeConfigsRequest)) == 1


@pytest.mark.parametrize("away", ["no route", "unknown name", "one without route, one that refuses"])
@pytest.mark.parametrize("hears_it", [True, False], ids=["a broker reaches it", "it is dead"])
def test_where_no_way_leads_to_zookeeper_a_broker_is_asked_once(
    monkeypatch: pytest.MonkeyPatch, hears_it: bool, away: str
) -> None:
    """A firewall may be between klamm and ZooKeeper, but not between ZooKeeper and the brokers."""
    monkeypatch.setattr("engine.admin.cluster.settings_silence.ABSENT_ZOOKEEPER_LIMIT_S", 0.1)
    complaints: list[str] = []

    async def unresolved(*_: object) -> list[tuple[str, int]]:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    if away == "unknown name":
        monkeypatch.setattr("engine.admin.cluster.zookeeper._resolve", unresolved)
    zookeeper = f"{NO_ROUTE},{own_loopback_address()}:1" if "refuses" in away else NO_ROUTE

    async def scene(cluster: ScriptedCluster, _: WireTopicReader) -> None:
        answer = answering([ErrorCode.NONE]) if hears_it else lambda _: SILENCE
        cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = answer
        silence = SettingsSilence()
        error = await find_zookeeper_away(cluster, zookeeper, silence)
        assert (str(error), error.counts_as_dead) == ("ZooKeeper cannot be reached", False)
        async with Cluster(brokers_of(cluster), settings=silence) as opened:
            reader = WireTopicReader(await opened.wire(), on_unknown=complaints.append)
            answers = await asyncio.gather(*(reader.topics(["t"]) for _again in range(3)))
        asked = len(cluster.brokers[0].requests(DescribeConfigsRequest))
        if hears_it:
            assert ([entry.configs for (entry,) in answers], complaints) == ([{"retention.ms": "7"}] * 3, [])
        else:
            assert ([entry.configs for (entry,) in answers], asked) == ([None] * 3, 1)
            assert set(complaints) == {"settings of 1 topic are not known: no answer within 0.1 s"}

    play(scene, None)


async def zookeeper_returned(zookeeper: EmbeddedZooKeeper, monkeypatch: pytest.MonkeyPatch) -> None:
    """Bring ZooKeeper back, and let the time pass after which klamm tries it again."""
    await asyncio.to_thread(zookeeper.restart)
    monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + ZOOKEEPER_REST_S)


def test_who_goes_on_asks_for_settings_once_zookeeper_is_back(monkeypatch: pytest.MonkeyPatch) -> None:
    """``--watch`` and ``lag --serve`` do so."""
    complaints: list[str] = []

    async def scene(cluster: ScriptedCluster, _: WireTopicReader) -> None:
        broker, silence = cluster.brokers[0], SettingsSilence()
        broker.answers[ApiKey.DESCRIBE_CONFIGS] = answering([ErrorCode.NONE])
        with EmbeddedZooKeeper(host=own_loopback_address(), fsync=False) as zookeeper:
            zookeeper.kill()
            await find_zookeeper_away(cluster, zookeeper.connect_string, silence)
            async with Cluster(brokers_of(cluster), settings=silence) as opened:
                reader = WireTopicReader(await opened.wire(), on_unknown=complaints.append)
                for _look in range(2):
                    assert (await reader.topics(["t"]))[0].configs is None
                monkeypatch.setattr(time, "monotonic", lambda now=time.monotonic: now() + ZOOKEEPER_REST_S)
                assert (await reader.topics(["t"]))[0].configs is None, "it was tried, and is still dead"
                assert not broker.requests(DescribeConfigsRequest)
                await zookeeper_returned(zookeeper, monkeypatch)
                assert (await reader.topics(["t"]))[0].configs == {"retention.ms": "7"}

    play(scene, None)
    assert set(complaints) == {f"settings of 1 topic are not known: {DEAD_ZOOKEEPER}"}


@staged(play, None)
async def test_health_that_is_waited_for_sees_that_zookeeper_is_back(
    cluster: ScriptedCluster, _: WireTopicReader, /, monkeypatch: pytest.MonkeyPatch
) -> None:
    silence = SettingsSilence()
    with EmbeddedZooKeeper(host=own_loopback_address(), fsync=False) as zookeeper:
        zookeeper.kill()
        away = await find_zookeeper_away(cluster, zookeeper.connect_string, silence)
        async with Cluster(brokers_of(cluster), settings=silence) as opened:
            assert await opened.zookeeper_trouble() == f"{away}: {zookeeper.connect_string}"
            await zookeeper_returned(zookeeper, monkeypatch)
            assert await opened.zookeeper_trouble() is None


def brokers_of(cluster: ScriptedCluster, zookeeper: str | None = None) -> ClusterTarget:
    return ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(cluster.bootstrap), zookeeper=zookeeper)


async def find_zookeeper_away(
    cluster: ScriptedCluster, zookeeper: str, silence: SettingsSilence
) -> ZooKeeperUnreachable:
    """Do what a command does first: ask ZooKeeper, and get no answer."""
    async with Cluster(brokers_of(cluster, zookeeper), settings=silence, timeout_s=1.0) as opened:
        with pytest.raises(ZooKeeperUnreachable) as caught:
            await opened.zookeeper()
    return caught.value


@in_event_loop
async def test_a_broker_that_stands_still_hides_no_settings_of_others() -> None:
    async with asyncio.timeout(60), scripted_cluster(2) as cluster:
        cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = answering([ErrorCode.NONE])
        cluster.brokers[1].answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: SILENCE
        wire = WireCluster(cluster.bootstrap, properties=ClientProperties(), request_timeout_s=1.0)
        try:
            configs = await WireConfigReader(wire).describe_all(EntityType.BROKER, include_all=True)
        finally:
            await wire.close()
        # The last are the defaults of all brokers, which any broker reports.
        assert [(entry.entity_name, len(entry.configs), entry.error) for entry in configs] == [
            ("0", 1, None), ("1", 0, "no answer within 0.4 s"), (None, 1, None),
        ]  # fmt: skip


def test_one_topic_with_damaged_settings_does_not_hide_the_others() -> None:
    complaints: list[str] = []

    async def scene(cluster: ScriptedCluster, reader: WireTopicReader) -> None:
        codes = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE)
        cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = answering(codes)
        described = await describe_topics(reader, select_topics(["t", "u"]), DescribeOptions())
        assert [t.configs for t in described] == [None, {"retention.ms": "7"}]
        assert complaints == ["settings of topic t are not known: damaged"]

    play(scene, complaints)


@pytest.mark.parametrize("complaints", [[], None], ids=["tolerant", "strict"])
def test_a_topic_that_vanishes_meanwhile_has_no_settings_and_is_no_alarm(complaints: list[str] | None) -> None:
    async def scene(cluster: ScriptedCluster, reader: WireTopicReader) -> None:
        codes = (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, ErrorCode.NONE)
        cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = answering(codes)
        topics = tuple(await reader.topics(["t", "u"]))
        assert [topic.configs for topic in topics] == [{}, {"retention.ms": "7"}]
        cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = answering([ErrorCode.UNKNOWN_TOPIC_OR_PARTITION] * 2)
        under = DescribeOptions((PartitionFilter.UNDER_MIN_ISR,))
        assert await describe_topics(reader, select_topics(["t", "u"]), under) == []
        snapshot = ClusterSnapshot((BrokerInfo(0, ()),), topics, SnapshotSource.WIRE, 0, None, 0)
        assert assess(HealthFacts(snapshot)).reasons == ()

    play(scene, complaints)
    assert not complaints


@staged(play, None)
async def test_who_wants_to_change_something_gets_the_error(
    cluster: ScriptedCluster, reader: WireTopicReader, /
) -> None:
    codes = (ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.NONE)
    cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = answering(codes)
    with pytest.raises(Refused, match="damaged"):
        await reader.topics(["t", "u"])


@staged(play, [])
async def test_a_snapshot_keeps_what_is_unknown(cluster: ScriptedCluster, reader: WireTopicReader, /) -> None:
    cluster.brokers[0].answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: SILENCE
    topics = tuple(await reader.topics(["t", "u"]))
    taken = ClusterSnapshot((BrokerInfo(0, ()),), topics, SnapshotSource.WIRE, 0, None, 0)
    snapshot = snapshot_from_json(snapshot_to_json(taken))
    assert [topic.configs for topic in snapshot.topics] == [None, None]
    assert await SnapshotTopicReader(snapshot).min_isr(snapshot.topics) == {}
    with pytest.raises(Unreachable, match="the settings of topic t are not known"):
        await SnapshotConfigReader(snapshot).describe(Entity(EntityType.TOPIC, "t"), include_all=False)
    (reason,) = assess(HealthFacts(snapshot)).reasons
    assert (reason.check, reason.examples) == (Check.UNKNOWN_SETTINGS, ("topic t", "topic u"))
    known = replace(snapshot, topics=tuple(replace(topic, configs={}) for topic in snapshot.topics))
    assert assess(HealthFacts(known)).reasons == ()
