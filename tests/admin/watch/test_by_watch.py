"""A report by ZooKeeper's watches makes a frame at once, without a tick or a request.

The feed's tick is an hour here, so a frame within the deadline of a test can only come from a watch.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from typing import Any
from unittest.mock import AsyncMock, Mock

import pytest
from event_loop import in_event_loop
from znode_writer import Write, znode_writer

from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.cluster.zookeeper import open_zookeeper
from engine.admin.health.report import Check
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.live_feed import LiveFeed, first_frame_with
from engine.common.snapshot import ClusterSnapshot
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.session_keeper import SessionEvent
from engine.local.addresses import own_loopback_address

HOUR_S = 3600.0
DEADLINE_S = 60.0
REGISTRATION = {"version": 4, "host": "h", "port": 9092, "jmx_port": -1, "timestamp": "1", "endpoints": ["PLAINTEXT://h:9092"],
                "listener_security_protocol_map": {"PLAINTEXT": "PLAINTEXT"}}  # fmt: skip


def _json(document: object) -> bytes:
    return json.dumps(document).encode()


def _topic(**more: object) -> bytes:
    return _json({"version": 2, "partitions": {"0": [1]}, "adding_replicas": {}, "removing_replicas": {}, **more})


def _has_moves(cluster: ClusterSnapshot) -> bool:
    return any(partition.assignment.is_being_reassigned for topic in cluster.topics for partition in topic.partitions)


CHANGES: dict[str, tuple[dict[str, bytes], Callable[[Frame, ClusterSnapshot], bool]]] = {
    "a broker comes": ({"/brokers/ids/7": _json(REGISTRATION)}, lambda _, cluster: cluster.live_broker_ids == {7}),
    "a controller": (
        {"/controller": _json({"version": 1, "brokerid": 7, "timestamp": "1"})},
        lambda _, cluster: cluster.controller_id == 7,
    ),
    "a topic is made": ({"/brokers/topics/new": _topic()}, lambda _, cluster: cluster.topic("new") is not None),
    "a topic goes": ({"/brokers/topics/old": b""}, lambda _, cluster: cluster.topic("old") is None),
    "a partition moves": (
        {"/brokers/topics/old": _topic(partitions={"0": [1, 2]}, adding_replicas={"0": [2]})},
        lambda _, cluster: _has_moves(cluster),
    ),
    "a move is asked for": (
        {
            "/admin/reassign_partitions": _json(
                {"version": 1, "partitions": [{"topic": "old", "partition": 0, "replicas": [2]}]}
            )
        },
        lambda frame, _: frame.listed_reassignments == ("old-0",),
    ),
}


@pytest.mark.parametrize("change", CHANGES)
@in_event_loop
async def test_a_change_in_zookeeper_makes_a_frame_without_a_tick(
    change: str, zk_chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.admin.watch.feed.INTERVAL_MAX_S", HOUR_S)
    znodes, is_seen = CHANGES[change]
    target = ClusterTarget("watched", Origin.OPTIONS, zookeeper=zk_chroot, via=Side.ZOOKEEPER)
    with znode_writer(zk_chroot) as write:
        _write_cluster(write)
        feed = LiveFeed(target, interval_s=HOUR_S)
        assert feed.status.interval_s == HOUR_S
        await feed.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                async for frame in feed.frames():
                    if _is_read(frame):
                        break
                assert frame.cluster is not None and not is_seen(frame, frame.cluster)
                await asyncio.to_thread(write, znodes, False)
                async for frame in feed.frames():
                    if frame.cluster is not None and is_seen(frame, frame.cluster):
                        break
        finally:
            await feed.close()


def _write_cluster(write: Write) -> None:
    """Write what a cluster without brokers stores."""
    write({"/brokers/ids/none": b"{}", "/brokers/topics/old": _topic()}, False)
    write({"/brokers/ids/none": b""}, False)


def _is_read(frame: Frame) -> bool:
    return frame.cluster is not None and frame.cluster.topic("old") is not None


@in_event_loop
async def test_a_topic_that_goes_before_the_next_client_opens_is_gone(
    zk_chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a refused login a new client follows. It forgot the old topics, and showed a deleted one for ever."""
    clients: list[ZkClient] = []
    may_open = asyncio.Event()

    async def open_when_allowed(*args: Any, **options: Any) -> ZkClient:
        await may_open.wait()
        clients.append(await open_zookeeper(*args, **options))
        return clients[-1]

    monkeypatch.setattr("engine.admin.watch.by_znode.open_zookeeper", open_when_allowed)
    target = ClusterTarget("watched", Origin.OPTIONS, zookeeper=zk_chroot, via=Side.ZOOKEEPER)
    with znode_writer(zk_chroot) as write:
        _write_cluster(write)
        write({"/brokers/topics/stays": _topic()}, False)
        feed = LiveFeed(target, interval_s=0.2)
        await feed.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                may_open.set()
                await _frame_with(feed, _has_topics("old", "stays"))
                may_open.clear()
                (first,) = clients
                for listener in first._keeper.listeners:
                    listener(SessionEvent.AUTH_FAILED)
                while not first._keeper.is_closed:
                    await asyncio.sleep(0.01)
                await asyncio.to_thread(write, {"/brokers/topics/old": b""}, False)
                may_open.set()
                await _frame_with(feed, _has_topics("stays"))
                await asyncio.to_thread(write, {"/brokers/topics/stays": b""}, False)
                await _frame_with(feed, _has_topics())
        finally:
            may_open.set()
            await feed.close()


