"""The group ``klamm groups`` and the parameters that its commands share. Options are those of kafka-consumer-groups."""

from __future__ import annotations

from dataclasses import dataclass
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

Topics = Annotated[
    list[str] | None,
    typer.Option(
        "--topic",
        metavar="T[:P,…]",
        help="A topic, or these partitions of it; may be repeated.",
        autocompletion=complete_topics,
    ),
]


@dataclass(frozen=True, slots=True, kw_only=True)
class NamedGroups:
    """Groups that are named, as arguments or in Kafka's way."""

    groups: Annotated[
        list[str] | None, typer.Argument(metavar="GROUP", help="Ids of groups.", autocompletion=complete_groups)
    ] = None
    group: Annotated[
        list[str] | None,
        typer.Option(
            "--group",
            metavar="G",
            help="A group's id, or a pattern of whole ids; may be repeated.",
            autocompletion=complete_groups,
        ),
    ] = None

    @property
    def names(self) -> list[str]:
        return [*(self.groups or ()), *(self.group or ())]

    def scope(self) -> GroupScope:
        from engine.admin.groups.scope import scope_of

        return scope_of(self.names, is_all=False)


@dataclass(frozen=True, slots=True, kw_only=True)
class ChosenGroups(NamedGroups):
    """Groups that are named, or all."""

    all_groups: Annotated[bool, typer.Option("--all-groups", help="Every consumer group.")] = False

    def scope(self) -> GroupScope:
        from engine.admin.groups.scope import scope_of

        return scope_of(self.names, is_all=self.all_groups)
