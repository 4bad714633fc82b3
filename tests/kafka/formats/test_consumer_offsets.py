"""Records of ``__consumer_offsets``: recorded ones come back byte for byte, old versions match hand-made bytes."""

from __future__ import annotations

import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.common.errors import ErrorCode, KafkaError
from engine.kafka.formats.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    MemberMetadata,
    OffsetCommitKey,
    OffsetCommitValue,
    UnknownKey,
    decode_key,
    decode_value,
    encode_group_key,
    encode_group_value,
    encode_offset_key,
    encode_offset_value,
    java_hash,
    partition_for,
)
from engine.kafka.formats.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from engine.kafka.formats.versioned import json_fields, read_version
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

DISK = Path(__file__).parents[3] / "fixtures" / "disk"
SEGMENTS = [DISK / folder / "data" / "__consumer_offsets-0" for folder in ("clean", "formats-mixed")]


def recorded() -> list[Record]:
    records = []
    for folder in SEGMENTS:
        data = (folder / "00000000000000000000.log").read_bytes()
        for position, header in iter_batches(data):
            if not header.is_control:
                records += list(iter_records(data[position : position + header.size_bytes]))
    return records


def text(value: str | None) -> bytes:
    return b"\xff\xff" if value is None else struct.pack(">h", len(value)) + value.encode()


def blob(value: bytes) -> bytes:
    return struct.pack(">i", len(value)) + value


def test_recorded_records_are_written_byte_for_byte_as_kafka_wrote_them() -> None:
    seen = set()
    for record in recorded():
        assert record.key is not None
        key = decode_key(record.key)
        if isinstance(key, OffsetCommitKey):
            assert encode_offset_key(key.group, key.topic, key.partition) == record.key
        else:
            assert isinstance(key, GroupMetadataKey)
            assert encode_group_key(key.group) == record.key
        value = decode_value(key, record.value)
        seen.add((type(key), type(value), None if record.value is None else read_version(record.value)))
        if isinstance(value, OffsetCommitValue):
            assert encode_offset_value(value, read_version(record.value or b"")) == record.value
        elif value is not None:
            assert encode_group_value(value, read_version(record.value or b"")) == record.value
            for member in value.members:
                assert_protocol_bytes_come_back(member)
    assert (OffsetCommitKey, OffsetCommitValue, 3) in seen
    assert (GroupMetadataKey, GroupMetadataValue, 3) in seen
    assert (OffsetCommitKey, type(None), None) in seen, "tombstones were recorded too"


def assert_protocol_bytes_come_back(member: MemberMetadata) -> None:
    version = read_version(member.subscription)
    assert encode_subscription(decode_subscription(member.subscription), version) == member.subscription
    if member.assignment:
        version = read_version(member.assignment)
        assert encode_assignment(decode_assignment(member.assignment), version) == member.assignment


def test_keys() -> None:
    offset_key = text("g") + text("t") + struct.pack(">i", 7)
    for version in (0, 1):
        expected = OffsetCommitKey(group="g", topic="t", partition=7)
        assert decode_key(struct.pack(">h", version) + offset_key) == expected
    assert encode_offset_key("g", "t", 7) == b"\0\1" + offset_key
    assert encode_group_key("grüppe") == b"\0\2\0\7" + "grüppe".encode()
    for version in (3, 8, -1):
        assert decode_key(struct.pack(">h", version) + b"whatever") == UnknownKey(version)


@pytest.mark.parametrize(
    ("version", "body", "expected"),
    [
        (0, struct.pack(">q", 5) + text("m") + struct.pack(">q", 9), {}),
        (1, struct.pack(">q", 5) + text("m") + struct.pack(">qq", 9, 99), {"expire_timestamp": 99}),
        (2, struct.pack(">q", 5) + text("m") + struct.pack(">q", 9), {}),
        (3, struct.pack(">qi", 5, 2) + text("m") + struct.pack(">q", 9), {"leader_epoch": 2}),
        (4, struct.pack(">qi", 5, 2) + b"\2m" + struct.pack(">q", 9) + b"\0", {"leader_epoch": 2}),
    ],
)
def test_every_version_of_a_committed_offset(version: int, body: bytes, expected: dict[str, int]) -> None:
    value = OffsetCommitValue(offset=5, metadata="m", commit_timestamp=9, **expected)
    data = struct.pack(">h", version) + body
    assert decode_value(OffsetCommitKey(), data) == value
    assert encode_offset_value(value, version) == data


def member_bytes(version: int) -> bytes:
    instance = text("i") if version >= 3 else b""
    rebalance = struct.pack(">i", 300) if version >= 1 else b""
    return (
        text("member") + instance + text("client") + text("/host") + rebalance + struct.pack(">i", 100) + blob(b"s") * 2
    )


