"""Values of internal topics: a 16-bit version, then a message of that version; also as JSON, as Kafka's tools print
it.
"""

from __future__ import annotations

import base64
import struct
from typing import Any, TypeVar

from engine.common.errors import ErrorCode, KafkaError, RemoteProtocolError
from engine.kafka.protocol.codec import Outgoing, decoder, encoder
from engine.kafka.protocol.declaration import Field, Message, Struct

_VERSION = struct.Struct(">h")

M = TypeVar("M", bound=Message)


def encode_versioned(message: Message, version: int) -> bytes:
    """Return the bytes of the version, then the message.

    Raises:
        LocalProtocolError: the version cannot carry the message.
    """
    outgoing = Outgoing()
    outgoing += _VERSION.pack(version)
    encoder(type(message), version)(outgoing, message)
    return bytes(outgoing)


def read_version(data: bytes) -> int:
    """Return the version that the data starts with.

    Raises:
        KafkaError: CORRUPT_MESSAGE if there are too few bytes.
    """
    if len(data) < _VERSION.size:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"{len(data)} bytes are too few for a versioned value")
    version: int = _VERSION.unpack_from(data)[0]
    return version


def decode_versioned(cls: type[M], data: bytes, version_max: int) -> M:
    """Return the message of a version from 0 to ``version_max``. Ignores bytes after it, as Kafka does.

    Raises:
        KafkaError: UNSUPPORTED_VERSION for another version, CORRUPT_MESSAGE for bytes that are not such a message.
    """
    version = read_version(data)
    if not 0 <= version <= version_max:
        raise KafkaError(
            ErrorCode.UNSUPPORTED_VERSION,
            f"a {cls.__name__} of version {version} cannot be read, only versions 0 to {version_max}",
        )
    message: M
    try:
        message, _ = decoder(cls, version)(data, _VERSION.size)
    except RemoteProtocolError as error:
        raise KafkaError(ErrorCode.CORRUPT_MESSAGE, f"malformed {cls.__name__}: {error}") from None
    return message


def json_fields(value: Struct, version: int) -> dict[str, Any]:
    """Return the version's fields under Kafka's names, in their order, with bytes as base64.

    As in Kafka's JSON converters, tagged fields appear only if they differ from the default.
    """
    return {
        _camel_case(declared.name): _json_value(getattr(value, declared.name), version)
        for declared in value.wire_fields
        if declared.is_in(version) and not _is_left_out(declared, getattr(value, declared.name))
    }


def _is_left_out(declared: Field, value: Any) -> bool:
    return declared.tag is not None and bool(value == declared.default)


def _json_value(value: Any, version: int) -> Any:
    if isinstance(value, Struct):
        return json_fields(value, version)
    if isinstance(value, list):
        return [_json_value(element, version) for element in value]
    if isinstance(value, bytes):
        return base64.b64encode(value).decode("ascii")
    return value


def _camel_case(name: str) -> str:
    first, *rest = name.split("_")
    return first + "".join(part.capitalize() for part in rest)
