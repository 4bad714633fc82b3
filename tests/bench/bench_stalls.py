"""How long others wait while one client sends the worst that the protocol allows: a second client's largest latency.

The second client asks one broker for its ApiVersions every few milliseconds; the peer is the same broker without the
first client. ``KLAMM_BENCH_ELEMENTS`` (500,000) says how many elements the large requests have.
"""

from __future__ import annotations

import itertools
import os
import statistics
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack

from tabulate import tabulate
from wire_client import WireClient, create_topic, produce

from engine.common.model import TopicPartition
from engine.kafka.protocol.api_keys import ApiKey
from engine.kafka.protocol.apis.alter_partition_reassignments import (
    AlterPartitionReassignmentsRequest,
    ReassignablePartition,
    ReassignableTopic,
)
from engine.kafka.protocol.apis.api_versions import ApiVersionsRequest
from engine.kafka.protocol.apis.describe_configs import DescribeConfigsRequest, DescribeConfigsResource
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.metadata import MetadataRequest, MetadataRequestTopic
from engine.kafka.protocol.records.compression import Codec
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record
from engine.local.cluster import LocalCluster

ELEMENTS = int(os.environ.get("KLAMM_BENCH_ELEMENTS", "500000"))
INTERVAL_S = 0.005
QUIET_S = 2.0
NOW_MS = int(time.time() * 1000)
PARTITIONS = 10
PEERS, PIPELINED = 10, 30
BROKER = 4
"""The type of resource."""


class SecondClient:
    """Sends small requests in a thread of its own, and notes how long each answer took."""

    def __init__(self, address: str) -> None:
        self._client = WireClient(address, timeout_s=120)
        self._latencies_ms: list[float] = []
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        request = ApiVersionsRequest(client_software_name="second", client_software_version="1")
        while not self._stopping.wait(INTERVAL_S):
            started_s = time.monotonic()
            self._client.ask(request, 3)
            self._latencies_ms.append((time.monotonic() - started_s) * 1000)

    def take(self) -> list[float]:
        """Return the latencies since the last call."""
        taken, self._latencies_ms = self._latencies_ms, []
        return taken

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join()


def batch(records: int, codec: Codec) -> bytes:
    """Return a batch of records without content, each a millisecond after the previous one; the last one is now."""
    return encode_batch([Record(i, NOW_MS - records + 1 + i, None, None) for i in range(records)], codec=codec)


def by_time(topic: str, partitions: int) -> ListOffsetsRequest:
    wanted = [ListOffsetsPartition(partition_index=index, timestamp=NOW_MS) for index in range(partitions)]
    return ListOffsetsRequest(topics=[ListOffsetsTopic(name=topic, partitions=wanted)])


def loads(client: WireClient, address: str) -> dict[str, Callable[[], object]]:
    """Return what the first client does, by name."""
    names = [TopicPartition(f"nowhere-{index // 100}", index % 100) for index in range(ELEMENTS)]
    moves: dict[str, ReassignableTopic] = {}
    for name in names:
        topic = moves.setdefault(name.topic, ReassignableTopic(name=name.topic))
        topic.partitions.append(ReassignablePartition(partition_index=name.partition, replicas=[0]))
    metadata = [MetadataRequestTopic(name=f"nowhere-{index}") for index in range(ELEMENTS // 10)]
    requests = {
        "ListOffsets by time, 10 partitions of 10,000 records": (by_time("ordinary", PARTITIONS), 7),
        "ListOffsets by time, one batch of 500,000 records": (by_time("packed", 1), 7),
        f"ListOffsets, {ELEMENTS:,} partitions that are not there": (by_time("nowhere", ELEMENTS), 7),
        f"Metadata, {ELEMENTS // 10:,} topics that are not there": (
            MetadataRequest(topics=metadata, allow_auto_topic_creation=False),
            8,
        ),
        f"AlterPartitionReassignments, {ELEMENTS:,} partitions that are not there": (
            AlterPartitionReassignmentsRequest(topics=list(moves.values()), timeout_ms=120_000),
            0,
        ),
    }
    work: dict[str, Callable[[], object]] = {
        name: lambda kind=kind: client.ask(*kind)  # type: ignore[misc]
        for name, kind in requests.items()
    }
    work[f"DescribeConfigs of the broker, {PIPELINED} from each of {PEERS} connections"] = lambda: pipeline(address)
    return work


def pipeline(address: str) -> None:
    """Send many small, costly requests at once over several connections."""
    configs = DescribeConfigsRequest(resources=[DescribeConfigsResource(resource_type=BROKER, resource_name="0")])
    with ExitStack() as open_clients:
        peers = [open_clients.enter_context(WireClient(address, timeout_s=240)) for _ in range(PEERS)]
        for peer, _ in itertools.product(peers, range(PIPELINED)):
            peer.send(configs, 4)
        for peer, _ in itertools.product(peers, range(PIPELINED)):
            peer.answer(ApiKey.DESCRIBE_CONFIGS, 4)


def main() -> None:
    rows = []
    with LocalCluster(1) as cluster:
        address = cluster.bootstrap_servers
        create_topic(address, "ordinary", partitions=PARTITIONS)
        create_topic(address, "packed", configs={"max.message.bytes": "50000000"})
        with WireClient(address, timeout_s=240) as client:
            ordinary, packed = batch(10_000, Codec.GZIP), batch(500_000, Codec.ZSTD)
            answers = [produce(client, "ordinary", ordinary, partition=index) for index in range(PARTITIONS)]
            answers.append(produce(client, "packed", packed))
            if any(answer.error_code for answer in answers):
                raise RuntimeError(f"records were refused: {[answer.error_code for answer in answers]}")
            jobs = {"nothing": lambda: time.sleep(QUIET_S), **loads(client, address)}
            second = SecondClient(address)
            for name, work in jobs.items():
                second.take()
                started_s = time.monotonic()
                work()
                taken_s = time.monotonic() - started_s
                latencies = second.take() or [taken_s * 1000]
                rows.append([name, f"{taken_s:.2f}", f"{statistics.median(latencies):.1f}", f"{max(latencies):.0f}"])
            second.stop()
    headers = ("beside", "took, s", "second client: median ms", "largest ms")
    print(tabulate(rows, headers, disable_numparse=True))


if __name__ == "__main__":
    main()
