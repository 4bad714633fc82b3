"""A disk below one folder that can fail, and that forgets what was not synced: it replaces parts of ``os``.

Every call on a file or folder below ``root`` goes through ``Disk``, in every module of the code under test. A test can
make one of them fail, stop the machine at one of them, and ask what a crash would leave behind at that moment:

* ``KILLED``: the process has died; the system writes everything that was written.
* ``STRICT``: the power has failed. A file has the content, and a folder the names, of its last ``fsync``.
* ``MIXED``: the power has failed, and some of the unsynced data is there: each file and folder has the old or the new
  state, and zeros or a part where new content was on its way.
"""

from __future__ import annotations

import io
import os
import random
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple
from unittest import mock

KILLED, STRICT, MIXED = "killed", "strict", "mixed"
CRASHES = (KILLED, STRICT, MIXED)

_BY_PATH = ("open", "truncate", "unlink", "rename", "replace", "mkdir", "rmdir", "listdir", "scandir", "stat", "utime")
_BY_FD = ("write", "pwrite", "pread", "preadv", "fsync", "ftruncate", "fstat")
_CHANGES = frozenset(
    {"truncate", "unlink", "rename", "replace", "mkdir", "rmdir", "write", "pwrite", "fsync", "ftruncate"}
)


class Stopped(BaseException):
    """The machine has stopped within this call. No ``except`` of the code under test catches it."""


class Call(NamedTuple):
    """One call below the root. ``is_change`` if the disk may differ afterwards."""

    name: str
    path: str
    is_change: bool


class Stored(NamedTuple):
    """A file as the disk has it."""

    data: bytes
    modified_ns: int


Image = dict[str, Stored | None]
"""The content of a disk, by path below the root; None is a folder."""


