"""What a cleaning keeps of a log, by Kafka's rules: values, tombstones, transactions, producers, formats, indexes."""

from __future__ import annotations

import os
import struct
from dataclasses import replace
from pathlib import Path

import pytest
from cleaning import (
    CONFIG,
    DAY_MS,
    changed,
    clean_all,
    clean_once,
    close_segment,
    headers_of,
    last_of_each,
    new_log,
    pairs_of,
    prepare,
    put,
    records_of,
    work,
)
from log_folders import NOW_MS, StandIn, data_batch, open_log, read_all, recorded_copy, values_of
from time_lookups import offset_for_timestamp

from engine.broker.log.cleaner.cleaning import GROUP_SEGMENTS_MAX
from engine.broker.log.cleaner.job import CleanerSettings
from engine.broker.log.cleaner.key_map import EXACT_KEY_BYTES_MAX
from engine.broker.log.cleaner.messages import GroupCleaned
from engine.broker.log.log import Log
from engine.common.errors import CorruptFileError, KafkaError
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.compression import DECOMPRESSED_BYTES_MAX
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record


def test_the_last_value_of_each_key_stays_where_it_was(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", b"1"), (b"b", b"1"), (b"a", b"2"))
    put(log, (b"c", b"1"))
    put(log, (b"b", b"2"), (b"c", b"2"), (b"d", b"1"))
    close_segment(log)
    finished = clean_once(log)
    assert pairs_of(log) == [(2, b"a", b"2"), (4, b"b", b"2"), (5, b"c", b"2"), (6, b"d", b"1")]
    assert headers_of(log) == [(0, 2, 1), (4, 6, 3)]
    assert (finished.end_offset, log.cleaning.first_dirty_offset) == (7, 7)
    assert (finished.stats.messages_read, finished.stats.messages_written) == (7, 4)
    assert log.log_end_offset == 7
    assert values_of(log, 3) == [(4, b"2"), (5, b"2"), (6, b"1")]


def test_a_batch_that_stays_whole_is_copied_to_the_byte(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", b"1"), (b"b", b"1"), codec=Codec.ZSTD, level=1)
    close_segment(log)
    before = read_all(log)
    clean_once(log)
    assert read_all(log) == before


@pytest.mark.parametrize("codec", list(Codec))
def test_a_batch_keeps_its_codec_and_its_records_theirs(tmp_path: Path, codec: Codec) -> None:
    log = new_log(tmp_path)
    headers = [("trace", b"\x00\xff"), ("empty", None)]
    records = [
        Record(key=b"a", value=b"old", timestamp_ms=NOW_MS + 9),
        Record(key=b"b", value=b"x" * 200, timestamp_ms=NOW_MS - 5, headers=headers),
        Record(key=b"c", value=b"", timestamp_ms=NOW_MS + 3),
    ]
    batch = encode_batch(records, codec=codec, producer_id=7, producer_epoch=1, base_sequence=0)
    log.append_as_leader(memoryview(bytearray(batch)), 3)
    put(log, (b"a", b"new"))
    close_segment(log)
    clean_once(log)
    header = next(iter_batches(read_all(log)))[1]
    assert (header.codec, header.record_count, header.base_offset, header.last_offset) == (codec, 2, 0, 2)
    assert (header.producer_id, header.base_sequence, header.partition_leader_epoch) == (7, 0, 3)
    assert header.max_timestamp == NOW_MS + 3
    kept = records_of(log)[:2]
    assert [(record.offset, record.timestamp_ms, record.value) for record in kept] == [
        (1, NOW_MS - 5, b"x" * 200),
        (2, NOW_MS + 3, b""),
    ]
    assert list(kept[0].headers) == headers


def test_append_times_stay(tmp_path: Path) -> None:
    log = new_log(tmp_path, changed(message_timestamp_type="LogAppendTime"))
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", b"2"), (b"c", None))
    close_segment(log)
    before = {record.offset: record.timestamp_ms for record in records_of(log)}
    clean_once(log)
    header = next(iter_batches(read_all(log)))[1]
    assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
    assert all(before[record.offset] == record.timestamp_ms for record in records_of(log))


@pytest.mark.parametrize("size", [1, EXACT_KEY_BYTES_MAX, EXACT_KEY_BYTES_MAX + 1, 127, 128, 9000])
def test_long_keys_are_told_apart(tmp_path: Path, size: int) -> None:
    log = new_log(tmp_path, changed(segment_bytes=100_000))
    key, other = b"a" * size, b"a" * (size - 1) + b"b"
    put(log, (key, b"1"), (other, b"1"))
    put(log, (key, b"2"))
    close_segment(log)
    clean_once(log)
    assert pairs_of(log) == [(1, other, b"1"), (2, key, b"2")]
    put(log, (other, b"3"))
    close_segment(log)
    clean_once(log)
    assert pairs_of(log) == [(2, key, b"2"), (3, other, b"3")]


def test_records_without_key_go_and_are_counted(tmp_path: Path) -> None:
    """A topic that was not compacted before may hold them."""
    large = changed(segment_bytes=2_000_000)
    log = new_log(tmp_path, replace(large, cleanup_policy=("delete",)))
    put(log, (None, b"1"), (b"a", b"1"))
    put(log, (None, b"2"))
    close_segment(log)
    log.update_config(CONFIG)
    assert clean_once(log).stats.invalid_messages_read == 2
    assert pairs_of(log) == [(1, b"a", b"1")]


# --- tombstones


def test_a_tombstone_stays_until_its_horizon(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None), (b"c", b"1"))
    put(log, (b"end", b"1"))
    close_segment(log)
    clean_once(log)
    assert pairs_of(log) == [(1, b"b", b"1"), (2, b"a", None), (3, b"c", b"1"), (4, b"end", b"1")]
    horizons = [batch.delete_horizon_ms for _, batch in iter_batches(read_all(log))]
    assert horizons == [None, NOW_MS + DAY_MS, None]
    assert [record.timestamp_ms for record in records_of(log)][1:3] == [NOW_MS, NOW_MS + 1]
    for now_ms, kept in ((NOW_MS + DAY_MS - 1, True), (NOW_MS + DAY_MS, False)):
        put(log, (b"more", b"1"))
        close_segment(log)
        clean_once(log, now_ms=now_ms)
        assert ((2, b"a", None) in pairs_of(log)) is kept
    assert (3, b"c", b"1") in pairs_of(log)


def test_a_tombstone_that_is_replaced_goes_at_once(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", None))
    put(log, (b"a", b"again"))
    close_segment(log)
    clean_once(log)
    assert pairs_of(log) == [(1, b"a", b"again")]


@pytest.mark.parametrize(("age_days", "stays"), [(0.5, True), (2, False)])
def test_tombstones_of_old_formats_go_by_the_age_of_their_segment(tmp_path: Path, age_days: float, stays: bool) -> None:
    """They have no delete horizon of their own: they go when they are much older than the newest clean segment."""
    log = new_log(tmp_path)
    for offset, pair in enumerate([(b"a", b"1"), (b"a", None), (b"b", b"x" * 900), (b"c", b"x" * 900)]):
        log.append_as_follower(legacy(offset, pair))
        log.roll()
    log.update_high_watermark(log.log_end_offset)
    clean_once(log)
    assert [offset for offset, _, _ in pairs_of(log)] == [1, 2, 3]
    age_s(log, 0, age_days)
    age_s(log, -2, 0)
    log.append_as_follower(legacy(4, (b"d", b"1")))
    close_segment(log)
    clean_once(log)
    assert ((1, b"a", None) in pairs_of(log)) is stays


def age_s(log: Log, index: int, days: float) -> None:
    written_s = int(NOW_MS / 1000 - days * 86_400)
    os.utime(log.segments[index].path, (written_s, written_s))


def legacy(
    offset: int, *pairs: tuple[bytes | None, bytes | None], magic: int = 1, codec: Codec = Codec.NONE
) -> memoryview:
    records = [Record(offset + n, NOW_MS + n, key, value) for n, (key, value) in enumerate(pairs)]
    return memoryview(bytearray(encode_message_set(records, magic, codec=codec)))


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.LZ4])
def test_old_formats_are_cleaned_as_they_are(tmp_path: Path, magic: int, codec: Codec) -> None:
    log = new_log(tmp_path)
    log.append_as_follower(legacy(0, (b"a", b"1"), (b"b", b"1"), (None, b"x"), magic=magic, codec=codec))
    log.append_as_follower(legacy(3, (b"a", b"2"), (b"c", b"1"), magic=magic, codec=codec))
    close_segment(log)
    clean_once(log)
    assert pairs_of(log) == [(1, b"b", b"1"), (3, b"a", b"2"), (4, b"c", b"1")]
    assert {batch.magic for _, batch in iter_batches(read_all(log))} == {magic}
    put(log, (b"b", b"of version 2"))
    close_segment(log)
    clean_once(log)
    assert pairs_of(log) == [(3, b"a", b"2"), (4, b"c", b"1"), (5, b"b", b"of version 2")]


