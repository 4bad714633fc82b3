"""Asking many brokers many things at once, with a bounded number of requests under way. Failures become values."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager, nullcontext
from typing import TypeVar

from engine.admin.cluster.errors import AdminError, Unknown, Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.common.errors import RemoteProtocolError
from engine.common.model import NO_LEADER
from engine.common.turns import pieces_of

K = TypeVar("K")
V = TypeVar("V")

FAILURES = (AdminError, RemoteProtocolError)
"""Errors of one broker's answer that do not end the whole."""

PATIENCE_S = 5.0
"""How long to wait while coordinators and leaders move; Kafka's tool waits as long."""

ANSWER_LIMIT_S = 8.0
"""How long a broker may take for one answer while its connection is open: a frozen broker never gives one."""

SILENT_LIMIT_S = 1.0
"""The same for a broker that has missed that limit before: a command asks several questions, and one broker must not
take all its time."""

_ANSWER_SHARE, _PATIENCE_SHARE = 0.4, 0.2
"""The share of the operation's time: the other brokers' answers must appear before it is over."""

_BESIDE_LIMIT_S, _BESIDE_SHARE = 5.0, 0.2

ONLY_ANSWER_SHARE = 0.8
"""The share of the operation's time that one answer may take if nothing else is shown beside it."""

WINDOW = 4
"""Requests under way at one broker at once: it works on one while the next is on its way."""

PAUSE_S = 0.1

Part = Callable[[int, list[K]], Awaitable[Mapping[K, V | Unknown]]]
"""Asks one broker about some keys."""

Homes = Callable[[list[K]], Awaitable[Mapping[K, int | Unknown]]]
"""Says which broker to ask about which key."""


async def ask_all(
    wire: WireCluster,
    keys: Iterable[K],
    homes: Homes[K],
    ask: Part[K, V],
    *,
    batch: int,
    known: Mapping[K, int] | None = None,
    patience_s: float = PATIENCE_S,
    may_repeat: Callable[[Unknown], bool] = lambda unknown: unknown.is_passing,
    is_change: bool = False,
) -> dict[K, V | Unknown]:
    """Ask each key's broker about it, all brokers at once; ask again about those that are moving.

    Args:
        homes: says which broker to ask.
        ask: asks one broker about at most ``batch`` keys.
        known: the broker to ask first, if it is known already.
        patience_s: how long to ask again about keys with a failure that ``may_repeat`` accepts.
        is_change: the request may be carried out although no answer comes, so wait for the answer until the operation's
        time is over, and then say so.

    Both waiting and asking again end early if the operation has less time.
    """
    asked = dict.fromkeys(keys)
    results: dict[K, V | Unknown] = {}
    waiting, at_home = list(asked), dict(known or {})
    deadline = time.monotonic() + min(patience_s, wire.operation_s * _PATIENCE_SHARE)
    while waiting:
        await _find_homes(homes, waiting, at_home, results)
        by_broker: dict[int, list[K]] = {}
        for key in waiting:
            if key in at_home:
                by_broker.setdefault(at_home[key], []).append(key)
        parts = (_ask_broker(wire, b, k, ask, batch, is_change=is_change) for b, k in by_broker.items())
        for answers in await asyncio.gather(*parts):
            results.update(answers)
        # A frozen coordinator is not moving.
        waiting = [
            key
            for key in waiting
            if isinstance(why := results[key], Unknown) and may_repeat(why) and at_home.get(key) not in wire.silent
        ]
        if not waiting or time.monotonic() > deadline:
            break
        await asyncio.sleep(PAUSE_S)
        for key in waiting:
            at_home.pop(key, None)
        await _look_around(wire)
    return {key: results[key] for key in asked}


def beside_limit_s(wire: WireCluster) -> float:
    """Return how long an optional extra of an answer may take."""
    return min(_BESIDE_LIMIT_S, wire.operation_s * _BESIDE_SHARE)


def answer_limit_s(wire: WireCluster, limit_s: float = ANSWER_LIMIT_S) -> float:
    """Return how long one answer may take, given the operation's remaining time."""
    return min(limit_s, wire.operation_s * _ANSWER_SHARE)


async def run_window(jobs: Iterable[Awaitable[None]], window: int = WINDOW) -> None:
    """Await all jobs, at most ``window`` of them at once."""
    waiting = iter(jobs)

    async def worker() -> None:
        for job in waiting:
            await job

    async with asyncio.TaskGroup() as workers:
        for _ in range(window):
            workers.create_task(worker(), name="a part of the answers")


async def _find_homes(homes: Homes[K], keys: Iterable[K], at_home: dict[K, int], answers: dict[K, V | Unknown]) -> None:
    """Find the homes that are not known. A key without one gets the reason as its answer.

    If no broker answers the first time, the call fails; later that is one more reason.
    """
    homeless = [key for key in keys if key not in at_home]
    if not homeless:
        return
    try:
        located = await homes(homeless)
    except FAILURES as error:
        if not answers:
            raise
        located = dict.fromkeys(homeless, Unknown.of_error(error))
    for key, home in located.items():
        if isinstance(home, Unknown):
            answers[key] = home
        else:
            at_home[key] = home


@asynccontextmanager
async def answer_limit(wire: WireCluster, broker_id: int, limit_s: float | None = None) -> AsyncIterator[None]:
    """Limit a broker's time: a hanging broker must not use up the time for the others' answers.

    Raises:
        Unreachable: the time is over.
    """
    limit_s = answer_limit_s(wire, ANSWER_LIMIT_S if limit_s is None else limit_s)
    if broker_id in wire.silent:
        limit_s = min(limit_s, SILENT_LIMIT_S)
    try:
        async with asyncio.timeout(limit_s) as limit:
            yield
    except TimeoutError as error:
        if not limit.expired():
            raise
        silence = f"no answer within {limit_s:g} s"
        # The first time limit is reported, because later ones are shorter.
        wire.silent.setdefault(broker_id, silence)
        raise Unreachable(silence, where=f"broker {broker_id}") from error


async def _ask_broker(
    wire: WireCluster, broker_id: int, keys: list[K], ask: Part[K, V], batch: int, *, is_change: bool
) -> dict[K, V | Unknown]:
    results: dict[K, V | Unknown] = {}
    try:
        if broker_id == NO_LEADER:
            return dict.fromkeys(keys, Unknown("there is no leader"))
        # Connect once, before several requests would each open a connection.
        async with answer_limit(wire, broker_id):
            await wire.client_of(broker_id)
    except FAILURES as error:
        return dict.fromkeys(keys, Unknown.of_error(error))

    async def part(part_keys: list[K]) -> None:
        try:
            async with nullcontext() if is_change else answer_limit(wire, broker_id):
                answers = await ask(broker_id, part_keys)
            wire.silent.pop(broker_id, None)
        except FAILURES as error:
            answers = dict.fromkeys(part_keys, Unknown.of_error(error))
        for key in part_keys:
            results[key] = answers.get(key, Unknown(f"broker {broker_id} left it out of its answer"))

    await run_window(part(part_keys) for part_keys in pieces_of(keys, batch))
    return results


async def _look_around(wire: WireCluster) -> None:
    """Find out which brokers are alive now; if nobody answers, the next round says so."""
    try:
        await wire.metadata([])
    except FAILURES:
        return
