"""The palette: finds an action by its name. Textual's own, with keys that come faster than it."""

from __future__ import annotations

import asyncio

from textual.command import CommandPalette

from tui.dialogs.dialog import EarlyKeys

SEARCHED_WITHIN_S = 1.0


class Palette(CommandPalette, EarlyKeys[None]):
    """The palette, which gets all keys that were typed since it was asked for."""

    async def searched(self) -> None:
        """Wait until what was typed has been searched for: enter means what is found."""
        searches = [worker.wait() for worker in self.workers if not worker.is_finished]
        if searches:
            await asyncio.wait(map(asyncio.ensure_future, searches), timeout=SEARCHED_WITHIN_S)
