"""What the logs of leaders and followers accept, stamp and refuse."""

from __future__ import annotations

import dataclasses
import struct
from collections.abc import Callable
from pathlib import Path

import pytest
from log_folders import (
    NOW_MS,
    StandIn,
    as_sent,
    data_batch,
    folder_content,
    marker_batch,
    open_log,
    read_all,
    stored_batches,
    values_of,
)
from time_lookups import offset_of_max_timestamp

from engine.admin.dump.indexes import IndexOptions, dump_offset_index
from engine.admin.dump.rows import Finding
from engine.broker.log.append_origin import AppendOrigin, CommitMarker, OwnBatch
from engine.broker.log.log import Log
from engine.broker.log.log_append import OffsetsOutOfOrder, UnexpectedAppendOffset
from engine.broker.log.placed_batches import replicated, segment_runs
from engine.broker.log.producer_sequences import ProducerEntry
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import verify_crc
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches, read_batch_header
from engine.kafka.protocol.records.layout import BATCH_OVERHEAD, MAX_TIMESTAMP
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record


def refused(log: Log, records: memoryview, origin: AppendOrigin = AppendOrigin.CLIENT) -> ErrorCode:
    """Append a batch that must be refused, check that none of it stays, and return the error code."""
    before = (log.log_end_offset, log.size_bytes, log.segments[-1].path.read_bytes())
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(records, 0, origin=origin)
    assert (log.log_end_offset, log.size_bytes, log.segments[-1].path.read_bytes()) == before
    return caught.value.code


def changed(batch: memoryview, form: str, position: int, value: int, *, seal: bool = True) -> memoryview:
    """Return a batch with one header field changed. Its checksum is corrected unless told otherwise."""
    from crc32c import crc32c

    struct.pack_into(form, batch, position, value)
    if seal:
        struct.pack_into(">I", batch, 17, crc32c(batch[21:]))
    return batch


def test_offset_and_leader_epoch_are_stamped_and_the_rest_is_kept(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    batch = data_batch(b"a", b"b", b"c", codec=Codec.ZSTD)
    sent = bytes(batch)
    first = log.append_as_leader(batch, 5)
    second = log.append_as_leader(data_batch(b"d"), 6)
    assert (first.first_offset, first.last_offset, first.record_count) == (0, 2, 3)
    assert (first.log_append_time_ms, first.log_start_offset, first.size_bytes) == (-1, 0, len(sent))
    assert (second.first_offset, second.last_offset, second.leader_epoch) == (3, 3, 6)
    stored = read_all(log)
    header = read_batch_header(stored)
    assert (header.base_offset, header.partition_leader_epoch) == (0, 5)
    assert stored[16 : len(sent)] == sent[16:]
    assert verify_crc(stored, 0, header.size_bytes)
    assert log.leader_epochs.entries == ((5, 0), (6, 3))
    assert values_of(log) == [(0, b"a"), (1, b"b"), (2, b"c"), (3, b"d")]


def test_bytes_that_cannot_be_written_to_are_copied(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    batch = bytes(data_batch(b"a"))
    log.append_as_leader(data_batch(b"x"), 0)
    assert log.append_as_leader(memoryview(batch), 3).first_offset == 1
    assert read_batch_header(batch).base_offset == 0


@pytest.mark.parametrize("position", [16, 17, 21, 30, 61, 64])
def test_a_flipped_byte_is_refused(tmp_path: Path, position: int) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"before"), 0)
    batch = data_batch(b"some value")
    batch[position] ^= 0x40
    assert refused(log, batch) is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("form", "position", "value", "code"),
    [
        (">q", 0, 3, ErrorCode.INVALID_RECORD),  # base offset
        (">i", 23, 5, ErrorCode.INVALID_RECORD),  # last offset delta
        (">i", 23, -1, ErrorCode.INVALID_RECORD),
        (">i", 57, 0, ErrorCode.INVALID_RECORD),  # record count
        (">i", 57, 9, ErrorCode.INVALID_RECORD),
        (">h", 21, 0x20, ErrorCode.INVALID_RECORD),  # control
        (">h", 21, 0x07, ErrorCode.CORRUPT_MESSAGE),  # no such codec
        (">i", 8, 10, ErrorCode.CORRUPT_MESSAGE),  # length
        (">i", 8, -5, ErrorCode.CORRUPT_MESSAGE),
        (">b", 16, 3, ErrorCode.CORRUPT_MESSAGE),  # magic
        (">q", 43, 7, ErrorCode.INVALID_RECORD),  # a producer id without a sequence
    ],
)
def test_a_header_that_contradicts_itself_is_refused(
    tmp_path: Path, form: str, position: int, value: int, code: ErrorCode
) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"before"), 0)
    assert refused(log, changed(data_batch(b"a", b"b"), form, position, value)) is code


