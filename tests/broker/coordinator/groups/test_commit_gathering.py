"""Commits of one turn of the event loop share one batch, and each is answered as if it were alone."""

from __future__ import annotations

import asyncio

import pytest
from coordinator_world import OFFSETS_PARTITION, READ, CoordinatorWorld, with_leader
from event_loop import staged
from virtual_time import in_virtual_time

from engine.broker.coordinator.groups.commit_form import CommittedOffset, Committer
from engine.broker.coordinator.groups.commit_gathering import Commit, FormedCommit, GatheredCommits
from engine.broker.log.append_origin import OwnBatch
from engine.common.errors import ErrorCode as E
from engine.common.model import TopicPartition
from engine.common.turns import at_once
from engine.kafka.protocol.records.header import iter_batches


def record_counts(world: CoordinatorWorld) -> list[int]:
    """Return how many records each batch of the log has."""
    return [header.record_count for _, header in iter_batches(world.partition.log.data)]


@staged(with_leader)
async def test_commits_of_one_turn_are_one_batch(world: CoordinatorWorld, /) -> None:
    answers = [world.commit(group, number, is_alone=False) for number, group in enumerate("abca")]
    assert (answers, record_counts(world)) == ([[]] * 4, []), "nothing is written before the loop comes round"
    await asyncio.sleep(0)
    assert (answers, record_counts(world)) == ([[E.NONE]] * 4, [4])
    assert [world.committed(group) for group in "abc"] == [3, 1, 2], "of one group the later one counts"
    world.commit("a", 9, is_alone=False)
    await asyncio.sleep(0)
    assert record_counts(world) == [4, 1]
    await world.move()
    assert [world.committed(group) for group in "abc"] == [9, 1, 2]


@staged(with_leader)
async def test_they_are_invisible_until_they_are_replicated(world: CoordinatorWorld, /) -> None:
    world.partition.is_replicated_at_once = False
    answers = [world.commit(group, 7, is_alone=False) for group in "ab"]
    await asyncio.sleep(0)
    assert (answers, world.committed("a"), record_counts(world)) == ([[], []], None, [2])
    world.replicate()
    assert (answers, world.committed("a"), world.committed("b")) == ([[E.NONE], [E.NONE]], 7, 7)


@pytest.mark.parametrize("fails", [False, True])
@staged(with_leader)
async def test_nothing_is_unstable_once_its_commit_has_ended(world: CoordinatorWorld, /, fails: bool) -> None:
    """Otherwise a reader that wants stable offsets would wait forever."""

    def read() -> CommittedOffset | E | None:
        return world.coordinator.offsets.fetch("a", [READ], require_stable=True)[1][READ]

    world.partition.is_replicated_at_once = False
    answers = [world.commit(group, 7, is_alone=False) for group in "ab"]
    await asyncio.sleep(0)
    assert read() is E.UNSTABLE_OFFSET_COMMIT
    if fails:
        world.partition.is_leader = False
        world.wake()
        world.partition.is_leader = True
    else:
        world.replicate()
    assert answers == [[E.NOT_COORDINATOR if fails else E.NONE]] * 2
    assert read() is not E.UNSTABLE_OFFSET_COMMIT
    assert world.committed("a") == (None if fails else 7)


@staged(with_leader)
async def test_a_commit_that_is_deleted_before_it_is_replicated_does_not_come_back(world: CoordinatorWorld, /) -> None:
    world.partition.is_replicated_at_once = False
    answer = world.commit("a", 7, is_alone=False)
    await asyncio.sleep(0)
    await world.coordinator.offsets.partitions_deleted([READ])
    world.replicate()
    assert (answer, world.committed("a")) == ([E.NONE], None)


@pytest.mark.parametrize("texts", [["", "x" * 500], ["x" * 500, ""]])
@staged(with_leader)
async def test_of_two_commits_the_one_that_fits_is_written(world: CoordinatorWorld, /, texts: list[str]) -> None:
    world.partition.batch_bytes_max = 400
    answers = [world.commit(g, 7, metadata=t, is_alone=False) for g, t in zip("ab", texts, strict=True)]
    await asyncio.sleep(0)
    assert answers == [[E.INVALID_COMMIT_OFFSET_SIZE if text else E.NONE] for text in texts]
    assert [world.committed(group) for group in "ab"] == [None if text else 7 for text in texts]


@staged(with_leader)
async def test_of_two_commits_the_one_that_a_record_can_hold_is_written(world: CoordinatorWorld, /) -> None:
    answers = [world.commit(g, number, is_alone=False) for g, number in (("a", 7), ("b", 2**63))]
    await asyncio.sleep(0)
    assert answers == [[E.NONE], [E.UNKNOWN_SERVER_ERROR]]
    assert world.committed("a") == 7


