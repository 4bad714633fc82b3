"""What requests and time mean for a transactional id, by Kafka 3.9's rules. No clock, no log, no network."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.broker.coordinator.transactions import state_machine
from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.broker.coordinator.transactions.transaction import (
    EPOCH_MAX,
    VALID_PREVIOUS_STATES,
    Transaction,
    Transition,
)
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.formats.transaction_state import TransactionState

E, S = ErrorCode, TransactionState
A, B = TopicPartition("a", 0), TopicPartition("b", 3)
ID = 4000
TIMEOUT_MS = 60_000
LAST_EPOCH = EPOCH_MAX - 1

AT_REST = (S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT)
STORED = (*AT_REST, S.ONGOING, S.PREPARE_COMMIT, S.PREPARE_ABORT)
"""The states that are ever written."""


def transaction(state: S = S.EMPTY, *, epoch: int = 5, partitions: tuple[TopicPartition, ...] = (A,)) -> Transaction:
    has_begun = state is not S.EMPTY
    return Transaction(
        "t",
        ID,
        producer_epoch=epoch,
        timeout_ms=TIMEOUT_MS,
        state=state,
        partitions=partitions if state not in AT_REST else (),
        start_ms=1_000 if has_begun else -1,
        last_update_ms=1_000,
    )


def init(txn: Transaction, expected: tuple[int, int] | None = None, new_id: int | None = None) -> Transition | E:
    return state_machine.init_producer_id(
        txn,
        None if expected is None else ProducerIdAndEpoch(*expected),
        timeout_ms=30_000,
        now_ms=2_000,
        new_producer_id=new_id,
    )


def written(txn: Transaction, decision: Transition | E) -> Transition:
    """The decision's record is replicated."""
    assert isinstance(decision, Transition), decision
    txn.complete(decision)
    return decision


def producer(epoch: int = 5, producer_id: int = ID) -> ProducerIdAndEpoch:
    return ProducerIdAndEpoch(producer_id, epoch)


# -- InitProducerId


def test_a_new_transactional_id_begins_with_epoch_0() -> None:
    txn = Transaction("t", ID, timeout_ms=30_000, last_update_ms=0)
    transaction_written = written(txn, init(txn))
    assert (
        transaction_written.state,
        transaction_written.producer_id,
        transaction_written.producer_epoch,
        transaction_written.start_ms,
    ) == (S.EMPTY, ID, 0, -1)
    assert (txn.producer_epoch, txn.timeout_ms, txn.last_update_ms) == (0, 30_000, 2_000)


@pytest.mark.parametrize("state", AT_REST)
def test_who_comes_next_gets_the_next_epoch_and_its_own_time_out(state: S) -> None:
    txn = transaction(state)
    transaction_written = written(txn, init(txn))
    assert (transaction_written.producer_id, transaction_written.producer_epoch, transaction_written.timeout_ms) == (
        ID,
        6,
        30_000,
    )
    assert txn.last_producer_epoch == -1, "whoever had epoch 5 cannot go on"


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_nobody_gets_an_epoch_while_markers_are_on_their_way(state: S) -> None:
    assert init(transaction(state)) is E.CONCURRENT_TRANSACTIONS


def test_nobody_gets_an_epoch_while_a_record_is_being_written() -> None:
    txn = transaction()
    assert isinstance(init(txn), Transition)
    assert init(txn) is E.CONCURRENT_TRANSACTIONS
    txn.give_up()
    assert written(txn, init(txn)).producer_epoch == 6, "what could not be written never happened"


def test_an_open_transaction_is_aborted_with_an_epoch_that_fences_its_producer() -> None:
    txn = transaction(S.ONGOING)
    transaction_written = written(txn, init(txn))
    assert (transaction_written.state, transaction_written.producer_epoch, transaction_written.partitions) == (
        S.PREPARE_ABORT,
        6,
        {A},
    )
    assert state_machine.end(txn, producer(5), 3_000, is_commit=True) is E.PRODUCER_FENCED
    txn.markers_are_written([A])
    written(txn, txn.prepare_complete(3_000))
    assert written(txn, init(txn)).producer_epoch == 7, "the successor's epoch is two more than the old producer's"


def test_a_fence_that_could_not_be_written_does_not_use_up_epochs() -> None:
    txn = transaction(S.ONGOING)
    assert isinstance(init(txn), Transition)
    txn.give_up()
    txn.has_failed_epoch_fence = True
    assert written(txn, init(txn)).producer_epoch == 6
    assert written(txn, txn.prepare_complete(3_000)).state is S.COMPLETE_ABORT
    assert not txn.has_failed_epoch_fence


