"""What each request needs: each API, with and without each right, asked of Apache Kafka 3.9.1 and of klamm.

The rights come from what handlers declare. For each of an API's requests, a user has no right, each right alone, all
of them, and all but one that is denied: both engines give the same errors.
"""

from __future__ import annotations

import asyncio
import hmac
import itertools
import os
import random
import time
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import ApacheKafkaBroker
from broker_program import BrokerProgram
from token_provider import KEYS, bad_tokens, good_tokens

from engine.broker.handlers.registry import all_handlers
from engine.common.acl import AclOperation, Requirement, ResourceType
from engine.common.errors import ErrorCode
from engine.kafka.acls import SUPPORTED, type_code
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import NetworkError
from engine.kafka.client.security import security_of
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis import (
    add_offsets_to_txn,
    add_partitions_to_txn,
    allocate_producer_ids,
    alter_client_quotas,
    alter_configs,
    alter_partition,
    alter_partition_reassignments,
    alter_replica_log_dirs,
    alter_user_scram_credentials,
    consumer_group_describe,
    consumer_group_heartbeat,
    controlled_shutdown,
    create_acls,
    create_delegation_token,
    create_partitions,
    create_topics,
    delete_acls,
    delete_groups,
    delete_records,
    delete_topics,
    describe_acls,
    describe_client_quotas,
    describe_cluster,
    describe_configs,
    describe_delegation_token,
    describe_groups,
    describe_log_dirs,
    describe_producers,
    describe_transactions,
    describe_user_scram_credentials,
    elect_leaders,
    end_txn,
    expire_delegation_token,
    fetch,
    find_coordinator,
    heartbeat,
    incremental_alter_configs,
    init_producer_id,
    join_group,
    leader_and_isr,
    leave_group,
    list_groups,
    list_offsets,
    list_partition_reassignments,
    list_transactions,
    metadata,
    offset_commit,
    offset_delete,
    offset_fetch,
    offset_for_leader_epoch,
    produce,
    renew_delegation_token,
    sasl_authenticate,
    sasl_handshake,
    stop_replica,
    sync_group,
    txn_offset_commit,
    update_features,
    update_metadata,
    write_txn_markers,
)
from engine.kafka.protocol.declaration import Request
from engine.kafka.protocol.frames import decode_response, encode_request
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.tokens import DelegationToken
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

PORTS = {"PLAINTEXT": 21400, "LOGIN": 21401}
MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule"
OAUTH = "org.apache.kafka.common.security.oauthbearer"
TOPIC, GROUP, TXN = "orders", "group", "txn"
TOKEN = DelegationToken(
    "AAAAAAAAQACAAAAAAAAAAA", "User:other", "User:other", ("User:renewer",),
    1_700_000_000_000, 4_000_000_000_000, 4_000_000_000_000,
)  # fmt: skip
"""A token that both engines find at their start."""
SECRET = "token-Secr3t"
HMAC = hmac.digest(SECRET.encode(), TOKEN.token_id.encode(), "sha512")
NAMES = {
    ResourceType.DELEGATION_TOKEN: TOKEN.token_id,
    ResourceType.USER: TOKEN.owner,
    ResourceType.TOPIC: TOPIC,
    ResourceType.GROUP: GROUP,
    ResourceType.TRANSACTIONAL_ID: TXN,
    ResourceType.CLUSTER: "kafka-cluster",
}
BATCH = encode_batch([Record(0, 1_700_000_000_000, b"k", b"v")])

