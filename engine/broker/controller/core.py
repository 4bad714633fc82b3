"""The controller's decisions: an event goes in, instructions come out, their results go in again. No I/O, no clock.

``take_over`` is what a broker does once it has been elected; ``process`` handles one event of an active controller.
Both are generators (see ``instructions``). Election, resignation and the event queue belong to the loop.
"""

from __future__ import annotations

from collections.abc import Callable

from engine.broker.controller import events
from engine.broker.controller.broker_changes import BrokerChanges
from engine.broker.controller.context import ControllerContext
from engine.broker.controller.dispatch import Row, on, table
from engine.broker.controller.events import ControllerEvent
from engine.broker.controller.instructions import (
    AllocateProducerIdBlock,
    Answer,
    ConnectBrokers,
    DeleteIsrChangeNotifications,
    DeleteLogDirEvents,
    ReadBrokers,
    ReadTopicDeletions,
    ReadTopics,
    ScheduleLeaderRebalance,
    SetUpFeatures,
    Steps,
    WatchBrokers,
    WatchCluster,
    WatchTopics,
    carry_out,
    each,
    select,
)
from engine.broker.controller.isr_approval import IsrChanges
from engine.broker.controller.leadership import Leadership
from engine.broker.controller.logs import comma, controller_log, scala, scala_map, state_change_log
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.partition_state_machine import PartitionStateMachine
from engine.broker.controller.reassignment import Reassignments
from engine.broker.controller.reassignment_requests import ReassignmentRequests
from engine.broker.controller.replica_state_machine import ReplicaStateMachine
from engine.broker.controller.request_batch import RequestBatch
from engine.broker.controller.requested_elections import ReplicaElections
from engine.broker.controller.topic_changes import TopicChanges
from engine.broker.controller.topic_deletion import TopicDeletion
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.common.topic_id import random_topic_id
from engine.kafka.zk.errors import ControllerMoved

FIRST_REBALANCE_DELAY_MS = 5_000
"""How long a new controller waits before it checks the balance of leaders."""


