"""Delayed operations: completion by condition, by deadline, once only, and nothing left behind."""

from __future__ import annotations

import asyncio
import logging
import random
import weakref

import pytest
from event_loop import in_event_loop

from engine.runtime.purgatory import DelayedOperation, Purgatory


class Wait(DelayedOperation):
    """Waits until ``ready`` holds, and notes what happens to it."""

    __slots__ = ("events", "ready")

    def __init__(self, delay_ms: int) -> None:
        super().__init__(delay_ms)
        self.ready = False
        self.events: list[str] = []

    def try_complete(self) -> bool:
        return self.ready and self.force_complete()

    def on_complete(self) -> None:
        self.events.append("complete")

    def on_expiration(self) -> None:
        self.events.append("expired")


@in_event_loop
async def test_an_operation_that_is_ready_never_waits() -> None:
    purgatory: Purgatory[str] = Purgatory("test")
    operation = Wait(1000)
    operation.ready = True
    assert purgatory.try_complete_else_watch(operation, ["a"])
    assert operation.events == ["complete"]
    assert "a" not in purgatory.watched_keys


@in_event_loop
async def test_a_change_of_one_key_completes_what_waits_under_several_once() -> None:
    purgatory: Purgatory[str] = Purgatory("test")
    operation = Wait(10_000)
    assert not purgatory.try_complete_else_watch(operation, ["a", "b"])
    assert purgatory.check_and_complete(("a",)) == 0
    assert "a" in purgatory.watched_keys
    operation.ready = True
    assert purgatory.check_and_complete(("b",)) == 1
    assert purgatory.check_and_complete(("a",)) == 0
    assert operation.events == ["complete"]
    assert len(purgatory) == 0
    purgatory.close()


@in_event_loop
async def test_a_deadline_completes_and_expires_and_frees_the_keys() -> None:
    purgatory: Purgatory[str] = Purgatory("test")
    operations = [Wait(delay) for delay in (30, 0, 20)]
    for operation in operations:
        purgatory.try_complete_else_watch(operation, ["a"])
    async with asyncio.timeout(30):
        while not all(o.is_completed for o in operations):
            await asyncio.sleep(0.001)
    assert [o.events for o in operations] == [["complete", "expired"]] * 3
    assert "a" not in purgatory.watched_keys
    assert purgatory.expired_total == 3


@in_event_loop
async def test_a_cancelled_operation_never_completes() -> None:
    purgatory: Purgatory[str] = Purgatory("test")
    operation, other = Wait(10), Wait(10)
    for waiting in (operation, other):
        purgatory.try_complete_else_watch(waiting, ["a"])
    operation.cancel()
    operation.ready = True
    async with asyncio.timeout(30):
        while not other.is_completed:
            await asyncio.sleep(0.001)
    assert operation.events == []


@in_event_loop
async def test_random_rounds_end_every_operation_exactly_once() -> None:
    rng = random.Random(7)
    purgatory: Purgatory[int] = Purgatory("test")
    operations = []
    for _ in range(500):
        operation = Wait(rng.randrange(60))
        operations.append(operation)
        purgatory.try_complete_else_watch(operation, rng.sample(range(20), rng.randrange(1, 4)))
        lucky = rng.choice(operations)
        lucky.ready = True
        purgatory.check_and_complete((rng.randrange(20),))
        if rng.random() < 0.1:
            await asyncio.sleep(0)
    async with asyncio.timeout(30):
        while len(purgatory):
            await asyncio.sleep(0.005)
    assert all(o.events in (["complete"], ["complete", "expired"]) for o in operations)
    assert not any(key in purgatory.watched_keys and purgatory.check_and_complete((key,)) for key in range(20))


@in_event_loop
async def test_an_operation_under_many_changed_keys_looks_once() -> None:
    class Counting(Wait):
        __slots__ = ("looks",)

        def __init__(self) -> None:
            super().__init__(10_000)
            self.looks = 0

        def try_complete(self) -> bool:
            self.looks += 1
            return super().try_complete()

    purgatory: Purgatory[int] = Purgatory("test")
    waiting, other = Counting(), Counting()
    purgatory.try_complete_else_watch(waiting, range(1000))
    purgatory.try_complete_else_watch(other, [2000])
    assert purgatory.check_and_complete(range(500)) == 0
    assert (waiting.looks, other.looks) == (2, 1)
    assert 499 in purgatory.watched_keys
    waiting.ready = True
    assert purgatory.check_and_complete([7, 8, 2000]) == 1
    assert waiting.events == ["complete"]
    assert not other.is_completed
    purgatory.close()


class Weak(Wait):
    __slots__ = ("__weakref__",)


@pytest.mark.parametrize("how", ["complete", "cancel"])
@in_event_loop
async def test_what_is_done_is_gone_at_once_whatever_its_deadline(how: str) -> None:
    """A client chooses the deadline. With 12,000 requests a second that were answered at once, 360 MB used to stay."""
    purgatory: Purgatory[int] = Purgatory("test")
    staying = Wait(2**31 - 1)
    purgatory.try_complete_else_watch(staying, [0, 1])
    for number in range(3000):
        operation = Weak(1_000_000 + number * 10)
        purgatory.try_complete_else_watch(operation, [0, number])
        assert len(purgatory) == 2
        if how == "complete":
            operation.ready = True
            assert purgatory.check_and_complete((number,)) == 1
        else:
            operation.cancel()
        gone = weakref.ref(operation)
        del operation
        assert gone() is None
        assert len(purgatory) == 1
    assert [key in purgatory.watched_keys for key in (0, 1, 2999)] == [True, True, False]
    assert len(purgatory._bucket_heap) < 1100
    purgatory.close()


class Broken(Wait):
    """Fails where it is told to."""

    __slots__ = ("fails_in",)

    def __init__(self, delay_ms: int, fails_in: str) -> None:
        super().__init__(delay_ms)
        self.fails_in = fails_in

    def try_complete(self) -> bool:
        if self.fails_in == "try":
            raise ValueError("broken")
        return super().try_complete()

    def on_complete(self) -> None:
        super().on_complete()
        if self.fails_in == "complete":
            raise ValueError("broken")

    def on_expiration(self) -> None:
        super().on_expiration()
        raise ValueError("broken")

    def on_fault(self) -> None:
        self.events.append("fault")


def test_one_that_fails_takes_no_other_along(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        purgatory: Purgatory[str] = Purgatory("test")
        by_look, by_change, by_time = Broken(60_000, "try"), Broken(60_000, "complete"), Broken(10, "complete")
        others = [Wait(60_000), Wait(60_000), Wait(10)]
        by_change.ready = True
        for waiting, other in zip((by_look, by_change, by_time), others, strict=True):
            purgatory.watch(waiting, ["a"] if waiting is not by_time else ["b"])
            purgatory.watch(other, ["a"])
            other.ready = other.delay_ms > 10
        assert purgatory.check_and_complete(("a",)) == 2
        async with asyncio.timeout(30):
            while not others[2].is_completed:
                await asyncio.sleep(0.001)
        assert [waiting.events for waiting in others] == [["complete"], ["complete"], ["complete", "expired"]]
        assert (by_look.events, by_change.events) == (["fault"], ["complete", "fault"])
        assert by_time.events == ["complete", "fault"]
        assert len(purgatory) == 0
        purgatory.close()

    with caplog.at_level(logging.ERROR):
        asyncio.run(check())
    assert caplog.text.count("A waiting operation failed") == 3
