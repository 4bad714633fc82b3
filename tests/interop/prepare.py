"""Fetches what the tests of this folder need, and makes Kafka's class archives, once for a machine.

``make interop`` runs it first. What it cannot do now is left to the first test that needs it.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from contextlib import AbstractContextManager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from tests.support.paths import FOLDERS

sys.path[:0] = FOLDERS

from apache_kafka import (  # noqa: E402
    KAFKA_VERSION,
    ApacheKafkaBroker,
    class_archive,
    compiled,
    fetch_jars,
    fetched_once,
)
from hdfs_server import cluster_jar  # noqa: E402
from kafka_cluster import KafkaCluster, kafka_cluster  # noqa: E402
from kraft_cluster import KAFKA_4_VERSION, KRaftCluster, KRaftNode  # noqa: E402
from metric_work import all_kinds_of_work  # noqa: E402
from older_pyspark import RELEASES, connector_jars, pyspark_folder  # noqa: E402

from engine.local.addresses import own_loopback_address  # noqa: E402


def make_archive(
    version: str,
    broker: type[ApacheKafkaBroker | KRaftNode],
    cluster: Callable[[Path], AbstractContextManager[KafkaCluster | KRaftCluster]],
) -> None:
    """Let a broker work, whose JVM writes the archive as it ends."""
    fetch_jars(version)
    compiled("Brokers")

    def make(work: Path) -> Path:
        new = work / "classes.jsa"
        broker.java_options = (f"-XX:ArchiveClassesAtExit={new}",)
        with cluster(work) as running:
            all_kinds_of_work(running.bootstrap)
        return new

    fetched_once(class_archive(version), make)


def main() -> None:
    ApacheKafkaBroker.is_short_lived = True
    make_archive(KAFKA_VERSION, ApacheKafkaBroker, lambda folder: kafka_cluster(folder, 1, 21092, {}, shares_jvm=False))
    make_archive(
        KAFKA_4_VERSION,
        KRaftNode,
        lambda folder: KRaftCluster(folder, host=own_loopback_address(), nodes=1, shares_jvm=False),
    )
    for release in RELEASES:
        pyspark_folder(release)
    connector_jars("4.0.0")
    cluster_jar()


if __name__ == "__main__":
    main()
