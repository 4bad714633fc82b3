"""Reads all traces of Spark's queries that a user names: checkpoints and event logs. Everything here blocks.

What cannot be read is reported, and does not delay the rest.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Final

from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, Unreachable
from engine.admin.lag.history import POINTS_MAX
from engine.admin.lag.spark_positions import Batch, Query, ReaderKind
from engine.admin.lag.stores import READ_ACCESS, Entry, Location, OtherStore, expand
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
from engine.kafka.formats.spark_event_files import (
    files_in_order,
    is_event_log_file,
    is_event_log_folder,
    whole_lines,
)
from engine.kafka.formats.spark_events import (
    QueryProgress,
    QueryStarted,
    QueryTerminated,
    decode_query_event,
    is_by_listener,
    is_query_event,
)


@dataclass(frozen=True, slots=True)
class QueryTraces:
    """Where to look: paths, patterns and URIs. ``others`` provides file systems that only Spark knows."""

    checkpoints: tuple[str, ...] = ()
    event_logs: tuple[str, ...] = ()
    others: OtherStore | None = None

    @property
    def is_empty(self) -> bool:
        return not (self.checkpoints or self.event_logs)

    def read(self) -> tuple[list[Query], list[AdminError]]:
        """Return the queries found, and what could not be read.

        A query is one, whatever tells of it: its checkpoint has the batch that runs, an event log its name, and where
        logs ended. The newest position counts. Copies of a checkpoint are queries of their own.
        """
        failures: list[AdminError] = []
        checkpoints, from_logs = self._from_checkpoints(failures), self._from_event_logs(failures)
        by_id: dict[str, list[Query]] = {}
        # The newest of several copies is the one that the other files tell of.
        for query in [*sorted(checkpoints, key=_newest_batch, reverse=True), *from_logs]:
            by_id.setdefault(query.query_id, []).append(query)
        queries = []
        for query in [*checkpoints, *from_logs]:
            same = by_id[query.query_id] if query.query_id else [query]
            others = [trace for trace in same if trace.kind is not ReaderKind.CHECKPOINT]
            if query is same[0]:
                queries.append(_joined([query, *(other for other in others if other is not query)]))
            elif query.kind is ReaderKind.CHECKPOINT:
                queries.append(replace(query, name=_joined([query, *others]).name))
        return queries, failures

    def _from_checkpoints(self, failures: list[AdminError]) -> list[Query]:
        places: dict[str, Location] = {}
        for text in self.checkpoints:
            try:
                for root in expand(text, self.others):
                    places |= {place.path: place for place in find_checkpoints(root)}
            except AdminError as error:
                failures.append(error)
        queries = []
        for place in places.values():
            try:
                queries.append(read_checkpoint(place))
            except AdminError as error:
                failures.append(error)
        return queries

    def _from_event_logs(self, failures: list[AdminError]) -> list[Query]:
        logs: dict[str, Location] = {}
        for text in self.event_logs:
            try:
                for root in expand(text, self.others):
                    logs |= {log.path: log for log in find_event_logs(root)}
            except AdminError as error:
                failures.append(error)
        queries, damaged = read_event_logs(logs.values())
        failures += damaged
        return queries


def _newest_batch(query: Query) -> int:
    finished = query.finished
    return finished[-1].batch_id if finished else -1


def _joined(same: Sequence[Query]) -> Query:
    """Return what several files say about one query: the newest position, and what else any of them knows."""
    newest = max(same, key=_newest_batch)
    latest: dict[int, dict[int, Offsets]] = {}
    for trace in same:
        places = {source: index for index, source in enumerate(trace.source_ids)}
        for batch in trace.batches:
            known = {places[source]: ends for source, ends in batch.latest.items() if source in places}
            latest.setdefault(batch.batch_id, {}).update(known)
    sources = list(newest.source_ids)
    batches = [
        replace(batch, latest={source: found[n] for n, source in enumerate(sources) if n in found})
        if (found := latest.get(batch.batch_id))
        else batch
        for batch in newest.batches
    ]
    return replace(
        newest,
        batches=batches,
        name=next((trace.name for trace in same if trace.name is not None), None),
        run_id=next((trace.run_id for trace in (newest, *same) if trace.run_id is not None), None),
        error=next((trace.error for trace in (newest, *same) if trace.error is not None), None),
        has_ended=any(trace.has_ended and not _went_on(newest, trace) for trace in same),
    )


def _went_on(newest: Query, ended: Query) -> bool:
    """Whether a query has done more than the log that tells of its end: another run, whose log is not at hand."""
    finished, planned = _newest_batch(newest), newest.last_batch
    last = _newest_batch(ended)
    return finished > last or (planned is not None and planned.batch_id > last + 1)


# Reads checkpoints of Structured Streaming, and finds them under a folder. Everything here blocks.
#
# A query may write while klamm reads: files appear, old ones disappear, and the newest may be half-written. An unknown
# version is an error.

BATCHES_MAX: Final = POINTS_MAX + 1
"""This many of the latest batches are read."""

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
        found = list(_below(root, _DEPTH_MAX))
    except NotADirectoryError as error:
        raise NotFound("a checkpoint is a folder, and this is a file", where=root.shown) from error
    except _GONE as error:
        raise NotFound("no such folder", where=root.shown) from error
    except PermissionError as error:
        raise BadRequest("permission denied", where=root.shown, hint=READ_ACCESS) from error
    except OSError as error:
        raise Unreachable(f"cannot be read: {error}", where=root.shown) from error
    if not found:
        raise BadRequest(
            "there is no checkpoint of a Spark query",
            where=root.shown,
            hint="a checkpoint is a folder with offsets, commits and metadata in it: a query's checkpointLocation",
        )
    return found


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
    except (CorruptFileError, UnicodeDecodeError) as error:
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
    """Whether folders such as ``day=1`` are a table's partitions, of which there are many, and none has checkpoints."""
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
    initial = {source: found for source in ids if (found := _initial(place, source)) is not None}
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
    except (CorruptFileError, UnicodeDecodeError) as error:
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
    except (*_GONE, CorruptFileError, UnicodeDecodeError):
        # Other kinds of sources keep their own files there.
        return None


