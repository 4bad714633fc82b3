"""File systems of Hadoop (HDFS, ViewFS, whatever a user's Spark is set up for), through a session's JVM.

Settings are Spark's own: ``HADOOP_CONF_DIR``, ``spark.hadoop.*``.
"""

from __future__ import annotations

from typing import Any

from engine.admin.cluster.errors import BadRequest
from engine.admin.lag.stores import Entry


class HadoopStore:
    """One session's file systems. Paths are whole URIs."""

    def __init__(self, spark: Any) -> None:
        self._jvm = spark._jvm
        self._conf = spark._jsc.hadoopConfiguration()

    def list(self, path: str) -> list[Entry]:
        """Return what is in a folder."""
        where = self._path(path)
        try:
            files = where.getFileSystem(self._conf)
            if not files.getFileStatus(where).isDirectory():
                raise NotADirectoryError(path)
            found = files.listStatus(where)
        except NotADirectoryError:
            raise
        except Exception as error:
            raise _told(error, path) from None
        return [
            Entry(one.getPath().getName(), one.isDirectory(), one.getModificationTime(), one.getLen()) for one in found
        ]

    def read(self, path: str) -> bytes:
        """Return what is in a file."""
        where = self._path(path)
        try:
            stream = where.getFileSystem(self._conf).open(where)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
        except Exception as error:
            raise _told(error, path) from None

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)


def _told(error: Exception, path: str) -> OSError | BadRequest:
    java: Any = getattr(error, "java_exception", None)
    kind = "" if java is None else java.getClass().getSimpleName()
    if kind == "FileNotFoundException":
        return FileNotFoundError(path)
    if kind == "AccessControlException":
        return PermissionError(path)
    if kind == "UnsupportedFileSystemException":
        hint = "name its jar in spark.jars or spark.jars.packages of Spark's own settings"
        return BadRequest(f"Spark has no file system for this: {java.getMessage()}", where=path, hint=hint)
    text = str(error) if java is None else f"{kind}: {java.getMessage()}"
    return OSError(text.splitlines()[0])
