"""A leader checks only those partitions of a fetch session that have news. Followers must not notice."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest
from replicated_brokers import TP, World, world
from soak import rounds
from virtual_time import in_virtual_time

from engine.broker.fetch.session_cache import FetchPartition, FetchSession
from engine.broker.handlers import fetch as fetch_handler
from engine.broker.replication.settings import ReplicationSettings
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition

HISTORIES = rounds("KLAMM_SETTLED_HISTORIES", 6)
ANSWERS_THROWN_AWAY = (6, 15)
"""Seeds in which a follower becomes a follower again while an answer with a high watermark is on its way."""
PARTITIONS = [TopicPartition(TP.topic, index) for index in range(5)]


class FullWalk:
    """Checks, before each answer within a session, the partitions that the leader skipped."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.left_alone = 0
        self.wrong: list[str] = []
        """What a check of all partitions would have found. An exception would be swallowed by the fetch."""
        self._build_response = fetch_handler.build_response
        monkeypatch.setattr(fetch_handler, "build_response", self._looking)

    def _looking(self, broker: Any, opened: Any, reads: Any, converted: Any = None) -> Any:
        session: FetchSession | None = opened.session
        if opened.is_incremental and session is not None and not opened.is_superseded:
            read = {wanted.key for wanted in reads.partitions}
            left_alone = [wanted for key, wanted in session.partitions.items() if key not in read]
            for wanted in left_alone:
                self._look(broker, wanted, reads.parameters.replica_id)
            self.left_alone += len(left_alone)
            turns = [wanted.turn for wanted in reads.partitions]
            if turns != sorted(turns):
                self.wrong.append(f"not in order: {turns}")
        return self._build_response(broker, opened, reads, converted)

    def _look(self, broker: Any, wanted: FetchPartition, replica_id: int) -> None:
        partition = broker.replica_manager.partition(wanted.topic, wanted.key.partition)
        read = partition.read_records(
            wanted.fetch_offset,
            wanted.max_bytes,
            replica_id=replica_id,
            current_leader_epoch=wanted.current_leader_epoch,
            last_fetched_epoch=wanted.last_fetched_epoch,
            records_follower_state=False,
        )
        sent = (wanted.sent_high_watermark, wanted.sent_log_start_offset)
        if (
            read.error is not ErrorCode.NONE
            or read.records is not None
            or read.diverging_epoch is not None
            or (read.high_watermark, read.log_start_offset) != sent
            or replica_id not in partition.isr
        ):
            self.wrong.append(f"{wanted.key} told={sent} found={read} isr={partition.isr}")


async def anything(w: World, rng: random.Random) -> None:
    """Do one thing that leaders must report, or that ends what they know of a follower."""
    name = rng.choice(PARTITIONS)
    leader = w.states[name].leader
    match rng.choice(
        ["produce"] * 6 + ["delete records", "retention", "elect", "tell", "cut", "heal", "heal", "restart"]
    ):
        case "produce":
            for _ in range(rng.randrange(1, 4)):
                w.produce(leader, b"v" * rng.randrange(1, 3000), topic_partition=name)
        case "delete records":
            log = w.log(leader, name)
            log.increment_log_start_offset(rng.randint(log.log_start_offset, log.high_watermark))
        case "retention":
            w.log(leader, name).delete_old_segments(w.clock.now_ms())
        case "elect":
            await w.lead(rng.choice(w.states[name].isr), topic_partition=name)
        case "tell":
            await w.tell(leader, name)
        case "cut":
            w.cut.add(frozenset(rng.sample([1, 2, 3], 2)))
        case "heal":
            w.cut.clear()
        case "restart":
            broker_id = rng.choice([1, 2, 3])
            if all(set(w.states[partition].isr) - {broker_id} for partition in PARTITIONS):
                await restart(w, broker_id)


async def restart(w: World, broker_id: int) -> None:
    await w.stop_broker(broker_id)
    for name in PARTITIONS:
        others = [b for b in w.states[name].isr if b != broker_id]
        if w.states[name].leader == broker_id:
            await w.lead(others[0], isr=others, topic_partition=name)
    w.start_broker(broker_id)
    for name in PARTITIONS:
        await w.lead(w.states[name].leader, topic_partition=name)


@pytest.mark.parametrize("seed", sorted({*range(HISTORIES), *ANSWERS_THROWN_AWAY}))
@in_virtual_time
async def test_what_is_left_alone_has_nothing_to_tell(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, seed: int
) -> None:
    rng = random.Random(seed)
    # A small answer, so that partitions must take turns.
    settings = ReplicationSettings(0, replica_lag_time_max_ms=3000, replica_fetch_response_max_bytes=4000)
    full_walk = FullWalk(monkeypatch)
    async with world(tmp_path, 1, 2, 3, settings=settings) as w:
        for name in PARTITIONS:
            await w.lead(rng.choice([1, 2, 3]), topic_partition=name)
        for _ in range(60):
            await anything(w, rng)
            await w.let_pass(rng.choice([0, 1, 1, 5, 30, 600, 4000]))
        w.cut.clear()
        for name in PARTITIONS:
            await w.lead(w.states[name].leader, topic_partition=name)
        for name in PARTITIONS:
            await w.until(lambda name=name: len(w.states[name].isr) == 3, "the ISR is full")  # type: ignore[misc]
            await w.until_equal(1, 2, 3, topic_partition=name)
        assert full_walk.wrong == []
        assert full_walk.left_alone > 100


