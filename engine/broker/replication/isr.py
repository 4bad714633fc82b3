"""Decisions about in-sync replicas and the high watermark: pure, from values to values.

The leader of a partition keeps a ``FollowerState`` per follower and one ``IsrState``. This module does not decide what
to ask of the controller or of ZooKeeper, nor how.

Source: Kafka 3.9 (KIP-16 lag by time, KIP-497 AlterPartition with the maximal ISR, KIP-841 ineligible replicas,
KAFKA-15583 no advance of the high watermark below min.insync.replicas).
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from enum import Enum

from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr, LeaderRecoveryState

NEVER_MS = -(1 << 62)
"""A time so long ago that no lag limit covers it. Zero would not do: monotonic clocks start near zero."""

UNKNOWN_OFFSET = -1


class SessionFetch:
    """What all partitions of a fetch session without news have in common: the time of its last fetch, and how many
    there were.
    """

    __slots__ = ("at_ms", "fetches")

    def __init__(self) -> None:
        self.at_ms = NEVER_MS
        self.fetches = 0


class FollowerState:
    """What a leader knows about one follower. Times are of the leader's monotonic clock, in milliseconds.

    While a fetch session of thousands of partitions has no news about this one, the follower is at the leader's end,
    and each fetch of the session counts (``join_session``) without being noted one by one.
    """

    __slots__ = (
        "_last_caught_up_ms",
        "_session_fetch",
        "broker_epoch",
        "broker_id",
        "last_fetch_leader_end_offset",
        "last_fetch_ms",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.log_start_offset = UNKNOWN_OFFSET
        self.log_end_offset = UNKNOWN_OFFSET
        self.last_fetch_leader_end_offset = 0
        self.last_fetch_ms = NEVER_MS
        self._last_caught_up_ms = NEVER_MS
        self._session_fetch: SessionFetch | None = None
        self.broker_epoch = -1

    @property
    def last_caught_up_ms(self) -> int:
        if self._session_fetch is None:
            return self._last_caught_up_ms
        return max(self._last_caught_up_ms, self._session_fetch.at_ms)

    @last_caught_up_ms.setter
    def last_caught_up_ms(self, now_ms: int) -> None:
        self._last_caught_up_ms = now_ms

    def note_fetch_from_end(self, now_ms: int) -> None:
        """Do what ``record_fetch`` does if no offset has changed and the follower is at the leader's end."""
        self.last_fetch_ms = self._last_caught_up_ms = now_ms

    def join_session(self, fetch: SessionFetch) -> None:
        """From now on, count each fetch of a session as ``note_fetch_from_end``."""
        if self._session_fetch is not None:
            self.leave_session(self._session_fetch)
        self._session_fetch = fetch

    def leave_session(self, fetch: SessionFetch) -> None:
        """Note the session's last fetch as this partition's own, and count no later one. Harmless after ``reset``."""
        if self._session_fetch is fetch:
            self._session_fetch = None
            self._last_caught_up_ms = max(self._last_caught_up_ms, fetch.at_ms)
            self.last_fetch_ms = max(self.last_fetch_ms, fetch.at_ms)

    def record_fetch(
        self, fetch_offset: int, log_start_offset: int, now_ms: int, leader_end_offset: int, broker_epoch: int
    ) -> None:
        """Note a fetch: the follower holds everything below ``fetch_offset``.

        It counts as caught up now if it asks for the leader's end, and as caught up at its previous fetch if it asks
        for what was the end then. So a follower stays in sync under steady small writes although it never reaches the
        current end.
        """
        if fetch_offset >= leader_end_offset:
            self._last_caught_up_ms = max(self._last_caught_up_ms, now_ms)
        elif fetch_offset >= self.last_fetch_leader_end_offset:
            self._last_caught_up_ms = max(self._last_caught_up_ms, self.last_fetch_ms)
        self.log_start_offset = log_start_offset
        self.log_end_offset = fetch_offset
        self.last_fetch_leader_end_offset = max(leader_end_offset, self.last_fetch_leader_end_offset)
        self.last_fetch_ms = now_ms
        self.broker_epoch = broker_epoch

    def reset(self, *, now_ms: int, leader_end_offset: int, is_new_leader: bool, is_in_sync: bool) -> None:
        """Begin a leader epoch: followers in the ISR get the benefit of the doubt, others hold nothing back."""
        self._session_fetch = None
        self._last_caught_up_ms = now_ms if is_in_sync else NEVER_MS
        if is_new_leader:
            self.log_start_offset = UNKNOWN_OFFSET
            self.log_end_offset = UNKNOWN_OFFSET
            self.last_fetch_leader_end_offset = UNKNOWN_OFFSET
            self.last_fetch_ms = NEVER_MS
            self.broker_epoch = -1
        else:
            self.last_fetch_leader_end_offset = leader_end_offset
            self.last_fetch_ms = now_ms if is_in_sync else NEVER_MS

    def is_caught_up(self, leader_end_offset: int, now_ms: int, lag_ms_max: int) -> bool:
        """Return whether the follower is at the leader's end, or was there within the last ``lag_ms_max``."""
        return self.log_end_offset == leader_end_offset or now_ms - self.last_caught_up_ms <= lag_ms_max

    def __repr__(self) -> str:
        return (
            f"FollowerState(broker_id={self.broker_id}, log_end_offset={self.log_end_offset}, "
            f"log_start_offset={self.log_start_offset}, last_caught_up_ms={self.last_caught_up_ms}, "
            f"broker_epoch={self.broker_epoch})"
        )


