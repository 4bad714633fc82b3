"""What one more topic costs when 0, 1,500 and 3,000 exist: the time of a request for one topic, and the brokers' CPU.

``EXISTING`` (0,1500,3000) sets the number of topics, ``BROKERS`` (1) the number of brokers, ``BATCH`` (50) over how
many topics each median is taken. The peer is the same broker with no topics.
"""

from __future__ import annotations

import os
import statistics
import time
from pathlib import Path

from tabulate import tabulate
from wire_client import WireClient

from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreateTopicsRequest
from engine.local.cluster import LocalCluster

EXISTING = [int(count) for count in os.environ.get("EXISTING", "0,1500,3000").split(",")]
BROKERS = int(os.environ.get("BROKERS", "1"))
BATCH = int(os.environ.get("BATCH", "50"))
CREATED_AT_ONCE = 250


def cpu_s(cluster: LocalCluster) -> float:
    """Return the CPU seconds that all brokers have used."""
    ticks = 0
    for broker in cluster.brokers.values():
        fields = Path(f"/proc/{broker.pid}/stat").read_text("ascii").rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def create(client: WireClient, names: list[str]) -> None:
    topics = [CreatableTopic(name=name, num_partitions=1, replication_factor=BROKERS) for name in names]
    answer = client.ask(CreateTopicsRequest(topics=topics, timeout_ms=60_000), 5)
    failed = [topic for topic in answer.topics if topic.error_code]
    if failed:
        raise RuntimeError(f"not created: {failed[0]}")


def one_by_one(cluster: LocalCluster, client: WireClient, names: list[str]) -> list[str]:
    """Create topics one after the other; return the median and CPU per topic, both in ms."""
    times = []
    before_s = cpu_s(cluster)
    for name in names:
        started_s = time.monotonic()
        create(client, [name])
        times.append(time.monotonic() - started_s)
    cpu_ms = (cpu_s(cluster) - before_s) * 1000 / len(names)
    return [f"{statistics.median(times) * 1000:.1f}", f"{cpu_ms:.1f}"]


def main() -> None:
    rows = []
    with LocalCluster(BROKERS) as cluster:
        controller = cluster.broker(cluster.controller_id() or 0).spec
        with WireClient(f"{controller.host}:{controller.port}", timeout_s=90) as client:
            made = 0
            for existing in EXISTING:
                while made < existing:
                    stop = min(existing, made + CREATED_AT_ONCE)
                    create(client, [f"topic-{number}" for number in range(made, stop)])
                    made = stop
                plain = one_by_one(cluster, client, [f"plain-{existing}-{number}" for number in range(BATCH)])
                dotted = one_by_one(cluster, client, [f"dotted.{existing}.{number}" for number in range(BATCH)])
                rows.append([existing, *plain, *dotted])
    headers = ("topics", "plain name, ms", "CPU ms", "name with dots, ms", "CPU ms")
    print(tabulate(rows, headers, disable_numparse=True))


if __name__ == "__main__":
    main()
