"""Hadoop's file systems (HDFS, ViewFS, whatever a user's Spark is configured for), in any process of a job.

Settings are Spark's own: ``HADOOP_CONF_DIR``, ``spark.hadoop.*``.
"""

from __future__ import annotations

from typing import Any
from urllib.parse import urlsplit

from engine.admin.cluster.errors import BadRequest, Unreachable
from engine.admin.lag.stores import Entry
from engine.spark.hadoop_jvm import hadoop

_UNREACHABLE = ("ConnectException", "ConnectTimeoutException", "NoRouteToHostException", "UnknownHostException")


class HadoopStore:
    """The file systems that Spark knows in this process. Paths are whole URIs."""

    def __init__(self) -> None:
        self._jvm, self._conf = hadoop()

    def list(self, path: str) -> list[Entry]:
        where = self._path(path)
        try:
            files = where.getFileSystem(self._conf)
            if not files.getFileStatus(where).isDirectory():
                raise NotADirectoryError(path)
            statuses = files.listStatus(where)
        except NotADirectoryError:
            raise
        except Exception as error:
            raise raisable(error, path) from None
        return [
            Entry(status.getPath().getName(), status.isDirectory(), status.getModificationTime(), status.getLen())
            for status in statuses
        ]

    def read(self, path: str) -> bytes:
        where = self._path(path)
        try:
            stream = where.getFileSystem(self._conf).open(where)
            try:
                return bytes(self._jvm.org.apache.commons.io.IOUtils.toByteArray(stream))
            finally:
                stream.close()
        except Exception as error:
            raise raisable(error, path) from None

    def _path(self, path: str) -> Any:
        return self._jvm.org.apache.hadoop.fs.Path(path)


def service_of(uri: str) -> str:
    """Return the name for people of the service behind a URI: ``HDFS at namenode:8020``."""
    parts = urlsplit(uri)
    return f"{parts.scheme.upper()} at {parts.netloc}" if parts.netloc else parts.scheme.upper()


def raisable(error: Exception, path: str) -> OSError | BadRequest | Unreachable:
    """Return what to raise for an exception of Hadoop's."""
    # PySpark has exceptions of its own for some of the JVM's.
    java: Any = getattr(error, "java_exception", None) or getattr(error, "_origin", None)
    kind = "" if java is None else java.getClass().getSimpleName()
    if kind == "FileNotFoundException":
        return FileNotFoundError(path)
    if kind == "AccessControlException":
        return PermissionError(path)
    if kind == "UnsupportedFileSystemException":
        hint = "name its jar in spark.jars or spark.jars.packages of Spark's own settings"
        return BadRequest(f"Spark has no file system for this: {java.getMessage()}", where=path, hint=hint)
    if kind == "IllegalArgumentException" and java.getCause() is not None:
        # Hadoop says this about a host without an address.
        java = java.getCause()
        kind = java.getClass().getSimpleName()
    if kind in _UNREACHABLE:
        reason = java.getMessage().partition("; ")[0].rpartition("Exception: ")[2]
        hint = "is that its name and port? HADOOP_CONF_DIR names the folder of the cluster's settings"
        return Unreachable(f"{service_of(path)} cannot be reached: {reason}", where=path, hint=hint)
    text = str(error) if java is None else f"{kind}: {java.getMessage()}"
    return OSError(text.splitlines()[0])
