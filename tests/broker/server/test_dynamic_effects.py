"""What a change of a broker's settings at run time changes in the broker's parts."""

from __future__ import annotations

import socket
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import pytest
from event_loop import in_event_loop, until
from log_folders import NOW_MS, data_batch
from virtual_time import ManualClock

from engine.broker.log import log_manager
from engine.broker.log.log_dir_loader import LogDirLoader
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.broker.network.request import RequestHead
from engine.broker.network.routes import RouteTable
from engine.broker.network.server import SocketServer
from engine.broker.replication.throttle import ALL_REPLICAS
from engine.broker.server.dynamic_effects import follow_limits, follow_quotas, follow_settings, set_log_settings
from engine.broker.server.settings import server_limits
from engine.common.model import TopicPartition
from engine.kafka.config import dynamic
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import TOPICS, DynamicConfigs
from engine.kafka.config.log_config import LogConfig
from engine.kafka.config.values import LONG_MAX
from engine.runtime import turns

BASE = {"zookeeper.connect": "z:1", "broker.id": "1", "max.connections": "100"}


@in_event_loop
async def test_limits_of_connections_follow_their_settings(caplog: pytest.LogCaptureFixture) -> None:
    configs = DynamicConfigs(BrokerConfig.from_properties(BASE))
    configs.apply("brokers", "1", {"max.connections": "8"})
    network = SocketServer(
        RouteTable({}, lambda request, body: None), RequestHead, server_limits(configs.static), ManualClock()
    )
    follow_limits(configs, network)
    assert network.limits.max_connections == 8
    configs.apply("brokers", "1", {})
    configs.apply("brokers", "<default>", {"max.connections": "7", "max.connections.per.ip": "3"})
    assert (network.limits.max_connections, network.limits.max_connections_per_ip) == (7, 3)
    configs.apply("brokers", "1", {"max.connections": "9", "max.connections.per.ip.overrides": "10.0.0.1:2"})
    assert network.limits.max_connections == 9
    assert network.limits.max_connections_per_ip_overrides == {"10.0.0.1": 2}
    configs.apply("brokers", "1", {"max.connections.per.ip.overrides": "no-such-host.invalid:2"})
    assert network.limits.max_connections == 7
    assert network.limits.max_connections_per_ip_overrides == {"10.0.0.1": 2}
    await until(lambda: "no-such-host.invalid" in caplog.text)
    assert network.limits.max_connections_per_ip_overrides == {"10.0.0.1": 2}
    configs.apply("brokers", "<default>", {})
    assert network.limits.max_connections == 100


