"""Random requests of several producers about their transactions, and the answers that Apache Kafka 3.9.1 gave."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from guest_cluster import GuestCluster
from transaction_walks import (
    OFFSETS,
    OFFSETS_PARTITIONS,
    PARTITIONS,
    TOPIC,
    Step,
    WalkWords,
    order_of,
    settle,
    wait_until_coordinated,
)
from transaction_world import TransactionWorld
from virtual_time import in_virtual_time
from wire_client import WireClient, create_topic

from engine.broker.handlers.add_offsets_to_txn import add_offsets_to_txn
from engine.broker.handlers.add_partitions_to_txn import add_partitions_to_txn
from engine.broker.handlers.context import RequestContext
from engine.broker.handlers.describe_transactions import describe_transactions
from engine.broker.handlers.end_txn import end_txn
from engine.broker.handlers.init_producer_id import init_producer_id
from engine.broker.handlers.list_transactions import list_transactions
from engine.broker.network.request import Deferred
from engine.common.model import TopicPartition
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.formats.consumer_offsets import partition_for
from engine.kafka.protocol.codec import Outgoing, decoder, encoder
from engine.local.zookeeper import EmbeddedZooKeeper

RECORDED = Path(os.environ.get("KLAMM_RECORDED_WALKS") or Path(__file__).parents[4] / "fixtures" / "transactions")
WALKS, WALKS_WITH_RECORDS = (
    [json.loads(line) for line in (RECORDED / f"kafka-3.9.1-{name}.jsonl").read_text().splitlines()]
    for name in ("walks", "walks-with-records")
)
HANDLERS: dict[str, Any] = {
    "init": init_producer_id,
    "go on": init_producer_id,
    "add": add_partitions_to_txn,
    "ask": add_partitions_to_txn,
    "offsets": add_offsets_to_txn,
    "end": end_txn,
    "describe": describe_transactions,
    "list": list_transactions,
}
_SETTLING_S = 0.05
"""Virtual time: enough for all markers."""


async def ask(world: TransactionWorld, words: WalkWords, step: Step) -> Any:
    """Send one request, and return the answer in the walks' words."""
    broker = SimpleNamespace(
        transaction_coordinator=world.coordinator,
        metadata_cache=world.metadata,
        config=BrokerConfig.from_properties({"zookeeper.connect": "z:1"}),
        group_coordinator=SimpleNamespace(
            partition_for=lambda group: TopicPartition(OFFSETS, partition_for(group, OFFSETS_PARTITIONS))
        ),
    )
    version = step["version"]
    context = cast("RequestContext", SimpleNamespace(api_version=version, broker=broker, size_bytes=0))
    answer = HANDLERS[step["api"]](context, words.request(step))
    if asyncio.iscoroutine(answer):
        answer = await answer
    await asyncio.sleep(_SETTLING_S)
    if isinstance(answer, Deferred):
        assert answer.is_complete
        answer = answer.response
    out = Outgoing()
    encoder(type(answer), version)(out, answer)
    received = decoder(type(answer), version)(bytes(out), 0)[0]
    words.note(step, received)
    return words.plain(received)


@pytest.mark.parametrize("steps", WALKS, ids=lambda steps: f"{len(steps)} steps")
@in_virtual_time
async def test_as_kafka_answered(steps: list[Step]) -> None:
    world, words = TransactionWorld(), WalkWords()
    world.add(TOPIC, partitions=PARTITIONS)
    world.add(OFFSETS, partitions=OFFSETS_PARTITIONS)
    await world.lead()
    for number, step in enumerate(steps):
        assert await ask(world, words, step) == _sorted(step["answer"]), f"step {number}: {step}"
    await world.stop()


@pytest.fixture(scope="module")
def address(zookeeper: EmbeddedZooKeeper) -> Iterator[str]:
    """A broker whose coordinators are ready."""
    settings = {"offsets.topic.num.partitions": str(OFFSETS_PARTITIONS), "transaction.state.log.num.partitions": "5"}
    with GuestCluster(zookeeper, 1, config=settings) as cluster:
        wait_until_coordinated(cluster.bootstrap_servers)
        yield cluster.bootstrap_servers


@pytest.mark.parametrize("walk", WALKS_WITH_RECORDS, ids=lambda walk: f"walk {walk['number']}")
def test_a_broker_answers_as_kafka_answered(address: str, walk: dict[str, Any]) -> None:
    words = WalkWords.with_records(walk["number"])
    create_topic(address, words.topic, partitions=PARTITIONS)
    with WireClient(address) as client:
        for number, step in enumerate(walk["steps"]):
            if number:
                settle(client, words.ids)
            answer = client.ask(words.request(step), step["version"])
            words.note(step, answer)
            assert words.plain(answer) == _sorted(step["answer"]), f"step {number}: {step}"


def _sorted(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: _sorted(item) for name, item in value.items()}
    return sorted(map(_sorted, value), key=order_of) if isinstance(value, list) else value
