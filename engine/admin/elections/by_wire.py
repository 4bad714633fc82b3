"""Elections over the wire: ElectLeaders at the controller (Kafka 2.2 and newer, unclean ones 2.4 and newer)."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import Refused
from engine.admin.cluster.wire import answer_limit_ms
from engine.admin.elections.scope_and_result import ElectionType
from engine.common.errors import ErrorCode, error_code
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions


class WireElector:
    """Asks the controller."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster

    def check(self, election: ElectionType) -> None:
        """Both kinds exist; only asking shows whether this controller knows them."""

    async def find(self) -> None:
        await (await self._cluster.wire()).reachable_controller_id()

    async def elect(
        self, election: ElectionType, names: Sequence[TopicPartition], deadline: float
    ) -> Mapping[TopicPartition, str | None]:
        wire = await self._cluster.wire()
        client = await wire.client_of(await wire.reachable_controller_id())
        if election is ElectionType.UNCLEAN and await wire.version(client, ApiKey.ELECT_LEADERS) < 1:
            raise Refused(
                ErrorCode.UNSUPPORTED_VERSION, "the cluster does not support unclean elections", where=client.address
            )
        by_topic: dict[str, list[int]] = {}
        for topic, partition in names:
            by_topic.setdefault(topic, []).append(partition)
        timeout_ms = max(1, int((deadline - time.monotonic()) * 1000))
        request = ElectLeadersRequest(
            election_type=election.wire_code,
            topic_partitions=[TopicPartitions(topic=topic, partitions=p) for topic, p in by_topic.items()],
            timeout_ms=timeout_ms,
        )
        response: ElectLeadersResponse = await wire.call_controller(
            request,
            lambda r: [r.error_code, *(p.error_code for t in r.replica_election_results for p in t.partition_result)],
            timeout_ms=answer_limit_ms(timeout_ms),
        )
        if response.error_code != ErrorCode.NONE:
            raise Refused(error_code(response.error_code), where="election")
        return {
            TopicPartition(topic.topic, p.partition_id): _error_text(p.error_code, p.error_message)
            for topic in response.replica_election_results
            for p in topic.partition_result
        }


def _error_text(code: int, message: str | None) -> str | None:
    known = error_code(code)
    if known is ErrorCode.NONE:
        return None
    return f"{known.name}: {message}" if message else known.name