@in_event_loop
async def test_the_loop_does_not_wait_for_a_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    """Changes that come meanwhile are made afterwards, in their order."""
    answers, asked = threading.Event(), []

    def getaddrinfo(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        if host.endswith(".example"):
            assert answers.wait(30)
            return [(socket.AF_INET, 0, 0, "", ("10.0.0.9", 0))]
        return [(socket.AF_INET, 0, 0, "", (host, 0))]

    monkeypatch.setattr(socket, "getaddrinfo", getaddrinfo)
    configs = DynamicConfigs(BrokerConfig.from_properties(BASE))
    network = SocketServer(
        RouteTable({}, lambda request, body: None), RequestHead, server_limits(configs.static), ManualClock()
    )
    follow_limits(configs, network)
    follow_quotas(configs, Mock(), network.rates)
    limited = Mock(side_effect=[RuntimeError("a fault"), None, None])
    monkeypatch.setattr(network.rates, "limit_address", limited)
    configs.apply("brokers", "1", {"max.connections.per.ip.overrides": "slow.example:2"})
    configs.apply("brokers", "1", {"max.connections.per.ip.overrides": "10.0.0.1:3"})
    configs.apply("ips", "slow.example", {"connection_creation_rate": "4"})
    configs.apply("ips", "10.0.0.1", {"connection_creation_rate": "5"})
    configs.apply("ips", "<default>", {"connection_creation_rate": "6"})
    assert network.limits.max_connections_per_ip_overrides == {} and not limited.called
    answers.set()
    await until(lambda: limited.call_count == 3)
    assert limited.call_args_list == [call("10.0.0.9", 4), call("10.0.0.1", 5), call(None, 6)]
    await until(lambda: network.limits.max_connections_per_ip_overrides == {"10.0.0.1": 3})
    configs.apply("brokers", "1", {"max.connections.per.ip.overrides": "10.0.0.1:7"})
    assert network.limits.max_connections_per_ip_overrides == {"10.0.0.1": 7}, "an address alone counts at once"


def test_a_listener_that_opens_for_clients_leaves_the_brokers_theirs() -> None:
    """As in Kafka, what limits all connections spares those of brokers once they have a listener of their own."""
    first = "PLAINTEXT://127.0.0.1:9092"
    configs = DynamicConfigs(BrokerConfig.from_properties({**BASE, "listeners": first}))
    network = SocketServer(
        RouteTable({}, lambda request, body: None), RequestHead, server_limits(configs.static), ManualClock()
    )
    follow_limits(configs, network)
    assert (network.limits.protected_listeners, network.rates.protected) == (set(), set())
    map_of_both = {"listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CLIENTS:PLAINTEXT"}
    configs.apply("brokers", "1", {"listeners": f"{first},CLIENTS://127.0.0.1:9093", **map_of_both})
    assert (network.limits.protected_listeners, network.rates.protected) == ({"PLAINTEXT"}, {"PLAINTEXT"})
    configs.apply("brokers", "1", {})
    assert (network.limits.protected_listeners, network.rates.protected) == (set(), set())


def test_logs_are_recovered_with_as_many_threads_as_are_set_in_zookeeper(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[int] = []

    def loader(*of: Any) -> LogDirLoader:
        made = LogDirLoader(*of)
        asked.append(made.recovery_threads)
        return made

    monkeypatch.setattr("engine.broker.log.log_manager.LogDirLoader", loader)
    configs = DynamicConfigs(BrokerConfig.from_properties({**BASE, "num.recovery.threads.per.data.dir": "2"}))
    configs.apply("brokers", "<default>", {"num.recovery.threads.per.data.dir": "3"})
    manager = LogManager(LogManagerConfig((tmp_path / "d",)), lambda _: LogConfig(), ManualClock(NOW_MS), print)
    set_log_settings(manager, configs.current)
    manager.load()
    assert asked == [3]
    manager.release()


def test_producers_expire_by_the_time_that_is_set_now(tmp_path: Path) -> None:
    clock = ManualClock(NOW_MS)
    manager = LogManager(LogManagerConfig((tmp_path / "d",)), lambda _: LogConfig(), clock, print)
    manager.load()
    logs = [manager.get_or_create(TopicPartition("t", 0), is_new=True)]
    set_log_settings(manager, BrokerConfig.from_properties({**BASE, "producer.id.expiration.ms": "1000"}))
    logs.append(manager.get_or_create(TopicPartition("t", 1), is_new=True))
    for log in logs:
        log.append_as_leader(data_batch(b"v", timestamp_ms=NOW_MS, producer=(1, 0, 0)), 0)
    clock.advance(1000)
    list(manager.producer_expiry_steps())
    assert [len(log.producers.producers) for log in logs] == [0, 0]
    manager.release()


T0, T1, U0 = TopicPartition("t", 0), TopicPartition("t", 1), TopicPartition("u", 0)


@in_event_loop
async def test_changes_while_logs_are_loaded_reach_all_of_them(tmp_path: Path) -> None:
    """A thread loads them slowly. What is read from ZooKeeper meanwhile also counts for logs opened before."""
    configs = DynamicConfigs(BrokerConfig.from_properties(BASE))
    _with_logs(tmp_path, configs.log_config, T0, T1, U0).shutdown()

    def changes_meanwhile(topic: str) -> LogConfig:
        config = configs.log_config(topic)
        if topic == "u" and not configs.known_names(TOPICS):
            configs.apply("topics", "t", {"retention.ms": "5000"})
            configs.apply("brokers", "1", {"log.retention.bytes": "777", "num.replica.fetchers": "3"})
            configs.apply("brokers", "<default>", {"producer.id.expiration.ms": "1000"})
        return config

    manager = _with_logs(tmp_path, changes_meanwhile)
    replicas = Mock()
    follow_settings(configs, manager, replicas, Mock())
    wanted = LogConfig()
    settings = {tp: (log.config.retention_ms, log.config.retention_bytes) for tp, log in manager.logs.items()}
    assert settings == {T0: (5000, 777), T1: (5000, 777), U0: (wanted.retention_ms, 777)}
    assert {log.producers.expiration_ms for log in manager.logs.values()} == {1000}
    replicas.fetchers.resize.assert_called_once_with(3)
    configs.apply("brokers", "1", {"log.retention.bytes": "888", "num.replica.fetchers": "3"})
    assert {log.config.retention_bytes for log in manager.logs.values()} == {888}
    replicas.fetchers.resize.assert_called_once_with(3)
    manager.release()


@in_event_loop
async def test_a_throttle_that_is_no_number_keeps_no_broker_from_starting(tmp_path: Path) -> None:
    """Kafka checks that there are digits only, and so does klamm. Whoever may alter a topic may write many of them."""
    configs = DynamicConfigs(BrokerConfig.from_properties(BASE))
    many = "9" * 5000
    replicas = f"0:1,{many}:1,1:{many},2:{2**32 + 1},3:01"
    assert configs.apply("topics", "t", {"leader.replication.throttled.replicas": replicas}) == []
    manager, followers = _with_logs(tmp_path, configs.log_config), Mock()
    follow_settings(configs, manager, followers, Mock())
    followers.leader_quota.throttle.assert_called_once_with("t", {0, 3})
    manager.release()


@in_event_loop
async def test_replicas_and_controller_follow_throttles_and_unclean_elections(tmp_path: Path) -> None:
    configs = DynamicConfigs(BrokerConfig.from_properties(BASE))
    manager, replicas, enable_unclean_election = _with_logs(tmp_path, configs.log_config), Mock(), Mock()
    configs.apply("topics", "t", {"leader.replication.throttled.replicas": "0:1,1:2,2:1"})
    configs.apply("brokers", "1", {"leader.replication.throttled.rate": "5"})
    follow_settings(configs, manager, replicas, enable_unclean_election)
    replicas.leader_quota.throttle.assert_called_once_with("t", frozenset({0, 2}))
    assert replicas.leader_quota.rate_bytes_max == 5
    configs.apply("topics", "t", {"follower.replication.throttled.replicas": "*"})
    replicas.follower_quota.throttle.assert_called_with("t", ALL_REPLICAS)
    configs.apply("brokers", "<default>", {"follower.replication.throttled.rate": "6"})
    configs.apply("brokers", "1", {"replica.alter.log.dirs.io.max.bytes.per.second": "7"})
    assert replicas.leader_quota.rate_bytes_max == LONG_MAX
    assert replicas.follower_quota.rate_bytes_max == 6
    assert replicas.log_dir_moves.quota.rate_bytes_max == 7
    enable_unclean_election.assert_not_called()
    configs.apply("topics", "u", {"unclean.leader.election.enable": "true"})
    enable_unclean_election.assert_called_once_with("u")
    configs.apply("brokers", "<default>", {"unclean.leader.election.enable": "true"})
    configs.apply("brokers", "<default>", {"unclean.leader.election.enable": "true", "num.replica.fetchers": "2"})
    assert enable_unclean_election.mock_calls == [call("u"), call(None)]
    manager.release()


@in_event_loop
async def test_only_changed_defaults_of_topics_reach_logs_and_these_in_turns(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Each throttle of a plan had the settings of every topic made again: half a second for 20,000 of them."""
    configs = DynamicConfigs(BrokerConfig.from_properties(BASE))
    manager = _with_logs(tmp_path, configs.log_config, T0, T1, U0)
    for topic in ("t", "u"):
        configs.apply("topics", topic, {"retention.ms": "5000"})
    follow_settings(configs, manager, Mock(), Mock())
    made: list[object] = []
    make = dynamic.topic_log_config

    def counted(overrides: Any, broker: BrokerConfig) -> LogConfig:
        made.append(overrides)
        return make(overrides, broker)

    monkeypatch.setattr(dynamic, "topic_log_config", counted)
    monkeypatch.setattr(log_manager, "CONFIGURED_AT_ONCE", 1)
    monkeypatch.setattr(turns, "HOLD_MS_MAX", 0)
    configs.apply("brokers", "1", {"leader.replication.throttled.rate": "5"})
    assert configs.throttles.leader_replication_throttled_rate == 5
    assert made == []
    configs.apply("brokers", "1", {"log.retention.bytes": "777"})
    assert [log.config.retention_bytes for log in manager.logs.values()] == [777, -1, -1]
    await until(lambda: {log.config.retention_bytes for log in manager.logs.values()} == {777})
    assert {log.config.retention_ms for log in manager.logs.values()} == {5000}
    manager.release()


def test_changes_while_a_log_is_made_reach_it(tmp_path: Path) -> None:
    configs = DynamicConfigs(BrokerConfig.from_properties(BASE))
    manager = _with_logs(tmp_path, configs.log_config)
    jobs = manager.creation_jobs([T0])
    for job in jobs:
        job.run()
    configs.apply("topics", "t", {"retention.ms": "5000"})
    for job in jobs:
        job.finish()
    assert manager.logs[T0].config.retention_ms == 5000
    manager.release()


def _with_logs(folder: Path, topic_config: Callable[[str], LogConfig], *partitions: TopicPartition) -> LogManager:
    manager = LogManager(LogManagerConfig((folder / "d",)), topic_config, ManualClock(NOW_MS), print)
    manager.load()
    for partition in partitions:
        manager.get_or_create(partition, is_new=True)
    return manager