def test_a_client_sends_one_batch_at_a_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    two = memoryview(bytearray(bytes(data_batch(b"a")) + bytes(data_batch(b"b"))))
    assert refused(log, two) is ErrorCode.INVALID_RECORD
    assert log.append_as_leader(two, 0, origin=AppendOrigin.COORDINATOR).last_offset == 1


def test_nothing_and_half_a_batch_append_nothing(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for records in (b"", bytes(data_batch(b"a"))[:-1], bytes(data_batch(b"a"))[:11]):
        result = log.append_as_leader(memoryview(bytearray(records)), 0)
        assert (result.first_offset, result.record_count) == (-1, 0)
    assert log.log_end_offset == 0


def test_a_half_batch_behind_a_whole_one_is_left_away(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    records = bytes(data_batch(b"a")) + bytes(data_batch(b"b"))[:40]
    assert log.append_as_leader(memoryview(bytearray(records)), 0).last_offset == 0
    assert values_of(log) == [(0, b"a")]


def test_sizes_are_limited(tmp_path: Path) -> None:
    fits = len(data_batch(b"x" * 500))
    log = open_log(tmp_path / "t-0", LogConfig(max_message_bytes=fits))
    log.append_as_leader(data_batch(b"x" * 500), 0)
    assert refused(log, data_batch(b"x" * 501)) is ErrorCode.MESSAGE_TOO_LARGE
    small = open_log(tmp_path / "u-0", LogConfig(segment_bytes=fits))
    small.append_as_leader(data_batch(b"x" * 500), 0)
    assert refused(small, data_batch(b"x" * 501)) is ErrorCode.RECORD_LIST_TOO_LARGE


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.LZ4])
@pytest.mark.parametrize("claimed_ms", [0, 978_307_200_000, -1])
def test_a_header_with_an_impossible_timestamp_is_put_right(tmp_path: Path, claimed_ms: int, codec: Codec) -> None:
    """Kafka does the same. Retention would delete such a segment at once, and a search by time never finds -1."""
    log = open_log(tmp_path / "t-0")
    batch = data_batch(b"a", b"b", timestamp_ms=NOW_MS, codec=codec)
    log.append_as_leader(changed(batch, ">q", MAX_TIMESTAMP, claimed_ms), 0)
    stored = read_all(log)
    header = read_batch_header(stored)
    assert (header.max_timestamp, header.codec) == (NOW_MS + 1, codec)
    assert verify_crc(stored, 0, header.size_bytes)
    assert log.segments[-1].max_timestamp_ms == NOW_MS + 1


