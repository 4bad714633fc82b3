"""The aborted transactions of a segment (``.txnindex``). The file exists only once there is one."""

from __future__ import annotations

import os

from engine.broker.log.file_range import write_fully
from engine.broker.log.segment_paths import SegmentPaths
from engine.common.errors import CorruptFileError, StorageError
from engine.kafka.formats.index_entries import (
    ABORTED_TRANSACTION_ENTRY,
    AbortedTransaction,
    encode_aborted_transaction,
    iter_aborted_transactions,
)
from engine.kafka.formats.segment_files import TRANSACTION_INDEX_SUFFIX
from engine.runtime.descriptors import open_file


class TransactionIndex:
    """Ordered by last offset. Entries stay in memory once read: every read_committed fetch asks for them."""

    __slots__ = ("_entries", "_exists", "_paths")

    def __init__(self, paths: SegmentPaths, *, exists: bool) -> None:
        """``exists`` says whether there is a file yet."""
        self._paths = paths
        self._exists = exists
        self._entries: list[AbortedTransaction] | None = None if exists else []

    def entries(self) -> list[AbortedTransaction]:
        """Return all aborted transactions.

        Raises:
            CorruptFileError: the file is of a later version.
        """
        if self._entries is None:
            self._entries = list(iter_aborted_transactions(self._paths.path(TRANSACTION_INDEX_SUFFIX).read_bytes()))
        return self._entries

    def append(self, transaction: AbortedTransaction) -> None:
        """Add an aborted transaction.

        Raises:
            StorageError: its last offset is not beyond those already there.
        """
        entries = self.entries()
        if entries and entries[-1].last_offset >= transaction.last_offset:
            raise StorageError(
                f"The last offset of appended transactions must increase sequentially, but {transaction.last_offset} "
                f"is not greater than current last offset {entries[-1].last_offset}",
                path=str(self._paths.path(TRANSACTION_INDEX_SUFFIX)),
            )
        self._write(encode_aborted_transaction(transaction), len(entries))
        entries.append(transaction)

    def collect(self, fetch_offset: int, upper_bound_offset: int) -> tuple[list[AbortedTransaction], bool]:
        """Return the entries that overlap ``[fetch_offset, upper_bound_offset)``, and whether later segments have
        none.
        """
        found = []
        for transaction in self.entries():
            if transaction.last_offset >= fetch_offset and transaction.first_offset < upper_bound_offset:
                found.append(transaction)
            if transaction.last_stable_offset >= upper_bound_offset:
                return found, True
        return found, False

    def truncate_to(self, offset: int) -> None:
        """Drop the entries whose last offset is ``offset`` or later."""
        entries = self.entries()
        kept = [transaction for transaction in entries if transaction.last_offset < offset]
        if len(kept) < len(entries):
            os.truncate(self._paths.path(TRANSACTION_INDEX_SUFFIX), len(kept) * ABORTED_TRANSACTION_ENTRY.size)
            self._entries = kept

    def reset(self) -> None:
        """Drop all entries; the file stays, empty."""
        if self._exists:
            os.truncate(self._paths.path(TRANSACTION_INDEX_SUFFIX), 0)
        self._entries = []

    def check(self) -> None:
        """Raise CorruptFileError if the file cannot belong to this segment."""
        for transaction in self.entries():
            if transaction.last_offset < self._paths.base_offset:
                raise CorruptFileError(
                    f"Last offset of aborted transaction {transaction} is less than start offset "
                    f"{self._paths.base_offset}",
                    path=str(self._paths.path(TRANSACTION_INDEX_SUFFIX)),
                )

    def release(self) -> None:
        """Release memory that only makes the next lookup faster."""
        if self._exists:
            self._entries = None

    def _write(self, data: bytes, slot: int) -> None:
        path = self._paths.path(TRANSACTION_INDEX_SUFFIX)
        fd = open_file(path, os.O_RDWR | os.O_CREAT)
        try:
            write_fully(fd, data, slot * ABORTED_TRANSACTION_ENTRY.size)
        finally:
            os.close(fd)
        self._exists = True
