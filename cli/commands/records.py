"""``klamm records``: deletes the oldest records of partitions. Options are those of kafka-delete-records."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import CommandGroup
from cli.framework.completing import complete_topics
from cli.framework.invocation import Invocation
from cli.framework.options import Asks, Needs
from cli.output.report import Report
from engine.common.quantities import counted
from engine.runtime.input_files import name_of, read_input

if TYPE_CHECKING:
    from engine.common.model import TopicPartition

group = CommandGroup("records", "Delete the oldest records of partitions.")


@group.command(
    "delete",
    needs=Needs(cluster=True, changes=True, asks=Asks.BROKERS, bounded=False, kafka=True),
    examples=(
        "klamm records delete --topic orders --partition 3 --before-offset 1200 --dry-run",
        "klamm records delete --topic orders --partition 3 --before-offset -1 --yes",
        "klamm records delete --offset-json-file offsets.json --yes",
    ),
)
async def delete(
    invocation: Invocation,
    offset_json_file: Annotated[
        Path | None,
        typer.Option(
            "--offset-json-file",
            metavar="FILE",
            allow_dash=True,
            help='{"partitions":[{"topic":"t","partition":0,"offset":9}]}',
        ),
    ] = None,
    topic: Annotated[
        str | None, typer.Option("--topic", metavar="T", help="The topic.", autocompletion=complete_topics)
    ] = None,
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="P", min=0, help="A partition of the topic; may be repeated."),
    ] = None,
    before_offset: Annotated[
        int | None,
        typer.Option(
            "--before-offset", metavar="N", min=-1, help="Delete the records before it; -1: all committed records."
        ),
    ] = None,
    wait: Annotated[
        bool, typer.Option("--wait/--no-wait", help="Wait until every live replica has deleted them.")
    ] = True,
) -> Report | None:
    """Delete all records before an offset, on every replica.

    It first checks everything: unknown and repeated partitions, offsets beyond the end. --dry-run shows how many
    records it would delete, and about how many bytes of each replica. The next retention run removes the segments from
    the disk.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.records_deletion import deletion_lines, deletions_report
    from engine.admin.records.deletion import DeletionResult, delete_records, preview_deletion, refused
    from engine.common.acl import AclOperation

    wanted = _wanted(offset_json_file, topic, partition, before_offset)
    async with open_cluster(invocation, for_change=True) as cluster:
        previews = await preview_deletion(cluster, wanted)
        if invocation.is_dry_run:
            lacking = await cluster.lacking(AclOperation.DELETE, sorted({name.topic for name in wanted}))
            previews = [refused(each, lacking[each.topic]) if each.topic in lacking else each for each in previews]
        going = [preview for preview in previews if preview.result is DeletionResult.WOULD_BE_DELETED]
        if not going and not any(preview.error for preview in previews):
            invocation.talk.say("there are no records before these offsets")
            return deletions_report(previews)
        if not going:
            return deletions_report(previews)
        records = sum(deletion.records for deletion in going)
        change = f"delete {counted(records, 'record')} of {counted(len(going), 'partition')} in {cluster.target.title}"
        if not invocation.confirm(change, deletion_lines(going), is_destructive=True):
            return deletions_report(previews)
        return deletions_report(await delete_records(cluster, previews, waits=wait))


def _wanted(
    file: Path | None, topic: str | None, partitions: list[int] | None, before: int | None
) -> dict[TopicPartition, int]:
    from engine.admin.records.deletion import parse_offset_file
    from engine.common.model import TopicPartition

    parts = (topic is not None, bool(partitions), before is not None)
    if (file is not None) == any(parts) or (any(parts) and not all(parts)):
        raise UsageError("give --offset-json-file, or --topic with --partition and --before-offset")
    if file is not None:
        return parse_offset_file(read_input(file), name_of(file))
    chosen = partitions or []
    if len(set(chosen)) != len(chosen):
        raise UsageError("--partition names a partition twice")
    return {TopicPartition(topic or "", partition): -1 if before is None else before for partition in chosen}
