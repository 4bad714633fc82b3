"""Changes the ISR of a led partition: when to ask, and how to react to the answer. The decisions are in ``isr``."""

from __future__ import annotations

import logging
from typing import Protocol

from engine.broker.log.log import Log
from engine.broker.replication.isr import (
    NEVER_MS,
    AlterReaction,
    FollowerState,
    IsrChange,
    IsrState,
    may_join_isr,
    out_of_sync_replicas,
    reaction_to,
)
from engine.broker.replication.isr_updater import IsrOutcome, IsrUpdate
from engine.broker.replication.partition_environment import PartitionEnvironment
from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr, TopicPartition

logger = logging.getLogger("kafka.cluster.Partition")


class LedPartition(Protocol):
    """What an ISR change needs from a partition. It sets ``isr_state`` and ``partition_epoch``."""

    topic_partition: TopicPartition
    environment: PartitionEnvironment
    leader_log: Log | None
    leader_epoch: int
    leader_epoch_start_offset: int | None
    controller_epoch: int
    followers: dict[int, FollowerState]
    isr_state: IsrState
    partition_epoch: int

    @property
    def topic_id(self) -> bytes: ...
    @property
    def isr(self) -> tuple[int, ...]: ...
    @property
    def is_under_min_isr(self) -> bool: ...

    def advance_high_watermark(self) -> bool: ...
    def changed(self) -> None: ...


def maybe_expand(partition: LedPartition, follower: FollowerState) -> None:
    """Request the addition of the follower if it has caught up."""
    log = partition.leader_log
    environment = partition.environment
    if log is None or not may_join_isr(
        partition.isr_state,
        follower,
        high_watermark=log.high_watermark,
        leader_epoch_start_offset=partition.leader_epoch_start_offset,
        is_eligible=environment.is_alive,
    ):
        return
    state = partition.isr_state.propose_expand(
        follower.broker_id,
        leader=environment.broker_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    _propose(partition, state)


def maybe_shrink(partition: LedPartition) -> None:
    """Request the removal of the members that have lagged too long."""
    log = partition.leader_log
    if log is None:
        return
    environment = partition.environment
    lagging = out_of_sync_replicas(
        partition.isr_state,
        partition.followers,
        leader=environment.broker_id,
        leader_end_offset=log.log_end_offset,
        now_ms=environment.clock.monotonic_ms(),
        lag_ms_max=environment.replica_lag_time_max_ms,
    )
    if not lagging:
        return
    _log_shrink(partition, log, lagging)
    state = partition.isr_state.propose_shrink(
        lagging,
        leader=environment.broker_id,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
    )
    _propose(partition, state)


def _propose(partition: LedPartition, state: IsrState) -> None:
    partition.isr_state = state
    partition.changed()
    _submit(partition, state, is_retry=False)


def _submit(partition: LedPartition, state: IsrState, *, is_retry: bool) -> None:
    assert state.proposed is not None
    update = IsrUpdate(partition.topic_partition, partition.topic_id, state.proposed, partition.controller_epoch)

    def on_done(outcome: IsrOutcome) -> None:
        _settle(partition, state, outcome)

    partition.environment.isr_updater.submit(update, on_done, is_retry=is_retry)


def _settle(partition: LedPartition, proposed: IsrState, outcome: IsrOutcome) -> None:
    if partition.isr_state is not proposed:
        # A LeaderAndIsr request has overtaken the answer: its state holds.
        return
    if isinstance(outcome, LeaderAndIsr):
        _accept(partition, proposed, outcome)
        return
    partition.environment.statistics.failed_updates_total += 1
    _refused(partition, proposed, outcome)


def _accept(partition: LedPartition, proposed: IsrState, outcome: LeaderAndIsr) -> None:
    statistics = partition.environment.statistics
    if outcome.leader_epoch != partition.leader_epoch or outcome.partition_epoch < partition.partition_epoch:
        statistics.failed_updates_total += 1
        return
    partition.isr_state = IsrState.settled(outcome.isr, outcome.leader_recovery_state)
    partition.partition_epoch = outcome.partition_epoch
    logger.info(
        "[Partition %s broker=%d] ISR updated to %s %s and version updated to %d",
        partition.topic_partition,
        partition.environment.broker_id,
        ",".join(map(str, outcome.isr)),
        "(under-min-isr)" if partition.is_under_min_isr else "",
        partition.partition_epoch,
    )
    if proposed.pending is IsrChange.EXPAND:
        statistics.expands_total += 1
    else:
        statistics.shrinks_total += 1
    partition.advance_high_watermark()
    partition.changed()


def _refused(partition: LedPartition, proposed: IsrState, error: ErrorCode) -> None:
    where = f"[Partition {partition.topic_partition} broker={partition.environment.broker_id}] "
    assert proposed.proposed is not None
    wanted = ",".join(map(str, proposed.proposed.isr))
    match reaction_to(error):
        case AlterReaction.REVERT:
            partition.isr_state = proposed.reverted()
            logger.info(
                "%sFailed to alter partition to ISR %s since the controller rejected the request with %s. Partition "
                "state has been reset to the latest committed ISR %s.",
                where,
                wanted,
                error.name,
                ",".join(map(str, proposed.committed)),
            )
            partition.changed()
        case AlterReaction.AWAIT_METADATA:
            logger.debug(
                "%sFailed to alter partition to ISR %s (%s). Awaiting the latest metadata.", where, wanted, error.name
            )
        case AlterReaction.RETRY:
            logger.warning("%sFailed to update ISR to %s due to unexpected %s. Retrying.", where, wanted, error.name)
            _submit(partition, proposed, is_retry=True)


def _log_shrink(partition: LedPartition, log: Log, lagging: tuple[int, ...]) -> None:
    clock = partition.environment.clock
    wall_minus_monotonic_ms = clock.now_ms() - clock.monotonic_ms()
    replicas = []
    for broker_id in lagging:
        follower = partition.followers.get(broker_id)
        if follower is None:
            replicas.append(f"(brokerId: {broker_id}, endOffset: unknown, lastCaughtUpTimeMs: unknown)")
            continue
        is_never = follower.last_caught_up_ms == NEVER_MS
        caught_up_ms = 0 if is_never else follower.last_caught_up_ms + wall_minus_monotonic_ms
        replicas.append(
            f"(brokerId: {broker_id}, endOffset: {follower.log_end_offset}, lastCaughtUpTimeMs: {caught_up_ms})"
        )
    logger.info(
        "[Partition %s broker=%d] Shrinking ISR from %s to %s. Leader: (highWatermark: %d, endOffset: %d). "
        "Out of sync replicas: %s.",
        partition.topic_partition,
        partition.environment.broker_id,
        ",".join(map(str, partition.isr)),
        ",".join(str(r) for r in partition.isr if r not in lagging),
        log.high_watermark,
        log.log_end_offset,
        " ".join(replicas),
    )
