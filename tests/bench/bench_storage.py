"""The log alone: appends, reads, recovery, start, beside a bare loop of checksum and write in the same run.

Time and CPU are those of this process. The bare loop does what any log must do for a batch: one CRC-32C, one write;
what the log adds to it is the figure to watch. Both write a new file each round and take turns, so that noise hits
both.
"""

from __future__ import annotations

import os
import shutil
import statistics
import struct
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from crc32c import crc32c
from log_folders import StandIn, data_batch, open_log
from tabulate import tabulate

from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records.layout import ATTRIBUTES, BASE_SEQUENCE, CRC

ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "5"))
CONFIG = LogConfig(segment_bytes=1 << 30)
PARTITIONS = 2000

APPENDS = (
    ("one 100 B record", 100, 20_000, False),
    ("one 100 B record, idempotent", 100, 20_000, True),
    ("8 KB batch", 8_000, 10_000, False),
    ("1 MB batch", 1_000_000, 150, False),
)


def main() -> None:
    """Print the tables."""
    folder = Path(tempfile.mkdtemp(prefix="klamm-bench-storage-"))
    try:
        rows = [appends(folder, *load) for load in APPENDS]
        headers = ["append", "batches/s", "log µs", "log CPU µs", "bare µs", "log - bare µs", "log MB/s"]
        print(tabulate(rows, headers, floatfmt=",.2f"))
        print()
        print(tabulate(lookups(folder), ["read", "µs each"], floatfmt=",.2f"))
        print()
        print(tabulate(recoveries(folder), ["recovery", "MB/s", "batches/s"], floatfmt=",.0f"))
        print()
        print(tabulate(starts(folder), [f"{PARTITIONS:,} partitions", "s"], floatfmt=",.2f"))
    finally:
        shutil.rmtree(folder)


def appends(folder: Path, name: str, value_bytes: int, count: int, idempotent: bool) -> list[object]:
    """Append ``count`` batches to a new log, and write them to a new file; return the medians of several rounds."""
    sent = prepared(value_bytes, count, idempotent)
    wall, cpu, bare = [], [], []
    for round_number in range(ROUNDS):
        log = open_log(folder / f"append-{round_number}", CONFIG)
        if idempotent:
            log.append_as_leader(data_batch(b"first", producer=(1, 0, 0)), 0)
        elapsed, used = timed(lambda log=log: [log.append_as_leader(batch, 0) for batch in sent])
        wall.append(elapsed / count * 1e6)
        cpu.append(used / count * 1e6)
        log.abandon()
        shutil.rmtree(log.dir)
        reset(sent)
        bare.append(timed(lambda: bare_loop(folder / "bare", sent))[0] / count * 1e6)
    size_bytes = len(sent[0])
    log_us, bare_us = statistics.median(wall), statistics.median(bare)
    return [
        name,
        1e6 / log_us,
        log_us,
        statistics.median(cpu),
        bare_us,
        statistics.median(busy - other for busy, other in zip(wall, bare, strict=True)),
        size_bytes / log_us,
    ]


def prepared(value_bytes: int, count: int, idempotent: bool) -> list[memoryview]:
    proto = bytes(data_batch(b"x" * value_bytes, producer=(1, 0, 0) if idempotent else (-1, -1, -1)))
    batches = []
    for number in range(count):
        batch = bytearray(proto)
        if idempotent:
            struct.pack_into(">i", batch, BASE_SEQUENCE, number + 1)
            struct.pack_into(">I", batch, CRC, crc32c(memoryview(batch)[ATTRIBUTES:]))
        batches.append(memoryview(batch))
    return batches


def reset(sent: list[memoryview]) -> None:
    """Restore the offsets and epochs that the log has overwritten."""
    for batch in sent:
        struct.pack_into(">q", batch, 0, 0)


def bare_loop(path: Path, sent: list[memoryview]) -> None:
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    position = 0
    for batch in sent:
        crc32c(batch[ATTRIBUTES:])
        position += os.pwrite(fd, batch, position)
    os.close(fd)
    path.unlink()


def lookups(folder: Path) -> list[list[object]]:
    """Reads of a log of 100,000 single-record batches."""
    log = open_log(folder / "reads-0", CONFIG)
    for batch in prepared(100, 100_000, idempotent=False):
        log.append_as_leader(batch, 0)
    end, count = log.log_end_offset, 2_000

    def tail(number: int) -> None:
        log.read(end - 1, 1 << 20, limit_offset=end, min_one_batch=True)

    def sequential(number: int) -> None:
        log.read(number * 40, 1 << 20, limit_offset=end, min_one_batch=True)

    def scattered(number: int) -> None:
        log.read(number * 7919 % end, 4096, limit_offset=end, min_one_batch=True)

    def nothing(number: int) -> None:
        log.read(end, 1 << 20, limit_offset=end, min_one_batch=True)

    loads: list[tuple[str, Callable[[int], None]]] = [
        ("at the end: nothing new", nothing),
        ("the last batch", tail),
        ("1 MB on and on, from old to new", sequential),
        ("anywhere", scattered),
    ]
    return [[name, timed(lambda load=load: [load(n) for n in range(count)])[0] / count * 1e6] for name, load in loads]


def recoveries(folder: Path) -> list[list[object]]:
    """Read a whole log after a crash, with a warm page cache."""
    rows: list[list[object]] = []
    for name, value_bytes, count in (("100 B batches", 100, 100_000), ("16 KB batches", 16_000, 10_000)):
        log = open_log(folder / f"recovery-{value_bytes}", CONFIG)
        for batch in prepared(value_bytes, count, idempotent=False):
            log.append_as_leader(batch, 0)
        log.abandon()
        elapsed = min(timed(lambda log=log: open_log(log.dir, CONFIG, clean=False))[0] for _ in range(3))
        rows.append([name, log.size_bytes / elapsed / 1e6, count / elapsed])
        shutil.rmtree(log.dir)
    return rows


def starts(folder: Path) -> list[list[object]]:
    """Create, stop and open many partitions of one record."""

    def manager() -> LogManager:
        settings = LogManagerConfig((folder / "many",))
        return LogManager(settings, lambda topic: CONFIG, StandIn().clock, lambda path: None)

    logs = manager()
    logs.load()
    partitions = [TopicPartition("topic", number) for number in range(PARTITIONS)]
    rows: list[list[object]] = []
    rows.append(["make", timed(lambda: [logs.get_or_create(partition, is_new=True) for partition in partitions])[0]])
    for log in logs.logs.values():
        fill(log)
    rows.append(["flush and close", timed(logs.shutdown)[0]])
    logs = manager()
    rows.append(["open after an orderly stop", timed(logs.load)[0]])
    logs.release()
    logs = manager()
    rows.append(["open after a kill", timed(logs.load)[0]])
    logs.release()
    return rows


def fill(log: Log) -> None:
    log.append_as_leader(data_batch(b"x" * 100), 0)


def timed(work: Callable[[], object]) -> tuple[float, float]:
    """Return wall-clock seconds and CPU seconds."""
    wall, cpu = time.perf_counter(), time.process_time()
    work()
    return time.perf_counter() - wall, time.process_time() - cpu
