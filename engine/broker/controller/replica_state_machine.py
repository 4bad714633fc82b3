"""Moves replicas from state to state: tells their brokers, and removes offline replicas from the ISR.

``states`` defines which state may follow which.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence

from engine.broker.controller.context import ControllerContext
from engine.broker.controller.instructions import SCAN_SIZE, GiveWay, Steps, carry_out, each, select, slices
from engine.broker.controller.leader_selectors import new_leader
from engine.broker.controller.leadership import Leadership
from engine.broker.controller.logs import (
    PrefixedLogger,
    assignment_text,
    comma,
    controller_log,
    leadership_text,
    replica_machine_log,
    state_change_log,
)
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.request_batch import RequestBatch
from engine.broker.controller.states import (
    VALID_PREVIOUS_REPLICA_STATES,
    IllegalTransition,
    PartitionAndReplica,
    ReplicaState,
    StateChangeFailed,
)
from engine.common.errors import KlammError
from engine.common.model import NO_LEADER, LeaderAndIsr, LeaderIsrAndControllerEpoch, TopicPartition
from engine.kafka.zk.errors import ControllerMoved
from engine.kafka.zk.partitions import PartitionStateRead

Replicas = Sequence[PartitionAndReplica]


class ReplicaStateMachine:
    """The half of the controller that handles replicas."""

    def __init__(self, context: ControllerContext, options: ControllerOptions, leadership: Leadership) -> None:
        self._context = context
        self._options = options
        self._leadership = leadership
        self._log = replica_machine_log(options.controller_id)

    @property
    def _changes(self) -> PrefixedLogger:
        return state_change_log(self._options.controller_id, self._context.epoch.controller_epoch)

    def start_up(self) -> Steps[None]:
        """Give every replica its state, send live ones their partitions, and remove dead ones from the ISRs."""
        self._log.info("Initializing replica state")
        online: list[PartitionAndReplica] = []
        offline: list[PartitionAndReplica] = []

        def note(partition: TopicPartition) -> None:
            for replica in self._context.replicas_of((partition,)):
                is_online = self._context.is_replica_online(replica.replica, partition)
                (online if is_online else offline).append(replica)
                # The topic may be waiting for its deletion; a dead replica cannot be deleted.
                state = ReplicaState.ONLINE if is_online else ReplicaState.DELETION_INELIGIBLE
                self._context.replica_states[replica] = state

        yield from each(self._context.all_partitions(), note)
        self._log.info("Triggering online replica state changes")
        yield from self.change(online, ReplicaState.ONLINE)
        self._log.info("Triggering offline replica state changes")
        yield from self.change(offline, ReplicaState.OFFLINE)

    def shut_down(self) -> None:
        self._log.info("Stopped replica state machine")

    def change(self, replicas: Iterable[PartitionAndReplica], target: ReplicaState) -> Steps[None]:
        """Move replicas to a state and send what follows from it. A move that the table does not allow is logged.

        Raises:
            ControllerMoved: another controller writes.
        """
        by_broker: dict[int, list[PartitionAndReplica]] = {}
        yield from each(replicas, lambda replica: by_broker.setdefault(replica.replica, []).append(replica))
        if not by_broker:
            return
        batch = RequestBatch(self._context, self._options.controller_id)
        try:
            for broker_id, of_broker in sorted(by_broker.items()):
                valid = yield from self._valid(of_broker, target)
                yield from self._change(broker_id, valid, target, batch)
        except ControllerMoved as error:
            self._log.error(f"Controller moved to another broker when moving some replicas to {target} state", error)
            raise
        except Exception as error:
            # One bad replica must not end the controller; brokers still learn what was written before it.
            self._log.error(f"Error while moving some replicas to {target} state", error)
        yield from batch.send()

    def _valid(self, replicas: list[PartitionAndReplica], target: ReplicaState) -> Steps[list[PartitionAndReplica]]:
        def is_valid(replica: PartitionAndReplica) -> bool:
            may_move = self._context.is_valid_replica_move(replica, target)
            if not may_move:
                self._log_illegal(replica, target)
            return may_move

        return (yield from select(replicas, is_valid))

    def _change(
        self, broker_id: int, replicas: list[PartitionAndReplica], target: ReplicaState, batch: RequestBatch
    ) -> Steps[None]:
        match target:
            case ReplicaState.NEW:
                yield from self._in_slices(replicas, lambda piece: self._to_new(broker_id, piece, batch))
            case ReplicaState.ONLINE:
                yield from self._in_slices(replicas, lambda piece: self._to_online(broker_id, piece, batch))
            case ReplicaState.OFFLINE:
                yield from self._to_offline(broker_id, replicas, batch)
            case ReplicaState.DELETION_STARTED:
                yield from self._in_slices(replicas, lambda piece: self._to_deletion_started(broker_id, piece, batch))
            case ReplicaState.DELETION_INELIGIBLE | ReplicaState.DELETION_SUCCESSFUL:
                yield from self._in_slices(replicas, lambda piece: self._put_all(piece, target))
            case ReplicaState.NON_EXISTENT:
                yield from self._in_slices(replicas, self._to_non_existent)

    def _in_slices(self, replicas: Replicas, work: Callable[[Replicas], None]) -> Steps[None]:
        for piece in slices(replicas):
            yield from carry_out(GiveWay())
            work(piece)

    def _put_all(self, replicas: Replicas, target: ReplicaState) -> None:
        for replica in replicas:
            self._put(replica, target)

    def _to_deletion_started(self, broker_id: int, replicas: Replicas, batch: RequestBatch) -> None:
        for replica in replicas:
            self._put(replica, ReplicaState.DELETION_STARTED)
            batch.add_stop_replica(broker_id, replica.topic_partition, delete=True)

    def _to_new(self, broker_id: int, replicas: Replicas, batch: RequestBatch) -> None:
        for replica in replicas:
            partition = replica.topic_partition
            leadership = self._context.leadership.get(partition)
            if leadership is not None and leadership.leader_and_isr.leader == broker_id:
                failure = StateChangeFailed(
                    f"Replica {broker_id} for partition {partition} cannot be moved to NewReplica state as it is being "
                    "requested to become leader"
                )
                self._log_failed(replica, ReplicaState.OFFLINE, failure)
                continue
            if leadership is not None:
                assignment = self._context.full_assignment(partition)
                batch.add_leader_and_isr((broker_id,), partition, leadership, assignment, is_new=True)
            self._put(replica, ReplicaState.NEW)

    def _to_online(self, broker_id: int, replicas: Replicas, batch: RequestBatch) -> None:
        for replica in replicas:
            partition = replica.topic_partition
            assignment = self._context.full_assignment(partition)
            if self._context.replica_state(replica) is ReplicaState.NEW:
                self._check_assigned(broker_id, partition)
            else:
                leadership = self._context.leadership.get(partition)
                if leadership is not None:
                    batch.add_leader_and_isr((broker_id,), partition, leadership, assignment, is_new=False)
            self._put(replica, ReplicaState.ONLINE)

    def _check_assigned(self, broker_id: int, partition: TopicPartition) -> None:
        assignment = self._context.full_assignment(partition)
        if broker_id not in assignment.replicas:
            controller_log(self._options.controller_id).error(
                f"Adding replica ({broker_id}) that is not part of the assignment {assignment_text(assignment)}"
            )

    def _to_offline(self, broker_id: int, replicas: list[PartitionAndReplica], batch: RequestBatch) -> Steps[None]:
        for stopped in slices(replicas):
            yield from carry_out(GiveWay())
            for replica in stopped:
                batch.add_stop_replica(broker_id, replica.topic_partition, delete=False)
        led = [r.topic_partition for r in replicas if r.topic_partition in self._context.leadership]
        updated = yield from self._remove_from_isr(broker_id, led)
        for piece in slices(updated.items()):
            yield from carry_out(GiveWay())
            for partition, leadership in piece:
                self._left_isr(broker_id, partition, leadership, batch)
        for rest in slices(replicas):
            yield from carry_out(GiveWay())
            self._put_without_state(rest, updated, batch)

    def _put_without_state(
        self, replicas: Replicas, updated: Mapping[TopicPartition, LeaderIsrAndControllerEpoch], batch: RequestBatch
    ) -> None:
        for replica in replicas:
            partition = replica.topic_partition
            if partition not in self._context.leadership:
                batch.add_update_metadata(self._context.live_or_shutting_down_broker_ids, (partition,))
                self._put(replica, ReplicaState.OFFLINE)
            elif partition not in updated and partition.topic in self._context.topics_to_be_deleted:
                # Its state znode is gone, which must not prevent the deletion of the topic.
                self._put(replica, ReplicaState.OFFLINE)

    def _left_isr(
        self, broker_id: int, partition: TopicPartition, leadership: LeaderIsrAndControllerEpoch, batch: RequestBatch
    ) -> None:
        self._changes.info(
            f"Partition {partition} state changed to {leadership_text(leadership)} after removing replica "
            f"{broker_id} from the ISR as part of transition to {ReplicaState.OFFLINE}"
        )
        if partition.topic not in self._context.topics_to_be_deleted:
            recipients = tuple(r for r in self._context.replicas(partition) if r != broker_id)
            assignment = self._context.full_assignment(partition)
            batch.add_leader_and_isr(recipients, partition, leadership, assignment, is_new=False)
        self._put(PartitionAndReplica(partition, broker_id), ReplicaState.OFFLINE)

    def _to_non_existent(self, replicas: Replicas) -> None:
        for replica in replicas:
            assignment = self._context.full_assignment(replica.topic_partition)
            self._context.update_assignment(replica.topic_partition, assignment.without(replica.replica))
            self._trace_move(replica, ReplicaState.NON_EXISTENT)
            self._context.replica_states.pop(replica, None)

    def _remove_from_isr(
        self, broker_id: int, partitions: list[TopicPartition]
    ) -> Steps[dict[TopicPartition, LeaderIsrAndControllerEpoch]]:
        """Remove a replica from the ISRs, again if another writer changed a state; return the new leaderships."""
        results: dict[TopicPartition, LeaderIsrAndControllerEpoch] = {}
        remaining = partitions
        fresh = False
        while remaining:
            finished, remaining = yield from self._remove_from_isr_once(broker_id, remaining, fresh=fresh)
            for piece in slices(finished.items(), SCAN_SIZE):
                yield from carry_out(GiveWay())
                for partition, result in piece:
                    if isinstance(result, Exception):
                        self._log_failed(PartitionAndReplica(partition, broker_id), ReplicaState.OFFLINE, result)
                    else:
                        results[partition] = result
            fresh = True
        return results

    def _remove_from_isr_once(
        self, broker_id: int, partitions: list[TopicPartition], *, fresh: bool
    ) -> Steps[tuple[dict[TopicPartition, LeaderIsrAndControllerEpoch | KlammError], list[TopicPartition]]]:
        results: dict[TopicPartition, LeaderIsrAndControllerEpoch | KlammError] = {}
        shrunk: dict[TopicPartition, LeaderAndIsr] = {}
        states = yield from self._leadership.read(partitions, fresh=fresh)
        for piece in slices(states.items()):
            yield from carry_out(GiveWay())
            for partition, read in piece:
                usable = self._usable_state(broker_id, partition, read)
                if usable is None:
                    continue
                if not isinstance(usable, LeaderAndIsr):
                    results[partition] = usable
                elif broker_id in usable.isr:
                    shrunk[partition] = _without(usable, broker_id)
                else:
                    results[partition] = self._leadership.remember(partition, usable)
        updates = yield from self._leadership.update(shrunk)
        yield from each(updates.updated, lambda p: results.update({p: self._context.leadership[p]}))
        results.update(updates.failed)
        return results, updates.to_retry

    def _usable_state(
        self, broker_id: int, partition: TopicPartition, read: PartitionStateRead
    ) -> LeaderAndIsr | KlammError | None:
        """Return the leadership to shrink, or why it cannot; None for a topic being deleted that has none left."""
        if read is None:
            if partition.topic in self._context.topics_to_be_deleted:
                return None
            return StateChangeFailed(
                f"Failed to change state of replica {broker_id} for partition {partition} since the leader and isr "
                "path in zookeeper is empty"
            )
        return self._leadership.usable_state(read)

    def _put(self, replica: PartitionAndReplica, target: ReplicaState) -> None:
        self._trace_move(replica, target)
        self._context.replica_states[replica] = target

    def _trace_move(self, replica: PartitionAndReplica, target: ReplicaState) -> None:
        changes = self._changes
        if changes.is_trace_enabled:
            changes.trace(
                f"Changed state of replica {replica.replica} for partition {replica.topic_partition} "
                f"from {self._context.replica_state(replica)} to {target}"
            )

    def _log_illegal(self, replica: PartitionAndReplica, target: ReplicaState) -> None:
        failure = IllegalTransition(
            f"Replica {replica} should be in the {comma(VALID_PREVIOUS_REPLICA_STATES[target])} states before moving "
            f"to {target} state. Instead it is in {self._context.replica_state(replica)} state"
        )
        self._log_failed(replica, target, failure)

    def _log_failed(self, replica: PartitionAndReplica, target: ReplicaState, error: Exception) -> None:
        self._changes.error(
            f"Controller {self._options.controller_id} epoch {self._context.epoch.controller_epoch} initiated state "
            f"change of replica {replica.replica} for partition {replica.topic_partition} from "
            f"{self._context.replica_state(replica)} to {target} failed",
            error,
        )


def _without(state: LeaderAndIsr, replica: int) -> LeaderAndIsr:
    """Return ``state`` without a member of its ISR, and leaderless if that was the leader; the last member stays."""
    isr = state.isr if len(state.isr) == 1 else tuple(r for r in state.isr if r != replica)
    return new_leader(state, NO_LEADER if state.leader == replica else state.leader, isr)
