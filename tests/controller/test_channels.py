"""The line to one broker: what the controller says arrives in order, however long it takes to encode."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from event_loop import in_event_loop

from engine.common.model import BrokerInfo, Endpoint, SecurityProtocol, TopicPartition
from engine.config.metadata_version import MetadataVersion
from engine.controller import channels
from engine.controller.broker_requests import UpdateMetadataPartition, UpdateMetadataToBroker
from engine.controller.channels import PARTITIONS_AT_ONCE_MAX, BrokerChannel, ChannelSettings
from engine.protocol.apis.update_metadata import UpdateMetadataResponse


class StandInClient:
    """A connection whose answers come when the test gives them."""

    is_connected = True

    def __init__(self, *_: object, **__: object) -> None:
        self.sent: list[tuple[int, bool]] = []
        self.answers: asyncio.Queue[Any] = asyncio.Queue()

    async def send(self, request: Any, api_version: int, *, is_large: bool = False) -> Any:
        self.sent.append((sum(len(t.partition_states) for t in request.topic_states), is_large))
        return await self.answers.get()

    async def close(self) -> None:
        pass


@in_event_loop
async def test_what_comes_behind_a_large_request_waits_for_its_answer(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that is encoded beside the loop is not overtaken: the broker would go back to what is older."""
    client = StandInClient()
    monkeypatch.setattr(channels, "BrokerClient", lambda *_, **__: client)
    broker = BrokerInfo(1, (Endpoint("127.0.0.1", 1, "PLAINTEXT", SecurityProtocol.PLAINTEXT),))
    settings = ChannelSettings(0, MetadataVersion.IBP_3_9_IV0, "PLAINTEXT", "PLAINTEXT")
    channel = BrokerChannel(broker, settings, 1, lambda event: None)
    many = PARTITIONS_AT_ONCE_MAX + 1
    for count in (many, 1, PARTITIONS_AT_ONCE_MAX):
        channel.put(
            UpdateMetadataToBroker(
                broker_id=1,
                broker_epoch=0,
                controller_epoch=1,
                partitions=tuple(
                    UpdateMetadataPartition(TopicPartition("t", p), 1, 0, 0, (1,), 0, (1,), ()) for p in range(count)
                ),
                live_brokers=(broker,),
                topic_ids={},
            )
        )
    running = asyncio.ensure_future(channel.run())
    expected = [(many, True), (1, False), (PARTITIONS_AT_ONCE_MAX, False)]
    for number in range(1, len(expected) + 1):
        for _ in range(20):
            await asyncio.sleep(0)
        assert client.sent == expected[:number]
        client.answers.put_nowait(UpdateMetadataResponse(error_code=0))
    running.cancel()
    await asyncio.gather(running, return_exceptions=True)
