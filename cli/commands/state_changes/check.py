"""``klamm state-changes check``."""

from __future__ import annotations

from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.state_changes.shared import (
    Brokers,
    End,
    Logs,
    LogsRegex,
    Partitions,
    Paths,
    Start,
    Topics,
    Zones,
    group,
    named_paths,
    zones_of,
)
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.admin.state_changes.check import StateChangeCheck


@group.command(
    "check",
    needs=Needs(cluster=True, bounded=False),
    examples=(
        "klamm state-changes check /var/log/collected",
        "klamm state-changes check broker-*/state-change.log* --start '2026-11-21 02:00' --end '2026-11-21 05:00'",
        "klamm state-changes check logs --zookeeper 127.0.0.1:2181/kafka -o json | jq '.findings[].check'",
    ),
)
def check(
    invocation: Invocation,
    paths: Paths = None,
    logs: Logs = None,
    logs_regex: LogsRegex = None,
    start: Start = None,
    end: End = None,
    topic: Topics = None,
    partition: Partitions = None,
    broker: Brokers = None,
    tz: Zones = None,
    window: Annotated[
        str, typer.Option("--window", metavar="DURATION", help="A change that recurs within this time is flapping.")
    ] = "10m",
    examples: Annotated[int, typer.Option("--examples", metavar="N", min=0, help="How many of each kind to show.")] = 3,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="warning|critical", help="What makes the exit code 1.")
    ] = "warning",
) -> Report:
    """Say what happened, from the state-change logs of all brokers.

    Names unclean elections, partitions without a leader, ISRs that flap, leadership that goes back and forth,
    controllers that kept working after they were replaced, changes that a broker missed, failed log dirs, clocks that
    disagree. If an option names a cluster, the last states in the logs are compared with it. Since Kafka 2.6, brokers
    by default do not log that a leader has changed its ISR; you see it in the controller's next line about the
    partition.
    """
    import asyncio

    from cli.views.state_changes import tell_problems, with_progress
    from cli.views.state_changes_check import check_report
    from engine.admin.state_changes.check import StateChangeCheck
    from engine.admin.state_changes.findings import Severity
    from engine.admin.state_changes.log_files import find_logs, look_at_logs
    from engine.admin.state_changes.merge import MergeWish, plan_merge
    from engine.admin.state_changes.merged_rows import row_tag
    from engine.common.quantities import parse_duration_s

    if fail_on not in (Severity.WARNING, Severity.CRITICAL):
        raise UsageError(f"--fail-on must be warning or critical, not {fail_on!r}")
    try:
        duration = timedelta(seconds=parse_duration_s(window))
    except (ValueError, OverflowError):
        raise UsageError(f"--window must be a duration such as 10m, not {window!r}") from None
    wish = MergeWish(start, end, topic or (), partition or (), broker or (), zones_of(tz))
    plan = plan_merge(look_at_logs(find_logs(named_paths(paths, logs), logs_regex)), wish)
    # Read without an event loop: it would keep Ctrl-C waiting.
    checking = StateChangeCheck(window=duration, examples_max=examples)
    clock = plan.utc_clock()
    for batch in with_progress(invocation, plan, plan.merge(row_tag), verb="checked"):
        checking.feed(batch, clock)
    checking.end_logs()
    if _names_a_cluster(invocation):
        asyncio.run(_compare(invocation, checking))
    code = tell_problems(invocation, plan.problems)
    report = check_report(checking.result(), Severity(fail_on), log_count=len(plan.files))
    return report.ending(code)


def _names_a_cluster(invocation: Invocation) -> bool:
    """Whether an option names one: logs are often read on machines that reach no cluster."""
    options = invocation.target_options
    return any((options.zookeeper, options.bootstrap_server, options.cluster, options.snapshot))


async def _compare(invocation: Invocation, checking: StateChangeCheck) -> None:
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from engine.admin.log_dirs.describing import note_hidden_topics
    from engine.admin.state_changes.cluster_comparison import compare_with_cluster
    from engine.admin.topics.access import topic_reader

    async with asyncio.timeout(invocation.timeout_s), open_cluster(invocation) as cluster:
        reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
        find_hidden = partial(note_hidden_topics, cluster)
        await compare_with_cluster(checking.states, reader, checking.book, find_hidden)
