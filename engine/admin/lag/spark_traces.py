"""Finds and reads all traces of Spark's queries that a user names: checkpoints and event logs. Everything here blocks.

What cannot be read is reported, and does not delay the rest.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace

from engine.admin.cluster.errors import AdminError
from engine.admin.lag.spark_checkpoints import find_checkpoints, read_checkpoint
from engine.admin.lag.spark_event_logs import find_event_logs, read_event_logs
from engine.admin.lag.spark_positions import Query, ReaderKind
from engine.admin.lag.stores import Location, OtherStore, expand
from engine.kafka.formats.spark_checkpoints import Offsets


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
