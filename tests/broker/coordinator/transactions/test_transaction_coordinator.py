"""The coordinator around the decisions: its log, markers, moves to another broker, and failures of each of these."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from event_loop import staged
from transaction_world import ANSWER_S, HERE, STATE_PARTITION, THERE, TransactionWorld, play

from engine.broker.coordinator.transactions.coordinator import ENDING_WAIT_MS
from engine.broker.coordinator.transactions.marker_sender import RETRY_BACKOFF_MS
from engine.broker.coordinator.transactions.state_machine import ProducerIdAndEpoch
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.formats.control_records import ControlRecordType, EndTransactionMarker
from engine.kafka.formats.transaction_state import TransactionState
from engine.kafka.protocol.records.header import iter_batches

E, S = ErrorCode, TransactionState
COMMIT, ABORT = ControlRecordType.COMMIT, ControlRecordType.ABORT


def states(world: TransactionWorld) -> list[S | None]:
    return [state for _, state in world.stored]


# -- InitProducerId


@staged(play)
async def test_a_producer_gets_its_id_once_the_log_has_it(world: TransactionWorld, /) -> None:
    world.state.is_replicated_at_once = False
    asking = asyncio.create_task(world.init())
    await asyncio.sleep(0.01)
    assert not asking.done() and states(world) == [S.EMPTY]
    assert (await world.init()).error is E.CONCURRENT_TRANSACTIONS
    world.replicate()
    assert await asking == (E.NONE, 1000, 0)


@staged(play)
async def test_two_producers_that_come_at_once_get_one_id_and_two_epochs(world: TransactionWorld, /) -> None:
    made = await asyncio.gather(world.init(), world.init())
    assert sorted(producer_of[1:] for producer_of in made) == [(1000, 0), (1000, 1)]


@pytest.mark.parametrize(
    ("name", "timeout_ms", "error"),
    [("", 1_000, E.INVALID_REQUEST), ("t", 0, E.INVALID_TRANSACTION_TIMEOUT), ("t", -1, E.INVALID_TRANSACTION_TIMEOUT)],
)
@staged(play)
async def test_what_no_producer_may_ask_for(world: TransactionWorld, /, name: str, timeout_ms: int, error: E) -> None:
    assert await world.init(name, timeout_ms) == (error, -1, -1)
    assert world.stored == []


@staged(play, **{"transaction.max.timeout.ms": "5000"})
async def test_the_longest_time_out_is_a_setting(world: TransactionWorld, /) -> None:
    assert (await world.init(timeout_ms=5_000)).error is E.NONE
    assert (await world.init("shortest", timeout_ms=1)).error is E.NONE
    assert (await world.init(timeout_ms=5_001)).error is E.INVALID_TRANSACTION_TIMEOUT


@staged(play)
async def test_a_successor_waits_until_the_open_transaction_is_aborted(world: TransactionWorld, /) -> None:
    (a,) = world.add("a", leader=THERE)
    producer = await world.begun([a])
    assert (await world.init()).error is E.CONCURRENT_TRANSACTIONS
    assert world.end(producer) == [E.PRODUCER_FENCED]
    await world.until(S.COMPLETE_ABORT)
    assert world.there.marked == [(1000, 1, False, [a])], "the marker fences the old producer at the leader"
    assert await world.init() == (E.NONE, 1000, 2)


# -- the end


@pytest.mark.parametrize("is_commit", [True, False])
@staged(play)
async def test_every_partition_gets_its_marker_wherever_its_leader_is(
    world: TransactionWorld, /, is_commit: bool
) -> None:
    here, there = world.add("here", partitions=2), world.add("there", leader=THERE, partitions=2)
    producer = await world.begun([*here, *there])
    assert world.end(producer, is_commit=is_commit) == [E.NONE]
    await world.until(S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT)
    marker = EndTransactionMarker(COMMIT if is_commit else ABORT, coordinator_epoch=1)
    assert [world.led[name].markers for name in here] == [[(1000, 0, marker)]] * 2
    assert world.there.marked == [(1000, 0, is_commit, there)]
    prepare, complete = (S.PREPARE_COMMIT, S.COMPLETE_COMMIT) if is_commit else (S.PREPARE_ABORT, S.COMPLETE_ABORT)
    assert states(world) == [S.EMPTY, S.ONGOING, prepare, complete]


@staged(play)
async def test_no_marker_is_sent_before_the_outcome_is_in_the_log(world: TransactionWorld, /) -> None:
    (a,) = world.add("a")
    producer = await world.begun([a])
    world.state.is_replicated_at_once = False
    answers = world.end(producer)
    await asyncio.sleep(1)
    assert answers == [] and world.led[a].markers == []
    assert world.add_partitions(producer, [a]) == [E.CONCURRENT_TRANSACTIONS]
    world.replicate()
    assert answers == [E.NONE] and world.led[a].markers == [], "the answer goes first"
    await asyncio.sleep(0)
    assert len(world.led[a].markers) == 1


@staged(play)
async def test_what_was_written_in_an_earlier_term_is_not_answered_as_if_it_were_still_that(
    world: TransactionWorld, /
) -> None:
    (a,) = world.add("a")
    producer = await world.begun([a])
    world.state.is_replicated_at_once = False
    answers = world.end(producer)
    await world.lead()
    assert answers == []
    world.replicate()
    assert answers == [E.NOT_COORDINATOR]
    await asyncio.sleep(0)
    world.replicate()
    assert world.found().state is S.COMPLETE_COMMIT and len(world.led[a].markers) == 1


@staged(play)
async def test_who_does_not_coordinate_an_id_verifies_nothing(world: TransactionWorld, /) -> None:
    (a,) = world.add("a")
    producer = await world.begun([a])
    assert world.coordinator.verify_partitions("t", producer, [a]) == {a: E.NONE}
    world.resign()
    assert world.coordinator.verify_partitions("t", producer, [a]) == {a: E.NOT_COORDINATOR}


@staged(play)
async def test_the_end_is_in_the_log_only_once_all_followers_have_the_markers(world: TransactionWorld, /) -> None:
    a, b = world.add("a", partitions=2)
    producer = await world.begun([a, b])
    world.led[a].is_replicated_at_once = False
    assert world.end(producer) == [E.NONE]
    await asyncio.sleep(1)
    assert states(world)[-1] is S.PREPARE_COMMIT and world.found().partitions == {a}
    world.replicate(world.led[a])
    assert states(world)[-1] is S.COMPLETE_COMMIT


@staged(play)
async def test_offsets_of_groups_become_visible_with_the_marker(world: TransactionWorld, /) -> None:
    offsets = TopicPartition("__consumer_offsets", 0)
    world.add("__consumer_offsets")
    producer = await world.begun([offsets])
    world.led[offsets].is_replicated_at_once = False
    world.end(producer)
    await asyncio.sleep(0)
    assert world.offsets_ended == []
    world.replicate(world.led[offsets])
    assert world.offsets_ended == [(0, 1000, True)]


@pytest.mark.parametrize(
    "error",
    [
        None,
        E.NOT_LEADER_OR_FOLLOWER,
        E.UNKNOWN_TOPIC_OR_PARTITION,
        E.NOT_ENOUGH_REPLICAS,
        E.NOT_ENOUGH_REPLICAS_AFTER_APPEND,
        E.REQUEST_TIMED_OUT,
        E.KAFKA_STORAGE_ERROR,
        E.UNKNOWN_SERVER_ERROR,
    ],
)
@staged(play)
async def test_a_marker_that_was_not_written_goes_to_whoever_leads_then(
    world: TransactionWorld, /, error: E | None
) -> None:
    (a,) = world.add("a", leader=THERE)
    producer = await world.begun([a])
    world.there.errors = [error, error]
    world.end(producer)
    await asyncio.sleep(1.5 * RETRY_BACKOFF_MS / 1000)
    first_s, second_s = world.there.times_s
    assert second_s - first_s == pytest.approx(ANSWER_S + RETRY_BACKOFF_MS / 1000, abs=1e-9)
    world.add("a", leader=HERE)
    await world.until(S.COMPLETE_COMMIT)
    assert len(world.led[a].markers) == 1


@staged(play)
async def test_a_fault_of_the_program_loses_no_marker(world: TransactionWorld, /) -> None:
    (a,) = world.add("a", leader=THERE)
    first, second = await world.begun([a]), await world.begun([a], "u")
    world.there.faults = [RuntimeError("a fault of the program")]
    world.end(first)
    await asyncio.sleep(ANSWER_S / 2)
    world.end(second, "u")
    await world.until(S.COMPLETE_COMMIT)
    await world.until(S.COMPLETE_COMMIT, "u")
    assert [m[:2] for m in world.there.marked] == [first, second, first]


@staged(play)
async def test_a_marker_waits_for_a_leader(world: TransactionWorld, /) -> None:
    (a,) = world.add("a", leader=-1)
    (b,) = world.add("b", leader=THERE)
    producer = await world.begun([a, b])
    world.metadata.alive.discard(THERE)
    world.end(producer)
    await asyncio.sleep(10)
    assert world.found().partitions == {a, b}
    world.metadata.alive.add(THERE)
    world.metadata.changed()
    await asyncio.sleep(1)
    assert world.found().partitions == {a}
    world.metadata.leaders[a] = THERE
    world.metadata.changed()
    await world.until(S.COMPLETE_COMMIT)
    assert [name for *_, names in world.there.marked for name in names] == [b, a]


@staged(play)
async def test_a_deleted_topic_gets_no_marker(world: TransactionWorld, /) -> None:
    (a,) = world.add("a")
    (b,) = world.add("b", leader=THERE)
    producer = await world.begun([a, b])
    del world.metadata.leaders[a], world.led[a]
    world.there.errors = [E.UNKNOWN_TOPIC_OR_PARTITION]
    world.end(producer)
    await asyncio.sleep(0.01)
    del world.metadata.leaders[b]
    await world.until(S.COMPLETE_COMMIT)
    assert len(world.there.requests) == 1


@staged(play)
async def test_who_coordinates_before_it_hears_of_any_partition_takes_none_for_deleted(
    world: TransactionWorld, /
) -> None:
    """After a start of all brokers, LeaderAndIsr comes first. Without its marker, nobody would read the records."""
    (a,) = world.add("a", leader=THERE)
    world.end(await world.begun([a]))
    await asyncio.sleep(ANSWER_S / 2)
    known, world.metadata.leaders = world.metadata.leaders, {}
    await world.move()
    await asyncio.sleep(1)
    assert world.found().state is S.PREPARE_COMMIT
    world.there.requests.clear()
    world.metadata.leaders = known
    world.metadata.changed()
    await world.until(S.COMPLETE_COMMIT)
    assert world.there.marked == [(1000, 0, True, [("a", 0)])]


@staged(play)
async def test_a_transaction_of_deleted_topics_ends_without_markers(world: TransactionWorld, /) -> None:
    (a,) = world.add("a")
    producer = await world.begun([a])
    del world.metadata.leaders[a], world.led[a]
    world.end(producer)
    await world.until(S.COMPLETE_COMMIT)


@staged(play)
async def test_a_marker_waits_for_a_broker_that_dies_before_it_is_sent(world: TransactionWorld, /) -> None:
    producer = await world.begun(world.add("a", leader=THERE))
    world.end(producer)
    await asyncio.sleep(0)
    world.metadata.alive.discard(THERE)
    await asyncio.sleep(1)
    assert world.there.requests == []
    world.metadata.alive.add(THERE)
    world.metadata.changed()
    await world.until(S.COMPLETE_COMMIT)


@staged(play)
async def test_a_marker_queued_for_a_broker_that_dies_goes_to_the_next_leader(world: TransactionWorld, /) -> None:
    """The broker may never come back, and no other change of the metadata may follow."""
    (a,) = world.add("a", leader=THERE)
    producer = await world.begun([a])
    world.end(producer)
    await asyncio.sleep(0)
    world.metadata.alive.discard(THERE)
    world.add("a")
    world.metadata.changed()
    await world.until(S.COMPLETE_COMMIT)
    assert len(world.led[a].markers) == 1 and world.there.requests == []


@pytest.mark.parametrize("error", [E.UNSUPPORTED_FOR_MESSAGE_FORMAT, E.UNSUPPORTED_VERSION])
@staged(play)
async def test_a_partition_that_can_have_no_marker_holds_up_nothing(world: TransactionWorld, /, error: E) -> None:
    producer = await world.begun(world.add("a", leader=THERE))
    world.there.errors = [error]
    world.end(producer)
    await world.until(S.COMPLETE_COMMIT)


@pytest.mark.parametrize("error", [E.INVALID_PRODUCER_EPOCH, E.TRANSACTION_COORDINATOR_FENCED])
@staged(play)
async def test_markers_are_given_up_when_a_later_coordinator_was_there(world: TransactionWorld, /, error: E) -> None:
    producer = await world.begun(world.add("a", leader=THERE))
    world.there.errors = [error]
    world.end(producer)
    await asyncio.sleep(10)
    assert len(world.there.requests) == 1 and states(world)[-1] is S.PREPARE_COMMIT


@staged(play)
async def test_markers_of_many_transactions_travel_together_one_request_at_a_time(world: TransactionWorld, /) -> None:
    (a,) = world.add("a", leader=THERE)
    producers = {f"t{number}": await world.begun([a], f"t{number}") for number in range(20)}
    for name, producer in producers.items():
        world.end(producer, name)
    for name in producers:
        await world.until(S.COMPLETE_COMMIT, name)
    assert len(world.there.requests) == 1 and len(world.there.marked) == 20


@staged(play)
async def test_markers_that_come_during_a_request_wait_for_the_next(world: TransactionWorld, /) -> None:
    (a,) = world.add("a", leader=THERE)
    producers = {f"t{number}": await world.begun([a], f"t{number}") for number in range(3)}
    for name, producer in producers.items():
        world.end(producer, name)
        await asyncio.sleep(ANSWER_S / 5)
    assert len(world.there.requests) == 1
    for name in producers:
        await world.until(S.COMPLETE_COMMIT, name)
    assert [len(request.markers) for request in world.there.requests] == [1, 2]


@staged(play)
async def test_a_former_coordinator_listens_no_more(world: TransactionWorld, /) -> None:
    before = len(world.metadata.update_listeners)
    await world.move()
    assert len(world.metadata.update_listeners) == before


# -- the log


@pytest.mark.parametrize(
    ("refusal", "expected"),
    [
        (E.NOT_ENOUGH_REPLICAS, E.COORDINATOR_NOT_AVAILABLE),
        (E.UNKNOWN_TOPIC_OR_PARTITION, E.COORDINATOR_NOT_AVAILABLE),
        (E.NOT_LEADER_OR_FOLLOWER, E.NOT_COORDINATOR),
        (E.KAFKA_STORAGE_ERROR, E.NOT_COORDINATOR),
        (E.MESSAGE_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
        (E.RECORD_LIST_TOO_LARGE, E.UNKNOWN_SERVER_ERROR),
    ],
)
@staged(play)
async def test_what_cannot_be_written_has_not_happened(world: TransactionWorld, /, refusal: E, expected: E) -> None:
    a, b = world.add("a", partitions=2)
    producer = await world.begun([a])
    world.state.refusal = refusal
    assert world.add_partitions(producer, [b]) == [expected]
    assert world.end(producer) == [expected]
    assert (await world.init("other")).error is expected
    assert (await world.init()).error is expected, "the fence"
    world.state.refusal = None
    assert world.found().state is S.ONGOING and world.found().partitions == {a}
    assert world.end(producer) == [E.PRODUCER_FENCED], "the epoch was raised, though nobody has it"
    assert (await world.init()).error is E.CONCURRENT_TRANSACTIONS
    await world.until(S.COMPLETE_ABORT)
    assert await world.init() == (E.NONE, producer.producer_id, 2), "and it is not raised twice"


@staged(play)
async def test_an_append_that_is_not_replicated_in_time_is_answered(world: TransactionWorld, /) -> None:
    (a,) = world.add("a")
    producer = await world.begun([a])
    world.state.is_replicated_at_once = False
    answers = world.end(producer)
    await asyncio.sleep(61)
    assert answers == [E.COORDINATOR_NOT_AVAILABLE] and world.found().state is S.ONGOING


@staged(play)
async def test_the_last_record_of_a_transaction_is_tried_again_until_it_is_written(world: TransactionWorld, /) -> None:
    (a,) = world.add("a")
    producer = await world.begun([a])
    world.led[a].is_replicated_at_once = False
    world.end(producer)
    await asyncio.sleep(0)
    world.state.refusal = E.NOT_ENOUGH_REPLICAS
    world.replicate(world.led[a])
    await asyncio.sleep(10 * RETRY_BACKOFF_MS / 1000)
    world.state.refusal = None
    await asyncio.sleep(0.99 * RETRY_BACKOFF_MS / 1000)
    assert states(world)[-1] is S.PREPARE_COMMIT
    await world.until(S.COMPLETE_COMMIT)


@staged(play)
async def test_a_transaction_that_is_complete_is_not_ended_again(world: TransactionWorld, /) -> None:
    (a,) = world.add("a", leader=THERE)
    world.end(await world.begun([a]))
    ending = world.coordinator._endings["t"]
    await world.until(S.COMPLETE_COMMIT)
    world.coordinator._markers.send(ending)
    await asyncio.sleep(1)
    assert len(world.there.marked) == 1 and states(world).count(S.COMPLETE_COMMIT) == 1


# -- the next transaction


@staged(play)
async def test_the_next_transaction_begins_when_the_one_before_has_its_markers(world: TransactionWorld, /) -> None:
    (a,) = world.add("a", leader=THERE)
    producer = await world.begun([a])
    assert world.end(producer) == [E.NONE]
    answers = world.add_partitions(producer, [a])
    assert answers == [], "the answer waits"
    assert world.add_partitions(producer, [a]) == [E.CONCURRENT_TRANSACTIONS], "one request waits, not two"
    await asyncio.sleep(2 * ANSWER_S)
    assert answers == [E.NONE]
    assert states(world)[-2:] == [S.COMPLETE_COMMIT, S.ONGOING]
    assert world.end(producer) == [E.NONE]
    world.there.errors = [None] * 100
    later_answers = world.add_partitions(producer, [a])
    await asyncio.sleep(2 * ENDING_WAIT_MS / 1000)
    assert (answers, later_answers) == ([E.NONE], [E.CONCURRENT_TRANSACTIONS]), "each is answered once"
    world.there.errors.clear()


@staged(play)
async def test_the_next_transaction_does_not_wait_for_long(world: TransactionWorld, /) -> None:
    (a,) = world.add("a")
    producer = await world.begun([a])
    world.led[a].refusal = E.NOT_ENOUGH_REPLICAS
    assert world.end(producer) == [E.NONE]
    answers = world.add_partitions(producer, [a])
    await asyncio.sleep(0.9995 * ENDING_WAIT_MS / 1000)
    assert answers == []
    await asyncio.sleep(0.001 * ENDING_WAIT_MS / 1000)
    assert answers == [E.CONCURRENT_TRANSACTIONS]
    world.led[a].refusal = None
    await world.until(S.COMPLETE_COMMIT)
    assert answers == [E.CONCURRENT_TRANSACTIONS] and states(world)[-1] is S.COMPLETE_COMMIT


@staged(play)
async def test_who_waits_to_begin_learns_at_once_that_the_coordinator_has_moved(world: TransactionWorld, /) -> None:
    (a,) = world.add("a", leader=THERE)
    producer = await world.begun([a])
    world.end(producer)
    answers = world.add_partitions(producer, [a])
    world.resign()
    assert answers == [E.NOT_COORDINATOR]


@staged(play)
async def test_who_is_fenced_does_not_wait_to_begin(world: TransactionWorld, /) -> None:
    (a,) = world.add("a", leader=THERE)
    producer = await world.begun([a])
    world.end(producer)
    assert world.add_partitions(producer._replace(producer_epoch=9), [a]) == [E.PRODUCER_FENCED]


# -- moves


@staged(play)
async def test_another_broker_knows_nothing_of_the_id(world: TransactionWorld, /) -> None:
    producer = await world.begun(world.add("a"))
    world.resign()
    assert world.add_partitions(producer, []) == [E.NOT_COORDINATOR]
    assert world.end(producer) == [E.NOT_COORDINATOR]
    assert (await world.init()).error is E.NOT_COORDINATOR
    assert world.coordinator.describe("t") is E.NOT_COORDINATOR
    assert world.coordinator.list_transactions() == []


@staged(play)
async def test_the_next_coordinator_goes_on_with_an_open_transaction(world: TransactionWorld, /) -> None:
    a, b = world.add("a", partitions=2)
    producer = await world.begun([a])
    await world.move()
    assert world.add_partitions(producer, [b]) == [E.NONE]
    assert world.end(producer) == [E.NONE]
    await world.until(S.COMPLETE_COMMIT)
    assert world.led[a].markers == world.led[b].markers == [(1000, 0, EndTransactionMarker(COMMIT, 2))]


@pytest.mark.parametrize("is_commit", [True, False])
@staged(play)
async def test_the_next_coordinator_sends_the_markers_that_are_missing(
    world: TransactionWorld, /, is_commit: bool
) -> None:
    (a,) = world.add("a", leader=THERE)
    producer = await world.begun([a])
    world.there.errors = [None]
    world.end(producer, is_commit=is_commit)
    await asyncio.sleep(0.01)
    await world.move()
    await world.until(S.COMPLETE_COMMIT if is_commit else S.COMPLETE_ABORT)
    assert world.there.marked == [(1000, 0, is_commit, [a])] * 2, "a marker may be written twice"
    assert [m.coordinator_epoch for request in world.there.requests for m in request.markers] == [1, 2]


@staged(play)
async def test_a_former_coordinator_does_nothing_with_a_late_answer(world: TransactionWorld, /) -> None:
    producer = await world.begun(world.add("a", leader=THERE))
    world.end(producer)
    await asyncio.sleep(0)
    world.resign()
    assert world.coordinator._endings == {}
    await asyncio.sleep(1)
    assert states(world)[-1] is S.PREPARE_COMMIT
    await world.lead()
    await world.until(S.COMPLETE_COMMIT)
    assert states(world).count(S.COMPLETE_COMMIT) == 1


@staged(play)
async def test_a_request_whose_record_outlives_the_coordinator_is_not_answered_as_done(
    world: TransactionWorld, /
) -> None:
    """The client finds out from the next coordinator."""
    (a,) = world.add("a")
    producer = await world.begun([a])
    world.state.is_replicated_at_once = False
    answers = world.end(producer)
    world.resign()
    assert answers == [E.NOT_COORDINATOR]
    assert world.led[a].markers == []


@staged(play)
async def test_what_never_reached_the_next_coordinator_has_not_happened(world: TransactionWorld, /) -> None:
    (a,) = world.add("a")
    producer = await world.begun([a])
    end = world.state.log.log_end_offset
    world.state.is_replicated_at_once = False
    world.end(producer)
    world.state.is_replicated_at_once = True
    await world.move(survives_to=end)
    assert world.found().state is S.ONGOING and world.led[a].markers == []
    assert world.end(producer, is_commit=False) == [E.NONE]
    await world.until(S.COMPLETE_ABORT)
    assert [marker.type for *_, marker in world.led[a].markers] == [ABORT]


@staged(play)
async def test_a_coordinator_that_resigns_before_its_markers_are_sent_leaves_them_to_the_next(
    world: TransactionWorld, /
) -> None:
    (a,) = world.add("a")
    producer = await world.begun([a])
    assert world.end(producer) == [E.NONE]
    world.resign()
    await asyncio.sleep(0)
    assert world.led[a].markers == []
    await world.move()
    await world.until(S.COMPLETE_COMMIT)
    assert world.led[a].markers == [(1000, 0, EndTransactionMarker(COMMIT, 2))]


@staged(play)
async def test_requests_wait_while_the_partition_is_loaded(world: TransactionWorld, /) -> None:
    producer = await world.begun(world.add("a"))
    world.resign()
    leading = asyncio.create_task(world.lead())
    await asyncio.sleep(0)
    assert world.end(producer) == [E.COORDINATOR_LOAD_IN_PROGRESS]
    assert (await world.init("other")).error is E.COORDINATOR_LOAD_IN_PROGRESS
    assert world.coordinator.list_transactions() is E.COORDINATOR_LOAD_IN_PROGRESS
    await leading
    assert world.end(producer) == [E.NONE]


@staged(play)
async def test_a_partition_whose_replica_is_stopped_is_given_up(world: TransactionWorld, /) -> None:
    await world.init()
    for listener in world.replica_manager.stop_listeners:
        listener([STATE_PARTITION])
    assert world.coordinator.describe("t") is E.NOT_COORDINATOR


@staged(play, **{"transaction.state.log.num.partitions": "7"})
async def test_the_topic_says_how_many_partitions_there_are(world: TransactionWorld, /) -> None:
    assert world.coordinator.partition_count() == 1
    del world.metadata.leaders[STATE_PARTITION]
    world.metadata.changed()
    await asyncio.sleep(0.001)
    assert world.coordinator.partition_count() == 7


def test_what_happens_to_producers_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    async def test(world: TransactionWorld) -> None:
        await world.begun(world.add("a"))
        world.state.refusal = E.NOT_ENOUGH_REPLICAS
        assert (await world.init("other")).error is E.COORDINATOR_NOT_AVAILABLE
        await asyncio.sleep(61.5)
        world.state.refusal = None
        await asyncio.sleep(1)

    caplog.set_level("INFO", "kafka.coordinator.transaction")
    play(test, **{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"})
    messages = [message for message in caplog.messages if "llback" in message or "nit" in message]
    failed = "Rollback of ongoing transaction for transactionalId t failed due to error COORDINATOR_NOT_AVAILABLE"
    assert messages[:2] == [
        "Initialized transactionalId t with producerId 1000 and producer epoch 0 on partition __transaction_state-0",
        "InitProducerId of other is answered with COORDINATOR_NOT_AVAILABLE",
    ]
    assert failed in messages
    assert messages[-1] == "Completed rollback of ongoing transaction for transactionalId t due to timeout"


# -- time


@staged(play, **{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"})
async def test_a_transaction_that_nobody_ends_is_aborted(world: TransactionWorld, /) -> None:
    (a,) = world.add("a")
    assert (await world.init(timeout_ms=3_000)).error is E.NONE
    producer = ProducerIdAndEpoch(1000, 0)
    assert world.add_partitions(producer, [a]) == [E.NONE]
    await asyncio.sleep(2.9)
    assert world.found().state is S.ONGOING
    await asyncio.sleep(1.2)
    assert world.found().state is S.COMPLETE_ABORT
    assert world.led[a].markers == [(1000, 1, EndTransactionMarker(ABORT, 1))]
    assert world.end(producer) == [E.PRODUCER_FENCED]
    assert await world.init() == (E.NONE, 1000, 2)


@staged(play, **{"transaction.abort.timed.out.transaction.cleanup.interval.ms": "1000"})
async def test_a_time_out_whose_record_cannot_be_written_is_tried_again(world: TransactionWorld, /) -> None:
    await world.begun(world.add("a"))
    world.state.refusal = E.NOT_ENOUGH_REPLICAS
    await asyncio.sleep(65)
    assert world.found().state is S.ONGOING
    world.state.refusal = None
    await asyncio.sleep(2)
    assert world.found().state is S.COMPLETE_ABORT and world.found().producer_epoch == 1


EXPIRY: dict[str, Any] = {
    "transactional.id.expiration.ms": "10000",
    "transaction.remove.expired.transaction.cleanup.interval.ms": "1000",
}


@staged(play, **EXPIRY)
async def test_an_unused_id_is_forgotten_here_and_in_the_log(world: TransactionWorld, /) -> None:
    await world.init("unused")
    await world.begun(world.add("a"), "open")
    await asyncio.sleep(5)
    await world.init("used")
    await asyncio.sleep(6.5)
    assert world.coordinator.describe("unused") is E.TRANSACTIONAL_ID_NOT_FOUND
    assert world.found("open").state is S.ONGOING and world.found("used").producer_epoch == 0
    assert world.stored[-1] == ("unused", None)
    await world.move()
    assert world.coordinator.describe("unused") is E.TRANSACTIONAL_ID_NOT_FOUND
    assert await world.init("unused") == (E.NONE, 1003, 0)


@staged(play, **EXPIRY)
async def test_an_id_that_is_being_forgotten_is_given_to_nobody(world: TransactionWorld, /) -> None:
    await world.init()
    world.state.is_replicated_at_once = False
    await asyncio.sleep(12)
    assert (await world.init()).error is E.CONCURRENT_TRANSACTIONS
    world.replicate()
    world.state.is_replicated_at_once = True
    assert await world.init() == (E.NONE, 1001, 0)


@staged(play, **EXPIRY)
async def test_tombstones_are_written_in_batches_of_a_thousand(world: TransactionWorld, /) -> None:
    world.next_ids = iter(range(2_000))
    for number in range(1_001):
        await world.init(f"t{number}")
    await asyncio.sleep(12)
    counts = [header.record_count for _, header in iter_batches(world.state.log.data)]
    assert counts[-2:] == [1_000, 1]


@staged(play, **EXPIRY)
async def test_tombstones_of_long_ids_fit_into_a_message(world: TransactionWorld, /) -> None:
    """``max.message.bytes`` is 1 MB by default: the log would refuse more, each time anew."""
    world.next_ids = iter(range(2_000))
    for number in range(60):
        await world.init(f"{number:030000}")
    await asyncio.sleep(12)
    sizes = [header.size_bytes for _, header in iter_batches(world.state.log.data)]
    assert sum(sizes[-4:]) > 60 * 30_000 > sum(sizes[-3:])
    assert max(sizes) < 600_000


@staged(play, **EXPIRY)
async def test_an_id_that_cannot_be_forgotten_yet_stays_in_use(world: TransactionWorld, /) -> None:
    await world.init()
    world.state.refusal = E.NOT_ENOUGH_REPLICAS
    await asyncio.sleep(15)
    world.state.refusal = None
    assert (await world.init()).producer_epoch == 1


@staged(play, **EXPIRY | {"transaction.remove.expired.transaction.cleanup.interval.ms": "3600000"})
async def test_ids_that_expired_in_an_earlier_term_are_not_forgotten_in_this_one(world: TransactionWorld, /) -> None:
    await world.init()
    await asyncio.sleep(11)
    (earlier,) = world.coordinator.transactions.partitions()
    expired = list(earlier.states.values())
    world.resign()
    await world.lead()
    world.coordinator._forget(earlier, expired)
    assert world.stored == [("t", S.EMPTY)]


# -- operators


@staged(play)
async def test_operators_see_the_partitions_that_lack_their_marker(world: TransactionWorld, /) -> None:
    a, b = world.add("a", partitions=2)
    producer = await world.begun([a, b])
    assert world.found().partitions == {a, b}
    world.led[b].is_replicated_at_once = False
    world.end(producer)
    await asyncio.sleep(0)
    assert world.found().partitions == {b} and world.found().state is S.PREPARE_COMMIT
    listed = world.coordinator.list_transactions(states={S.PREPARE_COMMIT})
    assert listed == [world.found()]
    assert world.coordinator.list_transactions(producer_ids=[7]) == []
    assert world.coordinator.describe("") is E.INVALID_REQUEST
    assert world.coordinator.describe("nobody") is E.TRANSACTIONAL_ID_NOT_FOUND


@staged(play)
async def test_the_partition_of_an_id_is_kafkas(world: TransactionWorld, /) -> None:
    world.metadata.leaders = {TopicPartition("__transaction_state", index): HERE for index in range(50)}
    assert (
        world.coordinator.partition_for("my-transactional-id").partition == abs(_java_hash("my-transactional-id")) % 50
    )
    world.metadata.leaders = {}
    assert world.coordinator.partition_for("t") == STATE_PARTITION


def _java_hash(text: str) -> int:
    value = 0
    for character in text:
        value = (31 * value + ord(character)) & 0xFFFFFFFF
    return value - 2**32 if value >= 2**31 else value
