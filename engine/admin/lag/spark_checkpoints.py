"""Reads checkpoints of Structured Streaming, and finds them under a folder. Everything here blocks.

A query may write while klamm reads: files appear, old ones disappear, and the newest may be half-written. An unknown
version is an error.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

from engine.admin.cluster.errors import BadRequest, NotFound, Unreachable
from engine.admin.lag.spark_positions import BATCHES_MAX, Batch, Query, ReaderKind
from engine.admin.lag.stores import READ_ACCESS, Entry, Location
from engine.common.errors import CorruptFileError
from engine.kafka.formats.spark_checkpoints import (
    ForeignVersion,
    OffsetLogEntry,
    Offsets,
    batch_id_of,
    check_commit_log,
    decode_initial_offsets,
    decode_metadata,
    decode_offset_log,
)

_DEPTH_MAX: Final = 12
_TABLE_MARKS: Final = ("_delta_log", "_spark_metadata", "_SUCCESS")
_NAMED_FOLDERS_MAX: Final = 100
_GONE = (FileNotFoundError, NotADirectoryError)


def find_checkpoints(root: Location) -> list[Location]:
    """Return the checkpoints in a folder and its subfolders, ordered by name; the folder may be one itself.

    Raises:
        NotFound: there is no such folder.
        BadRequest: there is none in it.
    """
    try:
        checkpoints = list(_below(root, _DEPTH_MAX))
    except NotADirectoryError as error:
        raise NotFound("a checkpoint is a folder, and this is a file", where=root.shown) from error
    except _GONE as error:
        raise NotFound("no such folder", where=root.shown) from error
    except PermissionError as error:
        raise BadRequest("permission denied", where=root.shown, hint=READ_ACCESS) from error
    except OSError as error:
        raise Unreachable(f"cannot be read: {error}", where=root.shown) from error
    if not checkpoints:
        raise BadRequest(
            "there is no checkpoint of a Spark query",
            where=root.shown,
            hint="a checkpoint is a folder with offsets, commits and metadata in it: a query's checkpointLocation",
        )
    return checkpoints


def read_checkpoint(place: Location) -> Query:
    """Read one checkpoint.

    Raises:
        BadRequest: it is of a foreign version, or damaged.
        Unreachable: it cannot be read.
    """
    try:
        return _read(place)
    except ForeignVersion as error:
        raise BadRequest(str(error), where=place.shown, hint="a newer klamm may support it") from error
    except CorruptFileError as error:
        hint = "the query's event log has its positions, too: name that instead"
        raise BadRequest(f"damaged: {error}", where=place.shown, hint=hint) from error
    except PermissionError as error:
        raise BadRequest("permission denied", where=place.shown, hint=READ_ACCESS) from error
    except OSError as error:
        raise Unreachable(f"cannot be read: {error}", where=place.shown) from error


def _below(folder: Location, depth: int) -> Iterator[Location]:
    entries = folder.entries()
    if _is_checkpoint(entries):
        yield folder
        return
    is_table = _is_table(entries)
    for entry in entries:
        if entry.is_folder and depth and not entry.name.startswith(".") and not (is_table and "=" in entry.name):
            try:
                yield from _below(folder / entry.name, depth - 1)
            except (*_GONE, PermissionError):
                continue


def _is_checkpoint(entries: list[Entry]) -> bool:
    folders = {entry.name for entry in entries if entry.is_folder}
    files = {entry.name for entry in entries if not entry.is_folder}
    return "offsets" in folders and ("metadata" in files or "commits" in folders)


def _is_table(entries: list[Entry]) -> bool:
    """Whether folders such as ``day=1`` are a table's partitions. There are many, and none has checkpoints."""
    names = {entry.name for entry in entries}
    return not names.isdisjoint(_TABLE_MARKS) or sum("=" in name for name in names) > _NAMED_FOLDERS_MAX


def _read(place: Location) -> Query:
    query_id = _query_id(place)
    committed = _times(place / "commits")
    planned = _times(place / "offsets")
    last_commit = max((batch for batch in committed if batch in planned), default=-1)
    wanted = sorted(batch for batch in planned if batch in committed or batch > last_commit)
    entries: dict[int, OffsetLogEntry] = {}
    for batch in reversed(wanted):
        entry = _offsets(place / "offsets" / str(batch), distance=batch - last_commit)
        if entry is not None:
            entries[batch] = entry
        if len(entries) == BATCHES_MAX:
            break
    if last_commit in entries:
        _check_commit(place / "commits" / str(last_commit))
    batches = [_batch(batch, entries[batch], committed.get(batch)) for batch in sorted(entries)]
    # Spark may plan ahead: only the first unfinished batch is in flight.
    unfinished = [batch for batch in batches if batch.committed_ms is None]
    batches = [batch for batch in batches if batch.committed_ms is not None] + unfinished[:1]
    ids = tuple(entries[max(entries)].sources) if entries else ()
    initial = {source: positions for source in ids if (positions := _initial(place, source)) is not None}
    started_ms = (
        None if batches else next((entry.modified_ms for entry in place.entries() if entry.name == "metadata"), None)
    )
    return Query(ReaderKind.CHECKPOINT, place.shown, query_id, None, batches, ids, initial, started_ms=started_ms)


def _query_id(place: Location) -> str:
    try:
        return decode_metadata(_text(place / "metadata"), f"{place.shown}/metadata")
    except FileNotFoundError:
        # It was copied without it, or comes from Spark before 2.3; only its id is unknown then.
        return ""


def _times(folder: Location) -> dict[int, int]:
    """Return the batches that have a file in a folder, and when it was written."""
    try:
        entries = folder.entries()
    except _GONE:
        return {}
    return {
        batch: entry.modified_ms
        for entry in entries
        if not entry.is_folder and (batch := batch_id_of(entry.name)) is not None
    }


def _offsets(file: Location, *, distance: int) -> OffsetLogEntry | None:
    """Return a batch's offsets; None if they are gone, or cannot be read and the position does not depend on them.

    ``distance`` is negative for a batch before the last one that was finished, and positive for one after it.
    """
    try:
        return decode_offset_log(_text(file), file.shown)
    except FileNotFoundError:
        # Purged since it was listed.
        return None
    except CorruptFileError as error:
        if distance == 0 or (distance > 0 and isinstance(error, ForeignVersion)):
            raise
        # An old one says only how fast the query was. The newest may be half-written: it is not running yet.
        return None


def _check_commit(file: Location) -> None:
    try:
        check_commit_log(_text(file), file.shown)
    except FileNotFoundError:
        return
    except ForeignVersion:
        raise
    except CorruptFileError:
        # Half-written: only its existence counts.
        return


def _initial(place: Location, source: str) -> Offsets | None:
    file = place / "sources" / source / "0"
    try:
        return decode_initial_offsets(_text(file), file.shown)
    except (*_GONE, CorruptFileError):
        # Other kinds of sources keep their own files there.
        return None


def _batch(batch_id: int, entry: OffsetLogEntry, committed_ms: int | None) -> Batch:
    ends = {source: offsets for source, offsets in entry.sources.items() if offsets is not None}
    return Batch(batch_id, entry.batch_ms, committed_ms, ends)


def _text(file: Location) -> str:
    try:
        return file.read().decode("utf-8")
    except UnicodeDecodeError as error:
        raise CorruptFileError(f"{file.shown}: not text", path=file.shown) from error
