"""Which peer a command waits for, by a clock that the test sets."""

from __future__ import annotations

import asyncio

import pytest

from engine.admin.cluster import waits
from engine.admin.cluster.waits import Waits


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    now = [100.0]
    monkeypatch.setattr(waits.time, "monotonic", lambda: now[0])
    return now


def test_who_is_silent_is_told_with_the_longest_wait(clock: list[float]) -> None:
    waits = Waits()
    with waits.on("a:1"):
        clock[0] += 2
        with waits.on("a:1"), waits.on("b:1"):
            clock[0] += 1
            assert waits.silent(2.0) == {"a:1": 3.0}
            assert waits.silent(1.0) == {"a:1": 3.0, "b:1": 1.0}
    assert waits.silent(0.0) == {}


def test_only_what_was_given_up_just_now_counts_and_is_kept(clock: list[float]) -> None:
    waits = Waits()

    def give_up(address: str, waited_s: float) -> None:
        with pytest.raises(asyncio.CancelledError), waits.on(address):
            clock[0] += waited_s
            raise asyncio.CancelledError

    give_up("old:1", 50.0)
    clock[0] += 5
    give_up("b:1", 0.9)
    give_up("a:1", 0.1)
    assert waits.longest() == "b:1"
    assert len(waits._cut_short) == 2, "a dashboard would collect them for as long as it runs"
    clock[0] += 5
    assert waits.longest() is None
