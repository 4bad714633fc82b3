"""A fetcher's turns: what it asks when, what it does with each answer, and what it brings to the disk before it asks
again. The leader is scripted, the logs are real, and time is virtual."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from itertools import pairwise
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from event_loop import staged
from log_folders import data_batch, open_log
from virtual_time import LoopClock, run_virtual

from engine.broker.log.log import Log
from engine.broker.metrics.topics import BrokerTopics
from engine.broker.replication.fetch_table import InitialFetchState
from engine.broker.replication.fetcher import ReplicaFetcher
from engine.broker.replication.follower_fetch_session import FetchPlan
from engine.broker.replication.leader_endpoint import LeaderEndpoint
from engine.broker.replication.settings import ReplicationSettings
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import Node, ReplicaAssignment, TopicPartition
from engine.kafka.client.errors import ConnectionLost
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.apis.fetch import FetchableTopicResponse, FetchResponse, PartitionData

T0, T1 = TopicPartition("t", 0), TopicPartition("t", 1)
ID, OTHER_ID = bytes(range(16)), bytes(range(1, 17))
LEADER = Node(1, "broker-1", 9092)
ANSWER_MS = 10
"""How long each answer takes."""

FLUSH_MS = 100
BACKOFF_MS = 1000
EVERY_RECORD = LogConfig(flush_messages=1)

Answer = dict[TopicPartition, PartitionData] | ErrorCode | Exception


class ScriptedLeader:
    """Answers each request with the next of ``script``, and with nothing new after the last."""

    node = LEADER
    truncates_on_fetch = True
    knows_epochs = True

    def __init__(self) -> None:
        self.script: list[Answer] = []
        self.asked: list[tuple[float, FetchPlan]] = []
        self.is_closed = False

    async def fetch(self, plan: FetchPlan, broker_epoch: int) -> tuple[FetchResponse, int]:
        assert broker_epoch == 102
        self.asked.append((round(asyncio.get_running_loop().time() * 1000, 3), plan))
        await asyncio.sleep(ANSWER_MS / 1000)
        answer = self.script.pop(0) if self.script else {}
        if isinstance(answer, Exception):
            raise answer
        if isinstance(answer, ErrorCode):
            return FetchResponse(error_code=answer), 17
        answers = answer if not plan.is_full else {p: answer.get(p) or nothing_new(p) for p in plan.partitions}
        topics = [
            FetchableTopicResponse(topic_id=plan.partitions[p].topic_id, partitions=[d]) for p, d in answers.items()
        ]
        return FetchResponse(session_id=9, responses=topics), 17

    async def close(self) -> None:
        self.is_closed = True


class Flushes:
    """Notes which logs are brought to the disk; ``meanwhile`` happens while the disk works."""

    def __init__(self) -> None:
        self.flushed: list[tuple[TopicPartition, int]] = []
        self.error: KafkaError | None = None
        self.meanwhile: Callable[[], object] = lambda: None

    async def flush(self, log: Log) -> None:
        self.flushed.append((log.topic_partition, log.log_end_offset))
        await asyncio.sleep(FLUSH_MS / 1000)
        self.meanwhile()
        if self.error is not None:
            raise self.error


class Quota:
    """Throttles partition 1 only, and nothing is exceeded."""

    def __init__(self) -> None:
        self.has_throttled = False
        self.is_exceeded = False
        self.recorded = 0

    def is_throttled(self, topic_partition: TopicPartition) -> bool:
        return topic_partition == T1

    def record(self, size_bytes: int) -> None:
        self.recorded += size_bytes


class Following:
    """A fetcher of two partitions with a record of leader epoch 0 each, and what it needs of its broker."""

    def __init__(self, folder: Path, config: LogConfig | None) -> None:
        self.settings = ReplicationSettings(2, replica_fetch_backoff_ms=BACKOFF_MS)
        self.clock = LoopClock()
        self.broker_epoch = 102
        self.follower_quota = Quota()
        self.flushes = Flushes()
        self.topics = BrokerTopics()
        self.partitions: dict[TopicPartition, Any] = {}
        for topic_partition in (T0, T1):
            (folder / f"t-{topic_partition.partition}").mkdir()
            log = open_log(folder / f"t-{topic_partition.partition}", config)
            log.append_as_follower(batch(0))
            self.partitions[topic_partition] = SimpleNamespace(
                log=log,
                topic_partition=topic_partition,
                changed=lambda: None,
                environment=SimpleNamespace(topics=self.topics),
                assignment=ReplicaAssignment((1, 2)),
            )
        self.leader = ScriptedLeader()
        self.failed: set[TopicPartition] = set()
        self.fetcher = ReplicaFetcher(cast("LeaderEndpoint", self.leader), 0, cast("Any", self), self.failed)

    def hosted_partition(self, topic_partition: TopicPartition) -> Any:
        return self.partitions.get(topic_partition)

    async def settle_cuts(self, logs: list[Log]) -> None:
        assert not logs

    def add(self, *partitions: TopicPartition) -> None:
        for partition in partitions or (T0,):
            self.fetcher.add(partition, InitialFetchState(ID, LEADER, 5, self.end(partition)))

    def end(self, partition: TopicPartition = T0) -> int:
        return cast("Log", self.partitions[partition].log).log_end_offset

    async def asks(self, count: int) -> None:
        """Wait until so many requests have been sent."""
        async with asyncio.timeout(60):
            while len(self.leader.asked) < count:
                await asyncio.sleep(0.0005)

    async def asks_again(self) -> tuple[float, FetchPlan]:
        """Wait until partition 0 is asked for again after the first request; return that request."""
        sent = 1
        while True:
            await self.asks(sent := sent + 1)
            at_ms, plan = self.leader.asked[sent - 1]
            if T0 in plan.partitions:
                return at_ms, plan

    @property
    def gaps_ms(self) -> list[float]:
        """Times between the requests."""
        times = [at_ms for at_ms, _ in self.leader.asked]
        return [round(later - earlier, 3) for earlier, later in pairwise(times)]

    @property
    def plans(self) -> list[FetchPlan]:
        return [plan for _, plan in self.leader.asked]


def play(
    test: Callable[[Following], Awaitable[None]],
    *,
    tmp_path: Path,
    script: list[Answer] | None = None,
    config: LogConfig | None = None,
) -> None:
    """Run a test beside a fetcher that has no partitions yet."""

    async def run() -> None:
        following = Following(tmp_path, config)
        following.leader.script = script or []
        running = asyncio.create_task(following.fetcher.run())
        try:
            await test(following)
            assert not running.done()
        finally:
            running.cancel()
            await asyncio.wait([running])
        assert following.leader.is_closed

    run_virtual(run)


def batch(base_offset: int, value: bytes = b"v") -> memoryview:
    return data_batch(value, base_offset=base_offset, partition_leader_epoch=0)


def nothing_new(partition: TopicPartition) -> PartitionData:
    return PartitionData(partition_index=partition.partition, high_watermark=1, log_start_offset=0)


def records(base_offset: int, partition: TopicPartition = T0, *, high_watermark: int = 1) -> PartitionData:
    return PartitionData(
        partition_index=partition.partition,
        high_watermark=high_watermark,
        log_start_offset=0,
        records=batch(base_offset),
    )


def refusal(error: ErrorCode) -> PartitionData:
    return PartitionData(partition_index=0, error_code=error, high_watermark=-1)


def broken(base_offset: int) -> PartitionData:
    data = bytearray(batch(base_offset))
    data[-1] ^= 1
    return PartitionData(high_watermark=1, log_start_offset=0, records=memoryview(data))


def test_what_is_fetched_is_appended_counted_and_asked_on_from(tmp_path: Path) -> None:
    async def test(following: Following) -> None:
        fetcher = following.fetcher
        assert (fetcher.max_lag(), fetcher.requests_total, fetcher.fetched_bytes_total) == (0, 0, 0)
        following.add()
        assert (list(fetcher.lags()), fetcher.lag(T0), fetcher.lag(T1), fetcher.max_lag()) == ([], None, None, 0)
        await following.asks(2)
        assert (following.end(), fetcher.lag(T0), list(fetcher.lags()), fetcher.max_lag()) == (2, 5, [(T0, 5)], 5)
        assert fetcher.fetched_bytes_total == len(batch(1))
        await following.asks(3)
        assert fetcher.fetched_bytes_total == len(batch(1)), "an answer without records"
        assert fetcher.requests_total == 3
        assert [plan.partitions[T0].fetch_offset for plan in following.plans[1:]] == [2, 2]
        assert following.gaps_ms == [ANSWER_MS, ANSWER_MS]

    play(test, tmp_path=tmp_path, script=[{T0: records(1, high_watermark=7)}])


@staged(play)
async def test_a_new_partition_is_asked_for_at_once(following: Following, /) -> None:
    """Not only when the back-off of a fetcher that had nothing to do is over."""
    await asyncio.sleep(0.3)
    begun_ms = following.clock.monotonic_ms()
    following.add()
    await following.asks(1)
    assert following.leader.asked[0][0] - begun_ms < 2


@staged(play)
async def test_another_topic_id_is_used_from_the_next_request_on(following: Following, /) -> None:
    following.add()
    await following.asks(1)
    following.fetcher.update_topic_id(T0, OTHER_ID)
    await following.asks(2)
    assert [wanted.topic_id for wanted in following.plans[1].sent.values()] == [OTHER_ID]


PAUSED_MS = ANSWER_MS + 50.0


@pytest.mark.parametrize(
    ("answer", "gap_ms", "is_full"),
    [
        pytest.param(ConnectionLost("cut", address="x"), PAUSED_MS, True, id="no answer: a new session"),
        pytest.param(ValueError("a fault of the program"), PAUSED_MS, True, id="a turn that fails"),
        pytest.param(ErrorCode.KAFKA_STORAGE_ERROR, PAUSED_MS, True, id="the whole request refused"),
        pytest.param(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, ANSWER_MS, True, id="only the session is gone"),
        pytest.param(ErrorCode.INVALID_FETCH_SESSION_EPOCH, ANSWER_MS, True, id="only the session's epoch"),
        pytest.param({T0: refusal(ErrorCode.NOT_LEADER_OR_FOLLOWER)}, PAUSED_MS, False, id="not the leader yet"),
        pytest.param({T0: refusal(ErrorCode.UNKNOWN_TOPIC_ID)}, PAUSED_MS, False, id="not there yet"),
        pytest.param({T0: refusal(ErrorCode.UNKNOWN_SERVER_ERROR)}, PAUSED_MS, False, id="an unexpected error"),
        pytest.param({T0: broken(1)}, PAUSED_MS, False, id="broken on the way"),
        pytest.param({T0: nothing_new(T0)}, ANSWER_MS, False, id="nothing new"),
    ],
)
def test_after_which_answers_there_is_a_pause(tmp_path: Path, answer: Answer, gap_ms: float, is_full: bool) -> None:
    async def test(following: Following) -> None:
        following.add()
        at_ms, plan = await following.asks_again()
        assert at_ms - following.leader.asked[0][0] == pytest.approx(gap_ms, abs=0.001)
        assert plan.is_full == is_full
        assert (following.failed, following.end()) == (set(), 1)

    play(test, tmp_path=tmp_path, script=[answer])


@pytest.mark.parametrize(
    "answer",
    [
        pytest.param({T0: refusal(ErrorCode.FENCED_LEADER_EPOCH)}, id="the leader has a newer leader epoch"),
        pytest.param({T0: records(0)}, id="records that are here already"),
    ],
)
def test_after_which_answers_a_partition_waits_for_the_controller(tmp_path: Path, answer: Answer) -> None:
    async def test(following: Following) -> None:
        following.add(T0, T1)
        await following.asks(1)
        await asyncio.sleep(5)
        assert (following.failed, list(following.fetcher.partitions), following.end()) == ({T0}, [T1], 1)
        assert set(following.plans[-1].partitions) == {T1}

    play(test, tmp_path=tmp_path, script=[answer])


@pytest.mark.parametrize("error", [KafkaError(ErrorCode.KAFKA_STORAGE_ERROR), ValueError("a fault of the program")])
def test_a_log_that_takes_no_records_is_set_aside_and_the_others_go_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: Exception
) -> None:
    def fails(_log: Log, _records: memoryview) -> None:
        raise error

    async def test(following: Following) -> None:
        monkeypatch.setattr(Log, "append_as_follower", fails)
        following.add(T0, T1)
        await following.asks(1)
        await asyncio.sleep(5)
        assert (following.failed, list(following.fetcher.partitions)) == ({T0}, [T1])

    play(test, tmp_path=tmp_path, script=[{T0: records(1)}])


def test_pauses_begin_short_again_after_an_answer_of_use(tmp_path: Path) -> None:
    lost = ConnectionLost("cut", address="x")

    async def test(following: Following) -> None:
        following.add()
        await following.asks(6)
        assert following.gaps_ms == [ANSWER_MS + pause_ms for pause_ms in (50, 100, 0, 50, 100)]

    play(test, tmp_path=tmp_path, script=[lost, lost, {T0: nothing_new(T0)}, lost, lost])


def test_only_bytes_of_throttled_partitions_count_for_the_quota(tmp_path: Path) -> None:
    async def test(following: Following) -> None:
        following.follower_quota.has_throttled = True
        following.add(T0, T1)
        await following.asks(3)
        assert (following.end(T0), following.end(T1)) == (3, 2)
        assert following.follower_quota.recorded == len(batch(1))

    play(test, tmp_path=tmp_path, script=[{T0: records(1), T1: records(1, T1)}, {T0: records(2)}])


def test_records_are_on_the_disk_before_the_next_request_confirms_them(tmp_path: Path) -> None:
    """``flush.messages``: the leader counts the next fetch as replicated."""

    async def test(following: Following) -> None:
        following.add()
        await following.asks(1)
        assert following.flushes.flushed == [(T0, 1)], "it was appended before this fetcher began"
        await following.asks(2)
        assert following.flushes.flushed == [(T0, 1), (T0, 2)]
        assert following.gaps_ms == [ANSWER_MS + FLUSH_MS]

    play(test, tmp_path=tmp_path, script=[{T0: records(1)}], config=EVERY_RECORD)


def test_without_that_setting_no_fetch_waits_for_the_disk(tmp_path: Path) -> None:
    async def test(following: Following) -> None:
        following.add()
        await following.asks(3)
        assert following.flushes.flushed == []

    play(test, tmp_path=tmp_path, script=[{T0: records(1)}])


@pytest.mark.parametrize("is_removed", [False, True])
@staged(play, config=EVERY_RECORD)
async def test_what_the_disk_refuses_is_not_confirmed(following: Following, /, is_removed: bool) -> None:
    """A replica that is fetched no more is somebody else's: its new life must not count as failed."""
    following.flushes.error = KafkaError(ErrorCode.KAFKA_STORAGE_ERROR)
    if is_removed:
        following.flushes.meanwhile = lambda: following.fetcher.remove(T0)
    following.add(T0)
    await asyncio.sleep(5)
    assert following.flushes.flushed == [(T0, 1)]
    assert following.failed == (set() if is_removed else {T0})
    assert (list(following.fetcher.partitions), following.leader.asked) == ([], [])


