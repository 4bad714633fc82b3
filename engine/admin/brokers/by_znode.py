"""Brokers of a cluster whose ZooKeeper is known: reads their registrations there, and asks them for the rest."""

from __future__ import annotations

from collections.abc import Mapping

from engine.admin.brokers.by_wire import WireBrokerReader
from engine.admin.brokers.own_words import Registered


class ZkBrokerReader(WireBrokerReader):
    """Reads registrations from ZooKeeper, and asks brokers."""

    async def registrations(self) -> Mapping[int, Registered]:
        from engine.admin.cluster.zookeeper import read_brokers

        return {
            broker.broker.id: Registered(
                None if broker.timestamp_ms < 0 else broker.timestamp_ms,
                None if broker.jmx_port < 0 else broker.jmx_port,
            )
            for broker in await read_brokers(await self._cluster.zookeeper())
        }
