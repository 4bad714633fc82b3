"""Facts about a log without reading all of it: its broker, its time range, and whether it is a log at all."""

from __future__ import annotations

import os
import re
import stat
from collections.abc import Iterable
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.state_changes.log_input import STDIN, DamagedLog, LogInput, LogProblem, ProblemKind
from engine.kafka.formats.state_change_lines import (
    head_of,
    is_merged_line,
    is_start,
    parse_head,
    start_of,
    without_merged_prefixes,
)

_BROKER_NAME = re.compile(r"(?:broker|kafka|node|server|host)[-_.]?(\d{1,10})(?!\d|\.\d)", re.IGNORECASE)
_LIVE_NAME = re.compile(r"\.log(?:\.gz)?$")
_REPLACED = "another file took its place while klamm read the logs: start again"
_LOOK_BYTES = 1 << 16
_LOOK_BYTES_MAX = 1 << 20


@dataclass(frozen=True, slots=True)
class LogFile:
    """One log. ``last_start`` is None if only reading all of it would show it; a pipe's size is 0."""

    path: Path
    broker_ids: frozenset[int]
    first_start: bytes
    last_start: bytes | None = None
    size_bytes: int = 0
    is_merged: bool = False
    """It comes from a merge: the broker precedes the time of each line."""
    opened: LogInput | None = None
    """A pipe, which can be read only once: open, with the bytes that were peeked at put back."""
    inode: int | None = None
    """What distinguishes the file from one that takes its name; None if nothing does, as in a store."""

    @property
    def source(self) -> str:
        return source_name(self.path)

    @property
    def broker_id(self) -> int | None:
        """The broker whose log it is; None if there is no such broker, or several."""
        return next(iter(self.broker_ids)) if len(self.broker_ids) == 1 else None


@dataclass(frozen=True, slots=True)
class FoundLogs:
    """The logs, in the order of their lines within a millisecond, and what could not be read."""

    files: tuple[LogFile, ...]
    problems: tuple[LogProblem, ...] = ()

    @property
    def size_bytes(self) -> int:
        return sum(file.size_bytes for file in self.files)


def source_name(path: Path) -> str:
    """Return a log's name in a result."""
    return "stdin" if path == STDIN else str(path)


def look_at_logs(paths: Iterable[Path]) -> FoundLogs:
    """Look at the beginning and end of each log. Empty ones are left out."""
    files: list[LogFile] = []
    problems: list[LogProblem] = []
    for path in paths:
        looked = look_at(path)
        if isinstance(looked, LogFile):
            files.append(looked)
        elif looked is not None:
            problems.append(looked)
    return FoundLogs(tuple(sorted(files, key=_order)), tuple(problems))


def look_at(path: Path) -> LogFile | LogProblem | None:
    """Return the log, or why it is not one; None if it is empty."""
    if path.is_dir():
        return LogProblem(source_name(path), ProblemKind.UNREADABLE, "no state-change log in the folder")
    try:
        is_regular = path != STDIN and stat.S_ISREG(path.stat().st_mode)
        log = LogInput(path, _LOOK_BYTES)
        try:
            head = _head(log)
            if not log.consumed_bytes and path.suffix == ".gz":
                return LogProblem(source_name(path), ProblemKind.DAMAGED, "it is empty, which no gzip is")
            described = _described(path, head) if head else None
            if not isinstance(described, LogFile):
                return described
            if not is_regular:
                log.give_back(head)
                return replace(described, opened=log)
            last = None if log.is_gzip or described.is_merged else _last_start(path)
            status = path.stat()
            return replace(described, last_start=last, size_bytes=status.st_size, inode=status.st_ino or None)
        finally:
            if is_regular:
                log.close()
    except DamagedLog as error:
        return LogProblem(source_name(path), ProblemKind.DAMAGED, str(error))
    except OSError as error:
        reason = (error.strerror or str(error)).lower()
        return LogProblem(source_name(path), ProblemKind.UNREADABLE, f"cannot be read: {reason}")


def open_log(file: LogFile, chunk_bytes: int) -> LogInput:
    """Open a log to read all of it, under its new name if its broker has rolled it since klamm looked at it.

    Raises:
        OSError: it cannot be opened, or another file has taken its name.
    """
    if file.opened is not None:
        return file.opened
    if file.inode is None or _is_still(file, file.path):
        return LogInput(file.path, chunk_bytes)
    renamed = next((path for path in file.path.parent.iterdir() if _is_still(file, path)), None)
    if renamed is None and file.path.exists():
        raise OSError(_REPLACED)
    return LogInput(renamed or file.path, chunk_bytes)


def replaced_logs(files: Iterable[LogFile]) -> list[LogProblem]:
    """Return which logs have been rolled or replaced since klamm looked at them, for those who read by name."""
    return [
        LogProblem(file.source, ProblemKind.UNREADABLE, _REPLACED)
        for file in files
        if file.inode is not None and not _is_still(file, file.path)
    ]


def _is_still(file: LogFile, path: Path) -> bool:
    try:
        status = path.stat()
    except OSError:
        return False
    # A file that became shorter was emptied and begun again.
    return status.st_ino == file.inode and status.st_size >= file.size_bytes


