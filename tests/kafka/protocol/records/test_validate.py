"""What the leader does with produced batches: it stamps, recompresses or converts them, or names the bad records."""

from __future__ import annotations

from typing import Any

import pytest

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.append_rules import REFUSED_MAX, AppendRules, RecordValidationError
from engine.kafka.protocol.records.attributes import Codec, TimestampType
from engine.kafka.protocol.records.checksum import stamp_crc, verify_crc
from engine.kafka.protocol.records.compression import compress
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.header import BatchHeader, iter_batches, read_batch_header
from engine.kafka.protocol.records.layout import Buffer
from engine.kafka.protocol.records.legacy import encode_message, encode_message_set
from engine.kafka.protocol.records.record import Record
from engine.kafka.protocol.records.validate import PreparedRecords, _Append, check_batch, prepare_append

NOW = 1_700_000_000_000
RECORDS = [
    Record(0, NOW - 5, b"a", b"1", [("h", b"x")]),
    Record(1, NOW + 5, b"b", None),
    Record(2, NOW, b"c", b"3" * 99),
]
CREATE_TIME = AppendRules()
APPEND_TIME = AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME)


def prepare(records: Buffer, rules: AppendRules = CREATE_TIME, **options: Any) -> PreparedRecords:
    return prepare_append(records, rules, first_offset=100, leader_epoch=7, now_ms=NOW, **options)


def header_of(prepared: PreparedRecords) -> BatchHeader:
    (_, header), *rest = iter_batches(prepared.records)
    assert not rest
    assert verify_crc(prepared.records, 0, len(prepared.records))
    return header


def shifted(records: list[Record], timestamp_ms: int | None = None) -> list[Record]:
    return [
        Record(100 + i, each.timestamp_ms if timestamp_ms is None else timestamp_ms, each.key, each.value, each.headers)
        for i, each in enumerate(records)
    ]


def patched(batch: bytes, position: int, data: bytes) -> bytearray:
    changed = bytearray(batch)
    changed[position : position + len(data)] = data
    stamp_crc(changed, 0, len(changed))
    return changed


@pytest.mark.parametrize("codec", Codec)
def test_a_batch_that_fits_is_stamped_in_place(codec: Codec) -> None:
    batch = bytearray(encode_batch(RECORDS, codec=codec, producer_id=3, producer_epoch=0, base_sequence=0))
    before = bytes(batch)
    prepared = prepare(batch)
    assert not prepared.is_rebuilt
    assert bytes(prepared.records) == bytes(batch), "the caller's own buffer was stamped"
    assert batch[layout.MAGIC :] == before[layout.MAGIC :], "offset and leader epoch are outside of the checksum"
    header = header_of(prepared)
    assert (header.base_offset, header.last_offset, header.partition_leader_epoch) == (100, 102, 7)
    assert (prepared.first_offset, prepared.last_offset, prepared.record_count) == (100, 102, 3)
    assert (prepared.max_timestamp, prepared.offset_of_max_timestamp) == (NOW + 5, 102)
    assert prepared.log_append_time_ms == -1
    assert list(iter_records(prepared.records)) == shifted(RECORDS)


def test_a_buffer_that_cannot_be_written_is_copied() -> None:
    batch = encode_batch(RECORDS)
    prepared = prepare(memoryview(batch))
    assert header_of(prepared).base_offset == 100
    assert read_batch_header(batch).base_offset == 0


@pytest.mark.parametrize("codec", Codec)
def test_log_append_time_is_patched_into_the_header(codec: Codec) -> None:
    batch = bytearray(encode_batch(RECORDS, codec=codec))
    prepared = prepare(batch, APPEND_TIME)
    header = header_of(prepared)
    assert not prepared.is_rebuilt
    assert (header.timestamp_type, header.max_timestamp, header.codec) == (TimestampType.LOG_APPEND_TIME, NOW, codec)
    assert (prepared.max_timestamp, prepared.log_append_time_ms) == (NOW, NOW)
    assert list(iter_records(prepared.records)) == shifted(RECORDS, NOW)


