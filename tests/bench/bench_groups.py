"""Groups: one broker of ours beside one of Apache Kafka 3.9.1 in the same run (E16): commits, rebalances, loading.

Both have one partition of ``__consumer_offsets``, which is the hardest case. The brokers take turns. Both are warmed up
first, except for loading, which happens after a start; its figures come from the brokers' own log lines.
``KLAMM_BENCH_ONLY`` (commits, rebalance, loading) runs a part, ``KLAMM_BENCH_ENGINES=klamm`` leaves Kafka out.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from apache_kafka import fetch_jars
from bench_broker import cpu_seconds, row
from coordinator_world import offset_records
from wire_client import WireClient, create_topic

from engine.broker.coordinator.groups.commit_form import CommittedOffset
from engine.broker.coordinator.groups.records import OFFSETS_BASE_SEQUENCE
from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.config.metadata_version import parse_metadata_version
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.find_coordinator import FindCoordinatorRequest
from engine.kafka.protocol.apis.join_group import JoinGroupRequest, JoinGroupRequestProtocol
from engine.kafka.protocol.apis.offset_fetch import OffsetFetchRequest
from engine.kafka.protocol.apis.sync_group import SyncGroupRequest, SyncGroupRequestAssignment
from engine.kafka.protocol.records.encode import encode_batch
from engine.local.cluster import LocalCluster
from engine.local.java import find_java
from engine.local.local_broker import LocalBroker

ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "3"))
WARM_UPS = int(os.environ.get("KLAMM_BENCH_WARM_UPS", "3"))
SCALE = float(os.environ.get("KLAMM_BENCH_SCALE", "1"))
ONLY = [name.strip() for name in os.environ.get("KLAMM_BENCH_ONLY", "").split(",") if name.strip()]
ENGINES = os.environ.get("KLAMM_BENCH_ENGINES", "klamm,kafka").split(",")
HERE = Path(__file__).parent

COMMITS = 20_000
MEMBERS = 100
STORED_COMMITS = 1_000_000
STORED_GROUPS = 1_000
STORED_PARTITIONS = 10
TOPIC = "read"
SETTINGS = {
    "offsets.topic.num.partitions": "1",
    "offsets.topic.segment.bytes": "1000000000",
    "controlled.shutdown.enable": "false",
    "group.initial.rebalance.delay.ms": "1000",
}
LOADED = re.compile(r"Finished loading offsets and group metadata from __consumer_offsets-0 in (\d+) milliseconds")

Once = Callable[[LocalCluster], tuple[float, float]]


def _kafka_command(folder: Path) -> list[str]:
    log4j = folder / "log4j.properties"
    log4j.write_text(
        "log4j.rootLogger=INFO, server\nlog4j.appender.server=org.apache.log4j.FileAppender\n"
        f"log4j.appender.server.File={folder}/kafka.log\n"
        "log4j.appender.server.layout=org.apache.log4j.PatternLayout\n"
        "log4j.appender.server.layout.ConversionPattern=[%d] %p %m (%c)%n\n"
        "log4j.logger.kafka.coordinator.group.GroupCoordinator=WARN\n"
    )
    options = ["-Xmx1g", "-Xms1g", "-XX:+UseG1GC", "-XX:MaxGCPauseMillis=20", f"-Dlog4j.configuration=file:{log4j}"]
    return [str(find_java().program), *options, "-cp", f"{fetch_jars()}/*", "kafka.Kafka"]


@contextmanager
def one_broker(engine: str, folder: Path) -> Iterator[LocalCluster]:
    """Start one broker of a kind, with a topic."""
    folder.mkdir(parents=True)
    gauged = [sys.executable, str(HERE / "gauged_broker.py")]
    commands = {0: gauged if engine == "klamm" else _kafka_command(folder)}
    with LocalCluster(
        1, directory=folder / "cluster", config=SETTINGS, commands=commands, start_timeout_s=120
    ) as cluster:
        create_topic(cluster.bootstrap_servers, TOPIC, partitions=STORED_PARTITIONS)
        _wait_for_coordinator(cluster, "bench-0")
        yield cluster


def _ask_until_ready(client: WireClient, request: Any, version: int, error_of: Callable[[Any], int]) -> Any:
    deadline = time.monotonic() + 120
    not_yet = (
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    )
    while error_of(answer := client.ask(request, version)) in not_yet:
        if time.monotonic() > deadline:
            raise RuntimeError(f"there is no coordinator: {answer}")
        time.sleep(0.01)
    return answer


def _wait_for_coordinator(cluster: LocalCluster, group: str) -> Any:
    """Wait until the group's coordinator has loaded; return the group's offsets."""
    with WireClient(cluster.bootstrap_servers) as client:
        _ask_until_ready(client, FindCoordinatorRequest(key=group), 3, lambda a: int(a.error_code))
        request = OffsetFetchRequest(group_id=group, topics=None)
        return _ask_until_ready(client, request, 7, lambda a: int(a.error_code))


def broker_pid(cluster: LocalCluster) -> int:
    """Return the process of its broker."""
    pid = cluster.broker(0).pid
    assert pid is not None
    return pid


def commit(groups: int, partitions: int, cluster: LocalCluster) -> tuple[float, float]:
    """Run one round of commits; return (elapsed seconds, broker CPU seconds)."""
    before = cpu_seconds(broker_pid(cluster))
    command = [sys.executable, str(HERE / "commit_load.py"), cluster.bootstrap_servers, "--groups", str(groups)]
    command += ["--count", str(int(COMMITS * SCALE)), "--topic", TOPIC, "--partitions", str(partitions)]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=600).stdout
    return float(json.loads(said)["elapsed_s"]), cpu_seconds(broker_pid(cluster)) - before


class Group:
    """Members that all join and sync at once, each over its own connection."""

    def __init__(self, cluster: LocalCluster, name: str) -> None:
        self._cluster = cluster
        self._name = name
        self._stack = ExitStack()
        self._clients = [self._stack.enter_context(WireClient(cluster.bootstrap_servers)) for _ in range(MEMBERS)]
        self._ids = [""] * MEMBERS

    def close(self) -> None:
        self._stack.close()

    def rebalance(self, *_: object) -> tuple[float, float]:
        """Begin and end a generation; return its wall-clock seconds and the broker's CPU seconds."""
        before = cpu_seconds(broker_pid(self._cluster))
        begin = time.perf_counter()
        metadata = b"\0\1\0\0\0\1\0\4read\xff\xff\xff\xff\0\0\0\0"
        for number, client in enumerate(self._clients):
            # A changed subscription, so that nobody gets the old generation as an answer.
            protocol = JoinGroupRequestProtocol(name="range", metadata=metadata + b"%f" % begin)
            request = JoinGroupRequest(
                group_id=self._name,
                session_timeout_ms=60_000,
                rebalance_timeout_ms=60_000,
                member_id=self._ids[number],
                protocol_type="consumer",
                protocols=[protocol],
            )
            client.send(request, 3)
        joined = [client.answer(ApiKey.JOIN_GROUP, 3) for client in self._clients]
        self._ids = [answer.member_id for answer in joined]
        generations = {answer.generation_id for answer in joined}
        parts = [SyncGroupRequestAssignment(member_id=m, assignment=b"\0" * 40) for m in self._ids]
        for answer, client in zip(joined, self._clients, strict=True):
            is_leader = answer.leader == answer.member_id
            sync = SyncGroupRequest(
                group_id=self._name,
                generation_id=answer.generation_id,
                member_id=answer.member_id,
                assignments=parts if is_leader else [],
            )
            client.send(sync, 3)
        synced = [client.answer(ApiKey.SYNC_GROUP, 3) for client in self._clients]
        if len(generations) != 1 or any(answer.error_code for answer in [*joined, *synced]):
            raise RuntimeError(f"the group {self._name} did not come to one generation")
        return time.perf_counter() - begin, cpu_seconds(broker_pid(self._cluster)) - before