REQUESTS: dict[ApiKey, list[tuple[int, Request]]] = {
    ApiKey.PRODUCE: [
        (
            version,
            produce.ProduceRequest(acks=1, timeout_ms=1000, topic_data=[produce.TopicProduceData(
                name=name, partition_data=[produce.PartitionProduceData(index=0, records=BATCH)])
                for name in (TOPIC, "absent")]),
        )
        for version in (3, 9)
    ],
    ApiKey.FETCH: [
        (version, fetch.FetchRequest(replica_id=replica, max_wait_ms=0, min_bytes=0, max_bytes=1000, session_epoch=-1,
            topics=[fetch.FetchTopic(topic=name, partitions=[
                fetch.FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000, last_fetched_epoch=-1)])
                for name in (TOPIC, "absent")]))
        for version, replica in ((4, -1), (12, -1), (12, 5))
    ],
    ApiKey.LIST_OFFSETS: [
        (5, list_offsets.ListOffsetsRequest(replica_id=-1, topics=[list_offsets.ListOffsetsTopic(
            name=name, partitions=[list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)])
            for name in (TOPIC, "absent")]))
    ],
    ApiKey.METADATA: [
        (version, metadata.MetadataRequest(topics=topics, allow_auto_topic_creation=False,
            include_topic_authorized_operations=version >= 8,
            include_cluster_authorized_operations=version >= 8))
        for version in (4, 9)
        for topics in (None, [metadata.MetadataRequestTopic(name=name) for name in (TOPIC, "absent")])
    ],
    ApiKey.LEADER_AND_ISR: [
        (1, leader_and_isr.LeaderAndIsrRequest(controller_id=0, controller_epoch=-5, broker_epoch=-1,
            ungrouped_partition_states=[leader_and_isr.LeaderAndIsrPartitionState(topic_name=TOPIC)])),
        (5, leader_and_isr.LeaderAndIsrRequest(controller_id=0, controller_epoch=-5, broker_epoch=-1, topic_states=[
            leader_and_isr.LeaderAndIsrTopicState(topic_name=TOPIC, partition_states=[
                leader_and_isr.LeaderAndIsrPartitionState(partition_index=index) for index in (0, 1)])])),
    ],
    ApiKey.STOP_REPLICA: [
        (version, stop_replica.StopReplicaRequest(controller_id=0, controller_epoch=-5, broker_epoch=-1, **named))
        for version, named in (
            (0, {"ungrouped_partitions": [stop_replica.StopReplicaPartitionV0(topic_name=TOPIC)]}),
            (1, {"topics": [stop_replica.StopReplicaTopicV1(name=TOPIC, partition_indexes=[0, 1])]}),
            (3, {"topic_states": [stop_replica.StopReplicaTopicState(topic_name=TOPIC, partition_states=[
                stop_replica.StopReplicaPartitionState()])]}),
        )
    ],
    ApiKey.UPDATE_METADATA: [(5, update_metadata.UpdateMetadataRequest(
        controller_id=0, controller_epoch=-5, broker_epoch=-1))],
    ApiKey.CONTROLLED_SHUTDOWN: [(2, controlled_shutdown.ControlledShutdownRequest(broker_id=0, broker_epoch=1))],
    ApiKey.OFFSET_COMMIT: [
        (7, offset_commit.OffsetCommitRequest(group_id=GROUP, topics=[offset_commit.OffsetCommitRequestTopic(
            name=TOPIC, partitions=[offset_commit.OffsetCommitRequestPartition(
                partition_index=0, committed_offset=1, committed_metadata="")])]))
    ],
    ApiKey.OFFSET_FETCH: [
        *((version, offset_fetch.OffsetFetchRequest(group_id=GROUP, topics=topics))
          for version in (1, 5)
          for topics in ([offset_fetch.OffsetFetchRequestTopic(name=TOPIC, partition_indexes=[0])], None)
          if version > 1 or topics),
        *((8, offset_fetch.OffsetFetchRequest(groups=[
            offset_fetch.OffsetFetchRequestGroup(group_id=group, topics=topics) for group in (GROUP, "other")]))
          for topics in ([offset_fetch.OffsetFetchRequestTopics(name=TOPIC, partition_indexes=[0])], None)),
    ],
    ApiKey.FIND_COORDINATOR: [
        *((2, find_coordinator.FindCoordinatorRequest(key=key, key_type=kind)) for key, kind in ((GROUP, 0), (TXN, 1))),
        *((4, find_coordinator.FindCoordinatorRequest(coordinator_keys=[key, "x"], key_type=kind))
          for key, kind in ((GROUP, 0), (TXN, 1))),
    ],
    ApiKey.JOIN_GROUP: [(5, join_group.JoinGroupRequest(
        group_id=GROUP, session_timeout_ms=10, rebalance_timeout_ms=10, member_id="m", protocol_type="consumer",
        protocols=[]))],
    ApiKey.HEARTBEAT: [(3, heartbeat.HeartbeatRequest(group_id=GROUP, generation_id=1, member_id="m"))],
    ApiKey.LEAVE_GROUP: [(2, leave_group.LeaveGroupRequest(group_id=GROUP, member_id="m"))],
    ApiKey.SYNC_GROUP: [(3, sync_group.SyncGroupRequest(
        group_id=GROUP, generation_id=1, member_id="m", assignments=[]))],
    ApiKey.DESCRIBE_GROUPS: [(3, describe_groups.DescribeGroupsRequest(
        groups=[GROUP, "other"], include_authorized_operations=True))],
    ApiKey.LIST_GROUPS: [(2, list_groups.ListGroupsRequest())],
    ApiKey.CREATE_TOPICS: [
        (5, create_topics.CreateTopicsRequest(validate_only=True, topics=[create_topics.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[])
            for name in (TOPIC, "other")]))
    ],
    ApiKey.DELETE_TOPICS: [(5, delete_topics.DeleteTopicsRequest(topic_names=["absent", "gone"], timeout_ms=1000))],
    ApiKey.DELETE_RECORDS: [
        (1, delete_records.DeleteRecordsRequest(timeout_ms=1000, topics=[delete_records.DeleteRecordsTopic(
            name=TOPIC, partitions=[delete_records.DeleteRecordsPartition(partition_index=0, offset=0)])]))
    ],
    ApiKey.INIT_PRODUCER_ID: [
        (1, init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)),
        (1, init_producer_id.InitProducerIdRequest(transactional_id=TXN, transaction_timeout_ms=-1)),
    ],
    ApiKey.OFFSET_FOR_LEADER_EPOCH: [
        (3, offset_for_leader_epoch.OffsetForLeaderEpochRequest(replica_id=-1, topics=[
            offset_for_leader_epoch.OffsetForLeaderTopic(topic=TOPIC, partitions=[
                offset_for_leader_epoch.OffsetForLeaderPartition(partition=0, leader_epoch=0)])]))
    ],
    ApiKey.ADD_PARTITIONS_TO_TXN: [
        (3, add_partitions_to_txn.AddPartitionsToTxnRequest(
            v3_and_below_transactional_id=TXN, v3_and_below_producer_id=1, v3_and_below_producer_epoch=0,
            v3_and_below_topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=name, partitions=[0])
                                 for name in (TOPIC, "absent")])),
        (4, add_partitions_to_txn.AddPartitionsToTxnRequest(transactions=[
            add_partitions_to_txn.AddPartitionsToTxnTransaction(
                transactional_id=TXN, producer_id=1, producer_epoch=0, verify_only=True,
                topics=[add_partitions_to_txn.AddPartitionsToTxnTopic(name=TOPIC, partitions=[0])])])),
    ],
    ApiKey.ADD_OFFSETS_TO_TXN: [(1, add_offsets_to_txn.AddOffsetsToTxnRequest(
        transactional_id=TXN, producer_id=1, producer_epoch=0, group_id=GROUP))],
    ApiKey.END_TXN: [(1, end_txn.EndTxnRequest(
        transactional_id=TXN, producer_id=1, producer_epoch=0, committed=True))],
    ApiKey.WRITE_TXN_MARKERS: [(1, write_txn_markers.WriteTxnMarkersRequest(markers=[
        write_txn_markers.WritableTxnMarker(producer_id=1, producer_epoch=0, transaction_result=True, topics=[
            write_txn_markers.WritableTxnMarkerTopic(name="absent", partition_indexes=[0])], coordinator_epoch=0)]))],
    ApiKey.TXN_OFFSET_COMMIT: [
        (2, txn_offset_commit.TxnOffsetCommitRequest(
            transactional_id=TXN, group_id=GROUP, producer_id=1, producer_epoch=0,
            topics=[txn_offset_commit.TxnOffsetCommitRequestTopic(name="absent", partitions=[
                txn_offset_commit.TxnOffsetCommitRequestPartition(
                    partition_index=0, committed_offset=1, committed_metadata="")])]))
    ],
    ApiKey.DESCRIBE_ACLS: [(1, describe_acls.DescribeAclsRequest(
        resource_type_filter=3, resource_name_filter="nothing", pattern_type_filter=3, operation=1,
        permission_type=1))],
    ApiKey.CREATE_ACLS: [(1, create_acls.CreateAclsRequest(creations=[create_acls.AclCreation(
        resource_type=4, resource_name=name, principal=principal, host="*", operation=operation, permission_type=3)
        for name, principal, operation in (("wrong", "User:x", 3), ("", "User:x", 3), ("kafka-cluster", "x", 3))]))],
    ApiKey.DELETE_ACLS: [(1, delete_acls.DeleteAclsRequest(filters=[delete_acls.DeleteAclsFilter(
        resource_type_filter=3, resource_name_filter="nothing", operation=1, permission_type=1)]))],
    ApiKey.DESCRIBE_CONFIGS: [
        (2, describe_configs.DescribeConfigsRequest(resources=[describe_configs.DescribeConfigsResource(
            resource_type=kind, resource_name=name, configuration_keys=["retention.ms"])
            for kind, name in ((2, TOPIC), (2, "absent"), (4, "0"))]))
    ],
    ApiKey.ALTER_CONFIGS: [
        (1, alter_configs.AlterConfigsRequest(validate_only=True, resources=[alter_configs.AlterConfigsResource(
            resource_type=kind, resource_name=name, configs=[]) for kind, name in ((2, TOPIC), (4, "0"))]))
    ],
    ApiKey.ALTER_REPLICA_LOG_DIRS: [(1, alter_replica_log_dirs.AlterReplicaLogDirsRequest(dirs=[
        alter_replica_log_dirs.AlterReplicaLogDir(path="/nowhere", topics=[
            alter_replica_log_dirs.AlterReplicaLogDirTopic(name=TOPIC, partitions=[0])])]))],
    ApiKey.DESCRIBE_LOG_DIRS: [(version, describe_log_dirs.DescribeLogDirsRequest(topics=[])) for version in (1, 4)],
    ApiKey.CREATE_PARTITIONS: [(1, create_partitions.CreatePartitionsRequest(
        timeout_ms=1000, validate_only=True, topics=[create_partitions.CreatePartitionsTopic(
            name=TOPIC, count=3, assignments=None)]))],
    ApiKey.CREATE_DELEGATION_TOKEN: [
        (version, create_delegation_token.CreateDelegationTokenRequest(
            owner_principal_type=kind, owner_principal_name=name, max_lifetime_ms=-1,
            renewers=[create_delegation_token.CreatableRenewers(principal_type="Group", principal_name="x")]))
        for version, kind, name in ((1, None, None), (3, None, None), (3, "User", "other"), (3, "Group", "other"))
    ],
    ApiKey.RENEW_DELEGATION_TOKEN: [
        (version, renew_delegation_token.RenewDelegationTokenRequest(hmac=hmac_of_token, renew_period_ms=-1))
        for version in (1, 2) for hmac_of_token in (HMAC, b"unknown")
    ],
    ApiKey.EXPIRE_DELEGATION_TOKEN: [
        (version, expire_delegation_token.ExpireDelegationTokenRequest(hmac=hmac_of_token, expiry_time_period_ms=-1))
        for version in (1, 2) for hmac_of_token in (HMAC, b"unknown")
    ],
    ApiKey.DESCRIBE_DELEGATION_TOKEN: [
        (version, describe_delegation_token.DescribeDelegationTokenRequest(owners=owners))
        for version in (1, 3)
        for owners in (None, [], *([describe_delegation_token.DescribeDelegationTokenOwner(
            principal_type="User", principal_name=name)] for name in ("other", "renewer", "nobody")))
    ],
    ApiKey.DELETE_GROUPS: [(1, delete_groups.DeleteGroupsRequest(groups_names=[GROUP, "other"]))],
    ApiKey.ELECT_LEADERS: [(version, elect_leaders.ElectLeadersRequest(topic_partitions=[
        elect_leaders.TopicPartitions(topic=TOPIC, partitions=[0])], timeout_ms=1000)) for version in (0, 1)],
    ApiKey.INCREMENTAL_ALTER_CONFIGS: [
        (0, incremental_alter_configs.IncrementalAlterConfigsRequest(validate_only=True, resources=[
            incremental_alter_configs.AlterConfigsResource(resource_type=kind, resource_name=name, configs=[])
            for kind, name in ((2, TOPIC), (4, "0"))]))
    ],
    ApiKey.ALTER_PARTITION_REASSIGNMENTS: [(0, alter_partition_reassignments.AlterPartitionReassignmentsRequest(
        timeout_ms=1000, topics=[alter_partition_reassignments.ReassignableTopic(name="absent", partitions=[
            alter_partition_reassignments.ReassignablePartition(partition_index=0, replicas=[0])])]))],
    ApiKey.LIST_PARTITION_REASSIGNMENTS: [
        (0, list_partition_reassignments.ListPartitionReassignmentsRequest(timeout_ms=1000, topics=topics))
        for topics in (None, [list_partition_reassignments.ListPartitionReassignmentsTopics(
            name=TOPIC, partition_indexes=[0])])
    ],
    ApiKey.OFFSET_DELETE: [(0, offset_delete.OffsetDeleteRequest(group_id=GROUP, topics=[
        offset_delete.OffsetDeleteRequestTopic(name=TOPIC, partitions=[
            offset_delete.OffsetDeleteRequestPartition(partition_index=0)])]))],
    ApiKey.DESCRIBE_USER_SCRAM_CREDENTIALS: [(0, describe_user_scram_credentials.DescribeUserScramCredentialsRequest(
        users=[describe_user_scram_credentials.UserName(name="x")]))],
    ApiKey.ALTER_USER_SCRAM_CREDENTIALS: [(0, alter_user_scram_credentials.AlterUserScramCredentialsRequest(
        deletions=[alter_user_scram_credentials.ScramCredentialDeletion(name="x", mechanism=1)], upsertions=[]))],
    ApiKey.DESCRIBE_CLIENT_QUOTAS: [(0, describe_client_quotas.DescribeClientQuotasRequest(
        components=[], strict=False))],
    ApiKey.ALTER_CLIENT_QUOTAS: [(0, alter_client_quotas.AlterClientQuotasRequest(
        entries=[alter_client_quotas.RequestEntryData(
            entity=[alter_client_quotas.RequestEntityData(entity_type="user", entity_name="x")],
            ops=[alter_client_quotas.OpData(key="producer_byte_rate", value=1000.0, remove=False)])],
        validate_only=True))],
    ApiKey.ALTER_PARTITION: [(0, alter_partition.AlterPartitionRequest(broker_id=7, broker_epoch=1, topics=[]))],
    ApiKey.UPDATE_FEATURES: [(1, update_features.UpdateFeaturesRequest(feature_updates=[
        update_features.FeatureUpdateKey(feature="x", max_version_level=1)]))],
    ApiKey.DESCRIBE_CLUSTER: [(0, describe_cluster.DescribeClusterRequest(
        include_cluster_authorized_operations=True))],
    ApiKey.DESCRIBE_PRODUCERS: [(0, describe_producers.DescribeProducersRequest(topics=[
        describe_producers.TopicRequest(name=name, partition_indexes=[0]) for name in (TOPIC, "absent")]))],
    ApiKey.DESCRIBE_TRANSACTIONS: [(0, describe_transactions.DescribeTransactionsRequest(
        transactional_ids=[TXN, "other"]))],
    ApiKey.LIST_TRANSACTIONS: [(0, list_transactions.ListTransactionsRequest())],
    ApiKey.ALLOCATE_PRODUCER_IDS: [(0, allocate_producer_ids.AllocateProducerIdsRequest(
        broker_id=7, broker_epoch=1))],
    ApiKey.CONSUMER_GROUP_HEARTBEAT: [(0, consumer_group_heartbeat.ConsumerGroupHeartbeatRequest(group_id=GROUP))],
    ApiKey.CONSUMER_GROUP_DESCRIBE: [(0, consumer_group_describe.ConsumerGroupDescribeRequest(
        group_ids=[GROUP, "other"], include_authorized_operations=True))],
}  # fmt: skip
"""Requests that change nothing, by API, with their version."""

