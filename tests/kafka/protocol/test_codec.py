"""Rules of the wire format that no single message shows: nulls, lengths, versions, tagged fields, records."""

from __future__ import annotations

import struct
from typing import Any

import pytest

from engine.common.errors import LocalProtocolError, RemoteProtocolError
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest, ApiVersionsResponse
from engine.kafka.protocol.apis.create_topics import CreateTopicsRequest
from engine.kafka.protocol.apis.fetch import (
    EpochEndOffset,
    FetchableTopicResponse,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    PartitionData,
)
from engine.kafka.protocol.apis.metadata import (
    MetadataRequest,
    MetadataRequestTopic,
    MetadataResponse,
    MetadataResponseTopic,
)
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.apis.stop_replica import StopReplicaRequest, StopReplicaTopicState
from engine.kafka.protocol.codec import Outgoing, decoder, encoder
from engine.kafka.protocol.declaration import Message, Struct, field
from engine.kafka.protocol.types import INT32, STRING, Array


def encoded(value: Message, version: int) -> bytes:
    out = Outgoing()
    encoder(type(value), version)(out, value)
    return bytes(out)


def decoded(cls: type[Any], version: int, data: bytes) -> Any:
    value, end = decoder(cls, version)(data, 0)
    assert end == len(data)
    return value


def test_codecs_are_made_once() -> None:
    assert decoder(FetchRequest, 12) is decoder(FetchRequest, 12)
    assert encoder(FetchRequest, 12) is encoder(FetchRequest, 12)


@pytest.mark.parametrize("version", [-1, 18])
def test_versions_outside_the_table_are_refused(version: int) -> None:
    with pytest.raises(LocalProtocolError, match="versions 0 to 17"):
        decoder(FetchRequest, version)
    with pytest.raises(LocalProtocolError, match="versions 0 to 17"):
        encoder(FetchRequest, version)


class TestNulls:
    def test_where_they_are_allowed(self) -> None:
        assert encoded(MetadataRequest(topics=None), 1) == b"\xff\xff\xff\xff"
        assert encoded(MetadataRequest(topics=None), 9)[:1] == b"\x00"
        assert decoded(MetadataRequest, 1, b"\xff\xff\xff\xff").topics is None

    def test_where_the_version_does_not_know_them(self) -> None:
        with pytest.raises(LocalProtocolError, match=r"MetadataRequest cannot be written in version 0: topics is None"):
            encoded(MetadataRequest(topics=None), 0)
        with pytest.raises(RemoteProtocolError, match="topics has the count -1"):
            decoded(MetadataRequest, 0, b"\xff\xff\xff\xff")

    def test_the_field_at_fault_is_named(self) -> None:
        request = MetadataRequest(topics=[MetadataRequestTopic(name="a"), MetadataRequestTopic(name=None)])
        with pytest.raises(LocalProtocolError, match=r"topics\[1\].name is None"):
            encoded(request, 9)
        with pytest.raises(RemoteProtocolError, match=r"MetadataRequestTopic.name has the length -1"):
            decoded(MetadataRequest, 9, b"\x02\x00\x00\x00\x00\x00\x00")


class TestVersions:
    def test_what_the_version_lacks_has_its_default_after_decoding(self) -> None:
        request = decoded(FetchRequest, 0, encoded(FetchRequest(max_wait_ms=5), 0))
        assert (request.max_bytes, request.session_epoch, request.rack_id) == (2**31 - 1, -1, "")

    def test_ignorable_fields_are_dropped(self) -> None:
        assert encoded(FetchRequest(rack_id="a", session_epoch=4), 0) == encoded(FetchRequest(), 0)

    def test_other_fields_are_refused(self) -> None:
        request = CreateTopicsRequest(validate_only=True)
        assert encoded(request, 1)[-1:] == b"\x01"
        with pytest.raises(LocalProtocolError, match="validate_only is True, but the version does not have it"):
            encoded(request, 0)

    def test_lists_and_structs_are_refused_too(self) -> None:
        states = StopReplicaRequest(topic_states=[StopReplicaTopicState(topic_name="t")])
        with pytest.raises(LocalProtocolError, match="topic_states is"):
            encoded(states, 2)
        partition = PartitionData(diverging_epoch=EpochEndOffset(epoch=1, end_offset=2))
        response = FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=[partition])])
        with pytest.raises(LocalProtocolError, match=r"responses\[0\].partitions\[0\].diverging_epoch is"):
            encoded(response, 11)


