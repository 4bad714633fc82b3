"""Which brokers do not answer, although others do: told soon, and never because this machine was slow."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from event_loop import in_event_loop
from virtual_time import ManualClock

from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.watch import silence
from engine.admin.watch.silence import LOOK_MS, SILENT_MS, Listener, Silence
from engine.common.model import BrokerInfo, Endpoint, SecurityProtocol
from engine.kafka.client.errors import ConnectFailed


class _Asking:
    """Asks brokers once a second, which answer after ``took_ms``; None: not at all."""

    def __init__(self, brokers: int = 3) -> None:
        self.clock, self.silence = ManualClock(), Silence()
        self.took_ms: dict[int, int | None] = dict.fromkeys(range(brokers), 5)
        self.due: dict[int, int] = {}
        self.waits: set[int] = set()
        self.told: dict[int, int] = {}

    def run(self, ms: int) -> dict[int, int]:
        """Let time pass, in looks; return who is silent in the end, and for how long."""
        for _ in range(0, ms, LOOK_MS):
            now_ms = self.clock.monotonic_ms()
            if now_ms % 1_000 == 0:
                for broker, took_ms in self.took_ms.items():
                    if broker not in self.waits:
                        self.waits.add(broker)
                        self.silence.ask(broker, now_ms)
                        if took_ms is not None:
                            self.due[broker] = now_ms + took_ms
            self.clock.advance(LOOK_MS)
            self.answer()
            self.told = self.silence.look(self.clock.monotonic_ms())
        return self.told

    def answer(self) -> None:
        for broker in [listener for listener, at_ms in self.due.items() if at_ms <= self.clock.monotonic_ms()]:
            del self.due[broker]
            self.silence.answered(broker)
            self.waits.discard(broker)


def test_a_broker_that_does_not_answer_is_told_of_within_two_seconds_with_how_long() -> None:
    asking = _Asking()
    assert asking.run(5_000) == {}
    asking.took_ms[1] = None
    assert asking.run(SILENT_MS - LOOK_MS) == {}
    assert asking.run(3 * LOOK_MS).keys() == {1}
    assert asking.run(3_000) == {1: SILENT_MS + 3_000 + 2 * LOOK_MS}
    asking.due[1] = asking.clock.monotonic_ms()
    assert asking.run(LOOK_MS) == {}, "it answers again"


def test_nobody_is_silent_while_nobody_answers() -> None:
    """Then it is most likely this machine, or the way to all of them: the link says so."""
    asking = _Asking()
    asking.run(3_000)
    asking.took_ms = dict.fromkeys(asking.took_ms)
    assert asking.run(20_000) == {}


@pytest.mark.parametrize("out_ms", [1_900, 3_900, 20_900])
@pytest.mark.parametrize("comes_back", [True, False])
def test_after_a_time_in_which_nobody_was_heard_answers_need_not_come_together(out_ms: int, comes_back: bool) -> None:
    """Each connection repeats at times of its own what was lost."""
    asking = _Asking()
    asking.run(5_000)
    asking.took_ms = dict.fromkeys(asking.took_ms)
    asking.run(out_ms)
    asking.took_ms = {0: 5, 1: 5, 2: 5 if comes_back else None}
    back_ms = asking.clock.monotonic_ms()
    asking.due = {0: back_ms, 1: back_ms}
    if comes_back:
        asking.due[2] = back_ms + 900
    silence = [silence for _ in range(40) if (silence := asking.run(LOOK_MS))]
    if comes_back:
        assert silence == []
    else:
        assert asking.told == {2: out_ms + 4_000}, "it has not answered since before"


def test_time_in_which_this_process_did_not_run_does_not_count() -> None:
    asking = _Asking()
    asking.took_ms[1] = 300
    asking.run(4_000)
    asking.run(LOOK_MS)
    asking.clock.advance(30_000)
    assert asking.silence.look(asking.clock.monotonic_ms()) == {}, "its answer may be there, unread"
    asking.answer()
    assert asking.silence.look(asking.clock.monotonic_ms()) == {}


def test_time_without_looks_is_no_time_in_which_a_slow_broker_could_have_answered() -> None:
    asking = _Asking()
    asking.took_ms[1] = 1_500
    asking.run(10_000)
    asking.run(1_200)
    asking.clock.advance(30_000)
    assert asking.silence.look(asking.clock.monotonic_ms()) == {}, "others have answered later questions before"


def test_where_all_brokers_are_slow_more_patience_is_due() -> None:
    asking = _Asking()
    asking.took_ms = {0: 600, 1: 700, 2: 600}
    assert asking.run(10_000) == {}
    asking.took_ms[1] = None
    assert asking.run(1_500) == {}, "three times as long as the others take is no news"
    assert asking.run(1_500).keys() == {1}


@pytest.mark.parametrize("brokers", [2, 3, 30])
def test_a_broker_that_always_takes_long_is_soon_given_the_time_among_however_many(brokers: int) -> None:
    asking = _Asking(brokers)
    asking.took_ms[1] = 1_900
    asking.run(5_000)
    assert [silence for _ in range(200) if (silence := asking.run(LOOK_MS))] == []


def test_a_broker_that_is_gone_is_not_silent() -> None:
    asking = _Asking()
    asking.run(2_000)
    asking.took_ms[1] = None
    assert asking.run(3_000).keys() == {1}
    asking.silence.forget(1)
    del asking.took_ms[1]
    assert asking.run(LOOK_MS) == {}


def test_what_a_broker_answered_that_is_gone_does_not_count() -> None:
    asking = _Asking(2)
    asking.run(2_000)
    asking.took_ms[1] = None
    assert asking.run(3_000).keys() == {1}
    asking.silence.forget(0)
    del asking.took_ms[0]
    assert asking.run(LOOK_MS) == {}, "nobody else answers"


def test_only_the_answer_to_a_later_question_shows_that_others_answer() -> None:
    asking = _Asking()
    asking.run(2_000)
    asking.took_ms[1] = None
    asking.run(LOOK_MS)
    asking.took_ms = dict.fromkeys(asking.took_ms)
    assert asking.run(10_000) == {}, "from then on nobody does"


class _Client:
    """A connection to a broker. Port 1 answers; others fail after so many milliseconds of the clock."""

    clock = ManualClock()
    open_ones: set[_Client]
    questions: int

    def __init__(self, host: str, port: int, **options: Any) -> None:
        self.host, self.port = host, port

    async def connect(self) -> None:
        self.open_ones.add(self)
        until_ms = self.clock.monotonic_ms() + self.port
        while self.port > 1:
            if self.clock.monotonic_ms() >= until_ms:
                raise ConnectFailed("no route to host", address=self.host) from OSError()
            await asyncio.sleep(0)

    async def send(self, request: object, version: int) -> None:
        self.open_ones.add(self)
        _Client.questions += 1

    async def close(self) -> None:
        self.open_ones.discard(self)


def _broker(broker: int, port: int, protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT) -> BrokerInfo:
    return BrokerInfo(broker, (Endpoint(f"k{broker}", port, protocol.name, protocol),), None)


class _Listening:
    """A listener whose looks follow each other as in a feed."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        monkeypatch.setattr(silence, "BrokerClient", _Client)
        _Client.clock, _Client.open_ones = ManualClock(), set()
        _Client.questions = 0
        self.listener = Listener(ClientProperties(), _Client.clock)

    async def looks(self, ms: int, *brokers: BrokerInfo) -> list[dict[int, int]]:
        silences = []
        for _ in range(0, ms, LOOK_MS):
            silences.append(await self.listener.look(brokers))
            await asyncio.sleep(0.001)
            _Client.clock.advance(LOOK_MS)
        return silences


