"""Some genuine Kafka brokers, in a ZooKeeper of the tests' process or one of their own."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from apache_kafka import ApacheKafkaBroker, SharedJvm, wait_until_all_know_each_other

from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper


@dataclass(frozen=True, slots=True)
class KafkaCluster:
    """Running brokers and their ZooKeeper. The first broker is the controller until something happens to it."""

    brokers: Sequence[ApacheKafkaBroker]
    server: EmbeddedZooKeeper
    zookeeper: str

    @property
    def bootstrap(self) -> str:
        return ",".join(broker.bootstrap for broker in self.brokers)


@contextmanager
def kafka_cluster(
    folder: Path,
    brokers: int,
    port: int,
    settings: Mapping[str, str],
    *,
    host: str | None = None,
    chroot: str = "",
    log_dirs: Sequence[str] = ("data",),
    each: Sequence[Mapping[str, Any]] = (),
    shares_jvm: bool | SharedJvm = True,
    zookeeper: EmbeddedZooKeeper | None = None,
) -> Iterator[KafkaCluster]:
    """Start brokers that know each other, and end them before their ZooKeeper.

    Args:
        folder: gets a folder for each broker, named after its id.
        port: of broker 0; those of the others follow.
        host: an address that is known before the cluster starts; by default one that nobody else uses.
        log_dirs: their names in each broker's folder.
        each: what every broker is made with beside this.
        shares_jvm: no broker can be killed alone, and none has JMX.
        zookeeper: one that runs, in which the cluster gets a chroot named after its folder; by default its own.
    """
    host = host or own_loopback_address()
    with ExitStack() as stack:
        server = zookeeper or stack.enter_context(EmbeddedZooKeeper(host=host, fsync=False))
        connect = server.connect_string + (f"/{folder.name}" if zookeeper else "") + chroot
        made = []
        for broker_id in range(brokers):
            home = folder / str(broker_id)
            broker = ApacheKafkaBroker(
                home,
                broker_id=broker_id,
                host=host,
                port=port + broker_id,
                zookeeper_connect=connect,
                overrides={"log.dirs": ",".join(str(home / name) for name in log_dirs), **settings},
                heap="300m",
                **{"shares_jvm": shares_jvm, **(each[broker_id] if each else {})},
            )
            made.append(stack.enter_context(broker))
        wait_until_all_know_each_other(made)
        yield KafkaCluster(made, server, connect)
