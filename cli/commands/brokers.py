"""``klamm brokers``: the brokers, what each holds, and taking leadership away from one before maintenance."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.reassignment.shared import follow_limit_s, read_plan
from cli.exit_codes import ExitCode
from cli.framework.command import CommandGroup
from cli.framework.completing import complete_brokers, complete_topics, one_of
from cli.framework.invocation import Invocation
from cli.framework.option_values import MetricsUrl, RollbackFile
from cli.framework.options import Asks, Needs
from cli.framework.plan_guard import BesidePlan, minds_plan
from cli.framework.watching import Interval, Watch
from cli.output.format import OutputFormat
from cli.output.report import Report
from engine.common.quantities import counted, plural

if TYPE_CHECKING:
    from engine.admin.cluster.connection import Cluster
    from engine.admin.reassignment.reassignment_file import PartitionMove
    from engine.common.model import TopicPartition


group = CommandGroup(
    "brokers", "The brokers and what each holds; take leadership away from one.", action_flags={"--list": "list"}
)


Ids = Annotated[
    list[int] | None,
    typer.Argument(metavar="ID", help="Which brokers. All if you name none.", autocompletion=complete_brokers),
]


@group.command(
    "list",
    needs=Needs(cluster=True),
    examples=("klamm brokers list", "klamm brokers list --zookeeper 127.0.0.1:2181 -o json"),
)
async def list_brokers(invocation: Invocation) -> Report:
    """List the live brokers with address and rack, and say which one is the controller."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers import brokers_report
    from engine.admin.brokers.description import list_brokers

    async with open_cluster(invocation) as cluster:
        return brokers_report(await list_brokers(cluster))


