"""``klamm local up``: starts a cluster; in the foreground it also ends it.

With ``--stdin`` it carries out commands from standard input, one per line. That is for programs such as
``klamm.testing`` that hold a cluster as long as they run. Everything they start is a child of this one process. A
command takes milliseconds; in a process of its own it would take a third of a second.
"""

from __future__ import annotations

import io
import json
import os
import select
import shlex
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import redirect_stderr, redirect_stdout, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer
from typer._click.exceptions import UsageError

from cli.commands.local.shared import (
    DEFAULT_DIRECTORY,
    Directory,
    group,
    holding,
    is_holding,
    parsed_settings,
    start_timeout_s,
)
from cli.exit_codes import ExitCode
from cli.framework.invocation import Invocation
from cli.framework.options import Needs
from cli.framework.signals import StopSignals
from cli.output.report import Column, Kind, Report, Table
from engine.common.quantities import counted

if TYPE_CHECKING:
    from engine.local.cluster import LocalCluster

OWN_ADDRESS = "own"
_MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")

_NOTED_WITHIN_S = 5.0
"""Another command that ends ZooKeeper records that within this time."""


BrokerSettings = Annotated[
    list[str] | None,
    typer.Option("--broker-config", metavar="ID:K=V", help="A setting of one broker; may be repeated."),
]
Host = Annotated[
    str,
    typer.Option("--host", metavar="ADDRESS", help="Where everything listens; 'own': a loopback address of its own."),
]
FirstPort = Annotated[
    int | None,
    typer.Option("--port", metavar="P", min=1, max=65535, help="The first broker's port: 9092 or a free one."),
]
ZooKeeperPort = Annotated[
    int | None, typer.Option("--zookeeper-port", metavar="P", min=1, max=65535, help="By default 2181 or a free one.")
]
Settings = Annotated[
    list[str] | None, typer.Option("--config", metavar="K=V", help="A setting of every broker; may be repeated.")
]
Secure = Annotated[
    bool, typer.Option("--secure", help="TLS, with a CA and users admin, alice and bob, made for this cluster.")
]
Sasl = Annotated[
    str | None,
    typer.Option(
        "--sasl",
        metavar="MECH",
        help="With --secure: passwords by plain, scram-sha-256 or scram-sha-512, instead of certificates.",
    ),
]
Acls = Annotated[
    bool, typer.Option("--acls", help="With --secure: only admin may do everything, others what ACLs allow.")
]
TakesCommands = Annotated[
    bool, typer.Option("--stdin", help="Read further commands from stdin; end with stdin or the parent process.")
]


