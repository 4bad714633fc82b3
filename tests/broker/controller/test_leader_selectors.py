"""The five leader selectors: Kafka's vectors, and whole elections on a context."""

from collections.abc import Iterable

import pytest
from fake_zookeeper import broker_info

from engine.broker.controller.context import ControllerContext
from engine.broker.controller.leader_selectors import (
    CONTROLLED_SHUTDOWN_ELECTION,
    OFFLINE_ELECTION,
    PREFERRED_ELECTION,
    REASSIGN_ELECTION,
    UNCLEAN_ELECTION,
    Elected,
    ElectionStrategy,
    controlled_shutdown_leader,
    elect,
    offline_leader,
    preferred_leader,
    reassigned_leader,
)
from engine.common.model import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    ReplicaAssignment,
    TopicPartition,
)

PARTITION = TopicPartition("t", 0)


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "unclean", "leader"),
    [
        ([2, 4], [2, 4], {4}, False, 4),
        ([2, 4], [2], {4}, False, None),
        ([2, 4], [2], {4}, True, 4),
        ([2, 4], [4, 2], {2, 4}, False, 2),
        ([2, 4], [2], set(), True, None),
        ([2, 4], [4], {2, 4}, True, 4),
    ],
)
def test_offline(assignment: list[int], isr: list[int], live: set[int], unclean: bool, leader: int | None) -> None:
    assert offline_leader(assignment, isr, live, unclean=unclean) == leader


@pytest.mark.parametrize(
    ("target", "isr", "live", "leader"),
    [([2, 4], [2, 4], {4}, 4), ([2, 4], [2], set(), None), ([4, 2], [2, 4], {2, 4}, 4), ([5], [2, 4], {2, 4, 5}, None)],
)
def test_reassigned(target: list[int], isr: list[int], live: set[int], leader: int | None) -> None:
    assert reassigned_leader(target, isr, live) == leader


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "leader"),
    [([2, 4], [2, 4], {2, 4}, 2), ([2, 4], [4], {2, 4}, None), ([2, 4], [2], set(), None), ([], [2], {2}, None)],
)
def test_preferred(assignment: list[int], isr: list[int], live: set[int], leader: int | None) -> None:
    assert preferred_leader(assignment, isr, live) == leader


@pytest.mark.parametrize(
    ("assignment", "isr", "live", "shutting_down", "leader"),
    [
        ([2, 4], [2, 4], {2, 4}, {2}, 4),
        ([2, 4], [2], {2, 4}, {2}, None),
        ([2, 4], [2, 4], {2, 4}, {2, 4}, None),
        ([4, 2, 6], [6, 2, 4], {2, 4, 6}, {4}, 2),
    ],
)
def test_controlled_shutdown(
    assignment: list[int], isr: list[int], live: set[int], shutting_down: set[int], leader: int | None
) -> None:
    assert controlled_shutdown_leader(assignment, isr, live, shutting_down) == leader


def context_of(replicas: ReplicaAssignment, live: set[int], shutting_down: Iterable[int] = ()) -> ControllerContext:
    context = ControllerContext()
    context.live_brokers = {b: broker_info(b, 7) for b in sorted(live)}
    context.shutting_down_broker_ids = set(shutting_down)
    context.update_assignment(PARTITION, replicas)
    return context


def state(leader: int, *isr: int, recovery: LeaderRecoveryState = LeaderRecoveryState.RECOVERED) -> LeaderAndIsr:
    return LeaderAndIsr(leader, 5, isr, recovery, 9)


def test_offline_election_drops_the_dead_from_the_isr_and_tells_the_living() -> None:
    context = context_of(ReplicaAssignment((1, 2, 3)), {2, 3})
    elected = elect(context, PARTITION, state(1, 3, 1, 2), OFFLINE_ELECTION)
    assert elected == Elected(LeaderAndIsr(2, 6, (3, 2), partition_epoch=9), (2, 3))


