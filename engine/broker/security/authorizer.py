"""Who may do what: Kafka's ``AclAuthorizer`` on the rules in ZooKeeper, followed as they change.

A decision is remembered with the session that asked, until any rule changes, or there are too many of them. So
authorizing a Produce or a Fetch is one dictionary lookup. The rules themselves, and what they mean, are in
``engine.kafka.acls``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterable, Sequence
from sys import getsizeof
from typing import Final
from weakref import WeakValueDictionary

from engine.broker.network.session import Session
from engine.common.acl import AclOperation, ResourceType
from engine.common.clock import Clock
from engine.kafka.acls import (
    ANY_HOST,
    ANY_NAME,
    ANYBODY,
    SUPPORTED,
    AclEntry,
    PatternType,
    Permission,
    ResourcePattern,
    decide,
    may_on_any,
)
from engine.kafka.zk.acls import ExtendedAclChangeZNode, LiteralAclChangeZNode
from engine.kafka.zk.change_follower import ChangeFollower
from engine.kafka.zk.errors import ZnodeFormatError
from engine.kafka.zk.kafka_client import KafkaZkClient

AUTHORIZERS: Final = ("kafka.security.authorizer.AclAuthorizer", "kafka.security.auth.SimpleAclAuthorizer")
"""Java classes that this does the work of."""

REMEMBERED_BYTES_MAX: Final = 64 * 1024 * 1024
"""What all sessions remember together. Clients choose the names, which may have 32 kB each."""

_DECISION_BYTES: Final = 200
"""What a decision takes besides its name."""

_NOBODY = AclEntry(ANYBODY, ANY_HOST, AclOperation.ALL, Permission.DENY)

logger = logging.getLogger("kafka.authorizer.logger")
_server_log = logging.getLogger("kafka.security.authorizer.AclAuthorizer")

Right = tuple[AclOperation, ResourceType, str]


class Decisions(dict[Right, bool]):
    """What one session may do, as far as it has asked."""

    __slots__ = ("__weakref__", "size_bytes", "version")

    def __init__(self, version: int) -> None:
        super().__init__()
        self.version = version
        """Of the rules that the decisions follow from."""
        self.size_bytes = 0


class AclRules:
    """The rules of the cluster, arranged for questions about one resource."""

    def __init__(self) -> None:
        self.version = 0
        self.all: dict[ResourcePattern, tuple[AclEntry, ...]] = {}
        self._prefixes: dict[ResourceType, dict[int, dict[str, ResourcePattern]]] = {kind: {} for kind in ResourceType}
        """By their lengths; there are only a few: a query does one lookup per length, not one per prefix."""

    def put(self, pattern: ResourcePattern, entries: tuple[AclEntry, ...]) -> None:
        if entries:
            self.all[pattern] = entries
        else:
            self.all.pop(pattern, None)
        if pattern.pattern_type is PatternType.PREFIXED:
            by_length, length = self._prefixes[pattern.resource_type], len(pattern.name)
            if entries:
                by_length.setdefault(length, {})[pattern.name] = pattern
            elif length in by_length:
                by_length[length].pop(pattern.name, None)
                if not by_length[length]:
                    del by_length[length]
        self.version += 1

    def about(self, resource_type: ResourceType, name: str) -> dict[ResourcePattern, tuple[AclEntry, ...]]:
        """Return the rules whose patterns cover a resource."""
        literal = (ResourcePattern(resource_type, name), ResourcePattern(resource_type, ANY_NAME))
        prefixes = (known.get(name[:length]) for length, known in self._prefixes[resource_type].items())
        return {pattern: self.all[pattern] for pattern in (*literal, *prefixes) if pattern in self.all}


class Authorizer:
    """Decides, from ``start`` on."""

    def __init__(
        self, zk: KafkaZkClient, clock: Clock, *, super_users: Iterable[str], allows_without_rules: bool
    ) -> None:
        self.rules = AclRules()
        self._zk = zk
        self._super_users = frozenset(super_users)
        self._allows_without_rules = allows_without_rules
        self._decisions: WeakValueDictionary[int, Decisions] = WeakValueDictionary()
        self._remembered_bytes = 0
        """At least what the sessions remember: those that have ended may count."""
        folders = {change.parent_path: change.decode for change in (LiteralAclChangeZNode, ExtendedAclChangeZNode)}
        self._follower = ChangeFollower(
            zk.client, clock, folders, self._refresh_all, self._reload, subject="access rules"
        )

    # -- questions

    def may(
        self,
        session: Session,
        operation: AclOperation,
        resource_type: ResourceType,
        name: str,
        *,
        request: str,
        count: int = 1,
        tells: bool = True,
    ) -> bool:
        """Return whether the peer of a session may do this. ``request`` and ``count`` are for the log alone.

        Args:
            count: how many things in the request this is about.
            tells: whether a denial is worth a line: not if it only leaves something out of a list.
        """
        decisions = session.decisions
        if decisions is None or decisions.version != self.rules.version:
            decisions = session.decisions = Decisions(self.rules.version)
            self._decisions[id(decisions)] = decisions
        right = (operation, resource_type, name)
        is_allowed: bool | None = decisions.get(right)
        if is_allowed is None:
            is_allowed = self._decide(session.principal, session.host, *right)
            decisions[right] = is_allowed
            self._count(decisions, _DECISION_BYTES + getsizeof(name))
        level = logging.DEBUG if is_allowed else logging.INFO
        if (is_allowed or tells) and logger.isEnabledFor(level):
            logger.log(
                level,
                "Principal = %s is %s Operation = %s from host = %s on resource = %s:LITERAL:%s for request = %s "
                "with resourceRefCount = %d",
                session.principal, "Allowed" if is_allowed else "Denied", operation.spelling, session.host,
                resource_type.value, name, request, count,
            )  # fmt: skip
        return is_allowed

    def may_on_any(self, session: Session, operation: AclOperation, resource_type: ResourceType) -> bool:
        """Return whether there can be a resource of this type on which the peer may do this."""
        return session.principal in self._super_users or may_on_any(
            self.rules.all, session.principal, session.host, operation, resource_type,
            allows_without_rules=self._allows_without_rules,
        )  # fmt: skip

    def operations(self, session: Session, resource_type: ResourceType, name: str) -> int:
        """Return everything that the peer may do with a resource, as the bits of KIP-430."""
        return sum(
            1 << operation
            for operation in SUPPORTED[resource_type]
            if self.may(session, operation, resource_type, name, request="", tells=False)
        )

    def _decide(
        self, principal: str, host: str, operation: AclOperation, resource_type: ResourceType, name: str
    ) -> bool:
        if principal in self._super_users:
            return True
        return decide(
            self.rules.about(resource_type, name), principal, host, operation, resource_type, name,
            allows_without_rules=self._allows_without_rules,
        ).is_allowed  # fmt: skip

    def _count(self, decisions: Decisions, size_bytes: int) -> None:
        """Count what a session remembers; if all together remember too much, the largest are cleared."""
        decisions.size_bytes += size_bytes
        self._remembered_bytes += size_bytes
        if self._remembered_bytes <= REMEMBERED_BYTES_MAX:
            return
        living = sorted(self._decisions.values(), key=lambda each: each.size_bytes)
        self._remembered_bytes = sum(each.size_bytes for each in living)
        if self._remembered_bytes <= REMEMBERED_BYTES_MAX:
            return
        while self._remembered_bytes > REMEMBERED_BYTES_MAX // 2:
            each = living.pop()
            self._remembered_bytes -= each.size_bytes
            each.size_bytes = 0
            each.clear()

    # -- rules

    async def start(self) -> None:
        """Watch for changes, then read all rules.

        Raises:
            CoordinationError: they cannot be read, or understood: then every request is denied.
        """
        await self._zk.acls.make_paths()
        await self._follower.start()

    async def stop(self) -> None:
        """Stop following changes."""
        await self._follower.stop()

    async def refresh(self, pattern: ResourcePattern) -> None:
        """Read one pattern's rules now. A pattern whose rules cannot be read denies everything until they can."""
        try:
            entries = await self._zk.acls.get(pattern)
        except ZnodeFormatError as error:
            _server_log.error("Nobody may use what these access rules are for until they are repaired: %s", error)
            entries = (_NOBODY,)
        self.rules.put(pattern, entries)

    async def _refresh_all(self, patterns: Sequence[ResourcePattern]) -> None:
        for pattern in patterns:
            await self.refresh(pattern)

    async def _reload(self) -> None:
        entries_by_pattern = await self._zk.acls.get_all()
        for gone in self.rules.all.keys() - entries_by_pattern.keys():
            self.rules.put(gone, ())
        for pattern, entries in entries_by_pattern.items():
            self.rules.put(pattern, entries)
