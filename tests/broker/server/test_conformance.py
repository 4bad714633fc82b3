"""The broker answers every API that ApiVersions promises, in every version, and nothing else."""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path

import pytest
from broker_logs import server_log
from patience import within
from wire_client import WireClient

from engine.broker.handlers.registry import all_handlers
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from engine.kafka.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from engine.kafka.protocol.declaration import Request, request_class
from engine.kafka.protocol.frames import decode_response
from engine.kafka.zk.client import ZkClient
from engine.local.cluster import LocalCluster

RECORDED = Path(__file__).parents[3] / "fixtures" / "frames" / "answers-kafka-3.9.1.jsonl"
HANDLERS = all_handlers()
PROMISES = [
    (entry.key, version) for entry in HANDLERS.values() for version in range(entry.min_version, entry.max_version + 1)
]
KEPT = [promise for promise in PROMISES if promise[0] is not ApiKey.ENVELOPE]


def minimal_request(key: ApiKey) -> Request:
    """Return a request that asks for as little as possible, and does least harm to a broker that serves other tests."""
    if key is ApiKey.CONTROLLED_SHUTDOWN:
        return ControlledShutdownRequest(broker_id=9999, broker_epoch=-1)
    return request_class(key)()


@pytest.mark.parametrize("version", range(5))
def test_api_versions_tells_the_handlers(address: str, version: int) -> None:
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    with WireClient(address) as client:
        answer = client.ask(request, version)
    assert answer.error_code == ErrorCode.NONE
    versions = [(api.api_key, api.min_version, api.max_version) for api in answer.api_keys]
    assert versions == [(int(e.key), e.min_version, e.max_version) for e in HANDLERS.values()]


def test_clients_are_told_the_version_of_the_finalized_features(cluster: LocalCluster, address: str) -> None:
    async def change() -> int:
        async with await ZkClient.connect(cluster.zookeeper_connect) as zk:
            data, _ = await zk.get("/feature")
            return (await zk.set("/feature", data)).version

    version = asyncio.run(change())
    request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
    is_in_time = within(20)
    with WireClient(address) as client:
        while client.ask(request, 3).finalized_features_epoch != version:
            assert is_in_time()
            time.sleep(0.02)


def test_clients_find_the_apis_that_kafka_lists() -> None:
    """Also those that it lists only to refuse them: tools guess a broker's release by the whole list."""
    lines = map(json.loads, RECORDED.read_text("utf-8").splitlines())
    line = next(line for line in lines if (line["key"], line["version"]) == (ApiKey.API_VERSIONS, 3))
    _, listed = decode_response(bytes.fromhex(line["response"])[4:], ApiKey.API_VERSIONS, 3)
    assert isinstance(listed, ApiVersionsResponse)
    ours = {int(entry.key): (entry.min_version, entry.max_version) for entry in HANDLERS.values()}
    assert ours == {api.api_key: (api.min_version, api.max_version) for api in listed.api_keys}


def test_clients_find_what_they_cannot_do_without() -> None:
    """librdkafka decides on compression by these, and kafka-python derives the broker's release from them."""
    for key, lowest, highest in ((0, 0, 8), (1, 0, 11), (2, 0, 5), (3, 0, 8), (10, 0, 2), (18, 0, 3), (22, 0, 1)):
        entry = HANDLERS[key]
        assert entry.min_version <= lowest and entry.max_version >= highest


@pytest.mark.parametrize(("key", "version"), KEPT, ids=lambda value: getattr(value, "name", str(value)))
def test_every_promise_is_kept(cluster: LocalCluster, address: str, key: ApiKey, version: int) -> None:
    length = len(server_log(cluster.broker(0).logs_path))
    with WireClient(address) as client:
        if key is ApiKey.PRODUCE:
            # Without records and with acks=0 there is no answer to send. The next answer proves that the request was
            # accepted.
            client.send(minimal_request(key), version)
        else:
            client.ask(minimal_request(key), version)
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        assert client.ask(request, 3).error_code == ErrorCode.NONE
    said = server_log(cluster.broker(0).logs_path)[length:]
    assert "Cannot handle a request" not in said
    assert "Closing a connection" not in said


UNANSWERED = [ApiKey.ENVELOPE, *(key for key in API_SPECS if key not in HANDLERS)]
"""What brokers do not forward (KIP-590), and what nobody is told of."""


@pytest.mark.parametrize("key", UNANSWERED, ids=lambda key: key.name)
def test_what_is_not_promised_is_not_answered(address: str, key: ApiKey) -> None:
    with WireClient(address) as client:
        client.send(minimal_request(key), API_SPECS[key].min_version)
        assert client.is_closed_by_peer()
