"""Measures lag repeatedly, for as long as somebody wants to see it."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from dataclasses import replace

from engine.admin.cluster.errors import Unreachable
from engine.admin.lag.measuring import LagMeter
from engine.admin.lag.paces import Paces
from engine.admin.lag.results import LagAnswer

Told = tuple[LagAnswer, list[str]] | Unreachable
"""An answer with complaints about the history, or why there is no answer this time."""


async def watch_lag(meter: LagMeter, interval_s: float) -> AsyncGenerator[Told, None]:
    """Yield an answer, or why there is none, every interval without end.

    Rates do not count what groups that have stopped read before.

    Raises:
        AdminError: nothing could ever be read. A cluster that answered once may come back.
    """
    loop = asyncio.get_running_loop()
    has_answer = False
    paces = Paces()
    while True:
        started = loop.time()
        try:
            answer = await meter.measure()
        except Unreachable as error:
            if not has_answer:
                raise
            yield error
        else:
            has_answer = True
            measured, complaints = answer
            at_ms = round(measured.time.timestamp() * 1000)
            yield replace(measured, groups=paces.take(measured.groups, at_ms)), complaints
        await asyncio.sleep(max(0.0, started + interval_s - loop.time()))
