"""A local cluster: its addresses, and a row per broker."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from cli.exit_codes import ExitCode
from cli.output.report import Column, Fields, Kind, Report, Section, Table, Tone
from engine.local.cluster import ClusterStatus

_STOPPED = "stopped (SIGSTOP)"


def _alive_tone(value: object) -> Tone | None:
    return Tone.GOOD if value in (True, "yes") else Tone.BAD


def _shown_alive(*, is_alive: bool, is_paused: bool) -> str:
    return _STOPPED if is_paused else "yes" if is_alive else "no"


_COLUMNS = (
    Column("id"),
    Column("alive", Kind.FLAG, tone=_alive_tone),
    Column("pid", Kind.NUMBER),
    Column("host"),
    Column("port", Kind.NUMBER),
    Column("rack"),
    Column("log_dirs", Kind.LIST),
    Column("paused", Kind.FLAG),
    Column("metrics"),
)
_SHOWN = (Column("id", Kind.NUMBER), Column("alive", tone=_alive_tone), *_COLUMNS[2:-2], _COLUMNS[-1])


def running_notes(status: ClusterStatus, *, is_elsewhere: bool) -> tuple[str, ...]:
    """Say how to end a cluster in the background, and how to reach one that commands do not find by themselves."""
    if not is_elsewhere:
        return ("running; stop it with: klamm local down",)
    return (
        f"running; stop it with: klamm local down --dir {quote(status.dir)}",
        f"reach it with: klamm topics list -b {status.bootstrap_servers} --zookeeper {status.zookeeper}",
    )


def security_notes(status: ClusterStatus, *, has_acls: bool) -> tuple[str, ...]:
    """Say how clients log in to a secured cluster; nothing of a plain one."""
    if status.command_config is None:
        return ()
    folder, brokers = quote(status.dir), status.bootstrap_servers
    notes = (
        f"as admin: kafka-topics.sh --bootstrap-server {brokers} --command-config {folder}/client.properties --list",
        f"as alice: kcat -F {folder}/alice.kcat -L, or klamm topics list --command-config {folder}/alice.properties",
    )
    allow = "alice may do nothing yet: klamm acls add --allow-principal User:alice --topic orders"
    return (*notes, allow) if has_acls else notes


def local_report(status: ClusterStatus, *, notes: Sequence[str] = (), exit_code: ExitCode | None = None) -> Report:
    """What runs where. Unless an exit code is given, the report's own says whether all of it runs."""
    rows = Table.of(_COLUMNS, status.brokers).rows
    shown = [
        (b.id, _shown_alive(is_alive=b.alive, is_paused=b.paused), *row[2:-2], b.metrics)
        for b, row in zip(status.brokers, rows, strict=True)
    ]
    host, _, port = status.zookeeper.partition("/")[0].rpartition(":")
    server = (
        "zookeeper",
        status.zookeeper_alive,
        status.zookeeper_pid,
        host.removeprefix("[").removesuffix("]"),
        int(port),
        None,
        (),
        status.zookeeper_paused,
        None,
    )
    zookeeper = status.zookeeper
    if not status.zookeeper_alive or status.zookeeper_paused:
        zookeeper += f" ({_STOPPED if status.zookeeper_paused else 'not running'})"
    pairs = [("zookeeper", zookeeper), ("bootstrap servers", status.bootstrap_servers), ("folder", status.dir)]
    if status.command_config is not None:
        pairs.append(("command config", status.command_config))
    parts = [(status.zookeeper_alive, status.zookeeper_paused), *((b.alive, b.paused) for b in status.brokers)]
    is_whole = all(is_alive and not is_paused for is_alive, is_paused in parts)
    sections = (
        Section(body=Fields(pairs)),
        Section(body=Table(_SHOWN, shown).without_empty(keeps=[c.name for c in _SHOWN[:-1]])),
    )
    if exit_code is None:
        exit_code = ExitCode.DONE if is_whole else ExitCode.BAD_ANSWER
    return Report(status, Table(_COLUMNS, [*rows, server]), sections, notes, exit_code)
