"""Decompression into limited memory, which the codecs' modules share."""

from __future__ import annotations

import mmap
from typing import Any

import cramjam

from engine.kafka.protocol.records.faults import Corrupt, TooLarge

_SMALL_BYTES = 256 * 1024


def decompress_within(codec: Any, data: bytes, bound: int, size_max: int) -> bytes:
    """Run one of cramjam's codec modules with an output buffer that cannot grow beyond ``size_max``.

    ``bound`` is an upper bound of the plain size: data that exceeds it is corrupt.

    Raises:
        Corrupt: not this codec's bytes. TooLarge: more than ``size_max`` plain bytes.
    """
    room = min(bound, size_max)
    # A bytearray is first filled with zeros; pages of a mapping cost nothing until they are used.
    target: bytearray | mmap.mmap = bytearray(room) if room <= _SMALL_BYTES else mmap.mmap(-1, room)
    try:
        size = codec.decompress_into(data, target)
        with memoryview(target) as view:
            return bytes(view[:size])
    except cramjam.DecompressionError as error:
        if bound > size_max and "whole buffer" in str(error):
            raise TooLarge from None
        raise Corrupt(str(error)) from None
    finally:
        if isinstance(target, mmap.mmap):
            target.close()
