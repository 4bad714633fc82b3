"""Where checkpoints and event logs are: this machine's disks, and object stores through pyarrow.

Spark's file systems cover the rest (HDFS, ViewFS, …): ``engine.spark`` has a store for them, which a caller may pass
in. Everything here blocks.
"""

from __future__ import annotations

import errno
import os
import re
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Protocol

from engine.admin.cluster.errors import BadRequest, NotFound, Unreachable

READ_ACCESS = "read access is enough: nothing is changed there"

_SCHEME = re.compile(r"([a-zA-Z][a-zA-Z0-9+.-]*)://?(.*)", re.DOTALL)
_LOCAL = ("file",)
ARROW_SCHEMES = {"s3": "s3", "s3a": "s3", "s3n": "s3", "gs": "gs", "gcs": "gs", "abfs": "abfs", "abfss": "abfss"}
"""What pyarrow opens, by its own name for it."""

_WILD = re.compile(r"[*?\[]")


@dataclass(frozen=True, slots=True)
class Entry:
    """A file or folder in a folder."""

    name: str
    is_folder: bool
    modified_ms: int
    size_bytes: int = 0


class Store(Protocol):
    """A file system. Paths are its own, with slashes."""

    def list(self, path: str) -> list[Entry]:
        """Return what is in a folder; raises FileNotFoundError or NotADirectoryError if it is not one."""
        ...

    def read(self, path: str) -> bytes:
        """Return what is in a file."""
        ...


@dataclass(frozen=True, slots=True)
class Location:
    """A file or folder in a store; ``shown`` is how the user names it."""

    store: Store
    path: str
    shown: str

    def __truediv__(self, name: str) -> Location:
        return Location(self.store, f"{self.path.rstrip('/')}/{name}", f"{self.shown.rstrip('/')}/{name}")

    @property
    def name(self) -> str:
        return self.path.rstrip("/").rpartition("/")[2]

    def entries(self) -> list[Entry]:
        """Return the entries of this folder, sorted by name."""
        return sorted(self.store.list(self.path), key=lambda file: file.name)

    def read(self) -> bytes:
        return self.store.read(self.path)


OtherStore = Callable[[str], tuple[Store, str]]
"""Returns the store of a URI, and the path in it."""


