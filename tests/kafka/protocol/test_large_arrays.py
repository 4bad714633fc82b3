"""Long arrays of large messages stay bytes, and are read as lists are."""

from __future__ import annotations

import random
import tracemalloc
from collections.abc import Iterable
from functools import cache
from typing import Any

import pytest
from grown_requests import growing, grown
from hypothesis import given, settings
from hypothesis import strategies as st

from engine.common.errors import RemoteProtocolError
from engine.kafka.protocol.api_keys import API_SPECS, ApiKey
from engine.kafka.protocol.apis.leave_group import LeaveGroupRequest, MemberIdentity
from engine.kafka.protocol.apis.metadata import MetadataResponse, MetadataResponsePartition, MetadataResponseTopic
from engine.kafka.protocol.apis.offset_fetch import (
    OffsetFetchRequest,
    OffsetFetchRequestGroup,
    OffsetFetchRequestTopics,
)
from engine.kafka.protocol.codec import Outgoing, decoder, encoder
from engine.kafka.protocol.large_arrays import LAZY_MIN, EncodedList, EncodedPiece, LazyArray, PickedArray, Portion
from engine.kafka.protocol.types import Array


def encoded(message: Any, version: int) -> bytes:
    out = Outgoing()
    encoder(type(message), version)(out, message)
    return bytes(out)


def outcome(decode: Any, data: bytes) -> str:
    try:
        return f"ends at {decode(data, 0)[1]}"
    except RemoteProtocolError as error:
        return str(error)


def arrays(key: ApiKey) -> Iterable[tuple[int, tuple[str, ...]]]:
    """Yield each array that a request of the lowest or highest version has."""
    spec = API_SPECS[key]
    for version in {spec.min_version, spec.max_version}:
        for path in growing(key, version):
            if "" in path:
                # A text in an array of texts.
                continue
            cls: Any = type(grown(key, version, (), 0, 0))
            kind: Any = None
            for name in path:
                kind = next((f.type for f in cls.wire_fields if f.name == name), None)
                cls = kind.element if isinstance(kind, Array) else kind
            if isinstance(kind, Array):
                yield version, path


@pytest.mark.parametrize("key", list(ApiKey), ids=lambda key: key.name)
def test_each_array_of_each_request_is_read_the_same(key: ApiKey) -> None:
    """Damaged frames are refused with the same words, and what is read takes little more than the frame."""
    rng = random.Random(key)
    for version, path in arrays(key):
        request = grown(key, version, path, 3 * LAZY_MIN, 0)
        cls, data = type(request), encoded(request, version)
        plain, bounded = decoder(cls, version), decoder(cls, version, is_bounded=True)
        del request
        assert encoded(bounded(data, 0)[0], version) == data
        for _ in range(6):
            damaged = bytearray(data[: rng.choice([len(data), rng.randrange(1, len(data))])])
            for _ in range(rng.randrange(3)):
                damaged[rng.randrange(len(damaged))] = rng.randrange(256)
            read, expected = outcome(bounded, bytes(damaged)), outcome(plain, bytes(damaged))
            # A count that is far too large is refused before anybody looks for so many elements.
            is_refused_early = "more memory than a request may" in read and "ends at" not in expected
            assert read == expected or is_refused_early, (version, path)
        tracemalloc.start()
        try:
            value = bounded(data, 0)
            assert tracemalloc.get_traced_memory()[0] <= len(data) + 6_000, (version, path)
        finally:
            tracemalloc.stop()
        del value


MEMBERS = [MemberIdentity(member_id=f"m{number}") for number in range(3 * LAZY_MIN + 7)]


@cache
def lazy_members() -> LazyArray:
    data = encoded(LeaveGroupRequest(members=MEMBERS), 5)
    members: Any = decoder(LeaveGroupRequest, 5, is_bounded=True)(data, 0)[0].members
    assert isinstance(members, LazyArray)
    return members


PLACES = st.integers(-2 * len(MEMBERS), 2 * len(MEMBERS))
SLICES = st.builds(slice, st.none() | PLACES, st.none() | PLACES, st.none() | st.sampled_from([1, 2, 97, -1]))


@given(SLICES, PLACES)
def test_a_lazy_array_is_read_like_a_list(part: slice, place: int) -> None:
    members = lazy_members()
    assert members[part] == MEMBERS[part]
    if -len(MEMBERS) <= place < len(MEMBERS):
        assert members[place] == MEMBERS[place]
    else:
        with pytest.raises(IndexError):
            members[place]


def test_a_whole_lazy_array_is_read_like_a_list() -> None:
    members = lazy_members()
    assert len(members) == len(MEMBERS)
    assert list(members) == list(members) == MEMBERS
    assert repr(members) == repr(MEMBERS)


@settings(max_examples=40)
@given(st.sets(st.integers(0, len(MEMBERS) - 1), max_size=60), SLICES)
def test_a_part_of_a_lazy_array_is_read_like_a_list(places: set[int], part: slice) -> None:
    picked, expected = PickedArray(lazy_members()), [MEMBERS[place] for place in sorted(places)]
    for place in sorted(places):
        picked.add(place)
    assert (len(picked), list(picked), [picked[n] for n in range(len(picked))]) == (len(places), expected, expected)
    assert picked[part] == expected[part]


