"""Bytes that are no messages: every decoder raises only RemoteProtocolError, quickly and without much memory.

KLAMM_FUZZ_ROUNDS (default 1) multiplies the rounds:
KLAMM_FUZZ_ROUNDS=1000 pytest tests/kafka/protocol/test_malformed.py
"""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterator
from typing import Any

import pytest
from grown_requests import growing, grown
from protocol_values import all_messages, in_each_version, one_of
from soak import rounds

from engine.common.errors import RemoteProtocolError
from engine.kafka.protocol import decoder_source
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.kafka.protocol.codec import Outgoing, decoder, encoder
from engine.kafka.protocol.declaration import Message, request_class, response_class
from engine.kafka.protocol.frames import decode_request, decode_response, encode_request

ROUNDS = rounds("KLAMM_FUZZ_ROUNDS", 1)
HUGE = (
    b"\x7f\xff\xff\xff",
    b"\x80\x00\x00\x00",
    b"\xff\xff\xff\xff",
    b"\xff\xff\xff\xff\x07",
    b"\x7f\xff",
    b"\xff\xfe",
)


def encoded(value: Message, version: int) -> bytes:
    out = Outgoing()
    encoder(type(value), version)(out, value)
    return bytes(out)


def is_refused(cls: type[Message], version: int, data: bytes) -> bool:
    """Decode bytes that may not be a message. Any exception but the allowed one fails the test."""
    try:
        value, end = decoder(cls, version)(data, 0)
    except RemoteProtocolError:
        return True
    assert isinstance(value, cls)
    assert 0 <= end <= len(data)
    return False


@in_each_version
def test_only_the_one_error(cls: type[Message], version: int) -> None:
    rng = random.Random(f"{cls.__name__} {version}")
    whole = encoded(one_of(cls, version), version)
    for size in range(len(whole)):
        assert is_refused(cls, version, whole[:size])
    for data in damaged(whole, rng, rounds=10 * ROUNDS):
        is_refused(cls, version, data)
    for _ in range(5 * ROUNDS):
        is_refused(cls, version, rng.randbytes(rng.randrange(200)))
    is_refused(cls, version, bytes(1000))
    is_refused(cls, version, b"\xff" * 1000)


def damaged(whole: bytes, rng: random.Random, *, rounds: int) -> Iterator[bytes]:
    """Yield copies with flipped bits, with huge or negative numbers, and with bytes removed or inserted."""
    for _ in range(rounds if whole else 0):
        data = bytearray(whole)
        for _ in range(rng.randint(1, 3)):
            place = rng.randrange(len(data)) if data else 0
            kind = rng.randrange(4)
            if kind == 0 and data:
                data[place] ^= 1 << rng.randrange(8)
            elif kind == 1:
                number = rng.choice(HUGE)
                data[place : place + len(number)] = number
            elif kind == 2:
                del data[place : place + rng.randint(1, 5)]
            else:
                data[place:place] = rng.randbytes(rng.randint(1, 5))
        yield bytes(data)


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_huge_counts_take_no_memory(key: ApiKey) -> None:
    """No large number, wherever it is, may make a decoder allocate beyond a small multiple of the message's size."""
    spec = API_SPECS[key]
    versions = {spec.min_version, spec.max_version}
    for cls in (request_class(key), response_class(key)):
        for version in versions:
            whole = encoded(one_of(cls, version), version)
            # Made once, both of them: the second is for texts that are no UTF-8.
            decoder(cls, version)
            decoder_source._decoder_of_any_text(cls, version)
            tracemalloc.start()
            try:
                for place in range(len(whole)):
                    for number in HUGE[:4]:
                        is_refused(cls, version, whole[:place] + number + whole[place + len(number) :])
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            assert peak < 100_000, (cls, version)