def test_a_wrong_max_timestamp_is_corrected() -> None:
    batch = patched(encode_batch(RECORDS), layout.MAX_TIMESTAMP, bytes(8))
    prepared = prepare(batch)
    assert header_of(prepared).max_timestamp == NOW + 5
    assert not prepared.is_rebuilt


def test_records_without_timestamps_have_no_max_timestamp() -> None:
    prepared = prepare(encode_batch([Record(value=b"a"), Record(value=b"b")]))
    assert (prepared.max_timestamp, prepared.offset_of_max_timestamp) == (-1, -1)


@pytest.mark.parametrize("source", Codec)
@pytest.mark.parametrize("target", Codec)
@pytest.mark.parametrize("timestamp_type", [TimestampType.CREATE_TIME, TimestampType.LOG_APPEND_TIME])
def test_the_topics_codec_wins(source: Codec, target: Codec, timestamp_type: TimestampType) -> None:
    rules = AppendRules(codec=target, timestamp_type=timestamp_type)
    batch = encode_batch(RECORDS, codec=source, producer_id=3, producer_epoch=1, base_sequence=8, transactional=True)
    prepared = prepare(batch, rules)
    header = header_of(prepared)
    assert prepared.is_rebuilt == (source is not target)
    assert (header.codec, header.timestamp_type) == (target, timestamp_type)
    assert (header.producer_id, header.producer_epoch, header.base_sequence, header.last_sequence) == (3, 1, 8, 10)
    assert header.is_transactional
    is_append_time = timestamp_type is TimestampType.LOG_APPEND_TIME
    assert list(iter_records(prepared.records)) == shifted(RECORDS, NOW if is_append_time else None)


def test_the_topics_level_is_used() -> None:
    records = [Record(value=b"".join(b"%d %d;" % (i % 97, i * i % 1009) for i in range(9_000)))]
    fast, strong = (
        len(prepare(encode_batch(records), AppendRules(codec=Codec.GZIP, level=level)).records) for level in (1, 9)
    )
    assert strong < fast


def test_inner_offsets_out_of_order_make_a_new_batch() -> None:
    """Some clients number their records wrongly. Kafka has always corrected that."""
    batch = encode_batch([Record(0, NOW, b"a"), Record(2, NOW, b"b"), Record(5, NOW, b"c")], codec=Codec.LZ4)
    batch = bytes(patched(batch, layout.LAST_OFFSET_DELTA, (2).to_bytes(4, "big")))
    prepared = prepare(batch)
    assert prepared.is_rebuilt
    assert header_of(prepared).codec is Codec.LZ4
    assert [record.offset for record in iter_records(prepared.records)] == [100, 101, 102]


def test_control_batches_of_coordinators_are_never_compressed() -> None:
    marker = encode_batch(
        [Record(0, NOW, b"\0\0\0\1", b"\0\0\0\0\0\0")],
        control=True,
        transactional=True,
        producer_id=3,
        producer_epoch=0,
    )
    prepared = prepare(marker, AppendRules(codec=Codec.GZIP), from_client=False)
    header = header_of(prepared)
    assert header.is_control
    assert header.codec is Codec.NONE
    assert not prepared.is_rebuilt


@pytest.mark.parametrize("magic", [0, 1])
@pytest.mark.parametrize("source", [Codec.NONE, Codec.GZIP, Codec.SNAPPY, Codec.LZ4])
@pytest.mark.parametrize("target", [None, *Codec])
def test_old_messages_become_one_batch(magic: int, source: Codec, target: Codec | None) -> None:
    data = encode_message_set(RECORDS, magic, codec=source)
    prepared = prepare(data, AppendRules(codec=target))
    header = header_of(prepared)
    assert prepared.is_rebuilt
    assert (header.magic, header.codec, header.partition_leader_epoch) == (2, source if target is None else target, 7)
    assert (header.producer_id, header.base_sequence) == (-1, -1)
    plain = [Record(each.offset, each.timestamp_ms, each.key, each.value) for each in RECORDS]
    assert list(iter_records(prepared.records)) == shifted(plain, None if magic else -1)
    assert prepared.max_timestamp == (NOW + 5 if magic else -1)
    assert prepared.offset_of_max_timestamp == (102 if magic else -1)


