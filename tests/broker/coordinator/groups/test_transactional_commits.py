"""Offsets that a transaction commits: they count once it is committed, and never if they could not be written."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_world import OFFSETS_PARTITION, READ, CoordinatorWorld, with_leader
from event_loop import staged

from engine.broker.coordinator.groups.commit_form import CommittedOffset, Committer
from engine.broker.coordinator.groups.commit_gathering import CommitErrors
from engine.common.errors import ErrorCode as E
from engine.kafka.formats.control_records import ControlRecordType, EndTransactionMarker, encode_end_transaction_batch

PRODUCER = 7
NOBODY = Committer()


def commit(
    world: CoordinatorWorld, offset: int, *, committer: Committer = NOBODY, metadata: str = ""
) -> list[tuple[E, CommitErrors]]:
    """Commit an offset of group g in the producer's transaction; the list gets the answer as soon as there is one."""
    answers: list[tuple[E, CommitErrors]] = []
    world.coordinator.offsets.commit_in_transaction(
        "g",
        committer,
        {READ: CommittedOffset(offset, commit_timestamp_ms=world.clock.now_ms(), metadata=metadata)},
        lambda error, refused: answers.append((error, refused)),
        producer_id=PRODUCER,
        producer_epoch=0,
    )
    return answers


def end(world: CoordinatorWorld, *, is_commit: bool = True) -> None:
    world.coordinator.offsets.end_transaction(0, PRODUCER, is_commit)


def is_unstable(world: CoordinatorWorld) -> bool:
    return world.coordinator.offsets.fetch("g", [READ], require_stable=True)[1][READ] is E.UNSTABLE_OFFSET_COMMIT


@pytest.mark.parametrize("is_commit", [True, False])
@pytest.mark.parametrize("moves", [False, True])
@staged(with_leader)
async def test_they_count_once_the_transaction_is_committed(
    world: CoordinatorWorld, /, is_commit: bool, moves: bool
) -> None:
    """Also where another coordinator has taken over meanwhile, and found them in the log."""
    assert commit(world, 5) == [(E.NONE, {})]
    if moves:
        await world.move()
    assert (world.committed("g"), is_unstable(world)) == (None, True)
    end(world, is_commit=is_commit)
    assert (world.committed("g"), is_unstable(world)) == (5 if is_commit else None, False)


@staged(with_leader, **{"offsets.retention.minutes": "1", "offsets.retention.check.interval.ms": "1000"})
async def test_what_expires_meanwhile_takes_no_committed_offset_along(world: CoordinatorWorld, /) -> None:
    """A tombstone that comes after the transaction's record would win when the next coordinator reads the log."""
    world.commit("g", 1)
    await asyncio.sleep(50)
    assert commit(world, 5) == [(E.NONE, {})]
    await asyncio.sleep(30)
    marker = EndTransactionMarker(ControlRecordType.COMMIT, 0)
    batch = encode_end_transaction_batch(
        marker, producer_id=PRODUCER, producer_epoch=0, timestamp_ms=world.clock.now_ms()
    )
    world.partition.log.append(batch)
    end(world)
    assert world.committed("g") == 5
    await world.move()
    assert world.committed("g") == 5


@staged(with_leader)
async def test_they_win_over_a_commit_that_came_just_before(world: CoordinatorWorld, /) -> None:
    """Commits wait for the next turn of the event loop, and these do not. The later one in the log wins."""
    world.commit("g", 4, is_alone=False)
    assert commit(world, 5) == [(E.NONE, {})]
    end(world)
    await asyncio.sleep(0)
    assert world.committed("g") == 5


@staged(with_leader)
async def test_whoever_goes_on_after_a_commit_that_came_just_before_may_change_what_they_are_for(
    world: CoordinatorWorld, /
) -> None:
    """The answer to that commit lets a connection handle what has waited there, at once."""

    def go_on(error: E, refused: CommitErrors) -> None:
        world.coordinator.groups.replicas_stopped([OFFSETS_PARTITION])

    world.coordinator.offsets.commit("g", NOBODY, {READ: CommittedOffset(4)}, go_on)
    assert commit(world, 5) == [(E.NOT_COORDINATOR, {})]


@staged(with_leader)
async def test_a_coordinator_that_has_resigned_knows_of_no_transaction(world: CoordinatorWorld, /) -> None:
    """When it leads again, only the log says which transactions are open."""
    commit(world, 5)
    world.resign()
    assert commit(world, 6) == [(E.NOT_COORDINATOR, {})]
    assert world.coordinator.offsets._transactions == {}
    world.partition.log.truncate_to(0)
    await world.lead()
    end(world)
    assert world.committed("g") is None


@pytest.mark.parametrize("is_refused_at_once", [True, False])
@staged(with_leader)
async def test_what_could_not_be_written_never_counts(world: CoordinatorWorld, /, is_refused_at_once: bool) -> None:
    if is_refused_at_once:
        world.partition.refusal = E.NOT_ENOUGH_REPLICAS
        answer = commit(world, 5)
        world.partition.refusal = None
    else:
        world.partition.is_replicated_at_once = False
        answer = commit(world, 5)
        assert (answer, is_unstable(world)) == ([], True)
        world.partition.is_leader = False
        world.wake()
        world.partition.is_leader = True
    assert answer == [(E.COORDINATOR_NOT_AVAILABLE if is_refused_at_once else E.NOT_COORDINATOR, {})]
    assert not is_unstable(world), "a reader of stable offsets would wait forever"
    assert not any(world.coordinator.offsets._transactions.values()), "nothing is left to end"
    end(world)
    assert world.committed("g") is None


@staged(with_leader)
async def test_a_failed_commit_leaves_the_transactions_of_others_alone(world: CoordinatorWorld, /) -> None:
    world.partition.refusal = E.NOT_ENOUGH_REPLICAS
    commit(world, 5)
    world.partition.refusal = None
    assert commit(world, 6) == [(E.NONE, {})]
    end(world)
    assert world.committed("g") == 6


@staged(with_leader)
async def test_a_commit_of_another_generation_or_of_too_long_a_text_writes_nothing(world: CoordinatorWorld, /) -> None:
    assert commit(world, 5, committer=Committer(generation_id=3, member_id="m")) == [(E.UNKNOWN_MEMBER_ID, {})]
    assert commit(world, 5, metadata="x" * 5000) == [(E.NONE, {READ: E.OFFSET_METADATA_TOO_LARGE})]
    assert (world.partition.log.log_end_offset, is_unstable(world)) == (0, False)
    end(world)
    assert world.committed("g") is None
