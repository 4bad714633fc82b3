"""Which offsets a batch reads, in which pieces, and when a stream's batch is delayed: the rules, without a broker."""

from __future__ import annotations

import subprocess
import sys
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.cluster.errors import BadRequest, Refused, Unreachable
from engine.common.errors import ErrorCode
from engine.common.model import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP, IsolationLevel, TopicPartition
from engine.spark import broker_offsets
from engine.spark.broker_offsets import Bounds
from engine.spark.kafka_options import chosen_columns, schema_text, source_options
from engine.spark.offset_ranges import (
    OffsetRange,
    count_between,
    from_json,
    limited,
    ranges_between,
    split,
    to_json,
)
from engine.spark.source import StreamPlan

A, B, C = (TopicPartition("t", number) for number in range(3))
GIVEN = {"kafka.bootstrap.servers": "127.0.0.1:1", "subscribe": "t"}
SINK = {"kafka.bootstrap.servers": "127.0.0.1:1", "topic": "t"}


def refuse(what: str) -> None:
    raise AssertionError(what)


def test_positions_are_written_in_spark_s_own_form() -> None:
    offsets = {TopicPartition("b", 10): 1, TopicPartition("b", 9): 2, TopicPartition("a", 0): 3}
    document = to_json(offsets)
    assert list(document.items()) == [("a", {"0": 3}), ("b", {"9": 2, "10": 1})]
    assert from_json(document) == offsets
    for foreign in ({"logOffset": 1}, {"t": {"x": 1}}, {"t": [1]}):
        with pytest.raises(BadRequest, match="holds no Kafka offsets"):
            from_json(foreign)  # type: ignore[arg-type]


def test_a_batch_reads_what_lies_between() -> None:
    ranges = ranges_between({A: 5, B: 7}, {A: 9, B: 7, C: 4}, {A: 0, B: 0, C: 2}, refuse)
    assert ranges == [OffsetRange("t", 0, 5, 9), OffsetRange("t", 2, 2, 4)], "a new partition begins where its log does"


@pytest.mark.parametrize(
    ("start", "stop", "earliest", "expected", "left"),
    [
        ({A: 3}, {A: 9}, {A: 6}, "needed from offset 3 on, the first is now 6", [(6, 9)]),
        ({A: 3}, {A: 5}, {A: 8}, "needed from offset 3 on", []),
        ({A: 8}, {A: 5}, {A: 8}, "needed up to offset 5, the first is now 8", []),
        ({A: 9}, {A: 2}, {A: 0}, "went back from offset 9 to 2", []),
        ({A: 1, B: 1}, {A: 2}, {A: 0}, "gone: t-1", [(1, 2)]),
    ],
)
def test_what_is_lost_is_told(
    start: dict[Any, int], stop: dict[Any, int], earliest: dict[Any, int], expected: str, left: list[Any]
) -> None:
    losses: list[str] = []
    ranges = ranges_between(start, stop, earliest, losses.append)
    assert len(losses) == 1 and expected in losses[0]
    assert [(loss.start, loss.stop) for loss in ranges] == left


@given(
    st.lists(st.integers(1, 5000), min_size=1, max_size=6),
    st.one_of(st.none(), st.integers(1, 40)),
    st.one_of(st.none(), st.integers(1, 2000)),
)
def test_pieces_cover_their_range(sizes: list[int], least: int | None, most: int | None) -> None:
    ranges = [OffsetRange("t", number, 100, 100 + size) for number, size in enumerate(sizes)]
    pieces = split(ranges, least, most)
    for number, size in enumerate(sizes):
        edges = [(piece.start, piece.stop) for piece in pieces if piece.partition == number]
        assert edges[0][0] == 100 and edges[-1][1] == 100 + size
        assert all(left[1] == right[0] for left, right in pairwise(edges))
    assert all(piece.count > 0 for piece in pieces)
    if most is not None:
        assert max(piece.count for piece in pieces) <= most
    if least is not None and sum(sizes) >= 50 * least:
        assert len(pieces) >= min(least, sum(sizes))