@pytest.mark.parametrize("magic", [0, 1])
def test_old_messages_get_the_append_time(magic: int) -> None:
    prepared = prepare(encode_message_set(RECORDS, magic, codec=Codec.GZIP), APPEND_TIME)
    assert header_of(prepared).timestamp_type is TimestampType.LOG_APPEND_TIME
    assert {record.timestamp_ms for record in iter_records(prepared.records)} == {NOW}
    assert (prepared.max_timestamp, prepared.log_append_time_ms) == (NOW, NOW)


BOUNDED = AppendRules(timestamp_before_max_ms=3, timestamp_after_max_ms=1_000)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.ZSTD])
@pytest.mark.parametrize("rules", [BOUNDED, AppendRules(codec=Codec.GZIP, timestamp_after_max_ms=4)])
def test_timestamps_out_of_bounds_name_their_records(codec: Codec, rules: AppendRules) -> None:
    with pytest.raises(RecordValidationError) as caught:
        prepare(encode_batch(RECORDS, codec=codec), rules)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    (error,) = caught.value.record_errors
    assert error.batch_index == (0 if rules is BOUNDED else 1)
    assert "is out of range" in error.message


def test_timestamps_at_the_bounds_are_accepted() -> None:
    rules = AppendRules(timestamp_before_max_ms=5, timestamp_after_max_ms=5)
    assert prepare(encode_batch(RECORDS), rules).record_count == 3
    assert prepare(encode_message_set(RECORDS, 1), rules).record_count == 3


def test_old_timestamps_are_bounded_too() -> None:
    with pytest.raises(RecordValidationError) as caught:
        prepare(encode_message_set(RECORDS, 1, codec=Codec.GZIP), BOUNDED)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP


def test_bounds_do_not_concern_append_time_or_records_without_time() -> None:
    bounded = AppendRules(timestamp_type=TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=1)
    assert prepare(encode_batch(RECORDS), bounded).record_count == 3
    assert prepare(encode_batch([Record(value=b"no time")]), BOUNDED).record_count == 1


def test_producers_must_not_claim_append_time() -> None:
    batch = encode_batch(RECORDS, timestamp_type=TimestampType.LOG_APPEND_TIME)
    with pytest.raises(RecordValidationError) as caught:
        prepare(batch, APPEND_TIME)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert [error.batch_index for error in caught.value.record_errors] == [0, 1, 2]


COMPACTED = AppendRules(is_compacted=True)


@pytest.mark.parametrize("codec", [Codec.NONE, Codec.SNAPPY])
def test_a_compacted_topic_wants_keys(codec: Codec) -> None:
    records = [Record(0, NOW, b"k"), *(Record(i, NOW) for i in range(1, 6))]
    for data in (encode_batch(records, codec=codec), encode_message_set(records, 1, codec=codec)):
        with pytest.raises(RecordValidationError, match="5 record errors in total") as caught:
            prepare(data, COMPACTED)
        assert caught.value.code is ErrorCode.INVALID_RECORD
        assert [error.batch_index for error in caught.value.record_errors] == [1, 2, 3, 4, 5]
    assert prepare(encode_batch([Record(0, NOW, b"", None)]), COMPACTED).record_count == 1, "an empty key is a key"


def test_an_inner_message_with_a_wrong_checksum_is_corrupt() -> None:
    inner = bytearray(encode_message_set(RECORDS, 1))
    inner[-1] ^= 1
    data = encode_message(2, 1, NOW, None, compress(Codec.GZIP, bytes(inner), magic=1), codec=Codec.GZIP)
    with pytest.raises(KafkaError) as caught:
        prepare(data)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("encode", [encode_batch, lambda records: encode_message_set(records, 1, codec=Codec.GZIP)])
