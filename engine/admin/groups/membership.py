"""A member of a consumer group, as simple as one can be: joins, shares partitions by range, commits, leaves.

For readers that share their work: a console, or performance tests on several machines. It speaks the
classic protocol with the eager ``range`` assignor, which every consumer offers by default, so others may be in the
group too.
"""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Iterable, Mapping
from typing import Any

from engine.admin.cluster.asking import PATIENCE_S
from engine.admin.cluster.errors import LoginRefused, NotFound, Refused, Unknown, Unreachable
from engine.admin.cluster.waits import Observer, ignore_line
from engine.admin.cluster.wire import RETRY_PAUSE_S, WireCluster
from engine.admin.cluster.wire_failures import refuse
from engine.admin.groups.group_reading import find_coordinators
from engine.common.errors import ErrorCode, KafkaError, error_code
from engine.common.model import TopicPartition
from engine.common.quantities import counted
from engine.kafka.formats.consumer_protocol import (
    CONSUMER_PROTOCOL_TYPE,
    ConsumerProtocolAssignment,
    ConsumerProtocolPartitions,
    ConsumerProtocolSubscription,
    decode_assignment,
    decode_subscription,
    encode_assignment,
    encode_subscription,
)
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.heartbeat import HeartbeatRequest
from engine.kafka.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from engine.kafka.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from engine.kafka.protocol.declaration import Request

SESSION_TIMEOUT_MS = 10_000
REBALANCE_TIMEOUT_MS = 60_000
_RANGE = "range"
_OLDEST_SUBSCRIPTION = 0
_SEVERAL_MEMBERS = 3
"""From this version of LeaveGroup on members are a list."""
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
_NOT_IN_TIME = (ErrorCode.NETWORK_EXCEPTION, ErrorCode.REQUEST_TIMED_OUT)
"""The next heartbeat or commit may succeed: the offsets are the same or later."""
_JOIN_ANEW = (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.ILLEGAL_GENERATION, ErrorCode.UNKNOWN_MEMBER_ID)