class LocalStore:
    """This machine's disks. It leaves out broken links, and links back to a folder above."""

    def list(self, path: str) -> list[Entry]:
        listed = []
        with os.scandir(path) as entries:
            for entry in entries:
                try:
                    status = entry.stat()
                except OSError as error:
                    if error.errno in (errno.ENOENT, errno.ELOOP):
                        continue
                    raise
                if entry.is_symlink() and Path(path).resolve().is_relative_to(Path(entry.path).resolve()):
                    continue
                listed.append(Entry(entry.name, entry.is_dir(), status.st_mtime_ns // 1_000_000, status.st_size))
        return listed

    def read(self, path: str) -> bytes:
        return Path(path).read_bytes()


class ArrowStore:
    """S3, Google Cloud Storage or Azure, through pyarrow."""

    def __init__(self, filesystem: Any) -> None:
        self._filesystem = filesystem

    def list(self, path: str) -> list[Entry]:
        return arrow_entries(self._filesystem, path.rstrip("/"))

    def read(self, path: str) -> bytes:
        with self._filesystem.open_input_stream(path) as stream:
            return bytes(stream.read())


def arrow_entries(filesystem: Any, folder: str) -> list[Entry]:
    """Return what is in a folder, through pyarrow.

    In Google's store, pyarrow does not list a folder that exists only in the names of objects, so this reads everything
    below.
    """
    from pyarrow import fs

    entries: dict[str, Entry] = {}
    is_google = filesystem.type_name == "gcs"
    try:
        infos = filesystem.get_file_info(fs.FileSelector(folder, recursive=is_google))
    except OSError:
        # For Google's store, the type of pyarrow's error does not say that there is no such folder.
        if filesystem.get_file_info(folder).type is fs.FileType.NotFound:
            raise FileNotFoundError(folder) from None
        raise
    for info in infos:
        name, slash, _ = info.path[len(folder) :].strip("/").partition("/") if is_google else (info.base_name, "", "")
        if slash:
            entries[name] = Entry(name, True, 0, 0)
            continue
        modified_ms = 0 if info.mtime is None else round(info.mtime.timestamp() * 1000)
        entries.setdefault(name, Entry(name, info.type is fs.FileType.Directory, modified_ms, info.size or 0))
    return list(entries.values())


def whole_place(text: str) -> str:
    """Return a path or URI that means the same in a process that runs in another folder."""
    return text if _SCHEME.fullmatch(text) else str(Path(text).absolute())


def needs_spark(text: str) -> bool:
    """Whether only Spark may know the file system of a path or URI."""
    match = _SCHEME.fullmatch(text)
    return match is not None and match[1].lower() not in (*_LOCAL, *ARROW_SCHEMES)


def locate(text: str, others: OtherStore | None = None) -> Location:
    """Return the place that a path or URI means; nothing is read yet.

    Raises:
        BadRequest: no file system handles it.
    """
    match = _SCHEME.fullmatch(text)
    scheme = match[1].lower() if match else "file"
    if match is None or scheme in _LOCAL:
        path = text if match is None else "/" + match[2].lstrip("/")
        return Location(LocalStore(), path, text)
    if scheme in ARROW_SCHEMES:
        filesystem, path = arrow_place(text)
        return Location(ArrowStore(filesystem), path, text)
    if others is None:
        raise BadRequest(f"no file system is known for {scheme}://", where=text)
    return Location(*others(text), text)


def expand(text: str, others: OtherStore | None = None) -> list[Location]:
    """Return the places that a path, URI or pattern (``*``, ``?``, ``[…]``) means.

    Raises:
        BadRequest: no file system handles it, or it matches nothing.
    """
    wild = _WILD.search(text)
    if wild is None:
        return [locate(text, others)]
    head, slash, _ = text[: wild.start()].rpartition("/")
    root = locate(head or ("/" if slash else "."), others)
    root = root if head or slash else Location(root.store, root.path, "")
    parts = text[len(head) + len(slash) :].split("/")
    places = list(_matching(root, [part for part in parts if part]))
    if not places:
        raise NotFound("nothing matches that pattern", where=text)
    return places


def _matching(root: Location, parts: Sequence[str]) -> Iterator[Location]:
    if not parts:
        yield root
        return
    try:
        entries = root.entries()
    except (FileNotFoundError, NotADirectoryError):
        return
    for entry in entries:
        if fnmatchcase(entry.name, parts[0]) and (entry.name[0] != "." or parts[0][0] == "."):
            below = root / entry.name if root.shown else Location(root.store, entry.name, entry.name)
            yield from _matching(below, parts[1:])


def arrow_place(text: str) -> tuple[Any, str]:
    """Return pyarrow's file system for a path or URI, and the path in it.

    Raises:
        BadRequest: pyarrow has none for it, or is not installed.
        Unreachable: it cannot be opened.
    """
    match = _SCHEME.fullmatch(text)
    scheme = match[1].lower() if match else "file"
    try:
        from pyarrow import fs
    except ImportError:
        hint = 'pip install "klamm[spark]"'
        raise BadRequest(f"{scheme}:// needs pyarrow, which is not installed", where=text, hint=hint) from None
    if match is None or scheme in _LOCAL:
        return fs.LocalFileSystem(), str(Path(text if match is None else "/" + match[2].lstrip("/")).absolute())
    if scheme not in ARROW_SCHEMES:
        raise BadRequest(f"klamm cannot read {scheme}://: give a path, s3://, gs:// or abfs://", where=text)
    endpoint = os.environ.get("AWS_ENDPOINT_URL_S3") or os.environ.get("AWS_ENDPOINT_URL")
    try:
        if ARROW_SCHEMES[scheme] == "s3" and endpoint:
            return fs.S3FileSystem(endpoint_override=endpoint), match[2].strip("/")
        filesystem, path = fs.FileSystem.from_uri(f"{ARROW_SCHEMES[scheme]}://{match[2]}")
    except (OSError, ValueError, NotImplementedError) as error:
        raise Unreachable(f"the store cannot be opened: {error}", where=text) from error
    return filesystem, path
