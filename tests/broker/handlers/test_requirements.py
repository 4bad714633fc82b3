"""What each handler says that its requests require, against Kafka's own table of 'operations and resources'."""

from __future__ import annotations

import pytest

from engine.admin.cluster.rights import NEEDED
from engine.broker.handlers.guards import GUARDS
from engine.broker.handlers.registry import all_handlers, handles
from engine.common.acl import AclOperation, Requirement, ResourceType
from engine.kafka.protocol.api_keys import ApiKey

KAFKAS_TABLE = """
PRODUCE Write TransactionalId
PRODUCE IdempotentWrite Cluster
PRODUCE Write Topic
FETCH ClusterAction Cluster
FETCH Read Topic
LIST_OFFSETS Describe Topic
METADATA Describe Topic
METADATA Create Cluster
METADATA Create Topic
LEADER_AND_ISR ClusterAction Cluster
STOP_REPLICA ClusterAction Cluster
UPDATE_METADATA ClusterAction Cluster
CONTROLLED_SHUTDOWN ClusterAction Cluster
OFFSET_COMMIT Read Group
OFFSET_COMMIT Read Topic
OFFSET_FETCH Describe Group
OFFSET_FETCH Describe Topic
FIND_COORDINATOR Describe Group
FIND_COORDINATOR Describe TransactionalId
JOIN_GROUP Read Group
HEARTBEAT Read Group
LEAVE_GROUP Read Group
SYNC_GROUP Read Group
DESCRIBE_GROUPS Describe Group
LIST_GROUPS Describe Cluster
LIST_GROUPS Describe Group
CREATE_TOPICS Create Cluster
CREATE_TOPICS Create Topic
DELETE_TOPICS Delete Topic
DELETE_RECORDS Delete Topic
INIT_PRODUCER_ID Write TransactionalId
INIT_PRODUCER_ID IdempotentWrite Cluster
OFFSET_FOR_LEADER_EPOCH ClusterAction Cluster
OFFSET_FOR_LEADER_EPOCH Describe Topic
ADD_PARTITIONS_TO_TXN Write TransactionalId
ADD_PARTITIONS_TO_TXN Write Topic
ADD_OFFSETS_TO_TXN Write TransactionalId
ADD_OFFSETS_TO_TXN Read Group
END_TXN Write TransactionalId
WRITE_TXN_MARKERS Alter Cluster
WRITE_TXN_MARKERS ClusterAction Cluster
TXN_OFFSET_COMMIT Write TransactionalId
TXN_OFFSET_COMMIT Read Group
TXN_OFFSET_COMMIT Read Topic
DESCRIBE_ACLS Describe Cluster
CREATE_ACLS Alter Cluster
DELETE_ACLS Alter Cluster
DESCRIBE_CONFIGS DescribeConfigs Cluster
DESCRIBE_CONFIGS DescribeConfigs Topic
ALTER_CONFIGS AlterConfigs Cluster
ALTER_CONFIGS AlterConfigs Topic
ALTER_REPLICA_LOG_DIRS Alter Cluster
DESCRIBE_LOG_DIRS Describe Cluster
CREATE_PARTITIONS Alter Topic
CREATE_DELEGATION_TOKEN CreateTokens User
DESCRIBE_DELEGATION_TOKEN Describe DelegationToken
DESCRIBE_DELEGATION_TOKEN DescribeTokens User
DELETE_GROUPS Delete Group
ELECT_LEADERS ClusterAction Cluster
INCREMENTAL_ALTER_CONFIGS AlterConfigs Cluster
INCREMENTAL_ALTER_CONFIGS AlterConfigs Topic
ALTER_PARTITION_REASSIGNMENTS Alter Cluster
LIST_PARTITION_REASSIGNMENTS Describe Cluster
OFFSET_DELETE Delete Group
OFFSET_DELETE Read Topic
DESCRIBE_CLIENT_QUOTAS DescribeConfigs Cluster
ALTER_CLIENT_QUOTAS AlterConfigs Cluster
DESCRIBE_USER_SCRAM_CREDENTIALS Describe Cluster
ALTER_USER_SCRAM_CREDENTIALS Alter Cluster
ALTER_PARTITION ClusterAction Cluster
UPDATE_FEATURES Alter Cluster
DESCRIBE_CLUSTER Describe Cluster
DESCRIBE_PRODUCERS Read Topic
DESCRIBE_TRANSACTIONS Describe TransactionalId
LIST_TRANSACTIONS Describe TransactionalId
ALLOCATE_PRODUCER_IDS ClusterAction Cluster
CONSUMER_GROUP_HEARTBEAT Read Group
CONSUMER_GROUP_DESCRIBE Read Group
"""
"""Kafka 3.9's documentation, 'Operations and Resources on Protocols'. APIs that are missing require nothing."""

