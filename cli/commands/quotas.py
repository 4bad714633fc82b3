"""``klamm quotas``: what users, client ids and addresses may use. Options are those of kafka-configs."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.configs import ClientOptions
from cli.framework.command import CommandGroup
from cli.framework.completing import complete_brokers
from cli.framework.invocation import Invocation
from cli.framework.option_values import MetricsUrl
from cli.framework.options import Asks, Needs
from cli.framework.watching import Interval, Watch, watch_reports
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.admin.configs.values import Entity

group = CommandGroup("quotas", "What users, client ids and addresses may use of each broker.")

_RATE = "bytes a second, for each broker (1M, 500k)"
ProducerRate = Annotated[
    str | None, typer.Option("--producer-byte-rate", metavar="BYTES", help=f"What they may produce: {_RATE}.")
]
ConsumerRate = Annotated[
    str | None, typer.Option("--consumer-byte-rate", metavar="BYTES", help=f"What they may fetch: {_RATE}.")
]
RequestPercentage = Annotated[
    str | None,
    typer.Option("--request-percentage", metavar="N", help="Percent of one of a broker's threads; 200 is two threads."),
]
MutationRate = Annotated[
    str | None,
    typer.Option(
        "--controller-mutation-rate", metavar="N", help="Partitions they may create and delete a second, on average."
    ),
]
ConnectionRate = Annotated[
    str | None,
    typer.Option("--connection-creation-rate", metavar="N", help="How many connections a second it may open."),
]
AddConfig = Annotated[
    list[str] | None,
    typer.Option("--add-config", metavar="K=V,…", help="Quotas by Kafka's names, as in kafka-configs."),
]
DeleteConfig = Annotated[
    list[str] | None,
    typer.Option("--delete-config", metavar="K,…", help="Which to remove.  [default: all that are set]"),
]


@group.command(
    "list",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=("klamm quotas list", "klamm quotas list -o json", "klamm quotas list --zookeeper 127.0.0.1:2181"),
)
async def list_quotas(invocation: Invocation) -> Report:
    """List every quota that is set, and whose it is."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.quotas import quotas_report
    from engine.admin.configs.quota_reading import all_quotas

    async with open_cluster(invocation) as cluster:
        quotas = await all_quotas(cluster)
        return quotas_report(quotas, some_are_hidden=bool(cluster.hidden_znodes))


@group.command(
    "describe",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=(
        "klamm quotas describe --user alice --client app",
        "klamm quotas describe --client-defaults",
        "klamm quotas describe --ip 10.0.0.7 -o json",
    ),
)
async def describe(invocation: Invocation, whose: ClientOptions) -> Report:
    """Show which quotas apply to a client, and at which level each of them is set.

    Of eight levels, the first that is set applies: a user's client id, that user's default for client ids, the user;
    then the same three of the default user; then the client id, and the default for client ids. To ask about a client
    as a broker sees it, name both its user and its client id; the user of a client that does not log in is ANONYMOUS.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.quotas import in_force_report
    from engine.admin.configs.quota_reading import quotas_that_count

    entity = whose.entity()
    async with open_cluster(invocation) as cluster:
        return in_force_report(entity, await quotas_that_count(cluster, entity))


@group.command(
    "usage",
    needs=Needs(cluster=True, asks=Asks.CLUSTER),
    examples=(
        "klamm quotas usage",
        "klamm quotas usage --watch",
        "klamm quotas usage -o json | jq '.[] | select(.throttled_ms) | [.user, .client_id, .throttled_ms]'",
    ),
)
async def usage(
    invocation: Invocation,
    broker: Annotated[
        list[int] | None,
        typer.Option("--broker", metavar="ID", help="Only on this broker.", autocompletion=complete_brokers),
    ] = None,
    metrics_url: MetricsUrl = None,
    watch: Watch = False,
    interval: Interval = "5s",
) -> Report:
    """Show who is near the limit of a quota, who is throttled, and for how long.

    Every broker counts for itself. It reports the clients that were active in the last hour, and none while no quota is
    set. Throttled is the mean time for which it has delayed their answers lately. The brokers are read as for klamm
    brokers metrics. Exits with 1 if a quota is set and a broker does not report.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.quotas import usage_report
    from engine.admin.brokers.quota_usage import read_usage
    from engine.local.jmx import read_jmx

    async with open_cluster(invocation) as cluster:

        async def read() -> Report:
            return usage_report(await read_usage(cluster, read_jmx, broker or (), pattern=metrics_url))

        if watch:
            await watch_reports(invocation, interval, read)
        return await read()


