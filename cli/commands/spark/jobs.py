"""``klamm spark jobs`` and ``klamm spark commit``: Spark queries, by their files. Starts no Spark."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.spark.shared import group
from cli.commands.spark.stores import other_stores
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.option_values import EventLogs
from cli.framework.options import Asks, Needs
from cli.output.report import Report
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.cluster.errors import AdminError
    from engine.admin.cluster.target import ClusterTarget
    from engine.admin.lag.group_lag import QueryLag
    from engine.admin.lag.spark_positions import Query


@group.command(
    "jobs",
    needs=Needs(cluster=True),
    examples=(
        "klamm spark jobs /srv/spark/checkpoints",
        "klamm spark jobs s3://lake/checkpoints --event-log s3://lake/events -o json",
    ),
)
async def jobs(
    invocation: Invocation,
    roots: Annotated[
        list[str] | None,
        typer.Argument(metavar="ROOT", help="Checkpoints, folders that contain some, patterns or URIs."),
    ] = None,
    event_log: EventLogs = None,
) -> Report:
    """List the Spark queries that left checkpoints or event logs in these places, and how each is doing.

    Without a place, it lists those that the profile names. With a cluster, the status is that of klamm lag, by the
    worst partition. Without one, the files show only RUNNING and STUCK, and all else is UNKNOWN. Event logs have the
    names of queries; checkpoints do not.
    """
    import asyncio

    from cli.views.spark import jobs_report
    from engine.admin.lag.spark_queries import jobs_of
    from engine.admin.lag.spark_traces import QueryTraces

    target = _target(invocation)
    places = tuple(roots or ()), tuple(event_log or ())
    if not any(places) and target is not None:
        places = target.checkpoints, target.event_logs
    if not any(places):
        raise UsageError("name a ROOT, or --event-log PLACE")
    with other_stores(invocation) as others:
        queries, failures = await asyncio.to_thread(QueryTraces(*places, others).read)
    rows = None
    if target is not None and queries:
        rows, more = await _lags(invocation, queries)
        failures += more
    code = invocation.tell_failures(failures)
    return jobs_report(jobs_of(queries, rows), exit_code=code)


@group.command(
    "commit",
    needs=Needs(cluster=True, changes=True, asks=Asks.BROKERS),
    examples=(
        "klamm spark commit /srv/spark/checkpoints/orders --group spark-orders",
        "klamm spark commit s3://lake/checkpoints/orders --group spark-orders --dry-run",
    ),
)
async def commit(
    invocation: Invocation,
    place: Annotated[str, typer.Argument(metavar="CHECKPOINT", help="The checkpoint, or the event log, of one query.")],
    group_name: Annotated[
        str, typer.Option("--group", metavar="NAME", help="A group of its own, which no consumer uses.")
    ],
) -> Report:
    """Commit a Spark query's position to a Kafka group, once, so that tools which know only groups see it.

    Only finished batches count. Spark never reads the group, so this moves no query. Where two sources of the query
    read the same topic, each goes to NAME-<source>. It refuses a group that has members.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.groups import planned_lines
    from cli.views.spark import commit_report
    from engine.admin.lag.history_folder import mirror, plan_mirror

    query = await _the_query(invocation, place)
    code = ExitCode.DONE
    async with open_cluster(invocation, for_change=True) as cluster:
        plans = await plan_mirror(cluster, query, group_name)
        rows = [reset for plan in plans for reset in plan.resets]
        names = ", ".join(plan.group for plan in plans)
        change = f"commit {counted(len(rows), 'offset')} of {query.job} to group {names} in {cluster.target.title}"
        if invocation.confirm(change, planned_lines(rows) if invocation.is_dry_run else ()):
            invocation.accepted(f"some offsets may be committed already; look with: klamm groups describe {names}")
            rows, failures = await mirror(cluster, plans)
            code = invocation.tell_failures(failures)
    return commit_report(rows, exit_code=code)


def _target(invocation: Invocation) -> ClusterTarget | None:
    """Return the cluster named. None, if none is named, is fine here."""
    from engine.admin.cluster.target import NoClusterNamed

    try:
        return invocation.target()
    except NoClusterNamed:
        return None


async def _the_query(invocation: Invocation, place: str) -> Query:
    """Return the one query of a place.

    Raises:
        BadRequest: there is none, or there are several.
    """
    import asyncio

    from engine.admin.cluster.errors import BadRequest
    from engine.admin.lag.spark_traces import QueryTraces

    with other_stores(invocation) as others:
        queries, failures = await asyncio.to_thread(QueryTraces((place,), (), others).read)
        if failures and not queries:
            queries, _ = await asyncio.to_thread(QueryTraces((), (place,), others).read)
    if not queries:
        raise failures[0]
    if len(queries) > 1:
        names = ", ".join(sorted(query.job for query in queries))
        raise BadRequest(f"{len(queries)} queries are there, name one: {names}", where=place)
    return queries[0]


async def _lags(invocation: Invocation, queries: list[Query]) -> tuple[list[QueryLag] | None, list[AdminError]]:
    from cli.framework.cluster_session import open_cluster
    from engine.admin.cluster.errors import AdminError
    from engine.admin.lag.spark_queries import measure_queries
    from engine.common.model import IsolationLevel

    try:
        async with open_cluster(invocation) as cluster:
            wire = await cluster.wire()
            lags = await measure_queries(
                wire, queries, lambda _: True, IsolationLevel.READ_UNCOMMITTED, with_times=True
            )
            return lags, []
    except AdminError as error:
        return None, [error]