@pytest.mark.parametrize("state", AT_REST)
def test_a_producer_that_says_its_epoch_goes_on_with_the_next(state: S) -> None:
    """KIP-360: after an error it can recover from."""
    txn = transaction(state)
    assert written(txn, init(txn, (ID, 5))).producer_epoch == 6
    assert txn.last_producer_epoch == 5


def test_a_producer_whose_answer_was_lost_gets_the_same_epoch_again() -> None:
    txn = transaction()
    written(txn, init(txn, (ID, 5)))
    assert written(txn, init(txn, (ID, 5))).producer_epoch == 6
    assert written(txn, init(txn, (ID, 6))).producer_epoch == 7


def test_a_producer_is_fenced_once_another_has_come() -> None:
    txn = transaction()
    written(txn, init(txn, (ID, 5)))
    written(txn, init(txn))
    assert init(txn, (ID, 5)) is E.PRODUCER_FENCED
    assert init(txn, (ID, 6)) is E.PRODUCER_FENCED
    assert txn.pending_state is None, "a refused request leaves nothing behind"


@pytest.mark.parametrize("expected", [(ID + 1, 5), (ID - 1, LAST_EPOCH)])
def test_a_producer_with_an_id_that_is_not_the_current_one_is_fenced(expected: tuple[int, int]) -> None:
    assert init(transaction(), expected) is E.PRODUCER_FENCED
    assert init(transaction(S.ONGOING), expected) is E.PRODUCER_FENCED


def test_a_producer_may_say_an_id_that_its_new_coordinator_does_not_know() -> None:
    """It recovers from UNKNOWN_PRODUCER_ID: the transactional id has expired meanwhile."""
    txn = Transaction("t", ID, timeout_ms=30_000, last_update_ms=0)
    assert written(txn, init(txn, (77, 3))).producer_epoch == 0


@pytest.mark.parametrize("expected", [None, (ID, LAST_EPOCH)])
def test_after_the_last_epoch_comes_a_new_producer_id(expected: tuple[int, int] | None) -> None:
    txn = transaction(S.COMPLETE_COMMIT, epoch=LAST_EPOCH)
    assert state_machine.needs_new_id(txn, None if expected is None else ProducerIdAndEpoch(*expected))
    transaction_written = written(txn, init(txn, expected, new_id=9000))
    assert (transaction_written.producer_id, transaction_written.producer_epoch, txn.last_producer_id) == (9000, 0, ID)
    assert txn.last_producer_epoch == (-1 if expected is None else LAST_EPOCH)


def test_a_producer_whose_answer_with_the_new_id_was_lost_gets_it_again() -> None:
    txn = transaction(epoch=LAST_EPOCH)
    written(txn, init(txn, (ID, LAST_EPOCH), new_id=9000))
    transaction_written = written(txn, init(txn, (ID, LAST_EPOCH)))
    assert (transaction_written.producer_id, transaction_written.producer_epoch) == (9000, 0)


def test_only_the_last_epoch_asks_for_a_new_producer_id() -> None:
    assert transaction(epoch=LAST_EPOCH).is_epoch_exhausted
    txn = transaction(epoch=LAST_EPOCH - 1)
    assert not txn.is_epoch_exhausted
    txn.last_producer_id = 77
    assert init(txn, (77, LAST_EPOCH - 1)) is E.PRODUCER_FENCED, "its id was not used up, so no answer was lost"
    assert written(txn, init(txn)).producer_epoch == LAST_EPOCH


def test_the_fence_may_use_the_epoch_that_no_producer_gets() -> None:
    txn = transaction(S.ONGOING, epoch=LAST_EPOCH)
    assert not state_machine.needs_new_id(txn, None), "first the transaction is aborted"
    assert written(txn, init(txn)).producer_epoch == EPOCH_MAX
    written(txn, txn.prepare_complete(3_000))
    assert state_machine.needs_new_id(txn, None)
    assert written(txn, init(txn, new_id=9000)).producer_id == 9000


def test_there_is_no_epoch_beyond_the_fence() -> None:
    with pytest.raises(ValueError, match="no epoch left"):
        transaction(S.ONGOING, epoch=EPOCH_MAX).prepare_fenced_abort(1)


# -- partitions