def stored_commits() -> bytes:
    """Return a log of commits, one batch each, as a coordinator writes them."""
    ibp = parse_metadata_version("3.9")
    count = int(STORED_COMMITS * SCALE)
    out = bytearray()
    now_ms = int(time.time() * 1000)
    for number in range(count):
        group, turn = number % STORED_GROUPS, number // STORED_GROUPS
        partition = TopicPartition(TOPIC, turn % STORED_PARTITIONS)
        offsets = {partition: CommittedOffset(number, "", 0, now_ms)}
        records = offset_records(f"stored-{group}", offsets, now_ms, ibp)
        out += encode_batch(records, base_offset=number, base_sequence=OFFSETS_BASE_SEQUENCE, partition_leader_epoch=0)
    return bytes(out)


def load(log: bytes, cluster: LocalCluster) -> tuple[float, float]:
    """Start the broker on a full partition; return (seconds of loading, longest hold of our loop in ms)."""
    broker = cluster.broker(0)
    cluster.stop_broker(0)
    (folder,) = broker.spec.directory.rglob("__consumer_offsets-0")
    for file in folder.glob("0*"):
        file.unlink()
    (folder / f"{0:020d}.log").write_bytes(log)
    for note in (*folder.parent.glob("*-checkpoint"), *folder.parent.glob(".kafka_cleanshutdown")):
        note.unlink()
    seen = len(_loading_times(cluster))
    cluster.start_broker(0)
    (topic,) = _wait_for_coordinator(cluster, "stored-7").topics
    assert len(topic.partitions) == min(STORED_PARTITIONS, int(STORED_COMMITS * SCALE) // STORED_GROUPS)
    deadline = time.monotonic() + 30
    while len(times := _loading_times(cluster)) == seen:
        if time.monotonic() > deadline:
            raise RuntimeError("the broker does not say how long loading took")
        time.sleep(0.05)
    return times[-1] / 1000, _held_ms(broker)


def _loading_times(cluster: LocalCluster) -> list[int]:
    files = [cluster.directory.parent / "kafka.log", *cluster.broker(0).logs_path.glob("server.log*")]
    return [int(ms) for file in files if file.exists() for ms in LOADED.findall(file.read_text("utf-8", "replace"))]


def _held_ms(broker: LocalBroker) -> float:
    if "gauged_broker" not in " ".join(broker.spec.command):
        return 0.0
    answer = broker.spec.directory / "loop-held.json"
    answer.unlink(missing_ok=True)
    os.kill(broker.pid or 0, 10)
    deadline = time.monotonic() + 10
    while not answer.exists():
        if time.monotonic() > deadline:
            raise RuntimeError("the broker's gauge does not answer")
        time.sleep(0.01)
    return float(json.loads(answer.read_text("utf-8"))["cpu_ms"])


def rounds(
    clusters: dict[str, LocalCluster], once: dict[str, Once], warm_ups: int = WARM_UPS
) -> dict[str, tuple[float, float]]:
    """Run warm-ups, then rounds that take turns; return the medians of both figures (Kafka NaN if left out)."""
    for _ in range(warm_ups):
        for name, cluster in clusters.items():
            once[name](cluster)
    figures: dict[str, list[tuple[float, float]]] = {name: [] for name in clusters}
    for _ in range(ROUNDS):
        for name, cluster in clusters.items():
            figures[name].append(once[name](cluster))
    medians = {
        name: (statistics.median(f[0] for f in seen), statistics.median(f[1] for f in seen))
        for name, seen in figures.items()
    }
    return {"kafka": (float("nan"), float("nan")), "klamm": (float("nan"), float("nan"))} | medians


def _measure_commits(clusters: dict[str, LocalCluster]) -> None:
    for groups, partitions in ((1, 1), (1000, 1), (1000, 10)):
        figures = rounds(clusters, dict.fromkeys(clusters, partial(commit, groups, partitions)))
        count = int(COMMITS * SCALE)
        name = f"commits, {groups} groups, {partitions} partitions each"
        row(name, count / figures["klamm"][0] / 1e3, count / figures["kafka"][0] / 1e3, "k/s", ">= 1.0")
        row("  broker CPU", figures["klamm"][1] * 1e6 / count, figures["kafka"][1] * 1e6 / count, "us/commit", "<= 1.0")


def _measure_rebalance(clusters: dict[str, LocalCluster]) -> None:
    groups = {name: Group(cluster, "rebalanced") for name, cluster in clusters.items()}
    try:
        once: dict[str, Once] = {name: group.rebalance for name, group in groups.items()}
        figures = rounds(clusters, once, warm_ups=5 * WARM_UPS)
    finally:
        for group in groups.values():
            group.close()
    row(f"rebalance of {MEMBERS} members", figures["klamm"][0] * 1e3, figures["kafka"][0] * 1e3, "ms", "<= 1.0")


def _measure_loading(clusters: dict[str, LocalCluster]) -> None:
    log = stored_commits()
    figures = rounds(clusters, dict.fromkeys(clusters, partial(load, log)), warm_ups=0)
    row(f"loading of {STORED_COMMITS * SCALE:,.0f} commits", figures["klamm"][0], figures["kafka"][0], "s", "<= 1.0")
    print(f"{'  longest hold of our event loop, CPU':44} {figures['klamm'][1]:12.2f} {'':12} {'ms':12}  wanted <= 50")


def main() -> None:
    """Start both, measure, and stop everything."""
    folder = Path(tempfile.mkdtemp(prefix="klamm-bench-"))
    print(f"{'':44} {'klamm':>12} {'Kafka 3.9.1':>12} {'':12} {'ratio':>7}")
    try:
        with ExitStack() as stack:
            clusters = {name: stack.enter_context(one_broker(name, folder / name)) for name in ENGINES}
            parts = {"commits": _measure_commits, "rebalance": _measure_rebalance, "loading": _measure_loading}
            for name, measure in parts.items():
                if not ONLY or name in ONLY:
                    measure(clusters)
    finally:
        shutil.rmtree(folder, ignore_errors=True)
