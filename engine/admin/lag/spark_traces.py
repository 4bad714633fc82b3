"""Finds and reads all traces of Spark's queries that a user names: checkpoints and event logs. Everything here blocks.

What cannot be read is reported, and does not delay the rest.

An event log has one application, with any number of queries; a query that was restarted is in several. Files of klamm's
listener have the same lines. They contain only finished batches, not the running one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field, replace

from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, Unreachable
from engine.admin.lag.spark_checkpoints import find_checkpoints, read_checkpoint
from engine.admin.lag.spark_positions import BATCHES_MAX, Batch, Query, ReaderKind
from engine.admin.lag.stores import READ_ACCESS, Location, OtherStore, expand
from engine.common.errors import CorruptFileError
from engine.kafka.formats.spark_checkpoints import Offsets
from engine.kafka.formats.spark_events import (
    QueryProgress,
    QueryStarted,
    QueryTerminated,
    decode_query_event,
    files_in_order,
    is_by_listener,
    is_event_log_file,
    is_event_log_folder,
    is_query_event,
    whole_lines,
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

        All traces of a query are one: its checkpoint has the batch that runs, an event log its name, and where
        logs ended. The newest position counts. Copies of a checkpoint are queries of their own.
        """
        failures: list[AdminError] = []
        checkpoints, from_logs = self._from_checkpoints(failures), self._from_event_logs(failures)
        by_id: dict[str, list[Query]] = {}
        # The newest of several copies is the one that the other files belong to.
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
        replace(batch, latest={source: written[n] for n, source in enumerate(sources) if n in written})
        if (written := latest.get(batch.batch_id))
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
    """Whether a query has done more since the log that reports its end: another run, whose log is not at hand."""
    finished, planned = _newest_batch(newest), newest.last_batch
    last = _newest_batch(ended)
    return finished > last or (planned is not None and planned.batch_id > last + 1)


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


def _joined_stories(known: _Story, other: _Story) -> _Story:
    """Return what two logs say about a query."""
    older, newer = sorted((known, other), key=lambda story: story.time_ms)
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
