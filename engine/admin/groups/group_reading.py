"""Groups of a whole cluster over the wire: which exist, their members, and what they have committed.

Works with brokers since 0.9. Many groups go into one request if the broker accepts that (describing: always;
coordinators: since 3.0, KIP-699; committed offsets: since 3.0, KIP-709); otherwise it pipelines requests.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial

from engine.admin.cluster.asking import FAILURES, PATIENCE_S, answer_limit, ask_all, run_window
from engine.admin.cluster.errors import Unknown, Unreachable
from engine.admin.cluster.rights import Right
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.values import (
    CommittedOffset,
    GroupDescription,
    GroupListing,
    GroupMember,
    GroupOffsets,
    GroupState,
    GroupType,
    ListedGroup,
    state_of,
    type_of,
)
from engine.common.acl import AclOperation, ResourceType
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.common.turns import pieces_of
from engine.kafka.formats.consumer_protocol import CONSUMER_PROTOCOL_TYPE, decode_assignment, decode_subscription
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.consumer_group_describe import (
    ConsumerGroupDescribed,
    ConsumerGroupDescribeRequest,
    ConsumerGroupMember,
)
from engine.kafka.protocol.apis.describe_groups import DescribedGroup, DescribedGroupMember, DescribeGroupsRequest
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest, KeyType
from engine.kafka.protocol.apis.list_groups import ListGroupsRequest
from engine.kafka.protocol.apis.metadata import MetadataResponseTopic
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopic,
    OffsetFetchResponsePartition,
    OffsetFetchResponsePartitions,
    OffsetFetchResponseTopic,
    OffsetFetchResponseTopics,
)

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
    coordinators: dict[str, int | Unknown] = {}
    broker_id, version = await _some_broker(wire, ApiKey.FIND_COORDINATOR)

    async def several(keys: list[str]) -> None:
        try:
            async with answer_limit(wire, broker_id):
                request = FindCoordinatorRequest(coordinator_keys=keys, key_type=key_type)
                response = await wire.call_broker(broker_id, request)
        except FAILURES as error:
            coordinators.update(dict.fromkeys(keys, Unknown.of_error(error)))
            return
        for coordinator in response.coordinators:
            failed = coordinator.error_code != ErrorCode.NONE
            coordinators[coordinator.key] = (
                Unknown.of_code(coordinator.error_code, coordinator.error_message) if failed else coordinator.node_id
            )

    async def single(key: str) -> None:
        try:
            async with answer_limit(wire, broker_id):
                request = FindCoordinatorRequest(key=key, key_type=key_type)
                response = await wire.call_broker(broker_id, request, version_max=_SINGLE_KEY)
        except FAILURES as error:
            coordinators[key] = Unknown.of_error(error)
            return
        failed = response.error_code != ErrorCode.NONE
        coordinators[key] = Unknown.of_code(response.error_code, response.error_message) if failed else response.node_id

    if version > _SINGLE_KEY:
        await run_window(several(keys) for keys in pieces_of(wanted, _KEYS_PER_REQUEST))
    else:
        await run_window((single(key) for key in wanted), _SINGLE_REQUESTS_AT_ONCE)
    return coordinators


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
        described = {group.group_id: _description(group, broker_id) for group in response.groups}
        return described | await describe_new_groups(
            wire, broker_id, [n for n, group in described.items() if is_absent(group)]
        )

    find = partial(find_coordinators, wire)
    return await ask_all(wire, groups, find, ask, batch=_GROUPS_PER_REQUEST, known=coordinators, patience_s=patience_s)


async def committed_offsets(
    wire: WireCluster,
    groups: Iterable[str],
    *,
    coordinators: Mapping[str, int] | None = None,
    patience_s: float = PATIENCE_S,
) -> dict[str, GroupOffsets | Unknown]:
    """Return all committed offsets of groups, by name; empty for a group that has none or does not exist.

    Arguments as for ``describe_groups``. Offsets that a transaction is about to commit do not count (KIP-447).
    """

    find, ask = partial(find_coordinators, wire), partial(fetch_committed, wire)
    return await ask_all(wire, groups, find, ask, batch=_GROUPS_PER_REQUEST, known=coordinators, patience_s=patience_s)


async def describe_and_fetch(
    wire: WireCluster, groups: Iterable[str], *, coordinators: Mapping[str, int] | None = None
) -> dict[str, tuple[GroupDescription | Unknown, GroupOffsets | Unknown]]:
    """Return the description and committed offsets of groups; asks for both at the same time."""
    names = list(dict.fromkeys(groups))
    if coordinators is None:
        homes = await find_coordinators(wire, names)
        coordinators = {name: home for name, home in homes.items() if not isinstance(home, Unknown)}
    # Connect before both halves need the connections.
    await _connect(wire, set(coordinators.values()))
    described, committed = await asyncio.gather(
        describe_groups(wire, names, coordinators=coordinators),
        committed_offsets(wire, names, coordinators=coordinators),
    )
    return {name: (described[name], committed[name]) for name in names}


async def offsets_topic(wire: WireCluster) -> list[MetadataResponseTopic]:
    """Return what brokers say about the topic of groups and their offsets."""
    with needless(wire, AclOperation.DESCRIBE):
        return (await wire.metadata([GROUP_METADATA_TOPIC])).topics


@contextmanager
def needless(wire: WireCluster, operation: AclOperation) -> Iterator[None]:
    """Forget whether a right on the topic of offsets is missing: groups can be read without, so nothing is hidden."""
    right = Right(operation, ResourceType.TOPIC, GROUP_METADATA_TOPIC)
    was_known = right in wire.denied
    try:
        yield
    finally:
        if not was_known:
            wire.denied.pop(right, None)


async def _leaderless(wire: WireCluster) -> tuple[int, ...]:
    partitions = (p for topic in await offsets_topic(wire) for p in topic.partitions)
    return tuple(sorted(p.partition_index for p in partitions if p.leader_id == NO_LEADER))


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
    for broker_id in sorted(brokers, key=lambda broker: (broker in wire.silent, not wire.has_connection(broker))):
        try:
            async with answer_limit(wire, broker_id, _CHOOSING_LIMIT_S):
                return broker_id, await wire.version(await wire.client_of(broker_id), key)
        except FAILURES as error:
            last = error
    raise last


def is_absent(group: GroupDescription | Unknown) -> bool:
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
        group.group_id,
        type_of(""),
        state,
        group.protocol_type,
        group.protocol_data,
        broker_id,
        members,
        partial(_subscribed, group),
    )


def _subscribed(group: DescribedGroup) -> frozenset[str] | None:
    """Return the topics that a classic group subscribes to; its coordinator tells them only while it is stable."""
    if not group.members:
        return frozenset()
    if group.protocol_type != CONSUMER_PROTOCOL_TYPE:
        return None
    try:
        subscriptions = [decode_subscription(bytes(member.member_metadata)) for member in group.members]
    except KafkaError:
        return None
    return frozenset(topic for subscription in subscriptions for topic in subscription.topics)


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
    return tuple(sorted(TopicPartition(topic.topic, index) for topic in assigned for index in topic.partitions))


# OffsetFetch in every version, for many groups of one coordinator: what differs between versions is hidden here.
#
# Version 8 takes many groups, versions 2 to 7 one. Versions 0 and 1 need the partitions, so ask for all of the cluster.

_SEVERAL_GROUPS = 8
_ALL_TOPICS = 2
_OFFSET_REQUESTS_AT_ONCE = 50
_NO_OFFSET = -1


async def fetch_committed(wire: WireCluster, broker_id: int, groups: list[str]) -> Mapping[str, GroupOffsets | Unknown]:
    """Ask one coordinator for all offsets of these groups.

    Raises:
        AdminError: it does not answer; with one request per group that is a value instead.
    """
    version = await wire.version(await wire.client_of(broker_id), ApiKey.OFFSET_FETCH)
    if version >= _SEVERAL_GROUPS:
        wanted = [OffsetFetchRequestGroup(group_id=group, topics=None) for group in groups]
        response = await wire.call_broker(broker_id, OffsetFetchRequest(groups=wanted))
        return {group.group_id: _offsets(group.error_code, group.topics) for group in response.groups}
    topics = None if version >= _ALL_TOPICS else await _every_partition(wire)
    committed: dict[str, GroupOffsets | Unknown] = {}

    async def single(group: str) -> None:
        try:
            answer = await wire.call_broker(
                broker_id, OffsetFetchRequest(group_id=group, topics=topics), version_max=_SEVERAL_GROUPS - 1
            )
        except FAILURES as error:
            committed[group] = Unknown.of_error(error)
            return
        committed[group] = _offsets(answer.error_code or _common_error(answer.topics), answer.topics)

    await run_window((single(group) for group in groups), _OFFSET_REQUESTS_AT_ONCE)
    return committed


async def _every_partition(wire: WireCluster) -> list[OffsetFetchRequestTopic]:
    metadata = await wire.metadata(None)
    return [
        OffsetFetchRequestTopic(name=topic.name or "", partition_indexes=[p.partition_index for p in topic.partitions])
        for topic in metadata.topics
        if topic.partitions
    ]


def _common_error(topics: Iterable[OffsetFetchResponseTopic]) -> int:
    """Return the error that every partition has: before version 2 it means the whole group."""
    codes = {partition.error_code for topic in topics for partition in topic.partitions}
    only = codes.pop() if len(codes) == 1 else ErrorCode.NONE
    return ErrorCode.NONE if only == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION else only


def _offsets(
    error: int, topics: Iterable[OffsetFetchResponseTopic] | Iterable[OffsetFetchResponseTopics]
) -> GroupOffsets | Unknown:
    if error == ErrorCode.GROUP_ID_NOT_FOUND:
        return {}
    if error != ErrorCode.NONE:
        return Unknown.of_code(error)
    return {
        TopicPartition(topic.name, partition.partition_index): _offset(partition)
        for topic in topics
        for partition in topic.partitions
        if not _is_none(partition)
    }


_Partition = OffsetFetchResponsePartition | OffsetFetchResponsePartitions


def _is_none(partition: _Partition) -> bool:
    # Version 0 says so with an error, the others with -1.
    is_error_free = partition.error_code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    return is_error_free and partition.committed_offset == _NO_OFFSET


def _offset(partition: _Partition) -> CommittedOffset | Unknown:
    if partition.error_code != ErrorCode.NONE:
        return Unknown.of_code(partition.error_code)
    return CommittedOffset(partition.committed_offset, partition.committed_leader_epoch, partition.metadata or "")


# Groups that DescribeGroups does not know: those of the new consumer protocol (KIP-848), of shares and of streams.
#
# This describes the first completely. A broker's list has only the type of the others.

_NO_SUCH_GROUP = (ErrorCode.GROUP_ID_NOT_FOUND, ErrorCode.UNSUPPORTED_VERSION)
"""Brokers with ZooKeeper list the API from 3.7 on, and answer the second for each group."""


async def describe_new_groups(
    wire: WireCluster, broker_id: int, names: Sequence[str]
) -> dict[str, GroupDescription | Unknown]:
    """Ask a coordinator about groups that are not classic ones; those that do not exist are left out."""
    client = await wire.client_of(broker_id)
    # Asked for once per connection; a broken connection becomes an error of this layer.
    await wire.version(client, ApiKey.API_VERSIONS)
    if not names or ApiKey.CONSUMER_GROUP_DESCRIBE not in await client.api_versions():
        return {}
    response = await wire.call_broker(broker_id, ConsumerGroupDescribeRequest(group_ids=list(names)))
    known = [group for group in response.groups if group.error_code not in _NO_SUCH_GROUP]
    described = {group.group_id: _new_protocol_description(group, broker_id) for group in known}
    return described | await _of_other_types(wire, broker_id, [name for name in names if name not in described])


async def _of_other_types(wire: WireCluster, broker_id: int, names: Sequence[str]) -> dict[str, Unknown]:
    """Return the types of groups that neither protocol's API knows."""
    if not names:
        return {}
    response = await wire.call_broker(broker_id, ListGroupsRequest())
    types = {group.group_id: type_of(group.group_type) for group in response.groups}
    return {
        name: Unknown(f"it is a {types[name]} group: those are listed, not described", ErrorCode.INVALID_REQUEST)
        for name in names
        if types.get(name) in (GroupType.SHARE, GroupType.STREAMS)
    }


def _new_protocol_description(group: ConsumerGroupDescribed, broker_id: int) -> GroupDescription | Unknown:
    if group.error_code != ErrorCode.NONE:
        return Unknown.of_code(group.error_code, group.error_message)
    state = state_of(group.group_state)
    if state is None:
        return Unknown(f"the broker reports an unknown state: {group.group_state!r}")
    members = tuple(map(_new_protocol_member, group.members))
    return GroupDescription(
        group.group_id,
        GroupType.CONSUMER,
        state,
        CONSUMER_PROTOCOL_TYPE,
        group.assignor_name,
        broker_id,
        members,
        partial(_new_protocol_subscribed, group),
    )


def _new_protocol_subscribed(group: ConsumerGroupDescribed) -> frozenset[str] | None:
    if any(member.subscribed_topic_regex for member in group.members):
        return None
    return frozenset(topic for member in group.members for topic in member.subscribed_topic_names)


def _new_protocol_member(member: ConsumerGroupMember) -> GroupMember:
    assigned = member.assignment.topic_partitions
    return GroupMember(
        member.member_id,
        member.instance_id,
        member.client_id,
        member.client_host,
        tuple(sorted(TopicPartition(topic.topic_name, index) for topic in assigned for index in topic.partitions)),
    )
