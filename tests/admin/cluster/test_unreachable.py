"""Nobody answers, or the wrong program does: the message, and how soon it comes."""

from __future__ import annotations

import asyncio
import socket
import ssl
import threading
import time
from contextlib import AsyncExitStack
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
from certificates import Authority
from event_loop import in_event_loop
from login_serving import LOGIN, policy, tell_principal
from network_serving import run, serving
from virtual_time import ManualClock
from znode_writer import znode_writer

from engine.admin.cluster import zookeeper
from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import LoginRefused, Unreachable, ZooKeeperDead, ZooKeeperUnreachable
from engine.admin.cluster.remedies import CHECK_NAME, Phrase
from engine.admin.cluster.target import ClusterTarget, Origin
from engine.admin.cluster.zookeeper import CONNECT_TIMEOUT_MAX_S, look, open_zookeeper, servers_down
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import ConnectFailed
from engine.kafka.client.security import security_of
from engine.kafka.client.tls.context import TlsSettings
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.security import ZkSecurity
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper


def test_a_zookeeper_that_is_not_there_is_not_waited_for() -> None:
    started = time.monotonic()
    with pytest.raises(ZooKeeperDead, match="ZooKeeper refuses connections") as caught:
        asyncio.run(open_zookeeper(f"{own_loopback_address()}:1", timeout_s=60))
    assert time.monotonic() - started < CONNECT_TIMEOUT_MAX_S
    assert "is it running there?" in str(caught.value.hint)
    assert "side=wire" not in str(caught.value.hint)


def test_a_zookeeper_whose_name_nobody_knows(monkeypatch: pytest.MonkeyPatch) -> None:
    async def still_opening(*_: object) -> None:
        await asyncio.Event().wait()

    async def unresolved(*_: object) -> None:
        raise socket.gaierror(socket.EAI_NONAME, "Name or service not known")

    monkeypatch.setattr("engine.admin.cluster.zookeeper._open", still_opening)
    monkeypatch.setattr("engine.admin.cluster.zookeeper._resolve", unresolved)
    with pytest.raises(Unreachable, match="ZooKeeper cannot be reached") as caught:
        asyncio.run(open_zookeeper("nohost:2181/kafka", timeout_s=0.1))
    assert str(caught.value.where) == "nohost:2181/kafka (the name cannot be resolved)"
    assert str(caught.value.hint) == CHECK_NAME


def test_a_silent_name_server_takes_one_thread_for_each_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """Watching ZooKeeper's servers looks names up every ten seconds, and a look-up may take half a minute."""
    has_answered, asked = threading.Event(), []

    def silent(host: str, *_: object, **__: object) -> list[tuple[int, int, int, str, tuple[str, int]]]:
        asked.append(host)
        has_answered.wait()
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (own_loopback_address(), 0))]

    async def run() -> None:
        with monkeypatch.context() as patches:
            patches.setattr(socket, "getaddrinfo", silent)
            patches.setattr("engine.admin.cluster.zookeeper._LOOK_S", 0.05)
            for _ in range(2):
                down = await servers_down("one:1,two:1")
                assert all("cannot be reached from here" in why for why in down)
            assert sorted(asked) == ["one", "two"]
            # Others need the loop's own threads.
            assert asyncio.get_running_loop()._default_executor is None  # type: ignore[attr-defined]
            has_answered.set()
        async with asyncio.timeout(60):
            while zookeeper._LOOKUPS[asyncio.get_running_loop()]:
                await asyncio.sleep(0.01)

    try:
        asyncio.run(run())
    finally:
        has_answered.set()


