"""The state of one transactional id, and the transitions that are legal. Pure."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Final

from engine.common.model import TopicPartition
from engine.kafka.formats.transaction_state import TransactionState
from engine.kafka.protocol.records.layout import NO_PRODUCER_EPOCH, NO_PRODUCER_ID

NO_TIMESTAMP: Final = -1

EPOCH_MAX: Final = 2**15 - 1
"""No producer gets this epoch: the coordinator keeps it to fence the producer that has the one before."""

EMPTY, ONGOING, PREPARE_COMMIT, PREPARE_ABORT, COMPLETE_COMMIT, COMPLETE_ABORT, DEAD, PREPARE_EPOCH_FENCE = (
    TransactionState
)
"""The states, looked up once; ``NO_ERROR`` says why."""

VALID_PREVIOUS_STATES: Final = {
    EMPTY: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    ONGOING: frozenset({ONGOING, EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_COMMIT: frozenset({ONGOING}),
    PREPARE_ABORT: frozenset({ONGOING, PREPARE_EPOCH_FENCE}),
    COMPLETE_COMMIT: frozenset({PREPARE_COMMIT}),
    COMPLETE_ABORT: frozenset({PREPARE_ABORT}),
    DEAD: frozenset({EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT}),
    PREPARE_EPOCH_FENCE: frozenset({ONGOING}),
}
"""Which states may come before a state."""

NO_PARTITIONS: Final[frozenset[TopicPartition]] = frozenset()
"""Shared by all ids without an open transaction: Python would make each an empty set of 216 bytes."""

ENDING: Final = (PREPARE_COMMIT, PREPARE_ABORT)
"""The outcome is in the log, and markers are on their way."""


@dataclass(slots=True)
class Transition:
    """A new state of a transactional id, which counts once its record is replicated.

    It never changes. It is not frozen, because Python would take four times as long to make it.
    """

    state: TransactionState
    producer_id: int
    producer_epoch: int
    last_producer_id: int
    last_producer_epoch: int
    timeout_ms: int
    partitions: frozenset[TopicPartition]
    start_ms: int
    last_update_ms: int


class Transaction:
    """One transactional id. Belongs to the broker's event loop."""

    __slots__ = (
        "has_failed_epoch_fence",
        "last_producer_epoch",
        "last_producer_id",
        "last_update_ms",
        "partitions",
        "pending_state",
        "producer_epoch",
        "producer_id",
        "start_ms",
        "state",
        "timeout_ms",
        "transactional_id",
    )

    def __init__(
        self,
        transactional_id: str,
        producer_id: int,
        *,
        producer_epoch: int = NO_PRODUCER_EPOCH,
        timeout_ms: int,
        state: TransactionState = EMPTY,
        partitions: Iterable[TopicPartition] = (),
        start_ms: int = NO_TIMESTAMP,
        last_update_ms: int,
    ) -> None:
        self.transactional_id = transactional_id
        self.producer_id = producer_id
        self.last_producer_id = NO_PRODUCER_ID
        self.producer_epoch = producer_epoch
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        """The epoch before the last bump that its producer asked for (KIP-360). It is not in the log."""
        self.timeout_ms = timeout_ms
        self.state = state
        held = frozenset(partitions)
        self.partitions: frozenset[TopicPartition] | set[TopicPartition] = (
            set(held) if state in ENDING else held or NO_PARTITIONS
        )
        """While the transaction ends: those that lack their marker, in a set that shrinks."""
        self.start_ms = start_ms
        self.last_update_ms = last_update_ms
        self.pending_state: TransactionState | None = None
        """The state whose record is being written; until it is, no other transition may begin."""
        self.has_failed_epoch_fence = False
        """The epoch was raised to fence the producer, but not in the log. It is not raised again: nobody has it."""

    @property
    def is_epoch_exhausted(self) -> bool:
        """Whether the next bump needs a new producer id."""
        return self.producer_epoch >= EPOCH_MAX - 1

    # -- beginning a transition

    def prepare_epoch(self, epoch: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transition:
        """Give the producer an epoch of its current id."""
        return self._prepare(
            EMPTY,
            NO_PARTITIONS,
            now_ms,
            epoch=epoch,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            start_ms=NO_TIMESTAMP,
        )

    def prepare_new_id(self, producer_id: int, last_epoch: int, timeout_ms: int, now_ms: int) -> Transition:
        """Give the producer a new id: the epochs of the old one are used up."""
        return self._prepare(
            EMPTY,
            NO_PARTITIONS,
            now_ms,
            producer_id=producer_id,
            epoch=0,
            last_epoch=last_epoch,
            timeout_ms=timeout_ms,
            start_ms=NO_TIMESTAMP,
        )

    def prepare_partitions(self, added: Iterable[TopicPartition], now_ms: int) -> Transition:
        """Add partitions, and begin a transaction if none is open."""
        start_ms = self.start_ms if self.state is ONGOING else now_ms
        return self._prepare(ONGOING, self.partitions.union(added), now_ms, start_ms=start_ms)

    def prepare_end(self, now_ms: int, *, is_commit: bool) -> Transition:
        """Decide the outcome."""
        return self._prepare(PREPARE_COMMIT if is_commit else PREPARE_ABORT, self.partitions, now_ms)

    def prepare_fenced_abort(self, now_ms: int) -> Transition:
        """Abort with a raised epoch: the markers carry it, and so fence the producer at every leader.

        The epoch is raised at once, in PrepareEpochFence, which is never written.
        """
        self._check(PREPARE_EPOCH_FENCE)
        if not self.has_failed_epoch_fence:
            if self.producer_epoch >= EPOCH_MAX:
                raise ValueError(f"{self} has no epoch left to fence its producer with")
            self.producer_epoch += 1
        self.last_producer_epoch = NO_PRODUCER_EPOCH
        return self.prepare_end(now_ms, is_commit=False)

    def prepare_complete(self, now_ms: int) -> Transition:
        """End the transaction: all partitions will have their markers when this is written."""
        self.has_failed_epoch_fence = False
        is_commit = self.state is PREPARE_COMMIT
        return self._prepare(COMPLETE_COMMIT if is_commit else COMPLETE_ABORT, NO_PARTITIONS, now_ms)

    def prepare_dead(self) -> Transition:
        """Forget the id: its tombstone is being written."""
        return self._prepare(DEAD, NO_PARTITIONS, self.last_update_ms)

    def _prepare(
        self,
        state: TransactionState,
        partitions: Iterable[TopicPartition],
        last_update_ms: int,
        *,
        producer_id: int | None = None,
        epoch: int | None = None,
        last_epoch: int | None = None,
        timeout_ms: int | None = None,
        start_ms: int | None = None,
    ) -> Transition:
        self._check(state)
        self.pending_state = state
        return Transition(
            state,
            self.producer_id if producer_id is None else producer_id,
            self.producer_epoch if epoch is None else epoch,
            self.producer_id,
            self.last_producer_epoch if last_epoch is None else last_epoch,
            self.timeout_ms if timeout_ms is None else timeout_ms,
            frozenset(partitions),
            self.start_ms if start_ms is None else start_ms,
            last_update_ms,
        )

    def _check(self, state: TransactionState) -> None:
        if self.pending_state is not None:
            raise ValueError(f"{self} is passing to {self.pending_state.kafka_name}, and cannot to {state.kafka_name}")
        if self.state not in VALID_PREVIOUS_STATES[state]:
            raise ValueError(f"{self} cannot pass to {state.kafka_name}")

    # -- ending a transition

    def complete(self, transition: Transition) -> None:
        """Take over what is written now.

        Raises:
            ValueError: another transition is under way, or this one does not follow from the state.
        """
        if transition.state is not self.pending_state or not self._is_followed_by(transition):
            raise ValueError(f"{self} does not pass to {transition}")
        self.state = transition.state
        self.producer_id = transition.producer_id
        self.producer_epoch = transition.producer_epoch
        if transition.state is EMPTY:
            self.last_producer_id = transition.last_producer_id
            self.last_producer_epoch = transition.last_producer_epoch
        else:
            # A new producer leaves the start of the last transaction to be seen, as in Kafka, though not in the log.
            self.start_ms = transition.start_ms
        self.timeout_ms = transition.timeout_ms
        self.partitions = set(transition.partitions) if transition.state in ENDING else transition.partitions
        self.last_update_ms = transition.last_update_ms
        self.pending_state = None

    def give_up(self) -> None:
        """Stay in the state: what was to follow could not be written."""
        self.pending_state = None

    def markers_are_written(self, partitions: Iterable[TopicPartition]) -> None:
        """Note that partitions need no marker any more.

        Raises:
            ValueError: the transaction is not ending.
        """
        if self.state not in ENDING:
            raise ValueError(f"{self} is not ending, so {list(partitions)} have no marker to wait for")
        assert isinstance(self.partitions, set), "it is one while the transaction ends"
        self.partitions.difference_update(partitions)

    def _is_followed_by(self, to: Transition) -> bool:
        has_same_epoch = to.producer_id == self.producer_id and to.producer_epoch == self.producer_epoch
        if to.state is EMPTY:
            is_bump = to.producer_epoch == self.producer_epoch + 1 and to.producer_id == self.producer_id
            is_new_id = to.producer_epoch == 0 and to.producer_id != self.producer_id
            return (has_same_epoch or is_bump or is_new_id) and not to.partitions and to.start_ms == NO_TIMESTAMP
        if not has_same_epoch or to.timeout_ms != self.timeout_ms:
            return False
        if to.state is ONGOING:
            return self.partitions <= to.partitions
        if to.state in ENDING:
            return self.partitions == to.partitions and self.start_ms == to.start_ms
        return to.state in (COMPLETE_COMMIT, COMPLETE_ABORT) and to.start_ms != NO_TIMESTAMP

    def __repr__(self) -> str:
        return (
            f"Transaction({self.transactional_id}, {self.state.kafka_name}, producer_id={self.producer_id}, "
            f"producer_epoch={self.producer_epoch}, partitions={len(self.partitions)})"
        )
