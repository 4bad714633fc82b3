"""Sessions that break and end: what callers learn. No write is lost, or made under the wrong session."""

from __future__ import annotations

import asyncio
import socket
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager

import pytest
from event_loop import in_event_loop

from engine.kafka.zk import session
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import BadVersion, ConnectTimedOut, SessionLost, TooLarge
from engine.kafka.zk.operations import Check, Create, Delete, SetData
from engine.kafka.zk.session_keeper import SessionEvent
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

PASSING = (SessionEvent.SUSPENDED, SessionEvent.RECONNECTED)
"""On a busy machine the connection may come back once before ZooKeeper says that the session is over."""


@in_event_loop
async def test_expired_session_is_told_and_replaced(connect, end_session, until) -> None:
    async with connect() as client:
        events: list[SessionEvent] = []
        client.add_session_listener(events.append)
        await client.create("/mine", b"", ephemeral=True)
        old_id = client.session_id
        await end_session(client)
        await until(lambda: SessionEvent.NEW_SESSION in events)
        assert [event for event in events if event not in PASSING] == [
            SessionEvent.LOST,
            SessionEvent.NEW_SESSION,
        ]
        assert client.session_id not in (0, old_id)
        assert await client.exists("/mine") is None
        await client.create("/mine", b"", ephemeral=True)
        stat = await client.exists("/mine")
        assert stat is not None and stat.ephemeral_owner == client.session_id


@in_event_loop
async def test_a_write_that_is_too_large_is_refused_and_takes_no_other_along(connect) -> None:
    async with connect() as client:
        await client.create("/kept", b"")
        large = b"x" * 1_100_000
        others = asyncio.gather(*(client.set("/kept", b"%d" % number) for number in range(50)))
        with pytest.raises(TooLarge, match="1100000 bytes is too large for ZooKeeper"):
            await client.create("/large", large)
        with pytest.raises(TooLarge, match="/kept"):
            await client.multi([Check("/kept", -1), SetData("/kept", large)])
        assert len(await others) == 50
        assert await client.exists("/large") is None


@in_event_loop
async def test_outstanding_calls_end_with_the_session_and_are_not_done_in_the_next(
    connect, end_session, open_proxy, until, zk_chroot: str
) -> None:
    chroot = zk_chroot[zk_chroot.index("/") :]
    async with connect() as witness, open_proxy() as proxy, connect(proxy.address + chroot) as client:
        events: list[SessionEvent] = []
        client.add_session_listener(events.append)
        await client.create("/counter", b"")
        proxy.may_ask.clear()
        calls = [
            *(client.set("/counter", b"%d" % number) for number in range(5)),
            client.get("/counter"),
            client.get_many(["/counter"] * 3_000),
            client.create("/made", b"", ephemeral=True),
            client.multi([Check("/counter", 0), SetData("/counter", b"")]),
            client.multi_many([[SetData("/counter", b"")]] * 3_000),
        ]
        waiting = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        await end_session(client)
        proxy.cut()
        await until(lambda: SessionEvent.SUSPENDED in events)
        # The call comes while the connection is broken and nobody knows yet that the session has ended.
        waiting.append(asyncio.ensure_future(client.set("/counter", b"late")))
        await asyncio.sleep(0)
        proxy.may_ask.set()
        outcomes = await asyncio.gather(*waiting, return_exceptions=True)
        assert [type(outcome) for outcome in outcomes] == [SessionLost] * 11
        await client._keeper.wait_open()
        await client.sync()
        stat = await witness.exists("/counter")
        assert stat is not None and stat.version == 0
        assert await witness.exists("/made") is None


