"""Compares what klamm's changes leave in ZooKeeper with what Kafka's own tools were recorded to leave there.

Times, ids and epochs are masked, and so is the mark in klamm's throttles, which Kafka's tool does not set.
"""

from __future__ import annotations

import json
import re
import time
from pathlib import Path
from typing import Any

import pytest
from klamm_program import Ran, in_process

EFFECTS = Path(__file__).parents[3] / "fixtures" / "tool-effects"
WAIT_S = 30.0
MASKED = ("topic_id", "controller_epoch", "leader_epoch")
Capture = pytest.CaptureFixture[str]


class Operator:
    """Runs klamm over one interface, on its own topics, and compares ZooKeeper's content with the recording."""

    def __init__(self, zookeeper: str, bootstrap: str, side: str, capture: Capture, folder: Path) -> None:
        self._znodes = ("--zookeeper", zookeeper)
        self._where = self._znodes if side == "znodes" else ("--bootstrap-server", bootstrap)
        self._prefix = f"{side}-"
        self._capture = capture
        self._folder = folder
        self._seen = len(self._changes())

    def name(self, topic: str) -> str:
        return f"{self._prefix}{topic}"

    def __call__(self, *words: str | Path, code: int = 0, stdin: str = "") -> Ran:
        ran = in_process(*words, *self._where, capture=self._capture, stdin=stdin)
        assert ran.code == code, ran.err
        return ran

    def execute(self, plan: Path, *words: str, code: int = 0) -> None:
        rollback = self._folder / f"back-{time.monotonic_ns()}"
        self("reassign", "execute", "--reassignment-json-file", plan, "--rollback-file", rollback, *words, code=code)

    def plan(self, topic: str, **replicas: list[int]) -> Path:
        """Return a plan file; partitions are given as p0=[…]."""
        partitions = [
            {"topic": self.name(topic), "partition": int(name[1:]), "replicas": replica}
            for name, replica in replicas.items()
        ]
        path = self._folder / f"plan-{time.monotonic_ns()}.json"
        path.write_text(json.dumps({"version": 1, "partitions": partitions}))
        return path

    def forget_changes(self) -> None:
        """Treat all earlier change notifications as old."""
        self._seen = len(self._changes())

    def leaves(self, scene: str) -> None:
        """Wait until ZooKeeper holds what Kafka's tool left in a scene."""
        recorded = json.loads((EFFECTS / f"{scene}.json").read_text())
        wanted = comparable(recorded["znodes"])
        deadline = time.monotonic() + WAIT_S
        while (effect := self._effect(recorded["topics"])) != wanted and time.monotonic() < deadline:
            time.sleep(0.1)
        differing = {path for path in effect.keys() | wanted.keys() if effect.get(path) != wanted.get(path)}
        differences = "; ".join(
            f"{path}: {effect.get(path)}, Kafka's tool left {wanted.get(path)}" for path in sorted(differing)
        )
        assert not differing, f"{scene}: {differences}"
        changes = self._changes()
        differences, self._seen = changes[self._seen :], len(changes)
        assert set(differences) == set(recorded["config_changes"]), scene

    def _effect(self, topics: list[str]) -> dict[str, Any]:
        names = "|".join(map(re.escape, map(self.name, topics)))
        kept = re.compile(rf"/brokers/topics/({names})(/.*)?|/config/topics/({names})|/config/brokers/.*|/admin/.*")
        return comparable(
            {path.replace(self._prefix, ""): data for path, data in self._tree("/").items() if kept.fullmatch(path)}
        )

    def _changes(self) -> list[str]:
        changes = self._tree("/config/changes")
        return [changes[path]["entity_path"].replace(self._prefix, "") for path in sorted(changes) if changes[path]]

    def _tree(self, path: str) -> dict[str, Any]:
        ran = in_process("zk", "tree", path, "--raw", "-o", "json", *self._znodes, capture=self._capture)
        tree: dict[str, Any] = {}
        for znode in ran.json:
            text = znode["data"] or ""
            tree[znode["path"]] = json.loads(text) if text.startswith("{") else text or None
        return tree


