"""An address that is out of date: brokers of one cluster beside the ZooKeeper of another. Nothing goes by both."""

from __future__ import annotations

import asyncio
import socket
from dataclasses import replace

import pytest
from event_loop import in_event_loop
from scripted_brokers import ScriptedCluster, scripted_cluster

from engine.admin.brokers.doctor import walk
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import FailureKind, MixedClusters, ZooKeeperUnreachable
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.health.reading import read_health_facts
from engine.admin.topics.access import topic_changer
from engine.admin.watch.frame import LinkState
from engine.admin.watch.live_feed import LiveFeed
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.delete_topics import DeletableTopicResult, DeleteTopicsRequest, DeleteTopicsResponse
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.local.addresses import own_loopback_address

SAME, OTHER = "scripted", "another"


async def named(connect: str, brokers: ScriptedCluster, id_in_zookeeper: str | None) -> ClusterTarget:
    async with await ZkClient.connect(connect, session_timeout_ms=6_000) as zk:
        await zk.ensure_path("/brokers/topics")
        if id_in_zookeeper is not None:
            await zk.ensure_path("/cluster")
            await KafkaZkClient(zk).cluster.get_or_create_cluster_id(id_in_zookeeper)
    brokers.leaders = {"t": [0]}
    done = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])
    brokers.brokers[0].answers[ApiKey.DELETE_TOPICS] = lambda _: done
    return ClusterTarget("t", Origin.OPTIONS, zookeeper=connect, bootstrap=tuple(brokers.bootstrap))


async def delete(target: ClusterTarget) -> None:
    async with Cluster(target, timeout_s=10) as cluster:
        await (await topic_changer(cluster)).delete(["t"], waits=False)


@in_event_loop
async def test_no_change_is_sent_to_brokers_of_another_cluster(zk_chroot: str) -> None:
    async with scripted_cluster(1) as brokers:
        target = await named(zk_chroot, brokers, OTHER)
        with pytest.raises(MixedClusters) as refused:
            await delete(target)
        assert str(refused.value) == "the brokers are of cluster scripted, but ZooKeeper has cluster another"
        assert not brokers.brokers[0].requests(DeleteTopicsRequest)
        await delete(replace(target, via=Side.WIRE))
        assert brokers.brokers[0].requests(DeleteTopicsRequest), "who asks brokers only mixes nothing"


@pytest.mark.parametrize("id_in_zookeeper", [SAME, None])
@in_event_loop
async def test_the_same_id_or_none_is_no_obstacle(zk_chroot: str, id_in_zookeeper: str | None) -> None:
    async with scripted_cluster(1) as brokers:
        await delete(await named(zk_chroot, brokers, id_in_zookeeper))
        assert brokers.brokers[0].requests(DeleteTopicsRequest)


@in_event_loop
async def test_a_zookeeper_that_does_not_answer_is_no_obstacle(zk_chroot: str) -> None:
    async with scripted_cluster(1) as brokers:
        target = await named(zk_chroot, brokers, OTHER)
        # It looks there again afterwards whether the topic is gone.
        with socket.create_server((own_loopback_address(), 0)) as frozen, pytest.raises(ZooKeeperUnreachable):
            await delete(replace(target, zookeeper="{}:{}".format(*frozen.getsockname())))
        assert brokers.brokers[0].requests(DeleteTopicsRequest)


@pytest.mark.parametrize("is_wire_first", [True, False])
@in_event_loop
async def test_what_was_read_from_both_is_refused_whichever_was_first(zk_chroot: str, is_wire_first: bool) -> None:
    async with (
        scripted_cluster(1) as brokers,
        Cluster(await named(zk_chroot, brokers, OTHER), timeout_s=10) as cluster,
    ):
        wire = await cluster.wire()
        if is_wire_first:
            await wire.metadata([])
        else:
            await cluster.zookeeper()
        with pytest.raises(MixedClusters):
            await (cluster.zookeeper() if is_wire_first else wire.metadata([]))


@in_event_loop
async def test_the_dashboard_shows_what_zookeeper_has_and_why_it_asks_no_broker(zk_chroot: str) -> None:
    async with asyncio.timeout(60), scripted_cluster(1) as brokers:
        feed = LiveFeed(await named(zk_chroot, brokers, OTHER))
        await feed.start()
        try:
            async for frame in feed.frames():
                link = frame.link(Side.WIRE)
                if link.state is LinkState.LOST and frame.cluster is not None:
                    break
        finally:
            await feed.close()
    assert link.cause == "the brokers are of cluster scripted, but ZooKeeper has cluster another"
    assert frame.cluster.cluster_id == OTHER


@in_event_loop
async def test_the_doctor_has_a_step_for_it(zk_chroot: str) -> None:
    async with (
        scripted_cluster(1) as brokers,
        Cluster(await named(zk_chroot, brokers, OTHER), timeout_s=10) as cluster,
    ):
        steps = [step async for step in walk(cluster)]
    assert (steps[-1].name, steps[-1].failure) == ("same cluster", FailureKind.USAGE)
    assert (steps[-2].name, steps[-2].failure) == ("API versions", None), steps


@in_event_loop
async def test_no_health_is_shown_of_one_cluster_beside_brokers_of_another(zk_chroot: str) -> None:
    async with (
        scripted_cluster(1) as brokers,
        Cluster(await named(zk_chroot, brokers, OTHER), timeout_s=10) as cluster,
    ):
        with pytest.raises(MixedClusters):
            await read_health_facts(cluster)
