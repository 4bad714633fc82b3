"""The listeners of a broker: opened when it starts, and opened and closed later as its settings say.

Source: DynamicListenerConfig of Kafka 3.9. A listener that keeps its name stays as it is, whatever its address is now.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable

from engine.broker.network.server import BoundListener, SocketServer
from engine.broker.server.own_security import OwnSecurity
from engine.broker.server.settings import advertised, listener_spec
from engine.common.errors import ConfigError, OperationError
from engine.common.model import Endpoint
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import DynamicConfigs
from engine.runtime.supervisor import Supervisor

logger = logging.getLogger("kafka.server.KafkaServer")


class OwnListeners:
    """The open listeners of one broker, and the addresses that it tells others."""

    def __init__(self, network: SocketServer, security: OwnSecurity, configs: DynamicConfigs) -> None:
        """Listen on all addresses before announcing any: a client that learns an address may connect at once, and
        waits.

        Raises:
            OperationError: an address is taken.
        """
        self._network, self._security, self._configs = network, security, configs
        settings = configs.current.listener_settings
        self._bound: dict[str, BoundListener] = {}
        for endpoint in settings.listeners:
            self._bound[endpoint.listener_name] = network.bind(listener_spec(endpoint))
        self.advertised: tuple[Endpoint, ...] = advertised(settings.advertised_listeners, self._bound)

    @property
    def names(self) -> frozenset[str]:
        """Those that are open."""
        return frozenset(self._bound)

    async def accept(self) -> None:
        """Start answering."""
        for listener in self._bound.values():
            await self._network.accept(listener)

    def follow(self, supervisor: Supervisor, announce: Callable[[], Awaitable[None]]) -> None:
        """Do what the settings say from now on; ``announce`` tells the cluster of other addresses."""
        changing = asyncio.Lock()

        async def change(config: BrokerConfig) -> None:
            async with changing:
                if await self._change(config, supervisor):
                    await announce()

        def look(_: object) -> None:
            # One after the other: a listener that goes and comes back may come back protected in another way.
            supervisor.start(change(self._configs.current), "listeners")

        self._configs.follow(lambda: self._configs.current.listener_settings, look)

    async def _change(self, config: BrokerConfig, supervisor: Supervisor) -> bool:
        """Open and close listeners; return whether the addresses for others are new."""
        settings = config.listener_settings
        wanted = {endpoint.listener_name: endpoint for endpoint in settings.listeners}
        for name in self.names - wanted.keys():
            del self._bound[name]
            await self._network.close_listener(name)
            await self._security.drop(name)
            logger.info("Closed listener %s", name)
        for name in wanted.keys() - self.names:
            try:
                await self._security.add(name, config, self._configs, supervisor)
                listener = self._network.bind(listener_spec(wanted[name]))
                await self._network.accept(listener)
            except (ConfigError, OperationError) as error:
                await self._security.drop(name)
                logger.error("Listener %s stays closed: %s", name, error)
            else:
                self._bound[name] = listener
        before = self.advertised
        # To find this machine's name may take seconds.
        self.advertised = await asyncio.to_thread(advertised, settings.advertised_listeners, self._bound)
        return self.advertised != before