class ControllerCore:
    """Kafka's controller without its surroundings."""

    def __init__(self, options: ControllerOptions, *, new_topic_id: Callable[[], bytes] = random_topic_id) -> None:
        self.options = options
        self.context = ControllerContext()
        self._log = controller_log(options.controller_id)
        self._leadership = Leadership(self.context, options)
        self._partitions = PartitionStateMachine(self.context, options, self._leadership)
        self._replicas = ReplicaStateMachine(self.context, options, self._leadership)
        self._reassignments = Reassignments(self.context, options, self._leadership, self._partitions, self._replicas)
        self._reassignment_requests = ReassignmentRequests(self.context, options, self._reassignments)
        self._deletion = TopicDeletion(
            self.context, options, self._partitions, self._replicas, self._reassignments.forget_topic
        )
        self._topics = TopicChanges(
            self.context, options, self._partitions, self._replicas, self._deletion, new_topic_id
        )
        self._brokers = BrokerChanges(
            self.context, options, self._partitions, self._replicas, self._reassignments, self._deletion
        )
        self._isr = IsrChanges(self.context, options, self._leadership, self._reassignments.complete_caught_up)
        self._elections = ReplicaElections(self.context, options, self._partitions)
        self._table = table(*self._handlers())

    # Take-over

    def take_over(self, controller_epoch: int, epoch_zk_version: int) -> Steps[None]:
        """Become the controller: read everything, tell the brokers, and finish what an earlier one left.

        Raises:
            ControllerMoved: another broker was elected meanwhile.
        """
        self.context.reset()
        self.context.epoch.controller_epoch = controller_epoch
        self.context.epoch.zk_version = epoch_zk_version
        yield from carry_out(SetUpFeatures())
        self._log.info("Registering handlers")
        yield from carry_out(WatchCluster())
        self._log.info("Deleting log dir event notifications")
        yield from carry_out(DeleteLogDirEvents())
        self._log.info("Deleting isr change notifications")
        yield from carry_out(DeleteIsrChangeNotifications())
        yield from self._initialize_context()
        yield from self._initialize_deletions()
        self._log.info("Sending update metadata request")
        # Brokers must know who is alive before they can follow anybody.
        batch = RequestBatch(self.context, self.options.controller_id)
        batch.add_update_metadata(self.context.live_or_shutting_down_broker_ids, ())
        yield from batch.send()
        yield from self._replicas.start_up()
        yield from self._partitions.start_up()
        self._log.info(f"Ready to serve as the new controller with epoch {controller_epoch}")
        yield from self._finish_what_was_left()

    def _initialize_context(self) -> Steps[None]:
        self._log.info("Initializing controller context")
        context = self.context
        context.live_brokers = yield from carry_out(ReadBrokers())
        epochs = {b: context.live_brokers[b].broker_epoch for b in sorted(context.live_brokers)}
        self._log.info(f"Initialized broker epochs cache: {scala_map('HashMap', epochs)}")
        topics = tuple((yield from carry_out(ReadTopics())))
        yield from carry_out(WatchTopics(topics))
        partitions = yield from self._topics.take((yield from self._topics.read_assignments(topics)))
        moving = yield from select(partitions, lambda p: context.full_assignment(p).is_being_reassigned)
        context.partitions_being_reassigned.update(dict.fromkeys(moving))
        broker_ids = tuple(sorted(context.live_brokers))
        if self._log.is_debug_enabled:
            self._log.debug(f"Register BrokerModifications handler for {scala('Set', broker_ids)}")
        yield from carry_out(WatchBrokers(broker_ids))
        yield from self._leadership.refresh(partitions)
        yield from carry_out(ConnectBrokers(tuple(context.live_brokers[b] for b in broker_ids)))
        self._log.info(f"Currently active brokers in the cluster: {scala('Set', context.live_broker_ids)}")
        shutting_down = sorted(context.shutting_down_broker_ids)
        self._log.info(f"Currently shutting brokers in the cluster: {scala('HashSet', shutting_down)}")
        self._log.info(f"Current list of topics in the cluster: {scala('HashSet', context.topics)}")

    def _initialize_deletions(self) -> Steps[None]:
        self._log.info("Fetching topic deletions in progress")
        marked = yield from carry_out(ReadTopicDeletions())
        ineligible: dict[str, None] = {}

        def note(partition: TopicPartition) -> None:
            if self.context.has_offline_replica(partition):
                ineligible[partition.topic] = None

        yield from each(self.context.all_partitions(), note)
        self._log.info(f"List of topics to be deleted: {comma(marked)}")
        self._log.info(f"List of topics ineligible for deletion: {comma(ineligible)}")
        self._log.info("Initializing topic deletion manager")
        yield from self._deletion.initialize(marked, ineligible)

    def _finish_what_was_left(self) -> Steps[None]:
        resumed = yield from self._reassignment_requests.from_znode(is_taking_over=True)
        yield from self._reassignments.resume(lambda partition, _: partition not in resumed)
        yield from self._deletion.resume()
        yield from self._elections.resume_znode()
        self._log.info("Starting the controller scheduler")
        if self.options.auto_leader_rebalance_enable:
            yield from carry_out(ScheduleLeaderRebalance(FIRST_REBALANCE_DELAY_MS))

    def resign(self) -> None:
        """Forget everything; the loop closes watches and queues."""
        self._partitions.shut_down()
        self._replicas.shut_down()
        self.context.reset()

    # Events

    def process(self, event: ControllerEvent) -> Steps[None]:
        """Handle one event to its end.

        Raises:
            ControllerMoved: this broker is not the controller any more. Everything else is logged here.
        """
        try:
            yield from self._table[type(event)](event)
        except ControllerMoved as error:
            self._log.info(f"Controller moved to another broker when processing {event}.", error)
            raise
        except Exception as error:
            # If one event fails, the next one is processed all the same: a controller that stops helps nobody.
            self._log.error(f"Error processing event {event}", error)
            yield from carry_out(Answer(_failure(event)))

    def _handlers(self) -> list[Row[Steps[None]]]:
        return [
            on(events.BrokerChange, lambda _: self._brokers.process_change()),
            on(events.BrokerModification, lambda event: self._brokers.process_modification(event.broker_id)),
            on(events.TopicChange, lambda _: self._topics.process_change()),
            on(events.PartitionModifications, lambda event: self._topics.process_modifications(event.topic)),
            on(events.TopicDeletionRequested, lambda _: self._topics.process_deletions()),
            on(events.StopReplicaResponseReceived, self._topics.process_stop_replica_response),
            on(events.LeaderAndIsrResponseReceived, self._brokers.process_leader_and_isr_response),
            on(events.UpdateMetadataResponseReceived, self._process_update_metadata_response),
            on(events.LogDirEventNotification, lambda _: self._brokers.process_log_dir_events()),
            on(events.IsrChangeNotification, lambda _: self._isr.process_notifications()),
            on(events.AlterPartition, self._isr.alter_partition),
            on(events.ZkPartitionReassignment, lambda _: self._process_reassignment_znode()),
            on(events.PartitionReassignmentIsrChange, self._process_reassignment_isr_change),
            on(events.ProceedWithReassignments, lambda event: self._reassignments.proceed_with(event.partitions)),
            on(events.AlterPartitionReassignments, self._reassignment_requests.from_api),
            on(events.ListPartitionReassignments, self._list_reassignments),
            on(events.ZkPreferredElection, lambda _: self._elections.from_znode()),
            on(events.AutoPreferredReplicaLeaderElection, lambda _: self._elections.balance()),
            on(
                events.ElectLeaders,
                lambda event: _answer(self._elections.from_api(event.partitions, event.election_type)),
            ),
            on(events.UncleanLeaderElectionEnable, lambda event: self._enable_unclean_election(event.topic)),
            on(events.ControlledShutdown, lambda event: _answer(self._brokers.controlled_shutdown(event))),
            on(events.AllocateProducerIds, lambda event: _answer(self._allocate_producer_ids(event))),
        ]

    def _process_reassignment_znode(self) -> Steps[None]:
        yield from self._reassignment_requests.from_znode()

    def _process_reassignment_isr_change(self, event: events.PartitionReassignmentIsrChange) -> Steps[None]:
        if event.partition in self.context.partitions_being_reassigned:
            yield from self._leadership.refresh((event.partition,))
            yield from self._reassignments.complete_caught_up((event.partition,))

    def _list_reassignments(self, event: events.ListPartitionReassignments) -> Steps[None]:
        yield from carry_out(Answer((yield from self._reassignment_requests.under_way(event.partitions))))

    def _process_update_metadata_response(self, event: events.UpdateMetadataResponseReceived) -> Steps[None]:
        yield from ()
        if event.error is not ErrorCode.NONE:
            state_change_log(self.options.controller_id, None).error(
                f"Received error {event.error.name} in UpdateMetadata response {event.text} "
                f"from broker {event.broker_id}"
            )

    def _enable_unclean_election(self, topic: str | None) -> Steps[None]:
        if topic is None:
            self._log.info("Unclean leader election has been enabled by default")
        else:
            self._log.info(f"Unclean leader election has been enabled for topic {topic}")
        yield from self._partitions.trigger_online_state_change(topic)

    def _allocate_producer_ids(self, event: events.AllocateProducerIds) -> Steps[object]:
        broker = self.context.live_brokers.get(event.broker_id)
        if broker is None:
            self._log.warning(f"Ignoring AllocateProducerIds due to unknown broker {event.broker_id}")
            return ErrorCode.BROKER_ID_NOT_REGISTERED
        if broker.broker_epoch != event.broker_epoch:
            self._log.warning(
                f"Ignoring AllocateProducerIds due to stale broker epoch {event.broker_epoch} "
                f"for broker {event.broker_id}"
            )
            return ErrorCode.STALE_BROKER_EPOCH
        return (yield from carry_out(AllocateProducerIdBlock(event.broker_id)))


def _answer(steps: Steps[object]) -> Steps[None]:
    yield from carry_out(Answer((yield from steps)))


def _failure(event: ControllerEvent) -> object:
    """Return the answer of a request whose processing failed; the same shape as its refusal."""
    unknown = ErrorCode.UNKNOWN_SERVER_ERROR
    match event.refusal:
        case ErrorCode():
            return unknown
        case events.ApiError():
            return events.ApiError(unknown)
        case _:
            return None
