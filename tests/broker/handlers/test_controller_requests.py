"""Requests that only the controller handles: ISRs, elections, reassignments, shutdowns, producer ids."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest
from controller_cluster import SmallCluster, cluster_of, eventually
from controller_requests import ask
from event_loop import staged
from network_serving import run

from engine.broker.controller.topic_admin import NewTopic
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.allocate_producer_ids import AllocateProducerIdsRequest
from engine.kafka.protocol.apis.alter_partition import (
    AlterPartitionRequest,
    BrokerState,
    RequestPartitionData,
    RequestTopicData,
)
from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from engine.kafka.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from engine.kafka.protocol.apis.elect_leaders import ElectLeadersRequest, TopicPartitions
from engine.kafka.protocol.apis.init_producer_id import InitProducerIdRequest
from engine.kafka.protocol.apis.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsTopics,
)
from engine.kafka.protocol.apis.update_features import FeatureUpdateKey, UpdateFeaturesRequest

T0 = TopicPartition("t", 0)


async def create(cluster: SmallCluster, assignments: dict[int, tuple[int, ...]]) -> None:
    admin = cluster.controller.topic_admin
    await admin.create_topic(NewTopic("t", assignments=assignments))
    assert await admin.wait_for_leaders("t", assignments, 10_000)
    await cluster.idle()


@staged(run)
async def test_alter_partition_by_name_and_by_id(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        await create(cluster, {0: (1, 0)})
        broker, leader = cluster.controller, cluster.brokers[1]
        topic_id = broker.metadata_cache.topic_id("t")

        def request(version: int, partition_epoch: int, *isr: int) -> AlterPartitionRequest:
            partition = RequestPartitionData(partition_index=0, leader_epoch=0, partition_epoch=partition_epoch)
            unknown = RequestPartitionData(partition_index=5, leader_epoch=0, partition_epoch=0)
            if version >= 3:
                partition.new_isr_with_epochs = [
                    BrokerState(broker_id=b, broker_epoch=cluster.brokers[b].broker_epoch) for b in isr
                ]
            else:
                partition.new_isr = list(isr)
            topic = RequestTopicData(topic_name="t", topic_id=topic_id, partitions=[partition, unknown])
            odd = RequestTopicData(topic_name="no", topic_id=b"\1" * 16, partitions=[unknown])
            return AlterPartitionRequest(broker_id=1, broker_epoch=leader.broker_epoch, topics=[topic, odd])

        response = await ask(broker, request(1, 0, 1), 1)
        assert [t.topic_name for t in response.topics] == ["t", "no"]
        first, second = response.topics[0].partitions
        assert (first.error_code, first.leader_id, first.isr, first.partition_epoch) == (0, 1, [1], 1)
        assert second.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        response = await ask(broker, request(3, 1, 1, 0), 3)
        assert [t.topic_id for t in response.topics] == [topic_id, b"\1" * 16]
        assert response.topics[0].partitions[0].isr == [1, 0]
        assert response.topics[1].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_ID
        assert (await ask(leader, request(3, 2, 1), 3)).error_code == ErrorCode.NOT_CONTROLLER
        stale = request(3, 2, 1)
        stale.broker_epoch = 1
        assert (await ask(broker, stale, 3)).error_code == ErrorCode.STALE_BROKER_EPOCH


@staged(run)
async def test_elect_leaders(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        await create(cluster, {0: (1, 0), 1: (0, 1)})
        broker = cluster.brokers[1]
        await broker.crash()
        await eventually(lambda: leader_of(cluster, 0) == 0, "the other leader")
        await broker.open(cluster.hosts, broker.endpoint.host, broker.endpoint.port)
        await eventually(lambda: T0 in broker.replicas and broker.replicas[T0][0] == 0, "its return")
        await cluster.idle()
        await cluster.catch_up(T0, 0, 1)
        chosen = [TopicPartitions(topic="t", partitions=[0, 1, 7])]
        request = ElectLeadersRequest(election_type=0, topic_partitions=chosen, timeout_ms=10_000)
        response = await ask(cluster.controller, request, 2)
        (topic,) = response.replica_election_results
        assert {p.partition_id: ErrorCode(p.error_code) for p in topic.partition_result} == {
            0: ErrorCode.NONE,
            1: ErrorCode.ELECTION_NOT_NEEDED,
            7: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        assert leader_of(cluster, 0) == 1
        everything = ElectLeadersRequest(election_type=0, topic_partitions=None, timeout_ms=10_000)
        response = await ask(cluster.controller, everything, 2)
        assert response.replica_election_results == []
        odd = ElectLeadersRequest(election_type=9, topic_partitions=chosen)
        response = await ask(cluster.controller, odd, 2)
        assert response.error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        codes = [p.error_code for p in response.replica_election_results[0].partition_result]
        assert codes == [ErrorCode.UNKNOWN_SERVER_ERROR] * 3
        response = await ask(cluster.brokers[1], request, 2)
        codes = {p.error_code for p in response.replica_election_results[0].partition_result}
        assert codes == {ErrorCode.NOT_CONTROLLER}


def leader_of(cluster: SmallCluster, partition: int) -> int | None:
    info = cluster.brokers[0].metadata_cache.partition_info(TopicPartition("t", partition))
    return None if info is None else info.leader


@staged(run)
async def test_reassignments(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 3) as cluster:
        await create(cluster, {0: (0, 1), 1: (0, 1)})
        broker = cluster.controller

        def alter(**replicas: list[int] | None) -> AlterPartitionReassignmentsRequest:
            partitions = [ReassignablePartition(partition_index=int(p[1:]), replicas=r) for p, r in replicas.items()]
            return AlterPartitionReassignmentsRequest(topics=[ReassignableTopic(name="t", partitions=partitions)])

        response = await ask(broker, alter(p0=[2, 1], p1=[1, 1], p9=[0]), 0)
        (topic,) = response.responses
        assert {p.partition_index: ErrorCode(p.error_code) for p in topic.partitions} == {
            0: ErrorCode.NONE,
            1: ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            9: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        }
        listed = await ask(broker, ListPartitionReassignmentsRequest(topics=None), 0)
        (moving,) = listed.topics[0].partitions
        assert (moving.replicas, moving.adding_replicas, moving.removing_replicas) == ([2, 1, 0], [2], [0])
        some = [ListPartitionReassignmentsTopics(name="t", partition_indexes=[1])]
        assert (await ask(broker, ListPartitionReassignmentsRequest(topics=some), 0)).topics == []
        response = await ask(broker, alter(p0=None, p1=None), 0)
        assert {p.partition_index: ErrorCode(p.error_code) for p in response.responses[0].partitions} == {
            0: ErrorCode.NONE,
            1: ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
        }
        other = cluster.brokers[1]
        assert (await ask(other, alter(p0=[1]), 0)).error_code == ErrorCode.NOT_CONTROLLER
        refused = await ask(other, ListPartitionReassignmentsRequest(topics=None), 0)
        assert refused.error_code == ErrorCode.NOT_CONTROLLER


@staged(run)
async def test_controlled_shutdown(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        await create(cluster, {0: (1, 0)})
        broker, leaving = cluster.controller, cluster.brokers[1]
        await cluster.catch_up(T0, 1)
        stale = ControlledShutdownRequest(broker_id=1, broker_epoch=1)
        assert (await ask(broker, stale, 3)).error_code == ErrorCode.STALE_BROKER_EPOCH
        unknown = ControlledShutdownRequest(broker_id=9, broker_epoch=1)
        assert (await ask(broker, unknown, 3)).error_code == ErrorCode.BROKER_NOT_AVAILABLE
        request = ControlledShutdownRequest(broker_id=1, broker_epoch=leaving.broker_epoch)
        assert (await ask(leaving, request, 3)).error_code == ErrorCode.STALE_CONTROLLER_EPOCH
        response = await ask(broker, request, 3)
        assert [(p.topic_name, p.partition_index) for p in response.remaining_partitions] == [("t", 0)]


@staged(run)
async def test_blocks_of_producer_ids(zk_chroot: str) -> None:
    async with cluster_of(zk_chroot, 2) as cluster:
        broker = cluster.controller
        request = AllocateProducerIdsRequest(broker_id=1, broker_epoch=cluster.brokers[1].broker_epoch)
        starts = [(await ask(broker, request, 0)).producer_id_start for _ in range(3)]
        assert starts == [0, 1000, 2000]
        assert (await ask(broker, request, 0)).producer_id_len == 1000
        stale = AllocateProducerIdsRequest(broker_id=1, broker_epoch=1)
        assert (await ask(broker, stale, 0)).error_code == ErrorCode.STALE_BROKER_EPOCH
        unknown = AllocateProducerIdsRequest(broker_id=9, broker_epoch=1)
        assert (await ask(broker, unknown, 0)).error_code == ErrorCode.BROKER_ID_NOT_REGISTERED
        assert (await ask(cluster.brokers[1], request, 0)).error_code == ErrorCode.NOT_CONTROLLER


class Ids:
    """Hands out producer ids one by one, without blocks."""

    def __init__(self, outcome: int | KafkaError) -> None:
        self.outcome = outcome

    async def next_producer_id(self) -> int:
        if isinstance(self.outcome, KafkaError):
            raise self.outcome
        return self.outcome


@pytest.mark.parametrize(
    ("fields", "outcome", "expected"),
    [
        ({"transactional_id": None}, 77, (0, 77, 0)),
        ({"transactional_id": None, "producer_id": 5, "producer_epoch": 3}, 78, (0, 78, 0)),
        (
            {"transactional_id": None},
            KafkaError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS),
            (ErrorCode.COORDINATOR_LOAD_IN_PROGRESS, -1, -1),
        ),
        ({"transactional_id": None, "producer_id": 5}, 1, (ErrorCode.INVALID_REQUEST, -1, -1)),
    ],
)
def test_init_producer_id(fields: dict[str, Any], outcome: int | KafkaError, expected: tuple[int, int, int]) -> None:
    request = InitProducerIdRequest(**{"producer_epoch": -1, **fields})
    broker: Any = SimpleNamespace(
        broker_id=0,
        broker_epoch=1,
        metadata_cache=None,
        controller=None,
        topic_admin=None,
        producer_ids=Ids(outcome),
    )
    response = asyncio.run(ask(broker, request, 5))
    assert (response.error_code, response.producer_id, response.producer_epoch) == expected


@staged(run)
async def test_no_feature_is_updated(zk_chroot: str) -> None:
    """The texts are those of Kafka 3.9.1, which knows no feature with ZooKeeper either."""
    unsupported = "Could not apply finalized feature update because the provided feature is not supported."
    missing = "Can not delete non-existing finalized feature."
    flag = "Can not provide versionLevel: 0 less than 1 without setting the SAFE downgradeType in the request."
    updates = [
        (1, {"feature": "up", "max_version_level": 1}, unsupported),
        (1, {"feature": "down", "max_version_level": 1, "upgrade_type": 3}, unsupported),
        (1, {"feature": "gone", "max_version_level": 0, "upgrade_type": 2}, missing),
        (1, {"feature": "gone", "max_version_level": 0, "upgrade_type": 3}, missing),
        (1, {"feature": "kept", "max_version_level": 0}, flag),
        (1, {"feature": "odd", "max_version_level": 1, "upgrade_type": 4}, "Received unknown upgrade type."),
        (1, {"feature": "odd", "max_version_level": 1, "upgrade_type": 0}, "Received unknown upgrade type."),
        (1, {"feature": "", "max_version_level": 1, "upgrade_type": 4}, "Feature name can not be empty."),
        (0, {"feature": "old", "max_version_level": 0}, flag),
        (0, {"feature": "old", "max_version_level": 0, "allow_downgrade": True}, missing),
    ]
    async with cluster_of(zk_chroot, 2) as cluster:
        for version, update, text in updates:
            request = UpdateFeaturesRequest(feature_updates=[FeatureUpdateKey(**update)])
            answer = await ask(cluster.controller, request, version)
            (result,) = answer.results
            outcome = (answer.error_code, result.feature, result.error_code, result.error_message)
            assert outcome == (ErrorCode.NONE, update["feature"], ErrorCode.INVALID_REQUEST, text)
        twice = [FeatureUpdateKey(feature="up", max_version_level=level) for level in (1, 0)]
        answer = await ask(cluster.controller, UpdateFeaturesRequest(feature_updates=twice), 1)
        assert [(each.feature, each.error_message) for each in answer.results] == [("up", unsupported)]
        answer = await ask(cluster.controller, request, 1, inter_broker_protocol_version="2.6")
        outcome = (answer.error_code, answer.error_message, answer.results)
        assert outcome == (ErrorCode.INVALID_REQUEST, "Feature versioning system is disabled.", [])
        (other,) = (broker for broker in cluster.brokers.values() if broker is not cluster.controller)
        answer = await ask(other, UpdateFeaturesRequest(feature_updates=twice), 1)
        assert (answer.error_code, answer.results) == (ErrorCode.NOT_CONTROLLER, [])
