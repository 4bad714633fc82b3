"""The pytest plugin: the fixtures ``kafka``, one cluster for all tests, and ``kafka_cluster``, one for a single test.

Every pytest run of the environment loads this module, so slow imports wait until a test asks for a fixture.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from klamm.testing import LocalCluster


def pytest_configure(config: pytest.Config) -> None:
    """Register the marker, for those who run pytest with --strict-markers."""
    config.addinivalue_line(
        "markers",
        "kafka_cluster(brokers, **options): what the fixture kafka_cluster starts (klamm.testing.LocalCluster)",
    )


@pytest.fixture(scope="session")
def kafka_options() -> dict[str, Any]:
    """Arguments of the LocalCluster that ``kafka`` is; override it in your conftest.py."""
    return {}


@pytest.fixture(scope="session")
def kafka(kafka_options: dict[str, Any]) -> Iterator[LocalCluster]:
    """A Kafka cluster of one broker for all tests of the session (klamm.testing.LocalCluster)."""
    from klamm.testing import LocalCluster

    with LocalCluster(**{"brokers": 1, **kafka_options}) as cluster:
        yield cluster


@pytest.fixture
def kafka_cluster(request: pytest.FixtureRequest) -> Iterator[LocalCluster]:
    """A Kafka cluster for this test alone: three brokers, or what @pytest.mark.kafka_cluster says."""
    from klamm.testing import LocalCluster

    marker = request.node.get_closest_marker("kafka_cluster")
    arguments, options = (marker.args, marker.kwargs) if marker else ((), {})
    with LocalCluster(*arguments, **options) as cluster:
        yield cluster
