"""Whole frames: a length, then a request or response header, then the message.

A frame to decode no longer has its length; an encoded frame has it.
"""

from __future__ import annotations

import struct
from collections.abc import Callable
from functools import cache
from typing import Any

from engine.common.errors import LocalProtocolError, RemoteProtocolError
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey, request_header_version, response_header_version
from engine.kafka.protocol.codec import Buffer, Outgoing, decoder, encoder
from engine.kafka.protocol.declaration import Request, Response, request_class, response_class
from engine.kafka.protocol.wire import STRING_BYTES_MAX, Malformed, skip_tagged

_REQUEST_START = struct.Struct(">hhi")
_REQUEST_START_WITH_LENGTH = struct.Struct(">hhih")
_FRAME_START = struct.Struct(">ihhi")
_INT16 = struct.Struct(">h")
_INT32 = struct.Struct(">i")
_RESPONSE_START = (struct.Struct(">ii"), struct.Struct(">iix"))


class RequestHeader:
    """The header of every request. ``api_key`` is a plain int if it is unknown."""

    __slots__ = ("api_key", "api_version", "client_id", "correlation_id")

    def __init__(self, api_key: int, api_version: int, correlation_id: int, client_id: str | None = None) -> None:
        self.api_key = api_key
        self.api_version = api_version
        self.correlation_id = correlation_id
        self.client_id = client_id

    def __repr__(self) -> str:
        return (
            f"RequestHeader(api_key={self.api_key!r}, api_version={self.api_version},"
            f" correlation_id={self.correlation_id}, client_id={self.client_id!r})"
        )


class UnsupportedVersion(RemoteProtocolError):
    """The request's key or version is not declared. An ApiVersions request still gets an answer (KIP-511)."""

    def __init__(self, header: RequestHeader) -> None:
        super().__init__(f"no such request: key {int(header.api_key)} version {header.api_version}")
        self.header = header


def decode_request_header(buffer: Buffer, offset: int = 0) -> tuple[RequestHeader, int]:
    """Return the header and the offset of the request's body.

    Raises:
        UnsupportedVersion: unknown key, or a version outside the table; the client id was not read.
        RemoteProtocolError: the bytes are not a header.
    """
    try:
        key, version, correlation_id, size = _REQUEST_START_WITH_LENGTH.unpack_from(buffer, offset)
        flexible_since = _HEADERS[key, version]
    except (struct.error, KeyError):
        return _rare_header(buffer, offset)
    position = offset + 10
    client_id = None
    if size != -1:
        end = position + size
        if size < 0 or end > len(buffer):
            raise RemoteProtocolError(f"request header: the client id has the length {size}")
        client_id = str(buffer[position:end], "utf-8", "replace")
        position = end
    key, has_tags = flexible_since
    if has_tags:
        position = skip_header_tags(buffer, position)
    return RequestHeader(key, version, correlation_id, client_id), position


_HEADERS = {
    (int(spec.key), version): (spec.key, spec.is_flexible_in(version))
    for spec in API_SPECS.values()
    for version in range(spec.min_version, spec.max_version + 1)
    if request_header_version(spec.key, version) > 0
}


def _rare_header(buffer: Buffer, offset: int) -> tuple[RequestHeader, int]:
    """Read the header of ControlledShutdown 0, which has no client id, or report what is wrong."""
    try:
        key, version, correlation_id = _REQUEST_START.unpack_from(buffer, offset)
    except struct.error as error:
        raise RemoteProtocolError(f"a request of {len(buffer) - offset} bytes") from error
    if key == ApiKey.CONTROLLED_SHUTDOWN and version == 0:
        return RequestHeader(ApiKey.CONTROLLED_SHUTDOWN, 0, correlation_id), offset + 8
    if (key, version) in _HEADERS:
        raise RemoteProtocolError("request header: no client id")
    raise UnsupportedVersion(RequestHeader(key, version, correlation_id))


def skip_header_tags(buffer: Buffer, position: int) -> int:
    """Return the offset after a header's tagged fields, which this code does not read."""
    try:
        count = buffer[position]
        return position + 1 if count == 0 else skip_tagged(buffer, position + 1, count)
    except (IndexError, Malformed) as error:
        raise RemoteProtocolError(f"header: tagged fields: {error}") from error


def decode_request(buffer: Buffer) -> tuple[RequestHeader, Request]:
    """Return the header and request in a frame without its length.

    Raises:
        RemoteProtocolError: malformed, or bytes are left over.
    """
    header, offset = decode_request_header(buffer)
    key = ApiKey(header.api_key)
    request, end = decoder(request_class(key), header.api_version)(buffer, offset)
    _check_end(buffer, end, f"{key.name} request")
    return header, request


def encode_request(request: Request, api_version: int, correlation_id: int, client_id: str | None) -> Outgoing:
    """Return a whole frame with its length.

    Raises:
        LocalProtocolError: the version cannot carry the request, or the client id is too long.
    """
    key = request.api_key
    out = Outgoing(_FRAME_START.pack(0, key, api_version, correlation_id))
    header_version = request_header_version(key, api_version)
    if header_version > 0:
        _append_client_id(out, client_id)
    if header_version == 2:
        out.append(0)
    encoder(type(request), api_version)(out, request)
    _INT32.pack_into(out, 0, (out.size_bytes if out.ranges else len(out)) - 4)
    return out


def _append_client_id(out: Outgoing, client_id: str | None) -> None:
    if client_id is None:
        out += _INT16.pack(-1)
        return
    try:
        encoded = client_id.encode()
    except UnicodeEncodeError as error:
        raise LocalProtocolError(f"the client id is not text: {error}") from error
    if len(encoded) > STRING_BYTES_MAX:
        raise LocalProtocolError(f"the client id takes {len(encoded)} bytes, {STRING_BYTES_MAX} is the limit")
    out += _INT16.pack(len(encoded))
    out += encoded


@cache
def _response_parts(api_key: ApiKey, api_version: int) -> tuple[Callable[..., bytes], Callable[[Outgoing, Any], None]]:
    start = _RESPONSE_START[response_header_version(api_key, api_version)]
    return start.pack, encoder(response_class(api_key), api_version)


def encode_response(response: Response, api_key: ApiKey, api_version: int, correlation_id: int) -> Outgoing:
    """Return a whole frame with its length, which includes the spliced ranges.

    Raises:
        LocalProtocolError: the version cannot carry the answer.
    """
    pack_start, encode = _response_parts(api_key, api_version)
    out = Outgoing(pack_start(0, correlation_id))
    encode(out, response)
    _INT32.pack_into(out, 0, (out.size_bytes if out.ranges else len(out)) - 4)
    return out


def decode_response(buffer: Buffer, api_key: ApiKey, api_version: int) -> tuple[int, Response]:
    """Return (correlation id, response) from a frame without its length.

    Raises:
        RemoteProtocolError: malformed, or bytes are left over.
    """
    try:
        (correlation_id,) = _INT32.unpack_from(buffer, 0)
    except struct.error as error:
        raise RemoteProtocolError(f"an answer of {len(buffer)} bytes") from error
    offset = 4
    if response_header_version(api_key, api_version) == 1:
        offset = skip_header_tags(buffer, offset)
    response, end = decoder(response_class(api_key), api_version)(buffer, offset)
    _check_end(buffer, end, f"{api_key.name} answer")
    return correlation_id, response


def _check_end(buffer: Buffer, end: int, frame_name: str) -> None:
    if end != len(buffer):
        raise RemoteProtocolError(f"{frame_name}: {len(buffer) - end} bytes too many")
