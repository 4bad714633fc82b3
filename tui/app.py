"""The dashboard as a program: its screen, keys, palette and clipboard; it ends with an exit code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack
from importlib import import_module
from typing import ClassVar

from textual import events, work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette, Hit, Hits, Provider
from textual.filter import LineFilter
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from engine.admin.watch.feed import Feed
from engine.admin.watch.frame import Frame
from engine.common.collection import full_collections_put_off, leave_uncollected
from tui.dialogs.dialog import EarlyKeys
from tui.drawing.units import plain
from tui.frame_app import FrameApp, handled_by
from tui.screen.action_handlers import perform, places
from tui.screen.main_screen import MainScreen
from tui.screen.page_screen import why_not
from tui.screen.saving import copied_text, copy_natively, native_command
from tui.state.session import Session
from tui.terminal import INTERRUPTED, signals_taken
from tui.themes import ColourlessFilter, PlainTextFilter, theme_of
from tui.widgets.toned import Toned

log = logging.getLogger(__name__)

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
        hits = [place for place in places(screen) if part in place[0].lower()]
        hits.sort(key=lambda place: not place[0].lower().startswith(part))
        for name, kind, location in hits[:PLACES_MAX]:
            score = 1.0 if name.lower().startswith(part) else 0.5
            yield Hit(score, plain(name), lambda location=location: screen.go_to(location), help=kind)


class Palette(CommandPalette, EarlyKeys[None]):
    """Textual's palette, which gets all keys that were typed since it was asked for."""

    async def searched(self) -> None:
        """Wait until what was typed has been searched for: enter means what is found."""
        searches = [worker.wait() for worker in self.workers if not worker.is_finished]
        if searches:
            await asyncio.wait(map(asyncio.ensure_future, searches), timeout=SEARCHED_WITHIN_S)

    def on_click(self, event: events.Click) -> None:
        """Leave out a click where the terminal was before it became smaller: Textual's palette fails at it."""
        if not self.region.contains_point(event.screen_offset):
            event.prevent_default()


