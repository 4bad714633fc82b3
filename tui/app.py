"""The dashboard as a Textual program: takes frames from a feed, keeps the board, and ends with an exit code."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from importlib import import_module
from pathlib import Path
from typing import ClassVar

from textual import events, work
from textual.app import App, SystemCommand
from textual.binding import Binding, BindingType
from textual.command import CommandPalette, Hit, Hits, Provider
from textual.filter import LineFilter
from textual.message_pump import MessagePump
from textual.screen import Screen
from textual.widget import Widget
from textual.widgets import Input

from engine.admin.analysis.history import EVENTS_MAX
from engine.admin.cluster.target import ClusterTarget
from engine.admin.watch.feed import Feed
from engine.admin.watch.frame import Frame
from engine.common.collection import full_collections_put_off, leave_uncollected
from tui.dialogs.confirm import GO_ON, ConfirmDialog
from tui.dialogs.dialog import EarlyKeys
from tui.drawing.units import plain
from tui.screen.action_handlers import perform, places, why_not
from tui.screen.main_screen import MainScreen
from tui.screen.saving import copy_natively, native_command, told
from tui.state.board import Board
from tui.state.session import Session
from tui.state.status import Standing, causes_of, standing_of
from tui.terminal import INTERRUPTED, Terminal, signals_taken
from tui.themes import ColourlessFilter, PlainTextFilter, theme_of

log = logging.getLogger(__name__)

HANDLED_WITHIN_S = 1.0
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
        found = [place for place in places(screen) if part in place[0].lower()]
        found.sort(key=lambda one: not one[0].lower().startswith(part))
        for name, what, location in found[:PLACES_MAX]:
            score = 1.0 if name.lower().startswith(part) else 0.5
            yield Hit(score, plain(name), lambda location=location: screen.go_to(location), help=what)


class Palette(CommandPalette, EarlyKeys[None]):
    """Textual's palette, which gets all keys that were typed since it was asked for."""

    async def searched(self) -> None:
        """Wait until what was typed has been searched for: enter means what is found."""
        searches = [worker.wait() for worker in self.workers if not worker.is_finished]
        if searches:
            await asyncio.wait(map(asyncio.ensure_future, searches), timeout=SEARCHED_WITHIN_S)


