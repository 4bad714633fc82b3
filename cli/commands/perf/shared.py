"""The group ``klamm perf`` and what its commands share. Options are those of Kafka's two perf-test tools."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation

group = CommandGroup("perf", "Load-test a cluster: send or read records, and measure.")

Topics = Annotated[list[str] | None, typer.Option("--topic", metavar="TOPIC", help="The same; may be repeated.")]
Partitions = Annotated[
    list[int] | None, typer.Option("--partition", metavar="N", help="Only this partition; may be repeated.")
]
ReportingInterval = Annotated[
    int, typer.Option("--reporting-interval", metavar="MS", min=1, help="Time between two lines.")
]
Duration = Annotated[str | None, typer.Option("--duration", metavar="TIME", help="Stop after this time: 30s, 2m.")]
StartAt = Annotated[float | None, typer.Option("--start-at", hidden=True)]
ENDLESS = 2**62
"""Stands for no number of records: something else ends the test."""
PrintMetrics = Annotated[bool, typer.Option("--print-metrics", help="Print the client's metrics at the end.")]


def words_and_properties(words: Iterable[str] | None, given: Iterable[str] | None) -> tuple[list[str], dict[str, str]]:
    """Return topics and properties. Like Kafka's tools, take words with ``=`` for properties."""
    from engine.admin.perf.producer_settings import parse_property

    topics = [word for word in words or () if "=" not in word]
    texts = [*(given or ()), *(word for word in words or () if "=" in word)]
    return topics, dict(map(parse_property, texts))


def use_security(invocation: Invocation, file: Path, properties: Mapping[str, str]) -> None:
    """Let a file of the producer's or consumer's settings secure the connections, where no option does."""
    if "security.protocol" in properties and invocation.target_options.command_config is None:
        invocation.target_options = replace(invocation.target_options, command_config=str(file))


def use_bootstrap(invocation: Invocation, properties: dict[str, str]) -> None:
    """Let ``bootstrap.servers`` name the cluster, where no option does."""
    servers = properties.get("bootstrap.servers")
    options = invocation.target_options
    if servers is None:
        return
    if options.bootstrap_server not in (None, servers):
        raise UsageError("--bootstrap-server and bootstrap.servers name different brokers")
    if options.cluster or options.snapshot:
        raise UsageError("bootstrap.servers and --cluster or --snapshot name different clusters")
    invocation.target_options = replace(options, bootstrap_server=servers)


async def wait_for_start(at_s: float | None) -> None:
    """Wait until that time of day, so that several processes begin together."""
    import asyncio
    import time

    if at_s is not None:
        await asyncio.sleep(max(0.0, at_s - time.time()))


def refuse(value: object, option: str, why: str) -> None:
    """Refuse an option of Kafka's tools that makes no sense here.

    Raises:
        BadRequest: it was given.
    """
    from engine.admin.cluster.errors import BadRequest

    if value is not None and value is not False:
        raise BadRequest(why, where=option, hint="leave it out, or use Kafka's own tool")
