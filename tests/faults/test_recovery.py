"""One crash and one clean shutdown, and what a start makes of each: cut tails, rebuilt indexes, remembered producers.

The damage is done once, by hand, to files of a killed broker. Each test looks at one part of it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from broker_logs import server_log
from ended_sessions import kill_for_good
from segments_on_disk import stored_batches
from wire_client import (
    LATEST,
    SequencedProducer,
    WireClient,
    create_topic,
    fetch,
    list_offset,
    produce,
    read_all,
    wait_until_led,
)

from engine.common.errors import ErrorCode
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.cluster import LocalCluster

TOPICS = ("half-a-batch", "zeros", "cut", "bit-rot", "indexes-gone", "indexes-garbage", "sequences")
BATCHES = 40
TIME_MS = 1_700_000_000_000


def batch(number: int) -> bytes:
    """Ten records, which with their neighbours are larger than an index interval."""
    return encode_batch(
        [Record(i, TIME_MS + number * 10 + i, b"k", b"%d " % (number * 10 + i) * 60) for i in range(10)]
    )


class Crashed:
    """A broker that was killed, damaged and restarted."""

    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.address = cluster.bootstrap_servers
        self.sizes: dict[str, int] = {}
        for topic in TOPICS:
            create_topic(self.address, topic)
        with WireClient(self.address) as client:
            for topic in TOPICS[:-1]:
                for number in range(BATCHES):
                    assert produce(client, topic, batch(number)).error_code == ErrorCode.NONE
            self.producer = SequencedProducer(client)
            for number in range(7):
                assert self.producer.send(client, "sequences", number * 2, 2).error_code == ErrorCode.NONE
        kill_for_good(cluster, 0)
        self._damage()
        cluster.start_broker(0)
        wait_until_led(self.address, *TOPICS)

    def folder(self, topic: str) -> Path:
        (folder,) = (path for log_dir in self.cluster.broker(0).spec.log_dirs for path in log_dir.glob(f"{topic}-0"))
        return folder

    def segment(self, topic: str) -> Path:
        (path,) = self.folder(topic).glob("*.log")
        return path

    def _damage(self) -> None:
        self.sizes = {topic: self.segment(topic).stat().st_size for topic in TOPICS}
        with self.segment("half-a-batch").open("ab") as segment:
            segment.write(batch(BATCHES)[:-100])
        with self.segment("zeros").open("ab") as segment:
            segment.write(bytes(40))
        os.truncate(self.segment("cut"), self.sizes["cut"] - 10)
        with self.segment("bit-rot").open("r+b") as segment:
            segment.seek(self.sizes["bit-rot"] * 3 // 4)
            segment.write(b"rot")
        for index in self.folder("indexes-gone").glob("*index"):
            index.unlink()
        for index in self.folder("indexes-garbage").glob("*index"):
            index.write_bytes(b"garbage!" * 99)


@pytest.fixture(scope="module")
def crashed(cluster: LocalCluster) -> Iterator[Crashed]:
    yield Crashed(cluster)


def assert_holds_batches(crashed: Crashed, topic: str, count: int) -> None:
    """Check that the log has exactly the first ``count`` batches, and appends the next one behind them."""
    with WireClient(crashed.address) as client:
        expected = list(range(count * 10))
        records = read_all(client, topic)
        assert [record.offset for record in records] == expected
        assert [int((record.value or b"").split()[0]) for record in records] == expected
        assert list_offset(client, topic, TIME_MS + 155) == 155
        answer = produce(client, topic, batch(count))
        assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, count * 10)
        assert bytes(fetch(client, topic, count * 10).records)[61:] == batch(count)[61:]


@pytest.mark.parametrize("topic", ["half-a-batch", "zeros"])
def test_torn_tails_are_cut(crashed: Crashed, topic: str) -> None:
    assert crashed.segment(topic).stat().st_size == crashed.sizes[topic]
    assert_holds_batches(crashed, topic, BATCHES)


def test_a_last_batch_that_is_not_whole_goes(crashed: Crashed) -> None:
    assert_holds_batches(crashed, "cut", BATCHES - 1)


def test_a_batch_with_a_broken_checksum_ends_the_log(crashed: Crashed) -> None:
    whole = len(list(stored_batches(crashed.folder("bit-rot").parent, "bit-rot")))
    assert BATCHES // 2 < whole < BATCHES
    assert_holds_batches(crashed, "bit-rot", whole)


@pytest.mark.parametrize("topic", ["indexes-gone", "indexes-garbage"])
def test_indexes_are_rebuilt(crashed: Crashed, topic: str) -> None:
    index, time_index = crashed.folder(topic) / f"{0:020}.index", crashed.folder(topic) / f"{0:020}.timeindex"
    assert index.read_bytes()[:4] != b"garb"
    entry = index.read_bytes()[:8]
    relative_offset, position = int.from_bytes(entry[:4], "big"), int.from_bytes(entry[4:], "big")
    assert 0 < relative_offset < BATCHES * 10 and 0 < position < crashed.sizes[topic]
    assert time_index.read_bytes()[:8] > TIME_MS.to_bytes(8, "big")
    assert_holds_batches(crashed, topic, BATCHES)


def test_sequences_outlive_a_crash(crashed: Crashed) -> None:
    check_sequences(crashed.address, crashed.producer, "sequences", sent=7)


def check_sequences(address: str, producer: SequencedProducer, topic: str, *, sent: int) -> None:
    """Check that, after ``sent`` batches of two, the last is a duplicate, a gap is refused, the next is accepted."""
    with WireClient(address) as client:
        again = producer.send(client, topic, (sent - 1) * 2, 2)
        assert (again.error_code, again.base_offset) == (ErrorCode.NONE, (sent - 1) * 2)
        gap = producer.send(client, topic, (sent + 1) * 2, 2)
        assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        taken = producer.send(client, topic, sent * 2, 2)
        assert (taken.error_code, taken.base_offset) == (ErrorCode.NONE, sent * 2)
        assert list_offset(client, topic, LATEST) == sent * 2 + 2


def clean_marks(cluster: LocalCluster) -> list[bool]:
    return [(log_dir / ".kafka_cleanshutdown").exists() for log_dir in cluster.broker(0).spec.log_dirs]


def test_an_orderly_end_needs_no_recovery(crashed: Crashed) -> None:
    cluster = crashed.cluster
    with WireClient(crashed.address) as client:
        producer = SequencedProducer(client)
        create_topic(crashed.address, "orderly")
        for number in range(3):
            assert producer.send(client, "orderly", number * 2, 2).error_code == ErrorCode.NONE
    assert clean_marks(cluster) == [False, False]
    cluster.stop_broker(0)
    assert clean_marks(cluster) == [True, True]
    length = len(server_log(cluster.broker(0).logs_path))
    cluster.start_broker(0)
    said = server_log(cluster.broker(0).logs_path)[length:]
    assert said.count("clean_shutdown=True") == 2
    assert "Recovering" not in said
    assert clean_marks(cluster) == [False, False]
    wait_until_led(crashed.address, "orderly")
    check_sequences(crashed.address, producer, "orderly", sent=3)
    _without_its_mark_a_dir_is_recovered(cluster)
    wait_until_led(crashed.address, "orderly")
    check_sequences(crashed.address, producer, "orderly", sent=4)


def _without_its_mark_a_dir_is_recovered(cluster: LocalCluster) -> None:
    cluster.stop_broker(0)
    (cluster.broker(0).spec.log_dirs[0] / ".kafka_cleanshutdown").unlink()
    length = len(server_log(cluster.broker(0).logs_path))
    cluster.start_broker(0)
    said = server_log(cluster.broker(0).logs_path)[length:]
    assert said.count("clean_shutdown=True") == said.count("clean_shutdown=False") == 1