def comparable(znodes: dict[str, Any]) -> dict[str, Any]:
    """Mask what differs from run to run.

    A broker without dynamic settings may have an empty znode for them, or none.
    """
    effects = {}
    for path, data in znodes.items():
        if isinstance(data, dict):
            data = {key: "…" if key in MASKED else value for key, value in data.items()}
            if "isr" in data:
                data["isr"] = sorted(data["isr"])
            if "config" in data:
                data["config"] = {key: without_mark(value) for key, value in data["config"].items()}
            if path.startswith("/config/brokers/") and not data["config"]:
                continue
        if path.startswith("/config/brokers") and data is None:
            continue
        effects[path] = data
    return effects


def without_mark(value: str) -> list[str]:
    return sorted(part for part in value.split(",") if not part.endswith((":2147483647", ":2147483646")))


def change_topics_and_leaders(operator: Operator) -> None:
    """Create, configure, grow, reorder, move and delete topics and elect leaders; compare after each change."""
    t1, manual = operator.name("t1"), operator.name("manual")
    operator("topics", "create", t1, "--replica-assignment", "1:2:0,2:0:1,0:1:2")
    operator.leaves("03-topic-created")
    operator("topics", "create", manual, "--replica-assignment", "0:1,1:2,2:0", "--config", "max.message.bytes=2000000")
    operator.leaves("04-topic-created-manual")
    operator("configs", "alter", "--topic", t1, "--add-config", "retention.ms=3600000,min.insync.replicas=2", "--yes")
    operator("configs", "alter", "--topic", t1, "--delete-config", "retention.ms", "--yes")
    operator.leaves("05-topic-config-altered")
    operator("topics", "alter", t1, "--partitions", "5", "--yes")
    operator.leaves("06-partitions-added")

    operator.execute(operator.plan("t1", p0=[2, 0, 1]), "--wait")
    operator.leaves("09-reassignment-order-only")
    operator("elect", "preferred", "--topic", t1, "--partition", "0")
    operator.leaves("10-preferred-election-api")
    operator.execute(operator.plan("t1", p1=[0, 1, 2]), "--wait")
    operator("elect", "preferred", "--topic", t1, "--partition", "1", "--partition", "2")
    operator.leaves("11-preferred-election-znode")
    operator.execute(operator.plan("manual", p0=[1, 2], p1=[0, 2]), "--wait")
    operator.leaves("12-legacy-reassignment-znode")
    operator("topics", "delete", manual, "--yes")
    operator.leaves("14-topic-deleted")


def move_with_throttles(operator: Operator) -> None:
    """Move a topic under a throttle that is raised, and cancel another move; compare after each change."""
    operator("topics", "create", operator.name("move"), "--replica-assignment", "0:1,1:2")
    for partition in ("0", "1"):
        lines = ("x" * 999 + "\n") * 4000
        operator("produce", operator.name("move"), "--partition", partition, "--acks", "all", stdin=lines)
    plan = operator.plan("move", p0=[1, 2], p1=[0, 2])
    operator.execute(plan, "--throttle", "100000", code=5)
    operator.leaves("07a-reassignment-under-way")
    operator("reassign", "execute", "--reassignment-json-file", plan, "--additional", "--throttle", "100000000",
             "--wait")  # fmt: skip
    operator("reassign", "verify", "--reassignment-json-file", plan)
    operator.leaves("07b-reassignment-finishes")
    back = operator.plan("move", p0=[0, 1])
    operator.execute(back, "--throttle", "50000", code=5)
    operator("reassign", "cancel", "--reassignment-json-file", back)
    operator.leaves("08-reassignment-cancelled")


def change_broker_settings(operator: Operator) -> None:
    """Change settings of one broker and of all brokers, and remove them again; compare."""
    operator("configs", "alter", "--broker", "1", "--add-config", "num.io.threads=10")
    operator("configs", "alter", "--broker-defaults", "--add-config", "log.cleaner.threads=2")
    operator.leaves("32-dynamic-broker-config")
    operator("configs", "alter", "--broker", "1", "--delete-config", "num.io.threads")
    operator("configs", "alter", "--broker-defaults", "--delete-config", "log.cleaner.threads")
