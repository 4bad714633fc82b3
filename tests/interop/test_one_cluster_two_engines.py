"""One of our brokers and one of Kafka's in a cluster, with either as controller (E24): topics, replicas, hand-overs."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest
from apache_kafka import ApacheKafkaBroker
from broker_program import BrokerProgram, settings
from confluent_kafka.admin import AdminClient
from patience import wait_for, within
from real_clients import ConfluentKafka, Sent
from wire_client import WireClient, controller_address, create_topic, describe_topic

from engine.common.errors import ErrorCode
from engine.local.addresses import own_loopback_address

KLAMM, KAFKA = 0, 1
DEADLINE_S = 40.0


class TwoEngines:
    """Broker 0 is ours, broker 1 is Kafka's. Each may be stopped and started."""

    def __init__(self, folder: Path, zookeeper_connect: str, stack: ExitStack) -> None:
        self._folder = folder
        self._stack = stack
        self._zookeeper_connect = zookeeper_connect
        self.host = own_loopback_address()
        self.addresses = {KLAMM: f"{self.host}:9092", KAFKA: f"{self.host}:9093"}
        self.bootstrap = ",".join(self.addresses.values())
        self._klamm: BrokerProgram | None = None
        self._kafka: ApacheKafkaBroker | None = None

    def start(self, broker_id: int) -> None:
        """Start a broker and wait until it serves."""
        common = {"zookeeper.session.timeout.ms": "6000", "replica.lag.time.max.ms": "5000"}
        if broker_id == KLAMM:
            own = {**settings(self._folder / "klamm", self.host, self._zookeeper_connect), **common}
            self._klamm = self._stack.enter_context(BrokerProgram(self._folder / "klamm", own))
            self._klamm.wait_until_started()
            return
        self._kafka = ApacheKafkaBroker(
            self._folder / "kafka",
            broker_id=KAFKA,
            host=self.host,
            port=9093,
            zookeeper_connect=self._zookeeper_connect,
            overrides=common,
            shares_jvm=True,
        )
        self._stack.callback(self._kafka.stop)
        self._kafka.start()

    def stop(self, broker_id: int) -> None:
        """Shut a broker down cleanly: it hands its leaderships over."""
        if broker_id == KAFKA:
            assert self._kafka is not None
            self._kafka.stop()
            return
        assert self._klamm is not None
        assert self._klamm.terminate() == 0
        assert "Traceback" not in self._klamm.server_log
        assert "Cannot handle a request" not in self._klamm.server_log

    def log_dir(self, broker_id: int) -> Path:
        return self._folder / ("klamm" if broker_id == KLAMM else "kafka") / "data"

    def wait_for_topic(self, asked: int, topic: str, condition: Callable[[list[tuple[int, list[int]]]], bool]) -> None:
        """Wait until a broker reports the wanted (leader, sorted ISR) of the partitions."""
        is_in_time = within(DEADLINE_S)
        while True:
            with WireClient(self.addresses[asked]) as client:
                description = describe_topic(client, topic)
            partitions = sorted(description.partitions, key=lambda p: int(p.partition_index))
            replicas = [(p.leader_id, sorted(p.isr_nodes)) for p in partitions]
            if description.error_code == ErrorCode.NONE and condition(replicas):
                return
            assert is_in_time(), f"{topic}: broker {asked} tells {replicas}"
            time.sleep(0.05)


@contextmanager
def two_engines(folder: Path, zookeeper_connect: str, controller: int) -> Iterator[TwoEngines]:
    with ExitStack() as stack:
        engines = TwoEngines(folder, zookeeper_connect, stack)
        engines.start(controller)
        # The first broker becomes controller.
        assert controller_address(engines.addresses[controller]) == engines.addresses[controller]
        engines.start(KAFKA if controller == KLAMM else KLAMM)
        yield engines


def records(turn: int) -> list[Sent]:
    return [Sent(n % 2, b"key", b"turn %d record %d " % (turn, n) * 10) for n in range(400)]


@pytest.mark.parametrize("controller", [KLAMM, KAFKA], ids=["klamm", "kafka"])
def test_either_controls_both(tmp_path: Path, zk_chroot: str, controller: int) -> None:
    client = ConfluentKafka(acks="all")
    reader = ConfluentKafka()
    with two_engines(tmp_path, zk_chroot, controller) as engines:
        create_topic(engines.addresses[KLAMM], "single", assignment={0: [KLAMM], 1: [KAFKA]})
        create_topic(engines.addresses[KAFKA], "double", assignment={0: [KLAMM, KAFKA], 1: [KAFKA, KLAMM]})
        sent: list[Sent] = []
        for asked in (KLAMM, KAFKA):
            engines.wait_for_topic(asked, "single", lambda found: found == [(KLAMM, [KLAMM]), (KAFKA, [KAFKA])])
            engines.wait_for_topic(asked, "double", lambda found: found == [(KLAMM, [0, 1]), (KAFKA, [0, 1])])
        client.produce(engines.bootstrap, "single", "lz4", records(0))
        check(reader, engines, "single", records(0))
        sent += records(0)
        client.produce(engines.bootstrap, "double", "zstd", sent)
        check(reader, engines, "double", sent)
        for turn, (gone, left) in enumerate([(KAFKA, KLAMM), (KLAMM, KAFKA)], start=1):
            engines.stop(gone)
            engines.wait_for_topic(left, "double", lambda found, left=left: found == [(left, [left])] * 2)
            client.produce(engines.addresses[left], "double", "gzip", records(turn))
            sent += records(turn)
            engines.start(gone)
            engines.wait_for_topic(gone, "double", lambda found: [isr for _, isr in found] == [[0, 1], [0, 1]])
            check(reader, engines, "double", sent)
        admin = AdminClient({"bootstrap.servers": engines.bootstrap, "log_level": 2})
        admin.delete_topics(["single"])["single"].result(DEADLINE_S)
        # The answer comes when the controller's broker has learned of the deletion, before all replicas are gone.
        wait_for(lambda: not list(engines.log_dir(KLAMM).glob("single-0")), "the deleted topic's folder is gone")
        for broker_id in (KLAMM, KAFKA):
            engines.stop(broker_id)
        for partition in (0, 1):
            ours, kafkas = (segments(engines.log_dir(b) / f"double-{partition}") for b in (KLAMM, KAFKA))
            assert ours == kafkas, "replicas are equal to the byte"
            assert len(ours) > 0


def check(reader: ConfluentKafka, engines: TwoEngines, topic: str, sent: list[Sent]) -> None:
    read = reader.consume(engines.bootstrap, topic, 2, len(sent))
    for partition in (0, 1):
        assert [r for r in read if r.partition == partition] == [r for r in sent if r.partition == partition]


def segments(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in folder.glob("*.log")}
