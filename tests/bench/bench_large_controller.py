"""A broker of ours controls 200,000 partitions × 3 on 100 brokers: the longest hold of its event loop.

ZooKeeper and the controller are real. The other brokers are registrations whose address accepts every request at once,
so the controller does all its own work and waits for nobody. ``KLAMM_BENCH_PARTITIONS`` makes it smaller, and
``KLAMM_BENCH_TOPIC_PARTITIONS`` (100) says how many a topic has.

Wall-clock figures hold only on a quiet machine. CPU is that of the loop's thread between two probes.
"""

from __future__ import annotations

import asyncio
import logging
import os
import struct
import sys
import time
from collections.abc import Awaitable, Callable, Iterable
from pathlib import Path

from bench_controller import take_held_ms

from engine.common.model import (
    BrokerInfo,
    Endpoint,
    LeaderAndIsr,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from engine.common.topic_id import random_topic_id
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.leader_and_isr import LeaderAndIsrResponse
from engine.kafka.protocol.apis.stop_replica import StopReplicaResponse
from engine.kafka.protocol.apis.update_metadata import UpdateMetadataResponse
from engine.kafka.protocol.frames import encode_response
from engine.kafka.zk.brokers import BrokerIdZNode, BrokerRegistration
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.controller import ControllerZNode
from engine.kafka.zk.operations import Create
from engine.kafka.zk.topics import TopicPartitionStateZNode, TopicZNode
from engine.local.cluster import LocalCluster
from engine.local.local_broker import LocalBroker

PARTITIONS = int(os.environ.get("KLAMM_BENCH_PARTITIONS", "200000"))
TOPIC_PARTITIONS = int(os.environ.get("KLAMM_BENCH_TOPIC_PARTITIONS", "100"))
BROKERS = range(1, 101)
LOST = 7
TOPICS_AT_ONCE = 50
PATIENCE_S = 1800.0
READY = "Ready to serve as the new controller"


def replicas_of(topic: int, partition: int) -> tuple[int, ...]:
    """Return three of the brokers that only listen."""
    return tuple(BROKERS[(topic + partition + i) % len(BROKERS)] for i in range(3))


def znodes_of(topic: int) -> list[Create]:
    """Return the znodes of one topic, parents first."""
    name = f"t{topic}"
    assignment = {p: replicas_of(topic, p) for p in range(TOPIC_PARTITIONS)}
    root = TopicZNode.path(name)
    text = TopicZNode.encode(random_topic_id(), {p: ReplicaAssignment(r) for p, r in assignment.items()})
    creates = [Create(root, text), Create(f"{root}/partitions", None)]
    for p, replicas in assignment.items():
        state = LeaderIsrAndControllerEpoch(LeaderAndIsr(replicas[0], 0, replicas), 1)
        path = TopicPartitionStateZNode.path(TopicPartition(name, p))
        creates += [Create(path.removesuffix("/state"), None), Create(path, TopicPartitionStateZNode.encode(state))]
    return creates


class LargeCluster:
    """A cluster in which only ZooKeeper and one broker are real."""

    def __init__(self, cluster: LocalCluster, zk: ZkClient, port: int) -> None:
        self._cluster = cluster
        self._zk = zk
        self._port = port

    @property
    def _broker(self) -> LocalBroker:
        return self._cluster.broker(0)

    async def fill(self) -> None:
        topics = range(PARTITIONS // TOPIC_PARTITIONS)
        for start in range(0, len(topics), TOPICS_AT_ONCE):
            await self._zk.multi_many([znodes_of(topic) for topic in topics[start : start + TOPICS_AT_ONCE]])
        for broker_id in BROKERS:
            await self.register(broker_id)

    async def register(self, broker_id: int) -> None:
        endpoint = Endpoint(self._cluster.host, self._port, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
        registration = BrokerRegistration(BrokerInfo(broker_id, (endpoint,)), timestamp_ms=0)
        await self._zk.create(BrokerIdZNode.path(broker_id), BrokerIdZNode.encode(registration))

    async def take_over(self) -> None:
        """Elect the broker again: it forgets everything and reads it all again."""
        before = self._log().count(READY)
        await self._zk.delete(ControllerZNode.path)
        await self._until(lambda: self._log().count(READY) > before)

    async def lose(self) -> None:
        await self._zk.delete(BrokerIdZNode.path(LOST))
        await self._until_led(away=True)

    async def come_back(self) -> None:
        await self.register(LOST)
        await self._until_quiet()

    async def _until_led(self, *, away: bool) -> None:
        """Wait until another broker leads the last partition that this broker led, and then until it is quiet."""
        topic, partition = next(
            (t, p)
            for t in reversed(range(PARTITIONS // TOPIC_PARTITIONS))
            for p in range(TOPIC_PARTITIONS)
            if replicas_of(t, p)[0] == LOST
        )
        path = TopicPartitionStateZNode.path(TopicPartition(f"t{topic}", partition))
        async with asyncio.timeout(PATIENCE_S):
            while (f'"leader":{LOST},' not in (await self._zk.get(path))[0].decode()) is not away:
                await asyncio.sleep(0.05)
        await self._until_quiet()

    async def _until_quiet(self) -> None:
        """Wait until the broker uses next to no CPU."""
        async with asyncio.timeout(PATIENCE_S):
            used, quiet = self._cpu_s(), 0
            while quiet < 3:
                await asyncio.sleep(0.5)
                now = self._cpu_s()
                quiet = quiet + 1 if now - used < 0.1 else 0
                used = now

    def _cpu_s(self) -> float:
        fields = Path(f"/proc/{self._broker.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")

    async def _until(self, is_so: Callable[[], bool]) -> None:
        async with asyncio.timeout(PATIENCE_S):
            while not is_so():
                await asyncio.sleep(0.1)
        await self._until_quiet()

    def _log(self) -> str:
        return "".join(path.read_text() for path in sorted(self._broker.logs_path.glob("controller.log*")))

    async def row(self, name: str, work: Callable[[], Awaitable[None]]) -> None:
        await take_held_ms(self._broker)
        started_s, used_s = time.monotonic(), self._cpu_s()
        await work()
        taken_s, used_s = time.monotonic() - started_s, self._cpu_s() - used_s
        wall_ms, cpu_ms = await take_held_ms(self._broker)
        print(f"{name:34} {taken_s:7.1f} {used_s:7.1f} {wall_ms:9.0f} {cpu_ms:9.0f}", flush=True)


async def _answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Act as a broker that accepts everything at once, and does nothing."""
    try:
        while True:
            (size,) = struct.unpack(">i", await reader.readexactly(4))
            key, version, correlation_id = struct.unpack(">hhi", (await reader.readexactly(size))[:8])
            writer.write(encode_response(_AGREED[ApiKey(key)], ApiKey(key), version, correlation_id))
    except (asyncio.CancelledError, asyncio.IncompleteReadError, OSError) as error:
        # asyncio prints a traceback for each of those that are still cancelled when the program ends.
        logging.getLogger(__name__).debug("A connection of the controller ended: %s", error)
    finally:
        writer.close()


_AGREED = {
    ApiKey.LEADER_AND_ISR: LeaderAndIsrResponse(),
    ApiKey.STOP_REPLICA: StopReplicaResponse(),
    ApiKey.UPDATE_METADATA: UpdateMetadataResponse(),
}


async def _run(cluster: LocalCluster) -> None:
    listening = await asyncio.start_server(_answer, cluster.host, 0, limit=64_000_000)
    zk = await ZkClient.connect(
        cluster.zookeeper_connect, session_timeout_ms=60_000, connection_timeout_ms=6000, client_name="bench"
    )
    try:
        large = LargeCluster(cluster, zk, listening.sockets[0].getsockname()[1])
        cluster.broker(0).kill()
        began_s = time.monotonic()
        await large.fill()
        print(f"{PARTITIONS:,} partitions × 3 on {len(BROKERS)} brokers, {TOPIC_PARTITIONS} a topic", end="")
        print(f" (in ZooKeeper after {time.monotonic() - began_s:.0f} s)")
        print(f"{'':34} {'s':>7} {'CPU s':>7} {'held ms':>9} {'CPU ms':>9}", flush=True)
        await asyncio.to_thread(cluster.start_broker, 0)
        for name, work in _phases(large):
            await large.row(name, work)
    finally:
        await zk.close()
        listening.close()


def _phases(large: LargeCluster) -> Iterable[tuple[str, Callable[[], Awaitable[None]]]]:
    return (
        ("a take-over of all of it", large.take_over),
        ("a broker lost, all led", large.lose),
        ("it is back", large.come_back),
        ("another take-over", large.take_over),
    )


def main() -> None:
    command = (sys.executable, str(Path(__file__).with_name("gauged_broker.py")))
    settings = {"auto.leader.rebalance.enable": "false", "zookeeper.session.timeout.ms": "30000"}
    with LocalCluster(1, config=settings, commands={0: command}, start_timeout_s=PATIENCE_S) as cluster:
        asyncio.run(_run(cluster))


if __name__ == "__main__":
    main()
