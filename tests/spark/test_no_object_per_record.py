"""Records become columns, and columns become records, without a Python object for each record."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable, Iterator
from types import CodeType, FrameType
from typing import Any

import pyarrow as pa
import pytest

from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.spark.columns import HEADERS_TYPE, SCHEMA, Frame, decode
from engine.spark.encoding import batches_of, record_columns
from engine.spark.row_batches import key_partitions

RECORDS = 20_000
PER_BATCH = 2_000
"""The most objects that may exist at once: finding the records of a batch needs one number each."""


class Lines:
    """Counts the lines of Python that run inside, and the peak number of objects meanwhile."""

    def __init__(self) -> None:
        self.count = self.most_objects = 0
        self._places: set[tuple[CodeType, int]] = set()

    def __enter__(self) -> Lines:
        gc.collect()
        self._before = sys.getallocatedblocks()
        sys.settrace(self._trace)
        return self

    def __exit__(self, *error: object) -> None:
        sys.settrace(None)

    def _trace(self, frame: FrameType, event: str, argument: object) -> Any:
        self.count += event == "line"
        # Counting walks the whole heap, which is large after many tests: it is done where a line is new, and now and
        # then.
        place = (frame.f_code, frame.f_lineno)
        if place not in self._places or not self.count % (10 if self.count < RECORDS / 4 else 500):
            self._places.add(place)
            self.most_objects = max(self.most_objects, sys.getallocatedblocks() - self._before)
        return self._trace


def chunk(codec: Codec, *, is_mixed: bool) -> bytes:
    """Return batches as producers send them, with records of one size or of many."""
    headers = [("trace", b"1")]
    batches = []
    for base in range(0, RECORDS, PER_BATCH):
        records = [
            Record(number, number, b"%d" % number, b"v" * (number * 7 % 90 if is_mixed else 90), headers)
            for number in range(base + RECORDS, base + RECORDS + PER_BATCH)
        ]
        batches.append(encode_batch(records, base_offset=base + RECORDS, codec=codec))
    return b"".join(batches)


def decoded(data: bytes) -> Iterator[int]:
    """Yield how many records each Arrow batch has, without keeping the batch."""
    for batch in decode(data, Frame("orders", 0, 0, 1 << 60, tuple(SCHEMA.names)), ()):
        yield batch.num_rows


def encoded(rows: pa.RecordBatch) -> Iterator[int]:
    """Yield how many records each batch has that the sink would send."""
    for _, section in batches_of(record_columns(rows), key_partitions(rows.column("key"), 7), 1 << 20, 0):
        encode_batch(section)
        yield section.record_count


def run(made: Callable[[], Iterator[int]]) -> Lines:
    assert sum(made()) == RECORDS, "what is imported and kept at first is there from now on"
    with Lines() as lines:
        for _ in made():
            pass
    return lines


@pytest.mark.parametrize("codec", list(Codec))
def test_reading_records_of_one_size(codec: Codec) -> None:
    data = chunk(codec, is_mixed=False)
    lines = run(lambda: decoded(data))
    assert lines.count < RECORDS / 4
    assert lines.most_objects < PER_BATCH


def test_reading_records_of_many_sizes() -> None:
    """A loop finds where each record begins: one number each, until the batch is done."""
    data = chunk(Codec.NONE, is_mixed=True)
    assert run(lambda: decoded(data)).most_objects < 2 * PER_BATCH


@pytest.mark.parametrize("has_headers", [False, True])
def test_writing(has_headers: bool) -> None:
    columns = {
        "key": pa.array([b"%d" % number for number in range(RECORDS)], pa.binary()),
        "value": pa.array([b"v" * (number * 7 % 90) for number in range(RECORDS)], pa.binary()),
    }
    if has_headers:
        columns["headers"] = pa.array([[{"key": "trace", "value": b"1"}]] * RECORDS, HEADERS_TYPE)
    rows = pa.record_batch(columns)
    lines = run(lambda: encoded(rows))
    assert lines.count < RECORDS / 4
    assert lines.most_objects < PER_BATCH


def test_an_object_per_record_would_be_seen() -> None:
    def made() -> Iterator[int]:
        numbers = [object() for _ in range(RECORDS)]
        yield len(numbers)

    lines = run(made)
    assert lines.count > RECORDS
    assert lines.most_objects > RECORDS
