"""Headers and whole frames, against those of kafka-python and kio."""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any

import pytest
from kio.schema.request_header.v0.header import RequestHeader as KioHeader0
from kio.schema.request_header.v1.header import RequestHeader as KioHeader1
from kio.schema.request_header.v2.header import RequestHeader as KioHeader2
from kio.serial import entity_writer
from protocol_oracles import KafkaPython, oracles_for

from engine.common.errors import LocalProtocolError, RemoteProtocolError
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from engine.kafka.protocol.apis.controlled_shutdown import ControlledShutdownRequest
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData
from engine.kafka.protocol.apis.heartbeat import HeartbeatRequest, HeartbeatResponse
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.kafka.protocol.declaration import Request
from engine.kafka.protocol.frames import (
    RequestHeader,
    UnsupportedVersion,
    decode_request,
    decode_request_header,
    decode_response,
    encode_request,
    encode_response,
)


def body_of(frame: bytes) -> bytes:
    """Check the length prefix, and return what follows it."""
    assert struct.unpack_from(">i", frame)[0] == len(frame) - 4
    return bytes(frame[4:])


def fields_of(header: RequestHeader) -> tuple[Any, ...]:
    return header.api_key, header.api_version, header.correlation_id, header.client_id


def kio_header(cls: Any, **values: Any) -> bytes:
    out = BytesIO()
    entity_writer(cls)(out, cls(**values))
    return out.getvalue()


CLIENT_IDS = ["rdkafka", "", None, "größer" * 40]


class TestRequestHeaders:
    @pytest.mark.parametrize("client_id", CLIENT_IDS)
    @pytest.mark.parametrize(("version", "header"), [(3, KioHeader1), (4, KioHeader2)])
    def test_as_kio_writes_them(self, client_id: str | None, version: int, header: Any) -> None:
        frame = body_of(encode_request(HeartbeatRequest(), version, -7, client_id))
        expected = kio_header(
            header, request_api_key=12, request_api_version=version, correlation_id=-7, client_id=client_id
        )
        assert frame.startswith(expected)
        decoded, offset = decode_request_header(frame)
        assert fields_of(decoded) == (ApiKey.HEARTBEAT, version, -7, client_id)
        assert isinstance(decoded.api_key, ApiKey)
        assert offset == len(expected)

    @pytest.mark.parametrize("version", range(13))
    def test_as_kafka_python_writes_frames(self, version: int) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="t")])
        oracle = next(o for o in oracles_for(MetadataRequest, version) if isinstance(o, KafkaPython))
        theirs = oracle.build(request)
        theirs.with_header(correlation_id=9, client_id="me")
        assert encode_request(request, version, 9, "me") == theirs.encode(header=True, framed=True)

    def test_controlled_shutdown_0_has_no_client_id(self) -> None:
        frame = body_of(encode_request(ControlledShutdownRequest(broker_id=3), 0, 5, "dropped"))
        expected = kio_header(KioHeader0, request_api_key=7, request_api_version=0, correlation_id=5)
        assert frame == expected + b"\x00\x00\x00\x03"
        header, request = decode_request(frame)
        assert fields_of(header) == (ApiKey.CONTROLLED_SHUTDOWN, 0, 5, None)
        assert request == ControlledShutdownRequest(broker_id=3)

    def test_at_an_offset_of_any_buffer(self) -> None:
        frame = encode_request(HeartbeatRequest(), 4, 1, "me")
        for kind in (bytes, bytearray, memoryview):
            header, offset = decode_request_header(kind(frame), 4)
            assert fields_of(header) == (ApiKey.HEARTBEAT, 4, 1, "me")
            assert offset == 4 + 8 + 2 + 2 + 1

    def test_unknown_tagged_fields_are_skipped(self) -> None:
        header = struct.pack(">hhih", 12, 4, 1, -1) + b"\x02" + b"\x00\x01a" + b"\xac\x02\x02bc"
        assert decode_request_header(header + b"rest")[1] == len(header)

    @pytest.mark.parametrize(
        "data",
        [
            b"",
            b"\x00\x0c\x00\x04\x00\x00\x00",
            struct.pack(">hhi", 12, 4, 1),
            struct.pack(">hhih", 12, 4, 1, 5) + b"four",
            struct.pack(">hhih", 12, 4, 1, -2) + b"....",
            struct.pack(">hhih", 12, 4, 1, -1),
            struct.pack(">hhih", 12, 4, 1, -1) + b"\x01\x00",
            struct.pack(">hhih", 12, 4, 1, -1) + b"\x01\x00\x05ab",
            struct.pack(">hhih", 12, 4, 1, -1) + b"\xff\xff\xff\xff\xff\xff",
        ],
    )
    def test_malformed(self, data: bytes) -> None:
        with pytest.raises(RemoteProtocolError) as caught:
            decode_request_header(data)
        assert not isinstance(caught.value, UnsupportedVersion)

    def test_a_client_id_of_another_code(self) -> None:
        header, _ = decode_request_header(struct.pack(">hhih", 12, 4, 1, 4) + b"b\xfcro\x00")
        assert header.client_id == "b\ufffdro"

    @pytest.mark.parametrize(("key", "version"), [(18, 5), (3, 13), (3, -1), (52, 0), (-1, 0), (7, 4)])
    def test_unknown_key_or_version(self, key: int, version: int) -> None:
        with pytest.raises(UnsupportedVersion, match=f"key {key} version {version}") as caught:
            decode_request(struct.pack(">hhih", key, version, 77, -1))
        assert fields_of(caught.value.header) == (key, version, 77, None)

    def test_a_client_id_that_cannot_be_written(self) -> None:
        with pytest.raises(LocalProtocolError, match="client id takes 32768 bytes"):
            encode_request(HeartbeatRequest(), 4, 1, "x" * 32_768)
        with pytest.raises(LocalProtocolError, match="client id"):
            encode_request(HeartbeatRequest(), 4, 1, "\ud800")


