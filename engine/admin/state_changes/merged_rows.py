"""Merged entries as rows: taken apart, times in UTC. For JSON, tables, CSV and Parquet."""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from engine.admin.state_changes.log_files import LogFile
from engine.admin.state_changes.merging import Batch
from engine.admin.state_changes.zones import UtcClock
from engine.formats.state_change_lines import is_start, parse_entry
from engine.formats.state_change_partitions import partitions_in

_CALENDAR = re.compile(rb"\[\d{4}-(?:0[1-9]|1[0-2])-(?:0[1-9]|[12]\d|3[01]) (?:[01]\d|2[0-3]):[0-5]\d:[0-5]\d,")


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an entry comes from."""

    source: str
    broker_id: int | None


@dataclass(frozen=True, slots=True)
class MergedRow:
    """One entry. ``utc_start`` is its time in UTC as it would begin a line; None where it has none.

    ``topic`` and ``partition`` are set where the entry is about one partition, ``partitions`` names all. A line that
    cannot be parsed has no level, and is its own message.
    """

    utc_start: bytes | None
    level: str | None
    broker: int | None
    controller_epoch: int | None
    topic: str | None
    partition: int | None
    partitions: tuple[str, ...]
    message: str
    source: str


def row_tag(file: LogFile, broker_id: int | None) -> Origin:
    """Make the tag of entries that become rows."""
    return Origin(file.source, broker_id)


def rows_of(batch: Batch[Origin], clock: UtcClock | None) -> Iterator[MergedRow]:
    """Yield a batch's rows. ``clock`` is the plan's."""
    starts = batch.starts if clock is None else clock.starts(batch.starts)
    for start, origin, entry in zip(starts, batch.tags, batch.entries, strict=True):
        yield row_of(start, origin, entry)


def row_of(utc_start: bytes, origin: Origin, entry: bytes) -> MergedRow:
    """Take one entry apart."""
    line = parse_entry(entry)
    if line is None:
        text = entry.decode("utf-8", "replace")
        start = utc_start if is_start(entry) else None
        return MergedRow(start, None, origin.broker_id, None, None, None, (), text, origin.source)
    partitions = partitions_in(line.message)
    topic, partition = partitions[0] if len(partitions) == 1 else (None, None)
    return MergedRow(
        utc_start,
        line.level,
        origin.broker_id,
        line.controller_epoch,
        topic,
        partition,
        tuple(map(str, partitions)),
        line.message.decode("utf-8", "replace"),
        origin.source,
    )


def iso_time(utc_start: bytes | None) -> str | None:
    """Return a start in UTC as ISO 8601 with milliseconds; None where it is no time, as in the 13th month."""
    if utc_start is None or _CALENDAR.match(utc_start) is None:
        return None
    text = utc_start.decode("ascii")
    return f"{text[1:11]}T{text[12:20]}.{text[21:24]}Z"
