"""Real clients read back what they sent, in every codec, and the codec they asked for is the one on the disk.

librdkafka silently stores lz4 uncompressed on a broker that it does not trust with lz4: only the files show it.
"""

from __future__ import annotations

import functools
import itertools
import uuid
from collections.abc import Callable

import pytest
from real_clients import AioKafka, ConfluentKafka, KafkaPython, Kcat, RealClient, Sent
from required_tools import require
from segments_on_disk import CODECS, stored_batches
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
    """Return the client, or skip the test if its program is not installed."""
    if name == "kcat":
        require("kcat")
    return CLIENTS[name]


def records(codec: str, *, only_text: bool) -> list[Sent]:
    """Return records for both partitions: compressible values, and null or empty ones where the client can."""
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
def written_by(cluster: LocalCluster) -> Callable[[str], tuple[str, list[Sent]]]:
    """Lets a client write records in every codec, once; returns the topic and what was sent."""

    @functools.cache
    def write(writer: str) -> tuple[str, list[Sent]]:
        client, topic = client_named(writer), f"codecs-{writer}-{uuid.uuid4().hex[:8]}"
        create_topic(cluster.bootstrap_servers, topic, partitions=PARTITIONS)
        all_sent = []
        for codec in CODECS:
            sent = records(codec, only_text=writer == "kcat")
            client.produce(cluster.bootstrap_servers, topic, codec, sent)
            all_sent += sent
        return topic, all_sent

    return write


def _by_partition(sent: list[Sent]) -> list[list[Sent]]:
    return [[record for record in sent if record.partition == partition] for partition in range(PARTITIONS)]


@pytest.mark.parametrize("writer", CLIENTS)
def test_every_codec_is_stored_as_sent(
    cluster: LocalCluster, written_by: Callable[[str], tuple[str, list[Sent]]], writer: str
) -> None:
    topic, _ = written_by(writer)
    (log_dir,) = cluster.broker(0).spec.log_dirs
    for partition in range(PARTITIONS):
        stored = list(stored_batches(log_dir, topic, partition))
        by_codec = itertools.groupby(stored, key=lambda batch: batch.codec)
        counts = [(codec, sum(batch.count for batch in batches)) for codec, batches in by_codec]
        assert counts == [(codec, COUNT // PARTITIONS) for codec in CODECS]
        assert {batch.magic for batch in stored} == {2}


@pytest.mark.parametrize("reader", CLIENTS)
@pytest.mark.parametrize("writer", CLIENTS)
def test_every_client_reads_what_each_wrote(
    cluster: LocalCluster, written_by: Callable[[str], tuple[str, list[Sent]]], writer: str, reader: str
) -> None:
    client = client_named(reader)
    topic, sent = written_by(writer)
    records_read = client.consume(cluster.bootstrap_servers, topic, PARTITIONS, len(sent))
    assert _by_partition(records_read) == _by_partition(sent)
