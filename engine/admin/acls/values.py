"""Access rules in words, and what the options of kafka-acls mean. Pure.

Source: kafka-acls of Apache Kafka 3.9.1, its help and what it does with each combination of options.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import Give, Parameter, Phrase
from engine.common.acl import AclOperation, ResourceType
from engine.common.model import address_in_java
from engine.kafka.acls import (
    ANY_HOST,
    ANY_NAME,
    CLUSTER_NAME,
    SUPPORTED,
    AclBinding,
    AclEntry,
    AclFilter,
    PatternType,
    Permission,
    ResourcePattern,
)

PATTERN_TYPES = ("literal", "prefixed", "match", "any")
_PRINCIPAL = re.compile(r"[^:]+:.+", re.DOTALL)
_RESOURCES = "topic:NAME, group:NAME, cluster, transactional-id:NAME, delegation-token:NAME or user:TYPE:NAME"


@dataclass(frozen=True, slots=True)
class AclRow:
    """A rule in the words of JSON, files and options."""

    resource_type: str
    name: str
    pattern_type: str
    principal: str
    host: str
    operation: str
    permission: str

    @classmethod
    def of(cls, rule: AclBinding) -> AclRow:
        """Return a rule's words."""
        pattern, entry = rule.pattern, rule.entry
        return cls(
            pattern.resource_type.word, pattern.name, pattern.pattern_type.value.lower(), entry.principal,
            entry.host, entry.operation.word, entry.permission.value.lower(),
        )  # fmt: skip

    def __str__(self) -> str:
        place = "" if self.host == ANY_HOST else f" from {self.host}"
        name = "" if self.resource_type == "cluster" else f" {self.name}"
        prefix = " that begin with" if self.pattern_type == "prefixed" else ""
        plural = "s" if prefix else ""
        return (
            f"{self.permission} {self.principal}{place} {self.operation} on {self.resource_type}{plural}{prefix}{name}"
        )


def parse_operation(text: str) -> AclOperation:
    """Read an operation in any case, with or without hyphens: ``DescribeConfigs``, ``describe-configs``.

    Raises:
        BadRequest: there is none of this name.
    """
    wanted = re.sub("[-_]", "", text).lower()
    for operation in AclOperation:
        if operation.spelling.lower() == wanted:
            return operation
    raise BadRequest(
        f"no such operation: {text}", hint=f"one of {', '.join(operation.word for operation in AclOperation)}"
    )


def parse_principal(text: str) -> str:
    """Return a principal such as ``User:alice``.

    Raises:
        BadRequest: its type is missing.
    """
    if not _PRINCIPAL.fullmatch(text.strip()):
        raise BadRequest(f"not a principal: {text!r}", hint=f"write its type first, such as User:{text or 'alice'}")
    return text.strip()


def parse_resource(text: str) -> tuple[ResourceType, str]:
    """Read a resource: ``topic:orders``, ``cluster``.

    Raises:
        BadRequest: it is none.
    """
    word, _, name = text.partition(":")
    for resource_type in ResourceType:
        is_named = bool(name) or resource_type is ResourceType.CLUSTER
        if word.lower().replace("_", "-") == resource_type.word and is_named:
            if resource_type is ResourceType.CLUSTER and name not in ("", CLUSTER_NAME):
                break
            return resource_type, name or CLUSTER_NAME
    raise BadRequest(f"not a resource: {text!r}", hint=f"write {_RESOURCES}")


