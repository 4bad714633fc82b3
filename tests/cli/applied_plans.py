"""Plans applied to three running brokers: the cluster, operators' machines, and what must not remain."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from guest_cluster import GuestCluster
from klamm_program import PROGRAM, Ran, environment
from operated_cluster import Klamm
from plan_files import write_plan

from engine.common.model import TopicPartition
from engine.local.cluster import LocalCluster
from engine.local.zookeeper import EmbeddedZooKeeper

WAIT_S = 120.0
DRIVER = Path(__file__).parents[1] / "support" / "programs" / "killed_at_step.py"
QUICK_LOCK = ("--lock-timeout", "3s")
FAST = "50M"
SLOW = "15000"
"""A throttle that makes three megabytes take much longer than a test."""


def plan_cluster(folder: Path, zookeeper: EmbeddedZooKeeper | None = None) -> LocalCluster:
    """Return three brokers in three racks, with two log dirs each; without ``zookeeper`` they have one of their own."""
    settings = {
        "auto.create.topics.enable": "false",
        "auto.leader.rebalance.enable": "false",
        # Every command about all partitions meets those of the lock's group.
        "offsets.topic.num.partitions": "3",
        "controlled.shutdown.retry.backoff.ms": "100",
        "replica.fetch.max.bytes": "65536",
        # The lock of plans outlives a killed operator by its session time-out.
        "group.min.session.timeout.ms": "1000",
    }
    kind = LocalCluster if zookeeper is None else partial(GuestCluster, zookeeper)
    return kind(3, directory=folder, config=settings, racks=["a", "b", "c"], log_dir_count=2)


@dataclass
class Room:
    """One operator's machine: its own home and folder, and one interface of the cluster."""

    folder: Path
    where: tuple[str, ...]

    def start(self, *words: str | Path, program: Sequence[str | Path] = (PROGRAM,)) -> subprocess.Popen[str]:
        self.folder.mkdir(exist_ok=True)
        return subprocess.Popen(
            [*program, *map(str, words), *self.where],
            cwd=self.folder,
            env=environment(self.folder, HOME=str(self.folder)),
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def run(self, *words: str | Path, program: Sequence[str | Path] = (PROGRAM,)) -> Ran:
        with self.start(*words, program=program) as process:
            try:
                out, err = process.communicate(timeout=WAIT_S)
            finally:
                process.kill()
        return Ran(process.returncode, out, err)

    def killed(self, after: int, *words: str | Path) -> tuple[Ran, list[str]]:
        """Run until the kill after this step; return the steps that were done."""
        steps = self.folder / "steps"
        steps.unlink(missing_ok=True)
        ran = self.run(*words, program=(sys.executable, DRIVER, str(after), steps))
        return ran, steps.read_text(encoding="utf-8").split("\n")[:-1] if steps.exists() else []


def made_plan(klamm: Klamm, folder: Path, topic: str, *targets: Sequence[int], throttle: int | None = None) -> Path:
    snapshot = folder / "snapshot.json"
    snapshot.unlink(missing_ok=True)
    assert klamm("cluster", "snapshot", snapshot).code == 0
    replicas = {TopicPartition(topic, index): replicas for index, replicas in enumerate(targets)}
    return write_plan(folder / "plan.json", snapshot, replicas, throttle=throttle)


def nothing_is_left(by_znodes: Klamm, topic: str) -> None:
    """Check that no throttle, no lock and no reassignment is left."""
    assert by_znodes.settings("--topic", topic) == {}
    for broker in range(3):
        assert by_znodes.settings("--broker", str(broker)) == {}
    assert topic not in by_znodes("reassign", "list").out
