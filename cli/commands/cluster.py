"""``klamm cluster``: the cluster as a whole."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.exit_codes import ExitCode
from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.option_values import MetricsUrl, TopicOptions, TopicTexts
from cli.framework.options import Needs
from cli.framework.watching import Interval, Watch, watch_reports
from cli.output.format import OutputFormat
from cli.output.report import Report
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.admin.brokers.load import BrokerLoad
    from engine.admin.health.report import HealthStatus
    from engine.common.snapshot import ClusterSnapshot


group = CommandGroup("cluster", "The cluster as a whole.")


@group.command(
    "health",
    needs=Needs(cluster=True, bounded=False, metrics=True),
    examples=(
        "klamm cluster health --timeout 10",
        "klamm cluster health --wait --timeout 5m",
        "klamm cluster health --watch",
        "klamm cluster health --fail-on warning -o json | jq '.reasons[].check'",
    ),
)
async def health(
    invocation: Invocation,
    fail_on: Annotated[
        str, typer.Option("--fail-on", metavar="warning|critical", help="What makes the exit code 1.")
    ] = "critical",
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until it is healthy, at most --timeout.")
    ] = False,
    watch: Watch = False,
    interval: Interval = "2s",
) -> Report:
    """Say whether the cluster is healthy, and why not.

    It names the five worst cases of each reason, or all of them with -v. With --wait it says what it waits for, and
    since when.
    Critical: no or several controllers, dead or silent brokers, partitions that are offline, under min ISR or
    under-replicated, failed log dirs, hanging transactions. Warnings: transactions that hold readers up for minutes,
    running reassignments, leaked throttles, leaders that are not the preferred ones, replicas that share a rack
    unnecessarily, min.insync.replicas above the number of replicas, deletions that are stuck, a slow ZooKeeper.

    A snapshot does not show whether brokers answer, and it shows failed log dirs only if it was taken with --sizes.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.health import WaitingLine, health_report
    from engine.admin.health.reading import read_health
    from engine.admin.health.report import EXAMPLES_MAX

    threshold = _threshold(fail_on)
    if watch and wait:
        raise UsageError("--watch goes on forever, --wait until it is healthy: give one of them")
    async with open_cluster(invocation, may_be_absent=True) as cluster:

        async def read() -> Report:
            health = await read_health(
                cluster,
                until_better_than=threshold if wait else None,
                examples_max=None if invocation.talk.is_verbose else EXAMPLES_MAX,
                on_wait=WaitingLine(invocation.talk),
            )
            seen_by = (cluster.principal or "this login") if cluster.denied else None
            return health_report(health, fails_on=threshold, pasteable=invocation.pasteable, seen_by=seen_by)

        return await (watch_reports(invocation, interval, read) if watch else read())


def _threshold(word: str) -> HealthStatus:
    from engine.admin.health.report import HealthStatus

    if word not in (HealthStatus.WARNING, HealthStatus.CRITICAL):
        raise UsageError(f"--fail-on must be warning or critical, not {word!r}")
    return HealthStatus(word)


