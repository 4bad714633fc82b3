"""``klamm lag``: is anybody behind?"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import single_command
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.lag.measuring import LagMeter
    from engine.admin.lag.results import LagAnswer
    from engine.admin.lag.rules import LagStatus
    from engine.admin.topics.selection import TopicSelection
    from engine.common.model import IsolationLevel

_LOOKS = 3
_FAIL_ON = ("stall", "warn", "unknown")


@single_command(
    "lag",
    needs=Needs(cluster=True, bounded=False),
    examples=(
        "klamm lag",
        "klamm lag --group billing --partitions",
        "klamm lag --samples 1 --history /var/lib/klamm/lag.jsonl --fail-on warn",
        "klamm lag -o json | jq '.[] | select(.status != \"OK\") | {group, status, where, time_lag_ms}'",
    ),
)
async def command(
    invocation: Invocation,
    groups: Annotated[list[str] | None, typer.Argument(metavar="GROUP", help="Ids of groups. All if none.")] = None,
    group: Annotated[
        list[str] | None, typer.Option("--group", metavar="G", help="A group's id; may be repeated.")
    ] = None,
    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every group; so it is by default.")] = False,
    topic: Annotated[
        list[str] | None,
        typer.Option("--topic", metavar="REGEX", help="Only these topics: names or patterns; may be repeated."),
    ] = None,
    partitions: Annotated[bool, typer.Option("--partitions", help="Tell of every partition.")] = False,
    not_ok: Annotated[bool, typer.Option("--not-ok", help="Leave out what is OK.")] = False,
    interval: Annotated[float, typer.Option("--interval", metavar="SECONDS", help="Between two looks.")] = 5.0,
    samples: Annotated[
        int | None,
        typer.Option("--samples", metavar="N", min=1, help="Look so often.  [default: 1, or 3 if a group lags]"),
    ] = None,
    watch: Annotated[bool, typer.Option("--watch", help="Tell again after every interval, until Ctrl-C.")] = False,
    history: Annotated[
        Path | None,
        typer.Option("--history", metavar="FILE", help="Keep samples there; use those of earlier runs."),
    ] = None,
    no_time_lag: Annotated[bool, typer.Option("--no-time-lag", help="Do not read the times of records.")] = False,
    isolation: Annotated[
        str,
        typer.Option("--isolation", metavar="LEVEL", help="read-committed: up to open transactions."),
    ] = "read-uncommitted",
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="stall|warn|unknown", help="What makes the exit code 1.")
    ] = "stall",
) -> Report | None:
    """Say which groups are behind, by how much, for how long, and whether that gets better.

    The status follows from rules, not from thresholds. OK: keeps up. WARN: moves, but the lag never falls. STALL: has
    members and stands still. STOP: nobody reads, and records wait. REWIND: went back, or is beyond the end of the log.
    UNKNOWN: nothing committed, no leader, too few samples to tell, or a reader that commits seldom and is not late by
    its own last commits. Groups whose lag is zero need one look, others some: make interval times samples longer than
    twice the time between two commits. Ends with 1 if a group is STALL, STOP or REWIND.
    """
    from cli.framework.cluster_session import open_cluster
    from engine.admin.groups.scope import GroupScope, scope_of
    from engine.admin.lag.measuring import LagMeter, LagOptions
    from engine.admin.topics.selection import select_topics

    if not interval > 0:
        raise UsageError("--interval wants a number of seconds above 0")
    fails_on = _fails_on(fail_on)
    named = [*(groups or ()), *(group or ())]
    scope = scope_of(named, is_all=all_groups) if named or all_groups else GroupScope()
    topics = select_topics(topic or [])
    options = LagOptions(
        interval,
        1 if watch else samples or _LOOKS,
        looks_are_fixed=samples is not None,
        with_times=not no_time_lag,
        history=history,
        isolation=_isolation(isolation),
    )
    view = _View(invocation, topics, fails_on, partitions, not_ok)
    async with open_cluster(invocation) as cluster:
        meter = LagMeter(cluster, scope, lambda name: topics.is_all or bool(topics.choose([name])), options)
        if watch:
            await _watch(meter, view, interval)
        return await view.report(cluster, await _measure(invocation, meter, interval, options.looks_max))


class _View:
    """What is told of an answer."""

    def __init__(
        self, invocation: Invocation, topics: TopicSelection, fails_on: LagStatus, has_partitions: bool, is_not_ok: bool
    ) -> None:
        self.invocation = invocation
        self._topics = topics
        self._fails_on = fails_on
        self._has_partitions = has_partitions
        self._is_not_ok = is_not_ok

    async def report(self, cluster: Cluster, answer: LagAnswer) -> Report:
        """Return the report, after failures were told."""
        from dataclasses import replace

        from engine.admin.lag.measuring import absent_topics

        failures = [*answer.failures, *await absent_topics(cluster, self._topics, answer)]
        report = self.draw(answer)
        return replace(report, exit_code=self.invocation.tell_failures(failures, report.exit_code))

    def draw(self, answer: LagAnswer) -> Report:
        """Return the report of an answer."""
        from cli.views.lag import lag_report

        return lag_report(
            answer, fails_on=self._fails_on, has_partitions=self._has_partitions, is_not_ok=self._is_not_ok
        )


async def _measure(invocation: Invocation, meter: LagMeter, interval_s: float, looks_max: int) -> LagAnswer:
    def on_look(looks: int, undecided: int) -> None:
        if undecided and looks < looks_max:
            left_s = (looks_max - looks) * interval_s
            groups = "1 group" if undecided == 1 else f"{undecided} groups"
            if looks == 1:
                invocation.talk.say(f"watching {groups} for {left_s:g} s more (--samples 1 does not)")

    answer, complaints = await meter.measure(on_look)
    for complaint in complaints:
        invocation.talk.warn(complaint)
    return answer


async def _watch(meter: LagMeter, view: _View, interval_s: float) -> None:
    """Tell again and again; on a terminal each answer takes the place of the one before. Ends by Ctrl-C only."""
    import sys

    from cli.framework.terminal import is_terminal
    from cli.output.format import OutputFormat
    from engine.admin.cluster.errors import Unreachable
    from engine.admin.lag.watching import watch_lag

    has_screen = is_terminal(sys.stdout) and view.invocation.output is OutputFormat.TABLE
    async for told in watch_lag(meter, interval_s):
        if isinstance(told, Unreachable):
            view.invocation.tell_failures([told])
            continue
        answer, complaints = told
        for complaint in complaints:
            view.invocation.talk.warn(complaint)
        if has_screen:
            sys.stdout.write("\x1b[H\x1b[2J")
        view.invocation.tell_failures(answer.failures)
        view.invocation.print(view.draw(answer))


def _isolation(word: str) -> IsolationLevel:
    from engine.common.model import IsolationLevel

    try:
        return IsolationLevel[word.replace("-", "_").upper()]
    except KeyError:
        raise UsageError(f"--isolation wants read-uncommitted or read-committed, not {word!r}") from None


def _fails_on(word: str) -> LagStatus:
    from engine.admin.lag.rules import LagStatus

    if word not in _FAIL_ON:
        raise UsageError(f"--fail-on wants stall, warn or unknown, not {word!r}")
    return LagStatus(word.upper())
