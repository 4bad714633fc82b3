"""The access lists of Kafka's znodes: shows, closes and opens them, as zookeeper-security-migration does.

Kafka's tool sets the lists of the chroot itself and of all znodes below its own roots. ``/consumers`` stays as it is,
because old consumers write there. Source: ``ZkSecurityMigrator`` and ``ZkData`` of Kafka 3.9.
"""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Sequence
from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.remedies import Give, Parameter, Phrase
from engine.kafka.zk.acl_policy import SECURE_ROOTS, AclPolicy
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NoNode, ZooKeeperError
from engine.kafka.zk.operations import OPEN_ACL, Acl, acl_text, acl_texts
from engine.kafka.zk.security import ZkSecurity

PLAN_LOCK_ROOT = "/klamm"
"""klamm's own znodes are treated like Kafka's."""


@dataclass(frozen=True, slots=True)
class AclChange:
    """A znode whose access list changes, in texts such as ``sasl:kafka:cdrwa``; None: it cannot be read."""

    path: str
    before: tuple[str, ...] | None
    after: tuple[str, ...]
    error: str | None = None
    """Why ZooKeeper refused it, once it was tried."""


async def protect_znodes(cluster: Cluster, *, check_paths: bool = False) -> list[AclChange]:
    """Return what must change so that only this session's identity may change Kafka's znodes. Changes nothing.

    Args:
        check_paths: refuse if one of Kafka's roots is missing, as after a typing error in the chroot.

    Raises:
        BadRequest: the session has no identity, a broker has another one, or a root is missing.
    """
    zk = await cluster.zookeeper()
    if not zk.security.identities:
        hint = Phrase("log in: name a JAAS file with a section Client, ", Give(Parameter.JAAS_CONFIG))
        raise BadRequest("znodes cannot be protected: this session has no identity", hint=hint)
    await _refuse_other_brokers(zk)
    if check_paths:
        missing = [path for path in SECURE_ROOTS if path != "/controller" and await zk.exists(path) is None]
        if missing:
            raise BadRequest("these of Kafka's znodes are missing", where=", ".join(missing), hint="check the chroot")
    return await _changes(zk, AclPolicy(is_secure=True))


async def open_znodes(cluster: Cluster) -> list[AclChange]:
    """Return what must change so that everybody may change Kafka's znodes. Changes nothing."""
    return await _changes(await cluster.zookeeper(), AclPolicy())


async def open_brokers(cluster: Cluster) -> list[str]:
    """Return the live brokers whose own znode is open: they run without ``zookeeper.set.acl``."""
    return [broker for broker, acl in await _broker_acls(await cluster.zookeeper()) if acl == OPEN_ACL]


async def change_acls(cluster: Cluster, changes: Sequence[AclChange], *, is_secure: bool) -> list[AclChange]:
    """Set the access lists, children before their parents, and return the changes with what ZooKeeper refused.

    A znode that is gone by then needs none. Interrupted, it can simply be run again.
    """
    cluster.check_may_change()
    zk, policy = await cluster.zookeeper(), AclPolicy(is_secure)
    last_first = sorted(changes, key=lambda change: change.path.count("/") if change.path != "/" else 0, reverse=True)
    outcomes = await zk.set_acl_many((change.path, policy.acl(change.path)) for change in last_first)
    done = []
    for change, outcome in zip(last_first, outcomes, strict=True):
        if isinstance(outcome, NoNode):
            continue
        refused = str(outcome) if isinstance(outcome, ZooKeeperError) else None
        done.append(AclChange(change.path, change.before, change.after, refused))
    return sorted(done, key=lambda change: change.path.split("/"))


async def _changes(zk: ZkClient, policy: AclPolicy) -> list[AclChange]:
    paths = ["/"]
    level = [path for path in (*SECURE_ROOTS, PLAN_LOCK_ROOT) if await zk.exists(path) is not None]
    while level:
        paths += level
        children = await zk.children_many(level)
        level = [
            f"{path}/{name}"
            for path, names in zip(level, children, strict=True)
            if not isinstance(names, ZooKeeperError)
            for name in names
        ]
    changes = []
    for path, read in zip(paths, await zk.get_acl_many(paths), strict=True):
        wanted = policy.acl(path)
        if isinstance(read, NoNode):
            continue
        before = None if isinstance(read, ZooKeeperError) else read[0]
        if before is None or not _means(before, wanted, zk.security):
            changes.append(AclChange(path, None if before is None else acl_texts(before), _shown(wanted, zk.security)))
    return changes


async def _broker_acls(zk: ZkClient) -> list[tuple[str, tuple[Acl, ...]]]:
    try:
        names = await zk.children("/brokers/ids")
    except NoNode:
        return []
    read = await zk.get_acl_many(f"/brokers/ids/{name}" for name in names)
    return [
        (name, answer[0]) for name, answer in zip(names, read, strict=True) if not isinstance(answer, ZooKeeperError)
    ]


async def _refuse_other_brokers(zk: ZkClient) -> None:
    """Refuse to give the znodes to a principal that is not the brokers': they could not write any more."""
    for broker, acl in await _broker_acls(zk):
        owners = [entry for entry in acl if entry.scheme != "world"]
        if owners and not _is_ours(owners, zk.security):
            theirs, ours = ", ".join(acl_texts(owners)), " and ".join(zk.security.identities)
            raise BadRequest(
                f"broker {broker} is {theirs} for ZooKeeper, and this session is {ours}: the broker could not write",
                hint="log in to ZooKeeper as the brokers do",
            )


def _means(acl: Sequence[Acl], wanted: Sequence[Acl], security: ZkSecurity) -> bool:
    """Return whether an access list is what ZooKeeper makes of the wanted one for this session."""
    if "auth" not in {entry.scheme for entry in wanted}:
        return set(acl) == set(wanted)
    owners = [entry for entry in acl if entry.scheme != "world"]
    others = {entry for entry in acl if entry.scheme == "world"}
    all_owned = all(entry.permissions == 31 for entry in owners)
    return all_owned and _is_ours(owners, security) and others == {entry for entry in wanted if entry.scheme == "world"}


def _is_ours(owners: Sequence[Acl], security: ZkSecurity) -> bool:
    """Return whether this session is among the owners, as far as this side can tell."""
    names = {(entry.scheme, entry.identity) for entry in owners}
    for scheme, credentials in security.auth:
        name, _, _ = credentials.partition(":")
        digest = base64.b64encode(hashlib.sha1(credentials.encode(), usedforsecurity=False).digest()).decode()
        if (scheme, f"{name}:{digest}") in names or (scheme, f"{name}:x") in names:
            return True
    for identity in security.identities:
        scheme, _, name = identity.partition(":")
        # ZooKeeper may cut host and realm off a Kerberos principal; a certificate's name is known to it only.
        short = name.partition("@")[0].partition("/")[0]
        if any(s == scheme and (not name or i in (name, name.partition("@")[0], short)) for s, i in names):
            return True
    return False


def _shown(wanted: Sequence[Acl], security: ZkSecurity) -> tuple[str, ...]:
    entries: list[str] = []
    for entry in wanted:
        if entry.scheme == "auth":
            entries += [f"{identity}:cdrwa" for identity in security.identities]
        else:
            entries.append(acl_text(entry))
    return tuple(entries)
