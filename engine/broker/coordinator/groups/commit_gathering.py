"""Writes the commits of one turn of the event loop together: one batch and one append per partition of the topic.

A broker with a thousand groups gets many commits in one turn, each of one or a few records. Writing them one by one
would spend most of the time on headers, checksums and system calls. Kafka's newer coordinator gathers writes for the
same reason (``group.coordinator.append.linger.ms``). Here nothing lingers: a commit that comes alone is written in the
loop's next turn.
"""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final, NamedTuple

from engine.broker.coordinator.groups.commit_form import CommitForm, CommittedOffset, Offsets
from engine.broker.coordinator.groups.group import Group
from engine.broker.coordinator.groups.loading import logger
from engine.broker.coordinator.groups.records import OFFSETS_BASE_SEQUENCE, offset_value
from engine.broker.coordinator.groups.settings import OffsetsTopicSettings
from engine.broker.coordinator.writer import ReplicatedWriter, commit_error
from engine.broker.log.append_origin import OwnBatch
from engine.broker.network.request import Deferred
from engine.broker.replication.partition import Partition
from engine.common.clock import Clock
from engine.common.errors import NO_ERROR, ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import MetadataVersion
from engine.kafka.formats.consumer_offsets import OFFSET_KEY_VERSION
from engine.kafka.protocol.records import layout
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.checksum import stamp_crc
from engine.kafka.protocol.records.compression import compress
from engine.kafka.protocol.records.varint import VARINTS

_MAGIC: Final = 2
_VALUE_VERSION: Final = 3
_KEY_HEAD = struct.Struct(">hh")
"""The key's version and the length of the group's id."""

_LENGTH = struct.Struct(">h")
_PARTITION = struct.Struct(">i")
_PLAIN = struct.Struct(">iBhqihqB")
"""The end of a record whose value is of version 3 and has no text: partition, the value's length as a varint, version,
offset, leader epoch, length 0, commit timestamp; no headers."""

_PLAIN_SIZE: Final = VARINTS[struct.calcsize(">hqihq")][0]

FIRST_PLAIN: Final = MetadataVersion.IBP_2_1_IV1
"""Values are of version 3 from this version of the brokers' protocol on."""

_NO_DELTAS: Final = b"\0\0"
"""A record's attributes and its timestamp delta: all records of a commit have the batch's timestamp."""


def commit_batch(
    commits: Iterable[tuple[str, Offsets]],
    now_ms: int,
    codec: Codec,
    ibp: MetadataVersion,
    *,
    producer_id: int = layout.NO_PRODUCER_ID,
    producer_epoch: int = layout.NO_PRODUCER_EPOCH,
) -> memoryview:
    """Return one batch of the commits of groups, in their order, into which a log may stamp its offset.

    With a producer it counts once that producer's transaction is committed.
    """
    batch = bytearray(layout.BATCH_OVERHEAD)
    count = 0
    for group_id, offsets in commits:
        _add_records(batch, count, group_id, offsets, ibp)
        count += len(offsets)
    return _sealed(batch, count, now_ms, codec, producer_id, producer_epoch)


def _sealed(
    batch: bytearray,
    count: int,
    now_ms: int,
    codec: Codec,
    producer_id: int = layout.NO_PRODUCER_ID,
    producer_epoch: int = layout.NO_PRODUCER_EPOCH,
) -> memoryview:
    """Return the batch with its header; its records come behind the room for that."""
    if codec is not Codec.NONE:
        batch[layout.BATCH_OVERHEAD :] = compress(codec, batch[layout.BATCH_OVERHEAD :])
    size_bytes = len(batch)
    layout.BATCH_HEADER.pack_into(
        batch,
        0,
        0,
        size_bytes - layout.LOG_OVERHEAD,
        -1,
        _MAGIC,
        0,
        codec if producer_id == layout.NO_PRODUCER_ID else codec | layout.TRANSACTIONAL_BIT,
        count - 1,
        now_ms,
        now_ms,
        producer_id,
        producer_epoch,
        OFFSETS_BASE_SEQUENCE,
        count,
    )
    stamp_crc(batch, 0, size_bytes)
    return memoryview(batch)


