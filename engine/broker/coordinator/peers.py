"""Connections of a coordinator to other brokers, which it finds by their ids."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from engine.broker.replication.metadata_cache import MetadataCache
from engine.kafka.client.broker_client import BrokerClient, ChannelTotals, SetupTimeouts
from engine.kafka.client.security import Security, plaintext
from engine.runtime.supervisor import Supervisor


class BrokerConnections:
    """One connection per broker. It follows a broker that comes back with another address."""

    def __init__(
        self,
        metadata_cache: MetadataCache,
        *,
        listener_name: str,
        client_id: str,
        setup_timeouts: SetupTimeouts,
        request_timeout_ms: int,
        security: Callable[[], Security] = plaintext,
    ) -> None:
        """``security`` is asked at each new connection, as a certificate may change."""
        self._metadata_cache = metadata_cache
        self._listener_name = listener_name
        self._client_id = client_id
        self._setup_timeouts = setup_timeouts
        self._request_timeout_ms = request_timeout_ms
        self.totals = ChannelTotals()
        self._security = security
        self._clients: dict[int, BrokerClient] = {}
        self._closing = Supervisor(f"close {client_id}")

    def to(self, broker_id: int) -> BrokerClient | None:
        """Return the connection to a broker, which may not be open yet; None if the broker is not alive."""
        node = self._metadata_cache.node(broker_id, self._listener_name)
        client = self._clients.get(broker_id)
        if client is not None and (node is None or (client.host, client.port) != (node.host, node.port)):
            del self._clients[broker_id]
            self._closing.start(client.close(), f"broker {broker_id}")
            client = None
        if client is None and node is not None:
            client = self._clients[broker_id] = BrokerClient(
                node.host,
                node.port,
                client_id=self._client_id,
                setup_timeouts=self._setup_timeouts,
                connect_timeout_ms=self._request_timeout_ms,
                request_timeout_ms=self._request_timeout_ms,
                totals=self.totals,
                security=self._security(),
            )
        return client

    async def close(self) -> None:
        """Close every connection; requests under way end with ConnectionLost."""
        clients, self._clients = self._clients, {}
        await asyncio.gather(*(client.close() for client in clients.values()))
        await self._closing.stop()
