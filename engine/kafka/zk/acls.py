"""Access rules in ZooKeeper: ``/kafka-acl`` and ``/kafka-acl-extended``, and notices of their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from engine.common.acl import ResourceType
from engine.kafka.acls import AclEntry, PatternType, ResourcePattern
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import BadVersion, NodeExists, NoNode
from engine.kafka.zk.reads import children_or_empty, decoded, or_raise, read_znode
from engine.kafka.zk.znodes.acl_znodes import ExtendedAclChangeZNode, LiteralAclChangeZNode, ResourceZNode

_NONE: tuple[AclEntry, ...] = ()
ChangeEntries = Callable[[tuple[AclEntry, ...]], Iterable[AclEntry]]
"""Returns the entries of a pattern as they shall be, from those that it has."""


class AclZnodes:
    """Reads and writes of access rules."""

    def __init__(self, client: ZkClient, acl_policy: AclPolicy) -> None:
        self._client = client
        self._acl = acl_policy.acl

    async def make_paths(self) -> None:
        """Make the folders of rules and notices, as brokers with an authorizer do: only what exists can be watched."""
        folders = [ResourceZNode.type_path(each, kind) for kind in PatternType for each in ResourceType]
        for path in (*folders, *(change.parent_path for change in (LiteralAclChangeZNode, ExtendedAclChangeZNode))):
            await self._client.ensure_path(path, self._acl(path))

    async def get_all(self) -> dict[ResourcePattern, tuple[AclEntry, ...]]:
        """Return all rules.

        Raises:
            ZnodeFormatError: one of them cannot be understood.
        """
        patterns = [
            ResourcePattern(resource_type, name, pattern_type)
            for pattern_type in PatternType
            for resource_type in ResourceType
            for name in sorted(
                await children_or_empty(self._client, ResourceZNode.type_path(resource_type, pattern_type))
            )
        ]
        found = await self._client.read_many(
            map(ResourceZNode.path, patterns),
            lambda position, outcome: decoded(outcome, lambda data, _: ResourceZNode.decode(patterns[position], data)),
        )
        reads = zip(patterns, map(or_raise, found), strict=True)
        return {pattern: entries for pattern, entries in reads if entries}

    async def get(self, pattern: ResourcePattern) -> tuple[AclEntry, ...]:
        """Return the entries of a pattern; empty if it has none."""
        found = await read_znode(
            self._client, ResourceZNode.path(pattern), lambda data, _: ResourceZNode.decode(pattern, data)
        )
        return found or ()

    async def change(self, pattern: ResourcePattern, change: ChangeEntries) -> tuple[AclEntry, ...]:
        """Change a pattern's entries, whoever else does so at the same time, and tell all brokers.

        Nothing is written if nothing changes. A pattern without entries has no znode.

        Returns:
            The entries that it had before.
        """
        path = ResourceZNode.path(pattern)
        while True:
            try:
                data, stat = await self._client.get(path)
            except NoNode:
                version, before = None, _NONE
            else:
                version, before = stat.version, ResourceZNode.decode(pattern, data)
            after = tuple(dict.fromkeys(change(before)))
            if set(after) == set(before):
                return before
            if await self._write(pattern, after, version):
                await self._tell_brokers(pattern)
                return before

    async def _write(self, pattern: ResourcePattern, entries: tuple[AclEntry, ...], version: int | None) -> bool:
        """Write the entries; return False if the znode changed meanwhile. ``version`` None: there is none."""
        path = ResourceZNode.path(pattern)
        try:
            if version is None:
                parent = ResourceZNode.type_path(pattern.resource_type, pattern.pattern_type)
                await self._client.ensure_path(parent, self._acl(parent))
                await self._client.create(path, ResourceZNode.encode(entries), acl=self._acl(path))
            elif entries:
                await self._client.set(path, ResourceZNode.encode(entries), version)
            else:
                await self._client.delete(path, version)
        except (BadVersion, NodeExists, NoNode):
            return False
        return True

    async def _tell_brokers(self, pattern: ResourcePattern) -> None:
        is_literal = pattern.pattern_type is PatternType.LITERAL
        znode = LiteralAclChangeZNode if is_literal else ExtendedAclChangeZNode
        await self._client.ensure_path(znode.parent_path, self._acl(znode.parent_path))
        path = znode.create_path
        await self._client.create(path, znode.encode(pattern), sequential=True, acl=self._acl(path))
