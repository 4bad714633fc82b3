"""Paths in stores, for code that reads and writes logs by ``pathlib``: object stores, and Hadoop's file systems.

The URI is the path, so it travels to executors as it is. Each process opens S3, Google Cloud Storage and Azure itself
through pyarrow, which executors have, with the credentials of its environment: no jar is needed. The rest is what Spark
knows there (HDFS, ViewFS, …), with the session's settings.
"""

from __future__ import annotations

import io
import os
import stat
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from pathlib import PosixPath
from typing import Any

from engine.admin.cluster.errors import Unreachable
from engine.admin.lag.stores import ARROW_SCHEMES, arrow_place
from engine.spark.hadoop_jvm import hadoop
from engine.spark.hadoop_store import raisable

_AHEAD_BYTES_MIN = 1 << 16
_AHEAD_BYTES_MAX = 1 << 22

_PIECE_BYTES = 1 << 22


class StorePath(PosixPath):
    """A file or folder in a store. Objects appear once they are complete; folders exist only in object names."""

    def __str__(self) -> str:
        scheme, _, rest = super().__str__().partition(":/")
        return f"{scheme}://{rest}"

    @classmethod
    def of(cls, uri: str) -> StorePath:
        """Return the path of a URI; without a host, on the one that Hadoop's settings name.

        Raises:
            BadRequest, Unreachable, OSError: Spark has no such file system, or no host is named anywhere.
        """
        scheme, _, rest = uri.partition(":/")
        path = cls(f"{scheme.lower()}:/{rest}")
        if path.is_hadoops and not rest.removeprefix("/").partition("/")[0]:
            return cls(HadoopFiles().qualified(f"{scheme.lower()}:/{rest}"))
        return path

    @property
    def is_hadoops(self) -> bool:
        """Whether only Spark knows its file system."""
        return self.parts[0].rstrip(":") not in ARROW_SCHEMES

    def absolute(self) -> StorePath:
        return self

    def exists(self, **named: Any) -> bool:
        from pyarrow import fs

        return self._info().type is not fs.FileType.NotFound

    def is_dir(self, **named: Any) -> bool:
        from pyarrow import fs

        return self._info().type is fs.FileType.Directory

    def is_symlink(self) -> bool:
        return False

    def stat(self, **named: Any) -> os.stat_result:
        info = self._info()
        if not info.is_file:
            raise FileNotFoundError(str(self))
        return os.stat_result((stat.S_IFREG, 0, 0, 0, 0, 0, info.size, 0, 0, 0))

    def walk(self, *words: Any, **named: Any) -> Iterator[tuple[Any, list[str], list[str]]]:
        """Yield folders with the names of the files in them, as Path does since Python 3.12."""
        from pyarrow import fs

        files, path = self._place()
        head = len(path.rstrip("/")) + 1
        for info in files.get_file_info(fs.FileSelector(path, recursive=True)):
            if info.is_file:
                file = self / info.path[head:]
                yield file.parent, [], [file.name]

    def open(self, mode: str = "r", buffering: int = -1, *words: Any, **named: Any) -> Any:
        """Open for reading or writing bytes. An object is read ahead in growing pieces, because each is a request."""
        files, path = self._place()
        if mode == "wb":
            return files.open_output_stream(path)
        raw = _Ahead(files.open_input_file(path))
        return io.BufferedReader(raw) if buffering else raw

    def touch(self, *words: Any, **named: Any) -> None:
        self.open("wb").close()

    def mkdir(self, *words: Any, **named: Any) -> None:
        """Do nothing: a folder comes with the first file in it."""

    def unlink(self, *words: Any, **named: Any) -> None:
        files, path = self._place()
        files.delete_file(path)

    def remove(self) -> None:
        """Remove a file, or a folder with its content; it may be gone already."""
        if self.is_dir():
            files, path = self._place()
            files.delete_dir(path)
        elif self.exists():
            self.unlink()

    def _info(self) -> Any:
        files, path = self._place()
        try:
            return files.get_file_info(path)
        except OSError as error:
            raise Unreachable(f"the store does not answer: {error}", where=str(self)) from error

    def _place(self) -> tuple[Any, str]:
        if self.is_hadoops:
            return HadoopFiles(), str(self)
        scheme, bucket, *rest = self.parts
        files, root = _opened(f"{scheme}//{bucket}")
        return files, "/".join([root.rstrip("/"), *rest])


class _Ahead(io.RawIOBase):
    """Reads a file of a store: around a single place, or in growing pieces while reads are sequential."""

    def __init__(self, file: Any) -> None:
        self._file = file
        self._position = 0
        self._ahead = memoryview(b"")
        self._ahead_begin = 0
        self._piece_bytes = _AHEAD_BYTES_MIN

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        bases = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._file.size()}
        self._position = bases[whence] + offset
        return self._position

    def readinto(self, target: Any) -> int:
        done = 0
        while done < len(target) and (piece := self._from_here()):
            size = min(len(target) - done, len(piece))
            target[done : done + size] = piece[:size]
            self._position += size
            done += size
        return done

    def _from_here(self) -> memoryview:
        """Return the buffered bytes from the position on, fetching some if there are none; empty at the end."""
        within = self._position - self._ahead_begin
        if not 0 <= within < len(self._ahead):
            is_next = within == len(self._ahead)
            self._piece_bytes = min(2 * self._piece_bytes, _AHEAD_BYTES_MAX) if is_next else _AHEAD_BYTES_MIN
            size = min(self._piece_bytes, max(0, self._file.size() - self._position))
            self._ahead = memoryview(self._file.read_at(size, self._position) if size else b"")
            self._ahead_begin, within = self._position, 0
        return self._ahead[within:]

    def close(self) -> None:
        self._file.close()
        super().close()


