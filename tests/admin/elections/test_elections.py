"""Which replica would be elected, and which partitions a caller means."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.elections.by_znode import ZNODE_BYTES_MAX, _parts
from engine.admin.elections.scope_and_result import (
    ElectionResult,
    ElectionScope,
    ElectionType,
    parse_election_file,
    preview,
    read_scope,
    scope_of,
)
from engine.admin.topics.access import SnapshotTopicReader
from engine.common.model import ReplicaAssignment, TopicPartition
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, SnapshotSource, TopicSnapshot
from engine.kafka.zk.admin_nodes import PreferredReplicaElectionZNode


def partition(replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, index: int = 0) -> PartitionSnapshot:
    return PartitionSnapshot(index, ReplicaAssignment(replicas), leader, isr)


def test_the_znode_of_an_election_is_small_enough_whatever_the_names() -> None:
    """ZooKeeper's limit is 1 MB: 10,000 partitions with the longest names need almost three times that."""
    names = [TopicPartition(f"{index:05}-" + "x" * 243, 99_999) for index in range(10_000)]
    parts = list(_parts(names))
    assert [name for part in parts for name in part] == names
    sizes = [len(PreferredReplicaElectionZNode.encode(part)) for part in parts]
    assert max(sizes) <= ZNODE_BYTES_MAX
    assert min(sizes[:-1]) > ZNODE_BYTES_MAX - 300
    assert list(_parts([])) == []


@pytest.mark.parametrize(
    ("replicas", "isr", "leader", "live", "after", "obstacle"),
    [
        ((2, 4), (2, 4), 2, {2, 4}, 2, None),
        ((2, 4), (2, 4), 4, {2, 4}, 2, None),
        ((2, 4), (4,), 4, {2, 4}, 4, "preferred replica 2 is not in sync"),
        ((2, 4), (2, 4), 4, {4}, 4, "preferred replica 2 is dead"),
        ((2, 4), (2,), -1, {2, 4}, 2, None),
        ((2, 4), (2,), 2, {4}, 2, "preferred replica 2 is dead"),
    ],
)
def test_preferred_leaders(
    replicas: tuple[int, ...], isr: tuple[int, ...], leader: int, live: set[int], after: int, obstacle: str | None
) -> None:
    name = TopicPartition("t", 0)
    (election,) = preview(ElectionType.PREFERRED, {name: partition(replicas, isr, leader)}, live)
    assert (election.after, election.obstacle) == (after, obstacle)
    assert election.is_needed == (obstacle is not None or leader != after)


@pytest.mark.parametrize(
    ("isr", "leader", "live", "after", "result"),
    [
        ((1, 2), 1, {1, 2, 3}, 1, ElectionResult.NOT_NEEDED),
        ((1,), -1, {2, 3}, 2, ElectionResult.WOULD_BE_ELECTED),
        ((3,), -1, {2, 3}, 3, ElectionResult.WOULD_BE_ELECTED),
        ((1,), -1, set(), -1, ElectionResult.WOULD_FAIL),
        ((1,), 1, {3}, 3, ElectionResult.WOULD_BE_ELECTED),
    ],
)
def test_unclean_leaders(isr: tuple[int, ...], leader: int, live: set[int], after: int, result: ElectionResult) -> None:
    (election,) = preview(ElectionType.UNCLEAN, {TopicPartition("t", 0): partition((1, 2, 3), isr, leader)}, live)
    assert (election.after, election.as_result().result) == (after, result)


@pytest.mark.parametrize(
    ("isr", "offline", "after", "obstacle"),
    [
        ((1,), (1,), 2, None),
        ((2,), (2,), 1, None),
        (
            (1,),
            (1, 2, 3),
            -1,
            "no replica can lead: 1 is offline although its broker is alive (a failed log dir?), "
            "2 is offline although its broker is alive (a failed log dir?), 3 is dead",
        ),
    ],
)
def test_a_replica_in_a_failed_log_dir_leads_in_no_election(
    isr: tuple[int, ...], offline: tuple[int, ...], after: int, obstacle: str | None
) -> None:
    """Its broker lives, so that a dry run offered it; the controller refused."""
    wanted = {TopicPartition("t", 0): replace(partition((1, 2, 3), isr, -1), offline_replicas=offline)}
    (unclean,) = preview(ElectionType.UNCLEAN, wanted, {1, 2})
    assert (unclean.after, unclean.obstacle) == (after, obstacle)
    (preferred,) = preview(ElectionType.PREFERRED, wanted, {1, 2})
    if 1 in offline:
        assert preferred.obstacle == "preferred replica 1 is offline although its broker is alive (a failed log dir?)"


def test_each_partition_belongs_to_the_topic_beside_it() -> None:
    assert scope_of(["a"], [0, 3]).wanted == (("a", 0), ("a", 3))
    assert scope_of(["a", "b"], [0, 1]).wanted == (("a", 0), ("b", 1))
    assert scope_of(["a", "b", "a"], []).wanted == (("a", None), ("b", None))
    with pytest.raises(BadRequest, match="2 topics, but 1 partitions"):
        scope_of(["a", "b"], [0])
    with pytest.raises(BadRequest, match="partition is only allowed with topic"):
        scope_of([], [0])


def test_an_election_file() -> None:
    text = '{"version":1,"partitions":[{"topic":"el","partition":1},{"topic":"el","partition":2}]}'
    assert parse_election_file(text, "f").wanted == (("el", 1), ("el", 2))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ('{"partitions":[{"topic":"el","partition":1},{"topic":"el","partition":1}]}', "duplicate partitions: el-1"),
        ("{}", 'missing "partitions" field'),
        ("", "the file is empty"),
        ("nonsense", "not JSON"),
        ("[" * 200_000, "not JSON"),
        ('{"partitions":[]}', "lists no partition"),
        ('{"partitions":[{"topic":"el"}]}', "not a topic with a partition"),
        ('{"partitions":[{"topic":"el","partition":true}]}', "not a topic with a partition"),
        ('["el"]', "not a JSON object"),
    ],
)
def test_election_files_that_make_no_sense(text: str, message: str) -> None:
    with pytest.raises(BadRequest, match=message):
        parse_election_file(text, "f")


def test_a_scope_is_read_from_the_cluster() -> None:
    topics = (
        TopicSnapshot("a", (partition((1,), (1,), 1), partition((2,), (2,), 2, 1))),
        TopicSnapshot("b", (partition((1,), (1,), 1),)),
    )
    reader = SnapshotTopicReader(ClusterSnapshot((), topics, SnapshotSource.WIRE, 0))

    def names(scope: ElectionScope) -> list[str]:
        return [str(name) for name in asyncio.run(read_scope(reader, scope))]

    assert names(ElectionScope()) == ["a-0", "a-1", "b-0"]
    assert names(ElectionScope((("a", None),))) == ["a-0", "a-1"]
    assert names(ElectionScope((("b", 0), ("a", 1)))) == ["a-1", "b-0"]
    with pytest.raises(NotFound, match="'c' does not exist"):
        names(ElectionScope((("c", None),)))
    with pytest.raises(NotFound, match="partition a-7 does not exist"):
        names(ElectionScope((("a", 7),)))
