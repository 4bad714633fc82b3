"""How fast connections are let in (KIP-612): one by one above a listener's or the broker's rate."""

from __future__ import annotations

import asyncio
import math
from itertools import pairwise

import pytest
from event_loop import staged
from network_serving import answer_with_name, metadata_request, read_frame, run, serving
from virtual_time import in_virtual_time, run_virtual

from engine.broker.network.connection import CloseReason
from engine.broker.network.connection_rates import ADDRESSES_MAX, ConnectionRates, CreationLimits
from engine.broker.network.server import ServerLimits
from engine.common.clock import SystemClock
from engine.common.windowed_rate import Window
from engine.kafka.protocol.api_keys import ApiKey

TWO_SECONDS = Window(3, 1000)
"""Two seconds' worth of connections may come at once."""


class LoopClock:
    """The virtual time of the event loop."""

    def now_ms(self) -> int:
        return self.monotonic_ms()

    def monotonic_ms(self) -> int:
        return round(asyncio.get_running_loop().time() * 1000)


class Peer:
    """A connection, and when what happened to it."""

    def __init__(self, seen: list[tuple[str, str, float]], name: str) -> None:
        self._seen = seen
        self._name = name
        self.is_closed = False
        self.is_held = False
        self.is_let_in = False

    def hold(self) -> None:
        self.is_held = True

    def let_in(self) -> None:
        self.is_let_in = True
        self._note("in")

    def turn_away(self, after_ms: int) -> None:
        self.after_ms = after_ms
        self._note("away")

    def refuse(self, most: int) -> None:
        self._note(f"refused beyond {most}")

    def _note(self, what: str) -> None:
        self._seen.append((self._name, what, round(asyncio.get_running_loop().time(), 3)))


def arrivals(
    limits: CreationLimits, count: int, *, of_address: int | None = None, listener: str = "CLIENTS", seconds: float = 60
) -> list[tuple[str, str, float]]:
    """Let connections come all at once; return what became of them, and when."""
    seen: list[tuple[str, str, float]] = []

    async def come() -> None:
        rates = ConnectionRates(TWO_SECONDS, LoopClock(), frozenset({"BROKERS"}))
        rates.limits = limits
        begin = asyncio.get_running_loop().time()
        if of_address is not None:
            rates.limit_address("10.0.0.1", of_address)
        for number in range(count):
            rates.admit(Peer(seen, f"{number}"), listener, "10.0.0.1")
        await asyncio.sleep(seconds)
        assert rates.waiting == 0
        seen[:] = [(name, what, round(when - begin, 3)) for name, what, when in seen]

    run_virtual(come)
    return seen


def test_what_is_above_the_rate_comes_in_one_by_one_in_its_order() -> None:
    seen = arrivals(CreationLimits(broker=5), 40)
    assert [name for name, _, _ in seen] == [str(number) for number in range(40)]
    at_once = [when for _, what, when in seen if what == "in" and when == 0]
    # Two seconds' worth; the next is counted, is one too many, and has to wait.
    assert len(at_once) == 10
    assert max(after - before for (_, _, before), (_, _, after) in pairwise(seen)) <= 1
    # Forty at five a second.
    assert 5 <= seen[-1][2] <= 9


def test_the_brokers_own_listener_has_its_own_rate_only() -> None:
    assert {when for _, _, when in arrivals(CreationLimits(broker=1), 40, listener="BROKERS")} == {0}
    assert arrivals(CreationLimits(listeners={"BROKERS": 5}), 40, listener="BROKERS")[-1][2] >= 5


def test_an_address_above_its_rate_is_turned_away_and_not_counted_for_the_others() -> None:
    seen = arrivals(CreationLimits(broker=1000), 12, of_address=4)
    assert [what for _, what, _ in seen] == ["in"] * 8 + ["away"] * 4
    assert {when for _, _, when in seen} == {0}


@in_virtual_time
async def test_figures_tell_how_long_connections_waited_and_how_fast_an_address_comes() -> None:
    rates = ConnectionRates(TWO_SECONDS, LoopClock(), frozenset())
    rates.limits = CreationLimits(listeners={"SLOW": 5})
    rates.limit_address("10.0.0.1", 4)
    for number in range(12):
        rates.admit(Peer([], f"{number}"), "L", "10.0.0.1")
        rates.admit(Peer([], f"{number}"), "SLOW", "10.0.0.2")
    assert math.isnan(rates.throttle_times_ms("L")[0]) and rates.throttle_times_ms("L")[1] > 0
    assert rates.throttle_times_ms("SLOW")[0] > 0 and math.isnan(rates.throttle_times_ms("SLOW")[1])
    assert list(rates.of_addresses()) == [("10.0.0.1", 4.0)]
    # Those that an address had too many of do not count; of those that wait, the first does. Two seconds are covered.
    assert (rates.accept_rate("L"), rates.accept_rate("SLOW"), rates.accept_rate("other")) == (4.0, 5.5, 0.0)
    assert rates.accept_rate() == 9.5
    await asyncio.sleep(70)
    assert rates.accept_rate() == rates.accept_rate("SLOW") == 0.0
    assert list(rates.of_addresses()) == []
    assert math.isnan(rates.throttle_times_ms("SLOW")[0])


