"""What readers of committed records see of a log, whatever happens to it between the records of open transactions.

Random histories: several producers write transactions, while the log is rolled, cut, compacted, moved to another dir,
copied to a new replica, deleted with its name used again, and its machine is killed or loses power. The expected state
is a pure function of the batches that must be there: the last stable offset, the aborted list, the sequences that
producers go on with, and what a client reads with ``read_committed``.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from cleaning import clean_all, put
from forgetful_disk import KILLED, MIXED, STRICT, Disk, write_image
from log_folders import (
    NOW_MS,
    TOPIC_ID,
    ManagedLogs,
    data_batch,
    marker_batch,
    open_log,
    read_all,
    run_due,
    write_checkpoints,
)
from soak import rounds

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.disk_jobs import run_jobs
from engine.broker.log.log import Log
from engine.broker.log.log_moves import create_future_log, replace_current_with_future
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.control_records import ControlRecordType, read_end_transaction_marker
from engine.kafka.formats.index_entries import AbortedTransaction
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import iter_batches

TP = TopicPartition("topic", 0)
PRODUCERS = (1, 2, 3)
CONFIG = LogConfig(
    segment_bytes=900,
    index_interval_bytes=80,
    segment_index_bytes=240,
    cleanup_policy=("compact", "delete"),
    retention_bytes=5000,
    retention_ms=-1,
    file_delete_delay_ms=0,
)
STEPS = 80


class Step(NamedTuple):
    """One batch of one record. ``is_commit`` is None for data; producer -1 writes without a transaction."""

    offset: int
    producer_id: int
    epoch: int
    sequence: int
    is_commit: bool | None


class History:
    """What the batches before an offset mean."""

    def __init__(self, steps: list[Step]) -> None:
        self.open: dict[int, int] = {}
        """First offset of each open transaction."""
        self.ended: list[tuple[int, int, int, bool]] = []
        """Producer id, first and last offset and outcome of each transaction that is over."""
        self.aborted: list[AbortedTransaction] = []
        self.next: dict[int, tuple[int, int]] = {}
        """Epoch and sequence of the next batch of each producer."""
        self.committed: list[int] = []
        """Offsets of records for readers of committed records."""
        written: dict[int, list[int]] = {producer_id: [] for producer_id in PRODUCERS}
        for step in steps:
            producer_id = step.producer_id
            if producer_id < 0:
                self.committed.append(step.offset)
            elif step.is_commit is None:
                self.open.setdefault(producer_id, step.offset)
                self.next[producer_id] = (step.epoch, step.sequence + 1)
                written[producer_id].append(step.offset)
            else:
                if step.epoch != self.next.get(producer_id, (0, 0))[0]:
                    self.next[producer_id] = (step.epoch, 0)
                first = self.open.pop(producer_id, None)
                if first is not None:
                    self._end(step, first)
                if step.is_commit:
                    self.committed += written[producer_id]
                written[producer_id] = []

    def _end(self, step: Step, first: int) -> None:
        assert step.is_commit is not None
        self.ended.append((step.producer_id, first, step.offset, step.is_commit))
        if not step.is_commit:
            stable = min(self.open.values(), default=step.offset + 1)
            self.aborted.append(AbortedTransaction(step.producer_id, first, step.offset, stable))

    def unstable(self, high_watermark: int) -> int | None:
        """Return the first offset of a transaction that is open, or whose marker is not replicated."""
        unreplicated = [first for _, first, last, _ in self.ended if last >= high_watermark]
        return min([*self.open.values(), *unreplicated], default=None)


class Run:
    """One history. After each step the log is compared with its model."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.rng = random.Random(seed)
        self.folder = folder
        self.starts = 0
        self.steps: list[Step] = []
        self.is_cleaned = False
        """Aborted transactions without records may have left the index."""
        self.deleted_to = 0
        """The largest start of the log so far."""
        self.is_cut = False
        self._open(write_image({"a": None, "b": None}, folder / "start-0"))
        self._create()

    def _open(self, root: Path) -> None:
        self.disk = Disk(root)
        with self.disk.watched():
            self.broker = ManagedLogs(root / "a", root / "b", config=CONFIG, delay_ms=0).loaded()

    def _create(self) -> None:
        self.broker.logs.get_or_create(TP, topic_id=TOPIC_ID, is_new=True)
        self.steps = []
        self.is_cleaned = False
        self.deleted_to = 0
        self.is_cut = False

    @property
    def log(self) -> Log:
        return self.broker.logs.logs[TP]

    def step(self, told: list[str]) -> None:
        actions = {
            self.write: 20,
            self.end: 8,
            self.replicate: 8,
            self.write_plain: 2,
            self.roll: 2,
            self.flush: 2,
            self.cut: 2,
            self.start_over: 0.3,
            self.delete_records: 1,
            self.retain: 1,
            self.compact: 1,
            self.move: 1,
            self.copy_to_new_replica: 0.7,
            self.use_name_again: 0.3,
            self.restart: 1,
            self.crash: 1.5,
        }
        (action,) = self.rng.choices(list(actions), list(actions.values()))
        told.append(action.__name__)
        with self.disk.watched():
            action()
        with self.disk.watched():
            # After a start this is another disk.
            run_due(self.broker.logs)
        assert not self.broker.failed

    # -- transactions

    def write(self) -> None:
        producer_id = self.rng.choice(PRODUCERS)
        epoch, sequence = History(self.steps).next.get(producer_id, (0, 0))
        if any(step.producer_id == producer_id and step.sequence == sequence - 1 for step in self._known_steps()):
            self._refuse_what_a_zombie_sends(producer_id, epoch, sequence)
        else:
            # Its records may be gone, and with them what the log knew of it.
            entry = self.log.producers.producers.get(producer_id)
            sequence = 0 if entry is None or not entry.batches else entry.next_sequence
        self._put(producer_id, epoch, sequence)

    def _refuse_what_a_zombie_sends(self, producer_id: int, epoch: int, sequence: int) -> None:
        """The log still knows the producer's epoch and sequence."""
        wrong = [(epoch, sequence + 3, ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER)] if sequence else []
        if epoch:
            wrong.append((epoch - 1, sequence, ErrorCode.INVALID_PRODUCER_EPOCH))
        if wrong and self.rng.random() < 0.3:
            old, ahead, error = self.rng.choice(wrong)
            with pytest.raises(KafkaError) as caught:
                self._append(producer_id, old, ahead)
            assert caught.value.code is error

    def _put(self, producer_id: int, epoch: int, sequence: int) -> None:
        offset = self._append(producer_id, epoch, sequence)
        self.steps.append(Step(offset, producer_id, epoch, sequence, None))

    def _append(self, producer_id: int, epoch: int, sequence: int) -> int:
        # Compaction keeps every key, since no two records have the same.
        pair = (b"%d" % self.log.log_end_offset, bytes(self.rng.randrange(80)))
        of = {"producer_id": producer_id, "producer_epoch": epoch, "base_sequence": sequence}
        return put(self.log, pair, **(of | {"transactional": True} if producer_id >= 0 else {}))

    def write_plain(self) -> None:
        self._put(-1, -1, -1)

    def end(self) -> None:
        producer_id = self.rng.choice(PRODUCERS)
        is_commit = self.rng.random() < 0.5
        epoch = History(self.steps).next.get(producer_id, (0, 0))[0]
        if not is_commit and self.rng.random() < 0.3:
            epoch += 1
        batch = marker_batch(producer_id, epoch, commit=is_commit, timestamp_ms=NOW_MS)
        offset = self.log.append_as_leader(batch, 0, origin=AppendOrigin.COORDINATOR).first_offset
        self.steps.append(Step(offset, producer_id, epoch, -1, is_commit))

    def replicate(self) -> None:
        self.log.update_high_watermark(self.rng.randint(self.log.high_watermark, self.log.log_end_offset))

    # -- what happens to the log

    def roll(self) -> None:
        self.log.roll()

    def flush(self) -> None:
        self.log.flush()
        write_checkpoints(self.broker.logs)

    def cut(self) -> None:
        """Another leader has less than this replica."""
        ends = [step.offset for step in self.steps if step.offset >= self.log.high_watermark]
        if ends:
            offset = self.rng.choice(ends)
            self.log.truncate_to(offset)
            self._settle_cut()
            self._lose(offset)
            self.is_cut = True

    def start_over(self) -> None:
        """This follower is so far behind that its leader has no longer what comes next."""
        self.log.truncate_fully_and_start_at(self.log.log_end_offset + 5)
        self._settle_cut()
        self.steps = []

    def _settle_cut(self) -> None:
        """Bring the cut to the disk, as a follower does before it fetches again."""
        if self.log.has_unsettled_cut:
            run_jobs(self.broker.logs.settling_jobs([self.log]))
            self.log.has_unsettled_cut = False

    def delete_records(self) -> None:
        self.log.increment_log_start_offset(self.rng.randint(self.log.log_start_offset, self.log.high_watermark))

    def retain(self) -> None:
        self.log.delete_old_segments(NOW_MS)

    def compact(self) -> None:
        self.log.flush()
        if self.is_cut:
            # Else an abort might be cleaned away whose marker may be cut off. Its coordinator would abort it again.
            self.log.update_high_watermark(self.log.log_end_offset)
        if clean_all(self.log):
            self.is_cleaned = True

    def move(self) -> None:
        """Let a copy in the other dir take the place."""
        log = self.log
        (target,) = set(self.broker.logs.config.log_dirs) - {log.log_dir}
        self._copy(log, create_future_log(self.broker.logs, TP, target))
        replace_current_with_future(self.broker.logs, TP)
        run_jobs(self.broker.logs.replaced.jobs(TP))
        self._begin_at_start()

    def copy_to_new_replica(self) -> None:
        """Let a new replica on another broker be the leader."""
        root = self.folder / f"new-{self.starts}"
        old = self.broker
        self.starts += 1
        high_watermark = self.log.high_watermark
        log = self.log
        self._open(write_image({"a": None, "b": None}, root))
        with self.disk.watched():
            self.broker.logs.get_or_create(TP, topic_id=TOPIC_ID, is_new=True)
            self._copy(log, self.log)
            self.log.update_high_watermark(high_watermark)
            run_due(self.broker.logs)
        old.logs.release()
        self._begin_at_start()

    def _copy(self, source: Log, target: Log) -> None:
        if source.log_start_offset:
            target.truncate_fully_and_start_at(source.log_start_offset)
        data = read_all(source)
        batches = list(iter_batches(data))
        while batches:
            some, batches = batches[: (count := self.rng.randint(1, 9))], batches[count:]
            first, last = some[0][0], some[-1][0] + some[-1][1].size_bytes
            target.append_as_follower(memoryview(bytearray(data[first:last])))
        if self.log.log_end_offset > target.log_end_offset:
            target.truncate_fully_and_start_at(source.log_end_offset)

    def _begin_at_start(self) -> None:
        """What a transaction wrote before the start of the log is not in a copy."""
        self.steps = [step for step in self.steps if step.offset >= self.log.log_start_offset]

    def use_name_again(self) -> None:
        self.broker.logs.delete(TP)
        run_jobs(self.broker.logs.forgetting_jobs([TP]))
        self._create()
        assert not self.log.producers.producers

    def restart(self) -> None:
        self.broker.logs.shutdown()
        self._again(KILLED)
        assert self.log.log_end_offset == (self.steps[-1].offset + 1 if self.steps else self.log.log_start_offset)

    def crash(self) -> None:
        if self.rng.random() < 0.5:
            self.log.flush()
        kind = self.rng.choice([KILLED, STRICT, MIXED])
        flushed = [step for step in self.steps if step.offset < self.log.recovery_point]
        self._again(kind)
        assert self.steps[: len(flushed)] == flushed

    def _again(self, kind: str) -> None:
        image = self.disk.image(kind, self.rng)
        self.broker.logs.release()
        self.starts += 1
        self._open(write_image(image, self.folder / f"start-{self.starts}"))
        if TP not in self.broker.logs.logs:
            with self.disk.watched():
                self._create()
        self._lose(self.log.log_end_offset)
        self.log.update_high_watermark(self.log.log_end_offset)

    def _lose(self, end: int) -> None:
        self.steps = [step for step in self.steps if step.offset < end]

    # -- checks

    def _known(self) -> History:
        """Return what the log knows at least: a cut or a crash may take from it what was before its start."""
        return History(self._known_steps())

    def _known_steps(self) -> list[Step]:
        return [step for step in self.steps if step.offset >= self.deleted_to]

    def check(self) -> None:
        log, history, known = self.log, History(self.steps), self._known()
        start, stable = log.log_start_offset, log.last_stable_offset
        self.deleted_to = max(self.deleted_to, start)
        self.is_cut = self.is_cut and log.high_watermark < log.log_end_offset
        # A cut takes the producers back to a snapshot, and forgets which of the ended ones lack replicas.
        unstable = min(known.open.values(), default=None) if self.is_cut else known.unstable(log.high_watermark)
        assert self._stable(history.unstable(log.high_watermark)) <= stable <= self._stable(unstable)
        read = self._read_committed()
        committed = [at for at in sorted(history.committed) if start <= at < stable]
        # What DeleteRecords has taken may be back after a crash, as far as it was not cleaned away.
        assert [at for at in read if at >= self.deleted_to] == [at for at in committed if at >= self.deleted_to]
        assert set(read) <= set(committed)
        self._check_aborted(history, known)

    def _check_aborted(self, history: History, known: History) -> None:
        aborted = set(self.log.collect_aborted_transactions(self.log.log_start_offset, self.log.log_end_offset))
        if self.is_cleaned:
            # The first records of a transaction may be gone before a copy is made, or all of them.
            markers = {(transaction.producer_id, transaction.last_offset) for transaction in history.aborted}
            assert {(transaction.producer_id, transaction.last_offset) for transaction in aborted} <= markers
        else:
            begun_later = {transaction for transaction in known.aborted if transaction.first_offset >= self.deleted_to}
            assert {
                transaction for transaction in history.aborted if transaction.first_offset >= self.deleted_to
            } <= aborted
            assert aborted <= set(history.aborted) | begun_later

    def _stable(self, unstable: int | None) -> int:
        high_watermark = self.log.high_watermark
        return high_watermark if unstable is None else min(max(unstable, self.log.log_start_offset), high_watermark)

    def _read_committed(self) -> list[int]:
        """Return the offsets that a client reads: it drops what the aborted list of each answer names."""
        offset, position = self.log.log_start_offset, []
        while offset < self.log.last_stable_offset:
            got, offset = self._fetched(offset, self.rng.choice([1, 200, 600, 100_000]))
            position += got
        return position

    def _fetched(self, offset: int, max_bytes: int) -> tuple[list[int], int]:
        read = self.log.read(offset, max_bytes, limit_offset=self.log.last_stable_offset, min_one_batch=True)
        if read.records is None:
            return [], self.log.last_stable_offset
        aborted = sorted(
            self.log.collect_aborted_transactions(offset, self.log.upper_bound_offset(read)),
            key=lambda transaction: transaction.first_offset,
        )
        data = read.records.read()
        batches = list(iter_batches(data))
        if not batches:
            return [], self.log.last_stable_offset
        return [at for at in _without_aborted(data, aborted) if at >= offset], batches[-1][1].next_offset


