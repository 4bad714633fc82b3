"""Meters, histograms and rates, by a clock that the test moves."""

from __future__ import annotations

import math
import random
import sys
from collections import Counter
from types import SimpleNamespace

import pytest

from engine.broker.metrics.measures import (
    RATE_POINTS_MAX,
    RECENT_MAX,
    TICK_S,
    Histogram,
    Ledger,
    Meter,
    Rate,
    Timer,
    percentile,
)
from engine.broker.metrics.requests import ApiMetrics, NetworkTotals, RequestSums, RequestTimes, error_counter
from engine.broker.metrics.topics import Conversions, TopicCounts
from engine.common.windowed_rate import METRICS_WINDOW, Window, WindowedAverage
from engine.kafka.protocol.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic


def test_a_steady_meter_shows_its_rate_from_the_first_tick_on() -> None:
    meter = Meter("requests", 0.0)
    for tick in range(1, 4):
        meter.count += 50
        meter.tick(tick)
    attributes = meter.attributes(15.0, 3)
    assert attributes["Count"] == 150
    assert (attributes["OneMinuteRate"], attributes["FiveMinuteRate"], attributes["FifteenMinuteRate"]) == (
        10.0,
        10.0,
        10.0,
    )
    assert attributes["MeanRate"] == 10.0
    assert (attributes["EventType"], attributes["RateUnit"]) == ("requests", "SECONDS")


@pytest.mark.parametrize("is_ticked", [True, False])
def test_rates_fall_by_half_of_e_in_their_own_time(is_ticked: bool) -> None:
    """A meter that nobody ticks while nothing happens shows the same."""
    meter = Meter("requests", 0.0)
    meter.count += 500
    meter.tick(1)
    ticks = 1 + 15 * 60 // TICK_S
    if is_ticked:
        for tick in range(2, ticks + 1):
            meter.tick(tick)
    attributes = meter.attributes(ticks * TICK_S, ticks)
    assert attributes["OneMinuteRate"] == pytest.approx(100 * math.exp(-15))
    assert attributes["FiveMinuteRate"] == pytest.approx(100 * math.exp(-3))
    assert attributes["FifteenMinuteRate"] == pytest.approx(100 * math.exp(-1))


def test_a_new_meter_of_an_old_broker_begins_with_the_present_rate() -> None:
    meter = Meter("requests", 0.0, ticks=1000)
    meter.count += 25
    meter.tick(1001)
    assert meter.attributes(5.0, 1001)["OneMinuteRate"] == 5.0


def test_after_a_pause_the_rate_takes_the_pause_in() -> None:
    meter = Meter("requests", 0.0)
    meter.count += 500
    meter.tick(1)
    meter.count += 500
    meter.tick(13)
    after = 100 * math.exp(-11 * TICK_S / 60)
    assert meter.attributes(65.0, 13)["OneMinuteRate"] == pytest.approx(after + (1 - math.exp(-1 / 12)) * (100 - after))


@pytest.mark.parametrize(
    ("share", "told"), [(0.5, 50.5), (0.75, 75.75), (0.95, 95.95), (0.99, 99.99), (0.999, 100.0), (0.001, 1.0)]
)
def test_percentiles_lie_between_values_as_in_yammers_snapshot(share: float, told: float) -> None:
    assert percentile([float(n) for n in range(1, 101)], share) == pytest.approx(told)
    assert percentile([], share) == 0.0
    assert percentile([7.0], share) == 7.0


def test_a_histogram_of_few_values_is_exact() -> None:
    histogram = Histogram()
    for value in (4.0, 2.0, 9.0):
        histogram.add(value, 1.0)
    attributes = histogram.attributes()
    assert (attributes["Count"], attributes["Min"], attributes["Max"], attributes["Mean"]) == (3, 2.0, 9.0, 5.0)
    assert attributes["StdDev"] == pytest.approx(math.sqrt(13))
    assert (attributes["50thPercentile"], attributes["99thPercentile"]) == (4.0, 9.0)
    assert set(Histogram().attributes().values()) == {0}


def test_a_histogram_prefers_what_is_new() -> None:
    """After ten quiet minutes and one of slow requests, the sample is mostly of the slow ones."""
    random.seed(1)
    histogram = Histogram()
    for second in range(600):
        histogram.take([1.0] * 20, float(second))
    for second in range(600, 900):
        histogram.take([100.0] * 20, float(second))
    attributes = histogram.attributes()
    assert attributes["50thPercentile"] == 100.0
    assert attributes["Min"] == 1.0


def test_a_histogram_of_any_number_of_values_is_small_and_keeps_those_of_the_highest_priority() -> None:
    """A broker has hundreds of them, and each full one took 113 kB."""
    histogram, priorities = Histogram(), []
    state = random.Random(1)
    random.seed(1)
    for second in range(600):
        histogram.take([float(second)] * 20, float(second))
        priorities += [(math.exp(0.015 * second) / (1 - state.random()), float(second)) for _ in range(20)]
    assert sys.getsizeof(histogram._priorities) + sys.getsizeof(histogram._values) < 30_000
    histogram.attributes()
    best = sorted(priorities, reverse=True)[:1028]
    assert sorted(histogram._values) == sorted(value for _, value in best)


