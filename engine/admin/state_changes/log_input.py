"""The bytes of one log: a plain file, a gzip or a pipe; and what is wrong if it cannot be read to its end.

It converts lines of other layouts (an ISO time, JSON, wrapped by Docker, Kubernetes or journald) to Kafka's own
layout.
"""

from __future__ import annotations

import json
import re
import zlib
from collections.abc import Callable
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import StrEnum
from pathlib import Path
from typing import Any

from engine.common.quantities import counted

STDIN = Path("-")
_GZIP_MAGIC = b"\x1f\x8b"
_GZIP_WINDOW = 31
_GZIP_RAW_BYTES = 1 << 18


class DamagedLog(Exception):
    """A log is cut short, or contains what no log contains. The text says what."""


class LogInput:
    """Reads a log in chunks, decompressed. Reaching the end closes it.

    Raises OSError if it cannot be opened. ``consumed_bytes`` counts what was read of the file itself. With ``begin``
    and ``end`` only that part of a plain file is read.
    """

    def __init__(self, path: Path, chunk_bytes: int, *, begin: int = 0, end: int | None = None) -> None:
        self._chunk_bytes = chunk_bytes
        is_stdin = path == STDIN
        # Let the path open itself: it may belong to a store.
        self._file = open(0, "rb", buffering=0, closefd=False) if is_stdin else path.open("rb", buffering=0)  # noqa: SIM115
        self._left_bytes = None if end is None else end - begin
        if begin:
            self._file.seek(begin)
        self.consumed_bytes = 0
        self._returned = b""
        self._broken_line = b""
        self._damage: DamagedLog | None = None
        self._gzip: _Gzip | None = None
        self._ahead: bytes | None = None

    @property
    def is_gzip(self) -> bool:
        """Whether it is compressed; known once something was read."""
        return self._gzip is not None

    def read(self) -> bytes:
        """Return the next bytes; nothing at the end.

        Raises:
            DamagedLog: it breaks off; what was returned before is good.
            OSError: it cannot be read.
        """
        if self._returned:
            chunk, self._returned = self._returned, b""
            return chunk
        try:
            while self._damage is None and (chunk := self._decompressed()):
                text = self._broken_line + chunk
                end = text.rfind(b"\n") + 1 or (len(text) if len(text) > _LINE_BYTES_MAX else 0)
                self._broken_line = text[end:]
                if end:
                    return in_kafkas_layout(text[:end])
        except DamagedLog as damage:
            self._damage = damage
        if self._damage is not None and not self._broken_line:
            raise self._damage
        last, self._broken_line = self._broken_line, b""
        return in_kafkas_layout(last)

    def _decompressed(self) -> bytes:
        if self._ahead is None:
            self._look()
        if self._gzip is not None:
            chunk = self._gzip.read()
        else:
            chunk, self._ahead = self._ahead or self._raw(self._chunk_bytes), b""
        if not chunk:
            self.close()
        return chunk

    def give_back(self, chunk: bytes) -> None:
        """Let the next ``read`` return ``chunk``, which this has returned before."""
        self._returned = chunk

    def close(self) -> None:
        """Close the file. It may be closed already."""
        self._file.close()

    def _look(self) -> None:
        """Read the first bytes; a pipe may give them one by one."""
        self._ahead = self._raw(self._chunk_bytes)
        while 0 < len(self._ahead) < len(_GZIP_MAGIC) and (more := self._raw(self._chunk_bytes)):
            self._ahead += more
        if self._ahead.startswith(_GZIP_MAGIC):
            self._gzip = _Gzip(self._ahead, lambda: self._raw(_GZIP_RAW_BYTES), self._chunk_bytes)

    def _raw(self, size_bytes: int) -> bytes:
        if self._file.closed:
            return b""
        if self._left_bytes is not None:
            size_bytes = min(size_bytes, self._left_bytes)
        chunk = self._file.read(size_bytes) or b""
        if self._left_bytes is not None:
            self._left_bytes -= len(chunk)
        self.consumed_bytes += len(chunk)
        return chunk


class _Gzip:
    """Decompresses one member after another, a bounded piece at a time."""

    def __init__(self, first: bytes, read_raw: Callable[[], bytes], chunk_bytes: int) -> None:
        self._raw = first
        self._read_raw = read_raw
        self._chunk_bytes = chunk_bytes
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        self._is_full = False

    def read(self) -> bytes:
        """Return the next piece; nothing after the last member. Raises DamagedLog."""
        while True:
            if self._member.eof and not self._next_member():
                return b""
            if not self._raw and not self._is_full:
                self._raw = self._read_raw()
                if not self._raw:
                    raise DamagedLog("the gzip is cut off")
            try:
                chunk = self._member.decompress(self._raw, self._chunk_bytes)
            except zlib.error as error:
                raise DamagedLog(f"the gzip is damaged ({error})") from error
            # A full piece may have left output inside the decompressor, without further input.
            self._is_full = len(chunk) == self._chunk_bytes
            self._raw = self._member.unconsumed_tail
            if self._member.eof:
                self._raw = self._member.unused_data
            if chunk:
                return chunk

    def _next_member(self) -> bool:
        """Begin the next member. Zeros after the last one are padding."""
        rest = self._raw.lstrip(b"\0")
        while not rest:
            more = self._read_raw()
            if not more:
                return False
            rest = more.lstrip(b"\0")
        self._raw = rest
        self._member = zlib.decompressobj(_GZIP_WINDOW)
        return True