def test_records_without_timestamps_stay_without(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(memoryview(bytearray(encode_batch([Record(value=b"a", timestamp_ms=-1)]))), 0)
    assert read_batch_header(read_all(log)).max_timestamp == -1
    assert values_of(log) == [(0, b"a")]


@pytest.mark.parametrize("limit", [{}, {"message_timestamp_after_max_ms": 3_600_000}])
def test_a_limit_of_timestamps_has_every_record_looked_at(tmp_path: Path, limit: dict[str, int]) -> None:
    """Kafka always looks at them. Here a topic has to ask for it with a limit."""
    log = open_log(tmp_path / "t-0", LogConfig(**limit))
    malformed = changed(data_batch(b"a", b"b", timestamp_ms=NOW_MS), ">b", BATCH_OVERHEAD, 3)
    if limit:
        assert refused(log, malformed) is ErrorCode.INVALID_RECORD
    else:
        log.append_as_leader(malformed, 0)


def test_log_append_time_is_stamped_with_a_new_checksum(tmp_path: Path) -> None:
    environment = StandIn()
    log = open_log(tmp_path / "t-0", LogConfig(message_timestamp_type="LogAppendTime"), environment)
    for codec in (Codec.NONE, Codec.GZIP):
        environment.clock.advance(10)
        result = log.append_as_leader(data_batch(b"a", b"b", codec=codec), 0)
        assert result.log_append_time_ms == environment.clock.now_ms()
    for header, data in stored_batches(log.dir):
        assert verify_crc(data, 0, len(data))
        assert header.timestamp_type is TimestampType.LOG_APPEND_TIME
        assert {record.timestamp_ms for record in iter_records(data)} == {header.max_timestamp}
    assert offset_of_max_timestamp(log) == (2, environment.clock.now_ms(), 0)


def test_a_producers_first_batch_gets_the_log_append_time_too(tmp_path: Path) -> None:
    environment = StandIn()
    log = open_log(tmp_path / "t-0", LogConfig(message_timestamp_type="LogAppendTime"), environment)
    result = log.append_as_leader(data_batch(b"a", producer=(7, 0, 0)), 0)
    stored = log.segments[0].path.read_bytes()
    header = read_batch_header(stored, 0)
    assert header.max_timestamp == result.log_append_time_ms == environment.clock.now_ms()
    assert verify_crc(stored, 0, header.size_bytes)


def test_a_producer_must_not_say_log_append_time(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(message_timestamp_type="LogAppendTime"))
    batch = data_batch(b"a", timestamp_type=TimestampType.LOG_APPEND_TIME, log_append_time_ms=5)
    assert refused(log, batch) is ErrorCode.INVALID_TIMESTAMP


def test_timestamps_out_of_bounds_are_refused(tmp_path: Path) -> None:
    environment = StandIn()
    config = LogConfig(message_timestamp_before_max_ms=1000, message_timestamp_after_max_ms=500)
    log = open_log(tmp_path / "t-0", config, environment)
    now_ms = environment.clock.now_ms()
    for timestamp_ms in (now_ms - 1000, now_ms, now_ms + 500, -1):
        log.append_as_leader(data_batch(b"a", timestamp_ms=timestamp_ms), 0)
    for timestamp_ms in (now_ms - 1001, now_ms + 501):
        assert refused(log, data_batch(b"a", timestamp_ms=timestamp_ms)) is ErrorCode.INVALID_TIMESTAMP


def test_the_topics_codec_is_stored(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(compression_type="lz4"))
    log.append_as_leader(data_batch(b"a" * 100, b"b" * 100), 0)
    log.append_as_leader(data_batch(b"c" * 100, codec=Codec.LZ4), 0)
    log.append_as_leader(data_batch(b"d" * 100, codec=Codec.ZSTD), 0)
    assert [header.codec for header, _ in stored_batches(log.dir)] == [Codec.LZ4] * 3
    assert [offset for offset, _ in values_of(log)] == [0, 1, 2, 3]
    plain = open_log(tmp_path / "u-0", LogConfig(compression_type="uncompressed"))
    plain.append_as_leader(data_batch(b"a", codec=Codec.GZIP), 0)
    assert [header.codec for header, _ in stored_batches(plain.dir)] == [Codec.NONE]


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
def test_a_coordinators_records_get_the_topics_codec_and_time_too(tmp_path: Path, codec: Codec) -> None:
    config = LogConfig(compression_type="lz4", message_timestamp_type="LogAppendTime")
    environment = StandIn()
    for n, changes in enumerate(({}, {"message_timestamp_type": "CreateTime"}, {"compression_type": "producer"})):
        log = open_log(tmp_path / f"t-{n}", dataclasses.replace(config, **changes), environment)
        sent = data_batch(b"a" * 100, timestamp_ms=5, codec=codec)
        result = log.append_as_leader(sent, 0, origin=AppendOrigin.COORDINATOR)
        ((header, _),) = stored_batches(log.dir)
        now_ms = environment.clock.now_ms()
        is_stamped = log.config.message_timestamp_type == "LogAppendTime"
        assert header.codec == (codec if log.config.compression_type == "producer" else Codec.LZ4)
        assert (header.max_timestamp, result.log_append_time_ms) == ((now_ms, now_ms) if is_stamped else (5, -1))


def test_a_compacted_topic_needs_keys(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(cleanup_policy=("compact",)))
    log.append_as_leader(data_batch(b"a"), 0)
    assert refused(log, data_batch(b"b", key=None)) is ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_old_messages_are_stored_as_version_2(tmp_path: Path, magic: int, codec: Codec) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"first"), 0)
    records = [Record(n, 1_000 + n, b"k", b"v%d" % n) for n in range(3)]
    data = encode_message_set(records, magic=magic, codec=codec)
    result = log.append_as_leader(memoryview(bytearray(data)), 4)
    assert (result.first_offset, result.last_offset, result.record_count) == (1, 3, 3)
    assert {header.magic for _, header in iter_batches(read_all(log))} == {2}
    assert values_of(log, 1) == [(1, b"v0"), (2, b"v1"), (3, b"v2")]


