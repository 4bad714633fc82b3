"""The lag history of very many groups: the time for a sample of ``klamm spark lag``, and for reading some back."""

from __future__ import annotations

import re
import subprocess
import tempfile
from pathlib import Path

from bench_cli import timed
from bench_lag import GROUPS, KLAMM, PARTITIONS, RECORDS, commit_all
from wire_client import create_topic

from engine.common.quantities import size_text
from engine.local.cluster import LocalCluster

SAMPLES = 4
_TOOK = re.compile(r"sample \d+: (\d+) groups, (\d+) rows, (\d+) ms")


def main() -> None:
    """Measure against a local cluster of one broker, with Spark on this machine."""
    with LocalCluster(1) as cluster, tempfile.TemporaryDirectory() as folder:
        where = ("--bootstrap-server", cluster.bootstrap_servers)
        create_topic(cluster.bootstrap_servers, "orders", partitions=PARTITIONS)
        load = ("--topic", "orders", "--num-records", str(RECORDS // PARTITIONS), "--record-size", "100", "--quiet")
        for number in range(PARTITIONS):
            command = [KLAMM, "perf", "producer", *load, "--partition", str(number), *where]
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
        commit_all(cluster.bootstrap_servers)
        out = Path(folder) / "lag"
        words = ["--out", str(out), "--interval", "1s", "--samples", str(SAMPLES), "--master", "local[2]"]
        ran = subprocess.run([KLAMM, "spark", "lag", *words, *where], check=True, capture_output=True, text=True)
        print(f"{GROUPS} groups with {PARTITIONS} partitions each, half of them behind, Spark on local[2]")
        for groups, rows, took_ms in _TOOK.findall(ran.stderr):
            print(f"a sample: {groups} groups, {rows} rows: {int(took_ms) / 1000:.2f} s", flush=True)
        wall_s, cpu_s = timed([KLAMM, "spark", "history", str(out)])
        size = sum(file.stat().st_size for file in out.rglob("*.parquet"))
        print(f"klamm spark history, {SAMPLES} samples: {wall_s:.2f} s, {cpu_s:.2f} CPU s")
        print(f"Parquet: {size_text(size / SAMPLES)} a sample")


if __name__ == "__main__":
    main()
