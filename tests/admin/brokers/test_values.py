"""What brokers hold, as values: shares, totals of log dirs, and guesses of their release."""

from __future__ import annotations

import pytest

from engine.admin.brokers.by_snapshot import log_dirs_of
from engine.admin.brokers.description import BrokerPartitions, partitions_of_brokers
from engine.admin.brokers.self_report import release_of
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.log_dirs.describing import (
    DirReplica,
    LogDir,
    totals_by_broker,
    totals_by_dir,
    totals_by_topic,
    with_sizes,
)
from engine.common.model import BrokerInfo, ReplicaAssignment
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, SnapshotSource, TopicSnapshot
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey


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
    # A replica that a reassignment adds does not count as missing.
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
    assert [(row.size_bytes, row.used_percent, row.error) for row in by_dir] == [
        (30, 75, None), (4, 0, None), (0, None, "KAFKA_STORAGE_ERROR"), (0, None, "silent"),
    ]  # fmt: skip
    by_broker = totals_by_broker(DIRS)
    assert [(row.broker, row.size_bytes, row.future_count, row.total_bytes, row.error) for row in by_broker] == [
        (0, 34, 1, 2000, None), (1, 0, 0, None, "/x: KAFKA_STORAGE_ERROR"), (2, 0, 0, None, "silent"),
    ]  # fmt: skip
    by_topic = totals_by_topic(DIRS)
    assert [(row.topic, row.replica_count, row.largest_bytes, row.offset_lag_max) for row in by_topic] == [
        ("a", 2, 10, 9), ("b", 1, 20, 5),
    ]  # fmt: skip
    assert totals_by_topic([]) == [] == totals_by_broker([])


def test_sizes_go_into_a_snapshot_and_come_out_of_it() -> None:
    sized = with_sizes(SNAPSHOT, DIRS)
    log_dirs = log_dirs_of(sized)
    assert [(log_dir.broker, log_dir.log_dir, log_dir.size_bytes, log_dir.total_bytes) for log_dir in log_dirs] == [
        (0, "/x", 30, None), (0, "/y", 4, None), (1, "/x", 0, None), (2, None, 0, None),
    ]  # fmt: skip
    assert [log_dir.error for log_dir in log_dirs] == [None, None, "KAFKA_STORAGE_ERROR", "silent"]
    assert [log_dir.replica_count for log_dir in log_dirs_of(sized, [0], ["b"])] == [1, 0]
    assert [log_dir.error for log_dir in log_dirs_of(sized, [1])] == ["KAFKA_STORAGE_ERROR"]
    with pytest.raises(NotFound, match="no such brokers: 7"):
        log_dirs_of(sized, [0, 7])
    with pytest.raises(BadRequest, match="no log dirs"):
        log_dirs_of(SNAPSHOT)


def test_the_release_of_a_broker() -> None:
    ours = {int(key): (spec.min_version, spec.max_version) for key, spec in API_SPECS.items()}
    assert release_of(ours) == "3.9"
    # The highest versions in the request schemas of these releases.
    for release, fetch, more in (
        ("4.2", 18, {ApiKey.METADATA: 13, ApiKey.OFFSET_FETCH: 10}),
        ("4.1", 18, {ApiKey.METADATA: 13, ApiKey.OFFSET_FETCH: 9}),
        ("4.0", 17, {ApiKey.METADATA: 13, ApiKey.OFFSET_FETCH: 9}),
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