@pytest.mark.parametrize(
    ("order", "counts", "made"),
    [("apb", [1, 2, 1], [["a"], ["b"]]), ("pab", [2, 2], [["a", "b"]]), ("abp", [2, 2], [["a", "b"]]), ("p", [2], [])],
)
@staged(with_leader)
async def test_a_commit_whose_batch_is_made_already_is_written_as_it_is_in_its_turn(
    world: CoordinatorWorld, /, monkeypatch: pytest.MonkeyPatch, order: str, counts: list[int], made: list[list[str]]
) -> None:
    """It was made in a thread because it takes long; the later of two commits counts, so that the order stays."""
    seen: list[list[str]] = []
    batch_of = GatheredCommits._batch_of

    def noted(self: GatheredCommits, commits: list[Commit | FormedCommit]) -> tuple[memoryview, OwnBatch | None]:
        if commits[0].batch is None:
            seen.append([commit.group.group_id for commit in commits])
        return batch_of(self, commits)

    requests = world.coordinator.offsets
    both = {partition: CommittedOffset(5) for partition in (READ, TopicPartition("read", 1))}
    prepared = requests.prepare("p", both)
    monkeypatch.setattr(GatheredCommits, "_batch_of", noted)
    answers: list[E] = []
    for group in order:
        if group == "p":
            requests.commit("p", Committer(), both, lambda error, _: answers.append(error), prepared)
        else:
            world.commit(group, 7, is_alone=False)
    await asyncio.sleep(0)
    assert (answers, record_counts(world), seen) == ([E.NONE], counts, made)
    assert [world.committed(group) for group in order] == [5 if group == "p" else 7 for group in order]


@staged(with_leader)
async def test_a_commit_of_a_generation_to_a_group_that_is_not_there_is_refused(world: CoordinatorWorld, /) -> None:
    answers: list[E] = []
    for generation_id in (0, 1):
        world.coordinator.offsets.commit(
            "nosuch", Committer("", generation_id), {READ: CommittedOffset(1)}, lambda e, _: answers.append(e)
        )
    await asyncio.sleep(0)
    assert (answers, record_counts(world)) == ([E.ILLEGAL_GENERATION] * 2, [])


@staged(with_leader)
async def test_metadata_that_is_too_long_is_refused_alone(world: CoordinatorWorld, /) -> None:
    other = TopicPartition("other", 0)
    offsets = {READ: CommittedOffset(1, metadata="x" * 4097), other: CommittedOffset(2, metadata="x" * 4096)}
    said: list[tuple[E, dict[TopicPartition, E]]] = []
    world.coordinator.offsets.commit("g", Committer(), offsets, lambda error, by: said.append((error, by)))
    await asyncio.sleep(0)
    assert said == [(E.NONE, {READ: E.OFFSET_METADATA_TOO_LARGE})]
    assert (world.committed("g"), world.committed("g", other)) == (None, 2)


@staged(with_leader)
async def test_what_is_too_large_is_refused_alone(world: CoordinatorWorld, /) -> None:
    world.partition.batch_bytes_max = 400
    texts = ["", "x" * 500, "x" * 200, ""]
    answers = [world.commit(g, 7, metadata=t, is_alone=False) for g, t in zip("abcd", texts, strict=True)]
    await asyncio.sleep(0)
    assert answers == [[E.NONE], [E.INVALID_COMMIT_OFFSET_SIZE], [E.NONE], [E.NONE]]
    assert [world.committed(group) for group in "abcd"] == [7, None, 7, 7]


@staged(with_leader)
async def test_what_no_record_can_hold_is_refused_alone(world: CoordinatorWorld, /) -> None:
    answers = [world.commit(g, number, is_alone=False) for g, number in (("a", 7), ("b", 2**63), ("c", 8))]
    await asyncio.sleep(0)
    assert answers == [[E.NONE], [E.UNKNOWN_SERVER_ERROR], [E.NONE]]
    assert [world.committed(group) for group in "abc"] == [7, None, 8]


@staged(with_leader)
async def test_many_offsets_are_more_than_one_batch(world: CoordinatorWorld, /) -> None:
    answers: list[E] = []
    for group in "abc":
        offsets = {TopicPartition("read", p): CommittedOffset(p) for p in range(600)}
        world.coordinator.offsets.commit(group, Committer(), offsets, lambda error, _: answers.append(error))
    await asyncio.sleep(0)
    assert (answers, record_counts(world)) == ([E.NONE] * 3, [1200, 600])