@group.command(
    "up",
    needs=Needs(changes=True, bounded=False),
    examples=(
        "klamm local up",
        "klamm local up --brokers 3 --racks a,b,c --detach",
        "klamm local up --config log.retention.ms=60000 --config auto.create.topics.enable=false",
        "klamm local up --broker-ids 1,2 --broker-config 2:num.io.threads=1 --chroot /kafka",
        "klamm local up --secure --sasl scram-sha-512 --acls --detach",
        "klamm local up --brokers 3 --metrics --detach",
        "klamm local up --temporary --host own --stdin -o jsonl",
    ),
)
def up(
    invocation: Invocation,
    brokers: Annotated[
        int | None, typer.Option("--brokers", metavar="N", min=1, help="How many brokers.  [default: 1]")
    ] = None,
    broker_ids: Annotated[
        str | None, typer.Option("--broker-ids", metavar="ID,…", help="Their ids, instead of 0 … N−1.")
    ] = None,
    directory: Directory = DEFAULT_DIRECTORY,
    temporary: Annotated[
        bool, typer.Option("--temporary", help="Use a new folder, removed at the end; the brokers are killed.")
    ] = False,
    detach: Annotated[
        bool, typer.Option("--detach", "-d", help="Return once it serves; stop it with local down.")
    ] = False,
    stdin: TakesCommands = False,
    config: Settings = None,
    broker_config: BrokerSettings = None,
    racks: Annotated[
        str | None, typer.Option("--racks", metavar="A,B,…", help="Racks, given to the brokers in turn.")
    ] = None,
    log_dirs: Annotated[
        int, typer.Option("--log-dirs", metavar="N", min=1, help="How many log dirs each broker has.")
    ] = 1,
    chroot: Annotated[
        str, typer.Option("--chroot", metavar="/PATH", help="The path in ZooKeeper that holds the whole cluster.")
    ] = "",
    metrics: Annotated[
        bool, typer.Option("--metrics", help="Each broker serves its metrics to Prometheus, at 7071 or a free port.")
    ] = False,
    fsync: Annotated[
        bool, typer.Option("--fsync/--no-fsync", help="Whether ZooKeeper flushes its log before each answer.")
    ] = True,
    secure: Secure = False,
    sasl: Sasl = None,
    acls: Acls = False,
    host: Host = "127.0.0.1",
    port: FirstPort = None,
    zookeeper_port: ZooKeeperPort = None,
) -> Report | ExitCode:
    """Start a ZooKeeper and brokers, and wait until they serve.

    Without --detach it stays in the foreground and stops everything on Ctrl-C or TERM; the data stays. Commands that
    run in this folder find the cluster by themselves, unless you gave it another --dir.

    With --secure these commands connect as admin, with DIR/client.properties; DIR/alice.properties and bob.properties
    are for the other users. Files that end in .kcat hold the same for librdkafka. All of them are removed at the end.

    With --stdin each line of standard input is a command of "klamm local" without these two words. Each is answered
    by a line of JSON on stdout: its exit code, and what it wrote on stdout and stderr.
    """
    from cli.views.local import local_report, running_notes, security_notes
    from engine.local.cluster import LocalCluster

    _refuse_contradictions(directory, is_temporary=temporary, is_detached=detach, takes_commands=stdin)
    ids = _ids(broker_ids) or list(range(brokers or 1))
    if brokers not in (None, len(ids)):
        raise UsageError(f"--brokers {brokers} and --broker-ids {broker_ids} contradict each other")
    mechanism = _checked_mechanism(sasl, is_secure=secure, has_acls=acls)
    settings = parsed_settings(config)
    if secure and (taken := sorted({"listeners", "advertised.listeners"} & settings.keys())):
        raise UsageError(f"--secure and --config {taken[0]} contradict each other: --secure sets it")
    of_brokers = _broker_settings(broker_config)
    if strangers := sorted(of_brokers.keys() - set(ids)):
        raise UsageError(f"--broker-config names broker {strangers[0]}: the brokers are {', '.join(map(str, ids))}")
    cluster = LocalCluster(
        ids,
        directory=None if temporary else directory,
        host=None if host == OWN_ADDRESS else host,
        zookeeper_port=zookeeper_port,
        first_broker_port=port,
        racks=_racks(racks),
        config=settings,
        broker_config=of_brokers,
        log_dir_count=log_dirs,
        secure=secure,
        sasl=mechanism,
        acls=acls,
        chroot=_checked_chroot(chroot),
        metrics=metrics,
        fsync=fsync,
        detached=detach,
        start_timeout_s=start_timeout_s(invocation),
    )
    where = "a temporary folder" if temporary else directory
    if not invocation.goes_ahead(f"start a ZooKeeper and {counted(len(ids), 'broker')} in {where}"):
        planned = {"dir": None if temporary else str(directory), "brokers": [{"id": each} for each in ids]}
        return Report(planned, Table((Column("id", Kind.NUMBER),), [(each,) for each in ids]))
    if detach:
        cluster.start()
        status, is_elsewhere = cluster.status(), directory != DEFAULT_DIRECTORY
        notes = (*running_notes(status, is_elsewhere=is_elsewhere), *security_notes(status, has_acls=acls))
        return local_report(status, notes=notes)
    return _run_in_foreground(invocation, cluster, is_temporary=temporary, takes_commands=stdin, has_acls=acls)


def _refuse_contradictions(directory: Path, *, is_temporary: bool, is_detached: bool, takes_commands: bool) -> None:
    if is_holding():
        raise UsageError("the cluster is up: here klamm local takes its other commands")
    if is_temporary and directory != DEFAULT_DIRECTORY:
        raise UsageError("--temporary and --dir contradict each other")
    if is_detached and (is_temporary or takes_commands):
        option = "--temporary" if is_temporary else "--stdin"
        raise UsageError(f"{option} ends the cluster, --detach leaves it running")


def _words(text: str | None) -> list[str]:
    return [word.strip() for word in (text or "").split(",") if word.strip()]


def _racks(text: str | None) -> list[str]:
    racks = _words(text)
    if text is not None and not racks:
        raise UsageError("--racks names no rack")
    return racks


def _ids(text: str | None) -> list[int]:
    words = _words(text)
    if any(not word.isdecimal() for word in words):
        raise UsageError(f"--broker-ids must be whole numbers such as 1,2,3, not {text!r}")
    ids = [int(word) for word in words]
    if len(set(ids)) < len(ids):
        raise UsageError(f"--broker-ids names a broker twice: {text}")
    return ids


def _broker_settings(texts: Sequence[str] | None) -> dict[int, dict[str, str]]:
    settings: dict[int, dict[str, str]] = {}
    for text in texts or ():
        broker_id, colon, setting = text.partition(":")
        if not broker_id.isdecimal() or not colon:
            raise UsageError(f"--broker-config must be ID:K=V, not {text!r}")
        settings.setdefault(int(broker_id), {}).update(parsed_settings([setting]))
    return settings