# Lines of other layouts.

_LINE_BYTES_MAX = 8 << 20
_BEGINNING_BYTES = 32
_ELSE = re.compile(
    rb"\n(?:\[(?:\d{4}(?:/|-\d\d-\d\d(?:T| \d\d:\d\d:\d\d[^,\d]))|pod/)|[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d )"
)
"""How a line begins that is not Kafka's: with another time or a pod in brackets, or with the journal's time."""

_TIMED = re.compile(
    rb"\[?(\d{4}[-/]\d\d[-/]\d\d)[T ](\d\d:\d\d:\d\d)(?:[.,](\d{1,9}))?(?: ?(Z|[+-]\d\d:?\d\d))?\]?:?[ \t]++(.*)",
    re.DOTALL,
)
_OF_A_CONTAINER = re.compile(rb"\d{4}-\d\d-\d\dT[\d:.]+(?:Z|[+-]\d\d:\d\d) std(?:out|err) [FP] (.*)", re.DOTALL)
_WITH_TIME_OF_ITS_OWN = re.compile(
    rb"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d\S* ++(?:\S+ [^\s:]+: )?(?=\[?\d{4}[-/]\d\d[-/]\d\d[T ]|\{)(.*)", re.DOTALL
)
"""A line after the time of who wrapped it: ``kubectl logs --timestamps``, ``journalctl -o short-iso``."""
_OF_A_POD = re.compile(rb"\[pod/[^\s\]]+\] (.*)", re.DOTALL)
"""``kubectl logs --prefix``."""
_OF_A_JOURNAL = re.compile(rb"[A-Z][a-z][a-z] [ \d]\d \d\d:\d\d:\d\d \S+ [^\s:]+: (.*)", re.DOTALL)
_WRAPPED = (_OF_A_CONTAINER, _WITH_TIME_OF_ITS_OWN, _OF_A_JOURNAL, _OF_A_POD)
_LINES = ("log", "MESSAGE")
"""Docker's json-file and ``journalctl -o json`` have the line as the program wrote it."""
_TIMES = ("@timestamp", "timestamp", "time", "ts", "timeMillis", "instant")
_LEVELS = ("level", "severity", "log.level", "levelname")
_MESSAGES = ("message", "msg")
_LOGGERS = ("logger_name", "loggerName", "logger", "log.logger")


def in_kafkas_layout(text: bytes) -> bytes:
    """Return whole lines with those of other layouts rewritten. A time with a zone becomes UTC."""
    before = b"\n" + text[:_BEGINNING_BYTES]
    if not any(_has_others(part) for part in (before, text)):
        return text
    return b"\n".join(map(_rewritten, text.split(b"\n")))


def _has_others(text: bytes) -> bool:
    """Return whether another line than the first is of another layout. Three searches are faster than one for all."""
    return b"\n{" in text or b"\n2" in text or _ELSE.search(text) is not None


def _rewritten(line: bytes) -> bytes:
    if line.startswith(b"{"):
        return _of_json(line)
    wrapped = next((matched for shape in _WRAPPED if (matched := shape.match(line))), None)
    if wrapped is not None:
        return _rewritten(wrapped[1])
    timed = _TIMED.match(line)
    if timed is None:
        return line
    start = _start(*(None if part is None else part.decode() for part in timed.groups()[:4]))
    return line if start is None else start + b" " + timed[5]


def _of_json(line: bytes) -> bytes:
    try:
        document: Any = json.loads(line)
    except ValueError:
        return line
    if not isinstance(document, dict):
        return line
    if isinstance(written := _first(document, _LINES), str):
        return _rewritten(written.rstrip("\n").encode())
    message, level, start = (
        _first(document, _MESSAGES),
        _first(document, _LEVELS),
        _start_of_value(_first(document, _TIMES)),
    )
    if not isinstance(message, str) or start is None:
        return line
    logger = _first(document, _LOGGERS)
    named = f" ({logger})" if isinstance(logger, str) else ""
    return start + f" {str(level or '').upper()} {message}{named}".encode()


