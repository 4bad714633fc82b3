"""Frame lengths and their limit."""

from __future__ import annotations

import pytest

from engine.common.errors import RemoteProtocolError
from engine.protocol.framing import REQUEST_BYTES_MAX, check_frame_length, read_frame_length


def test_lengths_up_to_the_limit_pass() -> None:
    assert check_frame_length(0) == 0
    assert check_frame_length(REQUEST_BYTES_MAX) == REQUEST_BYTES_MAX == 100 * 1024 * 1024
    assert check_frame_length(10, max_bytes=10) == 10


@pytest.mark.parametrize(("length", "told"), [(-1, "negative length -1"), (11, "11 bytes, the limit is 10")])
def test_other_lengths_are_refused(length: int, told: str) -> None:
    with pytest.raises(RemoteProtocolError, match=told):
        check_frame_length(length, max_bytes=10)


def test_reading_one() -> None:
    assert read_frame_length(b"\xff\x00\x00\x01\x02", 1) == 258
    assert read_frame_length(b"\x00\x00\x01", 0) == -1
    assert read_frame_length(b"\x00\x00\x00\x01\x02", 2) == -1
    with pytest.raises(RemoteProtocolError, match="1213486160 bytes"):
        read_frame_length(b"HTTP/1.1 400 Bad Request", 0)
