"""Makes ``fixtures/spark`` again from real queries of Spark 3.5 and 4.x against a cluster of ours.

    .venv/bin/python tests/recording/record_spark.py [VERSION:SCENE …] [--out FOLDER]

``--out`` writes below another folder than ``fixtures``. PySpark and the connector are fetched once into the user's
cache folder (about a gigabyte, through pip and mvn). An event log is kept as its first two lines and those about
queries, a checkpoint without its state. Modification times are the times of commits. Git does not keep them, so they
are in ``times.json`` beside each checkpoint.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from importlib import metadata
from pathlib import Path

import zstandard

from engine.local.cluster import LocalCluster

ROOT = Path(__file__).parents[2]
QUERIES = Path(__file__).with_name("spark_queries.py")
SCALA = {"3.5.1": "2.12", "4.0.0": "2.13"}
OWN = "own"
"""The PySpark of this environment, which has no connector."""
ROLLING = "spark.eventLog.rolling.enabled"
COMPRESS = "spark.eventLog.compress"
CODEC = "spark.eventLog.compression.codec"
STATE_WITH_IDS = [
    "spark.sql.streaming.stateStore.providerClass="
    "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider",
    "spark.sql.streaming.stateStore.checkpointFormatVersion=2",
]
NAMED_SOURCES = [
    "spark.sql.streaming.offsetLog.formatVersion=2",
    "spark.sql.streaming.queryEvolution.enableSourceEvolution=true",
]
RETAIN = "spark.sql.streaming.minBatchesToRetain=3"
_QUERY_EVENT = b"StreamingQueryListener$Query"
_RUN_S = 900

RUNS: dict[str, dict[str, list[str]]] = {
    "3.5.1": {
        "stateless": [RETAIN], "stateful": [], "join": [], "foreach_batch": [], "available_now": [],
        "killed": [f"{COMPRESS}=true", f"{CODEC}=lz4"], "grown": [], "made_again": [],
        "beside_files": [f"{COMPRESS}=true", f"{CODEC}=snappy"],
    },
    "4.0.0": {
        "stateless": [RETAIN], "stateful": [], "join": [], "foreach_batch": [], "available_now": [], "killed": [],
        "grown": [f"{ROLLING}=false", f"{COMPRESS}=false"], "made_again": [], "beside_files": [],
    },
    OWN: {
        "named_sources": NAMED_SOURCES,
        "state_with_ids": STATE_WITH_IDS,
        "named_sink": [
            *STATE_WITH_IDS, *NAMED_SOURCES, "spark.sql.streaming.queryEvolution.enableSinkEvolution=true"
        ],
    },
}  # fmt: skip


def environment_for(version: str) -> tuple[Path, str]:
    """Return a Python with this PySpark, and the connector's jars; both are fetched if they are missing."""
    if version == OWN:
        return Path(sys.executable), ""
    cache = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "klamm" / f"spark-{version}"
    python = cache / "venv" / "bin" / "python"
    if not (cache / "venv-is-whole").exists():
        subprocess.run([sys.executable, "-m", "venv", cache / "venv"], check=True)
        subprocess.run([python, "-m", "pip", "install", "--quiet", f"pyspark=={version}", "setuptools"], check=True)
        (cache / "venv-is-whole").touch()
    if not (cache / "jars").is_dir():
        _fetch_connector(version, cache)
    return python, ",".join(str(jar) for jar in sorted((cache / "jars").glob("*.jar")) if _is_needed(jar.name))


def _is_needed(jar: str) -> bool:
    return jar.startswith(("spark-sql-kafka", "spark-token-provider", "kafka-clients", "commons-pool2"))


def _fetch_connector(version: str, cache: Path) -> None:
    artifact = f"<artifactId>spark-sql-kafka-0-10_{SCALA[version]}</artifactId><version>{version}</version>"
    (cache / "pom.xml").write_text(
        '<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>'
        "<groupId>klamm</groupId><artifactId>jars</artifactId><version>1</version><packaging>pom</packaging>"
        f"<dependencies><dependency><groupId>org.apache.spark</groupId>{artifact}"
        "<exclusions><exclusion><groupId>org.apache.hadoop</groupId><artifactId>*</artifactId></exclusion>"
        "<exclusion><groupId>org.scala-lang</groupId><artifactId>*</artifactId></exclusion></exclusions>"
        "</dependency></dependencies></project>\n"
    )
    command = ["mvn", "-q", "-B", "dependency:copy-dependencies", f"-DoutputDirectory={cache / 'arriving'}"]
    subprocess.run(command, cwd=cache, check=True, timeout=600)
    (cache / "arriving").rename(cache / "jars")


