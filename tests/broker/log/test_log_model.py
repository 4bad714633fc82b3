"""The log against a model of it: a list of records, under random appends, rolls, truncations, restarts and crashes.

After every recovery the log is a prefix of the appended records and has everything that was flushed.
"""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from lives import epoch_at
from log_folders import StandIn, data_batch, open_log, values_of
from soak import rounds
from time_lookups import offset_for_timestamp, offset_of_max_timestamp

from engine.broker.log.log import Log
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.layout import BATCH_OVERHEAD

CONFIG = LogConfig(
    segment_bytes=3000,
    index_interval_bytes=150,
    segment_index_bytes=240,
    retention_bytes=9000,
    retention_ms=-1,
    file_delete_delay_ms=0,
)
STEPS = 120
CHECKED_FROM = 16
"""Every byte of a batch is checked from its magic on. The leader stamps the offset and epoch before it."""

PRODUCER_ID = 77


@dataclass
class Model:
    """What the log should hold: (offset, timestamp, value, leader epoch) in order."""

    records: list[tuple[int, int, bytes, int]] = field(default_factory=list)
    start: int = 0
    end: int = 0
    leader_epoch: int = 0
    clock_ms: int = 1_000_000
    sequences: list[tuple[int, int]] = field(default_factory=list)
    """First offset and base sequence of each idempotent batch in the log."""

    def visible(self) -> list[tuple[int, bytes]]:
        return [(offset, value) for offset, _, value, _ in self.records if offset >= self.start]

    def cut(self, end: int) -> None:
        self.records = [record for record in self.records if record[0] < end]
        self.sequences = [batch for batch in self.sequences if batch[0] < end]
        self.end = end
        self.start = min(self.start, end)


