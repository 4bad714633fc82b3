"""``klamm local start``, ``stop``, ``kill``, ``add``, ``wait``, ``controller``: act on its brokers and ZooKeeper."""

from __future__ import annotations

import signal as signals
from collections.abc import Sequence
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.local.shared import DEFAULT_DIRECTORY, Directory, found_cluster, group, parsed_settings
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.output.report import Report

if TYPE_CHECKING:
    from engine.local.cluster import LocalCluster

ZOOKEEPER = "zookeeper"
_SIGNALS = ("KILL", "STOP", "CONT", "TERM")

Part = Annotated[str, typer.Argument(metavar="ID|zookeeper", help="The broker's id, or the word zookeeper.")]
NewId = Annotated[int | None, typer.Argument(metavar="ID", help="The new broker's id.")]


@group.command(
    "start",
    needs=Needs(changes=True, bounded=False),
    examples=(
        "klamm local start 1",
        "klamm local start 1 --config log.cleaner.enable=false",
        "klamm local start zookeeper",
    ),
)
def start(
    invocation: Invocation,
    part: Part,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="K=V", help="A setting for this start; may be repeated.")
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
) -> Report:
    """Start a broker or ZooKeeper again after it was stopped or killed, and wait until it serves.

    A setting given here overrides all others, for this start only.
    """
    cluster = found_cluster(invocation, directory)
    overrides = parsed_settings(config)
    broker_id = _broker_id(cluster, part)
    if broker_id is None and overrides:
        raise UsageError("--config is for brokers")
    if not invocation.goes_ahead(f"start {_name(broker_id)}"):
        return _changed(cluster)
    if broker_id is None:
        cluster.start_zookeeper()
        return _changed(cluster, f"ZooKeeper serves at {cluster.zookeeper.connect_string}")
    cluster.start_broker(broker_id, overrides)
    return _changed(cluster, f"broker {broker_id} serves at {cluster.broker(broker_id).address}")


@group.command(
    "stop", needs=Needs(changes=True, bounded=False), examples=("klamm local stop 1", "klamm local stop zookeeper")
)
def stop(invocation: Invocation, part: Part, directory: Directory = DEFAULT_DIRECTORY) -> Report:
    """Stop a broker with a controlled shutdown, or stop ZooKeeper.

    Exits with 1 when it had to be killed because --timeout was too short.
    """
    cluster = found_cluster(invocation, directory)
    broker_id = _broker_id(cluster, part)
    if not invocation.goes_ahead(f"stop {_name(broker_id)}"):
        return _changed(cluster)
    if broker_id is None:
        was_enough = cluster.stop_zookeeper(invocation.timeout_s)
    else:
        was_enough = cluster.stop_broker(broker_id, invocation.timeout_s)
    outcome = "has stopped" if was_enough else "had to be killed"
    code = ExitCode.DONE if was_enough else ExitCode.BAD_ANSWER
    return _changed(cluster, f"{_name(broker_id)} {outcome}", exit_code=code)


@group.command(
    "kill",
    needs=Needs(changes=True, bounded=False),
    examples=(
        "klamm local kill 1",
        "klamm local kill 1 --signal STOP",
        "klamm local kill 1 --signal CONT",
        "klamm local kill zookeeper",
    ),
)
def kill(
    invocation: Invocation,
    part: Part,
    signal: Annotated[
        str, typer.Option("--signal", "-s", metavar="NAME", help="KILL: crash, STOP: hang, CONT: go on; TERM.")
    ] = "KILL",
    directory: Directory = DEFAULT_DIRECTORY,
) -> Report:
    """Send a signal to a broker or to ZooKeeper, to see what the cluster does."""
    from engine.common.errors import OperationError

    name = signal.upper().removeprefix("SIG")
    if name not in _SIGNALS:
        raise UsageError(f"--signal must be one of {', '.join(_SIGNALS)}, not {signal!r}")
    cluster = found_cluster(invocation, directory)
    broker_id = _broker_id(cluster, part)
    runs = cluster.zookeeper.is_running if broker_id is None else cluster.broker(broker_id).is_alive
    if not runs:
        raise OperationError(f"{_name(broker_id)} is not running", hint=f"start it: klamm local start {part}")
    if not invocation.goes_ahead(f"send {name} to {_name(broker_id)}"):
        return _changed(cluster)
    if broker_id is None:
        _signal_zookeeper(cluster, name)
    else:
        _signal_broker(cluster, broker_id, name)
    return _changed(cluster, f"sent {name} to {_name(broker_id)}")


