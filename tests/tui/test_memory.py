"""A dashboard that runs for hours keeps only what is on the screen and what its bounds allow."""

from __future__ import annotations

import gc
import weakref
from dataclasses import replace
from typing import Any

from dashboards import dashboard, drive
from textual.screen import Screen
from textual.widget import Widget

from engine.admin.watch.events import Event, EventKind
from tui.state.history import EVENTS_MAX

KEYS = (
    ("question_mark", "escape"),
    ("i", "escape"),
    ("ctrl+p", "escape"),
    ("3", "y", "escape"),
    ("3", "ctrl+s", "escape"),
)


def test_a_view_that_is_held_still_keeps_the_newest_of_what_happens_and_no_more() -> None:
    async def run() -> None:
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

    drive(run)


def traces_of(screen: Screen[Any]) -> list[weakref.ref[Any]]:
    """Return traces that show whether a window's widgets still exist, and what they have drawn."""
    widgets = [one for one in screen.walk_children(with_self=True) if isinstance(one, Widget)]
    return [weakref.ref(kept) for widget in widgets for kept in (widget, widget._styles_cache)]


def test_nothing_of_a_closed_window_is_kept() -> None:
    async def run() -> None:
        async with dashboard("live") as driven:
            await driven.tick(2)
            left: list[weakref.ref[Any]] = []
            for opens, *closes in KEYS:
                await driven.press(opens, *closes[:-1])
                assert driven.app.screen is not driven.main
                left += traces_of(driven.app.screen)
                await driven.press(closes[-1])
                assert driven.app.screen is driven.main
            assert len(left) > 50

            def are_gone() -> bool:
                gc.collect()
                return not any(one() is not None for one in left)

            await driven.until(are_gone)

    drive(run)
