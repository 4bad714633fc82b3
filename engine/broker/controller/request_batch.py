"""Collects what one step of the controller has to send, into one request of each kind per broker.

Pure. A batch is filled, sent once and discarded; LeaderAndIsr goes first, then UpdateMetadata, then StopReplica.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from itertools import chain

from engine.broker.controller.broker_requests import (
    BrokerRequest,
    LeaderAndIsrPartition,
    LeaderAndIsrToBroker,
    StopReplicaPartition,
    StopReplicaToBroker,
    UpdateMetadataPartition,
    UpdateMetadataToBroker,
)
from engine.broker.controller.context import ControllerContext
from engine.broker.controller.instructions import SCAN_SIZE, GiveWay, SendRequests, Steps, carry_out, each, slices
from engine.broker.controller.logs import PrefixedLogger, request_batch_log, scala, state_change_log
from engine.common.model import (
    LEADER_DURING_DELETE,
    BrokerInfo,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    TopicPartition,
)
from engine.common.topic_id import ZERO_TOPIC_ID


class RequestBatch:
    """Requests of one step, by broker."""

    def __init__(self, context: ControllerContext, controller_id: int) -> None:
        self._context = context
        self._log = state_change_log(controller_id, context.epoch.controller_epoch)
        self._leader_and_isr: dict[int, dict[TopicPartition, LeaderAndIsrPartition]] = {}
        self._stop_replica: dict[int, dict[TopicPartition, StopReplicaPartition]] = {}
        self._metadata_brokers: dict[int, None] = {}
        self._tells_all_live = False
        self._metadata: dict[TopicPartition, UpdateMetadataPartition] = {}
        self._metadata_topics: dict[str, None] = {}

    def add_leader_and_isr(
        self,
        broker_ids: Iterable[int],
        partition: TopicPartition,
        leadership: LeaderIsrAndControllerEpoch,
        assignment: ReplicaAssignment,
        *,
        is_new: bool,
    ) -> None:
        """Tell brokers a partition's leadership, and every live broker its metadata."""
        value = LeaderAndIsrPartition(
            partition, leadership.controller_epoch, leadership.leader_and_isr, assignment, is_new
        )
        for broker_id in broker_ids:
            if broker_id < 0:
                continue
            of_broker = self._leader_and_isr.setdefault(broker_id, {})
            earlier = of_broker.get(partition)
            if earlier is not None and earlier.is_new and not is_new:
                of_broker[partition] = LeaderAndIsrPartition(
                    partition, leadership.controller_epoch, leadership.leader_and_isr, assignment, True
                )
            else:
                of_broker[partition] = value
        # Once per batch: a hundred brokers for each of a hundred thousand partitions would take seconds.
        everybody = () if self._tells_all_live else self._context.live_or_shutting_down_broker_ids
        self._tells_all_live = True
        self.add_update_metadata(everybody, (partition,))

    def add_stop_replica(self, broker_id: int, partition: TopicPartition, *, delete: bool) -> None:
        """Tell a broker to stop a replica; a deletion requested earlier in the batch stays one."""
        if broker_id < 0:
            return
        of_broker = self._stop_replica.setdefault(broker_id, {})
        earlier = of_broker.get(partition)
        deletes = delete or (earlier is not None and earlier.delete)
        of_broker[partition] = StopReplicaPartition(partition, self._context.leader_epoch(partition), deletes)

    def add_update_metadata(self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition]) -> None:
        """Tell brokers who is alive, and the current leadership of partitions."""
        for broker_id in broker_ids:
            if broker_id >= 0:
                self._metadata_brokers[broker_id] = None
        for partition in partitions:
            leadership = self._context.leadership.get(partition)
            if leadership is None:
                request_batch_log().info(
                    f"Leader not yet assigned for partition {partition}. Skip sending UpdateMetadataRequest."
                )
            else:
                self._metadata[partition] = self._metadata_of(partition, leadership)
                self._metadata_topics[partition.topic] = None

    def _metadata_of(
        self, partition: TopicPartition, leadership: LeaderIsrAndControllerEpoch
    ) -> UpdateMetadataPartition:
        state = leadership.leader_and_isr
        replicas = self._context.replicas(partition)
        offline = tuple(r for r in replicas if not self._context.is_replica_online(r, partition))
        is_deleted = partition.topic in self._context.topics_to_be_deleted
        return UpdateMetadataPartition(
            topic_partition=partition,
            controller_epoch=leadership.controller_epoch,
            leader=LEADER_DURING_DELETE if is_deleted else state.leader,
            leader_epoch=0 if is_deleted else state.leader_epoch,
            isr=state.isr,
            partition_epoch=0 if is_deleted else state.partition_epoch,
            replicas=replicas,
            offline_replicas=offline,
        )

    def add_update_metadata_of_many(
        self, broker_ids: Iterable[int], partitions: Iterable[TopicPartition]
    ) -> Steps[None]:
        """Like ``add_update_metadata``, for as many partitions as a cluster may have."""
        self.add_update_metadata(broker_ids, ())
        for piece in slices(partitions):
            yield from carry_out(GiveWay())
            self.add_update_metadata((), piece)

    def send(self) -> Steps[None]:
        """Queue everything collected for registered brokers; the batch cannot be used again."""
        requests: list[BrokerRequest] = []
        named = 0
        # What was collected goes piece by piece: freeing all of it at the end would take long.
        for broker_id in list(self._leader_and_isr):
            partitions = self._leader_and_isr.pop(broker_id)
            broker = self._context.live_brokers.get(broker_id)
            if broker is None:
                continue
            requests.append((yield from self._leader_and_isr_request(broker, partitions)))
            named += len(partitions)
            if named > SCAN_SIZE:
                named = 0
                yield from carry_out(GiveWay())
        others: Iterable[BrokerRequest] = chain(self._update_metadata_requests(), self._stop_replica_requests())
        for request in others:
            requests.append(request)
            named += len(request.partitions)
            if named > SCAN_SIZE:
                named = 0
                yield from carry_out(GiveWay())
        if requests:
            yield from carry_out(SendRequests(tuple(requests)))

    def _leader_and_isr_request(
        self, broker: BrokerInfo, partitions: dict[TopicPartition, LeaderAndIsrPartition]
    ) -> Steps[LeaderAndIsrToBroker]:
        led: Counter[int] = Counter()
        topics: dict[str, None] = {}

        def note(value: LeaderAndIsrPartition) -> None:
            led[value.state.leader] += 1
            topics[value.topic_partition.topic] = None

        yield from each(partitions.values(), note)
        if self._log.is_trace_enabled:
            _trace_leader_and_isr(self._log, broker.id, partitions)
        self._log.info(
            f"Sending LeaderAndIsr request to broker {broker.id} with {led[broker.id]} become-leader "
            f"and {len(partitions) - led[broker.id]} become-follower partitions"
        )
        return LeaderAndIsrToBroker(
            broker_id=broker.id,
            broker_epoch=broker.broker_epoch,
            controller_epoch=self._context.epoch.controller_epoch,
            partitions=tuple(partitions.values()),
            leaders=tuple(b for b in self._live_brokers() if b.id in led),
            topic_ids={topic: self._context.topic_ids.get(topic, ZERO_TOPIC_ID) for topic in topics},
        )

    def _update_metadata_requests(self) -> Iterable[UpdateMetadataToBroker]:
        if not self._metadata_brokers and not self._metadata:
            return
        self._log.info(
            f"Sending UpdateMetadata request to brokers {scala('HashSet', sorted(self._metadata_brokers))} "
            f"for {len(self._metadata)} partitions"
        )
        partitions = tuple(self._metadata.values())
        self._metadata.clear()
        live_brokers = self._live_brokers()
        known_ids = self._context.topic_ids
        topic_ids = {topic: known_ids[topic] for topic in self._metadata_topics if topic in known_ids}
        for broker_id in self._metadata_brokers:
            broker = self._context.live_brokers.get(broker_id)
            if broker is not None:
                yield UpdateMetadataToBroker(
                    broker_id=broker_id,
                    broker_epoch=broker.broker_epoch,
                    controller_epoch=self._context.epoch.controller_epoch,
                    partitions=partitions,
                    live_brokers=live_brokers,
                    topic_ids=topic_ids,
                )

    def _stop_replica_requests(self) -> Iterable[StopReplicaToBroker]:
        for broker_id in list(self._stop_replica):
            partitions = self._stop_replica.pop(broker_id)
            broker = self._context.live_brokers.get(broker_id)
            if broker is None:
                continue
            if self._log.is_trace_enabled:
                for p, value in partitions.items():
                    self._log.trace(f"Sending StopReplica request {value} to broker {broker_id} for partition {p}")
            self._log.info(f"Sending StopReplica request for {len(partitions)} replicas to broker {broker_id}")
            yield StopReplicaToBroker(
                broker_id=broker_id,
                broker_epoch=broker.broker_epoch,
                controller_epoch=self._context.epoch.controller_epoch,
                partitions=tuple(partitions.values()),
            )

    def _live_brokers(self) -> tuple[BrokerInfo, ...]:
        return tuple(self._context.live_brokers[b] for b in self._context.live_or_shutting_down_broker_ids)


def _trace_leader_and_isr(
    log: PrefixedLogger, broker_id: int, partitions: dict[TopicPartition, LeaderAndIsrPartition]
) -> None:
    for partition, value in partitions.items():
        role = "become-leader" if value.state.leader == broker_id else "become-follower"
        log.trace(f"Sending {role} LeaderAndIsr request {value} to broker {broker_id} for partition {partition}")
