"""``klamm reassign execute`` warns about brokers that have too little room for what they copy."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from klamm_program import in_process

from engine.common.model import BrokerInfo, ReplicaAssignment
from engine.common.snapshot import (
    ClusterSnapshot,
    LogDirSnapshot,
    PartitionSnapshot,
    ReplicaLog,
    SnapshotSource,
    TopicSnapshot,
)
from engine.common.snapshot_json import snapshot_to_json

GIB = 1 << 30


@pytest.mark.parametrize(
    ("free", "expected"),
    [
        (5 * GIB, ""),
        (3 * GIB, "warning: broker 1 has to copy 5.4 GB, but has only 3.2 GB free in its log dirs\n"),
        (None, ""),
    ],
)
def test_a_dry_run_names_the_broker_and_the_figures(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], free: int | None, expected: str
) -> None:
    partition = PartitionSnapshot(0, ReplicaAssignment((0,)), 0, (0,), replica_logs=(ReplicaLog(0, "/data", 5 * GIB),))
    snapshot = ClusterSnapshot(
        tuple(BrokerInfo(broker, (), None) for broker in range(2)),
        (TopicSnapshot("t", (partition,)),),
        SnapshotSource.WIRE,
        1,
        log_dirs=(LogDirSnapshot(0, "/data", 9 * GIB, 0), LogDirSnapshot(1, "/data", 9 * GIB, free)),
    )
    file, plan = tmp_path / "snapshot.json", tmp_path / "plan.json"
    file.write_text(snapshot_to_json(snapshot))
    plan.write_text(json.dumps({"version": 1, "partitions": [{"topic": "t", "partition": 0, "replicas": [1]}]}))
    words = ("--reassignment-json-file", plan, "--snapshot", file, "--dry-run", "-o", "json")
    ran = in_process("reassign", "execute", *words, capture=capsys)
    assert (ran.code, ran.json[0]["bytes_to_copy"]) == (0, 5 * GIB)
    assert "".join(line for line in ran.err.splitlines(keepends=True) if line.startswith("warning")) == expected
