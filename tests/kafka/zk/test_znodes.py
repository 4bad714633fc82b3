"""The znode classes against what Kafka 3.9.1 wrote, older versions, and content that nobody should write."""

from __future__ import annotations

import json
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.common.acl import AclOperation, ResourceType
from engine.common.assignment import FromZero
from engine.common.model import (
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    LeaderRecoveryState,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from engine.common.topic_id import parse_topic_id
from engine.kafka.acls import AclEntry, PatternType, Permission, ResourcePattern
from engine.kafka.zk.acls import ExtendedAclChangeZNode, LiteralAclChangeZNode, ResourceZNode
from engine.kafka.zk.admin_nodes import (
    DeleteTopicsTopicZNode,
    PreferredReplicaElectionZNode,
    ReassignPartitionsZNode,
)
from engine.kafka.zk.brokers import BrokerIdZNode, BrokerRegistration
from engine.kafka.zk.cluster import (
    ClusterIdZNode,
    FeatureStatus,
    FeatureZNode,
    FinalizedFeatures,
    MigrationState,
    MigrationZNode,
    ProducerIdBlock,
    ProducerIdBlockZNode,
)
from engine.kafka.zk.configs import (
    ConfigEntityChangeNotificationSequenceZNode,
    ConfigEntityZNode,
    ConfigType,
    desanitized,
    sanitized,
)
from engine.kafka.zk.consumers import (
    ConsumerIdZNode,
    ConsumerOffsetZNode,
    ConsumerOwnerZNode,
    ConsumerSubscription,
)
from engine.kafka.zk.controller import ControllerEpochZNode, ControllerRegistration, ControllerZNode
from engine.kafka.zk.errors import ZnodeFormatError
from engine.kafka.zk.known_znodes import known_znode
from engine.kafka.zk.notifications import (
    IsrChangeNotificationSequenceZNode,
    LogDirEventNotificationSequenceZNode,
)
from engine.kafka.zk.operations import ZnodeStat
from engine.kafka.zk.tokens import DelegationTokenChangeZNode, DelegationTokenInfoZNode
from engine.kafka.zk.topics import TopicPartitionStateZNode, TopicZNode

FIXTURE = Path(__file__).parents[3] / "fixtures" / "znodes" / "recorded.jsonl"
RECORDED = [json.loads(line) for line in FIXTURE.read_text("utf-8").splitlines()]
TP = TopicPartition("t", 0)
STAT = ZnodeStat(*range(11))

ENCODERS: dict[str, Callable[[Any], bytes]] = {
    "BrokerIdZNode": BrokerIdZNode.encode,
    "TopicZNode": lambda value: TopicZNode.encode(value.topic_id, value.assignment),
    "TopicPartitionStateZNode": TopicPartitionStateZNode.encode,
    "ControllerZNode": ControllerZNode.encode,
    "ControllerEpochZNode": ControllerEpochZNode.encode,
    "ClusterIdZNode": ClusterIdZNode.encode,
    "FeatureZNode": FeatureZNode.encode,
    "ProducerIdBlockZNode": ProducerIdBlockZNode.encode,
    "ReassignPartitionsZNode": ReassignPartitionsZNode.encode,
    "IsrChangeNotificationSequenceZNode": IsrChangeNotificationSequenceZNode.encode,
    "LogDirEventNotificationSequenceZNode": LogDirEventNotificationSequenceZNode.encode,
    "ConfigEntityChangeNotificationSequenceZNode": ConfigEntityChangeNotificationSequenceZNode.encode,
    "ConfigEntityZNode": ConfigEntityZNode.encode,
    "ResourceZNode": ResourceZNode.encode,
    "LiteralAclChangeZNode": LiteralAclChangeZNode.encode,
    "ExtendedAclChangeZNode": ExtendedAclChangeZNode.encode,
    "DelegationTokenInfoZNode": DelegationTokenInfoZNode.encode,
    "DelegationTokenChangeZNode": DelegationTokenChangeZNode.encode,
}


@pytest.mark.parametrize("row", RECORDED, ids=lambda row: f"{row['scene']}:{row['path']}")
def test_what_kafka_wrote_is_read_and_written_to_the_byte(row: dict[str, str]) -> None:
    data = row["data"].encode()
    known = known_znode(row["path"])
    assert known is not None
    assert ENCODERS[known.znode_class.__name__](known.decode(data, STAT)) == data


def test_every_encoder_met_a_recorded_znode() -> None:
    seen = {known_znode(row["path"]).znode_class.__name__ for row in RECORDED}  # type: ignore[union-attr]
    assert seen == set(ENCODERS)


def test_folders_and_strangers_mean_nothing() -> None:
    for path in ("/brokers/ids", "/brokers/topics/t/partitions/0", "/zookeeper/quota"):
        assert known_znode(path) is None


# Brokers


def test_broker_registrations_of_all_versions() -> None:
    v1 = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1425200000000"}'
    plaintext = Endpoint("h", 9092, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
    assert BrokerIdZNode.decode(1, v1, 26) == BrokerRegistration(
        BrokerInfo(1, (plaintext,), None, 26), 1_425_200_000_000, json_version=1
    )
    v2 = b'{"version":2,"host":"h","port":9092,"jmx_port":-1,"timestamp":"1","endpoints":["PLAINTEXT://h:9092","SSL://h:9093"]}'
    ssl = Endpoint("h", 9093, "SSL", SecurityProtocol.SSL)
    assert BrokerIdZNode.decode(1, v2).broker == BrokerInfo(1, (plaintext, ssl))
    v3 = v2.replace(b'"version":2', b'"version":3,"rack":"r1"')
    assert BrokerIdZNode.decode(1, v3).broker.rack == "r1"
    v4 = (
        b'{"version":4,"host":null,"port":-1,"jmx_port":9999,"timestamp":"1","endpoints":["internal://[::1]:9092"],'
        b'"listener_security_protocol_map":{"INTERNAL":"SASL_SSL"},"something":"new"}'
    )
    registration = BrokerIdZNode.decode(1, v4)
    assert registration.broker.endpoints == (Endpoint("::1", 9092, "INTERNAL", SecurityProtocol.SASL_SSL),)
    assert registration.jmx_port == 9999
    v5 = v4.replace(b'"version":4', b'"version":5,"features":{"f":{"min_version":1,"max_version":3}}')
    assert BrokerIdZNode.decode(1, v5).features == {"f": {"min_version": 1, "max_version": 3}}


def test_a_registration_shows_how_far_two_clocks_are_apart() -> None:
    znode = b'{"version":1,"host":"h","port":9092,"jmx_port":-1,"timestamp":"5000"}'
    assert BrokerIdZNode.decode(1, znode, 26, 8_000).clock_apart_ms == -3_000
    assert BrokerIdZNode.decode(1, znode, 26).clock_apart_ms is None
    untimed = znode.replace(b',"timestamp":"5000"', b"")
    assert BrokerIdZNode.decode(1, untimed, 26, 8_000).clock_apart_ms is None


def test_registration_without_plain_listener_tells_old_clients_nothing() -> None:
    endpoint = Endpoint("::1", 9093, "SECURE", SecurityProtocol.SSL)
    written = json.loads(BrokerIdZNode.encode(BrokerRegistration(BrokerInfo(1, (endpoint,), "r"), 5)))
    assert (written["host"], written["port"]) == (None, -1)
    assert written["endpoints"] == ["SECURE://[::1]:9093"]
    assert written["rack"] == "r"


def test_old_registration_has_no_keys_of_newer_versions() -> None:
    endpoint = Endpoint("h", 1, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
    written = json.loads(BrokerIdZNode.encode(BrokerRegistration(BrokerInfo(1, (endpoint,), "r"), 5, json_version=2)))
    assert set(written) == {"endpoints", "jmx_port", "port", "host", "version", "timestamp"}


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":0}',
        b'{"version":5,"endpoints":["PLAINTEXT:h:9092"]}',
        b'{"version":5,"endpoints":["X://h:9092"],"listener_security_protocol_map":{"Y":"SSL"}}',
        b'{"version":5,"endpoints":["X://h:9092"],"listener_security_protocol_map":{"X":"MAGIC"}}',
        b'{"version":5,"endpoints":"PLAINTEXT://h:9092"}',
        b'{"version":5,"endpoints":[],"timestamp":"soon"}',
        b'{"version":5,"endpoints":[],"features":{"f":{"min_version":"1"}}}',
        b"creator:host:9092",
    ],
)
def test_broken_registrations(data: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match="/brokers/ids/1"):
        BrokerIdZNode.decode(1, data)


# Controller


def test_controllers_of_all_versions() -> None:
    assert ControllerZNode.decode(b'{"version":1,"brokerid":1,"timestamp":"5"}') == ControllerRegistration(1, 5, None)
    assert ControllerZNode.decode(b"3") == ControllerRegistration(3, -1, None)
    assert ControllerZNode.decode(b'{"brokerid":1,"kraftControllerEpoch":4}').kraft_controller_epoch == 4
    assert ControllerEpochZNode.decode(b"7") == 7


# Topics


def test_topics_of_all_versions() -> None:
    v1 = TopicZNode.decode("t", b'{"version":1,"partitions":{"10":[2,3],"2":[1,2]}}')
    assert v1.topic_id is None
    assert list(v1.assignment.items()) == [(2, ReplicaAssignment((1, 2))), (10, ReplicaAssignment((2, 3)))]
    v2 = TopicZNode.decode(
        "t", b'{"version":2,"partitions":{"0":[4,1]},"adding_replicas":{"0":[4]},"removing_replicas":{"0":[1]}}', 7
    )
    assert v2.by_partition() == {TP: ReplicaAssignment((4, 1), (4,), (1,))}
    assert v2.zk_version == 7
    v3 = TopicZNode.decode("t", b'{"version":3,"partitions":{},"topic_id":"KZNAXhh6SS2FNC3mYo9vWQ","more":[1]}')
    assert v3.topic_id == parse_topic_id("KZNAXhh6SS2FNC3mYo9vWQ")


REPLICAS = st.lists(st.integers(0, 2**31 - 1), max_size=5).map(tuple)


@given(
    st.none() | st.binary(min_size=16, max_size=16),
    st.dictionaries(st.integers(0, 10**6), st.builds(ReplicaAssignment, REPLICAS, REPLICAS, REPLICAS), max_size=30),
)
def test_any_assignment_comes_back(topic_id: bytes | None, assignment: dict[int, ReplicaAssignment]) -> None:
    decoded = TopicZNode.decode("t", TopicZNode.encode(topic_id, assignment))
    assert decoded.topic_id == topic_id
    assert decoded.assignment == dict(sorted(assignment.items()))
    assert list(decoded.assignment) == sorted(assignment)


@pytest.mark.parametrize("count", [0, 1, 999, 1000, 1001, 2500])
def test_very_many_partitions_are_written_as_few_are(count: int) -> None:
    assignment = {p: ReplicaAssignment((p % 3, 7), (7,) if p == 1 else ()) for p in reversed(range(count))}
    written = {
        "partitions": {str(p): [p % 3, 7] for p in range(count)},
        "adding_replicas": {"1": [7]} if count > 1 else {},
        "removing_replicas": {},
        "version": 3,
    }
    assert TopicZNode.encode(None, assignment) == json.dumps(written, separators=(",", ":")).encode()


def test_a_large_topic_takes_little_memory_to_write() -> None:
    made = [ReplicaAssignment((first, first + 1)) for first in range(3)]
    assignment = FromZero([made[partition % 3] for partition in range(20_000)])
    tracemalloc.start()
    try:
        data = TopicZNode.encode(None, assignment)
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    # A portion of the partitions is objects while it is encoded.
    assert peak <= 2.2 * len(data) + 300_000


@given(
    st.builds(
        LeaderAndIsr,
        st.integers(-1, 2**31 - 1),
        st.integers(0, 2**31 - 1),
        REPLICAS,
        st.sampled_from(LeaderRecoveryState),
        st.integers(0, 2**31 - 1),
    ),
    st.integers(0, 2**31 - 1),
)
def test_any_partition_state_comes_back(leader_and_isr: LeaderAndIsr, controller_epoch: int) -> None:
    state = LeaderIsrAndControllerEpoch(leader_and_isr, controller_epoch)
    data = TopicPartitionStateZNode.encode(state)
    assert TopicPartitionStateZNode.decode(TP, data, leader_and_isr.partition_epoch) == state


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"null",
        b"[]",
        b"\xff\xfe",
        b'{"version":3}',
        b'{"version":3,"partitions":[]}',
        b'{"version":3,"partitions":{"x":[1]}}',
        b'{"version":3,"partitions":{"-1":[1]}}',
        b'{"version":3,"partitions":{"0":"1"}}',
        b'{"version":3,"partitions":{"0":[1.5]}}',
        b'{"version":3,"partitions":{"0":[true]}}',
        b'{"version":3,"partitions":{},"topic_id":"short"}',
        b'{"version":3,"partitions":{},"topic_id":5}',
        b"[" * 100_000,
    ],
)
def test_broken_topics(data: bytes) -> None:
    with pytest.raises(ZnodeFormatError, match="/brokers/topics/orders"):
        TopicZNode.decode("orders", data)


