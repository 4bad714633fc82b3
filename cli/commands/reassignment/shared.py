"""The group ``klamm reassign`` and what its commands share. Options are those of kafka-reassign-partitions."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.output.report import Section
from engine.runtime.input_files import name_of, read_input

if TYPE_CHECKING:
    from engine.admin.brokers.load import Replicas
    from engine.admin.cluster.connection import Cluster
    from engine.admin.reassignment.reassignment_file import PartitionMove

group = CommandGroup(
    "reassign",
    "Move partitions between brokers and log dirs.",
    action_flags={f"--{word}": word for word in ("generate", "execute", "verify", "cancel", "list")},
)

PlanFile = Annotated[
    Path,
    typer.Option(
        "--reassignment-json-file",
        metavar="FILE",
        allow_dash=True,
        help="Partitions and their replicas, in Kafka's JSON.",
    ),
]
PreserveThrottles = Annotated[
    bool, typer.Option("--preserve-throttles", help="Leave throttles as they are, even when everything is done.")
]
Plot = Annotated[
    bool, typer.Option("--plot/--no-plot", help="On a terminal, also show the brokers' load before and after.")
]
Wait = Annotated[
    bool,
    typer.Option(
        "--wait/--no-wait", help="Wait until it is done, or for --timeout; at most 5 minutes for dead brokers."
    ),
]


@dataclass(frozen=True, slots=True)
class ReadPlan:
    """A reassignment file: its content, and its cluster if it names one."""

    path: Path
    moves: tuple[PartitionMove, ...]
    cluster_id: str | None

    async def check_cluster(self, cluster: Cluster) -> None:
        """Refuse a file that was written for another cluster."""
        from engine.admin.reassignment.access import check_planned_for

        await check_planned_for(cluster, self.cluster_id, str(self.path))


def read_plan(path: Path) -> ReadPlan:
    """Read a reassignment file."""
    from engine.admin.reassignment.reassignment_file import parse_plan, planned_cluster_id

    text = read_input(path)
    return ReadPlan(path, parse_plan(text, name_of(path)), planned_cluster_id(text))


async def heat_of(cluster: Cluster, before: Replicas, after: Replicas, brokers: Iterable[int] = ()) -> Section:
    """Return the heat map of a plan, with sizes if brokers report them."""
    from cli.views.brokers_load import heat_section
    from engine.admin.brokers.reading_load import read_load_of_plan

    load = await read_load_of_plan(cluster, before, after, brokers)
    return heat_section(load.brokers, len(after), load.bytes_to_copy)


def follow_limit_s(invocation: Invocation) -> float | None:
    """Return how long to follow a reassignment: for --timeout if given, else to its end."""
    return invocation.timeout_s if invocation.has_timeout_given else None
