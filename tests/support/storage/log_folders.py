"""For tests of the storage layer: logs in folders, alone or under a log manager, and clients' batches."""

from __future__ import annotations

import contextlib
import shutil
import struct
from pathlib import Path

from virtual_time import ManualClock

from engine.broker.log.disk_jobs import DeleteJob, run_jobs
from engine.broker.log.log import Log
from engine.broker.log.log_loader import Checkpoints, load_log
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import decode_offset_checkpoint
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.record import Record

RECORDED = Path(__file__).parents[3] / "fixtures" / "disk"
"""Log dirs written by Apache Kafka; see SOURCE.md there."""

RECORDED_INDEX_BYTES = 1024
"""``segment.index.bytes`` of the recorded brokers."""

NOW_MS = 1_795_264_100_000
"""A little after the recorded records were written, so their producers have not expired."""


class StandIn:
    """A LogEnvironment that does at once, or remembers, what a log manager would do later."""

    def __init__(self, now_ms: int = NOW_MS) -> None:
        self.clock = ManualClock(now_ms)
        self.is_stopping = False
        self.producer_id_expiration_ms = 86_400_000
        self.verifies_transactions = False
        self.takes_zstd = True
        self.keeps_topic_ids = True
        self.converted = 0
        self.failures: list[tuple[Path, str]] = []
        self.deletions: list[tuple[Path, list[Path], int]] = []
        self.flushes: list[tuple[Log, int]] = []
        self.checkpoints: list[Path] = []

    def note_converted(self, topic: str, records: int, took_s: float, size_bytes: int) -> None:
        self.converted += records

    def fail_dir(self, log_dir: Path, message: str, error: OSError) -> None:
        self.failures.append((log_dir, f"{message}: {error}"))

    def delete_later(self, log_dir: Path, paths: list[Path], delay_ms: int) -> None:
        self.deletions.append((log_dir, paths, delay_ms))

    def flush_soon(self, log: Log, offset: int) -> None:
        self.flushes.append((log, offset))

    def checkpoint_soon(self, log_dir: Path) -> None:
        self.checkpoints.append(log_dir)

    def delete_now(self) -> None:
        for log_dir, paths, _ in self.deletions:
            job = DeleteJob(self, log_dir, paths)
            job.run()
            job.finish()
        self.deletions.clear()


def open_log(
    folder: Path,
    config: LogConfig | None = None,
    environment: StandIn | None = None,
    *,
    log_start_offset: int = 0,
    recovery_point: int = 0,
    clean: bool = True,
    is_cleaned: bool = False,
) -> Log:
    """Open a partition's folder as a log manager would; unflushed data is recovered unless ``clean``."""
    checkpoints = Checkpoints(log_start_offset, recovery_point, clean, is_cleaned)
    return load_log(folder, config or LogConfig(), environment or StandIn(), checkpoints)


def recorded_copy(which: str, target: Path) -> Path:
    """Copy a recorded log dir, because opening one changes files; return the copy."""
    shutil.copytree(RECORDED / which / "data", target)
    return target


def data_batch(
    *values: bytes | None,
    key: bytes | None = b"k",
    timestamp_ms: int = 1_000,
    producer: tuple[int, int, int] = (-1, -1, -1),
    **options: object,
) -> memoryview:
    """Return a batch as a client sends it, writable: one record per value, timestamps counting up.

    ``producer`` is producer id, epoch and base sequence; ``options`` go to ``encode_batch``.
    """
    records = [Record(key=key, value=value, timestamp_ms=timestamp_ms + n) for n, value in enumerate(values)]
    producer_id, producer_epoch, base_sequence = producer
    data = encode_batch(
        records,
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        base_sequence=base_sequence,
        **options,  # type: ignore[arg-type]
    )
    return memoryview(bytearray(data))


