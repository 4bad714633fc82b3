"""For tests of compaction: a cleaning without a broker, in this process, step by step; and what a log must keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

from log_folders import NOW_MS, open_log, read_all

from engine.broker.log.cleaner.choice import LogToClean, measure
from engine.broker.log.cleaner.cleaning import clean
from engine.broker.log.cleaner.job import CleanerSettings, CleaningJob
from engine.broker.log.cleaner.messages import (
    Finished,
    GroupCleaned,
    Report,
    decode_plan,
    decode_report,
    encode_plan,
    encode_report,
)
from engine.broker.log.log import Log
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

DAY_MS = 86_400_000
CONFIG = LogConfig(
    segment_bytes=1000, index_interval_bytes=100, segment_index_bytes=1024, cleanup_policy=("compact",), retention_ms=-1
)


def new_log(tmp_path: Path, config: LogConfig = CONFIG) -> Log:
    return open_log(tmp_path / "t-0", config)


def put(log: Log, *pairs: tuple[bytes | None, bytes | None], **options: object) -> int:
    """Append a batch of pairs of key and value; return its first offset."""
    records = [Record(key=key, value=value, timestamp_ms=NOW_MS + n) for n, (key, value) in enumerate(pairs)]
    batch = memoryview(bytearray(encode_batch(records, **options)))  # type: ignore[arg-type]
    return log.append_as_leader(batch, 0).first_offset


def close_segment(log: Log) -> None:
    """Make everything in the log cleanable."""
    log.roll()
    log.update_high_watermark(log.log_end_offset)


def headers_of(log: Log) -> list[tuple[int, int, int]]:
    """Return base offset, last offset and record count of every batch."""
    return [(batch.base_offset, batch.last_offset, batch.record_count) for _, batch in iter_batches(read_all(log))]


def changed(**changes: Any) -> LogConfig:
    return replace(CONFIG, **changes)


def prepare(log: Log, settings: CleanerSettings | None = None, *, now_ms: int | None = None) -> CleaningJob:
    """Prepare a cleaning of everything dirty, due or not."""
    now = log._environment.clock.now_ms() if now_ms is None else now_ms
    return CleaningJob(measure(log, now), settings or CleanerSettings(), (), now)


def work(job: CleaningJob, on_report: Callable[[Report], None] | None = None) -> Finished:
    """Do the parts of process and broker in a job. Plan and reports pass through the wire format."""
    finished: list[Finished] = []

    def take(one: Report) -> None:
        report = decode_report(encode_report(one))
        assert report == one
        if on_report is not None:
            on_report(report)
        if isinstance(report, GroupCleaned):
            job.swap(report)
        elif isinstance(report, Finished):
            finished.append(report)

    plan = decode_plan(encode_plan(job.plan))
    assert plan == job.plan
    try:
        clean(plan, take)
    finally:
        job.end(finished[0].end_offset if finished else None)
    return finished[0]


def clean_once(log: Log, settings: CleanerSettings | None = None, *, now_ms: int | None = None) -> Finished:
    """Clean a log for one round."""
    return work(prepare(log, settings, now_ms=now_ms))


def clean_all(log: Log, settings: CleanerSettings | None = None, *, now_ms: int | None = None) -> int:
    """Clean round after round until nothing is dirty; return the number of rounds."""
    rounds = 0
    while dirty(log, now_ms=now_ms).cleanable_bytes:
        clean_once(log, settings, now_ms=now_ms)
        rounds += 1
    return rounds


def dirty(log: Log, *, now_ms: int | None = None) -> LogToClean:
    """Measure how dirty a log is."""
    return measure(log, log._environment.clock.now_ms() if now_ms is None else now_ms)


def records_of(log: Log, start: int | None = None) -> list[Record]:
    """Return every record from ``start`` on, control records included."""
    first = log.log_start_offset if start is None else start
    return [record for record in iter_records(read_all(log, first)) if record.offset >= first]


def pairs_of(log: Log, start: int | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of every record."""
    return [(record.offset, record.key, record.value) for record in records_of(log, start)]


def last_of_each(records: Iterable[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, bytes | None]:
    """Return the records that remain for a reader of all records: the last of each key."""
    return {key: value for _, key, value in records}


def is_worker(pid: int) -> bool:
    """Return whether a process is a cleaner process."""
    try:
        return b"cleaner.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