@pytest.mark.parametrize("key", ["leader", "leader_epoch", "isr", "controller_epoch"])
def test_state_without_a_field(key: str) -> None:
    values = {"controller_epoch": 1, "leader": 0, "version": 1, "leader_epoch": 0, "isr": [0]}
    del values[key]
    with pytest.raises(ZnodeFormatError, match=f"t/partitions/0/state: no '{key}'"):
        TopicPartitionStateZNode.decode(TP, json.dumps(values).encode(), 0)


def test_unknown_recovery_state_is_refused() -> None:
    data = b'{"controller_epoch":1,"leader":0,"version":1,"leader_epoch":0,"isr":[0],"leader_recovery_state":2}'
    with pytest.raises(ZnodeFormatError, match="not 0 or 1"):
        TopicPartitionStateZNode.decode(TP, data, 0)


# Settings


def test_names_are_sanitized_as_kafka_does_it() -> None:
    for name, text in (
        ("name with*stars", "name%20with%2Astars"),
        ("app 1", "app%201"),
        ("User:a+b~c/ü%", "User%3Aa%2Bb%7Ec%2F%C3%BC%25"),
        ("plain-1_2.3", "plain-1_2.3"),
    ):
        assert sanitized(name) == text
        assert desanitized(text) == name


@given(st.text())
def test_any_name_comes_back(name: str) -> None:
    if name.isprintable():
        assert desanitized(sanitized(name)) == name


