"""Who reads settings: brokers know more than ZooKeeper, so they are asked if the command names them."""

from __future__ import annotations

from pathlib import Path

import pytest
from event_loop import in_event_loop

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest, LoginRefused
from engine.admin.cluster.snapshot_file import save_snapshot
from engine.admin.cluster.target import ClusterTarget, Origin, Side
from engine.admin.configs.access import SnapshotConfigReader, alter_entity, config_reader
from engine.admin.configs.by_wire import WireConfigReader
from engine.admin.configs.by_znode import ZkConfigReader
from engine.admin.configs.values import Entity, EntityType
from engine.common.snapshot import ClusterSnapshot, SnapshotSource
from engine.kafka.zk.client import ZkClient

NOBODY = (("127.0.0.1", 1),)


@pytest.mark.parametrize(
    ("has_brokers", "via", "wants_brokers", "reader"),
    [
        (False, None, False, ZkConfigReader),
        (False, None, True, ZkConfigReader),
        (True, None, False, ZkConfigReader),
        (True, None, True, WireConfigReader),
        (True, Side.ZOOKEEPER, True, ZkConfigReader),
        (True, Side.WIRE, False, WireConfigReader),
    ],
)
@in_event_loop
async def test_who_reads(
    zk_chroot: str, has_brokers: bool, via: Side | None, wants_brokers: bool, reader: type
) -> None:
    async with await ZkClient.connect(zk_chroot, session_timeout_ms=6_000):
        bootstrap = NOBODY if has_brokers else ()
        target = ClusterTarget("t", Origin.OPTIONS, zookeeper=zk_chroot, bootstrap=bootstrap, via=via)
        async with Cluster(target, timeout_s=10) as cluster:
            assert type(await config_reader(cluster, wants_brokers=wants_brokers)) is reader


@in_event_loop
async def test_a_snapshot_is_read_from_its_file(tmp_path: Path) -> None:
    save_snapshot(ClusterSnapshot((), (), SnapshotSource.WIRE, 0), tmp_path / "s.json")
    async with Cluster(ClusterTarget("s", Origin.SNAPSHOT, snapshot=tmp_path / "s.json")) as cluster:
        assert type(await config_reader(cluster, wants_brokers=True)) is SnapshotConfigReader


@pytest.mark.parametrize(("connect", "via"), [("127.0.0.1:1", "side=zookeeper"), (None, "ZooKeeper address")])
@in_event_loop
async def test_a_broker_whose_certificate_has_expired_gets_a_new_one_through_zookeeper(
    connect: str | None, via: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def refused(*_: object, **__: object) -> None:
        raise LoginRefused("the certificate has expired", where="k:9093", hint="the broker needs a new one")

    monkeypatch.setattr("engine.admin.configs.by_wire.alter_configs", refused)
    target = ClusterTarget("t", Origin.OPTIONS, zookeeper=connect, bootstrap=NOBODY, via=Side.WIRE)
    async with Cluster(target, timeout_s=10) as cluster:
        way_back = f"; the settings of a broker that cannot be asked are in ZooKeeper: {via}"
        for entity, hint in ((Entity(EntityType.BROKER, "0"), way_back), (Entity(EntityType.TOPIC, "t"), "")):
            with pytest.raises(LoginRefused) as caught:
                await alter_entity(cluster, entity, {"listener.name.ssl.ssl.keystore.location": "/new"}, [])
            assert str(caught.value.hint) == f"the broker needs a new one{hint}"


@pytest.mark.parametrize(
    ("entity", "message"),
    [
        (Entity(EntityType.BROKER_LOGGER, "0"), "loggers are not in ZooKeeper"),
    ],
)
@in_event_loop
async def test_what_zookeeper_alone_cannot_do_is_refused_before_it_is_asked(entity: Entity, message: str) -> None:
    async with Cluster(ClusterTarget("t", Origin.OPTIONS, zookeeper="127.0.0.1:1"), timeout_s=1) as cluster:
        with pytest.raises(BadRequest, match=message):
            await alter_entity(cluster, entity, {"k": "1"}, [])
