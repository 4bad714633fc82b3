"""Listeners that open and close while a broker runs; ``interop/test_listeners_on_kafka.py`` asks Kafka the same."""

from __future__ import annotations

import asyncio
import gc
import socket
import weakref
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from broker_program import BrokerProgram, settings
from certificates import Authority
from listener_changes import LATER, LOGINS, PLAIN, ChangingListeners, listeners_come_and_go

from engine.broker.handlers.registry import all_handlers
from engine.broker.network.request import RequestHead
from engine.broker.network.routes import RouteTable
from engine.broker.network.server import ListenerSpec, SocketServer
from engine.broker.server.own_listeners import OwnListeners
from engine.broker.server.own_security import OwnSecurity
from engine.broker.server.settings import server_limits
from engine.common.clock import SystemClock
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import DynamicConfigs
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper
from engine.runtime.supervisor import Supervisor

PORT = 21292


class World:
    """A broker that can start again."""

    def __init__(self, folder: Path, zookeeper: EmbeddedZooKeeper) -> None:
        host = own_loopback_address()
        self.changing = ChangingListeners(folder, host, PORT, has_logins_in_file=False)
        self._settings = settings(folder, host, f"{zookeeper.connect_string}/{folder.name}") | self.changing.settings()
        self._folder, self._stack = folder, ExitStack()
        self.start()

    def start(self) -> None:
        self.broker = self._stack.enter_context(BrokerProgram(self._folder, self._settings))
        self.broker.wait_until_started()

    def stop(self) -> None:
        if self.broker.process.poll() is None:
            assert self.broker.terminate() == 0
        self._stack.close()


@pytest.fixture
def world(tmp_path: Path, zookeeper: EmbeddedZooKeeper) -> Iterator[World]:
    world = World(tmp_path, zookeeper)
    yield world
    world.stop()
    assert "Traceback" not in world.broker.server_log


def test_they_come_and_go(world: World) -> None:
    said = listeners_come_and_go(world.changing)
    for words, each in zip(("", "Security protocol", "inter.broker", "subset", "parse", "", "", ""), said, strict=True):
        assert words in each and bool(words) == bool(each), said
    assert world.changing.change(dict.fromkeys(world.changing.opening)) == ""


def test_logins_of_an_open_listener_stay(world: World) -> None:
    """Kafka stores such a change, which has no effect, and refuses all changes of listeners from then on."""
    changing = world.changing
    assert changing.change(changing.opening) == ""
    changing.wait_until_told()
    other = changing.opening[LOGINS].replace("al1ce", "other")
    assert "existing listener ListenerName(LATER)" in changing.change({LOGINS: other})
    changing.wait_until_told()


def test_what_is_stored_counts_when_the_broker_starts(world: World) -> None:
    assert world.changing.change(world.changing.opening) == ""
    world.changing.wait_until_told()
    assert world.broker.terminate() == 0
    world.start()
    world.changing.wait_until_told()


def test_a_listener_that_cannot_be_served_is_refused_and_one_whose_address_is_taken_stays_closed(
    world: World, tmp_path: Path
) -> None:
    changing = world.changing
    for texts, words in (
        ({f"{LATER}ssl.keystore.location": str(tmp_path / "none.pem")}, "cannot be read (no such file or directory)"),
        ({LOGINS: "nonsense"}, "JAAS"),
    ):
        assert words in changing.change({**changing.opening, **texts})
    late = Authority().sign("broker", days=(-9, -2)).write_pem(tmp_path / "late.pem")
    assert "expired" in changing.change({**changing.opening, f"{LATER}ssl.keystore.location": str(late)})
    elsewhere = changing.at("PLAINTEXT", "LATER").replace(f"LATER://{changing.host}", "LATER://203.0.113.7")
    assert changing.change({**changing.opening, "listeners": elsewhere}) == ""
    world.broker.wait_until_it_says("Listener LATER stays closed")
    assert changing.change(dict.fromkeys(changing.opening)) == ""
    assert changing.change(changing.opening) == ""
    changing.wait_until_told()


