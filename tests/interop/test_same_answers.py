"""Ordinary and odd requests in every version, to a broker of ours and one of Apache Kafka: the answers are the same.

Where ours differ on purpose, ``unlike`` names the field: a refused Produce has a text where Kafka's has none, and ours
is not always Kafka's word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from apache_kafka import ApacheKafkaBroker, missing_for_kafka
from broker_program import BrokerProgram, settings
from requests_compared import AREAS
from side_by_side import SideBySide
from wire_client import controller_address

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

pytestmark = [
    pytest.mark.interop,
    pytest.mark.skipif(missing_for_kafka() is not None, reason=str(missing_for_kafka())),
]

COMMON = {
    "zookeeper.session.timeout.ms": "18000",
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    "log.segment.bytes": "1048576",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    # The only broker has nobody to hand its partitions to, and would try three times.
    "controlled.shutdown.enable": "false",
}


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SideBySide]:
    """One broker of each kind, each with a cluster of its own."""
    host, folder = own_loopback_address(), tmp_path_factory.mktemp("same-answers")
    with ExitStack() as stack:
        zookeeper = stack.enter_context(EmbeddedZooKeeper(host=host, fsync=False)).connect_string
        own = {
            **settings(folder / "klamm", host, f"{zookeeper}/klamm"),
            **COMMON,
            "listeners": f"PLAINTEXT://{host}:21093",
        }
        klamm = stack.enter_context(BrokerProgram(folder / "klamm", own))
        kafka = ApacheKafkaBroker(
            folder / "kafka",
            broker_id=0,
            host=host,
            port=21092,
            zookeeper_connect=f"{zookeeper}/kafka",
            overrides=COMMON,
            heap="300m",
        )
        stack.enter_context(kafka)
        klamm.wait_until_started()
        # A broker has started a moment before its controller tells it of the cluster.
        controller_address(f"{host}:21093")
        both = SideBySide(kafka.bootstrap, f"{host}:21093")
        stack.callback(both.close)
        yield both
        assert "Traceback" not in klamm.server_log


@pytest.mark.parametrize("ask_all", AREAS, ids=lambda area: area.__name__)
def test_the_same_answers(brokers: SideBySide, ask_all: Callable[[SideBySide], None]) -> None:
    brokers.differences.clear()
    ask_all(brokers)
    assert not brokers.differences, "\n".join(brokers.differences)