ASIDE = (ApiKey.API_VERSIONS, ApiKey.SASL_HANDSHAKE, ApiKey.SASL_AUTHENTICATE, ApiKey.ENVELOPE)
COMPARED = ("error_code", "partition_error_code", "topic_config_error_code", "authorized_operations",
            "topic_authorized_operations", "cluster_authorized_operations", "is_internal",
            "expiry_timestamp")  # fmt: skip
NAMING = ("name", "topic", "group_id", "key", "user", "transactional_id", "resource_name", "topic_name",
          "partition_index", "partition", "index", "partition_id", "resource_type")  # fmt: skip


class Engine:
    """One broker, with an administrator's connection and those of users."""

    def __init__(self, host: str) -> None:
        self.host = host

    def client(self, user: str) -> BrokerClient:
        jaas = f'{MODULE} required username="{user}" password="{user}-pw";'
        properties = {"security.protocol": "SASL_PLAINTEXT", "sasl.mechanism": "PLAIN", "sasl.jaas.config": jaas}
        return BrokerClient(self.host, PORTS["LOGIN"], client_id="t", security=security_of(properties))


def broker_settings(host: str, keys: Path) -> dict[str, str]:
    users = " ".join(f'user_{name}="{name}-pw"' for name in ("admin", *USERS))
    return {
        "listeners": ",".join(f"{name}://{host}:{port}" for name, port in PORTS.items()),
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,LOGIN:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN,OAUTHBEARER",
        "listener.name.login.oauthbearer.sasl.jaas.config": f"{OAUTH}.OAuthBearerLoginModule required;",
        "listener.name.login.oauthbearer.sasl.server.callback.handler.class": (
            f"{OAUTH}.OAuthBearerValidatorCallbackHandler"
        ),
        "listener.name.login.sasl.oauthbearer.jwks.endpoint.url": keys.as_uri(),
        "listener.name.login.sasl.oauthbearer.expected.audience": "other,brokers",
        "listener.name.login.sasl.oauthbearer.expected.issuer": "https://idp",
        "listener.name.login.plain.sasl.jaas.config": f"{MODULE} required {users};",
        "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
        "super.users": "User:admin;User:ANONYMOUS",
        "delegation.token.secret.key": SECRET,
        "auto.create.topics.enable": "false",
        "offsets.topic.num.partitions": "1",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.num.partitions": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # Requests are handled in the order in which they come.
        "num.network.threads": "1",
        "num.io.threads": "1",
    }