def _order(file: LogFile) -> tuple[bool, int, bytes, bool, str]:
    broker_id = file.broker_id
    # The live file comes after those that were rolled within the same millisecond.
    is_live = _LIVE_NAME.search(file.path.name) is not None
    return broker_id is None, broker_id or 0, file.first_start, is_live, str(file.path)


def _head(log: LogInput) -> bytes:
    """Return the first bytes: enough to find a time, and a whole line after it."""
    head = log.read()
    try:
        while len(head) < _LOOK_BYTES_MAX and not _has_entry(head) and (more := log.read()):
            head += more
    except DamagedLog:
        # Use what could be read; reading the log meets the damage again and reports it.
        return head
    return head


def _has_entry(head: bytes) -> bool:
    lines = head.split(b"\n")
    return any(is_start(line) or is_merged_line(line) for line in lines[:-1])


def _described(path: Path, head: bytes) -> LogFile | LogProblem:
    text = head.replace(b"\0", b"")
    is_merged = any(map(is_merged_line, text.split(b"\n")))
    lines = (without_merged_prefixes(text) if is_merged else text).split(b"\n")
    entries = [line for line in lines if is_start(line)]
    if not entries:
        fault = "is binary" if b"\0" in head or not _is_text(head) else "has no line that begins with a time"
        return LogProblem(source_name(path), ProblemKind.NOT_A_LOG, f"{fault}: not a state-change log")
    ids = {parse_head(head_of(entry)).broker_id for entry in entries} - {None}
    return LogFile(
        path,
        frozenset(broker_id for broker_id in ids if broker_id is not None) or _named_broker(path),
        min(map(start_of, entries)),
        is_merged=is_merged,
    )


def _is_text(head: bytes) -> bool:
    try:
        head[:-4].decode("utf-8")
    except UnicodeDecodeError as error:
        return error.start > len(head) - 8
    return True


def _named_broker(path: Path) -> frozenset[int]:
    """Return the broker that the nearest part of the path names."""
    for part in reversed(path.absolute().parts):
        match = _BROKER_NAME.search(part)
        if match is not None:
            return frozenset({int(match[1])})
    return frozenset()


def _last_start(path: Path) -> bytes | None:
    """Return the time of the last entry; None if the last bytes have none."""
    with path.open("rb") as file:
        size = file.seek(0, 2)
        file.seek(max(0, size - _LOOK_BYTES))
        starts = [start_of(line) for line in file.read().split(b"\n") if is_start(line)]
    return max(starts, default=None)


# Finds the logs that files, folders and Kafka's ``--logs-regex`` name.
#
# A folder means all files in it, however deep, that are called ``state-change.log``: rolled (``.2026-11-21-13``,
# ``.1``), compressed, or with a broker before the name. A file that is named counts whatever its name is.

# Kafka 4.0's own configuration misspelt the name (KAFKA-19576).
_LOG_NAME = re.compile(r"(?:^|[-._])sta[tg]e-change\.log(?:$|[-._])")


def find_logs(paths: Iterable[Path], regex: str | None = None) -> list[Path]:
    """Return the logs meant, each once.

    If others are found, a path that does not exist, or a folder without logs, is returned as it is: opening it reports
    what is wrong.

    Raises:
        NotFound: no path exists, or no folder has a state-change log in it.
        BadRequest: nothing is named, or the regular expression is invalid.
    """
    logs: list[Path] = []
    absent: dict[Path, NotFound] = {}
    for path in paths:
        try:
            logs += _logs_at(path)
        except NotFound as error:
            absent[path] = error
    if regex is not None:
        logs += _by_regex(regex)
    if absent and not logs:
        raise next(iter(absent.values()))
    logs += absent
    if not logs:
        hint = Phrase("give files or folders: ", Operation.MERGE_STATE_CHANGES)
        raise BadRequest("no log was named", hint=hint)
    return list({_identity(path): path for path in reversed(logs)}.values())[::-1]


def _logs_at(path: Path) -> list[Path]:
    if path == STDIN:
        return [path]
    if not path.exists() and not path.is_symlink():
        raise NotFound("no such file or folder", where=str(path))
    return _logs_below(path) if path.is_dir() else [path]


def _logs_below(folder: Path) -> list[Path]:
    # ``Path`` itself can walk only since Python 3.12; paths of stores always can.
    walk = getattr(folder, "walk", partial(os.walk, folder))
    logs = [
        type(folder)(parent) / name
        for parent, _, names in walk()
        for name in names
        if _LOG_NAME.search(name) is not None
    ]
    if not logs:
        hint = "in a folder, klamm looks for state-change.log; name other files one by one"
        raise NotFound("no state-change log in the folder", where=str(folder), hint=hint)
    return sorted(logs)


def _by_regex(text: str) -> list[Path]:
    """Kafka's rule: the folder is literal, the rest need match only a part of the file's name."""
    folder = Path(text).parent
    try:
        pattern = re.compile(Path(text).name)
    except re.error as error:
        raise BadRequest(f"not a regular expression: {error}", where=text) from None
    if not folder.is_dir():
        raise NotFound("no such folder", where=str(folder))
    logs = sorted(path for path in folder.iterdir() if path.is_file() and pattern.search(path.name) is not None)
    if not logs:
        raise NotFound("no file's name matches", where=text)
    return logs


def _identity(path: Path) -> str:
    return str(path) if path == STDIN else os.path.realpath(path)
