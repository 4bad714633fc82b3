"""The part of the dashboard's program that takes frames from a feed, keeps the board, and makes screenshots."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from pathlib import Path

from textual.app import App
from textual.message_pump import MessagePump
from textual.widget import Widget

from engine.admin.analysis.history import EVENTS_MAX
from engine.admin.cluster.target import ClusterTarget
from engine.admin.watch.feed import Feed
from engine.admin.watch.frame import Frame
from tui.state.board import Board
from tui.state.session import Session
from tui.state.status import StandingLog
from tui.terminal import Terminal

log = logging.getLogger(__name__)

HANDLED_WITHIN_S = 1.0


class FrameApp(App[int], inherit_bindings=False):
    """One dashboard over one feed at a time. The worker that reads the feed is the only one that touches it."""

    def __init__(self, session: Session) -> None:
        super().__init__(driver_class=Terminal)
        self.session = session
        self.terminal: Terminal | None = None
        """Where it is drawn; None without a terminal."""
        self.board = Board()
        self.received_at: float | None = None
        self.is_paused = False
        self._held: Frame | None = None
        self._reader: asyncio.Task[None] | None = None
        self._told: set[str] = set()
        self._standing_log = StandingLog()

    def begin_reading(self, feed: Feed) -> None:
        self._reader = asyncio.create_task(self._take_frames(feed), name="dashboard-frames")

    async def _take_frames(self, feed: Feed) -> None:
        """Take frames until there are no more; after one that cannot be shown, later ones follow."""
        await feed.start()
        async for frame in feed.frames():
            with self.errors_told():
                for _ in self.board.turns(frame):
                    await asyncio.sleep(0)
                self.take(frame)

    @contextmanager
    def errors_told(self) -> Iterator[None]:
        """Log an error inside, and show that a frame is missing."""
        try:
            yield
        except Exception:
            log.exception("a frame could not be shown")
            self.notify("a frame could not be shown: see the logs (l)", severity="error", markup=False)

    def take(self, frame: Frame) -> None:
        """Take a frame; while the view is frozen, it waits."""
        self._tell_trouble()
        self.received_at = self.session.clock()
        if self.is_paused:
            waited = () if self._held is None else self._held.events
            self._held = replace(frame, events=(*waited, *frame.events)[-EVENTS_MAX:])
            return
        self.board.take(frame)
        if not self.session.shows_fleet:
            self._standing_log.note(frame, self.cluster_name)

    def _tell_trouble(self) -> None:
        """Say once if the recording has ended while the view stays open."""
        trouble = getattr(self.session.feed, "trouble", "")
        if trouble and trouble not in self._told:
            self._told.add(trouble)
            self.notify(trouble, severity="error", timeout=60, markup=False)

    @property
    def cluster_name(self) -> str:
        """The cluster's name, or the recording's."""
        target = self.session.target
        return self.session.feed.status.name if target is None else target.name

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
        await self.end_reading()
        if session.fleet is not None and session.shows_fleet:
            session.fleet.pause()
        else:
            await session.feed.close()
        feed = session.feed = opened
        session.target = target
        self.board = Board()
        self.is_paused, self._held, self.received_at = False, None, None
        self.begin_reading(feed)

    async def end_reading(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            reader.cancel()
            await asyncio.gather(reader, return_exceptions=True)

    def frame_was_drawn(self) -> None:
        """If a picture was requested at the start, make it once everything was read or no frame follows, and end."""
        playback, fleet = self.session.feed.playback, self.session.fleet
        is_last = playback is not None and self.board.frame.at_ms > 0 and playback.position + 1 >= playback.count
        is_whole = self.board.was_read_whole if fleet is None else fleet.is_settled
        if self.session.screenshot is not None and (is_whole or is_last):
            self.screen.call_after_refresh(self.finish_screenshot, 0 if self.has_answer else 3)

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


async def handled_by(node: MessagePump) -> None:
    """Wait until a widget or the app has handled what it was sent so far; one that goes away does not any more."""
    is_done = asyncio.Event()
    if node.call_later(is_done.set):
        with suppress(TimeoutError):
            async with asyncio.timeout(HANDLED_WITHIN_S):
                await is_done.wait()
