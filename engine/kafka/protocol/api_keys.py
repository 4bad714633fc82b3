"""All APIs of Kafka 3.9 in ZooKeeper mode, and those our tools use on KRaft: key, versions, header versions, module.

It is light on purpose and imports no message. A broker answers a part of this table: its registry of handlers.
"""

from __future__ import annotations

from enum import IntEnum
from typing import NamedTuple


class ApiKey(IntEnum):
    """The number that opens every request. Of the keys that only KRaft lists, it has the one that our tools use."""

    PRODUCE = 0
    FETCH = 1
    LIST_OFFSETS = 2
    METADATA = 3
    LEADER_AND_ISR = 4
    STOP_REPLICA = 5
    UPDATE_METADATA = 6
    CONTROLLED_SHUTDOWN = 7
    OFFSET_COMMIT = 8
    OFFSET_FETCH = 9
    FIND_COORDINATOR = 10
    JOIN_GROUP = 11
    HEARTBEAT = 12
    LEAVE_GROUP = 13
    SYNC_GROUP = 14
    DESCRIBE_GROUPS = 15
    LIST_GROUPS = 16
    SASL_HANDSHAKE = 17
    API_VERSIONS = 18
    CREATE_TOPICS = 19
    DELETE_TOPICS = 20
    DELETE_RECORDS = 21
    INIT_PRODUCER_ID = 22
    OFFSET_FOR_LEADER_EPOCH = 23
    ADD_PARTITIONS_TO_TXN = 24
    ADD_OFFSETS_TO_TXN = 25
    END_TXN = 26
    WRITE_TXN_MARKERS = 27
    TXN_OFFSET_COMMIT = 28
    DESCRIBE_ACLS = 29
    CREATE_ACLS = 30
    DELETE_ACLS = 31
    DESCRIBE_CONFIGS = 32
    ALTER_CONFIGS = 33
    ALTER_REPLICA_LOG_DIRS = 34
    DESCRIBE_LOG_DIRS = 35
    SASL_AUTHENTICATE = 36
    CREATE_PARTITIONS = 37
    CREATE_DELEGATION_TOKEN = 38
    RENEW_DELEGATION_TOKEN = 39
    EXPIRE_DELEGATION_TOKEN = 40
    DESCRIBE_DELEGATION_TOKEN = 41
    DELETE_GROUPS = 42
    ELECT_LEADERS = 43
    INCREMENTAL_ALTER_CONFIGS = 44
    ALTER_PARTITION_REASSIGNMENTS = 45
    LIST_PARTITION_REASSIGNMENTS = 46
    OFFSET_DELETE = 47
    DESCRIBE_CLIENT_QUOTAS = 48
    ALTER_CLIENT_QUOTAS = 49
    DESCRIBE_USER_SCRAM_CREDENTIALS = 50
    ALTER_USER_SCRAM_CREDENTIALS = 51
    DESCRIBE_QUORUM = 55
    ALTER_PARTITION = 56
    UPDATE_FEATURES = 57
    ENVELOPE = 58
    DESCRIBE_CLUSTER = 60
    DESCRIBE_PRODUCERS = 61
    DESCRIBE_TRANSACTIONS = 65
    LIST_TRANSACTIONS = 66
    ALLOCATE_PRODUCER_IDS = 67
    CONSUMER_GROUP_HEARTBEAT = 68
    CONSUMER_GROUP_DESCRIBE = 69


KRAFT_ONLY = frozenset({ApiKey.DESCRIBE_QUORUM})
"""APIs that no ZooKeeper-based broker lists, and so ours does not."""


class ApiSpec(NamedTuple):
    """One row of the table. Versions are inclusive."""

    key: ApiKey
    name: str
    """Kafka's name, without "Request"."""
    min_version: int
    max_version: int
    flexible_since: int | None
    """First version with compact lengths, tagged fields and header version 2 (KIP-482); None if there is none."""
    module: str
    """Full name of the module that declares the messages."""

    def supports(self, api_version: int) -> bool:
        """Whether the version is declared here."""
        return self.min_version <= api_version <= self.max_version

    def is_flexible_in(self, api_version: int) -> bool:
        """Whether the version has flexible messages and headers."""
        return self.flexible_since is not None and api_version >= self.flexible_since

    def is_deprecated_in(self, api_version: int) -> bool:
        """Whether Kafka 3.9.1 calls the version deprecated, since Kafka 4.0 does not take it (KIP-896)."""
        return api_version <= _DEPRECATED_UNTIL.get(self.key, -1)


_DEPRECATED_UNTIL = {
    ApiKey.PRODUCE: 2,
    ApiKey.FETCH: 3,
    ApiKey.LIST_OFFSETS: 0,
    ApiKey.OFFSET_COMMIT: 1,
    ApiKey.OFFSET_FETCH: 0,
    ApiKey.JOIN_GROUP: 1,
    ApiKey.CREATE_TOPICS: 1,
    ApiKey.DELETE_TOPICS: 0,
    ApiKey.OFFSET_FOR_LEADER_EPOCH: 1,
    ApiKey.DESCRIBE_ACLS: 0,
    ApiKey.CREATE_ACLS: 0,
    ApiKey.DELETE_ACLS: 0,
    ApiKey.DESCRIBE_CONFIGS: 0,
    ApiKey.ALTER_REPLICA_LOG_DIRS: 0,
    ApiKey.DESCRIBE_LOG_DIRS: 0,
    ApiKey.CREATE_DELEGATION_TOKEN: 0,
    ApiKey.RENEW_DELEGATION_TOKEN: 0,
    ApiKey.EXPIRE_DELEGATION_TOKEN: 0,
    ApiKey.DESCRIBE_DELEGATION_TOKEN: 0,
}


