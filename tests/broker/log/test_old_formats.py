"""Logs in message format 0 or 1, for brokers before 0.11 that must read them."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from log_folders import StandIn, data_batch, folder_content, marker_batch, open_log, values_of

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.log import Log
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record

V0, V1, V2 = "0.9.0", "0.10.2", "0.11.0"
MAGIC = {V0: 0, V1: 1, V2: 2}


def config(version: str, **settings: object) -> LogConfig:
    return LogConfig(message_format_version=version, segment_bytes=600, **settings)  # type: ignore[arg-type]


def stored(log: Log) -> bytes:
    return b"".join(data for _, data in sorted(folder_content(log.dir, ".log").items()))


def sent(*values: bytes, codec: Codec = Codec.NONE) -> memoryview:
    return data_batch(*values, timestamp_ms=5_000, codec=codec)


@pytest.mark.parametrize("version", [V0, V1])
@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
def test_what_is_sent_in_format_2_is_stored_in_the_old_one(tmp_path: Path, version: str, codec: Codec) -> None:
    log = open_log(tmp_path / "t-0", config(version))
    for n in range(6):
        result = log.append_as_leader(sent(b"%d a" % n, b"%d b" % n, codec=codec), 7)
        assert (result.first_offset, result.last_offset, result.record_count) == (2 * n, 2 * n + 1, 2)
    data = stored(log)
    assert {header.magic for _, header in iter_batches(data)} == {MAGIC[version]}
    assert {header.codec for _, header in iter_batches(data)} == {codec}
    records = list(iter_records(data))
    assert [(r.offset, r.value) for r in records] == [(n, b"%d %s" % (n // 2, b"ab"[n % 2 :][:1])) for n in range(12)]
    assert {r.timestamp_ms for r in records} == ({-1} if version == V0 else {5_000, 5_001})


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("version", [V0, V1, V2])
def test_what_old_producers_send_is_stored_in_the_topics_format(tmp_path: Path, magic: int, version: str) -> None:
    log = open_log(tmp_path / "t-0", config(version))
    records = [Record(offset=n, key=None, value=b"%d" % n, timestamp_ms=9) for n in range(3)]
    assert log.append_as_leader(memoryview(bytearray(encode_message_set(records, magic))), 0).last_offset == 2
    assert {header.magic for _, header in iter_batches(stored(log))} == {MAGIC[version]}
    assert [(r.offset, r.value) for r in iter_records(stored(log))] == [(0, b"0"), (1, b"1"), (2, b"2")]


@pytest.mark.parametrize(
    ("settings", "codec"), [({}, Codec.ZSTD), ({"compression_type": "zstd"}, Codec.NONE)], ids=["sent", "configured"]
)
@pytest.mark.parametrize("origin", [AppendOrigin.CLIENT, AppendOrigin.COORDINATOR])
def test_before_ibp_2_1_no_zstd_is_stored(
    tmp_path: Path, settings: dict[str, str], codec: Codec, origin: AppendOrigin
) -> None:
    """As in Kafka 3.9.1 (LogValidator): a follower of Kafka 2.0 would stop at such a batch."""
    environment = StandIn()
    environment.takes_zstd = False
    log = open_log(tmp_path / "t-0", LogConfig(**settings), environment)
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(sent(b"v", codec=codec), 0, origin=origin)
    assert raised.value.code is ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    log.update_config(LogConfig(compression_type="gzip"))
    assert log.append_as_leader(sent(b"v", codec=codec), 0, origin=origin).first_offset == 0
    log.update_config(LogConfig())
    log.append_as_follower(
        memoryview(bytearray(encode_batch([Record(1, 9, b"k", b"v")], base_offset=1, codec=Codec.ZSTD)))
    )
    assert {header.codec for _, header in iter_batches(stored(log))} == {Codec.GZIP, Codec.ZSTD}


@pytest.mark.parametrize("version", [V0, V1])
@pytest.mark.parametrize("magic", [0, 1, 2])
def test_each_message_by_itself_must_be_small_enough(tmp_path: Path, version: str, magic: int) -> None:
    """As in Kafka 3.9.1 (UnifiedLog.append): in the old formats each uncompressed message counts as a batch."""
    log = open_log(tmp_path / "t-0", config(version, max_message_bytes=150))

    def several(size: int) -> memoryview:
        records = [Record(offset=n, value=b"x" * size, timestamp_ms=9) for n in range(4)]
        data = encode_batch(records) if magic == 2 else encode_message_set(records, magic)
        return memoryview(bytearray(data))

    if magic < 2:
        assert log.append_as_leader(several(100), 0).last_offset == 3
        assert len(stored(log)) > 400
    with pytest.raises(KafkaError) as raised:
        log.append_as_leader(several(130), 0)
    assert raised.value.code is ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("version", [V0, V1])
def test_a_follower_has_the_same_bytes_and_neither_has_epochs(tmp_path: Path, version: str) -> None:
    leader = open_log(tmp_path / "leader" / "t-0", config(version))
    follower = open_log(tmp_path / "follower" / "t-0", config(version))
    leader.leader_epochs.assign(3, 0)
    for n in range(9):
        codec = (Codec.NONE, Codec.GZIP)[n % 2]
        leader.append_as_leader(sent(b"%d" % n, b"x" * 50, codec=codec), 3)
    assert leader.leader_epochs.entries == ()
    while follower.log_end_offset < leader.log_end_offset:
        read = leader.read(follower.log_end_offset, 200, limit_offset=leader.log_end_offset, min_one_batch=True)
        assert read.records is not None
        follower.append_as_follower(memoryview(bytearray(read.records.read())))
    assert stored(follower) == stored(leader)
    assert follower.leader_epochs.entries == ()
    leader.abandon()
    again = open_log(leader.dir, config(version), clean=False)
    assert again.log_end_offset == follower.log_end_offset
    assert stored(again) == stored(follower)


def test_append_time_is_the_brokers(tmp_path: Path) -> None:
    environment = StandIn(now_ms=77)
    log = open_log(tmp_path / "t-0", config(V1, message_timestamp_type="LogAppendTime"), environment)
    assert log.append_as_leader(sent(b"a", b"b"), 0).log_append_time_ms == 77
    assert [r.timestamp_ms for r in iter_records(stored(log))] == [77, 77]


def test_what_the_old_format_has_no_place_for_is_refused(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config(V1))
    headers = memoryview(bytearray(encode_batch([Record(key=b"k", value=b"v", headers=[("h", b"1")])])))
    refused = (data_batch(b"v", producer=(5, 0, 0)), headers, marker_batch(5, 0, commit=True))
    origins = (AppendOrigin.CLIENT, AppendOrigin.CLIENT, AppendOrigin.COORDINATOR)
    for batch, origin in zip(refused, origins, strict=True):
        with pytest.raises(KafkaError) as raised:
            log.append_as_leader(batch, 0, origin=origin)
        assert raised.value.code is ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT
    assert (log.log_end_offset, stored(log)) == (0, b"")


def test_the_format_may_change_and_old_and_new_stand_side_by_side(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", config(V1))
    log.append_as_leader(sent(b"old"), 4)
    log.update_config(config(V2))
    log.append_as_leader(sent(b"new"), 4)
    assert [header.magic for _, header in iter_batches(stored(log))] == [1, 2]
    assert log.leader_epochs.entries == ((4, 1),)
    log.update_config(config(V1))
    log.append_as_leader(sent(b"old again"), 4)
    assert [header.magic for _, header in iter_batches(stored(log))] == [1, 2, 1]
    assert log.leader_epochs.entries == ()


def test_a_log_in_an_old_format_has_no_file_of_leader_epochs(tmp_path: Path) -> None:
    """Its messages name no epoch: an entry for a later leadership would say that all before it belongs to none."""
    folder = tmp_path / "t-0"
    file = folder / "leader-epoch-checkpoint"
    log = open_log(folder, config(V2))
    log.assign_leader_epoch(4, 0)
    log.close()
    log = open_log(folder, config(V1), clean=False)
    assert not file.exists()
    log.append_as_leader(sent(b"old"), 5)
    log.assign_leader_epoch(6, log.log_end_offset)
    assert (log.leader_epochs.entries, log.leader_epochs.latest_epoch, file.exists()) == ((), -1, False)
    log.flush()
    log.update_config(config(V2))
    assert file.read_bytes() == b""
    log.append_as_leader(sent(b"new"), 6)
    assert log.leader_epochs.entries == ((6, 1),)
    log.flush()
    log.update_config(config(V1))
    assert (log.leader_epochs.entries, file.exists()) == ((), False)
    log.truncate_fully_and_start_at(7)
    assert not file.exists()
    log.flush()


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.GZIP])
def test_what_is_stored_without_a_time_leaves_none_in_the_time_index(tmp_path: Path, codec: Codec) -> None:
    """Format 0 has no times, whatever the producer sent. Retention and searches count the time of the last write."""
    log = open_log(tmp_path / "t-0", config(V0, index_interval_bytes=0))
    for n in range(4):
        log.append_as_leader(sent(b"%d" % n, codec=codec), 0)
    log.close()
    assert [path.stat().st_size for path in (tmp_path / "t-0").glob("*.timeindex")] == [0]


@pytest.mark.parametrize("magic", [0, 1])
def test_a_follower_rolls_where_its_log_ends_not_at_the_last_offset_of_a_compressed_set(
    tmp_path: Path, magic: int
) -> None:
    """The header of a compressed message names its last record. Its first ones belong to the new segment too."""
    log = open_log(tmp_path / "t-0", config(V1))
    for first in range(0, 40, 5):
        records = [Record(n, 9, b"k", random.Random(n).randbytes(60), []) for n in range(first, first + 5)]
        log.append_as_follower(memoryview(encode_message_set(records, magic, codec=Codec.GZIP)))
    assert [segment.base_offset for segment in log.segments] == [0, 5, 10, 15, 20, 25, 30, 35]
    log.abandon()
    again = open_log(tmp_path / "t-0", config(V1), clean=False)
    assert again.gap is None
    assert [offset for offset, _ in values_of(again)] == list(range(40))


@pytest.mark.parametrize("version", [V0, V1])
@pytest.mark.parametrize("damaged", [0, 2, 4])
def test_after_a_crash_nothing_is_left_from_a_damaged_message_on(tmp_path: Path, version: str, damaged: int) -> None:
    log = open_log(tmp_path / "t-0", LogConfig(message_format_version=version))
    ends = [0]
    for n in range(5):
        log.append_as_leader(sent(b"%d" % n + b"x" * 40), 0)
        ends.append(log.size_bytes)
    expected, path = values_of(log), log.segments[0].path
    log.abandon()
    data = bytearray(path.read_bytes())
    data[ends[damaged + 1] - 2] ^= 1
    path.write_bytes(data)
    again = open_log(log.dir, log.config, clean=False)
    assert values_of(again) == expected[:damaged]
    assert path.stat().st_size == ends[damaged]
