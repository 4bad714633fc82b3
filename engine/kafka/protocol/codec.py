"""Decoders and encoders: one function per (message, version), compiled on first use and kept.

Callers on a hot path look up their function once and keep it.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any, Protocol, TypeAlias, TypeVar

from engine.common.errors import LocalProtocolError
from engine.kafka.protocol.api_keys import API_SPECS
from engine.kafka.protocol.declaration import Message, Request, Response
from engine.kafka.protocol.decoder_source import compile_decoder
from engine.kafka.protocol.encoder_source import compile_encoder
from engine.kafka.protocol.large_arrays import EncodedPiece


class SizedRange(Protocol):
    """Bytes that are sent from where they are: a part of a file, or an ``EncodedPiece`` in memory."""

    @property
    def size_bytes(self) -> int:
        """Number of bytes to splice in; must not change until they are sent."""


class Outgoing(bytearray):
    """Encoded bytes without the ranges. Each range is (position, range), to be sent before the byte at that position.

    Positions ascend and count only the bytes of this buffer. Lengths inside the message already include the ranges.
    """

    ranges: list[tuple[int, SizedRange]] | tuple[()] = ()

    def splice(self, record_range: SizedRange) -> None:
        """Splice in ``record_range`` at the current end."""
        if not self.ranges:
            self.ranges = []
        self.ranges.append((len(self), record_range))

    @property
    def memory_bytes(self) -> int:
        """Length without ranges of files."""
        return len(self) + sum([part.size_bytes for _, part in self.ranges if type(part) is EncodedPiece])

    @property
    def size_bytes(self) -> int:
        """Length including the ranges."""
        return len(self) + sum([record_range.size_bytes for _, record_range in self.ranges])

    def append_whole(self, other: Outgoing) -> None:
        """Add another message's bytes and ranges at the end."""
        if other.ranges:
            start = len(self)
            self.ranges = [*self.ranges, *((start + position, part) for position, part in other.ranges)]
        self += other


Buffer: TypeAlias = bytes | bytearray | memoryview
M = TypeVar("M", bound=Message)
Decoder: TypeAlias = Callable[[Buffer, int], tuple[M, int]]
"""(buffer, offset) -> (value, offset after it). The buffer must end with the message: its end limits all lengths.

RECORDS fields are memoryviews into the buffer; everything else is copied.

Raises:
    RemoteProtocolError: the bytes are not such a message. It ignores bytes after the message.
"""
Encoder: TypeAlias = Callable[[Outgoing, M], None]
"""Appends a value to the buffer.

Raises:
    LocalProtocolError: the version cannot carry the value; the error names the field. The buffer's end is then
        undefined.
"""


def decoder(cls: type[M], version: int, *, is_bounded: bool = False) -> Decoder[M]:
    """Return the decoder for one version of a message.

    Args:
        is_bounded: it refuses a message whose value takes much more memory than its bytes. It is a little slower.

    Raises:
        LocalProtocolError: the API has no such version.
    """
    decode: Decoder[M] = _decoder(cls, version, is_bounded)
    return decode


def encoder(cls: type[M], version: int, *, is_large: bool = False) -> Encoder[M]:
    """Return the encoder for one version of a message.

    Args:
        is_large: it splices in what is encoded already, ``EncodedList``. Others encode it once more.

    Raises:
        LocalProtocolError: the API has no such version.
    """
    encode: Encoder[M] = _encoder(cls, version, is_large)
    return encode


@cache
def _decoder(cls: type[Message], version: int, is_bounded: bool) -> Any:
    _check(cls, version)
    return compile_decoder(cls, version, is_bounded=is_bounded)


@cache
def _encoder(cls: type[Message], version: int, is_large: bool) -> Any:
    _check(cls, version)
    return compile_encoder(cls, version, is_large=is_large)


def _check(cls: type[Message], version: int) -> None:
    if issubclass(cls, Request | Response) and not API_SPECS[cls.api_key].supports(version):
        spec = API_SPECS[cls.api_key]
        raise LocalProtocolError(
            f"{cls.__name__} has the versions {spec.min_version} to {spec.max_version}, not {version}"
        )
