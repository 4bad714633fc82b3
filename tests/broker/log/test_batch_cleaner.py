"""What a cleaning makes of one batch, batch by batch. ``test_compaction`` cleans whole logs."""

from __future__ import annotations

import struct
from collections.abc import Iterator, Mapping

import pytest
from log_folders import NOW_MS, marker_batch

from engine.broker.log.cleaner.batch_cleaner import BatchCleaner
from engine.broker.log.cleaner.key_map import EXACT_KEY_BYTES_MAX, KeyMap, fold, known_key
from engine.broker.log.cleaner.messages import CleaningLimits, CleaningPlan, LastOfProducer
from engine.broker.log.cleaner.stats import CleaningStats
from engine.kafka.formats.index_entries import AbortedTransaction
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.decode import iter_batch_records, iter_records, record_section
from engine.kafka.protocol.records.encode import empty_batch, encode_batch
from engine.kafka.protocol.records.header import BatchHeader, read_batch_header
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record
from engine.kafka.protocol.records.varint import read_varint

RETENTION_MS = 5000
LIMITS = CleaningLimits(1 << 20, 1 << 20, 4096, RETENTION_MS, 1 << 20, 1 << 16, float("inf"))


class Walk:
    """A cleaning of batches that a test passes one by one, with a map of keys that the test makes up."""

    def __init__(
        self,
        offsets: Mapping[bytes, int],
        latest_offset: int = 99,
        *,
        first_dirty: int = 0,
        aborted: tuple[AbortedTransaction, ...] = (),
        producers: Mapping[int, LastOfProducer] | None = None,
        first_uncleanable: int = 1000,
    ) -> None:
        self._offsets = offsets
        self._keys = keys = KeyMap(1 << 20, first_dirty)
        keys.latest_offset = latest_offset
        self.stats = CleaningStats()
        plan = CleaningPlan("", NOW_MS, first_dirty, first_uncleanable, (), aborted, producers or {}, LIMITS)
        self._cleaner = BatchCleaner(plan, keys, self.stats)

    def clean(self, batch: bytes, *, keeps_legacy_deletes: bool = False) -> bytes:
        first_place, header = self._keys.first_place, read_batch_header(batch)
        places = {offset: first_place(header.base_offset) + place for offset, place in places_in(batch, header)}
        self._keys.places.update(
            (key, places.get(offset, first_place(offset))) for key, offset in self._offsets.items()
        )
        self._keys.seal()
        return self._cleaner.clean(batch, 0, header, keeps_legacy_deletes=keeps_legacy_deletes)

    @property
    def counted(self) -> tuple[int, int]:
        return self.stats.messages_read, self.stats.messages_written


def places_in(batch: bytes, header: BatchHeader) -> Iterator[tuple[int, int]]:
    """Yield each record's offset, and its place after the first record: by bytes, by messages in the old formats."""
    section = record_section(batch, 0, header, 1 << 20) if header.magic == 2 else b""
    place = 0
    for record in iter_batch_records(batch, 0, header):
        yield record.offset, place
        length, body = read_varint(section, place) if section else (1, place)
        place = body + length


def batch_at(offset: int, *pairs: tuple[bytes | None, bytes | None], producer_id: int = -1, **options: object) -> bytes:
    records = [Record(key=key, value=value, timestamp_ms=NOW_MS + number) for number, (key, value) in enumerate(pairs)]
    return encode_batch(records, base_offset=offset, producer_id=producer_id, **options)  # type: ignore[arg-type]


def marker_at(offset: int, *, commit: bool = True, producer_id: int = 7, epoch: int = 0) -> bytes:
    batch = bytearray(marker_batch(producer_id, epoch, commit=commit))
    struct.pack_into(">q", batch, 0, offset)
    return bytes(batch)


def emptied(batch: bytes) -> bytes:
    return empty_batch(read_batch_header(batch))


