"""What both engines are asked to do with their folders. Each scene has topics of its own, named after it."""

from __future__ import annotations

import time
from collections.abc import Callable

from compared_records import batch, make, write
from folder_pair import DEADLINE_S, EARLIEST, FolderPair
from side_by_side import Side

from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from engine.kafka.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest, DeleteTopicState
from engine.kafka.protocol.apis.incremental_alter_configs import (
    AlterableConfig,
    AlterConfigsResource,
    IncrementalAlterConfigsRequest,
)
from engine.kafka.protocol.apis.list_offsets import ListOffsetsPartition, ListOffsetsRequest, ListOffsetsTopic
from engine.kafka.protocol.apis.write_txn_markers import (
    WritableTxnMarker,
    WritableTxnMarkerTopic,
    WriteTxnMarkersRequest,
)
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.legacy import encode_message_set
from engine.kafka.protocol.records.record import Record

Scene = Callable[[FolderPair], None]

TOPIC = 2
"""The type of a resource whose settings are altered."""


def sent(pair: FolderPair, topic: str, records: bytes | bytearray, partition: int = 0, version: int = 9) -> None:
    request = write((topic, partition, records))
    if version >= 3:
        # A transactional batch needs one, and no other batch minds it.
        request.transactional_id = "anybody"
    pair.both.prepare(request, version)


def at(pair: FolderPair, *times_ms: int, size: int = 20, key: bytes | None = b"k", **options: object) -> bytes:
    """Return a batch with a record at each time after the beginning."""
    records = [
        Record(n, pair.begin_ms + ms if ms >= 0 else -1, key, b"%d" % ms + b"." * size, [])
        for n, ms in enumerate(times_ms)
    ]
    return encode_batch(records, **options)  # type: ignore[arg-type]


def alter(pair: FolderPair, topic: str, **settings: str) -> None:
    configs = [
        AlterableConfig(name=name.replace("_", "."), config_operation=0, value=value)
        for name, value in settings.items()
    ]
    of = AlterConfigsResource(resource_type=TOPIC, resource_name=topic, configs=configs)
    pair.both.prepare(IncrementalAlterConfigsRequest(resources=[of]), 1)


def earliest(side: Side, topic: str) -> int:
    wanted = ListOffsetsPartition(partition_index=0, timestamp=EARLIEST)
    asked = ListOffsetsRequest(replica_id=-1, topics=[ListOffsetsTopic(name=topic, partitions=[wanted])])
    return int(side.ask(asked, 7).topics[0].partitions[0].offset)


def wait_for_start(pair: FolderPair, topic: str, offset: int) -> None:
    """Wait until both logs begin there."""
    deadline = time.monotonic() + DEADLINE_S
    for side in pair.both.sides.values():
        while (start_offset := earliest(side, topic)) != offset:
            assert time.monotonic() < deadline, f"{topic} begins at {start_offset}, not at {offset}"
            time.sleep(0.05)


def delete_before(pair: FolderPair, topic: str, offset: int) -> None:
    wanted = DeleteRecordsPartition(partition_index=0, offset=offset)
    topics = [DeleteRecordsTopic(name=topic, partitions=[wanted])]
    pair.both.prepare(DeleteRecordsRequest(topics=topics, timeout_ms=5_000), 2)


def end(pair: FolderPair, topic: str, producer_id: int, epoch: int, *, commit: bool, coordinator: int = 3) -> None:
    """Write a marker, as a transaction coordinator has it written."""
    marker = WritableTxnMarker(
        producer_id=producer_id,
        producer_epoch=epoch,
        transaction_result=commit,
        topics=[WritableTxnMarkerTopic(name=topic, partition_indexes=[0])],
        coordinator_epoch=coordinator,
    )
    pair.both.prepare(WriteTxnMarkersRequest(markers=[marker]), 1)


# --- rolls and indexes


def rolled_by_bytes(pair: FolderPair) -> None:
    for name, size in (("bytes", "400"), ("bytes-exact", "300"), ("bytes-one", "120")):
        make(pair.both, name, segment_bytes=size)
    for n in range(12):
        sent(pair, "bytes", at(pair, n, n + 1, size=n * 7))
        sent(pair, "bytes-exact", at(pair, 100 + n, size=28))
        sent(pair, "bytes-one", at(pair, n, size=10))