@in_event_loop
async def test_a_machine_that_is_off_is_silent_all_the_time_and_a_closed_port_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listening = _Listening(monkeypatch)
    silences = await listening.looks(20_000, _broker(0, 1), _broker(1, 3_000), _broker(2, 2))
    assert _Client.questions == 20, "one a second"
    assert {client.host for client in _Client.open_ones} <= {"k0", "k1"}, "what failed is closed"
    assert all(answer.keys() == {1} for answer in silences[SILENT_MS // LOOK_MS + 2 :])
    await listening.listener.close()
    assert not _Client.open_ones and len(asyncio.all_tasks()) == 1


@in_event_loop
async def test_who_goes_or_listens_elsewhere_is_left_and_who_cannot_be_asked_is_not(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    listening = _Listening(monkeypatch)
    others = _broker(0, 1), _broker(3, 9_092, SecurityProtocol.SSL)
    assert (await listening.looks(4_000, *others, _broker(1, 9_000), _broker(2, 9_000)))[-1].keys() == {1, 2}
    assert (await listening.looks(2_000, *others, _broker(1, 1)))[-1] == {}
    assert {(client.host, client.port) for client in _Client.open_ones} == {("k0", 1), ("k1", 1)}
    await listening.listener.close()
    assert not _Client.open_ones and len(asyncio.all_tasks()) == 1
