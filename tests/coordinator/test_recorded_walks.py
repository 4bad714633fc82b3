"""Random requests of four clients to one group, and the answers that Apache Kafka 3.9.1 gave.

Each step of a walk is one request with the answers it caused, for that client and for others that waited. Members are
named M0, M1 … in the order in which their joins were answered, and ? before that.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from coordinator_world import CoordinatorWorld
from virtual_time import run_virtual

from engine.config.broker import BrokerConfig
from engine.handlers.context import RequestContext
from engine.handlers.delete_groups import delete_groups
from engine.handlers.describe_groups import describe_groups
from engine.handlers.heartbeat import heartbeat
from engine.handlers.join_group import join_group
from engine.handlers.leave_group import leave_group
from engine.handlers.offset_commit import offset_commit
from engine.handlers.offset_fetch import offset_fetch
from engine.handlers.sync_group import sync_group
from engine.network.request import Deferred
from engine.protocol.apis.delete_groups import DeleteGroupsRequest
from engine.protocol.apis.describe_groups import DescribeGroupsRequest
from engine.protocol.apis.heartbeat import HeartbeatRequest
from engine.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol, JoinGroupResponse
from engine.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from engine.protocol.apis.offset_commit import (
    OffsetCommitRequest,
    OffsetCommitRequestPartition,
    OffsetCommitRequestTopic,
)
from engine.protocol.apis.offset_fetch import OffsetFetchRequest
from engine.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from engine.protocol.codec import Outgoing, decoder, encoder
from engine.protocol.declaration import Struct

RECORDED = Path(__file__).parents[2] / "fixtures" / "groups" / "kafka-3.9.1-walks.jsonl"
WALKS = [json.loads(line) for line in RECORDED.read_text().splitlines()]
READ = bytes.fromhex("000000000001000472656164ffffffff")
"""A subscription to the topic that the walks call ``read``."""

_UNTOLD = frozenset({"throttle_time_ms", "client_id", "client_host", "group_id"})
_EMPTY = (None, "", [], 0, -(2**31))
_SETTLING_S = 0.05
"""Virtual time: enough for everything that does not wait for another client, and too short for a session to expire."""

Step = dict[str, Any]
Handler = Callable[[RequestContext, Any], Any]


class Walk:
    """The client side of one group."""

    def __init__(self, world: CoordinatorWorld) -> None:
        config = BrokerConfig.from_properties({"zookeeper.connect": "z:1"})
        cache = SimpleNamespace(partitions=lambda topic: range(2) if topic == "read" else ())
        self._broker = SimpleNamespace(
            group_coordinator=world.coordinator, metadata_cache=cache, clock=world.clock, config=config
        )
        self._waiting: dict[int, tuple[int, Deferred]] = {}
        self._ids: dict[str, str] = {}
        self._names: dict[str, str] = {}

    async def ask(self, step: Step) -> list[list[Any]]:
        """Send one request; return all answers that it causes, by client."""
        handler, request = self._request(step)
        version = step["version"]
        context = SimpleNamespace(
            api_version=version, client_id="wire", peer=SimpleNamespace(host="h"), broker=self._broker
        )
        answer = handler(cast("RequestContext", context), request)
        if not isinstance(answer, Deferred):
            answer, given = Deferred(), answer
            answer.complete(given)
        self._waiting[step["actor"]] = (version, answer)
        await asyncio.sleep(_SETTLING_S)
        came = [(actor, *self._waiting.pop(actor)) for actor, (_, d) in sorted(self._waiting.items()) if d.is_complete]
        answers = [(actor, _over_the_wire(deferred.response, version)) for actor, version, deferred in came]
        for _, given in answers:
            if isinstance(given, JoinGroupResponse) and given.member_id not in ("", "bogus", *self._names):
                name = f"M{len(self._names)}"
                self._names[given.member_id], self._ids[name] = name, given.member_id
        return [[actor, self._plain(given)] for actor, given in answers]

    def _request(self, step: Step) -> tuple[Handler, Any]:
        who = {"group_id": "g", "member_id": self._ids.get(step.get("member", ""), step.get("member", ""))}
        instance = {"group_instance_id": step.get("instance")}
        match step["api"]:
            case "join":
                protocols = [
                    JoinGroupRequestProtocol(name=name, metadata=READ if data == "read" else bytes.fromhex(data))
                    for name, data in step["protocols"].items()
                ]
                timeouts = {"session_timeout_ms": 30_000, "rebalance_timeout_ms": 30_000}
                of_type = {"protocol_type": step["protocol_type"]}
                return join_group, JoinGroupRequest(**who, **instance, **timeouts, **of_type, protocols=protocols)
            case "sync":
                parts = [
                    SyncGroupRequestAssignment(member_id=self._ids[name], assignment=name.encode())
                    for name in step["assigned"]
                ]
                names = {"protocol_type": "consumer", "protocol_name": "range"} if step["version"] == 5 else {}
                generation = step["generation"]
                return sync_group, SyncGroupRequest(
                    **who, **instance, **names, generation_id=generation, assignments=parts
                )
            case "beat":
                return heartbeat, HeartbeatRequest(**who, **instance, generation_id=step["generation"])
            case "leave":
                identity = MemberIdentity(member_id=who["member_id"], **instance)
                return leave_group, LeaveGroupRequest(group_id="g", members=[identity])
            case "commit":
                partition = OffsetCommitRequestPartition(partition_index=0, committed_offset=step["offset"])
                topics = [OffsetCommitRequestTopic(name="read", partitions=[partition])]
                generation = step["generation"]
                return offset_commit, OffsetCommitRequest(
                    **who, **instance, generation_id_or_member_epoch=generation, topics=topics
                )
            case "fetch":
                return offset_fetch, OffsetFetchRequest(group_id="g", topics=None)
            case "describe":
                return describe_groups, DescribeGroupsRequest(groups=["g"])
            case "delete":
                return delete_groups, DeleteGroupsRequest(groups_names=["g"])
        raise AssertionError(step)

    def _plain(self, value: Any, field_name: str = "") -> Any:
        """Return an answer in the form of the walks: without empty fields, and with unordered lists sorted."""
        if isinstance(value, Struct):
            fields = ((field.name, self._plain(getattr(value, field.name), field.name)) for field in value.wire_fields)
            return {name: told for name, told in fields if name not in _UNTOLD and told not in _EMPTY}
        if isinstance(value, list):
            return sorted(map(self._plain, value), key=_order)
        if isinstance(value, bytes):
            return "read" if value == READ else value.hex()
        if isinstance(value, str) and field_name in ("member_id", "leader"):
            return value if value in ("", "bogus") else self._names.get(value, "?")
        return value if isinstance(value, bool) or not isinstance(value, int) else int(value)


def _over_the_wire(answer: Any, version: int) -> Any:
    """Return what a client receives: not every field exists in every version."""
    out = Outgoing()
    encoder(type(answer), version)(out, answer)
    return decoder(type(answer), version)(bytes(out), 0)[0]


def _order(value: Any) -> str:
    return json.dumps(value, sort_keys=True)


@pytest.mark.parametrize("steps", WALKS, ids=lambda steps: f"{len(steps)} steps")
def test_as_kafka_answered(steps: list[Step]) -> None:
    async def run() -> None:
        world = CoordinatorWorld()
        try:
            await world.lead()
            walk = Walk(world)
            for number, step in enumerate(steps):
                expected = [[actor, _sorted(answer)] for actor, answer in step["answers"]]
                assert await walk.ask(step) == expected, f"step {number}: {step}"
        finally:
            await world.stop()

    run_virtual(run)


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(one) for name, one in value.items()}
    return sorted(map(_sorted, value), key=_order) if isinstance(value, list) else value