def rolled_by_time(pair: FolderPair) -> None:
    make(pair.both, "ms", segment_ms="1000")
    for n in (0, 500, 1000, 1001, 1500, 900, 100, 2001, 2002, 3003, 90_000, 90_500, 89_000, 91_001):
        sent(pair, "ms", at(pair, n))
    make(pair.both, "ms-back", segment_ms="1000")
    for n in (50_000, 10, 51_000, 51_001, 20, 30, 1021):
        sent(pair, "ms-back", at(pair, n, n - 5, n + 5))
    make(pair.both, "ms-none", segment_ms="600000")
    for n in (-1, -1, 500, -1, 700_000, 1_200_000):
        sent(pair, "ms-none", at(pair, n))


def rolled_by_index(pair: FolderPair) -> None:
    for name, index_bytes in (("index-36", "36"), ("index-40", "40"), ("index-100", "100")):
        make(pair.both, name, segment_index_bytes=index_bytes, index_interval_bytes="0")
        for n in range(24):
            sent(pair, name, at(pair, n if n % 3 else 5))


def rolled_by_a_tiny_index(pair: FolderPair) -> None:
    for name, index_bytes in (("tiny-12", "12"), ("tiny-24", "24")):
        make(pair.both, name, segment_index_bytes=index_bytes, index_interval_bytes="0")
        for n in range(6):
            sent(pair, name, at(pair, n))


def indexed(pair: FolderPair) -> None:
    for interval in ("0", "1", "91", "92", "300", "4096"):
        make(pair.both, f"interval-{interval}", segment_bytes="3000", index_interval_bytes=interval)
        for n in range(50):
            sent(pair, f"interval-{interval}", at(pair, n * 7919 % 400, n, size=n % 11))


def out_of_order(pair: FolderPair) -> None:
    make(pair.both, "disorder", segment_bytes="900", index_interval_bytes="100")
    make(pair.both, "falling", segment_bytes="900", index_interval_bytes="100")
    make(pair.both, "no-times", segment_bytes="900", index_interval_bytes="100")
    for n in range(40):
        sent(pair, "disorder", at(pair, n * 7919 % 400, n * 104_729 % 400))
        sent(pair, "falling", at(pair, 400 - n, 300 - n, 500 - n))
        sent(pair, "no-times", at(pair, -1))


def let_the_clock_go_on() -> None:
    """Wait for the next millisecond: of two batches with the same time, only the first is in the time index."""
    now_ms = time.time_ns() // 1_000_000
    while time.time_ns() // 1_000_000 == now_ms:
        time.sleep(0.0002)


def stamped_by_the_broker(pair: FolderPair) -> None:
    make(
        pair.both,
        "append-time",
        segment_bytes="1100",
        index_interval_bytes="150",
        message_timestamp_type="LogAppendTime",
    )
    for n in range(30):
        sent(pair, "append-time", at(pair, n, n + 1, codec=Codec(n % 5)))
        let_the_clock_go_on()


def of_every_codec(pair: FolderPair) -> None:
    for codec in Codec:
        name = f"codec-{codec.name.lower()}"
        make(pair.both, name, segment_bytes="1500", index_interval_bytes="200")
        for n in range(20):
            sent(pair, name, batch(n % 4 + 1, pair.begin_ms + n * 10, codec=codec))


def preallocated(pair: FolderPair) -> None:
    make(pair.both, "preallocated", segment_bytes="70000", preallocate="true")
    make(pair.both, "preallocated-rolled", segment_bytes="1000", preallocate="true")
    for n in range(20):
        sent(pair, "preallocated", at(pair, n))
        sent(pair, "preallocated-rolled", at(pair, n, size=60))


def flushed(pair: FolderPair) -> None:
    """What is flushed at once or now and then, as the checkpoint of recovery points tells."""
    for name, count in (("flushed", "1"), ("flushed-5", "5")):
        make(pair.both, name, segment_bytes="1000", flush_messages=count)
        for n in range(23):
            sent(pair, name, at(pair, n))