def test_no_more_records_are_looked_at_than_are_named(encode: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """A batch of 100 kB can hold millions of records that are all refused: the answer would take gigabytes."""
    looked_at = 0
    fault = _Append._fault

    def counted(*arguments: Any) -> Any:
        nonlocal looked_at
        looked_at += 1
        return fault(*arguments)

    monkeypatch.setattr(_Append, "_fault", counted)
    with pytest.raises(RecordValidationError, match=f"more than {REFUSED_MAX} record errors in total") as caught:
        prepare(encode([Record(i, NOW) for i in range(5 * REFUSED_MAX)]), COMPACTED)
    assert [error.batch_index for error in caught.value.record_errors] == list(range(REFUSED_MAX))
    assert looked_at == REFUSED_MAX + 1


def test_an_inner_message_of_another_magic_is_refused() -> None:
    inner = encode_message(0, 0, -1, b"k", b"v")
    data = encode_message(0, 1, NOW, None, compress(Codec.GZIP, inner, magic=1), codec=Codec.GZIP)
    with pytest.raises(RecordValidationError, match="magic 0 of the record"):
        prepare(data)


GOOD = encode_batch(RECORDS)
PRODUCER = {"producer_id": 3, "producer_epoch": 0}


@pytest.mark.parametrize(
    "data",
    [
        b"",
        GOOD + GOOD,
        encode_message_set(RECORDS, 1, codec=Codec.GZIP) * 2,
        encode_message_set(RECORDS, 1) + encode_message_set(RECORDS, 1, codec=Codec.GZIP),
        encode_message_set(RECORDS, 0) + encode_message_set(RECORDS, 1),
        encode_batch(shifted(RECORDS), base_offset=100),
        encode_batch([]),
        encode_batch(RECORDS, last_offset=3),
        encode_batch(RECORDS, last_offset=-5),
        patched(GOOD, layout.RECORD_COUNT, (2).to_bytes(4, "big")),
        patched(GOOD, layout.RECORD_COUNT, b"\xff\xff\xff\xff"),
        encode_batch(RECORDS, control=True),
        encode_batch(RECORDS, **PRODUCER),
        patched(encode_batch(RECORDS, last_offset=3), layout.RECORD_COUNT, (4).to_bytes(4, "big")),
        patched(encode_batch(RECORDS[:2], last_offset=0), layout.RECORD_COUNT, (1).to_bytes(4, "big")),
    ],
)
def test_senseless_batches_are_invalid(data: bytes) -> None:
    with pytest.raises(KafkaError) as caught:
        prepare(data)
    assert caught.value.code is ErrorCode.INVALID_RECORD


def test_coordinators_may_do_what_clients_may_not() -> None:
    header = read_batch_header(encode_batch(RECORDS, control=True, **PRODUCER))
    check_batch(header, from_client=False)
    with pytest.raises(KafkaError):
        check_batch(header)


def test_bombs_are_refused() -> None:
    with pytest.raises(KafkaError) as caught:
        prepare(encode_batch([Record(value=bytes(100_000))], codec=Codec.ZSTD), size_max=50_000)
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE


def test_rules_are_read_off_a_topics_settings() -> None:
    assert AppendRules.of(LogConfig()) == AppendRules()
    assert not AppendRules.of(LogConfig()).concerns_records
    rules = AppendRules.of(
        LogConfig(
            compression_type="zstd",
            compression_zstd_level=11,
            message_timestamp_type="LogAppendTime",
            cleanup_policy=("compact", "delete"),
            message_timestamp_before_max_ms=5,
        )
    )
    assert rules == AppendRules(
        Codec.ZSTD, 11, TimestampType.LOG_APPEND_TIME, timestamp_before_max_ms=5, is_compacted=True
    )
    assert rules.concerns_records
    assert AppendRules.of(LogConfig(compression_type="uncompressed")).codec is Codec.NONE
    assert AppendRules.of(LogConfig(compression_type="snappy")).level is None


def test_the_old_timestamp_bound_counts_where_the_new_ones_are_not_set() -> None:
    rules = AppendRules.of(LogConfig(message_timestamp_difference_max_ms=9, message_timestamp_after_max_ms=2))
    assert (rules.timestamp_before_max_ms, rules.timestamp_after_max_ms) == (9, 2)
    assert rules.concerns_records