def marker_batch(
    producer_id: int, producer_epoch: int, *, commit: bool, coordinator_epoch: int = 0, timestamp_ms: int = 1_000
) -> memoryview:
    """Return a control batch as a transaction coordinator writes it."""
    record = Record(
        key=struct.pack(">hh", 0, int(commit)),
        value=struct.pack(">hi", 0, coordinator_epoch),
        timestamp_ms=timestamp_ms,
    )
    data = encode_batch(
        [record], producer_id=producer_id, producer_epoch=producer_epoch, transactional=True, control=True
    )
    return memoryview(bytearray(data))


def as_sent(stored: bytes) -> memoryview:
    """Return a stored version 2 batch as its producer sent it: without offset and leader epoch."""
    sent = bytearray(stored)
    struct.pack_into(">q", sent, 0, 0)
    struct.pack_into(">i", sent, 12, -1)
    return memoryview(sent)


def stored_batches(folder: Path) -> list[tuple[BatchHeader, bytes]]:
    """Return header and bytes of every batch in a partition's folder."""
    batches = []
    for path in sorted(folder.glob("*.log")):
        data = path.read_bytes()
        batches += [(header, data[position : position + header.size_bytes]) for position, header in iter_batches(data)]
    return batches


def read_all(log: Log, start: int | None = None, max_bytes: int = 2**31 - 1) -> bytes:
    """Return all bytes from ``start`` (the log's start by default) to the log's end, read segment by segment."""
    offset = log.log_start_offset if start is None else start
    chunks = []
    while offset < log.log_end_offset:
        read = log.read(offset, max_bytes, limit_offset=log.log_end_offset, min_one_batch=True)
        if read.records is None:
            break
        chunk = read.records.read()
        headers = [header for _, header in iter_batches(chunk)]
        chunks.append(chunk[: sum(header.size_bytes for header in headers)])
        offset = headers[-1].next_offset
    return b"".join(chunks)


def values_of(log: Log, start: int | None = None) -> list[tuple[int, bytes | None]]:
    """Return offset and value of every record from ``start`` on."""
    first = log.log_start_offset if start is None else start
    return [(record.offset, record.value) for record in iter_records(read_all(log, first)) if record.offset >= first]


def folder_content(folder: Path, *suffixes: str) -> dict[str, bytes]:
    """Return name and bytes of the files in a folder with this suffix (of all if none is given)."""
    return {
        path.name: path.read_bytes()
        for path in sorted(folder.iterdir())
        if path.is_file() and (not suffixes or path.name.endswith(suffixes))
    }


def open_files_in(folder: Path) -> int:
    """Return how many descriptors of this process are open on files in a folder."""
    count = 0
    for link in Path("/proc/self/fd").iterdir():
        with contextlib.suppress(FileNotFoundError):
            count += folder in link.readlink().parents
    return count


TOPIC_ID = bytes(range(16))


class ManagedLogs:
    """A log manager on dirs of a test, and what it reported."""

    def __init__(self, *dirs: Path, config: LogConfig | None = None, delay_ms: int = 60_000, threads: int = 1) -> None:
        self.clock = ManualClock(NOW_MS)
        self.failed: list[Path] = []
        self.config = config or LogConfig()
        settings = LogManagerConfig(dirs, threads, log_segment_delete_delay_ms=delay_ms)
        self.logs = LogManager(settings, lambda topic: self.config, self.clock, self.failed.append)

    def loaded(self) -> ManagedLogs:
        self.logs.load()
        return self

    def create(self, partition: TopicPartition, values: int = 1) -> None:
        log = self.logs.get_or_create(partition, topic_id=TOPIC_ID, is_new=True)
        for n in range(values):
            log.append_as_leader(data_batch(b"%d" % n, timestamp_ms=NOW_MS), 0)
        log.update_high_watermark(log.log_end_offset)


def checkpoint(path: Path, name: str) -> dict[TopicPartition, int]:
    return decode_offset_checkpoint((path / name).read_text(), name)


def run_due(logs: LogManager) -> None:
    """Do everything that is due."""
    run_jobs(logs.due_jobs())


def write_checkpoints(logs: LogManager) -> None:
    """Write all checkpoint files."""
    for path in logs.live_dirs:
        run_jobs(logs._checkpoints.jobs(path))
