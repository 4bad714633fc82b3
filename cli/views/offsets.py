"""Offsets of partitions, a row each."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from cli.exit_codes import ExitCode
from cli.output.report import Column, Kind, Nothing, Report, Section, Table, Tone
from cli.views.kafka import brokers as kafka
from engine.admin.offsets.listing import PartitionOffset
from engine.common.model import NO_LEADER
from engine.common.moments import calendar_time

_COLUMNS = (
    Column("topic"),
    Column("partition", Kind.NUMBER),
    Column("offset", Kind.NUMBER),
    Column("timestamp", Kind.TIME),
    Column("leader", Kind.NUMBER, tone={NO_LEADER: Tone.BAD}),
    Column("error", tone=Tone.BAD, falls_below=True),
)


def offsets_report(offsets: Sequence[PartitionOffset], *, by_time: bool) -> Report:
    """People see the time of the record only if they looked it up by time."""
    data = [_data(partition) for partition in offsets]
    table = Table(_COLUMNS, [tuple(record[column.name] for column in _COLUMNS) for record in data])
    failed = [o for o in offsets if o.error is not None]
    hidden = {*(() if by_time else ("timestamp",)), *(() if failed else ("error",))}
    shown = table.with_only({column.name for column in _COLUMNS} - hidden)
    notes: tuple[str, ...] = () if offsets else (Nothing("no partitions"),)
    if failed:
        notes = (f"{len(failed)} of {len(offsets)} partitions could not be looked up",)
    return Report(
        data,
        table,
        (Section(body=shown),),
        notes,
        ExitCode.BAD_ANSWER if failed else ExitCode.DONE,
        as_kafka=lambda: kafka.offsets_text(offsets),
    )


def _data(partition: PartitionOffset) -> dict[str, object]:
    return {
        "topic": partition.topic,
        "partition": partition.partition,
        "leader": partition.leader,
        "offset": partition.offset,
        "timestamp": _moment(partition),
        "leader_epoch": partition.leader_epoch,
        "error": partition.error,
    }


def _moment(partition: PartitionOffset) -> datetime | int | None:
    return None if partition.timestamp is None else calendar_time(partition.timestamp)
