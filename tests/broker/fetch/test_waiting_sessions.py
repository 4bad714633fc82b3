"""A fetch session used again while one of its requests still waits, which Kafka's connections do not allow."""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest
from event_loop import staged
from log_folders import data_batch
from replicated_brokers import TP, World, world
from virtual_time import run_virtual

from engine.broker.handlers.fetch import fetch
from engine.broker.network.request import Deferred
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchResponse, FetchTopic, ForgottenTopic

VERSION = 12
OFFSETS = {0: 0, 1: 0}


def led(test: Callable[[World], Awaitable[None]], *, tmp_path: Path) -> None:
    async def run() -> None:
        async with world(tmp_path, 1) as w:
            for index in OFFSETS:
                await w.lead(1, topic_partition=TopicPartition(TP.topic, index))
            await test(w)

    run_virtual(run)


def ask(
    w: World, session: tuple[int, int] = (0, 0), offsets: dict[int, int] | None = None, forgets: tuple[int, ...] = ()
) -> Any:
    wanted = [
        FetchPartition(partition=index, fetch_offset=offset, partition_max_bytes=1_000_000)
        for index, offset in (offsets or {}).items()
    ]
    request = FetchRequest(
        max_wait_ms=60_000,
        min_bytes=1,
        max_bytes=1_000_000,
        session_id=session[0],
        session_epoch=session[1],
        topics=[FetchTopic(topic=TP.topic, partitions=wanted)] if wanted else [],
        forgotten_topics_data=[ForgottenTopic(topic=TP.topic, partitions=list(forgets))] if forgets else [],
    )
    return fetch(w.brokers[1].context(ApiKey.FETCH, VERSION), request)


def produce(w: World, index: int) -> None:
    partition = w.partition(1, TopicPartition(TP.topic, index))
    partition.append_records_to_leader(data_batch(b"v"), 1)
    w.brokers[1].replica_manager.wakeups.flush()


def told(answer: Any) -> list[int]:
    """Return the partitions for which an answer has records."""
    response = answer.response if isinstance(answer, Deferred) else answer
    assert isinstance(response, FetchResponse)
    assert response.error_code == ErrorCode.NONE
    return [p.partition_index for topic in response.responses for p in topic.partitions if p.records != b""]


def opened(w: World) -> int:
    """Open a session that has read everything."""
    produce(w, 0)
    answer = ask(w, offsets=OFFSETS)
    assert told(answer) == [0]
    session_id: int = answer.session_id
    assert session_id
    return session_id


@pytest.mark.parametrize("second", [{"forgets": (1,)}, {"offsets": {1: 0}}, {}])
@staged(led)
async def test_who_waits_is_answered_before_the_session_goes_on(w: World, /, second: dict[str, Any]) -> None:
    session_id = opened(w)
    first = ask(w, (session_id, 1), {0: 1})
    assert isinstance(first, Deferred) and not first.is_complete
    assert first.weight > 1, "a connection may keep fewer of them waiting than of others"
    later = ask(w, (session_id, 2), **second)
    assert first.is_complete and told(first) == []
    assert isinstance(later, Deferred) and not later.is_complete
    stranger = ask(w, offsets={1: 0})
    assert isinstance(stranger, Deferred)
    produce(w, 1)
    assert stranger.is_complete and told(stranger) == [1]
    assert later.is_complete == (second != {"forgets": (1,)})


@pytest.mark.parametrize("epoch", [0, -1])
@staged(led)
async def test_who_waits_is_answered_before_the_session_ends(w: World, /, epoch: int) -> None:
    session_id = opened(w)
    first = ask(w, (session_id, 1), {0: 1})
    last = ask(w, (session_id, epoch), {0: 0})
    assert first.is_complete and told(first) == []
    assert told(last) == [0]


@staged(led)
async def test_a_wrong_epoch_disturbs_nobody(w: World, /) -> None:
    session_id = opened(w)
    first = ask(w, (session_id, 1), {0: 1})
    assert ask(w, (session_id, 7)).error_code == ErrorCode.INVALID_FETCH_SESSION_EPOCH
    assert not first.is_complete
    produce(w, 0)
    assert told(first) == [0]


@staged(led)
async def test_what_was_answered_is_not_kept_by_its_session(w: World, /) -> None:
    session_id = opened(w)
    first = ask(w, (session_id, 1), {0: 1})
    (session,) = w.brokers[1].fetch_sessions._sessions.values()
    assert session.answer_waiting is not None
    produce(w, 0)
    assert first.is_complete
    assert session.answer_waiting is None
    second = ask(w, (session_id, 2), {0: 2})
    second.give_up()
    assert session.answer_waiting is None
    assert len(w.brokers[1].replica_manager.delayed_fetch) == 0
