"""One broker id, one data folder, one ZooKeeper, two engines in turn: each continues where the other ended.

There is a clean shutdown and a kill -9 in both directions. Every record, setting and producer state is there
afterwards.
"""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from apache_kafka import ApacheKafkaBroker
from broker_program import BrokerProgram, settings
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, ConfigResource, NewPartitions, ResourceType
from kazoo.client import KazooClient
from patience import within
from real_clients import ConfluentKafka, Sent
from segments_on_disk import CODECS
from wire_client import EARLIEST, SequencedProducer, WireClient, create_topic, list_offset, read_all, wait_until_led

from engine.common.errors import ErrorCode
from engine.local.addresses import own_loopback_address

SESSION_MS = "2000"
PARTITIONS = 2


class Turns:
    """The folder that the engines take over in turn, and what it must hold."""

    def __init__(self, folder: Path, zookeeper_connect: str) -> None:
        self.folder = folder
        self.zookeeper_connect = zookeeper_connect
        self.host = own_loopback_address()
        self.address = f"{self.host}:9092"
        self.sent: dict[str, list[Sent]] = {f"codec-{codec}": [] for codec in CODECS}
        self.sequences = 0
        self.producer: SequencedProducer | None = None

    @contextmanager
    def klamm(self, *, orderly: bool) -> Iterator[None]:
        """Our broker's turn."""
        own = settings(self.folder, self.host, self.zookeeper_connect)
        with BrokerProgram(self.folder / "klamm", own) as broker:
            broker.wait_until_started()
            yield
            if orderly:
                assert broker.terminate() == 0
            else:
                broker.process.kill()
                broker.process.wait()
            assert "Traceback" not in broker.server_log
            assert "Cannot handle a request" not in broker.server_log
        self._wait_until_the_id_is_free()

    @contextmanager
    def kafka(self, *, orderly: bool) -> Iterator[ApacheKafkaBroker]:
        """Kafka's turn."""
        broker = ApacheKafkaBroker(
            self.folder,
            broker_id=0,
            host=self.host,
            port=9092,
            zookeeper_connect=self.zookeeper_connect,
            overrides={"zookeeper.session.timeout.ms": SESSION_MS, "auto.create.topics.enable": "false"},
            heap="400m",
            shares_jvm=orderly,
        )
        try:
            broker.start()
            yield broker
            if not orderly:
                broker.process.send_signal(signal.SIGKILL)
        finally:
            broker.stop()
        errors = [line for line in broker.log.splitlines() if " ERROR " in line or " FATAL " in line]
        # The gap that is sent on purpose is one.
        assert [line for line in errors if "append operation on partition sequences-0" not in line] == []
        self._wait_until_the_id_is_free()

    def write(self) -> None:
        """Add records in every codec, and one more batch of the producer whose sequences are counted."""
        wait_until_led(self.address, *self.sent, "sequences")
        for topic, sent in self.sent.items():
            first = len(sent)
            new = [
                Sent(number % PARTITIONS, b"key %d" % number, b"value %d " % number * 20, (("h", b"v"),))
                for number in range(first, first + 100)
            ]
            ConfluentKafka().produce(self.address, topic, topic.removeprefix("codec-"), new)
            sent += new
        with WireClient(self.address) as client:
            self.producer = self.producer or SequencedProducer(client)
            answer = self.producer.send(client, "sequences", self.sequences * 2, 2)
            assert (answer.error_code, answer.base_offset) == (ErrorCode.NONE, self.sequences * 2)
        self.sequences += 1

    def check(self) -> None:
        """Check that everything ever sent is there.

        The last idempotent batch is known, and a gap after it is refused.
        """
        wait_until_led(self.address, *self.sent, "sequences", "deleted")
        for topic, sent in self.sent.items():
            read = ConfluentKafka().consume(self.address, topic, PARTITIONS, len(sent))
            for partition in range(PARTITIONS):
                assert [r for r in read if r.partition == partition] == [r for r in sent if r.partition == partition]
        with WireClient(self.address) as client:
            assert self.producer is not None
            last = (self.sequences - 1) * 2
            again = self.producer.send(client, "sequences", last, 2)
            assert (again.error_code, again.base_offset) == (ErrorCode.NONE, last)
            gap = self.producer.send(client, "sequences", last + 4, 2)
            assert gap.error_code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
            assert list_offset(client, "deleted", EARLIEST) == 7
            assert [record.offset for record in read_all(client, "deleted")] == [7, 8, 9]
        admin = AdminClient({"bootstrap.servers": self.address, "log_level": 2})
        resource = ConfigResource(ResourceType.TOPIC, "codec-gzip")
        configs = admin.describe_configs([resource])[resource].result(30)
        assert configs["retention.ms"].value == "86400000"

    def _wait_until_the_id_is_free(self) -> None:
        """A killed broker stays registered until its session ends, and Kafka does not wait for that."""
        client = KazooClient(self.zookeeper_connect)
        client.start()
        is_in_time = within(40)
        while client.exists("/brokers/ids/0") is not None:
            assert is_in_time()
            time.sleep(0.05)
        client.stop()
        client.close()


def test_klamm_and_kafka_take_turns(tmp_path: Path, zk_chroot: str) -> None:
    turns = Turns(tmp_path, zk_chroot)
    with turns.klamm(orderly=True):
        for topic in turns.sent:
            create_topic(turns.address, topic, partitions=PARTITIONS, configs={"retention.ms": "86400000"})
        for topic in ("sequences", "deleted", "gone"):
            create_topic(turns.address, topic)
        turns.write()
        _delete_some(turns.address)
        turns.check()
    with turns.kafka(orderly=True) as kafka:
        assert "since clean shutdown file was found" in kafka.log
        turns.check()
        turns.write()
        admin = AdminClient({"bootstrap.servers": turns.address, "log_level": 2})
        admin.create_partitions([NewPartitions("codec-none", 4)])["codec-none"].result(30)
    with turns.klamm(orderly=False):
        turns.check()
        turns.write()
        admin = AdminClient({"bootstrap.servers": turns.address, "log_level": 2})
        topics = admin.list_topics(timeout=30).topics
        assert len(topics["codec-none"].partitions) == 4 and "gone" not in topics
    with turns.kafka(orderly=False):
        turns.check()
        turns.write()
    with turns.klamm(orderly=True):
        turns.check()


def _delete_some(address: str) -> None:
    """Delete a topic, and the first seven of ten records of another."""
    ConfluentKafka().produce(address, "deleted", "none", [Sent(0, b"k", b"v")] * 10)
    admin = AdminClient({"bootstrap.servers": address, "log_level": 2})
    admin.delete_topics(["gone"])["gone"].result(30)
    (deleted,) = admin.delete_records([TopicPartition("deleted", 0, 7)]).values()
    assert deleted.result(30).low_watermark == 7
