"""A broker's settings follow ZooKeeper: at start, by notification, in a new session, and whatever the znodes hold."""

from __future__ import annotations

import asyncio
import json
import logging
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager

import pytest
from event_loop import in_event_loop
from virtual_time import ManualClock

from engine.common.clock import SystemClock
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import DynamicConfigs
from engine.kafka.config.log_config import LogConfig
from engine.kafka.zk.change_follower import NOTIFICATION_AGE_MS_MAX
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.config_changes import ConfigChangeListener

FOLDERS = ("/config/changes", "/config/topics", "/config/brokers", "/config/users", "/config/clients", "/config/ips")


def new_configs() -> DynamicConfigs:
    return DynamicConfigs(BrokerConfig.from_properties({"zookeeper.connect": "z:1", "broker.id": "1"}))


async def make_folders(client: ZkClient) -> None:
    for folder in FOLDERS:
        await client.ensure_path(folder)


async def write(client: ZkClient, entity_path: str, config: dict[str, str], *, notify: bool = True) -> None:
    path, data = f"/config/{entity_path}", json.dumps({"version": 1, "config": config}).encode()
    await client.ensure_path(path)
    await client.set(path, data)
    if notify:
        await announce(client, json.dumps({"version": 2, "entity_path": entity_path}).encode())


async def announce(client: ZkClient, data: bytes) -> str:
    return await client.create("/config/changes/config_change_", data, sequential=True)


@asynccontextmanager
async def following(client: ZkClient, configs: DynamicConfigs, clock: ManualClock | None = None) -> AsyncIterator[None]:
    listener = ConfigChangeListener(client, configs, clock or SystemClock())
    await listener.start()
    try:
        yield
    finally:
        await listener.stop()


@in_event_loop
async def test_reads_everything_at_start(connect) -> None:
    configs = new_configs()
    async with connect() as client:
        await make_folders(client)
        await write(client, "topics/t", {"retention.ms": "5"}, notify=False)
        await write(client, "brokers/<default>", {"log.segment.bytes": "1000"})
        await write(client, "brokers/1", {"message.max.bytes": "7"})
        await write(client, "users/u", {"producer_byte_rate": "1"})
        await write(client, "users/u/clients/c", {"producer_byte_rate": "2"})
        async with following(client, configs):
            assert configs.log_config("t") == LogConfig(retention_ms=5, segment_bytes=1000, max_message_bytes=7)
            assert configs.current.message_max_bytes == 7
            assert configs.stored_texts("users", "u") == {"producer_byte_rate": "1"}
            assert configs.stored_texts("users", "u/clients/c") == {"producer_byte_rate": "2"}


@in_event_loop
async def test_follows_notifications(connect, until) -> None:
    configs = new_configs()
    async with connect() as client, connect() as other:
        await make_folders(client)
        async with following(client, configs):
            for retention_ms in ("5", "6", "7"):
                await write(other, "topics/t", {"retention.ms": retention_ms})
                await until(lambda wanted=int(retention_ms): configs.log_config("t").retention_ms == wanted)
            await write(other, "brokers/1", {"message.max.bytes": "9"})
            await until(lambda: configs.current.message_max_bytes == 9)
            await other.delete("/config/topics/t")
            await announce(other, b'{"version":2,"entity_path":"topics/t"}')
            await until(lambda: configs.log_config("t").retention_ms == LogConfig().retention_ms)


@in_event_loop
async def test_many_changes_at_once_end_in_the_last(connect, until) -> None:
    configs = new_configs()
    async with connect() as client, connect() as other:
        await make_folders(client)
        async with following(client, configs):
            for index in range(60):
                await write(other, f"topics/t{index % 20}", {"retention.ms": str(index + 1)})
            await until(lambda: [configs.log_config(f"t{i}").retention_ms for i in range(20)] == list(range(41, 61)))


