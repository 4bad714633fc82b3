"""A cluster of real broker processes whose inter-broker lines can be cut, and conditions to wait for."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from types import TracebackType
from typing import Any, TypeVar

from broker_logs import whole_log
from certificates import Authority
from cut_proxy import CutProxies
from guest_cluster import GuestCluster
from patience import within

from engine.common.errors import CoordinationError, KlammError
from engine.common.model import LeaderIsrAndControllerEpoch, ReplicaAssignment, TopicPartition
from engine.kafka.zk.client import ZkClient
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.local.addresses import own_loopback_address
from engine.local.cluster import LocalCluster
from engine.local.local_broker import LocalBroker
from engine.local.zookeeper import EmbeddedZooKeeper

SESSION_MS = 2_000
LAG_MS = 2_000
_CLIENT_PORT, _INTERNAL_PORT, _PROXY_PORT, _SECURED_PORT = 9092, 9192, 9292, 9392
_USER, _PASSWORD = "writer", "writer-secret"
_LOGIN = "org.apache.kafka.common.security.plain.PlainLoginModule required"
_POLL_S = 0.05
_ANSWER_S = 10.0

SETTINGS = {
    "zookeeper.session.timeout.ms": str(SESSION_MS),
    "zookeeper.connection.timeout.ms": "15000",
    "replica.lag.time.max.ms": str(LAG_MS),
    "replica.socket.timeout.ms": "5000",
    "controller.socket.timeout.ms": "5000",
    "request.timeout.ms": "5000",
    "controlled.shutdown.retry.backoff.ms": "300",
    "min.insync.replicas": "2",
    "default.replication.factor": "3",
    "auto.create.topics.enable": "false",
    "auto.leader.rebalance.enable": "false",
    "log.segment.delete.delay.ms": "500",
    "offsets.topic.num.partitions": "4",
    # Index files have their full size from the first record on. A limit on file sizes simulates a full disk.
    "log.index.size.max.bytes": "65536",
}

T = TypeVar("T")
States = dict[TopicPartition, LeaderIsrAndControllerEpoch]


class FaultCluster:
    """Three or more brokers, with a proxy in front of each for the other brokers. Use it as a context manager.

    With ``secure`` brokers talk to each other over SASL_SSL, and ``clients`` use another such listener. What a test
    itself asks still goes over PLAINTEXT. No line can be cut then: the proxies could not read who connects.

    A test that leaves ZooKeeper alone gives the one of its process. Without ``zookeeper`` the cluster has its own.
    """

    def __init__(
        self,
        directory: Path,
        brokers: int = 3,
        *,
        config: Mapping[str, str] | None = None,
        log_dir_count: int = 1,
        commands: Mapping[int, Sequence[str]] | None = None,
        secure: bool = False,
        zookeeper: EmbeddedZooKeeper | None = None,
    ) -> None:
        self.host = own_loopback_address()
        self.proxies = CutProxies()
        self.has_full_disk = False
        ids = range(brokers)
        own = {
            broker_id: {
                "listeners": f"CLIENT://{self.host}:{_CLIENT_PORT + broker_id},"
                f"INTERNAL://{self.host}:{_INTERNAL_PORT + broker_id}",
                "advertised.listeners": f"CLIENT://{self.host}:{_CLIENT_PORT + broker_id},"
                f"INTERNAL://{self.host}:{_PROXY_PORT + broker_id}",
                "listener.security.protocol.map": "CLIENT:PLAINTEXT,INTERNAL:PLAINTEXT",
                "inter.broker.listener.name": "INTERNAL",
            }
            for broker_id in ids
        }
        self.clients: dict[str, str] = {}
        """What librdkafka needs beside the addresses."""
        if secure:
            common = self._secure(directory, own)
        kind = LocalCluster if zookeeper is None else partial(GuestCluster, zookeeper)
        self.local = kind(
            brokers,
            directory=directory,
            host=self.host,
            first_broker_port=_CLIENT_PORT,
            config=SETTINGS | (common if secure else {}) | dict(config or {}),
            broker_config=own,
            log_dir_count=log_dir_count,
            commands=commands,
        )

    def __enter__(self) -> FaultCluster:
        self.proxies.__enter__()
        try:
            for broker_id in self.local.broker_ids:
                self.proxies.forward(self.host, _PROXY_PORT + broker_id, _INTERNAL_PORT + broker_id, broker_id)
            self.local.start()
        except BaseException:
            self.proxies.__exit__()
            raise
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.proxies.mend_all()
        for broker in self.local.brokers.values():
            # The test has seen what it wanted of their end: nothing here waits for a controlled shutdown.
            broker.kill()
        self.local.stop()
        self.proxies.__exit__()
        is_readable = error is None and not self.clients
        assert not (is_readable and self.proxies.strangers), f"no line of {self.proxies.strangers} is ever cut"

    def _secure(self, directory: Path, own: Mapping[int, dict[str, str]]) -> dict[str, str]:
        """Give each broker's own settings a listener for clients; return what all brokers need for SASL_SSL."""
        directory.mkdir(parents=True, exist_ok=True)
        authority = Authority()
        trusted = directory / "ca.pem"
        trusted.write_text(authority.pem)
        for broker_id, settings in own.items():
            settings["listeners"] += f",SECURED://{self.host}:{_SECURED_PORT + broker_id}"
            settings["advertised.listeners"] = settings["listeners"]
            settings["listener.security.protocol.map"] = "CLIENT:PLAINTEXT,SECURED:SASL_SSL,INTERNAL:SASL_SSL"
        self.clients = {
            "security.protocol": "SASL_SSL",
            "ssl.ca.location": str(trusted),
            "sasl.mechanism": "PLAIN",
            "sasl.username": _USER,
            "sasl.password": _PASSWORD,
        }
        users = f'username="broker" password="broker-secret" user_broker="broker-secret" user_{_USER}="{_PASSWORD}"'
        return {
            "ssl.keystore.type": "PEM",
            "ssl.keystore.location": str(authority.sign("broker", [self.host]).write_pem(directory / "broker.pem")),
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": str(trusted),
            "sasl.enabled.mechanisms": "PLAIN",
            "sasl.mechanism.inter.broker.protocol": "PLAIN",
            "listener.name.internal.plain.sasl.jaas.config": f"{_LOGIN} {users};",
            "listener.name.secured.plain.sasl.jaas.config": f"{_LOGIN} {users};",
        }

    @property
    def bootstrap(self) -> str:
        return self.local.bootstrap_servers

    @property
    def bootstrap_of_clients(self) -> str:
        """The addresses of the listener that ``clients`` use."""
        if not self.clients:
            return self.bootstrap
        return ",".join(f"{self.host}:{_SECURED_PORT + broker_id}" for broker_id in self.local.broker_ids)

    def broker(self, broker_id: int) -> LocalBroker:
        return self.local.broker(broker_id)

    @property
    def running(self) -> list[int]:
        """Ids of the brokers that run and are not paused."""
        return [b.id for b in self.local.brokers.values() if b.is_alive and not b.is_paused]

    @property
    def is_zookeeper_frozen(self) -> bool:
        process = self.local.zookeeper.process
        if process is None:
            return False
        return "T (stopped)" in Path(f"/proc/{process.pid}/status").read_text("utf-8")

    @property
    def is_zookeeper_serving(self) -> bool:
        return self.local.zookeeper.is_running and not self.is_zookeeper_frozen

    # -- what ZooKeeper says

    def zk(self, ask: Callable[[KafkaZkClient], Any]) -> Any:
        """Run one call of a KafkaZkClient and return its result."""

        async def run() -> Any:
            client = await ZkClient.connect(self.local.zookeeper_connect, session_timeout_ms=10_000, client_name="test")
            try:
                return await ask(KafkaZkClient(client))
            finally:
                await client.close()

        return asyncio.run(run())

    def assignments(self, topics: Iterable[str]) -> dict[TopicPartition, ReplicaAssignment]:
        """Return the topics' assignments from ZooKeeper."""
        names = list(topics)
        assignments: dict[TopicPartition, ReplicaAssignment] = self.zk(lambda zk: _assignments(zk, names))
        return assignments

    def states(self, topics: Iterable[str]) -> States:
        """Return leader and ISR of all partitions of the topics, from ZooKeeper."""
        names = list(topics)

        async def look(zk: KafkaZkClient) -> States:
            return await _states(zk, await _assignments(zk, names))

        states: States = self.zk(look)
        return states

    def controller_id(self) -> int | None:
        """Return the id of the controller, from ZooKeeper."""
        broker_id: int | None = self.zk(lambda zk: zk.controller.get_controller_id())
        return broker_id

    def leftovers(self) -> list[str]:
        """Return the znodes that should be gone in a quiet cluster."""

        async def look(zk: KafkaZkClient) -> list[str]:
            states = []
            for parent in ("/admin", "/admin/delete_topics", "/isr_change_notification", "/log_dir_event_notification"):
                states += [f"{parent}/{name}" for name in await zk.client.children(parent)]
            return [path for path in states if path != "/admin/delete_topics"]

        left: list[str] = self.zk(look)
        return left

    # -- waiting

    def wait_for(self, what: str, look: Callable[[], T], *, timeout_s: float = 60.0) -> T:
        """Call ``look`` until it returns something true, and return that.

        Raises:
            AssertionError: the time is up; the message names the last value that was seen.
        """
        is_in_time = within(timeout_s)
        while True:
            try:
                seen: object = look()
                if seen:
                    return seen  # type: ignore[return-value]
            except (KlammError, CoordinationError, OSError) as error:
                seen = error
            assert is_in_time(), f"{what}: not within {timeout_s:.0f} s; last seen: {seen}"
            time.sleep(_POLL_S)

    def wait_led(self, topics: Iterable[str], *, without: int, timeout_s: float = 60.0) -> float:
        """Wait until every partition has a leader and no ISR has the broker; return how many seconds it took."""
        names = list(topics)

        async def look(zk: KafkaZkClient) -> list[str]:
            states = await _states(zk, await _assignments(zk, names))
            lacking = [f"{p}: {s.leader_and_isr}" for p, s in states.items() if not _is_led_without(s, without)]
            return lacking if states else ["no partitions"]

        return self._wait_until_nothing_lacks(f"leaders and ISRs without broker {without}", look, timeout_s)

    def wait_in_sync(self, topics: Iterable[str], *, timeout_s: float = 60.0) -> float:
        """Wait until every partition has a live leader and a full ISR; return how many seconds it took."""
        names = list(topics)
        return self._wait_until_nothing_lacks("in sync", lambda zk: self._not_in_sync(zk, names), timeout_s)

    def _wait_until_nothing_lacks(
        self, what: str, look: Callable[[KafkaZkClient], Awaitable[list[str]]], timeout_s: float
    ) -> float:
        """Look again and again, with one client as long as ZooKeeper answers; return how many seconds it took."""
        began, is_in_time = time.monotonic(), within(timeout_s)
        lacking = ["nothing was seen"]

        async def watch(zk: KafkaZkClient) -> None:
            nonlocal lacking
            while is_in_time():
                async with asyncio.timeout(_ANSWER_S):
                    lacking = await look(zk)
                if not lacking:
                    return
                await asyncio.sleep(_POLL_S)

        while True:
            try:
                self.zk(watch)
            except (KlammError, CoordinationError, TimeoutError) as error:
                lacking = [str(error) or "ZooKeeper does not answer"]
                time.sleep(_POLL_S)
            if not lacking:
                return time.monotonic() - began
            assert is_in_time(), f"{what}: not within {timeout_s:.0f} s: {lacking}"

    async def _not_in_sync(self, zk: KafkaZkClient, topics: list[str]) -> list[str]:
        wanted = await _assignments(zk, topics)
        states, alive = await _states(zk, wanted), set(self.running)
        lacking = []
        for partition, replicas in wanted.items():
            state = states.get(partition)
            if state is None or state.leader_and_isr.leader not in alive:
                lacking.append(f"{partition} has no leader: {state}")
            elif set(state.leader_and_isr.isr) != set(replicas.replicas) or replicas.is_being_reassigned:
                lacking.append(f"{partition} {replicas} {state.leader_and_isr}")
        return lacking or ([] if wanted else ["no partitions"])

    def server_log(self, broker_id: int, name: str = "server.log") -> str:
        """Return what a broker has logged so far."""
        return whole_log(self.broker(broker_id).logs_path, name)


async def _assignments(zk: KafkaZkClient, topics: list[str]) -> dict[TopicPartition, ReplicaAssignment]:
    found = await zk.topics.get_topic_assignments(topics)
    return {
        TopicPartition(topic, index): replicas
        for topic, assignment in found.items()
        for index, replicas in assignment.assignment.items()
    }


async def _states(zk: KafkaZkClient, partitions: Iterable[TopicPartition]) -> States:
    found = await zk.partitions.get_partition_states(list(partitions))
    return {p: state for p, state in found.items() if isinstance(state, LeaderIsrAndControllerEpoch)}


def _is_led_without(state: LeaderIsrAndControllerEpoch, broker_id: int) -> bool:
    found = state.leader_and_isr
    return found.leader not in (-1, broker_id) and broker_id not in found.isr