def test_settings_take_effect_when_they_change(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"x" * 300), 0)
    log.update_config(LogConfig(max_message_bytes=200, compression_type="gzip", segment_bytes=1000))
    assert refused(log, data_batch(b"x" * 300)) is ErrorCode.MESSAGE_TOO_LARGE
    log.append_as_leader(data_batch(b"small"), 0)
    assert stored_batches(log.dir)[-1][0].codec is Codec.GZIP
    for _ in range(8):
        log.append_as_leader(data_batch(b"y" * 100, codec=Codec.GZIP), 0)
    log.update_config(LogConfig())
    log.append_as_leader(data_batch(b"x" * 3000), 0)
    assert len(log.segments) == 2


# --- rolls


def test_segments_roll_by_size_and_by_the_records_time(tmp_path: Path) -> None:
    size = len(data_batch(b"x" * 50))
    log = open_log(tmp_path / "t-0", LogConfig(segment_bytes=3 * size, segment_ms=1000))
    for _ in range(7):
        log.append_as_leader(data_batch(b"x" * 50, timestamp_ms=5_000), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]
    log.append_as_leader(data_batch(b"x" * 50, timestamp_ms=6_000), 0)
    assert len(log.segments) == 3
    log.append_as_leader(data_batch(b"x" * 50, timestamp_ms=6_001), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6, 8]


def test_jitter_rolls_a_segment_so_much_earlier(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(segment_ms=1000))
    log.active_segment.roll_jitter_ms = 400
    for timestamp_ms in (5_000, 5_000, 5_600):
        log.append_as_leader(data_batch(b"a", timestamp_ms=timestamp_ms), 0)
    assert len(log.segments) == 1
    log.append_as_leader(data_batch(b"a", timestamp_ms=5_601), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 3]


def test_without_timestamps_segments_roll_by_the_clock(tmp_path: Path) -> None:
    environment = StandIn()
    log = open_log(tmp_path / "t-0", LogConfig(segment_ms=1000), environment)
    log.append_as_leader(data_batch(b"a", timestamp_ms=-1), 0)
    environment.clock.advance(1000)
    log.append_as_leader(data_batch(b"b", timestamp_ms=-1), 0)
    assert len(log.segments) == 1
    environment.clock.advance(1)
    log.append_as_leader(data_batch(b"c", timestamp_ms=-1), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 2]


