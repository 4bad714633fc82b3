"""The parts of a running broker that metrics are read from."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from engine.broker.handlers.context import Broker
from engine.broker.network.routes import Route
from engine.broker.network.server import SocketServer

if TYPE_CHECKING:
    from engine.broker.replication.controller_channel import ControllerChannel
    from engine.broker.server.log_cleaning import LogCleaner
    from engine.runtime.loop_lag import LoopLagGauge


class MeasuredBroker(Broker, Protocol):
    network: SocketServer
    is_zookeeper_away: bool
    state: int

    @property
    def controller_channel(self) -> ControllerChannel: ...
    @property
    def log_cleaner(self) -> LogCleaner: ...
    @property
    def loop_lag(self) -> LoopLagGauge: ...
    def routes(self) -> list[Route]: ...