Rights = tuple[tuple[Requirement, bool], ...]
"""Rights that a user has (True) or is denied."""


def cells() -> Iterator[tuple[ApiKey, Rights]]:
    """Every API with the rights that a user may have of those that it declares."""
    for key, entry in all_handlers().items():
        if key in ASIDE:
            continue
        yield ApiKey(key), ()
        for needed in entry.requires:
            yield ApiKey(key), ((needed, True),)
        if len(entry.requires) > 1:
            yield ApiKey(key), tuple((needed, True) for needed in entry.requires)
        for needed in entry.requires:
            yield ApiKey(key), (*((each, True) for each in entry.requires), (needed, False))


CELLS = list(cells())
WAITING = "waiting"
RANDOM_USERS = [f"random{number}" for number in range(150)]
USERS = [WAITING, *(f"u{number}" for number in range(len(CELLS))), *RANDOM_USERS]
"""Each cell has a user of its own, so rules need not be taken back."""


def rules(user: str, rights: Rights) -> list[create_acls.AclCreation]:
    return [
        create_acls.AclCreation(
            resource_type=type_code(right.resource_type), resource_name=NAMES[right.resource_type],
            principal=f"User:{user}", host="*", operation=right.operation, permission_type=3 if is_allowed else 2,
        )
        for right, is_allowed in rights
    ]  # fmt: skip


