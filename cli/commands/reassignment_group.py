"""The group ``klamm reassign`` and what its commands share. Options are those of kafka-reassign-partitions."""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.output.report import Section

if TYPE_CHECKING:
    from engine.admin.brokers.load import Replicas
    from engine.admin.cluster.connection import Cluster
    from engine.admin.reassignment.plan_file import PartitionMove

group = CommandGroup(
    "reassign",
    "Move partitions between brokers and log dirs.",
    action_flags={f"--{word}": word for word in ("generate", "execute", "verify", "cancel", "list")},
)

PlanFile = Annotated[
    Path, typer.Option("--reassignment-json-file", metavar="FILE", help="Partitions with their replicas, Kafka's JSON.")
]
PreserveThrottles = Annotated[
    bool, typer.Option("--preserve-throttles", help="Leave throttles as they are, also when everything is done.")
]
Plot = Annotated[
    bool, typer.Option("--plot/--no-plot", help="On a terminal also show what brokers carry before and after.")
]
Wait = Annotated[
    bool, typer.Option("--wait/--no-wait", help="Wait until it is done, or for --timeout if that is given.")
]


def read_plan(path: Path) -> tuple[PartitionMove, ...]:
    """Read a reassignment file."""
    from engine.admin.reassignment.plan_file import parse_plan

    return parse_plan(path.read_text(encoding="utf-8", errors="replace"), str(path))


async def heat_of(cluster: Cluster, before: Replicas, after: Replicas, brokers: Iterable[int] = ()) -> Section:
    """Return the heat map of a plan, with sizes where brokers tell them."""
    from cli.views.brokers_load import heat_section
    from engine.admin.brokers.reading_load import read_load_of_plan

    load = await read_load_of_plan(cluster, before, after, brokers)
    return heat_section(load.brokers, len(after), load.bytes_to_copy)


def follow_limit_s(invocation: Invocation) -> float | None:
    """Return for how long a reassignment is followed: for --timeout if that is given, else to its end."""
    return invocation.timeout_s if invocation.has_timeout_given else None