class TestWhatMustStay:
    def test_a_producer_s_last_batch_stays_empty_wherever_it_is(self) -> None:
        """Without it the next sequence would look like a gap. Its last data may be at offset 0, or before a marker."""
        for last_offset in (0, 1, 8):
            batch = batch_at(last_offset, (b"k", b"v"), producer_id=7, producer_epoch=3, base_sequence=4)
            walk = Walk({b"k": 50}, producers={7: LastOfProducer(last_offset, 3)})
            assert walk.clean(batch) == emptied(batch)

    def test_an_earlier_batch_of_that_producer_goes(self) -> None:
        walk = Walk({b"k": 50}, producers={7: LastOfProducer(8, 3), 9: LastOfProducer(1, 0)})
        assert walk.clean(batch_at(1, (b"k", b"v"), producer_id=7, producer_epoch=3, base_sequence=4)) == b""
        assert walk.counted == (1, 0)

    @pytest.mark.parametrize(("epoch", "stays"), [(2, False), (3, True)])
    def test_of_a_producer_without_data_the_last_marker_stays(self, epoch: int, stays: bool) -> None:
        walk = Walk({}, producers={7: LastOfProducer(-1, 3)})
        marker = marker_at(5, epoch=epoch)
        horizon = encode_batch(
            iter_records(marker),
            base_offset=5,
            producer_id=7,
            producer_epoch=epoch,
            transactional=True,
            control=True,
            delete_horizon_ms=NOW_MS,
        )
        assert walk.clean(horizon) == (emptied(horizon) if stays else b"")

    def test_of_a_producer_without_data_no_batch_of_data_stays(self) -> None:
        walk = Walk({b"k": 50}, producers={7: LastOfProducer(-1, 3)})
        assert walk.clean(batch_at(5, (b"k", b"v"), producer_id=7, producer_epoch=3, base_sequence=0)) == b""

    def test_the_last_batch_of_the_cleaned_part_stays_empty(self) -> None:
        batch = batch_at(8, (b"k", b"v"), (b"k", b"w"))
        assert Walk({b"k": 50}, first_uncleanable=10).clean(batch) == emptied(batch)
        assert Walk({b"k": 50}, first_uncleanable=9).clean(batch) == b""