def test_settings_that_are_not_there_are_none() -> None:
    assert ConfigEntityZNode.decode("/config/topics/t", b"") == {}
    assert ConfigEntityZNode.decode("/config/topics/t", b'{"version":1}') == {}
    assert ConfigEntityZNode.path(ConfigType.BROKER, "<default>") == "/config/brokers/<default>"
    with pytest.raises(ZnodeFormatError, match="/config/topics/t"):
        ConfigEntityZNode.decode("/config/topics/t", b'{"version":1,"config":{"retention.ms":1000}}')


def test_config_changes_of_all_versions() -> None:
    def decode(data: bytes) -> str:
        return ConfigEntityChangeNotificationSequenceZNode.decode("config_change_0000000001", data)

    assert decode(b'"orders"') == "topics/orders"
    assert decode(b'{"version":1,"entity_type":"clients","entity_name":"c"}') == "clients/c"
    assert decode(b'{"version":2,"entity_path":"users/u/clients/c"}') == "users/u/clients/c"
    unknown_type = b'{"version":1,"entity_type":"x","entity_name":"c"}'
    for broken in (b'"', b"5", b'{"version":3}', unknown_type, b'{"version":2}'):
        with pytest.raises(ZnodeFormatError, match="/config/changes/config_change_0000000001"):
            decode(broken)


