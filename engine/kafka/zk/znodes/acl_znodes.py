"""Znodes of access lists: ``/kafka-acl`` for literal names, ``/kafka-acl-extended`` for prefixes. Codecs only."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Final

from engine.common.acl import ResourceType
from engine.kafka.acls import AclEntry, PatternType, Permission, ResourcePattern, operation_of
from engine.kafka.zk.errors import ZnodeFormatError
from engine.kafka.zk.znodes.fields import Fields, decode_text, encode_json


class ResourceZNode:
    """The access list of one resource pattern. Names are not escaped."""

    @staticmethod
    def type_path(resource_type: ResourceType, pattern_type: PatternType) -> str:
        """Return the folder of all patterns of one type."""
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
    if permission not in {one.value for one in Permission}:
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