def test_a_histogram_outlives_its_rescaling() -> None:
    histogram = Histogram()
    histogram.add(1.0, 0.0)
    for hour in range(1, 200):
        histogram.add(float(hour), 3601.0 * hour)
    attributes = histogram.attributes()
    assert attributes["Count"] == 200
    assert attributes["Max"] == 199.0
    assert isinstance(attributes["99thPercentile"], float) and math.isfinite(attributes["99thPercentile"])


def test_a_histogram_forgets_what_was_before_a_long_rest() -> None:
    """All of it would have the same priority, 0, and nothing would make room."""
    histogram = Histogram()
    histogram.take([1.0] * 1028, 0.0)
    histogram.take([9.0] * 600, 86_400.0)
    attributes = histogram.attributes()
    assert (attributes["50thPercentile"], attributes["Count"], len(histogram._values)) == (9.0, 0, 600)


def test_a_timer_is_a_meter_and_a_histogram() -> None:
    timer = Timer(0.0)
    timer.add(3.0, 1.0)
    timer.tick(1)
    attributes = timer.attributes(5.0, 1)
    assert attributes["Count"] == 1
    assert attributes["Max"] == 3.0
    assert attributes["OneMinuteRate"] == 0.2
    assert (attributes["EventType"], attributes["LatencyUnit"], attributes["RateUnit"]) == (
        "calls",
        "MILLISECONDS",
        "SECONDS",
    )


def test_a_rate_is_that_of_the_window() -> None:
    """By default of a minute, and never over less than half of it."""
    rate = Rate(METRICS_WINDOW, 0.0)
    for second in range(5, 200, 5):
        rate.note(float(second), min(second, 100) * 10.0)
    assert rate.per_second(195.0) == 0.0
    rate.note(200.0, 1600.0)
    assert rate.per_second(200.0) == pytest.approx(10.0)
    young = Rate(METRICS_WINDOW, 0.0)
    young.note(1.0, 30.0)
    assert young.per_second(1.0) == 1.0


@pytest.mark.parametrize("pause_s", [5, 600])
def test_a_steady_rate_is_even_however_rarely_its_total_is_looked_at(pause_s: int) -> None:
    rate = Rate(METRICS_WINDOW, 0.0)
    for second in range(pause_s, 20 * pause_s, pause_s):
        rate.note(float(second), second * 10.0)
        assert second < 30 or rate.per_second(float(second)) == pytest.approx(10.0)


def test_a_rate_over_a_long_window_remembers_few_totals() -> None:
    rate = Rate(Window(100, 3_600_000), 0.0)
    for second in range(0, 2_000_000, 5):
        rate.note(float(second), second * 10.0)
    assert len(rate._points) <= RATE_POINTS_MAX + 2
    assert rate.per_second(2_000_000.0) == pytest.approx(10.0, rel=0.001)


@pytest.mark.parametrize(
    ("samples", "sample_ms", "expected"),
    [(2, 30_000, 120 / 30), (1, 1000, 60 / 1.5), (4, 10_000, 120 / 30), (5, 10_000, 120 / 40), (1, 60_000, 120 / 2.5)],
)
def test_samples_and_their_length_decide_over_which_time_a_rate_is_taken(
    samples: int, sample_ms: int, expected: float
) -> None:
    """``metrics.num.samples`` and ``metrics.sample.window.ms``."""
    ledger = Ledger(Window(samples, sample_ms))
    assert ledger.rate("any", 0.0, 0) == 0.0
    ledger.rate("any", 1.0, 60)
    ledger.rate("any", 2.0, 120)
    assert ledger.rate_of("any", 2.5) == pytest.approx(expected)


def test_a_mean_is_that_of_the_window() -> None:
    """The oldest sample counts for as long as it overlaps the window."""
    mean = WindowedAverage(Window(2, 1000))
    assert math.isnan(mean.value(5000))
    for now_ms, value in ((5000, 1), (5500, 3), (6100, 8), (7200, 4)):
        mean.record(value, now_ms)
    assert mean.value(7400) == 4.0
    assert mean.value(7500) == 6.0
    assert mean.value(8100) == 4.0
    assert math.isnan(mean.value(9200))


def test_of_many_requests_few_are_timed_and_count_for_the_others() -> None:
    times = RequestTimes()
    times.choose_interval(RECENT_MAX)
    times.new_requests += [100]
    assert times.stands_for(7.0) == 1
    assert times.timed_from_s == 7.0
    times.choose_interval(40 * RECENT_MAX)
    assert times.timed_from_s == 0.0
    times.new_requests += [100] * 40
    times.fold()
    times.new_requests += [100] * 24
    weight = times.stands_for(8.0)
    assert (weight, times.timed_from_s) == (64, 8.0 + 1 / RECENT_MAX)
    times.answered_at_once(0.125, 0.5, weight)
    times.answered_later(0.5, 0.25, 2.0, weight)
    assert (times.spent_s, times.waited_s, times.slowest_s) == (64 * 0.75, 64 * 2.0, 2.75)
    assert times.queued_total_s == 64 * 0.625
    times.choose_interval(1)
    assert times.timed_from_s == times.stands_for(9.0) == 0
    assert times.timed_from_s == 9.0


