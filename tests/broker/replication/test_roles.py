"""What a partition keeps and forgets when its role changes, and which states come too late."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from event_loop import staged
from replicated_brokers import TP, World, world
from virtual_time import run_virtual

from engine.broker.replication.isr import IsrState
from engine.broker.replication.isr_updater import IsrOutcome
from engine.broker.replication.partition import Partition
from engine.broker.replication.roles import make_follower, make_leader, make_nothing
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import LeaderRecoveryState, TopicPartition
from engine.kafka.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState

MAX = 1 << 20


def state(leader: int, leader_epoch: int, partition_epoch: int, *isr: int) -> LeaderAndIsrPartitionState:
    return LeaderAndIsrPartitionState(
        partition_index=0,
        controller_epoch=1,
        leader=leader,
        leader_epoch=leader_epoch,
        isr=list(isr),
        partition_epoch=partition_epoch,
        replicas=[1, 2],
    )


def led(test: Callable[[World, Partition], Awaitable[None]], *, tmp_path: Path, **options: Any) -> None:
    """Run a test on a partition that broker 1 leads in leader epoch 2, partition epoch 2.

    Broker 2 is in the ISR and has the first record, which is committed. It does not have the second one.
    """

    async def run() -> None:
        async with world(tmp_path, 1, 2, **options) as w:
            for _ in range(3):
                await w.lead(1)
            w.produce(1, b"both have it")
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            w.produce(1, b"the leader has it")
            partition = w.partition(1)
            assert (partition.leader_epoch, partition.partition_epoch, w.log(1).high_watermark) == (2, 2, 1)
            await test(w, partition)

    run_virtual(run)


@pytest.mark.parametrize("leader", [1, 2])
@pytest.mark.parametrize(("partition_epoch", "is_applied"), [(1, False), (2, True), (3, True)])
@staged(led)
async def test_a_state_older_than_what_is_known_changes_nothing(
    w: World, partition: Partition, /, leader: int, partition_epoch: int, is_applied: bool
) -> None:
    """The answer to an ISR change may overtake the request that announces it."""
    make = make_leader if leader == 1 else make_follower
    before = partition.isr_state
    starts_fetching = make(partition, state(leader, 3, partition_epoch, 1), w.log(1))
    assert starts_fetching == (is_applied and leader == 2)
    known = (partition.leader_epoch, partition.partition_epoch, partition.is_leader, partition.leader_id)
    if is_applied:
        assert known == (3, partition_epoch, leader == 1, leader)
    else:
        assert known == (2, 2, True, 1)
        assert partition.isr_state is before


@staged(led)
async def test_one_leader_epoch_begins_once(w: World, partition: Partition, /) -> None:
    """A follower that has reached its start stays fit for the ISR, and what is known of it remains."""
    epochs, started = w.log(1).leader_epochs.entries, partition.leader_epoch_start_offset
    assert not make_leader(partition, state(1, 2, 3, 1), w.log(1))
    assert (partition.isr_state, partition.partition_epoch) == (IsrState.settled((1,)), 3)
    assert w.log(1).leader_epochs.entries == epochs
    assert partition.leader_epoch_start_offset == started == 0
    assert partition.followers[2].log_end_offset == 1


@staged(led)
async def test_a_new_leader_epoch_begins_at_the_logs_end(w: World, partition: Partition, /) -> None:
    assert not make_leader(partition, state(1, 3, 3, 1, 2), w.log(1))
    assert partition.leader_epoch_start_offset == 2
    assert w.log(1).leader_epochs.entries[-1] == (3, 2)
    assert partition.followers[2].log_end_offset == 1, "it led before, and knows its followers"


@staged(led)
async def test_with_the_isr_down_to_the_leader_all_it_has_is_committed(w: World, partition: Partition, /) -> None:
    make_leader(partition, state(1, 3, 3, 1), w.log(1))
    assert w.log(1).high_watermark == 2


@staged(led)
async def test_a_new_leader_trusts_the_isr_for_as_long_as_a_follower_may_lag(w: World, partition: Partition, /) -> None:
    """It does not know what any follower has. A replica outside the ISR must show that it has caught up."""
    new_leader = w.partition(2)
    await w.lead(2, isr=(1, 2), tell=(2,))
    assert new_leader.followers[1].log_end_offset == -1
    await w.let_pass(4_900)
    assert w.isr_updates == []
    await w.until(lambda: w.states[TP].isr == (2,), "1 has never asked", timeout_s=10)
    await w.lead(2, isr=(2,), tell=(2,))
    end = w.produce(2, b"alone")
    assert w.log(2).high_watermark == end, "1 holds nothing back"


@staged(led)
async def test_one_leader_is_followed_once_in_a_leader_epoch(w: World, partition: Partition, /) -> None:
    """Restarted fetching would cut the log once more, needlessly or to the high watermark."""
    assert make_follower(partition, state(2, 3, 3, 1, 2), w.log(1))
    assert not make_follower(partition, state(2, 3, 4, 1, 2), w.log(1))
    assert (partition.leader_id, partition.leader_epoch, partition.partition_epoch) == (2, 3, 4)


@pytest.mark.parametrize("outcome", [ErrorCode.UNKNOWN_SERVER_ERROR, ErrorCode.INELIGIBLE_REPLICA])
@staged(led)
async def test_who_leads_no_more_changes_no_isr(w: World, partition: Partition, /, outcome: ErrorCode) -> None:
    asked: list[Callable[[IsrOutcome], None]] = []
    w.submit = lambda _update, on_done, **_: asked.append(on_done)  # type: ignore[method-assign]
    await w.until(lambda: bool(asked), "the removal of 2 is asked for")
    assert make_follower(partition, state(2, 3, 3, 1, 2), w.log(1))
    assert (partition.isr, partition.followers, partition.is_leader) == ((), {}, False)
    assert (partition.leader_epoch_start_offset, partition.isr_state.is_pending) == (None, False)
    asked[0](outcome)
    await w.let_pass(20_000)
    assert (len(asked), partition.isr) == (1, ())


@staged(led)
async def test_a_replica_that_was_taken_away_has_nothing_for_anybody(w: World, partition: Partition, /) -> None:
    make_nothing(partition)
    for leader_only in (True, False):
        read = partition.read_records(0, MAX, leader_only=leader_only)
        assert (read.error, read.records) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, None)
    with pytest.raises(KafkaError, match="Leader not local"):
        w.produce(1, b"no")
    assert partition.check_enough_replicas_reach_offset(1) == (False, ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert (partition.isr, partition.followers, partition.leader_id) == ((), {}, None)


@pytest.mark.parametrize("role", ["leader", "follower", "none"])
@staged(led)
async def test_requests_that_wait_for_a_partition_are_looked_at_when_its_role_changes(
    w: World, partition: Partition, /, role: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    marked: list[TopicPartition] = []
    monkeypatch.setattr(partition.environment.wakeups, "mark", marked.append)
    if role == "leader":
        make_leader(partition, state(1, 3, 3, 1, 2), w.log(1))
    elif role == "follower":
        make_follower(partition, state(2, 3, 3, 1, 2), w.log(1))
    else:
        make_nothing(partition)
    assert TP in marked


def test_the_state_change_log_says_what_was_recovered_and_who_is_followed_anew(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    async def test(w: World, partition: Partition) -> None:
        caplog.clear()
        recovering = state(1, 3, 3, 1)
        recovering.leader_recovery_state = LeaderRecoveryState.RECOVERING
        make_leader(partition, state(1, 2, 2, 1, 2), w.log(1))
        assert "RECOVERING" not in caplog.text
        make_leader(partition, recovering, w.log(1))
        assert f"{TP} was marked as RECOVERING" in caplog.text
        caplog.clear()
        make_follower(partition, state(2, 4, 4, 1, 2), w.log(1))
        assert "starts at leader epoch 4" in caplog.text
        assert "Skipped" not in caplog.text
        caplog.clear()
        make_follower(partition, state(2, 4, 5, 1, 2), w.log(1))
        assert "Skipped the become-follower state change" in caplog.text
        assert "starts at leader epoch" not in caplog.text

    with caplog.at_level("INFO"):
        led(test, tmp_path=tmp_path)
