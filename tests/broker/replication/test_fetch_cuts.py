"""Where a follower cuts its log before it fetches, or when the leader lacks its offset: with a real log."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Collection, Mapping
from pathlib import Path
from typing import Any, cast

import pytest
from log_folders import data_batch
from replicated_brokers import TOPIC_ID, TP, world
from virtual_time import run_virtual

from engine.broker.log.log import Log
from engine.broker.replication.fetch_cuts import LogCutter
from engine.broker.replication.fetch_table import FetchState, FetchTable, InitialFetchState
from engine.broker.replication.leader_endpoint import EpochAnswer, LeaderEndpoint
from engine.broker.replication.partition import Partition
from engine.broker.replication.replica_manager import ReplicaManager
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import Node, TopicPartition
from engine.common.turns import at_once
from engine.kafka.client.errors import ConnectionLost

LEADER_EPOCH = 5
NONE = ErrorCode.NONE


class ScriptedLeader:
    """Answers as a test says; ``meanwhile`` runs before an answer arrives."""

    def __init__(self, *, start: int = 0, end: int = 0, is_old: bool = False) -> None:
        self.start = start
        self.end = end
        self.truncates_on_fetch = not is_old
        self.knows_epochs = True
        self.epochs: list[EpochAnswer | None] = []
        self.error: Exception | None = None
        self.asked: list[Any] = []
        self.meanwhile: Callable[[], None] = lambda: None

    async def latest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        await self._answer("latest", leader_epoch)
        return self.end

    async def earliest_offset(self, topic_partition: TopicPartition, leader_epoch: int) -> int:
        await self._answer("earliest", leader_epoch)
        return self.start

    async def epoch_end_offsets(
        self, wanted: Mapping[TopicPartition, tuple[int, int]]
    ) -> dict[TopicPartition, EpochAnswer]:
        await self._answer(*wanted[TP])
        answer = self.epochs.pop(0)
        return {} if answer is None else {TP: answer}

    async def _answer(self, *asked: Any) -> None:
        self.asked.append(asked)
        await asyncio.sleep(0)
        self.meanwhile()
        if self.error is not None:
            raise self.error


class Following:
    """A follower's log of four records, two of leader epoch 0 and two of 2, and its fetcher, which sends nothing."""

    def __init__(self, partition: Partition, host: Any, leader: ScriptedLeader, fetch_offset: int) -> None:
        self.partition = partition
        self.log: Any = partition.log
        self.failed: set[TopicPartition] = set()
        self.changed = asyncio.Event()
        self.table = FetchTable(host, self.failed, "[test]", truncates_on_fetch=leader.truncates_on_fetch)
        self.cutter = LogCutter(cast("LeaderEndpoint", leader), host, self.table, self.changed.set)
        self.table.add(TP, InitialFetchState(TOPIC_ID, Node(1, "broker-1", 9092), LEADER_EPOCH, fetch_offset))
        self.state: FetchState = self.table.states[TP]

    @property
    def log_range(self) -> tuple[int, int]:
        return self.log.log_start_offset, self.log.log_end_offset

    @property
    def asks_next(self) -> int | None:
        """Return the offset in the next Fetch request; None if the partition is not in it."""
        plan = self.table.session.plan()
        return plan.partitions[TP].fetch_offset if TP in plan.partitions else None

    def remove(self) -> None:
        """Do what happens when this broker becomes leader: from now on the fetcher must not touch the log."""
        self.table.remove(TP)


def play(
    test: Callable[[Following], Awaitable[None]], leader: ScriptedLeader, *, tmp_path: Path, fetch_offset: int = 4
) -> None:
    async def run() -> None:
        async with world(tmp_path, 1, 2) as w:
            await w.lead(1)
            w.produce(1, b"0", b"1")
            await w.lead(1)
            await w.lead(1)
            w.produce(1, b"2")
            w.produce(1, b"3")
            await w.until_equal(2)
            w.cut.add(frozenset((1, 2)))
            host = w.brokers[2].replica_manager
            host.fetchers.remove([TP])
            await test(Following(w.partition(2), host, leader, fetch_offset))

    run_virtual(run)


