"""The lives of topics on three brokers: every acknowledged record through deletions, moves and kills.

    KLAMM_CLUSTER_LIVES_S=900 KLAMM_FAULT_SEED=7 pytest -s tests/cluster/test_lives.py

A line per round says what is there. The seed decides what is done and who dies; the effects differ from run to run.
``KLAMM_TURNED_RULES=…`` runs brokers that break a rule (``turned_rules``): a run that is long enough must fail.
"""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from cluster_lives import SETTINGS, ClusterLives
from fault_cluster import FaultCluster
from soak import rounds

from engine.local.zookeeper import EmbeddedZooKeeper

SECONDS = rounds("KLAMM_CLUSTER_LIVES_S", 20)
SEED = int(os.environ.get("KLAMM_FAULT_SEED", "11"))
STEPS_PER_ROUND = 10
TURNED_RULES = os.environ.get("KLAMM_TURNED_RULES", "").split()

pytestmark = pytest.mark.timeout(180 + 3 * SECONDS)


@pytest.fixture
def lives(zookeeper: EmbeddedZooKeeper, tmp_path: Path) -> Iterator[ClusterLives]:
    program = Path(__file__).with_name("killable_broker.py")
    orders = tmp_path / "orders"
    orders.mkdir()
    commands = {
        broker_id: (sys.executable, str(program), str(orders / f"order-{broker_id}"), *TURNED_RULES)
        for broker_id in range(3)
    }
    with FaultCluster(
        tmp_path / "cluster", config=SETTINGS, log_dir_count=2, commands=commands, zookeeper=zookeeper
    ) as cluster:
        yield ClusterLives(cluster, orders, SEED)


def test_no_record_is_lost_and_none_outlives_its_topic_on_three_brokers(lives: ClusterLives) -> None:
    print(f"\nKLAMM_FAULT_SEED={SEED}")
    began = time.monotonic()
    number = 0
    try:
        while number < 2 or time.monotonic() - began < SECONDS:
            for _ in range(STEPS_PER_ROUND):
                lives.step()
            settled = lives.settle()
            number += 1
            print(
                f"round {number}, {time.monotonic() - began:.0f} s: {settled} records are there; so far "
                f"{lives.acknowledged} acknowledged, {lives.births} lives of partitions, {lives.kills} deaths, "
                f"{lives.taken_back} replicas back where their files had stayed",
                flush=True,
            )
    except BaseException:
        print("\n".join(lives.told[-80:]))
        raise
    assert lives.acknowledged, "no record was acknowledged"