@pytest.mark.parametrize("state", AT_REST)
def test_the_first_partition_begins_the_transaction(state: S) -> None:
    txn = transaction(state)
    transaction_written = written(txn, state_machine.add_partitions(txn, producer(), [A], 2_000))
    assert (transaction_written.state, transaction_written.start_ms, txn.partitions) == (S.ONGOING, 2_000, {A})
    written(txn, state_machine.add_partitions(txn, producer(), [B], 3_000))
    assert (txn.start_ms, txn.last_update_ms, txn.partitions) == (2_000, 3_000, {A, B})


def test_partitions_that_are_there_already_need_no_record() -> None:
    txn = transaction(S.ONGOING, partitions=(A, B))
    assert state_machine.add_partitions(txn, producer(), [B, A], 2_000) is E.NONE


@pytest.mark.parametrize("state", [S.PREPARE_COMMIT, S.PREPARE_ABORT])
def test_the_next_transaction_waits_for_the_markers_of_the_last(state: S) -> None:
    assert state_machine.add_partitions(transaction(state), producer(), [A], 2_000) is E.CONCURRENT_TRANSACTIONS


def test_one_record_at_a_time() -> None:
    txn = transaction()
    assert isinstance(state_machine.add_partitions(txn, producer(), [A], 2_000), Transition)
    assert state_machine.add_partitions(txn, producer(), [B], 2_000) is E.CONCURRENT_TRANSACTIONS
    assert state_machine.end(txn, producer(), 2_000, is_commit=True) is E.CONCURRENT_TRANSACTIONS


def test_a_verification_needs_the_partition_in_the_transaction() -> None:
    verified = state_machine.verify_partitions(transaction(S.ONGOING), producer(), [A, B])
    assert verified == {A: E.NONE, B: E.TRANSACTION_ABORTABLE}
    assert state_machine.verify_partitions(transaction(), producer(), [A]) == {A: E.TRANSACTION_ABORTABLE}
    verified = state_machine.verify_partitions(transaction(S.PREPARE_COMMIT), producer(), [A])
    assert verified == {A: E.CONCURRENT_TRANSACTIONS}, "its marker may be written before the record comes"


REQUESTS: dict[str, Callable[[Transaction | None, ProducerIdAndEpoch], object]] = {
    "add": lambda txn, who: state_machine.add_partitions(txn, who, [A], 2_000),
    "verify": lambda txn, who: state_machine.verify_partitions(txn, who, [A])[A],
    "commit": lambda txn, who: state_machine.end(txn, who, 2_000, is_commit=True),
    "abort": lambda txn, who: state_machine.end(txn, who, 2_000, is_commit=False),
}


@pytest.mark.parametrize("request_name", REQUESTS)
@pytest.mark.parametrize("state", STORED)
def test_only_the_current_producer_may_do_anything(request_name: str, state: S) -> None:
    ask = REQUESTS[request_name]
    assert ask(None, producer()) is E.INVALID_PRODUCER_ID_MAPPING
    for epoch, producer_id, error in (
        (5, ID + 1, E.INVALID_PRODUCER_ID_MAPPING),
        (4, ID, E.PRODUCER_FENCED),
        (6, ID, E.PRODUCER_FENCED),
    ):
        txn = transaction(state)
        assert ask(txn, producer(epoch, producer_id)) is error
        assert txn.pending_state is None


# -- the end


@pytest.mark.parametrize("is_commit", [True, False])
def test_a_transaction_ends_once_all_its_markers_are_written(is_commit: bool) -> None:
    txn = transaction(S.ONGOING, partitions=(A, B))
    transaction_written = written(txn, state_machine.end(txn, producer(), 2_000, is_commit=is_commit))
    assert (transaction_written.state, transaction_written.partitions) == (
        S.PREPARE_COMMIT if is_commit else S.PREPARE_ABORT,
        {A, B},
    )
    complete = txn.prepare_complete(3_000)
    txn.markers_are_written([A])
    assert txn.partitions == {B}
    txn.markers_are_written([B])
    written(txn, complete)
    assert txn.state is (S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT)
    assert (txn.start_ms, txn.last_update_ms) == (1_000, 3_000)


@pytest.mark.parametrize(
    ("state", "commit", "abort"),
    [
        (S.EMPTY, E.INVALID_TXN_STATE, E.INVALID_TXN_STATE),
        (S.COMPLETE_COMMIT, E.NONE, E.INVALID_TXN_STATE),
        (S.COMPLETE_ABORT, E.INVALID_TXN_STATE, E.NONE),
        (S.PREPARE_COMMIT, E.CONCURRENT_TRANSACTIONS, E.INVALID_TXN_STATE),
        (S.PREPARE_ABORT, E.INVALID_TXN_STATE, E.CONCURRENT_TRANSACTIONS),
    ],
)
def test_an_end_may_be_repeated_but_not_turned_round(state: S, commit: E, abort: E) -> None:
    assert state_machine.end(transaction(state), producer(), 2_000, is_commit=True) is commit
    assert state_machine.end(transaction(state), producer(), 2_000, is_commit=False) is abort


