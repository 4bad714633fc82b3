"""Listeners that open and close while a broker runs: Kafka 3.9.1 and klamm accept and refuse the same.

And what Kafka does with an address that another broker tells clients, which
``tests/broker/server/test_bad_start.py`` expects of klamm.
"""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from apache_kafka import ApacheKafkaBroker
from broker_program import BrokerProgram, settings
from listener_changes import ChangingListeners, listeners_come_and_go
from patience import wait_for
from wire_client import WireClient

from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from engine.kafka.protocol.apis.metadata import MetadataRequest
from engine.local.addresses import own_loopback_address

KAFKA, KLAMM = 21392, 21492


def test_both_engines_open_close_and_refuse_alike(zk_chroot: str, tmp_path: Path) -> None:
    host = own_loopback_address()
    kafka, klamm = (
        ChangingListeners(tmp_path / name, host, port, has_logins_in_file=True)
        for name, port in (("kafka", KAFKA), ("klamm", KLAMM))
    )
    own = settings(tmp_path / "klamm", host, f"{zk_chroot}/klamm") | klamm.settings()
    theirs = ApacheKafkaBroker(
        tmp_path / "kafka", broker_id=0, host=host, port=KAFKA, zookeeper_connect=f"{zk_chroot}/kafka",
        overrides=kafka.settings() | {"controlled.shutdown.enable": "false"}, shares_jvm=True,
    )  # fmt: skip
    with BrokerProgram(tmp_path / "klamm", own) as ours, theirs:
        ours.wait_until_started()
        said = {port: listeners_come_and_go(broker) for port, broker in ((KAFKA, kafka), (KLAMM, klamm))}
    plain = {
        port: [
            re.sub(r"Invalid value \S+: (.*) for configuration (.*)", r"\2: \1", each)
            .replace(str(port + 1), "NEXT")
            .replace(str(port), "PORT")
            for each in words
        ]
        for port, words in said.items()
    }
    print(*plain[KAFKA], *plain[KLAMM], sep="\n")
    assert plain[KLAMM] == plain[KAFKA]


def test_an_address_that_another_broker_of_kafka_tells_clients(zk_chroot: str, tmp_path: Path) -> None:
    host, other = own_loopback_address(), own_loopback_address()
    address = f"PLAINTEXT://{host}:{KAFKA}"
    complaint = f"Configured end points {host}:{KAFKA} in advertised listeners are already registered by broker 0"

    def broker(broker_id: int, where: str, **overrides: str) -> ApacheKafkaBroker:
        return ApacheKafkaBroker(
            tmp_path / f"{broker_id}", broker_id=broker_id, host=where, port=KAFKA, shares_jvm=True,
            zookeeper_connect=zk_chroot,
            overrides={"controlled.shutdown.enable": "false", **overrides},
        )  # fmt: skip

    with broker(0, host):
        with pytest.raises(RuntimeError, match=f"did not start.*{complaint}"):
            broker(1, other, **{"advertised.listeners": address}).start()
        with broker(1, other) as second:
            taken = AlterableConfig(name="advertised.listeners", config_operation=0, value=address)
            change = AlterConfigsResource(resource_type=4, resource_name="1", configs=[taken])
            with WireClient(second.bootstrap) as client:
                (answer,) = client.ask(IncrementalAlterConfigsRequest(resources=[change]), 1).responses
                assert answer.error_code == 0
                wait_for(lambda: complaint in second.log, "the change is tried")
                brokers = client.ask(MetadataRequest(topics=[]), 9).brokers
            assert {each.node_id: each.host for each in brokers} == {0: host, 1: other}
