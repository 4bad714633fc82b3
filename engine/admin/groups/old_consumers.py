"""Groups that live in ZooKeeper, as all did before 0.9: members, owners and offsets below ``/consumers``.

Such a group is nothing but its znodes: anyone who may write them can change it, and no coordinator manages it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice

from engine.admin.cluster.errors import Unknown
from engine.admin.groups.values import CommittedOffset, GroupMember, GroupOffsets, GroupState
from engine.common.model import TopicPartition
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.consumers import (
    ConsumerIdZNode,
    ConsumerOffsetZNode,
    ConsumerOwnerZNode,
    ConsumerPathZNode,
    GroupPartition,
    is_group_znode_name,
)
from engine.kafka.zk.errors import NoNode, ZooKeeperError
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.operations import Delete
from engine.kafka.zk.reads import children_or_empty

_OPERATIONS_PER_MULTI = 1_000
_STREAM = "-"
"""Between a member's id and the number of its stream, in an owner znode."""


@dataclass(frozen=True, slots=True)
class OldGroup:
    """One group as its znodes describe it. ``owners`` are streams of members: ``<consumer id>-<number>``."""

    group: str
    member_ids: tuple[str, ...]
    owners: Mapping[TopicPartition, str]
    offsets: GroupOffsets

    @property
    def state(self) -> GroupState:
        """ACTIVE while a member or the owner of a partition lives; both kinds of znode end with their session."""
        return GroupState.ACTIVE if self.member_ids or self.owners else GroupState.EMPTY

    @property
    def members(self) -> tuple[GroupMember, ...]:
        return tuple(self._member(member_id) for member_id in self.member_ids)

    @property
    def members_or_owners(self) -> tuple[GroupMember, ...]:
        """The members, or, if only owners of partitions are left, those."""
        owners = (self.owner(partition) for partition in sorted(self.owners))
        return self.members or tuple(owner for owner in owners if owner is not None)

    def owner(self, partition: TopicPartition) -> GroupMember | None:
        """Return the stream that reads a partition, as a member with the stream's name; None if nobody does."""
        stream = self.owners.get(partition)
        if stream is None:
            return None
        member_id = stream.rpartition(_STREAM)[0]
        return GroupMember(stream, None, "", _host_of(self.group, member_id), (partition,))

    def _member(self, member_id: str) -> GroupMember:
        own = sorted(p for p, stream in self.owners.items() if stream.rpartition(_STREAM)[0] == member_id)
        return GroupMember(member_id, None, "", _host_of(self.group, member_id), tuple(own))


async def old_group_names(zk: ZkClient) -> list[str]:
    """Return the names of all groups in ZooKeeper, sorted."""
    return sorted(await children_or_empty(zk, ConsumerPathZNode.path))


async def read_old_states(zk: ZkClient, names: Sequence[str]) -> dict[str, GroupState]:
    """Return whether members live, by group; a group that does not exist is left out."""
    groups = await zk.exists_many(map(ConsumerPathZNode.group_path, names))
    ids = await zk.exists_many(map(ConsumerIdZNode.parent_path, names))
    return {
        name: GroupState.ACTIVE if _child_count(members) else GroupState.EMPTY
        for name, group, members in zip(names, groups, ids, strict=True)
        if group is not None and not isinstance(group, ZooKeeperError)
    }


