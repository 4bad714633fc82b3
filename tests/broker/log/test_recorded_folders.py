"""Folders that Apache Kafka wrote: opened, read, appended to, and reproduced byte for byte."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from log_folders import (
    NOW_MS,
    RECORDED,
    RECORDED_INDEX_BYTES,
    StandIn,
    as_sent,
    data_batch,
    folder_content,
    open_log,
    read_all,
    recorded_copy,
    stored_batches,
    values_of,
)

from engine.broker.log.append_origin import AppendOrigin
from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.common.model import TopicPartition
from engine.kafka.config.log_config import LogConfig
from engine.kafka.formats.checkpoints import HIGH_WATERMARK_CHECKPOINT, decode_offset_checkpoint
from engine.kafka.formats.index_entries import iter_aborted_transactions, iter_offset_index, iter_time_index
from engine.kafka.formats.producer_snapshot import decode_producer_snapshot
from engine.kafka.protocol.records.decode import iter_records
from engine.kafka.protocol.records.header import iter_batches

CONFIGS = {
    "segments": LogConfig(segment_index_bytes=RECORDED_INDEX_BYTES, segment_bytes=2000, index_interval_bytes=200),
    "tx": LogConfig(segment_index_bytes=RECORDED_INDEX_BYTES, segment_bytes=3000, index_interval_bytes=200),
    "deleted-records": LogConfig(segment_index_bytes=RECORDED_INDEX_BYTES, segment_bytes=1000),
    "compacted": LogConfig(
        segment_index_bytes=RECORDED_INDEX_BYTES,
        segment_bytes=1500,
        index_interval_bytes=200,
        cleanup_policy=("compact",),
    ),
    "v1-segments": LogConfig(segment_index_bytes=RECORDED_INDEX_BYTES, segment_bytes=2000, index_interval_bytes=200),
}
DEFAULT = LogConfig(segment_index_bytes=RECORDED_INDEX_BYTES)


def config_of(topic: str) -> LogConfig:
    return CONFIGS.get(topic, DEFAULT)


def manager_of(log_dir: Path, environment: StandIn | None = None) -> LogManager:
    clock = (environment or StandIn()).clock
    return LogManager(LogManagerConfig((log_dir,)), config_of, clock, lambda path: None)


def dumped(which: str, kind: str, pattern: str) -> dict[str, list[tuple[int, ...]]]:
    """Return what Kafka's dump tool said about each file: the numbers that ``pattern`` finds in its lines."""
    batches: dict[str, list[tuple[int, ...]]] = {}
    name = ""
    for line in (RECORDED / which / "dump" / f"{kind}.txt").read_text().splitlines():
        if line.startswith("Dumping "):
            name = line.removeprefix("Dumping /data/kafka/")
            batches[name] = []
        elif match := re.search(pattern, line):
            batches[name].append(tuple(int(number) for number in match.groups()))
    return batches


def log_end_offsets(which: str) -> dict[TopicPartition, int]:
    """Return where the logs end, from Kafka's own dump of them, or from what the running broker had checkpointed."""
    ends: dict[TopicPartition, int] = {}
    data = RECORDED / which / "data"
    if which == "running":
        checkpoint = (data / HIGH_WATERMARK_CHECKPOINT).read_text()
        offsets = decode_offset_checkpoint(checkpoint, "recorded")
        return {partition: end for partition, end in offsets.items() if (data / str(partition)).exists()}
    batch = r"(?:lastOffset: |^offset: )(\d+)"
    for name, batches in dumped(which, "log", batch).items():
        topic, _, partition = name.split("/")[0].rpartition("-")
        if batches and (data / name).exists():
            key = TopicPartition(topic, int(partition))
            ends[key] = max(ends.get(key, 0), batches[-1][0] + 1)
    return ends


@pytest.mark.parametrize("which", ["clean", "running", "formats-mixed", "formats-v0-v1-v2"])
def test_a_log_dir_of_kafka_is_opened_and_every_record_is_read(tmp_path: Path, which: str) -> None:
    log_dir = recorded_copy(which, tmp_path / "data")
    originals = {path.name: stored_batches(path) for path in log_dir.iterdir() if path.is_dir()}
    manager = manager_of(log_dir)
    manager.load()
    ends = log_end_offsets(which)
    for topic_partition, end_offset in ends.items():
        log = manager.get(topic_partition)
        assert log is not None
        assert log.log_end_offset == end_offset
        first = max(log.log_start_offset, 0)
        expected = b"".join(data for header, data in originals[str(topic_partition)] if header.last_offset >= first)
        assert read_all(log) == expected
        offsets = [record.offset for record in iter_records(read_all(log))]
        assert offsets == sorted(offsets)
    assert set(ends) <= set(manager.logs)
    manager.shutdown()


