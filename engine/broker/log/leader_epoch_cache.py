"""The offset at which each leader epoch began (KIP-101, KIP-279), kept in ``leader-epoch-checkpoint``.

Every change replaces the file, and the next flush brings it to the disk together with the records: recovery finds the
epochs of unflushed records in the batches themselves.
"""

from __future__ import annotations

import logging
from bisect import bisect_right
from pathlib import Path
from typing import NamedTuple

from engine.broker.log.small_files import is_blank_text, replace_file
from engine.common.errors import CorruptFileError
from engine.common.model import NO_PARTITION_LEADER_EPOCH
from engine.kafka.formats.checkpoints import (
    LEADER_EPOCH_CHECKPOINT,
    EpochEntry,
    decode_leader_epoch_checkpoint,
    encode_leader_epoch_checkpoint,
)

logger = logging.getLogger(__name__)

UNDEFINED_OFFSET = -1


class EpochEndOffset(NamedTuple):
    """Where a leader epoch ends; both -1 if that is not known."""

    leader_epoch: int
    end_offset: int


UNDEFINED_EPOCH_END = EpochEndOffset(NO_PARTITION_LEADER_EPOCH, UNDEFINED_OFFSET)


class LeaderEpochCache:
    """Entries in ascending order of epoch and of start offset. ``latest_epoch`` is -1 while there is none.

    A log in message format 0 or 1 has no entries and no file, because its messages name no epoch: ``is_kept`` is false.
    """

    __slots__ = ("_entries", "folder", "is_kept", "is_unsynced", "latest_epoch", "was_blank")

    def __init__(self, folder: Path, entries: list[EpochEntry]) -> None:
        self.folder = folder
        self._entries: list[EpochEntry] = []
        self.latest_epoch = NO_PARTITION_LEADER_EPOCH
        self.is_kept = True
        self.is_unsynced = False
        self.was_blank = False
        """The file existed without its content: the machine crashed before the content was on disk."""
        for entry in entries:
            self._assign(entry)

    @classmethod
    def load(cls, folder: Path, *, is_kept: bool = True, may_be_lost: bool = False) -> LeaderEpochCache:
        """Read a partition's file; if there is none, create an empty one, as Kafka does.

        With ``may_be_lost``, a damaged one counts as blank: the machine crashed before it was on disk. One that is
        not kept is removed unread.

        Raises:
            CorruptFileError: the file is damaged.
            OSError: it cannot be read.
        """
        if not is_kept:
            cache = cls(folder, [])
            cache.keep(is_kept=False)
            return cache
        path = folder / LEADER_EPOCH_CHECKPOINT
        try:
            text = path.read_text("utf-8")
        except FileNotFoundError:
            path.touch()
            return cls(folder, [])
        is_blank = is_blank_text(text)
        entries: list[EpochEntry] = []
        try:
            entries = [] if is_blank else decode_leader_epoch_checkpoint(text, str(path))
        except CorruptFileError:
            if not may_be_lost:
                raise
            is_blank = True
        cache = cls(folder, entries)
        cache.was_blank = is_blank
        return cache

    @property
    def path(self) -> Path:
        return self.folder / LEADER_EPOCH_CHECKPOINT

    @property
    def entries(self) -> tuple[EpochEntry, ...]:
        return tuple(self._entries)

    @property
    def earliest_entry(self) -> EpochEntry | None:
        return self._entries[0] if self._entries else None

    @property
    def latest_entry(self) -> EpochEntry | None:
        return self._entries[-1] if self._entries else None

    def keep(self, *, is_kept: bool) -> None:
        """Begin an empty file, or forget all entries and remove it. Raises OSError."""
        self.is_kept = is_kept
        if is_kept:
            self.path.touch()
        else:
            self._set([])
            self.path.unlink(missing_ok=True)
        self.is_unsynced = is_kept

    def assign(self, leader_epoch: int, start_offset: int) -> None:
        """Note that ``leader_epoch`` begins at ``start_offset``, unless the cache is not kept.

        If it is the latest epoch already, it keeps its start. Entries that contradict the new one go: later epochs, and
        starts at or beyond its own.
        """
        if not self.is_kept:
            return
        before = self._entries
        if self._assign(EpochEntry(leader_epoch, start_offset)):
            try:
                self._write()
            except OSError:
                # Otherwise the next caller would believe that it was written.
                self._set(before)
                raise

    def end_offset_for(self, leader_epoch: int, log_end_offset: int) -> EpochEndOffset:
        """Return the largest known epoch up to ``leader_epoch``, and where the next one begins.

        The latest epoch ends at the log's end. An epoch before all known ones ends where the first known one begins;
        one beyond all known ones is undefined.
        """
        if leader_epoch == NO_PARTITION_LEADER_EPOCH or not self._entries:
            return UNDEFINED_EPOCH_END
        if leader_epoch == self.latest_epoch:
            return EpochEndOffset(leader_epoch, log_end_offset)
        following = self._index_after(leader_epoch)
        if following == len(self._entries):
            return UNDEFINED_EPOCH_END
        end_offset = self._entries[following].start_offset
        floor_epoch = leader_epoch if following == 0 else self._entries[following - 1].leader_epoch
        return EpochEndOffset(floor_epoch, end_offset)

    def truncate_from_end(self, end_offset: int) -> None:
        """Drop the epochs that begin at ``end_offset`` or later."""
        kept = [entry for entry in self._entries if entry.start_offset < end_offset]
        if len(kept) < len(self._entries):
            self._replace(kept)

    def truncate_from_start(self, start_offset: int) -> None:
        """Drop the epochs that end by ``start_offset``; the first remaining one begins there."""
        index = bisect_right(self._entries, start_offset, key=lambda entry: entry.start_offset)
        if index > 1 or (index == 1 and self._entries[0].start_offset < start_offset):
            first = EpochEntry(self._entries[index - 1].leader_epoch, start_offset)
            self._replace([first, *self._entries[index:]])

    def clear(self) -> None:
        self._replace([])

    def _index_after(self, leader_epoch: int) -> int:
        return bisect_right(self._entries, leader_epoch, key=lambda entry: entry.leader_epoch)

    def _assign(self, entry: EpochEntry) -> bool:
        if entry.leader_epoch < 0 or entry.start_offset < 0:
            raise ValueError(f"Received invalid partition leader epoch entry {entry}")
        latest = self.latest_entry
        is_known = latest is not None and latest.leader_epoch == entry.leader_epoch
        if latest is not None and is_known and entry.start_offset >= latest.start_offset:
            return False
        kept = list(self._entries)
        while kept and (kept[-1].leader_epoch >= entry.leader_epoch or kept[-1].start_offset >= entry.start_offset):
            kept.pop()
        removed = self._entries[len(kept) :]
        if len(removed) > 1 or (removed and removed[0].start_offset != entry.start_offset):
            logger.warning(
                "A new leader epoch contradicts entries of the cache, which are dropped folder=%s new=%s dropped=%s",
                self.folder,
                entry,
                removed,
            )
        self._entries = [*kept, entry]
        self.latest_epoch = entry.leader_epoch
        return True

    def _replace(self, entries: list[EpochEntry]) -> None:
        self._set(entries)
        if self.is_kept:
            self._write()

    def _set(self, entries: list[EpochEntry]) -> None:
        self._entries = entries
        self.latest_epoch = entries[-1].leader_epoch if entries else NO_PARTITION_LEADER_EPOCH

    def _write(self) -> None:
        replace_file(self.path, encode_leader_epoch_checkpoint(self._entries), sync=False)
        self.is_unsynced = True
