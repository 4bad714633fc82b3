"""The same requests, the same settings: Apache Kafka and klamm leave the same folders, and serve each other's.

Two brokers do the same, are stopped and killed, and then change places. The files are compared while the brokers run,
after an orderly stop, and after a start from a kill; what clients are told is compared too.

Some things need not be the same. ``BUT`` has their names.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import pytest
from folder_pair import HOUR_MS, FolderPair, FolderReader, Told
from folder_scenes import OF_ONE_DIR, OF_ONE_DIR_TOO, OF_TWO_DIRS, Scene, goes_on
from soak import SOAK

from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

COMMON = {
    "zookeeper.session.timeout.ms": "18000",
    "log.initial.task.delay.ms": "200",
    "log.retention.check.interval.ms": "300",
    "log.retention.ms": "-1",
    "log.segment.delete.delay.ms": "3600000",
    "log.index.size.max.bytes": "4096",
    "log.flush.offset.checkpoint.interval.ms": "500",
    "log.flush.start.offset.checkpoint.interval.ms": "500",
    "replica.high.watermark.checkpoint.interval.ms": "500",
    "log.cleaner.backoff.ms": "200",
    "log.cleaner.dedupe.buffer.size": "16777216",
    "offsets.topic.num.partitions": "1",
    "offsets.topic.replication.factor": "1",
    "transaction.state.log.num.partitions": "1",
    "transaction.state.log.replication.factor": "1",
    "transaction.state.log.min.isr": "1",
    # The tests write the markers themselves.
    "transaction.partition.verification.enable": "false",
    "controlled.shutdown.enable": "false",
}

BUT = (
    # Kafka removes it as it stops. Whoever has opened it meanwhile would then lock a file that nobody else sees.
    r"/\.lock$",
    # Kafka writes it beside the file and renames it.
    r"\.tmp$",
    # Kafka makes it, empty, before anything is cleaned.
    r"data2?/cleaner-offset-checkpoint$",
    # What is on its way out: Kafka closes a log before it goes, we leave its files as they are. Our snapshots come with
    # the flush after a roll, and do not come at all if their segment goes earlier.
    r"\.unique-delete/|\.deleted$",
    # Without producers there is nothing in it. Kafka takes it at another offset.
    r"/format-.*\.snapshot$",
)

AS_LONG_AS_THEY_RUN = (
    *BUT,
    # Kafka makes the indexes of a segment when it first needs them.
    r"/retention-(zero|ms-all)-0/\d+\.(time)?index$",
    # After a move, Kafka's file in the old log dir keeps its entries, and the new folder is not flushed yet.
    r"data/replication-offset-checkpoint|data2/recovery-point-offset-checkpoint",
)

NOT_TOLD_BY_KAFKA = r"(compact.*|no-times|produced-0)-0 at$"
"""Where an empty segment, or one without times, was written after the time that is looked for, Kafka finds nothing."""

PAIRS: dict[str, tuple[tuple[Scene, ...], int, dict[str, str]]] = {
    "one dir": (OF_ONE_DIR, 1, {}),
    "one dir too": (OF_ONE_DIR_TOO, 1, {}),
    "two dirs": (OF_TWO_DIRS, 2, {"inter.broker.protocol.version": "2.8", "producer.id.expiration.ms": "1800000"}),
}


def test_how_long_after_its_writing_a_marker_was_cleaned_makes_no_difference(tmp_path: Path) -> None:
    """Its time is stored as the distance to the delete horizon, in one byte or in several."""
    written_ms, late_ms = 5_000_000, 4_900_000

    def told(horizon_ms: int, value: bytes = b"value", *, is_running: bool = True) -> Told:
        path = tmp_path / "data" / "t-0" / "00000000000000000030.log"
        path.parent.mkdir(parents=True, exist_ok=True)
        marker = Record(offset=30, timestamp_ms=written_ms, key=b"key", value=value)
        path.write_bytes(encode_batch([marker], base_offset=30, control=True, delete_horizon_ms=horizon_ms))
        return FolderReader(tmp_path, late_ms - HOUR_MS // 2, is_running=is_running).told([tmp_path / "data"])

    horizons = [written_ms + waited_ms for waited_ms in (0, 63, 64, 65, 8_191, 8_192, 8_193, 70_000)]
    for is_running in (True, False):
        all_told = [told(horizon, is_running=is_running) for horizon in horizons]
        assert all(each == all_told[0] for each in all_told)
        assert told(horizons[0], b"longer", is_running=is_running) != all_told[0]


@pytest.mark.parametrize("name", PAIRS if SOAK > 1 else ["one dir"])
def test_the_same_folders(zk_chroot: str, tmp_path: Path, name: str) -> None:
    scenes, log_dirs, more = PAIRS[name]
    pair = FolderPair(tmp_path, zk_chroot, {**COMMON, **more}, log_dirs=log_dirs)
    try:
        live_through(pair, scenes)
    finally:
        pair.close()


def live_through(pair: FolderPair, scenes: tuple[Scene, ...]) -> None:
    pair.start()
    for scene in scenes:
        scene(pair)
    stands_still(pair)
    pair.stop()
    assert pair.differing_files(but=BUT) == [], "after an orderly stop"
    pair.start(is_killed=True)
    goes_on(pair)
    stands_still(pair)
    pair.kill()
    pair.start()
    seen = stands_still(pair)
    pair.stop()
    assert pair.differing_files(but=BUT) == [], "after a kill, a start and an orderly stop"
    pair.change_places()
    pair.start(is_killed=True)
    compare(seen, {which: pair.seen(which) for which in pair.engines}, "read by the other")
    goes_on(pair)
    seen = stands_still(pair)
    pair.kill()
    pair.change_places()
    pair.start()
    compare(seen, {which: pair.seen(which) for which in pair.engines}, "killed, and read by the other")
    stands_still(pair)
    pair.stop()
    assert pair.differing_files(but=BUT) == [], "after all"


def stands_still(pair: FolderPair) -> dict[str, Told]:
    """Wait until both have done everything. Compare their files and what they tell; return what they tell."""
    assert pair.wait_until_alike(AS_LONG_AS_THEY_RUN) == []
    seen = {which: pair.seen(which) for which in pair.engines}
    compare({"second": seen["first"]}, seen, "told by both")
    return seen


def compare(expected: Mapping[str, Told], found: Mapping[str, Told], what: str) -> None:
    differences = [
        f"{which}: {name}: {value!r:.400} / {found[which].get(name)!r:.400}"
        for which, content in expected.items()
        for name, value in content.items()
        if found[which].get(name) != value and not re.search(NOT_TOLD_BY_KAFKA, name)
    ]
    assert not differences, f"{what}:\n" + "\n".join(differences)
