"""``klamm spark history``: reads back what ``klamm spark lag`` keeps. No Spark is started."""

from __future__ import annotations

import time
from datetime import UTC, datetime
from typing import Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.spark.shared import group
from cli.framework.invocation import Invocation
from cli.framework.option_values import seconds_option
from cli.framework.options import NEEDS_NOTHING
from cli.output.report import Report


@group.command(
    "history",
    needs=NEEDS_NOTHING,
    examples=(
        "klamm spark history /srv/lag",
        "klamm spark history /srv/lag --since 7d --slo-time-lag 5m",
        "klamm spark history s3://lake/lag --group billing --plot",
        "klamm spark history /srv/lag --at 02:00 --since 1h --partitions",
        "klamm spark history /srv/lag --compact",
    ),
)
def history(
    invocation: Invocation,
    path: Annotated[str, typer.Argument(metavar="PATH", help="The folder of klamm spark lag --out.")],
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group", metavar="G", help="A group's or query's name, or a pattern of whole names; may be repeated."
        ),
    ] = None,
    since: Annotated[str, typer.Option("--since", metavar="TIME", help="How far back: 2h, 7d.")] = "24h",
    at: Annotated[
        str | None,
        typer.Option("--at", metavar="TIME", help="How it was then: 02:00, 2026-11-21T02:00, 3h ago. Default: now."),
    ] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="A row for each partition of a reader.")] = False,
    top: Annotated[int, typer.Option("--top", metavar="N", min=1, help="How many of the worst to show.")] = 10,
    slo_lag: Annotated[
        int | None, typer.Option("--slo-lag", metavar="N", min=0, help="The most offsets behind that the SLO allows.")
    ] = None,
    slo_time_lag: Annotated[
        str | None, typer.Option("--slo-time-lag", metavar="TIME", help="The longest wait that the SLO allows.")
    ] = None,
    plot: Annotated[bool, typer.Option("--plot", help="Draw the lag over time.")] = False,
    compact: Annotated[
        bool, typer.Option("--compact", help="Merge each day's many files into a few, and end.")
    ] = False,
) -> Report:
    """Show which groups and queries were behind most, and for how many minutes they were outside an objective (SLO).

    The worst come first: by minutes outside, then by the largest lag. Without --slo-lag and --slo-time-lag a reader is
    outside while its status is STALL or worse. p95 is the lag that 95 % of the samples do not exceed. A sample stands
    for the time until the next one, at most for two intervals: times without samples do not count. --compact is safe
    while samples are taken and read: it leaves today (UTC) alone.
    """
    from cli.views.spark import compacted_report, history_report
    from engine.admin.lag.lake import Lake
    from engine.admin.lag.lake_history import Objective, read_lake

    if compact:
        from engine.admin.lag.lake_history import compact as compact_lake

        return compacted_report(compact_lake(Lake(path), time.time_ns() // 1_000_000))
    span_s = seconds_option("--since", since)
    wait_s = None if slo_time_lag is None else seconds_option("--slo-time-lag", slo_time_lag)
    objective = Objective(slo_lag, None if wait_s is None else round(wait_s * 1000))
    until_ms = _moment_ms(at)
    since_ms = until_ms - round(span_s * 1000)
    recorded = read_lake(Lake(path), since_ms, until_ms, objective, groups or (), by_partition=partitions)
    return history_report(recorded, top=top, has_plot=plot)


def _moment_ms(text: str | None) -> int:
    """Return the moment at which the history ends."""
    from engine.common.moments import HINT, moment_ms

    if text is None:
        return time.time_ns() // 1_000_000
    try:
        return moment_ms(text, now=datetime.now(UTC))
    except ValueError as error:
        raise UsageError(f"--at: {error}; write {HINT}") from None
