"""A broker's connection to the current controller, for the requests of leaders.

It follows the metadata cache: when another broker becomes controller, a request under way ends at once with
ConnectionLost, so that the caller asks the new one. The caller decides about retries.
Source: NodeToControllerChannelManager of Kafka 3.9.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

from engine.broker.replication.metadata_cache import MetadataCache
from engine.broker.replication.settings import ReplicationSettings
from engine.common.errors import KlammError
from engine.kafka.client.broker_client import BrokerClient, ChannelTotals
from engine.kafka.client.errors import ConnectionLost
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.declaration import Request


class ControllerUnknown(KlammError):
    """No UpdateMetadata request has named a live controller yet."""


class ControllerChannel:
    """One connection, to the current controller."""

    def __init__(self, metadata_cache: MetadataCache, settings: ReplicationSettings) -> None:
        self._metadata_cache = metadata_cache
        self._settings = settings
        self.totals = ChannelTotals()
        self._client: BrokerClient | None = None
        self._closing: set[asyncio.Task[None]] = set()
        metadata_cache.update_listeners.append(self._controller_may_have_moved)

    @property
    def has_heard_of_controller(self) -> bool:
        """Whether any controller has sent this broker metadata since its start."""
        return self._metadata_cache.controller_id is not None

    async def ask(
        self, key: ApiKey, build: Callable[[int], Request], *, version_max: int | None = None
    ) -> tuple[Any, int]:
        """Send one request in the highest version that both sides have; return the answer and that version.

        Raises:
            ControllerUnknown, NetworkError, RemoteProtocolError.
        """
        client = self._connected_to_controller()
        version = await client.version_for(key, version_max=version_max)
        if client is not self._client:
            # The controller moved just now; sending would connect to the old one again.
            raise ConnectionLost("the controller has moved", address=client.address)
        return await client.send(build(version), version), version

    async def close(self) -> None:
        """End the connection; a request under way ends with ConnectionLost."""
        self._metadata_cache.update_listeners.remove(self._controller_may_have_moved)
        self._hang_up()
        await asyncio.gather(*self._closing)

    def _connected_to_controller(self) -> BrokerClient:
        address = self._controller_address()
        if address is None:
            raise ControllerUnknown("no controller is known yet")
        if self._client is None or (self._client.host, self._client.port) != address:
            self._hang_up()
            self._client = BrokerClient(
                *address,
                client_id=str(self._settings.broker_id),
                setup_timeouts=self._settings.setup_timeouts,
                connect_timeout_ms=self._settings.controller_socket_timeout_ms,
                request_timeout_ms=self._settings.controller_socket_timeout_ms,
                totals=self.totals,
                security=self._settings.inter_broker_security(),
            )
        return self._client

    def _controller_address(self) -> tuple[str, int] | None:
        controller_id = self._metadata_cache.controller_id
        if controller_id is None:
            return None
        node = self._metadata_cache.node(controller_id, self._settings.inter_broker_listener_name)
        return None if node is None else (node.host, node.port)

    def _controller_may_have_moved(self) -> None:
        client = self._client
        if client is not None and (client.host, client.port) != self._controller_address():
            self._hang_up()

    def _hang_up(self) -> None:
        if self._client is not None:
            closing = asyncio.get_running_loop().create_task(self._client.close(), name="controller-channel:close")
            self._closing.add(closing)
            closing.add_done_callback(self._closing.discard)
            self._client = None