# The others


def test_admin_requests() -> None:
    assert DeleteTopicsTopicZNode.path("t") == "/admin/delete_topics/t"
    wanted = (TopicPartition("t1", 1), TopicPartition("t1", 2))
    data = b'{"version":1,"partitions":[{"topic":"t1","partition":1},{"topic":"t1","partition":2}]}'
    assert PreferredReplicaElectionZNode.encode(wanted) == data
    assert PreferredReplicaElectionZNode.decode(data) == wanted
    twice = b'{"partitions":[{"topic":"t","partition":0,"replicas":[1]},{"topic":"t","partition":0,"replicas":[2]}]}'
    assert ReassignPartitionsZNode.decode(twice) == {TP: (2,)}
    for broken in (b"not json", b"{}", b'{"partitions":[1]}', b'{"partitions":[{"topic":"t","partition":0}]}'):
        with pytest.raises(ZnodeFormatError, match="/admin/reassign_partitions"):
            ReassignPartitionsZNode.decode(broken)


def test_features_of_both_versions() -> None:
    v1 = b'{"version":1,"status":1,"features":{"f":{"min_version_level":1,"max_version_level":3}}}'
    assert FeatureZNode.decode(v1) == FinalizedFeatures(FeatureStatus.ENABLED, 1, {"f": 3})
    v2 = FinalizedFeatures(FeatureStatus.ENABLED, 2, {"f": 3})
    assert FeatureZNode.encode(v2) == b'{"features":{"f":{"max_version_level":3}},"version":2,"status":1}'
    for broken in (
        b'{"version":3,"status":1,"features":{}}',
        b'{"version":2,"status":7,"features":{}}',
        b'{"version":2,"status":1}',
    ):
        with pytest.raises(ZnodeFormatError, match="/feature"):
            FeatureZNode.decode(broken)


def test_migration_state_is_read() -> None:
    data = (
        b'{"version":0,"kraft_controller_id":3000,"kraft_controller_epoch":5,'
        b'"kraft_metadata_offset":100,"kraft_metadata_epoch":2}'
    )
    assert MigrationZNode.decode(data) == MigrationState(3000, 5, 100, 2)
    with pytest.raises(ZnodeFormatError, match="/migration"):
        MigrationZNode.decode(b'{"version":1}')