def _has_topics(*names: str) -> Callable[[Frame], bool]:
    return lambda frame: frame.cluster is not None and {topic.name for topic in frame.cluster.topics} == set(names)


@in_event_loop
async def test_settings_that_cannot_be_read_are_a_finding_until_they_can_be(zk_chroot: str) -> None:
    """The dashboard said that nothing was wrong, and ``klamm cluster health`` was critical."""
    target = ClusterTarget("watched", Origin.OPTIONS, zookeeper=zk_chroot, via=Side.ZOOKEEPER)
    good = _json({"version": 1, "config": {"retention.ms": "1"}})
    with znode_writer(zk_chroot) as write:
        _write_cluster(write)
        more = ("/brokers/topics/more", "/config/topics/more")
        write({more[0]: _topic(), more[1]: b"garbage", "/config/topics/old": b"garbage"}, False)
        write({"/config/brokers/7": b"garbage", "/config/changes/config_change_0": b"{}"}, False)
        feed = LiveFeed(target, interval_s=0.2)
        await feed.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                frame = await _frame_with(feed, _found(Check.UNREADABLE_TOPICS, 2))
                assert _found(Check.UNKNOWN_SETTINGS, 2)(frame)
                assert [name.split()[5] for name in sorted(frame.stage(Stage.SETTINGS).missing)] == [
                    "/config/brokers/7:", "/config/topics/more:", "/config/topics/old:",
                ]  # fmt: skip
                await asyncio.to_thread(write, dict.fromkeys(more, b""), False)
                frame = await _frame_with(feed, _found(Check.UNREADABLE_TOPICS, 1))
                changes = [_json({"version": 2, "entity_path": path}) for path in ("topics/old", "brokers/7")]
                notices = {f"/config/changes/config_change_{n}": change for n, change in enumerate(changes, 1)}
                whole = {"/config/topics/old": good, "/config/brokers/7": good, **notices}
                await asyncio.to_thread(write, whole, False)
                frame = await _frame_with(feed, _found(Check.UNREADABLE_TOPICS, 0))
                await _frame_with(feed, lambda frame: not frame.stage(Stage.SETTINGS).missing)
        finally:
            await feed.close()


@in_event_loop
async def test_an_epoch_that_was_read_too_early_is_read_again(zk_chroot: str) -> None:
    """Nothing watches it: it was unknown until a broker came or went."""
    target = ClusterTarget("watched", Origin.OPTIONS, zookeeper=zk_chroot, via=Side.ZOOKEEPER)

    def members(controller_id: int) -> Callable[[Frame], bool]:
        return lambda frame: frame.cluster is not None and frame.cluster.controller_id == controller_id

    def controller(controller_id: int) -> dict[str, bytes]:
        return {"/controller": _json({"version": 1, "brokerid": controller_id, "timestamp": "1"})}

    with znode_writer(zk_chroot) as write:
        _write_cluster(write)
        write({"/controller_epoch": b"7", **controller(1)}, False)
        feed = LiveFeed(target, interval_s=0.2)
        await feed.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                await _frame_with(feed, members(1))
                await asyncio.to_thread(write, controller(2), False)
                frame = await _frame_with(feed, members(2))
                assert frame.cluster is not None and frame.cluster.controller_epoch is None
                await _frame_with(feed, lambda frame: frame.cluster is not None and frame.cluster.controller_epoch == 7)
        finally:
            await feed.close()