@in_event_loop
async def test_writes_whose_answers_got_lost_are_done_once(connect, open_proxy, until, zk_chroot: str) -> None:
    chroot = zk_chroot[zk_chroot.index("/") :]
    async with connect() as witness, open_proxy() as proxy, connect(proxy.address + chroot) as client:
        for path in ("/set", "/set-any", "/gone", "/in-multi", "/guard"):
            await client.create(path, b"")
        await client.ensure_path("/seq")
        proxy.may_answer.clear()
        calls = [
            client.set("/set", b"x", 0),
            client.set("/set-any", b"x"),
            client.create("/made", b"x"),
            client.create("/mine", b"x", ephemeral=True),
            client.create("/seq/n-", b"x", sequential=True),
            client.delete("/gone", 0),
            client.multi([Check("/guard", 0), Create("/twin", b"1"), SetData("/twin", b"2", 0), Delete("/in-multi")]),
            client.multi_many([[Check("/guard", 0), Create(f"/many-{number}", b"")] for number in range(50)]),
            client.write_many([Create(f"/each-{number}", b"") for number in range(50)]),
        ]
        waiting = [asyncio.ensure_future(call) for call in calls]
        async with asyncio.timeout(30):
            # Two of the first six znodes go; three single ones, twin included, and a hundred others come.
            while len(await witness.children("/")) != 107:
                await asyncio.sleep(0.005)
        session_id = client.session_id
        proxy.cut()
        proxy.may_answer.set()
        done = await asyncio.gather(*waiting)
        assert (done[0].version, done[1].version) == (1, 1)
        assert done[2:6] == ["/made", "/mine", "/seq/n-0000000000", None]
        assert (done[6][1], done[6][2].version) == ("/twin", 1)
        assert [outcome[1] for outcome in done[7]] == [f"/many-{number}" for number in range(50)]
        assert done[8] == [f"/each-{number}" for number in range(50)]
        assert client.session_id == session_id
        assert await witness.children("/seq") == ["n-0000000000"]
        versions = [stat.version for stat in await witness.exists_many(["/set", "/set-any", "/twin"])]
        assert versions == [1, 1, 1]


@pytest.mark.parametrize(
    "garble",
    [lambda answer: answer[:4] + (1_000_000).to_bytes(4) + answer[8:], lambda answer: 2 * answer],
    ids=["the number of another request", "twice the same answer"],
)
@in_event_loop
async def test_answers_out_of_order_break_the_connection_and_not_the_session(
    connect, open_proxy, until, zk_chroot: str, garble: Callable[[bytes], bytes]
) -> None:
    chroot = zk_chroot[zk_chroot.index("/") :]
    async with open_proxy() as proxy, connect(proxy.address + chroot) as client:
        events: list[SessionEvent] = []
        client.add_session_listener(events.append)
        await client.create("/mine", b"", ephemeral=True)
        proxy.garble = garble
        done = await client.set("/mine", b"x", 0)
        await until(lambda: SessionEvent.RECONNECTED in events)
        assert set(events) == set(PASSING)
        assert (done.version, done.ephemeral_owner) == (1, client.session_id)


@in_event_loop
async def test_writes_that_got_lost_themselves_are_sent_again(connect, open_proxy, until, zk_chroot: str) -> None:
    chroot = zk_chroot[zk_chroot.index("/") :]
    async with open_proxy() as proxy, connect(proxy.address + chroot) as client:
        events: list[SessionEvent] = []
        client.add_session_listener(events.append)
        await client.create("/set", b"")
        await client.ensure_path("/seq")
        proxy.may_ask.clear()
        calls = [
            client.set("/set", b"x", 0),
            client.create("/made", b"x"),
            client.create("/seq/n-", b"x", sequential=True),
            client.multi([Create("/twin", b"1"), SetData("/twin", b"2", 0)]),
            client.write_many([Create("/single", b"")]),
        ]
        waiting = [asyncio.ensure_future(call) for call in calls]
        await asyncio.sleep(0)
        proxy.cut()
        await until(lambda: SessionEvent.SUSPENDED in events)
        proxy.may_ask.set()
        done = await asyncio.gather(*waiting)
        assert done[0].version == 1
        assert done[1:3] == ["/made", "/seq/n-0000000000"]
        assert done[3][0] == "/twin"
        assert done[4] == ["/single"]


@in_event_loop
async def test_lost_answer_and_another_writer_since(connect, open_proxy, zk_chroot: str) -> None:
    """Our write happened and was overwritten. Nobody can tell any more, so it counts as refused."""
    chroot = zk_chroot[zk_chroot.index("/") :]
    async with connect() as other, open_proxy() as proxy, connect(proxy.address + chroot) as client:
        await client.create("/set", b"")
        proxy.may_answer.clear()
        waiting = asyncio.ensure_future(client.set("/set", b"mine", 0))
        while (await other.get("/set"))[0] != b"mine":
            await asyncio.sleep(0.001)
        await other.set("/set", b"theirs", 1)
        proxy.cut()
        proxy.may_answer.set()
        with pytest.raises(BadVersion):
            await waiting
        assert (await other.get("/set"))[0] == b"theirs"


