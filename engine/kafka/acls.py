"""Kafka's access rules: what they are, which of them match, and what they allow: a deny overrides all others. Pure.

It decides as ``AclAuthorizer`` of Kafka 3.9.1 does. Rules are kept by resource pattern, because that is how they are
stored, in ZooKeeper (``zk.acls``) as in an answer to DescribeAcls.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Final

from engine.common.acl import AclOperation, ResourceType

ANYBODY: Final = "User:*"
ANY_HOST: Final = "*"
ANY_NAME: Final = "*"
CLUSTER_NAME: Final = "kafka-cluster"
"""The only resource of the type Cluster."""


class PatternType(Enum):
    """How to read a resource's name (KIP-290)."""

    LITERAL = "LITERAL"
    PREFIXED = "PREFIXED"

    @property
    def code(self) -> int:
        """Its number in requests, where 1 is any and 2 whatever covers a name."""
        return {PatternType.LITERAL: 3, PatternType.PREFIXED: 4}[self]


class Permission(Enum):
    """Whether a rule allows or denies. The value is how znodes spell it."""

    DENY = "Deny"
    ALLOW = "Allow"

    @property
    def code(self) -> int:
        """Its number in requests, where 1 is any."""
        return {Permission.DENY: 2, Permission.ALLOW: 3}[self]


@dataclass(frozen=True, slots=True)
class ResourcePattern:
    """Resources by type and name, or by the beginning of their names. The literal name ``*`` is every name."""

    resource_type: ResourceType
    name: str
    pattern_type: PatternType = PatternType.LITERAL

    def covers(self, name: str) -> bool:
        """Whether a rule for this pattern is about the resource of its type with this name."""
        if self.pattern_type is PatternType.PREFIXED:
            return name.startswith(self.name)
        return self.name in (name, ANY_NAME)


@dataclass(frozen=True, slots=True)
class AclEntry:
    """Who (``User:alice``, ``User:*``) may or may not do what, from where (an address, ``*``)."""

    principal: str
    host: str
    operation: AclOperation
    permission: Permission


@dataclass(frozen=True, slots=True)
class AclBinding:
    """A rule: an entry for a pattern."""

    pattern: ResourcePattern
    entry: AclEntry

    @property
    def sort_key(self) -> tuple[str, ...]:
        """Orders rules by resource, then by who and what."""
        return (
            self.pattern.resource_type.value, self.pattern.name, self.pattern.pattern_type.value, self.entry.principal,
            self.entry.permission.value, self.entry.operation.spelling, self.entry.host,
        )  # fmt: skip


Acls = Mapping[ResourcePattern, Iterable[AclEntry]]
"""All rules of a cluster by pattern."""

IMPLIED: Final[Mapping[AclOperation, tuple[AclOperation, ...]]] = {
    AclOperation.DESCRIBE: (AclOperation.READ, AclOperation.WRITE, AclOperation.DELETE, AclOperation.ALTER),
    AclOperation.DESCRIBE_CONFIGS: (AclOperation.ALTER_CONFIGS,),
}
"""Operations that are allowed with any of others. A denial of the others denies nothing here."""

SUPPORTED: Final[Mapping[ResourceType, frozenset[AclOperation]]] = {
    ResourceType.TOPIC: frozenset(
        (
            AclOperation.READ, AclOperation.WRITE, AclOperation.CREATE, AclOperation.DESCRIBE, AclOperation.DELETE,
            AclOperation.ALTER, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
        )
    ),
    ResourceType.GROUP: frozenset((AclOperation.READ, AclOperation.DESCRIBE, AclOperation.DELETE)),
    ResourceType.CLUSTER: frozenset(
        (
            AclOperation.CREATE, AclOperation.CLUSTER_ACTION, AclOperation.DESCRIBE_CONFIGS, AclOperation.ALTER_CONFIGS,
            AclOperation.IDEMPOTENT_WRITE, AclOperation.ALTER, AclOperation.DESCRIBE,
        )
    ),
    ResourceType.TRANSACTIONAL_ID: frozenset((AclOperation.DESCRIBE, AclOperation.WRITE)),
    ResourceType.DELEGATION_TOKEN: frozenset((AclOperation.DESCRIBE,)),
    ResourceType.USER: frozenset((AclOperation.CREATE_TOKENS, AclOperation.DESCRIBE_TOKENS)),
}  # fmt: skip
"""The operations that mean something for a type, apart from ALL."""


def operation_of(spelling: str) -> AclOperation | None:
    """Return the operation that is spelled like this (``ClusterAction``); None if there is none."""
    return next((each for each in AclOperation if each.spelling == spelling), None)


def type_code(resource_type: ResourceType) -> int:
    """Return the type's number in requests, where 1 is any."""
    return list(ResourceType).index(resource_type) + 2


