"""Rules before inter-broker protocol 2.0, and rules that a broker has not heard of yet: answered as by Apache Kafka."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from apache_kafka import ApacheKafkaBroker
from broker_program import BrokerProgram, settings
from kazoo.client import KazooClient
from side_by_side import SideBySide
from wire_client import controller_address

from engine.kafka.protocol.apis.create_acls import AclCreation, CreateAclsRequest
from engine.kafka.protocol.apis.delete_acls import DeleteAclsFilter, DeleteAclsRequest
from engine.kafka.protocol.apis.describe_acls import DescribeAclsRequest
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

OLD = {
    "inter.broker.protocol.version": "1.1",
    "authorizer.class.name": "kafka.security.authorizer.AclAuthorizer",
    "super.users": "User:ANONYMOUS",
    "controlled.shutdown.enable": "false",
    "offsets.topic.replication.factor": "1",
}
TOPIC, ALLOW, READ, ANY, LITERAL, PREFIXED = 2, 3, 3, 1, 3, 4
CHROOTS = ("kafka", "klamm")


@pytest.fixture(scope="module")
def zookeeper() -> Iterator[EmbeddedZooKeeper]:
    with EmbeddedZooKeeper(host=own_loopback_address(), fsync=False) as server:
        yield server


@pytest.fixture(scope="module")
def both(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    folder, host = tmp_path_factory.mktemp("old-rules"), zookeeper.connect_string.partition(":")[0]
    with ExitStack() as stack:
        klamm, kafka = (f"{zookeeper.connect_string}/{chroot}" for chroot in reversed(CHROOTS))
        own = {**settings(folder / "klamm", host, klamm), **OLD, "listeners": f"PLAINTEXT://{host}:21093"}
        ours = stack.enter_context(BrokerProgram(folder / "klamm", own))
        apache = ApacheKafkaBroker(
            folder / "kafka",
            broker_id=0,
            host=host,
            port=21092,
            zookeeper_connect=kafka,
            overrides=OLD,
            shares_jvm=True,
        )
        stack.callback(apache.stop)
        apache.start()
        ours.wait_until_started()
        controller_address(f"{host}:21093")
        sides = SideBySide(apache.bootstrap, f"{host}:21093")
        stack.callback(sides.close)
        yield sides


def rule(topic: str, principal: str = "User:a", pattern_type: int = LITERAL) -> AclCreation:
    return AclCreation(
        resource_type=TOPIC,
        resource_name=topic,
        resource_pattern_type=pattern_type,
        principal=principal,
        host="*",
        operation=READ,
        permission_type=ALLOW,
    )


def deleting(topic: str | None, principal: str | None = None, pattern_type: int = LITERAL) -> DeleteAclsRequest:
    wanted = DeleteAclsFilter(
        resource_type_filter=TOPIC,
        resource_name_filter=topic,
        pattern_type_filter=pattern_type,
        principal_filter=principal,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )
    return DeleteAclsRequest(filters=[wanted])


def describing() -> DescribeAclsRequest:
    return DescribeAclsRequest(
        resource_type_filter=TOPIC,
        resource_name_filter=None,
        pattern_type_filter=ANY,
        principal_filter=None,
        host_filter=None,
        operation=ANY,
        permission_type=ANY,
    )


def write_silently(zookeeper: EmbeddedZooKeeper, topic: str, *principals: str) -> None:
    """Write rules as another broker does, whose notice has not come yet."""
    rules = ",".join(
        f'{{"principal":"{name}","permissionType":"Allow","operation":"Read","host":"*"}}' for name in principals
    )
    data = f'{{"version":1,"acls":[{rules}]}}'.encode()
    client = KazooClient(zookeeper.connect_string)
    client.start()
    try:
        for chroot in CHROOTS:
            path = f"/{chroot}/kafka-acl/Topic/{topic}"
            if client.exists(path):
                client.set(path, data)
            else:
                client.create(path, data, makepath=True)
    finally:
        client.stop()
        client.close()


def test_a_prefixed_rule_is_refused_and_the_others_are_added(both: SideBySide) -> None:
    both.differences.clear()
    mixed = CreateAclsRequest(creations=[rule("kept"), rule("pre", pattern_type=PREFIXED), rule("also-kept")])
    both.ask("create", mixed, [1, 2, 3])
    both.ask("describe", describing(), [1, 3])
    both.ask("delete prefixed", deleting("pre", pattern_type=PREFIXED), [1, 3])
    both.ask("delete", deleting("kept"), [1])
    both.ask("delete again", deleting("kept"), [3])
    both.ask("describe then", describing(), [1, 3])
    assert not both.differences, "\n".join(both.differences)


def test_a_named_pattern_that_is_not_known_yet_is_found_and_others_are_not(
    both: SideBySide, zookeeper: EmbeddedZooKeeper
) -> None:
    both.differences.clear()
    both.ask("create", CreateAclsRequest(creations=[rule("stale")]), [2])
    write_silently(zookeeper, "stale", "User:a", "User:b")
    write_silently(zookeeper, "unheard", "User:a")
    write_silently(zookeeper, "unheard-too", "User:a")
    both.ask("describe", describing(), [2])
    both.ask("a rule of a known pattern", deleting("stale", "User:b"), [2])
    both.ask("a named pattern", deleting("unheard"), [2])
    both.ask("every pattern", deleting(None), [2])
    both.ask("what is left", deleting("unheard-too"), [2])
    both.ask("describe then", describing(), [2])
    assert not both.differences, "\n".join(both.differences)