@group.command(
    "set",
    needs=Needs(cluster=True, changes=True, asks=Asks.CLUSTER),
    examples=(
        "klamm quotas set --client app --producer-byte-rate 10M",
        "klamm quotas set --user alice --client app --consumer-byte-rate 5M --request-percentage 50",
        "klamm quotas set --user-defaults --controller-mutation-rate 10",
        "klamm quotas set --ip 10.0.0.7 --connection-creation-rate 20 --dry-run",
        "klamm quotas set --entity-type users --entity-default --add-config producer_byte_rate=1048576",
    ),
)
async def set_quotas(
    invocation: Invocation,
    whose: ClientOptions,
    producer_byte_rate: ProducerRate = None,
    consumer_byte_rate: ConsumerRate = None,
    request_percentage: RequestPercentage = None,
    controller_mutation_rate: MutationRate = None,
    connection_creation_rate: ConnectionRate = None,
    add_config: AddConfig = None,
) -> Report:
    """Set quotas of a user, a client id, a client of a user, an address, or of all that have none of their own.

    Each broker counts for itself: a client of three brokers may use three times its quota. Brokers
    follow within a moment, and slow down clients above their quota; they refuse nothing. As in Kafka, a byte rate of 0
    limits nobody.
    """
    from engine.admin.configs.values import parse_additions, plain_value

    entity = whose.entity()
    additions: dict[str, str] = {}
    for text in add_config or ():
        additions |= parse_additions(text)
    given = {
        "producer_byte_rate": producer_byte_rate,
        "consumer_byte_rate": consumer_byte_rate,
        "request_percentage": request_percentage,
        "controller_mutation_rate": controller_mutation_rate,
        "connection_creation_rate": connection_creation_rate,
    }
    additions |= {key: plain_value(key, text) for key, text in given.items() if text is not None}
    if not additions:
        raise UsageError("say what to set: --producer-byte-rate, --consumer-byte-rate, --request-percentage, …")
    return await _alter(invocation, entity, additions, [])


@group.command(
    "remove",
    needs=Needs(cluster=True, changes=True, asks=Asks.CLUSTER),
    examples=(
        "klamm quotas remove --client app",
        "klamm quotas remove --user alice --client app --delete-config producer_byte_rate",
        "klamm quotas remove --ip-defaults --dry-run",
    ),
)
async def remove(invocation: Invocation, whose: ClientOptions, delete_config: DeleteConfig = None) -> Report:
    """Remove quotas; from then on the next level that is set applies."""
    entity = whose.entity()
    deletions = [key.strip() for text in delete_config or () for key in text.split(",") if key.strip()]
    return await _alter(invocation, entity, {}, deletions)


async def _alter(invocation: Invocation, entity: Entity, additions: dict[str, str], deletions: list[str]) -> Report:
    from cli.framework.cluster_session import open_cluster
    from cli.views.configs import altered_report
    from engine.admin.configs.access import alter_entity
    from engine.admin.configs.changes import read_changes
    from engine.admin.configs.quota_reading import quotas_of

    async with open_cluster(invocation, for_change=True) as cluster:
        if not additions and not deletions:
            deletions = list(await quotas_of(cluster, entity))
        await alter_entity(cluster, entity, additions, deletions, validate_only=True)
        changes = await read_changes(cluster, entity, additions, deletions)
        sentence = f"{'set' if additions else 'remove'} quotas of {entity} in {cluster.target.title}"
        is_wanted = invocation.confirm(sentence, [f"  {change}" for change in changes], is_destructive=False)
        if is_wanted:
            await alter_entity(cluster, entity, additions, deletions)
    return altered_report(entity, changes, is_dry_run=not is_wanted)
