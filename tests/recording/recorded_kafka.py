"""A cluster of Apache Kafka 3.9.1 that is recorded scene by scene: ZooKeeper's writes and tree, frames, logs.

A scene is one thing that is done. What is kept of it is a dict, which goes to a file as JSON:

* ``writes``: what ZooKeeper committed meanwhile, from its own transaction log, with who wrote it;
* ``tree``: every znode afterwards;
* ``frames``: what passed between brokers, and between tools and brokers;
* ``logs``: what each broker added to its log files, by ``broker-0/state-change.log``.
"""

from __future__ import annotations

import asyncio
import json
import random
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, TypeVar

from apache_kafka import ApacheKafkaBroker, run_tool
from confluent_kafka import Producer
from frame_proxy import FrameProxy
from wire_client import WireClient, controller_address, describe_topic
from zookeeper_log import entries

from engine.kafka.protocol.apis.list_partition_reassignments import ListPartitionReassignmentsRequest
from engine.kafka.zk.client import ZkClient
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper

T = TypeVar("T")
TOLD_HOST, FIRST_PORT = "127.0.0.1", 29392
"""Where every recording says that its brokers are."""
DEADLINE_S = 120.0
SETTLED_S = 2.0
"""Nothing was written for this long: a scene is over."""
LOGS = ("state-change.log", "controller.log", "server.log")

TOPICS = "org.apache.kafka.tools.TopicCommand"
CONFIGS = "kafka.admin.ConfigCommand"
REASSIGN = "org.apache.kafka.tools.reassign.ReassignPartitionsCommand"
ELECT = "org.apache.kafka.tools.LeaderElectionCommand"

_SETTINGS = {
    "auto.leader.rebalance.enable": "false",
    "replica.lag.time.max.ms": "30000",
    "transaction.state.log.num.partitions": "5",
    "log.segment.delete.delay.ms": "2000",
    "password.encoder.secret": "geheim",
}


