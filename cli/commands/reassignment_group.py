"""The group ``klamm reassign`` and what its commands share. Options are those of kafka-reassign-partitions."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.output.report import Section

if TYPE_CHECKING:
    from engine.admin.brokers.load import Replicas
    from engine.admin.cluster.connection import Cluster
    from engine.admin.reassignment.moves import PartitionStatus
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
    from engine.admin.brokers.load import bytes_to_copy, load_of_plan
    from engine.admin.brokers.reading_load import read_sizes

    sizes = await read_sizes(cluster, after)
    loads = load_of_plan(before, after, sizes, brokers)
    return heat_section(loads, len(after), bytes_to_copy(before, after, sizes))


def rollback_path(given: Path | None) -> Path:
    """Return where the way back is written: as given, else a new name in this folder."""
    return given or Path(f"rollback-{datetime.now(UTC):%Y%m%dT%H%M%S.%f}Z.json")


async def follow(invocation: Invocation, cluster: Cluster, plan: Sequence[PartitionMove]) -> list[PartitionStatus]:
    """Wait with progress until nothing of the plan moves, or for --timeout if it is given; return the last look."""
    from cli.views.reassignment_progress import ProgressView
    from engine.admin.reassignment.progress import ProgressMeter
    from engine.admin.reassignment.verify import wait_for_reassignment

    view, meter = ProgressView(invocation.talk), ProgressMeter()
    timeout_s = invocation.timeout_s if invocation.has_timeout_given else None
    try:
        return await wait_for_reassignment(
            cluster, plan, timeout_s=timeout_s, on_status=lambda statuses, now: view.show(meter.update(statuses, now))
        )
    finally:
        view.end()
