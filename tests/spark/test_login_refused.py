"""A login that a broker refuses ends a query at once: trying again would lock the account."""

from __future__ import annotations

import asyncio

import pytest

from engine.admin.cluster.errors import LoginRefused
from engine.admin.cluster.wire import WireCluster
from engine.common.model import IsolationLevel
from engine.spark import broker_offsets, source
from engine.spark.broker_offsets import asked
from engine.spark.kafka_options import Connection
from engine.spark.offset_ranges import OffsetRange
from engine.spark.source import ReadTask, read_range

NOWHERE = Connection((("127.0.0.1", 1),))


@pytest.fixture
def attempts(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The times at which klamm asked a cluster that refuses each login."""
    logins = []

    async def refuse(*_: object) -> None:
        logins.append(asyncio.get_running_loop().time())
        raise LoginRefused("wrong password", where="broker 0")

    monkeypatch.setattr(WireCluster, "metadata", refuse)
    for module in (broker_offsets, source):
        monkeypatch.setattr(module, "PATIENCE_S", 1.0)
    return logins


def test_planning_a_read(attempts: list[float]) -> None:
    with pytest.raises(LoginRefused, match="wrong password"):
        asked(NOWHERE, lambda wire: wire.metadata())
    assert len(attempts) == 1


def test_reading_a_range(attempts: list[float]) -> None:
    task = ReadTask(NOWHERE, OffsetRange("t", 0, 0, 9), ("value",), IsolationLevel.READ_COMMITTED, True)
    with pytest.raises(LoginRefused, match="wrong password"):
        list(read_range(task))
    assert len(attempts) == 1
