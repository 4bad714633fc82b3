"""Handles topics and partitions that come, change and go, according to their znodes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import replace

from engine.broker.controller.context import ControllerContext
from engine.broker.controller.events import StopReplicaResponseReceived
from engine.broker.controller.instructions import (
    SCAN_SIZE,
    DeleteTopicDeletions,
    GiveWay,
    ReadPartitionIds,
    ReadTopicAssignments,
    ReadTopicDeletions,
    ReadTopics,
    SetTopicAssignments,
    Steps,
    UnwatchTopics,
    WatchTopics,
    carry_out,
    each,
    select,
    slices,
)
from engine.broker.controller.leader_selectors import OFFLINE_ELECTION
from engine.broker.controller.logs import assignment_text, comma, controller_log, scala, scala_map
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.partition_state_machine import PartitionStateMachine
from engine.broker.controller.replica_state_machine import ReplicaStateMachine
from engine.broker.controller.states import PartitionAndReplica, PartitionState, ReplicaState
from engine.broker.controller.topic_deletion import TopicDeletion
from engine.common.errors import ErrorCode
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.topic_id import topic_id_text
from engine.kafka.zk.topics import TopicIdReplicaAssignment


def _pieces(assignments: dict[str, TopicIdReplicaAssignment]) -> Iterator[dict[str, TopicIdReplicaAssignment]]:
    """Cut topics, and single large topics, into pieces of at most ``SCAN_SIZE`` partitions."""
    piece: dict[str, TopicIdReplicaAssignment] = {}
    partitions = 0
    for topic, assignment in assignments.items():
        if piece and partitions + len(assignment.assignment) > SCAN_SIZE:
            yield piece
            piece, partitions = {}, 0
        if len(assignment.assignment) > SCAN_SIZE:
            for part in slices(assignment.assignment.items(), SCAN_SIZE):
                yield {topic: replace(assignment, assignment=dict(part))}
            continue
        piece[topic] = assignment
        partitions += len(assignment.assignment)
    if piece:
        yield piece


class TopicChanges:
    """What the controller does when topic znodes appear, change or must go."""

    def __init__(
        self,
        context: ControllerContext,
        options: ControllerOptions,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        deletion: TopicDeletion,
        new_topic_id: Callable[[], bytes],
    ) -> None:
        self._context = context
        self._options = options
        self._partitions = partitions
        self._replicas = replicas
        self._deletion = deletion
        self._new_topic_id = new_topic_id
        self._log = controller_log(options.controller_id)

    def process_change(self) -> Steps[None]:
        """Compare the topics' znodes with the known topics; start the new ones, forget those that vanished."""
        names = yield from carry_out(ReadTopics())
        # Sets throughout: this runs once for each topic that is created one by one, and looks at all topics.
        new = tuple(sorted(set(names).difference(self._context.topics)))
        gone = tuple(sorted(self._context.topics.keys() - set(names)))
        if new:
            yield from carry_out(WatchTopics(new))
        added = yield from self.read_assignments(new)
        for topic in gone:
            yield from each(self._context.partitions_of_topic(topic), self._context.remove_partition)
            self._context.remove_topic(topic)
        if gone:
            yield from carry_out(UnwatchTopics(gone))
        pieces = list(_pieces(added))
        if len(pieces) <= 1:
            self._log_change(new, gone, added)
        elif gone:
            self._log_change((), gone, {})
        # Topics are taken in and brought online one after the other: 2,000 at once blocked the broker for 0.8 s.
        for piece in pieces:
            if len(pieces) > 1:
                yield from carry_out(GiveWay())
                self._log_change(tuple(piece), (), piece)
            yield from self.create_partitions((yield from self.take(piece)))

    def read_assignments(self, topics: tuple[str, ...]) -> Steps[dict[str, TopicIdReplicaAssignment]]:
        """Read topic znodes; topics without an id get one (IBP 2.8 and later)."""
        if not topics:
            return {}
        read = yield from carry_out(ReadTopicAssignments(topics))
        if not self._options.uses_topic_ids:
            return read
        without_id = [t for t, assignment in read.items() if assignment.topic_id is None]
        while without_id:
            written = {t: replace(read[t], topic_id=self._new_topic_id()) for t in without_id}
            conflicting = yield from carry_out(SetTopicAssignments(tuple(written.values())))
            read.update({t: assignment for t, assignment in written.items() if t not in conflicting})
            again = (yield from carry_out(ReadTopicAssignments(tuple(conflicting)))) if conflicting else {}
            read.update(again)
            for topic in conflicting:
                if topic not in again:
                    del read[topic]
            without_id = [t for t, assignment in again.items() if assignment.topic_id is None]
        return read

    def take(self, assignments: dict[str, TopicIdReplicaAssignment]) -> Steps[list[TopicPartition]]:
        """Remember topics, their ids and their replicas; return their partitions."""
        partitions: list[TopicPartition] = []
        for number, piece in enumerate(_pieces(assignments)):
            if number:
                yield from carry_out(GiveWay())
            for topic, assignment in piece.items():
                self._context.topics[topic] = None
                if assignment.topic_id is not None:
                    self._context.add_topic_id(topic, assignment.topic_id)
                for partition, replicas in assignment.by_partition().items():
                    self._context.update_assignment(partition, replicas)
                    partitions.append(partition)
        return partitions

    def _log_change(
        self, new: tuple[str, ...], gone: tuple[str, ...], added: dict[str, TopicIdReplicaAssignment]
    ) -> None:
        texts = []
        for topic, assignment in added.items():
            replicas = {name: assignment_text(value) for name, value in assignment.by_partition().items()}
            topic_id = "None" if assignment.topic_id is None else f"Some({topic_id_text(assignment.topic_id)})"
            texts.append(f"TopicIdReplicaAssignment({topic},{topic_id},{scala_map('Map', replicas)})")
        self._log.info(
            f"New topics: [{scala('Set', new)}], deleted topics: [{scala('HashSet', gone)}], "
            f"new partition replica assignment [{scala('Set', texts)}]"
        )

    def create_partitions(self, partitions: Iterable[TopicPartition]) -> Steps[None]:
        """Bring partitions that have only an assignment online."""
        new = list(partitions)
        if not new:
            return
        yield from carry_out(GiveWay())
        self._log.info(f"New partition creation callback for {comma(new)}")
        yield from self._partitions.change(new, PartitionState.NEW)
        yield from self._replicas.change(self._context.replicas_of(new), ReplicaState.NEW)
        yield from self._partitions.change(new, PartitionState.ONLINE, OFFLINE_ELECTION)
        yield from self._replicas.change(self._context.replicas_of(new), ReplicaState.ONLINE)

    def process_modifications(self, topic: str) -> Steps[None]:
        """Start partitions that were added to a topic's znode; if it is being deleted, take them out again."""
        stored = (yield from carry_out(ReadTopicAssignments((topic,)))).get(topic)
        if stored is None:
            return
        if topic not in self._context.topics:
            # Its znode could not be decoded before.
            yield from self.process_change()
            return
        known = self._context.assignments.get(topic, {})
        added = {p: replicas for p, replicas in stored.assignment.items() if p not in known}
        if self._deletion.is_queued(topic):
            yield from self._restore(topic, stored, added)
        elif added:
            for piece in slices(added.items(), SCAN_SIZE):
                yield from carry_out(GiveWay())
                partitions = {TopicPartition(topic, p): replicas for p, replicas in piece}
                texts = {p: assignment_text(replicas) for p, replicas in partitions.items()}
                self._log.info(f"New partitions to be added {scala_map('Map', texts)}")
                for partition, replicas in partitions.items():
                    self._context.update_assignment(partition, replicas)
                yield from self.create_partitions(partitions)

    def _restore(
        self, topic: str, stored: TopicIdReplicaAssignment, added: dict[int, ReplicaAssignment]
    ) -> Steps[None]:
        """Take partitions out of the znode of a topic being deleted, unless they exist already."""
        if not added:
            self._log.info("Ignoring partition change during topic deletion as no new partitions are added")
            return
        self._log.warning(
            f"Skipping adding partitions {comma(added)} for topic {topic} since it is currently being deleted"
        )
        self._log.info(f"Restoring the partition replica assignment for topic {topic}")
        existing = yield from carry_out(ReadPartitionIds(topic))
        kept = {p: replicas for p, replicas in stored.assignment.items() if p not in added or p in existing}
        if kept != stored.assignment:
            yield from carry_out(SetTopicAssignments((replace(stored, assignment=kept),)))

    def process_deletions(self) -> Steps[None]:
        """Queue the topics that are marked for deletion; remove the marks of topics that do not exist."""
        marked = yield from carry_out(ReadTopicDeletions())
        if self._log.is_debug_enabled:
            self._log.debug(f"Delete topics listener fired for topics {comma(marked)} to be deleted")
        unknown = tuple(t for t in marked if t not in self._context.topics)
        if unknown:
            self._log.warning(f"Ignoring request to delete non-existing topics {comma(unknown)}")
            yield from carry_out(DeleteTopicDeletions(unknown))
        topics = [t for t in marked if t in self._context.topics]
        if topics and self._options.delete_topic_enable:
            self._log.info(f"Starting topic deletion for topics {comma(topics)}")
        if topics:
            yield from self._deletion.enqueue(topics)

    def process_stop_replica_response(self, event: StopReplicaResponseReceived) -> Steps[None]:
        """Note what a broker has deleted, and what it could not delete."""
        if self._log.is_debug_enabled:
            errors = {p: error.name for p, error in event.deleted.items()}
            self._log.debug(
                f"Delete topic callback invoked on StopReplica response received from broker {event.broker_id}: "
                f"request error = {event.error.name}, partition errors = {scala_map('Map', errors)}"
            )
        if not self._context.is_present(event.broker_id, event.broker_epoch):
            return
        none = ErrorCode.NONE
        started = self._context.topics_with_deletion_started
        doomed = yield from select(event.deleted, lambda p: p.topic in started)
        failed = yield from select(doomed, lambda p: event.error is not none or event.deleted[p] is not none)
        deleted = yield from select(doomed, lambda p: event.error is none and event.deleted[p] is none)
        yield from self._deletion.fail_replicas(PartitionAndReplica(p, event.broker_id) for p in failed)
        if deleted:
            yield from self._deletion.complete_replicas(PartitionAndReplica(p, event.broker_id) for p in deleted)
