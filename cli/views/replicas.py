"""Replicas compared: a row per replica for scripts, a row per partition and the first difference for people."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Report, Section, Table, Tone, cells_of
from cli.output.values import iso_time
from engine.admin.replicas.comparison import DifferenceKind, Side
from engine.admin.replicas.verification import PartitionVerification
from engine.common.quantities import counted

_WORDS = {
    DifferenceKind.CHECKSUM: "another batch",
    DifferenceKind.LEADER_EPOCH: "another leader epoch",
    DifferenceKind.OFFSETS: "other offsets",
    DifferenceKind.RECORD: "another record",
    DifferenceKind.CORRUPT: "a corrupt batch",
}


_PARTITION = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("from_offset", Kind.NUMBER, title="From"),
    Column("to_offset", Kind.NUMBER, title="To"),
)
_REPLICA = (
    Column("broker", Kind.NUMBER),
    Column("log_end_offset", Kind.NUMBER, title="End"),
    Column("lag", Kind.NUMBER, tone=Tone.WARNING),
    Column("agrees", Kind.FLAG, tone={True: Tone.GOOD, False: Tone.BAD, None: Tone.WARNING}),
    Column("error", falls_below=True),
)
_COLUMNS = (*_PARTITION, *_REPLICA)


def verification_report(results: Sequence[PartitionVerification]) -> Report:
    """All replicas for machines; for a person those that lag, differ or could not be read."""
    rows = [
        (*cells_of(_PARTITION, result), *cells_of(_REPLICA, replica))
        for result in results
        for replica in result.replicas
    ]
    shown = [row for row in rows if row[6] or row[7] is not True]
    sections = [Section(body=Table(_COLUMNS, shown))] if shown else []
    sections += [_difference(result) for result in results if result.first_difference is not None]
    code = ExitCode.DONE if all(result.is_good for result in results) else ExitCode.BAD_ANSWER
    return Report(results, Table(_COLUMNS, rows), sections or [Section()], _notes(results), exit_code=code)


def _notes(results: Sequence[PartitionVerification]) -> tuple[str, ...]:
    replicas = [replica for result in results for replica in result.replicas]
    differing = sum(replica.agrees is False for replica in replicas)
    unknown = sum(replica.agrees is None for replica in replicas)
    offsets = sum((result.to_offset or 0) - (result.from_offset or 0) for result in results)
    lag = max((replica.lag or 0 for replica in replicas), default=0)
    note = f"{counted(len(results), 'partition')}, {counted(len(replicas), 'replica')}, {counted(offsets, 'offset')}"
    note = f"{note}: {differing} {'differs' if differing == 1 else 'differ'}"
    return (f"{note}, {unknown} could not be compared, max lag {lag}",)


def _difference(partition: PartitionVerification) -> Section:
    difference = partition.first_difference
    assert difference is not None
    title = f"{partition.topic}-{partition.partition}: {_WORDS[difference.kind]} at offset {difference.offset}"
    return Section(title, text=[line for side in difference.sides for line in _side(side)])


def _side(side: Side) -> list[str]:
    if side.first_offset is None:
        return [f"  broker {side.broker}: nothing there"]
    offsets = f"offsets {side.first_offset} to {side.last_offset}"
    lines = [f"  broker {side.broker}: {offsets}, leader epoch {side.leader_epoch}"]
    lines += [f"    {side.error}"] if side.error else []
    return [*lines, *("    " + ", ".join(map(_pair, record.items())) for record in side.records)]


def _pair(field: tuple[str, object]) -> str:
    name, value = field
    return f"{name}={iso_time(value) if isinstance(value, datetime) else value}"
