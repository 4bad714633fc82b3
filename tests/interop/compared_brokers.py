"""Requests that brokers and controllers send, with what is stale, unknown or makes no sense in them.

Left out is what Kafka does not check: the end of a broker that it does not know but of which an epoch is named
(UNKNOWN_SERVER_ERROR; here BROKER_NOT_AVAILABLE), and an ISR without the leader, which it writes to ZooKeeper.
"""

from __future__ import annotations

from collections.abc import Callable
from copy import deepcopy

from compared_configs import WORDS
from compared_records import batch, write
from compared_walks import fit
from requests_compared import moved
from side_by_side import Side, SideBySide

from engine.common.model import LEADER_DURING_DELETE
from engine.kafka.protocol.api_keys import API_SPECS
from engine.kafka.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from engine.kafka.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from engine.kafka.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.delete_records import (
    DeleteRecordsPartition,
    DeleteRecordsRequest,
    DeleteRecordsTopic,
)
from engine.kafka.protocol.apis.describe_producers import DescribeProducersRequest, TopicRequest
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.offset_for_leader_epoch import (
    OffsetForLeaderEpochRequest,
    OffsetForLeaderPartition,
    OffsetForLeaderTopic,
)
from engine.kafka.protocol.apis.stop_replica import (
    StopReplicaPartitionState,
    StopReplicaPartitionV0,
    StopReplicaRequest,
    StopReplicaTopicState,
    StopReplicaTopicV1,
)
from engine.kafka.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataPartitionState,
    UpdateMetadataRequest,
    UpdateMetadataTopicState,
)
from engine.kafka.protocol.declaration import Request

Epoch = Callable[[Side], int]
"""The epoch of a side's broker."""

UNKNOWN, OLD = -1, 1
"""Broker epochs: that of a sender which knows none, and one of before the broker's start."""


def brokers_ask_each_other(both: SideBySide, epoch: Epoch) -> None:
    """What changes nothing: refused, or as it is already."""
    topics = [CreatableTopic(name="among", num_partitions=1, replication_factor=1)]
    both.prepare(CreateTopicsRequest(topics=topics, timeout_ms=15_000), 7)
    both.wait_until_led("among")
    _ids_and_shutdowns(both)
    _controllers(both)
    _isr_changes(both, epoch)
    _deleted_topic(both, epoch)


def ask_in_each(both: SideBySide, what: str, build: Callable[[Side], Request], least: int = 0) -> None:
    """Ask in every version from ``least`` on, each with what it has."""

    def of(side: Side, version: int) -> Request:
        request = deepcopy(build(side))
        fit(request, version)
        return request

    spec = API_SPECS[build(both.sides["kafka"]).api_key]
    for version in range(max(least, spec.min_version), spec.max_version + 1):
        both.ask(what, lambda side, version=version: of(side, version), [version])


def _ids_and_shutdowns(both: SideBySide) -> None:
    for broker_id, broker_epoch in ((99, UNKNOWN), (-1, UNKNOWN), (0, UNKNOWN), (0, OLD), (0, 2**62)):
        whose = f"broker {broker_id} epoch {broker_epoch}"
        ids = AllocateProducerIdsRequest(broker_id=broker_id, broker_epoch=broker_epoch)
        both.ask(f"ids for {whose}", ids)
        if broker_id or broker_epoch == OLD:
            ending = ControlledShutdownRequest(broker_id=broker_id, broker_epoch=broker_epoch)
            ask_in_each(both, f"the end of {whose}", lambda _, ending=ending: ending, 0 if broker_id else 2)


def _controllers(both: SideBySide) -> None:
    """LeaderAndIsr, StopReplica and UpdateMetadata of an old controller, or for a broker that has started anew."""
    state = {"partition_index": 0, "controller_epoch": 1, "leader": 0, "leader_epoch": 0, "isr": [0], "replicas": [0]}
    for controller_epoch, broker_epoch in ((0, UNKNOWN), (0, OLD), (1, OLD)):
        head = {"controller_id": 0, "controller_epoch": controller_epoch, "broker_epoch": broker_epoch}
        context = f"controller epoch {controller_epoch} broker epoch {broker_epoch}"
        for name in ("among", "nosuch"):

            def roles(side: Side, name: str = name, head: dict[str, int] = head) -> Request:
                each = LeaderAndIsrPartitionState(**{**state, "topic_name": name, "partition_epoch": 0})
                of_topic = LeaderAndIsrTopicState(topic_name=name, topic_id=side.id_of(name), partition_states=[each])
                return LeaderAndIsrRequest(**head, ungrouped_partition_states=[each], topic_states=[of_topic])

            def stops(_: Side, name: str = name, head: dict[str, int] = head) -> Request:
                each = StopReplicaPartitionState(partition_index=0, leader_epoch=0, delete_partition=False)
                return StopReplicaRequest(
                    **head,
                    ungrouped_partitions=[StopReplicaPartitionV0(topic_name=name, partition_index=0)],
                    topics=[StopReplicaTopicV1(name=name, partition_indexes=[0])],
                    topic_states=[StopReplicaTopicState(topic_name=name, partition_states=[each])],
                )

            def metadata(side: Side, name: str = name, head: dict[str, int] = head) -> Request:
                each = UpdateMetadataPartitionState(**{**state, "topic_name": name, "zk_version": 0})
                of_topic = UpdateMetadataTopicState(topic_name=name, topic_id=side.id_of(name), partition_states=[each])
                return UpdateMetadataRequest(**head, ungrouped_partition_states=[each], topic_states=[of_topic])

            # Before these versions nobody says for which start of the broker a request is.
            for build, knows_broker_epoch in ((roles, 2), (stops, 1), (metadata, 5)):
                least = knows_broker_epoch if controller_epoch else 0
                ask_in_each(both, f"{build.__name__} {name} {context}", build, least)


