"""The lives of topics on one broker's disks: random histories, a crash within any call, and a memory of every record.

The broker is a log manager over two log dirs on a disk that can stop and forget (``forgetful_disk``). Names are deleted
and used again; a record's value names its life. After every crash each record must be where it was acknowledged, unless
a rule has removed it: deletion, retention, compaction, or a power failure before a flush.
"""

from __future__ import annotations

import itertools
import random
import shutil
import struct
import uuid
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import Future
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest import mock

from cleaning import dirty, prepare, work
from forgetful_disk import CRASHES, KILLED, Disk, Stopped, write_image
from log_folders import NOW_MS, read_all, run_due
from topic_life import Life, Seen, check_records
from virtual_time import ManualClock

from engine.broker.log import log_dir_loader, log_manager, small_files
from engine.broker.log.disk_jobs import DiskJob, run_jobs
from engine.broker.log.leader_epoch_cache import LeaderEpochCache
from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.broker.log.log_moves import (
    create_future_log,
    delete_future_log,
    preparing_jobs,
    replace_current_with_future,
)
from engine.broker.log.small_files import sync_path
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import (
    HIGH_WATERMARK_CHECKPOINT,
    LOG_START_OFFSET_CHECKPOINT,
    RECOVERY_POINT_CHECKPOINT,
)
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

SMALL = {"segment_bytes": 700, "segment_index_bytes": 120, "index_interval_bytes": 100, "file_delete_delay_ms": 2000}
TOPICS = {
    "loose": LogConfig(**SMALL, retention_bytes=3000, retention_ms=-1),  # type: ignore[arg-type]
    "synced": LogConfig(**SMALL, retention_bytes=3000, retention_ms=-1, flush_messages=1),  # type: ignore[arg-type]
    "keyed": LogConfig(**SMALL, cleanup_policy=("compact",), retention_ms=-1, flush_messages=4),  # type: ignore[arg-type]
}
NAMES = [TopicPartition(topic, 0) for topic in TOPICS]
KEYS = [b"k%d" % n for n in range(5)]


