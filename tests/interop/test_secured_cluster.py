"""A broker of klamm and one of Kafka that reach each other by SCRAM over TLS: users, ACLs, kills, both as controller.

Kafka's tools make the topic and the ACLs; librdkafka writes and reads as a user with no more rights than these. Each
engine lets in, renews and ends the delegation tokens of the other.
"""

from __future__ import annotations

import asyncio
import base64
import time
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
from apache_kafka import short_lived_java
from confluent_kafka import Consumer, KafkaError, Producer
from kafka_tools import run_tool

from engine.common.errors import ErrorCode
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import LoginFailed, NetworkError
from engine.kafka.client.security import security_of
from engine.kafka.config.properties import format_properties, parse_properties
from engine.kafka.protocol.apis.create_delegation_token import CreatableRenewers, CreateDelegationTokenRequest
from engine.kafka.protocol.apis.describe_delegation_token import DescribeDelegationTokenRequest
from engine.kafka.protocol.apis.expire_delegation_token import ExpireDelegationTokenRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.apis.renew_delegation_token import RenewDelegationTokenRequest
from engine.kafka.protocol.declaration import Request
from engine.local.cluster import LocalCluster
from engine.local.security import librdkafka_path, properties_path

KLAMM, KAFKA = 0, 1
DEADLINE_S = 90.0


@pytest.fixture(scope="module")
def cluster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[LocalCluster]:
    folder = tmp_path_factory.mktemp("secured")
    kafka = [*map(str, short_lived_java("-Xmx320m")), "kafka.Kafka"]
    config = {
        "zookeeper.session.timeout.ms": "4000",
        "replica.lag.time.max.ms": "4000",
        "offsets.topic.num.partitions": "2",
        "auto.leader.rebalance.enable": "false",
        "delegation.token.secret.key": "token-Secr3t",
        "delegation.token.expiry.check.interval.ms": "1000",
        "log.cleaner.dedupe.buffer.size": "16777216",
    }
    with LocalCluster(
        [KLAMM, KAFKA], directory=folder, config=config, commands={KAFKA: kafka},
        secure=True, sasl="SCRAM-SHA-512", acls=True, start_timeout_s=DEADLINE_S,
    ) as running:  # fmt: skip
        yield running


def as_user(cluster: LocalCluster, user: str) -> dict[str, Any]:
    lines = librdkafka_path(cluster.directory, user).read_text().splitlines()
    return dict(line.split("=", 1) for line in lines) | {"log_level": 2}


def tool(cluster: LocalCluster, main_class: str, *arguments: str) -> str:
    config = str(properties_path(cluster.directory))
    ran = run_tool(main_class, "--bootstrap-server", cluster.bootstrap_servers, "--command-config", config, *arguments)
    assert ran.returncode == 0, ran.stdout + ran.stderr
    return ran.stdout


def send(cluster: LocalCluster, user: str, values: list[str]) -> set[int | None]:
    """Send values to both partitions and return the codes of the errors."""
    codes: set[int | None] = set()
    settings = {"acks": "all", "delivery.timeout.ms": int(DEADLINE_S * 1000), "linger.ms": 0}
    producer = Producer(as_user(cluster, user) | settings)
    for value in values:
        for partition in (0, 1):
            producer.produce(
                "orders", f"{value}-{partition}", partition=partition,
                on_delivery=lambda error, _: codes.add(error and error.code()),
            )  # fmt: skip
    assert producer.flush(DEADLINE_S) == 0
    return codes


def read(cluster: LocalCluster, count: int) -> list[str]:
    settings = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer(as_user(cluster, "alice") | settings)
    consumer.subscribe(["orders"])
    values: list[str] = []
    deadline = time.monotonic() + DEADLINE_S
    try:
        while len(values) < count and time.monotonic() < deadline:
            message = consumer.poll(1)
            if message is not None:
                assert message.error() is None, message.error()
                values.append(message.value().decode())
    finally:
        consumer.close()
    return values


def wait_in_sync(cluster: LocalCluster) -> None:
    deadline = time.monotonic() + DEADLINE_S
    while said := tool(
        cluster,
        "org.apache.kafka.tools.TopicCommand",
        "--describe",
        "--topic",
        "orders",
        "--under-replicated-partitions",
    ).strip():
        assert time.monotonic() < deadline, said


