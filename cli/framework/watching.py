"""``--watch``: prints a report repeatedly. On a terminal each report replaces the previous one. Ctrl-C ends it."""

from __future__ import annotations

import sys
from collections.abc import Awaitable, Callable
from typing import Annotated, NoReturn

import typer

from cli.framework.invocation import Invocation
from cli.framework.option_values import seconds_option
from cli.output.format import OutputFormat, is_terminal
from cli.output.report import Report

Watch = Annotated[bool, typer.Option("--watch", help="Repeat every --interval until Ctrl-C.")]
Interval = Annotated[str, typer.Option("--interval", metavar="TIME", help="Time between two refreshes: 2s, 1m.")]


async def watch_reports(invocation: Invocation, interval: str, read: Callable[[], Awaitable[Report]]) -> NoReturn:
    """Print what ``read`` returns, every interval. Only the first read must succeed; later failures may pass.

    Raises:
        UsageError: the interval is not a duration.
    """
    from engine.admin.cluster.errors import Unreachable

    interval_s = seconds_option("--interval", interval)
    has_report = False
    while True:
        try:
            report = await read()
        except (Unreachable, TimeoutError) as error:
            if not has_report:
                raise
            invocation.tell_failures([error])
        else:
            has_report = True
            print_anew(invocation, report)
        await _rest(invocation, interval_s)


def print_anew(invocation: Invocation, report: Report) -> None:
    """Print a report; on a terminal a table takes the place of what stood there."""
    if is_terminal(sys.stdout) and invocation.output is OutputFormat.TABLE:
        sys.stdout.write("\x1b[H\x1b[2J")
    invocation.print(report)
    invocation.is_ended_by_interrupt = True


async def _rest(invocation: Invocation, interval_s: float) -> None:
    """Wait; the time-out bounds each look, not how long somebody watches."""
    import asyncio

    left_s = interval_s
    while left_s > 0:
        invocation.restart_deadline()
        step_s = min(left_s, invocation.timeout_s / 2)
        await asyncio.sleep(step_s)
        left_s -= step_s
    invocation.restart_deadline()
