"""Both fast paths match the plain ones: a commit's batch to the byte, a log of commits offset by offset."""

from __future__ import annotations

from dataclasses import dataclass

import pytest
from coordinator_world import offset_records
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.broker.coordinator.groups.commit_form import CommittedOffset
from engine.broker.coordinator.groups.commit_gathering import commit_batch
from engine.broker.coordinator.groups.loading import CommitScan, GroupLoader
from engine.broker.coordinator.groups.records import (
    OFFSETS_BASE_SEQUENCE,
    committed_offset,
    offset_tombstones,
)
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.formats.consumer_offsets import OffsetCommitKey, OffsetCommitValue, decode_key, decode_value
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.encode import encode_batch

IBP = parse_metadata_version("3.9")
PARTITIONS = [TopicPartition(topic, index) for topic in ("t", "long-" * 40, "ü") for index in (0, 1, 300)]
GROUPS = ["g", "group-" * 20, "größe"]

offsets = st.builds(
    CommittedOffset,
    offset=st.integers(-1, 2**63 - 1),
    metadata=st.sampled_from(["", "", "", "text", "ä" * 100]),
    leader_epoch=st.integers(-1, 100),
    commit_timestamp_ms=st.integers(0, 2**50),
    expire_timestamp_ms=st.sampled_from([None, None, None, 2**41]),
)
commits = st.dictionaries(st.sampled_from(PARTITIONS), offsets, min_size=1, max_size=6)


@given(
    st.lists(st.tuples(st.sampled_from(GROUPS), commits), min_size=1, max_size=3),
    st.sampled_from(["3.9", "2.1-IV0", "2.0"]),
    st.sampled_from(list(Codec)),
    st.sampled_from([None, (0, 0), (2**63 - 1, 2**15 - 1)]),
)
def test_a_batch_of_commits(
    gathered: list[tuple[str, dict[TopicPartition, CommittedOffset]]],
    ibp: str,
    codec: Codec,
    producer: tuple[int, int] | None,
) -> None:
    version = parse_metadata_version(ibp)
    records = [record for group, commit in gathered for record in offset_records(group, commit, 1_000, version)]
    producer_id, epoch = producer or (-1, -1)
    expected = encode_batch(
        records,
        codec=codec,
        base_sequence=OFFSETS_BASE_SEQUENCE,
        producer_id=producer_id,
        producer_epoch=epoch,
        transactional=producer is not None,
    )
    batch = commit_batch(gathered, 1_000, codec, version, producer_id=producer_id, producer_epoch=epoch)
    assert bytes(batch) == expected


@dataclass
class Step:
    """One batch of a log: commits of some groups, or tombstones."""

    groups: list[str]
    commit: dict[TopicPartition, CommittedOffset]
    is_removal: bool
    codec: Codec
    gap: int


plain = st.builds(
    CommittedOffset, st.integers(0, 1000), st.just(""), st.integers(0, 3), st.integers(0, 2**50), st.none()
)
SHAPES = [PARTITIONS[:1], PARTITIONS[1:2], PARTITIONS[:3], PARTITIONS[5:2:-1]]
same_shapes = st.sampled_from(SHAPES).flatmap(lambda shape: st.fixed_dictionaries(dict.fromkeys(shape, plain)))
"""What clients send again and again: the same partitions, no metadata."""

steps = st.builds(
    Step,
    # In a batch of many records the later ones have offset deltas of two bytes.
    groups=st.one_of(
        st.sampled_from(GROUPS).map(lambda g: [g]), st.lists(st.sampled_from(GROUPS), min_size=2, max_size=40)
    ),
    commit=st.one_of(same_shapes, same_shapes, same_shapes, commits),
    is_removal=st.sampled_from([False] * 5 + [True]),
    codec=st.sampled_from([Codec.NONE] * 5 + [Codec.GZIP]),
    gap=st.sampled_from([0, 0, 0, 7]),
)


