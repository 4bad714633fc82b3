"""Lets a separate process make a plan: the dashboard keeps drawing, and cancelling ends the process."""

from __future__ import annotations

import asyncio
import pickle
from collections.abc import Callable
from contextlib import suppress

from engine.common.errors import OperationError
from engine.common.snapshot import ClusterSnapshot
from engine.common.snapshot_json import snapshot_to_json
from engine.runtime.own_process import module_command
from plans.errors import PlanError
from plans.options import PlanOptions, Strategy
from plans.plan_file import MadePlan
from plans.solver_process import LENGTH_BYTES, Request


async def solve_apart(
    snapshot: ClusterSnapshot, strategy: Strategy, options: PlanOptions, progress: Callable[[str], None]
) -> MadePlan:
    """Return the plan that ``make_plan`` makes.

    Raises:
        PlanError: there is none, or an option is wrong.
        OperationError: the process ended without an answer.
    """
    # A large cluster takes a moment to encode; nothing changes it meanwhile.
    text = await asyncio.to_thread(snapshot_to_json, snapshot)
    pipe = asyncio.subprocess.PIPE
    command = module_command("plans.solver_process")
    process = await asyncio.create_subprocess_exec(*command, stdin=pipe, stdout=pipe, stderr=pipe)
    try:
        answer, complaint = await asyncio.gather(
            _answer(process, pickle.dumps(Request(text, strategy, options)), progress), _errors(process)
        )
        await process.wait()
    finally:
        if process.returncode is None:
            process.kill()
            await process.wait()
    if isinstance(answer, PlanError):
        raise answer
    if isinstance(answer, MadePlan):
        return answer
    raise OperationError(f"the planner ended without a plan: {complaint or process.returncode}")


async def _answer(process: asyncio.subprocess.Process, request: bytes, progress: Callable[[str], None]) -> object:
    """Send the request, report progress, and return the plan or the error; None if the process ended before."""
    assert process.stdin is not None
    assert process.stdout is not None
    with suppress(BrokenPipeError, ConnectionResetError):
        process.stdin.write(request)
        await process.stdin.drain()
    process.stdin.close()
    try:
        while True:
            length = int.from_bytes(await process.stdout.readexactly(LENGTH_BYTES))
            # The plan of a large cluster takes a moment to decode.
            value = await asyncio.to_thread(pickle.loads, await process.stdout.readexactly(length))
            if not isinstance(value, str):
                return value
            progress(value)
    except asyncio.IncompleteReadError:
        return None


async def _errors(process: asyncio.subprocess.Process) -> str:
    """Return the last line that the process wrote to stderr."""
    assert process.stderr is not None
    lines = (await process.stderr.read()).decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else ""
