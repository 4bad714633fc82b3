"""Sessions that break and end: what callers are told, and that no write is lost or done under the wrong session."""

from __future__ import annotations

import asyncio

import pytest

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper
from engine.zk.client import ZkClient
from engine.zk.errors import SessionLost
from engine.zk.operations import Check, Create, SetData
from engine.zk.session_keeper import SessionEvent


def test_expired_session_is_told_and_replaced(connect, end_session, until) -> None:
    async def run() -> None:
        async with connect() as client:
            told: list[SessionEvent] = []
            client.add_session_listener(told.append)
            await client.create("/mine", b"", ephemeral=True)
            old_id = client.session_id
            await end_session(client)
            await until(lambda: SessionEvent.NEW_SESSION in told)
            assert [event for event in told if event is not SessionEvent.SUSPENDED] == [
                SessionEvent.LOST,
                SessionEvent.NEW_SESSION,
            ]
            assert client.session_id not in (0, old_id)
            assert await client.exists("/mine") is None
            await client.create("/mine", b"", ephemeral=True)
            stat = await client.exists("/mine")
            assert stat is not None and stat.ephemeral_owner == client.session_id

    asyncio.run(run())


def test_outstanding_calls_end_with_the_session_and_are_not_done_in_the_next() -> None:
    async def run(server: EmbeddedZooKeeper) -> None:
        client = await ZkClient.connect(server.connect_string, session_timeout_ms=1_000)
        try:
            await client.create("/counter", b"")
            told: list[SessionEvent] = []
            client.add_session_listener(told.append)
            server.pause()
            waiting = [asyncio.ensure_future(client.set("/counter", b"%d" % n)) for n in range(5)]
            many = asyncio.ensure_future(client.get_many(["/counter"] * 3_000))
            client.break_connection()
            # The server wakes up to find the session expired: its clock went on, no heartbeat came.
            queued = asyncio.ensure_future(client.set("/counter", b"queued"))
            await asyncio.to_thread(_let_expire, server)
            outcomes = await asyncio.gather(*waiting, many, queued, return_exceptions=True)
            async with asyncio.timeout(20):
                await client.wait_connected()
            _, stat = await client.get("/counter")
            done = sum(not isinstance(outcome, BaseException) for outcome in [*outcomes[:5], outcomes[6]])
            lost = sum(isinstance(outcome, SessionLost) for outcome in outcomes)
            if SessionEvent.LOST in told:
                assert lost + done == len(outcomes) or lost + done == len(outcomes) - 1
            assert stat.version >= done
        finally:
            await client.close()

    with EmbeddedZooKeeper(host=own_loopback_address(), fsync=False) as server:
        asyncio.run(run(server))


def _let_expire(server: EmbeddedZooKeeper) -> None:
    import time

    time.sleep(2.5)
    server.resume()


def test_calls_between_two_sessions_are_refused(connect, end_session, until) -> None:
    async def run() -> None:
        async with connect() as client:
            refused: list[str] = []

            async def call() -> None:
                try:
                    await client.get("/")
                except SessionLost:
                    refused.append("get")

            def listener(event: SessionEvent) -> None:
                if event is SessionEvent.LOST:
                    tasks.append(asyncio.ensure_future(call()))

            tasks: list[asyncio.Task[None]] = []
            client.add_session_listener(listener)
            await end_session(client)
            await until(lambda: refused)
            assert refused == ["get"]
            await client.wait_connected()
            await client.get("/")

    asyncio.run(run())


def test_reads_and_writes_survive_broken_connections(connect) -> None:
    """A connection cut again and again under a stream of writes: each is done once, and each is answered."""

    async def run() -> None:
        async with connect() as client:
            await client.create("/counter", b"")
            await client.create("/seq", b"")
            session_id = client.session_id
            version = 0
            for number in range(150):
                if number % 5 == 0:
                    asyncio.get_running_loop().call_later(0.0002 * (number % 7), client.break_connection)
                stat = await client.set("/counter", b"%d" % number, version)
                assert stat.version == version + 1
                version = stat.version
                await client.create(f"/seq/{number}-", b"%d" % number, sequential=True)
                await client.multi([Check("/seq", 0), Create(f"/m{number}", b"x"), SetData(f"/m{number}", b"y", 0)])
                assert (await client.get("/counter"))[0] == b"%d" % number
            assert client.session_id == session_id
            assert len(await client.children("/seq")) == 150
            assert sum(name.startswith("m") for name in await client.children("/")) == 150

    asyncio.run(run())


def test_many_multis_over_a_broken_connection_are_each_done_once(connect) -> None:
    async def run() -> None:
        async with connect() as client:
            await client.create("/guard", b"")
            for number in range(5):
                asyncio.get_running_loop().call_later(0.02 + 0.01 * number, client.break_connection)
            multis = [[Check("/guard", 0), Create(f"/n{i}", b"%d" % i)] for i in range(3_000)]
            outcomes = await client.multi_many(multis)
            assert [outcome for outcome in outcomes if not isinstance(outcome, list)] == []
            assert [outcome[1] for outcome in outcomes] == [f"/n{i}" for i in range(3_000)]

    asyncio.run(run())


def test_server_restarted_under_calls(until) -> None:
    async def run(server: EmbeddedZooKeeper) -> None:
        client = await ZkClient.connect(server.connect_string, session_timeout_ms=10_000)
        try:
            told: list[SessionEvent] = []
            client.add_session_listener(told.append)
            await client.create("/counter", b"")
            await client.create("/mine", b"", ephemeral=True)
            stop = asyncio.Event()

            async def count() -> int:
                version = 0
                while not stop.is_set():
                    version = (await client.set("/counter", b"", version)).version
                return version

            counting = asyncio.ensure_future(count())
            await until(lambda: client.session_id)
            for end in (server.restart, server.kill):
                await asyncio.to_thread(end)
            await until(lambda: told.count(SessionEvent.SUSPENDED) >= 1)
            call = asyncio.ensure_future(client.get("/mine"))
            await asyncio.to_thread(server.start)
            _, stat = await call
            assert stat.ephemeral_owner == client.session_id
            stop.set()
            version = await counting
            assert (await client.get("/counter"))[1].version == version > 0
            assert SessionEvent.LOST not in told
        finally:
            await client.close()

    with EmbeddedZooKeeper(host=own_loopback_address(), fsync=False) as server:
        asyncio.run(run(server))


def test_close_does_not_wait_for_a_server_that_hangs() -> None:
    async def run(server: EmbeddedZooKeeper) -> None:
        client = await ZkClient.connect(server.connect_string, session_timeout_ms=30_000)
        server.pause()
        waiting = asyncio.ensure_future(client.get("/"))
        await asyncio.sleep(0)
        async with asyncio.timeout(6):
            await client.close()
        with pytest.raises(SessionLost):
            await waiting

    with EmbeddedZooKeeper(host=own_loopback_address(), fsync=False) as server:
        try:
            asyncio.run(run(server))
        finally:
            server.resume()