def test_a_mixed_cluster_keeps_what_it_acknowledged_and_who_may_do_what(cluster: LocalCluster) -> None:
    tool(
        cluster, "org.apache.kafka.tools.TopicCommand", "--create", "--topic", "orders",
        "--replica-assignment", f"{KLAMM}:{KAFKA},{KAFKA}:{KLAMM}",
    )  # fmt: skip
    assert send(cluster, "alice", ["refused"]) == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
    tool(
        cluster, "kafka.admin.AclCommand", "--add", "--allow-principal", "User:alice",
        "--producer", "--consumer", "--topic", "orders", "--group", "readers",
    )  # fmt: skip
    wait_until_allowed(cluster)
    assert send(cluster, "bob", ["refused"]) == {KafkaError.TOPIC_AUTHORIZATION_FAILED}
    acknowledged = [f"{value}" for value in range(50)]
    assert send(cluster, "alice", acknowledged) == {None}
    was_controller = set()
    for round_number in (1, 2):
        controller = cluster.controller_id()
        assert controller is not None
        was_controller.add(controller)
        cluster.kill_broker(controller)
        more = [f"{round_number}-{value}" for value in range(50)]
        assert send(cluster, "alice", more) == {None}
        acknowledged += more
        cluster.start_broker(controller)
        wait_in_sync(cluster)
    assert was_controller == {KLAMM, KAFKA}
    expected = sorted(f"{value}-{partition}" for value in acknowledged for partition in (0, 1))
    values = read(cluster, len(expected))
    assert sorted(set(values)) == expected


def wait_until_allowed(cluster: LocalCluster) -> None:
    """Both brokers learn of new ACLs from ZooKeeper, a moment after the tool has ended."""
    producer = Producer(as_user(cluster, "alice"))
    deadline = time.monotonic() + DEADLINE_S
    while any(topic.error for topic in producer.list_topics("orders", timeout=10).topics.values()):
        assert time.monotonic() < deadline
        time.sleep(0.1)


@asynccontextmanager
async def connected(cluster: LocalCluster, broker: int, properties: dict[str, str]) -> AsyncIterator[BrokerClient]:
    host, _, port = cluster.broker(broker).address.rpartition(":")
    client = BrokerClient(host, int(port), client_id="t", security=security_of(properties))
    try:
        yield client
    finally:
        await client.close()


async def asked(cluster: LocalCluster, broker: int, properties: dict[str, str], request: Request, version: int) -> Any:
    async with connected(cluster, broker, properties) as client:
        return await client.send(request, version)


@pytest.mark.parametrize(("maker", "other"), [(KLAMM, KAFKA), (KAFKA, KLAMM)])
def test_a_token_of_one_engine_counts_at_the_other(
    cluster: LocalCluster, maker: int, other: int, tmp_path: Path
) -> None:
    admin, alice, bob = (
        parse_properties(properties_path(cluster.directory, user).read_text()) for user in ("admin", "alice", "bob")
    )
    making = CreateDelegationTokenRequest(
        owner_principal_type="User", owner_principal_name="alice", max_lifetime_ms=3_600_000,
        renewers=[CreatableRenewers(principal_type="User", principal_name="bob")],
    )  # fmt: skip
    tokens = DescribeDelegationTokenRequest(owners=None)

    async def check() -> dict[str, str]:
        made = await asked(cluster, maker, admin, making, 3)
        assert made.error_code == 0
        by_token = alice | {
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{made.token_id}" password="{base64.b64encode(made.hmac).decode()}" tokenauth="true";'
        }
        async with asyncio.timeout(DEADLINE_S):
            while not (seen := (await asked(cluster, other, bob, tokens, 3)).tokens):
                await asyncio.sleep(0.1)
        ((token_id, hmac, expiry_ms),) = [(token.token_id, bytes(token.hmac), token.expiry_timestamp) for token in seen]
        assert (token_id, hmac, expiry_ms) == (made.token_id, made.hmac, made.expiry_timestamp_ms)
        # It lets alice in, and a token makes no other.
        refused = await asked(cluster, other, by_token, making, 3)
        assert refused.error_code == ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
        assert refused.token_requester_principal_name == "alice"
        stranger = await asked(cluster, other, admin, RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=-1), 2)
        assert stranger.error_code == ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
        renewed = await asked(cluster, other, bob, RenewDelegationTokenRequest(hmac=hmac, renew_period_ms=600_000), 2)
        assert renewed.error_code == 0 and renewed.expiry_timestamp_ms < expiry_ms
        async with asyncio.timeout(DEADLINE_S):
            while (await asked(cluster, maker, alice, tokens, 3)).tokens[0].expiry_timestamp != (
                renewed.expiry_timestamp_ms
            ):
                await asyncio.sleep(0.1)
        return by_token | {"token": base64.b64encode(hmac).decode()}

    by_token = asyncio.run(check())
    hmac = base64.b64decode(by_token.pop("token"))
    config = tmp_path / "token.properties"
    config.write_text(format_properties(by_token), encoding="latin-1")
    ran = run_tool("org.apache.kafka.tools.TopicCommand", "--bootstrap-server", cluster.broker(other).address,
                   "--command-config", str(config), "--list")  # fmt: skip
    assert ran.returncode == 0, ran.stdout + ran.stderr

    async def end() -> None:
        ended = await asked(cluster, other, alice, ExpireDelegationTokenRequest(hmac=hmac, expiry_time_period_ms=-1), 2)
        assert ended.error_code == 0
        async with asyncio.timeout(DEADLINE_S):
            while True:
                try:
                    await asked(cluster, maker, by_token, tokens, 3)
                except LoginFailed:
                    break
                await asyncio.sleep(0.1)

    asyncio.run(end())
    listed = [asyncio.run(asked(cluster, broker, bob, tokens, 3)).tokens for broker in (maker, other)]
    assert listed == [[], []]


