"""``klamm lag``: is anybody behind?"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import single_command
from cli.framework.invocation import Invocation
from cli.framework.option_values import Checkpoints, EventLogs, address_option, isolation_option, seconds_option
from cli.framework.options import Asks, Needs
from cli.output.report import Report
from engine.common.quantities import counted

if TYPE_CHECKING:
    from cli.commands.exporter import Page
    from engine.admin.cluster.connection import Cluster
    from engine.admin.lag.group_lag import LagAnswer
    from engine.admin.lag.measuring import LagMeter
    from engine.admin.lag.spark_traces import QueryTraces
    from engine.admin.lag.stores import OtherStore
    from engine.admin.lag.verdicts import LagStatus
    from engine.admin.topics.selection import TopicSelection

_LOOKS = 3
_FAIL_ON = ("stall", "warn", "unknown")


OnlyTopics = Annotated[
    list[str] | None,
    typer.Option("--topic", metavar="REGEX", help="Only these topics: names or patterns; may be repeated."),
]
SampleCount = Annotated[
    int | None,
    typer.Option("--samples", metavar="N", min=1, help="How many samples to take.  [default: 1, or 3 if a group lags]"),
]
ServeAt = Annotated[
    str | None, typer.Option("--serve", metavar="[HOST]:PORT", help="Serve metrics to Prometheus there, until Ctrl-C.")
]
HistoryFile = Annotated[
    Path | None,
    typer.Option("--history", metavar="FILE", help="Keep samples in this file, and use those of earlier runs."),
]
Isolation = Annotated[
    str,
    typer.Option("--isolation", metavar="LEVEL", help="read-committed: measure lag up to the first open transaction."),
]
FailOn = Annotated[
    str,
    typer.Option("--fail-on", metavar="stall|warn|unknown", help="The least severe status that makes the exit code 1."),
]
GroupIds = Annotated[
    list[str] | None,
    typer.Option("--group", metavar="G", help="A group's id, or a pattern of whole ids; may be repeated."),
]
SampleInterval = Annotated[str, typer.Option("--interval", metavar="TIME", help="Time between two samples: 30s, 2m.")]


@single_command(
    "lag",
    needs=Needs(cluster=True, asks=Asks.CLUSTER, bounded=False, metrics=True),
    examples=(
        "klamm lag",
        "klamm lag --checkpoint 's3://lake/checkpoints/*' --event-log /srv/spark/events",
        "klamm lag --group billing --partitions",
        "klamm lag --topic 'orders.*' --watch",
        "klamm lag --serve :9308 --interval 30s",
        "klamm lag --samples 1 --history /var/lib/klamm/lag.jsonl --fail-on warn",
        "klamm lag -o json | jq '.[] | select(.status != \"OK\") | {group, status, where, time_lag_ms}'",
    ),
)
async def command(
    invocation: Invocation,
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Group ids.  [default: all]")] = None,
    group: GroupIds = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="All groups; this is the default.")] = False,
    checkpoint: Checkpoints = None,
    event_log: EventLogs = None,
    topic: OnlyTopics = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="Show every partition.")] = False,
    not_ok: Annotated[bool, typer.Option("--not-ok", help="Hide what is OK.")] = False,
    interval: SampleInterval = "5s",
    samples: SampleCount = None,
    watch: Annotated[bool, typer.Option("--watch", help="Report again after every interval, until Ctrl-C.")] = False,
    serve: ServeAt = None,
    history: HistoryFile = None,
    no_time_lag: Annotated[bool, typer.Option("--no-time-lag", help="Do not read the times of records.")] = False,
    isolation: Isolation = "read-uncommitted",
    fail_on: FailOn = "stall",
) -> Report | None:
    """Show which groups and Spark queries are behind, by how much, for how long, and whether they catch up.

    The status follows from rules, not from thresholds. OK: keeps up. WARN: moves, but the lag never falls. STALL: has
    members but does not move. STOP: records wait and nobody reads them. REWIND: went back, or is beyond the end of the
    log. UNKNOWN: nothing committed, no leader, too few samples, only aborted records unread, or a reader that rarely
    commits and is not late compared with its own last commits. Markers of transactions have offsets, so they count as
    lag; but a reader with nothing else to read is OK. A group without lag needs one sample, other groups need several.
    --interval times --samples should be longer than twice the time between two commits. Of a Spark query, which keeps
    its own history, the last sample counts.

    Spark queries commit nothing; their checkpoints and event logs show where they are. --checkpoint and --event-log
    report only those queries; add --group or --all-groups to report groups too. Without any of these options, lag
    reports all groups and the queries that the profile names. RUNNING: a batch runs, and the lag does not grow. BEHIND:
    the lag never falls. STUCK: a batch runs for far too long. STOP: no batch runs, and the next one is late. DATA_LOSS:
    records were deleted before the query read them. AHEAD: beyond the end of the log.

    Exits with 1 if one is STALL, STUCK, STOP, DATA_LOSS, AHEAD or REWIND.
    """
    from cli.framework.cluster_session import open_cluster
    from engine.admin.groups.scope import GroupScope, note_hidden_groups, scope_of
    from engine.admin.lag.measuring import LagMeter, LagOptions
    from engine.admin.topics.selection import select_topics

    interval_s = seconds_option("--interval", interval)
    fails_on = _fails_on(fail_on)
    listen = None if serve is None else address_option("--serve", serve)
    if watch and serve is not None:
        raise UsageError("give one of --watch and --serve")
    if samples is not None and (watch or serve is not None):
        raise UsageError("--watch and --serve go on until Ctrl-C: leave out --samples")
    named = [*(groups or ()), *(group or ())]
    scope = scope_of(named, is_all=all_groups) if named or all_groups else GroupScope()
    are_groups_told = bool(named or all_groups or not (checkpoint or event_log))
    topics = select_topics(topic or [])
    options = LagOptions(
        interval_s,
        1 if watch or listen else samples or _LOOKS,
        looks_are_fixed=samples is not None,
        with_times=not no_time_lag,
        history=history,
        isolation=isolation_option(isolation),
    )
    view = _View(invocation, topics, fails_on, partitions, not_ok, are_named=bool(named))
    async with open_cluster(invocation) as cluster, _stores(invocation) as others:
        traces = _traces(cluster, checkpoint, event_log, others, is_plain=not named and not all_groups)
        if are_groups_told:
            await note_hidden_groups(cluster, scope)
        meter = LagMeter(cluster, scope if are_groups_told else None, _is_meant(topics), options, traces)
        if listen is not None:
            from cli.commands.exporter import serve as serve_pages

            how_often = f"updated every {interval_s:g} s"
            await serve_pages(invocation, "--serve", listen, how_often, _pages(meter, view, interval_s))
        if watch:
            await _watch(meter, view, interval_s)
        return await view.report(cluster, await _measure(invocation, meter, interval_s, options.looks_max))


def _is_meant(topics: TopicSelection) -> Callable[[str], bool]:
    return lambda name: topics.is_all or bool(topics.choose([name]))


def _traces(
    cluster: Cluster, checkpoints: list[str] | None, event_logs: list[str] | None, others: OtherStore, *, is_plain: bool
) -> QueryTraces | None:
    """Return the places that options name; if they name none and no group, those of the profile."""
    from engine.admin.lag.spark_traces import QueryTraces

    if checkpoints or event_logs:
        return QueryTraces(tuple(checkpoints or ()), tuple(event_logs or ()), others)
    traces = QueryTraces(cluster.target.checkpoints, cluster.target.event_logs, others)
    return traces if is_plain and not traces.is_empty else None


@asynccontextmanager
async def _stores(invocation: Invocation) -> AsyncIterator[OtherStore]:
    from cli.commands.spark.stores import other_stores

    with other_stores(invocation) as others:
        yield others


class _View:
    """Which parts of an answer to show."""

    def __init__(
        self,
        invocation: Invocation,
        topics: TopicSelection,
        fails_on: LagStatus,
        has_partitions: bool,
        is_not_ok: bool,
        *,
        are_named: bool,
    ) -> None:
        self.invocation = invocation
        self._topics = topics
        self._are_named, self._keeps_all = are_named, are_named or topics.is_all
        self._fails_on = fails_on
        self._has_partitions = has_partitions
        self._is_not_ok = is_not_ok

    async def report(self, cluster: Cluster, answer: LagAnswer) -> Report:
        """Show the failures and return the report."""
        from engine.admin.lag.measuring import absent_topics
        from engine.admin.lag.verdicts import Reason
        from engine.admin.log_dirs.describing import note_topics_left_out

        if any(group.reason is Reason.NO_OFFSETS_SHOWN for group in answer.groups):
            await note_topics_left_out(cluster, ())
        absent = await absent_topics(cluster, self._topics, answer)
        report = self.draw(answer)
        tell = self.invocation.tell_failures if self._are_named else self.invocation.tell_failures_but_hidden
        code = tell(answer.failures)
        return report.ending(self.invocation.tell_failures(absent, otherwise=code))

    def draw(self, answer: LagAnswer) -> Report:
        """Return the report of an answer, without groups that were not named and never read the topics."""
        from cli.views.lag import lag_report

        if not self._keeps_all:
            kept = tuple(group for group in answer.groups if group.partition_count or group.error is not None)
            answer = replace(answer, groups=kept)
        return lag_report(
            answer, fails_on=self._fails_on, has_partitions=self._has_partitions, is_not_ok=self._is_not_ok
        )


async def _measure(invocation: Invocation, meter: LagMeter, interval_s: float, looks_max: int) -> LagAnswer:
    from cli.framework.progress import Countdown
    from engine.common.listing import first_few

    with Countdown(invocation.talk) as countdown:

        def on_look(looks: int, groups: int, queries: int) -> None:
            if (groups or queries) and looks < looks_max:
                watched = [counted(groups, "group")] if groups else []
                watched += [counted(queries, "Spark query")] if queries else []
                more = "; --samples 1 does not watch" if looks == 1 else ""
                countdown.restart(f"watching {' and '.join(watched)}", (looks_max - looks) * interval_s, more)

        answer, complaints = await meter.measure(on_look)
    for complaint in complaints:
        invocation.talk.warn(complaint)
    if meter.others:
        invocation.talk.say(f"groups of other protocols are not measured: {first_few(meter.others)}")
    return answer


async def _pages(meter: LagMeter, view: _View, interval_s: float) -> AsyncIterator[Page]:
    """Yield the pages of ``--serve``, which the server of ``klamm exporter`` shows."""
    from cli.commands.exporter import Page
    from engine.admin.cluster.errors import Unreachable
    from engine.admin.lag.measuring import watch_lag
    from engine.common.metric import Metric

    def up(value: float) -> Metric:
        return Metric("klamm_cluster_up", "1 while the cluster answers.", [({}, value)])

    async for answer in watch_lag(meter, interval_s):
        if isinstance(answer, Unreachable):
            yield Page(lambda: [up(0)], f"{answer}: {answer.where}" if answer.where else str(answer))
        else:
            view.invocation.tell_failures(answer[0].failures)
            metrics = [up(1), *view.draw(answer[0]).metrics]
            yield Page(lambda metrics=metrics: metrics)  # type: ignore[misc]


async def _watch(meter: LagMeter, view: _View, interval_s: float) -> None:
    """Report repeatedly; on a terminal each report replaces the one before. Only Ctrl-C ends it."""
    from cli.framework.watching import print_anew
    from engine.admin.cluster.errors import Unreachable
    from engine.admin.lag.measuring import watch_lag

    async for reading in watch_lag(meter, interval_s):
        if isinstance(reading, Unreachable):
            view.invocation.tell_failures([reading])
            continue
        answer, complaints = reading
        for complaint in complaints:
            view.invocation.talk.warn(complaint)
        report = view.draw(answer)
        view.invocation.tell_failures(answer.failures)
        print_anew(view.invocation, report)


def _fails_on(word: str) -> LagStatus:
    from engine.admin.lag.verdicts import LagStatus

    if word not in _FAIL_ON:
        raise UsageError(f"--fail-on must be stall, warn or unknown, not {word!r}")
    return LagStatus(word.upper())
