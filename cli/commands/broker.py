"""``klamm broker``: one broker in the foreground."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Annotated

import typer

from cli.exit_codes import ExitCode
from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.options import Needs

group = CommandGroup("broker", "One broker in the foreground, from Kafka's own server.properties.")


@group.command(
    "start",
    needs=Needs(bounded=False),
    examples=(
        "klamm broker start server.properties",
        "klamm broker start server.properties --override broker.id=1 --override listeners=PLAINTEXT://127.0.0.1:9093",
    ),
)
def start(
    invocation: Invocation,
    file: Annotated[
        Path,
        typer.Argument(
            metavar="FILE", allow_dash=True, help="A server.properties file, as Apache Kafka reads it; - is stdin."
        ),
    ],
    override: Annotated[
        list[str] | None, typer.Option("--override", metavar="KEY=VALUE", help="Overrides the file; may be repeated.")
    ] = None,
    log_folder: Annotated[
        Path | None,
        typer.Option(
            "--log-folder", metavar="DIR", help="Write Kafka's log files there.  [env: LOG_DIR; default: stderr]"
        ),
    ] = None,
) -> ExitCode:
    """Run one broker until TERM or Ctrl-C, which is a controlled shutdown.

    Prints its id and listeners on stderr once it serves.
    """
    from engine.broker.server.process import run
    from engine.kafka.config.properties import parse_override

    overrides = dict(parse_override(text) for text in override or ())
    if log_folder is None and os.environ.get("LOG_DIR"):
        log_folder = Path(os.environ["LOG_DIR"])
    return ExitCode(run(file, overrides, log_folder=log_folder))