@pytest.mark.parametrize("how", ["offsets", "group", "topic"])
@staged(with_leader)
async def test_a_removal_comes_after_the_commits_before_it(world: CoordinatorWorld, /, how: str) -> None:
    offsets = world.coordinator.offsets
    answer = world.commit("g", 7, is_alone=False)
    other = world.commit("h", 8, partition=TopicPartition("other", 0), is_alone=False)
    if how == "offsets":
        assert offsets.delete("g", [READ]) == (E.NONE, {READ: E.NONE})
    elif how == "group":
        assert at_once(world.coordinator.delete_group("g")) is E.NONE
    else:
        await offsets.partitions_deleted([READ])
    assert (answer, other) == ([E.NONE], [E.NONE])
    assert world.committed("g") is None
    await world.move()
    assert world.committed("g") is None
    assert world.committed("h", TopicPartition("other", 0)) == 8


@staged(with_leader)
async def test_a_coordinator_that_gives_up_refuses_what_waits(world: CoordinatorWorld, /) -> None:
    answers = [world.commit(group, 7, is_alone=False) for group in "ab"]
    world.resign()
    assert (answers, record_counts(world)) == ([[E.NOT_COORDINATOR]] * 2, [])
    await asyncio.sleep(0)
    await world.lead()
    assert (world.committed("a"), world.committed("b")) == (None, None)


@in_virtual_time
async def test_a_commit_that_waits_outlives_the_expiry_of_the_one_before() -> None:
    world = CoordinatorWorld(**{"offsets.retention.minutes": "1"})
    await world.lead()
    world.commit("g", 7)
    await asyncio.sleep(61)
    answer = world.commit("g", 8, is_alone=False)
    await world.coordinator.offsets.expire()
    assert (answer, world.committed("g")) == ([E.NONE], 8)
    await world.move()
    assert world.committed("g") == 8
    await world.stop()


@staged(with_leader)
async def test_a_stranger_that_commits_to_a_group_is_refused(world: CoordinatorWorld, /) -> None:
    world.commit("g", 7)
    answers: list[E] = []
    committer = Committer("stranger", 1)
    world.coordinator.offsets.commit("g", committer, {READ: CommittedOffset(9)}, lambda e, _: answers.append(e))
    await asyncio.sleep(0)
    assert (answers, world.committed("g")) == ([E.UNKNOWN_MEMBER_ID], 7)


@pytest.mark.parametrize("is_prepared", [False, True])
@staged(with_leader)
async def test_a_commit_whose_batch_was_made_before_is_stored_as_any(
    world: CoordinatorWorld, /, is_prepared: bool
) -> None:
    """A batch of 200,000 offsets used to block everybody, so a thread makes it.

    Metadata that is too long is refused.
    """
    offsets = world.coordinator.offsets
    many = {TopicPartition("read", p): CommittedOffset(p, "long" * 2000 * (p == 7)) for p in range(1, 1500)}
    answers: list[tuple[E, int, E | None]] = []

    def done(error: E, refused: dict[TopicPartition, E]) -> None:
        answers.append((error, len(refused), refused.get(TopicPartition("read", 7))))

    prepared = offsets.prepare("a", many) if is_prepared else None
    before = world.commit("a", 5, is_alone=False)
    offsets.commit("a", Committer(), many, done, prepared)
    after = world.commit("b", 6, is_alone=False)
    await asyncio.sleep(0)
    assert (before, after, answers) == ([E.NONE], [E.NONE], [(E.NONE, 1, E.OFFSET_METADATA_TOO_LARGE)])
    assert record_counts(world) == ([1, 1498, 1] if is_prepared else [1499, 1])
    for _ in range(2):
        kept = {p: world.committed("a", TopicPartition("read", p)) for p in range(1500)}
        assert kept == {p: None if p == 7 else p for p in range(1500)} | {0: 5}
        assert world.committed("b") == 6
        await world.move()


@staged(with_leader)
async def test_a_batch_that_cannot_be_made_before_is_refused_when_it_is_committed(world: CoordinatorWorld, /) -> None:
    offsets = world.coordinator.offsets
    many = {READ: CommittedOffset(2**63)}
    prepared = offsets.prepare("a", many)
    assert prepared.batch is None
    answers: list[E] = []
    offsets.commit("a", Committer(), many, lambda error, _: answers.append(error), prepared)
    await asyncio.sleep(0)
    assert answers == [E.UNKNOWN_SERVER_ERROR]


@pytest.mark.parametrize("how", ["offsets", "group"])
@staged(with_leader)
async def test_a_removal_looks_at_the_group_after_the_commits_before_it(world: CoordinatorWorld, /, how: str) -> None:
    """The answer to a commit lets a connection handle what has waited there, at once: the group may change."""

    def go_on(error: E, refused: object) -> None:
        world.coordinator.groups.replicas_stopped([OFFSETS_PARTITION])

    world.coordinator.offsets.commit("g", Committer(), {READ: CommittedOffset(7)}, go_on)
    if how == "offsets":
        assert world.coordinator.offsets.delete("g", [READ]) == (E.NOT_COORDINATOR, {})
    else:
        assert at_once(world.coordinator.delete_group("g")) is E.NOT_COORDINATOR
