"""Large requests and answers: decoded and encoded beside the event loop, whole and in their order."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from network_serving import correlation_ids, metadata_request, read_frame, run, serving

from engine.network.connection import LARGE_FRAME_BYTES
from engine.network.request import Deferred, LargeAnswer, RequestHead
from engine.protocol.api_keys import ApiKey
from engine.protocol.apis.fetch import FetchRequest, FetchResponse
from engine.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponse
from engine.protocol.frames import encode_request


def test_a_large_answer_is_encoded_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the size of the question; the answers keep their order."""
    beside: list[str] = []
    to_thread = asyncio.to_thread

    async def noted(function: Any, *args: Any) -> Any:
        beside.append(function.__name__)
        return await to_thread(function, *args)

    monkeypatch.setattr("engine.network.connection.asyncio.to_thread", noted)

    async def metadata(request: RequestHead, body: MetadataRequest) -> LargeAnswer:
        return LargeAnswer(MetadataResponse(cluster_id=str(len(body.topics or ()))))

    async def check() -> None:
        async with serving({ApiKey.METADATA: metadata}) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            names = [MetadataRequestTopic(name=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 10)]
            writer.write(metadata_request("t", 1) + metadata_request("t", 2))
            writer.write(bytes(encode_request(MetadataRequest(topics=names), 4, 3, "c")))
            answers = [await read_frame(reader) for _ in range(3)]
            assert correlation_ids(answers) == [1, 2, 3]
            assert str(len(names)).encode() in answers[2]
            assert len(beside) == 4, "three answers, and one request"
            writer.close()

    run(check)


@pytest.mark.parametrize("is_async", [True, False])
def test_large_requests_are_decoded_and_encoded_beside_the_loop(
    is_async: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside: list[str] = []
    to_thread = asyncio.to_thread

    async def noted(function: Any, *args: Any) -> Any:
        beside.append(function.__name__)
        return await to_thread(function, *args)

    monkeypatch.setattr("engine.network.connection.asyncio.to_thread", noted)
    names = [MetadataRequestTopic(name=f"topic-{number}") for number in range(LARGE_FRAME_BYTES // 10)]

    def metadata(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        return MetadataResponse(cluster_id=str(len(body.topics or ())))

    async def metadata_later(request: RequestHead, body: MetadataRequest) -> MetadataResponse:
        await asyncio.sleep(0)
        return metadata(request, body)

    async def check() -> None:
        waiting = Deferred()
        handlers = {
            ApiKey.METADATA: metadata_later if is_async else metadata,
            ApiKey.FETCH: lambda request, body: waiting,
        }
        async with serving(handlers) as (_, host, port):
            reader, writer = await asyncio.open_connection(host, port)
            for number, topics in enumerate((names[:1], names, names[:2])):
                writer.write(bytes(encode_request(MetadataRequest(topics=topics), 4, number, "c")))
            writer.write(bytes(encode_request(FetchRequest(topics=[]), 4, 3, "c")))
            writer.write(bytes(encode_request(MetadataRequest(topics=names), 4, 4, "c")))
            answers = [await read_frame(reader) for _ in range(3)]
            assert correlation_ids(answers) == [0, 1, 2]
            assert str(len(names)).encode() in answers[1]
            async with asyncio.timeout(20):
                while len(beside) < 4:
                    await asyncio.sleep(0.001)
            waiting.complete(FetchResponse(responses=[]))
            assert correlation_ids([await read_frame(reader) for _ in range(2)]) == [3, 4]
            assert len(beside) == 4, "decoded and encoded, twice"

            damaged = bytearray(encode_request(MetadataRequest(topics=names), 4, 5, "c"))
            damaged[-20:] = b"\xff" * 20
            writer.write(bytes(damaged))
            async with asyncio.timeout(20):
                assert await reader.read() == b""
            writer.close()

    run(check)
