"""Access rules in ZooKeeper: ``/kafka-acl`` and ``/kafka-acl-extended``, and notices of their changes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Final

from engine.common.acl import ResourceType
from engine.kafka.acls import AclEntry, PatternType, Permission, ResourcePattern, operation_of
from engine.kafka.zk.acl_policy import AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import BadVersion, MultiFailed, NodeExists, NoNode, ZnodeFormatError
from engine.kafka.zk.operations import Create, Delete, Operation, SetData
from engine.kafka.zk.reads import children_or_empty, decoded, or_raise, read_znode
from engine.kafka.zk.znode_json import Fields, decode_text, encode_json


class ResourceZNode:
    """The access list of one resource pattern. Names are not escaped."""

    @staticmethod
    def type_path(resource_type: ResourceType, pattern_type: PatternType) -> str:
        root = "/kafka-acl" if pattern_type is PatternType.LITERAL else "/kafka-acl-extended/prefixed"
        return f"{root}/{resource_type.value}"

    @staticmethod
    def path(pattern: ResourcePattern) -> str:
        return f"{ResourceZNode.type_path(pattern.resource_type, pattern.pattern_type)}/{pattern.name}"

    @staticmethod
    def encode(entries: Iterable[AclEntry]) -> bytes:
        acls = [
            {
                "principal": entry.principal,
                "permissionType": entry.permission.value,
                "host": entry.host,
                "operation": entry.operation.spelling,
            }
            for entry in entries
        ]
        return encode_json({"acls": acls, "version": 1})

    @staticmethod
    def decode(pattern: ResourcePattern, data: bytes) -> tuple[AclEntry, ...]:
        """Read an access list; a znode without data has none."""
        if not data:
            return ()
        fields = Fields.parse(ResourceZNode.path(pattern), data)
        if fields.integer("version") != 1:
            raise fields.complaint("version", "1")
        return tuple(_entry(acl) for acl in fields.children("acls"))


def _entry(acl: Fields) -> AclEntry:
    permission = acl.text("permissionType")
    operation = operation_of(acl.text("operation"))
    if permission not in {known.value for known in Permission}:
        raise acl.complaint("permissionType", "Allow or Deny")
    if operation is None:
        raise acl.complaint("operation", "an operation of access lists")
    return AclEntry(acl.text("principal"), acl.text("host"), operation, Permission(permission))


class LiteralAclChangeZNode:
    """Tells every broker that the access list of a literal name changed: ``TOPIC:orders``."""

    parent_path: Final = "/kafka-acl-changes"
    create_path: Final = "/kafka-acl-changes/acl_changes_"

    @staticmethod
    def encode(pattern: ResourcePattern) -> bytes:
        return f"{pattern.resource_type.name}:{pattern.name}".encode()

    @staticmethod
    def decode(name: str, data: bytes) -> ResourcePattern:
        path = f"{LiteralAclChangeZNode.parent_path}/{name}"
        type_text, colon, resource = decode_text(path, data).partition(":")
        if not colon:
            raise ZnodeFormatError(path, f"not TYPE:name: {data[:40]!r}")
        return ResourcePattern(_resource_type(path, type_text), resource)


class ExtendedAclChangeZNode:
    """Tells every broker that the access list of a prefix changed."""

    parent_path: Final = "/kafka-acl-extended-changes"
    create_path: Final = "/kafka-acl-extended-changes/acl_changes_"

    @staticmethod
    def encode(pattern: ResourcePattern) -> bytes:
        return encode_json(
            {
                "version": 1,
                "resourceType": pattern.resource_type.name,
                "name": pattern.name,
                "patternType": pattern.pattern_type.value,
            }
        )

    @staticmethod
    def decode(name: str, data: bytes) -> ResourcePattern:
        fields = Fields.parse(f"{ExtendedAclChangeZNode.parent_path}/{name}", data)
        pattern_type = fields.text("patternType").upper()
        if fields.integer("version") != 1:
            raise fields.complaint("version", "1")
        if pattern_type not in PatternType.__members__:
            raise fields.complaint("patternType", "LITERAL or PREFIXED")
        resource_type = _resource_type(fields.path, fields.text("resourceType"))
        return ResourcePattern(resource_type, fields.text("name"), PatternType[pattern_type])


def _resource_type(path: str, text: str) -> ResourceType:
    # Kafka before 2.0 wrote the folder's name ("Topic") into notifications.
    for resource_type in ResourceType:
        if text.upper() in (resource_type.name, resource_type.value.upper()):
            return resource_type
    raise ZnodeFormatError(path, f"not a resource type: {text!r}")


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
        contents = await self._client.read_many(
            map(ResourceZNode.path, patterns),
            lambda position, outcome: decoded(outcome, lambda data, _: ResourceZNode.decode(patterns[position], data)),
        )
        reads = zip(patterns, map(or_raise, contents), strict=True)
        return {pattern: entries for pattern, entries in reads if entries}

    async def get(self, pattern: ResourcePattern) -> tuple[AclEntry, ...]:
        """Return the entries of a pattern; empty if it has none."""
        entries = await read_znode(
            self._client, ResourceZNode.path(pattern), lambda data, _: ResourceZNode.decode(pattern, data)
        )
        return entries or ()

    async def change(self, pattern: ResourcePattern, change: ChangeEntries) -> tuple[AclEntry, ...]:
        """Change a pattern's entries, even if others change them at the same time, and notify all brokers.

        It does both or neither, and writes nothing if nothing changes. A pattern without entries has no znode.

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
                return before

    async def _write(self, pattern: ResourcePattern, entries: tuple[AclEntry, ...], version: int | None) -> bool:
        """Write the entries and the notice to brokers, both or neither; return False if the znode has changed.

        ``version`` None: there is none.
        """
        path, data = ResourceZNode.path(pattern), ResourceZNode.encode(entries)
        operation: Operation
        if version is None:
            parent = ResourceZNode.type_path(pattern.resource_type, pattern.pattern_type)
            await self._client.ensure_path(parent, self._acl(parent))
            operation = Create(path, data, acl=self._acl(path))
        else:
            operation = SetData(path, data, version) if entries else Delete(path, version)
        try:
            await self._client.multi([operation, await self._notice(pattern)])
        except MultiFailed as refusal:
            if refusal.index == 0 and isinstance(refusal.error, BadVersion | NodeExists | NoNode):
                return False
            raise refusal.error from refusal
        return True

    async def _notice(self, pattern: ResourcePattern) -> Create:
        is_literal = pattern.pattern_type is PatternType.LITERAL
        znode = LiteralAclChangeZNode if is_literal else ExtendedAclChangeZNode
        await self._client.ensure_path(znode.parent_path, self._acl(znode.parent_path))
        return Create(znode.create_path, znode.encode(pattern), sequential=True, acl=self._acl(znode.create_path))