def _add_records(out: bytearray, first: int, group_id: str, offsets: Offsets, ibp: MetadataVersion) -> None:
    """Add one commit's records, the first of which is the batch's record number ``first``."""
    varints, join, pack = VARINTS, b"".join, _PLAIN.pack
    group = group_id.encode()
    key_head = _KEY_HEAD.pack(OFFSET_KEY_VERSION, len(group)) + group
    is_plain_version = ibp >= FIRST_PLAIN
    topic_before = None
    topic_head = b""
    plain_size = 0
    for number, ((topic, partition), committed) in enumerate(offsets.items(), first):
        if topic is not topic_before:
            name = topic.encode()
            key_size = len(key_head) + _LENGTH.size + len(name) + _PARTITION.size
            topic_head = varints[key_size] + key_head + _LENGTH.pack(len(name)) + name
            plain_size = len(_NO_DELTAS) + len(topic_head) + _PLAIN.size
            topic_before = topic
        offset, metadata, leader_epoch, timestamp_ms, expire_ms = committed
        delta = varints[number]
        if metadata or expire_ms is not None or not is_plain_version:
            value = offset_value(committed, ibp)
            end = _PARTITION.pack(partition) + varints[len(value)] + value + b"\0"
            size = plain_size - _PLAIN.size + len(end) + len(delta)
        else:
            end = pack(partition, _PLAIN_SIZE, _VALUE_VERSION, offset, leader_epoch, 0, timestamp_ms, 0)
            size = plain_size + len(delta)
        out += join((varints[size], _NO_DELTAS, delta, topic_head, end))


_OFFSETS_PER_BATCH: Final = 1_000
"""A batch ends with the commit that reaches this number."""

_NOTED_AT_ONCE: Final = 5_000
"""How many offsets become visible in one turn of the event loop: some milliseconds. 200,000 take 200."""

_TOO_LARGE: Final = (ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE)

CommitErrors = dict[TopicPartition, ErrorCode]

CommitDone = Callable[[ErrorCode, CommitErrors], None]
"""Receives the error of all partitions, and those of partitions that were refused individually."""


class Commit(NamedTuple):
    """One commit that may be written; ``refused`` are partitions of the request that may not."""

    group: Group
    offsets: Offsets
    refused: CommitErrors
    done: CommitDone
    batch: memoryview | None = None
    """The batch of this commit alone, if it was made before: one of very many offsets takes a while."""


class FormedCommit(NamedTuple):
    """The same for a client that commits in the form of its earlier commits."""

    group: Group
    offsets: tuple[int, ...]
    epochs: tuple[int, ...]
    form: CommitForm
    timestamp_ms: int
    answer: Deferred
    batch: None = None

    def as_commit(self) -> Commit:
        """Return what has the offsets by partition."""
        _, offsets, epochs, form, timestamp_ms, answer, _ = self
        return Commit(
            self.group,
            form.offsets(offsets, epochs, timestamp_ms),
            {},
            lambda error, _: answer.complete(form.answer(error)),
        )


