"""A feed that is recorded while the user watches it."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from engine.admin.watch.feed import Feed, FeedStatus, Playback
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.recording import FrameWriter

log = logging.getLogger(__name__)


class RecordedFeed:
    """Passes on the frames of another feed, and writes each to a file. A full disk ends the recording, not the feed.

    Raises:
        BadRequest: the file exists already, or cannot be created.
    """

    def __init__(self, feed: Feed, path: Path) -> None:
        self._feed = feed
        self.path = path
        self._writer: FrameWriter | None = FrameWriter(path, feed.status.name)
        self.trouble = ""
        """Why the recording has ended; empty while it goes on."""

    @property
    def status(self) -> FeedStatus:
        return self._feed.status

    @property
    def latest(self) -> Frame | None:
        return self._feed.latest

    @property
    def playback(self) -> Playback | None:
        return self._feed.playback

    async def start(self) -> None:
        await self._feed.start()

    async def frames(self) -> AsyncIterator[Frame]:
        async for frame in self._feed.frames():
            self._write(frame)
            yield frame

    def pause(self) -> None:
        self._feed.pause()

    def resume(self) -> None:
        self._feed.resume()

    def refresh(self, stages: Collection[Stage] = ()) -> None:
        self._feed.refresh(stages)

    def set_interval(self, interval_s: float) -> None:
        self._feed.set_interval(interval_s)

    async def close(self) -> None:
        await self._feed.close()
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    def _write(self, frame: Frame) -> None:
        if self._writer is None:
            return
        try:
            self._writer.write(frame)
        except OSError as error:
            self.trouble = f"the recording {self.path} has ended: {error.strerror or error}"
            log.exception("the recording has ended")
            self._writer.close()
            self._writer = None