@pytest.mark.parametrize("state", AT_REST)
def test_a_partition_has_a_marker_to_wait_for_only_while_the_transaction_ends(state: S) -> None:
    with pytest.raises(ValueError, match="not ending"):
        transaction(state).markers_are_written([A])


# -- time


def test_a_transaction_is_timed_out_after_its_own_time_out() -> None:
    txn = transaction(S.ONGOING)
    assert not state_machine.is_timed_out(txn, 1_000 + TIMEOUT_MS)
    assert state_machine.is_timed_out(txn, 1_001 + TIMEOUT_MS)
    txn.prepare_end(2_000, is_commit=True)
    assert not state_machine.is_timed_out(txn, 10 * TIMEOUT_MS), "its outcome is being written"


@pytest.mark.parametrize("state", [state for state in STORED if state is not S.ONGOING])
def test_only_an_open_transaction_is_timed_out(state: S) -> None:
    assert not state_machine.is_timed_out(transaction(state), 10 * TIMEOUT_MS)


@pytest.mark.parametrize("state", STORED)
def test_an_id_at_rest_expires_when_it_was_unused_for_long_enough(state: S) -> None:
    assert state_machine.is_expired(transaction(state), 1_500, 500) is (state in AT_REST)
    assert not state_machine.is_expired(transaction(state), 1_499, 500)


def test_an_id_in_use_does_not_expire() -> None:
    txn = transaction()
    assert isinstance(init(txn), Transition)
    assert not state_machine.is_expired(txn, 10**9, 500)


def test_operators_filter_by_producer_state_and_duration() -> None:
    txn = transaction(S.ONGOING)

    def listed(ids: tuple[int, ...] = (), states: set[S] | None = None, duration_ms: int = -1) -> bool:
        return state_machine.is_listed(txn, 2_000, producer_ids=ids, states=states, duration_ms=duration_ms)

    assert listed() and listed((ID,)) and listed(states={S.ONGOING}) and listed(duration_ms=999)
    assert not (listed((1,)) or listed(states={S.EMPTY}) or listed(states=set()) or listed(duration_ms=1_000))
    assert state_machine.is_listed(transaction(), 2_000, producer_ids=(), states=None, duration_ms=2_000)
    assert not state_machine.is_listed(txn, 1_000, producer_ids=(), states=None, duration_ms=0), "it has just begun"


# -- the table


def test_the_table_is_kafkas() -> None:
    assert {state: sorted(before) for state, before in VALID_PREVIOUS_STATES.items()} == {
        S.EMPTY: [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT],
        S.ONGOING: [S.EMPTY, S.ONGOING, S.COMPLETE_COMMIT, S.COMPLETE_ABORT],
        S.PREPARE_COMMIT: [S.ONGOING],
        S.PREPARE_ABORT: [S.ONGOING, S.PREPARE_EPOCH_FENCE],
        S.COMPLETE_COMMIT: [S.PREPARE_COMMIT],
        S.COMPLETE_ABORT: [S.PREPARE_ABORT],
        S.DEAD: [S.EMPTY, S.COMPLETE_COMMIT, S.COMPLETE_ABORT],
        S.PREPARE_EPOCH_FENCE: [S.ONGOING],
    }


PREPARES: dict[str, Callable[[Transaction], Transition]] = {
    "epoch": lambda txn: txn.prepare_epoch(6, -1, 1_000, 2_000),
    "new id": lambda txn: txn.prepare_new_id(9, -1, 1_000, 2_000),
    "partitions": lambda txn: txn.prepare_partitions([B], 2_000),
    "commit": lambda txn: txn.prepare_end(2_000, is_commit=True),
    "fence": lambda txn: txn.prepare_fenced_abort(2_000),
    "complete": lambda txn: txn.prepare_complete(2_000),
    "dead": lambda txn: txn.prepare_dead(),
}