def test_a_full_index_rolls_the_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(segment_index_bytes=36, index_interval_bytes=0))
    for n in range(8):
        log.append_as_leader(data_batch(b"a", timestamp_ms=1000 + n), 0)
    # 36 bytes hold 4 offset entries, or 3 time entries, one of which is reserved for the roll.
    assert [segment.base_offset for segment in log.segments] == [0, 3, 6]


def test_an_offset_too_far_from_the_base_rolls_the_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_follower(memoryview(placed(data_batch(b"a"), 5, 0)))
    log.append_as_follower(memoryview(placed(data_batch(b"b"), 2**31 - 1, 0)))
    log.append_as_follower(memoryview(placed(data_batch(b"c"), 2**31 + 5, 0)))
    assert [segment.base_offset for segment in log.segments] == [0, 2**31 + 5]
    assert [offset for offset, _ in values_of(log)] == [5, 2**31 - 1, 2**31 + 5]


def test_preallocated_files_are_cut_when_they_are_done(tmp_path: Path) -> None:
    config = LogConfig(preallocate=True, segment_bytes=1000, segment_index_bytes=240)
    log = open_log(tmp_path / "t-0", config)
    first = log.segments[0].path
    log.append_as_leader(data_batch(b"x" * 500), 0)
    assert first.stat().st_size == 1000
    log.append_as_leader(data_batch(b"x" * 500), 0)
    assert first.stat().st_size == log.segments[0].size_bytes
    assert first.with_suffix(".index").stat().st_size == 0
    assert log.segments[1].path.with_suffix(".index").stat().st_size == 240
    log.close()
    assert log.segments[1].path.stat().st_size == log.segments[1].size_bytes
    assert values_of(open_log(tmp_path / "t-0", config)) == [(0, b"x" * 500), (1, b"x" * 500)]


def test_a_preallocated_file_is_cut_when_it_is_done_though_idle_until_then(tmp_path: Path) -> None:
    """Zeroes behind the last batch stop every consumer at the segment's end, and Apache Kafka's start."""
    config = LogConfig(preallocate=True, segment_bytes=1000, segment_index_bytes=240)
    log = open_log(tmp_path / "t-0", config)
    for _ in range(2):
        log.append_as_leader(data_batch(b"x" * 500), 0)
        log.release_idle_files()
        log.release_idle_files()
    first, second = log.segments
    assert first.path.stat().st_size == first.size_bytes
    log.close()
    assert second.path.stat().st_size == second.size_bytes


@pytest.mark.parametrize(("entries", "step_ms"), [(4, 0), (2, 1)], ids=["offset index", "time index"])
def test_a_full_index_is_full_after_the_next_start_too(tmp_path: Path, entries: int, step_ms: int) -> None:
    """Apache Kafka does not start where the active segment's index has more entries than it may have."""
    config = LogConfig(segment_index_bytes=36, index_interval_bytes=0)
    log = open_log(tmp_path / "t-0", config)
    for n in range(entries + 1):
        log.append_as_leader(data_batch(b"x", timestamp_ms=5 + n * step_ms), 0)
    log.close()
    log = open_log(tmp_path / "t-0", config)
    log.append_as_leader(data_batch(b"x", timestamp_ms=5 + entries * step_ms), 0)
    assert [segment.base_offset for segment in log.segments] == [0, entries + 1]
    assert log.segments[0].path.with_suffix(".index").stat().st_size == 8 * entries