def test_sizes_are_added_up_once_and_a_few_are_kept() -> None:
    times, measured = RequestTimes(), []
    for _ in range(3):
        times.new_requests += range(1000)
        times.new_answers += [7, 900, 8]
        measured.append((times.requests, times.bytes, *times.answers()))
        times.fold()
        measured.append((times.requests, times.bytes, *times.answers()))
    assert measured == [(1000 * n, 499_500 * n, 3 * n, 915 * n) for n in (1, 2, 3) for _ in range(2)]
    assert times.largest_answer == 900
    times.new_answers += [8] * 5
    times.fold()
    assert (times.answers(), times.largest_answer) == ((14, 2785), 900)
    times.new_answers += [901] * 2
    times.fold()
    assert (times.answers(), times.largest_answer) == ((16, 4587), 901)
    assert len(times.sizes) <= RECENT_MAX
    assert max(times.sizes) > 900 > 100 > min(times.sizes)


def test_what_a_listener_sent_is_the_sum_of_its_apis() -> None:
    totals, produce, fetch, follower = NetworkTotals(), RequestTimes(), RequestTimes(), RequestTimes()
    apis = [
        SimpleNamespace(times=produce, follower_times=produce),
        SimpleNamespace(times=fetch, follower_times=follower),
    ]
    totals.apis = [dict(enumerate([*apis, None]))]
    produce.new_requests += [100, 50]
    produce.new_answers += [40, 60]
    fetch.new_answers += [1000]
    follower.new_requests += [30]
    totals.other_bytes_out = 9
    assert (totals.received(), totals.bytes_out(), totals.largest_answer()) == ((3, 192), 1121, 1000)
    totals.forget_largest_answer()
    produce.new_answers += [70]
    assert (totals.received(), totals.bytes_out(), totals.largest_answer()) == ((3, 192), 1195, 70)


def test_what_is_noted_of_a_topic_is_added_up_once() -> None:
    counts = TopicCounts()
    counts.appends += [70, 1, 0, 0, 140, 2]
    counts.reads += [None, None]
    counts.skipped += [0, 3]
    counts.fold()
    # An answer may come after its read was folded.
    counts.sent += [70, 140]
    counts.fold()
    counts.fold()
    assert (counts.produces, counts.bytes_in, counts.messages_in) == (3, 210, 3)
    assert (counts.fetches, counts.bytes_out) == (5, 210)


def test_error_codes_anywhere_in_an_answer_are_counted() -> None:
    parts = [MetadataResponsePartition(error_code=code) for code in (0, 9, 0)]
    topics = [MetadataResponseTopic(error_code=code, partitions=parts) for code in (0, 3)]
    count, errors = error_counter(MetadataResponse, 9), Counter[int]()
    assert count is not None
    for _ in range(2):
        count(errors, MetadataResponse(topics=topics))
    assert errors == {0: 10, 3: 2, 9: 4}


def test_the_time_of_a_request_has_its_parts() -> None:
    times, api, sums = RequestTimes(), ApiMetrics("Produce"), RequestSums()
    times.answered_at_once(0.125, 0.5, 1)
    times.answered_later(0.5, 0.25, 2.0, 1)
    times.new_requests += [100, 100]
    sums.add(times)
    api.take(times, 1.0)
    api.count(sums)
    mbeans = dict(api.mbeans())
    parts = {name: (mbeans[name]["Count"], mbeans[name]["Mean"], mbeans[name]["Max"]) for name in mbeans}
    assert parts["RequestQueueTimeMs"] == (2, 312.5, 500)
    assert parts["LocalTimeMs"] == (2, 375, 500)
    assert parts["RemoteTimeMs"] == (2, 1000, 2000)
    assert parts["TotalTimeMs"] == (2, 1687.5, 2750)
    assert parts["ResponseSendTimeMs"] == parts["MessageConversionsTimeMs"] == (2, 0, 0)


def test_what_few_requests_have_is_0_for_the_others() -> None:
    api, metrics = ApiMetrics("Produce"), Conversions()
    metrics.add(0.004, 300)
    metrics.add(0.002, 100)
    api.take_conversions(metrics, 10, 1.0)
    api.take_conversions(metrics, 12, 2.0)
    api.count(RequestSums(requests=12))
    mbeans = dict(api.mbeans())
    assert {name: mbeans["MessageConversionsTimeMs"][name] for name in ("Count", "Min", "Max", "Mean")} == {
        "Count": 12, "Min": 0, "Max": 4, "Mean": 0.5
    }  # fmt: skip
    assert mbeans["MessageConversionsTimeMs"]["75thPercentile"] == 0
    assert (mbeans["TemporaryMemoryBytes"]["Max"], mbeans["TemporaryMemoryBytes"]["Mean"]) == (300, 400 / 12)
    assert not metrics.times_ms.recent and not metrics.size_bytes.recent
