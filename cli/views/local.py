"""A local cluster: its addresses, and a row per broker."""

from __future__ import annotations

from collections.abc import Sequence
from shlex import quote

from cli.exit_codes import ExitCode
from cli.output.report import Column, Fields, Kind, Report, Section, Table, Tone
from engine.local.cluster import ClusterStatus


def _alive_tone(value: object) -> Tone | None:
    return Tone.GOOD if value is True else Tone.BAD


_COLUMNS = (
    Column("id", Kind.NUMBER),
    Column("alive", Kind.FLAG, tone=_alive_tone),
    Column("pid", Kind.NUMBER),
    Column("host"),
    Column("port", Kind.NUMBER),
    Column("rack"),
    Column("log_dirs", Kind.LIST),
)


def running_notes(status: ClusterStatus, *, is_elsewhere: bool) -> tuple[str, ...]:
    """Say how to end a cluster in the background, and how to reach one that commands do not find by themselves."""
    if not is_elsewhere:
        return ("running; end it with: klamm local down",)
    return (
        f"running; end it with: klamm local down --dir {quote(status.dir)}",
        f"reach it with: klamm topics list -b {status.bootstrap_servers} --zookeeper {status.zookeeper}",
    )


def local_report(status: ClusterStatus, *, notes: Sequence[str] = (), exit_code: ExitCode | None = None) -> Report:
    """What runs where; where no exit code is given it says whether all of it does."""
    rows = [(b.id, b.alive, b.pid, b.host, b.port, b.rack, b.log_dirs) for b in status.brokers]
    table = Table(_COLUMNS, rows)
    zookeeper = status.zookeeper if status.zookeeper_alive else f"{status.zookeeper} (not running)"
    pairs = [
        ("zookeeper", zookeeper),
        ("bootstrap servers", status.bootstrap_servers),
        ("folder", status.dir),
    ]
    is_whole = status.zookeeper_alive and all(broker.alive for broker in status.brokers)
    sections = (Section(body=Fields(pairs)), Section(body=table))
    if exit_code is None:
        exit_code = ExitCode.DONE if is_whole else ExitCode.BAD_ANSWER
    return Report(status, table, sections, notes, exit_code)