@pytest.mark.parametrize("step", PREPARES)
@pytest.mark.parametrize("state", STORED)
def test_a_transition_that_the_table_lacks_is_a_fault_of_the_program(step: str, state: S) -> None:
    txn = transaction(state)
    try:
        prepared = PREPARES[step](txn)
    except ValueError:
        assert txn.pending_state is None
        assert txn.producer_epoch == 5
        return
    assert state in VALID_PREVIOUS_STATES[prepared.state]
    with pytest.raises(ValueError, match="is passing to"):
        PREPARES[step](txn)


def test_only_what_was_prepared_may_be_written() -> None:
    txn = transaction(S.ONGOING)
    prepared = txn.prepare_end(2_000, is_commit=True)
    for wrong in (
        replace(prepared, state=S.PREPARE_ABORT),
        replace(prepared, producer_epoch=6),
        replace(prepared, producer_id=1),
        replace(prepared, timeout_ms=1),
        replace(prepared, partitions=frozenset({A, B})),
        replace(prepared, start_ms=5),
    ):
        with pytest.raises(ValueError, match="does not pass"):
            txn.complete(wrong)
    txn.complete(prepared)
    with pytest.raises(ValueError, match="does not pass"):
        txn.complete(prepared)


@pytest.mark.parametrize(
    "wrong",
    [
        {"producer_epoch": 7},
        {"producer_id": 9},
        {"producer_id": 9, "producer_epoch": 6},
        {"producer_epoch": 0},
        {"partitions": frozenset({A})},
        {"start_ms": 1_000},
    ],
)
def test_a_producer_that_comes_gets_the_next_epoch_or_a_new_id_and_nothing_open(wrong: dict[str, object]) -> None:
    txn = transaction(S.COMPLETE_COMMIT)
    prepared = txn.prepare_epoch(6, -1, 1_000, 2_000)
    with pytest.raises(ValueError, match="does not pass"):
        txn.complete(replace(prepared, **wrong))  # type: ignore[arg-type]
    txn.complete(prepared)


def test_an_open_transaction_may_be_written_again_and_loses_no_partition() -> None:
    txn = transaction(S.ONGOING, partitions=(A, B))
    prepared = txn.prepare_partitions([A], 2_000)
    with pytest.raises(ValueError, match="does not pass"):
        txn.complete(replace(prepared, partitions=frozenset({A})))
    txn.complete(prepared)
    assert txn.partitions == {A, B}


def test_a_completion_says_when_the_transaction_began() -> None:
    txn = transaction(S.PREPARE_COMMIT)
    completed = txn.prepare_complete(2_000)
    with pytest.raises(ValueError, match="does not pass"):
        txn.complete(replace(completed, start_ms=-1))


STEPS = st.lists(
    st.sampled_from(["init", "go on", "old", "add a", "add b", "commit", "abort", "time out", "marker", "fail"]),
    max_size=40,
)


@given(STEPS)
def test_whatever_happens_epochs_grow_and_ended_transactions_have_all_their_markers(steps: list[str]) -> None:
    txn = Transaction("t", ID, timeout_ms=30_000, last_update_ms=0)
    highest = epoch = -1
    lacking: set[TopicPartition] = set()
    is_failing = False
    for step in steps:
        who = ProducerIdAndEpoch(ID, epoch)
        decision: Transition | E = E.NONE
        if step == "fail":
            is_failing = not is_failing
            continue
        if step in ("init", "go on", "old"):
            expected = {"init": None, "go on": (ID, epoch), "old": (ID, epoch - 1)}[step]
            decision = init(txn, expected if epoch >= 0 else None)
        elif step in ("add a", "add b"):
            decision = state_machine.add_partitions(txn, who, [A if step == "add a" else B], 2_000)
        elif step in ("commit", "abort"):
            decision = state_machine.end(txn, who, 2_000, is_commit=step == "commit")
        elif step == "time out" and state_machine.is_timed_out(txn, 10**9):
            decision = txn.prepare_fenced_abort(10**9)
        elif step == "marker" and lacking:
            txn.markers_are_written([lacking.pop()])
            if not lacking:
                txn.complete(txn.prepare_complete(2_000))
        if isinstance(decision, E):
            continue
        if is_failing:
            txn.give_up()
            txn.has_failed_epoch_fence |= decision.producer_epoch > highest and decision.state is S.PREPARE_ABORT
            continue
        assert decision.producer_epoch >= highest
        highest = decision.producer_epoch
        txn.complete(decision)
        if decision.state is S.EMPTY:
            epoch = decision.producer_epoch
        if decision.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT):
            lacking = set(decision.partitions)
            assert lacking, "an open transaction has partitions"
    assert (txn.state in (S.PREPARE_COMMIT, S.PREPARE_ABORT)) is bool(lacking)
