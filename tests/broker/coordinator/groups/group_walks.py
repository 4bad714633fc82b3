"""Walks through one group: what a step of `fixtures/groups` asks, and its answers in the words of the file.

Members are named M0, M1 … in the order in which their joins were answered, and ? before.
"""

from __future__ import annotations

import json
from typing import Any

from engine.kafka.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.kafka.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.kafka.protocol.apis.heartbeat import HeartbeatRequest
from engine.kafka.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from engine.kafka.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from engine.kafka.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.kafka.protocol.apis.offset_fetch import OffsetFetchRequest
from engine.kafka.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from engine.kafka.protocol.declaration import Request, Struct

READ = bytes.fromhex("000000000001000472656164ffffffff")
"""A subscription to the topic ``read``; the walks call it so."""

_UNTOLD = frozenset({"throttle_time_ms", "client_id", "client_host", "group_id"})
_EMPTY = (None, "", [], 0, -(2**31))

Step = dict[str, Any]


class WalkWords:
    """Translates the steps of one walk, and remembers who is who."""

    def __init__(self, group: str = "g") -> None:
        self._group = group
        self.ids: dict[str, str] = {}
        self._names: dict[str, str] = {}

    def note(self, answer: Any) -> None:
        """Give the member of a join that was answered its name."""
        if isinstance(answer, JoinGroupResponse) and answer.member_id not in ("", "bogus", *self._names):
            name = f"M{len(self._names)}"
            self._names[answer.member_id], self.ids[name] = name, answer.member_id

    def request(self, step: Step) -> Request:
        """Return the request of a step."""
        who = {"group_id": self._group, "member_id": self.ids.get(step.get("member", ""), step.get("member", ""))}
        instance = {"group_instance_id": step.get("instance")}
        match step["api"]:
            case "join":
                protocols = [
                    JoinGroupRequestProtocol(name=name, metadata=READ if data == "read" else bytes.fromhex(data))
                    for name, data in step["protocols"].items()
                ]
                timeouts = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
                of_type = {"protocol_type": step["protocol_type"]}
                return JoinGroupRequest(**who, **instance, **timeouts, **of_type, protocols=protocols)
            case "sync":
                parts = [
                    SyncGroupRequestAssignment(member_id=self.ids[name], assignment=name.encode())
                    for name in step["assigned"]
                ]
                names = {"protocol_type": "consumer", "protocol_name": "range"} if step["version"] == 5 else {}
                generation = step["generation"]
                return SyncGroupRequest(**who, **instance, **names, generation_id=generation, assignments=parts)
            case "beat":
                return HeartbeatRequest(**who, **instance, generation_id=step["generation"])
            case "leave":
                identity = MemberIdentity(member_id=who["member_id"], **instance)
                return LeaveGroupRequest(group_id=self._group, members=[identity])
            case "commit":
                partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=step["offset"])
                topics = [OffsetCommitRequestTopic(name="read", partitions=[partition])]
                generation = step["generation"]
                return OffsetCommitRequest(**who, **instance, generation_id_or_member_epoch=generation, topics=topics)
            case "fetch":
                return OffsetFetchRequest(group_id=self._group, topics=None)
            case "describe":
                return DescribeGroupsRequest(groups=[self._group])
            case "delete":
                return DeleteGroupsRequest(groups_names=[self._group])
        raise AssertionError(step)

    def plain(self, value: Any, field_name: str = "") -> Any:
        """Return an answer as the walks have it: without what is empty, lists in no order of their own."""
        if isinstance(value, Struct):
            fields = ((field.name, self.plain(getattr(value, field.name), field.name)) for field in value.wire_fields)
            return {name: shown for name, shown in fields if name not in _UNTOLD and shown not in _EMPTY}
        if isinstance(value, list):
            return sorted(map(self.plain, value), key=order_of)
        if isinstance(value, bytes):
            return "read" if value == READ else value.hex()
        if isinstance(value, str) and field_name in ("member_id", "leader"):
            return value if value in ("", "bogus") else self._names.get(value, "?")
        return value if isinstance(value, bool) or not isinstance(value, int) else int(value)


def order_of(value: Any) -> str:
    """A key by which plain values sort."""
    return json.dumps(value, sort_keys=True)
