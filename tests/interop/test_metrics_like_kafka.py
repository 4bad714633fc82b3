"""Kafka's MBeans and ours after the same work: the same names, the same attributes, the same counts."""

from __future__ import annotations

import json
import re
import threading
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from typing import Any

import pytest
from apache_kafka import ApacheKafkaBroker
from broker_program import OLD_RECORDS_STAY, BrokerProgram, settings
from kafka_tools import mbeans
from metric_work import COUNTED, all_kinds_of_work, counted_work, deprecated_work
from wire_client import WireClient, fetch, produce

from engine.common.errors import ErrorCode
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

COMMON = OLD_RECORDS_STAY | {
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.num.partitions": "5",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "controlled.shutdown.enable": "false",
}
KAFKA, KLAMM, JMX, PAGES = 21092, 21093, 21094, 21095

MBeans = dict[str, dict[str, Any]]


class Both:
    """A broker of each kind, and its MBeans."""

    def __init__(self, host: str) -> None:
        self.host = host
        self.addresses = (f"{host}:{KAFKA}", f"{host}:{KLAMM}")
        self.deprecated: dict[str, int] = {}

    def theirs(self, pattern: str = "kafka*:*") -> MBeans:
        return mbeans(f"{self.host}:{JMX}", pattern)

    def ours(self, pattern: str = "*:*") -> MBeans:
        request = json.dumps({"type": "read", "mbean": pattern}).encode()
        with urllib.request.urlopen(f"http://{self.host}:{PAGES}/jolokia", request, timeout=60) as answer:
            values: MBeans = json.load(answer)["value"]
        return values


@pytest.fixture(scope="module")
def both(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Both]:
    """The two brokers after the same work."""
    folder = tmp_path_factory.mktemp("metrics")
    host = own_loopback_address()
    with ExitStack() as stack:
        connect = f"{zookeeper.connect_string}/{folder.name}"
        own = {
            **settings(folder / "klamm", host, f"{connect}/klamm"),
            **COMMON,
            "listeners": f"PLAINTEXT://{host}:{KLAMM}",
            "klamm.metrics.listener": f"{host}:{PAGES}",
        }
        klamm = stack.enter_context(BrokerProgram(folder / "klamm", own))
        kafka = ApacheKafkaBroker(
            folder / "kafka",
            broker_id=0,
            host=host,
            port=KAFKA,
            zookeeper_connect=f"{connect}/kafka",
            overrides=COMMON,
            heap="300m",
            jmx_port=JMX,
        )
        stack.enter_context(kafka)
        klamm.wait_until_started()
        engines = Both(host)
        for address in engines.addresses:
            counted_work(address)
            all_kinds_of_work(address)
            engines.deprecated = deprecated_work(address)
        yield engines
        assert "Traceback" not in klamm.server_log


@pytest.fixture(scope="module")
def registered(both: Both) -> tuple[MBeans, MBeans]:
    """What Kafka and klamm register."""
    return both.theirs(), both.ours()


def shape(name: str) -> str:
    """Return a name without what differs from run to run, or from engine to engine."""
    for key in ("networkProcessor", "processor", "version", "error", "clientSoftwareName", "clientSoftwareVersion"):
        name = re.sub(rf"\b{key}=[^,]*", f"{key}=*", name)
    return re.sub(r'logDirectory="[^"]*"', "logDirectory=*", name)


NOT_HERE = {
    # The JVM's loggers; of ours the API tells (DescribeConfigs of a broker's loggers).
    "kafka:type=kafka.Log4jController",
    # Kafka asks itself over the network which partitions a transaction has, and sends itself the markers.
    "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=AddPartitionsToTxn,error=*",
    "kafka.network:type=RequestMetrics,name=ErrorsPerSec,request=WriteTxnMarkers,error=*",
    "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=AddPartitionsToTxnVerification,version=*",
    "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=WriteTxnMarkers,version=*",
}


def test_every_mbean_is_there_with_its_attributes(registered: tuple[MBeans, MBeans]) -> None:
    theirs, ours = ({shape(name): set(mbean) for name, mbean in each.items()} for each in registered)
    missing = sorted(theirs.keys() - ours.keys() - NOT_HERE)
    assert not missing, "\n".join(missing)
    differing = [name for name in theirs.keys() & ours.keys() if theirs[name] != ours[name]]
    assert not differing, [(name, theirs[name] ^ ours[name]) for name in differing]


@pytest.mark.parametrize(
    "name",
    [
        *(
            f"kafka.server:type=BrokerTopicMetrics,name={meter},topic={COUNTED}"
            for meter in ("BytesInPerSec", "BytesOutPerSec", "MessagesInPerSec", "TotalProduceRequestsPerSec")
        ),
        "kafka.server:type=BrokerTopicMetrics,name=InvalidMessageCrcRecordsPerSec",
        *(
            f"kafka.network:type=RequestMetrics,name=RequestsPerSec,request={api}"
            for api in ("Produce,version=8", "Fetch,version=11", "FetchConsumer,version=11", "ListOffsets,version=5")
        ),
        "kafka.network:type=RequestMetrics,name=RequestsPerSec,request=Metadata,version=9",
        *(
            f"kafka.network:type=RequestMetrics,name=ErrorsPerSec,request={error}"
            for error in (
                "Produce,error=CORRUPT_MESSAGE",
                "Produce,error=UNKNOWN_TOPIC_OR_PARTITION",
                "Produce,error=NONE",
                "Fetch,error=OFFSET_OUT_OF_RANGE",
            )
        ),
    ],
)
def test_the_same_count(registered: tuple[MBeans, MBeans], name: str) -> None:
    theirs, ours = registered
    assert ours[name]["Count"] == theirs[name]["Count"]