@pytest.mark.parametrize("seed", range(20))
def test_frames(seed: int) -> None:
    rng = random.Random(seed)
    for cls, version in rng.sample(all_messages(), 20):
        if cls.__name__.endswith("Request"):
            frame = bytes(encode_request(one_of(cls, version), version, 1, "me"))[4:]  # type: ignore[arg-type]
            for data in damaged(frame, rng, rounds=3 * ROUNDS):
                try:
                    decode_request(data)
                except RemoteProtocolError:
                    continue
    for _ in range(50 * ROUNDS):
        data = rng.randbytes(rng.randrange(60))
        with pytest.raises(RemoteProtocolError):
            decode_response(data[:3], ApiKey.METADATA, 9)
        try:
            decode_response(data, ApiKey.METADATA, rng.randrange(13))
        except RemoteProtocolError:
            continue


@pytest.mark.parametrize("version", [9, 12])
def test_a_large_request_of_empty_elements_takes_a_bounded_memory(
    version: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """95 MB of empty names took 3.4 GB."""
    room = 2**20
    monkeypatch.setattr(decoder_source, "MEMORY_BYTES_MIN", room)
    bounded: Any = decoder_source.compile_decoder(MetadataRequest, version, is_bounded=True)
    for count, is_too_much in [(1_000, False), (200_000, True)]:
        topics = [MetadataRequestTopic(name="") for _ in range(count)]
        data = encoded(MetadataRequest(topics=topics), version)
        del topics
        assert len(decoder(MetadataRequest, version)(data, 0)[0].topics or ()) == count
        tracemalloc.start()
        try:
            if is_too_much:
                with pytest.raises(RemoteProtocolError, match="more memory than a request may"):
                    bounded(data, 0)
            else:
                assert len(bounded(data, 0)[0].topics) == count
            _, peak = tracemalloc.get_traced_memory()
        finally:
            tracemalloc.stop()
        assert peak <= 1.2 * max(room, decoder_source.MEMORY_PER_BYTE_MAX * len(data))
        if is_too_much and version == 9:
            # Those of v12 have ids, too: only with their names they are too large.
            assert peak < room / 10, "it is refused before anything is made that would have to be freed"


def hollow_out(part: Any) -> None:
    """Empty the texts at whatever depth: no element is smaller."""
    for name in part.__slots__:
        value = getattr(part, name)
        if type(value) is str:
            setattr(part, name, "")
        elif type(value) is list and value and type(value[0]) is str:
            setattr(part, name, [""] * len(value))
        elif type(value) is list and value and hasattr(value[0], "__slots__"):
            for element in value:
                hollow_out(element)


def repeat(part: Any, path: tuple[str, ...], count: int) -> None:
    """Give the array at ``path`` its only element so many times."""
    *parents, name = path
    for parent in parents:
        part = getattr(part, parent)
        part = part[0] if type(part) is list else part
    if type(value := getattr(part, name, None)) is list:
        setattr(part, name, value * count)


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_what_a_large_request_may_take_is_known_from_its_size(key: ApiKey) -> None:
    """Each array is filled with the smallest elements that there are, alone."""
    spec = API_SPECS[key]
    for version in {spec.min_version, spec.max_version}:
        for path in growing(key, version):
            request = grown(key, version, path, 1, 0)
            hollow_out(request)
            repeat(request, path, 5_000)
            data = encoded(request, version)
            bounded = decoder(type(request), version, is_bounded=True)
            bounded(data, 0)
            del request
            tracemalloc.start()
            try:
                value = bounded(data, 0)
                _, peak = tracemalloc.get_traced_memory()
            finally:
                tracemalloc.stop()
            del value
            assert peak <= decoder_source.memory_bytes_max(len(data)) + 10_000, (version, path)


@pytest.mark.parametrize(
    ("size", "most"), [(10, 1_000), (2**20, 100 * 2**20), (10 * 2**20, 256 * 2**20), (100 * 2**20, 400 * 2**20)]
)
def test_what_a_large_request_may_take_has_a_bound(size: int, most: int) -> None:
    assert decoder_source.memory_bytes_max(size) == most


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_a_bounded_decoder_reads_the_same(key: ApiKey) -> None:
    cls, version = request_class(key), API_SPECS[key].max_version
    data = encoded(one_of(cls, version), version)
    assert decoder(cls, version, is_bounded=True)(data, 0) == decoder(cls, version)(data, 0)
