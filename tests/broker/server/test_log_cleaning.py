"""The cleaner on a log manager: what it does when the log, the disk, the process or the settings change under it."""

from __future__ import annotations

import asyncio
import errno
import json
import logging
import signal
import sys
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path
from typing import Any

import pytest
import uvloop
from cleaning import is_worker, pairs_of
from event_loop import until
from log_folders import data_batch, run_due, write_checkpoints

from engine.broker.log.cleaner.choice import LogToClean
from engine.broker.log.log import Log
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.broker.log.log_moves import create_future_log, replace_current_with_future
from engine.broker.server import log_cleaning
from engine.broker.server.log_cleaning import LogCleaner
from engine.common.clock import SystemClock
from engine.common.model import TopicPartition
from engine.kafka.config.broker import BrokerConfig
from engine.kafka.config.dynamic import DynamicConfigs
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import CLEANER_OFFSET_CHECKPOINT
from engine.runtime.offload import Offloader

TP = TopicPartition("t", 0)
COMPACTED = LogConfig(
    segment_bytes=20_000, cleanup_policy=("compact",), min_cleanable_dirty_ratio=0.01, file_delete_delay_ms=0
)
TIMEOUT_S = 20.0
SLOW = "100000"
"""Bytes per second at which a cleaning takes seconds."""


class World:
    """A log manager with a cleaner, and one log with a few keys written over and over."""

    def __init__(self, folder: Path, **settings: str) -> None:
        base = {
            "broker.id": "0",
            "zookeeper.connect": "nowhere:1",
            "log.cleaner.backoff.ms": "20",
            **{key.replace("_", "."): value for key, value in settings.items()},
        }
        self.configs = DynamicConfigs(BrokerConfig.from_properties(base))
        self.failed: list[Path] = []
        self.dirs = (folder / "a", folder / "b")
        self.logs = LogManager(
            LogManagerConfig(self.dirs, log_segment_delete_delay_ms=0),
            lambda _: COMPACTED,
            SystemClock(),
            self.failed.append,
        )
        self.logs.load()
        self.log: Log = self.logs.get_or_create(TP, is_new=True, preferred_dir=self.dirs[0])
        self.offloader = Offloader()
        self.cleaner = LogCleaner(self.configs, self.logs, self.offloader)
        self.write(600)

    def write(self, count: int) -> None:
        for number in range(count):
            batch = data_batch(b"%080d" % number, key=b"key-%d" % (number % 5), timestamp_ms=SystemClock().now_ms())
            self.log.append_as_leader(batch, 0)
        self.log.update_high_watermark(self.log.log_end_offset)

    @property
    def is_clean(self) -> bool:
        return self.log.cleaning.first_dirty_offset == self.log.active_segment.base_offset

    def leftovers(self) -> list[Path]:
        return list(self.log.dir.glob("*.cleaned"))

    def cleaned_values(self) -> list[bytes | None]:
        return [value for offset, _, value in pairs_of(self.log) if offset < self.log.active_segment.base_offset]


def run(world: World, scene: Callable[[World], Awaitable[None]]) -> None:
    async def play() -> None:
        world.cleaner.start()
        try:
            await scene(world)
        finally:
            await world.cleaner.stop()
            world.offloader.close()

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(play())
    world.logs.shutdown()


def workers() -> list[str]:
    """Return the cleaner processes that this process started."""
    children = [pid for path in Path("/proc/self/task").glob("*/children") for pid in path.read_text().split()]
    return [pid for pid in children if is_worker(int(pid))]