class TestTransactions:
    def test_aborted_data_goes_though_its_keys_are_the_last(self) -> None:
        aborted = AbortedTransaction(7, first_offset=1, last_offset=2, last_stable_offset=3)
        walk = Walk({b"k": 1}, aborted=(aborted,))
        batch = batch_at(1, (b"k", b"v"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        assert walk.clean(batch) == b""

    def test_a_marker_gets_a_horizon_when_its_data_is_gone_and_goes_after_it(self) -> None:
        walk = Walk({b"k": 50})
        marker = marker_at(5)
        with_horizon = walk.clean(marker)
        header = read_batch_header(with_horizon)
        assert header.delete_horizon_ms == NOW_MS + RETENTION_MS
        assert (header.base_offset, header.last_offset) == (5, 5)
        assert header.is_control
        assert header.is_transactional
        assert [(record.key, record.value) for record in iter_records(with_horizon)] == [
            (record.key, record.value) for record in iter_records(marker)
        ]
        assert walk.counted == (1, 1)
        assert Walk({}).clean(with_horizon) == with_horizon, "not yet"
        for horizon_ms, stays in ((NOW_MS + 1, True), (NOW_MS, False)):
            due = bytearray(with_horizon)
            struct.pack_into(">q", due, 27, horizon_ms)
            stamp_crc(due, 0, len(due))
            assert read_batch_header(due).delete_horizon_ms == horizon_ms
            assert Walk({}).clean(bytes(due)) == (bytes(due) if stays else b"")

    def test_a_marker_whose_data_is_still_there_stays_as_it_is(self) -> None:
        walk = Walk({b"k": 4})
        data = batch_at(4, (b"k", b"v"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
        assert walk.clean(data) == data
        assert walk.clean(marker_at(5)) == marker_at(5)
        assert walk.counted == (2, 2)

    def test_an_emptied_marker_goes(self) -> None:
        empty = encode_batch([], base_offset=5, last_offset=5, producer_id=7, transactional=True, control=True)
        assert Walk({}).clean(empty) == b""


class TestRecords:
    def test_what_is_beyond_the_map_stays_and_is_counted(self) -> None:
        walk = Walk({b"a": 9}, latest_offset=4)
        batch = batch_at(4, (b"a", b"1"), (b"a", b"2"))
        assert walk.clean(batch) == batch
        assert walk.counted == (2, 2)

    @pytest.mark.parametrize("codec", list(Codec))
    def test_the_largest_time_is_that_of_a_record_that_stays(self, codec: Codec) -> None:
        times = [NOW_MS, NOW_MS - 7, NOW_MS + 9, NOW_MS + 3]
        records = [Record(key=b"%d" % n, value=b"v" * n, timestamp_ms=time) for n, time in enumerate(times)]
        batch = encode_batch(records, codec=codec)
        kept = Walk({b"0": 0, b"1": 1, b"2": 50, b"3": 3}).clean(batch)
        header = read_batch_header(kept)
        assert (header.max_timestamp, header.record_count, header.last_offset) == (NOW_MS + 3, 3, 3)
        assert [(record.offset, record.timestamp_ms) for record in iter_records(kept)] == [
            (0, NOW_MS),
            (1, NOW_MS - 7),
            (3, NOW_MS + 3),
        ]
        alone = Walk({b"0": 50, b"1": 50, b"2": 2, b"3": 50}).clean(batch)
        assert read_batch_header(alone).max_timestamp == NOW_MS + 9

    @pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
    @pytest.mark.parametrize("step_ms", [-7, 1, 100_000])
    def test_times_count_from_the_first_record_that_stays(self, step_ms: int, codec: Codec) -> None:
        """As Kafka writes it, to the byte."""
        records = [Record(n, NOW_MS + n * step_ms, b"k%d" % n, b"v" * 60, [("h", b"1")]) for n in range(5)]
        walk = Walk({b"k%d" % n: n for n in (1, 2, 4)})
        expected = encode_batch([records[n] for n in (1, 2, 4)], base_offset=0, last_offset=4, codec=codec)
        assert walk.clean(encode_batch(records, codec=codec)) == expected

    def test_under_append_time_all_times_count_from_it(self) -> None:
        options = {"timestamp_type": TimestampType.LOG_APPEND_TIME, "log_append_time_ms": NOW_MS + 900}
        records = [Record(n, NOW_MS + n, b"k%d" % n, b"v") for n in range(3)]
        kept = [Record(n, NOW_MS + 900, b"k%d" % n, b"v") for n in (1, 2)]
        expected = encode_batch(kept, base_offset=0, last_offset=2, **options)  # type: ignore[arg-type]
        walk = Walk({b"k1": 1, b"k2": 2})
        assert walk.clean(encode_batch(records, **options)) == expected  # type: ignore[arg-type]

    def test_records_without_a_time_leave_none(self) -> None:
        """Kafka's value for none is -1; a smaller one would be refused."""
        records = [Record(key=b"a", timestamp_ms=10, value=b"v"), Record(key=b"b", timestamp_ms=-5, value=b"v")]
        header = read_batch_header(Walk({b"a": 50, b"b": 1}).clean(encode_batch(records)))
        assert header.max_timestamp == -1

    def test_under_append_time_the_batch_s_time_stays(self) -> None:
        batch = batch_at(
            0,
            (b"a", b"1"),
            (b"b", b"1"),
            (b"c", None),
            timestamp_type=TimestampType.LOG_APPEND_TIME,
            log_append_time_ms=NOW_MS + 77,
        )
        for kept in (Walk({b"a": 0, b"b": 50, b"c": 50}).clean(batch), Walk({b"a": 0, b"b": 50, b"c": 2}).clean(batch)):
            header = read_batch_header(kept)
            assert (header.max_timestamp, header.timestamp_type) == (NOW_MS + 77, TimestampType.LOG_APPEND_TIME)

    def test_a_horizon_keeps_all_that_a_batch_says_of_itself(self) -> None:
        batch = batch_at(
            3,
            (b"a", None),
            (b"b", b"1"),
            producer_id=7,
            producer_epoch=2,
            base_sequence=11,
            transactional=True,
            partition_leader_epoch=6,
            codec=Codec.GZIP,
            last_offset=8,
        )
        walk = Walk({b"a": 3, b"b": 50})
        before, after = read_batch_header(batch), read_batch_header(walk.clean(batch))
        assert same_batch(before, after)
        assert after.delete_horizon_ms == NOW_MS + RETENTION_MS
        assert after.codec is Codec.GZIP
        assert after.record_count == 1

    def test_with_a_horizon_too_the_largest_time_is_that_of_a_record_that_stays(self) -> None:
        kept = Walk({b"a": 0, b"b": 50}).clean(batch_at(0, (b"a", None), (b"b", b"1")))
        header = read_batch_header(kept)
        assert (header.delete_horizon_ms, header.max_timestamp) == (NOW_MS + RETENTION_MS, NOW_MS)

    @pytest.mark.parametrize(("horizon_ms", "stays"), [(NOW_MS + 1, True), (NOW_MS, False)])
    def test_a_tombstone_goes_at_its_horizon(self, horizon_ms: int, stays: bool) -> None:
        batch = batch_at(0, (b"a", None), (b"b", b"1"), delete_horizon_ms=horizon_ms)
        kept = Walk({b"a": 0, b"b": 1}).clean(batch)
        assert [record.key for record in iter_records(kept)] == ([b"a", b"b"] if stays else [b"b"])
        assert read_batch_header(kept).delete_horizon_ms == horizon_ms, "it never moves"

    def test_the_last_batch_of_the_map_is_cleaned(self) -> None:
        assert Walk({b"a": 50}, latest_offset=4).clean(batch_at(4, (b"a", b"1"))) == b""

    def test_a_null_key_in_the_first_dirty_batch_was_counted_before(self) -> None:
        walk = Walk({b"a": 6}, first_dirty=5)
        kept = walk.clean(batch_at(5, (None, b"x"), (b"a", b"1")))
        assert [record.offset for record in iter_records(kept)] == [6]
        assert walk.stats.invalid_messages_read == 0

    def test_a_null_key_before_the_dirty_part_is_counted(self) -> None:
        walk = Walk({b"a": 1}, first_dirty=5)
        kept = walk.clean(batch_at(0, (None, b"x"), (b"a", b"1")))
        assert [record.offset for record in iter_records(kept)] == [1]
        assert walk.stats.invalid_messages_read == 1

    @pytest.mark.parametrize("size", [EXACT_KEY_BYTES_MAX - 1, EXACT_KEY_BYTES_MAX, EXACT_KEY_BYTES_MAX + 1])
    def test_long_keys_are_known_by_their_digests(self, size: int) -> None:
        key = b"k" * size
        assert known_key(key) == (key if size <= EXACT_KEY_BYTES_MAX else fold(key))


class TestOldFormats:
    @staticmethod
    def messages(magic: int = 1, codec: Codec = Codec.NONE, **options: object) -> bytes:
        records = [
            Record(offset=4, timestamp_ms=NOW_MS + 9, key=b"a", value=b"1"),
            Record(offset=5, timestamp_ms=NOW_MS + 1, key=None, value=b"x"),
            Record(offset=6, timestamp_ms=NOW_MS + 2, key=b"b", value=None),
            Record(offset=7, timestamp_ms=NOW_MS + 3, key=b"c", value=b"1"),
        ]
        return encode_message_set(records, magic, codec=codec, **options)  # type: ignore[arg-type]

    @staticmethod
    def offsets_of(kept: bytes) -> list[int]:
        return [record.offset for record in iter_batch_records(kept, 0, read_batch_header(kept))]

    @pytest.mark.parametrize(("keeps", "offsets"), [(False, [4, 7]), (True, [4, 6, 7])])
    def test_a_wrapper_loses_null_keys_and_old_tombstones(self, keeps: bool, offsets: list[int]) -> None:
        walk = Walk({b"a": 4, b"b": 6}, first_dirty=6)
        kept = walk.clean(self.messages(codec=Codec.GZIP), keeps_legacy_deletes=keeps)
        assert self.offsets_of(kept) == offsets
        assert walk.counted == (4, len(offsets))
        assert walk.stats.invalid_messages_read == 1

    @pytest.mark.parametrize(("first_dirty", "count"), [(4, 0), (5, 0), (6, 1)])
    def test_a_null_key_counts_once_before_the_dirty_part_or_in_it(self, first_dirty: int, count: int) -> None:
        walk = Walk({}, first_dirty=first_dirty)
        walk.clean(self.messages(codec=Codec.GZIP))
        assert walk.stats.invalid_messages_read == count

    @pytest.mark.parametrize(("latest", "offsets"), [(4, [4, 5, 6, 7]), (5, [6, 7]), (6, [7]), (7, [])])
    def test_what_is_beyond_the_map_stays(self, latest: int, offsets: list[int]) -> None:
        walk = Walk({b"a": 4 if latest == 4 else 50, b"b": 50, b"c": 50}, latest_offset=latest)
        kept = walk.clean(self.messages(codec=Codec.GZIP), keeps_legacy_deletes=True)
        assert (self.offsets_of(kept) if kept else []) == offsets
        assert walk.counted == (4, len(offsets))

    def test_the_wrapper_keeps_its_kind_of_time(self) -> None:
        walk = Walk({b"a": 50})
        by_record = walk.clean(self.messages(codec=Codec.GZIP))
        assert read_batch_header(by_record).max_timestamp == NOW_MS + 3, "of those that stay"
        set_by_log = self.messages(
            codec=Codec.GZIP, timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=NOW_MS + 77
        )
        header = read_batch_header(walk.clean(set_by_log))
        assert (header.timestamp_type, header.max_timestamp) == (TimestampType.LOG_APPEND_TIME, NOW_MS + 77)

    def test_a_message_whose_key_is_not_mapped_stays_even_at_the_beginning(self) -> None:
        first = encode_message_set([Record(offset=0, timestamp_ms=NOW_MS, key=b"z", value=b"1")], 1)
        assert Walk({}).clean(first) == first


def same_batch(before: BatchHeader, after: BatchHeader) -> bool:
    """Whether two batches say the same of their offsets, producer and leader."""
    return all(
        getattr(before, name) == getattr(after, name)
        for name in (
            "base_offset",
            "last_offset",
            "partition_leader_epoch",
            "producer_id",
            "producer_epoch",
            "base_sequence",
            "is_transactional",
            "is_control",
            "timestamp_type",
        )
    )
