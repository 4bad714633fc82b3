"""Moves between log dirs of one broker: real logs, real requests, virtual time."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from event_loop import in_event_loop
from log_folders import data_batch, read_all, run_due
from replicated_brokers import TP, StandInBroker, World, world
from soak import SOAK
from virtual_time import in_virtual_time, run_virtual

from engine.broker.handlers.alter_replica_log_dirs import alter_replica_log_dirs
from engine.broker.handlers.describe_log_dirs import describe_log_dirs
from engine.broker.log.log import Log
from engine.broker.replication.log_dir_copy import (
    FLUSHES_BEFORE_SWAP_MAX,
    PIECE_BATCHES,
    PIECE_BYTES,
    LogDirCopy,
    pieces,
)
from engine.broker.replication.settings import ReplicationSettings
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from engine.kafka.protocol.apis.describe_log_dirs import DescribeLogDirsRequest

SMALL_STEPS = ReplicationSettings(0, replica_lag_time_max_ms=5000, replica_fetch_max_bytes=1000)
VALUE = b"v" * 300


def two_dirs(folder: Path, *broker_ids: int, **options: Any) -> Any:
    return world(folder, *broker_ids, **{"dirs_per_broker": 2, "settings": SMALL_STEPS, **options})


def dirs(broker: StandInBroker) -> list[Path]:
    return list(broker.log_manager.config.log_dirs)


def other_dir(w: World, broker_id: int) -> Path:
    (other,) = set(dirs(w.brokers[broker_id])) - {w.log(broker_id).log_dir}
    return other


async def move(w: World, broker_id: int, path: Path | str, topic_partition: TopicPartition = TP) -> ErrorCode:
    """Ask a broker to move a replica, and return its answer."""
    topic = AlterReplicaLogDirTopic(name=topic_partition.topic, partitions=[topic_partition.partition])
    request = AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=[topic])])
    context = w.brokers[broker_id].context(ApiKey.ALTER_REPLICA_LOG_DIRS, 2)
    response = await alter_replica_log_dirs(context, request)
    ((result,),) = [topic.partitions for topic in response.results]
    return ErrorCode(result.error_code)


async def until_moved(w: World, broker_id: int, path: Path) -> None:
    await w.until(lambda: bool(w.log(broker_id).log_dir == path), f"{broker_id} has its replica in {path}")


async def described(w: World, broker_id: int) -> dict[tuple[str, bool], int]:
    """Return the offset lag of the replicas by log dir, and whether they are future ones."""
    context = w.brokers[broker_id].context(ApiKey.DESCRIBE_LOG_DIRS, 4)
    response = await describe_log_dirs(context, DescribeLogDirsRequest(topics=None))
    return {
        (result.log_dir, partition.is_future_key): partition.offset_lag
        for result in response.results
        for topic in result.topics
        for partition in topic.partitions
    }


def hold(w: World, broker_id: int) -> None:
    """Stop a broker's moves at their first step."""
    w.brokers[broker_id].replica_manager.log_dir_moves.quota.rate_bytes_max = 0


def let_go(w: World, broker_id: int) -> None:
    w.brokers[broker_id].replica_manager.log_dir_moves.quota.rate_bytes_max = 2**63 - 1


def has_copied(w: World, broker_id: int) -> bool:
    future = w.partition(broker_id).future_log
    return future is not None and future.log_end_offset > 0


def folders(path: Path) -> list[str]:
    return sorted(entry.name for entry in path.iterdir() if entry.is_dir())


@in_virtual_time
async def test_a_leader_moves_while_it_is_written_to(tmp_path: Path) -> None:
    async with two_dirs(tmp_path, 1, 2) as w:
        await w.lead(1)
        for n in range(50):
            w.produce(1, b"%d" % n, VALUE)
        before, target = w.log(1), other_dir(w, 1)
        epochs = before.leader_epochs.entries
        assert await move(w, 1, target) is ErrorCode.NONE
        n = 50
        while w.log(1) is before:
            n = w.produce(1, b"%d" % n, VALUE)
            assert n < 2000, "the copy never comes level"
            await w.let_pass(1)
        assert w.log(1).log_dir == target
        assert w.partition(1).is_leader
        assert w.partition(1).future_log is None
        w.produce(1, b"after")
        await w.until_equal(2)
        assert w.log_bytes(1) == w.log_bytes(2)
        assert w.log(1).leader_epochs.entries == epochs
        assert w.log(1).topic_id == before.topic_id
        assert folders(target) == ["orders-0"]
        assert [name.endswith("-delete") for name in folders(before.log_dir)] == [True]
        run_due(w.brokers[1].log_manager)
        await w.let_pass(60_001)
        run_due(w.brokers[1].log_manager)
        assert folders(before.log_dir) == []


