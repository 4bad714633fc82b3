"""Damaged folders, opened after a crash and after a clean shutdown: Apache Kafka and klamm leave the same files."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from apache_kafka import ApacheKafkaBroker
from damaged_folders import AFTER_CRASHES_ONLY, CONFIG, CUT_LATER, DAMAGES, Folder, copied, filled

from engine.broker.log.log_manager import LogManager, LogManagerConfig
from engine.common.clock import SystemClock
from engine.common.model import TopicPartition
from engine.kafka.formats.checkpoints import encode_offset_checkpoint
from engine.kafka.formats.clean_shutdown import encode_clean_shutdown
from engine.local.addresses import own_loopback_address

EXPIRATION_MS = 2**31 - 1


def names(*, clean: bool) -> list[str]:
    return [name for name in DAMAGES if name not in CUT_LATER and not (clean and name in AFTER_CRASHES_ONLY)]


def prepare(log_dir: Path, source: Folder, *, clean: bool) -> None:
    log_dir.mkdir(parents=True)
    folders = {name: copied(source, log_dir / f"{name}-0", DAMAGES[name]) for name in names(clean=clean)}
    points = {TopicPartition(name, 0): folder.recovery_point for name, folder in folders.items()}
    starts = {TopicPartition(name, 0): folder.log_start_offset for name, folder in folders.items()}
    (log_dir / "recovery-point-offset-checkpoint").write_text(encode_offset_checkpoint(points))
    (log_dir / "log-start-offset-checkpoint").write_text(encode_offset_checkpoint(starts))
    if clean:
        (log_dir / ".kafka_cleanshutdown").write_text(encode_clean_shutdown())


def files_of(folder: Path) -> dict[str, bytes]:
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir()) if not path.name.endswith(".deleted")}


@pytest.mark.parametrize("clean", [False, True], ids=["after a crash", "after an orderly stop"])
def test_the_same_files_are_left(tmp_path: Path, zk_chroot: str, clean: bool) -> None:
    source = filled(tmp_path / "source-0", SystemClock().now_ms(), orderly=clean)
    prepare(tmp_path / "kafka" / "data", source, clean=clean)
    shutil.copytree(tmp_path / "kafka" / "data", tmp_path / "ours")
    settings = {
        "log.segment.bytes": str(CONFIG.segment_bytes),
        "log.index.interval.bytes": str(CONFIG.index_interval_bytes),
        "log.index.size.max.bytes": str(CONFIG.segment_index_bytes),
        "log.retention.ms": "-1",
        "log.initial.task.delay.ms": "600000",
        "log.cleaner.enable": "false",
        "num.recovery.threads.per.data.dir": "2",
        "producer.id.expiration.ms": str(EXPIRATION_MS),
        "controlled.shutdown.enable": "false",
    }
    with ApacheKafkaBroker(
        tmp_path / "kafka",
        broker_id=0,
        host=own_loopback_address(),
        port=22092,
        zookeeper_connect=zk_chroot,
        overrides=settings,
        shares_jvm=True,
    ):
        pass
    limits = LogManagerConfig((tmp_path / "ours",), 2, producer_id_expiration_ms=EXPIRATION_MS)
    manager = LogManager(limits, lambda _: CONFIG, SystemClock(), lambda path: pytest.fail(f"{path} failed"))
    manager.load()
    gaps = {log.topic_partition.topic: log.gap.offset for log in manager.logs.values() if log.gap is not None}
    assert gaps.keys() == (set() if clean else {"no-middle", "empty-beyond"})
    manager.shutdown()
    differences = []
    for name in names(clean=clean):
        theirs, ours = (files_of(tmp_path / which / f"{name}-0") for which in ("kafka/data", "ours"))
        differences += [
            f"{name}: {file} Kafka {_told(theirs.get(file))} ours {_told(ours.get(file))}"
            for file in sorted(theirs.keys() | ours.keys())
            if theirs.get(file) != ours.get(file)
        ]
    for file in ("recovery-point-offset-checkpoint", "log-start-offset-checkpoint"):
        theirs_said, ours_said = (
            set((tmp_path / which / file).read_text().splitlines()[2:]) for which in ("kafka/data", "ours")
        )
        if file.startswith("recovery"):
            # Kafka forgets a gap. We find it again at each start, until the leader has answered.
            theirs_said = {line for line in theirs_said if line.split()[0] not in gaps}
            theirs_said |= {f"{name} 0 {offset}" for name, offset in gaps.items()}
        differences += [f"{file}: Kafka {line}" for line in theirs_said - ours_said]
        differences += [f"{file}: ours {line}" for line in ours_said - theirs_said]
    assert not differences, "\n".join(differences)


def _told(data: bytes | None) -> str:
    return "has none" if data is None else f"{len(data)} bytes {data[-60:]!r}"
