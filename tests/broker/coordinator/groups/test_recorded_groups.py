"""What Apache Kafka 3.9.1 wrote into ``__consumer_offsets`` is what we would have written, byte for byte."""

from __future__ import annotations

from pathlib import Path

import pytest

from engine.broker.coordinator.groups.commit_gathering import commit_batch
from engine.broker.coordinator.groups.group import GroupState
from engine.broker.coordinator.groups.loading import GroupLoader
from engine.broker.coordinator.groups.records import (
    batch_of,
    committed_offset,
    group_of,
    group_record,
    group_tombstone,
    offset_tombstones,
)
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.formats.consumer_offsets import (
    GroupMetadataKey,
    GroupMetadataValue,
    OffsetCommitKey,
    OffsetCommitValue,
    decode_key,
    decode_value,
)
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

IBP = parse_metadata_version("3.9")
FIXTURES = Path(__file__).parents[4] / "fixtures" / "disk"
LOGS = sorted(FIXTURES.glob("*/data/__consumer_offsets-0/*.log"))


def rewritten(records: list[Record]) -> bytes:
    """Write a batch with the same content, as our coordinator does."""
    now_ms = records[0].timestamp_ms
    offsets, removed, groups = {}, {}, []
    for record in records:
        assert record.key is not None
        key = decode_key(record.key)
        value = decode_value(key, record.value)
        if isinstance(key, OffsetCommitKey):
            partition = TopicPartition(key.topic, key.partition)
            if isinstance(value, OffsetCommitValue):
                offsets[key.group, partition] = committed_offset(value)
            else:
                removed[key.group, partition] = None
        elif isinstance(value, GroupMetadataValue) and isinstance(key, GroupMetadataKey):
            group = group_of(key.group, value, now_ms)
            assignments = {m.member_id: m.assignment for m in group.members.values()}
            groups.append(group_record(group, assignments, now_ms, IBP))
        elif isinstance(key, GroupMetadataKey):
            groups.append(group_tombstone(key.group, now_ms))
    if offsets:
        assert not removed and not groups
        (group_id,) = {group for group, _ in offsets}
        return bytes(commit_batch([(group_id, {p: v for (_, p), v in offsets.items()})], now_ms, Codec.NONE, IBP))
    tombstones = [t for group, partition in removed for t in offset_tombstones(group, [partition], now_ms)]
    return bytes(batch_of([*tombstones, *groups], Codec.NONE))


@pytest.mark.parametrize("path", LOGS, ids=lambda path: path.parents[2].name)
def test_batches_are_the_same_bytes(path: Path) -> None:
    data = path.read_bytes()
    compared = 0
    for position, header in iter_batches(data):
        if header.is_control or header.is_transactional:
            continue
        ours = rewritten(list(iter_batch_records(data, position, header)))
        kafkas = data[position : position + header.size_bytes]
        # The log stamps the base offset and the leader epoch. The coordinator writes everything else.
        assert ours[8:12] == kafkas[8:12]
        assert ours[16:] == kafkas[16:], f"batch at offset {header.base_offset}"
        compared += 1
    assert compared > 0


def test_the_recorded_folder_is_loaded() -> None:
    (path,) = FIXTURES.glob("clean/data/__consumer_offsets-0/*.log")
    loader = GroupLoader(TopicPartition("__consumer_offsets", 0))
    for _ in loader.read(path.read_bytes()):
        pass
    for _ in loader.finish(1):
        pass
    assert loader.skipped == 0
    groups = loader.loaded
    assert groups["readers"].state is GroupState.EMPTY
    shown = {
        (group_id, *partition): (value.offset, value.metadata)
        for group_id, group in groups.items()
        for partition in group.offsets.partitions
        if (value := group.offsets.get(partition)) is not None
    }
    assert shown[("readers", "codec-gzip", 0)] == (14, "")
    assert not any(group_id == "doomed-group" for group_id, _, _ in shown)
