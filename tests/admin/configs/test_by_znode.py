"""Settings read from znodes, some of which are damaged or may not be read."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable

import pytest
from event_loop import staged

from engine.admin.cluster.errors import BadRequest
from engine.admin.configs.by_znode import ZkConfigReader, alter_configs_zk
from engine.admin.configs.values import Entity, EntityConfigs, EntityType
from engine.kafka.config.password_encoder import PasswordEncoder
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.errors import NoAuth, ZnodeFormatError
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.operations import Acl

WRITE_ONLY = (Acl(2, "world", "anyone"),)
ENTITIES = (
    "brokers/0", "brokers/10", "brokers/<default>", "brokers/stray",
    "users/u", "users/v", "users/u/clients/c", "users/u/clients/<default>", "users/v/clients/c",
)  # fmt: skip


def on_settings(scene: Callable[[ZkClient], Awaitable[None]], *, zk_chroot: str) -> None:
    """Play a scene where brokers, users and clients of users have a setting, and live broker 2 has none."""

    async def playing() -> None:
        async with await ZkClient.connect(zk_chroot, session_timeout_ms=6_000) as zk:
            await zk.ensure_path("/brokers/ids/2")
            for entity in ENTITIES:
                await zk.ensure_path(f"/config/{entity}")
                await zk.set(f"/config/{entity}", b'{"version":1,"config":{"request_percentage":"5"}}')
            await scene(zk)

    asyncio.run(playing())


def counted(found: list[EntityConfigs]) -> list[tuple[str | None, int]]:
    return [(entry.entity_name, len(entry.configs)) for entry in found]


async def described(zk: ZkClient, kind: EntityType) -> list[tuple[str | None, int]]:
    return counted(await ZkConfigReader(zk).describe_all(kind, include_all=False))


@staged(on_settings)
async def test_whose_settings_there_are(zk: ZkClient, /) -> None:
    assert await described(zk, EntityType.BROKER) == [("0", 1), ("2", 0), ("10", 1), (None, 1)]
    assert await described(zk, EntityType.USER) == [("u", 1), ("v", 1)]
    of_users = [("u/<default>", 1), ("u/c", 1), ("v/c", 1)]
    assert await described(zk, EntityType.USER_CLIENT) == of_users


@staged(on_settings)
async def test_those_that_may_not_be_read_do_not_hide_the_others_and_are_not_called_empty(zk: ZkClient, /) -> None:
    hidden = [
        ("brokers/0", Entity(EntityType.BROKER, "0")),
        ("users/v", Entity(EntityType.USER, "v")),
        ("users/u/clients/c", Entity(EntityType.USER_CLIENT, "u/c")),
    ]
    reader = ZkConfigReader(zk)
    for path, _ in hidden:
        await zk.set_acl(f"/config/{path}", WRITE_ONLY)
    assert await described(zk, EntityType.BROKER) == [("0", 0), ("2", 0), ("10", 1), (None, 1)]
    assert await described(zk, EntityType.USER) == [("u", 1), ("v", 0)]
    for path, entity in hidden:
        configs = await reader.describe_all(entity.type, include_all=False)
        assert [path in (entry.error or "") for entry in configs] == [
            entry.entity_name == entity.name for entry in configs
        ]
        with pytest.raises(NoAuth, match=path):
            await reader.describe(entity, include_all=False)


@pytest.mark.parametrize(
    ("entity", "kind"),
    [("brokers/0", EntityType.BROKER), ("users/u", EntityType.USER), ("users/u/clients/c", EntityType.USER_CLIENT)],
)
@staged(on_settings)
async def test_those_that_nobody_understands_are_an_error_and_hide_no_others(
    zk: ZkClient, /, entity: str, kind: EntityType
) -> None:
    before = len(await described(zk, kind))
    await zk.set(f"/config/{entity}", b"{")
    configs = await ZkConfigReader(zk).describe_all(kind, include_all=False)
    assert len(configs) == before
    (damaged,) = [entry for entry in configs if entry.error is not None]
    assert damaged.configs == () and f"/config/{entity}" in damaged.error
    with pytest.raises(ZnodeFormatError, match=f"/config/{entity}"):
        await ZkConfigReader(zk).describe(Entity(kind, damaged.entity_name), include_all=False)


@staged(on_settings)
async def test_a_password_of_a_broker_is_stored_encrypted(zk: ZkClient, /) -> None:
    """As kafka-configs does it: the secret comes with the change, and is not stored."""
    name, broker = "listener.name.safe.ssl.keystore.password", Entity(EntityType.BROKER, "0")
    kafka = KafkaZkClient(zk)
    with pytest.raises(BadRequest, match=r"add password\.encoder\.secret="):
        await alter_configs_zk(kafka, broker, {name: "changeit"}, [])
    secret = {"password.encoder.secret": "s", "password.encoder.iterations": "1024"}
    await alter_configs_zk(kafka, broker, {name: "changeit", **secret}, [])
    stored = await kafka.configs.get_entity_configs("brokers/0")
    assert set(stored) == {"request_percentage", name}
    assert "iterations:1024," in stored[name]
    assert PasswordEncoder("s").decode(stored[name]) == "changeit"