@in_event_loop
async def test_calls_between_two_sessions_are_refused(connect, end_session, until) -> None:
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
        await client._keeper.wait_open()
        await client.get("/")


@in_event_loop
async def test_reads_and_writes_survive_broken_connections(connect) -> None:
    """The connection is cut again and again under a stream of writes. Each is made once and answered."""
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


@in_event_loop
async def test_many_multis_over_a_broken_connection_are_each_done_once(connect) -> None:
    async with connect() as client:
        await client.create("/guard", b"")
        for number in range(5):
            asyncio.get_running_loop().call_later(0.02 + 0.01 * number, client.break_connection)
        multis = [[Check("/guard", 0), Create(f"/n{i}", b"%d" % i)] for i in range(3_000)]
        outcomes = await client.multi_many(multis)
        assert [outcome for outcome in outcomes if not isinstance(outcome, list)] == []
        assert [outcome[1] for outcome in outcomes] == [f"/n{i}" for i in range(3_000)]


@pytest.fixture(scope="module")
def own_zookeeper() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(host=own_loopback_address(), fsync=False) as server:
        yield server


@pytest.fixture
def server(own_zookeeper: EmbeddedZooKeeper) -> Iterator[EmbeddedZooKeeper]:
    """A ZooKeeper that a test may freeze, or kill and start again."""
    yield own_zookeeper
    own_zookeeper.resume()
    own_zookeeper.start()


def test_server_restarted_under_calls(server: EmbeddedZooKeeper, until) -> None:
    async def run() -> None:
        # A busy machine may need longer for two starts than a short session lasts.
        client = await ZkClient.connect(server.connect_string, session_timeout_ms=60_000)
        try:
            events: list[SessionEvent] = []
            client.add_session_listener(events.append)
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
            await until(lambda: events.count(SessionEvent.SUSPENDED) >= 1)
            call = asyncio.ensure_future(client.get("/mine"))
            await asyncio.to_thread(server.start)
            _, stat = await call
            assert stat.ephemeral_owner == client.session_id
            stop.set()
            version = await counting
            assert (await client.get("/counter"))[1].version == version > 0
            assert SessionEvent.LOST not in events
        finally:
            await client.close()

    asyncio.run(run())


@in_event_loop
async def test_connections_that_a_starting_server_never_serves_cost_no_session(
    connect, open_proxy, zk_chroot: str
) -> None:
    chroot = zk_chroot[zk_chroot.index("/") :]
    async with open_proxy() as proxy, connect(proxy.address + chroot) as client:
        await client.create("/mine", b"", ephemeral=True)
        session_id, proxy.unserved = client.session_id, 2
        proxy.cut()
        _, stat = await client.get("/mine")
        assert proxy.unserved == 0
        assert stat.ephemeral_owner == client.session_id == session_id


def test_server_that_takes_no_connection_does_not_hold_up_the_end() -> None:
    """A connect that hangs in the network cannot be cancelled, and the program must not wait for it."""

    async def run(hosts: str) -> None:
        with pytest.raises(ConnectTimedOut):
            await ZkClient.connect(hosts, session_timeout_ms=30_000, connection_timeout_ms=300)

    with socket.socket() as listener, socket.socket() as first, socket.socket() as second:
        listener.bind((own_loopback_address(), 0))
        listener.listen(0)
        host, port = listener.getsockname()
        for filler in (first, second):
            # With a full queue the listener drops connections, as a firewall does.
            filler.setblocking(False)
            filler.connect_ex((host, port))
        started = time.monotonic()
        asyncio.run(run(f"{host}:{port}"))
        assert time.monotonic() - started < 25


