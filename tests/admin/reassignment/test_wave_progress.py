"""The progress of waves: bytes done, the recent rate, and a range for the time left."""

from __future__ import annotations

import pytest

from engine.admin.reassignment.wave_progress import STRETCH_S, WINDOW_S, WaveMeter
from engine.common.model import TopicPartition

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
NONE: frozenset[TopicPartition] = frozenset()


def test_a_range_from_the_slowest_and_the_fastest_stretch() -> None:
    meter = WaveMeter({T0: 1000, T1: 1000}, 2)
    first = meter.update(1, NONE, {T0: 1000}, 50, 0.0)
    assert (first.moved_bytes, first.total_bytes, first.left_s_min, first.throttle) == (0, 2000, None, 50)
    meter.update(1, NONE, {T0: 900}, 50, STRETCH_S)
    third = meter.update(1, NONE, {T0: 400}, 50, STRETCH_S * 2)
    assert (third.moved_bytes, third.rate) == (600, 600 / (STRETCH_S * 2))
    assert (third.left_s_min, third.left_s_max) == (1400 / (500 / STRETCH_S), 1400 / (100 / STRETCH_S))
    assert (third.wave, third.wave_count, third.done_count, third.count) == (1, 2, 0, 2)


def test_before_a_whole_stretch_there_is_a_rate_and_no_time_left() -> None:
    meter = WaveMeter({T0: 1000}, 1)
    assert meter.update(1, NONE, {T0: 1000}, None, 0.0).rate == 0
    second = meter.update(1, NONE, {T0: 800}, None, 1.0)
    assert (second.rate, second.left_s_min, second.left_s_max) == (200, None, None)


def test_bursts_of_a_throttled_copy_make_a_steady_rate() -> None:
    """A broker that may copy 100 bytes a second fetches 1000 at once, and then nothing for ten seconds."""
    meter = WaveMeter({T0: 30_000}, 1)
    progress = [meter.update(1, NONE, {T0: 30_000 - now // 10 * 1000}, 100, now) for now in range(0, 200, 2)]
    steady = [wave for wave in progress if wave.left_s_max is not None][5:]
    assert len(steady) > 50
    assert all(66 <= wave.rate <= 134 for wave in steady), [wave.rate for wave in steady]
    for wave in steady:
        assert wave.moved_bytes is not None and wave.left_s_min is not None and wave.left_s_max is not None
        assert wave.left_s_min <= (30_000 - wave.moved_bytes) / 100 <= wave.left_s_max


def test_a_silence_longer_than_the_window_leaves_a_rate() -> None:
    meter = WaveMeter({T0: 10_000}, 1)
    for now, left in ((0.0, 10_000), (1.0, 9_900), (1 + WINDOW_S * 3, 9_000)):
        last = meter.update(1, NONE, {T0: left}, None, now)
    assert last.rate == 900 / (WINDOW_S * 3)


@pytest.mark.parametrize(
    ("left_at_first", "left_then", "is_told"), [(1000, 991, False), (1000, 990, True), (100, 99, True)]
)
def test_no_time_left_is_told_before_a_hundredth_has_moved(left_at_first: int, left_then: int, is_told: bool) -> None:
    meter = WaveMeter({T0: 1000}, 1)
    meter.update(1, NONE, {T0: left_at_first}, None, 0.0)
    last = meter.update(1, NONE, {T0: left_then}, None, STRETCH_S * 2)
    assert (last.left_s_min is not None) is is_told and last.rate > 0


def test_what_is_done_counts_whole_also_when_it_was_done_before() -> None:
    meter = WaveMeter({T0: 1000, T1: 500}, 1)
    assert meter.update(1, frozenset({T0}), {T1: 100}, None, 0.0).moved_bytes == 1400


def test_a_stretch_in_which_nothing_moved_has_no_end() -> None:
    meter = WaveMeter({T0: 1000}, 1)
    for now, left in ((0.0, 1000), (STRETCH_S, 500), (STRETCH_S * 2, 500)):
        last = meter.update(1, NONE, {T0: left}, None, now)
    assert (last.left_s_min, last.left_s_max) == (STRETCH_S, None)


def test_only_the_last_minute_counts() -> None:
    meter = WaveMeter({T0: 10_000}, 1)
    meter.update(1, NONE, {T0: 10_000}, None, 0.0)
    for step in range(1, 40):
        last = meter.update(1, NONE, {T0: 9000 - step * 10}, None, step * STRETCH_S)
    assert last.left_s_max == last.left_s_min == (9000 - 390) / (10 / STRETCH_S)
    assert WINDOW_S < 39 * STRETCH_S


def test_unknown_sizes_stay_unknown() -> None:
    progress = WaveMeter({T0: None, T1: 5}, 1).update(1, frozenset({T1}), {}, None, 0.0)
    assert (progress.moved_bytes, progress.total_bytes, progress.left_s_min, progress.done_count) == (
        None,
        None,
        None,
        1,
    )


def test_a_broker_that_falls_silent_takes_nothing_back() -> None:
    meter = WaveMeter({T0: 1000, T1: 1000}, 1)
    meter.update(1, NONE, {T0: 400, T1: 1000}, None, 0.0)
    silent = meter.update(1, NONE, {T0: None, T1: None}, None, 1.0)
    assert (silent.moved_bytes, silent.rate) == (600, 0.0)
    assert meter.update(1, NONE, {T0: 300, T1: None}, None, 2.0).moved_bytes == 700
    assert meter.update(1, NONE, {T1: None}, None, 3.0).moved_bytes == 0, "T0 was cancelled"