@pytest.mark.parametrize("which", ["clean", "formats-mixed"])
def test_opening_and_closing_in_order_changes_nothing(tmp_path: Path, which: str) -> None:
    log_dir = recorded_copy(which, tmp_path / "data")
    manager = manager_of(log_dir)
    manager.load()
    manager.shutdown()
    source = RECORDED / which / "data"
    for path in sorted(source.rglob("*")):
        name = path.relative_to(source)
        if not path.is_file() or path.name in {"leader-epoch-checkpoint", "meta.properties"}:
            continue
        if path.name.endswith("offset-checkpoint"):
            assert sorted((log_dir / name).read_bytes().splitlines()) == sorted(path.read_bytes().splitlines())
        elif not _is_stray_snapshot(path):
            assert (log_dir / name).read_bytes() == path.read_bytes(), name


def _is_stray_snapshot(path: Path) -> bool:
    """Whether a snapshot belongs to no segment and is not the last one.

    Kafka, too, removes such a file at its next start.
    """
    newest = max(path.parent.glob("*.snapshot"), default=path)
    return path.suffix == ".snapshot" and path != newest and not path.with_suffix(".log").exists()


def test_index_files_read_as_kafkas_dump_tool_says() -> None:
    data = RECORDED / "clean" / "data"
    for name, expected in dumped("clean", "index-plain", r"offset: (\d+) position: (\d+)").items():
        base_offset = int(Path(name).stem)
        assert [tuple(entry) for entry in iter_offset_index((data / name).read_bytes(), base_offset)] == expected
    for name, expected in dumped("clean", "timeindex", r"timestamp: (\d+) offset: (\d+)").items():
        base_offset = int(Path(name).stem)
        assert [tuple(entry) for entry in iter_time_index((data / name).read_bytes(), base_offset)] == expected
    pattern = r"producerId: (\d+) firstOffset: (\d+) lastOffset: (\d+) lastStableOffset: (\d+)"
    aborted = dumped("clean", "txnindex", pattern)
    assert len(aborted) == 6
    for name, expected in aborted.items():
        assert [tuple(entry) for entry in iter_aborted_transactions((data / name).read_bytes())] == expected


def test_snapshots_read_as_kafkas_dump_tool_says() -> None:
    pattern = (
        r"producerId: (\d+) producerEpoch: (\d+) coordinatorEpoch: (-?\d+) .* lastTimestamp: (\d+) "
        r"firstSequence: (-?\d+) lastSequence: (-?\d+) lastOffset: (-?\d+) offsetDelta: (\d+)"
    )
    snapshots = dumped("clean", "snapshot", pattern)
    assert sum(map(len, snapshots.values())) > 50
    for name, expected in snapshots.items():
        entries = decode_producer_snapshot((RECORDED / "clean" / "data" / name).read_bytes())
        assert [
            (
                entry.producer_id,
                entry.producer_epoch,
                entry.coordinator_epoch,
                entry.timestamp_ms,
                entry.last_sequence - entry.offset_delta,
                entry.last_sequence,
                entry.last_offset,
                entry.offset_delta,
            )
            for entry in entries
        ] == expected


@pytest.mark.parametrize("partition", ["segments-0", "tx-0", "tx-1", "codec-zstd-0", "codec-librdkafka-0"])
def test_the_same_appends_give_the_same_files(tmp_path: Path, partition: str) -> None:
    source = RECORDED / "clean" / "data" / partition
    log = open_log(tmp_path / partition, config_of(partition.rpartition("-")[0]))
    for header, data in stored_batches(source):
        origin = AppendOrigin.COORDINATOR if header.is_control else AppendOrigin.CLIENT
        result = log.append_as_leader(as_sent(data), header.partition_leader_epoch, origin=origin)
        assert (result.first_offset, result.last_offset) == (header.base_offset, header.last_offset)
        log.update_high_watermark(log.log_end_offset)
    log.flush()
    log.close()
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")
    assert folder_content(log.dir, *kinds) == folder_content(source, *kinds)


def test_the_same_deletion_of_records_leaves_the_same_files(tmp_path: Path) -> None:
    """Thirty records in batches, DeleteRecords up to 17, a retention run, a clean restart and shutdown."""
    running = RECORDED / "running" / "data" / "deleted-records-0"
    environment = StandIn()
    log = open_log(tmp_path / "deleted-records-0", config_of("deleted-records"), environment)
    for path in sorted([*running.glob("*.log"), *running.glob("*.log.deleted")]):
        data = path.read_bytes()
        for position, header in iter_batches(data):
            log.append_as_leader(as_sent(data[position : position + header.size_bytes]), 0)
    log.flush()
    log.update_high_watermark(30)
    log.increment_log_start_offset(17)
    assert log.delete_old_segments(environment.clock.now_ms()) == 2
    kinds = (".deleted", ".log", ".snapshot", "leader-epoch-checkpoint")
    assert folder_content(log.dir, *kinds) == folder_content(running, *kinds)
    log.flush()
    log.close()
    environment.delete_now()
    log = open_log(log.dir, log.config, environment, log_start_offset=17)
    log.close()
    clean = RECORDED / "clean" / "data" / "deleted-records-0"
    kinds = (".log", ".index", ".timeindex", ".snapshot", "leader-epoch-checkpoint")
    assert folder_content(log.dir, *kinds) == folder_content(clean, *kinds)


