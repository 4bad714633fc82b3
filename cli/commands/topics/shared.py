"""The group ``klamm topics`` and the parameters that its commands share. Options are those of kafka-topics."""

from __future__ import annotations

from typing import Annotated

import typer

from cli.framework.command import CommandGroup
from cli.framework.completing import complete_topics

group = CommandGroup(
    "topics",
    "List, describe, create, alter and delete topics.",
    action_flags={f"--{word}": word for word in ("list", "describe", "create", "alter", "delete")},
)

TopicTexts = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        help="Names, or regular expressions that match whole names. All if you name none.",
        autocompletion=complete_topics,
    ),
]
NamedTopics = Annotated[
    list[str] | None,
    typer.Argument(
        metavar="TOPIC",
        help="Names, or regular expressions that match whole names.",
        autocompletion=complete_topics,
    ),
]
TopicOptions = Annotated[list[str] | None, typer.Option("--topic", hidden=True, autocompletion=complete_topics)]
ExcludeInternal = Annotated[bool, typer.Option("--exclude-internal", help="Leave Kafka's own topics out.")]
IfExists = Annotated[bool, typer.Option("--if-exists", help="A topic that does not exist is not an error.")]