def _isr_changes(both: SideBySide, epoch: Epoch) -> None:
    usual = {"leader_epoch": 0, "partition_epoch": 0, "new_isr": [0], "leader_recovery_state": 0}
    changes: tuple[dict[str, object], ...] = (
        {},
        {"leader_recovery_state": 1},
        *({"leader_epoch": leader_epoch} for leader_epoch in (-1, 5)),
        *({"partition_epoch": partition_epoch} for partition_epoch in (-1, 9)),
    )

    def asked(side: Side, name: str, index: int, broker_epoch: int, change: dict[str, object]) -> Request:
        partition = RequestPartitionData(**{"partition_index": index, **usual, **change})  # type: ignore[arg-type]
        partition.new_isr_with_epochs = [BrokerState(broker_id=each, broker_epoch=-1) for each in partition.new_isr]
        topic = RequestTopicData(topic_name=name, topic_id=side.id_of(name), partitions=[partition])
        return AlterPartitionRequest(broker_id=0, broker_epoch=broker_epoch, topics=[topic])

    for name, index in (("among", 0), ("among", 7), ("nosuch", 0)):
        for change in changes:
            context = f"ISR of {name}-{index} {change}"
            ask_in_each(both, context, lambda side, n=name, i=index, c=change: asked(side, n, i, epoch(side), c))
    for broker_epoch in (UNKNOWN, OLD, 2**62):
        context = f"ISR by epoch {broker_epoch}"
        ask_in_each(both, context, lambda side, of=broker_epoch: asked(side, "among", 0, of, {}))


def _deleted_topic(both: SideBySide, epoch: Epoch) -> None:
    """What is asked of a replica between the news of its topic's deletion and its own end."""
    name = "deleted"
    both.prepare(CreateTopicsRequest(topics=[CreatableTopic(name=name, num_partitions=1, replication_factor=1)]), 7)
    both.wait_until_led(name)
    both.prepare(write((name, 0, batch())), 9)
    state = UpdateMetadataPartitionState(
        partition_index=0, controller_epoch=1, leader=LEADER_DURING_DELETE, leader_epoch=0, replicas=[0]
    )

    def deletion(side: Side) -> Request:
        host, port = side.address.rsplit(":", 1)
        endpoint = UpdateMetadataEndpoint(port=int(port), host=host, listener="PLAINTEXT")
        of_topic = UpdateMetadataTopicState(topic_name=name, topic_id=side.id_of(name), partition_states=[state])
        return UpdateMetadataRequest(
            controller_epoch=1,
            broker_epoch=epoch(side),
            topic_states=[of_topic],
            live_brokers=[UpdateMetadataBroker(id=0, endpoints=[endpoint])],
        )

    both.ask("news of a deletion", deletion, [8])
    parts: dict[str, Request] = {
        "write": write((name, 0, batch())),
        "fetch": FetchRequest(max_wait_ms=0, topics=[FetchTopic(topic=name, partitions=[FetchPartition()])]),
        "offsets": ListOffsetsRequest(
            topics=[ListOffsetsTopic(name=name, partitions=[ListOffsetsPartition(timestamp=-1)])]
        ),
        "epochs": OffsetForLeaderEpochRequest(
            topics=[OffsetForLeaderTopic(topic=name, partitions=[OffsetForLeaderPartition()])]
        ),
        "producers": DescribeProducersRequest(topics=[TopicRequest(name=name, partition_indexes=[0])]),
        "deletion": DeleteRecordsRequest(
            topics=[DeleteRecordsTopic(name=name, partitions=[DeleteRecordsPartition(offset=1)])]
        ),
    }
    versions = {"write": [9], "fetch": [4, 12]}
    for what, request in parts.items():
        both.ask(f"{what} of a deleted topic", request, versions.get(what), unlike={*WORDS, "aborted_transactions"})
    both.ask("move of a deleted topic", lambda side: moved(side, "", (name,)))
