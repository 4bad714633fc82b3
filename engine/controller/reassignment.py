"""The steps of moving a partition to other replicas (KIP-455), restartable after every write by any controller.

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

The topic znode is written last, for it alone tells which replicas are to be removed.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import replace

from engine.common.errors import CoordinationError, KlammError
from engine.common.model import (
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicPartition,
)
from engine.controller.context import ControllerContext
from engine.controller.election import OFFLINE_ELECTION, REASSIGN_ELECTION, new_leader
from engine.controller.errors import RecordsWouldBeLost, StateChangeFailed
from engine.controller.instructions import (
    ReadReassignments,
    ReadTopicAssignments,
    SetReassignments,
    SetTopicAssignments,
    Steps,
    UnwatchPartitionState,
    WatchPartitionState,
    carry_out,
)
from engine.controller.leadership import Leadership
from engine.controller.logs import assignment_text, comma, controller_log, leadership_text, scala, state_change_log
from engine.controller.options import ControllerOptions
from engine.controller.partition_state_machine import PartitionStateMachine
from engine.controller.replica_state_machine import ReplicaStateMachine
from engine.controller.request_batch import RequestBatch
from engine.controller.states import PartitionAndReplica, PartitionState, ReplicaState
from engine.zk.errors import ControllerMoved


class Reassignments:
    """Reassignments under way."""

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

    def proceed(self, partition: TopicPartition, reassignment: ReplicaAssignment) -> Steps[None]:
        """Start a reassignment, replace the one under way by it, or finish it where all target replicas are in sync.

        Raises:
            ControllerMoved: another controller writes.
            RecordsWouldBeLost: it would take away the last replicas in sync; nothing was written.
            StateChangeFailed, CoordinationError: a step could not be taken; what was written stays and is resumed.
        """
        if partition not in self._context.leadership:
            raise StateChangeFailed(f"Partition {partition} never had a leader and cannot be reassigned")
        yield from self._update_assignment(partition, reassignment)
        if not (yield from self._is_caught_up(partition, reassignment)):
            yield from self._raise_leader_epoch(partition, reassignment)
            yield from self._start_new_replicas(partition, reassignment)
        else:
            yield from self._complete(partition, reassignment)

    def complete_if_caught_up(self, partition: TopicPartition) -> Steps[None]:
        """Finish a reassignment whose target replicas have all come into the ISR; else do nothing."""
        if partition.topic in self._context.topics_to_be_deleted:
            return
        reassignment = self._context.full_assignment(partition)
        if (yield from self._is_caught_up(partition, reassignment)):
            self._log.info(
                f"Target replicas {scala('ArrayBuffer', reassignment.target_replicas)} have all caught up with the "
                f"leader for reassigning partition {partition}"
            )
            yield from self.proceed(partition, reassignment)

    def resume(self, is_wanted: Callable[[TopicPartition, ReplicaAssignment], bool]) -> Steps[None]:
        """Take up reassignments again that an earlier controller, or a dead broker, left unfinished."""
        for partition in list(self._context.partitions_being_reassigned):
            assignment = self._context.full_assignment(partition)
            if partition.topic not in self._context.topics_to_be_deleted and is_wanted(partition, assignment):
                try:
                    yield from self.proceed(partition, assignment)
                except ControllerMoved:
                    raise
                except KlammError as error:
                    self._log.error(f"Error completing reassignment of partition {partition}", error)

    def forget_topic(self, topic: str) -> Steps[None]:
        """Drop the reassignments of a topic that is gone."""
        partitions = [p for p in self._context.partitions_being_reassigned if p.topic == topic]
        for partition in partitions:
            yield from self._forget(partition)
        if partitions:
            yield from self.remove_from_znode(lambda partition, _: partition.topic == topic)

    def remove_from_znode(self, is_unwanted: Callable[[TopicPartition, tuple[int, ...]], bool]) -> Steps[None]:
        """Take entries out of ``/admin/reassign_partitions``, and delete it with the last of them."""
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

    def _update_assignment(self, partition: TopicPartition, reassignment: ReplicaAssignment) -> Steps[None]:
        current = self._context.full_assignment(partition)
        if current != reassignment:
            if self._log.is_debug_enabled:
                self._log.debug(
                    f"Updating assignment of partition {partition} from {assignment_text(current)} to "
                    f"{assignment_text(reassignment)}"
                )
            unneeded = [r for r in current.replicas if r not in reassignment.replicas]
            if unneeded:
                yield from self._let_others_lead(partition, current, reassignment)
            yield from self._write_assignment(partition, reassignment)
            self._context.update_assignment(partition, reassignment)
            if unneeded:
                yield from self._stop_removed(partition, unneeded)
        if not self._options.is_alter_partition_enabled:
            yield from carry_out(WatchPartitionState(partition))
        self._context.partitions_being_reassigned[partition] = None

    def _let_others_lead(
        self, partition: TopicPartition, current: ReplicaAssignment, wanted: ReplicaAssignment
    ) -> Steps[None]:
        """Before replicas go that were being added: see that one that stays has every record, and leads.

        Kafka in ZooKeeper mode deletes them all the same: records that only they have are lost, and nobody can lead. In
        KRaft it refuses, as here. The election comes before the topic znode is written: the next controller would not
        know that a cancelled reassignment still has a leader to be moved.
        """
        read = (yield from self._leadership.read((partition,), fresh=True))[partition]
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

    def _write_assignment(self, partition: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
        """Write one partition's assignment; partitions that were added to the znode and not seen yet stay in it."""
        topic = partition.topic
        while True:
            stored = (yield from carry_out(ReadTopicAssignments((topic,)))).get(topic)
            if stored is None:
                raise StateChangeFailed(
                    f"Failed to update assignment for {partition} since the topic has no current assignment"
                )
            partitions = {**stored.assignment, **self._context.assignments[topic], partition.partition: assignment}
            topic_id = self._context.topic_ids.get(topic, stored.topic_id)
            written = replace(stored, topic_id=topic_id, assignment=dict(sorted(partitions.items())))
            if not (yield from carry_out(SetTopicAssignments((written,)))):
                break
        self._log.info(f"Successfully updated assignment of partition {partition} to {assignment_text(assignment)}")

    # Phase A

    def _is_caught_up(self, partition: TopicPartition, assignment: ReplicaAssignment) -> Steps[bool]:
        if not assignment.is_being_reassigned:
            return True
        read = (yield from self._leadership.read((partition,)))[partition]
        if read is None or isinstance(read, CoordinationError):
            return False
        return set(assignment.target_replicas) <= set(read.leader_and_isr.isr)

    def _raise_leader_epoch(self, partition: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
        """Raise the leader epoch, so that the leader takes the new replica list, and tell all replicas."""
        leadership = yield from self._write_next_leader_epoch(partition)
        batch = RequestBatch(self._context, self._options.controller_id)
        batch.add_leader_and_isr(assignment.origin_replicas, partition, leadership, assignment, is_new=False)
        # A replica added may go to any good log dir; one the broker has had must not be made anew on another dir.
        batch.add_leader_and_isr(assignment.adding_replicas, partition, leadership, assignment, is_new=True)
        yield from batch.send()
        state_change_log(self._options.controller_id, self._context.epoch.controller_epoch).info(
            f"Sent LeaderAndIsr request {leadership_text(leadership)} with new replica assignment "
            f"{assignment_text(assignment)} to leader {leadership.leader_and_isr.leader} for partition being "
            f"reassigned {partition}"
        )

    def _write_next_leader_epoch(self, partition: TopicPartition) -> Steps[LeaderIsrAndControllerEpoch]:
        if self._log.is_debug_enabled:
            self._log.debug(f"Updating leader epoch for partition {partition}")
        fresh = False
        while True:
            state = yield from self._own_state(partition, fresh=fresh)
            updates = yield from self._leadership.update({partition: new_leader(state, state.leader)})
            if partition in updates.failed:
                raise updates.failed[partition]
            if partition in updates.updated:
                break
            fresh = True
        leadership = self._context.leadership[partition]
        written = leadership.leader_and_isr
        self._log.info(
            f"Updated leader epoch for partition {partition} to {written.leader_epoch}, "
            f"zkVersion={written.partition_epoch}"
        )
        return leadership

    def _own_state(self, partition: TopicPartition, *, fresh: bool) -> Steps[LeaderAndIsr]:
        read = (yield from self._leadership.read((partition,), fresh=fresh))[partition]
        if isinstance(read, CoordinationError):
            raise read
        if read is None:
            raise StateChangeFailed(
                f"Cannot update leader epoch for partition {partition} as leaderAndIsr path is empty. This could mean "
                "we somehow tried to reassign a partition that doesn't exist"
            )
        if self._leadership.is_newer_than_ours(read):
            raise StateChangeFailed(
                "Leader and isr path written by another controller. This probably means the current controller with "
                f"epoch {self._context.epoch.controller_epoch} went through a soft failure and another controller was "
                f"elected with epoch {read.controller_epoch}. Aborting state change by this controller"
            )
        return read.leader_and_isr

    def _start_new_replicas(self, partition: TopicPartition, assignment: ReplicaAssignment) -> Steps[None]:
        """Bring adding replicas into being; those that exist already, from before a take-over, need nothing."""
        for replica in assignment.adding_replicas:
            added = PartitionAndReplica(partition, replica)
            if self._context.replica_state(added) is ReplicaState.NON_EXISTENT:
                yield from self._replicas.change((added,), ReplicaState.NEW)

    # Phase B

    def _complete(self, partition: TopicPartition, reassignment: ReplicaAssignment) -> Steps[None]:
        yield from self._start_new_replicas(partition, reassignment)
        added = [PartitionAndReplica(partition, r) for r in reassignment.adding_replicas]
        yield from self._replicas.change(added, ReplicaState.ONLINE)
        completed = ReplicaAssignment(reassignment.target_replicas)
        self._context.update_assignment(partition, completed)
        is_led = yield from self._move_leader_if_required(partition, completed)
        if not is_led and reassignment.removing_replicas:
            # Removing the old replicas now would leave nobody to lead; the next broker to return resumes this.
            self._context.update_assignment(partition, reassignment)
            return
        yield from self._stop_removed(partition, reassignment.removing_replicas)
        yield from self._write_assignment(partition, completed)
        yield from self._finish(partition, completed)
        batch = RequestBatch(self._context, self._options.controller_id)
        batch.add_update_metadata(self._context.live_or_shutting_down_broker_ids, (partition,))
        yield from batch.send()

    def _move_leader_if_required(self, partition: TopicPartition, assignment: ReplicaAssignment) -> Steps[bool]:
        """Have a target replica lead; return False where none can."""
        leader = self._context.leadership[partition].leader_and_isr.leader
        replicas = comma(assignment.replicas)
        subject = f"Leader {leader} for partition {partition} being reassigned, is"
        if leader in assignment.replicas and self._context.is_replica_online(leader, partition):
            self._log.info(f"{subject} already in the new list of replicas {replicas} and is alive")
            yield from self._raise_leader_epoch(partition, assignment)
            return True
        if leader in assignment.replicas:
            self._log.info(f"{subject} already in the new list of replicas {replicas} but is dead")
        else:
            self._log.info(f"{subject} not in the new list of replicas {replicas}. Re-electing leader")
        results = yield from self._partitions.change((partition,), PartitionState.ONLINE, REASSIGN_ELECTION)
        return isinstance(results.get(partition), LeaderAndIsr)

    def _stop_removed(self, partition: TopicPartition, removed: Iterable[int]) -> Steps[None]:
        """Take replicas out of the ISR and off their brokers, without waiting for their answers."""
        replicas = [PartitionAndReplica(partition, r) for r in removed]
        for target in (
            ReplicaState.OFFLINE,
            ReplicaState.DELETION_STARTED,
            ReplicaState.DELETION_SUCCESSFUL,
            ReplicaState.NON_EXISTENT,
        ):
            yield from self._replicas.change(replicas, target)

    def _finish(self, partition: TopicPartition, completed: ReplicaAssignment) -> Steps[None]:
        yield from self._forget(partition)
        yield from self.remove_from_znode(lambda p, replicas: p == partition and replicas == completed.replicas)

    def _forget(self, partition: TopicPartition) -> Steps[None]:
        if not self._options.is_alter_partition_enabled:
            yield from carry_out(UnwatchPartitionState(partition))
        self._context.partitions_being_reassigned.pop(partition, None)