def test_a_replica_on_a_failed_dir_cannot_lead() -> None:
    context = context_of(ReplicaAssignment((1, 2)), {1, 2})
    context.replicas_on_offline_dirs[1] = {PARTITION}
    assert elect(context, PARTITION, state(1, 1, 2), OFFLINE_ELECTION).state == LeaderAndIsr(
        2, 6, (2,), partition_epoch=9
    )


@pytest.mark.parametrize(
    ("is_supported", "recovery"), [(True, LeaderRecoveryState.RECOVERING), (False, LeaderRecoveryState.RECOVERED)]
)
def test_an_unclean_leader_stands_alone_and_is_marked(is_supported: bool, recovery: LeaderRecoveryState) -> None:
    context = context_of(ReplicaAssignment((1, 2)), {2})
    assert elect(context, PARTITION, state(1, 1), OFFLINE_ELECTION).state is None
    elected = elect(context, PARTITION, state(1, 1), UNCLEAN_ELECTION, is_leader_recovery_supported=is_supported)
    assert elected.state == LeaderAndIsr(2, 6, (2,), recovery, 9)


def test_a_clean_election_keeps_the_recovery_state() -> None:
    context = context_of(ReplicaAssignment((1, 2)), {2})
    elected = elect(context, PARTITION, state(1, 1, 2, recovery=LeaderRecoveryState.RECOVERING), UNCLEAN_ELECTION)
    assert elected.state == LeaderAndIsr(2, 6, (2,), LeaderRecoveryState.RECOVERING, 9)


@pytest.mark.parametrize(
    ("strategy", "expected"),
    [
        (REASSIGN_ELECTION, Elected(LeaderAndIsr(3, 6, (1, 2, 3), partition_epoch=9), (3, 2))),
        (PREFERRED_ELECTION, Elected(LeaderAndIsr(3, 6, (1, 2, 3), partition_epoch=9), (3, 2, 1))),
    ],
)
def test_elections_that_keep_the_isr(strategy: ElectionStrategy, expected: Elected) -> None:
    context = context_of(ReplicaAssignment((3, 2, 1), (3,), (1,)), {1, 2, 3})
    assert elect(context, PARTITION, state(1, 1, 2, 3), strategy) == expected


def test_controlled_shutdown_takes_the_one_going_out_of_the_isr_and_still_tells_it() -> None:
    context = context_of(ReplicaAssignment((1, 2, 3)), {1, 2, 3}, {1})
    elected = elect(context, PARTITION, state(1, 1, 3), CONTROLLED_SHUTDOWN_ELECTION)
    assert elected == Elected(LeaderAndIsr(3, 6, (3,), partition_epoch=9), (1, 2, 3))


def test_names_in_the_log() -> None:
    assert str(OFFLINE_ELECTION) == "OfflinePartitionLeaderElectionStrategy(false)"
    assert str(UNCLEAN_ELECTION) == "OfflinePartitionLeaderElectionStrategy(true)"
    assert str(PREFERRED_ELECTION) == "PreferredReplicaPartitionLeaderElectionStrategy"


@pytest.mark.parametrize(
    ("replicas", "adding", "leader", "isr", "is_deleted", "is_imbalanced"),
    [
        ((1, 2), (), 1, (1, 2), False, False),
        ((1, 2), (), 2, (1, 2), False, True),
        ((1, 2), (), -1, (2,), False, True),
        ((1, 2), (), 2, (1, 2), True, False),
        ((3, 1, 2), (3,), 1, (1, 2), False, False),
        ((3, 1, 2), (3,), 1, (1, 2, 3), False, True),
        ((), (), 2, (2,), False, False),
    ],
)
def test_which_partitions_metrics_call_imbalanced(
    replicas: tuple[int, ...],
    adding: tuple[int, ...],
    leader: int,
    isr: tuple[int, ...],
    is_deleted: bool,
    is_imbalanced: bool,
) -> None:
    context = context_of(ReplicaAssignment(replicas, adding), {1, 2, 3})
    if is_deleted:
        context.topics_to_be_deleted[PARTITION.topic] = None
    leadership = LeaderIsrAndControllerEpoch(state(leader, *isr), 1)
    assert context.is_imbalanced(PARTITION, leadership) is is_imbalanced
