"""The real mvn fetches ZooKeeper's jars, and a server runs on them, in a process that has no PySpark."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]

PROGRAM = """
from engine.local import zookeeper_jars
zookeeper_jars._jars_of_pyspark = list
from engine.local.addresses import own_loopback_address
from engine.local.zookeeper import EmbeddedZooKeeper
with EmbeddedZooKeeper(host=own_loopback_address()) as server:
    print(server.is_running)
"""


def test_a_server_runs_on_what_mvn_fetched(tmp_path: Path) -> None:
    environment = os.environ | {"XDG_CACHE_HOME": str(tmp_path), "PYTHONPATH": str(ROOT)}
    environment.pop("KLAMM_ZOOKEEPER_JARS", None)
    ran = subprocess.run(
        [sys.executable, "-c", PROGRAM], env=environment, capture_output=True, text=True, timeout=300, check=False
    )
    assert (ran.returncode, ran.stdout.strip()) == (0, "True"), ran.stderr
    assert "through mvn into" in ran.stderr