@given(st.lists(st.tuples(st.integers(0, 50), st.integers(0, 3000)), min_size=1, max_size=5), st.integers(1, 1000))
def test_a_limit_is_shared_out_and_every_partition_goes_on(sizes: list[tuple[int, int]], most: int) -> None:
    start = {TopicPartition("t", number): begin for number, (begin, _) in enumerate(sizes)}
    latest = {TopicPartition("t", number): begin + size for number, (begin, size) in enumerate(sizes)}
    ends = limited(start, latest, {}, most)
    assert all(start[name] <= ends[name] <= latest[name] for name in latest)
    assert all(ends[name] > start[name] for name in latest if latest[name] > start[name]), "nobody starves"
    waiting = sum(latest[name] > start[name] for name in latest)
    assert count_between(start, ends, {}) <= max(most, most + waiting)
    if sum(size for _, size in sizes) <= most:
        assert ends == latest


class Clock:
    now = 100.0

    def __call__(self) -> float:
        return self.now


def stream(
    monkeypatch: pytest.MonkeyPatch, latest: dict[TopicPartition, int], **options: str
) -> tuple[StreamPlan, Clock]:
    clock = Clock()
    plan = StreamPlan({**GIVEN, "startingOffsets": "earliest", **options}, ("value",), clock)
    monkeypatch.setattr(StreamPlan, "_look", lambda self: Bounds(dict.fromkeys(latest, 0), dict(latest)))
    return plan, clock


def test_a_batch_waits_until_enough_is_there(monkeypatch: pytest.MonkeyPatch) -> None:
    latest = {A: 10}
    plan, clock = stream(monkeypatch, latest, minOffsetsPerTrigger="100", maxTriggerDelay="30s")
    assert plan.latest(to_json({A: 0}), least=100) == to_json({A: 10}), "the first batch does not wait"
    latest[A] = 60
    start = to_json({A: 10})
    assert plan.latest(start, least=100) == start
    assert plan.known_latest() == to_json({A: 60})
    clock.now += 29.9
    assert plan.latest(start, least=100) == start
    clock.now += 0.2
    assert plan.latest(start, least=100) == to_json({A: 60}), "the delay is over"
    latest[A] = 200
    assert plan.latest(to_json({A: 60}), least=100) == to_json({A: 200}), "enough is there"


def test_a_frozen_end_does_not_move(monkeypatch: pytest.MonkeyPatch) -> None:
    latest = {A: 10, B: 10}
    plan, _ = stream(monkeypatch, latest, minOffsetsPerTrigger="100")
    plan.freeze()
    latest[A] = 500
    assert plan.latest(to_json({A: 0, B: 0}), most=10, least=100) == to_json({A: 5, B: 5})
    assert plan.latest(to_json({A: 5, B: 5}), least=100) == to_json({A: 10, B: 10}), "the last batch waits for nobody"


def test_a_moving_beginning_is_nothing_until_a_batch_has_it(monkeypatch: pytest.MonkeyPatch) -> None:
    for options in ({}, {"startingOffsets": "latest"}, {"startingOffsets": '{"t": {"0": 4, "1": -1}}'}):
        plan = StreamPlan({**GIVEN, **options}, ("value",))
        assert plan.options.start.is_moving
        assert plan.initial() == {}
        assert plan.pieces({}, to_json({A: 4, B: 9})) == []
    for fixed in ("earliest", '{"t": {"0": 4, "1": -2}}'):
        assert not source_options({**GIVEN, "startingOffsets": fixed}, is_streaming=True).start.is_moving


