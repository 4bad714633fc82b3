"""Listeners that open and close while a broker runs: Kafka 3.9.1 and klamm accept and refuse the same."""

from __future__ import annotations

import re
from pathlib import Path

from apache_kafka import ApacheKafkaBroker
from broker_program import BrokerProgram, settings
from listener_changes import ChangingListeners, listeners_come_and_go

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

KAFKA, KLAMM = 21392, 21492


def test_both_engines_open_close_and_refuse_alike(tmp_path: Path) -> None:
    host = own_loopback_address()
    kafka, klamm = (
        ChangingListeners(tmp_path / name, host, port, has_logins_in_file=True)
        for name, port in (("kafka", KAFKA), ("klamm", KLAMM))
    )
    with EmbeddedZooKeeper(host=host, fsync=False) as zookeeper:
        connect = zookeeper.connect_string
        own = settings(tmp_path / "klamm", host, f"{connect}/klamm") | klamm.settings()
        theirs = ApacheKafkaBroker(
            tmp_path / "kafka", broker_id=0, host=host, port=KAFKA, zookeeper_connect=f"{connect}/kafka",
            overrides=kafka.settings() | {"controlled.shutdown.enable": "false"}, heap="300m",
        )  # fmt: skip
        with BrokerProgram(tmp_path / "klamm", own) as ours, theirs:
            ours.wait_until_started()
            said = {port: listeners_come_and_go(broker) for port, broker in ((KAFKA, kafka), (KLAMM, klamm))}
    plain = {
        port: [
            re.sub(r"Invalid value \S+: (.*) for configuration (.*)", r"\2: \1", each)
            .replace(str(port + 1), "NEXT")
            .replace(str(port), "PORT")
            for each in told
        ]
        for port, told in said.items()
    }
    print(*plain[KAFKA], *plain[KLAMM], sep="\n")
    assert plain[KLAMM] == plain[KAFKA]
