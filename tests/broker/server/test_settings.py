"""From settings to parts: what a broker refuses to serve, limits by address, and who blocked the event loop."""

from __future__ import annotations

import asyncio
import logging
import socket
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from event_loop import staged
from network_serving import run
from secured_zookeeper import digest_module

from engine.broker.coordinator.transactions.settings import transaction_settings
from engine.broker.log.log_manager import LogManager
from engine.broker.network.server import BoundListener, SocketServer
from engine.broker.replication import fetcher_manager
from engine.broker.replication.fetch_table import InitialFetchState
from engine.broker.replication.metadata_cache import MetadataCache
from engine.broker.server.kafka_server import LOOP_LAG_MS_MAX, KafkaServer
from engine.broker.server.own_listeners import OwnListeners
from engine.broker.server.settings import (
    advertised,
    channel_settings,
    check_served,
    listener_spec,
    random_cluster_id,
    replication_settings,
    server_limits,
    zookeeper_security,
)
from engine.common.errors import ConfigError, OperationError
from engine.common.model import Node, TopicPartition
from engine.kafka.client.broker_client import SetupTimeouts
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.runtime.loop_lag import LoopLagGauge


def config(**settings: str) -> BrokerConfig:
    given = {key.replace("_", "."): value for key, value in settings.items()}
    return BrokerConfig({"broker.id": "1", "zookeeper.connect": "127.0.0.1:2181", **given})


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"authorizer_class_name": "a.b.Authorizer"}, "a.b.Authorizer"),
        ({"create_topic_policy_class_name": "a.b.Policy"}, "create.topic.policy.class.name=a.b.Policy is a Java class"),
        ({"alter_config_policy_class_name": "a.b.Policy"}, "alter.config.policy.class.name=a.b.Policy is a Java class"),
        ({"client_quota_callback_class": "a.b.Quotas"}, "client.quota.callback.class=a.b.Quotas is a Java class"),
        ({"authorizer_class_name": "kafka.security.authorizer.AclAuthorizer", "super_users": "admin"}, "super.users"),
        (
            {
                "authorizer_class_name": "kafka.security.auth.SimpleAclAuthorizer",
                "allow_everyone_if_no_acl_found": "yes",
            },
            "allow.everyone.if.no.acl.found",
        ),
    ],
)
def test_a_broker_does_not_start_less_protected_than_it_is_told(settings: dict[str, str], named: str) -> None:
    with pytest.raises(ConfigError, match=named):
        check_served(config(**settings))