def _network(configs: DynamicConfigs, security: OwnSecurity) -> SocketServer:
    security.offer_logins(all_handlers(), configs, SystemClock(), None)
    routes = RouteTable({}, lambda request, body: None)
    return SocketServer(
        routes, RequestHead, server_limits(configs.static), SystemClock(), security.tls_listeners,
        security.login_policies,
    )  # fmt: skip


def test_a_listener_that_comes_back_at_once_is_protected_as_it_says_now() -> None:
    """Nobody may find it as open as it was before."""

    async def main() -> list[list[str]]:
        first = f"PLAINTEXT://{own_loopback_address()}:0"
        configs = DynamicConfigs(
            BrokerConfig.from_properties({
                "zookeeper.connect": "z:1", "broker.id": "1", "listeners": first, "sasl.enabled.mechanisms": "PLAIN",
                LOGINS: f'{PLAIN} required user_alice="al1ce-Secr3t";',
            })
        )  # fmt: skip
        security, supervisor = OwnSecurity(configs.static), Supervisor("test")
        network = _network(configs, security)
        listeners = OwnListeners(network, security, configs)
        await listeners.accept()
        announced: list[list[str]] = []

        async def announce() -> None:
            announced.append([endpoint.security_protocol.name for endpoint in listeners.advertised])

        def texts(protocol: str) -> dict[str, str]:
            later = f"{first},{first.replace('PLAINTEXT', 'LATER')}"
            return {"listeners": later, "listener.security.protocol.map": f"PLAINTEXT:PLAINTEXT,LATER:{protocol}"}

        listeners.follow(supervisor, announce)
        for stored in (texts("PLAINTEXT"), {}, texts("SASL_PLAINTEXT")):
            configs.apply("brokers", "1", stored)
        while len(announced) < 3:
            await asyncio.sleep(0.01)
        await network.stop()
        await supervisor.stop()
        return announced

    assert asyncio.run(asyncio.wait_for(main(), 20)) == [
        ["PLAINTEXT", "PLAINTEXT"], ["PLAINTEXT"], ["PLAINTEXT", "SASL_PLAINTEXT"]
    ]  # fmt: skip


def test_a_listener_that_has_closed_follows_no_settings(tmp_path: Path) -> None:
    async def main() -> None:
        changing = ChangingListeners(tmp_path, own_loopback_address(), PORT, has_logins_in_file=True)
        own = changing.settings() | {"zookeeper.connect": "z:1", "broker.id": "1"}
        configs = DynamicConfigs(BrokerConfig.from_properties(own))
        security, supervisor = OwnSecurity(configs.static), Supervisor("test")
        _network(configs, security)
        assert configs.apply("brokers", "1", changing.opening) == []
        await security.add("LATER", configs.current, configs, supervisor)
        listener = weakref.ref(security.tls_listeners["LATER"])
        await security.drop("LATER")
        await supervisor.stop()
        # A step of the loop, or a thread, that began with the listener may still hold it for a moment.
        while listener() is not None:
            await asyncio.sleep(0.01)
            gc.collect()

    asyncio.run(asyncio.wait_for(main(), 20))


def test_who_is_let_in_while_a_listener_closes_is_put_out() -> None:
    async def main() -> bytes:
        configs = DynamicConfigs(BrokerConfig.from_properties({"zookeeper.connect": "z:1", "broker.id": "1"}))
        network = _network(configs, OwnSecurity(configs.static))
        spec = ListenerSpec("PLAINTEXT", own_loopback_address(), 0)
        make = network._maker_of(spec)
        await network.listen(spec)
        await network.close_listener("PLAINTEXT")
        inside, outside = socket.socketpair()
        await asyncio.get_running_loop().connect_accepted_socket(make, inside)
        outside.setblocking(False)
        with outside:
            return await asyncio.get_running_loop().sock_recv(outside, 1)

    assert asyncio.run(asyncio.wait_for(main(), 5)) == b""
