"""A dashboard that runs for hours keeps what is on the screen and what its bounds allow, nothing else."""

from __future__ import annotations

import gc
import weakref
from typing import Any

from dashboards import dashboard, drive
from textual.screen import Screen
from textual.widget import Widget

KEYS = (
    ("question_mark", "escape"),
    ("i", "escape"),
    ("ctrl+p", "escape"),
    ("3", "y", "escape"),
    ("3", "ctrl+s", "escape"),
)


def traces_of(screen: Screen[Any]) -> list[weakref.ref[Any]]:
    """Return what tells whether a window's widgets are still there, and what they have drawn."""
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