def unpacked(pair: FolderPair) -> None:
    """Batches that the broker unpacks. What it compresses itself depends on its library."""
    make(pair.both, "unpacked", segment_bytes="300000", index_interval_bytes="1000", compression_type="uncompressed")
    for n in range(10):
        value = b"".join(b"%d of %d, " % (m * 7919 % 1000, n) for m in range(n * n * 30))
        records = [Record(m, pair.begin_ms + n * 10 + m, b"k", value[m:], [("h", b"v")]) for m in range(n % 4 + 1)]
        sent(pair, "unpacked", encode_batch(records, codec=Codec((n + 1) % 5)))


def rolled_by_the_clock(pair: FolderPair) -> None:
    """Where the first batch has no time, the segment's own age counts."""
    make(pair.both, "clock", segment_ms="1")
    for ms in (-1, -1, 5, -1, 6, 7, 9, -1):
        time.sleep(0.01)
        sent(pair, "clock", at(pair, ms))


def made(pair: FolderPair, topic: str, segment_bytes: str) -> None:
    """Create a topic as soon as an earlier one of its name is gone."""
    configs = [CreatableTopicConfig(name="segment.bytes", value=segment_bytes)]
    wanted = CreatableTopic(name=topic, num_partitions=1, replication_factor=1, configs=configs)
    deadline = time.monotonic() + DEADLINE_S
    for side in pair.both.sides.values():
        while side.ask(CreateTopicsRequest(topics=[wanted], timeout_ms=15_000), 7).topics[0].error_code:
            assert time.monotonic() < deadline, f"{topic} cannot be made"
            time.sleep(0.05)


def made_again(pair: FolderPair) -> None:
    """A topic, and another of its name."""
    for turn, size in ((0, "300"), (1, "600")):
        made(pair, "again", size)
        for n in range(8):
            sent(pair, "again", at(pair, n + turn, producer_id=3 + turn, producer_epoch=0, base_sequence=n))
        if turn == 0:
            delete_before(pair, "again", 5)
            deleted_topic(pair, "again")


def nothing(pair: FolderPair) -> None:
    make(pair.both, "empty", 2)
    make(pair.both, "empty-preallocated", preallocate="true", segment_bytes="70000")


# --- producers