class Lives:
    """One history. ``step`` does one thing. If it crashes, the broker starts again on what is left."""

    def __init__(self, folder: Path, seed: int, crashes: tuple[str, ...] = CRASHES) -> None:
        self.folder = folder
        self.rng = random.Random(seed)
        self.crashes = crashes
        self.clock = ManualClock(NOW_MS)
        self.lives: dict[TopicPartition, Life] = {}
        self.count = 0
        self.starts = 0
        self.acknowledged = 0
        self.told: list[str] = []
        """What was done, to find the cause of a failure."""
        self._maybe: dict[TopicPartition, Life] = {}
        """The life after the operation under way has done all of its work."""
        self._may_be_gone: set[TopicPartition] = set()
        self._held: list[DiskJob] = []
        self._numbers = itertools.count(1000)
        self._open(write_image({"a": None, "b": None}, folder / "start-0"))

    def _open(self, root: Path) -> None:
        self.disk = Disk(root)
        settings = LogManagerConfig((root / "a", root / "b"), log_segment_delete_delay_ms=3000)
        self.failed: list[Path] = []
        self.logs = LogManager(settings, lambda topic: TOPICS[topic], self.clock, self.failed.append)

    # --- steps

    def step(self) -> None:
        action, weight = zip(*self._actions(), strict=True)
        chosen = self.rng.choices(action, weight)[0]
        will_crash = self.rng.random() < 0.3
        if will_crash:
            self.disk.stop_in(self.rng.choice([0, 1, 2, 3, 5, 8, 13, 21, 34]))
        self.told.append(chosen.__name__)
        if not self._is_stopped_in(chosen):
            self._maybe.clear()
            self._may_be_gone.clear()
            if not will_crash:
                assert not self.failed, self.failed
                self._check_online()
                return
        self.crash(self.rng.choice(self.crashes))

    def _is_stopped_in(self, action: Callable[[], None]) -> bool:
        with self.disk.watched(), self._repeatable():
            try:
                action()
            except Stopped as stopped:
                self.told.append(f"stopped in {stopped}")
            else:
                return False
            return True

    @contextmanager
    def _repeatable(self) -> Iterator[None]:
        """Make a seed always give the same history: threads take turns, and unique names come from it."""

        def drawn() -> uuid.UUID:
            return uuid.UUID(int=self.rng.getrandbits(128), version=4)

        with (
            mock.patch.object(log_dir_loader, "ThreadPoolExecutor", InTurn),
            mock.patch.object(log_manager, "ThreadPoolExecutor", InTurn),
            mock.patch.object(uuid, "uuid4", drawn),
            mock.patch.object(small_files, "_numbers", self._numbers),
        ):
            yield

    def _actions(self) -> list[tuple[Callable[[], None], int]]:
        return [
            (self.produce, 12),
            (self.produce_idempotent, 6),
            (self.become_follower_and_cut, 2),
            (self.roll, 1),
            (self.retain, 2),
            (self.delete_records, 2),
            (self.run_due, 4),
            (self.write_checkpoints, 2),
            (self.hold_checkpoints, 1),
            (self.end_held, 1),
            (self.delete, 2),
            (self.create, 3),
            (self.compact, 2),
            (self.move, 3),
            (self.stop_in_order, 1),
        ]

    def _some(self) -> tuple[TopicPartition, Life, Log] | None:
        names = [name for name in self.lives if name in self.logs.logs]
        if not names:
            self.create()
            names = [name for name in self.lives if name in self.logs.logs]
            if not names:
                return None
        name = self.rng.choice(names)
        return name, self.lives[name], self.logs.logs[name]

    # --- what happens to topics

    def create(self) -> None:
        free = [name for name in NAMES if name not in self.lives]
        if not free:
            return
        name = self.rng.choice(free)
        self.count += 1
        life = Life(self.count, name.topic == "keyed", struct.pack(">QQ", 1, self.count))
        self._may_be_gone.add(name)
        self.lives[name] = life
        if self.rng.random() < 0.5:
            run_jobs(self.logs.creation_jobs([name], {name: life.topic_id}))
        log = self.logs.get_or_create(name, topic_id=life.topic_id, is_new=True)
        assert (log.log_start_offset, log.log_end_offset, log.topic_id) == (0, 0, life.topic_id), "of an earlier life"
        assert not log.producers.producers and not log.leader_epochs.entries, "of an earlier life"

    def delete(self) -> None:
        if (some := self._some()) is None:
            return
        name = some[0]
        self._may_be_gone.add(name)
        self.logs.delete(name)
        run_jobs(self.logs.forgetting_jobs([name]))
        del self.lives[name]

    def produce(self) -> None:
        self._produce((-1, -1, -1))

    def produce_idempotent(self) -> None:
        if (some := self._some()) is None:
            return
        _, life, log = some
        known = log.producers.producers.get(life.number)
        sequence = known.next_sequence if known is not None and known.batches else 0
        self._produce((life.number, 0, sequence), some)

    def _produce(self, producer: tuple[int, int, int], some: tuple[TopicPartition, Life, Log] | None = None) -> None:
        some = some or self._some()
        if some is None:
            return
        name, life, log = some
        pairs = [
            (self.rng.choice(KEYS), b"%d/%d/%d" % (life.number, self.acknowledged, n) + bytes(self.rng.randrange(60)))
            for n in range(self.rng.randint(1, 3))
        ]
        self.acknowledged += len(pairs)
        done = self._later(name, life)
        done.note(life.end, pairs)
        if producer[0] >= 0:
            done.batches.append((life.end, producer[2], len(pairs)))
        codec = self.rng.choice([Codec.NONE, Codec.NONE, Codec.GZIP])
        batch = _batch(pairs, producer, codec, self.clock.now_ms())
        first_offset = log.append_as_leader(batch, life.leader_epoch).first_offset
        assert first_offset == life.end, f"{name} goes on at {first_offset}, not at {life.end}"
        if self.rng.random() < 0.8:
            log.update_high_watermark(log.log_end_offset)
        if log.is_flush_due:
            log.flush()
            done.promise()
        self.lives[name] = done

    def become_follower_and_cut(self) -> None:
        """Another leader has less, and different records from there on."""
        if (some := self._some()) is None:
            return
        name, life, log = some
        ends = {header.next_offset for segment in log.segments for _, header in segment.iter_batches()}
        ends = {end for end in ends if end >= max(log.high_watermark - 4, life.start)}
        done = self._later(name, life)
        done.leader_epoch += 1
        if ends and not life.is_keyed:
            offset = self.rng.choice(sorted(ends))
            done.cut(offset)
            self._cut(log, offset)
            # The cut may have reached the disk or not.
            life.promised = min(life.promised, offset)
        self.lives[name] = done

    def _cut(self, log: Log, offset: int) -> None:
        log.truncate_to(offset)
        if log.has_unsettled_cut:
            run_jobs(self.logs.settling_jobs([log]))
            log.has_unsettled_cut = False

    def roll(self) -> None:
        if (some := self._some()) is not None:
            some[2].roll()

    def retain(self) -> None:
        if (some := self._some()) is not None:
            name, life, log = some
            done = self._later(name, life)
            done.start = log.log_end_offset
            log.delete_old_segments(self.clock.now_ms())
            done.start = log.log_start_offset
            self.lives[name] = done

    def delete_records(self) -> None:
        if (some := self._some()) is not None:
            name, life, log = some
            if log.high_watermark > life.start:
                done = self._later(name, life)
                done.start = self.rng.randint(life.start, log.high_watermark)
                log.increment_log_start_offset(done.start)
                self.lives[name] = done

    def compact(self) -> None:
        name = TopicPartition("keyed", 0)
        log = self.logs.logs.get(name)
        if log is None or name in self.logs.future_logs or not dirty(log).cleanable_bytes:
            return
        log.flush(dirty(log).first_uncleanable_offset)
        work(prepare(log))
        sync_path(log.dir)
        self.logs.checkpoint_soon(log.log_dir)

    def move(self) -> None:
        """Copy a replica to the other dir, partly or whole, and let the copy replace it once it has caught up."""
        if (some := self._some()) is None:
            return
        name, _, log = some
        (target,) = set(self.logs.config.log_dirs) - {log.log_dir}
        future = self.logs.future_logs.get(name)
        if future is not None and (future.topic_id not in (None, log.topic_id) or future.log_dir == log.log_dir):
            delete_future_log(self.logs, name)
            return
        if future is None:
            future = create_future_log(self.logs, name, target)
            if log.topic_id is not None:
                future.assign_topic_id(log.topic_id)
        if not log.log_start_offset <= future.log_end_offset <= log.log_end_offset or not self._is_copy(future, log):
            future.truncate_fully_and_start_at(log.log_start_offset)
        data = read_all(log, future.log_end_offset)
        if data:
            first = next(iter_batches(data))[1].base_offset
            if first < future.log_end_offset == future.log_start_offset:
                future.truncate_fully_and_start_at(first)
            future.append_as_follower(memoryview(bytearray(data)))
        if future.log_end_offset == log.log_end_offset and self.rng.random() < 0.8:
            self._swap(future)

    def _is_copy(self, future: Log, log: Log) -> bool:
        """Return whether the copied records are still in the log; a broker finds out by leader epochs."""
        start = max(future.log_start_offset, log.log_start_offset)
        return read_all(log, start).startswith(read_all(future, start))

    def _swap(self, future: Log) -> None:
        run_jobs(preparing_jobs(self.logs, self.logs.logs[future.topic_partition], future))
        replace_current_with_future(self.logs, future.topic_partition)
        if self.rng.random() < 0.5:
            run_jobs(self.logs.replaced.jobs(future.topic_partition))

    # --- what a broker does by itself

    def run_due(self) -> None:
        self.clock.advance(self.rng.choice([0, 500, 1500, 4000]))
        run_due(self.logs)

    def write_checkpoints(self) -> None:
        for jobs in self._checkpoints():
            run_jobs(jobs)

    def hold_checkpoints(self) -> None:
        """Make checkpoints now and write them late."""
        for jobs in self._checkpoints():
            self._held += jobs

    def end_held(self) -> None:
        held, self._held = self._held, []
        self.rng.shuffle(held)
        run_jobs(held)

    def _checkpoints(self) -> list[list[DiskJob]]:
        names = (RECOVERY_POINT_CHECKPOINT, LOG_START_OFFSET_CHECKPOINT, HIGH_WATERMARK_CHECKPOINT)
        made = [self.logs.checkpoint_jobs(name) for name in names]
        return self.rng.sample(made, self.rng.randint(1, 3))

    def stop_in_order(self) -> None:
        self.logs.shutdown()
        for life in self.lives.values():
            life.promise()
        raise Stopped("in order")

    # --- crashes

    def crash(self, kind: str) -> None:
        """Crash the broker, or the machine, and start it on what is left. The start may crash too."""
        self._held.clear()
        for _ in range(3):
            self.told.append(kind)
            image = self.disk.image(kind, self.rng)
            self.logs.release()
            self.starts += 1
            old = Path(self.disk.root)
            self._open(write_image(image, self.folder / f"start-{self.starts}"))
            shutil.rmtree(old)
            if self.rng.random() < 0.2:
                self.disk.stop_in(self.rng.randrange(30))
            if not self._is_stopped_in(self.logs.load):
                self.disk.before = lambda _: None
                break
        else:
            self.disk.before = lambda _: None
            self.logs.release()
            self._open(write_image(self.disk.image(KILLED), self.folder / f"start-{self.starts}-again"))
            assert not self._is_stopped_in(self.logs.load)
        assert not self.failed, self.failed
        self._check_after(kind)
        self._maybe.clear()
        self._may_be_gone.clear()

    def _later(self, name: TopicPartition, life: Life) -> Life:
        """Return the life after the operation is done."""
        later = Life(
            life.number,
            life.is_keyed,
            life.topic_id,
            dict(life.records),
            {at: set(pairs) for at, pairs in life.ever.items()},
            start=life.start,
            end=life.end,
            promised=life.promised,
            leader_epoch=life.leader_epoch,
            batches=list(life.batches),
        )
        self._maybe[name] = later
        return later

    # --- checks

    def _check_online(self) -> None:
        for name, life in self.lives.items():
            self._check_records(name, self.logs.logs[name], life, life)

    def _check_after(self, kind: str) -> None:
        for name in NAMES:
            log, life = self.logs.logs.get(name), self.lives.get(name)
            if log is None:
                assert life is None or name in self._may_be_gone or self._held_nothing(life, kind), f"{name} is lost"
                self.lives.pop(name, None)
                continue
            assert life is not None, f"{name} is deleted and there again: {log.dir}"
            if kind != KILLED and log.topic_id is None:
                # Its file was not on the disk: the controller sends it with the first LeaderAndIsr.
                assert log.log_end_offset == 0 or life.promised <= life.start, f"{name} has lost its topic id"
                with self.disk.watched():
                    log.assign_topic_id(life.topic_id)
            assert log.topic_id in (None, life.topic_id), f"{name} is of an earlier life: {log.topic_id!r}"
            self._check_life(name, log, life, kind)

    def _held_nothing(self, life: Life, kind: str) -> bool:
        return (life.end if kind == KILLED else life.promised) <= life.start

    def _check_life(self, name: TopicPartition, log: Log, life: Life, kind: str) -> None:
        later = self._maybe.get(name, life)
        if kind == KILLED:
            ends = {life.end, later.end}
            assert log.log_end_offset in ends, f"{name} ends at {log.log_end_offset}, acknowledged was {life.end}"
            least = min(life.end, later.end)
        else:
            least = min(life.promised, later.promised)
            assert log.log_end_offset >= least, f"{name} ends at {log.log_end_offset}, on the disk was {least}"
        assert log.log_start_offset <= max(life.start, later.start), f"{name} begins at {log.log_start_offset}"
        self._check_records(name, log, life, later, least)
        self._check_producer(name, log, life)
        end = log.log_end_offset
        now = _records(log)
        # What DeleteRecords has taken, and the start was not checkpointed yet, may be back after the next crash. What
        # the cleaner has taken was on the disk; what is missing beyond is gone with the power.
        known = {
            at: pair
            for at, pair in later.records.items()
            if at < end and ((life.is_keyed and at < least) or at < log.log_start_offset)
        }
        life.records = known | now
        life.batches = [batch for batch in later.batches if batch[0] + batch[2] <= end]
        life.start, life.end = log.log_start_offset, end
        life.promised = min(least, end)
        life.leader_epoch = max(life.leader_epoch, later.leader_epoch) + 1
        for at, pair in life.records.items():
            life.ever.setdefault(at, set()).add(pair)
        for at, pairs in later.ever.items():
            life.ever.setdefault(at, set()).update(pairs)
        log.update_high_watermark(end)

    def _check_records(self, name: TopicPartition, log: Log, life: Life, later: Life, least: int | None = None) -> None:
        check_records(name, Seen(log.log_start_offset, log.log_end_offset, _records(log)), life, later, least)
        self._check_epochs(name, log)

    def _check_epochs(self, name: TopicPartition, log: Log) -> None:
        earliest, last = log.leader_epochs.earliest_entry, -1
        for segment in log.segments:
            for _, header in segment.iter_batches():
                epoch = header.partition_leader_epoch
                assert epoch >= last, f"{name} has epoch {epoch} behind epoch {last} at {header.base_offset}"
                last = epoch
                if earliest is not None and header.base_offset >= max(earliest.start_offset, log.log_start_offset):
                    known = epoch_at(log.leader_epochs, header.base_offset)
                    assert known == epoch, f"{name}: epoch at {header.base_offset} is {epoch}, noted is {known}"

    def _check_producer(self, name: TopicPartition, log: Log, life: Life) -> None:
        """The last batch of a producer is known as long as it is in the log."""
        if life.is_keyed:
            return
        in_log = [
            header
            for segment in log.segments
            for _, header in segment.iter_batches()
            if header.producer_id == life.number and header.base_offset >= log.log_start_offset
        ]
        if in_log:
            known = log.producers.producers.get(life.number)
            assert known is not None and known.batches, f"{name} has forgotten its producer"
            assert known.batches[-1][1] == in_log[-1].last_offset, f"{name} knows {known.batches} of its producer"


