"""A Fetch of very many partitions yields to other requests, and gets the same answer as a small one."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from log_folders import data_batch
from replicated_brokers import TOPIC_ID, TP, World, world
from virtual_time import in_virtual_time, run_virtual

from engine.broker.handlers.fetch import fetch
from engine.broker.handlers.registry import all_handlers
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.fetch import FetchPartition, FetchRequest, FetchTopic, ForgottenTopic

PARTITIONS = 5
BATCH_BYTES = len(data_batch(b"0123456789"))
ANOTHER_ID = b"\1" * 16


def request(
    named: list[tuple[int, int]], *, session: tuple[int, int] = (0, -1), forgets: tuple[int, ...] = (), **values: Any
) -> FetchRequest:
    """Return a request for partitions from given offsets, with a topic that does not exist in front."""
    wanted = [FetchPartition(partition=p, fetch_offset=offset, partition_max_bytes=10_000) for p, offset in named]
    topics = [
        FetchTopic(topic="nowhere", topic_id=ANOTHER_ID, partitions=[FetchPartition(partition=0)]),
        FetchTopic(topic=TP.topic, topic_id=TOPIC_ID, partitions=wanted),
    ]
    return FetchRequest(
        replica_id=-1,
        max_wait_ms=values.get("max_wait_ms", 0),
        min_bytes=1,
        max_bytes=values.get("max_bytes", 1_000_000),
        session_id=session[0],
        session_epoch=session[1],
        topics=topics if values.get("has_unknown", True) else topics[1:],
        forgotten_topics_data=[ForgottenTopic(topic=TP.topic, topic_id=TOPIC_ID, partitions=list(forgets))],
    )


def told(answer: Any) -> object:
    """Return everything an answer says, except the session id and the position of the files."""
    partitions = [
        (
            topic.topic,
            topic.topic_id,
            p.partition_index,
            p.error_code,
            p.high_watermark,
            p.last_stable_offset,
            p.log_start_offset,
            getattr(p.records, "size_bytes", 0),
        )
        for topic in answer.responses
        for p in topic.partitions
    ]
    return answer.error_code, answer.session_id != 0, partitions


async def lead(w: World) -> None:
    for index in range(PARTITIONS):
        partition = TopicPartition(TP.topic, index)
        await w.lead(1, topic_partition=partition)
        for _ in range(index % 3):
            w.partition(1, partition).append_records_to_leader(data_batch(b"0123456789"), 1)


async def answered(w: World, version: int, asked: FetchRequest, *, in_turns: bool) -> Any:
    handler: Any = all_handlers()[ApiKey.FETCH].large_handler if in_turns else fetch
    answer = handler(w.brokers[1].context(ApiKey.FETCH, version), asked)
    if inspect.isawaitable(answer):
        answer = await answer
    return answer.response if hasattr(answer, "response") else answer


def both_ways(
    folder: Path, patches: pytest.MonkeyPatch, story: Callable[[World, Callable[[int, FetchRequest], Any]], Any]
) -> list[object]:
    """Run the same story with requests answered at once and in turns; return both sets of answers."""
    answers: list[object] = []

    async def run(way: str) -> None:
        in_turns = way == "in turns"
        (folder / way).mkdir()
        async with world(folder / way, 1) as w:
            await lead(w)

            async def ask(version: int, asked: FetchRequest) -> Any:
                return await answered(w, version, asked, in_turns=in_turns)

            answers.append(await story(w, ask))

    run_virtual(lambda: run("at once"))
    patches.setattr("engine.broker.handlers.fetch.FETCHED_AT_ONCE_MAX", 0)
    patches.setattr("engine.broker.fetch.large_fetch.PIECE_SIZE", 1)
    patches.setattr("engine.broker.handlers.in_turns.AT_ONCE_MAX", 1)
    patches.setattr("engine.broker.fetch.session_cache._STEP", 1)
    patches.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    run_virtual(lambda: run("in turns"))
    return answers


@pytest.mark.parametrize("version", [2, 3, 4, 6, 12, 13, 17])
@pytest.mark.parametrize("max_bytes", [1, BATCH_BYTES + 1, 3 * BATCH_BYTES, 1_000_000])
def test_what_is_read_in_turns_is_answered_as_what_is_read_at_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int, max_bytes: int
) -> None:
    """Partitions in any order, one twice, one beyond its end, one missing; the limit of the whole answer."""
    named = [(4, 0), (1, 0), (2, 1), (0, 0), (9, 0), (1, 7), (2, 0)]

    async def story(w: World, ask: Any) -> object:
        return told(await ask(version, request(named, max_bytes=max_bytes)))

    at_once, in_turns = both_ways(tmp_path, monkeypatch, story)
    assert in_turns == at_once


@pytest.mark.parametrize("version", [7, 12, 17])
def test_a_session_goes_on_as_usual(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, version: int) -> None:
    async def story(w: World, ask: Any) -> object:
        answers = [await ask(version, request([(p, 0) for p in range(PARTITIONS)], session=(0, 0)))]
        session_id = answers[0].session_id

        async def go_on(epoch: int, named: list[tuple[int, int]], forgets: tuple[int, ...] = ()) -> None:
            asked = request(named, session=(session_id, epoch), forgets=forgets, has_unknown=False)
            answers.append(await ask(version, asked))

        await go_on(1, [(1, 1), (2, 2), (4, 1)])
        await go_on(2, [(3, 0)], forgets=(4,))
        w.partition(1, TopicPartition(TP.topic, 4)).append_records_to_leader(data_batch(b"v"), 1)
        w.partition(1, TopicPartition(TP.topic, 3)).append_records_to_leader(data_batch(b"v"), 1)
        await go_on(3, [])
        await go_on(3, [])
        await go_on(4, [(0, 0)], forgets=(1, 2, 3, 0))
        await go_on(-1, [(1, 0)])
        await go_on(5, [])
        sessions = w.brokers[1].context(ApiKey.FETCH, version).broker.fetch_sessions
        return [told(answer) for answer in answers], len(sessions)

    at_once, in_turns = both_ways(tmp_path, monkeypatch, story)
    assert in_turns == at_once


def test_it_waits_for_records(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(w: World, ask: Any) -> object:
        partition = w.partition(1, TopicPartition(TP.topic, 3))
        end = w.log(1, TopicPartition(TP.topic, 3)).log_end_offset
        asked = request([(0, 0), (3, end)], max_wait_ms=400, has_unknown=False)
        nothing = await answered_later(ask(12, asked))
        asking = asyncio.ensure_future(answered_later(ask(12, asked)))
        await asyncio.sleep(0.1)
        assert not asking.done()
        partition.append_records_to_leader(data_batch(b"0123456789"), 1)
        w.brokers[1].replica_manager.wakeups.flush()
        began_s = asyncio.get_running_loop().time()
        something = await asking
        return told(nothing), told(something), asyncio.get_running_loop().time() - began_s < 0.2

    async def answered_later(asking: Any) -> Any:
        answer = await asking
        while answer is None:
            await asyncio.sleep(0.01)
        return answer

    monkeypatch.setattr("engine.broker.handlers.fetch.FETCHED_AT_ONCE_MAX", 0)
    answers = both_ways(tmp_path, monkeypatch, story)
    assert answers[0] == answers[1]


@in_virtual_time
async def test_what_an_older_segment_has_is_answered_at_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr("engine.broker.handlers.fetch.FETCHED_AT_ONCE_MAX", 0)
    async with world(tmp_path, 1, log_config=LogConfig(segment_bytes=BATCH_BYTES)) as w:
        await w.lead(1)
        for _ in range(2):
            w.partition(1).append_records_to_leader(data_batch(b"0123456789"), 1)
        asked = request([(0, 0)], max_wait_ms=400, has_unknown=False)
        asked.min_bytes = 100_000
        began_s = asyncio.get_running_loop().time()
        answer = await answered(w, 12, asked, in_turns=True)
        assert answer.responses[0].partitions[0].records.size_bytes == BATCH_BYTES
        assert asyncio.get_running_loop().time() == began_s


@pytest.mark.parametrize(("min_bytes", "takes_s"), [(BATCH_BYTES + 10, 0), (BATCH_BYTES + 11, 0.4)])
@in_virtual_time
async def test_whoever_wants_more_than_its_limits_allow_waits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, min_bytes: int, takes_s: float
) -> None:
    """Of a batch that does not fit, the partition's limit counts, also in another piece than the first."""

    monkeypatch.setattr("engine.broker.handlers.fetch.FETCHED_AT_ONCE_MAX", 0)
    monkeypatch.setattr("engine.broker.fetch.large_fetch.PIECE_SIZE", 1)
    async with world(tmp_path, 1) as w:
        await lead(w)
        asked = request([(1, 0), (2, 0)], max_wait_ms=400, has_unknown=False)
        asked.min_bytes = min_bytes
        for partition in asked.topics[0].partitions:
            partition.partition_max_bytes = 10
        began_s = asyncio.get_running_loop().time()
        answer = await answered(w, 12, asked, in_turns=True)
        sizes = [getattr(p.records, "size_bytes", 0) for p in answer.responses[0].partitions]
        assert sizes == [BATCH_BYTES, 0]
        assert asyncio.get_running_loop().time() - began_s == pytest.approx(takes_s)