@group.command(
    "load",
    needs=Needs(cluster=True),
    examples=(
        "klamm cluster load",
        "klamm cluster load 'orders.*' --zookeeper 127.0.0.1:2181",
        "klamm cluster load --rates",
        "klamm cluster load -o json | jq 'sort_by(.size_bytes) | last.broker'",
    ),
)
async def load(
    invocation: Invocation,
    topics: TopicTexts = None,
    topic: TopicOptions = None,
    rates: Annotated[bool, typer.Option("--rates", help="Also messages and bytes a second.")] = False,
    metrics_url: MetricsUrl = None,
) -> Report:
    """Show what each broker carries: replicas, leaders, bytes.

    Leads is how many partitions it leads now, Preferred how many it is the preferred leader of. The brokers report
    sizes; one that does not answer has none. With --rates they also report what they measure, as for klamm brokers
    metrics: of the topics that you name, or of all.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers_load import load_report
    from engine.admin.brokers.reading_load import add_rates, read_broker_load
    from engine.admin.topics.selection import select_topics

    selection = select_topics([*(topics or ()), *(topic or ())])
    async with open_cluster(invocation) as cluster:
        if rates and cluster.target.snapshot is not None:
            raise UsageError("--rates needs a running cluster: a snapshot has none")
        loads: Sequence[BrokerLoad] = await read_broker_load(cluster, selection)
        troubles: Mapping[int, str] | None = None
        if rates:
            from engine.local.jmx import read_jmx

            loads, troubles = await add_rates(cluster, loads, selection, read_jmx, metrics_url)
        return load_report(loads, troubles, seen_by=(cluster.principal or "this login") if cluster.denied else None)


@group.command(
    "describe",
    needs=Needs(cluster=True, kafka=True),
    examples=("klamm cluster describe", "klamm cluster describe -b 127.0.0.1:9092 -o json | jq -r .cluster_id"),
)
async def describe(invocation: Invocation) -> Report:
    """Show cluster id, controller, brokers and how many topics there are.

    For a cluster without ZooKeeper (KRaft), it also shows the controller quorum and the finalized features.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.brokers import cluster_report
    from engine.admin.brokers.description import describe_cluster

    async with open_cluster(invocation) as cluster:
        return cluster_report(await describe_cluster(cluster, tells_hidden=invocation.output is not OutputFormat.KAFKA))


@group.command(
    "snapshot",
    needs=Needs(cluster=True),
    examples=(
        "klamm cluster snapshot before.json",
        "klamm cluster snapshot --sizes before.json",
        "klamm topics describe --snapshot before.json",
        "klamm cluster snapshot - | gzip > before.json.gz",
    ),
)
async def snapshot(
    invocation: Invocation,
    file: Annotated[
        Path,
        typer.Argument(metavar="FILE", allow_dash=True, help="Where to write it; replaced if it exists; - is stdout."),
    ],
    sizes: Annotated[
        bool, typer.Option("--sizes", help="Also read where each replica is and how large it is.")
    ] = False,
) -> ExitCode:
    """Write the whole cluster's metadata to a file that other commands can read offline.

    With --sizes it also asks brokers for their log dirs; if one does not report all of them, it says so and exits with
    1.
    """
    from cli.framework.cluster_session import open_cluster
    from engine.admin.log_dirs.describing import note_topics_left_out
    from engine.admin.snapshots.taking import take_snapshot

    async with open_cluster(invocation) as cluster:
        taken = await take_snapshot(cluster, has_sizes=sizes)
        if not sizes:
            await note_topics_left_out(cluster, [topic.name for topic in taken.snapshot.topics])
    whole = taken.snapshot
    verb = "replaced" if file.is_file() else "wrote"
    _write(whole, file)
    partitions = sum(len(topic.partitions) for topic in whole.topics)
    counts = (("broker", len(whole.brokers)), ("topic", len(whole.topics)), ("partition", partitions))
    held = ", ".join(counted(count, noun) for noun, count in counts)
    done = "wrote the snapshot to stdout" if str(file) == "-" else f"{verb} {file}"
    invocation.talk.say(f"{done}: {held}")
    for failed in taken.failed_dirs:
        invocation.talk.warn(
            f"the snapshot lacks {failed.log_dir or 'the log dirs'} of broker {failed.broker}: {failed.error}"
        )
    return ExitCode.BAD_ANSWER if taken.failed_dirs else ExitCode.DONE


def _write(snapshot: ClusterSnapshot, file: Path) -> None:
    from cli.framework.stdout import data_stream
    from engine.admin.cluster.snapshot_file import save_snapshot
    from engine.common.snapshot_json import snapshot_to_json

    if str(file) != "-":
        save_snapshot(snapshot, file)
        return
    with data_stream() as stream:
        stream.write(f"{snapshot_to_json(snapshot)}\n")


group.put_in_order("describe", "health", "load", "snapshot")