def _records(log: Log) -> dict[int, tuple[bytes, bytes]]:
    start = log.log_start_offset
    return {
        record.offset: (bytes(record.key or b""), bytes(record.value or b""))
        for record in iter_records(read_all(log, start))
        if record.offset >= start
    }


def _batch(pairs: list[tuple[bytes, bytes]], producer: tuple[int, int, int], codec: Codec, now_ms: int) -> memoryview:
    records = [Record(key=key, value=value, timestamp_ms=now_ms) for key, value in pairs]
    producer_id, producer_epoch, base_sequence = producer
    data = encode_batch(
        records, producer_id=producer_id, producer_epoch=producer_epoch, base_sequence=base_sequence, codec=codec
    )
    return memoryview(bytearray(data))


class InTurn:
    """A thread pool without threads."""

    def __init__(self, *_: object, **__: object) -> None:
        return

    def __enter__(self) -> InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        return

    def submit(self, work: Callable[..., Any], *arguments: Any) -> Future[Any]:
        done: Future[Any] = Future()
        try:
            done.set_result(work(*arguments))
        except BaseException as error:
            done.set_exception(error)
        return done

    def map(self, work: Callable[..., Any], *arguments: Iterable[Any]) -> Iterator[Any]:
        return map(work, *arguments)

    def shutdown(self, **_: object) -> None:
        return


def epoch_at(epochs: LeaderEpochCache, offset: int) -> int | None:
    """Return the leader epoch under which an offset was written; None: it is older than all entries."""
    return next((entry.leader_epoch for entry in reversed(epochs.entries) if entry.start_offset <= offset), None)
