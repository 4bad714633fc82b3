"""Fetch sessions (KIP-227): epochs, what an incremental answer carries, eviction, forgetting."""

from __future__ import annotations

import random
from types import SimpleNamespace
from typing import Any

import pytest

from engine.broker.fetch.answer import throttled_response
from engine.broker.fetch.session_cache import (
    EVICTION_MS,
    FetchContext,
    FetchPartition,
    FetchSessionCache,
    PartitionKey,
    next_epoch,
)
from engine.broker.replication.partition_read import PartitionRead
from engine.common.errors import ErrorCode


def partition(index: int, offset: int = 0, topic: str = "t") -> FetchPartition:
    return FetchPartition(PartitionKey(topic, b"", index), fetch_offset=offset, max_bytes=1000)


def open_session(
    cache: FetchSessionCache,
    *partitions: FetchPartition,
    session_id: int = 0,
    epoch: int = 0,
    forgotten: tuple[PartitionKey, ...] = (),
    is_follower: bool = False,
    uses_topic_ids: bool = False,
    now_ms: int = 0,
) -> FetchContext | ErrorCode:
    return cache.open(
        session_id,
        epoch,
        partitions,
        forgotten,
        is_follower=is_follower,
        uses_topic_ids=uses_topic_ids,
        now_ms=now_ms,
    )


def context(opened: FetchContext | ErrorCode) -> FetchContext:
    assert isinstance(opened, FetchContext), opened
    return opened


def outcome(
    size: int = 0, high_watermark: int = 5, log_start: int = 0, error: ErrorCode = ErrorCode.NONE
) -> PartitionRead:
    records: Any = SimpleNamespace(size_bytes=size) if size else None
    return PartitionRead(error, high_watermark, log_start_offset=log_start, records=records)


def answered(opened: FetchContext, result: PartitionRead) -> list[int]:
    return [p.key.partition for p in opened.partitions if opened.must_answer(p, result)]


def test_a_full_request_opens_a_session_and_answers_everything() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    opened = context(open_session(cache, partition(0), partition(1)))
    assert opened.session_id != 0
    assert answered(opened, outcome()) == [0, 1]
    assert (len(cache), cache.partitions_total) == (1, 2)


def test_a_session_may_begin_empty_and_ends_when_it_still_is() -> None:
    """As in Kafka: if the second request names no partition either, the session ends."""
    cache = FetchSessionCache(10, random.Random(1))
    begun, idle = (context(open_session(cache)) for _ in range(2))
    assert 0 not in (begun.session_id, idle.session_id)
    going_on = context(open_session(cache, partition(0), session_id=begun.session_id, epoch=1))
    assert (going_on.session_id, answered(going_on, outcome())) == (begun.session_id, [0])
    assert context(open_session(cache, session_id=idle.session_id, epoch=1)).session_id == 0
    assert len(cache) == 1


def test_an_incremental_answer_carries_only_what_changed() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    first = context(open_session(cache, partition(0), partition(1)))
    answered(first, outcome())
    second = context(open_session(cache, session_id=first.session_id, epoch=1))
    assert [p.key.partition for p in second.partitions] == [0, 1]
    assert answered(second, outcome()) == []
    third = context(open_session(cache, session_id=first.session_id, epoch=2))
    assert answered(third, outcome(high_watermark=6)) == [0, 1]
    fourth = context(open_session(cache, session_id=first.session_id, epoch=3))
    assert answered(fourth, outcome(high_watermark=6, log_start=2)) == [0, 1]
    fifth = context(open_session(cache, session_id=first.session_id, epoch=4))
    assert answered(fifth, outcome(high_watermark=6, log_start=2)) == []


def test_partitions_with_data_go_to_the_end() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    first = context(open_session(cache, partition(0), partition(1), partition(2)))
    answered(first, outcome())
    second = context(open_session(cache, session_id=first.session_id, epoch=1))
    for wanted in second.partitions:
        second.must_answer(wanted, outcome(size=10 if wanted.key.partition == 0 else 0))
    third = context(open_session(cache, session_id=first.session_id, epoch=2))
    assert [p.key.partition for p in third.partitions] == [1, 2, 0]


def test_the_end_of_an_error_is_told_even_if_nothing_else_changed() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    first = context(open_session(cache, partition(0)))
    assert answered(first, outcome(error=ErrorCode.NOT_LEADER_OR_FOLLOWER)) == [0]
    second = context(open_session(cache, session_id=first.session_id, epoch=1))
    assert answered(second, outcome()) == [0]
    third = context(open_session(cache, session_id=first.session_id, epoch=2))
    assert answered(third, outcome()) == []


