"""``klamm perf suite --quick`` on three brokers of ours and three of Apache Kafka, one cluster after the other (B1).

docs/benchmarks.md shows the articles' figures beside them, which are from three machines with eight cores each.
"""

from __future__ import annotations

import json
import shutil
import subprocess
import tempfile
from pathlib import Path

from bench_cluster import ENGINES, _cluster
from bench_perf import KLAMM


def main() -> None:
    """Run the suite on each engine, warm, and print rates, latencies and the brokers' CPU case by case."""
    folder = Path(tempfile.mkdtemp(prefix="klamm-bench-"))
    try:
        by_engine = {engine: _measure(engine, folder / engine) for engine in ENGINES}
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    print(f"{'':24}" + "".join(f"{engine:>44}" for engine in by_engine))
    for cases in zip(*by_engine.values(), strict=True):
        name = f"{cases[0]['case']['experiment']} {cases[0]['case']['label']}"
        print(f"{name:24}" + "".join(f"{_figures(case):>44}" for case in cases), flush=True)


def _measure(engine: str, folder: Path) -> list[dict[str, object]]:
    with _cluster(engine, folder) as cluster:
        words = [KLAMM, "perf", "suite", "--yes", "-q", "-o", "json", "-b", cluster.bootstrap_servers]
        subprocess.run([*words, "--experiment", "producers", "--quick"], check=True, capture_output=True)
        ran = subprocess.run([*words, "--quick"], check=True, capture_output=True)
    cases: list[dict[str, object]] = json.loads(ran.stdout)["cases"]
    return cases


def _figures(one: dict[str, object]) -> str:
    def told(name: str, scale: float, unit: str) -> str:
        value = one[name]
        return f"{value / scale:.0f}{unit}" if isinstance(value, float) else "-"

    rates = f"{told('sent_per_sec', 1000, ' k/s')} {told('read_per_sec', 1000, ' k/s')}"
    cpu = one["broker_cpu_s_per_million"]
    return f"{rates} p99 {told('p99_latency_ms', 1, ' ms')} CPU {cpu if not isinstance(cpu, float) else round(cpu, 2)}"
