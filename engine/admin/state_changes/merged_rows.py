"""Merged entries as rows: parsed, with times in UTC. For JSON, tables, CSV and Parquet."""

from __future__ import annotations

import os
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple

from engine.admin.cluster.errors import BadRequest
from engine.admin.state_changes.entry_reader import TagOf
from engine.admin.state_changes.log_files import LogFile
from engine.admin.state_changes.merge import Batch, MergePlan
from engine.admin.state_changes.zones import UtcClock, moment_of
from engine.kafka.formats.state_change_lines import controller_epoch_in, is_start, parse_entry
from engine.kafka.formats.state_change_sentences import partitions_in

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


# Merged entries as text: the lines as they were, each with the broker before it: ``broker-2 | [2015-03-01 …``.

_ENTRIES_PER_CHUNK = 250
"""Few enough to build a chunk in cached memory."""


def text_tags(plan: MergePlan) -> TagOf[bytes]:
    """Return a maker of tags for text: a line feed and the line's broker, padded to the widest."""
    width = max((len(str(broker_id)) for broker_id in plan.broker_ids), default=1)

    def tag_of(file: LogFile, broker_id: int | None) -> bytes:
        name = "?" if broker_id is None else str(broker_id)
        return f"\nbroker-{name:<{width}} | ".encode("ascii")

    return tag_of


def text_chunks(batches: Iterable[Batch[bytes]]) -> Iterator[bytes]:
    """Yield the text, in pieces that end anywhere. Every line has its broker before it, those of a stack trace too."""
    is_first = True
    for batch in batches:
        pieces = [b""] * (2 * len(batch.entries))
        pieces[::2] = batch.tags
        pieces[1::2] = _with_tags(batch) if batch.has_continuations else batch.entries
        for begin in range(0, len(pieces), 2 * _ENTRIES_PER_CHUNK):
            chunk = b"".join(pieces[begin : begin + 2 * _ENTRIES_PER_CHUNK])
            yield chunk[1:] if is_first else chunk
            is_first = False
    if not is_first:
        yield b"\n"


def _with_tags(batch: Batch[bytes]) -> list[bytes]:
    return [
        entry.replace(b"\n", tag) if b"\n" in entry else entry
        for tag, entry in zip(batch.tags, batch.entries, strict=True)
    ]


_ROWS_PER_GROUP = 50_000


def write_parquet(path: Path, rows: Iterable[MergedRow]) -> int:
    """Write rows to ``path``, which appears only once it is whole; return the number of rows.

    Raises:
        BadRequest: pyarrow is not installed.
        OSError: the file cannot be written.
    """
    arrow, parquet = _pyarrow()
    schema = _schema(arrow)
    unfinished = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    count = 0
    source = iter(rows)
    try:
        with parquet.ParquetWriter(str(unfinished), schema, compression="zstd") as writer:
            while group := list(islice(source, _ROWS_PER_GROUP)):
                writer.write_table(arrow.Table.from_arrays(_columns(arrow, schema, group), schema=schema))
                count += len(group)
        unfinished.replace(path)
    finally:
        unfinished.unlink(missing_ok=True)
    return count


def _pyarrow() -> tuple[Any, Any]:
    try:
        import pyarrow
        import pyarrow.parquet
    except ImportError:
        hint = "install it with: pip install 'klamm[spark]'"
        raise BadRequest("Parquet needs pyarrow, which is not installed", hint=hint) from None
    return pyarrow, pyarrow.parquet


def _schema(arrow: Any) -> Any:
    return arrow.schema(
        [
            ("time", arrow.timestamp("ms", tz="UTC")),
            ("level", arrow.dictionary(arrow.int32(), arrow.string())),
            ("broker", arrow.int32()),
            ("role", arrow.dictionary(arrow.int32(), arrow.string())),
            ("controller_epoch", arrow.int32()),
            ("topic", arrow.string()),
            ("partition", arrow.int32()),
            ("partitions", arrow.list_(arrow.string())),
            ("message", arrow.string()),
            ("source", arrow.dictionary(arrow.int32(), arrow.string())),
        ]
    )


def _columns(arrow: Any, schema: Any, rows: list[MergedRow]) -> list[Any]:
    values: list[list[Any]] = [
        [epoch_ms(row.utc_start) for row in rows],
        [row.level for row in rows],
        [row.broker for row in rows],
        [row.role for row in rows],
        [row.controller_epoch for row in rows],
        [row.topic for row in rows],
        [row.partition for row in rows],
        [row.partitions for row in rows],
        [row.message for row in rows],
        [row.source for row in rows],
    ]
    return [_array(arrow, column, field.type) for column, field in zip(values, schema, strict=True)]


def _array(arrow: Any, values: list[Any], kind: Any) -> Any:
    if arrow.types.is_dictionary(kind):
        return arrow.array(values, arrow.string()).dictionary_encode().cast(kind)
    return arrow.array(values, kind)