def test_the_same_deprecated_requests(both: Both, registered: tuple[MBeans, MBeans]) -> None:
    for request in registered:
        counts = {name: request[name]["Count"] for name in request if "name=DeprecatedRequestsPerSec," in name}
        assert counts.items() >= both.deprecated.items()
    theirs, ours = ({name for name in each if "name=DeprecatedRequestsPerSec," in name} for each in registered)
    assert theirs == ours


@pytest.mark.parametrize(
    "name",
    [
        "kafka.server:type=ReplicaManager,name=PartitionCount",
        "kafka.server:type=ReplicaManager,name=LeaderCount",
        "kafka.server:type=ReplicaManager,name=UnderReplicatedPartitions",
        "kafka.server:type=ReplicaManager,name=AtMinIsrPartitionCount",
        "kafka.server:type=ReplicaManager,name=ProducerIdCount",
        "kafka.controller:type=KafkaController,name=ActiveControllerCount",
        "kafka.controller:type=KafkaController,name=GlobalPartitionCount",
        "kafka.controller:type=KafkaController,name=GlobalTopicCount",
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroups",
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumGroupsEmpty",
        "kafka.coordinator.group:type=GroupMetadataManager,name=NumOffsets",
        "kafka.server:type=KafkaServer,name=BrokerState",
        f"kafka.log:type=Log,name=LogEndOffset,topic={COUNTED},partition=0",
        f"kafka.log:type=Log,name=LogStartOffset,topic={COUNTED},partition=0",
        f"kafka.log:type=Log,name=Size,topic={COUNTED},partition=0",
        f"kafka.cluster:type=Partition,name=InSyncReplicasCount,topic={COUNTED},partition=0",
    ],
)
def test_the_same_value(registered: tuple[MBeans, MBeans], name: str) -> None:
    theirs, ours = registered
    assert ours[name]["Value"] == theirs[name]["Value"]


STEADY_S, PAUSE_S = 130.0, 0.1
STEADY = [
    *(f"kafka.server:type=BrokerTopicMetrics,name={name}" for name in (
        "BytesInPerSec", "BytesOutPerSec", "MessagesInPerSec", "TotalFetchRequestsPerSec", "TotalProduceRequestsPerSec",
    )),
    *(f"kafka.network:type=RequestMetrics,name=RequestsPerSec,request={api}"
      for api in ("Produce,version=8", "FetchConsumer,version=11")),
]  # fmt: skip
WINDOWED = ("incoming-byte-rate", "outgoing-byte-rate", "request-rate", "response-rate")


def work_steadily(both: Both, is_over: threading.Event) -> None:
    """Send both brokers the same requests at the same times."""
    records = encode_batch([Record(n, int(time.time() * 1000), b"k", bytes(100), []) for n in range(10)])
    with ExitStack() as stack:
        clients = [stack.enter_context(WireClient(address, timeout_s=60)) for address in both.addresses]
        due_s = time.monotonic()
        while not is_over.is_set():
            for client in clients:
                assert produce(client, COUNTED, records, partition=1, version=8).error_code == ErrorCode.NONE
                assert fetch(client, COUNTED, 0, partition=1, max_bytes=len(records) + 100, version=11).records
            due_s += PAUSE_S
            time.sleep(max(0.0, due_s - time.monotonic()))


def windowed(found: MBeans) -> dict[str, float]:
    """Return the rates of a listener's selectors together: Kafka has one for each of its network threads."""
    names = [
        n for n in found if "socket-server-metrics" in n and "networkProcessor=" in n and "clientSoftware" not in n
    ]
    return {rate: sum(found[name][rate] for name in names) for rate in WINDOWED}


def test_rates_after_the_same_steady_work(both: Both) -> None:
    """Kafka's are read in the middle of two readings of ours, since that takes a while."""
    is_over = threading.Event()
    with ThreadPoolExecutor(1) as threads:
        working = threads.submit(work_steadily, both, is_over)
        try:
            is_over.wait(STEADY_S)
            before, theirs, after = both.ours("kafka.*:*"), both.theirs(), both.ours("kafka.*:*")
        finally:
            is_over.set()
        working.result(60)
    rates = {
        name: (float(theirs[name]["OneMinuteRate"]), (before[name]["OneMinuteRate"] + after[name]["OneMinuteRate"]) / 2)
        for name in STEADY
    }
    first, last = windowed(before), windowed(after)
    rates |= {rate: (value, (first[rate] + last[rate]) / 2) for rate, value in windowed(theirs).items()}
    print({name: f"{kafka:.1f} {klamm:.1f} {klamm / kafka:.3f}" for name, (kafka, klamm) in rates.items()})
    assert rates[STEADY[2]][0] > 0.5 * 10 / PAUSE_S, "the machine is too slow for that work"
    assert {name: klamm / kafka for name, (kafka, klamm) in rates.items()} == {
        name: pytest.approx(1, abs=0.05) for name in rates
    }
