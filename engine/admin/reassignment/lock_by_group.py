"""The plan lock over the wire: the leader of the group ``klamm-plan-lock`` holds it.

The group speaks the classic protocol, which every broker from 0.9 to 4.x has. Its coordinator makes the first member
the leader while that member is alive, records the membership, and ends it when no heartbeat has come for the session
time-out. So the lock survives the death of the coordinator, but not that of its holder.
"""

from __future__ import annotations

import asyncio
import time
from contextlib import suppress

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Refused, Unknown, Unreachable
from engine.admin.groups.group_reading import find_coordinators, offsets_topic
from engine.admin.reassignment.lock_holder import Holder, LockHeld
from engine.common.acl import ResourceType
from engine.common.errors import ErrorCode, KlammError, error_code
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.kafka.protocol.apis.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest
from engine.kafka.protocol.apis.heartbeat import HeartbeatRequest
from engine.kafka.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from engine.kafka.protocol.apis.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberIdentity
from engine.kafka.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment

GROUP = "klamm-plan-lock"

_PROTOCOL_TYPE = "klamm-lock"
_PROTOCOL = "holder"
_HEARTBEATS_A_SESSION = 4
_PAUSE_S = 0.1
_TELLING_PATIENCE_S = 2.0
_SEVERAL_MEMBERS = 3
"""From this version of LeaveGroup on members are a list."""
_MOVED = (ErrorCode.NOT_COORDINATOR, ErrorCode.COORDINATOR_NOT_AVAILABLE, ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)


