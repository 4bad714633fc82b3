"""The same clients at the same connection rates (KIP-612) on Apache Kafka and klamm: by address, listener, broker.

And the same number of connections.
"""

from __future__ import annotations

import asyncio
import json
import socket
import statistics
import time
import urllib.request
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass

import pytest
from apache_kafka import ApacheKafkaBroker
from broker_program import BrokerProgram, settings
from compared_quotas import set_quotas
from kafka_tools import mbeans
from patience import slowness, wait_for
from wire_client import WireClient, controller_address

from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.frames import encode_request
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

RATE, SECONDS, SAMPLES, CLIENTS = 20, 12.0, 3, 10

NOISY, NEIGHBOUR = "127.0.7.1", "127.0.7.2"
"""The addresses that clients come from."""

PORTS = {"kafka": (21192, 21193), "klamm": (21194, 21195)}
JMX, PAGES = 21198, 21199
HELLO = encode_request(MetadataRequest(topics=[]), 1, 1, "visitor")


@dataclass(frozen=True, slots=True)
class Addresses:
    """A broker's listeners: the one of brokers, which the broker's own limit spares, and another."""

    internal: str
    slow: str


Brokers = Mapping[str, Addresses]


@pytest.fixture(scope="module")
def brokers(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    """One broker of each kind, each with its own cluster."""
    folder, host = tmp_path_factory.mktemp("rates"), own_loopback_address()
    by_engine = {name: Addresses(*(f"{host}:{port}" for port in ports)) for name, ports in PORTS.items()}

    def common(name: str) -> dict[str, str]:
        return {
            "listeners": f"PLAINTEXT://{by_engine[name].internal},SLOW://{by_engine[name].slow}",
            "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,SLOW:PLAINTEXT",
            "inter.broker.listener.name": "PLAINTEXT",
            "zookeeper.session.timeout.ms": "18000",
            "quota.window.num": f"{SAMPLES}",
            "controlled.shutdown.enable": "false",
        }

    with ExitStack() as stack:
        connect = f"{zookeeper.connect_string}/{folder.name}"
        ours = settings(folder / "klamm", host, f"{connect}/klamm") | common("klamm")
        ours["klamm.metrics.listener"] = f"{host}:{PAGES}"
        klamm = stack.enter_context(BrokerProgram(folder / "klamm", ours))
        kafka = ApacheKafkaBroker(
            folder / "kafka",
            broker_id=0,
            host=host,
            port=PORTS["kafka"][0],
            zookeeper_connect=f"{connect}/kafka",
            overrides=common("kafka"),
            heap="300m",
            jmx_port=JMX,
        )
        stack.enter_context(kafka)
        klamm.wait_until_started()
        for addresses in by_engine.values():
            controller_address(addresses.internal)
        yield by_engine


@dataclass(frozen=True, slots=True)
class Visit:
    """One connection: how it ended, when it began, and after how many seconds it ended."""

    end: str
    began_s: float
    took_s: float


async def visit(address: str, source: str, *, speaks: bool = True) -> Visit:
    """Connect from an address, ask something unless told otherwise, and wait for what comes."""
    host, _, port = address.rpartition(":")
    clock = asyncio.get_running_loop().time
    began = clock()
    reader, writer = await asyncio.open_connection(host, int(port), local_addr=(source, 0))
    try:
        if speaks:
            writer.write(HELLO)
        end = "answered" if await reader.read(4) else "closed"
    except ConnectionResetError:
        end = "reset"
    finally:
        writer.close()
    return Visit(end, began, clock() - began)


Visits = list[Visit]


async def at_a_pace(address: str, source: str, per_s: float, *, speaks: bool = True) -> Visits:
    """Connect again and again, however long each connection takes."""
    clock = asyncio.get_running_loop().time
    began, visits = clock(), []
    async with asyncio.TaskGroup() as group:
        for number in range(round(per_s * SECONDS)):
            await asyncio.sleep(began + number / per_s - clock())
            visits.append(group.create_task(visit(address, source, speaks=speaks)))
    return [visit.result() for visit in visits]


async def one_after_another(address: str, source: str, clients: int) -> Visits:
    """Let clients connect again as soon as they have their answer; return what came after the first burst."""
    clock = asyncio.get_running_loop().time
    counts_from, until = clock() + SAMPLES, clock() + 2 * SECONDS

    async def client() -> Visits:
        visits = []
        while (began := clock()) < until:
            seen = await visit(address, source)
            if began >= counts_from:
                visits.append(seen)
        return visits

    async with asyncio.TaskGroup() as group:
        running = [group.create_task(client()) for _ in range(clients)]
    return [connect for client in running for connect in client.result()]


def of_both(brokers: Brokers, *visits: Callable[[Addresses], Awaitable[Visits]]) -> dict[str, list[Visits]]:
    """Let clients visit both brokers at once; return what each saw, by the broker's kind."""

    async def run() -> list[list[Visits]]:
        return await asyncio.gather(
            *(asyncio.gather(*(visit(addresses) for visit in visits)) for addresses in brokers.values())
        )

    return dict(zip(brokers, asyncio.run(run()), strict=True))


@contextmanager
def address_limit(brokers: Brokers, address: str | None, rate: float) -> Iterator[None]:
    """Limit an address, or (None) all that have no limit of their own."""

    internal = [addresses.internal for addresses in brokers.values()]
    set_quotas(internal, ({"ip": address}, {"connection_creation_rate": rate}))
    try:
        yield
    finally:
        set_quotas(internal, ({"ip": address}, {"connection_creation_rate": None}))


@contextmanager
def broker_limit(brokers: Brokers, key: str, limit: int | str = RATE) -> Iterator[None]:
    """Give all brokers a dynamic setting, which counts from then on."""
    described = DescribeConfigsResource(resource_type=4, resource_name="", configuration_keys=[key])

    def value_on(client: WireClient) -> str | None:
        (answer,) = client.ask(DescribeConfigsRequest(resources=[described]), 1).results
        return next((config.value for config in answer.configs), None)

    def change(operation: int, value: str | None) -> None:
        config = AlterableConfig(name=key, config_operation=operation, value=value)
        resource = AlterConfigsResource(resource_type=4, resource_name="", configs=[config])
        for addresses in brokers.values():
            with WireClient(addresses.internal) as client:
                request = IncrementalAlterConfigsRequest(resources=[resource], validate_only=False)
                (answer,) = client.ask(request, 1).responses
                assert answer.error_code == 0, answer
                wait_for(lambda: value_on(client) == value, f"{key} is {value}")

    change(0, f"{limit}")
    try:
        yield
    finally:
        change(1, None)


def told_waits_ms(brokers: Brokers) -> dict[str, float]:
    """Return for how long connections of an address had to wait on average, as the brokers themselves tell."""
    figure = "ip-connection-accept-throttle-time"
    host, name = (
        brokers["kafka"].internal.partition(":")[0],
        "kafka.server:type=socket-server-metrics,listener=PLAINTEXT",
    )
    (theirs,) = mbeans(f"{host}:{JMX}", name).values()
    with urllib.request.urlopen(f"http://{host}:{PAGES}/jolokia/read/{name}", timeout=60) as answer:
        ours = json.load(answer)["value"]
    return {"kafka": theirs[figure], "klamm": ours[figure]}


def tolerance(idle: float) -> float:
    """Return how far a rate may be off. Where other tests keep the processors busy, a broker that had to wait lets
    some in at once, and clients come late; twice the limit would be seen all the same."""
    return min(idle * slowness(), 0.3)


def ends(visits: Visits) -> Counter[str]:
    return Counter(visit.end for visit in visits)


def are_closed_in_turn(visits: Visits) -> bool:
    """Whether those that came early were gone while others still came, however slow the machine is.

    Kafka closes those first whose wait ends last: under a steady stream the early ones wait for its end.
    """
    return all(visit.began_s + visit.took_s < visits[-1].began_s for visit in visits[: len(visits) // 2])


def forget_visits() -> None:
    """Let both brokers forget who came before: no wait for a condition, for only time makes their windows empty."""
    time.sleep(SAMPLES + 1)


@pytest.mark.parametrize("entity", [NOISY, None], ids=["its own limit", "the limit of all"])
def test_an_address_gets_its_rate_and_is_turned_away_above_it(brokers: Brokers, entity: str | None) -> None:
    with address_limit(brokers, NEIGHBOUR, 10_000), address_limit(brokers, entity, RATE):
        forget_visits()
        seen = of_both(
            brokers,
            lambda addresses: at_a_pace(addresses.internal, NOISY, 3 * RATE),
            lambda addresses: at_a_pace(addresses.internal, NEIGHBOUR, RATE),
        )
    waits_ms = told_waits_ms(brokers)
    # The mean of a minute, in which each was tried a few times before.
    assert waits_ms["klamm"] == pytest.approx(waits_ms["kafka"], rel=tolerance(0.1)), waits_ms
    noisy = {name: ends(visits) for name, (visits, _) in seen.items()}
    waits = {name: [visit.took_s for visit in visits if visit.end != "answered"] for name, (visits, _) in seen.items()}
    print(noisy, {name: f"{statistics.mean(some):.2f} s" for name, some in waits.items()})
    close_to = tolerance(0.05)
    assert noisy["klamm"]["answered"] == pytest.approx(noisy["kafka"]["answered"], rel=close_to)
    for name, (visits, neighbours) in seen.items():
        assert noisy[name]["answered"] == pytest.approx(RATE * SECONDS, rel=close_to)
        # A request that nobody reads makes the end of the connection a reset. A wait may be over before it comes.
        assert noisy[name]["closed"] < tolerance(0.15) * noisy[name]["reset"]
        assert set(ends(neighbours)) == {"answered"}
        assert len(visits) == 3 * RATE * SECONDS
    # Kafka closes those first whose wait ends last: under a steady stream the others end late. If a busy machine makes
    # klamm late, its neighbours wait for their answers as well.
    late_s = statistics.mean(waits["klamm"]) - waits_ms["klamm"] / 1000
    assert late_s < 0.2 + 2 * statistics.mean(visit.took_s for visit in seen["klamm"][1])


def test_who_says_nothing_is_turned_away_too(brokers: Brokers) -> None:
    with address_limit(brokers, NOISY, 0):
        forget_visits()
        seen = of_both(brokers, lambda addresses: at_a_pace(addresses.slow, NOISY, 2, speaks=False))
    for name, (visits,) in seen.items():
        assert set(ends(visits)) == {"closed"}, (name, visits)
    took_s = [visit.took_s for visit in seen["klamm"][0]]
    assert min(took_s) > 0.9 and statistics.median(took_s) < 1.3 * slowness(), took_s
    assert are_closed_in_turn(seen["klamm"][0]) and not are_closed_in_turn(seen["kafka"][0])


@pytest.mark.parametrize(
    "key",
    ["listener.name.slow.max.connection.creation.rate", "max.connection.creation.rate"],
    ids=["of the listener", "of the broker"],
)
def test_a_listener_lets_all_in_at_its_rate_and_spares_the_brokers_own(brokers: Brokers, key: str) -> None:
    """The broker's rate is that of each listener without one of its own, too: its own listener gets half of that."""
    with broker_limit(brokers, key):
        forget_visits()
        seen = of_both(
            brokers,
            lambda addresses: one_after_another(addresses.slow, NOISY, CLIENTS),
            lambda addresses: at_a_pace(addresses.internal, NEIGHBOUR, RATE / 2),
        )
    # As many connect as come in a second, so what one waits says how many do.
    rates = {name: CLIENTS / statistics.mean(visit.took_s for visit in visits) for name, (visits, _) in seen.items()}
    print(rates, {name: len(visits) for name, (visits, _) in seen.items()})
    assert rates["klamm"] == pytest.approx(rates["kafka"], rel=tolerance(0.05))
    assert rates == {name: pytest.approx(RATE, rel=tolerance(0.1)) for name in brokers}
    for name, (visits, neighbours) in seen.items():
        assert set(ends(visits)) == set(ends(neighbours)) == {"answered"}, name
        assert statistics.median(neighbour.took_s for neighbour in neighbours) < 0.1 * slowness(), name


def visitor(address: str, source: str = "") -> socket.socket:
    """Connect and ask something; nobody says when it is answered."""
    host, _, port = address.rpartition(":")
    made = socket.create_connection((host, int(port)), source_address=(source, 0))
    made.sendall(HELLO)
    return made


def is_answered(visitor: socket.socket, within_s: float) -> bool:
    visitor.settimeout(within_s)
    try:
        return bool(visitor.recv(1))
    except TimeoutError:
        return False


MOST = 8
"""Connections; the controller has some of them."""


@pytest.mark.parametrize("key", ["listener.name.slow.max.connections", "max.connections"])
@pytest.mark.parametrize("listener", ["slow", "internal"])
def test_connections_beyond_the_most_wait_until_others_end(brokers: Brokers, key: str, listener: str) -> None:
    """The brokers' listener may have as many of its own as all may have together."""
    is_spared = listener == "internal" and "slow" in key
    with broker_limit(brokers, key, MOST):
        for name, addresses in brokers.items():
            visitors: list[socket.socket] = []
            answered = True
            while answered and len(visitors) <= MOST:
                visitors.append(visitor(getattr(addresses, listener)))
                answered = is_answered(visitors[-1], 2)
            if is_spared:
                assert len(visitors) == MOST + 1, name
                assert answered, name
            else:
                assert len(visitors) == MOST + 1 if "slow" in key else 1 < len(visitors) <= MOST + 1, name
                assert not answered, name
                visitors[0].close()
                assert is_answered(visitors[-1], 20), name
            for each in visitors:
                each.close()


@pytest.mark.parametrize("is_ended", [True, False], ids=["others have ended", "others are still there"])
def test_connections_that_wait_count_for_their_address_once_it_is_their_turn(brokers: Brokers, is_ended: bool) -> None:
    with broker_limit(brokers, "max.connections.per.ip.overrides", f"{NOISY}:2"):
        for name, addresses in brokers.items():
            with broker_limit(brokers, "listener.name.slow.max.connections", 2):
                first = [visitor(addresses.slow, NOISY) for _ in range(2)]
                assert all(is_answered(each, 20) for each in first), name
                late = [visitor(addresses.slow, NOISY) for _ in range(2)]
                assert not any(is_answered(each, 1) for each in late), name
                for each in first if is_ended else ():
                    each.close()
            if is_ended:
                assert all(is_answered(each, 20) for each in late), name
            for each in late if not is_ended else ():
                each.settimeout(20)
                with suppress(ConnectionResetError):
                    assert each.recv(1) == b"", name
            for each in (*first, *late):
                each.close()


def test_a_lower_number_of_connections_ends_those_of_clients(brokers: Brokers) -> None:
    for addresses in brokers.values():
        clients = [visitor(addresses.slow) for _ in range(2 * MOST)]
        assert all(is_answered(client, 20) for client in clients)
        with WireClient(addresses.internal) as broker, broker_limit(brokers, "max.connections", MOST):
            clients[0].settimeout(20)
            while clients[0].recv(65536):
                pass
            broker.ask(MetadataRequest(topics=[]), 1)
        for client in clients:
            client.close()