def test_a_log_is_cleaned_and_noted(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def scene(world: World) -> None:
        await until(lambda: world.is_clean)
        run_due(world.logs)
        text = (world.dirs[0] / CLEANER_OFFSET_CHECKPOINT).read_text()
        assert text.splitlines() == ["0", "1", f"t 0 {world.log.active_segment.base_offset}"]
        assert len(set(world.cleaned_values())) == len(world.cleaned_values()) == 5
        assert world.cleaner.last_stats[0].messages_written == 5

    run(world, scene)
    again = LogManager(world.logs.config, lambda _: COMPACTED, SystemClock(), world.failed.append)
    again.load()
    assert again.logs[TP].cleaning.first_dirty_offset == world.log.cleaning.first_dirty_offset
    again.delete(TP)
    run_due(again)
    assert "t 0" not in (world.dirs[0] / CLEANER_OFFSET_CHECKPOINT).read_text()
    again.shutdown()


def test_nothing_runs_when_it_is_switched_off(tmp_path: Path) -> None:
    world = World(tmp_path, log_cleaner_enable="false")

    async def scene(world: World) -> None:
        assert len(asyncio.all_tasks()) == 1

    run(world, scene)
    assert world.log.cleaning.first_dirty_offset is None


def test_a_process_without_work_is_ended(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(log_cleaning, "IDLE_MS_MAX", 50)
    world = World(tmp_path)

    async def scene(world: World) -> None:
        await until(lambda: world.is_clean)
        await until(lambda: not workers())
        world.write(600)
        await until(lambda: world.is_clean)

    run(world, scene)
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


@pytest.mark.parametrize("change", ["truncated", "truncated fully", "no longer compacted", "moving"])
def test_a_cleaning_whose_log_changes_is_called_off(
    tmp_path: Path, change: str, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path, log_cleaner_io_max_bytes_per_second=SLOW)

    async def scene(world: World) -> None:
        await until(lambda: world.log.cleaning.is_in_progress)
        before = pairs_of(world.log)
        if change == "truncated":
            world.log.truncate_to(300)
        elif change == "truncated fully":
            world.log.truncate_fully_and_start_at(1000)
        elif change == "moving":
            create_future_log(world.logs, TP, world.dirs[1])
        else:
            world.logs.update_topic_config("t", LogConfig(segment_bytes=20_000))
        await until(lambda: not world.log.cleaning.is_in_progress)
        assert pairs_of(world.log) == [pair for pair in before if pair[0] < world.log.log_end_offset <= 600]
        assert not world.leftovers()
        assert world.log.cleaning.first_dirty_offset in (None, 0)

    caplog.set_level(logging.INFO)
    run(world, scene)
    assert "Cancelled the cleaning of log t-0" in caplog.text
    assert not [record for record in caplog.records if record.levelno >= logging.WARNING]


def test_a_cleaning_whose_topic_is_made_anew_leaves_the_new_one_alone(tmp_path: Path) -> None:
    """Its process uses the folder's name. What it left there would make a later start throw segments away."""
    world = World(tmp_path, log_cleaner_io_max_bytes_per_second=SLOW, log_cleaner_threads="2")

    async def scene(world: World) -> None:
        old = world.log
        await until(lambda: old.cleaning.is_in_progress)
        world.logs.delete(TP)
        world.log = world.logs.get_or_create(TP, is_new=True, preferred_dir=world.dirs[0])
        world.write(600)
        (world.log.dir / "00000000000000000007.txnindex.cleaned").write_bytes(b"x")
        await until(lambda: not old.cleaning.is_in_progress or world.log.cleaning.is_in_progress)
        assert not old.cleaning.is_in_progress
        assert not (world.log.dir / "00000000000000000007.txnindex.cleaned").exists()
        await until(lambda: world.is_clean)
        assert not world.leftovers()

    run(world, scene)


def test_a_moved_log_keeps_what_was_noted(tmp_path: Path) -> None:
    world = World(tmp_path)

    async def scene(world: World) -> None:
        await until(lambda: world.is_clean)
        noted = world.log.cleaning.first_dirty_offset
        run_due(world.logs)
        future = create_future_log(world.logs, TP, world.dirs[1])
        offset = 0
        while offset < world.log.log_end_offset:
            records = world.log.read(offset, 10**6, limit_offset=world.log.log_end_offset, min_one_batch=True).records
            assert records is not None
            future.append_as_follower(memoryview(bytearray(records.read())))
            offset = future.log_end_offset
        world.log = replace_current_with_future(world.logs, TP)
        run_due(world.logs)
        assert (world.log.log_dir, world.log.cleaning.first_dirty_offset) == (world.dirs[1], noted)
        write_checkpoints(world.logs)
        assert f"t 0 {noted}" in (world.dirs[1] / CLEANER_OFFSET_CHECKPOINT).read_text()
        assert "t 0" not in (world.dirs[0] / CLEANER_OFFSET_CHECKPOINT).read_text()

    run(world, scene)


def test_retention_waits_for_a_cleaning(tmp_path: Path) -> None:
    world = World(tmp_path, log_cleaner_io_max_bytes_per_second=SLOW)

    async def scene(world: World) -> None:
        await until(lambda: world.log.cleaning.is_in_progress)
        world.log.increment_log_start_offset(400)
        assert sum(world.logs.retention_steps()) == 0
        await until(lambda: world.is_clean)

    run(world, scene)
    assert world.log.first_segment_base_offset <= 400


# --- processes that fail


def told(*lines: object) -> tuple[str, ...]:
    """Return a program that prints these lines for any plan."""
    text = "".join(json.dumps(line) + "\n" for line in lines)
    return (sys.executable, "-c", f"import sys\nfor _ in sys.stdin: print({text!r}, end='', flush=True)")


def failed(kind: str, number: int) -> dict[str, object]:
    return {"report": "Failed", "kind": kind, "error_number": number, "message": "said so"}


def test_a_full_disk_is_waited_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)

    async def scene(world: World) -> None:
        with monkeypatch.context() as patch:
            patch.setattr(log_cleaning, "_COMMAND", told(failed("no space", errno.ENOSPC)))
            await until(lambda: caplog.text.count("no room for the cleaned segment") > 1)
        await until(lambda: world.is_clean)

    run(world, scene)
    assert world.failed == []


def test_a_broken_disk_takes_its_dir_offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(log_cleaning, "_COMMAND", told(failed("disk", errno.EIO)))

    async def scene(world: World) -> None:
        await until(lambda: world.failed)
        assert world.failed == [world.dirs[0]]

    run(world, scene)


def test_a_log_that_cannot_be_cleaned_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(log_cleaning, "_COMMAND", told(failed("fault", 0)))

    async def scene(world: World) -> None:
        await until(lambda: world.log.cleaning.is_uncleanable)
        looks: set[float] = set()
        await until(lambda: looks.add(world.cleaner.last_run_s) or len(looks) > 3)

    run(world, scene)
    assert caplog.text.count("Marking its partition (t-0) as uncleanable") == 1


def test_a_log_that_kills_processes_is_left_alone(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    suicide = f"import os, sys\nsys.stdin.readline()\nos.kill(os.getpid(), {int(signal.SIGKILL)})"
    monkeypatch.setattr(log_cleaning, "_COMMAND", (sys.executable, "-c", suicide))

    async def scene(world: World) -> None:
        await until(lambda: world.log.cleaning.is_uncleanable)

    run(world, scene)
    assert caplog.text.count("is gone; nothing is lost: killed by signal 9") == log_cleaning.CRASHES_MAX


def test_a_process_that_cannot_be_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(log_cleaning, "_COMMAND", (str(tmp_path / "nothing"),))

    async def scene(world: World) -> None:
        await until(lambda: "cannot start it" in caplog.text)

    run(world, scene)


def test_rubbish_from_a_process(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    monkeypatch.setattr(log_cleaning, "_COMMAND", (sys.executable, "-c", "print('hello', flush=True); input()"))

    async def scene(world: World) -> None:
        await until(lambda: "cannot talk to it" in caplog.text)

    run(world, scene)


def test_new_settings_hold_at_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    world = World(tmp_path, log_cleaner_io_max_bytes_per_second="100")

    async def scene(world: World) -> None:
        await until(lambda: world.log.cleaning.is_in_progress)
        changes = {"log.cleaner.io.max.bytes.per.second": "1000000000", "log.cleaner.threads": "2"}
        assert world.configs.apply("brokers", "<default>", changes) == []
        await until(lambda: world.is_clean)
        assert world.cleaner.settings.threads == 2

    run(world, scene)
    assert caplog.text.count("Starting the log cleaner") == 2


def test_a_folder_that_cannot_be_synced_fails_its_dir_and_the_others_are_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)

    def fails(path: Path) -> None:
        if path.parent == world.dirs[0]:
            raise OSError(errno.EIO, "Input/output error")

    async def scene(world: World) -> None:
        await until(lambda: world.failed == [world.dirs[0]])
        world.log = world.logs.get_or_create(TopicPartition("t", 1), is_new=True, preferred_dir=world.dirs[1])
        world.write(600)
        await until(lambda: world.is_clean)

    monkeypatch.setattr(log_cleaning, "sync_path", fails)
    run(world, scene)


def fail_for_one_log(world: World, monkeypatch: pytest.MonkeyPatch, where: str) -> None:
    """Make one step of each cleaning of the first log fail in a way that nobody expects."""
    first = world.log
    if where == "begin_flush":
        begin_flush = Log.begin_flush

        def flush_fails(log: Log, *rest: Any, **options: Any) -> object:
            if log is first and not log.cleaning.is_uncleanable:
                raise RuntimeError("a fault of ours")
            return begin_flush(log, *rest, **options)

        monkeypatch.setattr(Log, "begin_flush", flush_fails)
        return
    step: Callable[..., object] = getattr(log_cleaning, where)

    def fails(subject: Log | LogToClean, *rest: object) -> object:
        if (subject if isinstance(subject, Log) else subject.log) is first:
            raise RuntimeError("a fault of ours")
        return step(subject, *rest)

    monkeypatch.setattr(log_cleaning, where, fails)


@pytest.mark.parametrize("where", ["measure", "begin_flush", "CleaningJob"])
def test_a_fault_of_one_log_leaves_the_others_to_be_cleaned(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, where: str
) -> None:
    world = World(tmp_path)
    first = world.log

    async def scene(world: World) -> None:
        await until(lambda: first.cleaning.is_uncleanable)
        world.log = world.logs.get_or_create(TopicPartition("t", 1), is_new=True, preferred_dir=world.dirs[1])
        world.write(600)
        await until(lambda: world.is_clean)

    fail_for_one_log(world, monkeypatch, where)
    run(world, scene)


def test_a_fault_that_concerns_no_log_is_told_and_cleaning_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    world = World(tmp_path)
    choose, faults = log_cleaning.filthiest, ["a fault of ours"]

    def fails_once(candidates: Iterable[LogToClean]) -> LogToClean | None:
        if faults:
            raise RuntimeError(faults.pop())
        return choose(candidates)

    async def scene(world: World) -> None:
        await until(lambda: world.is_clean)

    monkeypatch.setattr(log_cleaning, "filthiest", fails_once)
    run(world, scene)
    assert "Cleaner 0 failed unexpectedly; it continues" in caplog.text
    assert "a fault of ours" in caplog.text