class RecordedCluster:
    """Use it as a context manager; brokers start when ``start`` names them."""

    def __init__(self, folder: Path, name: str, keep: Path, settings: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._folder = folder / name
        self._keep = keep / name
        self._host = own_loopback_address()
        # As long as the address that takes its place in the recording, or frames would no longer be what they say.
        self._proxies_host = "127." + ".".join(random.choices("123456789", k=3))
        self._settings = {**_SETTINGS, **(settings or {})}
        self._proxies: dict[int, FrameProxy] = {}
        self.brokers: dict[int, ApacheKafkaBroker] = {}
        self._own_sessions: set[int] = set()
        self._owners: dict[int, str] = {}
        self._stack = ExitStack()
        # A broker that is paused keeps a session that is longer than 20 ticks.
        longest = {"maxSessionTimeout": "90000"}
        self.zookeeper = EmbeddedZooKeeper(self._folder / "zookeeper", host=self._host, fsync=False, settings=longest)

    def __enter__(self) -> RecordedCluster:
        self._keep.mkdir(parents=True, exist_ok=True)
        self._stack.enter_context(self.zookeeper)
        self._zk(lambda zk: zk.exists("/"))
        return self

    def __exit__(self, *_: object) -> None:
        for broker in list(self.brokers.values()):
            broker.process.kill()
        for proxy in self._proxies.values():
            proxy.close()
        self._stack.close()

    # Brokers

    def start(self, broker_id: int, settings: Mapping[str, str] | None = None, *, is_told: bool = True) -> None:
        """Start a broker with settings of its own."""
        advertised = {"advertised.listeners": f"PLAINTEXT://{self.told_address(broker_id)}"}
        overrides = {**advertised, **self._settings, **(settings or {})}
        broker = ApacheKafkaBroker(
            self._folder / f"broker-{broker_id}",
            broker_id=broker_id,
            host=self._host,
            port=9092 + broker_id,
            zookeeper_connect=self.zookeeper.connect_string,
            overrides=overrides,
            heap="400m",
            state_change_level="TRACE",
        )
        if broker_id not in self._proxies:
            target = (self._host, 9092 + broker_id)
            self._proxies[broker_id] = FrameProxy(broker_id, (self._proxies_host, FIRST_PORT + broker_id), target)
        self.brokers[broker_id] = broker
        broker.start(is_told=is_told)

    def log_dir(self, broker_id: int) -> Path:
        """The log dir of a broker that has one."""
        return self._folder / f"broker-{broker_id}" / "data"

    def kill(self, broker_id: int) -> None:
        """``kill -9``, and wait until the session has ended."""
        self.brokers.pop(broker_id).kill()
        self.wait(lambda: str(broker_id) not in self.children("/brokers/ids"), f"end of broker {broker_id}'s session")

    def stop(self, broker_id: int) -> None:
        """SIGTERM."""
        self.brokers.pop(broker_id).stop()

    def address(self, broker_id: int) -> str:
        """Where a broker really listens."""
        return f"{self._host}:{9092 + broker_id}"

    def told_address(self, broker_id: int) -> str:
        """Where a broker says that it is: its proxy."""
        return f"{self._proxies_host}:{FIRST_PORT + broker_id}"

    def as_recorded(self, text: str) -> str:
        """Name the host of every recording instead of this cluster's, in plain text and in frames."""
        own, hosts = self._proxies_host, TOLD_HOST
        return text.replace(own, hosts).replace(own.encode().hex(), hosts.encode().hex())

    @property
    def controller_id(self) -> int:
        return int(json.loads(self.get("/controller"))["brokerid"])

    def tool(self, main_class: str, *words: str, at: str | None = None, check: bool = True) -> str:
        """Run a tool of Kafka's against the cluster; return all that it said."""
        ran = run_tool(main_class, "--bootstrap-server", at or self.address(min(self.brokers)), *words)
        if check and (ran.returncode or "Exception" in ran.stderr):
            raise RuntimeError(f"{main_class} {words}: {ran.stdout}{ran.stderr}")
        return ran.stdout + ran.stderr

    def produce(self, topic: str, partitions: Iterable[int], *, count: int, acks: str = "all") -> None:
        """Produce so many records of 1,000 bytes to each of the partitions."""
        producer = Producer({"bootstrap.servers": self.address(min(self.brokers)), "acks": acks})
        for partition in partitions:
            for _ in range(count):
                producer.produce(topic, b"x" * 1000, partition=partition)
        if producer.flush(60):
            raise RuntimeError(f"{topic}: records were not taken")

    def json_file(self, content: Any) -> str:
        """Write a file for a tool and return its name."""
        path = self._folder / f"plan-{time.monotonic_ns()}.json"
        path.write_text(json.dumps({"version": 1, "partitions": content}))
        return str(path)

    # ZooKeeper

    def _zk(self, work: Callable[[ZkClient], Awaitable[T]]) -> T:
        async def session() -> T:
            async with await ZkClient.connect(self.zookeeper.connect_string, session_timeout_ms=20_000) as zk:
                self._own_sessions.add(zk.session_id & (2**63 - 1))
                return await work(zk)

        return asyncio.run(session())

    def get(self, path: str) -> str:
        """A znode's data."""
        return self._zk(lambda zk: zk.get(path))[0].decode()

    def children(self, path: str) -> list[str]:
        """A znode's children."""
        return self._zk(lambda zk: zk.children(path))

    def create(self, path: str, content: Any) -> None:
        """Create a znode by hand, with JSON."""
        self._zk(lambda zk: zk.create(path, json.dumps(content).encode()))

    def set(self, path: str, content: Any) -> None:
        """Overwrite a znode by hand, with JSON."""
        self._zk(lambda zk: zk.set(path, json.dumps(content).encode()))

    def delete(self, path: str) -> None:
        """Delete a znode by hand."""
        self._zk(lambda zk: zk.delete(path))

    def tree(self) -> list[dict[str, Any]]:
        """Every znode below ``/`` but ZooKeeper's own, sorted by path."""

        async def walk(zk: ZkClient, path: str) -> list[dict[str, Any]]:
            data, stat = await zk.get(path)
            text = data.decode() if data or path == "/" else None
            znode: dict[str, Any] = {"path": path, "data": text, "version": stat.version, "cversion": stat.cversion}
            if stat.ephemeral_owner:
                znode["ephemeral"] = True
            znode |= {"czxid": hex(stat.czxid), "mzxid": hex(stat.mzxid)}
            if stat.ephemeral_owner:
                znode["owner"] = self._owners.get(stat.ephemeral_owner & (2**63 - 1), "client")
            znodes = [znode]
            for child in sorted(await zk.children(path)):
                if (path, child) != ("/", "zookeeper"):
                    znodes += await walk(zk, f"{path.rstrip('/')}/{child}")
            return znodes

        return self._zk(lambda zk: walk(zk, "/"))

    # Waiting

    def wait(self, holds: Callable[[], bool], what: str) -> None:
        """Wait until something holds."""
        deadline = time.monotonic() + DEADLINE_S
        while not holds():
            if time.monotonic() > deadline:
                raise TimeoutError(f"{self.name}: waited in vain for {what}")
            time.sleep(0.2)

    def wait_acquainted(self) -> None:
        """Wait until every broker tells clients of all."""
        ids = set(self.brokers)
        self.wait(lambda: all(broker.knows(ids) for broker in self.brokers.values()), "brokers that know each other")

    def wait_in_sync(self, *topics: str) -> None:
        """Wait until every replica of the topics is in the ISR and every partition is led."""

        def is_whole() -> bool:
            with WireClient(self.address(min(self.brokers))) as client:
                descriptions = [describe_topic(client, topic) for topic in topics]
            return all(
                not t.error_code
                and all(not p.error_code and set(p.isr_nodes) == set(p.replica_nodes) for p in t.partitions)
                for t in descriptions
            )

        self.wait(is_whole, f"all replicas of {topics}")

    def wait_reassigned(self) -> None:
        """Wait until no reassignment is under way."""

        def is_over() -> bool:
            with WireClient(controller_address(self.address(min(self.brokers)))) as client:
                return not client.ask(ListPartitionReassignmentsRequest(timeout_ms=10_000, topics=None), 0).topics

        self.wait(is_over, "the end of reassignments")

    def wrote(self, path: str) -> bool:
        """Whether a znode whose path begins so was ever created by a single write."""
        return any(entry["op"] == "create" and entry["path"].startswith(path) for entry in self._entries())

    def settle(self) -> None:
        """Wait until ZooKeeper has committed nothing for a while."""
        count, since = -1, time.monotonic()
        while time.monotonic() - since < SETTLED_S:
            now = sum(1 for entry in self._entries() if entry["session"] not in self._own_sessions)
            if now != count:
                count, since = now, time.monotonic()
            time.sleep(0.3)

    # Scenes

    @contextmanager
    def scene(self, name: str, note: str, *, settles: bool = True) -> Iterator[None]:
        """Record what is done inside as a scene."""
        seen = max((entry["zxid"] for entry in self._entries()), default=0)
        frames = {broker_id: len(proxy.frames) for broker_id, proxy in self._proxies.items()}
        logs = {path: path.stat().st_size for path in self._log_files()}
        yield
        if settles:
            self.settle()
        writes = [entry for entry in self._entries() if entry["zxid"] > seen]
        kept = {
            "cluster": self.name,
            "scene": name,
            "note": note,
            "writes": self._told(writes),
            "tree": self.tree(),
            "frames": [f for b, proxy in self._proxies.items() for f in proxy.frames[frames.get(b, 0) :]],
            "logs": {
                f"{path.parent.name}/{path.name}": path.read_bytes()[logs.get(path, 0) :].decode("utf-8", "replace")
                for path in self._log_files()
            },
        }
        (self._keep / f"{name}.json").write_text(self.as_recorded(json.dumps(kept)))
        print(f"{self.name}/{name}: {len(writes)} transactions, {len(kept['frames'])} frames", flush=True)

    def _log_files(self) -> list[Path]:
        return [path for name in LOGS for path in sorted(self._folder.glob(f"broker-*/{name}"))]

    def _entries(self) -> list[dict[str, Any]]:
        return list(entries(self.zookeeper.data_dir))

    def _told(self, writes: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """Name the writers instead of their sessions: a session that registers a broker is that broker's."""
        for entry in writes:
            for op in [entry, *entry.get("ops", [])]:
                path = op.get("path", "")
                if op["op"] == "create" and path.startswith("/brokers/ids/") and op["ephemeral"]:
                    self._owners[entry["session"]] = f"broker {path.removeprefix('/brokers/ids/')}"
        offsets = []
        for entry in writes:
            is_own = entry["session"] in self._own_sessions
            if is_own and entry["op"] in ("createSession", "closeSession"):
                continue
            session = entry.pop("session")
            by = "recorder" if is_own else self._owners.get(session, "client")
            offsets.append({**entry, "zxid": hex(entry["zxid"]), "by": by})
        return offsets