def record(version: str, scene: str, work: Path, cluster: LocalCluster, out: Path) -> None:
    """Play a scene and keep what it leaves."""
    python, jars = environment_for(version)
    klamm = f"{Path(sys.executable).parent / 'klamm'} --bootstrap-server {cluster.bootstrap_servers}"
    program, option, servers = klamm.split()
    (work / "topics").write_text(f'#!/bin/sh\nexec {program} topics "$@" {option} {servers}\n')
    (work / "topics").chmod(0o755)
    environment = os.environ | {"PYSPARK_PYTHON": str(python), "CHANGE_TOPICS": str(work / "topics")}
    environment.pop("SPARK_HOME", None)
    if jars:
        environment["PYSPARK_SUBMIT_ARGS"] = f"--jars {jars} pyspark-shell"
    folder = work / "left"
    folder.mkdir()
    settings = RUNS[version][scene]
    words = [str(python), str(QUERIES), str(folder), cluster.bootstrap_servers, scene, *settings]
    ran = subprocess.run(words, env=environment, capture_output=True, text=True, timeout=_RUN_S, check=False)
    if ran.returncode and scene != "killed":
        raise SystemExit(f"{version}:{scene} failed\n{ran.stderr[-4000:]}")
    kept = out / (metadata.version("pyspark") if version == OWN else version) / scene.replace("_", "-")
    shutil.rmtree(kept, ignore_errors=True)
    for checkpoint in sorted(file.parent for file in folder.glob("*/metadata")):
        _keep_checkpoint(checkpoint, kept / checkpoint.name)
    for log in sorted((folder / "events").iterdir()):
        if not log.name.startswith("."):
            _keep_event_log(log, kept / "events" / log.name)


def _keep_checkpoint(checkpoint: Path, kept: Path) -> None:
    times: dict[str, int] = {}
    for part in ("metadata", "offsets", "commits", "sources"):
        for file in sorted((checkpoint / part).rglob("*") if (checkpoint / part).is_dir() else [checkpoint / part]):
            name = file.relative_to(checkpoint)
            if file.is_file() and not file.name.startswith("."):
                (kept / name).parent.mkdir(parents=True, exist_ok=True)
                shutil.copyfile(file, kept / name)
                times[str(name)] = file.stat().st_mtime_ns // 1_000_000
    (kept / "times.json").write_text(json.dumps(times, indent=1) + "\n")


def _keep_event_log(log: Path, kept: Path) -> None:
    for file in [log] if log.is_file() else sorted(log.iterdir()):
        if file.name.startswith("."):
            continue
        target = kept if log.is_file() else kept / file.name
        target.parent.mkdir(parents=True, exist_ok=True)
        content = file.read_bytes()
        suffix = file.name.removesuffix(".inprogress").rpartition(".")[2]
        if suffix == "zstd":
            # A log that was being written has no end: what exists is kept, as a frame without an end.
            reader = zstandard.ZstdDecompressor().stream_reader(content, read_across_frames=True)
            packer = zstandard.ZstdCompressor().compressobj()
            trimmed = _trimmed(_all_of(reader))
            packed = packer.compress(trimmed) + packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)
            is_whole = not file.name.endswith(".inprogress") and file.name.startswith("events_") and _is_ended(log)
            content = packed + packer.flush() if is_whole else packed
        elif suffix not in ("lz4", "snappy"):
            content = _trimmed(content)
        target.write_bytes(content)


def _is_ended(log: Path) -> bool:
    return log.is_file() or not any(path.name.endswith(".inprogress") for path in log.iterdir())


def _all_of(reader: zstandard.ZstdDecompressionReader) -> bytes:
    parts = []
    while part := reader.read(1 << 20):
        parts.append(part)
    return b"".join(parts)


def _trimmed(lines: bytes) -> bytes:
    kept = [line for number, line in enumerate(lines.splitlines(keepends=True)) if number < 2 or _QUERY_EVENT in line]
    return b"".join(kept)


def main() -> None:
    """Make the named scenes, or all of them."""
    parser = argparse.ArgumentParser(description="Record fixtures/spark anew from real queries of Spark.")
    every = [f"{version}:{scene}" for version, scenes in RUNS.items() for scene in scenes]
    parser.add_argument("names", nargs="*", metavar="VERSION:SCENE", default=every, help=" ".join(every))
    parser.add_argument("--out", type=Path, default=ROOT / "fixtures", help="write below this folder")
    asked = parser.parse_args()
    if unknown := set(asked.names) - set(every):
        parser.error(f"unknown: {' '.join(sorted(unknown))}")
    wanted = [name.split(":") for name in asked.names]
    for version in {version for version, _ in wanted}:
        environment_for(version)
    for version, scene in wanted:
        with tempfile.TemporaryDirectory() as work, LocalCluster(1) as cluster:
            record(version, scene, Path(work), cluster, asked.out / "spark")
        print(f"made {version}:{scene}", flush=True)


if __name__ == "__main__":
    main()
