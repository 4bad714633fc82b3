"""Groups of a whole cluster over the wire: which there are, who is in them, what they have committed.

Works with brokers since 0.9. Many groups go into one request if the broker accepts that (describing: always;
coordinators: since 3.0, KIP-699; committed offsets: since 3.0, KIP-709), else requests are pipelined.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Mapping
from contextlib import suppress
from dataclasses import replace

from engine.admin.cluster.asking import FAILURES, PATIENCE_S, answer_limit, ask_all, batches_of, run_window
from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.unknown import Unknown
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.committed_offsets import fetch_committed
from engine.admin.groups.new_protocols import describe_new_groups
from engine.admin.groups.values import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffsets,
    GroupState,
    ListedGroup,
    state_of,
    type_of,
)
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.kafka.formats.consumer_protocol import CONSUMER_PROTOCOL_TYPE, decode_assignment
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest, KeyType
from engine.kafka.protocol.apis.list_groups import ListGroupsRequest

__all__ = ["CommittedOffset", "committed_offsets", "describe_groups", "find_coordinators", "list_groups"]

_GROUPS_PER_REQUEST = 200
_KEYS_PER_REQUEST = 500
_SINGLE_REQUESTS_AT_ONCE = 100
_CHOOSING_LIMIT_S = 3.0
_SINGLE_KEY = 3
"""The last version of FindCoordinator that takes one key."""


async def list_groups(wire: WireCluster, *, patience_s: float = PATIENCE_S) -> GroupListing:
    """List the groups of all live brokers, sorted by name; each is listed by its coordinator.

    A broker that is still loading groups is asked again for ``patience_s``; after that its groups are returned with the
    failure. Raises Unreachable if no broker answers at all.
    """
    brokers = sorted(await wire.live_brokers())

    async def of_brokers(ids: list[int]) -> Mapping[int, int]:
        return {broker_id: broker_id for broker_id in ids}

    partly: dict[int, list[ListedGroup]] = {}

    async def ask(broker_id: int, _: list[int]) -> dict[int, list[ListedGroup] | Unknown]:
        response = await wire.call_broker(broker_id, ListGroupsRequest())
        partly[broker_id] = [
            ListedGroup(g.group_id, type_of(g.group_type), g.protocol_type, state_of(g.group_state), broker_id)
            for g in response.groups
        ]
        failed = response.error_code != ErrorCode.NONE
        return {broker_id: Unknown.of_code(response.error_code) if failed else partly[broker_id]}

    answers = await ask_all(wire, brokers, of_brokers, ask, batch=1, patience_s=patience_s)
    failures = {
        # The caller's message names the broker.
        broker_id: replace(answer, message=answer.message.removesuffix(f": broker {broker_id}"))
        for broker_id, answer in answers.items()
        if isinstance(answer, Unknown)
    }
    # While a coordinator moves, two brokers may list the same group.
    groups = {group.group: group for listed in partly.values() for group in listed}
    return GroupListing(tuple(groups[name] for name in sorted(groups)), failures, await _leaderless(wire))


async def find_coordinators(
    wire: WireCluster, names: Iterable[str], key_type: KeyType = KeyType.GROUP
) -> dict[str, int | Unknown]:
    """Ask once which broker coordinates each group, or transactional id.

    The first such question makes the cluster create the topic.
    """
    wanted = list(dict.fromkeys(names))
    found: dict[str, int | Unknown] = {}
    broker_id, version = await _some_broker(wire, ApiKey.FIND_COORDINATOR)

    async def several(keys: list[str]) -> None:
        try:
            async with answer_limit(wire, broker_id):
                request = FindCoordinatorRequest(coordinator_keys=keys, key_type=key_type)
                response = await wire.call_broker(broker_id, request)
        except FAILURES as error:
            found.update(dict.fromkeys(keys, Unknown.of_error(error)))
            return
        for one in response.coordinators:
            failed = one.error_code != ErrorCode.NONE
            found[one.key] = Unknown.of_code(one.error_code, one.error_message) if failed else one.node_id

    async def single(key: str) -> None:
        try:
            async with answer_limit(wire, broker_id):
                request = FindCoordinatorRequest(key=key, key_type=key_type)
                response = await wire.call_broker(broker_id, request, version_max=_SINGLE_KEY)
        except FAILURES as error:
            found[key] = Unknown.of_error(error)
            return
        failed = response.error_code != ErrorCode.NONE
        found[key] = Unknown.of_code(response.error_code, response.error_message) if failed else response.node_id

    if version > _SINGLE_KEY:
        await run_window(several(keys) for keys in batches_of(wanted, _KEYS_PER_REQUEST))
    else:
        await run_window((single(key) for key in wanted), _SINGLE_REQUESTS_AT_ONCE)
    return found


async def describe_groups(
    wire: WireCluster,
    groups: Iterable[str],
    *,
    coordinators: Mapping[str, int] | None = None,
    patience_s: float = PATIENCE_S,
) -> dict[str, GroupDescription | Unknown]:
    """Describe groups, by name; one that does not exist is DEAD.

    Args:
        coordinators: where groups are, as ``list_groups`` returned it; saves asking for them.
    """

    async def ask(broker_id: int, names: list[str]) -> dict[str, GroupDescription | Unknown]:
        response = await wire.call_broker(broker_id, DescribeGroupsRequest(groups=names))
        found = {group.group_id: _description(group, broker_id) for group in response.groups}
        return found | await describe_new_groups(wire, broker_id, [n for n, one in found.items() if is_absent(one)])

    return await ask_all(
        wire,
        groups,
        lambda names: find_coordinators(wire, names),
        ask,
        batch=_GROUPS_PER_REQUEST,
        known=coordinators,
        patience_s=patience_s,
    )


async def committed_offsets(
    wire: WireCluster,
    groups: Iterable[str],
    *,
    coordinators: Mapping[str, int] | None = None,
    patience_s: float = PATIENCE_S,
) -> dict[str, GroupOffsets | Unknown]:
    """Return all committed offsets of groups, by name; a group without any, or that does not exist, has none.

    Arguments as for ``describe_groups``. Offsets that a transaction is about to commit do not count (KIP-447).
    """

    async def ask(broker_id: int, names: list[str]) -> Mapping[str, GroupOffsets | Unknown]:
        return await fetch_committed(wire, broker_id, names)

    return await ask_all(
        wire,
        groups,
        lambda names: find_coordinators(wire, names),
        ask,
        batch=_GROUPS_PER_REQUEST,
        known=coordinators,
        patience_s=patience_s,
    )


async def describe_and_fetch(
    wire: WireCluster,
    groups: Iterable[str],
    *,
    coordinators: Mapping[str, int] | None = None,
    patience_s: float = PATIENCE_S,
) -> dict[str, tuple[GroupDescription | Unknown, GroupOffsets | Unknown]]:
    """Return the description and committed offsets of groups; asks for both at the same time."""
    names = list(dict.fromkeys(groups))
    if coordinators is None:
        found = await find_coordinators(wire, names)
        coordinators = {name: home for name, home in found.items() if not isinstance(home, Unknown)}
    # Connect before both halves need the connections.
    await _connect(wire, set(coordinators.values()))
    described, committed = await asyncio.gather(
        describe_groups(wire, names, coordinators=coordinators, patience_s=patience_s),
        committed_offsets(wire, names, coordinators=coordinators, patience_s=patience_s),
    )
    return {name: (described[name], committed[name]) for name in names}


async def _leaderless(wire: WireCluster) -> tuple[int, ...]:
    metadata = await wire.metadata([GROUP_METADATA_TOPIC])
    return tuple(
        sorted(p.partition_index for topic in metadata.topics for p in topic.partitions if p.leader_id == NO_LEADER)
    )


async def _connect(wire: WireCluster, brokers: Iterable[int]) -> None:
    async def one(broker_id: int) -> None:
        # What fails here is reported with each group that this broker coordinates.
        with suppress(*FAILURES):
            async with answer_limit(wire, broker_id):
                await wire.client_of(broker_id)

    await asyncio.gather(*map(one, brokers))


async def _some_broker(wire: WireCluster, key: ApiKey) -> tuple[int, int]:
    """Return a live broker that can be reached, and the version of an API to ask it in."""
    last: Exception = Unreachable("no broker is alive")
    brokers = sorted(await wire.nodes())
    for broker_id in sorted(brokers, key=lambda one: (one in wire.silent, not wire.has_connection(one))):
        try:
            async with answer_limit(wire, broker_id, _CHOOSING_LIMIT_S):
                return broker_id, await wire.version(await wire.client_of(broker_id), key)
        except FAILURES as error:
            last = error
    raise last


def is_absent(group: GroupDescription | Unknown) -> bool:
    """Whether there is no such group."""
    return isinstance(group, GroupDescription) and group.state is GroupState.DEAD


def _description(group: DescribedGroup, broker_id: int) -> GroupDescription | Unknown:
    if group.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return GroupDescription(group.group_id, type_of(""), GroupState.DEAD, "", "", broker_id, ())
    state = state_of(group.group_state)
    if group.error_code != ErrorCode.NONE:
        return Unknown.of_code(group.error_code)
    if state is None:
        return Unknown(f"the broker reports an unknown state: {group.group_state!r}")
    members = tuple(_member(member, group.protocol_type) for member in group.members)
    return GroupDescription(
        group.group_id, type_of(""), state, group.protocol_type, group.protocol_data, broker_id, members
    )


def _member(member: DescribedGroupMember, protocol_type: str) -> GroupMember:
    return GroupMember(
        member.member_id,
        member.group_instance_id,
        member.client_id,
        member.client_host,
        _assignment(member.member_assignment) if protocol_type == CONSUMER_PROTOCOL_TYPE else None,
    )


def _assignment(data: bytes) -> tuple[TopicPartition, ...] | None:
    try:
        assigned = decode_assignment(bytes(data)).assigned_partitions
    except KafkaError:
        return None
    return tuple(sorted(TopicPartition(one.topic, index) for one in assigned for index in one.partitions))