def test_options_of_the_connector() -> None:
    options = source_options({**GIVEN, "kafka.isolation.level": "read_committed"}, is_streaming=False)
    assert (options.start.rule, options.end.rule) == (EARLIEST_TIMESTAMP, LATEST_TIMESTAMP)
    assert options.isolation is IsolationLevel.READ_COMMITTED
    assert source_options(GIVEN, is_streaming=True).start.rule == LATEST_TIMESTAMP
    both = {**GIVEN, "startingOffsets": "earliest", "startingTimestamp": "5"}
    assert source_options(both, is_streaming=True).start.timestamp == 5, "the more exact one wins"
    assigned = {"kafka.bootstrap.servers": "a:1", "assign": '{"t": [2, 0]}'}
    assert source_options(assigned, is_streaming=True).assigned == (C, A)


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("startingOffsets", "sometime", "startingOffsets is neither"),
        ("startingOffsets", '{"t": [1]}', "startingOffsets must be topics with a number"),
        ("endingOffsets", "earliest", "endingOffsets cannot be earliest"),
        ("endingOffsets", '{"t": {"0": -2}}', "endingOffsets cannot be -2"),
        ("minPartitions", "0", "minPartitions must be a whole number above 0"),
        ("failOnDataLoss", "yes", "failOnDataLoss must be true or false"),
        ("kafka.isolation.level", "serializable", "kafka.isolation.level must be"),
        ("kafka.auto.offset.reset", "latest", "the option startingOffsets says where to begin"),
        ("kafka.enable.auto.commit", "true", "the source commits nothing"),
        ("startingOffsetsByTimestampStrategy", "maybe", "must be error or latest"),
        ("maxOffsetsPerTrigger", "5", "is for a stream"),
        ("mispelt", "1", "no such option: mispelt"),
    ],
)
def test_options_that_make_no_sense(name: str, value: str, expected: str) -> None:
    with pytest.raises(BadRequest, match=expected):
        source_options({**GIVEN, name: value}, is_streaming=False)


@pytest.mark.parametrize("name", ["endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"])
def test_a_stream_has_no_end(name: str) -> None:
    with pytest.raises(BadRequest, match="is for a batch"):
        source_options({**GIVEN, name: "latest"}, is_streaming=True)


def test_brokers_and_columns_are_asked_for_by_name() -> None:
    with pytest.raises(BadRequest, match=r"kafka\.bootstrap\.servers is missing"):
        source_options({"subscribe": "t"}, is_streaming=True)
    assert "headers" not in schema_text(GIVEN)
    assert schema_text({**GIVEN, "includeHeaders": "true"}).endswith("headers array<struct<key:string,value:binary>>")
    assert chosen_columns([("offset", "bigint"), ("key", "binary")]) == ("offset", "key")
    with pytest.raises(BadRequest, match="no column offset of type int"):
        chosen_columns([("offset", "int")])


class Wire:
    """Replaces the connections to a cluster."""

    made: list[Wire]

    def __init__(self, *_: object, **__: object) -> None:
        self.made.append(self)
        self.is_closed = False

    async def close(self) -> None:
        self.is_closed = True


def test_connections_stay_open_between_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Wire, "made", [], raising=False)
    monkeypatch.setattr(broker_offsets, "WireCluster", Wire)
    asker = broker_offsets.Asker(source_options(GIVEN, is_streaming=True).connection)
    failures: list[Exception] = []

    async def question(wire: Any) -> Any:
        assert not wire.is_closed
        if failures:
            raise failures.pop()
        return wire

    assert asker.ask(question) is asker.ask(question) is Wire.made[0]
    failures += [Unreachable("the connection broke")]
    assert asker.ask(question) is Wire.made[1], "it is asked again over a new one"
    failures += [Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED)]
    with pytest.raises(Refused):
        asker.ask(question)
    asker.ask(question)
    asker.close()
    assert [wire.is_closed for wire in Wire.made] == [True] * 3


def test_spark_s_processes_that_only_ask_import_nothing_that_reads() -> None:
    """Spark starts one for the columns and one for the reader or writer of each query, and waits for them."""
    program = f"""
import sys
from pyspark.sql.types import StructType
from klamm.spark import KafkaDataSource

source = KafkaDataSource({GIVEN})
source.schema()
source.streamReader(StructType().add("value", "binary"))
KafkaDataSource({SINK}).writer(StructType().add("value", "binary"), False)
early = ("numpy", "cramjam", "engine.kafka.client.broker_client", "engine.spark.source")
print([name for name in early if name in sys.modules])
import engine.spark.source
print([name for name in ("numpy", "cramjam", "engine.spark.columns") if name in sys.modules])
"""
    ran = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert ran.stdout == "[]\n[]\n"
