"""Sends many requests with a window of them in flight. Knows sessions, not what the requests mean."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

from engine.zk.errors import SessionLost, ZooKeeperError
from engine.zk.requests import Request
from engine.zk.session import Session

WINDOW = 1_000
"""Requests in flight at once: more gain nothing, and hold up those of others for longer."""


async def send_all(session: Session, wanted: Sequence[Request]) -> list[Any]:
    """Send all requests and return their answers in the same order; an error is a value in its place.

    Raises:
        SessionLost: the session ended before the last answer.
    """
    if not wanted:
        return []
    batch = _Batch(session, wanted)
    return await batch.run()


class _Batch:
    """One run of ``send_all``: no task per request, one future for all."""

    def __init__(self, session: Session, wanted: Sequence[Request]) -> None:
        self._session = session
        self._wanted = wanted
        self._answers: list[Any] = [None] * len(wanted)
        self._sent = 0
        self._unanswered = len(wanted)
        self._done: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def run(self) -> list[Any]:
        for _ in range(min(WINDOW, len(self._wanted))):
            self._send_next()
        await self._done
        return self._answers

    def _send_next(self) -> None:
        index = self._sent
        self._sent += 1
        self._session.submit(self._wanted[index], lambda value, error: self._take(index, value, error))

    def _take(self, index: int, value: Any, error: ZooKeeperError | None) -> None:
        if self._done.done():
            return
        if isinstance(error, SessionLost):
            self._done.set_exception(error)
            return
        self._answers[index] = value if error is None else error
        self._unanswered -= 1
        if not self._unanswered:
            self._done.set_result(None)
        elif self._sent < len(self._wanted):
            self._send_next()