def test_znodes_are_not_protected_for_nobody(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.delenv("KAFKA_OPTS", raising=False)
    with pytest.raises(ConfigError, match="has no identity for ZooKeeper"):
        zookeeper_security(config(zookeeper_set_acl="true"))
    jaas = tmp_path / "jaas.conf"
    jaas.write_text(f"Client {{ {digest_module('kafka', 'secret')} }};")
    monkeypatch.setenv("KAFKA_OPTS", f"-Djava.security.auth.login.config={jaas}")
    assert zookeeper_security(config(zookeeper_set_acl="true")).is_protecting
    # As Kafka's brokers do: a login by itself protects nothing.
    assert not zookeeper_security(config()).is_protecting


def test_plain_listeners_are_served() -> None:
    served = config(listeners="PLAINTEXT://127.0.0.1:9092")
    check_served(served)
    (endpoint,) = served.listener_settings.advertised_listeners
    with socket.create_server(("127.0.0.1", 0)) as listening:
        open_listeners = {"PLAINTEXT": BoundListener(listener_spec(endpoint), listening)}
        assert [str(e) for e in advertised([endpoint], open_listeners)] == ["PLAINTEXT://127.0.0.1:9092"]
        port = listening.getsockname()[1]
        (listener,) = advertised([replace(endpoint, port=0), replace(endpoint, listener_name="CLOSED")], open_listeners)
        assert listener.port == port


def test_limits_of_connections_by_address() -> None:
    limits = server_limits(
        config(max_connections_per_ip="5", max_connections_per_ip_overrides="localhost:9,10.0.0.1:2")
    )
    assert limits.max_connections_per_ip == 5
    assert limits.max_connections_per_ip_overrides == {"127.0.0.1": 9, "10.0.0.1": 2}
    overrides = "::1:3,2001:db8:0::7:4,::ffff:10.0.0.2:5"
    by_address = server_limits(config(max_connections_per_ip_overrides=overrides)).max_connections_per_ip_overrides
    assert by_address == {"0:0:0:0:0:0:0:1": 3, "2001:db8:0:0:0:0:0:7": 4, "10.0.0.2": 5}
    for unknown in ("no-such-host.invalid", f"{'a' * 64}.invalid"):
        with pytest.raises(ConfigError, match=f"the host '{unknown}' is unknown"):
            server_limits(config(max_connections_per_ip_overrides=f"{unknown}:1"))


def test_time_outs_between_brokers(monkeypatch: pytest.MonkeyPatch) -> None:
    """As in Kafka 3.9.1, a socket's time-out is for connecting: a fetch may wait as long as that at the leader."""
    given = {"replica_fetch_wait_max_ms": "500", "replica_socket_timeout_ms": "500", "request_timeout_ms": "7000"}
    given |= {"socket_connection_setup_timeout_ms": "40", "socket_connection_setup_timeout_max_ms": "90"}
    made = config(**given, controller_socket_timeout_ms="600")
    clients: list[dict[str, Any]] = []

    def client(*_: Any, **options: Any) -> SimpleNamespace:
        clients.append(options)
        return SimpleNamespace()

    monkeypatch.setattr(fetcher_manager, "BrokerClient", client)

    async def check() -> None:
        partition = TopicPartition("t", 0)
        host = SimpleNamespace(settings=replication_settings(made), hosted_partition=lambda _: None)
        manager = fetcher_manager.FetcherManager(cast("Any", host))
        manager.add({partition: InitialFetchState(bytes(16), Node(1, "broker-1", 9092), 0, 0)})
        await manager.stop()

    run(check)
    ((follower),) = clients
    assert (follower["connect_timeout_ms"], follower["request_timeout_ms"]) == (500, 7000)
    assert follower["setup_timeouts"] == SetupTimeouts(40, 40)
    controller = channel_settings(made)
    assert (controller.connect_timeout_ms, controller.request_timeout_ms) == (600, 7000)
    assert controller.setup_timeouts == SetupTimeouts(40, 40)
    markers = transaction_settings(made)
    assert (markers.setup_timeouts, markers.request_timeout_ms) == (SetupTimeouts(40, 90), 7000)


def test_the_listener_of_the_brokers_is_protected_where_it_is_their_own() -> None:
    two = "A://127.0.0.1:9092,B://127.0.0.1:9093"
    names = {"listener_security_protocol_map": "A:PLAINTEXT,B:PLAINTEXT", "inter_broker_listener_name": "B"}
    assert server_limits(config(listeners=two, **names)).protected_listeners == {"B"}
    assert server_limits(config(listeners="PLAINTEXT://127.0.0.1:9092")).protected_listeners == set()


def test_cluster_ids_have_kafkas_form() -> None:
    assert len(random_cluster_id()) == 22
    assert random_cluster_id() != random_cluster_id()


@staged(run)
async def test_the_gauge_sees_who_holds_the_loop_and_the_log_tells(caplog: pytest.LogCaptureFixture) -> None:
    gauge = LoopLagGauge()
    gauge.start()
    await asyncio.sleep(0)
    time.sleep(0.25)  # The test blocks the event loop on purpose.
    async with asyncio.timeout(30):
        while gauge.lag_ms_max == 0:
            await asyncio.sleep(0.01)
    assert gauge.lag_ms_max > LOOP_LAG_MS_MAX
    server = KafkaServer(config())
    server.loop_lag = gauge
    with caplog.at_level(logging.WARNING):
        server._tell_loop_lag()
    assert "event loop was blocked" in caplog.text
    assert gauge.take_max_ms() == 0
    gauge.stop()
    server.offloader.close()


async def accept() -> None:
    """There is nothing to accept on."""


NO_LISTENERS = cast("OwnListeners", SimpleNamespace(accept=accept, advertised=()))


@pytest.mark.parametrize("logs", [{}, {("orders", 0): "a log"}])
@staged(run)
async def test_a_broker_that_has_replicas_expects_to_hear_of_topics(logs: dict[tuple[str, int], str]) -> None:
    server = KafkaServer(config())
    server.metadata_cache = MetadataCache(0)
    server.log_manager = cast("LogManager", SimpleNamespace(logs=logs))
    server.network = cast("SocketServer", SimpleNamespace(start_idle_sweep=lambda: None))
    server._listeners = NO_LISTENERS
    await server._open_network()
    assert server.metadata_cache.expects_topics is bool(logs)
    server.offloader.close()


@pytest.mark.parametrize(("ibp", "ends"), [("0.11.0-IV2", True), ("1.0", False)])
@staged(run)
async def test_a_failed_log_dir_ends_a_broker_whose_controller_may_not_know_what_that_is(ibp: str, ends: bool) -> None:
    """As in Kafka 3.9.1 (ReplicaManager.startup)."""
    settings = {"inter_broker_protocol_version": ibp, "log_message_format_version": ibp}
    server = KafkaServer(config(**settings))
    server.log_manager = cast("LogManager", SimpleNamespace(live_dirs=[Path("left")]))
    server._log_dir_failed(Path("gone"))
    assert (server.failure is not None) is ends
    server.offloader.close()


class TakenId:
    """ZooKeeper where another broker has the id."""

    async def register_broker(self, registration: object) -> int:
        raise OperationError("broker id 1 is already registered in ZooKeeper: session=0x7 listeners=PLAINTEXT://b:9092")


@staged(run)
async def test_a_broker_whose_id_was_taken_between_two_sessions_ends(caplog: pytest.LogCaptureFixture) -> None:
    server = KafkaServer(config())
    server.zk = cast("KafkaZkClient", SimpleNamespace(brokers=TakenId()))
    server._listeners = NO_LISTENERS
    with pytest.raises(OperationError):
        await server._register_again()
    async with asyncio.timeout(30):
        await server.wait_for_stop_request()
    assert server.failure is not None
    assert "already registered in ZooKeeper: session=0x7" in server.failure
    assert server.failure in caplog.text
    server.offloader.close()
