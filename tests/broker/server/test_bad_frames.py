"""Bytes that no client should send: the connection that sent them is closed, and nothing else is."""

from __future__ import annotations

import random
import struct

import pytest
from grown_requests import TEXT_BYTES_MAX, growing, grown
from soak import rounds
from wire_client import ConnectionClosed, WireClient, create_topic

from engine.broker.handlers.registry import all_handlers
from engine.common.errors import ErrorCode
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.kafka.protocol.apis.produce import PartitionProduceData, ProduceRequest, TopicProduceData
from engine.kafka.protocol.frames import encode_request
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

FUZZ_ROUNDS = 400 * rounds("KLAMM_FUZZ_ROUNDS", 1)


def frame(api_key: int, version: int, body: bytes = b"") -> bytes:
    """Return a request with a header of version 1 and any body."""
    head = struct.pack(">hhih", api_key, version, 5, 4) + b"wire"
    return struct.pack(">i", len(head) + len(body)) + head + body


def assert_closed_by(address: str, sent: bytes) -> None:
    """Check that the broker closes the connection without an answer, and serves others."""
    with WireClient(address) as client:
        client.socket.sendall(sent)
        assert client.is_closed_by_peer()
    with WireClient(address) as other:
        assert other.ask(MetadataRequest(topics=[]), 1).brokers


@pytest.mark.parametrize(("api_key", "version"), [(99, 0), (-1, 0), (32767, 3), (52, 0), (70, 0), (71, 0)])
def test_unknown_api(address: str, api_key: int, version: int) -> None:
    assert_closed_by(address, frame(api_key, version))


@pytest.mark.parametrize(("api_key", "version"), [(0, 12), (1, 18), (3, 99), (4, 99), (2, -1), (3, 32767)])
def test_unknown_version(address: str, api_key: int, version: int) -> None:
    assert_closed_by(address, frame(api_key, version))


def test_unknown_version_of_api_versions_is_answered_with_what_is_known(address: str) -> None:
    with WireClient(address) as client:
        client.socket.sendall(frame(ApiKey.API_VERSIONS, 99, b"\x00"))
        answer = client.answer(ApiKey.API_VERSIONS, 0)
        assert answer.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(k.api_key, k.min_version, k.max_version) for k in answer.api_keys] == [(18, 0, 4)]
        request = ApiVersionsRequest(client_software_name="t", client_software_version="1")
        assert client.ask(request, 4).error_code == ErrorCode.NONE, "the connection goes on"


@pytest.mark.parametrize("version", [5, 99, 32767])
def test_unknown_version_of_api_versions_needs_the_tags_of_its_header(address: str, version: int) -> None:
    """Versions below 0, of which Kafka takes the oldest header, need none."""
    assert_closed_by(address, frame(ApiKey.API_VERSIONS, version))
    with WireClient(address) as client:
        for odd in (-1, -32768):
            client.socket.sendall(frame(ApiKey.API_VERSIONS, odd))
            assert client.answer(ApiKey.API_VERSIONS, 0).error_code == ErrorCode.UNSUPPORTED_VERSION


@pytest.mark.parametrize("count", [-1, -2, -(2**31)])
def test_any_negative_count_is_null_where_null_is_allowed(address: str, count: int) -> None:
    with WireClient(address) as client:
        client.socket.sendall(frame(ApiKey.METADATA, 1, struct.pack(">i", count)))
        assert client.answer(ApiKey.METADATA, 1).brokers
    assert_closed_by(address, frame(ApiKey.METADATA, 0, struct.pack(">i", count)))


@pytest.mark.parametrize("size", [-1, -(2**31), 10_000_001, 2**31 - 1, 0, 3])
def test_size_that_is_no_request(address: str, size: int) -> None:
    assert_closed_by(address, struct.pack(">i", size) + b"abc")


def test_other_protocols(address: str) -> None:
    assert_closed_by(address, b"GET / HTTP/1.1\r\nHost: x\r\n\r\n")
    assert_closed_by(address, bytes.fromhex("16030100f8010000f40303") + bytes(240))
    assert_closed_by(address, b"\0\0\0\x2d" + b"\xff" * 45)


def test_bodies_that_end_too_soon_or_go_on_too_long(address: str) -> None:
    whole = bytes(encode_request(MetadataRequest(topics=[], allow_auto_topic_creation=True), 9, 5, "wire"))
    for cut in range(1, len(whole) - 18):
        assert_closed_by(address, struct.pack(">i", len(whole) - 4 - cut) + whole[4:-cut])


