"""Who is in the ISR of a led partition, what holds back its high watermark, and which answers to a change count."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import pytest
from replicated_brokers import TP, world
from virtual_time import in_virtual_time

from engine.broker.replication import replica_manager
from engine.broker.replication.isr import IsrState
from engine.broker.replication.isr_updater import IsrOutcome, IsrUpdate
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.runtime import turns


@in_virtual_time
async def test_isr_shrinks_by_time_and_expands_when_caught_up(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"first")
        await w.until_equal(2)
        w.cut.add(frozenset((1, 2)))
        end = w.produce(1, b"second")
        await w.until(lambda: w.states[TP].isr == (1,), "2 leaves the ISR")
        assert w.partition(1).isr == (1,)
        assert w.partition(1).partition_epoch == w.states[TP].partition_epoch
        assert w.log(1).high_watermark == end, "nobody holds the high watermark back any more"
        w.cut.clear()
        await w.until(lambda: w.states[TP].isr == (1, 2), "2 comes back")
        await w.until_equal(2)
        assert w.log_bytes(1) == w.log_bytes(2)


@in_virtual_time
async def test_others_have_their_turns_while_very_many_isrs_shrink(tmp_path: Path) -> None:
    """A broker that is frozen falls out of all of them at once."""
    names = [TopicPartition(TP.topic, number) for number in range(3)]
    async with world(tmp_path, 1, 2) as w:
        for name in names:
            await w.lead(1, topic_partition=name)
        w.cut.add(frozenset((1, 2)))
        for name in names:
            w.produce(1, b"first", topic_partition=name)
        await w.let_pass(6_000)
        assert w.isr_updates == [], "the broker's own look comes later"
        asked = []
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(turns, "HOLD_MS_MAX", 0)
            shrinking = asyncio.create_task(w.brokers[1].replica_manager.shrink_isrs())
            while not shrinking.done():
                asked.append(len(w.isr_updates))
                await asyncio.sleep(0)
        assert set(asked) >= {0, 1, 2}
        await w.until(lambda: all(w.states[name].isr == (1,) for name in names), "2 leaves the ISRs")


@in_virtual_time
async def test_isrs_of_a_failed_log_dir_change_no_more(tmp_path: Path) -> None:
    """Its replicas end in turns. Alone in the ISR, this broker would confirm what only its failed disk has."""
    names = [TopicPartition(TP.topic, number) for number in range(3)]
    async with world(tmp_path, 1, 2) as w:
        manager, log_manager = w.brokers[1].replica_manager, w.brokers[1].log_manager
        for name in names:
            await w.lead(1, topic_partition=name)
        w.cut.add(frozenset((1, 2)))
        ends = [w.produce(1, b"first", topic_partition=name) for name in names]
        partitions = [w.partition(1, name) for name in names]
        await w.let_pass(6_000)
        asked: list[tuple[IsrUpdate, Callable[[IsrOutcome], None]]] = []
        with pytest.MonkeyPatch.context() as patches:
            patches.setattr(turns, "HOLD_MS_MAX", 0)
            patches.setattr(replica_manager, "ENDED_AT_ONCE", 1)
            patches.setattr(w, "submit", lambda update, on_done, **_: asked.append((update, on_done)))
            shrinking = asyncio.create_task(manager.shrink_isrs())
            while len(asked) < 2:
                await asyncio.sleep(0)
            log_dir = w.log(1).log_dir
            log_manager.fail_dir(log_dir, "the test pulled the disk", OSError(5, "I/O error"))
            manager.handle_log_dir_failure(log_dir)
            for update, on_done in asked:
                on_done(replace(update.leader_and_isr, partition_epoch=update.leader_and_isr.partition_epoch + 1))
            outcomes = [p.check_enough_replicas_reach_offset(end) for p, end in zip(partitions, ends, strict=True)]
            await shrinking
        assert outcomes == [(False, ErrorCode.NOT_LEADER_OR_FOLLOWER)] * 3
        assert [update.topic_partition for update, _ in asked] == names[:2]


@in_virtual_time
async def test_a_follower_at_the_end_stays_in_sync_however_long_nothing_comes(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"first")
        await w.until_equal(2)
        w.cut.add(frozenset((1, 2)))
        await w.let_pass(30_000)
        assert w.states[TP].isr == (1, 2)


@in_virtual_time
async def test_a_replica_that_may_be_in_the_isr_by_now_holds_the_high_watermark_back(tmp_path: Path) -> None:
    """Its addition was requested and nobody has answered yet: a controller that wrote it may elect it (KIP-497).

    Neither lag nor death of the replica changes that before the outcome is known.
    """
    async with world(tmp_path, 1, 2) as w:
        w.refuse_isr = ErrorCode.INVALID_UPDATE_VERSION
        await w.lead(1, isr=(1,), replicas=(1, 2))
        await w.until(lambda: w.partition(1).isr_state.is_pending, "the addition of 2 is asked for")
        w.cut.add(frozenset((1, 2)))
        await w.let_pass(20_000)
        w.alive.discard(2)
        w.brokers[1].replica_manager.update_metadata(w.update_metadata(), correlation_id=3)
        end = w.produce(1, b"2 does not have it")
        assert w.log(1).high_watermark == 0
        assert w.partition(1).check_enough_replicas_reach_offset(end) == (False, ErrorCode.NONE)
        await w.lead(1, isr=(1,))
        assert w.log(1).high_watermark == end, "now it is known that 2 was not added"


@in_virtual_time
async def test_a_replica_whose_addition_is_not_answered_makes_no_min_isr(tmp_path: Path) -> None:
    """If the addition were refused, records on a single replica would have been read as committed (KAFKA-15583)."""
    async with world(tmp_path, 1, 2, log_config=LogConfig(min_insync_replicas=2)) as w:
        w.refuse_isr = ErrorCode.INVALID_UPDATE_VERSION
        await w.lead(1, isr=(1,), replicas=(1, 2))
        end = w.produce(1, b"first")
        await w.until(lambda: w.partition(1).followers[2].log_end_offset == end, "2 has it")
        assert w.partition(1).isr_state.is_pending
        assert w.log(1).high_watermark == 0
        with pytest.raises(KafkaError, match="insufficient to satisfy"):
            w.produce(1, b"second", acks=-1)
        w.refuse_isr = None
        await w.lead(1, isr=(1, 2))
        await w.until_equal(2)
        assert w.log(1).high_watermark == end


@pytest.mark.parametrize("is_alive", [True, False])
@in_virtual_time
async def test_a_replica_that_has_caught_up_holds_the_high_watermark_back_if_it_may_join(
    tmp_path: Path, is_alive: bool
) -> None:
    """Otherwise an ISR of one would run away from it.

    A replica whose broker the controller holds for dead cannot join.
    """
    async with world(tmp_path, 1, 2) as w:
        w.refuse_isr = ErrorCode.INELIGIBLE_REPLICA
        if not is_alive:
            w.alive.discard(2)
        await w.lead(1, isr=(1,), replicas=(1, 2))
        w.produce(1, b"first")
        await w.until(lambda: w.partition(1).followers[2].log_end_offset == 1, "2 has caught up")
        w.cut.add(frozenset((1, 2)))
        await w.let_pass(100)
        assert w.partition(1).isr_state == IsrState.settled((1,))
        end = w.produce(1, b"second")
        assert w.log(1).high_watermark == (1 if is_alive else end)


@pytest.mark.parametrize("error", [ErrorCode.INELIGIBLE_REPLICA, ErrorCode.UNKNOWN_SERVER_ERROR])
@in_virtual_time
async def test_a_refused_shrink_is_tried_again(tmp_path: Path, error: ErrorCode) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"first")
        await w.until_equal(2)
        w.refuse_isr = error
        w.cut.add(frozenset((1, 2)))
        w.produce(1, b"second")
        await w.until(lambda: len(w.isr_updates) >= 3, "it is asked again")
        assert w.log(1).high_watermark == 1, "a shrink that is not committed does not count"
        w.refuse_isr = None
        await w.until(lambda: w.partition(1).isr == (1,), "2 leaves the ISR")


@in_virtual_time
async def test_a_fenced_isr_change_waits_for_the_controller(tmp_path: Path) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"first")
        await w.until_equal(2)
        w.refuse_isr = ErrorCode.INVALID_UPDATE_VERSION
        w.cut.add(frozenset((1, 2)))
        w.produce(1, b"second")
        await w.until(lambda: len(w.isr_updates) == 1, "it is asked")
        await w.let_pass(20_000)
        assert len(w.isr_updates) == 1
        assert w.partition(1).isr_state.is_pending
        w.refuse_isr = None
        await w.lead(1, isr=(1,))
        assert w.partition(1).isr == (1,)
        assert not w.partition(1).isr_state.is_pending


@pytest.mark.parametrize(
    ("leader_epoch_more", "partition_epoch_more", "is_taken"),
    [(0, 1, True), (0, 0, True), (0, -1, False), (1, 1, False), (-1, 1, False)],
)
@in_virtual_time
async def test_an_isr_is_taken_over_from_this_leadership_and_nothing_older(
    tmp_path: Path, leader_epoch_more: int, partition_epoch_more: int, is_taken: bool
) -> None:
    """An ISR of another leader epoch does not say who has this leader's records, nor does an outdated one."""
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        await w.lead(1)
        w.produce(1, b"first")
        await w.until_equal(2)
        asked: list[tuple[IsrUpdate, Callable[[IsrOutcome], None]]] = []
        w.submit = lambda update, on_done, **_: asked.append((update, on_done))  # type: ignore[method-assign]
        w.cut.add(frozenset((1, 2)))
        end = w.produce(1, b"second")
        await w.until(lambda: bool(asked), "the removal of 2 is asked for")
        partition = w.partition(1)
        pending, known = partition.isr_state, partition.partition_epoch
        ((update, on_done),) = asked
        wanted = update.leader_and_isr
        leader_epoch = wanted.leader_epoch + leader_epoch_more
        on_done(replace(wanted, leader_epoch=leader_epoch, partition_epoch=known + partition_epoch_more))
        if is_taken:
            assert partition.isr_state == IsrState.settled((1,))
            assert (partition.partition_epoch, w.log(1).high_watermark) == (known + partition_epoch_more, end)
        else:
            assert partition.isr_state is pending
            assert (partition.partition_epoch, w.log(1).high_watermark) == (known, end - 1)