def idempotent(pair: FolderPair) -> None:
    make(pair.both, "idempotent", segment_bytes="700", index_interval_bytes="100")
    for n in range(20):
        for producer_id, epoch in ((7_000, n // 8), (8_000_000_000, 0), (7_016, 2)):
            sequence = n * 2 % 16 if producer_id == 7_000 else n * 2
            options = at(pair, n, n + 1, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence)
            sent(pair, "idempotent", options)
            if n % 5 == 0:
                sent(pair, "idempotent", options)


def many_producers(pair: FolderPair) -> None:
    """More than a small table holds: a snapshot has them in the order of Java's."""
    make(pair.both, "many", segment_bytes="6000")
    for n in range(100):
        producer_id = 4_000 + n if n % 3 else n * 7_919_000_000_007 % 2**62
        sent(pair, "many", at(pair, n, producer_id=producer_id, producer_epoch=0, base_sequence=0))


def transactions(pair: FolderPair) -> None:
    make(pair.both, "transactions", segment_bytes="900", index_interval_bytes="100", segment_ms="8640000000")
    make(pair.both, "open", segment_bytes="900", segment_ms="8640000000")

    def data(topic: str, producer_id: int, epoch: int, sequence: int, ms: int) -> None:
        sent(
            pair,
            topic,
            at(
                pair, ms, ms + 1, producer_id=producer_id, producer_epoch=epoch, base_sequence=sequence,
                transactional=True,
            ),
        )  # fmt: skip

    for n in range(8):
        data("transactions", 5_000, 0, n * 4, n)
        data("transactions", 5_001, n, 0, n)
        if n == 3:
            sent(pair, "transactions", at(pair, n, size=200))
        end(pair, "transactions", 5_001, n, commit=n % 2 == 0)
        data("transactions", 5_000, 0, n * 4 + 2, n)
        end(pair, "transactions", 5_000, 0, commit=n % 3 == 0)
    # A marker without a transaction, one of a later epoch, and one of a later coordinator.
    end(pair, "transactions", 5_002, 4, commit=True)
    end(pair, "transactions", 5_001, 30, commit=False)
    end(pair, "transactions", 5_000, 0, commit=False, coordinator=9)
    for n in range(4):
        data("open", 6_000, 0, n * 2, n)
        data("open", 6_001, 0, n * 2, n)
    end(pair, "open", 6_000, 0, commit=False)


# --- what goes


def deleted_records(pair: FolderPair) -> None:
    for name in ("records-edge", "records-inside", "records-all", "records-first"):
        make(pair.both, name, segment_bytes="300", index_interval_bytes="0")
        for n in range(12):
            producer = {"producer_id": 4_000 + n % 3, "producer_epoch": 0, "base_sequence": n // 3 * 2}
            sent(pair, name, at(pair, n, n + 1, **producer))
    for name, offset in (("records-edge", 12), ("records-inside", 9), ("records-all", -1), ("records-first", 1)):
        delete_before(pair, name, offset)


def kept_by_size(pair: FolderPair) -> None:
    for name in ("retention-bytes", "retention-zero", "retention-none"):
        make(pair.both, name, segment_bytes="300")
        for n in range(12):
            sent(pair, name, at(pair, n, n + 1))
    alter(pair, "retention-bytes", retention_bytes="700")
    alter(pair, "retention-zero", retention_bytes="0")
    wait_for_start(pair, "retention-zero", 24)
    wait_until_still(pair, "retention-bytes", 0)


def kept_by_time(pair: FolderPair) -> None:
    for name in ("retention-ms", "retention-ms-all", "retention-ms-stuck"):
        make(pair.both, name, segment_bytes="300")
        for n in range(12):
            old = n < 6 if name == "retention-ms" else name == "retention-ms-all" or n > 3
            sent(pair, name, at(pair, n if old else 1_000_000 + n, 3 + n))
        alter(pair, name, retention_ms=str(int(time.time() * 1000) - pair.begin_ms - 500_000))
    wait_until_still(pair, "retention-ms", 0)
    wait_until_still(pair, "retention-ms-all", 0)


def wait_until_still(pair: FolderPair, topic: str, before: int) -> None:
    """Wait until both logs begin later than ``before``."""
    deadline = time.monotonic() + DEADLINE_S
    for side in pair.both.sides.values():
        while earliest(side, topic) <= before:
            assert time.monotonic() < deadline, f"{topic} still begins at {before}"
            time.sleep(0.05)


def deleted_topics(pair: FolderPair) -> None:
    make(pair.both, "gone", segment_bytes="300")
    for n in range(6):
        sent(pair, "gone", at(pair, n, producer_id=1, producer_epoch=0, base_sequence=n))
    deleted_topic(pair, "gone")


def deleted_topic(pair: FolderPair, topic: str) -> None:
    """Delete a topic, and wait until its folders have other names."""
    pair.both.prepare(DeleteTopicsRequest(topics=[DeleteTopicState(name=topic)], timeout_ms=10_000), 6)
    deadline = time.monotonic() + DEADLINE_S
    while topic in pair.topics:
        assert time.monotonic() < deadline, f"{topic} is still there"
        time.sleep(0.02)


# --- compaction


def wait_until_clean(pair: FolderPair, topic: str, offset: int) -> None:
    """Wait until both cleaners have noted that they have cleaned up to the offset."""
    deadline = time.monotonic() + DEADLINE_S
    for which in pair.engines:
        noted = pair.log_dirs(which)[0] / "cleaner-offset-checkpoint"
        while f"{topic} 0 {offset}" not in (noted.read_text().splitlines() if noted.exists() else ()):
            assert time.monotonic() < deadline, f"{which}: {topic} is not clean up to {offset}: {noted.read_text()}"
            time.sleep(0.05)


def keyed(pair: FolderPair, ms: int, *keys: int, **of: int) -> bytes:
    """Return a batch with a record for each key; a negative key's is a tombstone."""
    records = [
        Record(n, pair.begin_ms + ms + n, b"key-%d" % abs(key), b"v%d" % ms * 3 if key >= 0 else None, [])
        for n, key in enumerate(keys)
    ]
    return encode_batch(records, **of)  # type: ignore[arg-type]


def clean(pair: FolderPair, *topics: str) -> None:
    """Let both clean what is not in the active segments, and wait until they have."""
    for topic in topics:
        alter(pair, topic, min_cleanable_dirty_ratio="0.001")
    for topic in topics:
        wait_until_clean(pair, topic, max(bases(pair, topic)))


def bases(pair: FolderPair, topic: str) -> list[int]:
    """Return where the segments of a topic begin."""
    return [int(path.stem) for path in (pair.log_dirs("first")[0] / f"{topic}-0").glob("*.log")]


def compacted(pair: FolderPair) -> None:
    """Keys, tombstones and producers, in two rounds."""
    name = "compact"
    make(
        pair.both, name, cleanup_policy="compact", segment_bytes="900", index_interval_bytes="100",
        min_cleanable_dirty_ratio="1.0", delete_retention_ms="0",
    )  # fmt: skip
    for turn in (0, 1):
        alter(pair, name, min_cleanable_dirty_ratio="1.0")
        for n in range(24):
            ms = turn * 1000 + n * 10
            sent(pair, name, keyed(pair, ms, n % 7, n % 5, 100 + n))
            if n % 4 == 0:
                sent(pair, name, keyed(pair, ms, -(n % 3 + 1), n % 11, -n))
            if n % 6 == 0:
                of = {"producer_id": 300 + n % 4, "producer_epoch": 0, "base_sequence": turn * 4 + n // 12 * 2}
                sent(pair, name, keyed(pair, ms, n % 5, n % 3, **of))
        for n in range(6):
            sent(pair, name, keyed(pair, turn * 1000 + 500 + n, *range(50, 60)))
        clean(pair, name)


def compacted_transactions(pair: FolderPair) -> None:
    name = "compact-transactions"
    make(
        pair.both, name, cleanup_policy="compact", segment_bytes="900", index_interval_bytes="100",
        segment_ms="8640000000", min_cleanable_dirty_ratio="1.0", delete_retention_ms="0",
    )  # fmt: skip
    for turn in (0, 1):
        alter(pair, name, min_cleanable_dirty_ratio="1.0")
        for n in range(12):
            for producer_id in (5_100, 5_101):
                of = {
                    "producer_id": producer_id, "producer_epoch": turn, "base_sequence": n * 2, "transactional": True,
                }  # fmt: skip
                sent(pair, name, keyed(pair, turn * 1000 + n, n % 4, n % 3, **of))
            end(pair, name, 5_100, turn, commit=n % 3 != 0)
            end(pair, name, 5_101, turn, commit=n % 2 == 0)
        for n in range(6):
            sent(pair, name, keyed(pair, turn * 1000 + 500 + n, *range(50, 60)))
        clean(pair, name)


def compacted_in_part(pair: FolderPair) -> None:
    """A segment with a record that is younger than ``min.compaction.lag.ms`` ends what may be cleaned."""
    now_ms = int(time.time() * 1000)
    make(pair.both, "compact-lag", cleanup_policy="compact", segment_bytes="600", min_cleanable_dirty_ratio="1.0",
         min_compaction_lag_ms=str(now_ms - pair.begin_ms - 500_000))  # fmt: skip
    make(pair.both, "compact-late", cleanup_policy="compact", segment_bytes="600", min_cleanable_dirty_ratio="1.0")
    make(pair.both, "compact-deleted", cleanup_policy="compact,delete", segment_bytes="600",
         min_cleanable_dirty_ratio="1.0")  # fmt: skip
    for n in range(24):
        for name in ("compact-lag", "compact-late", "compact-deleted"):
            ms = 1_500_000 if name == "compact-lag" and n == 13 else n
            sent(pair, name, keyed(pair, ms, n % 4, n % 3, 70))
    delete_before(pair, "compact-deleted", 20)
    alter(pair, "compact-lag", min_cleanable_dirty_ratio="0.001")
    alter(pair, "compact-late", max_compaction_lag_ms="1000")
    clean(pair, "compact-deleted")
    wait_until_clean(pair, "compact-late", max(bases(pair, "compact-late")))
    wait_until_clean(pair, "compact-lag", max(base for base in bases(pair, "compact-lag") if base <= 39))


# --- moves


def place(pair: FolderPair, topic: str, directory: int) -> None:
    """Name the log dir of a topic's replica, which may be there or not yet."""
    sides = pair.both.sides.values()
    for which, side in zip(pair.engines, sides, strict=True):
        topics = [AlterReplicaLogDirTopic(name=topic, partitions=[0])]
        path = str(pair.log_dirs(which)[directory])
        side.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=path, topics=topics)]), 2)


