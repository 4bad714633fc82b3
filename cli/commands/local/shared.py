"""The group ``klamm local``: what its commands share, and how they find their cluster."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation

if TYPE_CHECKING:
    from engine.local.cluster import LocalCluster

group = CommandGroup("local", "A real ZooKeeper and brokers on this machine.")

DEFAULT_DIRECTORY = Path(".klamm")
START_TIMEOUT_S = 60.0

Directory = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="The cluster's folder: its data, logs and local.json.")
]

_held: ContextVar[tuple[LocalCluster, float] | None] = ContextVar("held cluster", default=None)
"""The cluster, and how long its brokers may take to serve unless a command says otherwise."""


@contextmanager
def holding(cluster: LocalCluster) -> Iterator[None]:
    """Inside, commands of this process act on this cluster unless they name another folder."""
    token = _held.set((cluster, cluster.start_timeout_s))
    try:
        yield
    finally:
        _held.reset(token)


def is_holding() -> bool:
    """Whether this process holds a cluster for its commands to act on."""
    return _held.get() is not None


def found_cluster(invocation: Invocation, directory: Path) -> LocalCluster:
    """Return the cluster that this process holds, else the one that an earlier command started in a folder."""
    from engine.local.cluster import LocalCluster

    held = _held.get()
    if held is not None and directory == DEFAULT_DIRECTORY:
        cluster, default_s = held
        cluster.start_timeout_s = invocation.timeout_s if invocation.has_timeout_given else default_s
        return cluster
    return LocalCluster.attach(directory, start_timeout_s=start_timeout_s(invocation))


def start_timeout_s(invocation: Invocation) -> float:
    """Return how long brokers may take to serve."""
    return invocation.timeout_s if invocation.has_timeout_given else START_TIMEOUT_S


def parsed_settings(texts: list[str] | None) -> dict[str, str]:
    """Return the settings of ``K=V`` options."""
    from engine.kafka.config.properties import parse_override

    for text in texts or ():
        if "=" not in text:
            raise UsageError(f"a setting is written K=V, not {text!r}")
    return dict(parse_override(text) for text in texts or ())
