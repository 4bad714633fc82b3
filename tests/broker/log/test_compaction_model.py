"""Compaction against a model: every record ever appended, and which of them a reader must, may or must not find.

The run mixes random appends in every codec, transactions, tombstones, rolls, truncations, moves of the high watermark
and restarts with cleanings that are cut off at a random step. Some cleanings have a map too small for all keys.
"""

from __future__ import annotations

import random
import shutil
from collections.abc import Callable
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import pytest
from cleaning import prepare, records_of, work
from log_folders import NOW_MS, StandIn, marker_batch, open_log, read_all
from soak import SOAK

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.cleaner import key_map
from engine.broker.log.cleaner.choice import measure
from engine.broker.log.cleaner.job import CleanerSettings
from engine.broker.log.cleaner.messages import Report
from engine.broker.log.log import Log
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

STEPS = 80
KEYS = 14
RETENTION_MS = 5000
PRODUCERS = (21, 22)


UNDECIDED = 2**63 - 1


class Crash(BaseException):
    """The process ends here."""


@dataclass
class Sent:
    """A record that was appended."""

    offset: int
    key: bytes
    value: bytes | None
    producer_id: int
    marker_offset: int = UNDECIDED
    is_aborted: bool = False


class Run:
    """One random history of one compacted log."""

    def __init__(self, seed: int, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.random = random.Random(seed)
        self.patch = patch
        patch.setattr(key_map, "LOOK_KEYS", 3)
        self.folder = folder
        self.config = LogConfig(
            segment_bytes=self.random.choice([700, 2000, 6000]),
            index_interval_bytes=150,
            segment_index_bytes=self.random.choice([240, 4000]),
            retention_ms=-1,
            delete_retention_ms=RETENTION_MS,
            cleanup_policy=("compact",),
        )
        self.environment = StandIn()
        self.log = open_log(folder, self.config, self.environment)
        self.sent: list[Sent] = []
        self.open: dict[int, list[Sent]] = {}
        self.sequences = dict.fromkeys(PRODUCERS, 0)
        self.clean_to = 0
        """The log was cleaned up to here at least once."""
        self.touched_to = 0
        """A cleaning may have come this far before it was cut off."""
        self.is_uniform = True
        """No cleaning was cut off since the last complete one: all groups come from the same cleaning."""
        self.serial = 0

    def step(self) -> None:
        actions = [
            (self.append, 14),
            (self.append_in_transaction, 5),
            (self.end_transaction, 4),
            (self.roll, 3),
            (self.raise_high_watermark, 4),
            (self.clean, 5),
            (self.clean_and_crash, 3),
            (self.truncate, 1),
            (self.reopen, 1),
            (self.let_time_pass, 2),
        ]
        names, weights = zip(*actions, strict=True)
        self.random.choices(names, weights)[0]()
        self.environment.delete_now()

    # --- actions

    def append(self) -> None:
        self._append(self.random.randrange(1, 12), -1)

    def append_in_transaction(self) -> None:
        producer_id = self.random.choice(PRODUCERS)
        self.open.setdefault(producer_id, []).extend(self._append(self.random.randrange(1, 5), producer_id))

    def _append(self, count: int, producer_id: int) -> list[Sent]:
        records, sent = [], []
        for n in range(count):
            self.serial += 1
            key = b"key-%d" % self.random.randrange(KEYS)
            value = None if self.random.random() < 0.2 else b"%d" % self.serial * self.random.randrange(1, 9)
            records.append(Record(key=key, value=value, timestamp_ms=self._now_ms() + self.random.randrange(-50, 50)))
            sent.append(Sent(self.log.log_end_offset + n, key, value, producer_id))
        options = {}
        if producer_id >= 0:
            options = {"producer_id": producer_id, "producer_epoch": 0, "base_sequence": self.sequences[producer_id]}
            self.sequences[producer_id] += count
        batch = encode_batch(records, codec=Codec(self.random.randrange(5)), transactional=producer_id >= 0, **options)
        self.log.append_as_leader(memoryview(bytearray(batch)), 0)
        self.sent += sent
        return sent

    def end_transaction(self) -> None:
        if self.open:
            producer_id = self.random.choice(list(self.open))
            commit = self.random.random() < 0.5
            marker = marker_batch(producer_id, 0, commit=commit, timestamp_ms=self._now_ms())
            self.log.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
            for transaction in self.open.pop(producer_id):
                transaction.marker_offset, transaction.is_aborted = self.log.log_end_offset - 1, not commit

    def roll(self) -> None:
        self.log.roll()

    def raise_high_watermark(self) -> None:
        self.log.update_high_watermark(self._some_boundary())

    def _some_boundary(self) -> int:
        """Return where a batch begins or the log ends, at or above the high watermark: replicas get whole batches."""
        ends = [header.next_offset for _, header in iter_batches(read_all(self.log))]
        return self.random.choice([*(end for end in ends if end > self.log.high_watermark), self.log.log_end_offset])

    def clean(self) -> None:
        settings = CleanerSettings(dedupe_buffer_size=1) if self.random.random() < 0.2 else None
        bound = measure(self.log, self._now_ms())
        if bound.first_uncleanable_offset <= bound.first_dirty_offset:
            return
        self.touched_to = max(self.touched_to, bound.first_uncleanable_offset)
        finished = work(prepare(self.log, settings))
        assert finished.end_offset > bound.first_dirty_offset or settings is not None
        self.clean_to = max(self.clean_to, finished.end_offset)
        self.is_uniform = True
        assert not list(self.folder.glob("*.cleaned")) + list(self.folder.glob("*.swap"))

    def clean_and_crash(self) -> None:
        """The crash comes before a rename of the swap, or after a group was cleaned."""
        before_rename, after_report = self.random.randrange(40), self.random.randrange(8)
        rename = Path.rename

        def fragile(path: Path, target: Path) -> Path:
            nonlocal before_rename
            if before_rename == 0:
                raise Crash
            before_rename -= 1
            return rename(path, target)

        def on_report(_: Report) -> None:
            nonlocal after_report
            if after_report == 0:
                raise Crash
            after_report -= 1

        checkpoint = self.log.cleaning.first_dirty_offset
        with self.patch.context() as patch:
            patch.setattr(Path, "rename", fragile)
            job = prepare(self.log)
            self.touched_to = max(self.touched_to, job.plan.first_uncleanable_offset)
            try:
                finished = work(job, on_report)
            except Crash:
                self.is_uniform = False
            else:
                self.clean_to = max(self.clean_to, finished.end_offset)
                checkpoint = finished.end_offset if self.random.random() < 0.5 else checkpoint
        self._reopen(is_clean=False, checkpoint=checkpoint)

    def truncate(self) -> None:
        """Cut the log as a follower does: it may cut what was not replicated, but the cleaned part is replicated.

        There is one exception, as in Kafka: a restart forgets that a marker is not replicated yet.
        """
        decided = [
            record.marker_offset for record in self.sent if record.offset < self.touched_to and record.producer_id >= 0
        ]
        to = max([self._some_boundary(), *(offset + 1 for offset in decided if offset < UNDECIDED)])
        self.log.truncate_to(to)
        self.sent = [record for record in self.sent if record.offset < to]
        self.open = {}
        for record in self.sent:
            if record.producer_id >= 0 and record.marker_offset >= to:
                record.marker_offset, record.is_aborted = UNDECIDED, False
                self.open.setdefault(record.producer_id, []).append(record)
        for producer_id in PRODUCERS:
            entry = self.log.producers.producers.get(producer_id)
            self.sequences[producer_id] = 0 if entry is None or entry.last_sequence < 0 else entry.last_sequence + 1

    def reopen(self) -> None:
        self._reopen(is_clean=self.random.random() < 0.5, checkpoint=self.log.cleaning.first_dirty_offset)

    def _reopen(self, *, is_clean: bool, checkpoint: int | None) -> None:
        high_watermark = self.log.high_watermark
        if is_clean:
            self.log.close()
        else:
            self.log.abandon()
        self.log = open_log(self.folder, self.config, self.environment, clean=is_clean)
        self.log.update_high_watermark(high_watermark)
        self.log.cleaning.first_dirty_offset = checkpoint

    def let_time_pass(self) -> None:
        self.environment.clock.advance(RETENTION_MS // 2)

    def _now_ms(self) -> int:
        return self.environment.clock.now_ms()

    # --- what must hold

    def check(self) -> None:
        self._check_aborted_list()
        stored = [(record.offset, record.key, record.value) for record in self._data_records()]
        offsets = [offset for offset, _, _ in stored]
        assert offsets == sorted(set(offsets))
        known = {record.offset: (record.key, record.value) for record in self.sent}
        assert all(known[offset] == (key, value) for offset, key, value in stored)
        kept = set(offsets)
        aborted = {record.offset for record in self.sent if record.is_aborted}
        decided = [record for record in self.sent if not record.is_aborted]
        assert {record.offset for record in decided if record.offset >= self.touched_to} <= kept
        last = {record.key: record for record in decided if record.offset < self.touched_to}
        assert {record.offset for record in last.values() if record.value is not None} <= kept
        survivors = kept - aborted
        final = {key: value for offset, key, value in stored if offset in survivors and value is not None}
        dead = {key for offset, key, value in stored if offset in survivors and value is None}
        expected = {record.key: record.value for record in decided}
        for key, value in expected.items():
            if value is not None:
                assert final[key] == value
            else:
                assert key not in final or key in dead
        if self.is_uniform:
            last = {record.key: record for record in decided if record.offset < self.clean_to}
            stale = {record.offset for record in self.sent if record.offset < self.clean_to}
            assert not (stale - {record.offset for record in last.values()}) & kept

    def _data_records(self) -> list[Record]:
        data = read_all(self.log)
        headers = {header.base_offset: header for _, header in iter_batches(data)}
        for earlier, later in pairwise(headers.values()):
            assert earlier.last_offset < later.base_offset
        return [record for record in records_of(self.log) if record.key is not None and record.key.startswith(b"key-")]

    def _check_aborted_list(self) -> None:
        """A read_committed consumer hides exactly those aborted records that are still there."""
        by_offset = {record.offset: record for record in self.sent}
        stable = self.log.last_stable_offset
        listed = self.log.collect_aborted_transactions(0, stable)
        for record in self._data_records():
            sent = by_offset[record.offset]
            if record.offset >= stable:
                continue
            is_hidden = any(
                each.producer_id == sent.producer_id and each.first_offset <= record.offset <= each.last_offset
                for each in listed
            )
            assert is_hidden is sent.is_aborted, (record, listed)


def run(seed: int, folder: Path, patch: pytest.MonkeyPatch, look: Callable[[Log], None] | None = None) -> None:
    history = Run(seed, folder, patch)
    for _ in range(STEPS):
        history.step()
        history.check()
        if look is not None:
            look(history.log)
    history.log.abandon()


@pytest.mark.parametrize("seed", range(14 * SOAK))
def test_a_compacted_log_holds_what_it_must(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    run(seed, tmp_path / "t-0", monkeypatch)


def test_every_step_of_a_swap_may_be_the_last(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Three segments with snapshots and an aborted transaction become one. A crash comes before each rename in turn."""
    config = LogConfig(segment_bytes=10_000, cleanup_policy=("compact",), retention_ms=-1)
    made = open_log(tmp_path / "made-0", config)
    for number in range(30):
        made.append_as_leader(_batch(number), 0)
        if number % 10 == 9:
            made.append_as_leader(_batch(number, producer_id=5, sequence=number // 10), 0)
            marker = marker_batch(5, 0, commit=False, timestamp_ms=NOW_MS)
            made.append_as_leader(marker, 0, origin=AppendOrigin.COORDINATOR)
            made.roll()
    made.close()
    rename, renames = Path.rename, 0
    for last in range(100):
        folder = tmp_path / f"t-{last}"
        shutil.copytree(made.dir, folder)
        log = open_log(folder, config)
        log.update_high_watermark(log.log_end_offset)
        left = last

        def fragile(path: Path, target: Path) -> Path:
            nonlocal left
            if left == 0:
                raise Crash
            left -= 1
            return rename(path, target)

        has_crashed = False
        with monkeypatch.context() as patch:
            patch.setattr(Path, "rename", fragile)
            try:
                work(prepare(log))
            except Crash:
                has_crashed = True
        log.abandon()
        again = open_log(folder, config, clean=False)
        again.update_high_watermark(again.log_end_offset)
        live = {
            record.key: record.value
            for record in records_of(again)
            if record.value and record.value.startswith(b"good")
        }
        assert live == {b"key-%d" % n: b"good %d" % (27 + n) for n in range(3)}, last
        assert again.log_end_offset == 36
        work(prepare(again))
        assert [record.value for record in records_of(again) if record.value and b" " in record.value] == [
            b"good 27",
            b"good 28",
            b"good 29",
        ]
        assert not [path.name for path in folder.iterdir() if path.name.endswith((".cleaned", ".swap"))]
        again.abandon()
        if not has_crashed:
            renames = last
            break
    assert renames > 15


def _batch(number: int, *, producer_id: int = -1, sequence: int = -1) -> memoryview:
    word = b"bad %d" if producer_id >= 0 else b"good %d"
    record = Record(key=b"key-%d" % (number % 3), value=word % number, timestamp_ms=NOW_MS + number)
    epoch = 0 if producer_id >= 0 else -1
    data = encode_batch(
        [record],
        producer_id=producer_id,
        producer_epoch=epoch,
        base_sequence=sequence,
        transactional=producer_id >= 0,
    )
    return memoryview(bytearray(data))
