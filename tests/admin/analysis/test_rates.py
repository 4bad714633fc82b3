"""How many records a second arrive, each figure counted by hand."""

from __future__ import annotations

from dataclasses import replace

import pytest
from fake_cluster import FakeCluster

from engine.admin.analysis import rates as module
from engine.admin.analysis.rates import Rates
from engine.admin.watch.frame import Frame, PartitionOffsets, Stage, StageStatus
from engine.common.model import TopicPartition

A0, A1, B0 = TopicPartition("a", 0), TopicPartition("a", 1), TopicPartition("b", 0)
CLUSTER = FakeCluster(3, {"a": 2, "b": 1}).frame().cluster
LEADERS = {A0: 1, A1: 2, B0: 2}


def frame(at_s: float, ends: dict[TopicPartition, int], read_at_s: float | None = None) -> Frame:
    """Return a frame with the ends of logs, which were read at once unless a time is given."""
    read_at_ms = round((at_s if read_at_s is None else read_at_s) * 1000)
    return Frame(
        sequence=round(at_s * 1000),
        at_ms=round(at_s * 1000),
        stages={Stage.OFFSETS: StageStatus(read_at_ms=read_at_ms if ends else None)},
        cluster=CLUSTER,
        offsets={name: PartitionOffsets(end, read_at_ms) for name, end in ends.items()},
    )


def after(*frames: Frame) -> Rates:
    rates = Rates()
    for frame in frames:
        rates.take(frame)
    return rates


@pytest.mark.parametrize(
    ("frames", "in_all", "a0", "by_topic", "by_broker"),
    [
        pytest.param([frame(1, {A0: 5})], None, None, {"a": None}, {}, id="one reading"),
        pytest.param([frame(1, {}), frame(2, {})], None, None, {"a": None}, {}, id="no end is known"),
        pytest.param([frame(1, {}), frame(2, {A0: 5})], None, None, {"a": None}, {}, id="the first ends"),
        pytest.param(
            [frame(1, {A0: 10, A1: 20, B0: 30}), frame(3, {A0: 30, A1: 20, B0: 36})],
            13, 10, {"a": 10, "b": 3}, {1: 10, 2: 3, 3: 0}, id="what grew, over the seconds between",
        ),
        pytest.param(
            [frame(1, {A0: 10}, 1), frame(3, {A0: 30}, 2)],
            20, 20, {"a": 20}, {1: 20, 2: 0, 3: 0}, id="the time is that of the readings, not of the frames",
        ),
        pytest.param(
            [frame(1, {A0: 10}, 1), frame(3, {A0: 10}, 1)],
            None, None, {"a": None}, {}, id="the same reading in two frames",
        ),
        pytest.param(
            [frame(1, {A0: 10}), frame(2, {A0: 14, A1: 1_000})],
            4, 4, {"a": 4, "b": None}, {1: 4, 2: 0, 3: 0}, id="a partition that is new has no rate",
        ),
        pytest.param(
            [frame(1, {A0: 10, B0: 1_000}), frame(2, {A0: 14})],
            4, 4, {"a": 4, "b": None}, {1: 4, 2: 0, 3: 0}, id="a partition without a leader has no rate",
        ),
        pytest.param(
            [frame(1, {A0: 50, A1: 10}), frame(2, {A0: 20, A1: 14})],
            0, 0, {"a": 4}, {1: 0, 2: 4, 3: 0}, id="a log that was cut brings no negative rate",
        ),
        pytest.param(
            [frame(second, {A0: 10 * min(second, 15)}) for second in range(0, 33, 3)],
            0, 0, {"a": 0}, {1: 0, 2: 0, 3: 0}, id="only the last ten seconds count",
        ),
        pytest.param(
            [frame(second, {A0: 11 * min(second, 19)}, min(second, 20)) for second in range(30)],
            10, 10, {"a": 10, "b": None}, {1: 10, 2: 0, 3: 0}, id="until the next reading rates stay over ten seconds",
        ),
        pytest.param(
            [frame(second, {A0: 10 * min(second, 20)}, min(second, 20)) for second in range(32)],
            None, None, {"a": None}, {}, id="ends that nobody can read any more have no rate",
        ),
        pytest.param(
            [frame(50, {A0: 10}), frame(51, {A0: 900}), frame(3, {A0: 5}), frame(4, {A0: 7})],
            2, 2, {"a": 2}, {1: 2, 2: 0, 3: 0}, id="a seek back starts afresh",
        ),
        pytest.param(
            [frame(50, {A0: 10}), frame(51, {A0: 900}), frame(3, {A0: 5})],
            None, None, {"a": None}, {}, id="right after a seek nothing is known",
        ),
    ],
)  # fmt: skip
def test_rates(
    frames: list[Frame],
    in_all: float | None,
    a0: float | None,
    by_topic: dict[str, float | None],
    by_broker: dict[int, float],
) -> None:
    rates = after(*frames)
    assert CLUSTER is not None
    assert {name: CLUSTER.partition(name).leader for name in LEADERS} == LEADERS  # type: ignore[union-attr]
    assert rates.in_per_s == in_all
    assert rates.partition_in(A0) == a0
    assert {topic.name: rates.topic_in(topic) for topic in CLUSTER.topics if topic.name in by_topic} == by_topic
    assert rates.in_by_broker == by_broker