def test_partitions_are_added_changed_and_forgotten() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    first = context(open_session(cache, partition(0), partition(1)))
    forgotten = (PartitionKey("t", b"", 0),)
    second = context(
        open_session(cache, partition(1, 7), partition(2), session_id=first.session_id, epoch=1, forgotten=forgotten)
    )
    assert [(p.key.partition, p.fetch_offset) for p in second.partitions] == [(1, 7), (2, 0)]
    rest = (PartitionKey("t", b"", 1), PartitionKey("t", b"", 2))
    last = context(open_session(cache, session_id=first.session_id, epoch=2, forgotten=rest))
    assert (last.session_id, list(last.partitions), len(cache)) == (0, [], 0)


@pytest.mark.parametrize("in_steps", [False, True])
def test_who_names_and_forgets_its_last_partition_is_answered_for_it(in_steps: bool) -> None:
    """As Kafka 3.9.1 (FetchManager.newContext): the session ends, and the request counts as one without a session."""
    cache = FetchSessionCache(10, random.Random(1))
    first = context(open_session(cache, partition(0)))
    answered(first, outcome())
    forgotten = (partition(0).key,)
    if in_steps:
        steps = cache.open_in_steps(
            first.session_id, 1, [partition(0, 7)], forgotten, is_follower=False, uses_topic_ids=False, now_ms=0
        )
        with pytest.raises(StopIteration) as done:
            next(steps)
        last = context(done.value.value)
    else:
        last = context(open_session(cache, partition(0, 7), session_id=first.session_id, epoch=1, forgotten=forgotten))
    assert (last.session_id, [p.fetch_offset for p in last.partitions], len(cache)) == (0, [7], 0)
    assert answered(last, outcome()) == [0]


@pytest.mark.parametrize(("is_follower", "expected"), [(True, [0]), (False, [])])
def test_only_a_follower_with_another_leader_epoch_is_told_again(is_follower: bool, expected: list[int]) -> None:
    """A follower that started over may have discarded the high watermark. A consumer gets Kafka 3.9.1's answer."""
    cache = FetchSessionCache(10, random.Random(1))
    first = context(open_session(cache, partition(0), partition(1), is_follower=is_follower))
    answered(first, outcome())
    changed = partition(0)
    changed.current_leader_epoch = 3
    second = context(open_session(cache, changed, session_id=first.session_id, epoch=1))
    assert answered(second, outcome()) == expected


def test_wrong_ids_epochs_and_kinds_are_refused() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    first = context(open_session(cache, partition(0)))
    assert open_session(cache, session_id=12345, epoch=1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert open_session(cache, session_id=first.session_id, epoch=2) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    mixed = open_session(cache, session_id=first.session_id, epoch=1, uses_topic_ids=True)
    assert mixed is ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR


def test_the_final_epoch_closes_and_a_new_full_request_replaces() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    first = context(open_session(cache, partition(0)))
    second = context(open_session(cache, partition(0), session_id=first.session_id, epoch=0))
    assert second.session_id not in (0, first.session_id)
    assert len(cache) == 1
    closed = context(open_session(cache, partition(0), session_id=second.session_id, epoch=-1))
    assert (closed.session_id, len(cache)) == (0, 0)


@pytest.mark.parametrize(("epoch", "following"), [(0, 1), (1, 2), (2**31 - 1, 1)])
def test_epochs_wrap_past_zero(epoch: int, following: int) -> None:
    assert next_epoch(epoch) == following


def test_a_full_cache_refuses_evicts_the_stale_and_prefers_followers() -> None:
    cache = FetchSessionCache(1, random.Random(1))
    consumer = context(open_session(cache, partition(0)))
    assert context(open_session(cache, partition(0), now_ms=10)).session_id == 0
    follower = context(open_session(cache, partition(0), is_follower=True, now_ms=20))
    assert follower.session_id != 0
    assert open_session(cache, session_id=consumer.session_id, epoch=1) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND
    assert context(open_session(cache, partition(0), now_ms=EVICTION_MS)).session_id == 0
    late = context(open_session(cache, partition(0), now_ms=EVICTION_MS + 21))
    assert late.session_id != 0
    assert cache.evictions_total == 2


def test_an_answer_that_comes_after_the_sessions_next_request_is_known_as_such() -> None:
    cache = FetchSessionCache(10, random.Random(1))
    full = context(open_session(cache, partition(0), partition(1)))
    first = context(open_session(cache, session_id=full.session_id, epoch=1))
    assert (full.is_superseded, first.is_superseded) == (True, False)
    context(open_session(cache, session_id=full.session_id, epoch=2, forgotten=(partition(1).key,)))
    assert first.is_superseded
    response = throttled_response(first, 5)
    assert (response.error_code, response.session_id) == (ErrorCode.INVALID_FETCH_SESSION_EPOCH, full.session_id)
    assert throttled_response(full, 5).session_id == 0
    assert not context(open_session(cache, partition(0), epoch=-1)).is_superseded