def batches_of(log: list[Step]) -> list[bytes]:
    """Write the log, with the gaps that a cleaner leaves."""
    base_offset, batches = 0, []
    for step in log:
        records = [r for group in step.groups for r in offset_records(group, step.commit, 1_000, IBP)]
        if step.is_removal:
            records = offset_tombstones(step.groups[0], step.commit, 1_000)
        base_offset += step.gap
        batches.append(encode_batch(records, base_offset=base_offset, codec=step.codec, base_sequence=0))
        base_offset += len(records)
    return batches


def read_plainly(batches: list[bytes]) -> dict[tuple[str, TopicPartition], CommittedOffset]:
    """Read every record by itself; the last record of each key counts."""
    offsets: dict[tuple[str, TopicPartition], CommittedOffset] = {}
    for record in iter_records(b"".join(batches)):
        assert record.key is not None
        key = decode_key(record.key)
        assert isinstance(key, OffsetCommitKey)
        name = (key.group, TopicPartition(key.topic, key.partition))
        value = decode_value(key, record.value)
        if isinstance(value, OffsetCommitValue):
            offsets[name] = committed_offset(value)
        else:
            offsets.pop(name, None)
    return offsets


@settings(max_examples=80, deadline=None)
@given(st.lists(steps, max_size=40), st.integers(1, 5))
def test_a_log_of_commits(log: list[Step], buffers: int) -> None:
    batches = batches_of(log)
    loader = GroupLoader(TopicPartition("__consumer_offsets", 0))
    for start in range(0, len(batches), buffers):
        # Each buffer ends within a batch, as reads of a file do.
        part = (
            b"".join(batches[start : start + buffers]) + b"".join(batches[start + buffers : start + buffers + 1])[:70]
        )
        for _ in loader.read(part):
            pass
    for _ in loader.finish(1):
        pass
    loaded = {
        (group_id, partition): group.offsets.get(partition)
        for group_id, group in loader.loaded.items()
        for partition in group.offsets.partitions
    }
    assert loaded == read_plainly(batches)
    assert loader.skipped == 0
    counts = [len(step.commit) * (1 if step.is_removal else len(step.groups)) for step in log]
    assert loader.next_offset == sum(step.gap for step in log) + sum(counts)
    assert loader.record_count == sum(counts)


@pytest.mark.parametrize("groups", [["g"], ["other", "g"]], ids=["alone", "with another"])
@pytest.mark.parametrize("damage", ["length of the text", "headers", "version"])
def test_a_damaged_record_between_plain_ones_is_skipped(damage: str, groups: list[str]) -> None:
    partition, count = PARTITIONS[0], len(groups)
    batches = [
        bytearray(
            encode_batch(
                [r for g in groups for r in offset_records(g, {partition: CommittedOffset(n, "", 0, 9)}, 9, IBP)],
                base_offset=n * count,
            )
        )
        for n in range(4)
    ]
    place = {"length of the text": -10, "headers": -1, "version": -24}[damage]
    batches[3][place] = 0x7F
    loader = GroupLoader(TopicPartition("__consumer_offsets", 0))
    for _ in loader.read(b"".join(batches)):
        pass
    for _ in loader.finish(1):
        pass
    assert (loader.skipped, loader.next_offset) == (1, 4 * count)
    kept = loader.loaded["g"].offsets.get(partition)
    assert kept is not None and kept.offset == 2


@given(st.lists(steps, min_size=1, max_size=3), st.data())
def test_damaged_bytes_never_lead_the_scan_back_or_astray(log: list[Step], data: st.DataObject) -> None:
    batches = batches_of([step for step in log if not step.is_removal]) or batches_of(log)
    buffer = bytearray(b"".join(batches))
    for _ in range(data.draw(st.integers(1, 4))):
        buffer[data.draw(st.integers(0, len(buffer) - 1))] = data.draw(st.sampled_from([0, 0x7F, 0x80, 0xFF]))
    scan, position = CommitScan(), 0
    while (ended := scan.take(bytes(buffer), position, 1)) != position:
        assert position < ended <= len(buffer)
        position = ended
    # The scan can list all that it took: no tail is cut off.
    assert len(list(scan.left())) <= scan.record_count
