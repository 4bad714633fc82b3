"""Who commits offsets and reads them again at once, on one connection, gets what it has committed."""

from __future__ import annotations

import pytest
from wire_client import WireClient, create_topic, wait_until_led

from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)


def commit(group: str, topic: str, offset: int) -> OffsetCommitRequest:
    partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=offset, committed_metadata="")
    of_topic = OffsetCommitRequestTopic(name=topic, partitions=[partition])
    return OffsetCommitRequest(
        group_id=group, generation_id_or_member_epoch=-1, member_id="", group_instance_id=None, topics=[of_topic]
    )


@pytest.mark.parametrize("rounds", [1, 3], ids=["once", "in the form of earlier ones"])
def test_a_commit_counts_for_the_next_request(address: str, topic: str, rounds: int) -> None:
    """Kafka reads no further request before it has answered, so clients need not wait for the answer."""
    create_topic(address, topic, partitions=1)
    wait_until_led(address, topic)
    group = f"reads-{topic}"
    wanted = OffsetFetchRequestTopics(name=topic, partition_indexes=[0])
    asked = OffsetFetchRequest(groups=[OffsetFetchRequestGroup(group_id=group, topics=[wanted])])
    with WireClient(address) as client:
        while client.ask(FindCoordinatorRequest(key_type=0, coordinator_keys=[group]), 4).coordinators[0].error_code:
            pass
        while client.ask(commit(group, topic, 0), 8).topics[0].partitions[0].error_code:
            pass
        for offset in range(1, rounds + 1):
            client.send(commit(group, topic, offset), 8)
            client.send(asked, 8)
            answer = client.answer(ApiKey.OFFSET_COMMIT, 8).topics[0].partitions[0]
            assert answer.error_code == ErrorCode.NONE
            (partition,) = client.answer(ApiKey.OFFSET_FETCH, 8).groups[0].topics[0].partitions
            assert (partition.error_code, partition.committed_offset) == (0, offset)