@pytest.mark.parametrize(
    ("start", "end", "log_range", "lag", "last_epoch"),
    [
        pytest.param(0, 3, (0, 3), 0, 2, id="the leader ends earlier: its end"),
        pytest.param(0, 1, (0, 1), 0, 0, id="earlier, within a batch"),
        pytest.param(0, 4, (0, 4), 0, 2, id="the leader ends there"),
        pytest.param(1, 20, (0, 4), 16, 2, id="the leader has it by now"),
        pytest.param(4, 20, (0, 4), 16, 2, id="the leader begins there: what is here stays"),
        pytest.param(5, 20, (5, 5), 15, -1, id="the leader begins later: nothing here is of use"),
    ],
)
def test_where_to_go_on_when_the_leader_does_not_have_the_offset(
    tmp_path: Path, start: int, end: int, log_range: tuple[int, int], lag: int, last_epoch: int
) -> None:
    async def test(following: Following) -> None:
        await following.cutter.begin_in_range(following.state)
        assert following.log_range == log_range
        assert following.asks_next == following.state.fetch_offset == following.log.log_end_offset
        assert (following.state.lag, following.state.last_fetched_epoch) == (lag, last_epoch)
        asked = ["latest"] if end < 4 else ["latest", "earliest"]
        assert leader.asked == [(request, LEADER_EPOCH) for request in asked]

    leader = ScriptedLeader(start=start, end=end)
    play(test, leader, tmp_path=tmp_path)


@pytest.mark.parametrize(
    ("error", "is_set_aside"),
    [
        (KafkaError(ErrorCode.FENCED_LEADER_EPOCH), True),
        (KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), True),
        (KafkaError(ErrorCode.UNKNOWN_LEADER_EPOCH), False),
        (ConnectionLost("cut", address="x"), False),
    ],
)
def test_where_the_leader_tells_no_offset_nothing_is_cut(tmp_path: Path, error: Exception, is_set_aside: bool) -> None:
    async def test(following: Following) -> None:
        await following.cutter.begin_in_range(following.state)
        assert (following.log_range, following.asks_next) == ((0, 4), None)
        assert following.failed == ({TP} if is_set_aside else set())
        assert (TP in following.table.states) != is_set_aside

    leader = ScriptedLeader()
    leader.error = error
    play(test, leader, tmp_path=tmp_path)


@pytest.mark.parametrize("answer", [ErrorCode.FENCED_LEADER_EPOCH, ErrorCode.UNKNOWN_LEADER_EPOCH, None, "lost"])
def test_where_the_leader_tells_no_epoch_nothing_is_cut(tmp_path: Path, answer: ErrorCode | str | None) -> None:
    """A fenced leader epoch waits for a LeaderAndIsr request. After any other error the follower asks again."""

    async def test(following: Following) -> None:
        is_fenced = answer is ErrorCode.FENCED_LEADER_EPOCH
        await following.cutter.cut_before_fetching()
        assert (following.log_range, following.asks_next) == ((0, 4), None)
        assert (following.failed, following.table.truncating) == ({TP} if is_fenced else set(), {})
        await asyncio.sleep(2)
        at_once(following.table.end_delays())
        assert set(following.table.truncating) == (set() if is_fenced else {TP})

    leader = ScriptedLeader(is_old=True)
    if answer == "lost":
        leader.error = ConnectionLost("cut", address="x")
    else:
        leader.epochs = [EpochAnswer(answer) if isinstance(answer, ErrorCode) else None]
    play(test, leader, tmp_path=tmp_path)


@pytest.mark.parametrize("end", [1, 20], ids=["the leader ends earlier", "the leader begins later"])
@pytest.mark.parametrize("error", [None, KafkaError(ErrorCode.FENCED_LEADER_EPOCH)])
def test_a_log_that_is_fetched_no_more_is_not_cut_by_a_late_answer(
    tmp_path: Path, end: int, error: KafkaError | None
) -> None:
    """This broker may lead the partition by now, and may have appended records."""

    async def test(following: Following) -> None:
        leader.meanwhile = (
            following.remove if end == 1 else (lambda: following.remove() if len(leader.asked) == 2 else None)
        )
        leader.error = error if end == 1 else None
        await following.cutter.begin_in_range(following.state)
        assert following.log_range == (0, 4)
        assert following.asks_next is None
        assert (following.failed, following.table.states) == (set(), {})

    leader = ScriptedLeader(start=9, end=end)
    play(test, leader, tmp_path=tmp_path)