def _without_aborted(data: bytes, aborted: list[AbortedTransaction]) -> Iterator[int]:
    """Yield offsets as Kafka's consumer does."""
    dropped: set[int] = set()
    for position, header in iter_batches(data):
        while aborted and aborted[0].first_offset <= header.last_offset:
            dropped.add(aborted.pop(0).producer_id)
        if header.is_control:
            marker = read_end_transaction_marker(data, position, header)
            if marker is not None and marker.type is ControlRecordType.ABORT:
                dropped.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in dropped):
            yield from (record.offset for record in iter_batch_records(data, position, header))


@pytest.mark.parametrize("seed", range(rounds("KLAMM_TRANSACTION_LIVES", 20)))
def test_committed_records_are_read_and_no_others_whatever_happens_to_the_log(tmp_path: Path, seed: int) -> None:
    run = Run(seed, tmp_path)
    values: list[str] = []
    for _ in range(STEPS):
        try:
            run.step(values)
            run.check()
        except AssertionError as error:
            error.add_note(f"after {values[-12:]} {run.log!r} {[tuple(step) for step in run.steps]}")
            raise
    run.broker.logs.release()


# -- a follower gets batches of several producers in one answer


def send(log: Log, producer_id: int, sequence: int = 0) -> None:
    batch = data_batch(b"v", producer=(producer_id, 0, sequence), transactional=True, timestamp_ms=NOW_MS)
    log.append_as_leader(batch, 0)


