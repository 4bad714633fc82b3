"""Lines of a Spark event log about Structured Streaming queries: JSON, one event per line.

A log also has an event for each task; this module skips lines that are not about queries without parsing them.
klamm's own listener writes the same lines with ``"Listener": "klamm"`` in front.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from engine.common.errors import CorruptFileError
from engine.kafka.formats.spark_checkpoints import Offsets, kafka_offsets

EVENT_CLASS = "org.apache.spark.sql.streaming.StreamingQueryListener$"
LISTENER_MARK = '"Listener":"klamm"'

_QUERY_EVENT = b"StreamingQueryListener$Query"
_HEAD_BYTES = 300


@dataclass(frozen=True, slots=True)
class SourceProgress:
    """What one source did in a batch. Offsets are None for sources that are not Kafka's.

    ``latest`` is where the log ended when the batch was planned; a batch that runs again has none.
    """

    description: str
    start: Offsets | None
    end: Offsets | None
    latest: Offsets | None
    row_count: int


@dataclass(frozen=True, slots=True)
class QueryStarted:
    """A query has started a run."""

    query_id: str
    run_id: str
    name: str | None
    time_ms: int


@dataclass(frozen=True, slots=True)
class QueryProgress:
    """A batch is finished."""

    query_id: str
    run_id: str
    name: str | None
    batch_id: int
    started_ms: int
    duration_ms: int
    sources: Sequence[SourceProgress]


@dataclass(frozen=True, slots=True)
class QueryTerminated:
    """A run has ended; ``error`` is the first line of its error."""

    query_id: str
    run_id: str
    error: str | None


QueryEvent = QueryStarted | QueryProgress | QueryTerminated


def is_query_event(line: bytes) -> bool:
    """Return whether a line is about a query, judging by its first bytes."""
    return _QUERY_EVENT in line[:_HEAD_BYTES]


def is_by_listener(line: bytes) -> bool:
    """Return whether klamm's listener wrote the line."""
    return line.startswith(b"{" + LISTENER_MARK.encode())


def decode_query_event(line: bytes, location: str) -> QueryEvent | None:
    """Return a line's event; None for query events without offsets.

    Raises:
        CorruptFileError: it is cut off, or lacks a required field.
    """
    try:
        document = json.loads(line)
        match document["Event"].removeprefix(EVENT_CLASS):
            case "QueryStartedEvent":
                began_ms = _time_ms(document["timestamp"])
                return QueryStarted(document["id"], document["runId"], document.get("name"), began_ms)
            case "QueryProgressEvent":
                return _progress(document["progress"])
            case "QueryTerminatedEvent":
                error = str(document.get("exception") or "").strip().splitlines()
                return QueryTerminated(document["id"], document["runId"], error[0] if error else None)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise CorruptFileError(f"{location}: not an event of a query: {error}", path=location) from error
    return None


def _progress(progress: Mapping[str, Any]) -> QueryProgress:
    # Spark 2 had no batchDuration.
    duration_ms = progress.get("batchDuration", progress.get("durationMs", {}).get("triggerExecution", 0))
    return QueryProgress(
        str(progress["id"]),
        str(progress["runId"]),
        progress.get("name"),
        int(progress["batchId"]),
        _time_ms(progress["timestamp"]),
        int(duration_ms),
        tuple(_source(source) for source in progress["sources"]),
    )


def _source(source: Mapping[str, Any]) -> SourceProgress:
    return SourceProgress(
        str(source.get("description", "")),
        kafka_offsets(source.get("startOffset")),
        kafka_offsets(source.get("endOffset")),
        kafka_offsets(source.get("latestOffset")),
        int(source.get("numInputRows", 0)),
    )


def _time_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)