@in_virtual_time
async def test_what_came_just_before_a_limit_uses_some_of_it() -> None:
    rates = ConnectionRates(TWO_SECONDS, LoopClock(), frozenset())
    for number in range(8):
        rates.admit(Peer([], f"{number}"), "L", "10.0.0.1")
    await asyncio.sleep(1)
    rates.limits = CreationLimits(broker=5)
    peers = [Peer([], f"late {number}") for number in range(4)]
    for peer in peers:
        rates.admit(peer, "L", "10.0.0.1")
    assert [peer.is_held for peer in peers] == [False, False, True, True]
    await asyncio.sleep(5)
    assert rates.waiting == 0
    assert 300 <= rates.blocked_ms("L") <= 1000
    assert rates.blocked_ms("other") == 0


def test_an_address_has_its_own_limit_or_that_of_all() -> None:
    seen: list[tuple[str, str, float]] = []

    async def come() -> None:
        rates = ConnectionRates(TWO_SECONDS, LoopClock(), frozenset())
        rates.limit_address(None, 1)
        rates.limit_address("10.0.0.2", 1000)
        for number in range(4):
            rates.admit(Peer(seen, f"first {number}"), "L", "10.0.0.1")
            rates.admit(Peer(seen, f"second {number}"), "L", "10.0.0.2")
        rates.limit_address(None, None)
        rates.admit(Peer(seen, "first again"), "L", "10.0.0.1")

    run_virtual(come)
    away = [name for name, what, _ in seen if what == "away"]
    assert away == ["first 2", "first 3"]


def test_who_hung_up_while_waiting_takes_nobodys_turn() -> None:
    seen: list[tuple[str, str, float]] = []

    async def come() -> None:
        rates = ConnectionRates(TWO_SECONDS, LoopClock(), frozenset())
        rates.limits = CreationLimits(broker=1)
        peers = [Peer(seen, f"{number}") for number in range(6)]
        for peer in peers:
            rates.admit(peer, "L", "10.0.0.1")
        assert [peer.is_held for peer in peers] == [False, False, True, True, True, True]
        for peer in peers[2:5]:
            peer.is_closed = True
        await asyncio.sleep(5)
        rates.stop()

    run_virtual(come)
    assert [name for name, _, _ in seen] == ["0", "1", "5"]


@in_virtual_time
async def test_who_waits_for_room_comes_in_at_the_rate_too() -> None:
    seen: list[tuple[str, str, float]] = []
    room = 2
    rates = ConnectionRates(TWO_SECONDS, LoopClock(), frozenset(), lambda listener: rates.inside < room)
    rates.limits = CreationLimits(broker=2)
    peers = [Peer(seen, f"{number}") for number in range(7)]
    for peer in peers:
        rates.admit(peer, "L", "10.0.0.1")
    await asyncio.sleep(10)
    assert (rates.inside, rates.waiting, rates.inside_of("L"), rates.waiting_at("L")) == (2, 5, 2, 5)
    peers[2].is_closed = True
    rates.ended(peers[2], "L", "10.0.0.1")
    rates.ended(peers[0], "L", "10.0.0.1")
    rates.ended(peers[1], "L", "10.0.0.1")
    await asyncio.sleep(10)
    assert [name for name, _, _ in seen] == ["0", "1", "3", "4"]
    assert 9_000 <= rates.blocked_ms("L") <= 11_000
    room = 100
    rates.look_for_room()
    await asyncio.sleep(10)
    assert [name for name, _, _ in seen] == ["0", "1", "3", "4", "5", "6"]
    assert (rates.inside, rates.waiting, rates.inside_of("other"), rates.waiting_at("other")) == (4, 0, 0, 0)


@in_virtual_time
async def test_who_comes_to_the_front_where_there_is_no_room_waits_its_whole_time() -> None:
    """Its wait was over as soon as there was room."""
    seen: list[tuple[str, str, float]] = []
    rates = ConnectionRates(TWO_SECONDS, LoopClock(), frozenset(), lambda listener: rates.inside < 1)
    rates.limits = CreationLimits(broker=1)
    begin_s = asyncio.get_running_loop().time()
    peers = [Peer(seen, f"{number}") for number in range(4)]
    for peer in peers:
        rates.admit(peer, "L", "10.0.0.1")
    await asyncio.sleep(0.1)
    for gone in (1, 0):
        peers[gone].is_closed = True
        rates.ended(peers[gone], "L", "10.0.0.1")
    await asyncio.sleep(10)
    (_, first_s), (name, second_s) = [(name, at_s - begin_s) for name, _, at_s in seen]
    assert (name, first_s) == ("2", 0) and second_s >= 1
    rates.stop()