def end(log: Log, producer_id: int, *, commit: bool) -> None:
    marker = marker_batch(producer_id, 0, commit=commit, timestamp_ms=NOW_MS)
    log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)


@pytest.mark.parametrize("at_once", [1, 5])
def test_a_follower_orders_transactions_by_the_log_and_not_by_their_producers(tmp_path: Path, at_once: int) -> None:
    """Producer 1 begins again after producer 2 has begun."""
    leader, follower = open_log(tmp_path / "t-0"), open_log(tmp_path / "f-0")
    send(leader, 1)
    send(leader, 2)
    end(leader, 1, commit=False)
    send(leader, 1, 1)
    send(leader, 3)
    data = read_all(leader)
    places = [*(position for position, _ in iter_batches(data)), len(data)]
    for n in range(0, 5, at_once):
        follower.append_as_follower(memoryview(bytearray(data[places[n] : places[n + at_once]])))
    follower.update_high_watermark(5)
    assert follower.first_unstable_offset == follower.last_stable_offset == 1
    aborted = follower.collect_aborted_transactions(0, 10)
    assert aborted == leader.collect_aborted_transactions(0, 10) == [AbortedTransaction(1, 0, 2, 1)]
    end(follower, 2, commit=True)
    assert follower.last_stable_offset == 3


def test_a_search_for_aborted_transactions_is_not_ended_by_what_begins_later(tmp_path: Path) -> None:
    """The index says what was stable after a marker. What a follower gets with the marker must not raise that."""
    leader, follower = open_log(tmp_path / "t-0"), open_log(tmp_path / "f-0")
    send(leader, 1)
    end(leader, 1, commit=False)
    send(leader, 1, 1)
    send(leader, 2)
    follower.append_as_follower(memoryview(bytearray(read_all(leader))))
    for log in (leader, follower):
        end(log, 1, commit=False)
        assert [transaction.first_offset for transaction in log.collect_aborted_transactions(0, 3)] == [0, 2]
