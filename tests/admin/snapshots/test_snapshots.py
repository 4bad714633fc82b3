"""A cluster as a value: to JSON and back, and read from recorded znodes."""

from __future__ import annotations

import asyncio
import errno
import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from virtual_time import ManualClock
from znode_trees import load_tree

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.snapshot_file import load_snapshot, save_snapshot
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.snapshots.taking import read_snapshot
from engine.common.model import (
    BrokerInfo,
    Endpoint,
    LeaderRecoveryState,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from engine.common.snapshot import (
    ClusterSnapshot,
    FailedLogDir,
    PartitionSnapshot,
    ReplicaLog,
    SnapshotSource,
    TopicSnapshot,
)
from engine.common.snapshot_json import snapshot_from_json, snapshot_to_json
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.operations import Acl

ids = st.integers(0, 9)
lists = st.lists(ids, max_size=3, unique=True).map(tuple)
maybe = st.integers(0, 99) | st.none()
texts = st.text(st.characters(codec="utf-8", exclude_categories=["Cs"]), max_size=6)
settings = st.dictionaries(texts, texts, max_size=2)
partitions = st.builds(
    PartitionSnapshot,
    partition=ids,
    assignment=st.builds(ReplicaAssignment, lists, lists, lists),
    leader=st.integers(-1, 9),
    isr=lists,
    leader_epoch=maybe,
    controller_epoch=maybe,
    zk_version=maybe,
    leader_recovery_state=st.sampled_from(LeaderRecoveryState),
    replica_logs=st.lists(st.builds(ReplicaLog, ids, texts, ids, ids, st.booleans()), max_size=2).map(tuple),
)
topics = st.builds(
    TopicSnapshot,
    name=texts,
    partitions=st.lists(partitions, max_size=3).map(tuple),
    topic_id=st.binary(min_size=16, max_size=16) | st.none(),
    configs=settings,
    is_marked_for_deletion=st.booleans(),
)
brokers = st.builds(
    BrokerInfo,
    id=ids,
    endpoints=st.lists(st.builds(Endpoint, texts, ids, texts, st.sampled_from(SecurityProtocol)), max_size=2).map(
        tuple
    ),
    rack=texts | st.none(),
    broker_epoch=st.integers(-1, 99),
)
snapshots = st.builds(
    ClusterSnapshot,
    brokers=st.lists(brokers, max_size=3).map(tuple),
    topics=st.lists(topics, max_size=3).map(tuple),
    source=st.sampled_from(SnapshotSource),
    taken_at_ms=ids,
    cluster_id=texts | st.none(),
    controller_id=st.integers(-1, 9),
    controller_epoch=maybe,
    broker_configs=st.dictionaries(ids | st.none(), settings, max_size=2),
    failed_log_dirs=st.none() | st.lists(st.builds(FailedLogDir, ids, texts | st.none(), texts), max_size=2).map(tuple),
)


@given(snapshot=snapshots)
def test_json_and_back(snapshot: ClusterSnapshot) -> None:
    text = snapshot_to_json(snapshot)
    assert snapshot_from_json(text) == snapshot
    assert snapshot_to_json(snapshot_from_json(text)) == text


def test_unknown_keys_are_ignored_and_other_versions_refused() -> None:
    document = json.loads(snapshot_to_json(ClusterSnapshot((), (), SnapshotSource.WIRE, 0)))
    document["later"] = 1
    assert snapshot_from_json(json.dumps(document)).taken_at_ms == 0
    assert snapshot_from_json(json.dumps(document)).failed_log_dirs is None
    document["version"] = 99
    with pytest.raises(ValueError, match="version 99"):
        snapshot_from_json(json.dumps(document))


@pytest.mark.parametrize("text", ["", "[]", "{}", '{"version": 1, "topics": 3}', '{"version": 1, "topics": []}', "x"])
def test_a_file_that_is_no_snapshot_is_named(tmp_path: Path, text: str) -> None:
    path = tmp_path / "s.json"
    path.write_text(text)
    with pytest.raises(BadRequest) as bad:
        load_snapshot(path)
    assert bad.value.where == str(path)
    with pytest.raises(NotFound):
        load_snapshot(tmp_path / "absent")


def read(connect: str) -> ClusterSnapshot:
    async def reading() -> ClusterSnapshot:
        async with Cluster(ClusterTarget("test", Origin.OPTIONS, zookeeper=connect)) as cluster:
            return await read_snapshot(cluster, ManualClock(5))

    return asyncio.run(reading())


def test_a_link_or_a_pipe_is_written_to_and_not_replaced(tmp_path: Path) -> None:
    """As root, a file that takes the place of ``/dev/null`` breaks the machine, and ``/dev/stdout`` is a link."""
    snapshot = ClusterSnapshot((), (), SnapshotSource.WIRE, 0)
    (tmp_path / "kept.json").write_text("old")
    (tmp_path / "link.json").symlink_to(tmp_path / "kept.json")
    save_snapshot(snapshot, tmp_path / "link.json")
    assert (tmp_path / "link.json").is_symlink()
    assert load_snapshot(tmp_path / "kept.json") == snapshot
    with pytest.raises(BadRequest), pytest.MonkeyPatch.context() as full_disk:
        full_disk.setattr(Path, "replace", lambda *paths: (_ for _ in ()).throw(OSError(errno.ENOSPC, "full")))
        save_snapshot(ClusterSnapshot((), (), SnapshotSource.WIRE, 1), tmp_path / "link.json")
    assert load_snapshot(tmp_path / "kept.json") == snapshot, "what was there before outlives a failure"
    with pytest.raises(BadRequest, match="Not a directory") as bad:
        save_snapshot(snapshot, tmp_path / "kept.json" / "x")
    assert bad.value.where == str(tmp_path / "kept.json" / "x")
    os.mkfifo(tmp_path / "pipe")
    reader = os.open(tmp_path / "pipe", os.O_RDONLY | os.O_NONBLOCK)
    try:
        save_snapshot(snapshot, tmp_path / "pipe")
        assert snapshot_from_json(os.read(reader, 65536).decode()) == snapshot
    finally:
        os.close(reader)
    assert (tmp_path / "pipe").is_fifo()
    with pytest.raises(BadRequest, match="cannot be written"):
        save_snapshot(snapshot, tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == {"kept.json", "link.json", "pipe"}


def test_a_recorded_cluster_with_a_reassignment(recorded: Callable[[str], str], tmp_path: Path) -> None:
    snapshot = read(recorded("reassignment-under-way"))
    assert [(broker.id, broker.rack) for broker in snapshot.brokers] == [(0, "a"), (1, "b"), (2, "c")]
    assert (snapshot.controller_id, snapshot.controller_epoch, snapshot.taken_at_ms) == (0, 1, 5)
    assert [topic.name for topic in snapshot.topics] == ["manual", "move", "t1"]
    moving = snapshot.partition(TopicPartition("move", 0))
    assert moving is not None
    assert moving.assignment == ReplicaAssignment((1, 2, 0), (2,), (0,))
    assert (moving.leader, moving.isr, moving.leader_epoch, moving.zk_version) == (0, (0, 1), 1, 1)
    assert not moving.is_under_replicated, "the replica that is being added is not wanted yet (KIP-352)"
    assert snapshot.topics[1].configs["follower.replication.throttled.replicas"] == "0:2,1:0"
    assert snapshot.broker_configs[0]["leader.replication.throttled.rate"] == "100000"
    save_snapshot(snapshot, tmp_path / "s.json")
    assert load_snapshot(tmp_path / "s.json") == snapshot


def test_a_recorded_cluster_with_a_leaderless_partition(recorded: Callable[[str], str]) -> None:
    snapshot = read(recorded("leaderless"))
    assert snapshot.live_broker_ids == {0, 2}
    lost = snapshot.partition(TopicPartition("lag", 1))
    assert lost is not None
    assert (lost.leader, lost.isr, lost.osr, lost.preferred_leader) == (-1, (1,), (2,), 1)


def test_a_recorded_cluster_with_a_waiting_deletion(recorded: Callable[[str], str]) -> None:
    snapshot = read(recorded("deletion-waits"))
    assert [topic.name for topic in snapshot.topics if topic.is_marked_for_deletion] == ["lag"]


def test_the_rest_of_a_cluster_is_read_where_brokers_settings_are_a_secret(zk_chroot: str) -> None:
    """As ``zookeeper.set.acl=true`` makes them, and whoever has no login is told so."""
    complaints: list[str] = []

    async def check() -> ClusterSnapshot:
        await load_tree(zk_chroot, "reassignment-under-way")
        async with await ZkClient.connect(zk_chroot, session_timeout_ms=6_000) as zk:
            await zk.set_acl("/config/brokers", (Acl(2, "world", "anyone"),))
        target = ClusterTarget("test", Origin.OPTIONS, zookeeper=zk_chroot)
        async with Cluster(target, complain=complaints.append) as cluster:
            snapshot = await read_snapshot(cluster, ManualClock(5))
            complaints.extend(right.resource for right in cluster.hidden_znodes)
            return snapshot

    snapshot = asyncio.run(check())
    assert (len(snapshot.brokers), len(snapshot.topics), snapshot.broker_configs) == (3, 3, {})
    assert complaints == ["znode:/config/brokers"]