def test_a_log_that_is_fetched_no_more_is_not_cut_by_epoch_either(tmp_path: Path) -> None:
    async def test(following: Following) -> None:
        leader.meanwhile = following.remove
        await following.cutter.cut_before_fetching()
        assert (following.log_range, following.asks_next, following.failed) == ((0, 4), None, set())

    leader = ScriptedLeader(is_old=True)
    leader.epochs = [EpochAnswer(NONE, 0, 2)]
    play(test, leader, tmp_path=tmp_path)


@pytest.mark.parametrize(
    ("answers", "asked", "end"),
    [
        pytest.param([(2, 4)], [(5, 2)], 4, id="nothing to cut"),
        pytest.param([(2, 3)], [(5, 2)], 3, id="the leader ends earlier"),
        pytest.param([(0, 2)], [(5, 2)], 2, id="the leader has older epochs only"),
        pytest.param([(1, 3), (0, 2)], [(5, 2), (5, 0)], 2, id="one that is not known here: it is asked again"),
        pytest.param([(-1, -1)], [(5, 2)], 3, id="the leader knows no epochs: the high watermark"),
    ],
)
def test_before_leaders_told_it_in_fetch_answers_a_log_is_cut_by_epoch_first(
    tmp_path: Path, answers: list[tuple[int, int]], asked: list[tuple[int, int]], end: int
) -> None:
    """KIP-101, KIP-279: a cut at the high watermark could remove records that others have committed."""

    async def test(following: Following) -> None:
        following.log.update_high_watermark(3)
        for _ in answers:
            assert following.asks_next is None
            await following.cutter.cut_before_fetching()
        assert leader.asked == asked
        assert following.log_range == (0, end)
        assert following.asks_next == following.state.fetch_offset == end
        assert following.table.truncating == {}

    leader = ScriptedLeader(is_old=True)
    leader.epochs = [EpochAnswer(NONE, *answer) for answer in answers]
    play(test, leader, tmp_path=tmp_path, fetch_offset=3)


@pytest.mark.parametrize("knows_epochs", [True, False])
def test_without_epochs_a_log_is_cut_where_the_fetch_begins(tmp_path: Path, knows_epochs: bool) -> None:
    """The cut is at the high watermark: nothing tells which records above it the leader has."""

    async def test(following: Following) -> None:
        if knows_epochs:
            following.log.leader_epochs.clear()
        await following.cutter.cut_before_fetching()
        assert leader.asked == []
        assert following.log_range == (0, 3)
        assert following.asks_next == 3

    leader = ScriptedLeader(is_old=True)
    leader.knows_epochs = knows_epochs
    play(test, leader, tmp_path=tmp_path, fetch_offset=3)


@pytest.mark.parametrize("answer", [(0, 2), (1, 3)], ids=["the last common epoch", "an epoch that is not known here"])
def test_a_log_that_a_fetch_answer_cuts_is_fetched_on_from_there(tmp_path: Path, answer: tuple[int, int]) -> None:
    """KIP-595. The request names the epoch of the remaining records. If the leader's differs, the answer cuts again."""

    async def test(following: Following) -> None:
        assert following.asks_next == 4
        following.cutter.cut(following.state, *answer)
        assert following.log_range == (0, 2)
        assert (following.asks_next, following.state.last_fetched_epoch) == (2, 0)

    play(test, ScriptedLeader(), tmp_path=tmp_path)