def test_another_index_interval_concerns_the_next_segment(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.update_config(LogConfig(index_interval_bytes=0))
    for _ in range(2):
        for _ in range(3):
            log.append_as_leader(data_batch(b"x"), 0)
        log.roll()
    assert [segment.offset_index.count for segment in log.segments] == [0, 2, 0]


def test_an_index_that_is_full_after_a_cut_ends_its_segment(tmp_path: Path) -> None:
    """The last slot of a time index is the roll's. A cut may make the segment active again, and leave that entry."""
    config = LogConfig(segment_index_bytes=24)
    log = open_log(tmp_path / "t-0", config)
    for timestamp_ms in (9, 1):
        log.append_as_leader(data_batch(b"x", timestamp_ms=timestamp_ms), 0)
    log.roll()
    log.truncate_to(1)
    log.append_as_leader(data_batch(b"x", timestamp_ms=9), 0)
    assert [segment.base_offset for segment in log.segments] == [0, 1]


# --- followers


def placed(batch: memoryview, base_offset: int, leader_epoch: int) -> bytes:
    struct.pack_into(">q", batch, 0, base_offset)
    struct.pack_into(">i", batch, 12, leader_epoch)
    return bytes(batch)


def test_a_follower_keeps_what_the_leader_stamped(tmp_path: Path) -> None:
    leader, follower = open_log(tmp_path / "t-0"), open_log(tmp_path / "u-0")
    for leader_epoch in (3, 3, 4, 7):
        leader.append_as_leader(data_batch(b"a", b"b"), leader_epoch)
    whole = leader.segments[0].path.read_bytes()
    result = follower.append_as_follower(memoryview(whole + whole[:50]))
    assert (result.first_offset, result.last_offset, result.record_count) == (0, 7, 8)
    assert follower.segments[0].path.read_bytes() == whole
    assert follower.leader_epochs.entries == leader.leader_epochs.entries == ((3, 0), (4, 4), (7, 6))


def test_a_fetch_is_split_where_a_segment_would_be_full(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "t-0")
    for _ in range(6):
        leader.append_as_leader(data_batch(b"a"), 0)
    whole = memoryview(leader.segments[0].path.read_bytes())
    headers = list(iter_batches(whole))[1:]
    size = headers[0][1].size_bytes
    assert [len(run) for run in segment_runs(headers, 2 * size)] == [2, 2, 1]
    assert [len(run) for run in segment_runs(headers[:3], 2 * size)] == [2, 1]
    assert [len(run) for run in segment_runs(headers[:2], 2 * size - 1)] == [1, 1]
    placed = replicated(whole, segment_runs(headers, 2 * size)[1])
    assert placed.records == whole[3 * size : 5 * size]
    assert [position for position, _ in placed.headers] == [0, size]
    assert (placed.first_offset, placed.last_offset) == (3, 4)


def test_a_followers_segment_takes_what_just_fits(tmp_path: Path) -> None:
    leader = open_log(tmp_path / "t-0")
    for _ in range(7):
        leader.append_as_leader(data_batch(b"a"), 0)
    whole = leader.segments[0].path.read_bytes()
    size = len(whole) // 7
    follower = open_log(tmp_path / "u-0", LogConfig(segment_bytes=3 * size))
    for position in range(0, len(whole), size):
        follower.append_as_follower(memoryview(whole)[position : position + size])
    assert [segment.base_offset for segment in follower.segments] == [0, 3, 6]


def test_a_followers_indexes_know_each_batch_as_if_it_had_come_alone(tmp_path: Path) -> None:
    """A leader sends many batches at once. Kafka's dump tool looks for a batch that ends with an entry's offset."""
    config = LogConfig(index_interval_bytes=400)
    one_by_one, at_once = open_log(tmp_path / "t-0", config), open_log(tmp_path / "u-0", config)
    # Timestamps rise and fall: a time index holds only those that rise.
    batches = [placed(data_batch(b"x" * 70, timestamp_ms=1000 + n * 7 % 40), n, 0) for n in range(60)]
    for batch in batches:
        one_by_one.append_as_follower(memoryview(batch))
    for start in range(0, 60, 20):
        at_once.append_as_follower(memoryview(b"".join(batches[start : start + 20])))
    for log in (one_by_one, at_once):
        log.close()
    kept = [".log", ".index", ".timeindex"]
    assert folder_content(tmp_path / "u-0", *kept) == folder_content(tmp_path / "t-0", *kept)
    index = tmp_path / "u-0" / "00000000000000000000.index"
    assert index.stat().st_size > 80, "there are entries to look at"
    assert not [row for row in dump_offset_index(index, IndexOptions()) if isinstance(row, Finding)]


def test_an_index_that_is_full_takes_no_more_of_a_fetch(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(index_interval_bytes=0, segment_index_bytes=32))
    batches = b"".join(placed(data_batch(b"x"), n, 0) for n in range(10))
    log.append_as_follower(memoryview(batches))
    assert read_all(log) == batches
    first = log.segments[0].path
    log.append_as_follower(memoryview(placed(data_batch(b"x"), 10, 0)))
    assert len(log.segments) == 2
    log.close()
    assert first.with_suffix(".timeindex").stat().st_size <= 32
    assert first.with_suffix(".index").stat().st_size <= 32


def test_a_follower_refuses_what_does_not_follow(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_follower(memoryview(placed(data_batch(b"a"), 0, 0) + placed(data_batch(b"b"), 1, 0)))
    with pytest.raises(UnexpectedAppendOffset) as caught:
        log.append_as_follower(memoryview(placed(data_batch(b"x", b"y"), 1, 0)))
    assert (caught.value.first_offset, caught.value.last_offset) == (1, 2)
    with pytest.raises(OffsetsOutOfOrder):
        log.append_as_follower(memoryview(placed(data_batch(b"c"), 3, 0) + placed(data_batch(b"d"), 2, 0)))
    broken = bytearray(placed(data_batch(b"c"), 2, 0))
    broken[-1] ^= 1
    with pytest.raises(KafkaError) as corrupt:
        log.append_as_follower(memoryview(broken))
    assert corrupt.value.code is ErrorCode.CORRUPT_MESSAGE
    assert values_of(log) == [(0, b"a"), (1, b"b")]


def test_a_follower_takes_batches_larger_than_its_own_limits(tmp_path: Path) -> None:
    """The leader has accepted them, perhaps under other settings."""
    log = open_log(tmp_path / "t-0", LogConfig(max_message_bytes=100, segment_bytes=400))
    records = b"".join(placed(data_batch(b"x" * 150), n, 0) for n in range(5)) + placed(data_batch(b"y" * 600), 5, 0)
    log.append_as_follower(memoryview(records))
    assert read_all(log) == records
    assert len(log.segments) == 6


def test_old_messages_clear_a_followers_epochs(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_follower(memoryview(placed(data_batch(b"a"), 0, 3)))
    log.append_as_follower(memoryview(encode_message_set([Record(1, 5, b"k", b"v")], magic=1)))
    assert log.leader_epochs.entries == ()
    assert values_of(log) == [(0, b"a"), (1, b"v")]


def test_a_coordinator_may_write_control_records(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(compression_type="gzip"))
    assert refused(log, marker_batch(1, 0, commit=True)) is ErrorCode.INVALID_RECORD
    result = log.append_as_leader(marker_batch(1, 0, commit=True), 0, origin=AppendOrigin.COORDINATOR)
    assert result.first_offset == 0
    assert stored_batches(log.dir)[0][0].is_control


def test_a_batch_that_was_stored_can_be_sent_again(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"a"), 9)
    assert log.append_as_leader(as_sent(read_all(log)), 9).first_offset == 1


MADE_MS = 2_000
"""When a coordinator made the batches below."""


def committing(epoch: int = 0, coordinator_epoch: int = 3, producer_id: int = 1) -> tuple[memoryview, OwnBatch]:
    """Return the marker of a commit, and what its coordinator knows of it."""
    marker = CommitMarker(producer_id, epoch, coordinator_epoch)
    batch = marker_batch(producer_id, epoch, commit=True, coordinator_epoch=coordinator_epoch, timestamp_ms=MADE_MS)
    return batch, OwnBatch(1, MADE_MS, commit=marker)


def stating(count: int = 1, codec: Codec = Codec.NONE, size: int = 10) -> tuple[memoryview, OwnBatch]:
    """Return records of an internal topic, all with the same time, and what their coordinator knows of them."""
    records = [Record(key=b"k", value=b"v" * size, timestamp_ms=MADE_MS)] * count
    return memoryview(bytearray(encode_batch(records, codec=codec))), OwnBatch(count, MADE_MS, codec)


def with_open_transaction(folder: Path, config: LogConfig, environment: StandIn) -> Log:
    """Return a log in which producer 1 has an open transaction at offset 1, and producer 2 one that is over."""
    log = open_log(folder, config, environment)
    log.append_as_leader(data_batch(b"a", producer=(2, 0, 0), transactional=True), 4)
    log.append_as_leader(data_batch(b"b", producer=(1, 0, 0), transactional=True), 4)
    log.append_as_leader(marker_batch(2, 0, commit=True, coordinator_epoch=3), 4, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    log.producers.begin_verification(2, 1, 0, NOW_MS)
    return log


def known_of(log: Log) -> tuple[object, ...]:
    """Return what a log knows, as values."""
    entries = [
        [getattr(entry, name) for name in ProducerEntry.__slots__ if name != "is_frozen"]
        for entry in log.producers.producers.values()
    ]
    return (
        entries,
        set(log.producers.verifications),
        (log.log_end_offset, log.high_watermark, log.first_unstable_offset, log.producers.map_end_offset),
        (log.producers.first_unstable_offset, log.producers.unreplicated),
        log.leader_epochs.entries,
        [(s.base_offset, s.size_bytes, s.max_timestamp_ms, s.max_timestamp_offset) for s in log.segments],
        folder_content(log.dir, ".log", "leader-epoch-checkpoint"),
    )


def freeze(log: Log) -> None:
    log.producers.take_snapshot(is_written_later=True)


def cut(log: Log) -> None:
    """Cut the last marker off, and leave the producer state to be built."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("engine.broker.log.log.REPLAY_BYTES_MAX", -1)
        log.truncate_to(2)
    assert log.has_stale_producers


def go_offline(log: Log) -> None:
    log.folder.is_offline = True


@pytest.mark.parametrize("before", [lambda _: None, freeze, cut, go_offline], ids=["", "frozen", "cut", "offline"])
@pytest.mark.parametrize(
    "config",
    [
        LogConfig(),
        LogConfig(message_timestamp_type="LogAppendTime"),
        LogConfig(compression_type="gzip"),
        LogConfig(cleanup_policy=("compact",)),
        LogConfig(max_message_bytes=100),
        LogConfig(segment_bytes=350),
    ],
    ids=["usual", "append time", "gzip", "compacted", "small batches", "full segment"],
)
@pytest.mark.parametrize(
    "made",
    [
        stating(),
        stating(3),
        stating(codec=Codec.LZ4),
        stating(size=100),
        committing(),
        committing(producer_id=2),
        committing(producer_id=9),
        committing(epoch=1),
        committing(epoch=-1),
        committing(coordinator_epoch=4),
        committing(coordinator_epoch=2),
    ],
    ids=[
        *("state", "states", "packed states", "long state", "commit", "commit of nothing", "commit of nobody"),
        *("later epoch", "earlier epoch", "later coordinator", "earlier coordinator"),
    ],
)
def test_what_a_coordinator_has_made_is_stored_without_a_look_as_with_one(
    tmp_path: Path, made: tuple[memoryview, OwnBatch], config: LogConfig, before: Callable[[Log], None]
) -> None:
    outcomes = []
    for folder in ("looked-0", "taken-0"):
        log = with_open_transaction(tmp_path / folder, config, StandIn())
        before(log)
        batch, own = memoryview(bytearray(made[0])), made[1]
        stored: object
        try:
            if folder == "taken-0":
                stored = log.append_own(batch, own, 5)
            else:
                stored = log.append_as_leader(batch, 5, origin=AppendOrigin.COORDINATOR).first_offset
        except KafkaError as error:
            stored = (error.code, str(error).replace("taken-0", "looked-0"))
        snapshots = [snapshot.entries() for snapshot in log.producers.snapshots.pending]
        outcomes.append((stored, known_of(log), snapshots))
    assert outcomes[0] == outcomes[1]