@dataclass(frozen=True, slots=True)
class Wish:
    """What the options of kafka-acls name. Resources are ``(type, name)``; ``pattern_type`` is one of PATTERN_TYPES."""

    resources: Sequence[tuple[ResourceType, str]] = ()
    pattern_type: str = "literal"
    operations: Sequence[AclOperation] = ()
    allow_principals: Sequence[str] = ()
    deny_principals: Sequence[str] = ()
    allow_hosts: Sequence[str] = ()
    deny_hosts: Sequence[str] = ()
    principals: Sequence[str] = ()
    is_producer: bool = False
    is_consumer: bool = False
    is_idempotent: bool = False

    def check(self) -> None:
        """Raise BadRequest if the options contradict each other, or one that another needs is missing."""
        types = {resource_type for resource_type, _ in self.resources}
        if self.pattern_type not in PATTERN_TYPES:
            raise BadRequest(f"no such type of pattern: {self.pattern_type}", hint=f"one of {', '.join(PATTERN_TYPES)}")
        if self.is_producer or self.is_consumer:
            if self.operations or self.deny_principals or self.deny_hosts:
                raise BadRequest("the rights of a producer or consumer are fixed: name no operations, and deny nothing")
            if ResourceType.TOPIC not in types:
                raise BadRequest("a producer or consumer needs a topic")
        if self.is_consumer and ResourceType.GROUP not in types:
            raise BadRequest("a consumer needs a group besides its topic")
        odd = types & {ResourceType.CLUSTER, ResourceType.TRANSACTIONAL_ID}
        if self.is_consumer and not self.is_producer and odd:
            raise BadRequest("a consumer has rights on topics and groups only")
        if self.is_idempotent and not self.is_producer:
            raise BadRequest("only a producer is idempotent")
        for principal in (*self.allow_principals, *self.deny_principals, *self.principals):
            parse_principal(principal)

    def rules(self) -> list[AclBinding]:
        """Return the rules that this asks to add.

        Raises:
            BadRequest: they are incomplete, or mean nothing to Kafka.
        """
        self.check()
        if self.pattern_type not in ("literal", "prefixed"):
            raise BadRequest(
                f"a rule is for literal names or prefixes; {self.pattern_type} is for listing and removing only"
            )
        if not (self.allow_principals or self.deny_principals):
            raise BadRequest("say whom it allows or denies something")
        kind = PatternType(self.pattern_type.upper())
        matching = [
            AclBinding(ResourcePattern(resource_type, name, kind), replace(entry, host=address_in_java(entry.host)))
            for resource_type, name, entries in self._entries()
            for entry in entries
        ]
        for rule in matching:
            check_rule(rule)
        return list(dict.fromkeys(matching))

    def removals(self) -> list[AclFilter]:
        """Return which rules this asks to remove: with nobody named, all rules of the resources.

        ``principals`` mean all their rules, on these resources or on any.
        """
        self.check()
        if self.principals:
            if not self.resources and self.pattern_type in ("prefixed", "match"):
                raise BadRequest(f"{self.pattern_type} says how names of resources match, and none is named")
            return self.filters()
        if not self.resources:
            raise BadRequest(
                "say on which resources", hint=Phrase("all rules of a principal: ", Give(Parameter.ACLS_OF))
            )
        return [
            wanted
            for resource_type, name, entries in self._entries()
            for wanted in (
                [self._filter(resource_type, name, entry) for entry in entries] or [self._filter(resource_type, name)]
            )
        ]

    def near(self) -> list[AclFilter]:
        """Return the rules that the user may have meant to remove: these principals', if they cover these resources."""
        wanted = [AclFilter(*resource, matches_name=True) for resource in self.resources]
        principals = (*self.allow_principals, *self.deny_principals, *self.principals)
        return [replace(rule, principal=name) for rule in wanted for name in principals] or wanted

    def filters(self) -> list[AclFilter]:
        """Return which rules this asks to list: all if it names nothing."""
        self.check()
        is_of_an_entry = self.allow_principals or self.deny_principals or self.allow_hosts or self.deny_hosts
        if self.is_producer or self.is_consumer or is_of_an_entry or self.operations:
            raise BadRequest("all rules of a principal are meant: beside that, only resources can be named")
        wanted = [self._filter(*resource) for resource in self.resources] or [AclFilter(pattern_type=None)]
        if not self.principals:
            return wanted
        return [replace(rule, principal=principal) for rule in wanted for principal in self.principals]

    def _filter(self, resource_type: ResourceType, name: str, entry: AclEntry | None = None) -> AclFilter:
        kind = PatternType(self.pattern_type.upper()) if self.pattern_type in ("literal", "prefixed") else None
        wanted = AclFilter(resource_type, name, kind, matches_name=self.pattern_type == "match")
        if entry is None:
            return wanted
        return replace(
            wanted, principal=entry.principal, host=entry.host, operation=entry.operation, permission=entry.permission
        )

    def _entries(self) -> list[tuple[ResourceType, str, list[AclEntry]]]:
        """Return the entries for each named resource, those of the conveniences merged."""
        if not self.resources:
            raise BadRequest("say on which resources")
        if not self.is_producer and not self.is_consumer:
            operations = self.operations or (AclOperation.ALL,)
            return [(*resource, self._for(operations)) for resource in self.resources]
        by_resource: dict[tuple[ResourceType, str], list[AclEntry]] = {}
        for resource in self.resources:
            operations = tuple(self._convenient(resource[0]))
            if operations:
                by_resource[resource] = self._for(operations)
        if self.is_idempotent:
            by_resource[ResourceType.CLUSTER, CLUSTER_NAME] = self._for((AclOperation.IDEMPOTENT_WRITE,))
        return [(*resource, entries) for resource, entries in by_resource.items()]

    def _convenient(self, resource_type: ResourceType) -> Iterable[AclOperation]:
        if self.is_producer and resource_type is ResourceType.TOPIC:
            yield from (AclOperation.WRITE, AclOperation.DESCRIBE, AclOperation.CREATE)
        if self.is_producer and resource_type is ResourceType.TRANSACTIONAL_ID:
            yield from (AclOperation.WRITE, AclOperation.DESCRIBE)
        if self.is_consumer and resource_type is ResourceType.TOPIC:
            yield from (AclOperation.READ, AclOperation.DESCRIBE)
        if self.is_consumer and resource_type is ResourceType.GROUP:
            yield AclOperation.READ

    def _for(self, operations: Iterable[AclOperation]) -> list[AclEntry]:
        sides = (
            (Permission.ALLOW, self.allow_principals, self.allow_hosts),
            (Permission.DENY, self.deny_principals, self.deny_hosts),
        )
        return list(
            dict.fromkeys(
                AclEntry(principal, host, operation, permission)
                for permission, principals, hosts in sides
                for principal in principals
                for operation in operations
                for host in hosts or (ANY_HOST,)
            )
        )


