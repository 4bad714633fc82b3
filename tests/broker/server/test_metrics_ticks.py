"""The ticks of a broker's metrics, while some of its parts fail."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast

import pytest
from virtual_time import LoopClock, in_virtual_time

from engine.broker.metrics.requests import RequestTimes
from engine.broker.metrics.topics import BrokerTopics
from engine.broker.server.metrics import BrokerMetrics
from engine.kafka.protocol.api_keys import ApiKey
from engine.runtime.supervisor import Supervisor


@in_virtual_time
async def test_what_is_noted_is_folded_each_second_though_nothing_else_can_be_read(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """Else the lists of a busy broker would take all its memory."""
    times, topics = RequestTimes(), BrokerTopics()
    route = SimpleNamespace(api_key=ApiKey.PRODUCE, api_version=7, times=times, follower_times=times)
    broker = SimpleNamespace(
        clock=LoopClock(),
        supervisor=Supervisor("broker"),
        routes=lambda: [route],
        replica_manager=SimpleNamespace(environment=SimpleNamespace(topics=topics)),
        zk=SimpleNamespace(client=SimpleNamespace(add_session_listener=lambda _: None)),
    )
    metrics = BrokerMetrics(cast("Any", broker))
    metrics.start()
    for second in (1, 2, 3):
        times.new_requests.append(100)
        times.new_answers.append(50)
        topics.of("t").appends += [70, 1]
        topics.fetched.append(0)
        await asyncio.sleep(1.01)
        assert caplog.text.count("A periodic task failed") == second, "nothing else works"
        noted = (times.new_requests, times.new_answers, topics.of("t").appends, topics.fetched)
        assert noted == ([], [], [], []), "they are added up"
        assert (times.requests, times.answers(), topics.of("t").bytes_in) == (
            second,
            (second, 50 * second),
            70 * second,
        )
    await metrics.stop()
    await broker.supervisor.stop()
