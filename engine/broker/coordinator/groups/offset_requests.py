"""Commits, reads and removals of groups' offsets: their checks, writes to ``__consumer_offsets`` and answers."""

from __future__ import annotations

from collections.abc import Callable, Generator, Iterable, Iterator, Sequence
from contextlib import nullcontext
from typing import Any, Final, NamedTuple

from engine.broker.coordinator.groups.commit_form import CommitForm, CommitForms, CommittedOffset, Committer, Offsets
from engine.broker.coordinator.groups.commit_gathering import (
    Commit,
    CommitDone,
    CommitErrors,
    FormedCommit,
    GatheredCommits,
    commit_batch,
)
from engine.broker.coordinator.groups.driver import MachineDriver
from engine.broker.coordinator.groups.group import Group, GroupState
from engine.broker.coordinator.groups.loading import logger
from engine.broker.coordinator.groups.records import batch_of, group_tombstone, offset_tombstones
from engine.broker.coordinator.groups.settings import OffsetsTopicSettings
from engine.broker.coordinator.groups.state_machine import GroupMachine
from engine.broker.coordinator.ownership import OwnedPartitions
from engine.broker.coordinator.writer import ReplicatedWriter, commit_error
from engine.broker.log.producer_sequences import Verification
from engine.broker.network.request import Deferred
from engine.common.clock import Clock
from engine.common.errors import NO_ERROR, ErrorCode
from engine.common.model import TopicPartition
from engine.runtime.turns import Breather, carry_out

_new: Callable[..., Any] = tuple.__new__

_TOMBSTONES_PER_BATCH: Final = 1_000
"""The names of group and topic take up to half a kilobyte in each record, and a log takes batches of one megabyte."""

REMOVED_AT_ONCE: Final = 1_000
"""Offsets that are removed between two looks at how long the event loop is held already; they take 3 ms."""

FetchedOffset = CommittedOffset | ErrorCode | None
"""What a partition's read gives: the offset, None if there is none, or UNSTABLE_OFFSET_COMMIT."""


class PreparedCommit(NamedTuple):
    """The offsets of a commit that may be stored, the error of the others, and the batch if it could be made."""

    offsets: Offsets
    too_large: CommitErrors
    batch: memoryview | None