def _batch(batch_id: int, entry: OffsetLogEntry, committed_ms: int | None) -> Batch:
    ends = {source: offsets for source, offsets in entry.sources.items() if offsets is not None}
    return Batch(batch_id, entry.batch_ms, committed_ms, ends)


def _text(file: Location) -> str:
    return file.read().decode("utf-8")


# Reads the positions of queries from Spark's event logs and the files of klamm's listener. Everything here blocks.
#
# A log has one application, with any number of queries; a query that was restarted is in several. Both kinds of files
# have the same lines. They contain only finished batches, not the running one.


@dataclass(slots=True)
class _Story:
    """What was read about one query so far."""

    kind: ReaderKind
    path: str
    query_id: str
    run_id: str
    name: str | None
    batches: deque[Batch] = field(default_factory=lambda: deque(maxlen=BATCHES_MAX))
    source_ids: tuple[str, ...] = ()
    initial: dict[str, Offsets] = field(default_factory=dict)
    error: str | None = None
    time_ms: int = 0
    has_ended: bool = False


def find_event_logs(root: Location) -> list[Location]:
    """Return the logs that a path means: a file, a rolling log's folder, or a folder that contains such logs.

    Raises:
        NotFound: there is nothing.
        BadRequest: there is no log in it.
    """
    if is_event_log_folder(root.name):
        return [root]
    try:
        entries = root.entries()
    except NotADirectoryError:
        return [root]
    except FileNotFoundError as error:
        if (entry := _as_file(root)) is not None:
            return [entry]
        raise NotFound("no such file or folder", where=root.shown) from error
    except PermissionError as error:
        raise BadRequest("permission denied", where=root.shown, hint=READ_ACCESS) from error
    except OSError as error:
        raise Unreachable(f"cannot be read: {error}", where=root.shown) from error
    if files_in_order([entry.name for entry in entries]):
        return [root]
    logs = [
        root / entry.name
        for entry in entries
        if (is_event_log_folder(entry.name) if entry.is_folder else is_event_log_file(entry.name))
    ]
    if not logs:
        hint = "it is the folder that spark.eventLog.dir names, or one log in it"
        raise BadRequest("there is no event log", where=root.shown, hint=hint)
    return logs


def read_event_logs(logs: Iterable[Location]) -> tuple[list[Query], list[AdminError]]:
    """Read logs; return the queries in them, and why a log could not be read.

    For a query that was started several times, the latest run counts, with the batches of earlier runs.
    """
    stories: dict[tuple[str, ReaderKind], _Story] = {}
    failures: list[AdminError] = []
    for log in logs:
        try:
            of_log = _stories_of(log)
        except AdminError as error:
            failures.append(error)
            continue
        for story in of_log:
            known = stories.get((story.query_id, story.kind))
            stories[story.query_id, story.kind] = story if known is None else _joined_stories(known, story)
    return [_query(story) for story in stories.values()], failures


