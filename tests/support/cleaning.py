"""For tests of compaction: a cleaning without a broker, in this process, step by step; and what a log must keep."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from pathlib import Path

from log_folders import read_all

from engine.protocol.records.batch import Record, iter_records
from engine.storage.cleaner.choice import LogToClean, measure
from engine.storage.cleaner.cleaning import clean
from engine.storage.cleaner.job import CleaningJob
from engine.storage.cleaner.messages import (
    Finished,
    GroupCleaned,
    Report,
    decode_plan,
    decode_report,
    encode_plan,
    encode_report,
)
from engine.storage.cleaner.settings import CleanerSettings
from engine.storage.log import Log

Sent = tuple[bytes, bytes | None]


def prepare(log: Log, settings: CleanerSettings | None = None, *, now_ms: int | None = None) -> CleaningJob:
    """Freeze a cleaning of all that is dirty, due or not."""
    now = log._environment.clock.now_ms() if now_ms is None else now_ms
    return CleaningJob(measure(log, now), settings or CleanerSettings(), (), now)


def work(job: CleaningJob, on_report: Callable[[Report], None] | None = None) -> Finished:
    """Do what process and broker do with a job; plan and reports go over the wire's form."""
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
    """Clean a log as far as one round goes."""
    return work(prepare(log, settings, now_ms=now_ms))


def clean_all(log: Log, settings: CleanerSettings | None = None, *, now_ms: int | None = None) -> int:
    """Clean round after round until nothing is dirty; return how many rounds that were."""
    rounds = 0
    while dirty(log, now_ms=now_ms).cleanable_bytes:
        clean_once(log, settings, now_ms=now_ms)
        rounds += 1
    return rounds


def dirty(log: Log, *, now_ms: int | None = None) -> LogToClean:
    """Measure a log."""
    return measure(log, log._environment.clock.now_ms() if now_ms is None else now_ms)


def records_of(log: Log, start: int | None = None) -> list[Record]:
    """Return every record from ``start`` on, control records included."""
    first = log.log_start_offset if start is None else start
    return [record for record in iter_records(read_all(log, first)) if record.offset >= first]


def pairs_of(log: Log, start: int | None = None) -> list[tuple[int, bytes | None, bytes | None]]:
    """Return offset, key and value of every record."""
    return [(record.offset, record.key, record.value) for record in records_of(log, start)]


def last_of_each(records: Iterable[tuple[int, bytes | None, bytes | None]]) -> dict[bytes | None, bytes | None]:
    """Return what a reader of all records ends with."""
    return {key: value for _, key, value in records}


def is_worker(pid: int) -> bool:
    """Whether a process is one that cleans."""
    try:
        return b"cleaner.worker" in Path(f"/proc/{pid}/cmdline").read_bytes()
    except (FileNotFoundError, ProcessLookupError):
        return False
