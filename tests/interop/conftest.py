"""All tests of this folder run Apache Kafka; without its jars they are skipped. Some share a session of Spark."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from apache_kafka import ApacheKafkaBroker, fetch_jars, jars_folder
from klamm_program import own_folder
from required_tools import require
from secured_kafka import SecuredKafka, secured_kafka
from spark_sessions import spark

from engine.local.zookeeper import EmbeddedZooKeeper

__all__ = ["own_folder", "spark"]


@pytest.fixture(scope="session", autouse=True)
def kafka_jars() -> None:
    """Fetch the jars of Apache Kafka, once for this machine, and let its brokers start fast."""
    if not jars_folder().is_dir():
        require("mvn")
    fetch_jars()
    ApacheKafkaBroker.is_short_lived = True


@pytest.fixture(scope="module")
def kafka(zookeeper: EmbeddedZooKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredKafka]:
    """A broker with a listener for each security protocol, and two log dirs; a file's own."""
    folder = tmp_path_factory.mktemp("secured")
    with secured_kafka(folder, {"log.dirs": f"{folder}/data,{folder}/more"}, zookeeper=zookeeper) as running:
        yield running
