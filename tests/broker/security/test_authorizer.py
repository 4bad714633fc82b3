"""The authorizer on a real ZooKeeper: what it decides, when it hears of changes, and what it makes of damage."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from types import SimpleNamespace
from typing import Any

import pytest
from event_loop import staged
from network_serving import run, session

from engine.broker.handlers.acls import create_acls, delete_acls
from engine.broker.network.session import Session
from engine.broker.security import authorizer as authorizer_module
from engine.broker.security.authorizer import AclRules, Authorizer
from engine.common.acl import AclOperation, ResourceType
from engine.common.clock import SystemClock
from engine.common.errors import ErrorCode
from engine.kafka.acls import AclEntry, AclFilter, PatternType, Permission, ResourcePattern
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from engine.kafka.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from engine.kafka.zk.acls import LiteralAclChangeZNode, ResourceZNode
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import ZnodeFormatError
from engine.kafka.zk.kafka_client import KafkaZkClient

ORDERS = ResourcePattern(ResourceType.TOPIC, "orders")
PREFIX = ResourcePattern(ResourceType.TOPIC, "ord", PatternType.PREFIXED)
PATIENCE_S = 20.0

NO_ZOOKEEPER: Any = SimpleNamespace(client=None)
"""For an authorizer that is not started: tests give it its rules."""


def allow(principal: str = "User:alice", operation: AclOperation = AclOperation.READ, host: str = "*") -> AclEntry:
    return AclEntry(principal, host, operation, Permission.ALLOW)


def deny(principal: str = "User:alice", operation: AclOperation = AclOperation.READ) -> AclEntry:
    return AclEntry(principal, "*", operation, Permission.DENY)


def user(name: str = "alice") -> Session:
    user_session = session()
    user_session.principal = f"User:{name}"
    return user_session


@asynccontextmanager
async def open_authorizer(
    connect: str, *, allows_without_rules: bool = False
) -> AsyncIterator[tuple[Authorizer, KafkaZkClient]]:
    client = await ZkClient.connect(connect, session_timeout_ms=6_000)
    try:
        zk = KafkaZkClient(client)
        await zk.cluster.make_persistent_paths()
        made = Authorizer(zk, SystemClock(), super_users=["User:admin"], allows_without_rules=allows_without_rules)
        await made.start()
        yield made, zk
        await made.stop()
    finally:
        await client.close()


def may(
    authorizer: Authorizer, who: Session, topic: str = "orders", operation: AclOperation = AclOperation.READ
) -> bool:
    return authorizer.may(who, operation, ResourceType.TOPIC, topic, request="Fetch")


async def becomes(expected: bool, authorizer: Authorizer, who: Session, topic: str = "orders") -> None:
    async with asyncio.timeout(PATIENCE_S):
        while may(authorizer, who, topic) is not expected:
            await asyncio.sleep(0.005)


@staged(run)
async def test_a_change_reaches_every_broker_and_every_session(zk_chroot: str) -> None:
    async with open_authorizer(zk_chroot) as (authorizer, zk), open_authorizer(zk_chroot) as (other, _):
        alice, elsewhere = user(), user()
        assert not may(authorizer, alice) and not may(other, elsewhere)
        for pattern, topic in ((ORDERS, "orders"), (PREFIX, "ord-2")):
            await zk.acls.change(pattern, lambda before: (*before, allow()))
            await becomes(True, other, elsewhere, topic)
            await becomes(True, authorizer, alice, topic)
            await zk.acls.change(pattern, lambda before: (*before, deny()))
            await becomes(False, other, elsewhere, topic)
            await zk.acls.change(pattern, lambda before: ())
            await becomes(False, authorizer, alice, topic)
        assert may(authorizer, user("admin"))
    # One that starts later reads what is there.
    async with open_authorizer(zk_chroot) as (_, zk):
        await zk.acls.change(PREFIX, lambda before: (allow(),))
    async with open_authorizer(zk_chroot) as (late, _):
        assert may(late, user()) and not may(late, user("bob")) and not may(late, user(), "other")


@staged(run)
async def test_what_the_creator_has_changed_counts_at_once(zk_chroot: str) -> None:
    async with open_authorizer(zk_chroot) as (authorizer, zk):
        alice = user()
        assert not may(authorizer, alice)
        await zk.acls.change(ORDERS, lambda before: (allow(),))
        await authorizer.refresh(ORDERS)
        assert may(authorizer, alice)


@staged(run)
async def test_a_right_that_another_broker_has_just_given_can_be_taken_away(zk_chroot: str) -> None:
    """Kafka's AclAuthorizer promises it to whoever names the pattern; until then this broker has not heard of it."""
    async with open_authorizer(zk_chroot) as (authorizer, zk):
        await authorizer.stop()
        for pattern in (ORDERS, PREFIX):
            await zk.acls.change(pattern, lambda before: (allow(),))
        where: Any = SimpleNamespace(broker=SimpleNamespace(authorizer=authorizer, zk=zk), size_bytes=0)
        for pattern in (ORDERS, PREFIX):
            taking = DeleteAclsFilter(
                resource_type_filter=2, resource_name_filter=pattern.name,
                pattern_type_filter=pattern.pattern_type.code, operation=1, permission_type=1,
            )  # fmt: skip
            (taken,) = (await delete_acls(where, DeleteAclsRequest(filters=[taking]))).filter_results
            assert [(acl.resource_name, acl.principal) for acl in taken.matching_acls] == [(pattern.name, "User:alice")]
            assert await zk.acls.get(pattern) == ()