class GatheredCommits:
    """Writes what was added in the event loop's next turn, or on ``flush``. Create it on the loop."""

    def __init__(self, writer: ReplicatedWriter, settings: OffsetsTopicSettings, clock: Clock) -> None:
        self._writer = writer
        self._settings = settings
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._gathered: dict[Partition, list[Commit | FormedCommit]] = {}

    def add(self, partition: Partition, commit: Commit | FormedCommit) -> None:
        """Take a commit for a partition of the topic."""
        gathered = self._gathered
        if not gathered:
            self._loop.call_soon(self.flush)
        if partition in gathered:
            gathered[partition].append(commit)
        else:
            gathered[partition] = [commit]

    def flush(self) -> None:
        """Write what was gathered: code that reads, removes or gives up offsets has to come after it."""
        if not self._gathered:
            return
        gathered, self._gathered = self._gathered, {}
        for partition, commits in gathered.items():
            start = count = 0
            for end, commit in enumerate(commits, start=1):
                if commit.batch is not None:
                    if start < end - 1:
                        self._write(partition, commits[start : end - 1])
                    self._write(partition, [commit])
                    start, count = end, 0
                    continue
                count += len(commit.offsets)
                if count >= _OFFSETS_PER_BATCH or end == len(commits):
                    self._write(partition, commits[start:end])
                    start, count = end, 0

    def _write(self, partition: Partition, commits: list[Commit | FormedCommit]) -> None:
        is_pending = False

        def written(error: ErrorCode, log_offset: int) -> None:
            if error in _TOO_LARGE and len(commits) > 1:
                # Each is judged by its own size.
                for commit in commits:
                    self._write(partition, [commit])
                return
            code = commit_error(error)
            for commit in commits:
                first_offset, log_offset = log_offset, log_offset + len(commit.offsets)
                if isinstance(commit, FormedCommit):
                    group, offsets, epochs, form, timestamp_ms, answer, _ = commit
                    if error is NO_ERROR:
                        group.offsets.commit_in_form(form, (offsets, epochs, timestamp_ms, first_offset))
                    answer.complete(form.done if code is NO_ERROR else form.answer(code))
                else:
                    self._end(commit, error, first_offset, is_pending=is_pending)

        try:
            batch, own = self._batch_of(commits)
        except Exception:
            self._unwritable(partition, commits)
            return
        if not self._writer.append(partition, batch, written, own=own):
            # They are not visible until the followers have them.
            is_pending = True
            plain = [commit.as_commit() if isinstance(commit, FormedCommit) else commit for commit in commits]
            for commit in plain:
                commit.group.offsets.begin_commit(commit.offsets)
            commits = [*plain]

    def _end(self, commit: Commit, error: ErrorCode, first_offset: int, *, is_pending: bool) -> None:
        """Make a commit visible, unless it has failed, and answer."""
        group, offsets, refused, done, _ = commit
        if error is not NO_ERROR:
            if is_pending:
                group.offsets.fail_commit(offsets)
        elif len(offsets) > _NOTED_AT_ONCE:
            if not is_pending:
                group.offsets.begin_commit(offsets)
            self._note(commit, first_offset, iter(offsets.items()))
            return
        elif is_pending:
            group.offsets.end_commit(offsets, first_offset)
        else:
            group.offsets.commit(offsets, first_offset)
        done(commit_error(error), refused)

    def _note(self, commit: Commit, log_offset: int, rest: Iterator[tuple[TopicPartition, CommittedOffset]]) -> None:
        """Make very many offsets visible, some in each turn of the event loop; then answer."""
        piece = dict(islice(rest, _NOTED_AT_ONCE))
        if piece:
            commit.group.offsets.end_commit(piece, log_offset)
            self._loop.call_soon(self._note, commit, log_offset, rest)
        else:
            commit.done(NO_ERROR, commit.refused)

    def batch_of(self, commits: Iterable[tuple[str, Offsets]]) -> memoryview:
        """Return the batch of commits of groups; may be called in a thread."""
        return commit_batch(commits, self._clock.now_ms(), self._settings.codec, self._settings.ibp)

    def _batch_of(self, commits: list[Commit | FormedCommit]) -> tuple[memoryview, OwnBatch | None]:
        """Return the batch of commits, and what a log need not look for in it."""
        prepared = commits[0].batch
        if prepared is not None:
            return prepared, None
        codec, ibp, now_ms = self._settings.codec, self._settings.ibp, self._clock.now_ms()
        batch = bytearray(layout.BATCH_OVERHEAD)
        count = 0
        for commit in commits:
            if isinstance(commit, FormedCommit):
                _, offsets, epochs, form, timestamp_ms, _, _ = commit
                records = form.records(count, offsets, epochs, timestamp_ms)
                if records is None:
                    _add_records(batch, count, form.group_id, commit.as_commit().offsets, ibp)
                else:
                    batch += records
            else:
                _add_records(batch, count, commit.group.group_id, commit.offsets, ibp)
            count += len(commit.offsets)
        return _sealed(batch, count, now_ms, codec), OwnBatch(count, now_ms, codec)

    def _unwritable(self, partition: Partition, commits: list[Commit | FormedCommit]) -> None:
        """Handle a value that does not fit into a record: refuse that commit, and write the others without it."""
        if len(commits) > 1:
            for commit in commits:
                self._write(partition, [commit])
            return
        commit = commits[0].as_commit() if isinstance(commits[0], FormedCommit) else commits[0]
        logger.exception("A commit cannot be written group=%s", commit.group.group_id)
        commit.done(ErrorCode.UNKNOWN_SERVER_ERROR, commit.refused)
