"""``klamm spark lag``: keeps the lag of groups and queries, sample by sample; ``history`` reads it back."""

from __future__ import annotations

import threading
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.spark.shared import SessionOptions, group, open_spark, waits_shown
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.option_values import Checkpoints, EventLogs, seconds_option
from cli.framework.options import NEEDS_NOTHING, Asks, Needs
from cli.output.report import Report
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.lag.history_sampling import Watched
    from engine.spark.lag_job import SampleTold


@group.command(
    "lag",
    needs=Needs(cluster=True, asks=Asks.CLUSTER, bounded=False),
    examples=(
        "klamm spark lag --out /srv/lag --interval 30s",
        "klamm spark lag --out s3://lake/lag --state s3a://lake/lag-state --profile prod --profile test",
        "klamm spark lag --out /srv/lag --checkpoint /srv/spark/checkpoints --master spark://head:7077",
    ),
)
def lag(
    invocation: Invocation,
    *,
    out: Annotated[
        str | None, typer.Option("--out", metavar="PATH", help="A folder for Parquet: a path, s3://, gs:// or abfs://.")
    ] = None,
    interval: Annotated[str, typer.Option("--interval", metavar="TIME", help="Time between two samples.")] = "30s",
    checkpoint: Checkpoints = None,
    event_log: EventLogs = None,
    profile: Annotated[
        list[str] | None,
        typer.Option("--profile", metavar="NAME", help="A profile to sample, instead of --cluster; may be repeated."),
    ] = None,
    time_lag: Annotated[bool, typer.Option("--time-lag", help="Read the times of unread records, too.")] = False,
    samples: Annotated[int | None, typer.Option("--samples", metavar="N", min=1, help="Stop after N samples.")] = None,
    chunks: Annotated[
        int, typer.Option("--chunks", metavar="N", min=1, max=999, help="Tasks and files per sample, for a new folder.")
    ] = 2,
    state: Annotated[
        str | None,
        typer.Option("--state", metavar="PATH", help="Where Spark records which samples are done.  [default: in PATH]"),
    ] = None,
    session: SessionOptions,
) -> ExitCode:
    """Sample the lag of all groups and of Spark queries again and again, as a Spark job, and keep it as Parquet.

    It runs until Ctrl-C. Start it again, even after a kill, and it continues in the same folder: it writes no sample
    twice, and repeats an incomplete one at once. It reports a cluster or broker that does not answer; that sample lacks
    what only that one knows. klamm spark history reads the folder.
    """
    import asyncio

    from engine.admin.lag.history_folder import Lake
    from engine.spark.lag_job import LagJob, run_lag_job

    if not out:
        raise UsageError("no place to write is given: give --out PATH")
    interval_s = seconds_option("--interval", interval)
    if interval_s < 1:
        raise UsageError("--interval must be at least a second")
    clusters = _clusters(invocation, profile, checkpoint, event_log)
    Lake(out).prepare(chunks)
    asyncio.run(_reach(clusters, invocation.timeout_s))
    job = LagJob(clusters, out, interval_s, chunks, state, time_lag, samples)

    def tell(sample: SampleTold) -> None:
        for failure in sample.failures:
            invocation.talk.warn(failure)
        counts = f"{counted(sample.group_count, 'group')}, {counted(sample.row_count, 'row')}"
        invocation.talk.say(f"sample {sample.sample}: {counts}, {sample.took_ms} ms")

    with open_spark(invocation, session, name="klamm spark lag") as spark, waits_shown(invocation) as wait:
        run_lag_job(spark, job, tell, threading.Event(), wait)
    return ExitCode.DONE


async def _reach(clusters: Sequence[Watched], timeout_s: float) -> None:
    """Raise the first cluster's error if no cluster answers, before Spark is started for nothing."""
    import asyncio

    from engine.admin.cluster.connection import Cluster
    from engine.admin.cluster.errors import AdminError

    failures: list[AdminError] = []
    for watched in clusters:
        try:
            async with asyncio.timeout(timeout_s), Cluster(watched.target, timeout_s=timeout_s) as cluster:
                await (await cluster.wire()).metadata([])
                return
        except AdminError as error:
            failures.append(error)
    raise failures[0]


def _clusters(
    invocation: Invocation, profiles: list[str] | None, checkpoints: list[str] | None, event_logs: list[str] | None
) -> list[Watched]:
    import os
    from pathlib import Path

    from engine.admin.cluster.target import Naming, resolve_target
    from engine.admin.lag.history_sampling import Watched

    if profiles:
        if checkpoints or event_logs:
            raise UsageError("with --profile the profiles say where checkpoints and event logs are")
        jaas = invocation.target_options.jaas_config
        namings = [Naming(cluster=name, jaas_config=jaas, may_jaas_idle=True) for name in dict.fromkeys(profiles)]
        targets = [resolve_target(naming, os.environ, Path.cwd()) for naming in namings]
        return [Watched(target, target.checkpoints, target.event_logs) for target in targets]
    target = invocation.target()
    return [Watched(target, tuple(checkpoints or target.checkpoints), tuple(event_logs or target.event_logs))]


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
    from engine.admin.lag.history_folder import Lake
    from engine.admin.lag.history_reading import Objective, read_lake

    if compact:
        from engine.admin.lag.history_reading import compact as compact_lake

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