@pytest.mark.parametrize("turns", range(5))
def test_a_session_that_opens_as_its_caller_gives_up_is_closed(turns: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The caller has the session, or nobody has: an open one keeps a thread and a connection."""

    class Opened(ZkClient):
        is_open = True

        def __init__(self) -> None:
            """Be open at once."""

        async def close(self) -> None:
            self.is_open = False

    async def run() -> None:
        def cancel_later(left: int) -> None:
            loop.call_soon(cancel_later, left - 1) if left else caller.cancel()

        async def opens_and_is_not_wanted(*_: object) -> ZkClient:
            cancel_later(turns)
            return session

        loop, session = asyncio.get_running_loop(), Opened()
        monkeypatch.setattr("engine.admin.cluster.zookeeper._open", opens_and_is_not_wanted)
        caller = asyncio.create_task(open_zookeeper("one:2181", timeout_s=30))
        (result,) = await asyncio.gather(caller, return_exceptions=True)
        assert session.is_open == (result is session)
        assert turns > 1 or not session.is_open, "the caller is still waiting then"

    asyncio.run(run())


def test_who_listens_and_is_no_zookeeper_is_told_apart() -> None:
    with socket.create_server((own_loopback_address(), 0)) as listening:
        host, port = listening.getsockname()
        with pytest.raises(Unreachable, match="ZooKeeper does not answer") as caught:
            asyncio.run(open_zookeeper(f"{host}:{port}", timeout_s=5, has_brokers=True))
    assert "bootstrap servers" in str(caught.value.hint)
    assert "the brokers may answer: side=wire" in str(caught.value.hint)


def test_a_name_of_several_addresses_is_refused_only_if_each_refuses(monkeypatch: pytest.MonkeyPatch) -> None:
    """``localhost`` has two addresses on most machines, and ZooKeeper may listen on only one of them."""
    with socket.create_server((own_loopback_address(), 0)) as silent:
        host, port = silent.getsockname()
        addresses = [(own_loopback_address(), 1), (own_loopback_address(), 2)]

        async def resolved(*_: object) -> list[tuple[str, int]]:
            return addresses

        monkeypatch.setattr("engine.admin.cluster.zookeeper._resolve", resolved)
        refused = asyncio.run(look("localhost:2181"))
        addresses.append((host, port))
        kept_silent = asyncio.run(look("localhost:2181"))
    assert str(refused.error("localhost:2181", Phrase())) == "ZooKeeper refuses connections"
    assert str(kept_silent.error("localhost:2181", Phrase())) == "ZooKeeper does not answer"
    assert (refused.is_dead, kept_silent.is_dead) == (True, True)


@pytest.mark.parametrize("says_a_word", [True, False], ids=["electing", "frozen"])
def test_only_a_zookeeper_that_says_a_word_is_waited_for_where_brokers_may_be_asked(
    monkeypatch: pytest.MonkeyPatch, says_a_word: bool
) -> None:
    is_open = asyncio.Event()

    async def opened_late(*_: object) -> object:
        await is_open.wait()
        return "client"

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        assert await reader.readexactly(4) == b"srvr"
        if says_a_word:
            writer.write(b"This ZooKeeper instance is not currently serving requests")
            is_open.set()
        await reader.read()
        writer.close()

    async def ask() -> object:
        async with asyncio.timeout(60), await asyncio.start_server(serve, own_loopback_address(), 0) as server:
            host, port = server.sockets[0].getsockname()
            return await open_zookeeper(f"{host}:{port}", timeout_s=30, has_brokers=True)

    monkeypatch.setattr("engine.admin.cluster.zookeeper._open", opened_late)
    monkeypatch.setattr("engine.admin.cluster.zookeeper.LISTENING_PATIENCE_S", 0.05)
    if says_a_word:
        assert asyncio.run(ask()) == "client"
        return
    with pytest.raises(Unreachable, match="ZooKeeper does not answer"):
        asyncio.run(ask())


@in_event_loop
async def test_servers_of_an_ensemble_that_do_not_serve_are_named() -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, *, says: bytes) -> None:
        await reader.readexactly(4)
        writer.write(says)
        await reader.read()
        writer.close()

    hosts = [own_loopback_address() for _ in range(4)]
    words = (b"Zookeeper version: 3.9", b"This ZooKeeper instance is not currently serving requests", b"")
    async with AsyncExitStack() as stack:
        for host, says in zip(hosts, words, strict=False):
            await stack.enter_async_context(await asyncio.start_server(partial(serve, says=says), host, 21810))
        down = await servers_down(",".join(f"{host}:21810" for host in hosts) + "/kafka")
        assert await servers_down(f"{hosts[3]}:21810") == (), "one address may stand for several servers"
        over_tls = ZkSecurity(tls=TlsSettings())
        down_over_tls = await servers_down(",".join(f"{host}:21810" for host in hosts), over_tls)
        without_majority = f"{hosts[1]}:21810,{hosts[3]}:21810"
        with pytest.raises(ZooKeeperDead) as caught:
            await open_zookeeper(without_majority, timeout_s=3)
    assert down_over_tls == (f"{hosts[3]}:21810 refuses connections; 3 of 4 servers serve",)
    assert str(caught.value.hint) == (
        f"{hosts[1]}:21810 runs without the others: it gives no sessions; {hosts[3]}:21810 refuses connections"
    )
    assert down == (
        f"{hosts[1]}:21810 runs without the others: it gives no sessions; 1 of 4 servers serve",
        f"{hosts[2]}:21810 takes connections and does not answer; 1 of 4 servers serve",
        f"{hosts[3]}:21810 refuses connections; 1 of 4 servers serve",
    )


@pytest.mark.parametrize(
    ("brokers", "error"),
    [((), Unreachable), ((("127.0.0.1", 1),), ZooKeeperUnreachable)],
    ids=["alone", "beside brokers"],
)
def test_a_zookeeper_without_a_cluster_stays_an_error(
    brokers: tuple[tuple[str, int], ...], error: type[Unreachable], zk_chroot: str
) -> None:
    async def ask_twice() -> None:
        async with Cluster(ClusterTarget("c", Origin.OPTIONS, zk_chroot, brokers), expects_znodes=True) as cluster:
            for _ in range(2):
                with pytest.raises(Unreachable, match="no cluster's znodes are there") as caught:
                    await cluster.zookeeper()
                assert type(caught.value) is error

    with znode_writer(zk_chroot) as write:
        write({"/something": b"else"}, False)
    asyncio.run(ask_twice())


def test_a_zookeeper_named_as_a_broker(zookeeper: EmbeddedZooKeeper) -> None:
    host, _, port = zookeeper.connect_string.partition(":")
    target = ClusterTarget("test", Origin.OPTIONS, bootstrap=((host, int(port)),))

    async def ask() -> None:
        async with Cluster(target, timeout_s=20) as cluster:
            await (await cluster.wire()).nodes()

    with pytest.raises(Unreachable) as caught:
        asyncio.run(ask())
    assert "none listens there: name a ZooKeeper with ZooKeeper address" in str(caught.value.hint)


def test_a_refused_connection_is_told_in_words() -> None:
    client = BrokerClient(own_loopback_address(), 1, client_id="test")
    with pytest.raises(ConnectFailed, match=r"cannot connect \(connection refused\): 127"):
        asyncio.run(client.connect())


BY_PASSWORD = {
    "security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN",
    "sasl.jaas.config": 'a.B required username="a" password="s3cret";',
}  # fmt: skip
ASKS_FOR = {
    "TLS": (True, False, {}, "what listens there speaks TLS", "security.protocol=SSL or SASL_SSL"),
    "a login": (False, True, {}, "it has PLAIN, SCRAM-SHA-256", "security.protocol=SASL_PLAINTEXT, sasl.mechanism"),
    "TLS and a login": (True, True, {}, "what listens there speaks TLS", "security.protocol=SSL or SASL_SSL"),
    "a login, under TLS": (
        True, True, {"security.protocol": "SSL"}, "it has PLAIN, SCRAM-SHA-256",
        "security.protocol=SASL_SSL, sasl.mechanism",
    ),
    "TLS, under a login": (
        True, True, BY_PASSWORD, "what listens there speaks TLS", "security.protocol=SASL_SSL",
    ),
}  # fmt: skip


@pytest.mark.parametrize("what", ASKS_FOR)
def test_a_listener_that_closes_connections_is_asked_what_it_wants(what: str, tmp_path: Path) -> None:
    has_tls, has_login, entries, said, hint = ASKS_FOR[what]
    authority = Authority()
    (tmp_path / "ca.pem").write_text(authority.pem)
    trust = {"ssl.truststore.type": "PEM", "ssl.truststore.location": str(tmp_path / "ca.pem")}
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(authority.sign("b", [own_loopback_address()]).write_pem(tmp_path / "b.pem"))
    tls = SimpleNamespace(tls=context, principal_of=lambda _: "User:ANONYMOUS")
    security = security_of(entries | trust | {"ssl.endpoint.identification.algorithm": ""})

    async def ask() -> None:
        logins = policy(ManualClock(), {}) if has_login else None
        handlers = {ApiKey.METADATA: tell_principal} | (LOGIN if has_login else {})
        async with serving(handlers, tls=tls if has_tls else None, logins=logins) as (_, host, port):  # type: ignore[arg-type]
            properties = ClientProperties(security=security)
            target = ClusterTarget("test", Origin.OPTIONS, bootstrap=((host, port),), client_properties=properties)
            async with Cluster(target, timeout_s=20) as cluster:
                await (await cluster.wire()).nodes()

    with pytest.raises(LoginRefused) as caught:
        run(ask)
    assert said in caught.value.message and str(caught.value.hint).startswith(f"set {hint}"), (
        caught.value,
        caught.value.hint,
    )
    assert "s3cret" not in f"{caught.value} {caught.value.hint}"


def test_a_broker_that_hangs_up_after_the_login_may_think_that_a_token_has_expired() -> None:
    """It was taken for one that has ended, or wants TLS."""
    login = "org.apache.kafka.common.security.plain.PlainLoginModule required username=alice password=alice-pw;"
    entries = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": login}

    def hang_up(*_: object) -> None:
        raise OSError("as Kafka does once the login has ended")

    async def ask() -> None:
        logins = policy(ManualClock(), {})
        async with serving({ApiKey.METADATA: hang_up} | LOGIN, logins=logins) as (_, host, port):  # type: ignore[arg-type]
            properties = ClientProperties(security=security_of(entries))
            target = ClusterTarget("test", Origin.OPTIONS, bootstrap=((host, port),), client_properties=properties)
            async with Cluster(target, timeout_s=20) as cluster:
                await (await cluster.wire()).nodes()

    with pytest.raises(Unreachable) as caught:
        run(ask)
    assert "a token has expired" in str(caught.value.hint)
