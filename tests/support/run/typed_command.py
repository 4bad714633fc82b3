"""Whether the program would accept a command that a page shows, without running it."""

from __future__ import annotations

from collections.abc import Sequence

from typer._click.core import Command as ClickCommand
from typer._click.core import Context
from typer._click.exceptions import UsageError
from typer.core import TyperGroup

from cli.framework.command import output_taken
from cli.main import root_command


def fault_of(words: Sequence[str], *, is_whole: bool = True) -> str | None:
    """Return why ``klamm`` would not accept these words; None if it would.

    A command that is only named may lack its arguments, or be a group.
    """
    root = root_command()
    command: ClickCommand = root
    context, rest = Context(command, info_name="klamm"), list(words)
    try:
        while isinstance(command, TyperGroup):
            rest = output_taken(context, rest)
            if rest[:1] == ["help"] and command is root:
                rest = [*rest[1:], "--help"]
            if not rest:
                return "a command is missing" if is_whole else None
            name, subcommand, rest = command.resolve_command(context, rest)
            assert subcommand is not None
            command, context = subcommand, Context(subcommand, parent=context, info_name=name)
        if not is_whole:
            command.make_parser(context).parse_args(rest)
        elif "--help" not in rest:
            command.make_context(context.info_name, rest, parent=context.parent)
    except UsageError as error:
        return error.format_message()
    return None
