"""A dashboard that runs for hours keeps only what is on the screen and what its bounds allow."""

from __future__ import annotations

import gc
import sys
import weakref
from dataclasses import replace
from typing import Any

import pytest
from dashboards import dashboard
from event_loop import in_event_loop
from fake_cluster import FakeCluster
from fake_feed import FakeFeed
from textual.screen import Screen
from textual.widget import Widget

from engine.admin.analysis import history
from engine.admin.analysis.history import EVENTS_MAX
from engine.admin.watch.events import Event, EventKind
from engine.common.model import TopicPartition
from tui.actions import PAGES
from tui.state import board
from tui.state.table_model import NO_ROWS

KEYS = (
    ("question_mark", "escape"),
    ("i", "escape"),
    ("ctrl+p", "escape"),
    ("3", "y", "escape"),
    ("3", "ctrl+s", "escape"),
)


@in_event_loop
async def test_a_view_that_is_held_still_keeps_the_newest_of_what_happens_and_no_more() -> None:
    async with dashboard("live") as driven:
        await driven.press("space")
        frame = driven.feed.tick()
        event = Event(frame.at_ms, EventKind.BROKER_DOWN, "broker 1", broker=1)
        for number in range(5):
            events = tuple(replace(event, subject=f"{number}-{index}") for index in range(EVENTS_MAX // 4))
            driven.app.take(replace(frame, sequence=frame.sequence + 1 + number, events=events))
        newest = driven.app.newest
        assert newest is not None
        assert len(newest.events) == EVENTS_MAX
        assert newest.events[0].subject == "1-0"
        assert newest.events[-1].subject == f"4-{EVENTS_MAX // 4 - 1}"


def traces_of(screen: Screen[Any]) -> tuple[list[weakref.ref[Any]], list[weakref.ref[Any]]]:
    """Return traces that show whether a window's widgets still exist, and what keeps the lines they have drawn."""
    widgets = [widget for widget in screen.walk_children(with_self=True) if isinstance(widget, Widget)]
    return [weakref.ref(widget) for widget in widgets], [weakref.ref(widget._styles_cache) for widget in widgets]


@in_event_loop
async def test_nothing_of_a_closed_window_is_kept() -> None:
    async with dashboard("live") as driven:
        await driven.tick(2)
        # What is open when the dashboard hides its own objects from the collector is never looked at again.
        await driven.until(lambda: not driven.app._until_settled._exit_callbacks)
        left: list[weakref.ref[Any]] = []
        drawn: list[weakref.ref[Any]] = []
        for opens, *closes in KEYS:
            await driven.press(opens, *closes[:-1])
            assert driven.app.screen is not driven.main
            traces = traces_of(driven.app.screen)
            left, drawn = left + traces[0], drawn + traces[1]
            await driven.press(closes[-1])
            assert driven.app.screen is driven.main
        assert len(left) > 25
        assert not [kept for reference in drawn if (kept := reference()) is not None and kept._cache], (
            "lines of windows that are gone"
        )

        def are_gone() -> bool:
            gc.collect()
            return not any(reference() is not None for reference in left)

        await driven.until(are_gone)


ROUND = 20
"""After this many ticks the cluster is as it was, so that the memory at two such moments can be compared."""


def what_happens(cluster: FakeCluster, tick: int) -> None:
    """Make much happen in each round: a broker dies and comes back, a topic comes and goes, a partition moves."""
    place, number = tick % ROUND, tick // ROUND
    if place == 2:
        cluster.create_topic(f"passing-{number}", 3)
        cluster.add_group(f"group-{number}", f"passing-{number}", reads=100)
    elif place == 4:
        cluster.reassign(TopicPartition("orders", 0), (2, 3, 4) if number % 2 else (1, 2, 3))
    elif place == 6:
        cluster.kill(1 + number % 3)
    elif place == 10:
        cluster.start(1 + number % 3)
    elif place == 14:
        cluster.elect_preferred()
    elif place == 16:
        cluster.remove_group(f"group-{number}")
        cluster.delete_topic(f"passing-{number}")


@in_event_loop
async def test_memory_does_not_grow_with_what_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """Once all bounded parts are full, hours of changes leave nothing behind.

    The bounds are small here, so that they are full soon. Then the test compares the growth with the number of events:
    a part that kept one of each would hold at least the event itself.
    """
    monkeypatch.setattr(history, "EVENTS_MAX", 200)
    monkeypatch.setattr(history.Series.__init__, "__defaults__", (20,))
    monkeypatch.setattr(board, "HISTORY_MAX", 20)
    cluster = FakeCluster(4, {"orders": 40, "clicks": 40}, rate=0, partition_bytes=1_000_000)
    async with dashboard(FakeFeed(cluster, on_tick=what_happens, plays=False)) as driven:

        async def blocks_after(rounds: int) -> tuple[int, int]:
            for number in range(rounds):
                await driven.press(PAGES[number % len(PAGES)][1])
                await driven.tick(ROUND)
            await driven.press("1")
            gc.collect()
            return sys.getallocatedblocks(), driven.app.board.event_count

        await blocks_after(len(PAGES))
        blocks_first, events_first = await blocks_after(len(PAGES))
        grown: list[tuple[int, int]] = []
        # Caches of libraries still fill up, and what pages draw comes and goes. Over several rounds that is little
        # beside one object for each event.
        while len(grown) < 6:
            blocks, events = await blocks_after(len(PAGES))
            grown.append((events - events_first, blocks - blocks_first))
            happened, kept = grown[-1]
            assert len(driven.app.board.events) == 200 and happened > 1_500 * len(grown)
            if len(grown) > 1 and kept < happened:
                return
        raise AssertionError(f"events, and blocks of memory since the first: {grown}")


@in_event_loop
async def test_a_screen_that_was_left_holds_no_rows() -> None:
    async with dashboard("live") as driven:
        for _, key, _ in PAGES:
            await driven.press(key)
        await driven.press("3", "down", "down", "1")
        await driven.tick(3)
        models = driven.main.models
        assert len(models) >= len(PAGES)
        left = [model for name, model in models.items() if name != "overview"]
        assert all(model.rows is NO_ROWS and not model.shown for model in left)
        await driven.press("3")
        assert driven.main.model.cursor == 2
