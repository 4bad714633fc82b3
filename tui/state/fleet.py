"""Many clusters at the same time. Every cluster has its own feed, so that none waits for another."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Collection, Iterable
from concurrent.futures import ThreadPoolExecutor

from engine.admin.cluster.profiles import Profile
from engine.admin.cluster.target import ClusterTarget
from engine.admin.watch.feed import INTERVAL_MAX_S, Feed, FeedStatus, Playback, interval_within_bounds
from engine.admin.watch.frame import Frame, Stage
from engine.common.clock import SystemClock
from tui.state.board import Board
from tui.state.status import STALE_FACTOR, Standing, StandingLog, standing_of

log = logging.getLogger(__name__)

OpenFeed = Callable[[ClusterTarget], Feed]

HASTE_S = 1.0
"""How often a cluster is asked until it is known."""
_NEWS_GAP_S = 0.25
"""The shortest time between two pictures of all clusters, however much happens in them."""
_STALE_MS = 1_000 * STALE_FACTOR * INTERVAL_MAX_S
"""The last frame of a cluster says no longer than this how it is."""
_THREADS_EACH = 4
_LOST = (None, Standing.DISCONNECTED, Standing.DENIED)


class Member:
    """One of many clusters.

    Attributes:
        target: None: its profile cannot be used, and ``error`` says why.
        board: what was read of it so far.
        feed: reads it; None before the start.
    """

    def __init__(self, profile: Profile, target: ClusterTarget | None, error: str = "") -> None:
        self.profile = profile
        self.target = target
        self.error = error
        self.board = Board()
        self.feed: Feed | None = None
        self.hurries_since_ms: int | None = 0
        """It is asked often until it was read after this time; None: it need not be."""
        self.standing_log = StandingLog()

    @property
    def name(self) -> str:
        return self.profile.name

    def standing(self, now_ms: int | None = None) -> Standing | None:
        """Return the connection to it; None if there can be none.

        A frame is judged by its own time: data of a cluster that is asked seldom may be old between two frames.
        """
        if self.target is None:
            return None
        frame, standing = self.board.frame, standing_of(self.board.frame)
        is_old = now_ms is not None and now_ms - frame.at_ms > _STALE_MS
        return Standing.STALE if standing.is_seen and is_old else standing

    @property
    def is_settled(self) -> bool:
        """Whether all that can be read of it was read once, or it cannot be reached."""
        return self.standing() in _LOST or self.board.was_read_whole

    def is_known_since(self, at_ms: int) -> bool:
        """Whether it was read after this time, or cannot be reached."""
        read_at_ms = self.board.frame.stage(Stage.METADATA).read_at_ms
        return self.standing() in _LOST or (self.is_settled and (read_at_ms or 0) >= at_ms)


class Fleet:
    """The feed of many clusters. Its frames say only that there is news: what is known is in its members.

    A cluster is asked every second until it is known, then at the interval. What ZooKeeper reports of it, and a
    broker's silence, are news at once.
    """

    playback: Playback | None = None

    def __init__(self, members: Iterable[Member], open_feed: OpenFeed, now_ms: Callable[[], int] | None = None) -> None:
        self.members = tuple(members)
        self.open_feed = open_feed
        self._now_ms = now_ms or SystemClock().now_ms
        self._interval_s = INTERVAL_MAX_S
        self._news = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []
        self._is_paused = self._has_ended = False
        self._made = 0

    @property
    def status(self) -> FeedStatus:
        return FeedStatus("all clusters", self._interval_s, self._is_paused, self._has_ended, self._made)

    @property
    def is_settled(self) -> bool:
        """Whether each cluster was read once, or cannot be reached."""
        return all(member.is_settled for member in self.members)

    @property
    def has_answer(self) -> bool:
        return any(member.board.has_metadata for member in self.members)

    async def start(self) -> None:
        """Begin, or go on after ``pause``."""
        self._news.set()
        if self._tasks:
            self.refresh()
            self.resume()
            return
        # Names are looked up in threads, by default only a few: some that a resolver leaves waiting would hold up all
        # the other clusters.
        threads = ThreadPoolExecutor(_THREADS_EACH * (len(self.members) + 1), thread_name_prefix="klamm-top")
        asyncio.get_running_loop().set_default_executor(threads)
        for member in self.members:
            if member.target is not None:
                member.feed = self.open_feed(member.target)
                self._tasks.append(asyncio.create_task(self._read(member, member.feed), name=f"fleet-{member.name}"))

    async def _read(self, member: Member, feed: Feed) -> None:
        await feed.start()
        async for frame in feed.frames():
            try:
                for _ in member.board.turns(frame):
                    await asyncio.sleep(0)
                member.board.take(frame)
            except Exception:
                log.exception("a frame could not be counted. cluster=%s", member.name)
                continue
            member.standing_log.note(frame, member.name)
            if member.hurries_since_ms is not None and member.is_known_since(member.hurries_since_ms):
                member.hurries_since_ms = None
                feed.set_interval(self._interval_s)
            self._news.set()

    async def frames(self) -> AsyncIterator[Frame]:
        while not self._has_ended:
            await self._news.wait()
            self._news.clear()
            self._made += 1
            yield Frame(self._made, self._now_ms())
            await asyncio.sleep(_NEWS_GAP_S)

    def pause(self) -> None:
        self._is_paused = True
        for feed in self._feeds():
            feed.pause()

    def resume(self) -> None:
        self._is_paused = False
        for feed in self._feeds():
            feed.resume()

    def refresh(self, stages: Collection[Stage] = ()) -> None:
        for member in self.members:
            if member.feed is not None:
                member.hurries_since_ms = self._now_ms()
                member.feed.set_interval(HASTE_S)
                member.feed.refresh(stages)

    def set_interval(self, interval_s: float) -> None:
        self._interval_s = interval_within_bounds(interval_s)
        for member in self.members:
            if member.feed is not None and member.hurries_since_ms is None:
                member.feed.set_interval(self._interval_s)

    async def close(self) -> None:
        self._has_ended = True
        self._news.set()
        tasks, self._tasks = self._tasks, []
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await asyncio.gather(*(feed.close() for feed in self._feeds()))

    def _feeds(self) -> list[Feed]:
        return [member.feed for member in self.members if member.feed is not None]
