"""Files on Hadoop's file systems for ``StorePath``: as much of pyarrow's interface as it uses. Paths are whole URIs."""

from __future__ import annotations

import io
import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from engine.spark.hadoop_jvm import hadoop
from engine.spark.hadoop_store import told

_PIECE_BYTES = 1 << 22


class HadoopFiles:
    """The file systems that Spark knows in this process."""

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
            found = files.listFiles(where, True)
            while found.hasNext():
                file = found.next()
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
            raise told(error, path) from None
        raise


class _Spool:
    """A file through which bytes pass between the JVM and this process: py4j itself would pass them as text."""

    def __init__(self, jvm: Any) -> None:
        self._file = tempfile.NamedTemporaryFile(prefix="klamm-")  # noqa: SIM115
        self.number = self._file.fileno()
        self.java = jvm.java.io.File(self._file.name)
        self.close = self._file.close


class _Input:
    """A file of which any part can be read."""

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
