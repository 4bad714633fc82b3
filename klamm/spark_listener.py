"""A listener for PySpark that shows any lag tool where a query is.

    from klamm.spark_listener import LagListener

    spark.streams.addListener(LagListener("/var/log/klamm", group="orders-job", bootstrap_servers="localhost:9092"))

It writes a line of JSON for each event of each query, which ``klamm lag --event-log /var/log/klamm`` reads. If you name
a group, it also commits the queries' finished offsets to that group, so that tools which know only groups see them.
Spark never reads it: a query still resumes from its checkpoint. Your process imports none of klamm's internals: a
``klamm spark commit`` beside it makes the commits, one at a time. If one fails, it is logged and holds up nothing.
"""

from __future__ import annotations

import json
import logging
import subprocess
import sys
import threading
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from pyspark.sql.streaming.listener import StreamingQueryListener

if TYPE_CHECKING:
    from pyspark.sql.streaming.listener import QueryProgressEvent, QueryStartedEvent, QueryTerminatedEvent

__all__ = ["LagListener"]

_EVENT = "org.apache.spark.sql.streaming.StreamingQueryListener$"
_HEAD = '{"Listener":"klamm","Event":"' + _EVENT
_FILE_BYTES = 16 * 1024 * 1024
_COMMIT_TIMEOUT_S = 60.0

log = logging.getLogger("klamm.spark")


class LagListener(StreamingQueryListener):
    """Writes lines, and mirrors commits if a group is named.

    Args:
        folder: a folder on the driver's machine, created if it is missing. Each query has a file of at most 2 × 16 MB.
        group: commits go to this group; ``{query}`` in it stands for the query's name. Never name a group that
            consumers use.
        bootstrap_servers: of the cluster that the queries read; needed with ``group``.
        command_config: a Kafka client's properties file (TLS, SASL) for the commits.
        commit_interval_s: the time between two commits of a query; the last commit comes when the query ends.
    """

    def __init__(
        self,
        folder: str | Path,
        *,
        group: str | None = None,
        bootstrap_servers: str | None = None,
        command_config: str | None = None,
        commit_interval_s: float = 5.0,
    ) -> None:
        if group is not None and not bootstrap_servers:
            raise ValueError("LagListener(group=…) needs bootstrap_servers too: the cluster that the queries read")
        self._folder = Path(folder)
        self._folder.mkdir(parents=True, exist_ok=True)
        self._mirror = None
        if group is not None and bootstrap_servers:
            words = ["--bootstrap-server", bootstrap_servers]
            words += ["--command-config", command_config] if command_config else []
            self._mirror = _Mirror(group, words, commit_interval_s)

    def onQueryStarted(self, event: QueryStartedEvent) -> None:
        """Write that a query began a run."""
        fields = {"id": str(event.id), "runId": str(event.runId), "name": event.name, "timestamp": event.timestamp}
        self._write(str(event.id), f'{_HEAD}QueryStartedEvent",{_fields(fields)}}}')

    def onQueryProgress(self, event: QueryProgressEvent) -> None:
        """Write what a finished batch has done, and have it committed."""
        progress = event.progress
        query_id = str(progress.id)
        # On one line, whatever this version of Spark prints.
        text = json.dumps(json.loads(progress.json), separators=(",", ":"))
        file = self._write(query_id, f'{_HEAD}QueryProgressEvent","progress":{text}}}')
        if self._mirror is not None:
            self._mirror.finished(query_id, progress.name or query_id, file)

    def onQueryIdle(self, event: Any) -> None:
        """Do nothing: an idle query stays where it was."""

    def onQueryTerminated(self, event: QueryTerminatedEvent) -> None:
        """Write that a run has ended, and have the rest committed."""
        fields = {"id": str(event.id), "runId": str(event.runId), "exception": event.exception}
        self._write(str(event.id), f'{_HEAD}QueryTerminatedEvent",{_fields(fields)}}}')
        if self._mirror is not None:
            self._mirror.hurry()

    def close(self, timeout_s: float = 60.0) -> None:
        """Commit what is left and end. Call it before the driver ends: a commit under way ends with the driver."""
        if self._mirror is not None:
            self._mirror.close(timeout_s)

    def _write(self, query_id: str, line: str) -> Path:
        file = self._folder / f"{query_id}.jsonl"
        if file.exists() and file.stat().st_size > _FILE_BYTES:
            file.replace(file.with_suffix(".old.jsonl"))
        with file.open("a", encoding="utf-8") as stream:
            stream.write(line + "\n")
        return file


class _Mirror:
    """Commits in a thread of its own: callbacks of Spark must be short."""

    def __init__(self, group: str, cluster_words: Sequence[str], interval_s: float) -> None:
        self._group = group
        self._cluster_words = list(cluster_words)
        self._interval_s = interval_s
        self._changed = threading.Condition()
        self._waiting: dict[str, tuple[str, Path]] = {}
        self._is_hurried = False
        self._is_ended = False
        self._thread = threading.Thread(target=self._run, name="klamm-commits", daemon=True)
        self._thread.start()

    def finished(self, query_id: str, name: str, file: Path) -> None:
        with self._changed:
            self._waiting[query_id] = name, file
            self._changed.notify()

    def hurry(self) -> None:
        with self._changed:
            self._is_hurried = True
            self._changed.notify()

    def close(self, timeout_s: float) -> None:
        with self._changed:
            self._is_ended = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        while True:
            with self._changed:
                self._changed.wait_for(lambda: self._waiting or self._is_ended)
                # Positions that arrive in the meantime are committed with it.
                self._changed.wait_for(lambda: self._is_ended or self._is_hurried, self._interval_s)
                waiting, self._waiting, self._is_hurried = self._waiting, {}, False
                if not waiting and self._is_ended:
                    return
            for name, file in waiting.values():
                self._commit(name, file)

    def _commit(self, name: str, file: Path) -> None:
        group = self._group.replace("{query}", name)
        words = ["spark", "commit", str(file), "--group", group, "--yes", "--quiet", *self._cluster_words]
        try:
            program = [sys.executable, "-P", "-m", "klamm", *words]
            ran = subprocess.run(program, capture_output=True, text=True, check=False, timeout=_COMMIT_TIMEOUT_S)
        except (OSError, subprocess.TimeoutExpired) as error:
            log.warning("the position of query %s was not committed to group %s: %s", name, group, error)
            return
        if ran.returncode:
            log.warning("the position of query %s was not committed to group %s: %s", name, group, ran.stderr.strip())


def _fields(fields: Mapping[str, object]) -> str:
    return json.dumps(fields, separators=(",", ":"))[1:-1]
