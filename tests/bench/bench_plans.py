"""Plans beside their proven optima and the best of other tools, with the time and memory of a cold process.

The peers' figures are frozen: they were measured once on the same files. ``KLAMM_BENCH_PEERS=1`` installs kafka-utils
from PyPI in an environment of its own and runs it live. ``KLAMM_BENCH_ROUNDS`` (1) runs each that many times;
``KLAMM_BENCH_LARGE=1`` adds 1,000 brokers with 200,000 replicas.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path

from plan_peers import KafkaUtils
from plan_scenarios import SCENARIOS, scenario
from small_clusters import drawn_cluster, skewed_cluster

from engine.common.snapshot import ClusterSnapshot
from engine.common.snapshot_json import snapshot_to_json

ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "1"))
HAS_PEERS = os.environ.get("KLAMM_BENCH_PEERS") == "1"
IS_LARGE = os.environ.get("KLAMM_BENCH_LARGE") == "1"
KLAMM = str(Path(sys.executable).with_name("klamm"))
LEVEL = ("--aim", "replicas,leaders", "--minimise", "moves")


@dataclass(frozen=True)
class Case:
    """A scenario, its arguments, the moves and leader changes of the best plan, and those of the best peer."""

    name: str
    words: tuple[str, ...]
    optimum: str
    peer: str


CASES = (
    Case("s1_killerwhile_remove19", ("decommission", "19"), "1 / 0", "1 / 0 topicmappr"),
    Case("s2_everpeace_expand", ("expand", "4,5", "--minimise", "moves"), "2 / 0", "2 kafka-utils"),
    Case("s4_remove1", ("decommission", "1012"), "96 / 30", "96 / 30 topicmappr"),
    Case("s4_remove1", ("decommission", "1012", *LEVEL), "129 / 30", "none levels"),
    Case("s4_replace1", ("replace", "1012=1013"), "96 / 30", "96 / 30 topicmappr"),
    Case("s4_add3", ("rebalance", *LEVEL), "252 / 84", "262 / 132 kafka-utils"),
    Case("s4_add3", ("rebalance", "--aim", "bytes", "--minimise", "moves"), "33 / 6", "by bytes on brokers"),
    Case("s5_rebalance_skew", ("rebalance", *LEVEL), "149 / 65", "157 / 118 kafka-utils"),
    Case("s6_rf2to3", ("factor", "3", *LEVEL), "264 / 8", "264 / 0 topicmappr, leaders not level"),
    Case("s7_rackfix", ("racks", *LEVEL), "284 / 15", "286 / 127 kafka-utils"),
    Case("s8_uneven_racks_rebalance", ("rebalance", *LEVEL), "16 / 8", "16 / 13 kafka-utils"),
    Case("s9_large_remove2", ("decommission", "1030,1060"), "306 / 102", "306 / 102 topicmappr"),
    Case("s9_large_rebalance", ("rebalance", *LEVEL), "1033 / 352", "1148 / 899 kafka-utils, not level"),
    Case("s10_cc_uniform_small", ("rebalance", *LEVEL), "206 / 278", "664 / 770 kafka-utils, not level"),
    Case("s10_cc_exp_small", ("racks", *LEVEL), "1281 / 404", "1564 / 1064 kafka-utils, not level"),
)


def main() -> None:
    """Print a row per scenario, then the large clusters."""
    print(f"moves / leader changes; a cold process, best of {ROUNDS}")
    print(
        f"{'scenario':28} {'klamm':>12} {'proven':>6} {'optimum':>12} {'wall s':>7} {'CPU s':>7} {'MB':>5}  best peer"
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "snapshot.json"
        peer = KafkaUtils(Path(folder)) if HAS_PEERS else None
        for case in CASES:
            path.write_text(snapshot_to_json(scenario(case.name)), encoding="utf-8")
            _row(case, path)
            if peer is not None:
                print(f"{'':28} kafka-utils, live: {_told(peer, case)}", flush=True)
        for name, snapshot, minimise in _drawn():
            path.write_text(snapshot_to_json(snapshot), encoding="utf-8")
            words = ("rebalance", "--aim", "replicas,leaders,bytes", "--minimise", minimise)
            _row(Case(name, words, f"by {minimise}", ""), path)
        sizes = [(10, 100), (60, 3334), *([(1000, 66667)] if IS_LARGE else [])]
        for brokers, partitions in sizes:
            path.write_text(snapshot_to_json(skewed_cluster(brokers, partitions)), encoding="utf-8")
            for minimise in ("moves", "bytes"):
                words = ("rebalance", "--minimise", minimise)
                _row(Case(f"{brokers} brokers, {3 * partitions} replicas", words, minimise, ""), path)


def _drawn() -> list[tuple[str, ClusterSnapshot, str]]:
    """Return clusters on which counts and bytes are levelled together: there the columns alone prove little."""
    return [
        ("drawn, 20 brokers", drawn_cluster(13, brokers=20, racks=4, partitions=600, factor=3), "bytes"),
        ("drawn, 31 brokers", drawn_cluster(104, brokers=31, racks=7, partitions=900, factor=3), "bytes"),
        ("drawn, 60 brokers", drawn_cluster(106, brokers=60, racks=6, partitions=1500, factor=3), "bytes"),
        ("drawn, 45 brokers", drawn_cluster(108, brokers=45, racks=4, partitions=2000, factor=3), "moves"),
        ("lognormal, 20 brokers", skewed_cluster(20, 600, racks=4, seed=21), "bytes"),
        ("lognormal, 30 brokers", skewed_cluster(30, 1000, racks=5, seed=9), "bytes"),
    ]


def _told(peer: KafkaUtils, case: Case) -> str:
    answer = peer.reason or peer.plan(SCENARIOS / f"{case.name}.json", case.words)
    if isinstance(answer, str):
        return answer
    return f"{answer.moves} / {answer.leader_changes}, replica range {answer.replica_range}, {answer.wall_s:.1f} s"


def _row(case: Case, path: Path) -> None:
    runs = [_run(case, path) for _ in range(ROUNDS)]
    score, wall, cpu, memory = min(runs, key=lambda run: run[1])
    cell = f"{score['moves']} / {score['leader_changes']}"
    proven = "yes" if score["is_optimal"] else f"{100 * score['gap']:.2f}%"
    row = f"{case.name:28} {cell:>12} {proven:>6} {case.optimum:>12} {wall:7.2f} {cpu:7.2f} {memory:5.0f}  {case.peer}"
    print(row, flush=True)


def _run(case: Case, path: Path) -> tuple[dict[str, float], float, float, float]:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    started = time.monotonic()
    out = path.with_name("plan.json")
    command = [
        sys.executable, "-c", _MEASURED, KLAMM, "plan", *case.words, "--snapshot", str(path), "--out", str(out), "-q",
    ]  # fmt: skip
    ran = subprocess.run(command, check=True, capture_output=True, text=True)
    wall = time.monotonic() - started
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    memory = float(ran.stderr.splitlines()[-1]) / 1024
    return json.loads(out.read_text("utf-8"))["klamm"]["score"], wall, cpu, memory


_MEASURED = """
import resource, subprocess, sys
code = subprocess.run(sys.argv[1:], stdout=subprocess.DEVNULL).returncode
print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss, file=sys.stderr)
sys.exit(code)
"""
"""Runs the program and reports its peak memory in kB. It is a separate process, because that figure only grows."""
