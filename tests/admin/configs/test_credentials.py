"""Users' credentials changed in ZooKeeper, as before the first broker starts: what else a user has stays."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import replace

import pytest
from event_loop import in_event_loop

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.configs.access import alter_entity, list_credentials
from engine.admin.configs.credentials import NewCredential, UserCredential, change_credentials, parse_credentials
from engine.admin.configs.values import Entity, EntityType
from engine.kafka.formats.scram_credential import ScramCredential
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient

USER = "al ice"
SETTINGS = {"SCRAM-SHA-256": "salt=AA==,stored_key=AA==,server_key=AA==,iterations=4096", "producer_byte_rate": "5"}


@asynccontextmanager
async def opened(connect: str, **more: bool) -> AsyncIterator[tuple[Cluster, KafkaZkClient]]:
    """Open a cluster without brokers, in which a user has a credential and a quota."""
    target = replace(ClusterTarget("c", Origin.OPTIONS, zookeeper=connect, via=Side.ZOOKEEPER), **more)  # type: ignore[arg-type]
    async with await ZkClient.connect(connect, session_timeout_ms=6_000) as client:
        znodes = KafkaZkClient(client)
        await client.ensure_path("/brokers/ids")
        await znodes.configs.change_entity_configs("users/al%20ice", SETTINGS, check_controller=False)
        async with Cluster(target, timeout_s=20) as cluster:
            yield cluster, znodes


async def settings(znodes: KafkaZkClient) -> dict[str, str]:
    return dict(await znodes.configs.get_entity_configs("users/al%20ice"))


@in_event_loop
async def test_a_new_credential_leaves_the_others_and_the_quotas(zk_chroot: str) -> None:
    async with opened(zk_chroot) as (cluster, znodes):
        await change_credentials(cluster, USER, parse_credentials({"SCRAM-SHA-512": "password=s,e=cret"}), [])
        credentials = await settings(znodes)
        stored = ScramCredential.decode(credentials.pop("SCRAM-SHA-512"))
        assert credentials == SETTINGS
        assert stored == ScramCredential.of_password("SCRAM-SHA-512", "s,e=cret", stored.salt, 8192)
        changes = await znodes.client.children("/config/changes")
        assert len(changes) == 2, "brokers are told"
        expected = [UserCredential(USER, "SCRAM-SHA-256", 4096), UserCredential(USER, "SCRAM-SHA-512", 8192)]
        assert sorted(await list_credentials(cluster, USER), key=lambda credential: credential.mechanism) == expected


@in_event_loop
async def test_a_credential_goes_alone(zk_chroot: str) -> None:
    async with opened(zk_chroot) as (cluster, znodes):
        await alter_entity(cluster, Entity(EntityType.USER, USER), {}, ["SCRAM-SHA-256"])
        assert await settings(znodes) == {"producer_byte_rate": "5"}


@in_event_loop
async def test_a_check_changes_nothing(zk_chroot: str) -> None:
    async with opened(zk_chroot) as (cluster, znodes):
        added = {"SCRAM-SHA-512": "iterations=5000,password=x"}
        await alter_entity(cluster, Entity(EntityType.USER, USER), added, ["SCRAM-SHA-256"], validate_only=True)
        assert await settings(znodes) == SETTINGS


@in_event_loop
async def test_if_one_to_be_removed_is_not_there_nothing_changes(zk_chroot: str) -> None:
    async with opened(zk_chroot) as (cluster, znodes):
        with pytest.raises(NotFound, match="no credential for SCRAM-SHA-512"):
            await change_credentials(cluster, USER, [], ["SCRAM-SHA-256", "SCRAM-SHA-512"])
        assert await settings(znodes) == SETTINGS


@in_event_loop
async def test_who_may_change_nothing_changes_nothing(zk_chroot: str) -> None:
    async with opened(zk_chroot, is_read_only=True) as (cluster, znodes):
        with pytest.raises(BadRequest, match="read-only"):
            await change_credentials(cluster, USER, [], ["SCRAM-SHA-256"])
        assert await settings(znodes) == SETTINGS
    async with opened(zk_chroot) as (cluster, _):
        with pytest.raises(BadRequest, match="no name"):
            await change_credentials(cluster, "", [], ["SCRAM-SHA-256"])


@pytest.mark.parametrize(
    ("mechanism", "text", "said"),
    [
        ("SCRAM-SHA-256", "secret", "not a credential"),
        ("SCRAM-SHA-256", "iterations=x,password=secret", "not a credential"),
        ("SCRAM-SHA-256", "password=", "the password is empty"),
        ("SCRAM-SHA-256", "iterations=4095,password=secret", "4095 iterations: Kafka takes 4096 to 16384"),
        ("SCRAM-SHA-256", "iterations=16385,password=secret", "16385 iterations"),
    ],
)
def test_a_credential_that_is_refused_is_not_shown(mechanism: str, text: str, said: str) -> None:
    with pytest.raises(BadRequest, match=said) as refused:
        parse_credentials({mechanism: text})
    assert "secret" not in str(refused.value)


@pytest.mark.parametrize("text", ["password=secret", "iterations=-1,password=secret", "iterations=,password=secret"])
def test_iterations_that_are_not_told_are_those_of_kafkas_tool(text: str) -> None:
    (new,) = parse_credentials({"SCRAM-SHA-256": text})
    assert new.iterations == 8192 and "secret" not in repr(new)
    assert new != NewCredential.of_password("scram-sha-256", "secret"), "each has a salt of its own"
