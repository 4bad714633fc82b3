"""What real clients send comes back, in every codec; and the codec they asked for is the one that lies on the disk.

librdkafka stores lz4 uncompressed, without a word, on a broker it does not trust with it: only the files tell.
"""

from __future__ import annotations

import os
import uuid

import pytest
from real_clients import AioKafka, ConfluentKafka, KafkaPython, Kcat, RealClient, Sent, has_kcat
from segments_on_disk import CODECS, codecs_on_disk, stored_batches
from wire_client import create_topic

from engine.local.cluster import LocalCluster

CLIENTS: dict[str, RealClient] = {
    "confluent-kafka": ConfluentKafka(),
    "kafka-python": KafkaPython(),
    "aiokafka": AioKafka(),
    "kcat": Kcat(),
}
PARTITIONS = 2
COUNT = 150


def client_named(name: str) -> RealClient:
    """Return the client, or skip the test where it is a program that is not installed."""
    if name == "kcat" and not has_kcat():
        message = "kcat is not installed: apt-get install kcat"
        if "kcat" in os.environ.get("KLAMM_REQUIRE", ""):
            pytest.fail(message)
        pytest.skip(message)
    return CLIENTS[name]


def records(codec: str, *, only_text: bool) -> list[Sent]:
    """Records for both partitions: compressible values; null keys, values and empty ones where the client can."""
    made = []
    for number in range(COUNT):
        partition = number % PARTITIONS
        key: bytes | None = b"key-%d" % number
        value: bytes | None = b"the castle above the village, %d, " % number * 4 + codec.encode()
        headers: tuple[tuple[str, bytes], ...] = (("trace", b"abc"), ("codec", codec.encode()))
        if not only_text:
            # kafka-python and aiokafka refuse a record with neither key nor value.
            if number % 7 == 0:
                key = None
            elif number % 11 == 0:
                value = None
            elif number % 13 == 0:
                value = b""
            headers = () if number % 3 else headers
        made.append(Sent(partition, key, value, headers))
    return made


@pytest.fixture(scope="module")
def written(cluster: LocalCluster) -> dict[str, tuple[str, list[Sent]]]:
    """Topics that are full already, by the client that wrote them, with all that was sent."""
    return {}


def _by_partition(sent: list[Sent]) -> list[list[Sent]]:
    return [[record for record in sent if record.partition == partition] for partition in range(PARTITIONS)]


@pytest.mark.parametrize("writer", CLIENTS)
def test_every_codec_is_stored_as_sent_and_read_back(
    cluster: LocalCluster, written: dict[str, tuple[str, list[Sent]]], writer: str
) -> None:
    client = client_named(writer)
    topic = f"codecs-{writer}-{uuid.uuid4().hex[:8]}"
    create_topic(cluster.bootstrap_servers, topic, partitions=PARTITIONS)
    (log_dir,) = cluster.broker(0).spec.log_dirs
    all_sent: list[Sent] = []
    for codec in CODECS:
        before = [len(list(stored_batches(log_dir, topic, p))) for p in range(PARTITIONS)]
        sent = records(codec, only_text=writer == "kcat")
        client.produce(cluster.bootstrap_servers, topic, codec, sent)
        for partition in range(PARTITIONS):
            new = list(stored_batches(log_dir, topic, partition))[before[partition] :]
            assert {batch.codec for batch in new} == {codec}
            assert sum(batch.count for batch in new) == COUNT // PARTITIONS
            assert {batch.magic for batch in new} == {2}
        all_sent += sent
    assert codecs_on_disk(log_dir, topic) == set(CODECS)
    found = client.consume(cluster.bootstrap_servers, topic, PARTITIONS, len(all_sent))
    assert _by_partition(found) == _by_partition(all_sent)
    written[writer] = topic, all_sent


@pytest.mark.parametrize("reader", CLIENTS)
def test_every_client_reads_what_the_others_wrote(
    cluster: LocalCluster, written: dict[str, tuple[str, list[Sent]]], reader: str
) -> None:
    client = client_named(reader)
    assert written, "the tests above fill the topics"
    for writer, (topic, sent) in written.items():
        if writer != reader:
            found = client.consume(cluster.bootstrap_servers, topic, PARTITIONS, len(sent))
            assert _by_partition(found) == _by_partition(sent), f"{reader} reading what {writer} wrote"