@pytest.mark.parametrize("version", [0, 1, 2, 3])
def test_every_version_of_a_group(version: int) -> None:
    time = struct.pack(">q", 77) if version >= 2 else b""
    head = text("consumer") + struct.pack(">i", 4) + text("range") + text(None) + time
    data = struct.pack(">h", version) + head + struct.pack(">i", 1) + member_bytes(version)
    value = GroupMetadataValue(
        protocol_type="consumer",
        generation=4,
        protocol="range",
        leader=None,
        current_state_timestamp=77 if version >= 2 else -1,
        members=[
            MemberMetadata(
                member_id="member",
                group_instance_id="i" if version >= 3 else None,
                client_id="client",
                client_host="/host",
                rebalance_timeout=300 if version >= 1 else -1,
                session_timeout=100,
                subscription=b"s",
                assignment=b"s",
            )
        ],
    )
    assert decode_value(GroupMetadataKey(), data) == value
    assert encode_group_value(value, version) == data


def test_the_flexible_version_of_a_group() -> None:
    member = b"\7member" + b"\0" + b"\7client" + b"\6/host" + struct.pack(">ii", 300, 100) + b"\2s" + b"\1" + b"\0"
    head = b"\x09consumer" + struct.pack(">i", 4) + b"\0\0" + struct.pack(">q", 77)
    unknown_tag = b"\1\5\3abc"
    value = decode_value(GroupMetadataKey(), b"\0\4" + head + b"\2" + member + unknown_tag)
    assert isinstance(value, GroupMetadataValue)
    assert (value.generation, value.protocol, value.leader) == (4, None, None)
    (read,) = value.members
    assert (read.member_id, read.subscription, read.assignment, read.group_instance_id) == ("member", b"s", b"", None)


def test_a_newer_version_is_refused() -> None:
    for key in (OffsetCommitKey(), GroupMetadataKey()):
        with pytest.raises(KafkaError) as caught:
            decode_value(key, b"\0\5" + bytes(100))
        assert caught.value.code is ErrorCode.UNSUPPORTED_VERSION


def test_subscription_versions() -> None:
    full = ConsumerProtocolSubscription(
        topics=["a", "b"],
        user_data=b"u",
        owned_partitions=[ConsumerProtocolPartitions(topic="a", partitions=[0, 2])],
        generation_id=6,
        rack_id="r",
    )
    data = struct.pack(">hi", 3, 2) + text("a") + text("b") + blob(b"u")
    data += struct.pack(">i", 1) + text("a") + struct.pack(">iii", 2, 0, 2) + struct.pack(">i", 6) + text("r")
    assert encode_subscription(full) == data
    assert decode_subscription(data) == full
    assert decode_subscription(b"\0\7" + data[2:] + b"what a later version adds") == full
    oldest = decode_subscription(struct.pack(">hi", 0, 1) + text("a") + b"\xff\xff\xff\xff")
    assert oldest == ConsumerProtocolSubscription(topics=["a"])
    assert decode_assignment(b"") == ConsumerProtocolAssignment()


def test_json_is_as_kafkas_tools_print_it() -> None:
    value = OffsetCommitValue(offset=5, leader_epoch=2, metadata="m", commit_timestamp=9)
    assert json_fields(value, 3) == {"offset": 5, "leaderEpoch": 2, "metadata": "m", "commitTimestamp": 9}
    assert list(json_fields(value, 1)) == ["offset", "metadata", "commitTimestamp", "expireTimestamp"]
    member = MemberMetadata(member_id="x", subscription=b"\xff")
    assert json_fields(GroupMetadataValue(members=[member]), 0)["members"][0]["subscription"] == "/w=="


@settings(max_examples=300, deadline=None)
@given(st.integers(-1, 5), st.binary(max_size=80))
def test_garbage_raises_nothing_but_kafka_errors(version: int, rest: bytes) -> None:
    data = struct.pack(">h", version) + rest
    for read in (
        decode_key,
        decode_subscription,
        decode_assignment,
        lambda garbage: decode_value(OffsetCommitKey(), garbage),
        lambda garbage: decode_value(GroupMetadataKey(), garbage),
    ):
        for garbage in (data, rest):
            try:
                read(garbage)
            except KafkaError as error:
                assert error.message


@pytest.mark.parametrize(
    ("group_id", "partition"),
    [
        ("test", 48),
        ("my-group", 12),
        ("console-consumer-12345", 6),
        ("group", 47),
        ("a", 47),
        ("", 0),
        ("polygenelubricants", 0),
    ],
)
def test_partition_of_a_group(group_id: str, partition: int) -> None:
    assert partition_for(group_id, 50) == partition


def test_hash_counts_utf16_units() -> None:
    assert java_hash("\U0001f600") == 31 * 0xD83D + 0xDE00
