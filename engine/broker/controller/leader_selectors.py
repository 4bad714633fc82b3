"""The five leader selectors: who leads a partition, with which ISR, and which brokers are notified. Pure functions.

===================  ==========================================  ===========================  ==================
selector             leader                                      new ISR                      told
===================  ==========================================  ===========================  ==================
NoOp                 as it is, epoch not raised                  as it is                     all replicas
Offline              first replica that lives and is in the ISR; live members of the ISR;     live replicas
                     unclean: first replica that lives           unclean: the leader alone
Reassigned           first target replica that lives and is in   as it is                     target replicas
                     the ISR
PreferredReplica     the first replica, if it lives and is in    as it is                     all replicas
                     the ISR
ControlledShutdown   first replica that lives, is in the ISR     ISR without those shutting   live replicas and
                     and is not shutting down                    down                         those shutting down
===================  ==========================================  ===========================  ==================

"First" is by the order of the assignment, never by the order of the ISR.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from enum import Enum

from engine.broker.controller.context import ControllerContext
from engine.common.model import LeaderAndIsr, LeaderRecoveryState, TopicPartition


class ElectionKind(Enum):
    """Why a leader is elected. The values are the names of Kafka's strategies in its logs."""

    OFFLINE = "OfflinePartitionLeaderElectionStrategy"
    REASSIGN = "ReassignPartitionLeaderElectionStrategy"
    PREFERRED = "PreferredReplicaPartitionLeaderElectionStrategy"
    CONTROLLED_SHUTDOWN = "ControlledShutdownPartitionLeaderElectionStrategy"


@dataclass(frozen=True, slots=True)
class ElectionStrategy:
    """A selector; ``allow_unclean`` only matters for OFFLINE."""

    kind: ElectionKind
    allow_unclean: bool = False

    def __str__(self) -> str:
        allowed = f"({str(self.allow_unclean).lower()})" if self.kind is ElectionKind.OFFLINE else ""
        return f"{self.kind.value}{allowed}"


OFFLINE_ELECTION = ElectionStrategy(ElectionKind.OFFLINE)
UNCLEAN_ELECTION = ElectionStrategy(ElectionKind.OFFLINE, allow_unclean=True)
REASSIGN_ELECTION = ElectionStrategy(ElectionKind.REASSIGN)
PREFERRED_ELECTION = ElectionStrategy(ElectionKind.PREFERRED)
CONTROLLED_SHUTDOWN_ELECTION = ElectionStrategy(ElectionKind.CONTROLLED_SHUTDOWN)


@dataclass(frozen=True, slots=True)
class Elected:
    """Result of one election: the state to write, None if no replica can lead, and the brokers to notify."""

    state: LeaderAndIsr | None
    recipients: tuple[int, ...]


def offline_leader(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int], *, unclean: bool
) -> int | None:
    """The first live replica in the ISR; if there is none and ``unclean`` is set, the first live one."""
    in_sync = next((r for r in assignment if r in live and r in isr), None)
    if in_sync is None and unclean:
        return next((r for r in assignment if r in live), None)
    return in_sync


def reassigned_leader(target: Sequence[int], isr: Collection[int], live: Collection[int]) -> int | None:
    """The first target replica that is alive and in the ISR."""
    return next((r for r in target if r in live and r in isr), None)


def preferred_leader(assignment: Sequence[int], isr: Collection[int], live: Collection[int]) -> int | None:
    """The preferred replica, if it is alive and in the ISR."""
    return next((r for r in assignment[:1] if r in live and r in isr), None)


def controlled_shutdown_leader(
    assignment: Sequence[int], isr: Collection[int], live: Collection[int], shutting_down: Collection[int]
) -> int | None:
    """The first replica that is alive, in the ISR and not shutting down."""
    return next((r for r in assignment if r in live and r in isr and r not in shutting_down), None)


def new_leader(state: LeaderAndIsr, leader: int, isr: tuple[int, ...] | None = None) -> LeaderAndIsr:
    """Return ``state`` with another leader, optionally another ISR, and the leader epoch raised by one."""
    return LeaderAndIsr(
        leader=leader,
        leader_epoch=state.leader_epoch + 1,
        isr=state.isr if isr is None else isr,
        leader_recovery_state=state.leader_recovery_state,
        partition_epoch=state.partition_epoch,
    )


def elect(
    context: ControllerContext,
    partition: TopicPartition,
    state: LeaderAndIsr,
    strategy: ElectionStrategy,
    *,
    is_leader_recovery_supported: bool = True,
) -> Elected:
    """Elect a leader for a partition whose current state is ``state``."""
    match strategy.kind:
        case ElectionKind.OFFLINE:
            return _elect_offline(context, partition, state, strategy.allow_unclean, is_leader_recovery_supported)
        case ElectionKind.REASSIGN:
            target = context.full_assignment(partition).target_replicas
            return _same_isr(state, reassigned_leader(target, state.isr, _live(context, partition, target)), target)
        case ElectionKind.PREFERRED:
            replicas = context.replicas(partition)
            leader = preferred_leader(replicas, state.isr, _live(context, partition, replicas))
            return _same_isr(state, leader, replicas)
        case ElectionKind.CONTROLLED_SHUTDOWN:
            return _elect_for_shutdown(context, partition, state)


def _live(context: ControllerContext, partition: TopicPartition, replicas: Sequence[int]) -> tuple[int, ...]:
    return tuple(r for r in replicas if context.is_replica_online(r, partition))


def _same_isr(state: LeaderAndIsr, leader: int | None, recipients: tuple[int, ...]) -> Elected:
    return Elected(None if leader is None else new_leader(state, leader), recipients)


def _elect_offline(
    context: ControllerContext,
    partition: TopicPartition,
    state: LeaderAndIsr,
    unclean: bool,
    is_leader_recovery_supported: bool,
) -> Elected:
    replicas = context.replicas(partition)
    live = _live(context, partition, replicas)
    leader = offline_leader(replicas, state.isr, live, unclean=unclean)
    if leader is None:
        return Elected(None, live)
    if leader in state.isr:
        isr = tuple(r for r in state.isr if context.is_replica_online(r, partition))
        return Elected(new_leader(state, leader, isr), live)
    recovery = LeaderRecoveryState.RECOVERING if is_leader_recovery_supported else state.leader_recovery_state
    elected = LeaderAndIsr(leader, state.leader_epoch + 1, (leader,), recovery, state.partition_epoch)
    return Elected(elected, live)


def _elect_for_shutdown(context: ControllerContext, partition: TopicPartition, state: LeaderAndIsr) -> Elected:
    replicas = context.replicas(partition)
    shutting_down = context.shutting_down_broker_ids
    live = tuple(r for r in replicas if context.is_replica_online(r, partition, include_shutting_down=True))
    leader = controlled_shutdown_leader(replicas, state.isr, live, shutting_down)
    if leader is None:
        return Elected(None, live)
    isr = tuple(r for r in state.isr if r not in shutting_down)
    return Elected(new_leader(state, leader, isr), live)