@pytest.mark.parametrize("busy_rounds", [0, 3, 10**9])
def test_the_last_flush_before_the_swap_does_not_hold_the_event_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, busy_rounds: int
) -> None:
    """A thread also flushes what is appended during a flush, but the flushes must end some time."""
    held: list[int] = []
    flush, in_thread = Log.flush, LogDirCopy._prepare
    rounds = 0

    async def test() -> None:
        async with two_dirs(tmp_path, 1, log_config=LogConfig(flush_messages=1)) as w:
            await w.lead(1)
            w.produce(1, b"first")

            async def prepare_while_written_to(copy: LogDirCopy, current: Log) -> None:
                nonlocal rounds
                await in_thread(copy, current)
                rounds += 1
                if rounds <= busy_rounds:
                    w.produce(1, b"%d" % rounds)

            monkeypatch.setattr(LogDirCopy, "_prepare", prepare_while_written_to)
            monkeypatch.setattr(Log, "flush", lambda log: (held.append(log.unflushed_records), flush(log)))
            target = other_dir(w, 1)
            assert await move(w, 1, target) is ErrorCode.NONE
            await until_moved(w, 1, target)
            assert w.log(1).unflushed_records == 0

    run_virtual(test)
    assert held == ([1] if busy_rounds > FLUSHES_BEFORE_SWAP_MAX else [])
    assert rounds == min(busy_rounds + 1, FLUSHES_BEFORE_SWAP_MAX)


@in_virtual_time
async def test_a_followers_replica_that_has_moved_still_follows(tmp_path: Path) -> None:
    async with two_dirs(tmp_path, 1, 2) as w:
        await w.lead(1)
        w.produce(1, b"first")
        target = other_dir(w, 2)
        assert await move(w, 2, target) is ErrorCode.NONE
        await until_moved(w, 2, target)
        assert not w.partition(2).is_leader
        with pytest.raises(KafkaError, match="Leader not local"):
            w.produce(2, b"no")
        w.produce(1, b"second")
        await w.until_equal(2)
        assert w.log_bytes(1) == w.log_bytes(2)


@in_virtual_time
async def test_an_empty_leadership_is_known_after_the_move(tmp_path: Path) -> None:
    async with two_dirs(tmp_path, 1) as w:
        await w.lead(1)
        w.produce(1, b"first")
        await w.lead(1)
        epochs, target = w.log(1).leader_epochs.entries, other_dir(w, 1)
        assert [entry.leader_epoch for entry in epochs] == [0, 1]
        assert await move(w, 1, target) is ErrorCode.NONE
        await until_moved(w, 1, target)
        assert w.log(1).leader_epochs.entries == epochs
        assert w.log(1).high_watermark == 1


@in_event_loop
async def test_a_move_is_told_while_it_lasts_and_ended_by_naming_the_present_dir(tmp_path: Path) -> None:
    async with two_dirs(tmp_path, 1) as w:
        await w.lead(1)
        for n in range(20):
            w.produce(1, b"%d" % n, VALUE)
        here, target = w.log(1).log_dir, other_dir(w, 1)
        hold(w, 1)
        assert await move(w, 1, target) is ErrorCode.NONE
        manager = w.brokers[1].replica_manager
        await w.until(lambda: has_copied(w, 1), "the first step is done")
        lags = await described(w, 1)
        assert lags[str(here), False] == 0
        assert 0 < lags[str(target), True] < 40
        assert await move(w, 1, target) is ErrorCode.NONE, "asking twice changes nothing"
        assert manager.log_dir_moves.moving == {TP}
        assert await move(w, 1, here) is ErrorCode.NONE
        assert manager.log_dir_moves.moving == set()
        assert await described(w, 1) == {(str(here), False): 0}
        assert [name.endswith("-delete") for name in folders(target)] == [True]
        let_go(w, 1)
        assert await move(w, 1, target) is ErrorCode.NONE
        await until_moved(w, 1, target)


