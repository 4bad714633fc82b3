"""Commits of offsets, and what those of one client have in common: a consumer keeps committing the same partitions.

A commit in such a form is offsets and leader epochs, nothing else. The bytes of its records that never change are kept,
and one call of ``struct`` adds those that do. Pure.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import chain
from typing import Any, Final, NamedTuple

from engine.broker.coordinator.groups.member import NO_GENERATION, UNKNOWN_MEMBER_ID
from engine.common.errors import NO_ERROR, ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.formats.consumer_offsets import encode_offset_key
from engine.kafka.protocol.records.varint import VARINTS


class CommittedOffset(NamedTuple):
    """An offset that a group has committed. ``expire_timestamp_ms`` is None unless the client gave a retention."""

    offset: int
    metadata: str = ""
    leader_epoch: int = -1
    commit_timestamp_ms: int = -1
    expire_timestamp_ms: int | None = None


Offsets = dict[TopicPartition, CommittedOffset]


class Committer(NamedTuple):
    """Who commits. Clients that assign partitions themselves have no member id and the generation -1."""

    member_id: str = UNKNOWN_MEMBER_ID
    generation_id: int = NO_GENERATION
    group_instance_id: str | None = None


_new: Callable[..., Any] = tuple.__new__

_VALUE_HEAD = struct.Struct(">Bh")
_VALUE_VERSION: Final = 3
_VALUE: Final = "qixxqx"
"""Offset, leader epoch, a text of length 0, and the commit's time; no headers follow."""

_VALUE_SIZE: Final = struct.calcsize(">hqihq")
_SHORT_DELTAS: Final = 64
_DELTAS_MAX: Final = 8192
_DELTAS: Final = [
    delta << 1 if delta < _SHORT_DELTAS else (delta << 1 & 127 | 128) << 8 | delta >> 6 for delta in range(_DELTAS_MAX)
]
"""The number whose bytes are this delta as a varint in zig-zag form: one byte, or two from ``_SHORT_DELTAS`` on."""

_FORM_SIZE: Final = 3
_FORMS_SIZE_MAX: Final = 50_000
"""A form takes as much as this many of its partitions, each of which takes 300 bytes."""


class CommitForm:
    """A group's partitions of one topic, in the order of the commits, and who commits them."""

    __slots__ = (
        "_ends", "_long", "_short", "answer", "committer", "done", "group_id", "home", "indexes", "known_in",
        "partitions",
    )  # fmt: skip

    def __init__(
        self,
        group_id: str,
        committer: Committer,
        partitions: Sequence[TopicPartition],
        answer: Callable[[ErrorCode], Any],
    ) -> None:
        """``answer`` makes the answer to a commit that ends with an error, or with none."""
        self.group_id = group_id
        self.committer = committer
        self.partitions = tuple(partitions)
        self.indexes = tuple(index for _, index in partitions)
        self.answer = answer
        self.done = answer(NO_ERROR)
        self.known_in: object = None
        """The mark of the metadata in which its partitions were found, and ``home`` too."""
        self.home: int | None = None
        """The number of the offsets topic's partition that has the group. Forms outlive what the broker knows there."""
        keys = [encode_offset_key(group_id, *partition) for partition in partitions]
        value_head = _VALUE_HEAD.pack(VARINTS[_VALUE_SIZE][0], _VALUE_VERSION)
        self._ends = [VARINTS[len(key)] + key + value_head for key in keys]
        self._short = _Packer(self._ends, "B")
        self._long: _Packer | None = None
        """Made when it is needed: records come so far back in a batch only if very many commits come at once."""

    def records(self, first: int, offsets: Sequence[int], epochs: Sequence[int], timestamp_ms: int) -> bytes | None:
        """Return the records of a commit of which the first is number ``first`` of its batch.

        None if their numbers take one and two bytes, or more than two.

        Raises:
            struct.error: a number is too large for its field.
        """
        stop = first + len(offsets)
        if stop <= _SHORT_DELTAS:
            packer = self._short
        elif first >= _SHORT_DELTAS and stop <= _DELTAS_MAX:
            packer = self._long = self._long or _Packer(self._ends, "H")
        else:
            return None
        return packer.pack(_DELTAS[first:stop], offsets, epochs, timestamp_ms)

    def offsets(self, offsets: Sequence[int], epochs: Sequence[int], timestamp_ms: int) -> Offsets:
        """Return a commit's offsets by partition."""
        return {
            partition: _new(CommittedOffset, (offset, "", epoch, timestamp_ms, None))
            for partition, offset, epoch in zip(self.partitions, offsets, epochs, strict=True)
        }


class CommitForms(dict[bytes, CommitForm | tuple[int, ...]]):
    """The forms of the latest commits, by the bytes with which they begin; of a single commit, the partitions alone.

    They take some 15 megabytes at most. Once that is full, others have to do without for a while: if each took the
    place of one before, and there are too many, none would be found again.
    """

    def __init__(self) -> None:
        super().__init__()
        self._room = _FORMS_SIZE_MAX
        self._refused = 0

    def put(self, head: bytes, form: CommitForm | tuple[int, ...]) -> None:
        """Keep a form, or the partitions of a commit, if there is room."""
        before = self.get(head)
        room = self._room - _size(form) + (0 if before is None else _size(before))
        if room >= 0:
            self[head], self._room = form, room
            return
        self._refused += 1
        if self._refused > _FORMS_SIZE_MAX:
            # Most are of former generations, or of groups that are gone.
            self.clear()
            self._room, self._refused = _FORMS_SIZE_MAX, 0


def _size(form: CommitForm | tuple[int, ...]) -> int:
    return _FORM_SIZE + len(form.partitions if isinstance(form, CommitForm) else form)


class _Packer:
    """Makes the records of one form whose numbers in the batch take one byte, or two."""

    __slots__ = ("_fields", "_pack")

    def __init__(self, ends: Sequence[bytes], delta_code: str) -> None:
        delta_size = struct.calcsize(delta_code)
        # A record begins with its size, its attributes and its timestamp's delta, which is 0.
        heads = [VARINTS[2 + delta_size + len(end) + struct.calcsize(">" + _VALUE)] + b"\0\0" for end in ends]
        self._fields: list[Any] = list(
            chain.from_iterable((h, None, end, None, None, None) for h, end in zip(heads, ends, strict=True))
        )
        self._pack = _struct(delta_code, *map(len, chain.from_iterable(zip(heads, ends, strict=True)))).pack

    def pack(self, deltas: Sequence[int], offsets: Sequence[int], epochs: Sequence[int], timestamp_ms: int) -> bytes:
        fields = self._fields
        fields[1::6] = deltas
        fields[3::6] = offsets
        fields[4::6] = epochs
        fields[5::6] = [timestamp_ms] * len(offsets)
        return self._pack(*fields)


@lru_cache(maxsize=100)
def _struct(delta_code: str, *sizes: int) -> struct.Struct:
    pairs = zip(sizes[::2], sizes[1::2], strict=True)
    return struct.Struct(">" + "".join(f"{head}s{delta_code}{end}s{_VALUE}" for head, end in pairs))
