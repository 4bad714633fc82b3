"""A Structured Streaming job that keeps the lag of groups and queries: a sample every interval, written as Parquet.

Spark's rate source plans a batch for each sample, and its checkpoint remembers which are done. A batch that was killed
runs again under the same number and for the same moment, and writes the same files again: no sample is lost or
duplicated. Executors ask the clusters, judge, and write.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from engine.admin.lag.history_folder import Lake
from engine.admin.lag.history_sampling import ChunkDone, ChunkTask, Part, Watched, plan_chunks, sample_chunk
from engine.admin.lag.stores import needs_spark, whole_place
from engine.spark.hadoop_jvm import share_settings
from engine.spark.hadoop_store import HadoopStore
from engine.spark.sent_files import properties_here
from engine.spark.workers import run_in_workers

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession
    from pyspark.sql.streaming.query import StreamingQuery

QUERY_NAME = "klamm-lag"
_LOOK_EVERY_S = 0.2
_NOTE_EVERY_S = 0.02
_NOTE_PATIENCE_S = 10.0


OnWait = Callable[[str, str], object]
"""Called with what begins and may take long: whose work it is, and what is done. Two empty words: it has ended."""


class _Enough(Exception):
    """All requested samples are taken."""


@dataclass(frozen=True, slots=True)
class SampleTold:
    """One sample, as the job reports it."""

    sample: int
    time_ms: int
    row_count: int
    group_count: int
    took_ms: int
    failures: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class LagJob:
    """What to sample, how often, and where to keep it. ``chunks`` counts for a new folder only.

    ``state`` is the folder of Spark's checkpoint; None means ``_spark`` in the folder itself. ``samples`` None means
    until it is stopped.
    """

    clusters: Sequence[Watched]
    out: str
    interval_s: float
    chunks: int
    state: str | None = None
    with_times: bool = False
    samples: int | None = None


def run_lag_job(
    spark: SparkSession,
    job: LagJob,
    on_sample: Callable[[SampleTold], None],
    is_stopped: threading.Event,
    on_wait: OnWait = lambda whose, what: None,
) -> None:
    """Sample until it is stopped, or enough samples are taken.

    Raises:
        AdminError: the folder cannot be used.
    """
    job = replace(job, out=whole_place(job.out), clusters=[_whole(cluster) for cluster in job.clusters])
    chunks = Lake(job.out).prepare(job.chunks)
    if any(needs_spark(place) for cluster in job.clusters for place in (*cluster.checkpoints, *cluster.event_logs)):
        share_settings(spark)
    is_enough = threading.Event()
    taken: list[int] = []

    def take(rows: DataFrame, batch_id: int) -> None:
        if is_enough.is_set():
            # This sample is not done, then, and is the first one next time.
            raise _Enough
        on_wait(f"sample {batch_id}", "Spark says when it is due")
        time_ms = _due_ms(rows)
        if time_ms is None:
            on_wait("spark", "planning the first sample")
            return
        result = _take(spark, job, chunks, batch_id, time_ms, on_wait)
        on_wait("", "")
        on_sample(result)
        taken.append(batch_id)
        if len(taken) == job.samples:
            is_enough.set()

    on_wait("spark", "planning the first sample")
    clock = spark.readStream.format("rate").option("rowsPerSecond", 1).option("numPartitions", 1).load()
    query = (
        clock.writeStream.queryName(QUERY_NAME)
        .option("checkpointLocation", job.state or f"{job.out.rstrip('/')}/_spark")
        .trigger(processingTime=f"{round(job.interval_s * 1000)} milliseconds")
        .foreachBatch(take)
        .start()
    )
    try:
        while not (is_stopped.is_set() or is_enough.is_set()):
            if not query.isActive and not is_enough.is_set():
                # It raises the error with which the query failed.
                query.awaitTermination()
                break
            is_enough.wait(_LOOK_EVERY_S)
        # Spark gets time to note that the last sample is done, so that it is not taken again.
        deadline = time.monotonic() + _NOTE_PATIENCE_S
        while is_enough.is_set() and not _is_noted(query, taken[-1]) and time.monotonic() < deadline:
            time.sleep(_NOTE_EVERY_S)
    finally:
        query.stop()


def _is_noted(query: StreamingQuery, batch_id: int) -> bool:
    progress = query.lastProgress
    return not query.isActive or (progress is not None and progress["batchId"] >= batch_id)


def _due_ms(rows: DataFrame) -> int | None:
    """Return the moment of a batch's sample: the same each time it runs. The very first batch has none."""
    from pyspark.sql import functions

    newest = rows.agg(functions.max("timestamp").cast("timestamp").cast("double")).first()
    return None if newest is None or newest[0] is None else round(newest[0] * 1000)


def _whole(watched: Watched) -> Watched:
    places = (tuple(map(whole_place, places_named)) for places_named in (watched.checkpoints, watched.event_logs))
    return Watched(watched.target, *places)


def _take(spark: SparkSession, job: LagJob, chunks: int, sample: int, time_ms: int, on_wait: OnWait) -> SampleTold:
    began = time.monotonic()
    on_wait(f"sample {sample}", "finding groups")
    tasks, failures = plan_chunks(job.clusters, job.out, time_ms, sample, chunks, with_times=job.with_times)
    on_wait(f"sample {sample}", "workers measure the lag")
    done: list[ChunkDone] = run_in_workers(spark, sample_part, tasks)
    distinct = dict.fromkeys([*failures, *(failure for part in done for failure in part.failures)])
    return SampleTold(
        sample,
        time_ms,
        sum(part.row_count for part in done),
        sum(part.group_count for part in done),
        round((time.monotonic() - began) * 1000),
        tuple(distinct),
    )


def sample_part(task: ChunkTask) -> ChunkDone:
    """Take the sample in a worker, which reads traces from all that Spark knows, and stores that Spark sent."""
    return sample_chunk(replace(task, parts=tuple(map(_here, task.parts))), lambda uri: (HadoopStore(), uri))


def _here(part: Part) -> Part:
    target = part.watched.target
    target = replace(target, client_properties=properties_here(target.client_properties))
    return replace(part, watched=replace(part.watched, target=target))