async def prepare(engine: Engine) -> None:
    """Make the topic, a group, the coordinators' topics and everybody's rules."""
    admin = engine.client("admin")
    topic = create_topics.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    await admin.send(create_topics.CreateTopicsRequest(topics=[topic]), 5)
    wanted = list(itertools.chain.from_iterable(rules(u, r) for u, (_, r) in zip(USERS[1:], CELLS, strict=False)))
    answer = await admin.send(create_acls.CreateAclsRequest(creations=wanted), 1, timeout_ms=120_000)
    assert {result.error_code for result in answer.results} == {0}
    for kind, key in ((0, GROUP), (1, TXN)):
        async with asyncio.timeout(60):
            while True:
                response = await admin.send(find_coordinator.FindCoordinatorRequest(key=key, key_type=kind), 2)
                if response.error_code == 0:
                    break
                await asyncio.sleep(0.2)
    _, commit = REQUESTS[ApiKey.OFFSET_COMMIT][0]
    init = init_producer_id.InitProducerIdRequest(transactional_id="other-txn", transaction_timeout_ms=1000)
    async with asyncio.timeout(60):
        while (await admin.send(commit, 7)).topics[0].partitions[0].error_code:
            await asyncio.sleep(0.2)
        while (await admin.send(init, 1)).error_code:
            await asyncio.sleep(0.2)
    await admin.close()