def test_a_topics_rate_follows_the_newest_frame_and_few_earlier_ones_are_kept() -> None:
    rates = Rates()
    assert CLUSTER is not None
    for tenth in range(200):
        rates.take(frame(tenth / 10, {A0: tenth if tenth < 150 else 150 + 50 * (tenth - 150)}))
        rate = rates.topic_in(CLUSTER.topics[0])
        assert rate == rates.partition_in(A0) == rates.in_per_s
    assert rate is not None and rate > 100
    assert len(rates._past) <= 6, "each has the ends of all logs"


def test_the_busiest_topics_come_first_and_idle_ones_not_at_all(monkeypatch: pytest.MonkeyPatch) -> None:
    rates = after(frame(1, {A0: 0, A1: 0, B0: 0}), frame(2, {A0: 1, A1: 2, B0: 7}))
    assert [(topic.name, rate) for topic, rate in rates.busiest_topics(5)] == [("b", 7), ("a", 3)]
    assert [topic.name for topic, _ in rates.busiest_topics(1)] == ["b"]
    assert rates.busiest_topics(0) == []
    idle = after(frame(1, {A0: 1, A1: 2, B0: 0}), frame(2, {A0: 1, A1: 2, B0: 7}))
    assert [topic.name for topic, _ in idle.busiest_topics(5)] == ["b"]
    slow = after(frame(1, {A0: 1, A1: 2, B0: 0}), frame(6, {A0: 3, A1: 2, B0: 7}))
    assert [topic.name for topic, _ in slow.busiest_topics(5)] == ["b"], "the other would be shown with 0 a second"
    monkeypatch.setattr(module, "MANY_PARTITIONS", 2)
    assert rates.busiest_topics(5) == [], "three partitions are too many to look at in every frame"


def test_what_brokers_get_is_counted_a_slice_in_each_frame(monkeypatch: pytest.MonkeyPatch) -> None:
    """The result is of the readings with which the count began, whatever came meanwhile."""
    monkeypatch.setattr(module, "SLICE", 2)
    rates = after(frame(1, {A0: 0, A1: 0, B0: 0}))
    rates.take(frame(2, {A0: 4, A1: 5, B0: 6}))
    assert rates.in_by_broker == {}, "topic a fills the first slice"
    rates.take(frame(3, {A0: 900, A1: 900, B0: 900}))
    assert rates.in_by_broker == {1: 4, 2: 11, 3: 0}
    rates.take(frame(4, {A0: 900, A1: 900, B0: 900}))
    rates.take(frame(1, {A0: 0, A1: 0, B0: 0}))
    rates.take(frame(2, {A0: 1, A1: 1, B0: 1}))
    assert rates.in_by_broker == {}, "a count that began before a seek is not finished after it"


def test_a_cluster_without_topics_gets_nothing() -> None:
    assert CLUSTER is not None
    assert after(replace(frame(1, {}), cluster=replace(CLUSTER, topics=()))).in_per_s == 0
    assert after(replace(frame(1, {}), cluster=None)).in_per_s is None


def test_a_broker_that_is_down_gets_nothing() -> None:
    assert CLUSTER is not None
    live = replace(CLUSTER, brokers=tuple(broker for broker in CLUSTER.brokers if broker.id != 1))
    frames = [replace(frame(s, {A0: 9 * s, A1: 2 * s, B0: 0}), cluster=live) for s in (1, 2)]
    assert after(*frames).in_by_broker == {2: 2, 3: 0}
