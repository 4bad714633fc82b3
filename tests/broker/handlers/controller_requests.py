"""Sends requests to the handlers of topics and the controller, on the small brokers of ``controller_cluster``."""

from __future__ import annotations

import inspect
from types import SimpleNamespace
from typing import Any

from controller_cluster import SmallBroker
from network_serving import session

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.registry import all_handlers
from engine.broker.quotas.client_quotas import ClientQuotas
from engine.common.clock import SystemClock
from engine.common.windowed_rate import Window
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import DynamicConfigs
from engine.kafka.protocol.declaration import Request


async def ask(broker: SmallBroker, request: Request, api_version: int, **settings: str) -> Any:
    """Let a broker's handler answer a request; ``settings`` are server.properties with underscores for dots."""
    properties = {name.replace("_", "."): value for name, value in settings.items()}
    config = BrokerConfig({"zookeeper.connect": "localhost:1", "broker.id": str(broker.broker_id), **properties})
    parts = SimpleNamespace(
        broker_id=broker.broker_id,
        broker_epoch=broker.broker_epoch,
        clock=SystemClock(),
        config=config,
        dynamic_configs=DynamicConfigs(config),
        metadata_cache=broker.metadata_cache,
        controller=broker.controller,
        topic_admin=broker.topic_admin,
        quotas=ClientQuotas(Window(), Window(), SystemClock()),
        producer_ids=getattr(broker, "producer_ids", None),
    )
    context = RequestContext(parts, request.api_key, api_version, 1, "test", session())  # type: ignore[arg-type]
    answer = all_handlers()[request.api_key].handler(context, request)
    return await answer if inspect.isawaitable(answer) else answer
