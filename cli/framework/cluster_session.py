"""Opens the cluster that a command means, while the command runs. Imported inside commands only."""

from __future__ import annotations

import logging
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager

from cli.framework.invocation import Invocation
from cli.framework.progress import Progress
from cli.framework.talk import Talk
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.cluster.settings_silence import SettingsSilence


@asynccontextmanager
async def open_cluster(
    invocation: Invocation, *, for_change: bool = False, may_be_absent: bool = False
) -> AsyncIterator[Cluster]:
    """Open the command's cluster; close its connections at the end.

    ``may_be_absent``: the command reads ZooKeeper even if no cluster is there. One that changes something may, too: it
    may be the first to write there.
    """
    target = invocation.target(for_change=for_change)
    reading = ReadingProgress(invocation.talk)
    invocation.settings = invocation.settings or SettingsSilence()
    cluster = Cluster(
        target,
        observe=invocation.talk.detail,
        accepted=invocation.accepted,
        complain=invocation.talk.warn,
        on_read=reading.update,
        timeout_s=invocation.timeout_s,
        settings=invocation.settings,
        is_dry_run=invocation.is_dry_run,
        asks_only_brokers=invocation.asks == "wire",
        needs=invocation.rights,
        essential=invocation.essential_rights,
        expects_znodes=not (for_change or may_be_absent),
    )
    invocation.denials.append(cluster)
    invocation.awaited = cluster.awaited
    with _engine_warnings_shown(invocation.talk):
        async with cluster:
            try:
                yield cluster
                if invocation.would_change:
                    await cluster.note_lacking()
            except AdminError as error:
                if error.topics:
                    from engine.admin.log_dirs.describing import hidden_matches
                    from engine.admin.topics.deletion import being_deleted

                    if (deletion := await being_deleted(cluster, error)) is not None:
                        raise deletion from error
                    error.topics = (*error.topics, *await hidden_matches(cluster, error.topics))
                raise
            finally:
                reading.end()
                invocation.note_unanswered(cluster.unanswered)
                invocation.waited_for = cluster.kept_waiting_longest()
                invocation.has_sent_changes = invocation.has_sent_changes or cluster.has_sent_changes


class ReadingProgress:
    """Shows progress while very many topics are read."""

    def __init__(self, talk: Talk) -> None:
        self._talk = talk
        self._progress: Progress | None = None

    def update(self, done: int, total: int) -> None:
        """Show the progress; the line disappears with the last topic."""
        if self._progress is None:
            self._progress = Progress(self._talk, "read", "topics", total)
        self._progress.update(done)
        if done == total:
            self.end()

    def end(self) -> None:
        """Remove the line, if there is one."""
        if self._progress is not None:
            self._progress.end()
        self._progress = None


class _WarningHandler(logging.Handler):
    """Reports each warning once: a waiting command polls repeatedly, and may be drawing its progress."""

    def __init__(self, talk: Talk) -> None:
        super().__init__(logging.WARNING)
        self._talk = talk
        self._said: set[str] = set()

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if text not in self._said:
            self._said.add(text)
            self._talk.warn(text)


@contextmanager
def _engine_warnings_shown(talk: Talk) -> Iterator[None]:
    """Report the engine's warnings as the command's own while the context is open."""
    logger, handler = logging.getLogger("engine"), _WarningHandler(talk)
    logger.addHandler(handler)
    try:
        yield
    finally:
        logger.removeHandler(handler)
