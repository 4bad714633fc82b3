"""State-change logs merged and filtered, beside sort, grep and Kafka's StateChangeLogMerger on the same files.

The processes are cold and write to /dev/null. The files are in the page cache. ``sort`` compares whole lines and
separates stack traces from their entries; it is here for its speed. Kafka's tool reads only the format of 0.8.2, so it
gets such logs. ``KLAMM_BENCH_MB`` sets the total size of the logs.
"""

from __future__ import annotations

import os
import random
import resource
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path

from apache_kafka import fetch_jars, missing_for_kafka

from engine.local.java import find_java

ROUNDS = int(os.environ.get("KLAMM_BENCH_ROUNDS", "5"))
SIZE_MB = int(os.environ.get("KLAMM_BENCH_MB", "300"))
BROKERS, HOURS = 8, 6
KLAMM = str(Path(sys.executable).with_name("klamm"))
RARE_TOPIC = "payments"
Line = Callable[[random.Random, int, str, int], str]


def main() -> None:
    """Print all figures."""
    with tempfile.TemporaryDirectory() as folder:
        new = make_logs(Path(folder) / "kafka-3.9", line_of_3_9)
        old = make_logs(Path(folder) / "kafka-0.8.2", line_of_0_8_2)
        size_mb = sum(path.stat().st_size for path in new) / 1e6
        print(f"{len(new)} logs of {BROKERS} brokers, {size_mb:.0f} MB; best of {ROUNDS}")
        print(f"{'':46} {'MB/s':>7} {'CPU s/GB':>9}")
        merge_rows(new)
        filter_rows(new)
        kafka_rows(old)


def merge_rows(logs: Sequence[Path]) -> None:
    row("klamm: text, by time", [KLAMM, "state-changes", "merge", *map(str, logs)], logs)
    row("sort -m, whole lines", ["sort", "-m", *map(str, logs)], logs)
    row("sort, by time, stable", ["sort", "-s", "-k1,2", *map(str, logs)], logs)
    some = logs[:HOURS]
    row("klamm: JSON lines, of one broker", [KLAMM, "state-changes", "merge", *map(str, some), "-o", "jsonl"], some)
    row("klamm: check, of one broker", [KLAMM, "state-changes", "check", *map(str, some), "-o", "json"], some)


def filter_rows(logs: Sequence[Path]) -> None:
    words = ["--topic", RARE_TOPIC]
    row("klamm: one topic", [KLAMM, "state-changes", "merge", *map(str, logs), *words], logs)
    shell = f"grep -hF {RARE_TOPIC} {' '.join(map(str, logs))} | sort -s -k1,2"
    row("grep -F | sort", ["bash", "-c", shell], logs)
    hour = ["--start", "2026-11-21 08:15", "--end", "2026-11-21 08:20"]
    row("klamm: five minutes of six hours", [KLAMM, "state-changes", "merge", *map(str, logs), *hour], logs)


def kafka_rows(logs: Sequence[Path]) -> None:
    """The whole log and one topic, in the format of 0.8.2. Kafka's tool drops all lines that name no partition."""
    words = ["--topic", RARE_TOPIC]
    row("klamm, lines of 0.8.2: all", [KLAMM, "state-changes", "merge", *map(str, logs)], logs)
    row("klamm, lines of 0.8.2: one topic", [KLAMM, "state-changes", "merge", *map(str, logs), *words], logs)
    missing = missing_for_kafka()
    if missing is not None:
        print(f"StateChangeLogMerger: {missing}")
        return
    java = [str(find_java().program), "-Xmx512m", "-cp", f"{fetch_jars()}/*", "kafka.tools.StateChangeLogMerger"]
    named = [*java, "--logs", ",".join(map(str, logs))]
    row("StateChangeLogMerger, lines of 0.8.2: all", named, logs)
    row("StateChangeLogMerger, lines of 0.8.2: one topic", [*named, *words], logs)


def row(name: str, command: Sequence[str], logs: Sequence[Path]) -> None:
    """Print the best of several runs."""
    size = sum(path.stat().st_size for path in logs)
    runs = [timed(command) for _ in range(ROUNDS)]
    wall_s, cpu_s = (min(column) for column in zip(*runs, strict=True))
    print(f"{name:46} {size / 1e6 / wall_s:7.0f} {cpu_s / (size / 1e9):9.2f}", flush=True)