def _checked_mechanism(text: str | None, *, is_secure: bool, has_acls: bool) -> str | None:
    if not is_secure and (text is not None or has_acls):
        raise UsageError(f"{'--acls' if text is None else '--sasl'} needs --secure")
    mechanism = None if text is None else text.upper()
    if mechanism not in (None, *_MECHANISMS):
        raise UsageError(f"--sasl must be one of {', '.join(_MECHANISMS).lower()}, not {text!r}")
    return mechanism


def _checked_chroot(text: str) -> str:
    if text and (not text.startswith("/") or text.endswith("/") or "//" in text):
        raise UsageError(f"--chroot must be a path such as /kafka, not {text!r}")
    return text


def _run_in_foreground(
    invocation: Invocation, cluster: LocalCluster, *, is_temporary: bool, takes_commands: bool, has_acls: bool
) -> ExitCode:
    from cli.views.local import local_report, security_notes

    with StopSignals() as signals:
        if takes_commands:
            end_with_parent()
        cluster.start()
        signals.hold()
        try:
            status = cluster.status()
            serving = ("serving, stop with Ctrl-C", *security_notes(status, has_acls=has_acls))
            invocation.print(local_report(status, notes=() if takes_commands else serving))
            if takes_commands:
                carry_out_commands(cluster, signals)
                return ExitCode.DONE
            is_told_to = signals.wait(_looks_for_zookeeper(cluster))
            return _how_it_ended(invocation, cluster, is_told_to=is_told_to)
        finally:
            _end(cluster, is_temporary=is_temporary)


def _looks_for_zookeeper(cluster: LocalCluster) -> Callable[[], bool]:
    """Return a check that fails when ZooKeeper has ended, unless another command has ended or replaced it.

    That command records the end a moment after the process is gone, so an end without a record is checked again.
    """
    from engine.common.errors import OperationError
    from engine.local.cluster_record import ClusterRecord

    unexplained_since: float | None = None

    def is_up() -> bool:
        nonlocal unexplained_since
        process = cluster.zookeeper.process
        if process is None or process.is_alive:
            return True
        try:
            if ClusterRecord.read(cluster.directory).zookeeper_process != process.identity:
                return True
        except OperationError:
            return False
        unexplained_since = unexplained_since or time.monotonic()
        return time.monotonic() - unexplained_since < _NOTED_WITHIN_S

    return is_up


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


def _end(cluster: LocalCluster, *, is_temporary: bool) -> None:
    """End everything, including what another command has started since."""
    from engine.common.errors import OperationError
    from engine.local.cluster import LocalCluster

    # If the record is gone, another command has ended it already.
    with suppress(OperationError):
        recorded = LocalCluster.attach(cluster.directory)
        if is_temporary:
            recorded.kill()
        else:
            recorded.stop()
    cluster.stop()


def end_with_parent() -> None:
    """Send this process a TERM when its parent is gone.

    The end of the input means the same, but goes unnoticed while a command runs or a forked child holds the pipe.
    """
    parent = os.pidfd_open(os.getppid())

    def wait() -> None:
        select.select([parent], [], [])
        os.kill(os.getpid(), signal.SIGTERM)

    threading.Thread(target=wait, name="parent", daemon=True).start()


def carry_out_commands(cluster: LocalCluster, signals: StopSignals) -> None:
    """Carry out lines of standard input until it ends, or a signal asks to stop."""
    with holding(cluster):
        for line in _lines(signals):
            try:
                with signals.interrupting():
                    code, written, complaint = _carry_out(line)
            except KeyboardInterrupt:
                return
            sys.stdout.write(json.dumps({"code": int(code), "stdout": written, "stderr": complaint}) + "\n")
            sys.stdout.flush()
            if code == ExitCode.INTERRUPTED:
                return


def _lines(signals: StopSignals) -> Iterator[str]:
    pending, is_over = b"", False
    while not is_over and signals.wait_for_input(sys.stdin.fileno()):
        chunk = os.read(sys.stdin.fileno(), 65_536)
        is_over = not chunk
        *lines, pending = (pending + (chunk or b"\n")).split(b"\n")
        yield from (text for line in lines if (text := line.decode("utf-8", "replace").strip()))


def _carry_out(line: str) -> tuple[int, str, str]:
    from cli.main import main

    with redirect_stdout(io.StringIO()) as written, redirect_stderr(io.StringIO()) as complaints:
        try:
            code = main(["local", *shlex.split(line)])
        except ValueError as error:
            code = ExitCode.USAGE
            complaints.write(f"error: not a command line: {error}\n")
    return code, written.getvalue(), complaints.getvalue()