@group.command(
    "add",
    needs=Needs(changes=True, bounded=False),
    examples=("klamm local add 3", "klamm local add 3 --rack b --config num.io.threads=2"),
)
def add(
    invocation: Invocation,
    broker: NewId = None,
    rack: Annotated[str | None, typer.Option("--rack", metavar="NAME", help="Its rack.")] = None,
    config: Annotated[
        list[str] | None, typer.Option("--config", metavar="K=V", help="A setting of this broker; may be repeated.")
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
) -> Report:
    """Start one more broker, and wait until it serves."""
    from engine.common.errors import OperationError

    cluster = found_cluster(invocation, directory)
    if broker is None:
        free = max(cluster.brokers, default=-1) + 1
        raise OperationError("no ID is given", hint=f"the next free one: klamm local add {free}")
    if not invocation.goes_ahead(f"start one more broker with the id {broker}"):
        return _changed(cluster)
    cluster.add_broker(broker, rack=rack, config=parsed_settings(config))
    return _changed(cluster, f"broker {broker} serves at {cluster.broker(broker).address}")


@group.command("wait", needs=Needs(bounded=False), examples=("klamm local wait", "klamm local wait 1 2 --timeout 120"))
def wait(
    invocation: Invocation,
    brokers: Annotated[
        list[int] | None, typer.Argument(metavar="ID", help="Ids of brokers. All of them if you name none.")
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
) -> Report:
    """Wait until brokers serve, and until all running brokers know them."""
    cluster = found_cluster(invocation, directory)
    cluster.wait_until_serving(brokers or None)
    return _changed(cluster, "serving")


@group.command("controller", examples=("klamm local controller", "klamm local controller -o json"))
def controller(invocation: Invocation, directory: Directory = DEFAULT_DIRECTORY) -> Report:
    """Print the id of the broker that is the controller; exits with 1 when no broker knows one."""
    from cli.output.report import Column, Kind, Table

    controller_id = found_cluster(invocation, directory).controller_id()
    rows: Sequence[Sequence[object]] = [] if controller_id is None else [(controller_id,)]
    code = ExitCode.BAD_ANSWER if controller_id is None else ExitCode.DONE
    return Report({"controller": controller_id}, Table((Column("controller", Kind.NUMBER),), rows), exit_code=code)


def _broker_id(cluster: LocalCluster, part: str) -> int | None:
    """Return the id of a broker of the cluster; None means its ZooKeeper."""
    if part == ZOOKEEPER:
        return None
    if not part.isdecimal():
        raise UsageError(f"{part!r} is neither a broker's id nor the word {ZOOKEEPER}")
    return cluster.broker(int(part)).id


def _name(broker_id: int | None) -> str:
    return "ZooKeeper" if broker_id is None else f"broker {broker_id}"


def _signal_broker(cluster: LocalCluster, broker_id: int, name: str) -> None:
    match name:
        case "KILL":
            cluster.kill_broker(broker_id)
        case "STOP":
            cluster.pause_broker(broker_id)
        case "CONT":
            cluster.resume_broker(broker_id)
        case _:
            cluster.broker(broker_id).request_stop()


def _signal_zookeeper(cluster: LocalCluster, name: str) -> None:
    match name:
        case "KILL":
            cluster.kill_zookeeper()
        case "STOP":
            cluster.zookeeper.pause()
        case "CONT":
            cluster.zookeeper.resume()
        case _:
            process = cluster.zookeeper.process
            if process is not None:
                process.send_signal(signals.SIGTERM)


def _changed(cluster: LocalCluster, *notes: str, exit_code: ExitCode = ExitCode.DONE) -> Report:
    from cli.views.local import local_report

    return local_report(cluster.status(), notes=notes, exit_code=exit_code)
