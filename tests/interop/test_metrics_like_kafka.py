"""Kafka's MBeans and ours after the same work: the same names, the same attributes, the same counts."""

from __future__ import annotations

import json
import re
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack
from typing import Any

import pytest
from apache_kafka import ApacheKafkaBroker
from broker_program import OLD_RECORDS_STAY, BrokerProgram, settings
from java_source import run_java
from metric_work import COUNTED, all_kinds_of_work, counted_work

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


@pytest.fixture(scope="module")
def registered(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[MBeans, MBeans]]:
    """What Kafka and klamm register after the same work."""
    folder = tmp_path_factory.mktemp("metrics")
    host = own_loopback_address()
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(host=host, fsync=False)).connect_string
        own = {
            **settings(folder / "klamm", host, f"{zookeeper}/klamm"),
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
            zookeeper_connect=f"{zookeeper}/kafka",
            overrides=COMMON,
            heap="300m",
            jmx_port=JMX,
        )
        stack.enter_context(kafka)
        klamm.wait_until_started()
        for address in (kafka.bootstrap, f"{host}:{KLAMM}"):
            counted_work(address)
            all_kinds_of_work(address)
        theirs = {row["mbean"]: row["attributes"] for row in run_java("MBeans", f"{host}:{JMX}", "kafka*:*")}
        request = json.dumps({"type": "read", "mbean": "*:*"}).encode()
        with urllib.request.urlopen(f"http://{host}:{PAGES}/jolokia", request, timeout=60) as answer:
            ours = json.load(answer)["value"]
        yield theirs, ours
        assert "Traceback" not in klamm.server_log


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
    theirs, ours = ({shape(name): set(found) for name, found in each.items()} for each in registered)
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
