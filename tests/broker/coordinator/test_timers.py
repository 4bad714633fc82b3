"""The timer wheel against a dictionary of deadlines."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from engine.broker.coordinator.groups.driver import TICK_MS, TimerWheel

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("start"), st.integers(0, 4), st.integers(0, 500)),
        st.tuples(st.just("stop"), st.integers(0, 4), st.just(0)),
        st.tuples(st.just("wait"), st.just(0), st.integers(1, 200)),
    ),
    max_size=60,
)


@given(STEPS)
def test_like_a_dictionary(steps: list[tuple[str, int, int]]) -> None:
    wheel: TimerWheel[int] = TimerWheel()
    model: dict[int, int] = {}
    now_ms = 0
    for step, key, number in steps:
        if step == "start":
            wheel.start(key, now_ms + number)
            model[key] = now_ms + number
        elif step == "stop":
            wheel.stop(key)
            model.pop(key, None)
        else:
            now_ms += number
            due = wheel.take_due(now_ms)
            assert len(set(due)) == len(due)
            for key_due in due:
                assert model.pop(key_due) <= now_ms
            # No timer is late by more than a tick.
            assert all(deadline_ms > now_ms - TICK_MS for deadline_ms in model.values())
        assert len(wheel) == len(model)
        next_ms = wheel.next_ms()
        if model:
            assert next_ms is not None and next_ms <= min(model.values()) + TICK_MS


def test_a_heartbeat_takes_no_new_place() -> None:
    wheel: TimerWheel[str] = TimerWheel()
    for now_ms in range(0, 5_000, 100):
        wheel.start("member", now_ms + 10_000)
        assert wheel.next_ms() == 10_000
    assert wheel.take_due(10_000) == []
    assert wheel.deadline_ms("member") == 14_900
    assert wheel.take_due(14_900) == ["member"]
    assert wheel.next_ms() is None