@in_virtual_time
async def test_a_waiting_fetch_answers_for_what_was_settled_at_once(tmp_path: Path) -> None:
    """This also holds when a partition has changed before in a way that needs no answer."""
    settings = ReplicationSettings(0, replica_lag_time_max_ms=30_000, replica_fetch_wait_max_ms=10_000)
    async with world(tmp_path, 1, 2, settings=settings) as w:
        for name in PARTITIONS:
            await w.lead(1, topic_partition=name)
        await w.let_pass(25_000)
        assert settled(w) == len(PARTITIONS)
        await w.tell(1, PARTITIONS[2])
        w.partition(1, PARTITIONS[2]).changed()
        await w.let_pass(1)
        assert settled(w) == len(PARTITIONS) - 1, "it is looked at again"
        for name in (PARTITIONS[2], PARTITIONS[1]):
            w.produce(1, b"x", topic_partition=name)
            await w.let_pass(20)
            assert w.log(2, name).log_end_offset == 1


@in_virtual_time
async def test_a_fetch_counts_for_what_it_leaves_out(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kafka reads each partition of the session for each request, and counts that: TotalFetchRequestsPerSec."""
    full_walk = FullWalk(monkeypatch)
    settings = ReplicationSettings(0, replica_lag_time_max_ms=30_000)
    async with world(tmp_path, 1, 2, 3, settings=settings) as w:
        for name in PARTITIONS:
            await w.lead(1, topic_partition=name)
        counts, sessions = w.partition(1).counts, w.brokers[1].fetch_sessions
        open_session = Mock(wraps=sessions.open)

        def wake_and_open(*request: Any, **of_whom: Any) -> Any:
            """Wake a partition without news, just before a request comes."""
            w.partition(1, PARTITIONS[4]).changed()
            return open_session(*request, **of_whom)

        monkeypatch.setattr(sessions, "open", wake_and_open)

        def counted() -> tuple[int, int]:
            for name in PARTITIONS:
                w.partition(1, name).count_skipped()
            counts.fold()
            return counts.fetches, open_session.call_count

        await w.until(lambda: settled(w) == 2 * len(PARTITIONS), "there is nothing more to tell")
        before = counted()
        for step in range(30):
            await w.let_pass(1200)
            if step % 4 == 1:
                for name in PARTITIONS[:2]:
                    w.produce(1, b"x", topic_partition=name)
            await w.let_pass(300)
            fetches, asked = (now - then for now, then in zip(counted(), before, strict=True))
            assert fetches == asked * len(PARTITIONS)
        assert asked > 30 and full_walk.left_alone > 30 * len(PARTITIONS)
        for follower in (2, 3):
            await w.stop_broker(follower)
        await w.let_pass(60_000)
        gone = counted()
        await w.let_pass(60_000)
        assert counted() == gone
        assert full_walk.wrong == []


@in_virtual_time
async def test_a_settled_follower_stays_in_the_isr_as_long_as_it_fetches(tmp_path: Path) -> None:
    settings = ReplicationSettings(0, replica_lag_time_max_ms=3000)
    async with world(tmp_path, 1, 2, settings=settings) as w:
        await w.lead(1)
        w.produce(1, b"x")
        await w.until_equal(2)
        await w.until(lambda: settled(w) == 1, "there is nothing more to tell")
        for _ in range(10):
            await w.let_pass(1000)
            (follower,) = w.partition(1).followers.values()
            assert w.clock.monotonic_ms() - follower.last_caught_up_ms <= 600
        w.cut.add(frozenset((1, 2)))
        w.produce(1, b"y")
        await w.let_pass(2000)
        assert w.partition(1).isr == (1, 2), "it was caught up until now"
        await w.let_pass(3000)
        assert w.partition(1).isr == (1,)


@in_virtual_time
async def test_a_settled_follower_hears_of_a_high_watermark_that_another_one_held_back(tmp_path: Path) -> None:
    settings = ReplicationSettings(0, replica_lag_time_max_ms=3000)
    async with world(tmp_path, 1, 2, 3, settings=settings) as w:
        w.cut.add(frozenset((1, 3)))
        await w.lead(1, isr=(1, 2))
        w.partition(1).followers[3].last_caught_up_ms = w.clock.monotonic_ms()
        w.produce(1, b"x")
        await w.until(lambda: settled(w) == 1 and w.log(2).log_end_offset == 1, "2 was told all there is")
        assert w.log(2).high_watermark == 0, "3 could join any moment"
        await w.until(lambda: w.log(2).high_watermark == 1, "3 does not count any more", 6)


@pytest.mark.parametrize("ending", ["closed", "replaced", "evicted", "forgotten"])
@in_virtual_time
async def test_a_session_that_is_over_holds_on_to_no_partition(tmp_path: Path, ending: str) -> None:
    async with world(tmp_path, 1, 2) as w:
        await w.lead(1)
        await w.until(lambda: settled(w) == 1, "there is nothing more to tell")
        await w.brokers[2].replica_manager.fetchers.stop()
        cache = w.brokers[1].fetch_sessions
        (session,) = cache._sessions.values()
        options = {"is_follower": True, "uses_topic_ids": True, "now_ms": w.clock.monotonic_ms()}
        if ending == "closed":
            cache.open(session.id, -1, [], [], **options)  # type: ignore[arg-type]
        elif ending == "replaced":
            cache.open(session.id, 0, [], [], **options)  # type: ignore[arg-type]
        elif ending == "evicted":
            cache.slots = 1
            cache.open(0, 0, [], [], **{**options, "now_ms": w.clock.monotonic_ms() + 10**6})  # type: ignore[arg-type]
        else:
            cache.open(session.id, session.epoch, [], list(session.partitions), **options)  # type: ignore[arg-type]
        assert settled(w) == 0 and session.id not in cache._sessions
        assert w.partition(1).followers[2]._session_fetch is None


def settled(w: World) -> int:
    """Return how many partitions of broker 1 some session skips."""
    return sum(len(partition._settled) for partition in w.brokers[1].replica_manager.partitions.values())