@pytest.mark.parametrize("session", [(0, -1), (0, 0)])
@in_virtual_time
async def test_a_topic_that_is_not_there_hastens_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, session: tuple[int, int]
) -> None:

    monkeypatch.setattr("engine.broker.handlers.fetch.FETCHED_AT_ONCE_MAX", 0)
    monkeypatch.setattr("engine.broker.fetch.large_fetch.PIECE_SIZE", 1)
    async with world(tmp_path, 1) as w:
        await lead(w)
        for named, wait_s in ([(0, 0)], 0.3), ([], 0.0):
            asked = request(named, session=session, max_wait_ms=300)
            began_s = asyncio.get_running_loop().time()
            answer = await answered(w, 12, asked, in_turns=True)
            assert answer.responses[0].partitions[0].error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            assert asyncio.get_running_loop().time() - began_s == pytest.approx(wait_s, abs=0.05)


@in_virtual_time
async def test_others_have_their_turns(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A request for 200,000 partitions used to block everybody for 200 ms."""
    many = 1000

    monkeypatch.setattr("engine.broker.handlers.fetch.FETCHED_AT_ONCE_MAX", 100)
    monkeypatch.setattr("engine.broker.fetch.large_fetch.PIECE_SIZE", 10)
    monkeypatch.setattr("engine.broker.handlers.in_turns.AT_ONCE_MAX", 10)
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    async with world(tmp_path, 1) as w:
        asked = request([(p, 0) for p in range(many)], session=(0, 0))
        answering = asyncio.ensure_future(answered(w, 12, asked, in_turns=True))
        turns = 0
        while not answering.done():
            turns += 1
            await asyncio.sleep(0)
        answer = await answering
        assert sum(len(topic.partitions) for topic in answer.responses) == many + 1
        # One yield each to name them, read them and answer.
        assert turns >= 3 * many / 10
        # A session's next request names no partition, but reads all of them.
        going_on = request([], session=(answer.session_id, 1), has_unknown=False)
        small = asyncio.ensure_future(answered(w, 12, going_on, in_turns=False))
        turns = 0
        while not small.done():
            turns += 1
            await asyncio.sleep(0)
        assert (await small).error_code == ErrorCode.NONE
        assert turns >= 2 * many / 10


@in_virtual_time
async def test_nobody_else_goes_on_with_a_session_meanwhile(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:

    monkeypatch.setattr("engine.broker.handlers.fetch.FETCHED_AT_ONCE_MAX", 0)
    async with world(tmp_path, 1) as w:
        await lead(w)
        opening = request([(0, 0), (3, 0)], session=(0, 0), has_unknown=False)
        opened = await answered(w, 12, opening, in_turns=True)
        asked = request([(0, 0)], session=(opened.session_id, 1), max_wait_ms=60_000, has_unknown=False)
        first = asyncio.ensure_future(answered(w, 12, asked, in_turns=True))
        await asyncio.sleep(0.1)
        assert not first.done()
        for epoch in (1, 2):
            second = await answered(w, 12, request([], session=(opened.session_id, epoch)), in_turns=False)
            assert second.error_code == ErrorCode.FETCH_SESSION_ID_NOT_FOUND
        assert (await first).error_code == ErrorCode.NONE
        third = await answered(w, 12, request([], session=(opened.session_id, 2)), in_turns=False)
        assert third.error_code == ErrorCode.NONE
