"""Merged entries as rows: parsed, with times in UTC. For JSON, tables, CSV and Parquet."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from typing import NamedTuple

from engine.admin.state_changes.log_files import LogFile
from engine.admin.state_changes.merging import Batch
from engine.admin.state_changes.zones import UtcClock, moment_of
from engine.kafka.formats.state_change_lines import controller_epoch_in, is_start, parse_entry
from engine.kafka.formats.state_change_partitions import partitions_in

_MINUTE_BYTES = 17


@dataclass(frozen=True, slots=True)
class Origin:
    """Where an entry comes from."""

    source: str
    broker_id: int | None


class Role(StrEnum):
    """The role in which a broker wrote."""

    CONTROLLER = "controller"
    BROKER = "broker"


class MergedRow(NamedTuple):
    """One entry. ``utc_start`` is its time in UTC as it would begin a line; None if it has none.

    ``role`` says whether the broker wrote it as the controller. ``topic`` and ``partition`` are set if the entry is
    about one partition; ``partitions`` names all. A line that cannot be parsed has no level, and is its own message.
    """

    utc_start: bytes | None
    level: str | None
    broker: int | None
    role: Role | None
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
    """Parse one entry."""
    line = parse_entry(entry)
    if line is None:
        text = entry.decode("utf-8", "replace")
        start = utc_start if is_start(entry) else None
        return MergedRow(start, None, origin.broker_id, None, None, None, None, (), text, origin.source)
    partitions = partitions_in(line.message)
    topic, partition = partitions[0] if len(partitions) == 1 else (None, None)
    return MergedRow(
        utc_start,
        line.level,
        origin.broker_id,
        Role.CONTROLLER if line.is_controller else Role.BROKER,
        controller_epoch_in(line.message) if line.controller_epoch is None else line.controller_epoch,
        topic,
        partition,
        tuple(map(str, partitions)),
        line.message.decode("utf-8", "replace"),
        origin.source,
    )


def iso_time(utc_start: bytes | None) -> str | None:
    """Return a start in UTC as ISO 8601 with milliseconds; None if it is not a time, such as one in the 13th month."""
    if utc_start is None or utc_start[18:20] > b"59":
        return None
    minute = _iso_minute(utc_start[:_MINUTE_BYTES])
    return (
        None if minute is None else f"{minute}:{utc_start[18:20].decode('ascii')}.{utc_start[21:24].decode('ascii')}Z"
    )


@lru_cache(maxsize=4096)
def _iso_minute(minute: bytes) -> str | None:
    moment = moment_of(minute + b":00,000]")
    return None if moment is None else f"{moment:%Y-%m-%dT%H:%M}"


def epoch_ms(utc_start: bytes | None) -> int | None:
    """Return a start in UTC as milliseconds since 1970; None if it is not a time."""
    text = iso_time(utc_start)
    if text is None:
        return None
    try:
        return round(datetime.fromisoformat(text).timestamp() * 1000)
    except ValueError:
        return None