def _as_file(place: Location) -> Location | None:
    """Object stores report a missing file only when it is read."""
    try:
        place.read()
    except OSError:
        return None
    return place


def _stories_of(log: Location) -> list[_Story]:
    stories: dict[str, _Story] = {}
    try:
        for file, lines in _files(log):
            for number, line in enumerate(lines, 1):
                if is_query_event(line):
                    _take(stories, line, log.shown, f"{file}: line {number}")
    except CorruptFileError as error:
        hint = "name a log of the folder spark.eventLog.dir, or the query's checkpoint instead"
        raise BadRequest(str(error).removeprefix(f"{log.shown}: "), where=log.shown, hint=hint) from error
    except PermissionError as error:
        raise BadRequest("permission denied", where=log.shown, hint=READ_ACCESS) from error
    except OSError as error:
        raise Unreachable(f"cannot be read: {error}", where=log.shown) from error
    return list(stories.values())


def _files(log: Location) -> Iterator[tuple[str, list[bytes]]]:
    if not is_event_log_folder(log.name):
        try:
            names = files_in_order([entry.name for entry in log.entries()])
        except (NotADirectoryError, FileNotFoundError):
            lines = whole_lines(log.read(), log.name)
            if lines and not lines[0].startswith(b"{"):
                raise CorruptFileError(f"{log.shown}: not an event log of Spark", path=log.shown) from None
            yield log.name, lines
            return
    else:
        names = files_in_order([entry.name for entry in log.entries()])
    for name in names:
        try:
            yield name, whole_lines((log / name).read(), name)
        except FileNotFoundError:
            # Compacted since it was listed.
            continue


def _take(stories: dict[str, _Story], line: bytes, path: str, where: str) -> None:
    event = decode_query_event(line, where)
    if event is None:
        return
    kind = ReaderKind.LISTENER if is_by_listener(line) else ReaderKind.EVENT_LOG
    if isinstance(event, QueryTerminated):
        if event.query_id in stories:
            stories[event.query_id].error = event.error
            stories[event.query_id].has_ended = True
        return
    story = stories.setdefault(event.query_id, _Story(kind, path, event.query_id, event.run_id, event.name))
    story.run_id, story.name, story.has_ended = event.run_id, event.name or story.name, False
    if isinstance(event, QueryStarted):
        story.time_ms, story.error = event.time_ms, None
    else:
        _take_progress(story, event)


def _take_progress(story: _Story, event: QueryProgress) -> None:
    story.time_ms = event.started_ms
    story.source_ids = tuple(str(number) for number in range(len(event.sources)))
    sources = dict(zip(story.source_ids, event.sources, strict=True))
    ends = {source: offsets.end for source, offsets in sources.items() if offsets.end is not None}
    latest = {source: offsets.latest for source, offsets in sources.items() if offsets.latest is not None}
    for source, offsets in sources.items():
        if offsets.start is not None:
            story.initial.setdefault(source, offsets.start)
    batch = Batch(event.batch_id, event.started_ms, event.started_ms + event.duration_ms, ends, latest)
    # A trigger without data repeats the query's position, and has the number of the next batch.
    while story.batches and story.batches[-1].batch_id >= batch.batch_id:
        story.batches.pop()
    story.batches.append(batch)


def _joined_stories(one: _Story, other: _Story) -> _Story:
    """Return what two logs say about a query."""
    older, newer = sorted((one, other), key=lambda story: story.time_ms)
    begins = newer.batches[0].batch_id if newer.batches else None
    kept = [batch for batch in older.batches if begins is None or batch.batch_id < begins]
    batches = deque([*kept, *newer.batches], maxlen=BATCHES_MAX)
    return replace(
        newer,
        batches=batches,
        source_ids=newer.source_ids or older.source_ids,
        name=newer.name or older.name,
        initial=older.initial if kept and older.initial else newer.initial,
    )


def _query(story: _Story) -> Query:
    return Query(
        story.kind,
        story.path,
        story.query_id,
        story.name,
        tuple(story.batches),
        story.source_ids,
        story.initial,
        story.run_id,
        story.error,
        None if story.batches else story.time_ms or None,
        story.has_ended,
    )
