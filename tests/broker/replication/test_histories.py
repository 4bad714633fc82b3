"""Random histories of elections, cuts, restarts and writes: replicas end up equal, and keep what was committed."""

from __future__ import annotations

import random
from pathlib import Path

import pytest
from replicated_brokers import TP, World, committed_batches, world
from soak import rounds
from virtual_time import in_virtual_time

from engine.broker.replication.settings import ReplicationSettings
from engine.kafka.config.metadata_version import MetadataVersion

HISTORIES = rounds("KLAMM_REPLICATION_HISTORIES", 8)
"""Random histories per protocol version; some hundreds before a release."""


def settings(ibp: MetadataVersion = MetadataVersion.IBP_3_9_IV0) -> ReplicationSettings:
    return ReplicationSettings(0, inter_broker_protocol_version=ibp, replica_lag_time_max_ms=5000)


async def random_history(w: World, rng: random.Random, steps: int) -> dict[int, tuple[int, int]]:
    """Run elections among the ISR, cuts, restarts and records, as a controller and an operator could cause them.

    Return everything that any leader has ever called committed.
    """
    await w.lead(1)
    committed: dict[int, tuple[int, int]] = {}
    for _ in range(steps):
        leader = w.states[TP].leader
        committed |= committed_batches(w, leader)
        match rng.choice(["produce", "produce", "elect", "cut", "heal", "restart"]):
            case "produce":
                for _ in range(rng.randrange(1, 6)):
                    w.produce(leader, b"v" * rng.randrange(1, 400))
            case "elect":
                candidates = [b for b in w.states[TP].isr if b in w.brokers and b != leader]
                if candidates:
                    await w.lead(rng.choice(candidates))
            case "cut":
                w.cut.add(frozenset(rng.sample([1, 2, 3], 2)))
            case "heal":
                w.cut.clear()
            case "restart":
                broker_id = rng.choice([1, 2, 3])
                others = [b for b in w.states[TP].isr if b != broker_id]
                if broker_id == leader and not others:
                    continue
                await w.stop_broker(broker_id, cleanly=rng.random() < 0.5)
                if broker_id == leader:
                    await w.lead(rng.choice(others), isr=others)
                w.start_broker(broker_id)
                await w.lead(w.states[TP].leader)
        await w.let_pass(rng.choice([1, 30, 300, 8000]))
    return committed


@pytest.mark.parametrize("ibp", [MetadataVersion.IBP_2_6_IV0, MetadataVersion.IBP_3_9_IV0], ids=str)
@pytest.mark.parametrize("seed", range(HISTORIES))
@in_virtual_time
async def test_replicas_are_equal_after_any_history_and_keep_what_was_committed(
    tmp_path: Path, seed: int, ibp: MetadataVersion
) -> None:
    async with world(tmp_path, 1, 2, 3, settings=settings(ibp)) as w:
        rng = random.Random(seed)
        committed = await random_history(w, rng, 30)
        w.cut.clear()
        await w.lead(w.states[TP].leader)
        w.produce(w.states[TP].leader, b"last")
        await w.until(lambda: len(w.states[TP].isr) == 3, "the ISR is full")
        await w.until_equal(1, 2, 3)
        assert w.log_bytes(1) == w.log_bytes(2) == w.log_bytes(3)
        assert all(not b.replica_manager.fetchers.failed for b in w.brokers.values())
        assert committed
        assert committed.items() <= committed_batches(w, 1).items()
