"""What a fetch round of a follower costs: CPU of leader and follower together, with their codecs, in one process.

One fetcher follows ``KLAMM_BENCH_PARTITIONS`` (10,000) partitions of one leader, all in sync. An idle round waits until
its time-out and has nothing to report. Before a busy round the given number of partitions get a record.
"""

from __future__ import annotations

import asyncio
import os
import tempfile
import time
from pathlib import Path

from log_folders import data_batch
from replicated_brokers import World
from tabulate import tabulate

from engine.broker.replication.leader_and_isr_change import become_leader_or_follower
from engine.broker.replication.settings import ReplicationSettings
from engine.common.model import LeaderAndIsr, TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.protocol.apis.leader_and_isr import (
    LeaderAndIsrPartitionState,
    LeaderAndIsrRequest,
    LeaderAndIsrTopicState,
)

PARTITIONS = int(os.environ.get("KLAMM_BENCH_PARTITIONS", "10000"))
WAIT_MS = 50
ROUNDS = 60


async def lead_all(world: World) -> list[TopicPartition]:
    """Let broker 1 lead and broker 2 follow every partition."""
    names = [TopicPartition("orders", index) for index in range(PARTITIONS)]
    for name in names:
        world.states[name] = LeaderAndIsr(1, 0, (1, 2), partition_epoch=0)
        world.replicas[name] = (1, 2)
    states = [
        LeaderAndIsrPartitionState(
            partition_index=name.partition,
            controller_epoch=1,
            leader=1,
            leader_epoch=0,
            isr=[1, 2],
            partition_epoch=0,
            replicas=[1, 2],
            is_new=True,
        )
        for name in names
    ]
    topic = LeaderAndIsrTopicState(topic_name="orders", topic_id=world.topic_id, partition_states=states)
    for broker in world.brokers.values():
        manager = broker.replica_manager
        manager.update_metadata(world.update_metadata(), correlation_id=1)
        request = LeaderAndIsrRequest(controller_id=1, controller_epoch=1, topic_states=[topic])
        await become_leader_or_follower(manager, request, correlation_id=2, api_version=7)
    return names


async def cpu_ms(world: World, names: list[TopicPartition], busy: int) -> float:
    """Return the CPU of a round in which this many partitions have news."""
    (fetcher,) = world.brokers[2].replica_manager.fetchers.fetchers
    spent_s, at = 0.0, 0
    for _ in range(ROUNDS):
        for _ in range(busy):
            world.partition(1, names[at % PARTITIONS]).append_records_to_leader(data_batch(b"v" * 100), 1)
            at += 7
        before, rounds = time.process_time(), fetcher.requests_total
        await world.until(lambda rounds=rounds: fetcher.requests_total > rounds, "a round")  # type: ignore[misc]
        spent_s += (time.process_time() - before) / (fetcher.requests_total - rounds)
    return spent_s * 1000 / ROUNDS


async def measure(folder: Path) -> list[list[object]]:
    settings = ReplicationSettings(0, replica_lag_time_max_ms=30_000, replica_fetch_wait_max_ms=WAIT_MS)
    world = World(folder, (1, 2), settings=settings, log_config=LogConfig())
    try:
        names = await lead_all(world)
        manager = world.brokers[2].replica_manager
        await world.until(lambda: len(manager.fetchers.lags()) == PARTITIONS, "all are fetched", 300)
        await world.let_pass(WAIT_MS * 10)
        rows = []
        for busy in (0, 10, 1000):
            rows.append([f"{busy:,} of {PARTITIONS:,} partitions", f"{await cpu_ms(world, names, busy):.1f}"])
        return rows
    finally:
        await world.stop()


def main() -> None:
    with tempfile.TemporaryDirectory(prefix="klamm-bench-") as folder:
        print(tabulate(asyncio.run(measure(Path(folder))), ("with news", "CPU, ms"), disable_numparse=True))


if __name__ == "__main__":
    main()
