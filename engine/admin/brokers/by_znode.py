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
            one.broker.id: Registered(
                None if one.timestamp_ms < 0 else one.timestamp_ms, None if one.jmx_port < 0 else one.jmx_port
            )
            for one in await read_brokers(await self._cluster.zookeeper())
        }
