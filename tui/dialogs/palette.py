"""The palette: finds an action, a topic, a group or a broker. Textual's own, with keys that come faster than it."""

from __future__ import annotations

import asyncio

from textual.command import CommandPalette, Hit, Hits, Provider

from tui.dialogs.dialog import EarlyKeys
from tui.main_screen import MainScreen
from tui.units import plain

SEARCHED_WITHIN_S = 1.0
PLACES_MAX = 50
"""More of them are no choice; and each is a row that has to be drawn."""


class Places(Provider):
    """Finds topics, groups and brokers by a part of their names."""

    async def search(self, query: str) -> Hits:
        """Yield the places whose names hold what was typed, those that begin with it first."""
        screen = self.screen
        if not isinstance(screen, MainScreen):
            return
        part = query.lower()
        found = [one for one in screen.places() if part in one[0].lower()]
        found.sort(key=lambda one: not one[0].lower().startswith(part))
        for name, what, location in found[:PLACES_MAX]:
            score = 1.0 if name.lower().startswith(part) else 0.5
            yield Hit(score, plain(name), lambda location=location: screen.go_to(location), help=what)


class Palette(CommandPalette, EarlyKeys[None]):
    """The palette, which gets all keys that were typed since it was asked for."""

    async def searched(self) -> None:
        """Wait until what was typed has been searched for: enter means what is found."""
        searches = [worker.wait() for worker in self.workers if not worker.is_finished]
        if searches:
            await asyncio.wait(map(asyncio.ensure_future, searches), timeout=SEARCHED_WITHIN_S)