class Membership:
    """One member that reads some topics. ``join`` again whenever ``heartbeat`` or ``commit`` says so."""

    def __init__(
        self,
        wire: WireCluster,
        group: str,
        topics: Iterable[str],
        *,
        give_up_s: float,
        observe: Observer = ignore_line,
        complain: Observer = ignore_line,
    ) -> None:
        """Make a member that is not in the group yet; ``complain`` gets the reason if the group refuses it for long."""
        self._wire = wire
        self.group = group
        self._topics = frozenset(topics)
        self._give_up_s = give_up_s
        self._observe = observe
        self._complain = complain
        self._trouble = "no answer"
        self._coordinator: int | None = None
        self._member_id = ""
        self._generation = -1

    async def join(self) -> list[TopicPartition]:
        """Join, or join again, and return the partitions that are this member's.

        Raises:
            Refused: the group rejects it, for example because they have no protocol in common.
            Unreachable: no coordinator accepts it in time.
        """
        patience_s = self._give_up_s + REBALANCE_TIMEOUT_MS / 1000
        try:
            async with asyncio.timeout(None if math.isinf(patience_s) else patience_s):
                partitions = await self._keep_trying()
        except TimeoutError as error:
            message = f"could not join the group within {patience_s:g} s"
            raise Unreachable(message, where=f"group {self.group}") from error
        self._observe(f"joined group {self.group} with {counted(len(partitions), 'partition')}")
        return partitions

    async def heartbeat(self) -> bool:
        """Return whether this member still has its partitions; if not it must join again."""
        request = HeartbeatRequest(group_id=self.group, generation_id=self._generation, member_id=self._member_id)
        return self._is_in(await self._code_of(request))

    async def commit(self, offsets: Mapping[TopicPartition, int]) -> bool:
        """Commit the next offset of each partition; return False if this member must join again first."""
        by_topic: dict[str, list[OffsetCommitRequestPartition]] = {}
        for (topic, partition), offset in sorted(offsets.items()):
            committed = OffsetCommitRequestPartition(partition_index=partition, committed_offset=offset)
            by_topic.setdefault(topic, []).append(committed)
        request = OffsetCommitRequest(
            group_id=self.group,
            generation_id_or_member_epoch=self._generation,
            member_id=self._member_id,
            topics=[
                OffsetCommitRequestTopic(name=name, partitions=offsets_of_topic)
                for name, offsets_of_topic in by_topic.items()
            ],
        )
        try:
            response = await self._ask(request)
        except LoginRefused:
            raise
        except Unreachable:
            self._coordinator = None
            return True
        codes = {error_code(partition.error_code) for topic in response.topics for partition in topic.partitions}
        # A topic that was deleted has no position any more.
        still_in = [self._is_in(code) for code in codes - {ErrorCode.UNKNOWN_TOPIC_OR_PARTITION}]
        return all(still_in)

    async def leave(self) -> None:
        """Leave, so that the others need not wait for the session to end.

        Raises:
            Refused, Unreachable: the request did not reach the coordinator.
        """
        if not self._member_id:
            return
        client = await self._wire.client_of(await self._home())
        if await self._wire.version(client, ApiKey.LEAVE_GROUP) < _SEVERAL_MEMBERS:
            request = LeaveGroupRequest(group_id=self.group, member_id=self._member_id)
        else:
            request = LeaveGroupRequest(group_id=self.group, members=[MemberIdentity(member_id=self._member_id)])
        code = await self._code_of(request)
        self._observe(f"left group {self.group}" if code is ErrorCode.NONE else f"left group {self.group}: {code.name}")

    def _is_in(self, code: ErrorCode) -> bool:
        if code in _MOVED or code in _NOT_IN_TIME:
            self._coordinator, self._trouble = None, code.name
            return True
        if code in _JOIN_ANEW:
            self._trouble = code.name
            self._forget(code)
            return False
        refuse(code, None, f"group {self.group}")
        return True

    def _forget(self, code: ErrorCode) -> None:
        if code is ErrorCode.UNKNOWN_MEMBER_ID:
            self._member_id = ""

    async def _home(self) -> int:
        if self._coordinator is None:
            home = (await find_coordinators(self._wire, [self.group]))[self.group]
            if isinstance(home, Unknown):
                if not home.is_passing:
                    raise Refused(home.code or ErrorCode.UNKNOWN_SERVER_ERROR, where=f"group {self.group}")
                raise Unreachable(str(home), where=f"group {self.group}")
            self._coordinator = home
        return self._coordinator

    async def _ask(self, request: Request, timeout_ms: int | None = None) -> Any:
        """Ask the coordinator.

        Raises:
            Unreachable: it does not answer, or has left the cluster since it was found: another one takes over.
        """
        try:
            return await self._wire.call_broker(await self._home(), request, timeout_ms=timeout_ms)
        except NotFound as error:
            raise Unreachable(error.message, where=f"group {self.group}") from error

    async def _code_of(self, request: Request) -> ErrorCode:
        try:
            response = await self._ask(request)
        except LoginRefused:
            raise
        except Unreachable:
            return ErrorCode.NETWORK_EXCEPTION
        return error_code(response.error_code)

    async def _keep_trying(self) -> list[TopicPartition]:
        started, is_told = time.monotonic(), False
        while True:
            partitions = await self._try_to_join()
            if partitions is not None:
                return partitions
            if not is_told and time.monotonic() - started >= PATIENCE_S:
                self._complain(f"waiting for the coordinator of group {self.group}: {self._trouble}")
                is_told = True
            await asyncio.sleep(RETRY_PAUSE_S)

    async def _try_to_join(self) -> list[TopicPartition] | None:
        subscription = encode_subscription(
            ConsumerProtocolSubscription(topics=sorted(self._topics)), _OLDEST_SUBSCRIPTION
        )
        request = JoinGroupRequest(
            group_id=self.group,
            session_timeout_ms=SESSION_TIMEOUT_MS,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS,
            member_id=self._member_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=_RANGE, metadata=subscription)],
        )
        joined = await self._with_the_others(request)
        if joined is None:
            return None
        code = error_code(joined.error_code)
        if code is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = joined.member_id
            return None
        if code is not ErrorCode.NONE:
            # This includes a new member that must start over or look for another coordinator.
            self._is_in(code)
            return None
        self._member_id, self._generation = joined.member_id, joined.generation_id
        return await self._sync(joined)

    async def _sync(self, joined: JoinGroupResponse) -> list[TopicPartition] | None:
        assignments: list[SyncGroupRequestAssignment] = []
        if joined.leader == joined.member_id and not joined.skip_assignment:
            assignments = await self._assignments(joined)
        request = SyncGroupRequest(
            group_id=self.group,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=CONSUMER_PROTOCOL_TYPE,
            protocol_name=_RANGE,
            assignments=assignments,
        )
        synced = await self._with_the_others(request)
        if synced is None:
            return None
        code = error_code(synced.error_code)
        if code is not ErrorCode.NONE:
            self._is_in(code)
            return None
        assigned = decode_assignment(bytes(synced.assignment)).assigned_partitions
        return sorted(
            TopicPartition(topic.topic, partition)
            for topic in assigned
            if topic.topic in self._topics
            for partition in topic.partitions
        )

    async def _with_the_others(self, request: Request) -> Any | None:
        """Return the answer to a request that waits for other members; None if the coordinator cannot be reached."""
        try:
            return await self._ask(request, REBALANCE_TIMEOUT_MS * 2)
        except LoginRefused:
            raise
        except Unreachable as error:
            self._coordinator, self._trouble = None, str(error)
            return None

    async def _assignments(self, joined: JoinGroupResponse) -> list[SyncGroupRequestAssignment]:
        wanted: dict[str, list[str]] = {}
        for member in joined.members:
            try:
                topics = decode_subscription(bytes(member.metadata)).topics
            except KafkaError:
                topics = []
            wanted[member.member_id] = topics
        names = sorted({topic for topics in wanted.values() for topic in topics})
        metadata = await self._wire.metadata(names)
        counts = {topic.name or "": len(topic.partitions) for topic in metadata.topics}
        return [
            SyncGroupRequestAssignment(member_id=member_id, assignment=_assignment(topics))
            for member_id, topics in assign_ranges(wanted, counts).items()
        ]


def assign_ranges(wanted: Mapping[str, Iterable[str]], counts: Mapping[str, int]) -> dict[str, dict[str, list[int]]]:
    """Share the partitions of each topic among the members that want it, as Kafka's RangeAssignor does.

    Args:
        wanted: topics by member.
        counts: partitions by topic.
    """
    given: dict[str, dict[str, list[int]]] = {member: {} for member in wanted}
    for topic, count in counts.items():
        members = sorted(member for member, topics in wanted.items() if topic in topics)
        start = 0
        for index, member in enumerate(members):
            size = count // len(members) + (index < count % len(members))
            if size:
                given[member][topic] = list(range(start, start + size))
            start += size
    return given


def _assignment(topics: Mapping[str, list[int]]) -> bytes:
    partitions = [ConsumerProtocolPartitions(topic=topic, partitions=given) for topic, given in topics.items()]
    return encode_assignment(ConsumerProtocolAssignment(assigned_partitions=partitions), _OLDEST_SUBSCRIPTION)