class TestStrings:
    @pytest.mark.parametrize("version", [8, 9])
    def test_the_longest(self, version: int) -> None:
        longest = MetadataRequest(topics=[MetadataRequestTopic(name="ä" * 16_383 + "x")])
        assert decoded(MetadataRequest, version, encoded(longest, version)) == longest
        with pytest.raises(LocalProtocolError, match=r"name takes 32768 bytes, 32767 is the limit"):
            encoded(MetadataRequest(topics=[MetadataRequestTopic(name="ä" * 16_384)]), version)

    def test_a_compact_string_may_not_be_longer_either(self) -> None:
        data = b"\x02" + b"\x81\x80\x02" + b"x" * 32_768 + b"\x00" + b"\x00\x00\x00\x00"
        with pytest.raises(RemoteProtocolError, match="name has the length 32768"):
            decoded(MetadataRequest, 9, data)

    def test_what_is_no_text(self) -> None:
        with pytest.raises(LocalProtocolError, match="name is not text"):
            encoded(MetadataRequest(topics=[MetadataRequestTopic(name="\ud800")]), 9)
        with pytest.raises(LocalProtocolError, match="name is b'abc', not a str"):
            encoded(MetadataRequest(topics=[MetadataRequestTopic(name=b"abc")]), 9)  # type: ignore[arg-type]

    @pytest.mark.parametrize("is_bounded", [False, True])
    def test_what_is_no_text_is_read_as_java_reads_it(self, is_bounded: bool) -> None:
        """What ``new String(bytes, UTF_8)`` of Java 17 gave: clients of other codes work on Kafka."""
        metadata = decoder(MetadataRequest, 8, is_bounded=is_bounded)
        produce = decoder(ProduceRequest, 3, is_bounded=is_bounded)
        texts = {
            b"b\xfcro": "b\ufffdro", b"\xe2\x82": "\ufffd", b"\xe2\x28\x28": "\ufffd((", b"\xc0\x80": "\ufffd\ufffd",
            b"\xf4\x90\x80\x80": "\ufffd" * 4, b"\xc3\xc3\xa9": "\ufffdé", b"\xf0\x9f\x98\x80": "😀",
        }  # fmt: skip
        for data, text in texts.items():
            sized = struct.pack(">h", len(data)) + data
            value, _ = metadata(b"..\x00\x00\x00\x01" + sized + b"\x00\x00\x00", 2)
            assert [topic.name for topic in value.topics or ()] == [text]
            assert produce(sized + b"\x00\x01\x00\x00\x00\x00\x00\x00\x00\x00", 0)[0].transactional_id == text


class TestNumbers:
    @pytest.mark.parametrize("value", [2**31, -(2**31) - 1, "7", 1.5, None])
    def test_out_of_range_or_no_number(self, value: Any) -> None:
        with pytest.raises(LocalProtocolError, match="max_wait_ms is"):
            encoded(FetchRequest(max_wait_ms=value), 4)

    def test_topic_ids_have_sixteen_bytes(self) -> None:
        with pytest.raises(LocalProtocolError, match=r"topics\[0\].topic_id is b'short', not 16 bytes"):
            encoded(MetadataResponse(topics=[MetadataResponseTopic(topic_id=b"short")]), 12)


class TestWrongTypes:
    def test_another_struct(self) -> None:
        with pytest.raises(LocalProtocolError, match=r"topics\[0\] is a FetchTopic, not a MetadataRequestTopic"):
            encoded(MetadataRequest(topics=[FetchTopic()]), 4)  # type: ignore[list-item]

    def test_no_list(self) -> None:
        with pytest.raises(LocalProtocolError, match="topics is 7, not a list"):
            encoded(MetadataRequest(topics=7), 4)  # type: ignore[arg-type]

    def test_no_bytes(self) -> None:
        partition = PartitionProduceData(records="text")
        request = ProduceRequest(topic_data=[TopicProduceData(name="t", partition_data=[partition])])
        with pytest.raises(LocalProtocolError, match=r"partition_data\[0\].records is 'text', not bytes"):
            encoded(request, 9)


