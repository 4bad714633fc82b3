"""Three replicas whose disks forget: what was committed with ``flush.messages=1`` survives any power failure.

The brokers' disks are ``forgetful_disk``s. The histories are random as in ``test_histories.py``. A broker that goes
down loses what it had not synced, and sometimes all three go down at once.
"""

from __future__ import annotations

import contextlib
import random
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from forgetful_disk import KILLED, MIXED, STRICT, Disk, write_image
from log_folders import run_due, write_checkpoints
from replicated_brokers import TP, World, committed_batches, world
from soak import rounds
from virtual_time import in_virtual_time

from engine.broker.replication.settings import ReplicationSettings
from engine.kafka.config.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=2000, index_interval_bytes=64, segment_index_bytes=480, flush_messages=1)
SETTINGS = ReplicationSettings(0, replica_lag_time_max_ms=5000)
BROKERS = (1, 2, 3)


class Disks:
    """The disk of each broker."""

    def __init__(self, folder: Path, rng: random.Random) -> None:
        self._folder = folder
        self._rng = rng
        self._disks: dict[int, Disk] = {}
        self._watching: dict[int, contextlib.ExitStack] = {}
        for broker_id in BROKERS:
            self._watch(broker_id)

    def _path(self, broker_id: int) -> Path:
        return self._folder / f"broker-{broker_id}-0"

    def _watch(self, broker_id: int) -> None:
        self._disks[broker_id] = Disk(self._path(broker_id))

    @contextlib.contextmanager
    def watched(self) -> Iterator[None]:
        """Route the calls of all brokers through their disks, until a broker goes down."""
        with contextlib.ExitStack() as stack:
            for disk in self._disks.values():
                stack.enter_context(disk.watched())
            yield

    def fail(self, broker_id: int, crash: str) -> None:
        """Leave on a broker's disk what a crash leaves."""
        image = self._disks[broker_id].image(crash, self._rng)
        shutil.rmtree(self._path(broker_id))
        write_image(image, self._path(broker_id))
        self._watch(broker_id)


async def down(w: World, disks: Disks, broker_ids: list[int], crash: str) -> None:
    for broker_id in broker_ids:
        await w.stop_broker(broker_id, cleanly=False)
        disks.fail(broker_id, crash)


async def history(w: World, disks: Disks, rng: random.Random, crash: str, steps: int) -> dict[int, tuple[int, int]]:
    """Return everything that any leader has ever called committed."""
    await w.lead(1)
    committed: dict[int, tuple[int, int]] = {}
    for _ in range(steps):
        leader = w.states[TP].leader
        fallen: list[int] = []
        with disks.watched():
            for _ in range(rng.randrange(4)):
                w.produce(leader, b"v" * rng.randrange(1, 300))
                await flush(w, leader)
                await w.let_pass(rng.choice([0, 1, 30]))
            await w.let_pass(rng.choice([1, 30, 300, 8000]))
            committed |= committed_batches(w, leader)
            match rng.choice(["go on", "elect", "cut", "heal", "one down", "all down", "upkeep"]):
                case "elect":
                    others = [b for b in w.states[TP].isr if b != leader]
                    if others:
                        await w.lead(rng.choice(others))
                case "cut":
                    w.cut.add(frozenset(rng.sample(BROKERS, 2)))
                case "heal":
                    w.cut.clear()
                case "upkeep":
                    logs = w.brokers[rng.choice(BROKERS)].log_manager
                    run_due(logs)
                    write_checkpoints(logs)
                case "one down":
                    fallen = [rng.choice(BROKERS)]
                case "all down":
                    fallen = list(BROKERS)
        if fallen and (len(fallen) == 3 or set(fallen) != set(w.states[TP].isr)):
            isr = w.states[TP].isr
            await down(w, disks, fallen, crash)
            with disks.watched():
                if fallen == [leader]:
                    alive = [b for b in isr if b != leader]
                    await w.lead(rng.choice(alive), isr=alive)
                for broker_id in fallen:
                    w.start_broker(broker_id)
                await w.lead(w.states[TP].leader)
    return committed


async def flush(w: World, leader: int) -> None:
    """Wait for the disk as a producer's answer does."""
    log = w.log(leader)
    await w.brokers[leader].replica_manager.flushes.flush(log)


@pytest.mark.parametrize("crash", [KILLED, STRICT, MIXED])
@pytest.mark.parametrize("seed", range(rounds("KLAMM_POWER_FAILURES", 4)))
@in_virtual_time
async def test_what_was_committed_survives_power_failures(tmp_path: Path, seed: int, crash: str) -> None:
    async with world(tmp_path, *BROKERS, settings=SETTINGS, log_config=CONFIG) as w:
        rng = random.Random(seed)
        committed = await history(w, Disks(tmp_path, rng), rng, crash, 25)
        w.cut.clear()
        await w.lead(w.states[TP].leader)
        w.produce(w.states[TP].leader, b"last")
        await flush(w, w.states[TP].leader)
        await w.until(lambda: len(w.states[TP].isr) == 3, "the ISR is full")
        await w.until_equal(*BROKERS)
        assert w.log_bytes(1) == w.log_bytes(2) == w.log_bytes(3)
        assert committed
        assert committed.items() <= committed_batches(w, 1).items()