def test_counts_and_lengths_that_promise_too_much(address: str) -> None:
    for body in (b"\x7f\xff\xff\xff", b"\x00\x00\x00\x01\x7f\xff", b"\x00\x00\x00\x02\x00\x01a"):
        assert_closed_by(address, frame(ApiKey.METADATA, 1, body))


def test_mutated_requests_do_no_harm(address: str, topic: str) -> None:
    create_topic(address, topic)
    dice = random.Random(3)
    batch = encode_batch([Record(0, 1_700_000_000_000, b"k", b"v" * 50)])
    data = TopicProduceData(name=topic, partition_data=[PartitionProduceData(index=0, records=batch)])
    part = FetchPartition(partition=0, fetch_offset=0, partition_max_bytes=1000)
    produce_body, fetch_body = 14, 14 + 1 + 12
    produced = ProduceRequest(acks=1, timeout_ms=100, topic_data=[data])
    fetched = FetchRequest(topics=[FetchTopic(topic=topic, partitions=[part])])
    # The frame, its header and the maximum wait of a Fetch stay as they are: the body behind them is the subject.
    originals = [
        (bytes(encode_request(produced, 9, 1, "wire")), produce_body),
        (bytes(encode_request(produced, 2, 1, "wire")), produce_body),
        (bytes(encode_request(fetched, 12, 1, "wire")), fetch_body),
        (bytes(encode_request(fetched, 3, 1, "wire")), fetch_body),
        (bytes(encode_request(MetadataRequest(topics=None), 12, 1, "wire")), produce_body),
    ]
    client = WireClient(address)
    for _ in range(FUZZ_ROUNDS):
        original, begin = dice.choice(originals)
        mutated = bytearray(original)
        for _ in range(dice.randint(1, 3)):
            mutated[dice.randrange(begin, len(mutated))] = dice.choice((0, 1, 0x7F, 0x80, 0xFF, dice.randrange(256)))
        client.socket.sendall(mutated)
        client.socket.sendall(encode_request(MetadataRequest(topics=[]), 1, 2, "wire"))
        try:
            while int.from_bytes(client.read_frame()[:4], "big") != 2:
                pass
        except ConnectionClosed:
            client.socket.close()
            client = WireClient(address)
    client.socket.close()


TEXTS_LEFT_OUT = {
    ApiKey.CONTROLLED_SHUTDOWN: "it ends the broker",
    ApiKey.ENVELOPE: "it is refused by closing the connection",
}
KEYS = [spec.key for spec in all_handlers().values() if spec.key not in TEXTS_LEFT_OUT]


@pytest.mark.parametrize("key", KEYS, ids=lambda key: key.name)
def test_the_longest_texts_are_answered(address: str, key: ApiKey) -> None:
    """A refusal that repeats a text is longer than the text, and no text of an answer may be."""
    version = all_handlers()[key].max_version
    for path in growing(key, version):
        request = grown(key, version, path, 1, TEXT_BYTES_MAX, timeout_ms=1000, max_wait_ms=0, acks=1)
        with WireClient(address) as client:
            client.ask(request, version)


@pytest.mark.parametrize("settings", [5_000, 50_000], ids=["small", "large"])
def test_an_error_whose_text_is_too_long_is_an_unknown_one(address: str, topic: str, settings: int) -> None:
    configs = [CreatableTopicConfig(name=f"nowhere-{number}", value=None) for number in range(settings)]
    long = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=configs)
    short = CreatableTopic(name="", num_partitions=1, replication_factor=1)
    with WireClient(address) as client:
        answers = client.ask(CreateTopicsRequest(topics=[long, short], timeout_ms=1000), 7).topics
    assert [answer.error_code for answer in answers] == [
        ErrorCode.UNKNOWN_SERVER_ERROR,
        ErrorCode.INVALID_TOPIC_EXCEPTION,
    ]
    assert answers[0].error_message is None


def test_a_produce_to_a_topic_with_a_very_long_name_keeps_its_error(address: str) -> None:
    """As recorded from Apache Kafka 3.9.1, which has no text there."""
    partition = PartitionProduceData(index=0, records=encode_batch([Record(value=b"v")]))
    topic = TopicProduceData(name="x" * TEXT_BYTES_MAX, partition_data=[partition])
    with WireClient(address) as client:
        answer = client.ask(ProduceRequest(acks=1, timeout_ms=1000, topic_data=[topic]), 11)
    (response,) = answer.responses[0].partition_responses
    assert (response.error_code, response.error_message) == (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None)