def _first(document: dict[str, Any], names: tuple[str, ...]) -> Any:
    return next((document[name] for name in names if name in document), None)


def _start_of_value(value: Any) -> bytes | None:
    """Return the time that a field of JSON means: a text, milliseconds, or log4j 2's instant."""
    if isinstance(value, dict) and isinstance(value.get("epochSecond"), int):
        value = value["epochSecond"] * 1000 + int(value.get("nanoOfSecond") or 0) // 1_000_000
    if isinstance(value, int | float):
        try:
            text = datetime.fromtimestamp(value / 1000, UTC).isoformat(timespec="milliseconds")
        except (OverflowError, ValueError, OSError):
            return None
        value = text
    timed = _TIMED.match(f"{value} ".encode()) if isinstance(value, str) else None
    return None if timed is None else _start(*(None if p is None else p.decode() for p in timed.groups()[:4]))


def _start(day: str | None, time: str | None, fraction: str | None, zone: str | None) -> bytes | None:
    """Return how Kafka writes a time; None if it is none."""
    milliseconds = f"{fraction or '':0<3.3}"
    try:
        moment = datetime.fromisoformat(f"{day}T{time}.{milliseconds}{zone or ''}".replace("/", "-"))
    except ValueError:
        return None
    if moment.tzinfo is not None:
        moment = moment.astimezone(UTC)
    return f"[{moment:%Y-%m-%d %H:%M:%S},{milliseconds}]".encode()


# Problems of the logs themselves: counted while they are read, and always reported at the end.


class ProblemKind(StrEnum):
    UNREADABLE = "unreadable"
    """It could not be opened, or reading it failed."""
    NOT_A_LOG = "not_a_log"
    """It is binary, or none of its lines has a time; none of it is in the result."""
    DAMAGED = "damaged"
    """It breaks off; the result contains what comes before that."""
    WITHOUT_TIME = "without_time"
    """Lines before the first one with a time; they stay next to their neighbours."""
    UNPARSED = "unparsed"
    """Lines with a time but without a level; they are kept as they are."""
    OTHER_LAYOUT = "other_layout"
    """Lines with a level and a time that klamm cannot read; they stay with the line before."""
    ZERO_BYTES = "zero_bytes"
    """Zero bytes, which a crash leaves in a file, were left out."""
    REORDERED = "reordered"
    """Lines were slightly out of order and were sorted."""
    LATE = "late"
    """Lines were so far out of order that they come later than their time."""

    NO_MENTION = "no_mention"
    """None of the logs read names the requested topic."""

    @property
    def loses_lines(self) -> bool:
        """Whether something is missing from the result."""
        return self in (
            ProblemKind.UNREADABLE,
            ProblemKind.NOT_A_LOG,
            ProblemKind.DAMAGED,
            ProblemKind.UNPARSED,
            ProblemKind.OTHER_LAYOUT,
            ProblemKind.NO_MENTION,
        )


@dataclass(frozen=True, slots=True)
class LogProblem:
    """One problem of one log. ``count`` counts lines, or zero bytes."""

    source: str
    kind: ProblemKind
    message: str
    count: int = 0


class ProblemCounter:
    """Counts the problems of one log while it is read."""

    def __init__(self, source: str) -> None:
        self.source = source
        self.topics_met: set[bytes] = set()
        """The wanted topics that the log names, in any partition."""
        self._told: list[LogProblem] = []
        self._counts: dict[ProblemKind, int] = {}

    def tell(self, kind: ProblemKind, message: str) -> None:
        """Note a problem that happens once."""
        self._told.append(LogProblem(self.source, kind, message))

    def count(self, kind: ProblemKind, number: int = 1) -> None:
        """Count lines, or bytes, of a kind."""
        if number:
            self._counts[kind] = self._counts.get(kind, 0) + number

    @property
    def problems(self) -> list[LogProblem]:
        """All that was noted so far."""
        from_counts = [
            LogProblem(self.source, kind, _SENTENCES[kind].format(_amount(kind, number)), number)
            for kind in ProblemKind
            if (number := self._counts.get(kind, 0))
        ]
        return [*self._told, *from_counts]


_SENTENCES = {
    ProblemKind.WITHOUT_TIME: "{} at the beginning, before any that has a time",
    ProblemKind.UNPARSED: "{} that cannot be parsed: no level after the time",
    ProblemKind.OTHER_LAYOUT: "{} of a layout that klamm does not know, kept with the line before",
    ProblemKind.ZERO_BYTES: "{} left out",
    ProblemKind.REORDERED: "{} out of order, sorted",
    ProblemKind.LATE: "{} too far out of order to sort: later than the time says",
}


def _amount(kind: ProblemKind, number: int) -> str:
    noun = "zero byte" if kind is ProblemKind.ZERO_BYTES else "line"
    return counted(number, noun)
