"""Ordinary and odd requests in every version: our broker and Apache Kafka's answer the same and leave the same files.

Where ours differ on purpose, ``unlike`` names the field: a refused Produce has a text where Kafka's has none, and other
texts are not always Kafka's word for word.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from apache_kafka import ApacheKafkaBroker
from broker_program import OLD_RECORDS_STAY, BrokerProgram, settings
from compared_records import written
from requests_compared import AREAS
from side_by_side import SideBySide
from wire_client import controller_address

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

CHECKPOINTS = (
    "recovery-point-offset-checkpoint",
    "log-start-offset-checkpoint",
    "replication-offset-checkpoint",
)

COMMON = OLD_RECORDS_STAY | {
    "zookeeper.session.timeout.ms": "18000",
    "auto.create.topics.enable": "true",
    "num.partitions": "2",
    "log.segment.bytes": "1048576",
    "offsets.topic.num.partitions": "5",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    "group.initial.rebalance.delay.ms": "0",
    "log.cleaner.dedupe.buffer.size": "16777216",
    # The only broker cannot hand its partitions to anybody, and would try three times.
    "controlled.shutdown.enable": "false",
}


class Brokers:
    """One broker of each kind, each with its own cluster."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        host = own_loopback_address()
        zookeeper = stack.enter_context(EmbeddedZooKeeper(host=host, fsync=False)).connect_string
        self.folder = folder
        own = {
            **settings(folder / "klamm", host, f"{zookeeper}/klamm"),
            **COMMON,
            "listeners": f"PLAINTEXT://{host}:21093",
        }
        self._klamm = stack.enter_context(BrokerProgram(folder / "klamm", own))
        self._kafka = ApacheKafkaBroker(
            folder / "kafka",
            broker_id=0,
            host=host,
            port=21092,
            zookeeper_connect=f"{zookeeper}/kafka",
            overrides=COMMON,
            heap="300m",
        )
        stack.enter_context(self._kafka)
        self._klamm.wait_until_started()
        # A broker starts a moment before its controller tells it about the cluster.
        controller_address(f"{host}:21093")
        self.both = SideBySide(self._kafka.bootstrap, f"{host}:21093")
        stack.callback(self.both.close)

    def stop(self) -> None:
        """Shut both down cleanly."""
        assert self._klamm.terminate() == 0
        assert "Traceback" not in self._klamm.server_log
        self._kafka.stop()


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with ExitStack() as stack:
        yield Brokers(tmp_path_factory.mktemp("same-answers"), stack)


@pytest.mark.parametrize("ask_all", AREAS, ids=lambda area: area.__name__)
def test_the_same_answers(brokers: Brokers, ask_all: Callable[[SideBySide], None]) -> None:
    both = brokers.both
    both.differences.clear()
    ask_all(both)
    assert not both.differences, "\n".join(both.differences)


def test_the_same_files(brokers: Brokers) -> None:
    """Records, indexes, snapshots and epochs of cleanly closed logs are equal, byte for byte. It is the last test."""
    written(brokers.both)
    brokers.stop()
    theirs, ours = (files_of_logs(brokers.folder / kind / "data") for kind in ("kafka", "klamm"))
    assert len(theirs) > 40
    assert theirs.keys() == ours.keys()
    assert [name for name, data in theirs.items() if data != ours[name]] == []
    for name in CHECKPOINTS:
        theirs_said, ours_said = (
            sorted(line for line in (brokers.folder / kind / "data" / name).read_text().splitlines() if line[0] == "w")
            for kind in ("kafka", "klamm")
        )
        assert theirs_said == ours_said, name


def files_of_logs(data: Path) -> dict[str, bytes]:
    """Return the files of the topics that begin with ``w``, without those that hold topic ids."""
    return {
        f"{file.parent.name}/{file.name}": file.read_bytes()
        for file in data.glob("w*/*")
        if file.name != "partition.metadata"
    }