@in_virtual_time
async def test_a_listener_is_not_blocked_once_no_connection_waits() -> None:
    rates = ConnectionRates(TWO_SECONDS, LoopClock(), frozenset(), lambda listener: rates.inside < 1)
    peers = [Peer([], f"{number}") for number in range(3)]
    rates.admit(peers[0], "L", "10.0.0.1")
    rates.admit(peers[1], "L", "10.0.0.1")
    await asyncio.sleep(10)
    rates.ended(peers[1], "L", "10.0.0.1")
    await asyncio.sleep(1000)
    rates.ended(peers[0], "L", "10.0.0.1")
    rates.admit(peers[2], "L", "10.0.0.1")
    assert peers[2].is_let_in and rates.blocked_ms("L") == 10_000


@in_virtual_time
async def test_many_addresses_are_bounded() -> None:
    rates = ConnectionRates(TWO_SECONDS, LoopClock(), frozenset())
    rates.limit_address(None, 1)
    for number in range(2 * ADDRESSES_MAX + 5):
        if number == ADDRESSES_MAX:
            await asyncio.sleep(4)
        rates.admit(Peer([], ""), "L", f"address {number}")
    assert len(rates._addresses) <= ADDRESSES_MAX + 5


@staged(run)
async def test_a_held_connection_is_not_answered_until_it_is_let_in() -> None:
    async with serving({ApiKey.METADATA: answer_with_name}) as (server, host, port):
        server.rates = ConnectionRates(Window(1, 100), SystemClock(), frozenset())
        server.rates.limits = CreationLimits(broker=1)
        answered: list[int] = []

        async def ask(number: int) -> None:
            reader, writer = await asyncio.open_connection(host, port)
            writer.write(metadata_request("t", number))
            await read_frame(reader)
            answered.append(number)
            writer.close()

        begin = asyncio.get_running_loop().time()
        async with asyncio.TaskGroup() as group:
            for number in range(4):
                group.create_task(ask(number))
        assert sorted(answered) == [0, 1, 2, 3]
        assert asyncio.get_running_loop().time() - begin >= 0.2


@staged(run)
async def test_a_connection_from_an_address_above_its_rate_is_closed_after_its_wait() -> None:
    async with serving({ApiKey.METADATA: answer_with_name}) as (server, host, port):
        server.rates = ConnectionRates(Window(2, 200), SystemClock(), frozenset())
        server.rates.limit_address(None, 0)
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(metadata_request("t", 1))
        begin = asyncio.get_running_loop().time()
        async with asyncio.timeout(30):
            while not server.connections:
                await asyncio.sleep(0)
        (connection,) = server.connections
        # As with Kafka, its request was not read.
        with pytest.raises(ConnectionResetError):
            await reader.read()
        assert asyncio.get_running_loop().time() - begin >= 0.15
        assert connection.closed_because is CloseReason.TOO_FAST
        writer.close()


@staged(run)
async def test_a_listener_has_a_number_of_connections_of_its_own() -> None:
    async with serving({ApiKey.METADATA: answer_with_name}) as (server, host, port), asyncio.timeout(30):
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(metadata_request("t", 1))
        await read_frame(reader)
        (first,) = server.connections
        server.limits = ServerLimits(max_connections_of_listeners={first.session.listener_name: 1})
        waiting, other = await asyncio.open_connection(host, port)
        other.write(metadata_request("t", 2))
        while not server.rates.waiting:
            await asyncio.sleep(0.001)
        assert first in server.connections
        writer.close()
        await read_frame(waiting)
        other.close()


@in_virtual_time
async def test_only_connections_that_were_let_in_count_for_their_address() -> None:
    """Those that wait count for nothing yet. In Kafka the kernel has them."""
    seen: list[tuple[str, str, float]] = []
    room = 2
    rates = ConnectionRates(
        TWO_SECONDS, LoopClock(), frozenset(), lambda listener: rates.inside < room, most_from=lambda address: 2
    )
    peers = [Peer(seen, f"{number}") for number in range(5)]
    for peer in peers[:4]:
        rates.admit(peer, "L", "10.0.0.1")
    rates.admit(peers[4], "L", "10.0.0.2")
    assert [what for _, what, _ in seen] == ["in", "in"] and rates.waiting == 3
    rates.ended(peers[0], "L", "10.0.0.1")
    assert [(name, what) for name, what, _ in seen[2:]] == [("2", "in")]
    room = 3
    rates.look_for_room()
    assert [(name, what) for name, what, _ in seen[3:]] == [("3", "refused beyond 2"), ("4", "in")]
    assert (rates.inside, rates.waiting) == (3, 0)