@dataclass(frozen=True, slots=True)
class Decision:
    """What the rules say about one operation.

    Attributes:
        rule: the rule that decides; None where none matches.
        matching: every rule that is about who, what and where, the deciding ones included, denials first.
        has_rules: whether the resource has any rule, even about other principals.
    """

    is_allowed: bool
    rule: AclBinding | None
    matching: tuple[AclBinding, ...]
    has_rules: bool


def decide(
    acls: Acls,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    name: str,
    *,
    allows_without_rules: bool = False,
) -> Decision:
    """Return whether a principal that is no super user may do an operation, and why.

    Args:
        acls: the rules of the cluster, or at least those whose pattern covers the resource.
        allows_without_rules: ``allow.everyone.if.no.acl.found``.
    """
    on_resource = [
        AclBinding(pattern, entry)
        for pattern, entries in acls.items()
        if pattern.resource_type is resource_type and pattern.covers(name)
        for entry in entries
    ]
    denials = [rule for rule in on_resource if _is_about(rule.entry, Permission.DENY, principal, host, operation)]
    allowing = [
        rule
        for each in (operation, *IMPLIED.get(operation, ()))
        for rule in on_resource
        if _is_about(rule.entry, Permission.ALLOW, principal, host, each)
    ]
    matching = tuple(dict.fromkeys((*denials, *allowing)))
    is_allowed = not denials and bool(allowing) if on_resource else allows_without_rules
    return Decision(is_allowed, next(iter(matching), None), matching, bool(on_resource))


def _is_about(entry: AclEntry, permission: Permission, principal: str, host: str, operation: AclOperation) -> bool:
    return (
        entry.permission is permission
        and entry.principal in (principal, ANYBODY)
        and entry.operation in (operation, AclOperation.ALL)
        and entry.host in (host, ANY_HOST)
    )


def may_on_any(
    acls: Acls,
    principal: str,
    host: str,
    operation: AclOperation,
    resource_type: ResourceType,
    *,
    allows_without_rules: bool = False,
) -> bool:
    """Return whether a principal may do an operation on at least one possible resource of a type (KIP-679).

    Operations that others imply have to be allowed themselves here, as in Kafka.
    """
    names: dict[tuple[Permission, PatternType], set[str]] = {
        (permission, pattern_type): {
            pattern.name
            for pattern, entries in acls.items()
            if pattern.resource_type is resource_type
            and pattern.pattern_type is pattern_type
            and any(_is_about(entry, permission, principal, host, operation) for entry in entries)
        }
        for permission in Permission
        for pattern_type in PatternType
    }
    denied = names[Permission.DENY, PatternType.LITERAL]
    denied_prefixes = tuple(names[Permission.DENY, PatternType.PREFIXED])
    if ANY_NAME in denied:
        return False
    if allows_without_rules:
        return True
    if any(not prefix.startswith(denied_prefixes) for prefix in names[Permission.ALLOW, PatternType.PREFIXED]):
        return True
    return any(
        name == ANY_NAME or (name not in denied and not name.startswith(denied_prefixes))
        for name in names[Permission.ALLOW, PatternType.LITERAL]
    )


@dataclass(frozen=True, slots=True)
class AclFilter:
    """Which rules are meant; None matches any.

    Attributes:
        matches_name: take every pattern that covers ``name``, of whichever pattern type (MATCH in Kafka).
    """

    resource_type: ResourceType | None = None
    name: str | None = None
    pattern_type: PatternType | None = PatternType.LITERAL
    principal: str | None = None
    host: str | None = None
    operation: AclOperation | None = None
    permission: Permission | None = None
    matches_name: bool = False

    @property
    def only_pattern(self) -> ResourcePattern | None:
        """The one pattern whose rules can be meant; None if there may be several."""
        if self.resource_type is None or self.name is None or self.pattern_type is None or self.matches_name:
            return None
        return ResourcePattern(self.resource_type, self.name, self.pattern_type)

    def takes(self, rule: AclBinding) -> bool:
        """Whether this rule is meant."""
        return self.takes_pattern(rule.pattern) and self.takes_entry(rule.entry)

    def takes_pattern(self, pattern: ResourcePattern) -> bool:
        """Whether rules for this pattern are meant."""
        if self.resource_type not in (None, pattern.resource_type):
            return False
        if self.matches_name:
            return self.name is None or pattern.covers(self.name)
        return self.pattern_type in (None, pattern.pattern_type) and self.name in (None, pattern.name)

    def takes_entry(self, entry: AclEntry) -> bool:
        """Whether this entry is meant, whatever its pattern."""
        return (
            self.principal in (None, entry.principal)
            and self.host in (None, entry.host)
            and self.operation in (None, entry.operation)
            and self.permission in (None, entry.permission)
        )