class Disk:
    """Watches the calls below ``root`` during ``watched``. Everything from before that is on the disk."""

    def __init__(self, root: Path) -> None:
        self.root = str(root.absolute())
        self.calls: list[Call] = []
        self.before: Callable[[Call], int | None] = lambda _: None
        """Asked before each call: None lets it pass, an errno makes it fail, ``SHORT`` shortens a write."""
        self._ids: dict[int, int] = {}
        self._next_id = 0
        self._synced: dict[int, Stored] = {}
        self._names: dict[int, dict[str, tuple[int, bool]]] = {}
        self._is_watched = False
        self._own = threading.local()
        self._lock = threading.RLock()
        for folder, _, files in os.walk(self.root):
            self._sync(folder)
            for name in files:
                self._sync(os.path.join(folder, name))

    @contextmanager
    def watched(self) -> Iterator[Disk]:
        """Route all calls through this disk."""
        watching = {name: self._standing_before(name) for name in (*_BY_PATH, *_BY_FD)}
        with mock.patch.multiple(os, **watching), mock.patch.object(io, "open", self._opening(io.open)):
            self._is_watched = True
            try:
                yield self
            finally:
                self._is_watched = False

    def stop_in(self, changes: int) -> None:
        """Stop the machine after this many more changes, and refuse whatever it tries afterwards."""
        left = changes

        def before(call: Call) -> None:
            nonlocal left
            if call.is_change:
                left -= 1
                if left < 0:
                    raise Stopped(call)

        self.before = before

    # --- the calls

    def _standing_before(self, name: str) -> Callable[..., Any]:
        real = getattr(os, name)
        by_fd = name in _BY_FD

        def call(*arguments: Any, **options: Any) -> Any:
            path = self._path(arguments[0] if arguments else ".", by_fd)
            if path is None:
                return real(*arguments, **options)
            is_change = name in _CHANGES or (name == "open" and bool(arguments[1] & (os.O_CREAT | os.O_TRUNC)))
            with self._alone():
                verdict = self._ask(Call(name, path, is_change))
                if verdict == SHORT and name in ("write", "pwrite"):
                    taken = memoryview(arguments[1])[: max(1, len(arguments[1]) // 2)]
                    return real(arguments[0], taken, *arguments[2:])
                target = str(arguments[1]) if name in ("rename", "replace") else None
                for gone in (path if name in ("unlink", "rmdir") else None, target):
                    if gone is not None:
                        self._forget_id(gone)
                if name == "fsync":
                    return self._sync(path)
                return real(*arguments, **options)

        return call

    def _opening(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", *arguments: Any, **options: Any) -> Any:
            path = self._path(file, isinstance(file, int))
            if path is not None:
                with self._alone():
                    self._ask(Call("open", path, "r" not in mode))
            return real(file, mode, *arguments, **options)

        return call

    def _ask(self, call: Call) -> int | None:
        self.calls.append(call)
        verdict = self.before(call)
        if verdict is not None and verdict != SHORT:
            raise OSError(verdict, os.strerror(verdict), call.path)
        return verdict

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """Allow one call at a time, from any thread. Calls made inside it are not watched."""
        with self._lock:
            self._own.is_calling = True
            try:
                yield
            finally:
                self._own.is_calling = False

    def _path(self, which: Any, by_fd: bool) -> str | None:
        if not self._is_watched or getattr(self._own, "is_calling", False):
            return None
        if by_fd or isinstance(which, int):
            try:
                path = os.readlink(f"/proc/self/fd/{which}")
            except OSError:
                return None
        else:
            path = os.path.abspath(os.fspath(which))
            path = path if isinstance(path, str) else path.decode()
        return path if path == self.root or path.startswith(self.root + "/") else None

    # --- what is on the disk

    def _id(self, status: os.stat_result) -> int:
        if status.st_ino not in self._ids:
            self._ids[status.st_ino] = self._next_id
            self._next_id += 1
        return self._ids[status.st_ino]

    def _forget_id(self, path: str) -> None:
        """The system may reuse the inode number of a removed file."""
        try:
            self._ids.pop(os.lstat(path).st_ino, None)
        except FileNotFoundError:
            return

    def _sync(self, path: str) -> None:
        try:
            status = os.lstat(path)
        except FileNotFoundError:
            return
        if stat.S_ISDIR(status.st_mode):
            self._names[self._id(status)] = self._listed(path)
        else:
            self._synced[self._id(status)] = _stored(path)

    def _listed(self, folder: str) -> dict[str, tuple[int, bool]]:
        with os.scandir(folder) as entries:
            return {entry.name: (self._id(entry.stat()), entry.is_dir()) for entry in entries}

    def image(self, crash: str, rng: random.Random | None = None) -> Image:
        """Return what a crash of this kind would leave now."""
        with self._alone():
            return self._image(crash, rng or random.Random(0))

    def _image(self, crash: str, rng: random.Random) -> Image:
        now: dict[int, Stored] = {}
        names: dict[int, dict[str, tuple[int, bool]]] = {}
        for folder, _, files in os.walk(self.root):
            names[self._id(os.lstat(folder))] = self._listed(folder)
            for name in files:
                path = os.path.join(folder, name)
                now[self._id(os.lstat(path))] = _stored(path)
        image: Image = {}

        def folder_of(number: int) -> dict[str, tuple[int, bool]]:
            old, new = self._names.get(number, {}), names.get(number)
            return new if new is not None and (crash == KILLED or (crash == MIXED and rng.random() < 0.5)) else old

        def file_of(number: int) -> Stored:
            new = now.get(number)
            old = self._synced.get(number) or Stored(b"", new.modified_ns if new else 0)
            if new is None or crash == STRICT:
                return old
            return new if crash == KILLED or old.data == new.data else _half_written(old, new, rng)

        def walk(number: int, where: str) -> None:
            for name, (child, is_folder) in sorted(folder_of(number).items()):
                path = f"{where}{name}"
                image[path] = None if is_folder else file_of(child)
                if is_folder:
                    walk(child, f"{path}/")

        walk(self._id(os.lstat(self.root)), "")
        return image


SECTOR_BYTES = 512

SHORT = -1
"""Not an error: the disk accepts only part of the write."""


def _stored(path: str) -> Stored:
    with open(path, "rb") as file:
        return Stored(file.read(), os.fstat(file.fileno()).st_mtime_ns)


def _half_written(old: Stored, new: Stored, rng: random.Random) -> Stored:
    """Return one of the states of a file whose new content was on its way to the disk."""
    match rng.choice(["old", "new", "zeros", "part"]):
        case "old":
            return old
        case "new":
            return new
        case "zeros":
            data = old.data[: len(new.data)] + bytes(max(0, len(new.data) - len(old.data)))
        case _:
            # Small files are in one sector.
            size = min(len(old.data), len(new.data))
            cut = rng.randint(size, len(new.data)) if len(new.data) > SECTOR_BYTES else size
            data = old.data[:cut] + new.data[len(old.data) : cut]
    return Stored(data, new.modified_ns)


def write_image(image: Image, target: Path) -> Path:
    """Make a folder from what a crash left."""
    target.mkdir(parents=True)
    for name, stored in image.items():
        path = target / name
        if stored is None:
            path.mkdir()
        else:
            path.write_bytes(stored.data)
            os.utime(path, ns=(stored.modified_ns, stored.modified_ns))
    return target


def failing_once(number: int, error: int) -> Callable[[Call], int | None]:
    """Return a ``before`` that makes the call with this number fail, and no other."""
    seen = -1

    def before(call: Call) -> int | None:
        nonlocal seen
        seen += 1
        return error if seen == number else None

    return before
