"""Rows to be sent: cutting and sorting loses none, and each goes to its topic and partition."""

from __future__ import annotations

import itertools
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.cluster.errors import BadRequest
from engine.admin.records.partitioner import partition_for_key
from engine.spark.encoding import record_columns
from engine.spark.row_batches import by_topic, even_parts, partitions_of


class Producer:
    """Seven partitions. Batches of rows without a key go to 6, 5, 4…"""

    partition_count = 7

    def sticky_partitions(self, batch_count: int) -> list[int]:
        return [6 - number % 7 for number in range(batch_count)]


def partitions(rows: pa.RecordBatch, batch_bytes: int = 1 << 20) -> list[int]:
    producer: Any = Producer()
    numbers: list[int] = partitions_of(rows, record_columns(rows), producer, batch_bytes).tolist()
    return numbers


@given(
    sizes=st.lists(st.lists(st.integers(0, 300), max_size=30), max_size=8),
    size_bytes=st.sampled_from([1, 500, 100_000]),
)
def test_parts_have_all_rows_in_their_order(sizes: list[list[int]], size_bytes: int) -> None:
    batches = [pa.record_batch({"value": pa.array([b"x" * size for size in some], pa.binary())}) for some in sizes]
    parts = list(even_parts(batches, size_bytes))
    assert [len(value) for part in parts for value in part.column(0).to_pylist()] == [
        size for some in sizes for size in some
    ]
    assert all(part.num_rows for part in parts)


def test_parts_are_about_as_large_as_wanted() -> None:
    small = [pa.record_batch({"value": [b"x" * 100] * 10})] * 100
    large = pa.record_batch({"value": [b"x" * 100] * 10_000})
    counts = [part.num_rows for part in even_parts([*small, large], 50_000)]
    assert sum(counts) == 11_000
    assert max(counts) <= 500
    assert all(sum(pair) > 450 for pair in itertools.pairwise(counts)), "two parts that go together are one"


def test_rows_by_topic() -> None:
    rows = pa.record_batch({"topic": ["a", "b", "a"], "value": [b"1", b"2", b"3"]})
    assert [(topic, some.column("value").to_pylist()) for topic, some in by_topic(rows)] == [
        ("a", [b"1", b"3"]),
        ("b", [b"2"]),
    ]


@pytest.mark.parametrize("topic", [None, ""])
def test_a_row_without_a_topic_is_refused(topic: str | None) -> None:
    with pytest.raises(BadRequest, match="a row has no topic"):
        list(by_topic(pa.record_batch({"topic": ["a", topic], "value": [b"1", b"2"]})))


def test_the_column_wins_over_the_key_and_the_key_over_chance() -> None:
    rows = pa.record_batch(
        {
            "partition": pa.array([3, None, None, 0], pa.int32()),
            "key": [b"k", b"k", None, None],
            "value": [b"v"] * 4,
        }
    )
    assert partitions(rows) == [3, partition_for_key(b"k", 7), 6, 0]


def test_rows_without_key_move_on_when_a_batch_is_full() -> None:
    rows = pa.record_batch({"key": pa.array([None, None, b"k", None, None], pa.binary()), "value": [b"x" * 68] * 5})
    assert partitions(rows, batch_bytes=200) == [6, 6, partition_for_key(b"k", 7), 5, 5]
