"""What Spark queries leave behind: those of ``fixtures/spark``, and others written in the same formats."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from engine.common.model import TopicPartition

RECORDED = Path(__file__).parents[3] / "fixtures" / "spark"

WITHOUT_KAFKA = {"state-with-ids", "named-sink"}
"""Scenes about the commit log: they read from another kind of source."""

Ends = Mapping[TopicPartition, int]


@dataclass(frozen=True)
class Made:
    """One batch of a made-up query, with the end of each source. If ``committed_ms`` is None, it is not finished."""

    planned_ms: int
    committed_ms: int | None
    sources: tuple[Ends, ...]
    latest: tuple[Ends, ...] = ()


def encode_offsets(offsets: Ends) -> str:
    """Return offsets in the offset log's format."""
    topics: dict[str, dict[str, int]] = {}
    for (topic, number), offset in sorted(offsets.items()):
        topics.setdefault(topic, {})[str(number)] = offset
    return json.dumps(topics, separators=(",", ":"))


def one_source(planned_ms: int, committed_ms: int | None, topic: str, *ends: int) -> Made:
    """Return a batch of a query with one source, with these ends of its partitions."""
    return Made(planned_ms, committed_ms, ({TopicPartition(topic, n): end for n, end in enumerate(ends)},))


def restore(checkpoint: Path, folder: Path) -> Path:
    """Copy a recorded checkpoint with its files' times; return the copy."""
    copy = folder / checkpoint.name
    shutil.copytree(checkpoint, copy, ignore=shutil.ignore_patterns("times.json"))
    for name, time_ms in json.loads((checkpoint / "times.json").read_text()).items():
        os.utime(copy / name, ns=(time_ms * 1_000_000, time_ms * 1_000_000))
    return copy


def write_checkpoint(folder: Path, batches: Iterable[Made], *, first: int = 0, query_id: str = "q-1") -> Path:
    """Write a checkpoint as Spark does, the batches numbered from ``first``."""
    for part in ("offsets", "commits"):
        (folder / part).mkdir(parents=True, exist_ok=True)
    (folder / "metadata").write_text(json.dumps({"id": query_id}))
    for number, batch in enumerate(batches, first):
        metadata = json.dumps({"batchWatermarkMs": 0, "batchTimestampMs": batch.planned_ms, "conf": {}})
        sources = "\n".join(encode_offsets(ends) for ends in batch.sources)
        (folder / "offsets" / str(number)).write_text(f"v1\n{metadata}\n{sources}")
        if batch.committed_ms is not None:
            commit = folder / "commits" / str(number)
            commit.write_text('v1\n{"nextBatchWatermarkMs":0}')
            os.utime(commit, ns=(batch.committed_ms * 1_000_000, batch.committed_ms * 1_000_000))
    return folder


def event_lines(
    batches: Iterable[Made],
    *,
    name: str | None = "made",
    query_id: str = "q-1",
    run_id: str = "r-1",
    has_ended: bool = False,
) -> str:
    """Return the lines of an event log about the same batches."""
    event = "org.apache.spark.sql.streaming.StreamingQueryListener$Query"
    lines: list[dict[str, object]] = []
    for number, batch in enumerate(batches):
        if batch.committed_ms is None:
            continue
        sources = [
            {
                "description": "KafkaV2[Subscribe[made]]",
                "startOffset": None,
                "endOffset": encode_offsets(ends),
                "latestOffset": encode_offsets(batch.latest[index]) if batch.latest else None,
                "numInputRows": 1,
            }
            for index, ends in enumerate(batch.sources)
        ]
        began = datetime.fromtimestamp(batch.planned_ms / 1000, UTC)
        progress = {
            "id": query_id,
            "runId": run_id,
            "name": name,
            "timestamp": f"{began:%Y-%m-%dT%H:%M:%S}.{batch.planned_ms % 1000:03d}Z",
            "batchId": number,
            "batchDuration": batch.committed_ms - batch.planned_ms,
            "sources": sources,
        }
        lines.append({"Event": f"{event}ProgressEvent", "progress": progress})
    if has_ended:
        lines.append({"Event": f"{event}TerminatedEvent", "id": query_id, "runId": run_id, "exception": None})
    return "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