@pytest.mark.parametrize("cleanly", [True, False])
@in_virtual_time
async def test_a_move_goes_on_after_a_restart(tmp_path: Path, cleanly: bool) -> None:
    async with two_dirs(tmp_path, 1, 2) as w:
        await w.lead(1)
        for n in range(30):
            w.produce(1, b"%d" % n, VALUE)
        await w.until_equal(2)
        target = other_dir(w, 2)
        hold(w, 2)
        assert await move(w, 2, target) is ErrorCode.NONE
        await w.let_pass(1000)
        copied = w.partition(2).future_log.log_end_offset  # type: ignore[union-attr]
        assert 0 < copied < 60
        await w.stop_broker(2, cleanly=cleanly)
        w.start_broker(2)
        assert w.brokers[2].log_manager.future_logs[TP].log_end_offset == copied
        await w.tell(2)
        await until_moved(w, 2, target)
        await w.until_equal(2)
        assert w.log_bytes(1) == w.log_bytes(2)


@in_virtual_time
async def test_what_the_replica_cuts_the_copy_cuts(tmp_path: Path) -> None:
    """A follower with a half-finished copy learns that records it has were never committed."""
    async with two_dirs(tmp_path, 1, 2, 3) as w:
        await w.lead(1)
        w.produce(1, b"common", VALUE)
        await w.until_equal(2, 3)
        w.cut |= {frozenset((1, 2)), frozenset((1, 3))}
        await w.lead(3, isr=[3], tell=[3])
        for n in range(8):
            w.produce(1, b"lost %d" % n, VALUE)
        target = other_dir(w, 1)
        hold(w, 1)
        assert await move(w, 1, target) is ErrorCode.NONE
        await w.until(lambda: w.partition(1).future_log.log_end_offset > 2, "some is copied")  # type: ignore[union-attr]
        w.produce(3, b"kept", VALUE)
        w.cut.clear()
        await w.tell(2)
        await w.tell(1)
        await w.until_equal(1, 2)
        let_go(w, 1)
        await until_moved(w, 1, target)
        assert w.log_bytes(1) == w.log_bytes(3)
        assert w.log(1).leader_epochs.entries == w.log(3).leader_epochs.entries


@in_virtual_time
async def test_what_was_read_before_a_cut_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The log may reach the same offset again with other records before the thread has read."""
    read = LogDirCopy._bytes_of
    async with two_dirs(tmp_path, 1) as w:
        await w.lead(1)
        w.produce(1, b"common", VALUE)
        end = w.log(1).log_end_offset
        w.produce(1, b"lost", VALUE)
        others = [b"kept", VALUE]

        async def read_before_a_cut(copy: LogDirCopy, current: Log, records: Any) -> bytes:
            data = await read(copy, current, records)
            if others:
                current.truncate_to(end)
                w.produce(1, *others)
                others.clear()
            return data

        monkeypatch.setattr(LogDirCopy, "_bytes_of", read_before_a_cut)
        target = other_dir(w, 1)
        before = w.log(1)
        assert await move(w, 1, target) is ErrorCode.NONE
        await until_moved(w, 1, target)
        assert not others
        assert read_all(w.log(1)) == read_all(before)


def test_a_cut_of_the_copy_is_on_the_disk_before_more_is_copied(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a crash, recovery would skip what was written below the copy's old recovery point."""
    append, unsettled = LogDirCopy._append, []
    cuts = 0

    def noted(copy: LogDirCopy, current: Log, piece: memoryview) -> None:
        nonlocal cuts
        cuts = copy.future.truncation_count
        unsettled.append(copy.future.is_unsettled)
        append(copy, current, piece)

    async def test() -> None:
        async with two_dirs(tmp_path, 1) as w:
            await w.lead(1)
            for n in range(8):
                w.produce(1, b"%d" % n, VALUE)
            hold(w, 1)
            target = other_dir(w, 1)
            assert await move(w, 1, target) is ErrorCode.NONE
            await w.until(lambda: has_copied(w, 1), "some is copied")
            future = w.partition(1).future_log
            assert future is not None
            future.flush()
            w.log(1).truncate_to(1)
            w.produce(1, b"kept", VALUE)
            monkeypatch.setattr(LogDirCopy, "_append", noted)
            let_go(w, 1)
            await until_moved(w, 1, target)

    run_virtual(test)
    assert cuts
    assert unsettled
    assert not any(unsettled)


