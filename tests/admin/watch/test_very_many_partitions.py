"""The ends and logs of very many partitions: they take little memory, and say what plain dictionaries would say."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Iterable
from dataclasses import replace

import pytest
from fake_cluster import big_cluster
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.watch.frame import Frame, PartitionOffsets
from engine.admin.watch.packed_logs import LogEnds, LogsMaker, ReplicaLogs
from engine.common.model import TopicPartition
from engine.common.snapshot import ReplicaLog

EVERY_NAME = [TopicPartition(topic, partition) for topic in "abcd" for partition in range(-1, 6)]
NAMES = st.builds(TopicPartition, st.sampled_from(["a", "b", "c"]), st.integers(0, 4))
ENDS = st.dictionaries(NAMES, st.integers(0, 3), max_size=10)
LOGS = st.dictionaries(
    NAMES,
    st.lists(
        st.builds(
            ReplicaLog,
            st.integers(1, 3),
            st.sampled_from(["/d1", "/d2"]),
            st.integers(0, 2),
            st.integers(-1, 1),
            st.booleans(),
        ),
        min_size=1,
        max_size=3,
        unique_by=lambda log: (log.broker, log.is_future),
    ),
    max_size=8,
)


@given(st.lists(ENDS, max_size=4))
def test_ends_are_those_of_a_plain_dictionary(readings: list[dict[TopicPartition, int]]) -> None:
    ends, plain = LogEnds(), dict[TopicPartition, PartitionOffsets]()
    for at_ms, reading in enumerate(readings):
        ends = ends.with_ends((name, end, at_ms) for name, end in reading.items())
        plain |= {name: PartitionOffsets(end, at_ms) for name, end in reading.items()
                  if name not in plain or plain[name].end != end}  # fmt: skip
        assert ends == plain and set(ends) == set(plain) and len(ends) == len(plain)
        assert all(ends.end(name) == (plain[name].end if name in plain else None) for name in EVERY_NAME)
        assert ends.total == sum(row.end for row in plain.values())
        assert LogEnds.of(plain) == ends
    assert ends.get(TopicPartition("a", 5)) is None and ends.get(TopicPartition("d", 0)) is None


@given(ENDS, ENDS)
def test_what_ends_have_grown_by(first: dict[TopicPartition, int], second: dict[TopicPartition, int]) -> None:
    before = LogEnds().with_ends((name, end, 1) for name, end in first.items())
    now = LogEnds().with_ends((name, end, 2) for name, end in second.items())
    for topic in ("a", "b", "c"):
        grown = dict(enumerate(now.grown(topic, before)))
        for partition in range(5):
            name = TopicPartition(topic, partition)
            known = second[name] - first[name] if name in first and name in second else None
            assert grown.get(partition) == known


@given(ENDS)
def test_ends_of_partitions_that_are_gone_can_be_left_out(told: dict[TopicPartition, int]) -> None:
    ends = LogEnds().with_ends((name, end, 1) for name, end in told.items())
    assert set(ends.only({"a": 2, "b": 0})) == {name for name in told if name.topic == "a" and name.partition < 2}
    assert ends.only({"a": 5, "b": 5, "c": 5}) is ends


@given(LOGS)
def test_logs_are_those_of_a_plain_dictionary(told: dict[TopicPartition, list[ReplicaLog]]) -> None:
    logs = ReplicaLogs.of(told)
    plain = {name: tuple(sorted(kept, key=lambda log: (log.broker, log.is_future))) for name, kept in told.items()}
    assert logs == plain and set(logs) == set(plain) and len(logs) == len(plain)
    for name, kept in plain.items():
        assert list(logs.numbers(name)) == [
            (log_dir.broker, log_dir.is_future, log_dir.size_bytes, log_dir.offset_lag) for log_dir in kept
        ]
    assert not list(logs.numbers(TopicPartition("a", 5))) and not list(logs.numbers(TopicPartition("d", 0)))
    assert sorted(map(repr, logs.logs())) == sorted(
        repr((name.topic, name.partition, log)) for name, kept in told.items() for log in kept
    )
    for topic in ("a", "b", "c", "d"):
        known = [log.size_bytes for name, kept in told.items() if name.topic == topic for log in kept]
        assert logs.topic_bytes(topic) == (sum(known) if known else None)
    assert logs.get(TopicPartition("a", 5)) is None and logs.get(TopicPartition("d", 0)) is None


def test_what_did_not_change_is_shared_with_the_frame_before() -> None:
    first = LogEnds().with_ends([(TopicPartition("still", 0), 5, 1), (TopicPartition("busy", 0), 5, 1)])
    second = first.with_ends([(TopicPartition("still", 0), 5, 2), (TopicPartition("busy", 0), 6, 2)])
    assert second.by_topic["still"] is first.by_topic["still"] and first[TopicPartition("busy", 0)].end == 5

    def made(sizes: Iterable[tuple[str, int]], before: ReplicaLogs) -> ReplicaLogs:
        making = LogsMaker()
        for topic, size in sizes:
            making.add(topic, 0, ReplicaLog(1, "/d", size))
        return making.made(before)

    old = made([("still", 1), ("busy", 1)], ReplicaLogs())
    new = made([("still", 1), ("busy", 2)], old)
    assert new.by_topic["still"] is old.by_topic["still"] and old[TopicPartition("busy", 0)][0].size_bytes == 1


@pytest.mark.parametrize("is_kept", [False, True])
def test_a_frame_in_which_all_ends_have_moved_takes_twenty_bytes_for_each_partition(is_kept: bool) -> None:
    """Six earlier frames are kept for rates. As values of their own, the ends took 140 bytes for each partition."""
    partitions, frames = 5_000, 5
    cluster = big_cluster(12, 100, partitions)
    cluster.frame()
    cluster.advance()
    kept: list[Frame] = [cluster.frame()]
    gc.collect()
    tracemalloc.start()
    try:
        before_bytes = tracemalloc.get_traced_memory()[0]
        for _ in range(frames):
            cluster.advance()
            frame = cluster.frame()
            if is_kept:
                kept.append(replace(frame, cluster=None, logs={}))
        gc.collect()
        grown = (tracemalloc.get_traced_memory()[0] - before_bytes) / partitions
    finally:
        tracemalloc.stop()
    assert grown < (frames * 20 if is_kept else 20), grown
