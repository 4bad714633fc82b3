"""One folder that the two engines take over in turn, at the same address, so that clients need not notice."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

from apache_kafka import ApacheKafkaBroker
from broker_program import BrokerProgram, settings
from kazoo.client import KazooClient
from patience import within

from engine.local.addresses import own_loopback_address

DEADLINE_S = 40.0


class OneFolder:
    """A broker's folder. ``klamm`` and ``kafka`` run one engine or the other on it."""

    def __init__(self, folder: Path, zookeeper_connect: str, overrides: Mapping[str, str]) -> None:
        self.folder = folder
        self.zookeeper_connect = zookeeper_connect
        self.host = own_loopback_address()
        self.address = f"{self.host}:9092"
        self._overrides = dict(overrides)

    @contextmanager
    def klamm(self, *, killed: bool = False) -> Iterator[None]:
        """Our broker's turn."""
        own = {**settings(self.folder, self.host, self.zookeeper_connect), **self._overrides}
        with BrokerProgram(self.folder / "klamm", own) as broker:
            broker.wait_until_started()
            yield
            if killed:
                broker.process.kill()
                broker.process.wait()
            else:
                assert broker.terminate() == 0
            assert "Traceback" not in broker.server_log
            assert " skipped\n" not in broker.server_log.replace(" 0 skipped\n", "")
        self._wait_until_the_id_is_free()

    @contextmanager
    def kafka(self) -> Iterator[None]:
        """Kafka's turn."""
        broker = ApacheKafkaBroker(
            self.folder,
            broker_id=0,
            host=self.host,
            port=9092,
            zookeeper_connect=self.zookeeper_connect,
            overrides={**self._overrides, "zookeeper.session.timeout.ms": "2000"},
            shares_jvm=True,
        )
        with broker:
            yield
        lines = broker.log.splitlines()
        assert [line for line in lines if " ERROR " in line or " FATAL " in line] == []
        self._wait_until_the_id_is_free()

    def _wait_until_the_id_is_free(self) -> None:
        client = KazooClient(self.zookeeper_connect)
        client.start()
        is_in_time = within(DEADLINE_S)
        while client.exists("/brokers/ids/0") is not None:
            assert is_in_time()
            time.sleep(0.05)
        client.stop()
        client.close()