@pytest.mark.parametrize("seed", range(6 * SOAK))
@in_virtual_time
async def test_whatever_happens_the_moved_replica_is_the_leaders(tmp_path: Path, seed: int) -> None:
    chance = random.Random(seed)
    async with two_dirs(tmp_path, 1, 2) as w:
        await w.lead(1)
        for _ in range(40):
            leader = w.states[TP].leader
            step = chance.choice("pppmmlrhg")
            if step == "p":
                for _ in range(chance.randrange(5)):
                    w.produce(leader, b"x" * chance.randrange(900))
            elif step == "m":
                broker_id = chance.choice((1, 2))
                assert await move(w, broker_id, chance.choice(dirs(w.brokers[broker_id]))) is ErrorCode.NONE
            elif step == "l":
                # Sometimes the follower has records that the new leader lacks.
                await w.lead(chance.choice((1, 2)), isr=[1, 2])
            elif step == "r":
                await w.stop_broker(3 - leader, cleanly=chance.random() < 0.5)
                w.start_broker(3 - leader)
                await w.tell(3 - leader)
            else:
                (hold if step == "h" else let_go)(w, chance.choice((1, 2)))
            await w.let_pass(chance.randrange(40))
        for broker_id in (1, 2):
            let_go(w, broker_id)
        follower = 3 - w.states[TP].leader
        # Followers learn of a leadership only from its records.
        w.produce(3 - follower, b"last")
        await w.until_equal(follower)
        for broker in w.brokers.values():
            moves = broker.replica_manager.log_dir_moves
            await w.until(lambda moves=moves: not moves.moving, "all moves end")  # type: ignore[misc]
            assert broker.log_manager.future_logs == {}
        await w.until_equal(follower)
        assert w.log_bytes(1) == w.log_bytes(2)
        assert w.log(1).leader_epochs.entries == w.log(2).leader_epochs.entries


@in_virtual_time
async def test_a_log_that_begins_later_is_copied_from_there(tmp_path: Path) -> None:
    async with two_dirs(tmp_path, 1, log_config=LogConfig(segment_bytes=1024, retention_ms=-1)) as w:
        await w.lead(1)
        for _ in range(10):
            w.produce(1, VALUE, VALUE)
        log, target = w.log(1), other_dir(w, 1)
        log.increment_log_start_offset(7)
        log.delete_old_segments(w.clock.now_ms())
        assert log.first_segment_base_offset > 0
        wanted = w.log_bytes(1)[-4 * len(data_batch(VALUE, VALUE)) :]
        assert await move(w, 1, target) is ErrorCode.NONE
        await until_moved(w, 1, target)
        assert (w.log(1).log_start_offset, w.log(1).log_end_offset) == (7, 20)
        assert w.log_bytes(1).endswith(wanted)


@in_virtual_time
async def test_the_throttle_sets_the_pace(tmp_path: Path) -> None:
    async with two_dirs(tmp_path, 1) as w:
        await w.lead(1)
        for _ in range(100):
            w.produce(1, VALUE)
        target = other_dir(w, 1)
        size_bytes = w.log(1).size_bytes
        w.brokers[1].replica_manager.log_dir_moves.quota.rate_bytes_max = 2000
        began_ms = w.clock.monotonic_ms()
        assert await move(w, 1, target) is ErrorCode.NONE
        await until_moved(w, 1, target)
        assert (w.clock.monotonic_ms() - began_ms) / 1000 == pytest.approx(size_bytes / 2000, rel=0.2)


