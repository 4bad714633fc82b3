"""The throttle that adapts to the cluster's load: within its limits, in few steps."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.admin.cluster.errors import BadRequest
from engine.admin.reassignment.adaptive_throttle import CALM_LOOKS, STEPS, AdaptiveThrottle, ThrottleRange


def test_it_is_halved_at_once_and_raised_after_calm_looks() -> None:
    throttle = AdaptiveThrottle(ThrottleRange.of(80_000, 20_000, 100_000))
    assert [throttle.next_rate(is_in_trouble=True) for _ in range(3)] == [37_500, 20_000, 20_000]
    rates = [throttle.next_rate(is_in_trouble=False) for _ in range(CALM_LOOKS * 9)]
    assert rates[: CALM_LOOKS + 1] == [20_000] * (CALM_LOOKS - 1) + [25_000] * 2
    assert rates[-1] == 100_000


def test_trouble_begins_the_counting_anew() -> None:
    throttle = AdaptiveThrottle(ThrottleRange.of(80_000))
    throttle.next_rate(is_in_trouble=True)
    for _ in range(CALM_LOOKS - 1):
        throttle.next_rate(is_in_trouble=False)
    throttle.next_rate(is_in_trouble=True)
    assert throttle.next_rate(is_in_trouble=False) == 20_000


@given(st.lists(st.booleans(), max_size=100), st.integers(2048, 10**9), st.integers(1, 10))
def test_it_stays_within_its_limits_and_takes_few_rates(looks: list[bool], start: int, times: int) -> None:
    limits = ThrottleRange.of(start, None, start * times)
    throttle = AdaptiveThrottle(limits)
    rates = {throttle.next_rate(is_in_trouble=is_in_trouble) for is_in_trouble in looks}
    assert all(limits.floor <= rate <= limits.ceiling for rate in rates)
    assert len(rates) <= STEPS + 4


@pytest.mark.parametrize(("start", "floor", "ceiling"), [(1000, None, None), (5000, 6000, None), (5000, None, 4000)])
def test_senseless_limits_are_refused(start: int, floor: int | None, ceiling: int | None) -> None:
    with pytest.raises(BadRequest):
        ThrottleRange.of(start, floor, ceiling)
