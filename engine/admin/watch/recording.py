"""A recording: the frames of a feed in a file, each as the changes since the previous one.

The file begins with a line of JSON that says what it is:

    {"klamm_recording": 2, "shape": "…", "klamm": "…", "cluster": "…", "fields": ["Frame.at_ms:int", …]}

A version of klamm whose frames have other fields, so another shape, reads the fields that it knows.

Records follow, each with a head of 17 bytes, big-endian (length of the data, their CRC, kind, time in milliseconds),
and its data, lines of JSON compressed by zlib. Kind 0 is a whole frame, kind 1 what changed. From time to time a record
is a whole frame, so that any place is reached quickly. A cut-off or damaged record ends the recording there; what comes
before it can be played.
"""

from __future__ import annotations

import asyncio
import json
import logging
import os
import struct
import zlib
from collections.abc import AsyncIterator, Collection, Generator, Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import BinaryIO

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.watch.events import Event
from engine.admin.watch.feed import Feed, FeedStatus, FrameBox, Playback
from engine.admin.watch.frame import Frame, Stage
from engine.admin.watch.frame_building import FrameBuilder, changes_of
from engine.admin.watch.judging import HealthMemory
from engine.admin.watch.value_codec import Decoders, lines_of, shape_of
from engine.common.turns import at_once
from engine.common.version import VERSION

FORMAT_VERSION = 2
KEY_EVERY = 60
"""The least number of records between two whole frames."""

KEY_SHARE = 4
"""And this many times as many bytes as the whole frame before took: on a large cluster one takes a second to write."""

RECORD_BYTES_MAX = 256 * 1024 * 1024
_HEAD_BYTES_MAX = 65_536
_INFLATED_AT_ONCE = 4096
_LINES_A_TURN = 20
"""Of up to a hundred partitions each: some milliseconds."""
_RECORD = struct.Struct(">IIBQ")
_WHOLE, _CHANGES = 0, 1


class FrameWriter:
    """Writes frames into a new file; close it at the end. After a crash, what was written before can be read.

    A large frame takes half a second to write: where a screen must not wait, use it from a thread, one call at a time.

    Raises:
        BadRequest: the file exists already, or cannot be created.
    """

    def __init__(self, path: Path, cluster: str) -> None:
        head = {
            "klamm_recording": FORMAT_VERSION,
            "shape": shape_of(Frame),
            "klamm": VERSION,
            "cluster": cluster[:1000],
            "fields": lines_of(Frame),
        }
        try:
            self._file: BinaryIO = open(path, "xb")  # noqa: SIM115
        except FileExistsError:
            raise BadRequest("the file exists already", where=str(path), hint="name another, or remove it") from None
        except OSError as error:
            raise BadRequest(f"cannot be written: {error.strerror or error}", where=str(path)) from error
        self._file.write(json.dumps(head).encode() + b"\n")
        self._last: Frame | None = None
        self._since_key = self._bytes_since_key = self._key_bytes = 0
        self.count = 0
        self.size_bytes = self._file.tell()

    def write(self, frame: Frame) -> None:
        """Append a frame.

        Raises:
            OSError: the disk is full or gone.
        """
        is_whole = self._last is None or (
            self._since_key >= KEY_EVERY and self._bytes_since_key >= KEY_SHARE * self._key_bytes
        )
        deflate = zlib.compressobj(3)
        pieces = (deflate.compress(text.encode()) for text in changes_of(None if is_whole else self._last, frame))
        data = b"".join((*pieces, deflate.flush()))
        kind = _WHOLE if is_whole else _CHANGES
        self._file.write(_RECORD.pack(len(data), zlib.crc32(data), kind, frame.at_ms) + data)
        self._file.flush()
        self._last = frame
        self.count += 1
        self.size_bytes += _RECORD.size + len(data)
        if is_whole:
            self._since_key, self._bytes_since_key, self._key_bytes = 1, 0, len(data)
        else:
            self._since_key += 1
            self._bytes_since_key += len(data)

    def close(self) -> None:
        self._file.close()


@dataclass(frozen=True, slots=True)
class _Place:
    """Where a record's data are in the file."""

    offset: int
    size: int
    crc: int
    is_whole: bool
    at_ms: int


