"""A feed that is recorded while the user watches it."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Collection
from pathlib import Path

from engine.admin.watch.feed import Feed, FeedStatus, FrameBox, Playback
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.recording import FrameWriter

log = logging.getLogger(__name__)


class RecordedFeed:
    """Passes on the frames of another feed, and writes them to a file. A full disk ends the recording, not the feed.

    A thread writes, so that neither a large frame nor a slow disk holds the screen up. Of the frames that come while it
    writes one, the newest is written next, with the events of all.

    Raises:
        BadRequest: the file exists already, or cannot be created.
    """

    def __init__(self, feed: Feed, path: Path) -> None:
        self._feed = feed
        self.path = path
        self._writer: FrameWriter | None = FrameWriter(path, feed.status.name)
        self.trouble = ""
        """Why the recording has ended; empty while it goes on."""
        self._box = FrameBox()
        self._writing: asyncio.Task[None] | None = None

    playback: Playback | None = None
    """What is recorded is live."""

    @property
    def status(self) -> FeedStatus:
        return self._feed.status

    async def start(self) -> None:
        await self._feed.start()

    async def frames(self) -> AsyncIterator[Frame]:
        if self._writing is None:
            self._writing = asyncio.create_task(self._write(), name="recording")
        async for frame in self._feed.frames():
            if self._writer is not None:
                self._box.put(frame)
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
        self._box.close()
        if self._writing is not None:
            await self._writing
        if self._writer is not None:
            self._writer.close()
            self._writer = None

    async def _write(self) -> None:
        writer = self._writer
        if writer is None:
            return
        try:
            async for frame in self._box.frames():
                await asyncio.to_thread(writer.write, frame)
        except Exception as error:
            why = error.strerror if isinstance(error, OSError) else None
            self.trouble = f"the recording {self.path} has ended: {why or error}"
            log.exception("the recording has ended")
            writer.close()
            self._writer = None
