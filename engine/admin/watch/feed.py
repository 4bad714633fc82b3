"""The interface between a cluster and its viewers: frames come from a feed, whether live, replayed or made up."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Collection
from dataclasses import dataclass, replace
from typing import Protocol

from engine.admin.watch.frame import Frame, Stage

INTERVAL_MIN_S = 0.5
INTERVAL_MAX_S = 10.0

WAITING_EVENTS_MAX = 20_000
"""How many events wait for a reader that takes no frames; the oldest are dropped first."""


@dataclass(frozen=True, slots=True)
class FeedStatus:
    """The status of a feed itself.

    Attributes:
        name: which cluster or recording, for a person.
        interval_s: time between two ticks.
        is_paused: no new frames come, and nothing is asked of the cluster.
        has_ended: no more frames will come: it was closed, or the recording is at its end.
        frames_made: since the start, taken or not.
    """

    name: str
    interval_s: float = 1.0
    is_paused: bool = False
    has_ended: bool = False
    frames_made: int = 0


class Playback(Protocol):
    """A recording that is being played.

    A move shows its frame as soon as it is read, even while the recording is paused. A later move replaces one
    that is still being read, unless it passes that frame anyway.
    """

    @property
    def position(self) -> int:
        """Which frame is shown, from 0."""

    @property
    def count(self) -> int:
        """How many frames there are."""

    @property
    def first_ms(self) -> int:
        """When the first frame was recorded (wall clock)."""

    @property
    def last_ms(self) -> int:
        """Time of the last frame."""

    @property
    def speed(self) -> float:
        """How many recorded seconds pass in one second; 1 is the original speed."""

    @property
    def cut_short(self) -> str:
        """Why the recording ends before its end; empty if it is whole."""

    def set_speed(self, speed: float) -> None:
        """Play faster or slower. Raises ValueError for a speed that is not above 0."""

    def step(self, count: int) -> None:
        """Go forward or back by this many frames, from where the last move goes; the ends are the limits. Pauses."""

    def seek(self, position: int) -> None:
        """Go to a frame; the ends are the limits."""


class Feed(Protocol):
    """Gives frames of one cluster. Use it from one event loop; one reader of ``frames``.

    Start it, read ``frames`` until they end, close it. An unreachable cluster is not an error: frames say so, and the
    feed keeps trying.
    """

    @property
    def status(self) -> FeedStatus:
        """The status of the feed itself."""

    @property
    def playback(self) -> Playback | None:
        """The recording's controls; None for a feed that is not a recording."""

    async def start(self) -> None:
        """Begin; returns at once, the first frame comes from ``frames``."""

    def frames(self) -> AsyncIterator[Frame]:
        """Yield each new frame. A slow reader gets the newest, with the events of all frames that it missed."""

    def pause(self) -> None:
        """Make no more frames, and ask the cluster nothing, until ``resume``."""

    def resume(self) -> None:
        """Go on after ``pause``."""

    def refresh(self, stages: Collection[Stage] = ()) -> None:
        """Read these stages now (none named: all), however young they are. One that is being read is read once more."""

    def set_interval(self, interval_s: float) -> None:
        """Tick at this interval, kept between INTERVAL_MIN_S and INTERVAL_MAX_S."""

    async def close(self) -> None:
        """End: ``frames`` ends, connections and tasks are gone when this returns. A second time does nothing."""


def interval_within_bounds(interval_s: float) -> float:
    """Return the nearest interval that a feed allows."""
    return min(INTERVAL_MAX_S, max(INTERVAL_MIN_S, interval_s))


class FrameBox:
    """Holds one frame between its maker and its reader: a newer one replaces an older one that was not taken.

    No event is lost: the newer frame also gets those of the older one.
    """

    def __init__(self) -> None:
        self._frame: Frame | None = None
        self._is_closed = False
        self._news = asyncio.Event()
        self.latest: Frame | None = None
        self.made = 0

    def put(self, frame: Frame) -> None:
        """Offer a frame."""
        self.made += 1
        self.latest = frame
        waiting = self._frame
        if waiting is not None:
            frame = replace(frame, events=(waiting.events + frame.events)[-WAITING_EVENTS_MAX:])
        self._frame = frame
        self._news.set()

    def close(self) -> None:
        """Let ``frames`` end once the last frame was taken."""
        self._is_closed = True
        self._news.set()

    async def frames(self) -> AsyncIterator[Frame]:
        """Yield frames until ``close``."""
        while self._frame is not None or not self._is_closed:
            await self._news.wait()
            self._news.clear()
            frame, self._frame = self._frame, None
            if frame is not None:
                yield frame