def _spec(key: int, name: str, min_version: int, max_version: int, flexible_since: int | None) -> ApiSpec:
    api_key = ApiKey(key)
    module = f"engine.kafka.protocol.apis.{api_key.name.lower()}"
    return ApiSpec(api_key, name, min_version, max_version, flexible_since, module)


API_SPECS: dict[ApiKey, ApiSpec] = {
    spec.key: spec
    for spec in (
        _spec(0, "Produce", 0, 11, 9),
        _spec(1, "Fetch", 0, 17, 12),
        _spec(2, "ListOffsets", 0, 9, 6),
        _spec(3, "Metadata", 0, 12, 9),
        _spec(4, "LeaderAndIsr", 0, 7, 4),
        _spec(5, "StopReplica", 0, 4, 2),
        _spec(6, "UpdateMetadata", 0, 8, 6),
        _spec(7, "ControlledShutdown", 0, 3, 3),
        _spec(8, "OffsetCommit", 0, 9, 8),
        _spec(9, "OffsetFetch", 0, 9, 6),
        _spec(10, "FindCoordinator", 0, 6, 3),
        _spec(11, "JoinGroup", 0, 9, 6),
        _spec(12, "Heartbeat", 0, 4, 4),
        _spec(13, "LeaveGroup", 0, 5, 4),
        _spec(14, "SyncGroup", 0, 5, 4),
        _spec(15, "DescribeGroups", 0, 5, 5),
        _spec(16, "ListGroups", 0, 5, 3),
        _spec(17, "SaslHandshake", 0, 1, None),
        _spec(18, "ApiVersions", 0, 4, 3),
        _spec(19, "CreateTopics", 0, 7, 5),
        _spec(20, "DeleteTopics", 0, 6, 4),
        _spec(21, "DeleteRecords", 0, 2, 2),
        _spec(22, "InitProducerId", 0, 5, 2),
        _spec(23, "OffsetForLeaderEpoch", 0, 4, 4),
        _spec(24, "AddPartitionsToTxn", 0, 5, 3),
        _spec(25, "AddOffsetsToTxn", 0, 4, 3),
        _spec(26, "EndTxn", 0, 4, 3),
        _spec(27, "WriteTxnMarkers", 0, 1, 1),
        _spec(28, "TxnOffsetCommit", 0, 4, 3),
        _spec(29, "DescribeAcls", 0, 3, 2),
        _spec(30, "CreateAcls", 0, 3, 2),
        _spec(31, "DeleteAcls", 0, 3, 2),
        _spec(32, "DescribeConfigs", 0, 4, 4),
        _spec(33, "AlterConfigs", 0, 2, 2),
        _spec(34, "AlterReplicaLogDirs", 0, 2, 2),
        _spec(35, "DescribeLogDirs", 0, 4, 2),
        _spec(36, "SaslAuthenticate", 0, 2, 2),
        _spec(37, "CreatePartitions", 0, 3, 2),
        _spec(38, "CreateDelegationToken", 0, 3, 2),
        _spec(39, "RenewDelegationToken", 0, 2, 2),
        _spec(40, "ExpireDelegationToken", 0, 2, 2),
        _spec(41, "DescribeDelegationToken", 0, 3, 2),
        _spec(42, "DeleteGroups", 0, 2, 2),
        _spec(43, "ElectLeaders", 0, 2, 2),
        _spec(44, "IncrementalAlterConfigs", 0, 1, 1),
        _spec(45, "AlterPartitionReassignments", 0, 0, 0),
        _spec(46, "ListPartitionReassignments", 0, 0, 0),
        _spec(47, "OffsetDelete", 0, 0, None),
        _spec(48, "DescribeClientQuotas", 0, 1, 1),
        _spec(49, "AlterClientQuotas", 0, 1, 1),
        _spec(50, "DescribeUserScramCredentials", 0, 0, 0),
        _spec(51, "AlterUserScramCredentials", 0, 0, 0),
        _spec(55, "DescribeQuorum", 0, 1, 0),
        _spec(56, "AlterPartition", 0, 3, 0),
        _spec(57, "UpdateFeatures", 0, 1, 0),
        _spec(58, "Envelope", 0, 0, 0),
        _spec(60, "DescribeCluster", 0, 1, 0),
        _spec(61, "DescribeProducers", 0, 0, 0),
        _spec(65, "DescribeTransactions", 0, 0, 0),
        _spec(66, "ListTransactions", 0, 1, 0),
        _spec(67, "AllocateProducerIds", 0, 0, 0),
        _spec(68, "ConsumerGroupHeartbeat", 0, 0, 0),
        _spec(69, "ConsumerGroupDescribe", 0, 0, 0),
    )
}
"""Specs by key; a plain int works as a key too."""


def request_header_version(key: ApiKey, api_version: int) -> int:
    """Return 0 (no client id), 1, or 2 (tagged fields)."""
    if API_SPECS[key].is_flexible_in(api_version):
        return 2
    return 0 if key == ApiKey.CONTROLLED_SHUTDOWN and api_version == 0 else 1


def response_header_version(key: ApiKey, api_version: int) -> int:
    """Return 0, or 1 (tagged fields). ApiVersions stays at 0, so that a client can read the answer to any version."""
    return 1 if key != ApiKey.API_VERSIONS and API_SPECS[key].is_flexible_in(api_version) else 0