class Run:
    """One random history of one log."""

    def __init__(self, seed: int, folder: Path) -> None:
        self.random = random.Random(seed)
        self.folder = folder
        self.environment = StandIn()
        self.model = Model()
        self.log = open_log(folder, CONFIG, self.environment)
        self.checkpointed = 0
        self.checkpointed_start = 0

    def step(self) -> None:
        actions = [
            (self.append, 12),
            (self.append_idempotent, 4),
            (self.append_twice, 1),
            (self.new_leader, 1),
            (self.follow, 2),
            (self.roll, 1),
            (self.flush, 2),
            (self.truncate, 1),
            (self.delete_records, 1),
            (self.retain, 2),
            (self.reopen, 1),
            (self.crash, 2),
        ]
        names, weights = zip(*actions, strict=True)
        self.random.choices(names, weights)[0]()
        self.environment.delete_now()

    # --- actions

    def append(self) -> None:
        self.append_as(producer=(-1, -1, -1))

    def append_idempotent(self) -> None:
        known = self.log.producers.producers.get(PRODUCER_ID)
        sequence = known.next_sequence if known is not None and known.batches else 0
        first_offset = self.append_as(producer=(PRODUCER_ID, 0, sequence))
        self.model.sequences.append((first_offset, sequence))

    def append_as(self, producer: tuple[int, int, int]) -> int:
        values, timestamp_ms = self.new_values()
        codec = self.random.choice([Codec.NONE, Codec.NONE, Codec.LZ4])
        batch = data_batch(*values, timestamp_ms=timestamp_ms, producer=producer, codec=codec)
        result = self.log.append_as_leader(batch, self.model.leader_epoch)
        assert result.first_offset == self.model.end
        assert result.record_count == len(values)
        self.note(values, timestamp_ms)
        return result.first_offset

    def append_twice(self) -> None:
        """A producer that got no answer sends the batch again."""
        if self.model.sequences:
            first_offset, sequence = self.model.sequences[-1]
            known = self.log.producers.producers.get(PRODUCER_ID)
            if known is None or not known.batches or known.batches[-1][1] - known.batches[-1][2] != first_offset:
                return
            count = known.batches[-1][2] + 1
            batch = data_batch(*[b"again"] * count, producer=(PRODUCER_ID, 0, sequence))
            result = self.log.append_as_leader(batch, self.model.leader_epoch)
            assert result.is_duplicate
            assert result.first_offset == first_offset

    def follow(self) -> None:
        """Append batches of another leader, several at once, sometimes with a gap of offsets."""
        data, timestamps = b"", []
        self.model.leader_epoch += 1
        base_offset = self.model.end
        for _ in range(self.random.randint(1, 4)):
            base_offset += self.random.choice([0, 0, 0, 3])
            values, timestamp_ms = self.new_values()
            data += _placed(values, timestamp_ms, base_offset, self.model.leader_epoch)
            timestamps.append((base_offset, values, timestamp_ms))
            base_offset += len(values)
        cut = self.random.choice([0, 0, 30])
        self.log.append_as_follower(memoryview(data + data[:cut]))
        for offset, values, timestamp_ms in timestamps:
            self.model.end = offset
            self.note(values, timestamp_ms)

    def new_leader(self) -> None:
        self.model.leader_epoch += 1

    def roll(self) -> None:
        self.log.roll()

    def flush(self) -> None:
        self.log.flush(self.random.choice([None, self.random.randint(0, self.model.end)]))
        if self.random.random() < 0.5:
            self.checkpointed, self.checkpointed_start = self.log.recovery_point, self.log.log_start_offset

    def truncate(self) -> None:
        target = self.random.randint(max(self.model.start, self.model.end - 30), self.model.end)
        boundaries = {self.log.first_segment_base_offset, self.model.end, *self.batch_ends()}
        offset = max(boundary for boundary in boundaries if boundary <= target)
        self.log.truncate_to(offset)
        self.model.cut(offset)
        self.checkpointed = min(self.checkpointed, offset)
        self.checkpointed_start = min(self.checkpointed_start, offset)

    def delete_records(self) -> None:
        self.log.update_high_watermark(self.model.end)
        offset = self.random.randint(self.model.start, self.model.end)
        if self.random.random() < 0.3:
            self.log.increment_log_start_offset(offset)
            self.model.start = max(self.model.start, offset)

    def retain(self) -> None:
        self.log.update_high_watermark(self.random.randint(self.model.start, self.model.end))
        self.log.delete_old_segments(self.environment.clock.now_ms())
        self.model.start = self.log.log_start_offset
        self.checkpointed_start = self.model.start

    def reopen(self) -> None:
        """Orderly stop and start."""
        self.log.flush()
        self.log.close()
        self.log = open_log(self.folder, CONFIG, self.environment, log_start_offset=self.model.start)
        self.checkpointed, self.checkpointed_start = self.model.end, self.model.start
        assert self.log.recovery_point == self.model.end

    def crash(self) -> None:
        """The machine crashes: what was not flushed may be cut anywhere, or be zeros. Indexes may hold anything."""
        flushed = self.log.recovery_point
        unflushed = [segment for segment in self.log.segments if self.end_of(segment.base_offset) > flushed]
        self.log.abandon()
        if unflushed:
            self.damage(self.random.choice(unflushed), flushed)
        self.log = open_log(
            self.folder,
            CONFIG,
            self.environment,
            recovery_point=self.checkpointed,
            log_start_offset=self.checkpointed_start,
            clean=False,
        )
        end = self.log.log_end_offset
        assert end <= self.model.end
        assert not [offset for offset, *_ in self.model.records if end <= offset < flushed]
        self.model.cut(end)
        # The start may go back: it is checkpointed only now and then.
        assert self.log.log_start_offset <= self.model.start
        self.model.start = self.log.log_start_offset

    def damage(self, segment: object, flushed: int) -> None:
        base_offset: int = segment.base_offset  # type: ignore[attr-defined]
        path = self.folder / f"{base_offset:020d}.log"
        data = path.read_bytes()
        safe = self.position_of(base_offset, flushed, data)
        kind = self.random.choice(["cut", "zeros", "flip", "nothing"])
        if kind == "cut":
            path.write_bytes(data[: self.random.randint(safe, len(data))])
        elif kind == "zeros":
            path.write_bytes(data[: self.random.randint(safe, len(data))] + bytes(self.random.randint(1, 200)))
        elif kind == "flip" and safe < len(data):
            starts = [position for position, _ in iter_batches(data) if position >= safe]
            at = self.random.choice(starts) + self.random.randint(CHECKED_FROM, BATCH_OVERHEAD - 1)
            path.write_bytes(data[:at] + bytes([data[at] ^ 0x55]) + data[at + 1 :])
        for suffix in ("index", "timeindex"):
            if self.random.random() < 0.5:
                path.with_suffix(f".{suffix}").write_bytes(self.random.randbytes(self.random.randint(0, 100)))

    # --- helpers

    def new_values(self) -> tuple[list[bytes], int]:
        values = [self.random.randbytes(self.random.randint(0, 120)) for _ in range(self.random.randint(1, 6))]
        self.model.clock_ms += self.random.randint(-50, 200)
        return values, self.model.clock_ms

    def note(self, values: list[bytes], timestamp_ms: int) -> None:
        for index, value in enumerate(values):
            self.model.records.append((self.model.end + index, timestamp_ms + index, value, self.model.leader_epoch))
        self.model.end += len(values)

    def batch_starts(self) -> list[int]:
        return [header.base_offset for segment in self.log.segments for _, header in segment.iter_batches()]

    def batch_ends(self) -> list[int]:
        return [header.next_offset for segment in self.log.segments for _, header in segment.iter_batches()]

    def end_of(self, base_offset: int) -> int:
        later = [segment.base_offset for segment in self.log.segments if segment.base_offset > base_offset]
        return min(later, default=self.model.end)

    def position_of(self, base_offset: int, flushed: int, data: bytes) -> int:
        """Return how many bytes of a segment were flushed."""
        return max(
            [position + header.size_bytes for position, header in iter_batches(data) if header.base_offset < flushed],
            default=0,
        )

    # --- checks

    def check(self) -> None:
        log, model = self.log, self.model
        assert (log.log_start_offset, log.log_end_offset) == (model.start, model.end)
        assert values_of(log) == model.visible()
        assert not self.environment.failures
        assert log.recovery_point <= log.log_end_offset
        assert log.high_watermark <= log.log_end_offset
        starts = [segment.base_offset for segment in log.segments]
        assert starts == sorted(set(starts))
        for segment in log.segments[:-1]:
            assert segment.size_bytes <= CONFIG.segment_bytes
        self.check_random_reads()
        self.check_times()
        self.check_epochs()

    def check_random_reads(self) -> None:
        for _ in range(3):
            offset = self.random.randint(self.model.start, self.model.end)
            limit = self.random.randint(self.model.start, self.model.end)
            limit = max([start for start in [self.model.start, *self.batch_starts()] if start <= limit])
            max_bytes = self.random.choice([1, 70, 500, 10_000])
            read = self.log.read(offset, max_bytes, limit_offset=limit, min_one_batch=True)
            expected = [record for record in self.model.visible() if offset <= record[0] < limit]
            if read.records is None:
                assert not expected
                continue
            got = [(r.offset, r.value) for r in iter_records(read.records.read()) if r.offset >= offset]
            assert got == expected[: len(got)]
            assert got or not expected
            assert len(got) == len(expected) or read.size_bytes >= 1

    def check_times(self) -> None:
        timestamps = [record for record in self.model.records if record[0] >= self.model.start]
        if not timestamps:
            return
        target = self.random.choice(timestamps)[1] + self.random.choice([-1, 0, 1])
        offset_found = offset_for_timestamp(self.log, target)
        expected = next((timestamp for timestamp in timestamps if timestamp[1] >= target), None)
        assert (None if offset_found is None else (offset_found.offset, offset_found.timestamp_ms)) == (
            None if expected is None else (expected[0], expected[1])
        )
        largest = max(record[1] for record in self.model.records if record[0] >= self.log.first_segment_base_offset)
        newest = offset_of_max_timestamp(self.log)
        assert newest is not None
        assert newest.timestamp_ms == largest

    def check_epochs(self) -> None:
        """After a crash, epochs before a log start that was not checkpointed are forgotten, but never wrong."""
        earliest = self.log.leader_epochs.earliest_entry
        for offset, _, _, leader_epoch in self.model.records:
            if offset >= self.model.start and earliest is not None and offset >= earliest.start_offset:
                assert epoch_at(self.log.leader_epochs, offset) == leader_epoch


