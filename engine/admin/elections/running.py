"""Elections carried out: by ElectLeaders at the controller, or (``by_znode``) through a znode.

Either way each partition is looked at again afterwards, until it is led as expected or the time is over.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, Refused
from engine.admin.cluster.remedies import FIND_BROKERS, Operation, Phrase
from engine.admin.cluster.target import Side
from engine.admin.elections.values import ElectionPreview, ElectionResult, ElectionType, PartitionElection, preview
from engine.admin.topics.access import TopicReader, topic_reader
from engine.common.errors import ErrorCode, error_code
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.snapshot import PartitionSnapshot

POLL_PAUSE_S = 0.1
_SHARE_OF_TIMEOUT = 0.8
"""The waiting ends before the command's own deadline, so that every partition's state can still be told."""


class Elector:
    """Carries out one election of one cluster."""

    def __init__(self, cluster: Cluster, reader: TopicReader) -> None:
        self._cluster = cluster
        self._reader = reader
        self._deadline = time.monotonic() + cluster.timeout_s * _SHARE_OF_TIMEOUT

    async def run(self, election: ElectionType, previews: Sequence[ElectionPreview]) -> list[PartitionElection]:
        """Elect, wait, and return the result for each partition in the given order.

        Raises:
            BadRequest: only ZooKeeper may be used, which knows no unclean election.
            Refused: the cluster as a whole does not want it.
        """
        wanted = [one for one in previews if one.is_needed]
        if self._cluster.changes_by is Side.ZOOKEEPER and election is ElectionType.UNCLEAN:
            raise BadRequest("there is no unclean election through ZooKeeper", hint=FIND_BROKERS)
        errors: Mapping[TopicPartition, str | None] = {}
        if wanted:
            self._cluster.accepted(Phrase("the controller elects; look with: ", Operation.DESCRIBE_TOPICS))
            names = [one.name for one in wanted]
            if self._cluster.changes_by is Side.WIRE:
                errors = await self._ask_controller(election, names)
            else:
                from engine.admin.elections.by_znode import elect_by_znode

                await elect_by_znode(self._cluster, names, self._deadline)
        after = await self._wait([one for one in wanted if errors.get(one.name) is None])
        live = await self._reader.live_brokers()
        return [_result(election, one, after.get(one.name), errors.get(one.name), live) for one in previews]

    async def _ask_controller(
        self, election: ElectionType, names: Sequence[TopicPartition]
    ) -> dict[TopicPartition, str | None]:
        """Return the error of each partition, None where there is none."""
        from engine.admin.cluster.wire import answer_limit_ms
        from engine.protocol.api_keys import ApiKey
        from engine.protocol.apis.elect_leaders import ElectLeadersRequest, ElectLeadersResponse, TopicPartitions

        wire = await self._cluster.wire()
        client = await wire.client_of(await wire.reachable_controller_id())
        if election is ElectionType.UNCLEAN and await wire.version(client, ApiKey.ELECT_LEADERS) < 1:
            raise Refused(ErrorCode.UNSUPPORTED_VERSION, "the cluster knows no unclean election", where=client.address)
        by_topic: dict[str, list[int]] = {}
        for topic, partition in names:
            by_topic.setdefault(topic, []).append(partition)
        timeout_ms = max(1, int((self._deadline - time.monotonic()) * 1000))
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

    async def _wait(self, wanted: Sequence[ElectionPreview]) -> dict[TopicPartition, PartitionSnapshot]:
        """Look until all are led as expected; return how they are led then.

        What cannot be elected is not waited for: it has been tried, and its state will not change by waiting.
        """
        waiting = {one.name: one.after for one in wanted if one.obstacle is None}
        while True:
            found = await self._read({one.name.topic for one in wanted})
            late = [name for name, leader in waiting.items() if name in found and found[name].leader != leader]
            if not late or time.monotonic() >= self._deadline:
                return found
            await asyncio.sleep(POLL_PAUSE_S)

    async def _read(self, topics: set[str]) -> dict[TopicPartition, PartitionSnapshot]:
        read = await self._reader.topics(sorted(topics))
        return {TopicPartition(topic.name, p.partition): p for topic in read for p in topic.partitions}


async def run_election(
    cluster: Cluster, election: ElectionType, previews: Sequence[ElectionPreview]
) -> list[PartitionElection]:
    """Elect leaders and return what became of each partition; see ``Elector.run``."""
    return await Elector(cluster, await topic_reader(cluster, on_unknown_settings=cluster.observe)).run(
        election, previews
    )


def _result(
    election: ElectionType,
    before: ElectionPreview,
    after: PartitionSnapshot | None,
    error: str | None,
    live: frozenset[int],
) -> PartitionElection:
    leader = before.before if after is None else after.leader

    def told(result: ElectionResult, why: str | None = None) -> PartitionElection:
        return PartitionElection(*before.name, before.before, leader, before.preferred, result, why)

    if not before.is_needed:
        return told(ElectionResult.NOT_NEEDED)
    if error is not None:
        is_fine = error.startswith(ErrorCode.ELECTION_NOT_NEEDED.name)
        return told(ElectionResult.NOT_NEEDED) if is_fine else told(ElectionResult.FAILED, _explained(before, error))
    if after is None:
        return told(ElectionResult.FAILED, "the partition is gone")
    now = preview(election, {before.name: after}, live)[0]
    if not now.is_needed:
        return told(ElectionResult.ELECTED)
    if now.obstacle is not None:
        return told(ElectionResult.FAILED, now.obstacle)
    return told(ElectionResult.UNDER_WAY, f"leader is {leader if leader != NO_LEADER else 'none'} when time was over")


def _explained(before: ElectionPreview, error: str) -> str:
    """Return why it failed: what was seen beforehand says more than Kafka's text."""
    return error if before.obstacle is None else f"{before.obstacle} ({error.partition(':')[0]})"


def _error_text(code: int, message: str | None) -> str | None:
    known = error_code(code)
    if known is ErrorCode.NONE:
        return None
    return f"{known.name}: {message}" if message else known.name
