"""``klamm shims``: Kafka's shell names as small scripts that call klamm."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from cli.framework.command import single_command
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Column, Report, Table

_MARK = "# Written by klamm shims."


@single_command(
    "shims", needs=Needs(changes=True), examples=("klamm shims ~/kafka-names --dry-run", "klamm shims ~/kafka-names")
)
def command(
    invocation: Invocation,
    folder: Annotated[Path, typer.Argument(metavar="DIR", help="The folder; created if it does not exist.")],
) -> Report:
    """Write Kafka's shell names (kafka-topics.sh, kafka-topics, …) into a folder for old scripts.

    Such scripts find the tools that they call, with their options, and read the lines that Kafka's tools print. Exit
    codes and errors are klamm's.

    Each is a script of two lines that calls this klamm. It never replaces a file that klamm did not write.
    """
    from cli.framework.kafka_tools import RUN_CLASS
    from cli.table_of_kafka_tools import TOOLS

    names = sorted(
        name for tool in (*(known_tool.name for known_tool in TOOLS), RUN_CLASS) for name in _shell_names(tool)
    )
    paths = [folder / name for name in names]
    _refuse_others(paths)
    if invocation.confirm(f"write {len(paths)} scripts into {folder}"):
        folder.mkdir(parents=True, exist_ok=True)
        for path in paths:
            path.write_text(_script(path.name), encoding="utf-8")
            path.chmod(0o755)
        invocation.talk.say(f"before Kafka's own tools: export PATH={folder.absolute()}:$PATH")
    return Report([str(path) for path in paths], Table((Column("path"),), [(str(path),) for path in paths]))


def _shell_names(tool: str) -> tuple[str, ...]:
    """Return what the tool is called in a shell; a Java class has one name only."""
    return (tool,) if tool.startswith("kafka.") else (tool, f"{tool}.sh")


def _script(name: str) -> str:
    """Return the script; it names the interpreter that runs klamm now, because another PATH may lack it."""
    import shlex
    import sys

    return f'#!/bin/sh\n{_MARK}\nexec {shlex.quote(sys.executable)} -m klamm {name} "$@"\n'


def _refuse_others(paths: list[Path]) -> None:
    from engine.common.errors import OperationError

    others = [path for path in paths if path.exists() and _MARK not in path.read_text("utf-8", errors="replace")]
    if others:
        raise OperationError(f"{others[0]} exists already, and klamm did not write it", hint="use another folder")