def test_an_array_inside_elements_is_walked_through_once() -> None:
    """What a handler looks at is read on the event loop: a look at one element must not read a million of another."""
    topics = [OffsetFetchRequestTopics(name=str(number)) for number in range(2 * LAZY_MIN)]
    groups = [
        OffsetFetchRequestGroup(group_id=str(number), topics=topics[:number]) for number in range(1, LAZY_MIN + 2)
    ]
    groups[3].topics = topics
    data = encoded(OffsetFetchRequest(groups=groups), 8)
    read: Any = decoder(OffsetFetchRequest, 8, is_bounded=True)(data, 0)[0].groups
    assert isinstance(read, LazyArray)
    inner: Any = read[3].topics
    assert isinstance(inner, LazyArray)
    assert inner._starts is read[3].topics._starts  # type: ignore[union-attr]
    assert list(inner) == topics
    assert encoded(OffsetFetchRequest(groups=list(read)), 8) == data


def piece(topics: Any) -> EncodedPiece:
    out, portion = Outgoing(), Portion(topics)
    encoder(MetadataResponse, 12, is_large=True)(out, MetadataResponse(topics=portion))  # type: ignore[arg-type]
    return portion.piece_of(out)


def answer_list(encode: Any = piece, arrays: list[str] | None = None) -> EncodedList:
    return EncodedList(encode, lambda data: decoder(MetadataResponse, 12)(data, 0)[0].topics, arrays or ())


def spliced(message: Any) -> bytes:
    """Return the bytes of an answer as they are sent, without another encoding of what is encoded."""
    out, whole, start = Outgoing(), bytearray(), 0
    encoder(type(message), 12, is_large=True)(out, message)
    for position, part in out.ranges:
        assert isinstance(part, EncodedPiece)
        whole += out[start:position] + part.data
        start = position
    assert out.size_bytes == out.memory_bytes == len(whole) + len(out) - start
    return bytes(whole + out[start:])


@settings(max_examples=30)
@given(st.lists(st.sampled_from(["append", "keep", "extend by a list", "extend by another"]), max_size=5), st.data())
def test_an_encoded_list_holds_what_it_was_given(steps: list[str], data: st.DataObject) -> None:
    made, expected = answer_list(), []
    for step in steps:
        count = data.draw(st.sampled_from([0, 1, LAZY_MIN - 1, LAZY_MIN, LAZY_MIN + 1]))
        some = [MetadataResponseTopic(name=f"{step} {len(expected) + n}") for n in range(count)]
        expected += some
        if step.startswith("extend"):
            other: Any = some
            if step == "extend by another":
                other = made.empty()
                for topic in some:
                    other.append(topic)
            for _ in made.extend(other):
                pass
        else:
            for topic in some:
                (made.append if step == "append" else made.keep)(topic)
    assert len(made) == len(expected)
    assert list(made) == list(made) == expected
    bytes_expected = encoded(MetadataResponse(topics=expected), 12)
    assert encoded(MetadataResponse(topics=made), 12) == bytes_expected  # type: ignore[arg-type]
    assert spliced(MetadataResponse(topics=made)) == bytes_expected  # type: ignore[arg-type]
    assert list(made.settled) == expected


def test_an_element_that_is_large_itself_is_not_encoded_on_the_event_loop() -> None:
    pieces: list[int] = []

    def encode(topics: list[Any]) -> EncodedPiece:
        pieces.append(len(topics))
        return piece(topics)

    partition = MetadataResponsePartition()
    sizes = [LAZY_MIN, *[LAZY_MIN // 2 - 1] * 5, 0]
    topics = [MetadataResponseTopic(name=str(n), partitions=[partition] * size) for n, size in enumerate(sizes)]
    made = answer_list(encode, ["partitions"])
    for topic in topics:
        made.append(topic)
    assert list(made) == topics
    assert pieces == [2, 2]


def test_what_is_encoded_is_not_copied_again() -> None:
    made = answer_list()
    for number in range(100_000):
        made.append(MetadataResponseTopic(name=str(number)))
    tracemalloc.start()
    try:
        out = Outgoing()
        encoder(MetadataResponse, 12, is_large=True)(out, MetadataResponse(topics=made))  # type: ignore[arg-type]
        assert out.size_bytes > 2_000_000
        assert tracemalloc.get_traced_memory()[1] < 100_000
    finally:
        tracemalloc.stop()


def test_an_encoded_list_in_an_element_is_spliced_in() -> None:
    """Although it has few elements: a piece of the outer list could not hold pieces."""
    partitions: Any = EncodedList(lambda _: EncodedPiece(b"!", 0, 1), lambda data: [], ["replica_nodes"])
    for number in range(3):
        partitions.append(MetadataResponsePartition(partition_index=number, replica_nodes=[1] * (LAZY_MIN - 1)))
    made = answer_list(arrays=["partitions"])
    made.append(MetadataResponseTopic(name="few", partitions=partitions))
    assert len(list(made.objects)) == 1
    assert spliced(MetadataResponse(topics=made)).count(b"!") == 3  # type: ignore[arg-type]


def test_a_kept_element_may_be_changed() -> None:
    made, topic = answer_list(), MetadataResponseTopic(name="before")
    made.append(MetadataResponseTopic(name="first"))
    made.keep(topic)
    topic.name = "after"
    assert [topic.name for topic in made] == ["first", "after"]
