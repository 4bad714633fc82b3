"""Access rules changed in ZooKeeper: exactly those that were named, and brokers are told."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from event_loop import in_event_loop

from engine.admin.acls.access import add_acls, filter_of, read_acls, remove_acls
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.common.acl import AclOperation, ResourceType
from engine.kafka.acls import AclBinding, AclEntry, AclFilter, PatternType, Permission, ResourcePattern
from engine.kafka.zk.client import ZkClient

CHANGES = ("/kafka-acl-changes", "/kafka-acl-extended-changes")


def rule(
    who: str,
    operation: AclOperation = AclOperation.READ,
    *,
    pattern: PatternType = PatternType.LITERAL,
    permission: Permission = Permission.ALLOW,
    host: str = "*",
) -> AclBinding:
    resource = ResourcePattern(ResourceType.TOPIC, "orders", pattern)
    return AclBinding(resource, AclEntry(f"User:{who}", host, operation, permission))


ALICE, BOB = rule("alice"), rule("bob")
LIKE_ALICE = [
    rule("alice", AclOperation.WRITE),
    rule("alice", host="10.0.0.1"),
    rule("alice", permission=Permission.DENY),
    rule("alice", pattern=PatternType.PREFIXED),
]
"""Each differs from Alice's rule in one thing."""


@asynccontextmanager
async def opened(connect: str, *, is_read_only: bool = False) -> AsyncIterator[tuple[Cluster, ZkClient]]:
    target = ClusterTarget("c", Origin.OPTIONS, zookeeper=connect, via=Side.ZOOKEEPER, is_read_only=is_read_only)
    async with await ZkClient.connect(connect, session_timeout_ms=6_000) as client:
        await client.ensure_path("/brokers/ids")
        async with Cluster(target, timeout_s=20) as cluster:
            yield cluster, client


async def everything(cluster: Cluster) -> set[AclBinding]:
    return set(await read_acls(cluster, [AclFilter(pattern_type=None)]))


async def notices(client: ZkClient) -> list[int]:
    return [len(await client.children(path)) if await client.exists(path) else 0 for path in CHANGES]


@in_event_loop
async def test_added_rules_stand_beside_those_that_are_there(zk_chroot: str) -> None:
    async with opened(zk_chroot) as (cluster, client):
        assert await add_acls(cluster, [ALICE, *LIKE_ALICE]) == []
        assert await notices(client) == [1, 1], "one for each resource"
        assert await add_acls(cluster, [BOB, ALICE]) == []
        assert await everything(cluster) == {ALICE, BOB, *LIKE_ALICE}
        assert await notices(client) == [2, 1]
        assert await add_acls(cluster, [BOB]) == []
        assert await notices(client) == [2, 1], "nothing has changed"
        for acl in (ALICE, BOB, *LIKE_ALICE):
            assert await read_acls(cluster, [filter_of(acl)]) == [acl]


@in_event_loop
async def test_only_the_named_rules_are_removed(zk_chroot: str) -> None:
    async with opened(zk_chroot) as (cluster, client):
        await add_acls(cluster, [ALICE, BOB, *LIKE_ALICE])
        assert await remove_acls(cluster, [ALICE, rule("carol")]) == [ALICE], "the other is not there"
        assert await everything(cluster) == {BOB, *LIKE_ALICE}
        assert await notices(client) == [2, 1]
        assert await remove_acls(cluster, [ALICE]) == []
        assert await notices(client) == [2, 1]
        await remove_acls(cluster, [BOB, *LIKE_ALICE])
        assert await everything(cluster) == set()
        assert not await client.exists("/kafka-acl/Topic/orders"), "a resource without rules has no znode"


@in_event_loop
async def test_a_cluster_that_is_read_only_keeps_its_rules(zk_chroot: str) -> None:
    async with opened(zk_chroot) as (cluster, _):
        await add_acls(cluster, [ALICE])
    async with opened(zk_chroot, is_read_only=True) as (cluster, _):
        for change in (add_acls(cluster, [BOB]), remove_acls(cluster, [ALICE])):
            with pytest.raises(BadRequest, match="read-only"):
                await change
        assert await everything(cluster) == {ALICE}
