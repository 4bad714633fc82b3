"""What must hold of every replica in a quiet cluster: each has exactly what the life of its topic says.

The checks ask the leaders, as consumers do, and read the files of every broker.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Sequence
from contextlib import suppress
from pathlib import Path

from fault_cluster import FaultCluster
from patience import within
from topic_life import Life, Pair, Seen, check_records
from wire_client import EARLIEST, LATEST, WireClient, list_offset, read_all, wait_until_led

from engine.common.model import TopicPartition
from engine.kafka.formats.checkpoints import LOG_START_OFFSET_CHECKPOINT, decode_offset_checkpoint
from engine.kafka.formats.partition_metadata import PARTITION_METADATA_FILE, decode_partition_metadata
from engine.kafka.protocol.apis.describe_log_dirs import DescribeLogDirsRequest
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

PATIENCE_S = 60.0
_UNCOMMITTED_BYTES = 1000
"""Retention also counts records that are not committed yet, which may be cut off later."""

Connect = Callable[[TopicPartition, bytes], WireClient]
"""Returns a connection to the leader of a partition of the topic with this id."""

Folder = tuple[int, str]
"""A broker's id, and the name of a folder in one of its log dirs."""


def wait_until_quiet(cluster: FaultCluster, topics: Sequence[str], may_stay: Collection[Folder]) -> None:
    """Wait until all replicas are in sync, none is moving, and no broker has a folder that it should not have.

    ``may_stay`` are folders that brokers may have kept of replicas they no longer have.
    """
    if topics:
        cluster.wait_in_sync(topics)
        for broker_id in cluster.local.broker_ids:
            wait_until_led(cluster.broker(broker_id).address, *topics)
    _wait_until_none("replicas that move between log dirs", lambda: _moving(cluster))
    _wait_until_none(
        "folders that should not be there, or should", lambda: _wrong_folders(cluster, topics).difference(may_stay)
    )


def _wait_until_none(what: str, look: Callable[[], object]) -> None:
    is_in_time = within(PATIENCE_S)
    while result := look():
        assert is_in_time(), f"{what}: {result}"
        time.sleep(0.05)


def _moving(cluster: FaultCluster) -> list[tuple[int, str, int]]:
    moving = []
    for broker_id in cluster.local.broker_ids:
        with WireClient(cluster.broker(broker_id).address) as client:
            results = client.ask(DescribeLogDirsRequest(topics=None), 4).results
        assert not any(result.error_code for result in results), f"broker {broker_id}: {results}"
        moving += [
            (broker_id, f"{topic.name}-{p.partition_index}", p.offset_lag)
            for result in results
            for topic in result.topics
            for p in topic.partitions
            if p.is_future_key
        ]
    return moving


def _wrong_folders(cluster: FaultCluster, topics: Sequence[str]) -> set[Folder]:
    wrong = folders(cluster)
    wanted = {
        (broker_id, str(topic_partition))
        for topic_partition, replicas in cluster.assignments(topics).items()
        for broker_id in replicas.replicas
    }
    return {folder for folder, count in Counter(wrong).items() if count > 1} | (set(wrong) ^ wanted)


def folders(cluster: FaultCluster) -> list[Folder]:
    """Return all folders in all log dirs."""
    return [
        (broker.id, path.name)
        for broker in cluster.local.brokers.values()
        for log_dir in broker.spec.log_dirs
        for path in log_dir.iterdir()
        if path.is_dir()
    ]


def check_replicas(
    cluster: FaultCluster,
    topic_partition: TopicPartition,
    life: Life,
    connect: Connect,
    retained_bytes: int | None,
) -> int:
    """Check what consumers see of a partition and what each replica has; remember it, and return the record count.

    ``retained_bytes`` is how much remains of a topic that loses its oldest records; None if it loses none.
    """
    start, end, read = cluster.wait_for(
        f"{topic_partition} can be read", lambda: _read(topic_partition, life, connect), timeout_s=20.0
    )
    assert end >= life.end, f"{topic_partition} ends at {end}, {life.end} were acknowledged"
    seen = [("as it is read", Seen(start, end, _pairs(read)))]
    for folder in _replica_folders(cluster, topic_partition):
        text = (folder / PARTITION_METADATA_FILE).read_text()
        assert decode_partition_metadata(text, str(folder)) == life.topic_id, f"{folder} is of an earlier topic"
        noted = _noted_start(folder, topic_partition)
        is_earlier_life = retained_bytes is None and noted > life.start
        assert not is_earlier_life, f"{folder} is noted to begin at {noted}, asked for was {life.start}"
        replica = _wait_for_end(cluster, folder, start, end, may_begin_later=retained_bytes is not None)
        seen.append((str(folder), replica))
        begins = max(replica.start, noted)
        if retained_bytes is not None and begins > life.start:
            size_bytes = sum(path.stat().st_size for path in folder.glob("*.log"))
            least = retained_bytes - _UNCOMMITTED_BYTES
            assert size_bytes >= least, f"{folder} begins at {begins}, though it has {size_bytes} bytes only"
    for where, replica in seen:
        name = f"{topic_partition} {where}"
        has_lost_its_start = retained_bytes is None and replica.start > life.start
        assert not has_lost_its_start, f"{name} begins at {replica.start}, asked for was {life.start}"
        check_records(name, replica, life)
    life.records |= _pairs(read)
    life.maybe.clear()
    life.end = end
    return len(read)


def _read(topic_partition: TopicPartition, life: Life, connect: Connect) -> tuple[int, int, list[Record]] | None:
    """Return start, end and records as a consumer sees them; None while the leader is too new to know."""
    name, partition = topic_partition
    with suppress(AssertionError), connect(topic_partition, life.topic_id) as client:
        end = list_offset(client, name, LATEST, partition=partition)
        start = list_offset(client, name, EARLIEST, partition=partition)
        return start, end, read_all(client, name, partition=partition)
    return None


def _replica_folders(cluster: FaultCluster, topic_partition: TopicPartition) -> list[Path]:
    replicas = cluster.assignments([topic_partition.topic])[topic_partition].replicas
    log_dirs = [log_dir for broker_id in replicas for log_dir in cluster.broker(broker_id).spec.log_dirs]
    return [path for log_dir in log_dirs if (path := log_dir / str(topic_partition)).is_dir()]


def _noted_start(folder: Path, topic_partition: TopicPartition) -> int:
    file = folder.parent / LOG_START_OFFSET_CHECKPOINT
    return decode_offset_checkpoint(file.read_text(), str(file)).get(topic_partition, 0) if file.exists() else 0


def _wait_for_end(cluster: FaultCluster, folder: Path, start: int, end: int, *, may_begin_later: bool) -> Seen:
    """Read a replica's files once it has everything that is committed."""

    def read() -> Seen | None:
        pairs: dict[int, Pair] = {}
        reached = start
        for path in sorted(folder.glob("*.log")):
            data = path.read_bytes()
            pairs |= _pairs(iter_records(data))
            reached = max([reached, *(header.next_offset for _, header in iter_batches(data))])
        began = max(start, min(pairs, default=start)) if may_begin_later else start
        return Seen(began, end, {at: pair for at, pair in pairs.items() if at >= began}) if reached == end else None

    return cluster.wait_for(f"{folder} ends at {end}", read, timeout_s=20.0)


def _pairs(records: Iterable[Record]) -> dict[int, Pair]:
    return {record.offset: (bytes(record.key or b""), bytes(record.value or b"")) for record in records}