def test_close_gives_no_grace_to_a_server_that_has_never_answered(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is no session whose end the server would have to learn of."""
    monkeypatch.setattr(session, "_GRACE_S", 3_600.0)

    async def run(hosts: str) -> None:
        async with asyncio.timeout(20):
            with pytest.raises(ConnectTimedOut):
                await ZkClient.connect(hosts, session_timeout_ms=30_000, connection_timeout_ms=300)

    with socket.socket() as listener:
        listener.bind((own_loopback_address(), 0))
        listener.listen()
        host, port = listener.getsockname()
        asyncio.run(run(f"{host}:{port}"))


def test_close_does_not_wait_for_a_server_that_hangs(server: EmbeddedZooKeeper) -> None:
    async def run() -> None:
        client = await ZkClient.connect(server.connect_string, session_timeout_ms=30_000)
        server.pause()
        waiting = asyncio.ensure_future(client.get("/"))
        await asyncio.sleep(0)
        async with asyncio.timeout(20):
            await client.close()
        with pytest.raises(SessionLost):
            await waiting

    asyncio.run(run())


def test_a_tool_does_not_wait_for_ever_for_a_zookeeper_that_hangs(server: EmbeddedZooKeeper) -> None:
    async def run() -> None:
        connect = ZkClient.connect(server.connect_string, session_timeout_ms=2_000, patience_ms=500)
        async with await connect as client:
            begun: list[int] = []
            begin = client._keeper._start_session
            client._keeper._start_session = lambda: (begun.append(1), begin())[1]  # type: ignore[method-assign]
            server.pause()
            try:
                async with asyncio.timeout(30):
                    for call in (client.create("/unknown", b""), client.get("/"), client.get_many(["/"])):
                        with pytest.raises(SessionLost):
                            await call
                assert list(client.unanswered) == ["/unknown"], "it may happen yet"
            finally:
                server.resume()
            async with asyncio.timeout(30):
                await client._keeper.wait_open()
                assert await client.exists("/") is not None
            assert len(begun) == 1, "one session takes the place of the one that was given up"

    asyncio.run(run())


def test_for_how_long_nothing_was_answered_is_known(server: EmbeddedZooKeeper) -> None:
    async def run() -> None:
        async with await ZkClient.connect(server.connect_string, session_timeout_ms=20_000) as client:
            assert client.silent_s == 0.0
            server.pause()
            waiting = asyncio.ensure_future(client.get_many(["/", "/zookeeper"]))
            while client.silent_s < 0.3:
                await asyncio.sleep(0.02)
            server.resume()
            await waiting
            assert client.silent_s == 0.0

    asyncio.run(asyncio.wait_for(run(), 60))


def test_a_patient_client_goes_on_where_zookeeper_comes_back_in_time(server: EmbeddedZooKeeper) -> None:
    async def run() -> None:
        connect = ZkClient.connect(server.connect_string, session_timeout_ms=20_000, patience_ms=15_000)
        async with await connect as client:
            session = client.session_id
            for _ in range(2):
                client.break_connection()
                # The second request comes after the keeper has asked whether ZooKeeper answers again.
                assert await client.exists("/") is not None
                assert await client.exists("/") is not None
                assert client._keeper._giving_up is None, "its patience starts over"
            assert client.session_id == session

    asyncio.run(run())


def test_a_write_that_was_given_up_is_remembered(server: EmbeddedZooKeeper) -> None:
    async def run() -> None:
        async with await ZkClient.connect(server.connect_string, session_timeout_ms=30_000) as client:
            await client.create("/kept", b"")
            server.pause()
            try:
                multi = [Check("/", 0), SetData("/both", b"y"), SetData("/kept", b"y")]
                for write in (client.set("/kept", b"x"), client.multi(multi), client.multi_many([multi, multi])):
                    with pytest.raises(TimeoutError):
                        async with asyncio.timeout(0.2):
                            await write
                with pytest.raises(TimeoutError):
                    async with asyncio.timeout(0.2):
                        await client.get("/kept")
            finally:
                server.resume()
            assert list(client.unanswered) == ["/kept", "/both", ""], "a read leaves nothing open"

    asyncio.run(run())


@contextmanager
def unreachable_server() -> Iterator[str]:
    """A server that drops connection attempts, as a dead host does: its listen queue is full."""
    with ExitStack() as sockets:
        listening = sockets.enter_context(socket.socket())
        listening.bind((own_loopback_address(), 0))
        listening.listen(0)
        for _ in range(2):
            waiting = sockets.enter_context(socket.socket())
            waiting.setblocking(False)
            waiting.connect_ex(listening.getsockname())
        host, port = listening.getsockname()
        yield f"{host}:{port}"


def test_servers_that_cannot_be_reached_leave_time_for_the_others(
    zk_chroot: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each may take a third of the session. Waiting for two of them for the life of the session took twice as long."""
    monkeypatch.setattr("kazoo.protocol.connection.random.shuffle", lambda _: None)

    async def run(first: str, second: str) -> None:
        client = await ZkClient.connect(
            f"{first},{second},{zk_chroot}", session_timeout_ms=3_000, connection_timeout_ms=5_000
        )
        await client.close()

    with unreachable_server() as first, unreachable_server() as second:
        asyncio.run(run(first, second))
