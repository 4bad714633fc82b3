"""Faults of a cluster that can be undone: broker processes, ZooKeeper, lines between brokers, a full disk."""

from __future__ import annotations

import random
import resource
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Producer
from cut_proxy import Cut
from fault_cluster import FaultCluster
from wire_client import ConnectionClosed, create_topic

from engine.common.errors import KlammError

_BALLAST_BYTES = 900_000
_BALLAST_RECORDS_MAX = 100

NOT_NOW = (AssertionError, KlammError, ConnectionClosed, OSError)
"""Errors that a request may meet during a fault."""


@dataclass(frozen=True, slots=True)
class Injected:
    """A present fault. ``undo_rank`` orders the undoing: what others need to recover goes first."""

    text: str
    undo_rank: int
    undo: Callable[[], object]


Fault = Callable[[FaultCluster, random.Random], Injected | None]
"""Injects something; returns None if it cannot, such as a second fault for the only broker left."""


def kill_broker(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """kill -9 of any broker."""
    return _killed(cluster, rng.choice(cluster.running)) if cluster.running else None


def kill_controller(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """kill -9 of the controller."""
    controller = _controller(cluster)
    return None if controller is None else _killed(cluster, controller)


def kill_all_brokers(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """kill -9 of every broker at once: committed records must still be committed afterwards."""
    victims = cluster.running
    for victim in victims:
        cluster.broker(victim).kill()

    def undo() -> None:
        for victim in rng.sample(victims, len(victims)):
            cluster.local.start_broker(victim)

    return Injected(f"kill -9 all of {victims}", 2, undo) if victims else None


def freeze_broker(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """SIGSTOP of any broker."""
    return _frozen(cluster, rng.choice(cluster.running)) if cluster.running else None


def freeze_controller(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """SIGSTOP of the controller."""
    controller = _controller(cluster)
    return None if controller is None else _frozen(cluster, controller)


def end_broker(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """SIGTERM: a controlled shutdown, as far as the rest of the cluster allows one."""
    if not cluster.running:
        return None
    victim = rng.choice(cluster.running)
    was_enough = cluster.broker(victim).stop(20.0)
    return Injected(
        f"TERM {victim}{'' if was_enough else ' (and KILL)'}", 2, lambda: cluster.local.start_broker(victim)
    )


def kill_zookeeper(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """kill -9 of ZooKeeper."""
    if not cluster.local.zookeeper.is_running:
        return None
    cluster.local.zookeeper.kill()
    return Injected("kill -9 ZooKeeper", 0, cluster.local.zookeeper.start)


def freeze_zookeeper(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """SIGSTOP of ZooKeeper."""
    if not cluster.local.zookeeper.is_running:
        return None
    cluster.local.zookeeper.pause()
    return Injected("freeze ZooKeeper", 0, cluster.local.zookeeper.resume)


def cut_line(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """Cut the line between two brokers."""
    broker, other = rng.sample(cluster.local.broker_ids, 2)
    how = rng.choice(list(Cut))
    cluster.proxies.cut(broker, other, how)
    return Injected(f"cut {broker}-{other} ({how.value})", 1, lambda: cluster.proxies.mend(broker, other))


def isolate_broker(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """Cut all lines of one broker; it keeps its session."""
    victim = rng.choice(cluster.local.broker_ids)
    others = [b for b in cluster.local.broker_ids if b != victim]
    how = rng.choice(list(Cut))
    for other in others:
        cluster.proxies.cut(victim, other, how)

    def undo() -> None:
        for other in others:
            cluster.proxies.mend(victim, other)

    return Injected(f"isolate {victim} ({how.value})", 1, undo)


def fill_disk(cluster: FaultCluster, rng: random.Random) -> Injected | None:
    """Let no file of a broker grow beyond its biggest, a segment made for this purpose: one log dir is full."""
    if (
        set(cluster.running) != set(cluster.local.broker_ids)
        or not cluster.is_zookeeper_serving
        or cluster.has_full_disk
        # Ballast is written before the disk is full: an isolated controller has no leader for it.
        or cluster.proxies.has_cuts
    ):
        return None
    victim = rng.choice(cluster.running)
    topic = f"ballast-{time.monotonic_ns()}"
    try:
        create_topic(cluster.broker(victim).address, topic, partitions=1, replication_factor=3)
    except NOT_NOW:
        # Another fault has cost the controller its session. If the topic exists, it goes with the next undo.
        return None
    producer = Producer({"bootstrap.servers": cluster.bootstrap, "acks": "all", "log_level": 0, "linger.ms": 0})
    segment = _biggest_of_all(cluster, victim, topic, producer, rng)
    pid = cluster.broker(victim).pid
    if pid is None:
        return None
    hard = resource.prlimit(pid, resource.RLIMIT_FSIZE)[1]
    resource.prlimit(pid, resource.RLIMIT_FSIZE, (segment.stat().st_size + 100, hard))
    cluster.has_full_disk = True
    producer.produce(topic, bytes(_BALLAST_BYTES), partition=0)
    producer.poll(0)

    def undo() -> None:
        cluster.has_full_disk = False
        # A log dir that failed comes back only with the next start.
        cluster.broker(victim).stop(20.0)
        cluster.local.start_broker(victim)
        producer.purge()
        producer.flush(1.0)

    return Injected(f"disk of {victim} full ({segment.parent.name})", 2, undo)


ALL: tuple[Fault, ...] = (
    kill_broker,
    kill_controller,
    kill_all_brokers,
    freeze_broker,
    freeze_controller,
    end_broker,
    kill_zookeeper,
    freeze_zookeeper,
    cut_line,
    isolate_broker,
    fill_disk,
)


def _controller(cluster: FaultCluster) -> int | None:
    if not cluster.is_zookeeper_serving:
        return None
    controller = cluster.controller_id()
    return controller if controller in cluster.running else None


def _killed(cluster: FaultCluster, broker_id: int) -> Injected:
    cluster.local.kill_broker(broker_id)
    return Injected(f"kill -9 {broker_id}", 2, lambda: cluster.local.start_broker(broker_id))


def _frozen(cluster: FaultCluster, broker_id: int) -> Injected:
    cluster.local.pause_broker(broker_id)
    return Injected(f"freeze {broker_id}", 1, lambda: cluster.local.resume_broker(broker_id))


def _biggest_of_all(cluster: FaultCluster, broker_id: int, topic: str, producer: Producer, rng: random.Random) -> Path:
    """Write to the topic until its segment is the biggest file of the broker, and return that file."""
    spec = cluster.broker(broker_id).spec

    def segment() -> Path | None:
        paths = [path for log_dir in spec.log_dirs for path in (log_dir / f"{topic}-0").glob("*.log")]
        return paths[0] if paths else None

    for _ in range(_BALLAST_RECORDS_MAX):
        others = [f for f in spec.directory.rglob("*") if f.parent.name != f"{topic}-0"]
        wanted = max(map(_size_bytes, others), default=0) + _BALLAST_BYTES
        path = segment()
        if path is not None and path.stat().st_size >= wanted:
            return path
        producer.produce(topic, rng.randbytes(_BALLAST_BYTES), partition=0)
        assert producer.flush(20.0) == 0, f"{topic} takes no records"
    raise AssertionError(f"{topic} did not become the biggest file of broker {broker_id}")


def _size_bytes(path: Path) -> int:
    """Return a file's size, or 0 if it is gone: the broker keeps replacing its checkpoints."""
    try:
        return path.stat().st_size if path.is_file() else 0
    except FileNotFoundError:
        return 0
