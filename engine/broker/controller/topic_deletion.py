"""Deletes topics: which may be deleted now, the steps, and what happens when a replica cannot be deleted.

A topic waits while a replica of it is offline. A reassignment under way does not hold it back: Kafka 3.9 deletes such
topics at once, and so does this controller, which also forgets the reassignment. Only a new controller of Kafka's waits
for the reassignment, usually without success: its brokers answer followers of a topic being deleted
UNKNOWN_TOPIC_OR_PARTITION. When every replica's broker has answered StopReplica with delete, the znodes go.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import chain

from engine.broker.controller.context import ControllerContext
from engine.broker.controller.instructions import (
    DeleteTopicDeletions,
    DeleteTopicZNodes,
    GiveWay,
    ScheduleTopicDeletion,
    Steps,
    UnwatchTopics,
    carry_out,
    each,
    select,
)
from engine.broker.controller.logs import comma, scala, topic_deletion_log
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.partition_state_machine import PartitionStateMachine
from engine.broker.controller.replica_state_machine import ReplicaStateMachine
from engine.broker.controller.request_batch import RequestBatch
from engine.broker.controller.states import PartitionAndReplica, PartitionState, ReplicaState
from engine.common.errors import CoordinationError
from engine.common.model import TopicPartition
from engine.kafka.zk.errors import ControllerMoved

NEXT_TRY_MS = 5_000
"""The wait before a deletion is tried again whose znodes could not be removed."""


class TopicDeletion:
    """The topics that wait for deletion, and the work on them."""

    def __init__(
        self,
        context: ControllerContext,
        options: ControllerOptions,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        forget_reassignments: Callable[[str], Steps[None]],
    ) -> None:
        self._context = context
        self._options = options
        self._partitions = partitions
        self._replicas = replicas
        self._forget_reassignments = forget_reassignments
        self._log = topic_deletion_log(options.controller_id)

    def is_queued(self, topic: str) -> bool:
        return topic in self._context.topics_to_be_deleted

    def initialize(self, topics: Iterable[str], ineligible: Iterable[str]) -> Steps[None]:
        """Take over the deletions that an earlier controller left; ``ineligible`` are topics with offline replicas."""
        waiting = tuple(topics)
        cannot = set(ineligible)
        self._log.info(
            f"Initializing manager with initial deletions: {scala('Set', waiting)}, "
            f"initial ineligible deletions: {scala('HashSet', sorted(cannot))}"
        )
        if not self._options.delete_topic_enable:
            yield from self._refuse(waiting)
            return
        self._context.topics_to_be_deleted.update(dict.fromkeys(waiting))
        self._context.topics_ineligible_for_deletion.update(cannot.intersection(waiting))

    def _refuse(self, topics: tuple[str, ...]) -> Steps[None]:
        if topics:
            self._log.info(f"Removing {scala('Set', topics)} since delete topic is disabled")
            yield from carry_out(DeleteTopicDeletions(topics))

    def enqueue(self, topics: Iterable[str]) -> Steps[None]:
        """Queue topics and start on those that can be deleted now."""
        waiting = tuple(topics)
        if not self._options.delete_topic_enable:
            yield from self._refuse(waiting)
            return
        self._context.topics_to_be_deleted.update(dict.fromkeys(waiting))
        yield from self.resume()

    def resume_for(self, topics: Iterable[str]) -> Steps[None]:
        """Try topics again that waited for something which may have arrived, usually a broker."""
        resumed = [t for t in dict.fromkeys(topics) if self.is_queued(t)]
        if resumed:
            self._context.topics_ineligible_for_deletion.difference_update(resumed)
            yield from self.resume()

    def fail_replicas(self, replicas: Iterable[PartitionAndReplica]) -> Steps[None]:
        """Halt topics with a replica that could not be deleted: its broker died, or answered with an error."""
        failed = yield from select(replicas, lambda r: self.is_queued(r.topic))
        if not failed:
            return
        topics = tuple(dict.fromkeys(r.topic for r in failed))
        if self._log.is_debug_enabled:
            self._log.debug(
                f"Deletion failed for replicas {comma(failed)}. Halting deletion for topics {scala('Set', topics)}"
            )
        yield from self._make_ineligible(failed)
        self._mark_ineligible(topics, "replica deletion failure")
        yield from self.resume()

    def complete_replicas(self, replicas: Iterable[PartitionAndReplica]) -> Steps[None]:
        """Note replicas whose files are gone; after the last one of a topic, delete the topic.

        An answer that comes after its broker died does not count: the deletion is requested again.
        """
        started = ReplicaState.DELETION_STARTED
        deleted = yield from select(
            replicas, lambda r: self.is_queued(r.topic) and self._context.replica_state(r) is started
        )
        if self._log.is_debug_enabled:
            self._log.debug(f"Deletion successfully completed for replicas {comma(deleted)}")
        yield from self._replicas.change(deleted, ReplicaState.DELETION_SUCCESSFUL)
        yield from self.resume()

    def _mark_ineligible(self, topics: Iterable[str], reason: str) -> None:
        halted = [t for t in topics if self.is_queued(t)]
        self._context.topics_ineligible_for_deletion.update(halted)
        if halted:
            self._log.info(f"Halted deletion of topics {comma(halted)} due to {reason}")

    def _make_ineligible(self, replicas: list[PartitionAndReplica]) -> Steps[None]:
        """Move replicas that cannot be deleted now out of the way, whatever state they are in."""
        state = self._context.replica_state
        alive = yield from select(replicas, lambda r: state(r) in (ReplicaState.NEW, ReplicaState.ONLINE))
        yield from self._replicas.change(alive, ReplicaState.OFFLINE)
        ineligible = ReplicaState.DELETION_INELIGIBLE
        movable = yield from select(replicas, lambda r: self._context.is_valid_replica_move(r, ineligible))
        yield from self._replicas.change(movable, ineligible)

    def _states(self, topic: str) -> Steps[set[ReplicaState]]:
        states: set[ReplicaState] = set()
        replicas = self._context.replicas_of(self._context.partitions_of_topic(topic))
        yield from each(replicas, lambda replica: states.add(self._context.replica_state(replica)))
        return states

    def resume(self) -> Steps[None]:
        """Finish topics whose replicas are all gone, and (re)start those that can be."""
        if not self._options.delete_topic_enable:
            return
        queued = tuple(self._context.topics_to_be_deleted)
        if not queued:
            return
        self._log.info(f"Handling deletion for topics {comma(queued)}")
        to_retry: list[str] = []
        to_delete: list[str] = []
        for topic in queued:
            yield from carry_out(GiveWay())
            states = yield from self._states(topic)
            if states <= {ReplicaState.DELETION_SUCCESSFUL}:
                if not (yield from self._complete(topic)):
                    continue
                self._log.info(f"Deletion of topic {topic} successfully completed")
            elif ReplicaState.DELETION_STARTED in states:
                continue
            elif ReplicaState.DELETION_INELIGIBLE in states:
                to_retry.append(topic)
            if self.is_queued(topic) and topic not in self._context.topics_ineligible_for_deletion:
                self._log.info(f"Deletion of topic {topic} (re)started")
                to_delete.append(topic)
        if to_retry:
            yield from self._retry(to_retry)
        if to_delete:
            yield from self._start(to_delete)

    def _partitions_of(self, topics: Iterable[str]) -> Iterator[TopicPartition]:
        return chain.from_iterable(map(self._context.partitions_of_topic, topics))

    def _retry(self, topics: list[str]) -> Steps[None]:
        failed = yield from select(
            self._context.replicas_of(self._partitions_of(topics)),
            lambda r: self._context.replica_state(r) is ReplicaState.DELETION_INELIGIBLE,
        )
        if self._log.is_debug_enabled:
            self._log.debug(
                f"Retrying deletion of topics {comma(topics)} since replicas {comma(failed)} were not successfully "
                "deleted"
            )
        yield from self._replicas.change(failed, ReplicaState.OFFLINE)

    def _start(self, topics: list[str]) -> Steps[None]:
        """Take the topics' partitions out of service, and their replicas off the brokers."""
        unseen = [t for t in topics if t not in self._context.topics_with_deletion_started]
        unseen_partitions = list(self._partitions_of(unseen))
        yield from self._partitions.change(unseen_partitions, PartitionState.OFFLINE)
        yield from self._partitions.change(unseen_partitions, PartitionState.NON_EXISTENT)
        self._context.topics_with_deletion_started.update(unseen)
        batch = RequestBatch(self._context, self._options.controller_id)
        yield from batch.add_update_metadata_of_many(
            self._context.live_or_shutting_down_broker_ids, self._partitions_of(topics)
        )
        yield from batch.send()
        yield from self._delete_replicas(topics)

    def _delete_replicas(self, topics: list[str]) -> Steps[None]:
        def is_dead(replica: PartitionAndReplica) -> bool:
            return not self._context.is_replica_online(replica.replica, replica.topic_partition)

        def is_to_go(replica: PartitionAndReplica) -> bool:
            state = self._context.replica_state(replica)
            return not is_dead(replica) and state is not ReplicaState.DELETION_SUCCESSFUL

        dead: list[PartitionAndReplica] = []
        alive: list[PartitionAndReplica] = []
        waiting: list[str] = []
        for topic in topics:
            yield from carry_out(GiveWay())
            partitions = self._context.partitions_of_topic(topic)
            dead_of_topic = yield from select(self._context.replicas_of(partitions), is_dead)
            alive += yield from select(self._context.replicas_of(partitions), is_to_go)
            if dead_of_topic:
                if self._log.is_debug_enabled:
                    self._log.debug(f"Dead Replicas ({comma(dead_of_topic)}) found for topic {topic}")
                waiting.append(topic)
                dead += dead_of_topic
        yield from self._make_ineligible(dead)
        yield from self._replicas.change(alive, ReplicaState.OFFLINE)
        yield from self._replicas.change(alive, ReplicaState.DELETION_STARTED)
        self._mark_ineligible(waiting, "offline replicas")

    def _complete(self, topic: str) -> Steps[bool]:
        """Forget a topic whose replicas are gone: memory, watches, znodes; return whether that worked.

        If its znodes cannot be removed, the topic stays queued with all its replicas deleted, and is tried again soon.
        """
        yield from carry_out(UnwatchTopics((topic,)))
        yield from self._forget_reassignments(topic)
        try:
            yield from carry_out(DeleteTopicZNodes(topic))
        except ControllerMoved:
            raise
        except CoordinationError as error:
            self._log.error(f"The znodes of topic {topic} could not be deleted, trying again", error)
            yield from carry_out(ScheduleTopicDeletion(NEXT_TRY_MS))
            return False
        partitions = self._context.partitions_of_topic(topic)
        yield from self._replicas.change(self._context.replicas_of(partitions), ReplicaState.NON_EXISTENT)
        yield from each(partitions, self._context.remove_partition)
        self._context.remove_topic(topic)
        return True