class Dashboard(App[int], inherit_bindings=False):
    """One dashboard over one feed at a time. The worker that reads the feed is the only one that touches it."""

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
        super().__init__(driver_class=Terminal)
        self.session = session
        self.board = Board()
        self.received_at: float | None = None
        self.is_paused = False
        self._held: Frame | None = None
        self._reader: asyncio.Task[None] | None = None
        self._told: set[str] = set()
        self._is_leaving = False
        self.left_behind = ""
        self.main: MainScreen | None = None
        """The screen below all dialogs."""
        self._standing: Standing | None = None
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
        self.main = MainScreen(self)
        self.push_screen(self.main)
        self._read(self.session.feed)
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

    def _read(self, feed: Feed) -> None:
        self._reader = asyncio.create_task(self._take_frames(feed), name="dashboard-frames")

    async def _take_frames(self, feed: Feed) -> None:
        """Take frames until there are no more. An error in one frame is shown and logged, and later frames follow."""
        is_settled = False
        await feed.start()
        async for frame in feed.frames():
            try:
                for _ in self.board.turns(frame):
                    await asyncio.sleep(0)
                self.take(frame)
                if self._loading is None:
                    self.call_after_refresh(self._load_modules)
                fleet = self.session.shown_fleet
                if not is_settled and (self.board.has_metadata if fleet is None else fleet.is_settled):
                    is_settled = True
                    self.call_after_refresh(self._settle)
            except Exception:
                log.exception("a frame could not be shown")
                self.notify("a frame could not be shown: see the logs (l)", severity="error", markup=False)

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

    def take(self, frame: Frame) -> None:
        """Take a frame; while the view is frozen, it waits."""
        self._tell_trouble()
        self.received_at = self.session.clock()
        if self.is_paused:
            waited = () if self._held is None else self._held.events
            self._held = replace(frame, events=(*waited, *frame.events)[-EVENTS_MAX:])
            if self.main is not None:
                self.main.draw_head()
            return
        self.board.take(frame)
        self._log_standing(frame)
        if self.main is not None:
            self.main.draw(is_new_data=True)

    def _log_standing(self, frame: Frame) -> None:
        """Log when the dashboard loses sight of the cluster, and when it sees it again."""
        if self.session.shows_fleet:
            return
        standing = standing_of(frame)
        if standing is not self._standing:
            self._standing = standing
            where = f"{self.cluster_name} {'; '.join(causes_of(frame))}".rstrip()
            level = logging.INFO if standing.is_seen else logging.WARNING
            log.log(level, "The dashboard is %s. cluster=%s", standing, where)

    @property
    def cluster_name(self) -> str:
        """The cluster's name, or the recording's."""
        target = self.session.target
        return self.session.feed.status.name if target is None else target.name

    def _tell_trouble(self) -> None:
        """Say once if the recording has ended while the view goes on."""
        trouble = getattr(self.session.feed, "trouble", "")
        if trouble and trouble not in self._told:
            self._told.add(trouble)
            self.notify(trouble, severity="error", timeout=60, markup=False)

    @property
    def newest(self) -> Frame:
        """The newest frame, shown or waiting."""
        return self._held or self.board.frame

    @property
    def now_ms(self) -> int:
        """The time by the newest frame's clock; a recording stands still between frames."""
        frame = self.newest
        if self.session.feed.playback is not None or self.received_at is None:
            return frame.at_ms
        return frame.at_ms + round((self.session.clock() - self.received_at) * 1000)

    def toggle_pause(self) -> None:
        """Freeze the view, or show what came meanwhile; a recording pauses and resumes."""
        feed = self.session.feed
        if feed.playback is not None or self.session.shows_fleet:
            (feed.resume if feed.status.is_paused else feed.pause)()
            return
        self.is_paused = not self.is_paused
        held, self._held = self._held, None
        if not self.is_paused and held is not None:
            self.take(held)

    def copy_to_clipboard(self, text: str) -> None:
        """Copy a text both ways, and say which way was used."""
        super().copy_to_clipboard(text)
        self.run_worker(self._copy_natively(text), name="copy", group="copy", exclusive=True)

    async def _copy_natively(self, text: str) -> None:
        environment = self.session.environment
        command = native_command(environment)
        why_not = "" if command is None else await copy_natively(text, command, environment)
        used = command[0] if command is not None and not why_not else ""
        self.notify(told(used, why_not, len(text.encode())), markup=False)

    @property
    def has_answer(self) -> bool:
        """Whether the cluster was read; of many clusters, any of them."""
        fleet = self.session.shown_fleet
        return self.board.has_metadata if fleet is None else fleet.has_answer

    async def switch_cluster(self, target: ClusterTarget | None) -> None:
        """Look at another cluster from now on; None: at all of them."""
        session = self.session
        opened = session.fleet if target is None or session.open_feed is None else session.open_feed(target)
        assert opened is not None
        await self._end_reading()
        if session.fleet is not None and session.shows_fleet:
            session.fleet.pause()
        else:
            await session.feed.close()
        feed = session.feed = opened
        session.target = target
        self.board = Board()
        self.is_paused, self._held, self.received_at = False, None, None
        self._read(feed)

    async def _end_reading(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

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
        await self._end_reading()
        await self.session.feed.close()
        if self.session.fleet is not None:
            await self.session.fleet.close()
        self._until_settled.close()
        self._signals.close()

    def finish_screenshot(self, code: int = 0) -> None:
        """Write the picture that was requested at the start, and end."""
        path, self.session.screenshot = self.session.screenshot, None
        if path is not None and self.return_value is None:
            self.run_worker(self._draw_into(path, code), name="picture")

    async def _draw_into(self, path: Path, code: int) -> None:
        """Write the picture once it stays the same: lines that a view gets move others, which are then drawn again."""
        before, drawn = "", self.export_screenshot(title="klamm top")
        while drawn != before:
            # Classes are styled by the app, heights are found by the screen.
            for node in (self, *self.screen.walk_children(Widget)):
                await handled_by(node)
            is_drawn = asyncio.Event()
            self.screen.call_after_refresh(is_drawn.set)
            await is_drawn.wait()
            before, drawn = drawn, self.export_screenshot(title="klamm top")
        await asyncio.to_thread(path.write_text, drawn, encoding="utf-8")
        self.exit(code)

    def action_interrupt(self) -> None:
        """End as Ctrl-C ends other programs; what was sent to the cluster goes on there."""
        self.leave(INTERRUPTED)

    def leave(self, code: int) -> None:
        """End the dashboard; if that would end the run of a plan, ask first. A second request needs no answer."""
        desk = None if self.main is None else self.main.opened_desk
        if desk is None or not desk.left_behind or self._is_leaving:
            self.exit(code)
            return
        self._is_leaving = True
        prepared = desk.end_prepared("End the dashboard, and the run of the plan with it?")

        def answered(is_meant: bool | None) -> None:
            if is_meant:
                self.exit(code)
            self._is_leaving = False

        self.push_screen(ConfirmDialog(prepared, GO_ON), answered)

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


async def handled_by(node: MessagePump) -> None:
    """Wait until a widget or the app has handled what it was sent so far; one that goes away does not any more."""
    is_done = asyncio.Event()
    if node.call_later(is_done.set):
        with suppress(TimeoutError):
            async with asyncio.timeout(HANDLED_WITHIN_S):
                await is_done.wait()


def has_utf8(encoding: str | None) -> bool:
    """Whether a terminal's encoding knows all characters that the dashboard draws."""
    return (encoding or "").lower().replace("-", "").startswith("utf")


MODULES = (
    "engine.admin.state_changes.partition_log",
    "engine.admin.znodes.tree",
    "tui.dialogs.settings",
    "tui.operations.elections",
    "tui.operations.groups",
    "tui.operations.reassignments",
    "tui.operations.partitions",
    "tui.operations.topics",
    "tui.pages.plans",
    "tui.planning.desk",
    "tui.planning.forms",
)
"""Whatever ``tui`` imports inside functions, but for what a command line or a broken file needs."""


def load_modules() -> None:
    """Load the modules that keys need later, so that no key waits for an import: that of the plans takes 0.2 s.

    The first picture does without them. A thread loads them once it is drawn; Python interrupts it every few
    milliseconds for the event loop.
    """
    for name in MODULES:
        import_module(name)
