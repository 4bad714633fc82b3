"""Three brokers of ours, one topic with many partitions: creation, loss of a broker, return, deletion, idling.

``PARTITIONS`` (1,000) and ``IDLE_S`` (20) may be set in the environment. Each phase reports the time until every live
broker's Metadata shows the change, the longest hold of each broker's event loop (wall clock; CPU of its thread), and
the CPU that each broker used. The time of a lost broker counts from the end of its session.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from engine.kafka.client.broker_client import BrokerClient
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic, MetadataResponseTopic
from engine.kafka.zk.client import ZkClient
from engine.local.cluster import LocalCluster
from engine.local.local_broker import LocalBroker

PARTITIONS = int(os.environ.get("PARTITIONS", "1000"))
IDLE_S = float(os.environ.get("IDLE_S", "20"))
TOPIC = "large"
DEADLINE_S = 60.0
POLL_S = 0.05
SETTINGS = {
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "zookeeper.session.timeout.ms": "6000",
    "offsets.topic.replication.factor": "3",
}

IsSo = Callable[[MetadataResponseTopic], bool]


def cpu_s(broker: LocalBroker) -> float:
    """Return the CPU seconds a broker process has used."""
    fields = Path(f"/proc/{broker.pid}/stat").read_text("ascii").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def take_held_ms(broker: LocalBroker) -> tuple[float, float]:
    """Return the longest hold of a broker's loop since the last call: wall clock, CPU."""
    answer = broker.spec.directory / "loop-held.json"
    answer.unlink(missing_ok=True)
    os.kill(broker.pid or 0, signal.SIGUSR1)
    async with asyncio.timeout(DEADLINE_S):
        while not answer.exists():
            await asyncio.sleep(0.01)
    held = json.loads(answer.read_text("utf-8"))
    return held["wall_ms"], held["cpu_ms"]


async def describe(client: BrokerClient) -> MetadataResponseTopic:
    request = MetadataRequest(topics=[MetadataRequestTopic(name=TOPIC)], allow_auto_topic_creation=False)
    return (await client.call(request)).topics[0]


def is_led_by(ids: Iterable[int], isr_size: int) -> IsSo:
    alive = set(ids)

    def is_so(topic: MetadataResponseTopic) -> bool:
        return len(topic.partitions) == PARTITIONS and all(
            p.leader_id in alive and len(p.isr_nodes) >= isr_size for p in topic.partitions
        )

    return is_so


def is_gone(topic: MetadataResponseTopic) -> bool:
    return not topic.partitions


