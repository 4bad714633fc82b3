"""Random requests of four clients to one group, and the answers that Apache Kafka 3.9.1 gave.

Each step of a walk is one request with the answers it caused, for that client and for others that waited. Members are
named M0, M1 … in the order in which their joins were answered, and ? before that.
"""

from __future__ import annotations

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from coordinator_world import CoordinatorWorld
from group_walks import Step, WalkWords, order_of
from network_serving import session
from virtual_time import in_virtual_time

from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.delete_groups import delete_groups
from engine.broker.handlers.describe_groups import describe_groups
from engine.broker.handlers.heartbeat import heartbeat
from engine.broker.handlers.join_group import join_group
from engine.broker.handlers.leave_group import leave_group
from engine.broker.handlers.offset_commit import offset_commit
from engine.broker.handlers.offset_fetch import offset_fetch
from engine.broker.handlers.sync_group import sync_group
from engine.broker.network.request import Deferred
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.protocol.codec import Outgoing, decoder, encoder

RECORDED = Path(__file__).parents[4] / "fixtures" / "groups" / "kafka-3.9.1-walks.jsonl"
WALKS = [json.loads(line) for line in RECORDED.read_text().splitlines()]
Handler = Callable[[RequestContext, Any], Any]

HANDLERS: dict[str, Handler] = {
    "join": join_group,
    "sync": sync_group,
    "beat": heartbeat,
    "leave": leave_group,
    "commit": offset_commit,
    "fetch": offset_fetch,
    "describe": describe_groups,
    "delete": delete_groups,
}
_SETTLING_S = 0.05
"""Virtual time: enough for everything that does not wait for another client, and too short for a session to expire."""


class Walk:
    """The client side of one group."""

    def __init__(self, world: CoordinatorWorld) -> None:
        config = BrokerConfig.from_properties({"zookeeper.connect": "z:1"})
        cache = SimpleNamespace(partitions=lambda topic: range(2) if topic == "read" else ())
        self._broker = SimpleNamespace(
            group_coordinator=world.coordinator, metadata_cache=cache, clock=world.clock, config=config
        )
        self._waiting: dict[int, tuple[int, Deferred]] = {}
        self._words = WalkWords()

    async def ask(self, step: Step) -> list[list[Any]]:
        """Send one request; return all answers that it brings, by client."""
        handler, request = HANDLERS[step["api"]], self._words.request(step)
        version = step["version"]
        context = SimpleNamespace(
            api_version=version, client_id="wire", session=session("h"), broker=self._broker, size_bytes=0
        )
        answer = handler(cast("RequestContext", context), request)
        if not isinstance(answer, Deferred):
            answer, given = Deferred(), answer
            answer.complete(given)
        self._waiting[step["actor"]] = (version, answer)
        await asyncio.sleep(_SETTLING_S)
        came = [(actor, *self._waiting.pop(actor)) for actor, (_, d) in sorted(self._waiting.items()) if d.is_complete]
        answers = [(actor, _over_the_wire(deferred.response, version)) for actor, version, deferred in came]
        for _, given in answers:
            self._words.note(given)
        return [[actor, self._words.plain(given)] for actor, given in answers]


def _over_the_wire(answer: Any, version: int) -> Any:
    """Return what a client receives: not every field exists in every version."""
    out = Outgoing()
    encoder(type(answer), version)(out, answer)
    return decoder(type(answer), version)(bytes(out), 0)[0]


@pytest.mark.parametrize("steps", WALKS, ids=lambda steps: f"{len(steps)} steps")
@in_virtual_time
async def test_as_kafka_answered(steps: list[Step]) -> None:
    world = CoordinatorWorld()
    try:
        await world.lead()
        walk = Walk(world)
        for number, step in enumerate(steps):
            expected = [[actor, _sorted(answer)] for actor, answer in step["answers"]]
            assert await walk.ask(step) == expected, f"step {number}: {step}"
    finally:
        await world.stop()


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(item) for name, item in value.items()}
    return sorted(map(_sorted, value), key=order_of) if isinstance(value, list) else value