@group.command(
    "describe",
    needs=Needs(cluster=True, kafka=True),
    examples=(
        "klamm brokers describe",
        "klamm brokers describe 2 --zookeeper 127.0.0.1:2181",
        "klamm brokers describe -o json | jq '.[] | select(.alive | not) | .id'",
        "klamm brokers describe 0 --api-versions -o json",
    ),
)
async def describe(
    invocation: Invocation,
    ids: Ids = None,
    api_versions: Annotated[
        bool,
        typer.Option("--api-versions", help="Also show the APIs that each offers, like kafka-broker-api-versions."),
    ] = False,
) -> Report:
    """Show everything about brokers: listeners, release, partitions, what lags because of them, settings, log dirs.

    A broker that has partitions but is not alive is shown as missing. klamm guesses the release from the APIs that a
    broker offers. Exits with 1 if a broker is missing, silent or has a failed log dir.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers import broker_details_report
    from engine.admin.brokers.description import describe_brokers

    async with open_cluster(invocation) as cluster:
        notes_hidden = invocation.output is not OutputFormat.KAFKA
        descriptions = await describe_brokers(cluster, ids or (), notes_hidden=notes_hidden)
    return broker_details_report(descriptions, with_apis=api_versions)


@group.command(
    "restart-order",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=(
        "klamm brokers restart-order",
        "klamm brokers restart-order --since 2026-11-30T14:00Z",
        "klamm brokers restart-order --since 2h -o json | jq '.[] | select(.is_next) | .broker'",
    ),
)
async def restart_order(
    invocation: Invocation,
    since: Annotated[
        str | None,
        typer.Option(
            "--since",
            metavar="TIME",
            help="When this round of restarts began: brokers that registered later are done. It needs ZooKeeper.",
        ),
    ] = None,
) -> Report:
    """Say which broker can be restarted next without harm, and why the others cannot.

    A broker is safe if no partition loses its leader for good or refuses writes with acks=all while it is away. The one
    that has been registered longest comes first, the controller last. None is safe while a broker is down, partitions
    are under-replicated or move, or ZooKeeper does not answer. Exits with 1 if no broker can be restarted now.

    It remembers nothing: only --since tells the brokers that you have restarted from the others, so that the
    controller's turn comes. Once all are done, none is next, and it exits with 0.
    """
    from datetime import UTC, datetime

    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers_restart_order import restart_order_report
    from engine.admin.analysis.restart_order import read_restart_order
    from engine.common.moments import HINT, moment_ms

    try:
        since_ms = None if since is None else moment_ms(since, now=datetime.now(UTC))
    except ValueError as error:
        raise UsageError(f"--since: {error}; it takes {HINT}") from error
    async with open_cluster(invocation) as cluster:
        return restart_order_report(await read_restart_order(cluster, since_ms))


SUMMARIES = ("dir", "broker", "topic")
ORDERS = ("name", "size", "lag")


@group.command(
    "log-dirs",
    needs=Needs(cluster=True, metrics=True, kafka=True),
    examples=(
        "klamm brokers log-dirs",
        "klamm brokers log-dirs --summary topic --sort size",
        "klamm brokers log-dirs --broker-list 0,2 --topic-list orders -o json | jq '.[].replicas[]'",
    ),
)
async def log_dirs(
    invocation: Invocation,
    broker_list: Annotated[
        str | None, typer.Option("--broker-list", metavar="0,1,2", help="Only these brokers.  [default: all]")
    ] = None,
    topic_list: Annotated[
        list[str] | None,
        typer.Option(
            "--topic-list",
            "--topic",
            metavar="A,B",
            help="Only these topics: names or patterns.",
            autocompletion=complete_topics,
        ),
    ] = None,
    summary: Annotated[
        str | None,
        typer.Option(
            "--summary", metavar="dir|broker|topic", help="Show totals instead.", autocompletion=one_of(*SUMMARIES)
        ),
    ] = None,
    sort: Annotated[
        str,
        typer.Option(
            "--sort", metavar="name|size|lag", help="The largest first, or name order.", autocompletion=one_of(*ORDERS)
        ),
    ] = "name",
) -> Report:
    """Show the log dirs of brokers with the replicas in them: sizes, lags, moves under way, errors.

    A table of more than 20 replicas shows the 20 largest, unless you name topics; other formats show all. It asks
    brokers even if you name only ZooKeeper. It lists brokers that have partitions but are not alive, too. Exits with 1
    if a log dir has failed, or a broker is missing or does not answer.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers import log_dirs_report, totals_report
    from engine.admin.brokers.access import read_selected_log_dirs
    from engine.admin.log_dirs.describing import totals_by_broker, totals_by_dir, totals_by_topic
    from engine.admin.reassignment.reassignment_file import parse_broker_list
    from engine.admin.topics.selection import select_topics

    if summary is not None and summary not in SUMMARIES:
        raise UsageError(f"--summary must be one of {', '.join(SUMMARIES)}, not {summary!r}")
    if sort not in ORDERS:
        raise UsageError(f"--sort must be one of {', '.join(ORDERS)}, not {sort!r}")
    brokers = None if broker_list is None else parse_broker_list(broker_list)
    async with open_cluster(invocation) as cluster:
        dirs = await read_selected_log_dirs(cluster, brokers, select_topics(topic_list) if topic_list else None)
    if summary is None:
        is_for_people = invocation.output is OutputFormat.TABLE
        return log_dirs_report(dirs, order=sort, names_topics=bool(topic_list), is_for_people=is_for_people)
    totals = {"dir": totals_by_dir, "broker": totals_by_broker, "topic": totals_by_topic}[summary]
    return totals_report(totals(dirs), summary, order=sort, failed=[total for total in dirs if total.error])


