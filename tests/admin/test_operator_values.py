"""Log dirs, releases, deletions and quotas as values: sums, guesses, files that are not what they should be."""

from __future__ import annotations

import json
import re

import pytest
from typer._click.exceptions import UsageError

from cli.commands.configs_entities import chosen_entity
from engine.admin.brokers.by_snapshot import log_dirs_of
from engine.admin.brokers.description import BrokerPartitions, partitions_of_brokers
from engine.admin.brokers.log_dir_totals import totals_by_broker, totals_by_dir, totals_by_topic
from engine.admin.brokers.log_dirs import DirReplica, LogDir, with_sizes
from engine.admin.brokers.releases import release_of
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.configs.quotas import check_dropped, entity_of, parse_quotas, parts_of, user_and_client
from engine.admin.configs.values import Entity, EntityType
from engine.admin.records.deletion import parse_offset_file
from engine.common.model import BrokerInfo, ReplicaAssignment, TopicPartition
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, SnapshotSource, TopicSnapshot
from engine.protocol.api_keys import API_SPECS, ApiKey


def partition(index: int, replicas: tuple[int, ...], isr: tuple[int, ...], leader: int) -> PartitionSnapshot:
    return PartitionSnapshot(index, ReplicaAssignment(replicas), leader, isr)


SNAPSHOT = ClusterSnapshot(
    brokers=(BrokerInfo(0, ()), BrokerInfo(1, ())),
    topics=(
        TopicSnapshot("a", (partition(0, (0, 1), (0, 1), 0), partition(1, (1, 0), (0,), 0))),
        TopicSnapshot(
            "b",
            (
                partition(0, (2, 0), (), -1),
                PartitionSnapshot(1, ReplicaAssignment((0, 1, 2), (2,), (0,)), 0, (0, 1)),
            ),
        ),
    ),
    source=SnapshotSource.ZOOKEEPER,
    taken_at_ms=0,
    controller_id=0,
)


def test_shares_of_brokers() -> None:
    shares = partitions_of_brokers(SNAPSHOT)
    assert shares[0] == BrokerPartitions(
        held=4, led=3, preferred=2, preferred_led=2, out_of_sync=("b-0",), leaderless=("b-0",), removing=1
    )
    assert shares[1] == BrokerPartitions(held=3, preferred=1, out_of_sync=("a-1",))
    # A replica that a reassignment adds is not missed.
    assert shares[2] == BrokerPartitions(held=2, preferred=1, out_of_sync=("b-0",), leaderless=("b-0",), adding=1)
    assert [share.imbalance_percent for share in (shares[0], shares[1], BrokerPartitions())] == [0, 100, 0]


DIRS = [
    LogDir(0, "/x", None, 30, 2, 1000, 250, (DirReplica("a", 0, 10, 0, False), DirReplica("b", 0, 20, 5, False))),
    LogDir(0, "/y", None, 4, 1, 1000, 1000, (DirReplica("a", 0, 4, 9, True),)),
    LogDir(1, "/x", "KAFKA_STORAGE_ERROR", 0, 0, None, None),
    LogDir(2, None, "silent", 0, 0, None, None),
]


def test_totals() -> None:
    by_dir = totals_by_dir(DIRS)
    assert [(one.size_bytes, one.used_percent, one.error) for one in by_dir] == [
        (30, 75, None), (4, 0, None), (0, None, "KAFKA_STORAGE_ERROR"), (0, None, "silent"),
    ]  # fmt: skip
    by_broker = totals_by_broker(DIRS)
    assert [(one.broker, one.size_bytes, one.future_count, one.total_bytes, one.error) for one in by_broker] == [
        (0, 34, 1, 2000, None), (1, 0, 0, None, "/x: KAFKA_STORAGE_ERROR"), (2, 0, 0, None, "silent"),
    ]  # fmt: skip
    by_topic = totals_by_topic(DIRS)
    assert [(one.topic, one.replica_count, one.largest_bytes, one.offset_lag_max) for one in by_topic] == [
        ("a", 2, 10, 9), ("b", 1, 20, 5),
    ]  # fmt: skip
    assert totals_by_topic([]) == [] == totals_by_broker([])


