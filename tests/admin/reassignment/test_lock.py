"""The plan lock where its place never answers, or moves while the lock is held."""

from __future__ import annotations

import asyncio
from unittest.mock import Mock

import pytest
from ended_sessions import close_session
from event_loop import in_event_loop
from patience import slowness
from scripted_brokers import scripted_cluster
from scripted_lock import ScriptedLock

from cli.framework.remedies import spelled
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.reassignment import lock
from engine.admin.reassignment.lock import operator_lock
from engine.admin.reassignment.lock_by_group import GroupLock
from engine.admin.reassignment.lock_by_znode import PATH, ZnodeLock
from engine.admin.reassignment.lock_holder import Holder, LockHeld
from engine.common.errors import ErrorCode
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.zk.client import ZkClient
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper


def test_a_place_that_never_answers_is_told_with_where_to_look(monkeypatch: pytest.MonkeyPatch) -> None:
    """As a group without a coordinator: fewer brokers live than its topic needs replicas."""

    class Silent(Mock):
        async def take(self) -> None:
            await asyncio.Event().wait()

        async def give_back(self) -> None:
            pass

    def places(*_: object) -> list[tuple[Silent, bool]]:
        return [(Silent(), False)]

    monkeypatch.setattr(lock, "lock_places", places)

    async def scene() -> None:
        target = ClusterTarget("x", Origin.OPTIONS, None, (("b", 1),))
        async with Cluster(target, timeout_s=0.01) as cluster, operator_lock(cluster, Holder.myself("apply plan.json")):
            pass

    with pytest.raises(Unreachable, match="cannot find out whether the plan lock is free") as caught:
        asyncio.run(scene())
    assert spelled(caught.value.hint or "").endswith("see who is alive: klamm brokers list")


@in_event_loop
async def test_the_lock_is_given_back_where_the_plan_has_moved_it_to() -> None:
    """A plan may move the groups' topic. A lock that only the old coordinator is told of outlives its holder."""
    moved = [ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS]
    async with asyncio.timeout(30), scripted_cluster(1) as scripted:
        group = ScriptedLock(scripted)
        target = ClusterTarget("x", Origin.OPTIONS, bootstrap=tuple(scripted.bootstrap))
        async with Cluster(target, timeout_s=5.0) as cluster:
            held = GroupLock(cluster, Holder.myself("apply plan.json"), 10.0)
            await held.take()
            assert len(group.members) == 1
            group.refuses_leaves, looked = moved, len(scripted.brokers[0].requests(FindCoordinatorRequest))
            await held.give_back()
        assert (group.members, group.refuses_leaves) == ({}, [])
        assert len(scripted.brokers[0].requests(FindCoordinatorRequest)) == looked + 3, "it looks where it is now"


@in_event_loop
async def test_a_znode_of_an_earlier_session_is_no_other_operators() -> None:
    """A ZooKeeper that was down begins the time-outs of all sessions anew; by then, klamm has given its own up.

    Here sessions outlast the test, however busy the machine is. The test itself ends the earlier one.
    """
    lasting = {"minSessionTimeout": "120000"}
    with EmbeddedZooKeeper(host=own_loopback_address(), fsync=False, settings=lasting) as server:
        target = ClusterTarget("x", Origin.OPTIONS, zookeeper=server.connect_string)
        async with asyncio.timeout(60 * slowness()), Cluster(target, timeout_s=3.0 * slowness()) as cluster:
            mine, other = (
                ZnodeLock(cluster, Holder.myself(purpose), 2.0) for purpose in ("apply a.json", "apply b.json")
            )
            await mine.take()
            server.kill()
            while await mine.is_mine():
                pass
            server.start()
            async with await ZkClient.connect(server.connect_string) as zk:
                earlier = await zk.exists(PATH)
            assert earlier is not None, "the earlier session has not ended"
            with pytest.raises(LockHeld):
                await other.take()
            while not await can_ask(mine):
                await asyncio.sleep(0.02)
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.5):
                    await mine.take()
            close_session(server.connect_string, earlier.ephemeral_owner)
            await mine.take()
            assert await mine.is_mine()
            with pytest.raises(LockHeld):
                await other.take()
            await asyncio.gather(mine.give_back(), other.give_back())


async def can_ask(place: ZnodeLock) -> bool:
    try:
        await place.holder()
    except Unreachable:
        return False
    return True
