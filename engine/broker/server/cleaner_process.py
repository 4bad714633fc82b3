"""The broker's handle on a cleaning process: starts it on first need, sends it plans, reads its reports, kills it.

Killing it cancels a cleaning: the process itself changes nothing in a log.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from engine.broker.log.cleaner.messages import (
    CleaningPlan,
    Failed,
    Finished,
    Report,
    decode_report,
    encode_plan,
)
from engine.runtime.own_process import module_command

T = TypeVar("T")

_LINE_BYTES_MAX = 16 * 1024 * 1024
_COMMAND = module_command("engine.broker.log.cleaner.worker")


class CleanerProcessEnded(Exception):
    """The process ended before it had finished; the text says how."""


class CleanerProcess:
    """At most one process, and one plan at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The process id, if there is a process."""
        return None if self._process is None else self._process.pid

    async def run(self, plan: CleaningPlan) -> AsyncGenerator[Report, None]:
        """Carry out a plan and yield each report; the last one is ``Finished`` or ``Failed``.

        A caller that stops before the last report must ``kill``.

        Raises:
            CleanerProcessEnded: it did not start, was killed, or crashed.
        """
        process = await self._started()
        assert process.stdin is not None
        assert process.stdout is not None
        try:
            process.stdin.write(encode_plan(plan))
            await process.stdin.drain()
            while line := await process.stdout.readline():
                report = decode_report(line)
                yield report
                if isinstance(report, Finished | Failed):
                    return
        except (OSError, ValueError) as error:
            await self.kill()
            raise CleanerProcessEnded(f"cannot talk to it: {error}") from error
        code = await _to_the_end(process.wait())
        await self.kill()
        raise CleanerProcessEnded(f"killed by signal {-code}" if code < 0 else f"ended with exit code {code}")

    async def kill(self) -> None:
        """End the process, if there is one, and wait until it is gone: from then on it writes nothing."""
        process, self._process = self._process, None
        if process is None:
            return
        with contextlib.suppress(ProcessLookupError):
            process.kill()
        await _to_the_end(process.communicate())

    async def _started(self) -> Process:
        if self._process is None:
            # Its own session: a Ctrl-C in the terminal is for the broker, which ends this process itself.
            starting = asyncio.create_task(
                asyncio.create_subprocess_exec(
                    *_COMMAND, stdin=PIPE, stdout=PIPE, start_new_session=True, limit=_LINE_BYTES_MAX
                ),
                name="start the cleaner's process",
            )
            try:
                self._process = await asyncio.shield(starting)
            except asyncio.CancelledError:
                with contextlib.suppress(OSError):
                    self._process = await starting  # for ``kill`` to find it
                raise
            except OSError as error:
                raise CleanerProcessEnded(f"cannot start it: {error}") from error
        return self._process


async def _to_the_end(awaitable: Coroutine[Any, Any, T]) -> T:
    """Wait for short work that must not stay half done, even if the waiter is cancelled."""
    work = asyncio.create_task(awaitable, name="end the cleaner's process")
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await work
        raise
