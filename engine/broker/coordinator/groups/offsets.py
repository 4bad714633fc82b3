"""The offsets of one group: committed, being written, and pending in transactions. Pure; it knows no members."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Sequence
from typing import Any, Final, NamedTuple

from engine.broker.coordinator.groups.commit_form import CommitForm, CommittedOffset, Offsets
from engine.common.model import TopicPartition

_new: Callable[..., Any] = tuple.__new__

_FORMS_MAX: Final = 100

FormedOffsets = tuple[Sequence[int], Sequence[int], int, int]
"""Offsets, leader epochs, and time of a commit, and where in the log its first record is."""


class StoredOffset(NamedTuple):
    """A committed offset and where in ``__consumer_offsets`` its batch begins: the later one wins."""

    value: CommittedOffset
    log_offset: int


class GroupOffsets:
    """A group's offsets. Offsets that are written but not replicated yet are not visible."""

    __slots__ = ("_in_form", "_in_transactions", "_pending", "_stored")

    def __init__(self) -> None:
        self._stored: dict[TopicPartition, StoredOffset] = {}
        """Those that are committed, except for what ``_in_form`` has."""
        self._in_form: dict[CommitForm, FormedOffsets] = {}
        """The newest commit in each form, which is put to the others when somebody looks at them."""
        self._pending: Offsets = {}
        self._in_transactions: dict[int, dict[TopicPartition, StoredOffset | None]] = {}

    def __len__(self) -> int:
        """Number of committed offsets."""
        return len(self._committed)

    @property
    def _committed(self) -> dict[TopicPartition, StoredOffset]:
        if self._in_form:
            self._unfold()
        return self._stored

    def _unfold(self) -> None:
        """Put the commits in forms to the others."""
        in_form, self._in_form = self._in_form, {}
        for form, (offsets, epochs, timestamp_ms, log_offset) in in_form.items():
            self.commit(form.offsets(offsets, epochs, timestamp_ms), log_offset)

    @property
    def is_empty(self) -> bool:
        """Whether nothing is committed, being written or pending in a transaction."""
        return not (self._committed or self._pending or self._in_transactions)

    @property
    def partitions(self) -> Collection[TopicPartition]:
        """The partitions that have a committed offset."""
        return self._committed.keys()

    @property
    def named(self) -> Collection[TopicPartition]:
        """The partitions whose offset is committed or being written."""
        return self._committed.keys() | self._pending.keys()

    @property
    def producer_ids(self) -> Collection[int]:
        """Producers whose transactions hold offsets of this group."""
        return self._in_transactions.keys()

    def get(self, partition: TopicPartition) -> CommittedOffset | None:
        stored = self._committed.get(partition)
        return None if stored is None else stored.value

    def is_unstable(self, partition: TopicPartition) -> bool:
        """Whether a newer offset may become visible without a further commit (KIP-447)."""
        return partition in self._pending or any(partition in held for held in self._in_transactions.values())

    # -- commits

    def commit(self, offsets: Offsets, log_offset: int) -> None:
        """Make offsets visible whose records, from ``log_offset`` on, were replicated as soon as they were written."""
        committed = self._committed
        for partition, value in offsets.items():
            known = committed.get(partition)
            if known is None or known[1] < log_offset:
                # As StoredOffset(…), without its detour through Python.
                committed[partition] = _new(StoredOffset, (value, log_offset))

    def commit_in_form(self, form: CommitForm, values: FormedOffsets) -> None:
        """Do the same for a commit whose partitions its form has."""
        in_form = self._in_form
        in_form[form] = values
        if len(in_form) > _FORMS_MAX:
            # Each generation of a group has forms of its own.
            self._unfold()

    def begin_commit(self, offsets: Offsets) -> None:
        """Note that the offsets are being written. Each commit is identified by its own objects, not by value."""
        self._pending.update(offsets)

    def end_commit(self, offsets: Offsets, log_offset: int) -> None:
        """Make the offsets visible: their records are replicated from ``log_offset`` on."""
        for partition, value in offsets.items():
            # If it is no longer pending, it was deleted while it was written. The tombstone comes after it in the log.
            if partition in self._pending:
                self._put_later(partition, StoredOffset(value, log_offset))
            if self._pending.get(partition) is value:
                del self._pending[partition]

    def fail_commit(self, offsets: Offsets) -> None:
        """Forget offsets that could not be written."""
        for partition, value in offsets.items():
            if self._pending.get(partition) is value:
                del self._pending[partition]

    # -- transactions: offsets that count only once the transaction is committed (KIP-98)

    def begin_transactional_commit(self, producer_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Note that a transaction's offsets are being written."""
        held = self._in_transactions.setdefault(producer_id, {})
        held.update(dict.fromkeys(partitions))

    def end_transactional_commit(self, producer_id: int, offsets: Offsets, log_offset: int) -> None:
        """Keep a transaction's offsets, written from ``log_offset`` on, until it ends."""
        held = self._in_transactions.get(producer_id, {})
        for partition, value in offsets.items():
            if partition in held:
                held[partition] = _new(StoredOffset, (value, log_offset))

    def fail_transactional_commit(self, producer_id: int, partitions: Iterable[TopicPartition]) -> None:
        """Forget a transaction's offsets that could not be written."""
        held = self._in_transactions.get(producer_id, {})
        for partition in partitions:
            held.pop(partition, None)
        if not held:
            self._in_transactions.pop(producer_id, None)

    def end_transaction(self, producer_id: int, *, is_commit: bool) -> None:
        """Make a transaction's offsets visible, or drop them."""
        held = self._in_transactions.pop(producer_id, {})
        if is_commit:
            committed = self._committed
            for partition, stored in held.items():
                known = committed.get(partition)
                if stored is not None and (known is None or known[1] < stored[1]):
                    committed[partition] = stored

    # -- loading

    def load(self, partition: TopicPartition, stored: StoredOffset) -> None:
        """Apply an offset read from the log; the later one in the log counts, in whatever order they come."""
        self._put_later(partition, stored)

    def load_transactional(self, producer_id: int, partition: TopicPartition, stored: StoredOffset) -> None:
        """Apply an offset of a transaction that was still open at the end of the log."""
        self._in_transactions.setdefault(producer_id, {})[partition] = stored

    # -- removal

    def among(self, partitions: set[TopicPartition]) -> set[TopicPartition]:
        """Return those of the partitions that have an offset, committed or not."""
        having = self._committed.keys() & partitions | self._pending.keys() & partitions
        for held in self._in_transactions.values():
            having |= held.keys() & partitions
        return having

    def remove(self, partitions: Iterable[TopicPartition]) -> list[TopicPartition]:
        """Forget offsets, committed or not; return those that are in the log: they need tombstones."""
        removed = []
        for partition in partitions:
            is_written = self._pending.pop(partition, None) is not None
            for held in self._in_transactions.values():
                held.pop(partition, None)
            if self._committed.pop(partition, None) is not None or is_written:
                removed.append(partition)
        return removed

    def remove_expired(
        self,
        partitions: Iterable[TopicPartition],
        now_ms: int,
        retention_ms: int,
        base_timestamp_ms: Callable[[CommittedOffset], int],
        subscribed_topics: Collection[str] = (),
    ) -> list[TopicPartition]:
        """Forget those of the offsets whose time is over and that nobody is writing; return them.

        ``base_timestamp_ms`` says from when on the retention counts. An offset with an expiry of its own obeys that.
        What an open transaction has committed for a partition would be lost with a tombstone that comes after it in the
        log: such partitions wait for its end. Kafka removes their offsets, too, and may lose the transaction's.
        """
        expired = [
            partition
            for partition in partitions
            if partition.topic not in subscribed_topics
            and (stored := self._committed.get(partition)) is not None
            and _is_expired(stored.value, now_ms, retention_ms, base_timestamp_ms)
            and not self.is_unstable(partition)
        ]
        for partition in expired:
            del self._committed[partition]
        return expired

    def _put_later(self, partition: TopicPartition, stored: StoredOffset) -> None:
        known = self._committed.get(partition)
        if known is None or known.log_offset < stored.log_offset:
            self._committed[partition] = stored


def _is_expired(
    value: CommittedOffset, now_ms: int, retention_ms: int, base_timestamp_ms: Callable[[CommittedOffset], int]
) -> bool:
    if value.expire_timestamp_ms is not None:
        return now_ms >= value.expire_timestamp_ms
    return now_ms - base_timestamp_ms(value) >= retention_ms