async def read_old_groups(zk: ZkClient, names: Sequence[str]) -> dict[str, OldGroup]:
    """Return members, owners and offsets by group; a group that does not exist is left out.

    An offset that cannot be read is an Unknown.
    """
    present = list(await read_old_states(zk, [name for name in names if is_group_znode_name(name)]))
    members = await _children(zk, [ConsumerIdZNode.parent_path(name) for name in present])
    owned = await _partitions(zk, present, "owners")
    stored = await _partitions(zk, present, "offsets")
    owners: dict[str, dict[TopicPartition, str]] = {name: {} for name in present}
    answers = await zk.get_many([ConsumerOwnerZNode.path(name, partition) for name, partition in owned])
    for (name, partition), answer in zip(owned, answers, strict=True):
        if not isinstance(answer, ZooKeeperError):
            owners[name][partition] = answer[0].decode("utf-8", "replace")
    offsets: dict[str, dict[TopicPartition, CommittedOffset | Unknown]] = {name: {} for name in present}
    for (name, partition), read in (await KafkaZkClient(zk).consumers.get_consumer_offsets(stored)).items():
        if read is not None:
            offsets[name][partition] = CommittedOffset(read) if isinstance(read, int) else Unknown(str(read))
    return {
        name: OldGroup(name, tuple(sorted(ids)), owners[name], offsets[name])
        for name, ids in zip(present, members, strict=True)
    }


async def write_old_offsets(
    zk: ZkClient, group: str, offsets: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Unknown | None]:
    """Write offsets, creating znodes that are missing; return each partition's failure, or None."""
    errors = await KafkaZkClient(zk).consumers.set_or_create_consumer_offsets(group, offsets)
    return {partition: None if error is None else Unknown(str(error)) for partition, error in errors.items()}


async def delete_old_group(zk: ZkClient, group: str) -> None:
    """Remove all of a group's znodes; raises MultiFailed if new ones appear in between.

    Raises:
        NoNode: there is no such group.
    """
    await _delete_tree(zk, ConsumerPathZNode.group_path(group))


async def delete_old_offsets(
    zk: ZkClient, group: str, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, Unknown | None]:
    """Remove single offsets; return each partition's failure, or None. A missing one is not a failure."""
    answers = await zk.write_many(Delete(ConsumerOffsetZNode.path(group, partition)) for partition in partitions)
    failed = (
        Unknown(str(answer)) if isinstance(answer, ZooKeeperError) and not isinstance(answer, NoNode) else None
        for answer in answers
    )
    return dict(zip(partitions, failed, strict=True))


async def _delete_tree(zk: ZkClient, root: str) -> None:
    levels = [[root]]
    while True:
        names = await _children(zk, levels[-1])
        below = [f"{path}/{name}" for path, children in zip(levels[-1], names, strict=True) for name in children]
        if not below:
            break
        levels.append(below)
    paths = iter([path for level in reversed(levels) for path in level])
    while batch := list(islice(paths, _OPERATIONS_PER_MULTI)):
        await zk.multi([Delete(path) for path in batch])


async def _partitions(zk: ZkClient, groups: Sequence[str], folder: str) -> list[GroupPartition]:
    roots = [f"{ConsumerPathZNode.group_path(group)}/{folder}" for group in groups]
    topics = [(group, topic) for group, names in _pairs(groups, await _children(zk, roots)) for topic in sorted(names)]
    paths = [f"{ConsumerPathZNode.group_path(group)}/{folder}/{topic}" for group, topic in topics]
    return [
        (group, TopicPartition(topic, int(name)))
        for (group, topic), names in zip(topics, await _children(zk, paths), strict=True)
        for name in sorted(names)
        if name.isascii() and name.isdigit()
    ]


def _pairs(groups: Sequence[str], children: Sequence[Sequence[str]]) -> Iterable[tuple[str, Sequence[str]]]:
    return zip(groups, children, strict=True)


async def _children(zk: ZkClient, paths: Sequence[str]) -> list[list[str]]:
    """Return children by path; a znode that does not exist, or may not be read, has none."""
    return [[] if isinstance(children, ZooKeeperError) else children for children in await zk.children_many(paths)]


def _host_of(group: str, member_id: str) -> str:
    """Return the host in ``<group>_<host>-<milliseconds>-<8 hex digits>``; a custom id may have none."""
    parts = member_id.removeprefix(f"{group}_").rsplit("-", 2)
    return parts[0] if len(parts) == 3 and parts[1].isdigit() else ""


def _child_count(stat: object) -> int:
    return int(getattr(stat, "num_children", 0))
