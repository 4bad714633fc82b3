"""Keys and values of dumped records as text, or decoded where the topic is one of Kafka's internal ones."""

from __future__ import annotations

import json
import struct
from collections.abc import Iterator
from enum import StrEnum
from typing import Any, BinaryIO, NamedTuple

from engine.common.errors import KafkaError
from engine.kafka.formats import consumer_offsets, transaction_state
from engine.kafka.formats.consumer_offsets import GroupMetadataValue, MemberMetadata, OffsetCommitKey, UnknownKey
from engine.kafka.formats.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    VERSION_MAX,
    decode_assignment,
    decode_subscription,
)
from engine.kafka.formats.versioned import json_fields, read_version
from engine.kafka.protocol.records.header import BatchHeader, iter_batches
from engine.kafka.protocol.records.record import Record


class PayloadDecoder(StrEnum):
    """How to read keys and values."""

    TEXT = "text"
    """UTF-8; other bytes become U+FFFD, as in Kafka's tool."""
    OFFSETS = "offsets"
    TRANSACTIONS = "transactions"


class Undecodable(Exception):
    """The record is not what the decoder expects; the text says why."""


def decode_payload(decoder: PayloadDecoder, record: Record) -> tuple[Any, Any]:
    """Return (key, value): text, objects made for JSON, or None.

    Raises:
        Undecodable: the record does not belong in the internal topic.
    """
    if decoder is PayloadDecoder.TEXT:
        return _text(record.key), _text(record.value)
    if record.key is None:
        raise Undecodable("it has no key")
    try:
        if decoder is PayloadDecoder.OFFSETS:
            return _offsets(record.key, record.value)
        return _transaction(record.key, record.value)
    except KafkaError as error:
        raise Undecodable(error.message or error.code.name) from None


def payload_text(key: Any, value: Any, decoder: PayloadDecoder) -> tuple[str | None, str | None]:
    """Return key and value as kafka-dump-log 3.9 prints them; None for what it leaves out."""
    if decoder is PayloadDecoder.TEXT or not isinstance(key, dict):
        return key, value
    if decoder is PayloadDecoder.OFFSETS:
        return _compact_json(key), "<DELETE>" if value is None else _compact_json(value)
    key_text = f"transaction_metadata::transactionalId={key['transactional_id']}"
    if value is None:
        return key_text, "<DELETE>"
    return key_text, (
        f"producerId:{value['producer_id']},producerEpoch:{value['producer_epoch']},state={value['state']},"
        f"partitions=[{','.join(value['partitions'])}],txnLastUpdateTimestamp={value['last_update_timestamp_ms']},"
        f"txnTimeoutMs={value['timeout_ms']}"
    )


def _text(data: bytes | None) -> str | None:
    return None if data is None else data.decode("utf-8", "replace")


def _offsets(key_data: bytes, value_data: bytes | None) -> tuple[Any, Any]:
    key = consumer_offsets.decode_key(key_data)
    if isinstance(key, UnknownKey):
        raise Undecodable(f"its key has the unknown version {key.version}")
    key_version = read_version(key_data)
    key_json = {"type": str(key_version), "data": json_fields(key, key_version)}
    if value_data is None:
        return key_json, None
    value = consumer_offsets.decode_value(key, value_data)
    version = read_version(value_data)
    if value is None or isinstance(key, OffsetCommitKey):
        return key_json, None if value is None else {"version": str(version), "data": json_fields(value, version)}
    data = json_fields(value, version)
    if isinstance(value, GroupMetadataValue) and value.protocol_type == CONSUMER_PROTOCOL_TYPE:
        for member, member_json in zip(value.members, data["members"], strict=True):
            _open_protocol_bytes(member, member_json)
    return key_json, {"version": str(version), "data": data}


def _open_protocol_bytes(member: MemberMetadata, member_json: dict[str, Any]) -> None:
    """Show subscription and assignment by their fields if the bytes are a consumer's; else leave them as base64."""
    for name, data, decode in (
        ("subscription", member.subscription, decode_subscription),
        ("assignment", member.assignment, decode_assignment),
    ):
        try:
            version = min(read_version(data), VERSION_MAX)
            member_json[name] = json_fields(decode(data), version)
        except KafkaError:
            continue


def _transaction(key_data: bytes, value_data: bytes | None) -> tuple[Any, Any]:
    key = {"transactional_id": transaction_state.decode_key(key_data).transactional_id}
    value = transaction_state.decode_value(value_data)
    if value is None:
        return key, None
    partitions = [
        f"{each.topic}-{partition}" for each in value.transaction_partitions or () for partition in each.partition_ids
    ]
    return key, {
        "producer_id": value.producer_id,
        "producer_epoch": value.producer_epoch,
        "state": value.state.kafka_name,
        "partitions": partitions,
        "last_update_timestamp_ms": value.transaction_last_update_timestamp_ms,
        "start_timestamp_ms": value.transaction_start_timestamp_ms,
        "timeout_ms": value.transaction_timeout_ms,
    }


def _compact_json(value: Any) -> str:
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False)


# Reads batches of a segment file, a window at a time: of any size, and even while a broker is writing to it.

_WINDOW_BYTES = 1024 * 1024
_LENGTH = struct.Struct(">8xi")


class FileBatch(NamedTuple):
    """One whole batch: its position in the file, and its bytes."""

    position: int
    header: BatchHeader
    data: memoryview


def read_file_batches(file: BinaryIO, position: int = 0, end: int | None = None) -> Iterator[FileBatch]:
    """Yield the whole batches from the position on that end before ``end`` or the file's end.

    Raises:
        KafkaError: CORRUPT_MESSAGE at a batch whose length or magic is invalid.
    """
    window = _WINDOW_BYTES
    while True:
        file.seek(position)
        size = window if end is None else min(window, end - position)
        data = file.read(size)
        consumed = 0
        view = memoryview(data)
        for start, header in iter_batches(data):
            consumed = start + header.size_bytes
            yield FileBatch(position + start, header, view[start:consumed])
        if consumed:
            window = _WINDOW_BYTES
        elif len(data) < window or len(data) < _LENGTH.size:
            return
        else:
            # One batch is larger than the window.
            window = _LENGTH.size + _LENGTH.unpack_from(data)[0]
            if window <= len(data):
                return
        position += consumed