@pytest.mark.parametrize("is_flushed", [True, False])
@pytest.mark.parametrize("how", ["the leader ends earlier", "the leader begins later", "by its answer"])
def test_a_cut_is_on_the_disk_before_anything_follows_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, how: str, is_flushed: bool
) -> None:
    """After a crash, recovery would skip what was written below the old recovery point."""
    settled: list[list[Log]] = []

    async def noted(self: ReplicaManager, logs: Collection[Log]) -> None:
        settled.append(list(logs))
        await settle_cuts(self, logs)

    async def test(following: Following) -> None:
        if is_flushed:
            following.log.flush()
        await following.cutter.settle()
        assert settled == [], "nothing was cut"
        if how == "by its answer":
            following.cutter.cut(following.state, 0, 2)
        else:
            await following.cutter.begin_in_range(following.state)
        assert following.log.has_unsettled_cut == is_flushed
        await following.cutter.settle()
        assert settled == ([[following.log]] if is_flushed else [])
        assert not following.log.has_unsettled_cut
        await following.cutter.settle()
        assert len(settled) == is_flushed, "once is enough"

    settle_cuts = ReplicaManager.settle_cuts
    monkeypatch.setattr(ReplicaManager, "settle_cuts", noted)
    play(test, ScriptedLeader(start=9 if "later" in how else 0, end=20 if "later" in how else 2), tmp_path=tmp_path)


def test_a_log_whose_cut_is_on_the_disk_by_now_is_left_alone(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    settled: list[list[Log]] = []

    async def noted(_: ReplicaManager, logs: Collection[Log]) -> None:
        settled.append(list(logs))

    async def test(following: Following) -> None:
        following.log.flush()
        following.cutter.cut(following.state, 0, 2)
        following.log.has_unsettled_cut = False
        await following.cutter.settle()
        assert not any(settled)

    monkeypatch.setattr(ReplicaManager, "settle_cuts", noted)
    play(test, ScriptedLeader(), tmp_path=tmp_path)


@pytest.mark.parametrize("breaks", ["before", "on the way"])
def test_a_log_that_cannot_be_cut_is_not_fetched_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, breaks: str
) -> None:
    def fails(_log: Log, _offset: int) -> bool:
        raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)

    async def test(following: Following) -> None:
        with monkeypatch.context() as patch:
            if breaks == "before":
                patch.setattr(following.partition, "log", None)
            else:
                patch.setattr(Log, "truncate_to", fails)
            following.cutter.cut(following.state, 0, 2)
        assert following.log_range == (0, 4)
        assert (following.failed, following.table.states, following.asks_next) == ({TP}, {}, None)

    play(test, ScriptedLeader(), tmp_path=tmp_path)


@pytest.mark.parametrize("ends", ["built", "removed", "fails", "closed"])
def test_a_log_whose_producers_are_still_read_is_fetched_on_later(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, ends: str
) -> None:
    """Everybody used to wait for it: 20 s for a full segment of small batches."""
    monkeypatch.setattr("engine.broker.log.log.REPLAY_BYTES_MAX", -1)
    may_end = asyncio.Event()

    async def held(self: ReplicaManager, logs: Collection[Log]) -> None:
        await may_end.wait()
        if ends == "fails":
            raise KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
        await settle_cuts(self, logs)

    async def test(following: Following) -> None:
        now_ms = following.log._environment.clock.now_ms()
        for sequence in range(2):
            batch = data_batch(b"v", producer=(7, 0, sequence), timestamp_ms=now_ms)
            following.log.append_as_leader(batch, 2)
        following.log.update_high_watermark(5)
        following.state.fetch_offset = 6
        monkeypatch.setattr(ReplicaManager, "settle_cuts", held)
        following.cutter.cut(following.state, 2, 5)
        assert following.log_range == (0, 5)
        await asyncio.sleep(0.01)
        assert following.asks_next is None, "it is left out; the others are fetched"
        if ends == "removed":
            following.remove()
        may_end.set()
        if ends == "closed":
            await following.cutter.close()
        await asyncio.sleep(0.01)
        assert following.changed.is_set() == (ends == "built")
        assert following.asks_next == (5 if ends == "built" else None)
        assert (following.failed == {TP}) == (ends == "fails")
        assert following.log.has_stale_producers == (ends in ("fails", "closed"))
        assert following.log.producers.producers[7].next_sequence == 1

    settle_cuts = ReplicaManager.settle_cuts
    play(test, ScriptedLeader(), tmp_path=tmp_path)