def test_producer_id_blocks() -> None:
    assert ProducerIdBlockZNode.decode(b'{"version":1,"broker":2,"block_start":"1000","block_end":"1999"}') == (
        ProducerIdBlock(2, 1000, 1000)
    )
    for broken in (
        b'{"version":1,"broker":2,"block_start":"5","block_end":"4"}',
        b'{"version":1,"broker":2,"block_start":"0","block_end":"9223372036854775808"}',
        b'{"version":1,"broker":2,"block_start":"x","block_end":"4"}',
    ):
        with pytest.raises(ZnodeFormatError, match="/latest_producer_id_block"):
            ProducerIdBlockZNode.decode(broken)


def test_old_consumers() -> None:
    data = b'{"version":1,"subscription":{"t":2},"pattern":"static","timestamp":"1425200000000"}'
    subscription = ConsumerSubscription({"t": 2}, "static", 1_425_200_000_000)
    assert ConsumerIdZNode.decode("g", "g_h-1-a", data) == subscription
    assert ConsumerIdZNode.encode(subscription) == data
    assert ConsumerOwnerZNode.decode("g", TP, ConsumerOwnerZNode.encode("g_h-1-a-0")) == "g_h-1-a-0"
    assert ConsumerOffsetZNode.decode("g", TP, ConsumerOffsetZNode.encode(42)) == 42
    for path, content, value in (
        ("/consumers/g/offsets/t/0", b"42", 42),
        ("/consumers/g/owners/t/0", b"x-0", "x-0"),
        ("/consumers/g/ids/m", data, subscription),
    ):
        known = known_znode(path)
        assert known is not None
        assert known.decode(content, STAT) == value
    with pytest.raises(ZnodeFormatError, match="/consumers/g/offsets/t/0"):
        ConsumerOffsetZNode.decode("g", TP, b"many")


def test_access_lists() -> None:
    prefix = ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
    assert ResourceZNode.path(prefix) == "/kafka-acl-extended/prefixed/Topic/ord"
    literal = ResourcePattern(ResourceType.USER, "User:bob")
    assert ResourceZNode.path(literal) == "/kafka-acl/User/User:bob"
    entry = AclEntry("User:alice", "*", AclOperation.READ, Permission.ALLOW)
    data = b'{"version":1,"acls":[{"principal":"User:alice","permissionType":"Allow","operation":"Read","host":"*"}]}'
    assert ResourceZNode.decode(literal, data) == (entry,)
    assert ResourceZNode.decode(literal, b"") == ()
    assert LiteralAclChangeZNode.decode("acl_changes_1", b"Topic:a:b") == ResourcePattern(ResourceType.TOPIC, "a:b")
    for field, word in (("operation", b"Read"), ("permissionType", b"Allow")):
        with pytest.raises(ZnodeFormatError, match=field):
            ResourceZNode.decode(literal, data.replace(word, b"Odd"))
    for broken in (b"TOPIC", b"THING:x"):
        with pytest.raises(ZnodeFormatError, match="/kafka-acl-changes/acl_changes_1"):
            LiteralAclChangeZNode.decode("acl_changes_1", broken)
    with pytest.raises(ZnodeFormatError, match="patternType"):
        ExtendedAclChangeZNode.decode("n", b'{"version":1,"resourceType":"TOPIC","name":"x","patternType":"ODD"}')


def test_tokens_of_older_versions() -> None:
    v1 = (
        b'{"version":1,"owner":"User%3Aa","renewers":["User%3Ab"],"issueTimestamp":1,"maxTimestamp":2,'
        b'"expiryTimestamp":3,"tokenId":"x"}'
    )
    token = DelegationTokenInfoZNode.decode("x", v1)
    assert (token.owner, token.token_requester, token.renewers) == ("User:a", "User:a", ("User:b",))
    with pytest.raises(ZnodeFormatError, match="/delegation_token/tokens/x"):
        DelegationTokenInfoZNode.decode("x", v1.replace(b'"version":1', b'"version":4'))


@given(st.sampled_from(RECORDED), st.data())
def test_damaged_content_raises_one_kind_of_error(row: dict[str, str], data: st.DataObject) -> None:
    content = bytearray(row["data"].encode())
    position = data.draw(st.integers(0, len(content) - 1))
    if data.draw(st.booleans()):
        content[position] = data.draw(st.integers(0, 255))
    else:
        del content[position:]
    known = known_znode(row["path"])
    assert known is not None
    try:
        known.decode(bytes(content), STAT)
    except ZnodeFormatError as error:
        assert error.path == row["path"]
