"""The steps of moving a partition to other replicas (KIP-455); any controller can resume them after every write.

======  =======================================================================================================
U0      (replicas of a replaced reassignment are wanted no more) refused unless another is in the ISR; if one of them
        leads, another is elected
U1, U2  the topic znode, then memory: replicas = target, then old ones; adding; removing
U3      replicas of a replaced reassignment that nobody wants any more are stopped and deleted
A1      (target not yet in the ISR) leader epoch + 1, LeaderAndIsr to all old and new replicas
A2      adding replicas -> NewReplica
B1      (target in the ISR) adding replicas -> OnlineReplica
B2      memory: replicas = target
B3      the leader moves to a target replica, or stays and its epoch is raised; LeaderAndIsr with the target list
B4, B5  removed replicas leave the ISR, are stopped and deleted
B6      the topic znode: replicas = target
B7      the entry in /admin/reassign_partitions goes, if there is one
B8      UpdateMetadata to all
======  =======================================================================================================

The topic znode is written last, because it alone says which replicas are to be removed. The partitions of a batch take
each step together; partitions beyond a batch follow in the next event.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import replace
from typing import TypeVar

from engine.broker.controller.context import ControllerContext
from engine.broker.controller.events import ProceedWithReassignments
from engine.broker.controller.instructions import (
    Continue,
    GiveWay,
    ReadReassignments,
    ReadTopicAssignments,
    SetReassignments,
    SetTopicAssignments,
    Steps,
    UnwatchPartitionState,
    WatchPartitionState,
    carry_out,
    slices,
)
from engine.broker.controller.leader_selectors import OFFLINE_ELECTION, REASSIGN_ELECTION, new_leader
from engine.broker.controller.leadership import Leadership
from engine.broker.controller.logs import (
    assignment_text,
    comma,
    controller_log,
    leadership_text,
    scala,
    state_change_log,
)
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.partition_state_machine import PartitionStateMachine
from engine.broker.controller.replica_state_machine import ReplicaStateMachine
from engine.broker.controller.request_batch import RequestBatch
from engine.broker.controller.states import (
    PartitionAndReplica,
    PartitionState,
    RecordsWouldBeLost,
    ReplicaState,
    StateChangeFailed,
)
from engine.common.errors import CoordinationError, KlammError
from engine.common.model import LeaderAndIsr, LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicPartition
from engine.kafka.zk.errors import ControllerMoved
from engine.kafka.zk.partitions import PartitionStateRead
from engine.kafka.zk.topics import TopicIdReplicaAssignment

T = TypeVar("T")

REASSIGNED_AT_ONCE_MAX = 500
"""Partitions of one event: between events the controller learns of brokers that die."""

Failures = dict[TopicPartition, KlammError]
"""Partitions for which a step failed, and why."""


class Reassignments:
    def __init__(
        self,
        context: ControllerContext,
        options: ControllerOptions,
        leadership: Leadership,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
    ) -> None:
        self._context = context
        self._options = options
        self._leadership = leadership
        self._partitions = partitions
        self._replicas = replicas
        self._log = controller_log(options.controller_id)

    def proceed(self, wanted: Mapping[TopicPartition, ReplicaAssignment]) -> Steps[Failures]:
        """Start reassignments, replace those under way, or finish those whose target replicas are all in sync.

        All partitions take each step together: one write of each topic's znode, one request per broker. Partitions for
        which a step fails are returned and take no further step; what was written for them stays and is resumed. The
        failure is RecordsWouldBeLost if the last replicas in sync would go; then nothing was written.

        Raises:
            ControllerMoved: another controller writes.
            CoordinationError: a step could not be taken for any partition.
        """
        failed: Failures = {
            p: StateChangeFailed(f"Partition {p} never had a leader and cannot be reassigned")
            for p in wanted
            if p not in self._context.leadership
        }
        yield from self._update_assignments(_without(wanted, failed), failed)
        going = _without(wanted, failed)
        caught_up = yield from self._caught_up(going)
        behind = {p: reassignment for p, reassignment in going.items() if p not in caught_up}
        yield from self._raise_leader_epochs(behind, failed)
        yield from self._start_new_replicas(_without(behind, failed))
        if caught_up:
            yield from self._complete({p: going[p] for p in caught_up}, failed)
        return failed

    def complete_caught_up(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Finish the reassignments whose target replicas have all joined the ISR; leave the others alone."""
        reassignments = {
            p: self._context.full_assignment(p) for p in partitions if p.topic not in self._context.topics_to_be_deleted
        }
        caught_up = yield from self._caught_up(reassignments)
        for partition in caught_up:
            target = scala("ArrayBuffer", reassignments[partition].target_replicas)
            self._log.info(
                f"Target replicas {target} have all caught up with the leader for reassigning partition {partition}"
            )
        yield from self._proceed_in_batches(caught_up)

    def resume(self, is_wanted: Callable[[TopicPartition, ReplicaAssignment], bool]) -> Steps[None]:
        """Resume reassignments that an earlier controller, or a dead broker, left unfinished."""
        yield from self._proceed_in_batches(
            p for p in self._context.partitions_being_reassigned if is_wanted(p, self._context.full_assignment(p))
        )

    def proceed_with(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Go on with reassignments that waited for their batch, if they are still under way."""
        yield from self._proceed_in_batches(p for p in partitions if p in self._context.partitions_being_reassigned)

    def _proceed_in_batches(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Proceed with a batch now, and with the rest in events of their own."""
        waiting = [p for p in partitions if p.topic not in self._context.topics_to_be_deleted]
        now, later = waiting[:REASSIGNED_AT_ONCE_MAX], waiting[REASSIGNED_AT_ONCE_MAX:]
        try:
            failed = yield from self.proceed({p: self._context.full_assignment(p) for p in now})
        except ControllerMoved:
            raise
        except KlammError as error:
            failed = dict.fromkeys(now, error)
        for partition, reason in failed.items():
            self._log.error(f"Error completing reassignment of partition {partition}", reason)
        if later:
            yield from carry_out(Continue(ProceedWithReassignments(tuple(later))))

    def forget_topic(self, topic: str) -> Steps[None]:
        partitions = [p for p in self._context.partitions_being_reassigned if p.topic == topic]
        for partition in partitions:
            yield from self._forget(partition)
        if partitions:
            yield from self.remove_from_znode(lambda partition, _: partition.topic == topic)

    def remove_from_znode(self, is_unwanted: Callable[[TopicPartition, tuple[int, ...]], bool]) -> Steps[None]:
        """Remove entries from ``/admin/reassign_partitions``, and delete it with the last of them."""
        request = yield from carry_out(ReadReassignments())
        if request is None:
            return
        kept = {p: replicas for p, replicas in request.values.items() if not is_unwanted(p, replicas)}
        removed = [f"{p} -> {scala('Buffer', replicas)}" for p, replicas in request.values.items() if p not in kept]
        if not removed and kept:
            return
        self._log.info(
            f"Removing partitions {scala('Map', removed)} from the list of reassigned partitions in zookeeper"
        )
        if not kept:
            self._log.info("No more partitions need to be reassigned. Deleting zk path /admin/reassign_partitions")
        yield from carry_out(SetReassignments(kept))

    # Phase U

    def _update_assignments(self, wanted: Mapping[TopicPartition, ReplicaAssignment], failed: Failures) -> Steps[None]:
        before = {p: self._context.full_assignment(p) for p in wanted}
        changing = {p: reassignment for p, reassignment in wanted.items() if before[p] != reassignment}
        unneeded = {
            p: gone
            for p, reassignment in changing.items()
            if (gone := [r for r in before[p].replicas if r not in reassignment.replicas])
        }
        if self._log.is_debug_enabled:
            for partition, reassignment in changing.items():
                self._log.debug(
                    f"Updating assignment of partition {partition} from {assignment_text(before[partition])} to "
                    f"{assignment_text(reassignment)}"
                )
        states = (yield from self._leadership.read(unneeded, fresh=True)) if unneeded else {}
        for partition, read in states.items():
            try:
                yield from self._let_others_lead(partition, read, before[partition], changing[partition])
            except ControllerMoved:
                raise
            except KlammError as error:
                failed[partition] = error
        yield from self._write_assignments(_without(changing, failed), failed)
        for partition, reassignment in _without(changing, failed).items():
            self._context.update_assignment(partition, reassignment)
        yield from self._stop_removed(_without(unneeded, failed))
        for partition in _without(wanted, failed):
            if not self._options.is_alter_partition_enabled:
                yield from carry_out(WatchPartitionState(partition))
            self._context.partitions_being_reassigned[partition] = None

    def _let_others_lead(
        self, partition: TopicPartition, read: PartitionStateRead, current: ReplicaAssignment, wanted: ReplicaAssignment
    ) -> Steps[None]:
        """Before replicas that were being added are removed: make sure that a staying one has every record, and leads.

        Kafka in ZooKeeper mode deletes them anyway: records that only they have are lost, and nobody can lead. KRaft
        refuses, as klamm does. The election comes before the write of the topic znode: otherwise the next controller
        would not know that a cancelled reassignment still has a leader to move.
        """
        if read is None or isinstance(read, CoordinationError):
            raise read or StateChangeFailed(f"Partition {partition} has no state in zookeeper and cannot be reassigned")
        state = read.leader_and_isr
        refusal = (
            f"Unable to go on with replicas {comma(wanted.replicas)} alone for partition {partition}: it would require "
            f"an unclean leader election, for the ISR is {comma(state.isr)}."
        )
        if not set(state.isr) & set(wanted.replicas):
            raise RecordsWouldBeLost(refusal)
        if state.leader not in current.replicas or state.leader in wanted.replicas:
            return
        self._context.update_assignment(partition, wanted)
        results = yield from self._partitions.change((partition,), PartitionState.ONLINE, OFFLINE_ELECTION)
        self._context.update_assignment(partition, current)
        if not isinstance(results.get(partition), LeaderAndIsr):
            raise RecordsWouldBeLost(refusal)

    def _write_assignments(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment], failed: Failures
    ) -> Steps[None]:
        """Write each topic's znode once; new partitions in it that the controller has not seen yet stay in it."""
        remaining: dict[str, dict[int, ReplicaAssignment]] = {}
        for partition, assignment in assignments.items():
            remaining.setdefault(partition.topic, {})[partition.partition] = assignment
        while remaining:
            stored = yield from carry_out(ReadTopicAssignments(tuple(remaining)))
            for topic in sorted(remaining.keys() - stored.keys()):
                for index in remaining.pop(topic):
                    failed[TopicPartition(topic, index)] = StateChangeFailed(
                        f"Failed to update assignment for {topic}-{index} since the topic has no current assignment"
                    )
            written = tuple(self._changed(stored[topic], changes) for topic, changes in remaining.items())
            conflicting = (yield from carry_out(SetTopicAssignments(written))) if written else ()
            remaining = {topic: remaining[topic] for topic in conflicting}
        for partition, assignment in _without(assignments, failed).items():
            self._log.info(f"Successfully updated assignment of partition {partition} to {assignment_text(assignment)}")

    def _changed(
        self, stored: TopicIdReplicaAssignment, changes: Mapping[int, ReplicaAssignment]
    ) -> TopicIdReplicaAssignment:
        partitions = {**stored.assignment, **self._context.assignments[stored.topic], **changes}
        topic_id = self._context.topic_ids.get(stored.topic, stored.topic_id)
        return replace(stored, topic_id=topic_id, assignment=dict(sorted(partitions.items())))

    # Phase A

    def _caught_up(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> Steps[list[TopicPartition]]:
        """Return the partitions whose target replicas are all in the ISR."""
        states = yield from self._leadership.read(p for p, each in assignments.items() if each.is_being_reassigned)
        caught_up = []
        for partition, assignment in assignments.items():
            read = states.get(partition)
            if not assignment.is_being_reassigned or (
                isinstance(read, LeaderIsrAndControllerEpoch)
                and set(assignment.target_replicas) <= set(read.leader_and_isr.isr)
            ):
                caught_up.append(partition)
        return caught_up

    def _raise_leader_epochs(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment], failed: Failures
    ) -> Steps[None]:
        """Raise leader epochs, so that the leaders accept the new replica lists, and tell all replicas."""
        yield from self._write_next_leader_epochs(assignments, failed)
        batch = RequestBatch(self._context, self._options.controller_id)
        raised = _without(assignments, failed)
        for piece in slices(raised.items()):
            yield from carry_out(GiveWay())
            for partition, each in piece:
                leadership = self._context.leadership[partition]
                batch.add_leader_and_isr(each.origin_replicas, partition, leadership, each, is_new=False)
                # A new replica may go to any good log dir; one that the broker had must not be created in another.
                batch.add_leader_and_isr(each.adding_replicas, partition, leadership, each, is_new=True)
        yield from batch.send()
        changes = state_change_log(self._options.controller_id, self._context.epoch.controller_epoch)
        for partition, each in raised.items():
            leadership = self._context.leadership[partition]
            changes.info(
                f"Sent LeaderAndIsr request {leadership_text(leadership)} with new replica assignment "
                f"{assignment_text(each)} to leader {leadership.leader_and_isr.leader} for partition being "
                f"reassigned {partition}"
            )

    def _write_next_leader_epochs(self, partitions: Iterable[TopicPartition], failed: Failures) -> Steps[None]:
        remaining = list(partitions)
        fresh = False
        while remaining:
            next_states: dict[TopicPartition, LeaderAndIsr] = {}
            for partition, read in (yield from self._leadership.read(remaining, fresh=fresh)).items():
                if self._log.is_debug_enabled:
                    self._log.debug(f"Updating leader epoch for partition {partition}")
                state = self._own_state(partition, read)
                if isinstance(state, LeaderAndIsr):
                    next_states[partition] = new_leader(state, state.leader)
                else:
                    failed[partition] = state
            updates = yield from self._leadership.update(next_states)
            failed.update(updates.failed)
            for partition, written in updates.updated.items():
                self._log.info(
                    f"Updated leader epoch for partition {partition} to {written.leader_epoch}, "
                    f"zkVersion={written.partition_epoch}"
                )
            remaining = updates.to_retry
            fresh = True

    def _own_state(self, partition: TopicPartition, read: PartitionStateRead) -> LeaderAndIsr | KlammError:
        """Return the state whose leader epoch to raise, or why it cannot be raised."""
        if read is None:
            return StateChangeFailed(
                f"Cannot update leader epoch for partition {partition} as leaderAndIsr path is empty. This could mean "
                "we somehow tried to reassign a partition that doesn't exist"
            )
        return self._leadership.usable_state(read)

    def _start_new_replicas(self, assignments: Mapping[TopicPartition, ReplicaAssignment]) -> Steps[None]:
        """Create the adding replicas; those that exist already, from before a take-over, need nothing."""
        added = [PartitionAndReplica(p, replica) for p, each in assignments.items() for replica in each.adding_replicas]
        state = self._context.replica_state
        yield from self._replicas.change([r for r in added if state(r) is ReplicaState.NON_EXISTENT], ReplicaState.NEW)

    # Phase B

    def _complete(self, reassignments: Mapping[TopicPartition, ReplicaAssignment], failed: Failures) -> Steps[None]:
        yield from self._start_new_replicas(reassignments)
        added = [PartitionAndReplica(p, r) for p, each in reassignments.items() for r in each.adding_replicas]
        yield from self._replicas.change(added, ReplicaState.ONLINE)
        completed = {p: ReplicaAssignment(each.target_replicas) for p, each in reassignments.items()}
        for partition, assignment in completed.items():
            self._context.update_assignment(partition, assignment)
        leaderless = yield from self._move_leaders_if_required(completed, failed)
        for partition, reassignment in reassignments.items():
            if partition in failed or (partition in leaderless and reassignment.removing_replicas):
                # If the old replicas went now, nobody could lead; the next broker that returns resumes this.
                self._context.update_assignment(partition, reassignment)
                del completed[partition]
        yield from self._stop_removed({p: reassignments[p].removing_replicas for p in completed})
        yield from self._write_assignments(completed, failed)
        yield from self._finish(_without(completed, failed))

    def _move_leaders_if_required(
        self, assignments: Mapping[TopicPartition, ReplicaAssignment], failed: Failures
    ) -> Steps[set[TopicPartition]]:
        """Make target replicas lead; return the partitions in which none can."""
        staying: dict[TopicPartition, ReplicaAssignment] = {}
        moving: list[TopicPartition] = []
        for partition, assignment in assignments.items():
            leader = self._context.leadership[partition].leader_and_isr.leader
            replicas = comma(assignment.replicas)
            subject = f"Leader {leader} for partition {partition} being reassigned, is"
            if leader in assignment.replicas and self._context.is_replica_online(leader, partition):
                self._log.info(f"{subject} already in the new list of replicas {replicas} and is alive")
                staying[partition] = assignment
                continue
            if leader in assignment.replicas:
                self._log.info(f"{subject} already in the new list of replicas {replicas} but is dead")
            else:
                self._log.info(f"{subject} not in the new list of replicas {replicas}. Re-electing leader")
            moving.append(partition)
        yield from self._raise_leader_epochs(staying, failed)
        results = yield from self._partitions.change(moving, PartitionState.ONLINE, REASSIGN_ELECTION)
        return {p for p in moving if not isinstance(results.get(p), LeaderAndIsr)}

    def _stop_removed(self, removed: Mapping[TopicPartition, Iterable[int]]) -> Steps[None]:
        """Remove replicas from the ISR and from their brokers, without waiting for the brokers' answers."""
        replicas = [PartitionAndReplica(p, replica) for p, gone in removed.items() for replica in gone]
        for target in (
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_STARTED,
            ReplicaState.DELETION_SUCCESSFUL,
            ReplicaState.NON_EXISTENT,
        ):
            yield from self._replicas.change(replicas, target)

    def _finish(self, completed: Mapping[TopicPartition, ReplicaAssignment]) -> Steps[None]:
        if not completed:
            return
        for partition in completed:
            yield from self._forget(partition)
        yield from self.remove_from_znode(lambda p, replicas: p in completed and replicas == completed[p].replicas)
        batch = RequestBatch(self._context, self._options.controller_id)
        batch.add_update_metadata(self._context.live_or_shutting_down_broker_ids, completed)
        yield from batch.send()

    def _forget(self, partition: TopicPartition) -> Steps[None]:
        if not self._options.is_alter_partition_enabled:
            yield from carry_out(UnwatchPartitionState(partition))
        self._context.partitions_being_reassigned.pop(partition, None)


def _without(values: Mapping[TopicPartition, T], failed: Failures) -> dict[TopicPartition, T]:
    return {p: value for p, value in values.items() if p not in failed}
