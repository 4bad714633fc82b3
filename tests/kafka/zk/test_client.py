"""Znodes through the asynchronous client, against a real ZooKeeper."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
import uvloop
from event_loop import in_event_loop
from kazoo.client import KazooClient

from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import (
    AuthFailed,
    BadVersion,
    ConnectTimedOut,
    MultiFailed,
    NodeExists,
    NoNode,
    NotEmpty,
    SessionLost,
    ZooKeeperError,
)
from engine.kafka.zk.operations import Acl, Check, Create, Delete, SetData
from engine.kafka.zk.security import ZkSecurity
from engine.kafka.zk.session_keeper import SessionEvent


@in_event_loop
async def test_znodes_are_made_read_written_and_removed(connect) -> None:
    async with connect() as client:
        assert await client.create("/a", b"one") == "/a"
        data, stat = await client.get("/a")
        assert (data, stat.version, stat.ephemeral_owner) == (b"one", 0, 0)
        assert (await client.set("/a", b"two", 0)).version == 1
        assert await client.create("/a/b") == "/a/b"
        assert await client.children("/a") == ["b"]
        assert (await client.children_and_stat("/a"))[1].num_children == 1
        with pytest.raises(NotEmpty):
            await client.delete("/a")
        await client.delete("/a/b", 0)
        await client.delete("/a", 1)
        assert await client.exists("/a") is None


@in_event_loop
async def test_refusals_are_named(connect) -> None:
    async with connect() as client:
        await client.create("/a", b"")
        with pytest.raises(NodeExists, match="/a"):
            await client.create("/a", b"")
        with pytest.raises(NoNode, match="/b/c"):
            await client.create("/b/c", b"")
        with pytest.raises(BadVersion):
            await client.set("/a", b"", 5)
        with pytest.raises(BadVersion):
            await client.delete("/a", 5)
        for missing in (client.get("/b"), client.set("/b", b""), client.delete("/b"), client.children("/b")):
            with pytest.raises(NoNode):
                await missing


@in_event_loop
async def test_version_zero_is_checked_and_not_taken_for_any(connect) -> None:
    async with connect() as client:
        await client.create("/a", b"")
        await client.set("/a", b"", 0)
        with pytest.raises(BadVersion):
            await client.set("/a", b"", 0)
        await client.set("/a", b"", -1)


@in_event_loop
async def test_ephemeral_and_sequential_znodes(connect) -> None:
    async with connect() as other:
        async with connect() as client:
            await client.create("/e", b"", ephemeral=True)
            stat = await client.exists("/e")
            assert stat is not None and stat.ephemeral_owner == client.session_id != 0
            paths = [await client.create("/s-", sequential=True) for _ in range(2)]
            assert paths == ["/s-0000000001", "/s-0000000002"]
        assert await other.exists("/e") is None
        assert sorted(await other.children("/")) == ["s-0000000001", "s-0000000002"]


def test_null_and_empty_data_are_written_as_they_are(connect, zk_chroot: str) -> None:
    async def run() -> None:
        async with connect() as client:
            await client.create("/null", None)
            await client.create("/empty", b"")
            await client.multi([Create("/null-too", None)])
            assert (await client.get("/null"))[0] == b""

    asyncio.run(run())
    witness = KazooClient(zk_chroot)
    witness.start()
    assert [witness.get(path)[0] for path in ("/null", "/null-too", "/empty")] == [None, None, b""]
    witness.stop()
    witness.close()


@in_event_loop
async def test_multi_is_all_or_nothing_and_names_the_reason(connect) -> None:
    async with connect() as client:
        await client.create("/guard", b"")
        results = await client.multi(
            [Check("/guard", 0), Create("/a", b"x"), SetData("/a", b"y", 0), Create("/b"), Delete("/b")]
        )
        assert results[1] == "/a"
        assert results[2].version == 1
        with pytest.raises(MultiFailed) as caught:
            await client.multi([Create("/c"), Check("/guard", 7), Create("/d")])
        assert caught.value.index == 1
        assert isinstance(caught.value.error, BadVersion)
        assert await client.exists("/c") is None
        with pytest.raises(MultiFailed) as caught:
            await client.multi([Check("/guard", 0), Create("/a")])
        assert (caught.value.index, type(caught.value.error)) == (1, NodeExists)


@in_event_loop
async def test_many_multis_succeed_and_fail_each_for_itself(connect) -> None:
    async with connect() as client:
        await client.create("/guard", b"")
        await client.create("/n0007", b"")
        wanted = [[Check("/guard", 0), Create(f"/n{i:04}", b"v")] for i in range(2_500)]
        outcomes = await client.multi_many(wanted)
        failed = [index for index, outcome in enumerate(outcomes) if isinstance(outcome, ZooKeeperError)]
        assert failed == [7]
        answers = await client.get_many([f"/n{i:04}" for i in range(2_501)])
        assert isinstance(answers[2_500], NoNode)
        assert [answer[0] for answer in answers[:2_500]] == [b"" if i == 7 else b"v" for i in range(2_500)]
        assert [stat is None for stat in await client.exists_many(["/n0000", "/nope"])] == [False, True]
        lists = await client.children_many(["/", "/nope"])
        assert len(lists[0]) == 2_501
        assert isinstance(lists[1], NoNode)
        assert await client.get_many([]) == []


@in_event_loop
async def test_failures_of_the_caller_in_a_pipeline_are_the_callers(connect) -> None:
    def operations(count: int):
        for number in range(count):
            yield Create(f"/made-{number}", b"")
        raise LookupError("on purpose")

    async with connect() as client:
        for count in (0, 50, 150, 2_500):
            with pytest.raises(LookupError):
                await client.write_many(operations(count))
        with pytest.raises(ZeroDivisionError):
            await client.read_many(["/"] * 2_500, lambda position, _: 1 // (2_000 - position))
        assert await client.read_many(["/", "/nope"], lambda position, outcome: (position, type(outcome))) == [
            (0, tuple),
            (1, NoNode),
        ]


@in_event_loop
async def test_large_and_odd_data_come_back(connect) -> None:
    async with connect() as client:
        big = bytes(range(256)) * 3_900
        await client.create("/big", big)
        await client.create("/ümläut ☃", "☃".encode())
        assert (await client.get("/big"))[0] == big
        assert (await client.get("/ümläut ☃"))[0] == "☃".encode()


@in_event_loop
async def test_paths_are_made_and_trees_removed(connect) -> None:
    async with connect() as client:
        await client.ensure_path("/x/y/z")
        await client.ensure_path("/x/y/z")
        await client.create("/x/y/w", b"")
        await client.delete_tree("/x")
        assert await client.children("/") == []
        await client.delete_tree("/x")


@in_event_loop
async def test_acl_can_be_read_written_and_given(connect) -> None:
    async with connect() as client:
        world_may_read = (Acl(1, "world", "anyone"),)
        await client.create("/a", b"", acl=world_may_read)
        assert (await client.get_acl("/a"))[0] == world_may_read
        await client.create("/b", b"")
        assert (await client.set_acl("/b", world_may_read, 0)).aversion == 1
        with pytest.raises(ZooKeeperError, match="ACL does not allow"):
            await client.set("/b", b"x")


@in_event_loop
async def test_digest_credentials_open_what_is_theirs(connect) -> None:
    async with connect(security=ZkSecurity(auth=(("digest", "kafka:secret"),))) as client:
        await client.create("/mine", b"", acl=[Acl(31, "auth", "")])
        await client.set("/mine", b"x")
        client.break_connection()
        await client.set("/mine", b"y")
    async with connect() as stranger:
        with pytest.raises(ZooKeeperError, match="ACL does not allow"):
            await stranger.get("/mine")


@in_event_loop
async def test_unknown_credentials_scheme_is_refused(connect) -> None:
    with pytest.raises(AuthFailed):
        async with connect(security=ZkSecurity(auth=(("nonsense", "x"),))):
            pass


@in_event_loop
async def test_missing_chroot_is_made_only_where_wanted(zk_chroot: str) -> None:
    with pytest.raises(NoNode, match="chroot"):
        await ZkClient.connect(zk_chroot, make_chroot=False)
    async with await ZkClient.connect(zk_chroot, chroot="deeper/still") as client:
        await client.create("/a", b"")
    async with await ZkClient.connect(zk_chroot, make_chroot=False) as client:
        assert await client.exists("/deeper/still/a") is not None


@in_event_loop
async def test_nobody_there_is_told_in_time() -> None:
    with pytest.raises(ConnectTimedOut, match=r"127\.0\.0\.1:1 within 300 ms"):
        await ZkClient.connect("127.0.0.1:1", connection_timeout_ms=300)


@in_event_loop
async def test_closed_client_refuses_and_ends_waiting_calls(connect) -> None:
    async with connect() as client:
        await client.close()
        await client.close()
        with pytest.raises(SessionLost, match="closed"):
            await client.get("/")
        assert client.session_id == 0


@in_event_loop
async def test_cancelled_call_leaves_the_client_in_order(connect) -> None:
    async with connect() as client:
        call = asyncio.ensure_future(client.create("/a", b""))
        many = asyncio.ensure_future(client.get_many(["/"] * 2_000))
        await asyncio.sleep(0)
        call.cancel()
        many.cancel()
        await asyncio.gather(call, many, return_exceptions=True)
        assert await client.exists("/") is not None


@in_event_loop
async def test_a_network_may_fail_between_two_sessions(
    connect, end_session: Callable[[ZkClient], Awaitable[None]]
) -> None:
    """The client notices by itself that its session has ended, and has no connection for a moment."""
    async with connect() as client:
        has_failed = asyncio.Event()

        def notice(event: SessionEvent) -> None:
            if event is SessionEvent.LOST:
                with pytest.raises(SessionLost):
                    assert client._keeper.current().credentials
                client.break_connection()
                has_failed.set()

        client.add_session_listener(notice)
        await end_session(client)
        async with asyncio.timeout(30):
            await has_failed.wait()
        await client._keeper.wait_open()
        assert await client.exists("/") is not None


def test_works_on_uvloop(connect) -> None:
    async def run() -> None:
        async with connect() as client:
            outcomes = await client.multi_many([[Create(f"/n{i}", b"")] for i in range(500)])
            assert len(outcomes) == len(await client.children("/")) == 500
            client.break_connection()
            assert await client.exists("/n1") is not None

    uvloop.run(run())