@in_virtual_time
async def test_what_cannot_be_done_is_told(tmp_path: Path) -> None:
    async with two_dirs(tmp_path, 1, 2) as w:
        await w.lead(1, replicas=[1])
        a, b = dirs(w.brokers[1])
        assert await move(w, 1, "/nowhere") is ErrorCode.LOG_DIR_NOT_FOUND
        assert await move(w, 1, a, TopicPartition("t" * 249, 0)) is ErrorCode.INVALID_TOPIC_EXCEPTION
        assert await move(w, 1, a, TopicPartition("nobody", 0)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        assert await move(w, 2, dirs(w.brokers[2])[1]) is ErrorCode.REPLICA_NOT_AVAILABLE
        w.brokers[1].log_manager.fail_dir(b, "the test", OSError("broken"))
        w.brokers[1].replica_manager.handle_log_dir_failure(b)
        assert await move(w, 1, b) is ErrorCode.KAFKA_STORAGE_ERROR
        assert await move(w, 1, a) is ErrorCode.NONE, "it is there"


@pytest.mark.parametrize("number", [0, 1])
@in_virtual_time
async def test_a_dir_named_before_the_replica_comes_is_remembered(tmp_path: Path, number: int) -> None:
    async with two_dirs(tmp_path, 1) as w:
        wanted = dirs(w.brokers[1])[number]
        assert await move(w, 1, wanted) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await w.lead(1)
        assert w.log(1).log_dir == wanted
        assert w.brokers[1].log_manager.preferred_dirs == {}


@pytest.mark.parametrize("fails", ["source", "target"])
@in_event_loop
async def test_a_dir_fails_during_a_move(tmp_path: Path, fails: str) -> None:
    async with two_dirs(tmp_path, 1) as w:
        await w.lead(1)
        for _ in range(20):
            w.produce(1, VALUE)
        source, target = w.log(1).log_dir, other_dir(w, 1)
        hold(w, 1)
        assert await move(w, 1, target) is ErrorCode.NONE
        await w.until(lambda: has_copied(w, 1), "the first step is done")
        manager = w.brokers[1].replica_manager
        failed = source if fails == "source" else target
        w.brokers[1].log_manager.fail_dir(failed, "the test", OSError("broken"))
        let_go(w, 1)
        await w.let_pass(200)
        manager.handle_log_dir_failure(failed)
        assert manager.log_dir_moves.moving == set()
        if fails == "source":
            assert manager.is_offline(TP)
            assert await move(w, 1, target) is ErrorCode.KAFKA_STORAGE_ERROR
        else:
            assert w.produce(1, b"still served") == 21
            assert w.partition(1).future_log is None
            assert await described(w, 1) == {(str(source), False): 0}


@in_virtual_time
async def test_a_move_ends_with_its_replica(tmp_path: Path) -> None:
    async with two_dirs(tmp_path, 1) as w:
        await w.lead(1)
        for _ in range(20):
            w.produce(1, VALUE)
        target = other_dir(w, 1)
        hold(w, 1)
        assert await move(w, 1, target) is ErrorCode.NONE
        await w.let_pass(500)
        broker = w.brokers[1]
        broker.replica_manager.log_manager.delete(TP)
        assert broker.log_manager.future_logs == {}
        assert broker.log_manager.logs == {}
        assert [name.endswith("-delete") for path in dirs(broker) for name in folders(path)] == [True, True]


@in_virtual_time
async def test_workers_are_as_many_as_told(tmp_path: Path) -> None:
    settings = replace(SMALL_STEPS, num_replica_alter_log_dirs_threads=1)
    names = [TopicPartition("orders", n) for n in range(4)]
    async with two_dirs(tmp_path, 1, settings=settings) as w:
        for name in names:
            await w.lead(1, topic_partition=name)
            w.produce(1, VALUE, topic_partition=name)
        target = dirs(w.brokers[1])[1]
        for name in names:
            assert await move(w, 1, target, name) is ErrorCode.NONE
        moves = w.brokers[1].replica_manager.log_dir_moves
        await w.until(lambda: not moves.moving, "all are moved")
        assert all(w.log(1, name).log_dir == target for name in names)


def test_pieces_are_whole_batches_and_small() -> None:
    batch = bytes(data_batch(b"x"))
    sizes = list(pieces(memoryview(batch * (PIECE_BATCHES + 2) + batch[:-1])))
    assert [len(piece) for piece in sizes] == [len(batch) * PIECE_BATCHES, len(batch) * 2]
    large = bytes(data_batch(b"x" * PIECE_BYTES))
    assert [len(piece) for piece in pieces(memoryview(large + batch + large))] == [len(large), len(batch), len(large)]
    assert list(pieces(memoryview(batch[:30]))) == []


@in_virtual_time
async def test_a_move_that_fails_for_no_known_reason_is_tried_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async with two_dirs(tmp_path, 1) as w:
        await w.lead(1)
        for n in range(10):
            w.produce(1, b"%d" % n, VALUE)
        append, left = LogDirCopy._append, [5]

        def failing(self: LogDirCopy, current: Any, piece: memoryview) -> None:
            append(self, current, piece)
            if left[0]:
                left[0] -= 1
                raise RuntimeError("broken on purpose")

        monkeypatch.setattr(LogDirCopy, "_append", failing)
        target = other_dir(w, 1)
        assert await move(w, 1, target) is ErrorCode.NONE
        await until_moved(w, 1, target)
        assert left == [0]
        assert "Unexpected error while copying partition orders-0, tried again in 16000 ms failures=5" in caplog.text
