"""Who reads and changes topics. A deletion over the wire checks ZooKeeper's marks where it may."""

from __future__ import annotations

from pathlib import Path

import pytest
from event_loop import in_event_loop
from scripted_brokers import scripted_cluster

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import NotFound, Refused, StillUnderWay
from engine.admin.cluster.snapshot_file import save_snapshot
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.topics.access import SnapshotTopicReader, topic_changer, topic_reader
from engine.admin.topics.by_wire import WireTopicChanger, WireTopicReader
from engine.admin.topics.by_znode import ZkTopicChanger, ZkTopicReader
from engine.admin.topics.changes import NewTopic, TopicAlteration, TopicOutcome
from engine.admin.topics.deletion import being_deleted
from engine.admin.topics.selection import topic_not_found
from engine.common.errors import ErrorCode
from engine.common.snapshot import ClusterSnapshot, SnapshotSource
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.create_partitions import CreatePartitionsResponse, CreatePartitionsTopicResult
from engine.kafka.protocol.apis.create_topics import CreatableTopicResult, CreateTopicsResponse
from engine.kafka.protocol.apis.delete_topics import DeletableTopicResult, DeleteTopicsResponse
from engine.kafka.zk.client import ZkClient

NOBODY = (("127.0.0.1", 1),)


async def make_mark(connect: str, topic: str) -> None:
    async with await ZkClient.connect(connect, session_timeout_ms=6_000) as zk:
        await zk.ensure_path(f"/admin/delete_topics/{topic}")


@pytest.mark.parametrize(
    ("has_zookeeper", "has_brokers", "via", "reader", "changer"),
    [
        (True, False, None, ZkTopicReader, ZkTopicChanger),
        (False, True, None, WireTopicReader, WireTopicChanger),
        (True, True, None, ZkTopicReader, WireTopicChanger),
        (True, True, Side.ZOOKEEPER, ZkTopicReader, ZkTopicChanger),
        (True, True, Side.WIRE, WireTopicReader, WireTopicChanger),
    ],
)
@in_event_loop
async def test_who_reads_and_who_changes(
    zk_chroot: str, has_zookeeper: bool, has_brokers: bool, via: Side | None, reader: type, changer: type
) -> None:
    await make_mark(zk_chroot, "t")
    zookeeper, bootstrap = zk_chroot if has_zookeeper else None, NOBODY if has_brokers else ()
    target = ClusterTarget("t", Origin.OPTIONS, zookeeper=zookeeper, bootstrap=bootstrap, via=via)
    async with Cluster(target, timeout_s=10) as cluster:
        assert type(await topic_reader(cluster)) is reader
        assert type(await topic_changer(cluster)) is changer


@in_event_loop
async def test_a_snapshot_is_read_from_its_file(tmp_path: Path) -> None:
    save_snapshot(ClusterSnapshot((), (), SnapshotSource.WIRE, 0), tmp_path / "s.json")
    async with Cluster(ClusterTarget("s", Origin.SNAPSHOT, snapshot=tmp_path / "s.json")) as cluster:
        assert type(await topic_reader(cluster)) is SnapshotTopicReader


@pytest.mark.parametrize(
    ("has_zookeeper", "via", "outcome"),
    [
        (True, None, TopicOutcome.MARKED_FOR_DELETION),
        (True, Side.WIRE, TopicOutcome.DELETED),
        (False, None, TopicOutcome.DELETED),
    ],
)
@in_event_loop
async def test_a_deletion_that_the_brokers_call_done_and_zookeeper_does_not(
    zk_chroot: str, has_zookeeper: bool, via: Side | None, outcome: TopicOutcome
) -> None:
    await make_mark(zk_chroot, "t")
    async with scripted_cluster(1) as brokers:
        done = DeleteTopicsResponse(responses=[DeletableTopicResult(name="t")])
        brokers.brokers[0].answers[ApiKey.DELETE_TOPICS] = lambda _: done
        target = ClusterTarget(
            "t",
            Origin.OPTIONS,
            zookeeper=zk_chroot if has_zookeeper else None,
            bootstrap=tuple(brokers.bootstrap),
            via=via,
        )
        async with Cluster(target, timeout_s=10) as cluster:
            changes, refusals = await (await topic_changer(cluster)).delete(["t"], waits=False)
    assert [(change.topic, change.result) for change in changes] == [("t", outcome)]
    assert refusals == []


