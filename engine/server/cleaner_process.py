"""A cleaning process as the broker holds it: started when first needed, given a plan, listened to, killed at will.

Killing is how a cleaning is called off: nothing of a log is changed by the process itself.
"""

from __future__ import annotations

import asyncio
import contextlib
from asyncio.subprocess import PIPE, Process
from collections.abc import AsyncGenerator, Coroutine
from typing import Any, TypeVar

from engine.runtime.own_process import module_command
from engine.storage.cleaner.messages import (
    CleaningPlan,
    Failed,
    Finished,
    Report,
    decode_report,
    encode_plan,
)

T = TypeVar("T")

_LINE_BYTES_MAX = 16 * 1024 * 1024
_COMMAND = module_command("engine.storage.cleaner.worker")


class CleanerProcessEnded(Exception):
    """The process ended without having finished; the text says how."""


class CleanerProcess:
    """At most one process, and one plan at a time."""

    def __init__(self) -> None:
        self._process: Process | None = None

    @property
    def pid(self) -> int | None:
        """The process, if there is one."""
        return None if self._process is None else self._process.pid

    async def run(self, plan: CleaningPlan) -> AsyncGenerator[Report, None]:
        """Have a plan carried out; yields each report, the last of which is ``Finished`` or ``Failed``.

        Who stops listening before must ``kill``.

        Raises:
            CleanerProcessEnded: it could not be started, was killed, or crashed.
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
            raise CleanerProcessEnded(f"it cannot be talked to: {error}") from error
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
            # A session of its own: a Ctrl-C in the terminal is for the broker, which ends this process itself.
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
                raise CleanerProcessEnded(f"it cannot be started: {error}") from error
        return self._process


async def _to_the_end(awaitable: Coroutine[Any, Any, T]) -> T:
    """Wait for what comes soon and must not be left half done, also when the waiter is cancelled."""
    work = asyncio.create_task(awaitable, name="end the cleaner's process")
    try:
        return await asyncio.shield(work)
    except asyncio.CancelledError:
        await work
        raise
