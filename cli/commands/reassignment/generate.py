"""``klamm reassign generate`` and ``list``."""

from __future__ import annotations

import random
from collections.abc import Sequence
from pathlib import Path
from typing import Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.reassignment.shared import Plot, group, heat_of
from cli.framework.invocation import Invocation
from cli.framework.option_values import NamedTopics
from cli.framework.options import Needs
from cli.framework.stdout import data_stream
from cli.framework.watching import Interval, Watch, watch_reports
from cli.output.format import OutputFormat
from cli.output.report import Report, Table
from engine.runtime.input_files import name_of, read_input


@group.command(
    "generate",
    needs=Needs(cluster=True, kafka=True),
    examples=(
        "klamm reassign generate orders 'clicks-.*' --broker-list 0,1,2",
        "klamm reassign generate --topics-to-move-json-file topics.json --broker-list 0,1,2",
        "klamm reassign generate --topics-to-move-json-file topics.json --broker-list 3,4 --proposed plan.json",
    ),
)
async def generate(
    invocation: Invocation,
    broker_list: Annotated[str, typer.Option(metavar="0,1,2", help="The brokers that are to hold the topics.")],
    topics: NamedTopics = None,
    topics_to_move_json_file: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            allow_dash=True,
            help='Topics, instead of names: {"version":1,"topics":[{"topic":"orders"}]}',
        ),
    ] = None,
    disable_rack_aware: Annotated[bool, typer.Option("--disable-rack-aware", help="Ignore racks.")] = False,
    seed: Annotated[int | None, typer.Option(metavar="N", help="The same number gives the same plan.")] = None,
    current: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the current assignment.")] = None,
    proposed: Annotated[Path | None, typer.Option(metavar="FILE", help="Also write the proposed one.")] = None,
    plot: Plot = True,
) -> Report | None:
    """Propose new replicas for whole topics, with Kafka's own algorithm.

    It spreads them evenly and at random: nearly everything moves. Nothing is changed in the cluster.
    """
    from cli.framework.cluster_session import open_cluster
    from cli.views.reassignment import generated_report, generated_text
    from engine.admin.reassignment.generate import generate_reassignment, topics_named
    from engine.admin.reassignment.reassignment_file import parse_broker_list, plan_document, plan_text
    from engine.admin.topics.selection import select_topics

    selection = select_topics(_topic_texts(topics, topics_to_move_json_file))
    brokers = parse_broker_list(broker_list)
    async with open_cluster(invocation) as cluster:
        names = await topics_named(cluster, selection)
        draw = random.Random(seed).randrange
        plan = await generate_reassignment(cluster, names, brokers, is_rack_aware=not disable_rack_aware, draw=draw)
        is_plotted = plot and invocation.output is OutputFormat.TABLE
        heat = await heat_of(cluster, plan.current, plan.proposed, brokers) if is_plotted else None
    for path, assignment in ((current, plan.current), (proposed, plan.proposed)):
        if path is not None:
            path.write_text(f"{plan_text(plan_document(assignment, cluster_id=plan.cluster_id))}\n", encoding="utf-8")
            invocation.talk.say(f"wrote {path}")
    if invocation.output not in (OutputFormat.TABLE, OutputFormat.PLAIN, OutputFormat.KAFKA):
        return generated_report(plan)
    with data_stream() as stream:
        stream.write(generated_text(plan))
        stream.write("\n" if heat is not None else "")
    return None if heat is None else Report((), Table((), ()), (heat,))


def _topic_texts(topics: list[str] | None, file: Path | None) -> Sequence[str]:
    from engine.admin.reassignment.reassignment_file import parse_topics_to_move

    if (file is None) == (not topics):
        raise UsageError("name topics, or give --topics-to-move-json-file")
    return topics or () if file is None else parse_topics_to_move(read_input(file), name_of(file))


@group.command(
    "list",
    needs=Needs(cluster=True, kafka=True),
    examples=("klamm reassign list", "klamm reassign list --watch", "klamm reassign list -o json | jq length"),
)
async def list_reassignments(invocation: Invocation, watch: Watch = False, interval: Interval = "2s") -> Report:
    """List the partitions that are being reassigned."""
    from cli.framework.cluster_session import open_cluster
    from cli.views.reassignment import running_report
    from engine.admin.reassignment.access import list_running

    async with open_cluster(invocation) as cluster:

        async def read() -> Report:
            return running_report(await list_running(cluster))

        return await (watch_reports(invocation, interval, read) if watch else read())