def timed(command: Sequence[str]) -> tuple[float, float]:
    """Run a command; return its wall and CPU seconds. A check may exit with 1."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    begin = time.perf_counter()
    environment = os.environ | {"LC_ALL": "C"}
    done = subprocess.run(
        command, check=False, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, env=environment, text=True
    )
    wall_s = time.perf_counter() - begin
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    assert done.returncode in (0, 1), done.stderr
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def make_logs(folder: Path, line: Line) -> list[Path]:
    """Write the logs: hourly files, lines in bursts of the same millisecond, and some stack traces."""
    paths = []
    for broker in range(BROKERS):
        for hour in range(HOURS):
            suffix = f".2026-11-21-{6 + hour:02d}" if hour < HOURS - 1 else ""
            path = folder / f"broker-{broker}" / f"state-change.log{suffix}"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(lines_of_an_hour(random.Random(f"{broker} {hour}"), broker, hour, line)))
            paths.append(path)
    return paths


def lines_of_an_hour(chance: random.Random, broker: int, hour: int, line: Line) -> list[str]:
    wanted = SIZE_MB * 1_000_000 // (BROKERS * HOURS)
    begin = datetime(2026, 11, 21, 6 + hour)
    lines: list[str] = []
    size = 0
    while size < wanted:
        moment = begin + timedelta(seconds=3599 * size / wanted)
        start = f"[{moment:%Y-%m-%d %H:%M:%S},{moment.microsecond // 1000:03d}]"
        for _ in range(chance.randint(1, 40)):
            is_rare = chance.random() < 0.0005
            topic = RARE_TOPIC if is_rare else f"orders-{chance.randint(0, 400)}"
            text = f"{start} {line(chance, broker, topic, chance.randint(0, 30))} (state.change.logger)\n"
            if chance.random() < 0.0005:
                text += "java.io.IOException: No space left on device\n\tat kafka.log.Log.append(Log.scala:1)\n"
            lines.append(text)
            size += len(text)
    return lines


def line_of_3_9(chance: random.Random, broker: int, topic: str, partition: int) -> str:
    epoch = chance.randint(0, 50)
    kind = chance.random()
    if kind < 0.4:
        return (
            f"INFO [Broker id={broker}] Leader {topic}-{partition} with topic id Some(KZNAXhh6SS2FNC3mYo9vWQ) starts "
            f"at leader epoch {epoch} from offset 0 with partition epoch 14, high watermark 0, ISR [0,2], adding "
            "replicas [] and removing replicas [] . Previous leader Some(1) and previous leader epoch was 8."
        )
    if kind < 0.8:
        return (
            f"TRACE [Broker id={broker}] Cached leader info UpdateMetadataPartitionState(topicName='{topic}', "
            f"partitionIndex={partition}, controllerEpoch=4, leader=2, leaderEpoch={epoch}, isr=[2], zkVersion=3, "
            f"replicas=[1, 2], offlineReplicas=[1]) for partition {topic}-{partition} in response to UpdateMetadata "
            "request sent by controller 0 epoch 4 with correlation id 22"
        )
    return (
        f"INFO [Controller id={broker} epoch=4] Changed partition {topic}-{partition} from OfflinePartition to "
        f"OnlinePartition with state LeaderAndIsr(leader=0, leaderEpoch={epoch}, isrWithBrokerEpoch=List(BrokerState("
        "brokerId=0, brokerEpoch=-1), BrokerState(brokerId=2, brokerEpoch=-1)), leaderRecoveryState=RECOVERED, "
        "partitionEpoch=14)"
    )


def line_of_0_8_2(chance: random.Random, broker: int, topic: str, partition: int) -> str:
    epoch = chance.randint(0, 50)
    state = f"(Leader:1,ISR:1,2,LeaderEpoch:{epoch},ControllerEpoch:3)"
    if chance.random() < 0.5:
        return (
            f"TRACE Broker {broker} cached leader info (LeaderAndIsrInfo:{state},ReplicationFactor:2),AllReplicas:1,2)"
            f" for partition [{topic},{partition}] in response to UpdateMetadata request sent by controller 1 epoch 3 "
            "with correlation id 12"
        )
    return (
        f"TRACE Controller {broker} epoch 3 sending become-leader LeaderAndIsr request {state} with correlationId 12 "
        f"to broker 1 for partition [{topic},{partition}]"
    )


if __name__ == "__main__":
    main()
