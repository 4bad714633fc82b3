"""Incremental fetch sessions (KIP-227): a fetcher names its partitions once, then gets only those that changed.

Pure state, owned by the event loop. ``engine.broker.handlers.fetch`` asks for a context per request and reads the
partitions in it. The context decides what goes into the answer.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Generator, Iterable, Sequence
from dataclasses import dataclass, field
from operator import attrgetter
from typing import Any, Final, NamedTuple, Protocol

from engine.broker.replication.isr import SessionFetch
from engine.broker.replication.partition_read import PartitionRead
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition

INVALID_SESSION_ID: Final = 0
INITIAL_EPOCH: Final = 0
FINAL_EPOCH: Final = -1
EVICTION_MS: Final = 120_000
"""After this long without use, a session may make room for another; so may an older, smaller one (Kafka's constant)."""

_EPOCH_MAX: Final = 2**31 - 1

_STEP: Final = 500
"""Partitions to add or forget between two yields."""


class PartitionKey(NamedTuple):
    """A session's key for a partition: the topic id from Fetch 13 on, the name before (the other one is empty)."""

    topic: str
    topic_id: bytes
    partition: int


class NothingNew(Protocol):
    """Why a partition need not be read. The only implementation is in ``engine.broker.fetch.reads``."""

    @property
    def end(self) -> Any: ...
    @property
    def read(self) -> Any: ...
    def renewed(self, fetch_offset: int, now_ms: int | None) -> Any: ...
    def settle(self, session: FetchSession, wanted: FetchPartition) -> None: ...
    def release(self) -> None: ...


class FetchPartition:
    """One partition that a fetcher asks for, and what its last answer said."""

    __slots__ = (
        "current_leader_epoch",
        "fetch_offset",
        "key",
        "last_fetched_epoch",
        "log_start_offset",
        "max_bytes",
        "sent_high_watermark",
        "sent_log_start_offset",
        "steady",
        "topic",
        "topic_partition",
        "turn",
    )

    def __init__(
        self,
        key: PartitionKey,
        *,
        fetch_offset: int,
        max_bytes: int,
        current_leader_epoch: int = -1,
        last_fetched_epoch: int = -1,
        log_start_offset: int = -1,
    ) -> None:
        self.key = key
        self.topic: str | None = key.topic or None
        self.fetch_offset = fetch_offset
        self.max_bytes = max_bytes
        self.current_leader_epoch = current_leader_epoch
        self.last_fetched_epoch = last_fetched_epoch
        self.log_start_offset = log_start_offset
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.topic_partition: TopicPartition | None = None
        """The code that resolves the topic keeps this, because every request looks at a session's partitions."""
        self.steady: NothingNew | None = None
        """Why the next read can find nothing new; the reading code keeps it.

        A request that names the partition ends it.
        """
        self.turn = 0
        """Its place in the reading order of the session's partitions."""

    def update_from(self, other: FetchPartition) -> None:
        """Update from a later request for the same partition."""
        self.fetch_offset = other.fetch_offset
        self.max_bytes = other.max_bytes
        self.current_leader_epoch = other.current_leader_epoch
        self.last_fetched_epoch = other.last_fetched_epoch
        self.log_start_offset = other.log_start_offset
        self.end_steady()

    def end_steady(self) -> None:
        """Force a read next time."""
        if self.steady is not None:
            self.steady.release()
            self.steady = None


def named_once(partitions: list[FetchPartition]) -> list[FetchPartition]:
    """Return each partition's last mention, in the order of the first mentions."""
    if len(partitions) < 2:
        return partitions
    by_key = {partition.key: partition for partition in partitions}
    return partitions if len(by_key) == len(partitions) else list(by_key.values())


@dataclass(slots=True, eq=False)
class FetchSession:
    """One fetcher's partitions. Requests look only at those in ``active``; the others are settled."""

    id: int
    is_privileged: bool
    uses_topic_ids: bool
    created_ms: int
    last_used_ms: int
    epoch: int
    partitions: dict[PartitionKey, FetchPartition] = field(default_factory=dict)
    active: dict[PartitionKey, FetchPartition] = field(default_factory=dict)
    awoken: list[FetchPartition] = field(default_factory=list)
    """Settled partitions with news since the last request came."""
    last_fetch: SessionFetch = field(default_factory=SessionFetch)
    turns: int = 0
    answer_waiting: Callable[[], object] | None = None
    """Answers the session's waiting request with what there is now, because a later request changes its partitions."""

    @property
    def size(self) -> int:
        return len(self.partitions)

    def name(self, partition: FetchPartition) -> None:
        """Add or update a partition from a request. A new one is read last."""
        known = self.partitions.get(partition.key)
        if known is None:
            known = self.partitions[partition.key] = partition
            self.place_last(partition)
        else:
            if self.is_privileged and partition.current_leader_epoch != known.current_leader_epoch:
                # The follower started over, and may have discarded what its last answer said.
                known.sent_high_watermark = known.sent_log_start_offset = -1
            known.update_from(partition)
        self.active[partition.key] = known

    def forget(self, key: PartitionKey) -> None:
        """Stop fetching a partition; harmless if it was not fetched."""
        known = self.partitions.pop(key, None)
        if known is not None:
            self.active.pop(key, None)
            known.end_steady()

    def place_last(self, partition: FetchPartition) -> None:
        """Move a partition to the end of the reading order."""
        self.turns += 1
        partition.turn = self.turns

    def take_active(self) -> list[FetchPartition]:
        """Return the partitions for the next request, in reading order."""
        self.last_fetch.fetches += 1
        self.awoken.clear()
        return sorted(self.active.values(), key=attrgetter("turn"))

    def settle(self, partition: FetchPartition) -> None:
        """Skip the partition until it is woken."""
        self.active.pop(partition.key, None)

    def wake(self, partition: FetchPartition) -> None:
        """Look at a settled partition again."""
        self.active[partition.key] = partition
        self.awoken.append(partition)

    def release(self) -> None:
        """Release all partitions: the session is over."""
        for partition in self.partitions.values():
            partition.end_steady()

    def answer_before_next(self) -> None:
        """Answer a waiting request before the session continues or ends."""
        answer, self.answer_waiting = self.answer_waiting, None
        if answer is not None:
            answer()


class FetchContext:
    """What one Fetch request asks for, with or without a session."""

    __slots__ = ("_epoch", "is_incremental", "partitions", "session", "session_id")

    def __init__(
        self, partitions: Sequence[FetchPartition], session: FetchSession | None = None, *, is_incremental: bool = False
    ) -> None:
        self.partitions = partitions
        self.session = session
        self.session_id = session.id if session is not None else INVALID_SESSION_ID
        self.is_incremental = is_incremental
        """The answer has only what the fetcher does not know yet."""
        self._epoch = 0 if session is None else session.epoch

    @property
    def is_superseded(self) -> bool:
        """Whether the session has moved on without this request's answer, which can no longer be built."""
        return self.session is not None and self.session.epoch != self._epoch

    def must_answer(self, partition: FetchPartition, read: PartitionRead) -> bool:
        """Return whether the answer must carry this partition; remember what it says."""
        if self.session is None:
            return True
        size_bytes = read.size_bytes
        changed = (
            size_bytes > 0
            or read.high_watermark != partition.sent_high_watermark
            or read.log_start_offset != partition.sent_log_start_offset
            or read.diverging_epoch is not None
            or read.preferred_read_replica >= 0
        )
        partition.sent_high_watermark = read.high_watermark
        partition.sent_log_start_offset = read.log_start_offset
        if read.error is not ErrorCode.NONE:
            # The next answer must show that the error is over, even if nothing else has changed.
            partition.sent_high_watermark = -1
            changed = True
        if size_bytes > 0 and self.is_incremental:
            # Partitions that had data go to the end, so that none starves if the answer's size is limited.
            self.session.place_last(partition)
        return changed or not self.is_incremental


class FetchSessionCache:
    """All sessions of one broker, at most ``slots`` (``max.incremental.fetch.session.cache.slots``)."""

    def __init__(self, slots: int, rng: random.Random | None = None) -> None:
        self.slots = slots
        self.evictions_total = 0
        self.follower_expirations_total = 0
        """Fetches of followers that waited as long as they might."""
        self._sessions: dict[int, FetchSession] = {}
        self._rng = rng or random.Random()

    def __len__(self) -> int:
        return len(self._sessions)

    @property
    def partitions_total(self) -> int:
        """Number of partitions that all sessions remember."""
        return sum(s.size for s in self._sessions.values())

    def open(
        self,
        session_id: int,
        session_epoch: int,
        partitions: Sequence[FetchPartition],
        forgotten: Iterable[PartitionKey],
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> FetchContext | ErrorCode:
        """Return the context of one request, or the error for the whole request.

        The partitions must not repeat (see ``named_once``).
        """
        if session_epoch in (INITIAL_EPOCH, FINAL_EPOCH):
            self.end(session_id)
            if session_epoch == FINAL_EPOCH:
                return FetchContext(partitions)
            return self._open_full(partitions, is_follower, uses_topic_ids, now_ms)
        session = self._session(session_id, session_epoch, uses_topic_ids)
        if isinstance(session, ErrorCode):
            return session
        return self._continue(session, partitions, forgotten, now_ms)

    def open_in_steps(
        self,
        session_id: int,
        session_epoch: int,
        partitions: Sequence[FetchPartition],
        forgotten: Sequence[PartitionKey],
        *,
        is_follower: bool,
        uses_topic_ids: bool,
        now_ms: int,
    ) -> Generator[None, None, FetchContext | ErrorCode]:
        """Do what ``open`` does for very many partitions, with a yield now and then.

        From the first step until ``give_back``, no other request can use the session.
        """
        is_incremental = session_epoch not in (INITIAL_EPOCH, FINAL_EPOCH)
        if is_incremental:
            session = self._session(session_id, session_epoch, uses_topic_ids)
            if isinstance(session, ErrorCode):
                return session
            session.answer_before_next()
            session.last_used_ms = now_ms
            session.epoch = next_epoch(session.epoch)
            self.take(session)
        else:
            self.end(session_id)
            if session_epoch == FINAL_EPOCH or not self._make_room(is_follower, len(partitions), now_ms):
                return FetchContext(partitions)
            session = self._new_session(is_follower, uses_topic_ids, now_ms)
        for number, partition in enumerate(partitions, start=1):
            session.name(partition)
            if number % _STEP == 0:
                yield
        for number, key in enumerate(forgotten if is_incremental else (), start=1):
            session.forget(key)
            if number % _STEP == 0:
                yield
        if not session.partitions:
            return FetchContext(partitions)
        if is_incremental:
            return FetchContext(session.take_active(), session, is_incremental=True)
        return FetchContext(partitions, session)

    def take(self, session: FetchSession) -> None:
        """Reserve a session for one request that uses it for many turns of the event loop."""
        self._sessions.pop(session.id, None)

    def give_back(self, session: FetchSession, now_ms: int) -> None:
        """Admit the session's next request. If its slot is taken by now, the session is over."""
        if session.id not in self._sessions and self._make_room(session.is_privileged, session.size, now_ms):
            self._sessions[session.id] = session
        else:
            session.release()

    def _session(self, session_id: int, session_epoch: int, uses_topic_ids: bool) -> FetchSession | ErrorCode:
        session = self._sessions.get(session_id)
        if session is None:
            return ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        if session.epoch != session_epoch:
            return ErrorCode.INVALID_FETCH_SESSION_EPOCH
        if session.uses_topic_ids != uses_topic_ids:
            return ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR
        return session

    def _open_full(
        self, partitions: Sequence[FetchPartition], is_follower: bool, uses_topic_ids: bool, now_ms: int
    ) -> FetchContext:
        if not self._make_room(is_follower, len(partitions), now_ms):
            return FetchContext(partitions)
        session = self._new_session(is_follower, uses_topic_ids, now_ms)
        for partition in partitions:
            session.name(partition)
        self._sessions[session.id] = session
        return FetchContext(partitions, session)

    def _new_session(self, is_follower: bool, uses_topic_ids: bool, now_ms: int) -> FetchSession:
        return FetchSession(
            id=self._free_id(),
            is_privileged=is_follower,
            uses_topic_ids=uses_topic_ids,
            created_ms=now_ms,
            last_used_ms=now_ms,
            epoch=next_epoch(INITIAL_EPOCH),
        )

    def end(self, session_id: int) -> None:
        """End a session; harmless if there is none."""
        ended = self._sessions.pop(session_id, None)
        if ended is not None:
            ended.answer_before_next()
            ended.release()

    def _continue(
        self,
        session: FetchSession,
        partitions: Sequence[FetchPartition],
        forgotten: Iterable[PartitionKey],
        now_ms: int,
    ) -> FetchContext:
        session.answer_before_next()
        for partition in partitions:
            session.name(partition)
        for key in forgotten:
            session.forget(key)
        if not session.partitions:
            # As in Kafka, this request may name partitions that it also forgets: it is answered for them.
            del self._sessions[session.id]
            return FetchContext(partitions)
        session.last_used_ms = now_ms
        session.epoch = next_epoch(session.epoch)
        return FetchContext(session.take_active(), session, is_incremental=True)

    def _free_id(self) -> int:
        while True:
            session_id = self._rng.randint(1, _EPOCH_MAX)
            if session_id not in self._sessions:
                return session_id

    def _make_room(self, is_privileged: bool, size: int, now_ms: int) -> bool:
        """Evict a session if the cache is full and one may go; return whether there is room."""
        if len(self._sessions) < self.slots:
            return True
        victim = self._stale(now_ms) or self._smaller(is_privileged, size, now_ms)
        if victim is None:
            return False
        del self._sessions[victim.id]
        victim.release()
        self.evictions_total += 1
        return len(self._sessions) < self.slots

    def _stale(self, now_ms: int) -> FetchSession | None:
        oldest = min(self._sessions.values(), key=lambda s: s.last_used_ms, default=None)
        return oldest if oldest is not None and now_ms - oldest.last_used_ms > EVICTION_MS else None

    def _smaller(self, is_privileged: bool, size: int, now_ms: int) -> FetchSession | None:
        """Return a session that is worth less than a new one: followers before consumers, large before small."""
        candidates = [
            s
            for s in self._sessions.values()
            if now_ms - s.created_ms > EVICTION_MS or (is_privileged and not s.is_privileged)
        ]
        least = min(candidates, key=lambda s: (s.is_privileged, s.size, s.id), default=None)
        if least is None or (is_privileged, size) < (least.is_privileged, least.size):
            return None
        return least


def next_epoch(epoch: int) -> int:
    """Return the epoch of a session's next request; it wraps to 1, because 0 opens a new session."""
    return 1 if epoch == _EPOCH_MAX else epoch + 1
