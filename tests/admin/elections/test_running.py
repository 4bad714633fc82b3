"""Elections that are run: what the controller is asked, when that is reported, and the outcome of each partition."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from event_loop import in_event_loop, staged
from scripted_brokers import ScriptedCluster, scripted_cluster
from znode_trees import load_tree

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, NotFound, Refused
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.elections.by_wire import WireElector
from engine.admin.elections.by_znode import ZnodeElector
from engine.admin.elections.running import check_election, elector_of, preview_election, run_election
from engine.admin.elections.scope_and_result import ElectionResult, ElectionScope, ElectionType, PartitionElection
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsResponse, DescribeConfigsResult
from engine.kafka.protocol.apis.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from engine.kafka.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsResponse
from engine.kafka.zk.client import ZkClient

PREFERRED, UNCLEAN, ALL = ElectionType.PREFERRED, ElectionType.UNCLEAN, ElectionScope()


class ScriptedElections:
    """Partitions t-0 … t-3 with replicas on brokers 0 and 1. Broker 0 is preferred, and leads only the first."""

    def __init__(self, cluster: ScriptedCluster) -> None:
        self.log: list[str] = []
        self.errors: dict[int, ErrorCode] = {}
        self.deaf: set[int] = set()
        """Partitions that the controller claims to have elected, but has not."""
        self.late: set[int] = set()
        """Partitions whose election brokers learn of a moment later."""
        self._leaders = cluster.leaders["t"] = [0, 1, 1, 1]
        for index in range(4):
            cluster.replicas["t", index] = [0, 1]
        cluster.isrs["t", 3] = [1]
        for broker in cluster.brokers:
            broker.answers[ApiKey.ELECT_LEADERS] = self._elect
            broker.answers[ApiKey.DESCRIBE_CONFIGS] = lambda _: _no_settings()
            broker.answers[ApiKey.LIST_PARTITION_REASSIGNMENTS] = lambda _: ListPartitionReassignmentsResponse()

    def _elect(self, request: ElectLeadersRequest) -> ElectLeadersResponse:
        (topic,) = request.topic_partitions or []
        self.log.append(f"elect {topic.partitions}")
        results = []
        for index in topic.partitions:
            code = self.errors.get(index, ErrorCode.NONE)
            if index in self.late:
                asyncio.get_running_loop().call_later(0.3, self._leaders.__setitem__, index, 0)
            elif code is ErrorCode.NONE and index not in self.deaf:
                self._leaders[index] = 0
            results.append(PartitionResult(partition_id=index, error_code=code))
        return ElectLeadersResponse(
            replica_election_results=[ReplicaElectionResult(topic=topic.topic, partition_result=results)]
        )


def _no_settings() -> DescribeConfigsResponse:
    return DescribeConfigsResponse(results=[DescribeConfigsResult(resource_type=2, resource_name="t")])


Scene = Callable[[ScriptedElections, Cluster], Awaitable[None]]


def play(scene: Scene, *, timeout_s: float = 20, version_max: dict[ApiKey, int] | None = None) -> None:
    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(2, version_max=version_max) as brokers:
            elections = ScriptedElections(brokers)
            target = ClusterTarget("scripted", Origin.OPTIONS, bootstrap=tuple(brokers.bootstrap))
            async with Cluster(
                target, complain=pytest.fail, accepted=lambda _: elections.log.append("accepted"), timeout_s=timeout_s
            ) as cluster:
                await scene(elections, cluster)

    asyncio.run(playing())


def results(found: list[PartitionElection]) -> list[ElectionResult]:
    return [outcome.result for outcome in found]


@staged(play)
async def test_only_what_is_not_led_as_preferred_is_asked_for(
    elections: ScriptedElections, cluster: Cluster, /
) -> None:
    elections.errors = {3: ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE}
    previews = await preview_election(cluster, PREFERRED, ALL)
    assert elections.log == []
    assert [preview.is_needed for preview in previews] == [False, True, True, True]
    outcomes = await run_election(cluster, PREFERRED, previews)
    assert elections.log == ["accepted", "elect [1, 2, 3]"]
    assert [(outcome.before, outcome.after) for outcome in outcomes] == [(0, 0), (1, 0), (1, 0), (1, 1)]
    elected = ElectionResult.ELECTED
    assert results(outcomes) == [ElectionResult.NOT_NEEDED, elected, elected, ElectionResult.FAILED]
    assert outcomes[3].error == "preferred replica 0 is not in sync (PREFERRED_LEADER_NOT_AVAILABLE)"


@staged(play)
async def test_nobody_is_asked_where_nothing_is_needed(elections: ScriptedElections, cluster: Cluster, /) -> None:
    previews = await preview_election(cluster, PREFERRED, ElectionScope((("t", 0),)))
    assert results(await run_election(cluster, PREFERRED, previews)) == [ElectionResult.NOT_NEEDED]
    assert elections.log == []
    with pytest.raises(NotFound):
        await preview_election(cluster, PREFERRED, ElectionScope((("t", 4),)))


@staged(play)
async def test_it_is_over_when_brokers_have_heard_of_the_leaders(
    elections: ScriptedElections, cluster: Cluster, /
) -> None:
    elections.late = {1}
    previews = await preview_election(cluster, PREFERRED, ElectionScope((("t", 1),)))
    assert results(await run_election(cluster, PREFERRED, previews)) == [ElectionResult.ELECTED]


@staged(play, timeout_s=2)
async def test_what_is_not_led_as_expected_in_time_is_under_way(
    elections: ScriptedElections, cluster: Cluster, /
) -> None:
    elections.deaf = {1}
    elections.errors = {2: ErrorCode.ELECTION_NOT_NEEDED}
    previews = await preview_election(cluster, PREFERRED, ElectionScope((("t", 1), ("t", 2))))
    outcome = await run_election(cluster, PREFERRED, previews)
    assert results(outcome) == [ElectionResult.UNDER_WAY, ElectionResult.NOT_NEEDED]
    assert outcome[0].error == "leader is 1 when the time was up"


@staged(play, version_max={ApiKey.ELECT_LEADERS: 0})
async def test_a_controller_that_knows_no_unclean_election_is_not_asked_for_one(
    elections: ScriptedElections, cluster: Cluster, /
) -> None:
    previews = await preview_election(cluster, PREFERRED, ElectionScope((("t", 1),)))
    with pytest.raises(Refused, match="the cluster does not support unclean elections"):
        await run_election(cluster, UNCLEAN, previews)
    assert "elect" not in " ".join(elections.log)
    assert results(await run_election(cluster, PREFERRED, previews)) == [ElectionResult.ELECTED]


@pytest.mark.parametrize(
    ("zookeeper", "bootstrap", "via", "elector"),
    [
        ("z:1", (), None, ZnodeElector),
        (None, (("b", 1),), None, WireElector),
        ("z:1", (("b", 1),), None, WireElector),
        ("z:1", (("b", 1),), Side.ZOOKEEPER, ZnodeElector),
        ("z:1", (), Side.WIRE, WireElector),
    ],
)
def test_who_elects(
    zookeeper: str | None, bootstrap: tuple[tuple[str, int], ...], via: Side | None, elector: type
) -> None:
    cluster = Cluster(ClusterTarget("c", Origin.OPTIONS, zookeeper, bootstrap, via=via))
    assert type(elector_of(cluster)) is elector


@in_event_loop
async def test_by_znode_there_are_preferred_elections_only(zk_chroot: str) -> None:
    said: list[str] = []
    await load_tree(zk_chroot, "leaderless")
    target = ClusterTarget("recorded", Origin.OPTIONS, zk_chroot)
    async with Cluster(target, accepted=said.append, timeout_s=2) as cluster:
        previews = await preview_election(cluster, UNCLEAN, ElectionScope((("lag", 1),)))
        with pytest.raises(BadRequest, match="unclean elections are not possible through ZooKeeper"):
            check_election(cluster, UNCLEAN)
        with pytest.raises(BadRequest, match="unclean elections are not possible through ZooKeeper"):
            await run_election(cluster, UNCLEAN, previews)
        assert said == []
        wanted = await preview_election(cluster, PREFERRED, ElectionScope((("t1", 0),)))
        # No replica can be elected.
        assert results(await run_election(cluster, PREFERRED, wanted)) == [ElectionResult.UNDER_WAY]
        assert len(said) == 1
    async with await ZkClient.connect(zk_chroot, session_timeout_ms=10_000) as zk:
        data, _ = await zk.get("/admin/preferred_replica_election")
        assert data == b'{"version":1,"partitions":[{"topic":"t1","partition":0}]}'
