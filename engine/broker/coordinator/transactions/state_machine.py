"""What a request or a time-out means for a transactional id. Pure.

A decision is the ``Transition`` to write, or the error to answer with; NONE if there is nothing to do.
"""

from __future__ import annotations

from collections.abc import Collection
from typing import Final, NamedTuple

from engine.broker.coordinator.transactions.transaction import (
    COMPLETE_ABORT,
    COMPLETE_COMMIT,
    EMPTY,
    ENDING,
    EPOCH_MAX,
    ONGOING,
    PREPARE_ABORT,
    PREPARE_COMMIT,
    Transaction,
    Transition,
)
from engine.common.errors import NO_ERROR, ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.formats.transaction_state import TransactionState
from engine.kafka.protocol.records.layout import NO_PRODUCER_EPOCH

Decision = Transition | ErrorCode

ENDED: Final = {PREPARE_COMMIT: True, COMPLETE_COMMIT: True, PREPARE_ABORT: False, COMPLETE_ABORT: False}
"""Whether a transaction in this state was committed."""


class ProducerIdAndEpoch(NamedTuple):
    """What a producer has, or says that it has."""

    producer_id: int
    producer_epoch: int


# -- InitProducerId


def needs_new_id(transaction: Transaction, expected: ProducerIdAndEpoch | None) -> bool:
    """Whether ``init_producer_id`` must have a new producer id to give."""
    return (
        transaction.is_epoch_exhausted
        and transaction.pending_state is None
        and transaction.state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
        and (expected is None or expected.producer_epoch == transaction.producer_epoch)
    )


def init_producer_id(
    transaction: Transaction,
    expected: ProducerIdAndEpoch | None,
    *,
    timeout_ms: int,
    now_ms: int,
    new_producer_id: int | None,
) -> Decision:
    """Give a producer an epoch that nobody had, which fences whoever used the transactional id before.

    A producer that says which id and epoch it has keeps its place (KIP-360): it is fenced if another producer has come
    since. An open transaction is aborted first; the producer asks again.
    """
    if transaction.pending_state is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if expected is not None and not _is_known(transaction, expected):
        return ErrorCode.PRODUCER_FENCED
    if transaction.state in ENDING:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is ONGOING:
        return transaction.prepare_fenced_abort(now_ms)
    if needs_new_id(transaction, expected):
        assert new_producer_id is not None, "the caller has asked needs_new_id"
        last_epoch = NO_PRODUCER_EPOCH if expected is None else transaction.producer_epoch
        return transaction.prepare_new_id(new_producer_id, last_epoch, timeout_ms, now_ms)
    if expected is None:
        return _bump(transaction, NO_PRODUCER_EPOCH, timeout_ms, now_ms)
    epoch = transaction.producer_epoch
    if epoch == NO_PRODUCER_EPOCH or expected.producer_epoch == epoch:
        return _bump(transaction, epoch, timeout_ms, now_ms)
    if expected.producer_epoch == transaction.last_producer_epoch:
        # The answer to its last request got lost: it has the epoch before, and no other producer has come since.
        return transaction.prepare_epoch(epoch, transaction.last_producer_epoch, timeout_ms, now_ms)
    return ErrorCode.PRODUCER_FENCED


def _bump(transaction: Transaction, last_epoch: int, timeout_ms: int, now_ms: int) -> Transition:
    return transaction.prepare_epoch(transaction.producer_epoch + 1, last_epoch, timeout_ms, now_ms)


def _is_known(transaction: Transaction, expected: ProducerIdAndEpoch) -> bool:
    if transaction.producer_epoch == NO_PRODUCER_EPOCH or expected.producer_id == transaction.producer_id:
        return True
    # It may not have got the answer that gave it a new id.
    is_exhausted = expected.producer_epoch >= EPOCH_MAX - 1
    return expected.producer_id == transaction.last_producer_id and is_exhausted


# -- partitions


def add_partitions(
    transaction: Transaction | None, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition], now_ms: int
) -> Decision:
    """Let a transaction write to partitions, and begin it if it is not open."""
    error = _producer_error(transaction, producer)
    if transaction is None or error is not NO_ERROR:
        return error
    if transaction.pending_state is not None or transaction.state in ENDING:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is ONGOING and transaction.partitions.issuperset(partitions):
        return NO_ERROR
    return transaction.prepare_partitions(partitions, now_ms)


def verify_partitions(
    transaction: Transaction | None, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
) -> dict[TopicPartition, ErrorCode]:
    """Say which partitions belong to the open transaction (KIP-890).

    A transition under way does not matter: the log checks again when it appends.
    """
    error = _producer_error(transaction, producer)
    if transaction is not None and error is NO_ERROR and transaction.state in ENDING:
        error = ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction is None or error is not NO_ERROR:
        return dict.fromkeys(partitions, error)
    added = transaction.partitions
    if added.issuperset(partitions):
        return dict.fromkeys(partitions, NO_ERROR)
    return {p: NO_ERROR if p in added else ErrorCode.TRANSACTION_ABORTABLE for p in partitions}


def _producer_error(transaction: Transaction | None, producer: ProducerIdAndEpoch) -> ErrorCode:
    if transaction is None or transaction.producer_id != producer.producer_id:
        return ErrorCode.INVALID_PRODUCER_ID_MAPPING
    return NO_ERROR if transaction.producer_epoch == producer.producer_epoch else ErrorCode.PRODUCER_FENCED


# -- the end


def end(transaction: Transaction | None, producer: ProducerIdAndEpoch, now_ms: int, *, is_commit: bool) -> Decision:
    """Commit or abort. A repeated request is answered as the first one."""
    error = _producer_error(transaction, producer)
    if transaction is None or error is not NO_ERROR:
        return error
    if transaction.pending_state is not None:
        return ErrorCode.CONCURRENT_TRANSACTIONS
    if transaction.state is ONGOING:
        return transaction.prepare_end(now_ms, is_commit=is_commit)
    if ENDED.get(transaction.state) is not is_commit:
        return ErrorCode.INVALID_TXN_STATE
    return ErrorCode.CONCURRENT_TRANSACTIONS if transaction.state in ENDING else NO_ERROR


def is_timed_out(transaction: Transaction, now_ms: int) -> bool:
    """Whether a transaction has been open for longer than its producer allowed."""
    is_open = transaction.state is ONGOING and transaction.pending_state is None
    return is_open and transaction.start_ms + transaction.timeout_ms < now_ms


def is_expired(transaction: Transaction, now_ms: int, expiration_ms: int) -> bool:
    """Whether a transactional id has been unused for so long that it may be forgotten."""
    may_expire = transaction.state in (EMPTY, COMPLETE_COMMIT, COMPLETE_ABORT)
    is_idle = transaction.last_update_ms <= now_ms - expiration_ms
    return may_expire and transaction.pending_state is None and is_idle


# -- operators


def is_listed(
    transaction: Transaction,
    now_ms: int,
    *,
    producer_ids: Collection[int],
    states: Collection[TransactionState] | None,
    duration_ms: int,
) -> bool:
    """Whether ListTransactions shows it. No filter is an empty collection, None or a negative duration.

    A transaction that never began has no start; as in Kafka, it counts as older than any duration.
    """
    if producer_ids and transaction.producer_id not in producer_ids:
        return False
    if states is not None and transaction.state not in states:
        return False
    return duration_ms < 0 or now_ms - transaction.start_ms > duration_ms