class Dashboard(FrameApp, inherit_bindings=False):
    """The program with its screen."""

    TITLE = "klamm"
    ENABLE_COMMAND_PALETTE = True
    COMMANDS = App.COMMANDS | {Places}
    COMMAND_PALETTE_BINDING = "f20"  # the registry has the key
    CSS = """
    Toast { background: $panel; }
    CommandPalette > Vertical { margin-top: 3; }
    """
    BINDINGS: ClassVar[list[BindingType]] = [Binding("ctrl+c", "interrupt", "End", show=False, priority=True)]

    def __init__(self, session: Session, *, is_plain_text: bool = False, is_colourless: bool = False) -> None:
        super().__init__(session)
        self.left_behind = ""
        self.main: MainScreen | None = None
        """The screen below all dialogs."""
        self._settled: Feed | None = None
        """The feed whose first frames have come: what lives on is hidden from the collector then."""
        self._until_settled = ExitStack()
        self._signals = ExitStack()
        self._loading: asyncio.Task[None] | None = None
        for name, palette in session.palettes.items():
            self.register_theme(theme_of(name, palette))
        self.theme = session.theme if session.theme in session.palettes else "dark"
        self._own_filters: list[LineFilter] = [PlainTextFilter()] if is_plain_text else []
        if is_colourless:
            self._own_filters.append(ColourlessFilter(session.palettes[self.theme]))

    def get_line_filters(self) -> Sequence[LineFilter]:
        """Return Textual's filters and ours: all that is drawn passes them."""
        return [*super().get_line_filters(), *self._own_filters]

    def on_mount(self) -> None:
        self._signals.enter_context(signals_taken(self.exit))
        self._until_settled.enter_context(full_collections_put_off())
        self.main = MainScreen(self, perform)
        self.push_screen(self.main)
        self.begin_reading(self.session.feed)
        for problem in self.session.problems:
            log.warning(problem)
            self.notify(problem, severity="warning", timeout=30, markup=False)

    async def on_event(self, event: events.Event) -> None:
        """Handle each key whole before the next one, however fast they come."""
        if not isinstance(event, events.Key) or event.is_forwarded or event.key == "ctrl+c":
            await super().on_event(event)
            return
        screen = self.screen
        if isinstance(screen, EarlyKeys) and screen.holds_back(event):
            return
        if isinstance(screen, MainScreen) and screen.take_key(event.key):
            return
        field = self.focused
        if not isinstance(field, Input):
            await super().on_event(event)
            return
        # A letter waits in the queue of the field, and a key such as backspace would come back here after that: each
        # is let come to its end, so that they are done in their order.
        if isinstance(screen, Palette) and event.key == "enter":
            for node in field.ancestors_with_self:
                if isinstance(node, Widget):
                    await handled_by(node)
            await screen.searched()
        bound = None if event.is_printable else screen.active_bindings.get(event.key)
        if bound is not None and bound.enabled:
            await self.run_action(bound.binding.action, bound.node)
        else:
            await super().on_event(event)
        await handled_by(field)

    def refresh_css(self, animate: bool = True) -> None:
        """Draw in the colours of another theme also what keeps its own background and text colour."""
        super().refresh_css(animate)
        for screen in self.screen_stack:
            for widget in screen.query(Toned):
                widget.refresh()

    def take(self, frame: Frame) -> None:
        """Take a frame and draw it; after the first one, load what keys need later."""
        super().take(frame)
        if self.terminal is None:
            self._draw_frame()
        else:
            self.terminal.when_free(self._draw_frame)
        if self._loading is None:
            self.call_after_refresh(self._load_modules)
        feed, fleet = self.session.feed, self.session.shown_fleet
        if self._settled is not feed and (self.board.has_metadata if fleet is None else fleet.is_settled):
            self._settled = feed
            self.call_after_refresh(self._settle)

    def _draw_frame(self) -> None:
        if self.main is None:
            return
        with self.errors_told():
            if self.is_paused:
                self.main.draw_head()
            else:
                self.main.draw(is_new_data=True)

    def _load_modules(self) -> None:
        self._loading = self._loading or asyncio.create_task(asyncio.to_thread(load_modules), name="load modules")

    @work(name="settle")
    async def _settle(self) -> None:
        """Hide what lives on from the collector: it would scan modules and a large cluster again and again."""
        self._load_modules()
        assert self._loading is not None
        await asyncio.shield(self._loading)
        leave_uncollected()
        self._until_settled.close()

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a text both ways, and say which way was used."""
        super().copy_to_clipboard(text)
        self.run_worker(self._copy_natively(text), name="copy", group="copy", exclusive=True)

    async def _copy_natively(self, text: str) -> None:
        environment = self.session.environment
        command = native_command(environment)
        why_not = "" if command is None else await copy_natively(text, command, environment)
        used = command[0] if command is not None and not why_not else ""
        self.notify(copied_text(used, why_not, len(text.encode())), markup=False)

    async def on_unmount(self) -> None:
        """Leave nothing running; print what goes on in the cluster once the screen is gone."""
        desk = None if self.main is None else self.main.opened_desk
        if desk is not None:
            self.left_behind = desk.left_behind
            await desk.stop()
        background = [] if self.main is None else list(self.main.background)
        for task in background:
            if not task.cancelling():
                task.cancel()
        await asyncio.gather(*background, return_exceptions=True)
        await self.end_reading()
        await self.session.feed.close()
        if self.session.fleet is not None:
            await self.session.fleet.close()
        self._until_settled.close()
        self._signals.close()

    def action_interrupt(self) -> None:
        """End as Ctrl-C ends other programs; what was sent to the cluster goes on there."""
        (self.exit if self.main is None else self.main.leave)(INTERRUPTED)

    def action_command_palette(self) -> None:
        """Show the palette; while it is open, the key for it goes to its field."""
        self.push_screen(Palette(id="--command-palette"))

    def get_system_commands(self, screen: Screen[object]) -> Iterable[SystemCommand]:
        """Return what the palette offers: every action of the screen."""
        main = self.main
        if main is None:
            return
        for action in self.session.registry.on_page(main.location.screen):
            reason = why_not(main, action)
            text = f"{action.help}  {action.key_text}" + (f"  — {reason}" if reason else "")
            yield SystemCommand(action.title, text, lambda action_id=action.id: perform(main, action_id))


def has_utf8(encoding: str | None) -> bool:
    """Whether a terminal's encoding knows all characters that the dashboard draws."""
    return (encoding or "").lower().replace("-", "").startswith("utf")


MODULES = (
    "engine.admin.configs.quota_reading",
    "engine.admin.records.consume",
    "engine.admin.state_changes.partition_log",
    "engine.admin.znodes.tree",
    "tui.dialogs.settings",
    "tui.operations.elections",
    "tui.operations.groups",
    "tui.operations.reassignments",
    "tui.operations.settings",
    "tui.operations.partitions",
    "tui.operations.topics",
    "tui.pages.plans",
    "tui.planning.desk",
)
"""Whatever ``tui`` imports inside functions, but for what a command line or a broken file needs."""


def load_modules() -> None:
    """Load the modules that keys need later, so that no key waits for an import: that of the plans takes 0.2 s.

    The first picture does without them. A thread loads them once it is drawn; Python interrupts it every few
    milliseconds for the event loop.
    """
    for name in MODULES:
        import_module(name)