def test_a_follower_writes_the_same_files(tmp_path: Path) -> None:
    source = RECORDED / "clean" / "data" / "tx-0"
    log = open_log(tmp_path / "tx-0", config_of("tx"))
    for _, data in stored_batches(source):
        log.append_as_follower(memoryview(data))
    log.close()
    kinds = (".log", ".index", ".timeindex", ".txnindex", ".snapshot", "leader-epoch-checkpoint")
    assert folder_content(log.dir, *kinds) == folder_content(source, *kinds)


def test_a_running_brokers_indexes_are_preallocated_like_ours(tmp_path: Path) -> None:
    source = RECORDED / "running" / "data" / "segments-0"
    log = open_log(tmp_path / "segments-0", config_of("segments"))
    for header, data in stored_batches(source):
        log.append_as_leader(as_sent(data), header.partition_leader_epoch)
    log.flush()
    kinds = (".log", ".index", ".timeindex", ".snapshot")
    assert folder_content(log.dir, *kinds) == folder_content(source, *kinds)


@pytest.mark.parametrize("partition", ["segments-0", "tx-0", "codec-none-0", "deleted-records-0", "compacted-tx-0"])
def test_recovery_gives_the_files_that_kafkas_recovery_gave(tmp_path: Path, partition: str) -> None:
    """``clean`` was made from ``running`` by kill -9 and a recovery by Kafka, among other steps."""
    topic = partition.rpartition("-")[0]
    source = recorded_copy("running", tmp_path / "data") / partition
    log = open_log(
        source,
        config_of(topic),
        recovery_point=0,
        log_start_offset=17 if topic == "deleted-records" else 0,
        clean=False,
    )
    log.flush()
    log.close()
    recorded = folder_content(RECORDED / "clean" / "data" / partition, ".log", ".index", ".timeindex", ".txnindex")
    ours = folder_content(source, ".log", ".index", ".timeindex", ".txnindex")
    if topic == "codec-none":
        # Kafka appended to this log after its recovery.
        recorded = {name: data[: len(ours[name])] for name, data in recorded.items()}
    assert ours == recorded


def test_appending_goes_on_where_kafka_stopped(tmp_path: Path) -> None:
    log_dir = recorded_copy("clean", tmp_path / "data")
    manager = manager_of(log_dir)
    manager.load()
    for topic_partition, log in manager.logs.items():
        end_offset, before = log.log_end_offset, read_all(log)
        result = log.append_as_leader(data_batch(b"ours", timestamp_ms=NOW_MS), 7)
        assert result.first_offset == end_offset, topic_partition
        assert read_all(log)[: len(before)] == before
        assert values_of(log, end_offset) == [(end_offset, b"ours")]
        assert log.leader_epochs.latest_entry == (7, end_offset)
    manager.shutdown()
    again = manager_of(log_dir)
    again.load()
    for log in again.logs.values():
        assert values_of(log, log.log_end_offset - 1) == [(log.log_end_offset - 1, b"ours")]
    again.release()


def test_a_mixed_segment_takes_new_batches_and_truncates_to_the_old(tmp_path: Path) -> None:
    folder = recorded_copy("formats-mixed", tmp_path / "data") / "v1-segments-0"
    log = open_log(folder, config_of("v1-segments"))
    before = values_of(log)
    assert [offset for offset, _ in before] == list(range(43))
    log.truncate_to(25)
    assert values_of(log) == before[:25]
    assert log.append_as_leader(data_batch(b"new"), 3).first_offset == 25
    assert values_of(log)[-1] == (25, b"new")


def test_producer_state_of_a_kafka_folder_refuses_what_kafka_would(tmp_path: Path) -> None:
    folder = recorded_copy("clean", tmp_path / "data") / "codec-gzip-0"
    log = open_log(folder, config_of("codec-gzip"))
    again = next(data for header, data in stored_batches(folder) if header.producer_id == 0)
    result = log.append_as_leader(as_sent(again), 0)
    assert result.is_duplicate
    assert (result.first_offset, result.last_offset) == (10, 13)
    assert log.log_end_offset == 14


def test_aborted_transactions_are_found_as_kafka_recorded_them(tmp_path: Path) -> None:
    folder = recorded_copy("clean", tmp_path / "data") / "tx-0"
    log = open_log(folder, config_of("tx"))
    index = dumped("clean", "txnindex", r"firstOffset: (\d+)")
    first, *others = [offset for name in sorted(index) if "tx-0/" in name for (offset,) in index[name]]
    assert len(others) == 7
    assert [transaction.first_offset for transaction in log.collect_aborted_transactions(0, 10)] == [first]
    assert [transaction.first_offset for transaction in log.collect_aborted_transactions(10, 74)] == others
    assert log.collect_aborted_transactions(7, 9) == []
