"""Groups and offsets, converted to records and back."""

from __future__ import annotations

import logging

import pytest
from coordinator_world import offset_records

from engine.broker.coordinator.groups.commit_form import CommittedOffset
from engine.broker.coordinator.groups.group import Group, GroupState
from engine.broker.coordinator.groups.loading import GroupLoader
from engine.broker.coordinator.groups.member import Member
from engine.broker.coordinator.groups.records import (
    batch_of,
    group_record,
    group_tombstone,
    offset_tombstones,
)
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.formats.control_records import ControlRecordType, EndTransactionMarker, encode_end_transaction_batch
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

IBP = parse_metadata_version("3.9")
PARTITION = TopicPartition("__consumer_offsets", 0)
T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)


def load(*batches: bytes | memoryview) -> tuple[GroupLoader, dict[str, Group]]:
    """Load batches, one after the other."""
    loader = GroupLoader(PARTITION)
    for _ in loader.read(b"".join(bytes(batch) for batch in batches)):
        pass
    for _ in loader.finish(1):
        pass
    return loader, loader.loaded


def offsets_at(base_offset: int, offsets: dict[TopicPartition, CommittedOffset], **options: object) -> bytes:
    """Return a commit of group g."""
    records = offset_records("g", offsets, 5, IBP)
    return encode_batch(records, base_offset=base_offset, **options)  # type: ignore[arg-type]


def stable_group() -> Group:
    group = Group("g", 7)
    group.state, group.generation_id, group.protocol_name = GroupState.STABLE, 3, "range"
    for number, instance_id in enumerate((None, "static")):
        member = Member(
            f"m{number}",
            group_instance_id=instance_id,
            client_id="c",
            client_host="/127.0.0.1",
            rebalance_timeout_ms=60_000,
            session_timeout_ms=10_000,
            protocols=(("range", b"\x00\x01\x00\x00\x00\x01\x00\x01t\xff\xff\xff\xff"),),
        )
        group.add(member, "consumer")
    return group


def test_nothing_read_is_nothing_counted_and_begins_at_the_first_offset() -> None:
    loader, groups = load()
    assert (loader.next_offset, loader.record_count, loader.skipped, groups) == (0, 0, 0, {})


def test_records_of_both_kinds_are_counted_together() -> None:
    group = bytes(batch_of([group_record(stable_group(), {}, 5, IBP)], Codec.NONE))
    loader, _ = load(group, offsets_at(1, {T0: CommittedOffset(1, "", 0, 5)}))
    assert loader.record_count == 2


def test_a_batch_whose_records_cannot_be_read_is_counted_as_skipped() -> None:
    batch = bytearray(encode_batch([group_record(stable_group(), {}, 5, IBP)]))
    batch[61] = 255  # the record's length
    loader, groups = load(batch, offsets_at(1, {T0: CommittedOffset(1, "", 0, 5)}))
    assert (loader.skipped, loader.next_offset) == (1, 2)
    assert groups["g"].offsets.get(T0) is not None


def test_a_tombstone_in_a_transaction_takes_back_what_it_committed_before() -> None:
    records = [*offset_records("g", {T0: CommittedOffset(1, "", 0, 5), T1: CommittedOffset(2, "", 0, 5)}, 5, IBP)]
    batch = encode_batch(
        [*records, *offset_tombstones("g", [T0], 5)], producer_id=7, producer_epoch=0, transactional=True
    )
    _, groups = load(batch)
    held = groups["g"].offsets
    assert (held.is_unstable(T0), held.is_unstable(T1)) == (False, True)


def test_a_group_comes_back() -> None:
    group = stable_group()
    _, groups = load(batch_of([group_record(group, {"m0": b"a", "m1": b"b"}, 5, IBP)], Codec.NONE))
    loaded = groups["g"]
    assert (loaded.state, loaded.generation_id, loaded.protocol_type, loaded.protocol_name) == (
        GroupState.STABLE,
        3,
        "consumer",
        "range",
    )
    assert (loaded.leader_id, loaded.static_members, loaded.state_timestamp_ms) == ("m0", {"static": "m1"}, 7)
    assert [m.assignment for m in loaded.members.values()] == [b"a", b"b"]
    assert loaded.subscribed_topics == {"t"}
    assert loaded.describe().members[1].group_instance_id == "static"


def test_offsets_come_back_the_last_one_wins() -> None:
    first, second = CommittedOffset(1, "x", 4, 5), CommittedOffset(2, "", -1, 6, expire_timestamp_ms=9)
    loader, groups = load(offsets_at(0, {T0: first, T1: first}), offsets_at(2, {T0: second}))
    assert (groups["g"].offsets.get(T0), groups["g"].offsets.get(T1)) == (second, first)
    assert (groups["g"].state, groups["g"].protocol_type) == (GroupState.EMPTY, None)
    assert (loader.next_offset, loader.record_count) == (3, 3)


def test_tombstones_take_away() -> None:
    commit = offsets_at(0, {T0: CommittedOffset(1), T1: CommittedOffset(2)})
    stable = encode_batch([group_record(stable_group(), {}, 5, IBP)], base_offset=2)
    gone = encode_batch([*offset_tombstones("g", [T0], 6), group_tombstone("g", 6)], base_offset=3)
    _, groups = load(commit, stable, gone)
    assert groups["g"].offsets.get(T0) is None
    assert groups["g"].offsets.get(T1) == CommittedOffset(2)
    assert groups["g"].members == {}


@pytest.mark.parametrize("outcome", [ControlRecordType.COMMIT, ControlRecordType.ABORT, None])
def test_offsets_of_a_transaction_count_when_it_is_committed(outcome: ControlRecordType | None) -> None:
    before, inside = CommittedOffset(1), CommittedOffset(8)
    batches = [
        offsets_at(0, {T0: before}),
        offsets_at(1, {T0: inside}, producer_id=5, producer_epoch=0, base_sequence=0, transactional=True),
    ]
    if outcome is not None:
        marker = EndTransactionMarker(outcome, 0)
        batches.append(encode_end_transaction_batch(marker, producer_id=5, producer_epoch=0, timestamp_ms=6))
    _, groups = load(*batches)
    offsets = groups["g"].offsets
    assert offsets.get(T0) == (inside if outcome is ControlRecordType.COMMIT else before)
    assert offsets.is_unstable(T0) == (outcome is None)
    if outcome is None:
        offsets.end_transaction(5, is_commit=True)
        assert offsets.get(T0) == inside


def test_a_record_that_cannot_be_read_is_skipped(caplog: pytest.LogCaptureFixture) -> None:
    good = offset_records("g", {T0: CommittedOffset(1)}, 5, IBP)
    bad = [
        Record(timestamp_ms=5, key=None, value=b""),
        Record(timestamp_ms=5, key=b"\x00\x01\x00\x7f", value=b""),
        Record(timestamp_ms=5, key=b"\x00\x07new", value=b"x"),
        Record(timestamp_ms=5, key=good[0].key, value=b"\x00\x09"),
    ]
    with caplog.at_level(logging.WARNING):
        loader, groups = load(encode_batch([*bad, *good], base_offset=100))
    assert loader.skipped == 3
    assert [f"offset={offset}" in caplog.text for offset in (100, 101, 103)] == [True] * 3
    assert "Unknown message key with version 7" in caplog.text
    assert groups["g"].offsets.get(T0) == CommittedOffset(1)
