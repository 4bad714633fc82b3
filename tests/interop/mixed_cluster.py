"""A cluster of some of our brokers and some of Apache Kafka. A test may kill and restart any of them."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType

from apache_kafka import ApacheKafkaBroker
from broker_program import BrokerProgram, settings
from patience import within
from wire_client import WireClient, controller_address, describe_topic

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from engine.kafka.protocol.apis.elect_leaders import ElectLeadersRequest
from engine.kafka.protocol.apis.elect_leaders import TopicPartitions as ElectedTopic
from engine.local.addresses import own_loopback_address
from engine.local.probe import known_broker_ids

DEADLINE_S = 60.0

_FIRST_PORT = 9092
_COMMON = {
    "zookeeper.session.timeout.ms": "4000",
    "replica.lag.time.max.ms": "4000",
    "offsets.topic.num.partitions": "3",
    "unclean.leader.election.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "controlled.shutdown.retry.backoff.ms": "500",
}

Told = list[tuple[int, list[int], list[int]]]
"""Per partition: leader, sorted ISR, replicas."""


class MixedCluster:
    """Brokers by id; ``kafkas`` are Apache Kafka's. The first of ``ids`` starts first, and so becomes controller."""

    def __init__(
        self,
        folder: Path,
        zookeeper_connect: str,
        ids: Sequence[int],
        kafkas: Sequence[int],
        *,
        racks: Mapping[int, str] | None = None,
        **settings: str,
    ) -> None:
        """``settings`` have underscores for dots."""
        self._racks = racks or {}
        self._settings = _COMMON | {key.replace("_", "."): value for key, value in settings.items()}
        self.ids = tuple(ids)
        self.shares_jvm = False
        """Whether brokers of Kafka that start from now on share a JVM, so that none of them can be killed."""
        self.host = own_loopback_address()
        self._kafkas = frozenset(kafkas)
        self._folder = folder
        self._zookeeper_connect = zookeeper_connect
        self._stack = ExitStack()
        self._running: dict[int, BrokerProgram | ApacheKafkaBroker] = {}

    def __enter__(self) -> MixedCluster:
        try:
            self.start(self.ids[0])
            assert controller_address(self.address(self.ids[0])) == self.address(self.ids[0])
            with ThreadPoolExecutor() as threads:
                list(threads.map(self.start, self.ids[1:]))
            self.wait_until_all_know_each_other()
        except BaseException:
            self._stack.close()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stack.close()

    def address(self, broker_id: int) -> str:
        return f"{self.host}:{_FIRST_PORT + broker_id}"

    @property
    def bootstrap(self) -> str:
        return ",".join(map(self.address, self.ids))

    def log_dir(self, broker_id: int) -> Path:
        return self._folder / str(broker_id) / "data"

    # Life and death

    def start(self, broker_id: int) -> None:
        """Start a broker and wait until it serves."""
        folder = self._folder / str(broker_id)
        rack = {"broker.rack": self._racks[broker_id]} if self._racks else {}
        if broker_id in self._kafkas:
            kafka = ApacheKafkaBroker(
                folder,
                broker_id=broker_id,
                host=self.host,
                port=_FIRST_PORT + broker_id,
                zookeeper_connect=self._zookeeper_connect,
                overrides=self._settings | rack,
                heap="320m",
                shares_jvm=self.shares_jvm,
            )
            self._running[broker_id] = kafka
            self._stack.callback(kafka.stop)
            try:
                kafka.start()
            except RuntimeError as error:
                raise AssertionError(f"{error}\n{kafka.log[-4000:]}") from error
            return
        own = settings(folder, self.host, self._zookeeper_connect, broker_id=str(broker_id))
        own |= {**self._settings, **rack, "listeners": f"PLAINTEXT://{self.address(broker_id)}"}
        klamm = self._stack.enter_context(BrokerProgram(folder, own))
        self._running[broker_id] = klamm
        klamm.wait_until_started()

    def kill(self, broker_id: int) -> None:
        """Kill a broker with ``kill -9``."""
        broker = self._running.pop(broker_id)
        if isinstance(broker, ApacheKafkaBroker):
            broker.process.kill()
        else:
            broker.process.kill()
            broker.process.wait()

    def stop(self, broker_id: int) -> None:
        """Stop a broker cleanly. One of ours must have reported no fault."""
        broker = self._running.pop(broker_id)
        if isinstance(broker, ApacheKafkaBroker):
            broker.stop()
        else:
            assert broker.terminate() == 0
            assert "Traceback" not in broker.server_log, f"broker {broker_id}"
            assert "Cannot handle a request" not in broker.server_log, f"broker {broker_id}"

    def stop_all(self) -> None:
        """Stop all brokers cleanly."""
        for broker_id in list(self._running):
            self.stop(broker_id)

    # What it tells

    def told(self, topic: str) -> Told:
        """Return what some running broker says of a topic's partitions; nothing if it does not know the topic."""
        with WireClient(self.address(next(iter(self._running)))) as client:
            answer = describe_topic(client, topic)
        if answer.error_code != ErrorCode.NONE:
            return []
        partitions = sorted(answer.partitions, key=lambda p: int(p.partition_index))
        return [(p.leader_id, sorted(p.isr_nodes), list(p.replica_nodes)) for p in partitions]

    def wait_for_topic(self, topic: str, what: str, holds: Callable[[Told], bool]) -> None:
        is_in_time = within(DEADLINE_S)
        while not (described := self.told(topic)) or not holds(described):
            assert is_in_time(), f"not within {DEADLINE_S} s: {what}: {described}"
            time.sleep(0.05)

    def wait_in_sync(self, topic: str) -> None:
        self.wait_for_topic(
            topic, "all ISRs are full", lambda told: all(isr == sorted(replicas) for _, isr, replicas in told)
        )

    def wait_until_all_know_each_other(self) -> None:
        running = set(self._running)
        is_in_time = within(DEADLINE_S)
        for broker_id in running:
            while not known_broker_ids(self.host, _FIRST_PORT + broker_id) >= running:
                assert is_in_time(), f"broker {broker_id} did not hear of all others"
                time.sleep(0.05)

    # What it is asked for

    def reassign(self, targets: Mapping[TopicPartition, Sequence[int]]) -> None:
        """Reassign replicas, and wait until all have moved."""
        topics = [
            ReassignableTopic(
                name=name,
                partitions=[
                    ReassignablePartition(partition_index=p.partition, replicas=list(replicas))
                    for p, replicas in targets.items()
                    if p.topic == name
                ],
            )
            for name in dict.fromkeys(p.topic for p in targets)
        ]
        with WireClient(controller_address(self.address(next(iter(self._running))))) as client:
            answer = client.ask(AlterPartitionReassignmentsRequest(topics=topics), 0)
        assert answer.error_code == ErrorCode.NONE, answer
        assert {p.error_code for topic in answer.responses for p in topic.partitions} == {ErrorCode.NONE}, answer
        for partition, replicas in targets.items():
            self.wait_for_topic(
                partition.topic,
                f"{partition} is at {replicas}",
                lambda told, p=partition.partition, r=list(replicas): (  # type: ignore[misc]
                    told[p][1:] == (sorted(r), r) and told[p][0] in r
                ),
            )

    def elect_preferred(self, topic: str, partitions: int) -> None:
        wanted = ElectLeadersRequest(
            topic_partitions=[ElectedTopic(topic=topic, partitions=list(range(partitions)))], timeout_ms=20_000
        )
        with WireClient(controller_address(self.address(next(iter(self._running))))) as client:
            answer = client.ask(wanted, 1)
        assert answer.error_code == ErrorCode.NONE, answer
        self.wait_for_topic(topic, "the preferred lead", lambda told: all(t[0] == t[2][0] for t in told))