def moved(pair: FolderPair) -> None:
    """Replicas that move to another log dir, with all that may be in a log; needs two dirs."""
    names = ("moved", "moved-compact", "moved-deleted", "moved-empty", "moved-append-time")
    configs = {
        "moved-compact": {"cleanup_policy": "compact", "min_cleanable_dirty_ratio": "1.0"},
        "moved-append-time": {"message_timestamp_type": "LogAppendTime"},
    }
    for name in names:
        place(pair, name, 0)
        make(
            pair.both, name, segment_bytes="900", index_interval_bytes="100", segment_ms="8640000000",
            **configs.get(name, {}),
        )  # fmt: skip
        for n in range(0 if name == "moved-empty" else 20):
            of = {"producer_id": 61 + n % 2, "producer_epoch": 0, "base_sequence": n // 2 * 2}
            sent(pair, name, at(pair, n * 7919 % 100, n, **of))
            if name == "moved-append-time":
                let_the_clock_go_on()
    for n in range(8):
        of = {"producer_id": 600 + n % 2, "producer_epoch": 0, "base_sequence": n // 2, "transactional": True}
        sent(pair, "moved", at(pair, n, **of))
        if n % 3:
            end(pair, "moved", 600 + n % 2, 0, commit=n % 2 == 0)
    delete_before(pair, "moved-deleted", 13)
    for name in names:
        place(pair, name, 1)
    deadline = time.monotonic() + DEADLINE_S
    for which in pair.engines:
        while not all((pair.log_dirs(which)[1] / f"{name}-0").is_dir() for name in names):
            assert time.monotonic() < deadline, f"{which}: not all have moved"
            time.sleep(0.05)
    for name in names:
        sent(pair, name, at(pair, 700))


# --- old formats


def of_old_producers(pair: FolderPair) -> None:
    """Messages of formats 0 and 1, which the broker turns into format 2."""
    for magic in (0, 1):
        name = f"produced-{magic}"
        make(pair.both, name, segment_bytes="900", index_interval_bytes="100")
        for n in range(20):
            records = [Record(m, pair.begin_ms + n * 10 + m, b"k", b"v%d" % n * m, []) for m in range(n % 3 + 1)]
            sent(pair, name, encode_message_set(records, magic), version=2)


def in_old_formats(pair: FolderPair) -> None:
    """Topics that keep formats 0 and 1; needs brokers whose inter-broker protocol is older than 3.0."""
    for magic, version, codec in ((0, "0.9.0", Codec.NONE), (1, "0.10.2", Codec.NONE), (1, "0.10.2", Codec.GZIP)):
        name = f"format-{magic}-{codec.name.lower()}"
        make(pair.both, name, segment_bytes="900", index_interval_bytes="100", message_format_version=version)
        for n in range(30):
            times = [pair.begin_ms + n * 7919 % 300] * (n % 3 + 1)
            records = [Record(m, time_ms, b"k", b"v%d" % n * m, []) for m, time_ms in enumerate(times)]
            sent(pair, name, encode_message_set(records, magic, codec=codec), version=2)
        for n in range(6 if codec is Codec.NONE else 0):
            sent(pair, name, at(pair, n, n + 1))


def goes_on(pair: FolderPair) -> None:
    """Append to every log, and roll those with small segments."""
    for topic in pair.topics:
        for n in range(3):
            sent(pair, topic, at(pair, 1_100_000 + n, size=3))


OF_ONE_DIR: tuple[Scene, ...] = (
    rolled_by_bytes,
    rolled_by_time,
    rolled_by_index,
    indexed,
    out_of_order,
    stamped_by_the_broker,
    of_every_codec,
    preallocated,
    flushed,
    nothing,
    idempotent,
    transactions,
    deleted_records,
    kept_by_size,
    kept_by_time,
    deleted_topics,
    of_old_producers,
    compacted,
    compacted_transactions,
    compacted_in_part,
)
OF_ONE_DIR_TOO: tuple[Scene, ...] = (unpacked, rolled_by_the_clock, made_again, many_producers)
OF_TWO_DIRS: tuple[Scene, ...] = (moved, in_old_formats, rolled_by_a_tiny_index)