def errors_of(answer: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield where in the answer each error is, under the names of what it is about, and the error."""
    names = tuple(getattr(answer, field) for field in NAMING if hasattr(answer, field))
    for field in COMPARED:
        if hasattr(answer, field):
            yield (*path, *names, field, int(getattr(answer, field)))
    for field in getattr(type(answer), "__slots__", ()):
        value = getattr(answer, field)
        if isinstance(value, list) and field != "brokers":
            for item in value:
                yield from errors_of(item, (*path, *names, field))


async def asked(client: BrokerClient, request: Request, version: int) -> list[tuple[Any, ...]]:
    try:
        return sorted(errors_of(await client.send(request, version, timeout_ms=30_000)), key=repr)
    except NetworkError as error:
        return [(type(error).__name__,)]


async def answers(engine: Engine) -> dict[tuple[int, int], list[tuple[Any, ...]]]:
    """Return what each cell's user is answered to each request of its API."""
    await prepare(engine)
    answers_found = {}
    for number, (user, (key, _)) in enumerate(zip(USERS[1:], CELLS, strict=False)):
        client = engine.client(user)
        for position, (version, request) in enumerate(REQUESTS[key]):
            answers_found[number, position] = await asked(client, request, version)
        await client.close()
    return answers_found


@pytest.fixture(scope="module")
def both(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterable[list[Engine]]:
    folder = tmp_path_factory.mktemp("rights")
    hosts = own_loopback_address(), own_loopback_address()
    keys = folder / "keys.json"
    keys.write_text(KEYS)
    connect = f"{zookeeper.connect_string}/{folder.name}"
    asyncio.run(put_token(connect))
    with (
        ApacheKafkaBroker(folder / "kafka", broker_id=0, host=hosts[0], port=PORTS["PLAINTEXT"], shares_jvm=True,
                          zookeeper_connect=f"{connect}/kafka",
                          overrides=broker_settings(hosts[0], keys)),
        klamm_broker(folder / "klamm", hosts[1], f"{connect}/klamm", keys),
    ):  # fmt: skip
        yield [Engine(host) for host in hosts]


async def put_token(connect: str) -> None:
    """Put the token where each engine looks for it."""
    for chroot in ("/kafka", "/klamm"):
        client = await ZkClient.connect(f"{connect}{chroot}", session_timeout_ms=6_000)
        await KafkaZkClient(client).tokens.make_paths()
        await KafkaZkClient(client).tokens.create(TOKEN)
        await client.close()


def klamm_broker(folder: Path, host: str, zookeeper: str, keys: Path) -> BrokerProgram:
    own = {"broker.id": "0", "log.dirs": str(folder / "data"), "zookeeper.connect": zookeeper}
    broker = BrokerProgram(folder, own | broker_settings(host, keys))
    broker.wait_until_started()
    return broker


def test_every_announced_api_is_asked() -> None:
    assert {ApiKey(key) for key in all_handlers()} - set(ASIDE) == REQUESTS.keys()


def test_both_engines_give_the_same_errors(both: list[Engine]) -> None:
    async def check() -> tuple[Any, Any]:
        return await answers(both[0]), await answers(both[1])

    kafka, ours = asyncio.run(check())
    differing = [
        f"{CELLS[number][0].name} request {position} with {shown(CELLS[number][1])}:\n  Kafka {kafka[number, position]}"
        f"\n  klamm {ours[number, position]}"
        for number, position in kafka
        if kafka[number, position] != ours[number, position]
    ]
    assert not differing, f"{len(differing)} of {len(kafka)} cells\n" + "\n".join(differing)


LIKE_NAMES = ("rnd", "rnd-a", "rnd-ab", "rnd-ab ", "rnd-x")
"""Of topics and groups. They need not exist: who may not see one is told something else."""


def random_rules(draw: random.Random) -> list[create_acls.AclCreation]:
    """Return rules of every kind of pattern, principal and host, which allow and deny."""
    rules = []
    for _ in range(600):
        kind = draw.choice((ResourceType.TOPIC, ResourceType.TOPIC, ResourceType.GROUP, ResourceType.CLUSTER))
        is_prefix = kind is not ResourceType.CLUSTER and draw.random() < 0.4
        name = NAMES[kind] if kind is ResourceType.CLUSTER else draw.choice((*LIKE_NAMES, "rnd-a*", "*"))
        # A rule for everybody about everything would decide all the rest.
        is_narrow = name != "*" and kind is not ResourceType.CLUSTER
        who = "User:*" if is_narrow and draw.random() < 0.02 else f"User:{draw.choice(RANDOM_USERS)}"
        rules.append(create_acls.AclCreation(
            resource_type=type_code(kind), resource_name=name, resource_pattern_type=4 if is_prefix else 3,
            principal=draw.choice((who, who, who, who.lower(), who.replace("User", "Group"))),
            host=draw.choice(("*", "*", "*", "127.0.0.1", "127.0.0.2", "localhost")),
            operation=draw.choice((*SUPPORTED[kind], AclOperation.ALL)), permission_type=draw.choice((3, 3, 3, 2)),
        ))  # fmt: skip
    return rules


@pytest.mark.parametrize("seed", [int(os.environ.get("KLAMM_FAULT_SEED", "34"))])
def test_both_engines_decide_alike_by_random_rules(both: list[Engine], seed: int) -> None:
    """An answer with the authorized operations tells each decision about a resource."""
    requests: list[tuple[int, Request]] = [
        (9, metadata.MetadataRequest(
            topics=[metadata.MetadataRequestTopic(name=name) for name in (TOPIC, *LIKE_NAMES)],
            include_topic_authorized_operations=True, include_cluster_authorized_operations=True)),
        (3, describe_groups.DescribeGroupsRequest(groups=list(LIKE_NAMES), include_authorized_operations=True)),
        (1, init_producer_id.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000)),
        (5, create_topics.CreateTopicsRequest(validate_only=True, topics=[create_topics.CreatableTopic(
            name=name, num_partitions=1, replication_factor=1, assignments=[], configs=[]) for name in LIKE_NAMES])),
    ]  # fmt: skip

    async def said_by(engine: Engine) -> dict[str, list[list[tuple[Any, ...]]]]:
        await prepare(engine)
        admin = engine.client("admin")
        made = await admin.send(
            create_acls.CreateAclsRequest(creations=random_rules(random.Random(seed))), 1, timeout_ms=120_000
        )
        assert {result.error_code for result in made.results} == {0}
        await admin.close()
        answers = {}
        for user in RANDOM_USERS:
            client = engine.client(user)
            answers[user] = [await asked(client, request, version) for version, request in requests]
            await client.close()
        return answers

    async def check() -> None:
        kafka, ours = await said_by(both[0]), await said_by(both[1])
        differing = [
            f"{user}:\n  Kafka {kafka[user]}\n  klamm {ours[user]}" for user in kafka if kafka[user] != ours[user]
        ]
        assert not differing, "\n".join(differing)
        assert len({repr(said) for said in kafka.values()}) > 50, "the rules make a difference"

    asyncio.run(check())


def test_both_engines_let_in_the_same_signed_tokens(both: list[Engine]) -> None:
    async def verdict(engine: Engine, signed: str) -> str:
        peer = await asyncio.open_connection(engine.host, PORTS["LOGIN"])
        try:
            await answered(peer, sasl_handshake.SaslHandshakeRequest(mechanism="OAUTHBEARER"), 1)
            first = f"n,,\x01auth=Bearer {signed}\x01\x01".encode()
            answer = await answered(peer, sasl_authenticate.SaslAuthenticateRequest(auth_bytes=first), 2)
            if not answer.error_code and answer.auth_bytes:
                acknowledged = sasl_authenticate.SaslAuthenticateRequest(auth_bytes=b"\x01")
                answer = await answered(peer, acknowledged, 2)
            return f"{answer.error_code} {answer.error_message}"
        finally:
            peer[1].close()

    def now() -> int:
        return int(time.time())

    good = good_tokens()
    whats = [*good, *bad_tokens()]

    async def check() -> None:
        kafka, ours = [
            {context: await verdict(engine, (good_tokens(now()) | bad_tokens(now()))[context]) for context in whats}
            for engine in both
        ]
        assert kafka == ours
        assert {context for context, said in ours.items() if said.startswith("0 ")} == good.keys()

    asyncio.run(check())


async def rights_lost_while_waiting(engine: Engine) -> tuple[tuple[int, bool], tuple[int, bool]]:
    """Return what a Fetch is answered that waits while its right goes, and the next: the error, and whether records."""
    admin, waiting = engine.client("admin"), engine.client(WAITING)
    right = rules(WAITING, ((Requirement.of("Read Topic"), True),))
    topic = create_topics.CreatableTopic(name=TOPIC, num_partitions=1, replication_factor=1, assignments=[], configs=[])
    await admin.send(create_topics.CreateTopicsRequest(topics=[topic]), 5)
    assert (await admin.send(create_acls.CreateAclsRequest(creations=right), 1)).results[0].error_code == 0
    asked = list_offsets.ListOffsetsPartition(partition_index=0, timestamp=-1)
    listing = list_offsets.ListOffsetsRequest(
        replica_id=-1, topics=[list_offsets.ListOffsetsTopic(name=TOPIC, partitions=[asked])]
    )
    async with asyncio.timeout(60):
        while (end := (await admin.send(listing, 5)).topics[0].partitions[0]).error_code:
            await asyncio.sleep(0.05)

    async def ask(wait_ms: int) -> tuple[int, bool]:
        named = fetch.FetchPartition(
            partition=0, fetch_offset=end.offset, partition_max_bytes=1000, last_fetched_epoch=-1
        )
        request = fetch.FetchRequest(
            replica_id=-1, max_wait_ms=wait_ms, min_bytes=1, max_bytes=1000, session_epoch=-1,
            topics=[fetch.FetchTopic(topic=TOPIC, partitions=[named])],
        )  # fmt: skip
        partition = (await waiting.send(request, 12, timeout_ms=60_000)).responses[0].partitions[0]
        return int(partition.error_code), bool(partition.records)

    async with asyncio.timeout(60):
        # A rule counts once the broker has heard of it.
        while (await ask(0))[0]:
            await asyncio.sleep(0.05)
    late = asyncio.create_task(ask(30_000))
    # It must come before the right goes. One thread reads and one handles: of these requests the first may come before
    # it and the second beside it.
    for _ in range(3):
        await admin.send(listing, 5)
    taking = delete_acls.DeleteAclsFilter(
        resource_type_filter=2, resource_name_filter=TOPIC, principal_filter=f"User:{WAITING}", pattern_type_filter=3,
        operation=1, permission_type=1,
    )  # fmt: skip
    taken = (await admin.send(delete_acls.DeleteAclsRequest(filters=[taking]), 1)).filter_results[0]
    assert len(taken.matching_acls) == 1
    other = engine.client(WAITING)
    named = metadata.MetadataRequest(topics=[metadata.MetadataRequestTopic(name=TOPIC)])
    async with asyncio.timeout(60):
        while (await other.send(named, 5)).topics[0].error_code != ErrorCode.TOPIC_AUTHORIZATION_FAILED:
            await asyncio.sleep(0.05)
    assert not late.done()
    version, sending = REQUESTS[ApiKey.PRODUCE][-1]
    assert (await admin.send(sending, version)).responses[0].partition_responses[0].error_code == 0
    answers = await late, await ask(0)
    for client in (admin, waiting, other):
        await client.close()
    return answers


def test_who_loses_a_right_while_a_fetch_waits_gets_nothing_from_us_and_one_answer_from_kafka(
    both: list[Engine],
) -> None:
    """Kafka asks when a Fetch comes, and no more. Here a record that comes after the right has gone stays secret."""

    async def check() -> tuple[Any, Any]:
        return await rights_lost_while_waiting(both[0]), await rights_lost_while_waiting(both[1])

    kafka, ours = asyncio.run(check())
    refused = (ErrorCode.TOPIC_AUTHORIZATION_FAILED, False)
    assert kafka == ((ErrorCode.NONE, True), refused)
    assert ours == (refused, refused)


async def answered(peer: tuple[asyncio.StreamReader, asyncio.StreamWriter], request: Request, version: int) -> Any:
    reader, writer = peer
    writer.write(bytes(encode_request(request, version, 1, "t")))
    async with asyncio.timeout(30):
        size = int.from_bytes(await reader.readexactly(4), "big")
        return decode_response(await reader.readexactly(size), request.api_key, version)[1]


def shown(rights: Rights) -> str:
    return (
        ", ".join(f"{'' if ok else 'not '}{r.operation.spelling} {r.resource_type.value}" for r, ok in rights)
        or "no right"
    )
