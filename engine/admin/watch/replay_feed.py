"""The feed of a recording, which plays at its original speed, faster, slower or step by step, from any place."""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import AsyncIterator, Collection, Generator
from dataclasses import replace
from pathlib import Path

from engine.admin.cluster.errors import BadRequest
from engine.admin.watch.events import Event
from engine.admin.watch.feed import FeedStatus, FrameBox, Playback
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.recording import Recording

SPEED_MAX = 1_000.0
_GAP_MAX_S = 5.0
"""The longest pause: longer gaps in the recording are shortened to it."""
_FRAMES_ON_THE_WAY = 7_200
_BYTES_ON_THE_WAY = 16_000_000
"""A jump over more frames or bytes than this reports only the last events on its way: it would take too long."""


class ReplayFeed:
    """Plays a recording. Its frames are renumbered: a later one replaces an earlier one, wherever it was recorded.

    After a jump back, the frame's time is earlier than that of the frame before.

    Raises:
        NotFound: there is no such file.
        BadRequest: it is not a recording, or this klamm cannot read it.
    """

    def __init__(self, path: Path) -> None:
        self._recording = Recording(path)
        self._path = path
        self._box = FrameBox()
        self._shown = -1
        self._wanted: int | None = None
        """Where the last move goes; None once that frame is shown."""
        self._speed = 1.0
        self._sequence = 0
        self._is_paused = False
        self._moved = asyncio.Event()
        """Something else is wanted than before."""
        self._has_ended = False
        self._task: asyncio.Task[None] | None = None
        self.cut_short = self._recording.cut_short

    @property
    def status(self) -> FeedStatus:
        name = f"{self._recording.cluster} ({self._path.name})"
        return FeedStatus(name, 1.0 / self._speed, self._is_paused, self._has_ended, self._box.made)

    @property
    def latest(self) -> Frame | None:
        return self._box.latest

    @property
    def playback(self) -> Playback | None:
        return self

    async def start(self) -> None:
        await self._show(0)
        self._task = asyncio.create_task(self._play(), name="replay-feed")

    def frames(self) -> AsyncIterator[Frame]:
        return self._box.frames()

    def pause(self) -> None:
        self._is_paused = True
        self._moved.set()

    def resume(self) -> None:
        """Go on; at the end, begin again."""
        if self._goal >= self.count - 1:
            self.seek(0)
        self._is_paused = False
        self._moved.set()

    def refresh(self, stages: Collection[Stage] = ()) -> None:
        """There is nothing to read again."""

    def set_interval(self, interval_s: float) -> None:
        """Do nothing: the recording has its own interval; ``set_speed`` changes how fast it is played."""

    async def close(self) -> None:
        self._has_ended = True
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        self._recording.close()
        self._box.close()

    # Playback

    @property
    def position(self) -> int:
        return max(0, self._shown)

    @property
    def count(self) -> int:
        return self._recording.count

    @property
    def first_ms(self) -> int:
        return self._recording.time_of(0)

    @property
    def last_ms(self) -> int:
        return self._recording.time_of(self.count - 1)

    @property
    def speed(self) -> float:
        return self._speed

    def set_speed(self, speed: float) -> None:
        if not 0 < speed <= SPEED_MAX:
            raise ValueError(f"a speed is above 0, and at most {SPEED_MAX:g}")
        self._speed = speed
        self._moved.set()

    def step(self, count: int) -> None:
        self.pause()
        self.seek(self._goal + count)

    def seek(self, position: int) -> None:
        self._wanted = min(max(0, position), self.count - 1)
        self._moved.set()

    # Inside

    @property
    def _goal(self) -> int:
        return self.position if self._wanted is None else self._wanted

    async def _play(self) -> None:
        """Show what is wanted, else what comes next: this task alone reads the recording."""
        while True:
            self._moved.clear()
            if self._wanted is not None:
                await self._show(self._wanted)
                continue
            if self._is_paused or self.position >= self.count - 1:
                self._is_paused = True
                await self._moved.wait()
                continue
            following = self.position + 1
            after_ms = self._recording.time_of(following) - self._recording.time_of(self.position)
            due_s = asyncio.get_running_loop().time() + min(_GAP_MAX_S, max(0, after_ms) / 1000) / self._speed
            await self._read_ahead(following)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout_at(due_s):
                    await self._moved.wait()
                    continue
            await self._show(following)

    async def _read_ahead(self, position: int) -> None:
        """Read a frame, so that it can be shown when it is due; a move to another place ends that."""
        with contextlib.suppress(BadRequest):
            for _ in self._recording.frame_in_turns(position):
                await asyncio.sleep(0)
                if self._moved.is_set():
                    return

    async def _show(self, position: int) -> None:
        """Read a frame and offer it; going forward, with what happened in the frames in between.

        A move back, or to an earlier frame than this one, replaces it.
        """
        turns = self._read(position)
        try:
            while True:
                try:
                    next(turns)
                except StopIteration as end:
                    frame, events = end.value
                    break
                await asyncio.sleep(0)
                if self._wanted is not None and self._wanted < position:
                    return
        except BadRequest as error:
            # The frames before the damage are shown; the position stays at the last of them.
            self.cut_short = str(error)
            self._wanted = None
            self.pause()
            return
        if self._wanted == position:
            self._wanted = None
        self._shown = position
        self._sequence += 1
        self._box.put(replace(frame, sequence=self._sequence, events=events))

    def _read(self, position: int) -> Generator[None, None, tuple[Frame, tuple[Event, ...]]]:
        before = max(self._shown, position - _FRAMES_ON_THE_WAY)
        before = max(before, self._recording.before_bytes(position, _BYTES_ON_THE_WAY))
        events = yield from self._recording.events_in_turns(before, position)
        return (yield from self._recording.frame_in_turns(position)), events
