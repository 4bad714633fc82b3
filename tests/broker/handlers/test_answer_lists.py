"""Answers by topic: those of large requests are encoded as they grow, and have the bytes of small ones."""

from __future__ import annotations

import random
from collections import Counter
from types import SimpleNamespace
from typing import Any

import pytest

from engine.broker.handlers.answer_lists import ByTopic, each_once
from engine.broker.metrics.requests import error_counter
from engine.broker.network.connection import LARGE_FRAME_BYTES
from engine.common.turns import at_once
from engine.kafka.protocol.apis.elect_leaders import ElectLeadersResponse, PartitionResult
from engine.kafka.protocol.codec import Outgoing, encoder
from engine.kafka.protocol.large_arrays import EncodedList

SMALL: Any = SimpleNamespace(size_bytes=0, api_version=2)
LARGE: Any = SimpleNamespace(size_bytes=LARGE_FRAME_BYTES, api_version=2)


def encoded(context: Any, added: list[tuple[str, int, bool]]) -> bytes:
    """Return an answer's bytes; parts that may change have done so by then."""
    path = "replica_election_results.partition_result"
    answer = at_once(ByTopic.of(context, ElectLeadersResponse, path, "topic", lambda: (name for name, _, _ in added)))
    changing = []
    for name, number, may_change in added:
        part = answer.add(name, PartitionResult(partition_id=number), may_change=may_change)
        if may_change:
            changing.append(part)
    topics = answer.topics()
    for part in changing:
        part.error_code = 7
    out = Outgoing()
    encoder(ElectLeadersResponse, 2)(out, ElectLeadersResponse(replica_election_results=topics))
    return bytes(out)


@pytest.mark.parametrize("topics", [1, 3, 2000])
@pytest.mark.parametrize("changing", [0, 0.01, 0.5])
def test_answers_of_large_requests_have_the_bytes_of_small_ones(topics: int, changing: float) -> None:
    chosen = random.Random(topics)
    for in_order in (True, False):
        names = [f"topic-{chosen.randrange(topics)}" for _ in range(3000)]
        if in_order:
            names.sort()
        added = [(name, number, chosen.random() < changing) for number, name in enumerate(names)]
        assert encoded(LARGE, added) == encoded(SMALL, added)


def test_topics_that_come_once_are_encoded_at_once() -> None:
    names = [f"topic-{number}" for number in range(2000)]
    path = "replica_election_results.partition_result"
    answer = at_once(ByTopic.of(LARGE, ElectLeadersResponse, path, "topic", lambda: names))
    for name in names:
        answer.add(name, PartitionResult(partition_id=1))
    topics: Any = answer.topics()
    assert len(list(topics.objects)) < 500


@pytest.mark.parametrize("partitions_each", [1, 2000])
def test_the_errors_of_a_large_answer_are_counted_without_decoding_it(
    partitions_each: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who counts may hold the event loop."""
    path = "replica_election_results.partition_result"
    counts = []
    monkeypatch.delattr(EncodedList, "__iter__")
    for context in (SMALL, LARGE):
        names = [f"topic-{number}" for number in range(3000 // partitions_each)]
        answer = at_once(ByTopic.of(context, ElectLeadersResponse, path, "topic", lambda names=names: names))  # type: ignore[misc]
        for number, name in enumerate(names):
            for partition in range(partitions_each):
                part = PartitionResult(partition_id=partition, error_code=(number + partition) % 3)
                answer.add(name, part, may_change=partition == 1)
        response = ElectLeadersResponse(error_code=7, replica_election_results=answer.topics())
        count, errors = error_counter(ElectLeadersResponse, 2, is_large=context is LARGE), Counter[int]()
        assert count is not None
        count(errors, response)
        counts.append(errors)
    assert counts[0] == counts[1] and counts[0].total() > 1000


def test_a_key_that_comes_again_has_its_first_place_and_its_last_value() -> None:
    chosen = random.Random(1)
    items: list[Any] = [(chosen.randrange(800), number) for number in range(1000)]
    items[500:500] = [(None, 0)] * 3
    some = at_once(each_once(SMALL, lambda: items))
    entry = [item for item in at_once(each_once(LARGE, lambda: items)) if item[0] is not None]
    assert entry == list(some) == list(dict(item for item in items if item[0] is not None).items())