def test_sizes_go_into_a_snapshot_and_come_out_of_it() -> None:
    sized = with_sizes(SNAPSHOT, DIRS)
    found = log_dirs_of(sized)
    assert [(one.broker, one.log_dir, one.size_bytes, one.total_bytes) for one in found] == [
        (0, "/x", 30, None), (0, "/y", 4, None),
    ]  # fmt: skip
    assert [one.replica_count for one in log_dirs_of(sized, [0], ["b"])] == [1, 0]
    assert log_dirs_of(sized, [1]) == []
    with pytest.raises(NotFound, match="no such brokers: 7"):
        log_dirs_of(sized, [0, 7])
    with pytest.raises(BadRequest, match="no log dirs"):
        log_dirs_of(SNAPSHOT)


def test_the_release_of_a_broker() -> None:
    ours = {int(key): (spec.min_version, spec.max_version) for key, spec in API_SPECS.items()}
    assert release_of(ours) == "3.9"
    # Highest versions as the request schemas of these releases have them.
    for release, fetch, more in (
        ("3.8", 16, {ApiKey.LIST_GROUPS: 5, ApiKey.LEADER_AND_ISR: 7}),
        ("3.7", 16, {ApiKey.LIST_GROUPS: 4, ApiKey.LEADER_AND_ISR: 7}),
        ("3.4", 13, {ApiKey.LIST_GROUPS: 4, ApiKey.LEADER_AND_ISR: 7}),
        ("3.3", 13, {ApiKey.DESCRIBE_LOG_DIRS: 4, ApiKey.LEADER_AND_ISR: 6}),
        ("3.0", 12, {ApiKey.LIST_OFFSETS: 7, ApiKey.DESCRIBE_CLUSTER: 0}),
        ("2.8", 12, {ApiKey.LIST_OFFSETS: 6, ApiKey.DESCRIBE_CLUSTER: 0}),
        ("2.4", 11, {ApiKey.SASL_AUTHENTICATE: 1, ApiKey.ALTER_PARTITION_REASSIGNMENTS: 0}),
        ("1.1", 7, {ApiKey.API_VERSIONS: 1}),
        ("0.10.0", 2, {ApiKey.API_VERSIONS: 0}),
    ):
        offered = {int(ApiKey.FETCH): (0, fetch)} | {int(key): (0, highest) for key, highest in more.items()}
        assert release_of(offered) == release
    assert release_of({}) is None


def offsets_text(*entries: object, version: object = 1) -> str:
    return json.dumps({"version": version, "partitions": list(entries)})


ONE = {"topic": "t", "partition": 0, "offset": 5}


def test_a_file_of_offsets() -> None:
    found = parse_offset_file(offsets_text(ONE, ONE | {"partition": 1, "offset": -1}), "f")
    assert found == {TopicPartition("t", 0): 5, TopicPartition("t", 1): -1}
    assert parse_offset_file(json.dumps({"partitions": [ONE]}), "f")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("nonsense", "not JSON"),
        ("", "not JSON"),
        ("[]", "missing partitions field"),
        ('{"version":1}', "missing partitions field"),
        ('{"partitions":{}}', "missing partitions field"),
        (offsets_text(), "lists no partition"),
        (offsets_text(ONE, version=2), "not supported version field value 2"),
        (offsets_text(ONE, ONE | {"offset": 6}), "contains duplicate topic partitions: t-0"),
        (offsets_text({"topic": "t", "partition": 0}), "not a partition with an offset"),
        (offsets_text(ONE | {"offset": "5"}), "not a partition with an offset"),
        (offsets_text(ONE | {"offset": True}), "not a partition with an offset"),
        (offsets_text(ONE | {"partition": -1}), "not a partition with an offset"),
        (offsets_text(ONE | {"offset": -2}), "not a partition with an offset"),
        (offsets_text(ONE | {"topic": None}), "not a partition with an offset"),
        (offsets_text("t-0"), "not a partition with an offset"),
    ],
)
def test_files_that_are_not_offsets(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=re.escape(message)) as error:
        parse_offset_file(text, "f")
    assert error.value.where == "f"