class GroupLock:
    """Holds the lock, and sends heartbeats over connections of its own, which nothing else can delay."""

    def __init__(self, cluster: Cluster, holder: Holder, session_timeout_s: float) -> None:
        self._parent = cluster
        self._own = Cluster(cluster.target, observe=cluster.observe, timeout_s=cluster.timeout_s, needs=cluster.needs)
        self._holder = holder
        self._session_timeout_s = session_timeout_s
        self._coordinator: int | None = None
        self._member_id = ""
        self._generation = -1
        self._is_leader = False
        self._heard_at = 0.0
        self._beating: asyncio.Task[None] | None = None
        self._joining = asyncio.Lock()

    async def take(self) -> None:
        others = [member for member in await self._members() if member.member_id != self._member_id]
        if others and not self._is_leader:
            # Looking does not disturb the holder; joining would.
            raise LockHeld(_holder_of(others))
        await self._join()
        if self._beating is None:
            self._beating = asyncio.create_task(self._beat(), name="heartbeats-of-the-plan-lock")

    async def is_mine(self) -> bool:
        """Whether the coordinator has confirmed it within a session time-out."""
        return self._is_leader and time.monotonic() - self._heard_at < self._session_timeout_s

    async def holder(self) -> Holder | None:
        """Return the holder of the lock. Asks for no coordinator, because that would create the groups' topic."""
        topics = await offsets_topic(await self._own.wire())
        if any(topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION for topic in topics):
            return None
        members = await self._members()
        return _holder_of(members) if members else None

    async def give_back(self) -> None:
        beating, self._beating = self._beating, None
        try:
            if beating is not None:
                beating.cancel()
                await asyncio.gather(beating, return_exceptions=True)
            if self._member_id:
                await self._leave()
        finally:
            await self._own.close()

    async def _join(self) -> None:
        """Join until the coordinator accepts it; the leader holds the lock."""
        async with self._joining:
            await self._keep_joining()

    async def _keep_joining(self) -> None:
        while True:
            joined = await self._ask_to_join()
            code = error_code(joined.error_code)
            if code is ErrorCode.MEMBER_ID_REQUIRED:
                self._member_id = joined.member_id
            elif code is ErrorCode.UNKNOWN_MEMBER_ID:
                self._member_id = ""
            elif code in (*_MOVED, ErrorCode.REBALANCE_IN_PROGRESS):
                self._coordinator = None
                await asyncio.sleep(_PAUSE_S)
            elif code is ErrorCode.INVALID_SESSION_TIMEOUT:
                hint = "brokers require at least group.min.session.timeout.ms, 6 s by default"
                raise Refused(
                    code, "the brokers refuse this session time-out for the lock", where=f"group {GROUP}", hint=hint
                )
            elif code is not ErrorCode.NONE:
                raise self._refusal(code, "the plan lock cannot be taken")
            elif await self._settle(joined):
                return

    async def _ask_to_join(self) -> JoinGroupResponse:
        session_ms = int(self._session_timeout_s * 1000)
        request = JoinGroupRequest(
            group_id=GROUP,
            session_timeout_ms=session_ms,
            rebalance_timeout_ms=session_ms,
            member_id=self._member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocols=[JoinGroupRequestProtocol(name=_PROTOCOL, metadata=self._holder.encode())],
        )
        wire = await self._own.wire()
        answer: JoinGroupResponse = await wire.call_broker(await self._home(), request, timeout_ms=session_ms * 3)
        return answer

    async def _settle(self, joined: JoinGroupResponse) -> bool:
        """Become the holder; return False if the generation has already ended.

        Raises:
            LockHeld: another member leads.
        """
        self._member_id, self._generation = joined.member_id, joined.generation_id
        if joined.leader != joined.member_id:
            self._is_leader = False
            others = [member for member in await self._members() if member.member_id == joined.leader]
            await self._leave()
            raise LockHeld(_holder_of(others))
        request = SyncGroupRequest(
            group_id=GROUP,
            generation_id=self._generation,
            member_id=self._member_id,
            protocol_type=_PROTOCOL_TYPE,
            protocol_name=_PROTOCOL,
            assignments=[SyncGroupRequestAssignment(member_id=self._member_id, assignment=self._holder.encode())],
        )
        answer = await (await self._own.wire()).call_broker(await self._home(), request)
        if answer.error_code != ErrorCode.NONE:
            return False
        self._is_leader, self._heard_at = True, time.monotonic()
        return True

    async def _beat(self) -> None:
        """Send heartbeats until cancelled; what cannot be sent shows in ``is_mine``."""
        while True:
            await asyncio.sleep(self._session_timeout_s / _HEARTBEATS_A_SESSION)
            asked_at = time.monotonic()
            try:
                async with asyncio.timeout(self._session_timeout_s / 2):
                    code = await self._heartbeat()
                    if code is ErrorCode.REBALANCE_IN_PROGRESS:
                        # Another member has joined, will see that it does not lead, and will leave.
                        await self._join()
                    elif code is ErrorCode.NONE:
                        self._heard_at = asked_at
                    elif code in _MOVED:
                        self._coordinator = None
                    else:
                        self._is_leader, self._member_id = False, ""
            except LockHeld:
                self._is_leader = False
            except (KlammError, TimeoutError) as error:
                self._coordinator = None
                self._parent.observe(f"the lock's coordinator does not answer: {error}")
                await self._own.close()

    async def _heartbeat(self) -> ErrorCode:
        request = HeartbeatRequest(group_id=GROUP, generation_id=self._generation, member_id=self._member_id)
        return error_code((await (await self._own.wire()).call_broker(await self._home(), request)).error_code)

    async def _leave(self) -> None:
        member_id, self._member_id, self._is_leader = self._member_id, "", False
        while error_code((await self._ask_to_leave(member_id)).error_code) in _MOVED:
            # A plan may have moved the group's coordinator; only the present one can end the membership.
            self._coordinator = None
            await asyncio.sleep(_PAUSE_S)
        # An empty group need not be listed; this is refused if another member has joined since.
        with suppress(AdminError):
            await (await self._own.wire()).call_broker(await self._home(), DeleteGroupsRequest(groups_names=[GROUP]))

    async def _ask_to_leave(self, member_id: str) -> LeaveGroupResponse:
        wire, home = await self._own.wire(), await self._home()
        if await wire.version(await wire.client_of(home), ApiKey.LEAVE_GROUP) < _SEVERAL_MEMBERS:
            request = LeaveGroupRequest(group_id=GROUP, member_id=member_id)
        else:
            request = LeaveGroupRequest(group_id=GROUP, members=[MemberIdentity(member_id=member_id)])
        answer: LeaveGroupResponse = await wire.call_broker(home, request)
        return answer

    async def _members(self) -> list[DescribedGroupMember]:
        """Return who is in the group. Wait while a member joins: for a moment the members are not reported."""
        deadline = time.monotonic() + _TELLING_PATIENCE_S
        while True:
            members = (await self._describe()).members
            is_told = any(member.member_metadata for member in members)
            if is_told or not members or time.monotonic() >= deadline:
                return members
            await asyncio.sleep(_PAUSE_S)

    async def _describe(self) -> DescribedGroup:
        while True:
            wire = await self._own.wire()
            answer = await wire.call_broker(await self._home(), DescribeGroupsRequest(groups=[GROUP]))
            group: DescribedGroup = answer.groups[0]
            code = error_code(group.error_code)
            if code in (ErrorCode.NONE, ErrorCode.GROUP_ID_NOT_FOUND):
                return group
            if code not in _MOVED:
                raise self._refusal(code, "cannot find out who holds the plan lock")
            self._coordinator = None
            await asyncio.sleep(_PAUSE_S)

    def _refusal(self, code: ErrorCode, message: str) -> Refused:
        error = Refused(code, message, where=f"group {GROUP}")
        self._own.explain(error)
        # A caller that continues without knowing says so.
        self._parent.note_denied(right for right in self._own.denied if right.resource_type is ResourceType.GROUP)
        return error

    async def _home(self) -> int:
        while self._coordinator is None:
            home = (await find_coordinators(await self._own.wire(), [GROUP]))[GROUP]
            if not isinstance(home, Unknown):
                self._coordinator = home
            elif home.code is not None and home.code not in _MOVED:
                raise self._refusal(home.code, "the plan lock has no coordinator")
            elif home.code is None:
                raise Unreachable(str(home), where=f"group {GROUP}")
            else:
                await asyncio.sleep(_PAUSE_S)
        return self._coordinator


def _holder_of(members: list[DescribedGroupMember]) -> Holder:
    """Return who holds the lock: the member with an assignment, because the leader assigns only to itself."""
    for data in (*(member.member_assignment for member in members), *(member.member_metadata for member in members)):
        if data:
            return Holder.decode(bytes(data))
    where = members[0].client_host.removeprefix("/") if members else "an unknown machine"
    return Holder(f"somebody at {where}", "a moment ago", "a plan")
