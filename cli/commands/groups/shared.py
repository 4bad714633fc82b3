"""The group ``klamm groups`` and the parameters that its commands share. Options are those of kafka-consumer-groups."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from cli.framework.command import CommandGroup
from cli.framework.completing import complete_groups, complete_topics

if TYPE_CHECKING:
    from engine.admin.groups.scope import GroupScope

group = CommandGroup(
    "groups",
    "Consumer groups: list, describe, reset and delete, on brokers and in ZooKeeper.",
    action_flags={f"--{word}": word for word in ("list", "describe", "reset-offsets", "delete-offsets", "delete")},
)

GroupNames = Annotated[
    list[str] | None, typer.Argument(metavar="GROUP", help="Ids of groups.", autocompletion=complete_groups)
]
GroupOptions = Annotated[
    list[str] | None,
    typer.Option(
        "--group",
        metavar="G",
        help="A group's id, or a pattern of whole ids; may be repeated.",
        autocompletion=complete_groups,
    ),
]
Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="T[:P,…]",
        help="A topic, or these partitions of it; may be repeated.",
        autocompletion=complete_topics,
    ),
]
AllGroups = Annotated[bool, typer.Option("--all-groups", help="Every consumer group.")]


def scope(names: list[str] | None, options: list[str] | None, is_all: bool) -> GroupScope:
    """Return the groups that were named, as arguments or in Kafka's way."""
    from engine.admin.groups.scope import scope_of

    return scope_of([*(names or ()), *(options or ())], is_all=is_all)
