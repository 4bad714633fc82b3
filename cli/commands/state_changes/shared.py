"""The group ``klamm state-changes`` and the parameters that its commands share."""

from __future__ import annotations

from datetime import tzinfo
from pathlib import Path
from typing import Annotated

import typer

from cli.framework.command import CommandGroup

group = CommandGroup("state-changes", "Merge brokers' state-change logs, and see what happened.")

Paths = Annotated[
    list[Path] | None,
    typer.Argument(
        metavar="FILE|FOLDER",
        allow_dash=True,
        help="Logs, also gzipped; folders with state-change.log files; - is stdin.",
    ),
]
Logs = Annotated[str | None, typer.Option("--logs", metavar="A,B", help="Logs, as in StateChangeLogMerger.")]
LogsRegex = Annotated[
    str | None,
    typer.Option("--logs-regex", metavar="FOLDER/REGEX", help="Files of a folder, as in StateChangeLogMerger."),
]
Start = Annotated[
    str | None,
    typer.Option("--start", "--start-time", metavar="TIME", help="From this time: 2026-11-21 12:23:04,866, or 2h ago."),
]
End = Annotated[str | None, typer.Option("--end", "--end-time", metavar="TIME", help="Up to this time, inclusive.")]
Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="NAME", help="Only lines about this topic.")]
Partitions = Annotated[
    list[str] | None,
    typer.Option("--partition", "--partitions", metavar="N,…", help="Only these partitions of the topic."),
]
Brokers = Annotated[list[str] | None, typer.Option("--broker", metavar="ID,…", help="Only lines of these brokers.")]
Zones = Annotated[
    list[str] | None,
    typer.Option("--tz", metavar="[ID=]ZONE", help="The zone of the logs' times, or one broker's.  [default: local]"),
]


def named_paths(paths: list[Path] | None, logs: str | None) -> list[Path]:
    """Return the logs that were named, in either way."""
    return [*(paths or ()), *(Path(name.strip()) for name in (logs or "").split(",") if name.strip())]


def zones_of(texts: list[str] | None) -> dict[int | None, tzinfo | None]:
    """Return brokers' zones; None is the key of all other brokers' zone."""
    from engine.admin.state_changes.zones import parse_zone

    zones: dict[int | None, tzinfo | None] = {}
    for text in texts or ():
        broker, has_broker, zone = text.partition("=")
        is_brokers = bool(has_broker) and broker.isdecimal()
        zones[int(broker) if is_brokers else None] = parse_zone(zone if is_brokers else text)
    return zones
