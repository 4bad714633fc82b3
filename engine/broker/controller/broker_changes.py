"""Brokers come, go, come back within a session, shut down in a controlled way, and lose log dirs."""

from __future__ import annotations

from collections.abc import Iterable
from itertools import chain

from engine.broker.controller.context import ControllerContext
from engine.broker.controller.events import ApiError, ControlledShutdown, LeaderAndIsrResponseReceived
from engine.broker.controller.instructions import (
    ConnectBrokers,
    DeleteLogDirEvents,
    DisconnectBrokers,
    ReadBroker,
    ReadBrokers,
    ReadLogDirEvents,
    Steps,
    UnwatchBrokers,
    WatchBrokers,
    carry_out,
    each,
    select,
)
from engine.broker.controller.leader_selectors import CONTROLLED_SHUTDOWN_ELECTION
from engine.broker.controller.logs import comma, controller_log, leadership_text, scala, scala_map, state_change_log
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.partition_state_machine import PartitionStateMachine
from engine.broker.controller.reassignment import Reassignments
from engine.broker.controller.replica_state_machine import ReplicaStateMachine
from engine.broker.controller.request_batch import RequestBatch
from engine.broker.controller.states import PartitionAndReplica, PartitionState, ReplicaState
from engine.broker.controller.topic_deletion import TopicDeletion
from engine.common.errors import ErrorCode
from engine.common.model import UNKNOWN_BROKER_EPOCH, BrokerInfo, LeaderAndIsr, TopicPartition