BROKERS_DIFFER = {
    ("PRODUCE", "IdempotentWrite Cluster"): "no longer asked for since 3.0 (KIP-679): who may write may be idempotent",
    ("INIT_PRODUCER_ID", "Write Topic"): "since 2.8 whoever may write to any topic may have an id (KIP-679)",
    ("CREATE_TOPICS", "DescribeConfigs Topic"): "for the settings that answers carry from version 5 on (KIP-525)",
    ("DELETE_TOPICS", "Describe Topic"): "before a name is told to somebody who gave an id (KIP-516)",
    ("ADD_PARTITIONS_TO_TXN", "ClusterAction Cluster"): "versions 4 and up come from brokers (KIP-890)",
    ("DESCRIBE_TRANSACTIONS", "Describe Topic"): "the answer leaves out other topics (KIP-664)",
    ("ELECT_LEADERS", "ClusterAction Cluster"): "the documentation is wrong: brokers ask for Alter",
    ("ELECT_LEADERS", "Alter Cluster"): "the documentation is wrong: it says ClusterAction",
    ("CONSUMER_GROUP_HEARTBEAT", "Read Group"): "refused before anything is asked: the protocol needs KRaft (KIP-848)",
    ("CONSUMER_GROUP_DESCRIBE", "Read Group"): "refused before anything is asked: the protocol needs KRaft (KIP-848)",
}
"""Where a broker of 3.9 asks for something else than its documentation says, and why."""


def test_every_handler_declares_what_kafka_requires() -> None:
    documented = {tuple(line.split(" ", 1)) for line in KAFKAS_TABLE.split("\n") if line}
    declared = {
        (key.name, f"{each.operation.spelling} {each.resource_type.value}")
        for key, entry in ((ApiKey(number), entry) for number, entry in all_handlers().items())
        for each in entry.requires
    }
    served = {ApiKey(number).name for number in all_handlers()}
    assert declared ^ {row for row in documented if row[0] in served} == {
        row for row in BROKERS_DIFFER if row[0] in served
    }


def test_a_handler_without_its_declaration_does_not_register() -> None:
    with pytest.raises(TypeError, match="requires"):
        handles(ApiKey.DESCRIBE_QUORUM)  # type: ignore[call-arg]
    for wrong in ("Reed Topic", "Read Topics", "Read", ""):
        with pytest.raises(ValueError, match=r"operation|ResourceType"):
            handles(ApiKey.DESCRIBE_QUORUM, requires=[wrong])
    assert ApiKey.DESCRIBE_QUORUM not in all_handlers()


def test_every_handler_has_a_guard() -> None:
    """A broker with an authorizer does not start with an API that it would not check."""
    assert all_handlers().keys() <= GUARDS.keys()
    unguarded = {key for key, guard in GUARDS.items() if guard is GUARDS[ApiKey.API_VERSIONS]}
    assert unguarded == {key for key, entry in all_handlers().items() if not entry.requires}


def test_operations_have_kafkas_spelling() -> None:
    assert Requirement.of("ClusterAction Cluster") == (AclOperation.CLUSTER_ACTION, ResourceType.CLUSTER)
    assert Requirement.of("Read TransactionalId") == (AclOperation.READ, ResourceType.TRANSACTIONAL_ID)
    assert [operation.spelling for operation in AclOperation][-3:] == [
        "IdempotentWrite",
        "CreateTokens",
        "DescribeTokens",
    ]


def test_the_tools_name_the_rights_that_brokers_ask_for() -> None:
    asked = {tuple(line.split(" ", 1)) for line in KAFKAS_TABLE.split("\n") if line}
    asked |= {row for row in BROKERS_DIFFER if row not in asked}
    named = {
        (key.name, f"{each.operation.spelling} {each.resource_type.value}")
        for key, needed in NEEDED.items()
        for each in needed
    }
    # What the documentation leaves out: a quorum's state, and the operation of ConsumerGroupDescribe (KIP-848).
    assert named - asked <= {
        ("DESCRIBE_QUORUM", "Describe Cluster"),
        ("CONSUMER_GROUP_DESCRIBE", "Describe Group"),
        ("CONSUMER_GROUP_DESCRIBE", "Describe Topic"),
    }