def test_filters_that_name_their_patterns_are_compared_with_no_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """4,000 of them took 4 s, and held the event loop for 100 ms at a time. The first that takes a rule reports it."""
    compared: list[ResourcePattern] = []
    takes = AclFilter.takes_pattern

    def counted(self: AclFilter, pattern: ResourcePattern) -> bool:
        compared.append(pattern)
        return takes(self, pattern)

    async def change(pattern: ResourcePattern, left: Any) -> tuple[AclEntry, ...]:
        return (allow(),)

    async def refresh(pattern: ResourcePattern) -> None:
        pass

    def named(name: str | None) -> DeleteAclsFilter:
        return DeleteAclsFilter(
            resource_type_filter=2, resource_name_filter=name, pattern_type_filter=3, operation=1, permission_type=1
        )

    async def check() -> None:
        known = [ResourcePattern(ResourceType.TOPIC, name) for name in ("orders", "t7")]
        authorizer = SimpleNamespace(rules=SimpleNamespace(all=known), refresh=refresh)
        broker = SimpleNamespace(authorizer=authorizer, zk=SimpleNamespace(acls=SimpleNamespace(change=change)))
        where: Any = SimpleNamespace(broker=broker, size_bytes=0)
        filters = [named(f"t{number}") for number in range(100)]
        await delete_acls(where, DeleteAclsRequest(filters=filters))
        assert compared == []
        answer = await delete_acls(where, DeleteAclsRequest(filters=[*filters[:50], named(None), *filters[50:]]))
        assert [[acl.resource_name for acl in each.matching_acls] for each in answer.filter_results] == [
            *([f"t{number}"] for number in range(50)),
            [*(f"t{number}" for number in range(50, 100)), "orders"],
            *[[]] * 50,
        ]

    monkeypatch.setattr(AclFilter, "takes_pattern", counted)
    run(check)


@pytest.mark.parametrize(("version", "error"), [("1.1", ErrorCode.INVALID_REQUEST), ("2.0", ErrorCode.NONE)])
@staged(run)
async def test_older_brokers_would_not_obey_rules_for_prefixes(zk_chroot: str, version: str, error: ErrorCode) -> None:
    async with open_authorizer(zk_chroot) as (authorizer, zk):
        config = SimpleNamespace(inter_broker_protocol_version=parse_metadata_version(version))
        where: Any = SimpleNamespace(broker=SimpleNamespace(authorizer=authorizer, zk=zk, config=config))
        creation = AclCreation(
            resource_type=2, resource_name="ord", resource_pattern_type=PatternType.PREFIXED.code,
            principal="User:alice", host="*", operation=AclOperation.READ, permission_type=3,
        )  # fmt: skip
        (result,) = (await create_acls(where, CreateAclsRequest(creations=[creation]))).results
        assert result.error_code == error
        assert may(authorizer, user()) is (error is ErrorCode.NONE)


@staged(run)
async def test_damaged_rules_let_nobody_in(zk_chroot: str) -> None:
    async with open_authorizer(zk_chroot, allows_without_rules=True) as (authorizer, zk):
        alice = user()
        assert may(authorizer, alice)
        await zk.acls.change(ORDERS, lambda before: (allow(),))
        await becomes(True, authorizer, alice)
        await zk.client.set(ResourceZNode.path(ORDERS), b"damaged", -1)
        change = LiteralAclChangeZNode
        await zk.client.create(change.create_path, change.encode(ORDERS), sequential=True)
        await becomes(False, authorizer, alice)
        assert may(authorizer, alice, "other") and may(authorizer, user("admin"))
        await zk.client.set(ResourceZNode.path(ORDERS), ResourceZNode.encode([allow()]), -1)
        await zk.client.create(change.create_path, change.encode(ORDERS), sequential=True)
        await becomes(True, authorizer, alice)
        await zk.client.set(ResourceZNode.path(ORDERS), b"damaged", -1)
    with pytest.raises(ZnodeFormatError, match="/kafka-acl/Topic/orders"):
        async with open_authorizer(zk_chroot):
            pass