class TestTaggedFields:
    def test_defaults_are_not_written(self) -> None:
        assert encoded(ApiVersionsResponse(), 3) == b"\x00\x00\x01\x00\x00\x00\x00\x00"

    def test_a_struct_of_defaults_is_left_out(self) -> None:
        plain = FetchResponse(responses=[FetchableTopicResponse(partitions=[PartitionData()])])
        partition = PartitionData(diverging_epoch=EpochEndOffset())
        assert encoded(FetchResponse(responses=[FetchableTopicResponse(partitions=[partition])]), 12) == encoded(
            plain, 12
        )
        assert decoded(FetchResponse, 12, encoded(plain, 12)).responses[0].partitions[0].diverging_epoch is None

    def test_they_are_written_in_the_order_of_their_tags(self) -> None:
        class Mixed(Message, flexible_since=0):
            """A message whose fields are declared out of order."""

            late: int = field(INT32, tag=5)
            early: int = field(INT32, tag=2)

        assert encoded(Mixed(late=1, early=2), 0) == b"\x02" + b"\x02\x04\x00\x00\x00\x02" + b"\x05\x04\x00\x00\x00\x01"

    def test_unknown_ones_are_skipped_wherever_they_are(self) -> None:
        class Inner(Struct):
            """Has fields of a future version."""

            name: str = field(STRING)
            future: str = field(STRING, tag=1)

        class Outer(Message, flexible_since=0):
            """Has fields of a future version."""

            inners: list[Inner] = field(Array(Inner))
            number: int = field(INT32)
            known: int = field(INT32, tag=3)
            future: str = field(STRING, tag=300)

        class InnerNow(Struct):
            """Has the known fields only."""

            name: str = field(STRING)

        class OuterNow(Message, flexible_since=0):
            """Has the known fields only."""

            inners: list[InnerNow] = field(Array(InnerNow))
            number: int = field(INT32)
            known: int = field(INT32, tag=3)

        later = Outer(inners=[Inner(name="a", future="b"), Inner(name="c")], number=4, known=5, future="x" * 200)
        now = OuterNow(inners=[InnerNow(name="a"), InnerNow(name="c")], number=4, known=5)
        assert decoded(OuterNow, 0, encoded(later, 0)) == now

    @pytest.mark.parametrize("size", [3, 5])
    def test_a_known_one_of_a_wrong_size(self, size: int) -> None:
        data = b"\x00\x00\x01\x00\x00\x00\x00" + b"\x01\x01" + bytes([size + 4]) + b"\x00" * 12
        with pytest.raises(RemoteProtocolError, match="tagged field 1 has a wrong size"):
            decoder(ApiVersionsResponse, 3)(data, 0)

    def test_an_unknown_one_behind_the_end(self) -> None:
        with pytest.raises(RemoteProtocolError, match="behind the end"):
            decoder(ApiVersionsRequest, 3)(b"\x01\x01\x01\x09\x7f", 0)


class FileRange:
    """Stands for a part of a segment file."""

    def __init__(self, size_bytes: int) -> None:
        self.size_bytes = size_bytes


class TestRecords:
    @staticmethod
    def response(*records: Any) -> FetchResponse:
        partitions = [PartitionData(partition_index=i, records=r) for i, r in enumerate(records)]
        return FetchResponse(responses=[FetchableTopicResponse(topic="t", partitions=partitions)])

    @pytest.mark.parametrize("version", [4, 12])
    def test_decoded_records_are_views_of_the_frame(self, version: int) -> None:
        request = ProduceRequest(
            topic_data=[TopicProduceData(name="t", partition_data=[PartitionProduceData(records=b"abc")])]
        )
        frame = bytearray(encoded(request, min(version, 11)))
        value, _ = decoder(ProduceRequest, min(version, 11))(frame, 0)
        records = value.topic_data[0].partition_data[0].records
        assert isinstance(records, memoryview)
        assert records == b"abc"
        frame[frame.index(b"abc")] = ord("x")
        assert records == b"xbc"

    @pytest.mark.parametrize("version", [4, 12])
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    def test_bytes_are_copied_in(self, version: int, kind: Any) -> None:
        assert encoded(self.response(kind(b"abc")), version) == encoded(self.response(b"abc"), version)

    @pytest.mark.parametrize("version", [4, 12])
    def test_ranges_are_noted_with_their_places(self, version: int) -> None:
        first, empty, second = FileRange(300), FileRange(0), FileRange(5)
        out = Outgoing()
        encoder(FetchResponse, version)(out, self.response(first, b"abc", None, empty, second))
        assert [noted for _, noted in out.ranges] == [first, second]
        assert out.size_bytes == len(out) + 305
        spliced = bytearray(out)
        for position, noted in reversed(out.ranges):
            spliced[position:position] = b"r" * noted.size_bytes
        assert spliced == encoded(self.response(b"r" * 300, b"abc", None, b"", b"r" * 5), version)

    def test_none_where_it_is_allowed(self) -> None:
        assert decoded(FetchResponse, 4, encoded(self.response(None), 4)).responses[0].partitions[0].records is None


class TestBuffers:
    @pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
    @pytest.mark.parametrize("cls", [MetadataRequest, ProduceRequest])
    def test_any_buffer_any_offset(self, kind: Any, cls: type[Message]) -> None:
        data = encoded(cls(), 9)
        assert decoder(cls, 9)(kind(b"\xff\xff" + data), 2) == (cls(), len(data) + 2)

    def test_bytes_behind_the_message_are_left_alone(self) -> None:
        data = encoded(MetadataRequest(topics=None), 1)
        assert decoder(MetadataRequest, 1)(data + b"more", 0) == (MetadataRequest(topics=None), len(data))
