"""Frames of a genuine Kafka 3.9.1: each decodes, and encodes to the same bytes again."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from engine.kafka.protocol.api_keys import API_SPECS, KRAFT_ONLY, ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsResponse
from engine.kafka.protocol.frames import (
    UnsupportedVersion,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)

FIXTURES = Path(__file__).parents[3] / "fixtures" / "frames"


def recorded(name: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in (FIXTURES / name).read_text("utf-8").splitlines()]


BETWEEN_BROKERS = recorded("between-brokers-kafka-3.9.1.jsonl")
ANSWERS = recorded("answers-kafka-3.9.1.jsonl")


def check_request(frame: bytes, key: int, version: int) -> None:
    header, request = decode_request(memoryview(frame)[4:])
    assert (header.api_key, header.api_version) == (key, version)
    assert encode_request(request, version, header.correlation_id, header.client_id) == frame


def check_response(frame: bytes, key: int, version: int) -> None:
    correlation_id, response = decode_response(memoryview(frame)[4:], ApiKey(key), version)
    assert encode_response(response, ApiKey(key), version, correlation_id) == frame


@pytest.mark.parametrize(
    "line",
    BETWEEN_BROKERS,
    ids=[f"{x['api']}-v{x['version']}-{x['dir']}-{len(x['hex']) // 2}" for x in BETWEEN_BROKERS],
)
def test_between_brokers(line: dict[str, Any]) -> None:
    frame = bytes.fromhex(line["hex"])
    if line["dir"] == "request":
        check_request(frame, line["key"], line["version"])
        header, _ = decode_request_header(frame, 4)
        assert (header.client_id, header.correlation_id) == (line["client"], line["correlation"])
    else:
        check_response(frame, line["key"], line["version"])
        assert decode_response(frame[4:], ApiKey(line["key"]), line["version"])[0] == line["correlation"]


@pytest.mark.parametrize("line", ANSWERS, ids=[f"{x['state']}-{x['what']}" for x in ANSWERS])
def test_answers(line: dict[str, Any]) -> None:
    request, response = bytes.fromhex(line["request"]), bytes.fromhex(line["response"])
    if API_SPECS[line["key"]].supports(line["version"]):
        check_request(request, line["key"], line["version"])
        check_response(response, line["key"], line["version"])
        return
    with pytest.raises(UnsupportedVersion) as caught:
        decode_request(request[4:])
    assert (caught.value.header.api_key, caught.value.header.api_version) == (line["key"], line["version"])
    check_response(response, ApiKey.API_VERSIONS, 0)


def test_a_broker_of_3_9_advertises_what_is_declared() -> None:
    line = next(x for x in ANSWERS if (x["key"], x["version"]) == (ApiKey.API_VERSIONS, 3))
    _, response = decode_response(bytes.fromhex(line["response"])[4:], ApiKey.API_VERSIONS, 3)
    assert isinstance(response, ApiVersionsResponse)
    advertised = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
    declared = {int(k): (spec.min_version, spec.max_version) for k, spec in API_SPECS.items() if k not in KRAFT_ONLY}
    assert advertised == declared