class Recording:
    """A recording, open for reading; close it at the end.

    Raises:
        NotFound: there is no such file.
        BadRequest: it is not a recording, or this klamm cannot read it.
    """

    def __init__(self, path: Path) -> None:
        self._path = path
        try:
            self._file: BinaryIO = open(path, "rb")  # noqa: SIM115
        except FileNotFoundError:
            raise NotFound("no such recording", where=str(path)) from None
        except OSError as error:
            raise BadRequest(f"cannot be read: {error.strerror or error}", where=str(path)) from error
        self.cut_short = ""
        """Why it ends before its end; empty if it is whole."""
        try:
            self.cluster = self._read_head()
            self._places = self._read_places()
        except BaseException:
            self._file.close()
            raise
        self._position = -1
        self._frame: Frame | None = None
        self._health = HealthMemory()

    @property
    def count(self) -> int:
        """How many frames it has, at least one."""
        return len(self._places)

    def time_of(self, position: int) -> int:
        """Return when a frame was made."""
        return self._places[position].at_ms

    def before_bytes(self, position: int, count: int) -> int:
        """Return the frame after which there are at most ``count`` bytes up to another frame."""
        while position >= 0 and (count := count - self._places[position].size) >= 0:
            position -= 1
        return position

    def frame(self, position: int) -> Frame:
        """Return a frame, with its health.

        Raises:
            BadRequest: it is damaged; the frames before it are not.
        """
        return at_once(self.frame_in_turns(position))

    def frame_in_turns(self, position: int) -> Generator[None, None, Frame]:
        """Read a frame in turns of an event loop; a caller that reads anything else in between must give these turns
        up."""
        frame = yield from self._reached(position)
        if frame.health is None:
            yield from self._health.turns(frame)
            self._frame = frame = replace(frame, health=self._health.judge(frame))
        return frame

    def events_in_turns(self, before: int, position: int) -> Generator[None, None, tuple[Event, ...]]:
        """Read what happened after one frame up to another, in turns as ``frame_in_turns``."""
        events: list[Event] = []
        for index in range(before + 1, position + 1):
            events += (yield from self._reached(index)).events
        return tuple(events)

    def close(self) -> None:
        self._file.close()

    def _key_of(self, position: int) -> int:
        while position and not self._places[position].is_whole:
            position -= 1
        return position

    def _reached(self, position: int) -> Generator[None, None, Frame]:
        """Go to a frame, from the one that was read last or from a whole one."""
        start = self._position + 1
        if self._frame is None or position < start - 1 or self._key_of(position) > self._position:
            start = self._key_of(position)
        for index in range(start, position + 1):
            self._frame = yield from self._read(index)
            self._position = index
            yield
        assert self._frame is not None
        return self._frame

    def _read(self, index: int) -> Generator[None, None, Frame]:
        place = self._places[index]
        self._file.seek(place.offset)
        data = self._file.read(place.size)
        try:
            if zlib.crc32(data) != place.crc:
                raise ValueError("the checksum does not match")
            building = FrameBuilder(self._frame, is_whole=place.is_whole, decoders=self._decoders)
            for count, line in enumerate(_lines_of(data), 1):
                building.take(json.loads(line))
                if count % _LINES_A_TURN == 0:
                    yield
            return building.made()
        except (ValueError, TypeError, LookupError, OverflowError, zlib.error) as error:
            what = "damaged" if self._is_of_this_version else f"not what this klamm ({VERSION}) can read"
            raise BadRequest(f"frame {index} is {what}: {error}", where=str(self._path)) from error

    def _read_head(self) -> str:
        where, line = str(self._path), self._file.readline(_HEAD_BYTES_MAX)
        try:
            head = json.loads(line)
            version, shape = head["klamm_recording"], head["shape"]
        except (ValueError, KeyError, TypeError):
            raise BadRequest("not a recording of klamm", where=where) from None
        self._is_of_this_version = version == FORMAT_VERSION and shape == shape_of(Frame)
        fields = None if self._is_of_this_version else head.get("fields")
        if version != FORMAT_VERSION or not (self._is_of_this_version or isinstance(fields, list)):
            raise _made_by_another(head.get("klamm"), where)
        self._decoders = Decoders(fields and map(str, fields))
        if lacking := self._decoders.lacking(Frame):
            raise _made_by_another(head.get("klamm"), where, f": it has no {', '.join(lacking)}")
        return str(head.get("cluster", ""))

    def _read_places(self) -> list[_Place]:
        """Find all records without reading them; an invalid record ends the recording."""
        places: list[_Place] = []
        size = os.fstat(self._file.fileno()).st_size
        offset = self._file.tell()
        while offset < size:
            head = self._file.read(_RECORD.size)
            if len(head) < _RECORD.size:
                self.cut_short = "the file is cut off"
                break
            length, crc, kind, at_ms = _RECORD.unpack(head)
            if kind not in (_WHOLE, _CHANGES) or length > RECORD_BYTES_MAX or (not places and kind != _WHOLE):
                self.cut_short = f"what follows frame {len(places)} is not a record"
                break
            if offset + _RECORD.size + length > size:
                self.cut_short = "the file is cut off"
                break
            places.append(_Place(offset + _RECORD.size, length, crc, kind == _WHOLE, at_ms))
            offset += _RECORD.size + length
            self._file.seek(offset)
        if not places:
            raise BadRequest("the recording has no whole frame", where=str(self._path))
        return places


def _lines_of(data: bytes) -> Iterator[bytes]:
    """Yield each line of a record, without ever having all of them at once."""
    inflate, rest = zlib.decompressobj(), b""
    for at in range(0, len(data), _INFLATED_AT_ONCE):
        *lines, rest = (rest + inflate.decompress(data[at : at + _INFLATED_AT_ONCE])).split(b"\n")
        yield from lines


@dataclass(frozen=True, slots=True)
class Recorded:
    frames: int
    size_bytes: int
    seconds: float


async def record(feed: Feed, path: Path) -> Recorded:
    """Record a feed into a new file until it ends, or the caller is cancelled. No terminal is needed.

    This starts and closes the feed.

    Raises:
        BadRequest: the file exists already, or cannot be written.
    """
    writer = FrameWriter(path, feed.status.name)
    first_ms = last_ms = 0
    try:
        await feed.start()
        async for frame in feed.frames():
            try:
                writer.write(frame)
            except OSError as error:
                raise BadRequest(f"cannot be written: {error.strerror or error}", where=str(path)) from error
            first_ms, last_ms = first_ms or frame.at_ms, frame.at_ms
    finally:
        await feed.close()
        writer.close()
    return Recorded(writer.count, writer.size_bytes, (last_ms - first_ms) / 1000)


def _made_by_another(made_by: str | None, where: str, why: str = "") -> BadRequest:
    """Return the error about a recording in another format; builds of one version may differ, too."""
    if made_by in (None, VERSION):
        message = f"a recording of another build of klamm, which this one ({VERSION}) cannot read{why}"
        return BadRequest(message, where=where, hint="play it with the version of klamm that recorded it")
    message = f"a recording of klamm {made_by}, which this klamm ({VERSION}) cannot read{why}"
    return BadRequest(message, where=where, hint=f"play it with klamm {made_by}")


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