class TestResponses:
    @pytest.mark.parametrize(
        ("version", "expected"),
        [(3, "00000007 00000000 001b"), (4, "00000007 00 00000000 001b 00")],
    )
    def test_headers(self, version: int, expected: str) -> None:
        response = HeartbeatResponse(error_code=27)
        frame = body_of(encode_response(response, ApiKey.HEARTBEAT, version, 7))
        assert frame == bytes.fromhex(expected)
        assert decode_response(frame, ApiKey.HEARTBEAT, version) == (7, response)

    def test_api_versions_keeps_header_0(self) -> None:
        frame = body_of(encode_response(ApiVersionsResponse(), ApiKey.API_VERSIONS, 4, 7))
        assert frame == bytes.fromhex("00000007 0000 01 00000000 00")
        assert decode_response(frame, ApiKey.API_VERSIONS, 4) == (7, ApiVersionsResponse())

    def test_the_length_counts_ranges(self) -> None:
        class FileRange:
            size_bytes = 1000

        partition = PartitionData(records=FileRange())
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
        frame = encode_response(response, ApiKey.FETCH, 11, 7)
        assert struct.unpack_from(">i", frame)[0] == len(frame) - 4 + 1000
        assert frame.ranges == [(len(frame), partition.records)]

    @pytest.mark.parametrize("data", [b"", b"\x00\x00\x00", b"\x00\x00\x00\x07", b"\x00\x00\x00\x07\x01\x00\x09a"])
    def test_malformed(self, data: bytes) -> None:
        with pytest.raises(RemoteProtocolError):
            decode_response(data, ApiKey.HEARTBEAT, 4)


def test_bytes_too_many() -> None:
    request: Request = ApiVersionsRequest()
    with pytest.raises(RemoteProtocolError, match="1 bytes too many"):
        decode_request(body_of(encode_request(request, 3, 1, None)) + b"\x00")
    answer = body_of(encode_response(ApiVersionsResponse(), ApiKey.API_VERSIONS, 3, 1))
    with pytest.raises(RemoteProtocolError, match="2 bytes too many"):
        decode_response(answer + b"\x00\x00", ApiKey.API_VERSIONS, 3)
