"""An offset checkpoint file of a log dir: the event loop makes its states, and threads write them.

The file's keys are topic and partition, and a name may be reused within a second. So two rules hold: an older state
never replaces a newer one, and code that creates a log can tell whether the file may still name an earlier one.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping
from pathlib import Path

from engine.broker.log.disk_jobs import LogDirJob
from engine.broker.log.environment import LogEnvironment
from engine.broker.log.small_files import replace_file
from engine.common.model import TopicPartition
from engine.kafka.formats.checkpoints import encode_offset_checkpoint


class CheckpointFile:
    """One file. ``names`` are the partitions that it may hold on disk; only the event loop uses them."""

    __slots__ = ("_lock", "_made", "_written", "names", "path")

    def __init__(self, path: Path) -> None:
        self.path = path
        self.names: frozenset[TopicPartition] = frozenset()
        self._lock = threading.Lock()
        self._made = 0
        self._written = 0

    def names_any(self, topic_partitions: Collection[TopicPartition]) -> bool:
        """Return whether the file may hold one of these partitions, now or when a job under way has ended."""
        return not self.names.isdisjoint(topic_partitions)

    def job(self, environment: LogEnvironment, offsets: Mapping[TopicPartition, int]) -> CheckpointJob:
        """Return the job that writes a new state. It keeps ``offsets``, so nobody may change them."""
        self._made += 1
        self.names |= offsets.keys()
        return CheckpointJob(environment, self, self._made, offsets)

    def write(self, number: int, text: str) -> None:
        """Write a state to the disk, unless a later one has overtaken it. In any thread."""
        with self._lock:
            if number > self._written:
                replace_file(self.path, text, sync=True)
                self._written = number

    def written(self, number: int, names: Collection[TopicPartition]) -> None:
        """Take note that a state is on disk."""
        if number == self._made:
            self.names = frozenset(names)


class CheckpointJob(LogDirJob):
    """Writes one state of a checkpoint file."""

    __slots__ = ("_file", "_number", "_offsets")

    def __init__(
        self, environment: LogEnvironment, file: CheckpointFile, number: int, offsets: Mapping[TopicPartition, int]
    ) -> None:
        super().__init__(environment, file.path.parent, f"writing to checkpoint file {file.path}")
        self._file = file
        self._number = number
        self._offsets = offsets

    def _work(self) -> None:
        self._file.write(self._number, encode_offset_checkpoint(self._offsets))

    def _done(self) -> None:
        self._file.written(self._number, self._offsets.keys())
