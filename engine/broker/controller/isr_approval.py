"""ISR changes: leaders request them (AlterPartition, KIP-497), or write them and announce them (before KIP-497)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import TypeAlias

from engine.broker.controller.context import ControllerContext
from engine.broker.controller.events import AlterPartition, AlterPartitionAnswer, AlterPartitionItem, PartitionKey
from engine.broker.controller.instructions import (
    Answer,
    DeleteIsrChangeNotifications,
    GiveWay,
    ReadIsrChangeNotifications,
    Steps,
    carry_out,
    slices,
)
from engine.broker.controller.leadership import Leadership
from engine.broker.controller.logs import controller_log, leader_and_isr_text, scala
from engine.broker.controller.options import ControllerOptions
from engine.broker.controller.request_batch import RequestBatch
from engine.common.errors import ErrorCode
from engine.common.model import LeaderAndIsr, LeaderRecoveryState, TopicPartition

Item: TypeAlias = AlterPartitionItem

_LAST_VERSION_WITHOUT_INELIGIBLE = 1
"""AlterPartition versions up to this one do not know INELIGIBLE_REPLICA."""


class IsrChanges:
    """Accepts or refuses ISRs, writes them, and tells all brokers."""

    def __init__(
        self,
        context: ControllerContext,
        options: ControllerOptions,
        leadership: Leadership,
        complete_reassignments: Callable[[Iterable[TopicPartition]], Steps[None]],
    ) -> None:
        self._context = context
        self._options = options
        self._leadership = leadership
        self._complete_reassignments = complete_reassignments
        self._log = controller_log(options.controller_id)

    def alter_partition(self, event: AlterPartition) -> Steps[None]:
        """Carry out a leader's request; after the answer, finish reassignments that waited for it."""
        error = self._refusal_of_broker(event)
        if error is not None:
            yield from carry_out(Answer(error))
            return
        names: dict[TopicPartition, PartitionKey] = {}
        answer: dict[PartitionKey, LeaderAndIsr | ErrorCode] = {}
        for key in event.partitions:
            partition = self._partition(key)
            if partition is None:
                answer[key] = ErrorCode.UNKNOWN_TOPIC_ID
            else:
                names[partition] = key
        results = yield from self._alter(event, {p: event.partitions[key] for p, key in names.items()})
        answer.update({names[p]: result for p, result in results.items()})
        yield from carry_out(Answer({key: answer[key] for key in event.partitions}))
        moving = self._context.partitions_being_reassigned
        changed = [p for p, result in results.items() if isinstance(result, LeaderAndIsr) and p in moving]
        if changed:
            yield from self._complete_reassignments(changed)

    def _refusal_of_broker(self, event: AlterPartition) -> AlterPartitionAnswer | None:
        broker = self._context.live_brokers.get(event.broker_id)
        if broker is None:
            self._log.info(f"Ignoring AlterPartition due to unknown broker {event.broker_id}")
            return ErrorCode.STALE_BROKER_EPOCH
        if broker.broker_epoch != event.broker_epoch:
            self._log.info(
                f"Ignoring AlterPartition due to stale broker epoch {event.broker_epoch} and local broker epoch "
                f"Some({broker.broker_epoch}) for broker {event.broker_id}"
            )
            return ErrorCode.STALE_BROKER_EPOCH
        return None

    def _partition(self, key: PartitionKey) -> TopicPartition | None:
        topic, partition = key
        name = self._context.topic_names.get(topic) if isinstance(topic, bytes) else topic
        return None if name is None else TopicPartition(name, partition)

    def _alter(
        self, event: AlterPartition, items: dict[TopicPartition, AlterPartitionItem]
    ) -> Steps[dict[TopicPartition, LeaderAndIsr | ErrorCode]]:
        answer: dict[TopicPartition, LeaderAndIsr | ErrorCode] = {}
        accepted: dict[TopicPartition, LeaderAndIsr] = {}
        for piece in slices(items.items()):
            yield from carry_out(GiveWay())
            for partition, item in piece:
                decision = self._decide(event, partition, item)
                if decision is None:
                    accepted[partition] = LeaderAndIsr(
                        event.broker_id,
                        item.leader_epoch,
                        tuple(item.isr),
                        item.leader_recovery_state,
                        item.partition_epoch,
                    )
                else:
                    answer[partition] = decision
        if self._log.is_debug_enabled:
            self._log.debug(f"Updating ISRs for partitions: {scala('Set', accepted)}.")
        updates = yield from self._leadership.update(accepted)
        for updated in slices(updates.updated.items()):
            yield from carry_out(GiveWay())
            for partition, state in updated:
                if self._log.is_debug_enabled:
                    self._log.debug(f"ISR for partition {partition} updated to {leader_and_isr_text(state)}.")
                answer[partition] = state
        for partition, error in updates.failed.items():
            self._log.error(f"Failed to update ISR for partition {partition}", error)
            answer[partition] = ErrorCode.UNKNOWN_SERVER_ERROR
        for partition in updates.to_retry:
            self._log.info(
                f"Failed to update ISR to {leader_and_isr_text(accepted[partition])} for partition {partition}, "
                "bad ZK version."
            )
            answer[partition] = ErrorCode.INVALID_UPDATE_VERSION
        if updates.to_retry:
            yield from self._leadership.refresh(updates.to_retry)
        yield from self._tell(tuple(items))
        return answer

    def _tell(self, partitions: tuple[TopicPartition, ...]) -> Steps[None]:
        batch = RequestBatch(self._context, self._options.controller_id)
        yield from batch.add_update_metadata_of_many(self._context.live_or_shutting_down_broker_ids, partitions)
        yield from batch.send()

    def _decide(self, event: AlterPartition, partition: TopicPartition, item: Item) -> LeaderAndIsr | ErrorCode | None:
        """Return the answer for one partition without a write, or None if its ISR must be written."""
        leadership = self._context.leadership.get(partition)
        if leadership is None or partition.topic in self._context.topics_to_be_deleted:
            return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        current = leadership.leader_and_isr
        if item.partition_epoch > current.partition_epoch or item.leader_epoch > current.leader_epoch:
            # The leader knows more than this controller: it heard from a later one.
            return ErrorCode.NOT_CONTROLLER
        if item.leader_epoch < current.leader_epoch:
            return ErrorCode.FENCED_LEADER_EPOCH
        if current.leader != event.broker_id:
            return ErrorCode.INVALID_REQUEST
        if _is_wanted_state(event.broker_id, item, current):
            return current
        if item.partition_epoch < current.partition_epoch:
            return ErrorCode.INVALID_UPDATE_VERSION
        return self._refusal_of_recovery(event, partition, item, current) or self._refusal_of_isr(
            event, partition, item
        )

    def _refusal_of_recovery(
        self, event: AlterPartition, partition: TopicPartition, item: Item, current: LeaderAndIsr
    ) -> ErrorCode | None:
        if item.leader_recovery_state is not LeaderRecoveryState.RECOVERING:
            return None
        reason = None
        if len(item.isr) > 1:
            reason = "leader is recovering and ISR is greater than 1"
        elif current.leader_recovery_state is LeaderRecoveryState.RECOVERED:
            reason = "the leader recovery state cannot change from RECOVERED to RECOVERING"
        if reason is None:
            return None
        wanted = LeaderAndIsr(
            event.broker_id, item.leader_epoch, tuple(item.isr), item.leader_recovery_state, item.partition_epoch
        )
        self._log.info(
            f"Rejecting AlterPartition from node {event.broker_id} for {partition} because {reason}: "
            f"{leader_and_isr_text(wanted)}"
        )
        return ErrorCode.INVALID_REQUEST

    def _refusal_of_isr(self, event: AlterPartition, partition: TopicPartition, item: Item) -> ErrorCode | None:
        """Refuse members that are not replicas, not alive (KIP-841), or restarted since they caught up (KIP-903).

        The leader itself may be shutting down, which Kafka refuses. If nobody else is in sync yet, a replica that joins
        the ISR now can lead when the leader asks again to shut down.
        """
        epochs = item.isr_epochs or (-1,) * len(item.isr)
        replicas = self._context.replicas(partition)
        ineligible = [
            r
            for r, epoch in zip(item.isr, epochs, strict=True)
            if r not in replicas or not (r == event.broker_id or self._is_eligible(r, epoch))
        ]
        if item.isr and not ineligible:
            return None
        self._log.info(
            f"Rejecting AlterPartition request from node {event.broker_id} for {partition} because it specified "
            f"ineligible replicas {scala('Set', ineligible)} in the new ISR {list(item.isr)}."
        )
        if event.api_version <= _LAST_VERSION_WITHOUT_INELIGIBLE:
            return ErrorCode.OPERATION_NOT_ATTEMPTED
        return ErrorCode.INELIGIBLE_REPLICA

    def _is_eligible(self, replica: int, broker_epoch: int) -> bool:
        if not self._context.is_live_broker(replica):
            return False
        return broker_epoch in (-1, self._context.live_brokers[replica].broker_epoch)

    def process_notifications(self) -> Steps[None]:
        """Read the states that leaders wrote themselves, tell all brokers, and delete the notifications."""
        notifications = yield from carry_out(ReadIsrChangeNotifications())
        if notifications.malformed:
            self._log.warning(
                f"Removing ISR change notifications that cannot be understood: {', '.join(notifications.malformed)}"
            )
        partitions = [p for p in dict.fromkeys(notifications.values) if self._context.replicas(p)]
        if partitions:
            yield from self._leadership.refresh(partitions)
            if self._log.is_debug_enabled:
                self._log.debug(
                    f"Sending MetadataRequest to Brokers: "
                    f"{scala('List', self._context.live_or_shutting_down_broker_ids)} "
                    f"for TopicPartitions: {scala('ArrayBuffer', partitions)}"
                )
            yield from self._tell(tuple(partitions))
            moving = self._context.partitions_being_reassigned
            yield from self._complete_reassignments([p for p in partitions if p in moving])
        if notifications.names:
            yield from carry_out(DeleteIsrChangeNotifications(notifications.names))


def _is_wanted_state(broker_id: int, item: Item, current: LeaderAndIsr) -> bool:
    """Return whether the request is fulfilled already: it came again because its answer was lost."""
    return (
        current.leader == broker_id
        and current.isr == tuple(item.isr)
        and current.leader_recovery_state is item.leader_recovery_state
    )
