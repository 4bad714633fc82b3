"""The connection to the controller, over real sockets: metadata finds it, and the connection follows it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from contextlib import suppress
from typing import Any

import pytest
from event_loop import staged
from network_serving import run, serving

from engine.broker.network.request import RequestHead
from engine.broker.replication.controller_channel import ControllerChannel, ControllerUnknown
from engine.broker.replication.metadata_cache import MetadataCache
from engine.broker.replication.settings import ReplicationSettings
from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.client.errors import ConnectionLost, RequestTimedOut
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataResponse
from engine.kafka.protocol.apis.update_metadata import (
    UpdateMetadataBroker,
    UpdateMetadataEndpoint,
    UpdateMetadataRequest,
)

Answer = Callable[[RequestHead, Any], Coroutine[Any, Any, MetadataResponse]]


def answering(controller_id: int) -> Answer:
    async def answer(request: RequestHead, body: Any) -> MetadataResponse:
        return MetadataResponse(controller_id=controller_id, brokers=[], topics=[])

    return answer


def controlled_by(cache: MetadataCache, controller_id: int, **addresses: tuple[str, int]) -> None:
    """Tell the cache where the brokers are; keys are ``b<id>``."""
    brokers = [
        UpdateMetadataBroker(
            id=int(name[1:]),
            endpoints=[UpdateMetadataEndpoint(host=host, port=port, listener="PLAINTEXT", security_protocol=0)],
        )
        for name, (host, port) in addresses.items()
    ]
    cache.update(UpdateMetadataRequest(controller_id=controller_id, live_brokers=brokers), correlation_id=1)


async def ask(channel: ControllerChannel) -> int:
    response, version = await channel.ask(ApiKey.METADATA, lambda version: MetadataRequest(topics=[]), version_max=9)
    assert version == 9
    return int(response.controller_id)


@staged(run)
async def test_without_a_controller_there_is_nobody_to_ask() -> None:
    channel = ControllerChannel(MetadataCache(1), ReplicationSettings(1))
    with pytest.raises(ControllerUnknown):
        await ask(channel)
    await channel.close()


@staged(run)
async def test_it_asks_whoever_is_controller() -> None:
    cache = MetadataCache(1)
    channel = ControllerChannel(cache, ReplicationSettings(1))
    async with (
        serving({ApiKey.METADATA: answering(1)}) as (_, host1, port1),
        serving({ApiKey.METADATA: answering(2)}) as (_, host2, port2),
    ):
        addresses = {"b1": (host1, port1), "b2": (host2, port2)}
        controlled_by(cache, 1, **addresses)
        assert await ask(channel) == 1
        controlled_by(cache, 2, **addresses)
        assert await ask(channel) == 2
        await channel.close()


@staged(run)
async def test_a_controller_that_moves_while_versions_are_asked_is_not_connected_to_again(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cache = MetadataCache(1)
    channel = ControllerChannel(cache, ReplicationSettings(1))
    version_for = BrokerClient.version_for
    async with (
        serving({ApiKey.METADATA: answering(1)}) as (_, host1, port1),
        serving({ApiKey.METADATA: answering(2)}) as (_, host2, port2),
    ):
        addresses = {"b1": (host1, port1), "b2": (host2, port2)}

        async def moves_meanwhile(client: BrokerClient, key: ApiKey, *, version_max: int | None = None) -> int:
            version = await version_for(client, key, version_max=version_max)
            controlled_by(cache, 2, **addresses)
            return version

        monkeypatch.setattr(BrokerClient, "version_for", moves_meanwhile)
        controlled_by(cache, 1, **addresses)
        with pytest.raises(ConnectionLost, match="has moved"):
            await ask(channel)
        assert await ask(channel) == 2
        await channel.close()


@staged(run)
async def test_a_controller_that_gives_no_answer_is_connected_to_again() -> None:
    """A broker in its place at the same address, or the same one behind a restarted firewall, answers then."""
    cache = MetadataCache(1)
    channel = ControllerChannel(cache, ReplicationSettings(1, controller_socket_timeout_ms=50))
    is_silent = True

    async def answer(request: RequestHead, body: Any) -> MetadataResponse:
        if is_silent:
            await asyncio.Event().wait()
        return MetadataResponse(controller_id=1, brokers=[], topics=[])

    async with serving({ApiKey.METADATA: answer}) as (_, host1, port1):
        controlled_by(cache, 1, b1=(host1, port1))
        with pytest.raises(RequestTimedOut, match=r"within 0\.05 s"):
            await ask(channel)
        is_silent = False
        async with asyncio.timeout(20):
            while True:
                # A busy machine may need longer than the limit even for this.
                with suppress(RequestTimedOut):
                    assert await ask(channel) == 1
                    break
        await channel.close()


@staged(run)
async def test_a_request_to_a_controller_that_moved_ends_at_once() -> None:
    cache, has_come = MetadataCache(1), asyncio.Event()
    channel = ControllerChannel(cache, ReplicationSettings(1))

    async def never(request: RequestHead, body: Any) -> MetadataResponse:
        has_come.set()
        await asyncio.Event().wait()
        raise AssertionError

    async with (
        serving({ApiKey.METADATA: never}) as (_, host1, port1),
        serving({ApiKey.METADATA: answering(2)}) as (_, host2, port2),
    ):
        addresses = {"b1": (host1, port1), "b2": (host2, port2)}
        controlled_by(cache, 1, **addresses)
        asking = asyncio.create_task(ask(channel))
        async with asyncio.timeout(20):
            await has_come.wait()
            controlled_by(cache, 2, **addresses)
            with pytest.raises(ConnectionLost):
                await asking
            assert await ask(channel) == 2
        await channel.close()