@pytest.mark.parametrize(
    "data",
    [
        b'{"version":1,"entity_type":"topics","entity_name":"t"}',
        b'{"version":2,"entity_path":"topics/t"}',
        b'"t"',
    ],
    ids=["0.9", "0.10.1", "0.8"],
)
@in_event_loop
async def test_understands_notifications_of_every_age(data: bytes, connect, until) -> None:
    configs = new_configs()
    async with connect() as client:
        await make_folders(client)
        async with following(client, configs):
            await write(client, "topics/t", {"retention.ms": "5"}, notify=False)
            await announce(client, data)
            await until(lambda: configs.log_config("t").retention_ms == 5)


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"not json",
        b"[1]",
        b'{"version":7}',
        b'{"version":2,"entity_path":"nonsense/t"}',
        b'{"version":2,"entity_path":"topics"}',
        b'{"version":1,"entity_type":"users","entity_name":"u"}',
    ],
)
def test_nonsense_is_told_and_passed_over(data: bytes, connect, until, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        configs = new_configs()
        async with connect() as client:
            await make_folders(client)
            async with following(client, configs):
                await announce(client, data)
                await write(client, "topics/t", {"retention.ms": "5"})
                await until(lambda: configs.log_config("t").retention_ms == 5)

    with caplog.at_level(logging.WARNING, "kafka.common.ZkNodeChangeNotificationListener"):
        asyncio.run(run())
    assert "error processing change notification config_change_0000000000" in caplog.text


def test_unreadable_and_unusable_settings_are_told(connect, until, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        configs = new_configs()
        async with connect() as client:
            await make_folders(client)
            await write(client, "topics/t", {"retention.ms": "5"})
            async with following(client, configs):
                await client.set("/config/topics/t", b"{oops")
                await announce(client, b'{"version":2,"entity_path":"topics/t"}')
                await write(client, "topics/u", {"retention.ms": "many", "segment.bytes": "100"})
                await until(lambda: configs.log_config("u").segment_bytes == 100)
                assert configs.log_config("t").retention_ms == 5

    with caplog.at_level(logging.WARNING, "kafka.server.ZkConfigManager"):
        asyncio.run(run())
    assert "The settings cannot be read and stay as they were" in caplog.text
    assert "path=/config/topics/u: Invalid value many for configuration retention.ms" in caplog.text


def test_log_tells_the_override_and_hides_secrets(connect, until, caplog: pytest.LogCaptureFixture) -> None:
    async def run() -> None:
        configs = new_configs()
        async with connect() as client:
            await make_folders(client)
            async with following(client, configs):
                await write(client, "topics/t", {"retention.ms": "5"})
                await write(client, "users/u", {"SCRAM-SHA-256": "salt=geheim"})
                await until(lambda: configs.stored_texts("users", "u"))
                await until(lambda: "users/u" in caplog.text)

    with caplog.at_level(logging.INFO, "kafka.server.ZkConfigManager"):
        asyncio.run(run())
    assert "Processing override for entityPath: topics/t with config: HashMap(retention.ms -> 5)" in caplog.text
    assert (
        "Processing override for entityPath: users/u with config: HashMap(SCRAM-SHA-256 -> [redacted])" in caplog.text
    )


@in_event_loop
async def test_old_notifications_are_removed(connect, until) -> None:
    clock = ManualClock(now_ms=SystemClock().now_ms())
    configs = new_configs()
    async with connect() as client:
        await make_folders(client)
        await write(client, "topics/t", {"retention.ms": "5"})
        async with following(client, configs, clock):
            await write(client, "topics/t", {"retention.ms": "6"})
            await until(lambda: configs.log_config("t").retention_ms == 6)
            assert len(await client.children("/config/changes")) == 2
            clock.advance(NOTIFICATION_AGE_MS_MAX + 60_000)
            await write(client, "topics/t", {"retention.ms": "7"})
            await until(lambda: configs.log_config("t").retention_ms == 7)
            async with asyncio.timeout(30):
                while await client.children("/config/changes"):
                    await asyncio.sleep(0.01)


@in_event_loop
async def test_a_new_session_reads_everything_again(
    connect, until, end_session: Callable[[ZkClient], Awaitable[None]]
) -> None:
    """Changes made between two sessions count, although their notifications are gone by then."""
    configs = new_configs()
    async with connect() as client, connect() as other:
        await make_folders(client)
        await write(client, "topics/gone", {"retention.ms": "5"})
        async with following(client, configs):
            await end_session(client)
            await write(other, "topics/t", {"retention.ms": "8"}, notify=False)
            await other.delete("/config/topics/gone")
            client.break_connection()
            await until(lambda: configs.log_config("t").retention_ms == 8)
            await until(lambda: configs.log_config("gone").retention_ms == LogConfig().retention_ms)
            await write(other, "topics/t", {"retention.ms": "9"})
            await until(lambda: configs.log_config("t").retention_ms == 9)


@in_event_loop
async def test_a_fault_of_a_listener_does_not_make_the_broker_deaf(
    connect, until, caplog: pytest.LogCaptureFixture
) -> None:
    """In Kafka the thread that listens for settings ends for good, and nobody is told."""
    configs, faults, changes = new_configs(), iter([RuntimeError("a fault of ours")]), []

    def fails_once(size: int) -> None:
        if size == 7:
            for fault in faults:
                raise fault
        changes.append(size)

    configs.follow(lambda: configs.current.message_max_bytes, fails_once)
    async with connect() as client, connect() as other:
        await make_folders(client)
        async with following(client, configs):
            await write(other, "brokers/1", {"message.max.bytes": "7"})
            await until(lambda: "a fault of ours" in caplog.text)
            await write(other, "topics/t", {"retention.ms": "8"})
            await until(lambda: configs.log_config("t").retention_ms == 8)
            # What was being applied when it failed is read again.
            await until(lambda: 7 in changes)


@in_event_loop
async def test_nothing_is_kept_of_topics_that_are_gone(connect) -> None:
    """Each topic that was created with settings and deleted again took memory for good."""
    configs, names = new_configs(), [f"t{number}" for number in range(20)]
    async with connect() as client:
        await make_folders(client)
        listener = ConfigChangeListener(client, configs, SystemClock())
        await listener.start()

        def held() -> int:
            kept = (*vars(listener).values(), *vars(configs).values())
            return sum(len(each) for each in kept if isinstance(each, dict))

        before = held()
        for name in names:
            await write(client, f"topics/{name}", {"retention.ms": "5"}, notify=False)
        await listener.load_topics(names)
        assert held() > before
        for name in names:
            configs.forget_topic(name)
        assert held() == before
        await listener.stop()


@in_event_loop
async def test_what_is_read_first_does_not_come_last() -> None:
    configs, begun, may_end = new_configs(), asyncio.Event(), asyncio.Event()
    stored = {"retention.ms": "1"}

    class SlowClient:
        async def get_many(self, paths: list[str]) -> list[object]:
            data = json.dumps({"version": 1, "config": stored}).encode()
            if not begun.is_set():
                begun.set()
                await may_end.wait()
            return [(data, None) for _ in paths]

    listener = ConfigChangeListener(SlowClient(), configs, SystemClock())  # type: ignore[arg-type]
    first = asyncio.create_task(listener.load_topics(["t"]))
    await begun.wait()
    stored["retention.ms"] = "2"
    second = asyncio.create_task(listener.load_topics(["t"]))
    await asyncio.sleep(0)
    may_end.set()
    await asyncio.gather(first, second)
    assert configs.log_config("t").retention_ms == 2


@in_event_loop
async def test_topics_can_be_read_on_demand(connect) -> None:
    """No notification announces the settings that a topic is created with."""
    configs = new_configs()
    async with connect() as client:
        await make_folders(client)
        listener = ConfigChangeListener(client, configs, SystemClock())
        await listener.start()
        await write(client, "topics/t", {"retention.ms": "5"}, notify=False)
        await listener.load_topics(["t", "u"])
        assert configs.log_config("t").retention_ms == 5
        assert configs.knows_topic("u")
        await listener.stop()


@in_event_loop
async def test_settings_over_which_a_part_of_the_broker_fails_hold_up_no_others(connect) -> None:
    configs = new_configs()

    def fail(topic: str, config: LogConfig) -> None:
        if topic == "bad":
            raise RuntimeError("a fault of ours")

    configs.follow_topics(fail)
    async with connect() as client:
        await make_folders(client)
        for entity in ("topics/bad", "topics/good"):
            await write(client, entity, {"retention.ms": "5"}, notify=False)
        await write(client, "brokers/1", {"message.max.bytes": "7"}, notify=False)
        listener = ConfigChangeListener(client, configs, SystemClock())
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await listener.reload()
        assert configs.log_config("good") == LogConfig(retention_ms=5, max_message_bytes=7)
        await client.delete("/config/topics/bad")
        await write(client, "topics/good", {"retention.ms": "6"}, notify=False)
        with pytest.raises(RuntimeError, match="a fault of ours"):
            await listener.reload()
        assert configs.topic_overrides("bad") == {}
        assert configs.log_config("good").retention_ms == 6
