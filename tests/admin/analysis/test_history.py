"""The history of a feed: in any order of frames, nothing older replaces anything newer, and all stays bounded."""

from __future__ import annotations

import tracemalloc
from dataclasses import replace

from fake_cluster import FakeCluster
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.analysis.history import SAMPLES_MAX, History, Sample, Series
from engine.admin.watch.frame import Frame, Stage
from engine.common.model import TopicPartition


def _frames() -> list[Frame]:
    cluster = FakeCluster(4, {"orders": 2})
    cluster.add_group("g", "orders", reads=10, lag=5)
    cluster.reassign(TopicPartition("orders", 0), (1, 2, 4))
    frames = []
    for tick in range(40):
        cluster.advance()
        if tick == 11:
            cluster.delay_stage(Stage.GROUPS)
        if tick == 25:
            cluster.heal_stage(Stage.GROUPS)
        frames.append(cluster.frame())
    return frames


FRAMES = _frames()


@given(st.lists(st.integers(0, len(FRAMES) - 1), max_size=60))
def test_nothing_older_replaces_anything_newer(order: list[int]) -> None:
    history, newest = History(), -1
    for index in order:
        taken = history.take(FRAMES[index])
        assert taken == (index > newest)
        newest = max(newest, index)
        assert history.latest is FRAMES[newest]
    for series in (history.used_bytes, history.copied_bytes, history.lag, history.sizes):
        for key in list(series.keys()):
            times = [sample.at_ms for sample in series.of(key)]
            assert times == sorted(set(times))
    if newest >= 0:
        read_ms = FRAMES[newest].stage(Stage.GROUPS).read_at_ms
        assert history.lag.of("g")[-1] == Sample(read_ms or 0, FRAMES[newest].groups[0].lag.lag or 0)


def test_a_stage_that_was_not_read_again_adds_no_sample() -> None:
    history = History()
    for frame in FRAMES[:26]:
        history.take(frame)
    # Groups are read every five seconds, but not from the 12th frame to the 25th.
    assert [sample.at_ms - FRAMES[0].at_ms for sample in history.lag.of("g")] == [0, 5000, 10_000, 25_000]


def test_a_jump_back_in_time_takes_back_what_came_after() -> None:
    history = History()
    for frame in FRAMES:
        history.take(frame)
    assert len(history.copied_bytes.of((TopicPartition("orders", 0), 4))) == 4
    back = replace(FRAMES[14], sequence=1000, events=())
    assert history.take(back)
    times = [sample.at_ms for sample in history.copied_bytes.of((TopicPartition("orders", 0), 4))]
    assert times and max(times) <= back.at_ms
    assert all(event.at_ms <= back.at_ms for event in history.events)


def test_series_are_bounded_and_forget_what_is_gone() -> None:
    series: Series[str] = Series(samples_max=3)
    for at_ms in range(10):
        series.take(at_ms, lambda at_ms=at_ms: [("a", at_ms), *([("b", 1.0)] if at_ms < 5 else [])])
    assert [point.at_ms for point in series.of("a")] == [7, 8, 9]
    assert list(series.keys()) == ["a"] and series.of("b") == ()
    series.take(9, lambda: [("a", 99.0)])
    series.take(None, lambda: [("a", 99.0)])
    assert series.of("a")[-1].value == 9


def test_a_sample_takes_a_few_bytes() -> None:
    """Lags of thousands of groups are kept for most of an hour."""
    series: Series[int] = Series()
    tracemalloc.start()
    try:
        for at_ms in range(SAMPLES_MAX):
            series.take(at_ms, lambda at_ms=at_ms: [(key, key + at_ms / 7) for key in range(100)])
        held = tracemalloc.get_traced_memory()[0]
    finally:
        tracemalloc.stop()
    assert held < 100 * SAMPLES_MAX * 16
    assert len(series.of(99)) == SAMPLES_MAX
