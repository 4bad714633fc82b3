"""Reads the positions of queries from Spark's event logs and the files of klamm's listener. Everything here blocks.

A log has one application, with any number of queries; a query that was restarted is in several. Both kinds of files
have the same lines. They contain only finished batches, not the running one.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field, replace

from engine.admin.cluster.errors import AdminError, BadRequest, NotFound, Unreachable
from engine.admin.lag.spark_positions import BATCHES_MAX, Batch, Query, ReaderKind
from engine.admin.lag.stores import READ_ACCESS, Location
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
