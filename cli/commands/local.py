"""``klamm local``: a real ZooKeeper and brokers on this machine, kept in a folder (``./.klamm``)."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.exit_codes import ExitCode
from cli.framework.command import CommandGroup
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.local.cluster import LocalCluster

group = CommandGroup("local", "A real ZooKeeper and brokers on this machine.")

DEFAULT_DIRECTORY = Path(".klamm")
START_TIMEOUT_S = 60.0
_SIGNALS = ("KILL", "STOP", "CONT", "TERM")

Directory = Annotated[
    Path, typer.Option("--dir", metavar="DIR", help="The cluster's folder: its data, logs and local.json.")
]
BrokerId = Annotated[int, typer.Argument(metavar="ID", help="The broker's id.")]


@group.command(
    "up",
    needs=Needs(changes=True, bounded=False),
    examples=(
        "klamm local up",
        "klamm local up --brokers 3 --racks a,b,c --detach",
        "klamm local up --config log.retention.ms=60000 --config auto.create.topics.enable=false",
    ),
)
def up(
    invocation: Invocation,
    brokers: Annotated[int, typer.Option("--brokers", metavar="N", min=1, help="How many brokers.")] = 1,
    directory: Directory = DEFAULT_DIRECTORY,
    detach: Annotated[bool, typer.Option("--detach", "-d", help="Come back once it serves; end it with down.")] = False,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="K=V", help="A setting of every broker; may be repeated.")
    ] = None,
    racks: Annotated[
        str | None, typer.Option("--racks", metavar="A,B,…", help="Racks of the brokers, in turn.")
    ] = None,
    log_dirs: Annotated[int, typer.Option("--log-dirs", metavar="N", min=1, help="Log dirs of every broker.")] = 1,
    host: Annotated[str, typer.Option("--host", metavar="ADDRESS", help="Where all of it listens.")] = "127.0.0.1",
    port: Annotated[
        int | None, typer.Option("--port", metavar="P", help="The first broker's; by default 9092 or a free one.")
    ] = None,
    zookeeper_port: Annotated[
        int | None, typer.Option("--zookeeper-port", metavar="P", help="By default 2181 or a free one.")
    ] = None,
) -> Report | ExitCode:
    """Start a ZooKeeper and brokers, and wait until they serve.

    Without --detach it stays in the foreground and ends all of it on Ctrl-C or TERM; the data stays. Commands in this
    folder find the cluster by themselves, unless it was given another --dir.
    """
    from cli.views.local import local_report, running_notes
    from engine.config.broker import parse_override
    from engine.local.cluster import LocalCluster

    settings = dict(parse_override(text) for text in config or ())
    if not invocation.goes_ahead(f"start a ZooKeeper and {brokers} brokers in {directory}"):
        return ExitCode.DONE
    cluster = LocalCluster(
        brokers,
        directory=directory,
        host=host,
        zookeeper_port=zookeeper_port,
        first_broker_port=port,
        racks=[rack.strip() for rack in (racks or "").split(",") if rack.strip()],
        config=settings,
        log_dir_count=log_dirs,
        fsync=True,
        detached=detach,
        start_timeout_s=_start_timeout_s(invocation),
    )
    if detach:
        cluster.start()
        is_elsewhere = directory != DEFAULT_DIRECTORY
        return local_report(cluster.status(), notes=running_notes(cluster.status(), is_elsewhere=is_elsewhere))
    return _run_in_foreground(invocation, cluster)


@group.command(
    "down", needs=Needs(changes=True, bounded=False), examples=("klamm local down", "klamm local down --dir elsewhere")
)
def down(invocation: Invocation, directory: Directory = DEFAULT_DIRECTORY) -> None:
    """End the brokers, then ZooKeeper; the data stays in the folder."""
    cluster = _attached(invocation, directory)
    if invocation.goes_ahead(f"end the local cluster in {directory}"):
        cluster.stop()
        invocation.talk.say(f"ended; its data stays in {directory}")


@group.command("status", examples=("klamm local status", "klamm local status -o json | jq -r .bootstrap_servers"))
def status(invocation: Invocation, directory: Directory = DEFAULT_DIRECTORY) -> Report:
    """Show what runs where; exits with 1 when a part of it does not run."""
    from cli.views.local import local_report

    return local_report(_attached(invocation, directory).status())


@group.command("start", needs=Needs(changes=True, bounded=False), examples=("klamm local start 1",))
def start(invocation: Invocation, broker: BrokerId, directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Start a broker that was stopped or killed, and wait until it serves."""
    cluster = _attached(invocation, directory)
    cluster.broker(broker)
    if invocation.goes_ahead(f"start broker {broker}"):
        cluster.start_broker(broker)
        invocation.talk.say(f"broker {broker} serves at {cluster.broker(broker).address}")