@pytest.mark.parametrize("gone", ["not fetched", "no replica", "no log"])
@staged(play, config=EVERY_RECORD)
async def test_what_is_gone_by_then_is_not_flushed(following: Following, /, gone: str) -> None:
    following.add(T0, T1)
    if gone == "not fetched":
        following.fetcher.remove(T0)
    elif gone == "no replica":
        del following.partitions[T0]
    else:
        following.partitions[T0].log = None
    await following.asks(1)
    assert following.flushes.flushed == [(T1, 1)]
    assert following.failed == set()


@pytest.mark.parametrize("lacks", ["replica", "log"])
@staged(play)
async def test_a_partition_without_a_log_is_not_asked_for(following: Following, /, lacks: str) -> None:
    if lacks == "log":
        following.partitions[T0].log = None
    else:
        del following.partitions[T0]
    following.fetcher.add(T0, InitialFetchState(ID, LEADER, 5, 1))
    following.add(T1)
    await following.asks(2)
    assert set(following.plans[-1].partitions) == {T1}


def test_an_answer_about_many_partitions_gives_way(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What changes in between counts: a partition that is removed meanwhile takes no records of that answer."""
    monkeypatch.setattr("engine.runtime.turns.HOLD_MS_MAX", 0)
    take = ReplicaFetcher._take

    def take_and_let_go(fetcher: ReplicaFetcher, state: Any, data: PartitionData) -> None:
        asyncio.get_running_loop().call_soon(fetcher.remove, T1)
        take(fetcher, state, data)

    monkeypatch.setattr(ReplicaFetcher, "_take", take_and_let_go)

    async def test(following: Following) -> None:
        following.add(T0, T1)
        await following.asks(2)
        assert (following.end(T0), following.end(T1)) == (2, 1)

    play(test, tmp_path=tmp_path, script=[{T0: records(1), T1: records(1, T1)}])
