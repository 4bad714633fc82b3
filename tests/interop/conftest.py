"""All tests of this folder run Apache Kafka. They are skipped where its jars cannot be had."""

from __future__ import annotations

import pytest
from apache_kafka import ApacheKafkaBroker, fetch_jars, jars_folder
from required_tools import require


@pytest.fixture(scope="session", autouse=True)
def kafka_jars() -> None:
    """Fetch the jars of Apache Kafka, once for this machine, and let its brokers start fast."""
    if not jars_folder().is_dir():
        require("mvn")
    fetch_jars()
    ApacheKafkaBroker.is_short_lived = True