# --- segments


def test_small_segments_become_one(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(GROUP_SEGMENTS_MAX + 10):
        put(log, (b"k%d" % number, b"1"))
        log.roll()
    close_segment(log)
    bases: list[tuple[int, ...]] = []
    work(prepare(log), lambda report: bases.append(report.base_offsets) if isinstance(report, GroupCleaned) else None)
    assert sum(map(len, bases)) == GROUP_SEGMENTS_MAX + 10
    sizes = [len(group) for group in bases]
    assert max(sizes) <= GROUP_SEGMENTS_MAX
    assert len(log.segments) == len(bases) + 1
    assert all(segment.size_bytes <= CONFIG.segment_bytes for segment in log.segments)
    assert [offset for offset, _, _ in pairs_of(log)] == list(range(GROUP_SEGMENTS_MAX + 10))
    snapshots = set(log.producers.snapshots.offsets)
    assert snapshots <= {segment.base_offset for segment in log.segments} | {log.log_end_offset}


def test_indexes_are_made_anew(tmp_path: Path) -> None:
    log = new_log(tmp_path)
    for number in range(200):
        put(log, (b"k%d" % (number % 90), b"%d" % number))
    close_segment(log)
    clean_once(log)
    for segment in log.segments[:-1]:
        for _, header in segment.iter_batches():
            position = segment.find(header.last_offset)
            assert segment.offset_index.lookup(header.last_offset).position <= position
        assert (segment.load_max_timestamp().timestamp_ms >= NOW_MS) is (segment.size_bytes > 0)
        assert segment.offset_index.size_bytes == (log.dir / f"{segment.base_offset:020d}.index").stat().st_size
    assert any(segment.offset_index.size_bytes for segment in log.segments[:-1])
    offset_found = offset_for_timestamp(log, NOW_MS)
    assert offset_found is not None
    for offset, _, value in pairs_of(log):
        assert values_of(log, offset)[0] == (offset, value)


def test_files_keep_their_age_and_old_ones_go_later(tmp_path: Path) -> None:
    environment = StandIn()
    log = open_log(tmp_path / "t-0", CONFIG, environment)
    put(log, (b"a", b"1"), (b"a", b"2"))
    close_segment(log)
    os.utime(log.segments[0].path, (1_000_000, 1_000_000))
    reading = log.read(0, 1000, limit_offset=2, min_one_batch=True).records
    assert reading is not None
    bytes_before = reading.read()
    clean_once(log)
    assert log.segments[0].last_modified_ms() == 1_000_000_000
    (log_dir, paths, delay_ms) = environment.deletions[-1]
    assert (log_dir, delay_ms) == (log.log_dir, CONFIG.file_delete_delay_ms)
    assert any(path.name.endswith(".log.deleted") and path.exists() for path in paths)
    environment.delete_now()
    assert reading.read() == bytes_before
    assert not list(log.dir.glob("*.deleted"))


# --- rounds, memory, damage


def test_more_keys_than_the_map_holds_take_more_rounds(tmp_path: Path) -> None:
    log = new_log(tmp_path, changed(segment_bytes=50_000, segment_index_bytes=100_000))
    for number in range(300):
        put(log, *((b"key-%05d" % (n * 70 + number), b"%d" % number) for n in range(100)))
    close_segment(log)
    expected = last_of_each(pairs_of(log))
    rounds = clean_all(log, CleanerSettings(dedupe_buffer_size=400_000))
    assert rounds > 1
    assert last_of_each(pairs_of(log)) == expected
    assert len(pairs_of(log)) == len(expected)


def test_a_batch_larger_than_the_buffer(tmp_path: Path) -> None:
    log = new_log(tmp_path, changed(segment_bytes=1_000_000))
    put(log, (b"a", b"x" * 50_000), (b"b", b"y" * 60_000))
    put(log, (b"a", b"z" * 70_000))
    close_segment(log)
    clean_once(log, CleanerSettings(io_buffer_size=1))
    assert [(offset, len(value or b"")) for offset, _, value in pairs_of(log)] == [(1, 60_000), (2, 70_000)]


@pytest.mark.parametrize("at", ["checksum", "length", "magic"])
def test_damage_is_found_and_nothing_is_changed(tmp_path: Path, at: str) -> None:
    log = new_log(tmp_path)
    put(log, (b"a", b"1"))
    put(log, (b"a", b"2"))
    close_segment(log)
    path = log.segments[0].path
    data = bytearray(path.read_bytes())
    second = next(position for position, header in iter_batches(bytes(data)) if header.base_offset == 1)
    if at == "checksum":
        data[-1] ^= 1
    elif at == "length":
        struct.pack_into(">i", data, second + 8, 1_000_000)
    else:
        data[second + 16] = 9
    path.write_bytes(data)
    with pytest.raises(CorruptFileError, match=f"{path.name} is damaged at position {second}"):
        clean_once(log)
    assert path.read_bytes() == data
    assert log.cleaning.first_dirty_offset is None
    assert not log.cleaning.is_in_progress


def test_records_that_are_none_behind_a_right_checksum(tmp_path: Path) -> None:
    """An append does not look into a producer's records, so the cleaner must neither stumble nor guess."""
    log = new_log(tmp_path)
    batch = data_batch(b"1", b"2", key=b"a")
    for rubbish in (b"\xff" * 5, b"\x00" * 5, bytes(range(5))):
        damaged = bytearray(batch)
        damaged[61:66] = rubbish
        stamp_crc(damaged, 0, len(damaged))
        log.append_as_follower(placed(damaged, log.log_end_offset))
    close_segment(log)
    with pytest.raises(KafkaError):
        clean_once(log)


def placed(batch: bytearray, offset: int) -> memoryview:
    struct.pack_into(">q", batch, 0, offset)
    return memoryview(batch)


# --- logs that Apache Kafka wrote


@pytest.mark.parametrize("which", ["running", "clean", "formats-v0-v1-v2", "formats-mixed"])
def test_logs_that_kafka_wrote(tmp_path: Path, which: str) -> None:
    """All formats, codecs, transactions, internal topics, and the output of Kafka's own cleaner.

    The last of each key stays.
    """
    config = changed(segment_bytes=100_000)
    folders = [path for path in recorded_copy(which, tmp_path / "data").iterdir() if path.is_dir()]
    cleaned = 0
    for folder in folders:
        if folder.name.endswith("-delete"):
            continue
        log = open_log(folder, config)
        close_segment(log)
        expected = sorted({key: (offset, key, value) for offset, key, value in committed(log)}.values())
        clean_once(log)
        assert committed(log) == expected, folder.name
        cleaned += bool(expected)
    assert cleaned >= 6


def committed(log: Log) -> list[tuple[int, bytes, bytes | None]]:
    """Return offset, key and value of all records with a key that a read_committed consumer sees."""
    aborted = log.collect_aborted_transactions(0, log.log_end_offset)
    hidden: set[int] = set()
    for _, batch in iter_batches(read_all(log)):
        is_aborted = batch.is_transactional and any(
            each.producer_id == batch.producer_id and each.first_offset <= batch.base_offset <= each.last_offset
            for each in aborted
        )
        if batch.is_control or is_aborted:
            hidden.update(range(batch.base_offset, batch.next_offset))
    return [(offset, key, value) for offset, key, value in pairs_of(log) if key is not None and offset not in hidden]


@pytest.mark.parametrize("codec", [Codec.ZSTD, Codec.GZIP])
def test_a_batch_that_unpacks_to_very_much_is_cleaned(tmp_path: Path, codec: Codec) -> None:
    """The batch was written before the topic was compacted.

    Kafka's cleaner has no limit, and nothing else cleans the log again.
    """
    large = changed(segment_bytes=2_000_000)
    log = new_log(tmp_path, replace(large, cleanup_policy=("delete",)))
    value = bytes(DECOMPRESSED_BYTES_MAX + 1)
    put(log, (b"a", value), (b"b", b"1"), codec=codec, level=1)
    put(log, (b"a", b"2"))
    log.update_config(large)
    close_segment(log)
    clean_once(log)
    assert pairs_of(log) == [(1, b"b", b"1"), (2, b"a", b"2")]
