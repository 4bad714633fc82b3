"""``klamm cluster``: brings the commands of the group together."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.commands.cluster import health, load
from cli.commands.cluster.shared import group
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.format import OutputFormat
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.common.snapshot import ClusterSnapshot

__all__ = ["group", "health", "load"]


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
    from engine.admin.brokers.cluster_description import describe_cluster

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
    verb = "replaced" if file.exists() else "wrote"
    _write(whole, file)
    partitions = sum(len(topic.partitions) for topic in whole.topics)
    counts = (("broker", len(whole.brokers)), ("topic", len(whole.topics)), ("partition", partitions))
    counted = ", ".join(f"{count} {what}{'' if count == 1 else 's'}" for what, count in counts)
    done = "wrote the snapshot to stdout" if str(file) == "-" else f"{verb} {file}"
    invocation.talk.say(f"{done}: {counted}")
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
