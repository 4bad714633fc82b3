"""Sends many requests with a window in flight. It knows sessions, but not what the requests mean.

It builds requests and converts answers one by one as the window moves, so that tens of thousands of them never block
the event loop for long.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from functools import partial
from itertools import islice
from typing import Any

from engine.kafka.zk.errors import ConnectionLost, SessionLost, ZooKeeperError
from engine.kafka.zk.requests import Request
from engine.kafka.zk.session import Session

WINDOW = 1_000
"""Maximum requests in flight: more would gain nothing and would delay other callers' requests for longer."""

_SENT_PER_TURN = 100
"""Requests built in one go while the window fills; they take a millisecond or two."""

Convert = Callable[[int, Any], Any]
"""Turns an answer, or an error other than ConnectionLost, into what the caller wants; also receives its position."""


async def send_all(session: Session, wanted: Iterable[Request], convert: Convert | None = None) -> list[Any]:
    """Send all requests and return their answers in the same order; errors are values in the result.

    Args:
        convert: applied to each answer as it arrives; ConnectionLost stays as it is.

    Raises:
        SessionLost: the session ended before the last answer.
    """
    return await _Batch(session, wanted, convert).run()


class _Batch:
    """One run of ``send_all``, with one future for all instead of a task per request."""

    def __init__(self, session: Session, wanted: Iterable[Request], convert: Convert | None) -> None:
        self._session = session
        self._wanted = iter(wanted)
        self._convert = convert
        self._answers: list[Any] = []
        self._unanswered = 0
        self._is_all_sent = False
        self._done: asyncio.Future[None] = session.loop.create_future()

    async def run(self) -> list[Any]:
        self._fill_window()
        await self._done
        return self._answers

    def _fill_window(self) -> None:
        if self._done.done():
            return
        self._send(min(_SENT_PER_TURN, WINDOW - self._unanswered))
        if not self._is_all_sent and self._unanswered < WINDOW:
            self._session.loop.call_soon(self._fill_window)

    def _send(self, count: int) -> None:
        sent = 0
        try:
            for request in islice(self._wanted, count):
                self._session.submit(request, partial(self._take, len(self._answers)))
                self._answers.append(None)
                self._unanswered += 1
                sent += 1
        except Exception as failure:
            # The caller's code builds the requests: if it fails, the call fails.
            self._fail(failure)
            return
        if sent < count:
            self._is_all_sent = True
            self._finish_if_answered()

    def _take(self, index: int, value: Any, error: ZooKeeperError | None) -> None:
        if self._done.done():
            return
        if isinstance(error, SessionLost):
            self._fail(error)
            return
        answer = value if error is None else error
        if self._convert is not None and not isinstance(answer, ConnectionLost):
            try:
                answer = self._convert(index, answer)
            except Exception as failure:
                self._fail(failure)
                return
        self._answers[index] = answer
        self._unanswered -= 1
        if not self._is_all_sent:
            self._send(1)
        self._finish_if_answered()

    def _finish_if_answered(self) -> None:
        if self._is_all_sent and not self._unanswered and not self._done.done():
            self._done.set_result(None)

    def _fail(self, error: Exception) -> None:
        if not self._done.done():
            self._done.set_exception(error)