def _placed(values: list[bytes], timestamp_ms: int, base_offset: int, leader_epoch: int) -> bytes:
    """Return a batch as a leader stores it."""
    batch = data_batch(*values, timestamp_ms=timestamp_ms)
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, leader_epoch)
    return bytes(batch)


@pytest.mark.parametrize("seed", range(rounds("KLAMM_LOG_MODEL_SEEDS", 25)))
def test_the_log_is_a_list_of_records(tmp_path: Path, seed: int) -> None:
    run = Run(seed, tmp_path / "model-0")
    for _ in range(STEPS):
        run.step()
        run.check()


def test_offsets_that_nobody_has_read_as_nothing(tmp_path: Path) -> None:
    """A follower's log may have a gap, in the middle or at its end, where the leader compacted records away."""
    log = open_log(tmp_path / "t-0", CONFIG)
    log.append_as_follower(memoryview(_placed([b"a"], 1, 0, 0)))
    log.append_as_follower(memoryview(_placed([b"b"], 1, 5, 0)))
    assert values_of(log, 2) == [(5, b"b")]
    log.truncate_to(4)
    assert log.log_end_offset == 4
    for offset in (1, 2, 3, 4):
        assert log.read(offset, 100, limit_offset=4, min_one_batch=True).records is None
    assert log.append_as_leader(data_batch(b"c"), 0).first_offset == 4
    assert values_of(log) == [(0, b"a"), (4, b"c")]


def test_a_read_past_the_end_or_before_the_start_is_refused(tmp_path: Path) -> None:
    log: Log = open_log(tmp_path / "t-0", CONFIG)
    log.append_as_leader(data_batch(b"a", b"b"), 0)
    log.update_high_watermark(2)
    log.increment_log_start_offset(1)
    for offset in (-1, 0, 3):
        with pytest.raises(KafkaError) as caught:
            log.read(offset, 100, limit_offset=2, min_one_batch=True)
        assert caught.value.code is ErrorCode.OFFSET_OUT_OF_RANGE
