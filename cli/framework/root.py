"""The root command: a table of names and one-line helps; a command's module is imported when it is called.

Also the hidden names: singular forms, and the names of Kafka's tools with their options, so that users need not guess.
"""

from __future__ import annotations

import importlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from difflib import get_close_matches
from typing import Any

from typer._click.core import Command, Context
from typer.core import TyperGroup

from cli.framework.coercion import PlainCoercion
from cli.framework.command import OUTPUT, output_taken
from cli.framework.kafka_tools import AbsentTool, KafkaTool, translate
from cli.output.format import OutputFormat


@dataclass(frozen=True, slots=True)
class Entry:
    """One word after ``klamm``. ``attribute`` of ``module`` is the command or the CommandGroup."""

    name: str
    module: str
    help: str
    section: str
    attribute: str = "group"
    aliases: tuple[str, ...] = ()


class RootGroup(PlainCoercion, TyperGroup):
    """Knows all commands by name, loads the one that is called."""

    entries: Sequence[Entry] = ()
    tools: Sequence[KafkaTool] = ()
    not_here: Mapping[str, AbsentTool] = {}
    """Kafka's tools that have no counterpart, and what to say about each."""

    def parse_args(self, ctx: Context, args: list[str]) -> list[str]:
        """Parse the words; those of a Kafka tool become ours first, because ``--version`` is one of the root's."""
        args = output_taken(ctx, args)
        if args[:1] == ["help"]:
            args = [*args[1:], "--help"]
        ours = self._ours(args)
        if ours is not args:
            ctx.meta.setdefault(OUTPUT, OutputFormat.KAFKA.value)
        return super().parse_args(ctx, ours)

    def _ours(self, args: list[str]) -> list[str]:
        return (translate(self.tools, args) if args else None) or args

    def list_commands(self, ctx: Context) -> list[str]:
        return [entry.name for entry in self.entries]

    def get_command(self, ctx: Context, cmd_name: str) -> Command | None:
        for entry in self.entries:
            if cmd_name == entry.name or cmd_name in entry.aliases:
                return load(entry)
        return None

    def resolve_command(self, ctx: Context, args: list[str]) -> tuple[str | None, Command | None, list[str]]:
        """Find the command; pass its real name on, even if an alias or a Kafka tool's name was typed."""
        args = self._ours(args)
        command = self.get_command(ctx, args[0])
        if command is None and ctx.resilient_parsing:
            return None, None, args[1:]
        instead = self.not_here.get(args[0].removesuffix(".sh"))
        if command is None and instead is not None:
            ctx.fail(f"no such command: {args[0]} ({instead.instead})")
        if command is None:
            close = self._like(args[0])
            ctx.fail(f"no such command: {args[0]}" + (f"; did you mean {' or '.join(close)}?" if close else ""))
        return command.name, command, args[1:]

    def _like(self, word: str) -> list[str]:
        names = {name: entry.name for entry in self.entries for name in (entry.name, *entry.aliases)}
        names |= {tool.name: tool.name for tool in self.tools}
        return list(dict.fromkeys(names[match] for match in get_close_matches(word, names)))

    def format_commands(self, ctx: Context, formatter: Any) -> None:
        """List the commands by section, from the table alone."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for entry in self.entries:
            sections.setdefault(entry.section, []).append((entry.name, entry.help))
        for title, records in sections.items():
            with formatter.section(title):
                formatter.write_dl(records)

    def shell_complete(self, ctx: Context, incomplete: str) -> list[Any]:
        """Complete names from the table, without loading a command."""
        from typer._click.shell_completion import CompletionItem

        items = [
            CompletionItem(entry.name, help=entry.help) for entry in self.entries if entry.name.startswith(incomplete)
        ]
        if incomplete.startswith("k"):
            items += [CompletionItem(tool.name) for tool in self.tools if tool.name.startswith(incomplete)]
        return items or super().shell_complete(ctx, incomplete)


def load(entry: Entry) -> Command:
    """Import an entry's module and return its command."""
    loaded = getattr(importlib.import_module(entry.module), entry.attribute)
    command = getattr(loaded, "click_group", loaded)
    assert isinstance(command, Command)
    return command