@group.command(
    "metrics",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=(
        "klamm brokers metrics",
        "klamm brokers metrics 1 2 --requests --topics",
        "klamm brokers metrics --zookeeper zk1:2181 --watch",
        "klamm brokers metrics --metrics-url 'http://{host}:7071/metrics'",
        "klamm brokers metrics -o json | jq '.[] | [.broker, .bytes_in_per_s, .produce_p99_ms]'",
    ),
)
async def metrics(
    invocation: Invocation,
    ids: Ids = None,
    requests: Annotated[bool, typer.Option("--requests", help="Also show the slowest requests of each API.")] = False,
    topics: Annotated[bool, typer.Option("--topics", help="Also show the traffic of each topic.")] = False,
    metrics_url: MetricsUrl = None,
    watch: Watch = False,
    interval: Interval = "5s",
) -> Report:
    """Show what brokers measure: messages and bytes a second, p99 of requests, idle handlers, throttling, ISR changes.

    klamm's brokers and Apache Kafka's have the same columns. A broker of klamm says where it serves its metrics. One of
    Apache Kafka is read by JMX, for which this machine needs a JDK, by Jolokia, or from the page of a JMX exporter. A
    table of --topics or --requests shows the largest 20. Exits with 1 if a broker does not report.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.framework.watching import watch_reports
    from cli.views.brokers_metrics import metrics_report
    from engine.admin.brokers.reading_metrics import read_figures
    from engine.local.jmx import read_jmx

    async with open_cluster(invocation) as cluster:

        async def read() -> Report:
            figures = await read_figures(
                cluster, read_jmx, ids or (), pattern=metrics_url, requests=requests, topics=topics
            )
            return metrics_report(figures, is_for_people=invocation.output is OutputFormat.TABLE)

        if watch:
            await watch_reports(invocation, interval, read)
        return await read()


_DONE_ALREADY = "nothing to do: this is already the case"
_NEEDS = Needs(cluster=True, changes=True, bounded=False)


@group.command(
    "demote",
    needs=_NEEDS,
    examples=(
        "klamm brokers demote 2 --dry-run",
        "klamm brokers demote 2 --rollback-file demoted-2.json",
        "klamm brokers demote 4,5 --yes",
    ),
)
async def demote(
    invocation: Invocation,
    ids: Annotated[str, typer.Argument(metavar="ID,…", help="The brokers to take leadership away from.")],
    rollback_file: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Where to write the rollback.  [default: demoted-TIME.json]")
    ] = None,
    force: BesidePlan = False,
) -> Report:
    """Take leadership away from brokers before you work on them.

    It puts them at the end of each replica list and elects another replica that is in sync; the other brokers share the
    leaderships evenly. No data is copied. klamm brokers restore gives the leadership back. If it is interrupted, run it
    again: it skips what is done already. Exits with 1 if a partition has no other replica that could lead, or if topics
    on the brokers are hidden from you.
    """
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from engine.admin.cluster.rollback_file import new_rollback_path
    from engine.admin.reassignment.demotion import read_demotion
    from engine.admin.reassignment.reassignment_file import parse_broker_list

    brokers = parse_broker_list(ids)
    path = rollback_file or new_rollback_path("demoted", ".json")
    async with open_cluster(invocation, for_change=not invocation.is_dry_run) as cluster:
        async with asyncio.timeout(invocation.timeout_s):
            wanted = await read_demotion(cluster, brokers)
        for broker in wanted.dead:
            invocation.talk.warn(f"broker {broker} is not alive")
        for name, reason in wanted.stuck.items():
            invocation.talk.warn(f"{name} stays with its leader: {reason}")
        whose = f"{plural('broker', len(brokers))} {ids}"
        if wanted.hidden:
            seen_by = cluster.principal or "this login"
            named = f"{counted(len(wanted.hidden), 'topic')} hidden from {seen_by}, such as {wanted.hidden[0]}"
            invocation.talk.warn(f"{whose} may lead partitions of {named}: they stay with their leaders")
        for broker, reason in wanted.silent.items():
            invocation.talk.warn(f"broker {broker} may lead hidden topics: it does not show its log dirs: {reason}")
        change = f"demote {whose} in {cluster.target.title}"
        idle = _DONE_ALREADY if wanted.is_whole else "nothing else to do"
        report = await _reorder(
            invocation, cluster, wanted.moves, wanted.elections, path, change, is_forced=force, idle=idle
        )
    return report if wanted.is_whole else report.ending(max(report.exit_code, ExitCode.BAD_ANSWER))


@group.command(
    "restore",
    needs=_NEEDS,
    examples=("klamm brokers restore demoted-2.json --dry-run", "klamm brokers restore demoted-2.json"),
)
async def restore(
    invocation: Invocation,
    file: Annotated[
        Path, typer.Argument(metavar="FILE", allow_dash=True, help="The file that klamm brokers demote wrote.")
    ],
    rollback_file: RollbackFile = None,
    force: BesidePlan = False,
) -> Report:
    """Give brokers back the leadership that klamm brokers demote took from them.

    Start them first, and wait until they are in sync: klamm cluster health --wait. It refuses a file that would copy or
    drop replicas.
    """
    import asyncio

    from cli.framework.cluster_session import open_cluster
    from engine.admin.cluster.rollback_file import new_rollback_path
    from engine.admin.reassignment.demotion import check_restores

    plan = read_plan(file)
    async with open_cluster(invocation, for_change=not invocation.is_dry_run) as cluster:
        async with asyncio.timeout(invocation.timeout_s):
            await plan.check_cluster(cluster)
            await check_restores(cluster, plan.moves, str(file))
        change = f"restore the order of replicas of {file.name} in {cluster.target.title}"
        names = [move.name for move in plan.moves]
        path = rollback_file or new_rollback_path("rollback", ".json")
        return await _reorder(invocation, cluster, plan.moves, names, path, change, is_forced=force)


async def _reorder(
    invocation: Invocation,
    cluster: Cluster,
    moves: Sequence[PartitionMove],
    elections: Sequence[TopicPartition],
    rollback_file: Path,
    change: str,
    *,
    is_forced: bool,
    idle: str = _DONE_ALREADY,
) -> Report:
    """Reorder the replicas of partitions, then elect the first of each as leader; say ``idle`` if none needs it."""
    import asyncio

    from cli.views.elections import elections_report, preview_lines
    from cli.views.reassignment import ExecutionView, planned_report
    from engine.admin.elections.running import preview_election, run_election
    from engine.admin.elections.scope_and_result import ElectionScope, ElectionType
    from engine.admin.reassignment.execute import execute_reassignment
    from engine.admin.reassignment.prepare import prepare_reassignment
    from engine.admin.reassignment.throttle_settings import Throttle

    scope = ElectionScope(tuple((name.topic, name.partition) for name in elections))
    async with asyncio.timeout(invocation.timeout_s):
        prepared = await prepare_reassignment(cluster, moves, Throttle(), is_additional=True, may_change_factor=False)
        previews = await preview_election(cluster, ElectionType.PREFERRED, scope) if elections else []
    if not prepared.has_work and not any(preview.is_needed for preview in previews):
        invocation.talk.say(idle)
        report = elections_report([preview.as_result() for preview in previews])
        return report if previews else replace(report, notes=())
    lines = [str(move) for move in prepared.planned] or preview_lines(previews)
    if invocation.is_dry_run and prepared.planned:
        # The report lists them.
        lines = []
    topics = {move.name.topic for move in moves}
    is_risky = bool(topics) and await minds_plan(invocation, cluster, topics, is_forced=is_forced)
    question = f"{change}: {counted(len(elections), 'partition')}"
    if not invocation.confirm(question, lines, is_destructive=is_risky):
        return planned_report(prepared.planned, None)
    if prepared.has_work:
        view = ExecutionView(invocation, prepared, way_back="klamm brokers restore")
        goes_on = "the order of replicas is still changing; run this again to elect the leaders"
        await execute_reassignment(
            cluster,
            prepared,
            view,
            rollback_file=rollback_file,
            goes_on=goes_on,
            waits=True,
            limit_s=follow_limit_s(invocation),
        )
    async with asyncio.timeout(invocation.timeout_s):
        previews = await preview_election(cluster, ElectionType.PREFERRED, scope)
        return elections_report(await run_election(cluster, ElectionType.PREFERRED, previews))


group.put_in_order("list", "describe", "log-dirs", "metrics", "restart-order", "demote", "restore")
