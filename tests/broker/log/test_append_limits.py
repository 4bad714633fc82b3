"""The limits of an append outside the fast path: exactly at each limit, and just beyond it."""

from __future__ import annotations

from pathlib import Path

import pytest
from log_folders import data_batch, open_log

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.log import Log
from engine.broker.log.log_append import OffsetsOutOfOrder
from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.layout import BASE_OFFSET
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record


def refusal(log: Log, records: memoryview, origin: AppendOrigin = AppendOrigin.CLIENT) -> ErrorCode:
    with pytest.raises(KafkaError) as caught:
        log.append_as_leader(records, 0, origin=origin)
    assert isinstance(caught.value.code, ErrorCode)
    return caught.value.code


def at_offset(batch: memoryview, offset: int) -> memoryview:
    batch[BASE_OFFSET : BASE_OFFSET + 8] = offset.to_bytes(8, "big", signed=True)
    return batch


def test_a_client_counts_its_offsets_from_zero_and_a_coordinator_need_not(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    for offset in (1, 5, -1):
        assert refusal(log, at_offset(data_batch(b"a"), offset)) is ErrorCode.INVALID_RECORD
    assert log.append_as_leader(at_offset(data_batch(b"a"), 5), 0, origin=AppendOrigin.COORDINATOR).first_offset == 0


def test_a_wrong_base_offset_is_refused_before_size_and_checksum(tmp_path: Path) -> None:
    """As in Kafka: its client never resends a batch refused for its offset, but resends a corrupt one."""
    log = open_log(tmp_path / "t-0")
    broken = at_offset(data_batch(b"a"), 5)
    broken[-1] ^= 1
    assert refusal(log, broken) is ErrorCode.INVALID_RECORD


def test_an_old_message_behind_a_batch_does_not_hide_that_there_are_two(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    old = encode_message_set([Record(offset=0, key=None, value=b"b", timestamp_ms=9)], 1)
    assert refusal(log, memoryview(bytearray(bytes(data_batch(b"a")) + old))) is ErrorCode.INVALID_RECORD


def test_a_batch_may_be_just_as_large_as_the_limits(tmp_path: Path) -> None:
    size = len(data_batch(b"a"))
    for name, config, code in (
        ("t-0", {"max_message_bytes": size}, ErrorCode.MESSAGE_TOO_LARGE),
        ("t-1", {"segment_bytes": size}, ErrorCode.RECORD_LIST_TOO_LARGE),
    ):
        log = open_log(tmp_path / name, LogConfig(**config))
        first = at_offset(data_batch(b"a"), 1)
        assert log.append_as_leader(first, 0, origin=AppendOrigin.COORDINATOR).last_offset == 0
        assert refusal(log, data_batch(b"ab")) is code


def test_a_batch_that_grows_when_it_is_rebuilt_is_measured_again(tmp_path: Path) -> None:
    sent = data_batch(b"x" * 400, codec=Codec.GZIP)
    log = open_log(tmp_path / "t-0", LogConfig(compression_type="uncompressed", max_message_bytes=len(sent) + 10))
    assert refusal(log, sent) is ErrorCode.MESSAGE_TOO_LARGE


def test_a_batch_that_grows_in_an_old_format_is_measured_again(tmp_path: Path) -> None:
    """As in Kafka 3.9.1: a compressed one stays one message, others become a message for each record."""
    sent = data_batch(*[b"x"] * 50, codec=Codec.GZIP)
    config = LogConfig(message_format_version="0.10.2", max_message_bytes=len(sent))
    assert refusal(open_log(tmp_path / "t-0", config), sent) is ErrorCode.MESSAGE_TOO_LARGE
    sent = data_batch(*[b"x"] * 50)
    config = LogConfig(message_format_version="0.10.2", max_message_bytes=len(sent))
    assert open_log(tmp_path / "t-1", config).append_as_leader(sent, 0).last_offset == 49


def test_another_codec_keeps_a_batchs_producer(tmp_path: Path) -> None:
    """Only an old message format has no place for it."""
    log = open_log(tmp_path / "t-0", LogConfig(compression_type="lz4"))
    assert log.append_as_leader(data_batch(b"a", producer=(7, 0, 0)), 0).last_offset == 0
    assert refusal(log, data_batch(b"b", producer=(7, 0, 5))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_producer_id_zero_is_a_producer(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    log.append_as_leader(data_batch(b"a", producer=(0, 0, 0)), 0)
    assert refusal(log, data_batch(b"b", producer=(0, 0, 5))) is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_a_leader_that_sends_an_offset_twice_is_not_followed(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0")
    twice = bytes(at_offset(data_batch(b"a"), 3)) + bytes(at_offset(data_batch(b"b"), 3))
    with pytest.raises(OffsetsOutOfOrder):
        log.append_as_follower(memoryview(bytearray(twice)))
    assert log.log_end_offset == 0


def test_a_leader_that_sends_a_negative_offset_is_not_followed(tmp_path: Path) -> None:
    with pytest.raises(OffsetsOutOfOrder):
        open_log(tmp_path / "t-0").append_as_follower(at_offset(data_batch(b"a"), -1))
