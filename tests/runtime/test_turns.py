"""Whoever has long work on an event loop gets one turn in each of its passes."""

from __future__ import annotations

import asyncio

import pytest
from event_loop import in_event_loop

from engine.runtime import turns as turns_of_work
from engine.runtime.turns import Turns, begin


@in_event_loop
async def test_one_of_many_goes_on_in_each_pass_of_the_loop() -> None:
    """Ten pieces of work with a turn of 5 ms each would otherwise make everybody else wait 50 ms."""
    went_on: list[int] = []
    most_in_a_pass = 0

    async def work(number: int) -> None:
        for _ in range(5):
            await Turns.of_loop().wait()
            went_on.append(number)

    tasks = [asyncio.create_task(work(number)) for number in range(10)]
    while not all(task.done() for task in tasks):
        before = len(went_on)
        await asyncio.sleep(0)
        most_in_a_pass = max(most_in_a_pass, len(went_on) - before)
    assert most_in_a_pass == 1
    assert went_on == list(range(10)) * 5


@in_event_loop
async def test_who_gives_up_or_fails_takes_nobodys_turn() -> None:
    turns, went_on = Turns.of_loop(), []
    given_up = asyncio.create_task(turns.wait())
    await asyncio.sleep(0)
    given_up.cancel()
    reports: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["exception"]))
    turns.put(lambda: 1 // 0)
    turns.put(lambda: went_on.append("next"))
    while not went_on:
        await asyncio.sleep(0)
    assert [type(error) for error in reports] == [ZeroDivisionError]


@in_event_loop
async def test_work_that_puts_more_gets_one_turn_for_it() -> None:
    """The last of those who waited had two turns for what it put; the second had nobody left to call."""
    turns, went_on, reports = Turns.of_loop(), list[str](), list[object]()
    asyncio.get_running_loop().set_exception_handler(lambda _, context: reports.append(context["exception"]))

    def first() -> None:
        went_on.append("first")
        turns.put(lambda: went_on.append("second"))

    turns.put(first)
    for _ in range(5):
        await asyncio.sleep(0)
    assert went_on == ["first", "second"]
    assert reports == []


@pytest.mark.parametrize(("hold_ms", "at_once"), [(0, 1), (60_000, 3)])
@in_event_loop
async def test_steps_begin_at_once_and_go_on_in_later_turns(
    monkeypatch: pytest.MonkeyPatch, hold_ms: int, at_once: int
) -> None:
    monkeypatch.setattr(turns_of_work, "HOLD_MS_MAX", hold_ms)
    made: list[int] = []
    begin(made.append(number) for number in range(3))
    assert len(made) == at_once
    for _ in range(5):
        await asyncio.sleep(0)
    assert made == [0, 1, 2]