class OffsetRequests:
    """The half of the group coordinator that keeps offsets."""

    def __init__(
        self,
        machine: GroupMachine,
        driver: MachineDriver,
        groups: OwnedPartitions[Group],
        writer: ReplicatedWriter,
        settings: OffsetsTopicSettings,
        clock: Clock,
    ) -> None:
        self._machine = machine
        self._driver = driver
        self._groups = groups
        self._writer = writer
        self._settings = settings
        self._clock = clock
        self._gathered = GatheredCommits(writer, settings, clock)
        self.forms = CommitForms()
        self.committed_total = self.expired_total = self.deleted_total = 0
        """Offsets since the start."""
        self._transactions: dict[tuple[int, int], set[str]] = {}
        """Groups whose offsets a transaction holds, by partition of the offsets topic and producer id."""
        self._ended_while_loading: dict[tuple[int, int], bool] = {}
        """Whether a transaction was committed whose marker came while the partition was loaded, by the same."""

    def commit(
        self,
        group_id: str,
        committer: Committer,
        offsets: Offsets,
        done: CommitDone,
        prepared: PreparedCommit | None = None,
    ) -> None:
        """Commit offsets, with those of other commits of this turn of the event loop.

        ``done`` is called when they are replicated, or at once with an error. ``prepared`` is what ``prepare`` made of
        these offsets.
        """
        error, owned = self._groups.locate(group_id)
        if owned is None or error is not NO_ERROR:
            done(error, {})
            return
        group = owned.states.get(group_id)
        if group is None:
            if committer.generation_id >= 0:
                done(ErrorCode.ILLEGAL_GENERATION, {})
                return
            # The client assigns its partitions itself: the group is nothing but its offsets.
            group = self.find_or_add(group_id)
        error = self._machine.check_commit(group, committer)
        self._driver.run()
        if error is not NO_ERROR:
            done(error, {})
            return
        if prepared is None:
            offsets, too_large = self._fitting(offsets)
            batch = None
        else:
            offsets, too_large, batch = prepared
        if offsets:
            self.committed_total += len(offsets)
            self._gathered.add(owned.partition, Commit(group, offsets, too_large, done, batch))
        else:
            done(NO_ERROR, too_large)

    def commit_in_form(self, form: CommitForm, offsets: tuple[int, ...], epochs: tuple[int, ...]) -> Deferred | None:
        """Do the same for a commit in the form of earlier ones; None if it may be refused, which ``commit`` decides."""
        index = form.home
        if index is None:
            index = form.home = self._groups.index_of(form.group_id)
        owned = self._groups.partition(index)
        if owned is None or owned.is_loading or owned.partition.leader_log is None:
            return None
        group = owned.states.get(form.group_id)
        if group is None or self._machine.check_commit(group, form.committer) is not NO_ERROR:
            return None
        self._driver.run()
        self.committed_total += len(offsets)
        answer = Deferred()
        # Same as FormedCommit(…), without its detour through Python.
        commit = _new(FormedCommit, (group, offsets, epochs, form, self._clock.now_ms(), answer, None))
        self._gathered.add(owned.partition, commit)
        return answer

    def status(self, group_id: str) -> ErrorCode:
        """Return NONE if this broker coordinates the group."""
        return self._groups.status(group_id) if group_id else ErrorCode.INVALID_GROUP_ID

    def commit_in_transaction(
        self,
        group_id: str,
        committer: Committer,
        offsets: Offsets,
        done: CommitDone,
        *,
        producer_id: int,
        producer_epoch: int,
        verification: Verification | None = None,
    ) -> None:
        """Write offsets that count once the producer's transaction is committed.

        ``done`` is called when they are replicated, or at once with an error. The caller has asked the transaction's
        coordinator, and passes the ``verification`` of the group's partition.
        """
        # What came before has to be before it in the log: the later one there wins.
        self.flush()
        error, owned = self._groups.locate(group_id)
        if owned is None or error is not NO_ERROR:
            done(error, {})
            return
        group = owned.states.get(group_id) or self.find_or_add(group_id)
        error = self._machine.check_commit(group, committer, is_transactional=True)
        if error is not NO_ERROR:
            done(error, {})
            return
        offsets, too_large = self._fitting(offsets)
        if not offsets:
            done(NO_ERROR, too_large)
            return
        open_groups = self._transactions.setdefault((owned.index, producer_id), set())

        def written(error: ErrorCode, log_offset: int) -> None:
            if error is NO_ERROR:
                group.offsets.end_transactional_commit(producer_id, offsets, log_offset)
            else:
                group.offsets.fail_transactional_commit(producer_id, offsets)
                if producer_id not in group.offsets.producer_ids:
                    open_groups.discard(group_id)
            done(commit_error(error), too_large)

        batch = commit_batch(
            [(group_id, offsets)],
            self._clock.now_ms(),
            self._settings.codec,
            self._settings.ibp,
            producer_id=producer_id,
            producer_epoch=producer_epoch,
        )
        open_groups.add(group_id)
        group.offsets.begin_transactional_commit(producer_id, offsets)
        with nullcontext() if verification is None else verification:
            self._writer.append(owned.partition, batch, written)

    def end_transaction(self, index: int, producer_id: int, is_commit: bool) -> None:
        """Make visible, or drop, what a transaction has committed to groups of a partition: its marker is written."""
        groups = self._transactions.pop((index, producer_id), ())
        owned = self._groups.partition(index)
        if owned is None:
            return
        if owned.is_loading:
            # The log may have been read to its end before the marker came. A producer's first marker counts: no offsets
            # can follow it until the partition is loaded.
            self._ended_while_loading.setdefault((index, producer_id), is_commit)
        for group_id in groups:
            group = owned.states.get(group_id)
            if group is not None:
                group.offsets.end_transaction(producer_id, is_commit=is_commit)

    def loaded(self, index: int, group: Group) -> None:
        """Note the transactions that hold offsets of a group, and end those that have ended since."""
        for producer_id in list(group.offsets.producer_ids):
            is_commit = self._ended_while_loading.get((index, producer_id))
            if is_commit is None:
                self._transactions.setdefault((index, producer_id), set()).add(group.group_id)
            else:
                group.offsets.end_transaction(producer_id, is_commit=is_commit)

    def unloaded(self, index: int) -> None:
        """Forget the transactions that hold offsets of a partition's groups."""
        for known in (self._transactions, self._ended_while_loading):
            for key in [key for key in known if key[0] == index]:
                del known[key]

    def find_or_add(self, group_id: str) -> Group:
        """Return the group, created if there is none. The caller has checked that this broker coordinates it."""
        return self._groups.find_or_add(group_id, lambda: Group(group_id, self._clock.now_ms()))

    def prepare(self, group_id: str, offsets: Offsets) -> PreparedCommit:
        """Do what takes long of a commit of very many offsets; may be called in a thread."""
        fitting, too_large = self._fitting(offsets)
        try:
            return PreparedCommit(fitting, too_large, self._gathered.batch_of([(group_id, fitting)]))
        except Exception:
            # The commit itself meets the same error, and answers with it.
            return PreparedCommit(fitting, too_large, None)

    def _fitting(self, offsets: Offsets) -> tuple[Offsets, CommitErrors]:
        """Return the offsets with texts of a length that is allowed, and the error of the others."""
        too_large = self._too_large(offsets)
        if too_large:
            offsets = {partition: value for partition, value in offsets.items() if partition not in too_large}
        return offsets, too_large

    def _too_large(self, offsets: Offsets) -> CommitErrors:
        length_max = self._machine.settings.offset_metadata_max_bytes
        return {
            partition: ErrorCode.OFFSET_METADATA_TOO_LARGE
            for partition, value in offsets.items()
            if value[1] and utf16_length(value.metadata) > length_max
        }

    def flush(self) -> None:
        """Write the commits that came in this turn of the event loop now.

        Their answers let peers go on, who may change any group: whoever needs the commits written looks at groups
        after this.
        """
        self._gathered.flush()

    def fetch(
        self, group_id: str, partitions: Sequence[TopicPartition] | None, *, require_stable: bool = False
    ) -> tuple[ErrorCode, dict[TopicPartition, FetchedOffset]]:
        """Return the commits for the partitions, or for all that have an offset (None)."""
        error = self._groups.status(group_id)
        if error is not NO_ERROR:
            return error, {}
        group = self._groups.find(group_id)
        if group is None or group.state is GroupState.DEAD:
            return NO_ERROR, dict.fromkeys(partitions or ())
        offsets = group.offsets
        fetched: dict[TopicPartition, FetchedOffset] = {}
        for partition in list(offsets.partitions) if partitions is None else partitions:
            is_unstable = require_stable and offsets.is_unstable(partition)
            fetched[partition] = ErrorCode.UNSTABLE_OFFSET_COMMIT if is_unstable else offsets.get(partition)
        return NO_ERROR, fetched

    def partitions(self, group_id: str) -> list[TopicPartition]:
        """Return the partitions of which the group has an offset here."""
        group = self._groups.find(group_id)
        return [] if group is None else list(group.offsets.partitions)

    def delete(self, group_id: str, partitions: Sequence[TopicPartition]) -> tuple[ErrorCode, CommitErrors]:
        """Remove offsets that no member reads; return the error of the whole request, or else of each partition."""
        self.flush()
        error = ErrorCode.INVALID_GROUP_ID if not group_id else self._groups.status(group_id)
        if error is not NO_ERROR:
            return error, {}
        group = self._groups.find(group_id)
        if group is None:
            return ErrorCode.GROUP_ID_NOT_FOUND, {}
        if group.state is GroupState.DEAD:
            return ErrorCode.NOT_COORDINATOR, {}
        if group.state is not GroupState.EMPTY and not group.is_consumer_group:
            return ErrorCode.NON_EMPTY_GROUP, {}
        is_empty = group.state is GroupState.EMPTY
        errors = {
            p: NO_ERROR if is_empty or not group.is_subscribed_to(p.topic) else ErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
            for p in partitions
        }
        removed = [p for p, code in errors.items() if code is NO_ERROR]
        self.deleted_total += len(removed)
        if removed:
            # Without any, an empty group stays: it may be one that has just begun.
            self._remove(group, removed)
        return NO_ERROR, errors

    async def partitions_deleted(self, partitions: Sequence[TopicPartition]) -> None:
        """Drop the offsets of deleted topics, in turns with other work: every group may have some."""
        await carry_out(self._deletion_of_topics(partitions))

    async def expire(self) -> None:
        """Remove offsets whose retention is over, and groups with nothing left."""
        now_ms, breather = self._clock.now_ms(), Breather()
        for group in list(self._groups):
            for _ in self._expiry(group, now_ms):
                await breather.give_way()

    def _expiry(self, group: Group, now_ms: int) -> Iterator[None]:
        for piece in _pieces(group.offsets.partitions):
            self.flush()
            if group.state is GroupState.DEAD:
                return
            expired = group.remove_expired_offsets(now_ms, self._machine.settings.offsets_retention_ms, piece)
            self.expired_total += len(expired)
            self._clean_up(group, expired)
            yield

    def _deletion_of_topics(self, partitions: Sequence[TopicPartition]) -> Generator[None, None, None]:
        self.flush()
        # Not a frozenset: with a set Python goes through the smaller side only, mostly the offsets of the group.
        gone = set(partitions)
        for group in self._groups:
            for piece in [gone] if len(group.offsets) <= REMOVED_AT_ONCE else map(set, _pieces(gone)):
                touched = group.offsets.among(piece)
                if touched and group.state is not GroupState.DEAD:
                    self._remove(group, touched)
                yield

    def delete_group(self, group: Group) -> Iterator[None]:
        """Remove an empty group with all its offsets, in steps, after ``flush``. The group is Dead from the start."""
        self._end(group)
        pieces = _pieces(group.offsets.named)
        for number, piece in enumerate(pieces, start=1):
            self._write_tombstones(group, group.offsets.remove(piece), is_end=number == len(pieces))
            yield
            if self._groups.find(group.group_id) is not group:
                # Another broker coordinates it now, and deletes what is left when its time is over.
                return
        self._groups.forget(group.group_id, group)

    def _remove(self, group: Group, partitions: Iterable[TopicPartition]) -> None:
        self._clean_up(group, group.offsets.remove(partitions))

    def _clean_up(self, group: Group, removed: list[TopicPartition]) -> None:
        is_end = group.state is GroupState.EMPTY and group.offsets.is_empty and not group.pending_members
        if is_end:
            self._end(group)
            self._groups.forget(group.group_id, group)
        self._write_tombstones(group, removed, is_end=is_end)

    def _end(self, group: Group) -> None:
        logger.info("Group %s transitioned to Dead in generation %d", group.group_id, group.generation_id)
        self._machine.delete(group)
        self._driver.run()

    def _write_tombstones(self, group: Group, removed: list[TopicPartition], *, is_end: bool) -> None:
        now_ms = self._clock.now_ms()
        records = offset_tombstones(group.group_id, removed, now_ms)
        if is_end and group.generation_id > 0:
            records.append(group_tombstone(group.group_id, now_ms))
        partition = self._groups.partition_of(group.group_id)
        for start in range(0, len(records), _TOMBSTONES_PER_BATCH):
            batch = batch_of(records[start : start + _TOMBSTONES_PER_BATCH], self._settings.codec)
            error = self._writer.append_without_waiting(partition, batch)
            if error is not NO_ERROR:
                logger.error(
                    "Tombstones could not be written, they are tried again when the group is loaded group=%s "
                    "count=%d: %s",
                    group.group_id,
                    len(records) - start,
                    error.name,
                )
                return


def _pieces(partitions: Iterable[TopicPartition]) -> list[list[TopicPartition]]:
    """Cut into what is removed at once; at least one piece, which may be empty."""
    names = list(partitions)
    return [names[start : start + REMOVED_AT_ONCE] for start in range(0, len(names), REMOVED_AT_ONCE)] or [[]]


def utf16_length(text: str) -> int:
    """Return the length as Java counts it, which is what ``offset.metadata.max.bytes`` bounds in Kafka."""
    return len(text) if text.isascii() else len(text.encode("utf-16-le", "surrogatepass")) // 2