@pytest.mark.parametrize(("maker", "other"), [(KLAMM, KAFKA), (KAFKA, KLAMM)])
def test_renewals_end_at_a_tokens_longest_life_and_its_time_runs_out(
    cluster: LocalCluster, maker: int, other: int
) -> None:
    """Each engine renews what the other made, and ends it, and lets nobody in or on after that."""
    alice, bob = (parse_properties(properties_path(cluster.directory, user).read_text()) for user in ("alice", "bob"))
    renewers = [CreatableRenewers(principal_type="User", principal_name="bob")]
    making = CreateDelegationTokenRequest(max_lifetime_ms=3_600_000, renewers=renewers)
    tokens = DescribeDelegationTokenRequest(owners=None)

    async def expiry_at(broker: int) -> int | None:
        seen = (await asked(cluster, broker, bob, tokens, 3)).tokens
        return seen[0].expiry_timestamp if seen else None

    async def becomes(broker: int, expiry_ms: int | None) -> None:
        async with asyncio.timeout(DEADLINE_S):
            while await expiry_at(broker) != expiry_ms:
                await asyncio.sleep(0.1)

    async def renewed(broker: int, period_ms: int) -> tuple[int, int]:
        request = RenewDelegationTokenRequest(hmac=made.hmac, renew_period_ms=period_ms)
        answer = await asked(cluster, broker, bob, request, 2)
        return answer.error_code, answer.expiry_timestamp_ms

    async def check() -> None:
        nonlocal made
        made = await asked(cluster, maker, alice, making, 3)
        assert made.error_code == 0
        await becomes(other, made.expiry_timestamp_ms)
        for period_ms in (7_200_000, -1):
            assert await renewed(other, 60_000) < (0, made.max_timestamp_ms)
            assert await renewed(other, period_ms) == (0, made.max_timestamp_ms)
        by_token = alice | {
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required "
            f'username="{made.token_id}" password="{base64.b64encode(made.hmac).decode()}" tokenauth="true";'
        }
        ending = ExpireDelegationTokenRequest(hmac=made.hmac, expiry_time_period_ms=4_000)
        ended = await asked(cluster, other, alice, ending, 2)
        assert ended.error_code == 0 and ended.expiry_timestamp_ms < time.time() * 1000 + 4_000
        await becomes(maker, ended.expiry_timestamp_ms)
        async with connected(cluster, maker, by_token) as at_maker, connected(cluster, other, by_token) as at_other:
            for client in (at_maker, at_other):
                assert (await client.send(MetadataRequest(topics=[]), 9)).brokers
            await becomes(maker, None)
            await becomes(other, None)
            for client in (at_maker, at_other):
                # Its login holds no longer than the token, and cannot be renewed.
                with pytest.raises(NetworkError):
                    await client.send(MetadataRequest(topics=[]), 9)
        for broker in (maker, other):
            assert (await renewed(broker, -1))[0] == ErrorCode.DELEGATION_TOKEN_NOT_FOUND
            with pytest.raises(LoginFailed):
                await asked(cluster, broker, by_token, MetadataRequest(topics=[]), 9)

    made: Any = None
    asyncio.run(check())


def test_apaches_own_tool_makes_shows_renews_and_ends_tokens_of_klamm(cluster: LocalCluster) -> None:
    def ran(*words: str) -> str:
        tool = run_tool("org.apache.kafka.tools.DelegationTokenCommand", "--bootstrap-server",
                        cluster.broker(KLAMM).address, "--command-config",
                        str(properties_path(cluster.directory, "alice")), *words)  # fmt: skip
        assert tool.returncode == 0, tool.stdout + tool.stderr
        return tool.stdout

    made = ran("--create", "--max-life-time-period", "-1", "--renewer-principal", "User:bob")
    (row,) = [line.split() for line in made.splitlines() if "User:alice" in line]
    token_id, hmac = row[:2]
    shown = ran("--describe", "--owner-principal", "User:alice")
    assert token_id in shown and "User:bob" in shown
    assert "Completed renew operation" in ran("--renew", "--renew-time-period", "-1", "--hmac", hmac)
    assert "Completed expire operation" in ran("--expire", "--expiry-time-period", "-1", "--hmac", hmac)
    assert token_id not in ran("--describe", "--owner-principal", "User:alice")


def test_the_secrets_are_nobody_elses_and_go_with_the_cluster(cluster: LocalCluster) -> None:
    secrets = [*cluster.directory.glob("*.properties"), *cluster.directory.glob("*.kcat"),
               *cluster.directory.glob("security/*.pem"), *cluster.directory.glob("broker-*/server.properties"),
               cluster.directory / "local.json"]  # fmt: skip
    assert len(secrets) == 11
    assert {path.stat().st_mode & 0o077 for path in secrets} == {0}
    password = as_user(cluster, "alice")["sasl.password"]
    logs = [path.read_text("utf-8", "replace") for path in Path(cluster.directory).glob("broker-*/logs/*.log")]
    assert logs and not any(password in text for text in logs)