@in_virtual_time
async def test_the_answer_to_an_isr_change_comes_too_late(tmp_path: Path) -> None:
    """A LeaderAndIsr request was faster, so its content holds."""
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        asked: list[tuple[IsrUpdate, Callable[[IsrOutcome], None]]] = []
        w.submit = lambda update, on_done, **_: asked.append((update, on_done))  # type: ignore[method-assign]
        w.cut.add(frozenset((1, 2)))
        w.produce(1, b"first")
        await w.until(lambda: bool(asked), "the removal of 2 is asked for")
        ((update, on_done),) = asked
        await w.lead(1, isr=(1,))
        partition = w.partition(1)
        known = partition.isr_state, partition.partition_epoch
        later = partition.partition_epoch + 1
        for outcome in (
            ErrorCode.INELIGIBLE_REPLICA,
            ErrorCode.UNKNOWN_SERVER_ERROR,
            replace(update.leader_and_isr, isr=(1, 2), partition_epoch=later),
            replace(update.leader_and_isr, isr=(1, 2), partition_epoch=later, leader_epoch=partition.leader_epoch),
        ):
            on_done(outcome)
            assert (partition.isr_state, partition.partition_epoch) == known == (IsrState.settled((1,)), later - 1)
        assert len(asked) == 1, "what was refused is not asked for again"