def check_rule(rule: AclBinding) -> None:
    """Raise BadRequest if a broker would not take a rule, or nothing could ever match its operation."""
    pattern, entry = rule.pattern, rule.entry
    word = pattern.resource_type.word
    parse_principal(entry.principal)
    if entry.operation not in (AclOperation.ALL, *SUPPORTED[pattern.resource_type]):
        able = ", ".join(sorted(operation.word for operation in SUPPORTED[pattern.resource_type]))
        raise BadRequest(f"{entry.operation.word} does not apply to a {word}", hint=f"{word}: {able} or all")
    if not pattern.name:
        raise BadRequest(f"the {word} has no name", hint=f"the name {ANY_NAME} is every {word}")
    if pattern.resource_type is ResourceType.CLUSTER and pattern != ResourcePattern(ResourceType.CLUSTER, CLUSTER_NAME):
        raise BadRequest(f"the cluster's only name is {CLUSTER_NAME}, a literal one", where=pattern.name)


def rule_of(row: AclRow) -> AclBinding:
    """Return the rule that these words describe.

    Raises:
        BadRequest: they describe none.
    """
    resource_type, name = parse_resource(
        "cluster" if row.resource_type == "cluster" and row.name == CLUSTER_NAME else f"{row.resource_type}:{row.name}"
    )
    if row.pattern_type.upper() not in PatternType.__members__:
        raise BadRequest(f"pattern_type is literal or prefixed, not {row.pattern_type!r}")
    if row.permission.upper() not in Permission.__members__:
        raise BadRequest(f"permission is allow or deny, not {row.permission!r}")
    entry = AclEntry(
        parse_principal(row.principal),
        address_in_java(row.host),
        parse_operation(row.operation),
        Permission[row.permission.upper()],
    )
    rule = AclBinding(ResourcePattern(resource_type, name, PatternType[row.pattern_type.upper()]), entry)
    check_rule(rule)
    return rule
