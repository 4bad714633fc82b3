"""Changes a partition's role: leader, follower, none.

The arguments are the state of a LeaderAndIsr request whose epochs have been checked, and the partition's log.
"""

from __future__ import annotations

from engine.broker.log.log import Log
from engine.broker.replication.isr import FollowerState, IsrState
from engine.broker.replication.partition import Partition
from engine.broker.replication.state_change_log import id_option, ids_text, partition_state_text, topic_id_option
from engine.common.model import LeaderRecoveryState, ReplicaAssignment
from engine.kafka.protocol.apis.leader_and_isr import LeaderAndIsrPartitionState


def make_leader(partition: Partition, state: LeaderAndIsrPartitionState, log: Log) -> bool:
    """Lead the partition from now on; return whether this broker did not lead it before.

    A state with an older partition epoch than the known one is ignored: the answer to an ISR change may have come
    before the request that announces it.
    """
    if _is_outdated(partition, state, log, "leader"):
        return False
    environment = partition.environment
    is_new_leader = not partition.is_leader
    is_new_leader_epoch = state.leader_epoch > partition.leader_epoch
    previous = (partition.leader_id, partition.leader_epoch)
    if state.leader_recovery_state == LeaderRecoveryState.RECOVERING:
        environment.state_change_log.info(
            f"The topic partition {partition.topic_partition} was marked as RECOVERING. "
            "Marking the topic partition as RECOVERED."
        )
    _take_over(partition, state, log)
    # Others copy what is here now: cut off later, it might be missing from a member of the ISR.
    log.gap = None
    partition.followers = {
        replica: partition.followers.get(replica) or FollowerState(replica)
        for replica in state.replicas
        if replica != environment.broker_id
    }
    partition.isr_state = IsrState.settled(state.isr)
    partition.leader_log = log
    partition.leader_id = environment.broker_id
    if is_new_leader_epoch:
        _begin_leader_epoch(partition, state, log, is_new_leader, previous)
    else:
        environment.state_change_log.info(
            f"Skipped the become-leader state change for {partition.topic_partition} with topic id "
            f"{topic_id_option(log.topic_id)} and partition state "
            f"{partition_state_text(partition.topic_partition, state)} since it is already the leader with leader "
            f"epoch {partition.leader_epoch}. Current high watermark {log.high_watermark}, ISR {ids_text(state.isr)}, "
            f"adding replicas {ids_text(state.adding_replicas)} and removing replicas "
            f"{ids_text(state.removing_replicas)}."
        )
    # The ISR may be down to this broker alone.
    partition.advance_high_watermark()
    partition.changed()
    return is_new_leader


def make_follower(partition: Partition, state: LeaderAndIsrPartitionState, log: Log) -> bool:
    """Follow ``state.leader`` from now on; return whether the leader epoch is new, so that fetching starts again."""
    if _is_outdated(partition, state, log, "follower"):
        return False
    environment = partition.environment
    is_new_leader_epoch = state.leader_epoch > partition.leader_epoch
    _take_over(partition, state, log)
    if log.gap is not None and not log.gap.is_of_crash and environment.broker_id in state.isr:
        # What follows may be promised. After a crash alone it is not: a flush would have brought all of it to the disk.
        log.gap = None
    partition.leader_log = None
    partition.leader_id = state.leader
    partition.leader_epoch = state.leader_epoch
    partition.leader_epoch_start_offset = None
    partition.followers = {}
    partition.isr_state = IsrState.settled((), LeaderRecoveryState(state.leader_recovery_state))
    if is_new_leader_epoch:
        # Kafka always names the current leader and epoch as the previous ones, and readers of these lines expect it.
        environment.state_change_log.info(
            f"Follower {partition.topic_partition} starts at leader epoch {state.leader_epoch} from offset "
            f"{log.log_end_offset} with partition epoch {state.partition_epoch} and high watermark "
            f"{log.high_watermark}. Current leader is {state.leader}. Previous leader "
            f"{id_option(partition.leader_id)} and previous leader epoch was {partition.leader_epoch}."
        )
    else:
        environment.state_change_log.info(
            f"Skipped the become-follower state change for {partition.topic_partition} with topic id "
            f"{topic_id_option(log.topic_id)} and partition state "
            f"{partition_state_text(partition.topic_partition, state)} since it is already a follower with leader "
            f"epoch {partition.leader_epoch}."
        )
    partition.changed()
    return is_new_leader_epoch


def make_nothing(partition: Partition) -> None:
    """Forget role, log and ISR, and wake waiting requests: the replica was deleted, or its log dir failed."""
    partition.log = partition.leader_log = partition.future_log = None
    partition.leader_id = None
    partition.leader_epoch_start_offset = None
    partition.followers = {}
    partition.assignment = ReplicaAssignment(())
    partition.isr_state = IsrState()
    partition.changed()


def _is_outdated(partition: Partition, state: LeaderAndIsrPartitionState, log: Log, role: str) -> bool:
    if state.partition_epoch >= partition.partition_epoch:
        return False
    partition.environment.state_change_log.info(
        f"Skipped the become-{role} state change for {partition.topic_partition} with topic id "
        f"{topic_id_option(log.topic_id)} and partition state "
        f"{partition_state_text(partition.topic_partition, state)} since the {role} is already at a newer partition "
        f"epoch {partition.partition_epoch}."
    )
    return True


def _take_over(partition: Partition, state: LeaderAndIsrPartitionState, log: Log) -> None:
    partition.log = log
    partition.controller_epoch = state.controller_epoch
    partition.partition_epoch = state.partition_epoch
    partition.assignment = ReplicaAssignment(
        tuple(state.replicas), tuple(state.adding_replicas), tuple(state.removing_replicas)
    )


def _begin_leader_epoch(
    partition: Partition,
    state: LeaderAndIsrPartitionState,
    log: Log,
    is_new_leader: bool,
    previous: tuple[int | None, int],
) -> None:
    start_offset = log.log_end_offset
    environment = partition.environment
    environment.state_change_log.info(
        f"Leader {partition.topic_partition} with topic id {topic_id_option(log.topic_id)} starts at leader epoch "
        f"{state.leader_epoch} from offset {start_offset} with partition epoch {state.partition_epoch}, high watermark "
        f"{log.high_watermark}, ISR {ids_text(state.isr)}, adding replicas {ids_text(state.adding_replicas)} and "
        f"removing replicas {ids_text(state.removing_replicas)} "
        f"{'(under-min-isr)' if partition.is_under_min_isr else ''}. Previous leader {id_option(previous[0])} and "
        f"previous leader epoch was {previous[1]}."
    )
    # This comes before the first append: a follower may hold records of an epoch between the last one written here and
    # this one, and learns only from this entry where to cut.
    log.assign_leader_epoch(state.leader_epoch, start_offset)
    now_ms = environment.clock.monotonic_ms()
    for follower in partition.followers.values():
        follower.reset(
            now_ms=now_ms,
            leader_end_offset=start_offset,
            is_new_leader=is_new_leader,
            is_in_sync=follower.broker_id in state.isr,
        )
    partition.leader_epoch = state.leader_epoch
    partition.leader_epoch_start_offset = start_offset
