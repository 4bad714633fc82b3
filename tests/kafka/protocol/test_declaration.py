"""Message values: defaults, equality, representation."""

from __future__ import annotations

import pytest

from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreatableTopicResult
from engine.kafka.protocol.apis.fetch import EpochEndOffset, FetchRequest, PartitionData
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from engine.kafka.protocol.declaration import Message, Struct, field
from engine.kafka.protocol.types import INT32, STRING, Array


def test_defaults() -> None:
    request = FetchRequest()
    assert (request.replica_id, request.session_epoch, request.max_bytes) == (-1, -1, 2**31 - 1)
    assert request.topics == []
    assert request.cluster_id is None
    assert request.replica_state is None
    assert CreatableTopicResult().error_message is None
    assert MetadataResponseTopic().topic_id == bytes(16)
    # None has a meaning of its own: a caller must set it explicitly.
    assert MetadataRequest().topics == []
    assert MetadataRequestTopic().name == ""


def test_each_value_has_lists_of_its_own() -> None:
    first, second = FetchRequest(), FetchRequest()
    first.topics.append(None)  # type: ignore[arg-type]
    assert second.topics == []


def test_only_declared_keywords() -> None:
    with pytest.raises(TypeError, match="unexpected keyword"):
        CreatableTopic(nmae="t")  # type: ignore[call-arg]
    with pytest.raises(TypeError):
        CreatableTopic("t")  # type: ignore[misc]
    with pytest.raises(AttributeError):
        CreatableTopic(name="t").partitions = 3  # type: ignore[attr-defined]


def test_equality_is_by_value_and_class() -> None:
    assert EpochEndOffset(epoch=1) == EpochEndOffset(epoch=1)
    assert EpochEndOffset(epoch=1) != EpochEndOffset(epoch=2)
    assert MetadataRequestTopic(name="t") != CreatableTopic(name="t")
    assert PartitionData(records=memoryview(b"abc")) == PartitionData(records=b"abc")
    with pytest.raises(TypeError, match="unhashable"):
        hash(EpochEndOffset())


def test_repr_shows_what_differs_from_the_default() -> None:
    topic = MetadataRequestTopic(name="t")
    assert repr(MetadataRequest(topics=[topic])) == "MetadataRequest(topics=[MetadataRequestTopic(name='t')])"
    assert repr(MetadataRequest(topics=None)) == "MetadataRequest(topics=None)"


def test_a_message_of_ones_own() -> None:
    """Formats other than requests, such as the records of internal topics, are declared the same way."""

    class Part(Struct):
        """A part."""

        number: int = field(INT32)

    class Whole(Message, flexible_since=2):
        """A whole."""

        name: str | None = field(STRING, nullable_since=0)
        parts: list[Part] = field(Array(Part), since=1)

    assert Whole().name is None
    assert Whole(parts=[Part(number=1)]).parts[0].number == 1
    assert not Whole.is_flexible_in(1)
    assert Whole.is_flexible_in(2)


def test_a_struct_without_fields() -> None:
    class Nothing(Struct):
        """A message without fields."""

    assert Nothing() == Nothing()
    assert repr(Nothing()) == "Nothing()"