@staged(run)
async def test_sessions_remember_a_bounded_memory_and_nothing_beyond_a_change(monkeypatch: pytest.MonkeyPatch) -> None:
    """Names are the clients' choice. Who has asked about most forgets, and nobody else."""
    monkeypatch.setattr(authorizer_module, "REMEMBERED_BYTES_MAX", 1_000_000)
    authorizer = Authorizer(NO_ZOOKEEPER, SystemClock(), super_users=[], allows_without_rules=False)
    alice, others = user(), [user(f"mallory-{number}") for number in range(20)]
    authorizer.rules.put(ORDERS, (allow(),))
    assert may(authorizer, alice)
    for number in range(1000):
        for other in others:
            assert not may(authorizer, other, f"{number}".zfill(30_000 if number % 50 == 0 else 10))
        remembered = [sum(200 + len(name) for _, _, name in each.decisions) for each in others]
        assert sum(remembered) < 1_100_000
    assert len(alice.decisions) == 1
    others.clear()
    for number in range(3000):
        assert not may(authorizer, alice, f"{number}")
    assert len(alice.decisions) == 3001, "those of sessions that have ended do not count"
    assert may(authorizer, alice)
    authorizer.rules.put(ORDERS, (allow(), deny()))
    assert not may(authorizer, alice)


@staged(run)
async def test_hosts_and_any_topic() -> None:
    authorizer = Authorizer(NO_ZOOKEEPER, SystemClock(), super_users=[], allows_without_rules=False)
    authorizer.rules.put(ORDERS, (allow(host="10.0.0.1", operation=AclOperation.WRITE),))
    here, host = user(), user()
    host.host = "10.0.0.1"
    assert not may(authorizer, here, operation=AclOperation.WRITE) and may(
        authorizer, host, operation=AclOperation.WRITE
    )
    assert authorizer.may_on_any(host, AclOperation.WRITE, ResourceType.TOPIC)
    assert not authorizer.may_on_any(here, AclOperation.WRITE, ResourceType.TOPIC)
    assert (
        authorizer.operations(host, ResourceType.TOPIC, "orders")
        == 1 << AclOperation.WRITE | 1 << AclOperation.DESCRIBE
    )


def test_rules_are_found_by_name_and_by_prefix() -> None:
    rules = AclRules()
    everything = ResourcePattern(ResourceType.TOPIC, "*")
    group = ResourcePattern(ResourceType.GROUP, "orders")
    for pattern in (ORDERS, PREFIX, everything, group):
        rules.put(pattern, (allow(),))
    assert rules.about(ResourceType.TOPIC, "orders").keys() == {ORDERS, PREFIX, everything}
    assert rules.about(ResourceType.TOPIC, "o").keys() == {everything}
    longer, beside = (ResourcePattern(ResourceType.TOPIC, name, PatternType.PREFIXED) for name in ("orde", "orx"))
    for pattern in (longer, beside):
        rules.put(pattern, (allow(),))
    assert rules.about(ResourceType.TOPIC, "ordering").keys() == {PREFIX, longer, everything}
    for pattern in (longer, beside):
        rules.put(pattern, ())
    assert rules.about(ResourceType.TOPIC, "ordering").keys() == {PREFIX, everything}
    version = rules.version
    rules.put(PREFIX, ())
    assert rules.about(ResourceType.TOPIC, "ordx").keys() == {everything}
    assert rules.version > version


def test_denials_are_logged_in_kafkas_words(caplog: pytest.LogCaptureFixture) -> None:
    async def check() -> None:
        authorizer = Authorizer(NO_ZOOKEEPER, SystemClock(), super_users=["User:admin"], allows_without_rules=False)
        with caplog.at_level(logging.DEBUG, "kafka.authorizer.logger"):
            may(authorizer, user())
            may(authorizer, user("admin"))
            authorizer.may(user(), AclOperation.DESCRIBE, ResourceType.TOPIC, "x", request="Metadata", tells=False)

    run(check)
    end = "Operation = Read from host = 127.0.0.1 on resource = Topic:LITERAL:orders for request = Fetch with " \
          "resourceRefCount = 1"  # fmt: skip
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", f"Principal = User:alice is Denied {end}"),
        ("DEBUG", f"Principal = User:admin is Allowed {end}"),
    ]