@pytest.mark.parametrize("sees_marks", [True, False])
@in_event_loop
async def test_a_topic_that_waits_for_its_deletion_is_not_called_unknown(zk_chroot: str, sees_marks: bool) -> None:
    """Brokers forget it at once; the list of topics, by ZooKeeper, still has it, and its name is blocked."""
    await make_mark(zk_chroot, "t")
    blocked = CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_ALREADY_EXISTS)
    async with scripted_cluster(1) as brokers:
        brokers.brokers[0].answers[ApiKey.CREATE_TOPICS] = lambda _: CreateTopicsResponse(topics=[blocked])
        zookeeper = zk_chroot if sees_marks else None
        target = ClusterTarget("t", Origin.OPTIONS, zookeeper=zookeeper, bootstrap=tuple(brokers.bootstrap))
        async with Cluster(target, timeout_s=10) as cluster:
            changer = await topic_changer(cluster)
            with pytest.raises(StillUnderWay, match="'t' is marked for deletion already"):
                await changer.to_be_deleted(["t"], if_exists=False)
            with pytest.raises(StillUnderWay, match="'t' is marked for deletion already"):
                await changer.exists("t", if_exists=False)
            assert await changer.to_be_deleted(["t"], if_exists=True) == []
            for missing, told in (
                (["t"], "brokers do not know t any more: marked for deletion"),
                (["misspelt", "t"], "topics do not exist: misspelt, t; marked for deletion: t"),
            ):
                assert str(await being_deleted(cluster, topic_not_found(missing))) == told


@in_event_loop
async def test_a_topic_that_brokers_still_know_may_lack_the_partition_that_was_asked_for(zk_chroot: str) -> None:
    await make_mark(zk_chroot, "t")
    async with scripted_cluster(1) as brokers:
        brokers.leaders = {"t": [0]}
        target = ClusterTarget("t", Origin.OPTIONS, zookeeper=zk_chroot, bootstrap=tuple(brokers.bootstrap))
        async with Cluster(target, timeout_s=10) as cluster:
            error = NotFound("there is no partition t-7", topics=["t"])
            assert str(await being_deleted(cluster, error)) == "there is no partition t-7; marked for deletion: t"


@pytest.mark.parametrize(("racks", "which"), [({1: "r"}, "0 none"), ({}, None), ({0: "r", 1: "s"}, None)])
@in_event_loop
async def test_a_refusal_without_a_word_names_the_brokers_without_a_rack(
    racks: dict[int, str], which: str | None
) -> None:
    """Kafka answers like this, because it cannot spread replicas over racks if it knows only some."""
    refused = CreatableTopicResult(name="new", error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    grown = CreatePartitionsTopicResult(name="t", error_code=ErrorCode.UNKNOWN_SERVER_ERROR)
    async with scripted_cluster(2) as brokers:
        brokers.racks, brokers.leaders = racks, {"t": [0]}
        for broker in brokers.brokers:
            broker.answers[ApiKey.CREATE_TOPICS] = lambda _: CreateTopicsResponse(topics=[refused])
            broker.answers[ApiKey.CREATE_PARTITIONS] = lambda _: CreatePartitionsResponse(results=[grown])
        async with Cluster(ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))) as cluster:
            changer = await topic_changer(cluster)
            with pytest.raises(Refused) as creation:
                await changer.create(NewTopic("new", 1, 1))
            with pytest.raises(Refused) as growth:
                await changer.alter(TopicAlteration("t", partition_count=2))
            with pytest.raises(Refused) as placed:
                await changer.create(NewTopic("new", assignment=((0,),)))
            for broker in brokers.brokers:
                broker.answers[ApiKey.DESCRIBE_QUORUM] = broker.answers[ApiKey.METADATA]
        async with Cluster(ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))) as kraft:
            with pytest.raises(Refused) as of_kraft:
                await (await topic_changer(kraft)).create(NewTopic("new", 1, 1))
    for refusal in (creation.value, growth.value):
        assert (which is None) == (refusal.hint is None), refusal.hint
        assert which is None or f"other brokers have racks and {which}" in str(refusal.hint)
    assert which is None or "replica assignment" in str(creation.value.hint)
    assert "replica assignment" not in str(growth.value.hint), "it is refused even with an assignment"
    assert placed.value.hint is None, "nobody had to place replicas"
    assert of_kraft.value.hint is None, "its controller places replicas all the same"


@in_event_loop
async def test_a_topic_is_not_called_hidden_from_who_may_not_create_it() -> None:
    """To create it is how klamm finds out whether an old one still blocks its name."""
    denied = CreatableTopicResult(name="t", error_code=ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    async with scripted_cluster(1) as brokers:
        brokers.brokers[0].answers[ApiKey.CREATE_TOPICS] = lambda _: CreateTopicsResponse(topics=[denied])
        target = ClusterTarget("t", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
        with pytest.raises(NotFound, match="topic 't' does not exist"):
            async with Cluster(target, timeout_s=10) as cluster:
                await (await topic_changer(cluster)).exists("t", if_exists=False)