@group.command("stop", needs=Needs(changes=True, bounded=False), examples=("klamm local stop 1",))
def stop(invocation: Invocation, broker: BrokerId, directory: Directory = DEFAULT_DIRECTORY) -> None:
    """Stop a broker by a controlled shutdown."""
    cluster = _attached(invocation, directory)
    cluster.broker(broker)
    if invocation.goes_ahead(f"stop broker {broker}"):
        was_enough = cluster.stop_broker(broker)
        invocation.talk.say(f"broker {broker} has stopped" if was_enough else f"broker {broker} had to be killed")


@group.command(
    "kill",
    needs=Needs(changes=True, bounded=False),
    examples=("klamm local kill 1", "klamm local kill 1 --signal STOP", "klamm local kill 1 --signal CONT"),
)
def kill(
    invocation: Invocation,
    broker: BrokerId,
    signal: Annotated[
        str,
        typer.Option("--signal", "-s", metavar="NAME", help="KILL: crash, STOP: hang, CONT: go on; TERM."),
    ] = "KILL",
    directory: Directory = DEFAULT_DIRECTORY,
) -> None:
    """Send a broker a signal, to see what the cluster does."""
    from engine.common.errors import OperationError

    name = signal.upper().removeprefix("SIG")
    if name not in _SIGNALS:
        raise UsageError(f"--signal wants one of {', '.join(_SIGNALS)}, not {signal!r}")
    cluster = _attached(invocation, directory)
    found = cluster.broker(broker)
    if not found.is_alive:
        raise OperationError(f"broker {broker} does not run", hint=f"start it: klamm local start {broker}")
    if not invocation.goes_ahead(f"send {name} to broker {broker}"):
        return
    match name:
        case "KILL":
            cluster.kill_broker(broker)
        case "STOP":
            cluster.pause_broker(broker)
        case "CONT":
            cluster.resume_broker(broker)
        case _:
            found.request_stop()
    invocation.talk.say(f"sent {name} to broker {broker}")


def _attached(invocation: Invocation, directory: Path) -> LocalCluster:
    from engine.local.cluster import LocalCluster

    return LocalCluster.attach(directory, start_timeout_s=_start_timeout_s(invocation))


def _start_timeout_s(invocation: Invocation) -> float:
    return invocation.timeout_s if invocation.has_timeout_given else START_TIMEOUT_S


def _run_in_foreground(invocation: Invocation, cluster: LocalCluster) -> ExitCode:
    from cli.framework.signals import StopSignals
    from cli.views.local import local_report

    with StopSignals() as signals:
        cluster.start()
        signals.hold()
        try:
            invocation.print(local_report(cluster.status(), notes=("serving, stop with Ctrl-C",)))
            is_told_to = signals.wait(lambda: cluster.zookeeper.is_running)
            return _how_it_ended(invocation, cluster, is_told_to=is_told_to)
        finally:
            _end(cluster)


def _how_it_ended(invocation: Invocation, cluster: LocalCluster, *, is_told_to: bool) -> ExitCode:
    """Say why it ends: a signal, ``local down`` elsewhere, or ZooKeeper ended by itself."""
    if is_told_to:
        invocation.talk.say("stopping")
        return ExitCode.DONE
    if not (cluster.directory / "local.json").exists():
        invocation.talk.say("ended by klamm local down")
        return ExitCode.DONE
    invocation.talk.warn(f"ZooKeeper ended by itself: see {cluster.directory / 'zookeeper'}")
    return ExitCode.BAD_ANSWER


def _end(cluster: LocalCluster) -> None:
    """End all of it, also brokers that another command has started again meanwhile."""
    from engine.common.errors import OperationError
    from engine.local.cluster import LocalCluster

    try:
        LocalCluster.attach(cluster.directory).stop()
    except OperationError:
        # The record is gone: another command has ended it already.
        cluster.stop()
        return
    cluster.stop()
