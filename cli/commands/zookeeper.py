"""``klamm zookeeper``: the embedded ZooKeeper in the foreground."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.exit_codes import ExitCode
from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Column, Kind, Report, Table

if TYPE_CHECKING:
    from engine.local.zookeeper import EmbeddedZooKeeper

group = CommandGroup("zookeeper", "The embedded ZooKeeper: a real Apache ZooKeeper, of a recent release.")

_OWN_KEYS = ("clientPort", "clientPortAddress", "dataDir", "tickTime")


@group.command(
    "start",
    needs=Needs(changes=True, bounded=False),
    examples=(
        "klamm zookeeper start",
        "klamm zookeeper start --port 2182 --dir zk-data",
        "klamm zookeeper start zoo.cfg",
    ),
)
def start(
    invocation: Invocation,
    file: Annotated[
        Path | None,
        typer.Argument(
            metavar="FILE", allow_dash=True, help="A zoo.cfg: its clientPort, dataDir and other lines are used."
        ),
    ] = None,
    port: Annotated[
        int | None,
        typer.Option("--port", metavar="P", min=1, max=65535, help="2181 if it is free, otherwise another free port."),
    ] = None,
    directory: Annotated[
        Path | None, typer.Option("--dir", metavar="DIR", help="Where its data goes.  [default: a temporary folder]")
    ] = None,
    host: Annotated[str | None, typer.Option("--host", metavar="HOST", help="Where it listens.")] = None,
) -> ExitCode:
    """Run a real Apache ZooKeeper until TERM or Ctrl-C.

    Prints its address once it serves. With server.1=… and so on in the file, it
    is one server of an ensemble, and serves when a majority runs.
    """
    from cli.framework.signals import StopSignals
    from engine.local.zookeeper import EmbeddedZooKeeper

    settings = _settings(file)
    chosen_port = port if port is not None else _port(settings)
    server = EmbeddedZooKeeper(
        directory or (Path(settings["dataDir"]) if "dataDir" in settings else None),
        host=host or settings.get("clientPortAddress", "127.0.0.1"),
        port=chosen_port,
        tick_time_ms=int(settings.get("tickTime", "500")),
        settings={key: value for key, value in settings.items() if key not in _OWN_KEYS},
    )
    if not invocation.goes_ahead(f"start a ZooKeeper on {server.host}:{chosen_port or '2181 or a free port'}"):
        return ExitCode.DONE
    with StopSignals() as signals, server:
        signals.hold()
        invocation.print(_report(server))
        where = str(server.data_dir)
        if signals.wait(lambda: server.is_running):
            invocation.talk.say("stopping ZooKeeper")
            return ExitCode.DONE
    invocation.talk.warn(f"ZooKeeper ended by itself: see {where}")
    return ExitCode.BAD_ANSWER


def _report(server: EmbeddedZooKeeper) -> Report:
    pid = server.process.pid if server.process is not None else None
    data = {"zookeeper": server.connect_string, "dir": str(server.data_dir), "pid": pid}
    columns = (Column("zookeeper"), Column("dir"), Column("pid", Kind.NUMBER))
    return Report(data, Table(columns, [tuple(data.values())]), notes=("serving, stop with Ctrl-C",))


def _settings(file: Path | None) -> dict[str, str]:
    from engine.kafka.config.properties import parse_properties
    from engine.runtime.input_files import read_input

    return {} if file is None else parse_properties(read_input(file, "latin-1"))


def _port(settings: dict[str, str]) -> int | None:
    from engine.admin.cluster.errors import BadRequest

    text = settings.get("clientPort")
    if text is None:
        return None
    if not text.isdigit():
        raise BadRequest(f"clientPort={text} is not a port")
    return int(text)