class Phases:
    """Runs the phases against one cluster and prints a row for each."""

    def __init__(self, cluster: LocalCluster, zookeeper: ZkClient) -> None:
        self._cluster = cluster
        self._zookeeper = zookeeper
        self._clients: dict[int, BrokerClient] = {}
        self._controller = cluster.controller_id() or 0
        self._lost = max(set(cluster.broker_ids) - {self._controller})

    @property
    def controller(self) -> int:
        """The controller's broker id. The lost broker is another one."""
        return self._controller

    @property
    def _living(self) -> list[LocalBroker]:
        return [broker for broker in self._cluster.brokers.values() if broker.is_alive]

    def client(self, broker_id: int) -> BrokerClient:
        spec = self._cluster.broker(broker_id).spec
        if broker_id not in self._clients:
            self._clients[broker_id] = BrokerClient(spec.host, spec.port, client_id="bench", request_timeout_ms=120_000)
        return self._clients[broker_id]

    async def until_all_show(self, is_so: IsSo) -> None:
        deadline_s = time.monotonic() + DEADLINE_S
        for broker in self._living:
            while not is_so(result := await describe(self.client(broker.id))):
                if time.monotonic() > deadline_s:
                    isr_sizes = [len(p.isr_nodes) for p in result.partitions]
                    raise RuntimeError(
                        f"broker {broker.id}: error {result.error_code}, ISR sizes {sorted(isr_sizes)[:5]}…"
                    )
                await asyncio.sleep(POLL_S)

    async def row(self, name: str, work: Callable[[], object]) -> None:
        """Run one phase; ``work`` is awaited and may return the moment from which the time counts."""
        for broker in self._living:
            await take_held_ms(broker)
        before = {broker.id: cpu_s(broker) for broker in self._living}
        started_s = time.monotonic()
        counts_from_s = await work()  # type: ignore[misc]
        taken_s = time.monotonic() - (counts_from_s or started_s)
        cells = []
        for broker in self._living:
            wall_ms, cpu_ms = await take_held_ms(broker)
            used_s = cpu_s(broker) - before.get(broker.id, 0.0)
            cells.append(f"{wall_ms:5.0f} /{cpu_ms:5.0f} {used_s:6.2f}")
        print(f"{name:34} {taken_s:7.2f}  " + "   ".join(cells), flush=True)

    async def create(self) -> None:
        topic = CreatableTopic(name=TOPIC, num_partitions=PARTITIONS, replication_factor=3)
        answer = await self.client(self._controller).call(CreateTopicsRequest(topics=[topic]))
        if answer.topics[0].error_code:
            raise RuntimeError(f"not created: error {answer.topics[0].error_code}")
        await self.until_all_show(is_led_by(self._cluster.broker_ids, 3))

    async def ask_repeatedly(self) -> None:
        for _ in range(10):
            await self.client(0).call(MetadataRequest(topics=None))

    async def kill(self) -> float:
        self._cluster.kill_broker(self._lost)
        async with asyncio.timeout(DEADLINE_S):
            while await self._zookeeper.exists(f"/brokers/ids/{self._lost}") is not None:
                await asyncio.sleep(0.01)
        ended_s = time.monotonic()
        await self.until_all_show(is_led_by((each.id for each in self._living), 1))
        return ended_s

    async def come_back(self) -> None:
        client = self._clients.pop(self._lost, None)
        if client is not None:
            await client.close()
        await asyncio.to_thread(self._cluster.start_broker, self._lost)
        await self.until_all_show(is_led_by(self._cluster.broker_ids, 3))

    async def delete(self) -> None:
        await self.client(self._controller).call(DeleteTopicsRequest(topic_names=[TOPIC]), version_max=5)
        await self.until_all_show(is_gone)
        async with asyncio.timeout(DEADLINE_S):
            while await self._zookeeper.exists(f"/admin/delete_topics/{TOPIC}") is not None:
                await asyncio.sleep(0.01)

    async def idle(self) -> None:
        """Report the CPU of brokers that get no requests, without the gauge."""
        for broker in self._living:
            (broker.spec.directory / "idle").touch()
        await asyncio.sleep(5)
        before = {broker.id: cpu_s(broker) for broker in self._living}
        await asyncio.sleep(IDLE_S)
        shares = [f"{(cpu_s(broker) - before[broker.id]) / IDLE_S:.1%}" for broker in self._living]
        print(f"idle with {PARTITIONS} replicas each, of a core: {', '.join(shares)}", flush=True)

    async def close(self) -> None:
        for client in self._clients.values():
            await client.close()


async def _run(cluster: LocalCluster) -> None:
    zookeeper = await ZkClient.connect(
        cluster.zookeeper_connect, session_timeout_ms=6000, connection_timeout_ms=6000, client_name="bench"
    )
    phases = Phases(cluster, zookeeper)
    try:
        print(f"{PARTITIONS} partitions x 3, controller {phases.controller}")
        print(f"{'':34} {'s':>7}  per broker: loop held in ms by clock / CPU, CPU seconds")
        await phases.row("created, all led, ISR full", phases.create)
        await phases.row("10 x Metadata of all topics", phases.ask_repeatedly)
        await phases.row("a broker lost, all led", phases.kill)
        await phases.row("it is back, ISR full", phases.come_back)
        await phases.row("deleted", phases.delete)
        await phases.row("created again", phases.create)
        await phases.idle()
    finally:
        await phases.close()
        await zookeeper.close()


def main() -> None:
    command = (sys.executable, str(Path(__file__).with_name("gauged_broker.py")))
    with LocalCluster(3, config=SETTINGS, commands=dict.fromkeys(range(3), command)) as cluster:
        asyncio.run(_run(cluster))


if __name__ == "__main__":
    main()