@in_event_loop
async def test_where_no_broker_is_registered_nothing_of_brokers_is_waited_for(zk_chroot: str) -> None:
    """``klamm exporter --once`` and ``klamm brokers restart-order`` had no answer when all brokers were down."""
    with znode_writer(zk_chroot) as write:
        _write_cluster(write)
    target = ClusterTarget("down", Origin.OPTIONS, zookeeper=zk_chroot)
    async with asyncio.timeout(DEADLINE_S):
        frame = await first_frame_with(target, tuple(Stage))
    assert _is_read(frame) and frame.cluster is not None and not frame.cluster.live_broker_ids
    assert frame.stage(Stage.PROBES).read_at_ms is None


@in_event_loop
async def test_brokers_that_all_refuse_are_not_waited_for(zk_chroot: str) -> None:
    """The same commands waited for the whole time-out where brokers were registered, but none answered."""
    host = own_loopback_address()
    registered = {**REGISTRATION, "host": host, "endpoints": [f"PLAINTEXT://{host}:21812"]}
    with znode_writer(zk_chroot) as write:
        _write_cluster(write)
        write({"/brokers/ids/7": _json(registered)}, False)
        target = ClusterTarget("refusing", Origin.OPTIONS, zookeeper=zk_chroot)
        async with asyncio.timeout(DEADLINE_S):
            frame = await first_frame_with(target, tuple(Stage))
    assert frame.cluster is not None and frame.cluster.live_broker_ids == {7}
    for stage in (Stage.OFFSETS, Stage.LOG_DIRS, Stage.GROUPS, Stage.PROBES):
        assert f"{host}:21812" in (frame.stage(stage).error or "")


@in_event_loop
async def test_a_server_of_zookeeper_that_is_down_is_a_finding_until_it_is_back(
    zk_chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("engine.admin.watch.by_znode.SERVERS_EVERY_S", 0.1)
    address, _, chroot = zk_chroot.partition("/")
    host = own_loopback_address()
    target = ClusterTarget("watched", Origin.OPTIONS, zookeeper=f"{address},{host}:21811/{chroot}", via=Side.ZOOKEEPER)

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readexactly(4)
        writer.write(b"Zookeeper version: 3.9")
        writer.close()

    with znode_writer(zk_chroot) as write:
        _write_cluster(write)
        feed = LiveFeed(target, interval_s=0.2)
        await feed.start()
        try:
            async with asyncio.timeout(DEADLINE_S):
                frame = await _frame_with(feed, _found(Check.ZOOKEEPER_SERVERS_DOWN, 1))
                assert frame.zookeepers_down == (f"{host}:21811 refuses connections; 1 of 2 servers serve",)
                async with await asyncio.start_server(serve, host, 21811):
                    await _frame_with(feed, lambda frame: not frame.zookeepers_down)
                looks = Mock(side_effect=[RuntimeError("a fault"), *[("once more",)] * 1_000])
                monkeypatch.setattr("engine.admin.watch.by_znode.servers_down", AsyncMock(side_effect=looks))
                await _frame_with(feed, lambda frame: frame.zookeepers_down == ("once more",))
        finally:
            await feed.close()


def _found(check: Check, count: int) -> Callable[[Frame], bool]:
    def is_so(frame: Frame) -> bool:
        reasons = () if frame.health is None else frame.health.reasons
        return bool(reasons) and next((reason.count for reason in reasons if reason.check is check), 0) == count

    return is_so


async def _frame_with(feed: LiveFeed, is_seen: Callable[[Frame], bool]) -> Frame:
    async for frame in feed.frames():
        if is_seen(frame):
            return frame
    raise AssertionError("the feed has ended")
