"""The quorum of KRaft's controllers, from an answer of its leader."""

from __future__ import annotations

import pytest
from event_loop import staged
from scripted_brokers import ScriptedCluster
from wire_scenes import play

from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.quorum import Quorum, QuorumMember, read_quorum
from engine.admin.cluster.wire import WireCluster
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_quorum import (
    DescribeQuorumResponse,
    QuorumPartition,
    QuorumReplica,
    QuorumTopic,
)

NO_LEADER = ErrorCode.LEADER_NOT_AVAILABLE


def replica(id_: int, end: int, caught_up_ms: int = -1) -> QuorumReplica:
    return QuorumReplica(replica_id=id_, log_end_offset=end, last_caught_up_timestamp=caught_up_ms)


def answer(*voters: QuorumReplica, code: int = 0, of_partition: int = 0) -> DescribeQuorumResponse:
    """Return what leader 3000 says; brokers 2 and 1 follow."""
    partition = QuorumPartition(
        error_code=of_partition,
        leader_id=3000,
        leader_epoch=7,
        high_watermark=90,
        current_voters=list(voters),
        observers=[replica(2, 60), replica(1, 95, 5)],
    )
    return DescribeQuorumResponse(
        error_code=code, topics=[QuorumTopic(topic_name="__cluster_metadata", partitions=[partition])]
    )


def member(id_: int, end: int, lag: int, ms: int | None, *, voter: bool = True, leader: bool = False) -> QuorumMember:
    return QuorumMember(id_, voter, leader, end, lag, ms)


FOLLOWERS = (member(1, 95, 5, 5, voter=False), member(2, 60, 40, None, voter=False))


@pytest.mark.parametrize(
    ("response", "expected"),
    [
        pytest.param(
            answer(replica(3001, 80, 9), replica(3000, 100)),
            (member(3000, 100, 0, None, leader=True), member(3001, 80, 20, 9), *FOLLOWERS),
            id="lag is counted from the leader's end",
        ),
        pytest.param(
            answer(replica(3001, 80)),
            (member(3001, 80, 10, None), member(1, 95, 0, 5, voter=False), member(2, 60, 30, None, voter=False)),
            id="from the high watermark if the leader is no voter any more",
        ),
    ],
)
@staged(play)
async def test_members(
    cluster: ScriptedCluster, wire: WireCluster, /, response: DescribeQuorumResponse, expected: tuple[QuorumMember, ...]
) -> None:
    for broker in cluster.brokers:
        broker.answers[ApiKey.DESCRIBE_QUORUM] = lambda _: response
    assert await read_quorum(wire) == Quorum(3000, 7, 90, expected)


@pytest.mark.parametrize(
    "response",
    [answer(code=NO_LEADER), answer(of_partition=NO_LEADER), DescribeQuorumResponse()],
    ids=["whole", "partition", "nothing"],
)
@staged(play)
async def test_a_quorum_without_a_leader(
    cluster: ScriptedCluster, wire: WireCluster, /, response: DescribeQuorumResponse
) -> None:
    for broker in cluster.brokers:
        broker.answers[ApiKey.DESCRIBE_QUORUM] = lambda _: response
    with pytest.raises(Unreachable, match="no leader of the quorum"):
        await read_quorum(wire)
