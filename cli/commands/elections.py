"""``klamm elect``: preferred and unclean leader elections. Options are those of kafka-leader-election."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.format import OutputFormat
from cli.output.report import Report
from engine.common.quantities import counted
from engine.runtime.input_files import name_of, read_input

if TYPE_CHECKING:
    from engine.admin.elections.scope_and_result import ElectionScope, ElectionType, PartitionElection

group = CommandGroup("elect", "Elect leaders: preferred ones, or (unclean) any live replica.")


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenPartitions:
    """The partitions that need a leader: named, all, or those of a file."""

    topic: Annotated[
        list[str] | None, typer.Option("--topic", metavar="T", help="A topic: all of it, or the --partition after it.")
    ] = None
    partition: Annotated[
        list[int] | None,
        typer.Option("--partition", metavar="P", help="Only this partition of the --topic before it; may be repeated."),
    ] = None
    all_topic_partitions: Annotated[
        bool, typer.Option("--all-topic-partitions", help="Every partition of the cluster.")
    ] = False
    path_to_json_file: Annotated[
        Path | None,
        typer.Option(
            "--path-to-json-file", metavar="F", allow_dash=True, help='{"partitions":[{"topic":"t","partition":0}]}'
        ),
    ] = None

    def scope(self) -> ElectionScope:
        from engine.admin.elections.scope_and_result import ElectionScope, parse_election_file, scope_of

        is_named, file = bool(self.topic or self.partition), self.path_to_json_file
        if sum((is_named, self.all_topic_partitions, file is not None)) != 1:
            raise UsageError("give one of --topic, --all-topic-partitions and --path-to-json-file")
        if file is not None:
            return parse_election_file(read_input(file), name_of(file))
        return ElectionScope() if self.all_topic_partitions else scope_of(self.topic or [], self.partition or [])


@group.command(
    "preferred",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=(
        "klamm elect preferred --all-topic-partitions --dry-run",
        "klamm elect preferred --all-topic-partitions --dry-run --snapshot before.json",
        "klamm elect preferred --topic orders --partition 3",
        "klamm elect preferred --path-to-json-file partitions.json --zookeeper 127.0.0.1:2181",
    ),
)
async def preferred(invocation: Invocation, chosen: ChosenPartitions) -> Report | None:
    """Give partitions back to their preferred leaders.

    The preferred leader is the first replica of the assignment. One that is dead or out of sync cannot be elected;
    klamm names it before it does anything. Exits with 1 if a partition is not led by its preferred replica at the end.
    """
    from engine.admin.elections.scope_and_result import ElectionType

    return await _elect(invocation, ElectionType.PREFERRED, chosen.scope())


@group.command(
    "unclean",
    needs=Needs(cluster=True, changes=True, kafka=True),
    examples=(
        "klamm elect unclean --topic orders --partition 3 --dry-run",
        "klamm elect unclean --topic orders --partition 3 --yes",
    ),
)
async def unclean(invocation: Invocation, chosen: ChosenPartitions) -> Report | None:
    """Let any live replica lead partitions that have no leader, although records may be lost.

    Records that only the dead replicas have are lost for good, even if those replicas come back. Bring them back first
    if you can. Partitions that have a leader are left alone. A replica in a failed log dir cannot lead: repair the disk
    and restart its broker.
    """
    from engine.admin.elections.scope_and_result import ElectionType

    return await _elect(invocation, ElectionType.UNCLEAN, chosen.scope())


async def _elect(invocation: Invocation, election: ElectionType, scope: ElectionScope) -> Report | None:
    from cli.framework.cluster_session import open_cluster
    from cli.views.elections import elections_report, preview_lines
    from engine.admin.elections.running import check_election, preview_election, run_election
    from engine.admin.elections.scope_and_result import ElectionType
    from engine.admin.log_dirs.describing import note_topics_left_out

    async def report(results: Sequence[PartitionElection]) -> Report:
        if scope.is_all and invocation.output is not OutputFormat.KAFKA:
            await note_topics_left_out(cluster, {result.topic for result in results})
        return elections_report(results, election, is_of_all=scope.is_all)

    async with open_cluster(invocation, for_change=not invocation.is_dry_run) as cluster:
        previews = await preview_election(cluster, election, scope)
        if not invocation.is_dry_run:
            check_election(cluster, election)
        needed = [preview for preview in previews if preview.is_needed]
        if not needed:
            return await report([preview.as_result() for preview in previews])
        for preview in needed:
            if preview.obstacle is not None:
                invocation.talk.warn(str(preview))
        is_unclean = election is ElectionType.UNCLEAN
        able = [preview for preview in needed if preview.obstacle is None]
        asked = counted(len(able or needed), "partition")
        change = f"elect {election.value} leaders of {asked} in {cluster.target.title}"
        if is_unclean:
            change += ", losing records that only dead replicas have" if able else ", none of whose replicas can lead"
        details = () if invocation.is_dry_run else preview_lines(able)
        # If no replica can be elected, there is nothing to confirm. The controller is asked anyway, and says why.
        needs_word = bool(able) or is_unclean or invocation.is_dry_run
        if needs_word and not invocation.confirm(change, details, is_destructive=is_unclean):
            return await report([preview.as_result() for preview in previews])
        return await report(await run_election(cluster, election, previews))