class BrokerChanges:
    """What the controller does when the set of brokers, or what they can serve, changes."""

    def __init__(
        self,
        context: ControllerContext,
        options: ControllerOptions,
        partitions: PartitionStateMachine,
        replicas: ReplicaStateMachine,
        reassignments: Reassignments,
        deletion: TopicDeletion,
    ) -> None:
        self._context = context
        self._options = options
        self._partitions = partitions
        self._replicas = replicas
        self._reassignments = reassignments
        self._deletion = deletion
        self._log = controller_log(options.controller_id)

    def process_change(self) -> Steps[None]:
        """Compare the registered brokers with those known, and handle the new, the restarted and the gone."""
        registered = yield from carry_out(ReadBrokers())
        known = self._context.live_brokers
        new = sorted(registered.keys() - known.keys())
        gone = sorted(known.keys() - registered.keys())
        bounced = sorted(
            b for b in registered.keys() & known.keys() if registered[b].broker_epoch > known[b].broker_epoch
        )
        self._log.info(
            f"Newly added brokers: {comma(new)}, deleted brokers: {comma(gone)}, bounced brokers: {comma(bounced)}, "
            f"all live brokers: {comma(sorted(registered))}"
        )
        yield from self._reconnect(new, bounced, gone, [registered[b] for b in (*new, *bounced)])
        if new:
            known.update({b: registered[b] for b in new})
            yield from self._on_startup(new)
        if bounced:
            self._remove(bounced)
            yield from self._on_failure(bounced)
            known.update({b: registered[b] for b in bounced})
            yield from self._on_startup(bounced)
        if gone:
            self._remove(gone)
            yield from self._on_failure(gone)
        if new or bounced or gone:
            self._log.info(
                "Updated broker epochs cache: "
                + scala_map("HashMap", {b: known[b].broker_epoch for b in sorted(known)})
            )

    def _reconnect(
        self, new: list[int], bounced: list[int], gone: list[int], brokers: Iterable[BrokerInfo]
    ) -> Steps[None]:
        if bounced or gone:
            yield from carry_out(DisconnectBrokers((*bounced, *gone)))
        if new or bounced:
            yield from carry_out(ConnectBrokers(tuple(brokers)))

    def _remove(self, broker_ids: list[int]) -> None:
        for broker_id in broker_ids:
            self._context.live_brokers.pop(broker_id, None)

    def process_modification(self, broker_id: int) -> Steps[None]:
        """Send all brokers the new endpoints of a broker that changed its registration."""
        registered = yield from carry_out(ReadBroker(broker_id))
        known = self._context.live_brokers.get(broker_id)
        if registered is None or known is None or registered.broker_epoch != known.broker_epoch:
            return
        if registered.endpoints != known.endpoints or registered.rack != known.rack:
            self._log.info(f"Updated broker metadata: {known} -> {registered}")
            self._context.live_brokers[broker_id] = registered
            self._log.info(f"Broker info update callback for {broker_id}")
            yield from self._send_metadata(self._context.live_or_shutting_down_broker_ids, ())

    def _send_metadata(self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition]) -> Steps[None]:
        batch = RequestBatch(self._context, self._options.controller_id)
        yield from batch.add_update_metadata_of_many(broker_ids, partitions)
        yield from batch.send()

    def _on_startup(self, broker_ids: list[int]) -> Steps[None]:
        """Give new brokers the cluster's metadata and their partitions, and start what they make possible."""
        self._log.info(f"New broker startup callback for {comma(broker_ids)}")
        existing = [b for b in self._context.live_or_shutting_down_broker_ids if b not in broker_ids]
        yield from self._send_metadata(existing, ())
        yield from self._send_metadata(broker_ids, self._context.partitions_with_leadership())
        replicas = yield from self._replicas_on(broker_ids)
        # A replica whose files are gone cannot come back; its topic waits only for others.
        deleted = ReplicaState.DELETION_SUCCESSFUL
        startable = yield from select(replicas, lambda r: self._context.replica_state(r) is not deleted)
        yield from self._replicas.change(startable, ReplicaState.ONLINE)
        yield from self._partitions.trigger_online_state_change()
        yield from self._reassignments.resume(
            lambda _, assignment: any(b in assignment.target_replicas for b in broker_ids)
        )
        yield from self._resume_deletions(broker_ids, replicas)
        if self._log.is_debug_enabled:
            self._log.debug(f"Register BrokerModifications handler for {scala('List', broker_ids)}")
        yield from carry_out(WatchBrokers(tuple(broker_ids)))

    def _resume_deletions(self, broker_ids: list[int], replicas: list[PartitionAndReplica]) -> Steps[None]:
        doomed = yield from select(replicas, lambda r: self._deletion.is_queued(r.topic))
        if doomed:
            self._log.info(
                f"Some replicas {comma(doomed)} for topics scheduled for deletion "
                f"{comma(self._context.topics_to_be_deleted)} are on the newly restarted brokers {comma(broker_ids)}. "
                "Signaling restart of topic deletion for these topics"
            )
            yield from self._deletion.resume_for(r.topic for r in doomed)

    def _on_failure(self, broker_ids: list[int]) -> Steps[None]:
        """Find new leaders for what the brokers led, and take them out of the ISRs."""
        self._log.info(f"Broker failure callback for {comma(broker_ids)}")
        shutting_down = self._context.shutting_down_broker_ids
        if were_shutting_down := [b for b in broker_ids if b in shutting_down]:
            self._log.info(f"Removed {comma(were_shutting_down)} from list of shutting down brokers.")
        shutting_down.difference_update(broker_ids)
        for broker_id in broker_ids:
            self._context.replicas_on_offline_dirs.pop(broker_id, None)
        yield from self._on_replicas_offline((yield from self._replicas_on(broker_ids)))
        if self._log.is_debug_enabled:
            self._log.debug(f"Unregister BrokerModifications handler for {scala('List', broker_ids)}")
        yield from carry_out(UnwatchBrokers(tuple(broker_ids)))

    def _replicas_on(self, broker_ids: list[int]) -> Steps[list[PartitionAndReplica]]:
        """Return the replicas of brokers, one broker's after the other's."""
        replicas: dict[int, list[PartitionAndReplica]] = {broker_id: [] for broker_id in broker_ids}

        def look(partition: TopicPartition) -> None:
            for replica in self._context.replicas(partition):
                if replica in replicas:
                    replicas[replica].append(PartitionAndReplica(partition, replica))

        yield from each(self._context.all_partitions(), look)
        return list(chain.from_iterable(replicas.values()))

    def _on_replicas_offline(self, replicas: list[PartitionAndReplica]) -> Steps[None]:
        """Handle replicas that can no longer be reached: their broker or their log dir is gone."""
        doomed = yield from select(replicas, lambda r: self._deletion.is_queued(r.topic))
        others = yield from select(replicas, lambda r: not self._deletion.is_queued(r.topic))
        leaderless = yield from select(self._context.leadership, self._context.has_offline_leader)
        yield from self._partitions.change(leaderless, PartitionState.OFFLINE)
        results = yield from self._partitions.trigger_online_state_change()
        yield from self._replicas.change(others, ReplicaState.OFFLINE)
        yield from self._deletion.fail_replicas(doomed)
        if not others and not any(isinstance(r, LeaderAndIsr) for r in results.values()):
            # No request was sent so far, but every broker must learn that some are gone.
            yield from self._send_metadata(self._context.live_or_shutting_down_broker_ids, ())

    def controlled_shutdown(self, event: ControlledShutdown) -> Steps[list[TopicPartition] | ApiError]:
        """Move the leadership away from a broker that is shutting down; return what it still leads."""
        error = self._refusal(event)
        if error is not None:
            return error
        broker_id = event.broker_id
        self._context.shutting_down_broker_ids.add(broker_id)
        if self._log.is_debug_enabled:
            shutting_down = sorted(self._context.shutting_down_broker_ids)
            self._log.debug(f"All shutting down brokers: {comma(shutting_down)}")
            self._log.debug(f"Live brokers: {comma(self._context.live_broker_ids)}")
        led, followed = yield from self._led_and_followed(broker_id)
        yield from self._partitions.change(led, PartitionState.ONLINE, CONTROLLED_SHUTDOWN_ELECTION)
        batch = RequestBatch(self._context, self._options.controller_id)
        yield from each(followed, lambda partition: batch.add_stop_replica(broker_id, partition, delete=False))
        yield from batch.send()
        yield from self._replicas.change([PartitionAndReplica(p, broker_id) for p in followed], ReplicaState.OFFLINE)
        if self._log.is_trace_enabled:
            leaders = (f"{p} -> {leadership_text(state)}" for p, state in self._context.leadership.items())
            self._log.trace(f"All leaders = {comma(leaders)}")
        return (yield from select(self._context.leadership, lambda p: self._context.is_left_to(broker_id, p)))

    def _refusal(self, event: ControlledShutdown) -> ApiError | None:
        known = self._context.live_brokers.get(event.broker_id)
        if known is None:
            return ApiError(ErrorCode.BROKER_NOT_AVAILABLE, f"Broker id {event.broker_id} does not exist.")
        if UNKNOWN_BROKER_EPOCH != event.broker_epoch < known.broker_epoch:
            message = (
                f"Received controlled shutdown request from an old broker epoch {event.broker_epoch} for broker "
                f"{event.broker_id}. Current broker epoch is {known.broker_epoch}."
            )
            self._log.info(message)
            return ApiError(ErrorCode.STALE_BROKER_EPOCH, message)
        self._log.info(f"Shutting down broker {event.broker_id}")
        return None

    def _led_and_followed(self, broker_id: int) -> Steps[tuple[list[TopicPartition], list[TopicPartition]]]:
        """Return the broker's partitions that have other replicas: those it leads and those it follows."""
        led: list[TopicPartition] = []
        followed: list[TopicPartition] = []

        def look(partition: TopicPartition) -> None:
            replicas, leadership = self._context.replicas(partition), self._context.leadership.get(partition)
            if broker_id not in replicas or leadership is None or len(replicas) < 2:
                return
            if not self._deletion.is_queued(partition.topic):
                (led if leadership.leader_and_isr.leader == broker_id else followed).append(partition)

        yield from each(self._context.all_partitions(), look)
        return led, followed

    def process_log_dir_events(self) -> Steps[None]:
        """Ask brokers that lost a log dir which replicas they still have: their answers to LeaderAndIsr say so.

        The question changes no replica's state; Kafka marks them all online until the answer arrives.
        """
        notifications = yield from carry_out(ReadLogDirEvents())
        if notifications.malformed:
            self._log.warning(
                f"Removing log dir event notifications that cannot be understood: {', '.join(notifications.malformed)}"
            )
        broker_ids = sorted(set(notifications.values))
        self._log.info(f"Handling log directory failure for brokers {comma(broker_ids)}")
        batch = RequestBatch(self._context, self._options.controller_id)

        def ask(replica: PartitionAndReplica) -> None:
            partition, broker_id = replica
            leadership = self._context.leadership.get(partition)
            if leadership is not None and not self._deletion.is_queued(partition.topic):
                assignment = self._context.full_assignment(partition)
                batch.add_leader_and_isr((broker_id,), partition, leadership, assignment, is_new=False)

        yield from each((yield from self._replicas_on(broker_ids)), ask)
        yield from batch.send()
        if notifications.names:
            yield from carry_out(DeleteLogDirEvents(notifications.names))

    def process_leader_and_isr_response(self, event: LeaderAndIsrResponseReceived) -> Steps[None]:
        """Note which replicas a broker cannot serve because their log dir has failed."""
        changes = state_change_log(self._options.controller_id, None)
        if event.error is not ErrorCode.NONE:
            changes.error(
                f"Received error {event.error.name} in LeaderAndIsr response {event.text} from broker {event.broker_id}"
            )
            return
        if not self._context.is_present(event.broker_id, event.broker_epoch):
            return
        answered = event.partition_errors
        offline = self._context.replicas_on_offline_dirs.setdefault(event.broker_id, set())
        newly_offline: list[PartitionAndReplica] = []

        def note(partition: TopicPartition) -> None:
            if event.broker_id not in self._context.replicas(partition):
                return
            if answered[partition] is ErrorCode.NONE:
                offline.discard(partition)
            elif answered[partition] is ErrorCode.KAFKA_STORAGE_ERROR and partition not in offline:
                offline.add(partition)
                newly_offline.append(PartitionAndReplica(partition, event.broker_id))

        yield from each(answered, note)
        if newly_offline:
            names = comma(replica.topic_partition for replica in newly_offline)
            changes.info(f"Mark replicas {names} on broker {event.broker_id} as offline")
            yield from self._on_replicas_offline(newly_offline)
