"""Scenes of a wire client in front of two scripted brokers."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

from scripted_brokers import ScriptedCluster, scripted_cluster

from engine.admin.cluster.client_properties import ClientProperties
from engine.admin.cluster.wire import WireCluster
from engine.kafka.protocol.apis.create_topics import CreatableTopicResult, CreateTopicsResponse

Scene = Callable[[ScriptedCluster, WireCluster], Awaitable[None]]


def play(scene: Scene, **options: Any) -> None:
    async def playing() -> None:
        async with asyncio.timeout(60), scripted_cluster(2, **options) as cluster:
            wire = WireCluster(cluster.bootstrap, properties=ClientProperties(request_timeout_ms=2000))
            try:
                await scene(cluster, wire)
            finally:
                await wire.close()

    asyncio.run(playing())


def created(code: int = 0, message: str | None = None) -> Callable[[Any], CreateTopicsResponse]:
    return lambda request: CreateTopicsResponse(
        topics=[CreatableTopicResult(name=request.topics[0].name, error_code=code, error_message=message)]
    )
