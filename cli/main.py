"""The program ``klamm``: builds the root command, runs it, and lets no traceback reach a user."""

from __future__ import annotations

import re
import sys
from collections.abc import Sequence
from functools import cache
from typing import Annotated

import typer
from typer._click.core import Context
from typer._click.exceptions import ClickException, NoArgsIsHelpError, NoSuchOption, UsageError
from typer.main import get_command

from cli.exit_codes import ExitCode
from cli.framework.command import HELP_WIDTH_MAX
from cli.framework.early import wants_json
from cli.framework.execution import unexpected
from cli.framework.failure import Failure, interrupted
from cli.framework.root import RootGroup
from cli.framework.stdout import OutputClosed, closed_pipe, drawing_stream
from cli.framework.talk import Talk
from cli.table_of_commands import ENTRIES
from cli.table_of_kafka_tools import ABSENT_TOOLS, TOOLS
from engine.common.version import VERSION

_HELP = """An operator's toolkit for Kafka on ZooKeeper, with a broker engine of its own.

Every command takes -o json|jsonl|csv|yaml|plain, --quiet, --verbose, --timeout and --help with examples.
"""


_NO_COMMAND = re.compile(r"No such command '(.*?)'\.( Did you mean .*)?")
"""Typer's words for a wrong command of a group."""
_QUOTED = re.compile("'([^']+)'")


def main(arguments: Sequence[str]) -> int:
    """Run the program with ``arguments`` and return its exit code. It prints errors on stderr."""
    talk = Talk(is_json=wants_json(arguments))
    try:
        with drawing_stream() as stdout:
            try:
                result = root_command().main(list(arguments), prog_name="klamm", standalone_mode=False)
            except NoArgsIsHelpError as error:
                stream = sys.stderr if arguments else stdout
                stream.write(error.format_message() + "\n")
                return ExitCode.USAGE if arguments else ExitCode.DONE
            return result if isinstance(result, int) else ExitCode.DONE
    except ClickException as error:
        failure = _usage_failure(error)
        talk.fail(failure)
        return failure.code
    except (KeyboardInterrupt, typer.Abort):
        talk.fail(interrupted([]))
        return ExitCode.INTERRUPTED
    except OutputClosed:
        return closed_pipe()
    except SystemExit as error:
        if isinstance(error.__context__, BrokenPipeError):
            # Typer makes an exit of it.
            return closed_pipe()
        raise
    except Exception as error:
        return unexpected(talk, error)


@cache
def root_command() -> RootGroup:
    """Return the root command, which a process makes once; no command's module is imported yet."""
    app = typer.Typer(
        name="klamm",
        cls=RootGroup,
        help=_HELP,
        no_args_is_help=True,
        rich_markup_mode=None,
        pretty_exceptions_enable=False,
        context_settings={"max_content_width": HELP_WIDTH_MAX, "help_option_names": ["--help", "-h"]},
    )
    app.callback()(_root)
    command = get_command(app)
    assert isinstance(command, RootGroup)
    command.entries, command.tools, command.not_here = ENTRIES, TOOLS, ABSENT_TOOLS
    return command


def _show_version(is_wanted: bool) -> None:
    if is_wanted:
        typer.echo(f"klamm {VERSION}")
        raise typer.Exit


def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show the version and exit.")
    ] = False,
) -> None:
    """Take the options of ``klamm`` itself; all of them act by themselves."""


def _worded(error: ClickException) -> str:
    """Return what is wrong in klamm's usual words, without far-fetched suggestions."""
    if isinstance(error, NoSuchOption):
        from difflib import get_close_matches

        close = get_close_matches(error.option_name, error.possibilities or (), cutoff=0.75)
        return error.message + (f"; did you mean {' or '.join(close)}?" if close else "")
    message = error.format_message()
    if (match := _NO_COMMAND.fullmatch(message)) is None:
        return message
    close = _QUOTED.findall(match[2] or "")
    return f"no such command: {match[1]}" + (f"; did you mean {' or '.join(close)}?" if close else "")


def _takes_names(context: Context | None) -> bool:
    return context is not None and any(param.param_type_name == "argument" for param in context.command.params)


def _usage_failure(error: ClickException) -> Failure:
    message = _worded(error).strip()
    context = error.ctx if isinstance(error, UsageError) else None
    where = context.command_path if context is not None else None
    hint = f"{where} --help" if where is not None else None
    if isinstance(error, NoSuchOption) and not error.option_name.startswith("--") and _takes_names(context):
        hint = f"{hint}; a name that begins with a hyphen stands behind --: {where} -- NAME"
    return Failure(ExitCode.USAGE, "usage", message[:1].lower() + message[1:], where, hint)
