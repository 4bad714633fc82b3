"""Reads all traces of Spark's queries that a user names: checkpoints and event logs. Everything here blocks.

What cannot be read is reported, and does not delay the rest.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.admin.cluster.errors import AdminError
from engine.admin.lag.checkpoints import find_checkpoints, read_checkpoint
from engine.admin.lag.event_logs import find_event_logs, read_event_logs
from engine.admin.lag.positions import Query, ReaderKind
from engine.admin.lag.stores import Location, OtherStore, expand


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

        A checkpoint does not have its query's name. An event log read with it does.
        """
        failures: list[AdminError] = []
        queries = [*self._from_checkpoints(failures), *self._from_event_logs(failures)]
        names = {query.query_id: query.name for query in queries if query.name is not None}
        return [
            replace(query, name=names.get(query.query_id)) if query.kind is ReaderKind.CHECKPOINT else query
            for query in queries
        ], failures

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