_opened = cache(arrow_place)
"""Returns the file system of a bucket, and the path of its root."""


class HadoopFiles:
    """The file systems that Spark knows, with as much of pyarrow's interface as ``StorePath`` uses.

    Paths are whole URIs.
    """

    def __init__(self) -> None:
        self._jvm, self._conf = hadoop()

    def get_file_info(self, asked: Any) -> Any:
        """Return what there is at a path, or a list of the files below the folder of a selector."""
        if not isinstance(asked, str):
            return list(self._below(asked.base_dir))
        from pyarrow import fs

        try:
            with self._at(asked) as (files, where):
                status = files.getFileStatus(where)
        except FileNotFoundError:
            return fs.FileInfo(asked, fs.FileType.NotFound)
        if status.isDirectory():
            return fs.FileInfo(asked, fs.FileType.Directory)
        return fs.FileInfo(asked, fs.FileType.File, size=status.getLen())

    def _below(self, folder: str) -> Iterator[Any]:
        from pyarrow import fs

        with self._at(folder) as (files, where):
            head = len(files.makeQualified(where).toUri().getPath().rstrip("/"))
            files_below = files.listFiles(where, True)
            while files_below.hasNext():
                file = files_below.next()
                name = file.getPath().toUri().getPath()[head:]
                yield fs.FileInfo(folder.rstrip("/") + name, fs.FileType.File, size=file.getLen())

    def open_input_file(self, path: str) -> _Input:
        with self._at(path) as (files, where):
            return _Input(self._jvm, path, files.open(where), files.getFileStatus(where).getLen())

    def open_output_stream(self, path: str) -> io.BufferedWriter:
        with self._at(path) as (files, where):
            return io.BufferedWriter(_Output(self._jvm, path, files.create(where, True)), _PIECE_BYTES)

    def delete_file(self, path: str) -> None:
        with self._at(path) as (files, where):
            files.delete(where, False)

    def delete_dir(self, path: str) -> None:
        with self._at(path) as (files, where):
            files.delete(where, True)

    def qualified(self, path: str) -> str:
        """Return a path with the host that Hadoop's settings name, if it names none."""
        with self._at(path) as (files, where):
            return str(files.makeQualified(where).toString())

    @contextmanager
    def _at(self, path: str) -> Iterator[tuple[Any, Any]]:
        with _errors_of(path):
            where = self._jvm.org.apache.hadoop.fs.Path(path)
            yield where.getFileSystem(self._conf), where


@contextmanager
def _errors_of(path: str) -> Iterator[None]:
    try:
        yield
    except Exception as error:
        if type(error).__module__.startswith(("pyspark.", "py4j.")):
            raise raisable(error, path) from None
        raise


class _Spool:
    """A file through which bytes pass between the JVM and this process: py4j itself would pass them as text."""

    def __init__(self, jvm: Any) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="klamm-")  # noqa: SIM115
        self.number = self._file.fileno()
        self.java = jvm.java.io.File(self._file.name)
        self.close = self._file.close


class _Input:
    """A file that can be read from any position."""

    def __init__(self, jvm: Any, path: str, stream: Any, size_bytes: int) -> None:
        self._jvm, self._path, self._stream, self._size_bytes = jvm, path, stream, size_bytes
        self._spool = _Spool(jvm)

    def size(self) -> int:
        return self._size_bytes

    def read_at(self, size_bytes: int, position: int) -> bytes:
        with _errors_of(self._path):
            self._stream.seek(position)
            target = self._jvm.java.io.FileOutputStream(self._spool.java)
            try:
                copied = self._jvm.org.apache.commons.io.IOUtils.copyLarge(self._stream, target, 0, size_bytes)
            finally:
                target.close()
        return os.pread(self._spool.number, copied, 0)

    def close(self) -> None:
        self._spool.close()
        with _errors_of(self._path):
            self._stream.close()


class _Output(io.RawIOBase):
    """A new file, written from its beginning to its end."""

    def __init__(self, jvm: Any, path: str, stream: Any) -> None:
        self._jvm, self._path, self._stream = jvm, path, stream
        self._spool = _Spool(jvm)

    def writable(self) -> bool:
        return True

    def write(self, content: Any) -> int:
        os.ftruncate(self._spool.number, 0)
        size_bytes = os.pwrite(self._spool.number, content, 0)
        with _errors_of(self._path):
            self._jvm.org.apache.commons.io.FileUtils.copyFile(self._spool.java, self._stream)
        return size_bytes

    def close(self) -> None:
        if not self.closed:
            self._spool.close()
            with _errors_of(self._path):
                self._stream.close()
        super().close()