class IsrChange(Enum):
    """What a pending change does to the ISR."""

    EXPAND = "expand"
    SHRINK = "shrink"


@dataclass(frozen=True, slots=True)
class IsrState:
    """The committed ISR in its order, and the change that was requested but not answered, if any.

    ``maximal`` determines the high watermark and acks=all: additions count as soon as they are requested, removals only
    once they are committed. Either way the stricter set holds while the outcome is unknown.
    """

    committed: tuple[int, ...] = ()
    recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED
    pending: IsrChange | None = None
    proposed: LeaderAndIsr | None = None
    maximal: tuple[int, ...] = ()

    @classmethod
    def settled(cls, isr: Iterable[int], recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED) -> IsrState:
        """Return a state with nothing pending."""
        committed = tuple(isr)
        return cls(committed=committed, recovery=recovery, maximal=committed)

    @property
    def is_pending(self) -> bool:
        return self.proposed is not None

    def propose_expand(self, broker_id: int, *, leader: int, leader_epoch: int, partition_epoch: int) -> IsrState:
        """Return the state that waits for ``broker_id`` to be added."""
        enlarged = (*self.committed, broker_id)
        proposed = LeaderAndIsr(leader, leader_epoch, enlarged, self.recovery, partition_epoch)
        return replace(self, pending=IsrChange.EXPAND, proposed=proposed, maximal=enlarged)

    def propose_shrink(
        self, out_of_sync: Collection[int], *, leader: int, leader_epoch: int, partition_epoch: int
    ) -> IsrState:
        """Return the state that waits for ``out_of_sync`` to be removed."""
        reduced = tuple(r for r in self.committed if r not in out_of_sync)
        proposed = LeaderAndIsr(leader, leader_epoch, reduced, self.recovery, partition_epoch)
        return replace(self, pending=IsrChange.SHRINK, proposed=proposed, maximal=self.committed)

    def reverted(self) -> IsrState:
        """Return the last committed state: the change is known not to have happened."""
        return IsrState.settled(self.committed, self.recovery)


def high_watermark_candidate(
    leader_end_offset: int,
    followers: Iterable[FollowerState],
    maximal_isr: Collection[int],
    *,
    now_ms: int,
    lag_ms_max: int,
    is_eligible: Callable[[int], bool],
) -> int:
    """Return the smallest log end offset among the leader, the maximal ISR, and those about to join it.

    A follower outside the ISR holds the high watermark back while it is caught up by time and could join; otherwise an
    ISR of one would run away from a follower that gets closer with each fetch. The caller never lowers a leader's high
    watermark, whatever this returns.
    """
    lowest = leader_end_offset
    for follower in followers:
        end_offset = follower.log_end_offset
        if end_offset < lowest and (
            follower.broker_id in maximal_isr
            or (follower.is_caught_up(leader_end_offset, now_ms, lag_ms_max) and is_eligible(follower.broker_id))
        ):
            lowest = end_offset
    return lowest


def out_of_sync_replicas(
    state: IsrState,
    followers: dict[int, FollowerState],
    *,
    leader: int,
    leader_end_offset: int,
    now_ms: int,
    lag_ms_max: int,
) -> tuple[int, ...]:
    """Return the ISR members that lag too long, in ISR order; none while a change is pending.

    A member without a follower state has never been assigned here and counts as lagging.
    """
    if state.is_pending:
        return ()
    lagging = []
    for broker_id in state.committed:
        if broker_id == leader:
            continue
        follower = followers.get(broker_id)
        if follower is None or not follower.is_caught_up(leader_end_offset, now_ms, lag_ms_max):
            lagging.append(broker_id)
    return tuple(lagging)


def may_join_isr(
    state: IsrState,
    follower: FollowerState,
    *,
    high_watermark: int,
    leader_epoch_start_offset: int | None,
    is_eligible: Callable[[int], bool],
) -> bool:
    """Return whether the follower should be added now.

    It must hold everything committed, and must have reached the current leader epoch: below the epoch's start there may
    be records committed under an earlier leader that this leader's high watermark does not cover yet.
    """
    return (
        not state.is_pending
        and follower.broker_id not in state.committed
        and leader_epoch_start_offset is not None
        and follower.log_end_offset >= high_watermark
        and follower.log_end_offset >= leader_epoch_start_offset
        and is_eligible(follower.broker_id)
    )


class AlterReaction(Enum):
    """What a leader does after its ISR change was refused."""

    REVERT = "return to the last committed ISR"
    AWAIT_METADATA = "keep the pending state until a LeaderAndIsr request overrides it"
    RETRY = "ask again for the same change"


_REVERT = frozenset({ErrorCode.OPERATION_NOT_ATTEMPTED, ErrorCode.INELIGIBLE_REPLICA})
_AWAIT_METADATA = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


def reaction_to(error: ErrorCode) -> AlterReaction:
    """Return what to do after ``error``.

    Only the first group proves that nothing was written under the epoch that was sent, so only then may the leader go
    back to the smaller maximal ISR.
    """
    if error in _REVERT:
        return AlterReaction.REVERT
    if error in _AWAIT_METADATA:
        return AlterReaction.AWAIT_METADATA
    return AlterReaction.RETRY