def test_users_clients_and_addresses_there_and_back() -> None:
    pair = user_and_client("CN=a/b", None)
    assert (pair.name, str(pair)) == ("CN%3Da%2Fb/<default>", "client <default> of user CN%3Da%2Fb")
    assert parts_of(pair) == [("user", "CN=a/b"), ("client-id", None)]
    for entity in (pair, Entity(EntityType.USER, None), Entity(EntityType.CLIENT, "c"), Entity(EntityType.IP, "::1")):
        assert entity_of(parts_of(entity)) == entity
    assert entity_of([("group", "g")]) is None


def test_quotas_are_checked_before_they_are_sent() -> None:
    user, address = Entity(EntityType.USER, "u"), Entity(EntityType.IP, "h")
    assert parse_quotas(user, {"producer_byte_rate": "5", "request_percentage": "0.5"}) == {
        "producer_byte_rate": 5.0,
        "request_percentage": 0.5,
    }
    for entity, key, text, message in (
        (user, "producer_byte_rate", "1.5", "whole number"),
        (user, "producer_byte_rate", "-1", "whole number"),
        (user, "producer_byte_rate", "abc", "cannot parse"),
        (user, "request_percentage", "0", "above 0"),
        (user, "request_percentage", "nan", "above 0"),
        (user, "request_percentage", "inf", "above 0"),
        (user, "connection_creation_rate", "1", "only quotas can be set for users"),
        (address, "producer_byte_rate", "1", "only quotas can be set for ips"),
        (user, "SCRAM-SHA-512", "[password=x]", "no credentials"),
    ):
        with pytest.raises(BadRequest, match=message):
            parse_quotas(entity, {key: text})
    with pytest.raises(BadRequest, match="not set"):
        check_dropped(user, ["producer_byte_rate"], [])
    with pytest.raises(BadRequest, match="no credentials"):
        check_dropped(user, ["SCRAM-SHA-256"], ["SCRAM-SHA-256"])


def whose(types: str = "", names: str = "", default: bool = False, **said: str | bool) -> tuple[str, str | None]:
    shortcuts = [
        (kind, value if isinstance(value, str) else None, value is True) for kind, value in said.items() if value
    ]
    chosen = chosen_entity(types.split(), names.split(), default, shortcuts)
    if chosen.entity is not None:
        return chosen.kind.value, chosen.entity.name
    return chosen.kind.value, f"all of {chosen.user}/{chosen.client}" if chosen.user or chosen.client else "all"


def test_whose_settings() -> None:
    assert whose("topics", "t") == ("topics", "t") == whose(topics="t")
    assert whose("brokers", default=True) == ("brokers", None) == whose(brokers=True)
    assert whose("users") == ("users", "all")
    assert whose("users clients", "alice app") == ("users/clients", "alice/app") == whose(users="alice", clients="app")
    assert whose("clients users", "app alice") == ("users/clients", "alice/app")
    assert whose("users clients") == ("users/clients", "all")
    assert whose(users=True, clients="app") == ("users/clients", "<default>/app")
    assert whose("users clients", "alice") == ("users/clients", "all of alice/None") == whose("clients", users="alice")
    assert whose("users", clients="app/1") == ("users/clients", "all of None/app%2F1")
    assert whose("users clients", default=True) == ("users/clients", "all of <default>/None")


def test_all_clients_of_one_user() -> None:
    chosen = chosen_entity(["users", "clients"], ["a/b"], False, [])
    assert [name for name in ("a%2Fb/x", "a%2Fb/<default>", "a/b", "<default>/x") if chosen.takes(name)] == [
        "a%2Fb/x",
        "a%2Fb/<default>",
    ]
    everybody = chosen_entity(["users"], [], False, [])
    assert everybody.takes(None)
    assert everybody.takes("alice")


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ({}, "say whose settings"),
        ({"types": "nonsense", "names": "x"}, "wants one of topics"),
        ({"types": "topics brokers", "names": "t 0"}, "one kind of entity only"),
        ({"types": "topics", "topics": "t"}, "one kind of entity only"),
        ({"names": "t"}, "want an --entity-type"),
        ({"types": "topics", "names": "a b"}, "more names than types"),
        ({"types": "topics", "names": "a", "default": True}, "more names than types"),
        ({"types": "users clients", "names": "a", "default": True}, "which type has the default"),
    ],
)
def test_settings_of_nobody(words: dict[str, str], message: str) -> None:
    with pytest.raises(UsageError, match=message):
        whose(**words)  # type: ignore[arg-type]
