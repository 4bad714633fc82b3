"""The p99 of answer times: only from enough answers, and counting requests that could not be sent."""

from __future__ import annotations

import pytest

from engine.admin.reassignment.wave_throttle import SAMPLES_MIN, Latencies


def test_the_p99_is_known_from_enough_answers_on() -> None:
    latencies = Latencies()
    for number in range(SAMPLES_MIN - 1):
        latencies.add(0.001 * (number % 10 + 1), 0.05)
    assert latencies.p99_s is None
    latencies.add(0.04, 0.05)
    assert latencies.p99_s == pytest.approx(0.01), "one late answer in a hundred is above the p99"
    latencies.add(0.03, 0.05)
    assert latencies.p99_s == pytest.approx(0.03)


def test_a_broker_that_stands_still_counts_for_as_long_as_it_does() -> None:
    """While one answer is outstanding no other request is sent: those would have been late as well."""
    latencies = Latencies()
    for _ in range(290):
        latencies.add(0.001, 0.05)
    latencies.add(1.0, 0.05)
    assert sum(took > 0.04 for took in latencies.seen) == 20
    assert latencies.p99_s == pytest.approx(0.85)


def test_old_answers_are_forgotten() -> None:
    latencies = Latencies()
    for _ in range(400):
        latencies.add(0.04, 0.05)
    for _ in range(300):
        latencies.add(0.001, 0.05)
    assert latencies.p99_s == pytest.approx(0.001)
