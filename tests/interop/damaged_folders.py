"""Partition folders with many kinds of damage. Two engines open them and should handle them alike."""

from __future__ import annotations

import shutil
import struct
from collections.abc import Callable
from pathlib import Path

from log_folders import data_batch, marker_batch, open_log

from engine.broker.log.append_origin import AppendOrigin
from engine.kafka.config.log_config import LogConfig

CONFIG = LogConfig(segment_bytes=1000, index_interval_bytes=150, segment_index_bytes=1024, retention_ms=-1)
ABORTING, COMMITTING, IDEMPOTENT = 3000, 3001, 3002

Damage = Callable[["Folder"], object]


class Folder:
    """A partition's folder, and the content of its log dir's checkpoint files."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self.end_offset = 0
        self.recovery_point = 0
        self.log_start_offset = 0

    @property
    def bases(self) -> list[int]:
        return sorted(int(path.stem) for path in self.path.glob("*.log"))

    def file(self, index: int, kind: str = "log") -> Path:
        """Return a file of the segment at ``index``."""
        return self.path / f"{self.bases[index]:020d}.{kind}"

    def change(self, index: int, kind: str, change: Callable[[bytes], bytes]) -> None:
        file = self.file(index, kind)
        file.write_bytes(change(file.read_bytes() if file.exists() else b""))


def filled(path: Path, begin_ms: int, *, orderly: bool) -> Folder:
    """Write a log of some segments with idempotent, committed, aborted and open transactions under three epochs."""
    log = open_log(path, CONFIG)
    for n in range(60):
        epoch = n // 25
        when = begin_ms + n * 10
        kind = n % 6
        if kind == 0:
            log.append_as_leader(data_batch(b"plain %03d" % n, timestamp_ms=when), epoch)
        elif kind in (1, 2):
            producer = (IDEMPOTENT, 0, n // 6 * 2 + kind - 1)
            log.append_as_leader(data_batch(b"idempotent %03d" % n, timestamp_ms=when, producer=producer), epoch)
        elif kind in (3, 4):
            producer = ((ABORTING, 1, n // 6), (COMMITTING, 2, n // 6))[kind - 3]
            batch = data_batch(b"in a transaction %03d" % n, timestamp_ms=when, producer=producer, transactional=True)
            log.append_as_leader(batch, epoch)
        elif n < 55:
            for producer_id, producer_epoch, commit in ((ABORTING, 1, False), (COMMITTING, 2, True)):
                marker = marker_batch(producer_id, producer_epoch, commit=commit, timestamp_ms=when)
                log.append_as_leader(marker, epoch, origin=AppendOrigin.COORDINATOR)
    log.update_high_watermark(log.log_end_offset)
    log.flush()
    if orderly:
        log.close()
    else:
        log.abandon()
    folder = Folder(path)
    folder.end_offset = log.log_end_offset
    return folder


def _flipped(at: int) -> Callable[[bytes], bytes]:
    return lambda data: data[:at] + bytes([data[at] ^ 0xFF]) + data[at + 1 :]


def _swap(folder: Folder) -> None:
    merged = folder.file(1).read_bytes() + folder.file(2).read_bytes()
    base = folder.bases[1]
    for kind in ("index", "timeindex"):
        (folder.path / f"{base:020d}.{kind}.swap").write_bytes(b"")
    (folder.path / f"{base:020d}.log.swap").write_bytes(merged)


def _remove_segment(folder: Folder, index: int) -> None:
    for path in folder.path.glob(f"{folder.bases[index]:020d}.*"):
        path.unlink()


def _add_empty(folder: Folder, offset: int, *kinds: str) -> None:
    for kind in kinds:
        (folder.path / f"{offset:020d}.{kind}").write_bytes(b"")


def _delete_all(folder: Folder, kind: str) -> None:
    for path in folder.path.glob(f"*.{kind}"):
        path.unlink()


def _set_start(folder: Folder, offset: int) -> None:
    folder.log_start_offset = offset


def _set_recovery_point(folder: Folder, offset: int) -> None:
    folder.recovery_point = offset


def _overflow(folder: Folder) -> None:
    data = bytearray(data_batch(b"far away", timestamp_ms=5000))
    struct.pack_into(">q", data, 0, 2**31 + 70)
    struct.pack_into(">i", data, 12, 2)
    folder.change(-1, "log", lambda old: old + bytes(data))


def _write(folder: Folder, name: str, data: bytes) -> None:
    (folder.path / name).write_bytes(data)


DAMAGES: dict[str, Damage] = {
    "none": lambda f: None,
    "torn-1": lambda f: f.change(-1, "log", lambda d: d[:-1]),
    "torn-70": lambda f: f.change(-1, "log", lambda d: d[:-70]),
    "torn-to-nothing": lambda f: f.change(-1, "log", lambda d: d[:30]),
    "garbage": lambda f: f.change(-1, "log", lambda d: d + b"garbage" * 20),
    "zeroes": lambda f: f.change(-1, "log", lambda d: d + bytes(300)),
    "ones": lambda f: f.change(-1, "log", lambda d: d + b"\xff" * 100),
    "flip-middle": lambda f: f.change(2, "log", _flipped(300)),
    "flip-first": lambda f: f.change(0, "log", _flipped(70)),
    "flip-first-length": lambda f: f.change(0, "log", _flipped(10)),
    "flip-magic": lambda f: f.change(2, "log", _flipped(16)),
    "no-index": lambda f: f.file(2, "index").unlink(),
    "no-timeindex": lambda f: f.file(2, "timeindex").unlink(),
    "no-indexes": lambda f: (_delete_all(f, "index"), _delete_all(f, "timeindex"), _delete_all(f, "txnindex")),
    "index-garbage": lambda f: f.change(2, "index", lambda d: b"\x01" * 24),
    "index-odd": lambda f: f.change(2, "index", lambda d: d[:5]),
    "timeindex-garbage": lambda f: f.change(2, "timeindex", lambda d: b"\x01" * 36),
    "txnindex-garbage": lambda f: f.change(2, "txnindex", lambda d: bytes(34)),
    "txnindex-empty": lambda f: f.change(2, "txnindex", lambda d: b""),
    "txnindex-odd": lambda f: f.change(2, "txnindex", lambda d: d[:20]),
    "no-snapshots": lambda f: _delete_all(f, "snapshot"),
    "snapshot-garbage": lambda f: [p.write_bytes(b"\x07" * 50) for p in f.path.glob("*.snapshot")],
    "snapshot-empty": lambda f: [p.write_bytes(b"") for p in f.path.glob("*.snapshot")],
    "snapshot-strays": lambda f: [_write(f, f"{n:020d}.snapshot", b"x") for n in (3, 17, 33, 500)],
    "epochs-beyond": lambda f: _write(f, "leader-epoch-checkpoint", b"0\n4\n0 0\n1 27\n2 58\n9 900\n"),
    "epochs-gone": lambda f: (f.path / "leader-epoch-checkpoint").unlink(),
    "epochs-old": lambda f: _write(f, "leader-epoch-checkpoint", b"0\n1\n0 0\n"),
    "epochs-wrong": lambda f: _write(f, "leader-epoch-checkpoint", b"0\n2\n0 0\n5 20\n"),
    "start-beyond": lambda f: _set_start(f, 500),
    "start-within": lambda f: _set_start(f, f.bases[2] + 2),
    "start-at-segment": lambda f: _set_start(f, f.bases[2]),
    "start-in-last": lambda f: _set_start(f, f.bases[-1] + 1),
    "recovery-beyond": lambda f: _set_recovery_point(f, 5000),
    "recovery-middle": lambda f: (_set_recovery_point(f, f.bases[2] + 1), f.change(1, "log", _flipped(300))),
    "recovery-torn": lambda f: (_set_recovery_point(f, f.bases[2] + 1), f.change(-1, "log", lambda d: d[:-9])),
    "recovery-no-index": lambda f: (_set_recovery_point(f, f.bases[3]), f.file(1, "index").unlink()),
    "recovery-no-timeindex": lambda f: (_set_recovery_point(f, f.bases[3]), f.file(1, "timeindex").unlink()),
    "swap": _swap,
    "cleaned": lambda f: _write(f, f"{f.bases[1]:020d}.log.cleaned", b"half"),
    "swap-unfinished": lambda f: (_swap(f), _write(f, f"{f.bases[0]:020d}.log.cleaned", b"")),
    "deleted": lambda f: _write(f, f"{f.bases[1]:020d}.log.deleted", b"old"),
    "orphan-index": lambda f: _write(f, f"{7:020d}.index", bytes(8)),
    "empty-last": lambda f: _add_empty(f, f.end_offset, "log", "index", "timeindex"),
    "empty-last-bare": lambda f: _add_empty(f, f.end_offset, "log"),
    "empty-beyond": lambda f: _add_empty(f, 99, "log", "index", "timeindex"),
    "no-last": lambda f: _remove_segment(f, -1),
    "no-middle": lambda f: _remove_segment(f, 2),
    "no-first": lambda f: _remove_segment(f, 0),
    "no-segments": lambda f: [p.unlink() for p in f.path.iterdir()],
    "twice": lambda f: f.change(2, "log", lambda d: d + d[: 12 + int.from_bytes(d[8:12], "big")]),
    "overflow": _overflow,
    "other-files": lambda f: _write(f, "notes.txt", b"who put it here?"),
}


AFTER_CRASHES_ONLY = {name for name in DAMAGES if name.startswith(("torn", "flip", "garbage", "zeroes", "ones"))} | {
    "twice",
    "recovery-torn",
}
"""Kafka does not look for these after a clean shutdown: it refuses to start, or appends behind them."""

CUT_LATER = {"twice"}
"""Where offsets stop ascending, Kafka drops the segment. We keep what is before that place."""


def copied(source: Folder, target: Path, damage: Damage) -> Folder:
    """Return a damaged copy of a folder."""
    shutil.copytree(source.path, target)
    folder = Folder(target)
    folder.end_offset = source.end_offset
    damage(folder)
    return folder
