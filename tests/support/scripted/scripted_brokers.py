"""Brokers that answer as a test says, with real sockets and frames but no logic.

They do what a real cluster rarely does.
"""

from __future__ import annotations

import asyncio
import inspect
import ssl
import struct
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

from engine.common.topic_id import ZERO_TOPIC_ID
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersion, ApiVersionsResponse
from engine.kafka.protocol.apis.metadata import (
    MetadataRequest,
    MetadataResponse,
    MetadataResponseBroker,
    MetadataResponsePartition,
    MetadataResponseTopic,
)
from engine.kafka.protocol.declaration import Request, Response
from engine.kafka.protocol.frames import decode_request, encode_response
from engine.local.addresses import own_loopback_address

HANG_UP = object()
"""The answer is a closed connection."""

SILENCE = object()
"""There is no answer at all."""

Answer = Callable[[Any], Any]


class ScriptedBroker:
    """One broker. ``answers`` maps an API to a function from the request to its answer, HANG_UP or SILENCE.

    A coroutine function answers late, and that connection carries nothing else before.
    """

    def __init__(self, broker_id: int, host: str, port: int, *, version_max: dict[ApiKey, int] | None = None) -> None:
        self.id = broker_id
        self.host = host
        self.port = port
        self.answers: dict[ApiKey, Answer] = {}
        self.received: list[Request] = []
        self.is_frozen = False
        """It accepts connections, and answers nothing."""
        self.tls: ssl.SSLContext | None = None
        """From its next start on it speaks TLS."""
        self._version_max = version_max or {}
        self._server: asyncio.Server | None = None
        self._writers: list[asyncio.StreamWriter] = []

    def requests(self, kind: type[Request]) -> list[Any]:
        """Return the received requests of one kind, in order."""
        return [request for request in self.received if isinstance(request, kind)]

    async def start(self) -> None:
        self._server = await asyncio.start_server(self._serve, self.host, self.port, ssl=self.tls)

    async def stop(self) -> None:
        """Close the port and all connections."""
        if self._server is not None:
            self._server.close()
            for writer in self._writers:
                writer.transport.abort()
            self._server = None

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.append(writer)
        try:
            while True:
                (size,) = struct.unpack(">i", await reader.readexactly(4))
                header, request = decode_request(await reader.readexactly(size))
                if isinstance(request, MetadataRequest) and header.api_version == 0 and not request.topics:
                    # In version 0 an empty list means all topics.
                    request.topics = None
                self.received.append(request)
                answer = self._answer(request)
                if inspect.isawaitable(answer):
                    answer = await answer
                if answer is HANG_UP:
                    break
                if isinstance(answer, Response):
                    key = ApiKey(header.api_key)
                    writer.write(bytes(encode_response(answer, key, header.api_version, header.correlation_id)))
        except (asyncio.IncompleteReadError, ConnectionError):
            return
        finally:
            writer.close()

    def _answer(self, request: Request) -> Any:
        key = request.api_key
        if self.is_frozen:
            return SILENCE
        if key is ApiKey.API_VERSIONS:
            offered = [API_VERSIONS_SPEC, *(API_SPECS[key] for key in self.answers)]
            return ApiVersionsResponse(
                api_keys=[
                    ApiVersion(
                        api_key=int(spec.key),
                        min_version=spec.min_version,
                        max_version=min(spec.max_version, self._version_max.get(spec.key, spec.max_version)),
                    )
                    for spec in offered
                ]
            )
        return self.answers[key](request)


API_VERSIONS_SPEC = API_SPECS[ApiKey.API_VERSIONS]


class ScriptedCluster:
    """Several scripted brokers that agree on who leads which partition."""

    def __init__(self, brokers: list[ScriptedBroker]) -> None:
        self.brokers = brokers
        self.controller_id = brokers[0].id
        self.racks: dict[int, str] = {}
        self.leaders: dict[str, list[int]] = {}
        """Leader of each partition, by topic."""
        self.topic_ids: dict[str, bytes] = {}
        """Those of the topics that have one."""
        self.replicas: dict[tuple[str, int], list[int]] = {}
        """Replicas of partitions that are not only on broker 0."""
        self.isrs: dict[tuple[str, int], list[int]] = {}
        """In-sync replicas of partitions where not all are in sync."""
        for broker in brokers:
            broker.answers[ApiKey.METADATA] = self._metadata

    @property
    def bootstrap(self) -> list[tuple[str, int]]:
        return [(broker.host, broker.port) for broker in self.brokers]

    def _metadata(self, request: Any) -> MetadataResponse:
        names = list(self.leaders) if request.topics is None else [topic.name for topic in request.topics]
        return MetadataResponse(
            brokers=[
                MetadataResponseBroker(node_id=b.id, host=b.host, port=b.port, rack=self.racks.get(b.id))
                for b in self.brokers
            ],
            cluster_id="scripted",
            controller_id=self.controller_id,
            topics=[self._topic(name) for name in names],
        )

    def _topic(self, name: str) -> MetadataResponseTopic:
        leaders = self.leaders.get(name)
        if leaders is None:
            return MetadataResponseTopic(error_code=3, name=name)
        partitions = [
            MetadataResponsePartition(
                partition_index=index,
                leader_id=leader,
                replica_nodes=(replicas := self.replicas.get((name, index), [0])),
                isr_nodes=self.isrs.get((name, index), replicas),
            )
            for index, leader in enumerate(leaders)
        ]
        return MetadataResponseTopic(name=name, topic_id=self.topic_ids.get(name, ZERO_TOPIC_ID), partitions=partitions)


@asynccontextmanager
async def scripted_cluster(count: int = 2, **options: Any) -> AsyncIterator[ScriptedCluster]:
    """Serve scripted brokers 0, 1, … on a loopback address of their own."""
    host = own_loopback_address()
    brokers = [ScriptedBroker(broker_id, host, 9092 + broker_id, **options) for broker_id in range(count)]
    try:
        for broker in brokers:
            await broker.start()
        yield ScriptedCluster(brokers)
    finally:
        for broker in brokers:
            await broker.stop()
