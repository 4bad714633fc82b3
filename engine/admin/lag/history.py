"""Samples in a file, so that a run by cron knows what earlier runs saw. JSON lines, one per run.

    {"time": "2026-11-21T12:00:00.000Z", "cluster_id": "…", "groups": [{"group": "g", "type": "classic",
     "partitions": [["orders", 0, 120, 125], …]}]}

A partition is topic, number, committed offset, end offset; null means unknown. Lines of other clusters stay. klamm
skips and reports a line that was cut off (a full disk, a power cut) or is damaged. Runs at the same time wait for one
another. The file keeps a day, at most 64 MB; klamm shortens it when it is twice that.
"""

from __future__ import annotations

import fcntl
import json
import os
import re
from collections.abc import Collection, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.remedies import Parameter, Phrase
from engine.admin.groups.values import GroupType
from engine.admin.lag.sampling import Sample
from engine.admin.lag.verdicts import Point
from engine.common.model import TopicPartition

POINTS_MAX = 10
"""How many of the latest points are judged: as many as Burrow keeps by default."""
KEPT_MS = 24 * 3600 * 1000
FILE_BYTES = 64 * 1024 * 1024

_LOOKS_MAX = 3 * POINTS_MAX
"""Not every sample has every group."""
_TIME = re.compile(rb'\{"time":"(\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z)"')
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError)
_GroupKey = tuple[str, GroupType | None]
Points = dict[_GroupKey, dict[TopicPartition, list[Point]]]


@dataclass(slots=True)
class History:
    """The content of the file: points by group and partition in time order, and what was wrong with the file."""

    points: Points = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    def add(self, sample: Sample) -> None:
        """Add a sample as the latest points."""
        for key, group in sample.groups.items():
            series = self.points.setdefault(key, {})
            for name, partition in group.partitions.items():
                points = series.setdefault(name, [])
                points.append(Point(sample.time_ms, partition.committed, partition.end))
                del points[:-POINTS_MAX]

    def has_read_all(self, group: _GroupKey, name: TopicPartition) -> None:
        """Let the latest point end where it is committed, because what is behind holds no record.

        Otherwise the next record would seem to have waited since the marker came.
        """
        latest = self.points[group][name]
        latest[-1] = latest[-1]._replace(end=latest[-1].committed)

    def keep_only(self, groups: Collection[str], latest: Mapping[_GroupKey, Collection[TopicPartition]]) -> None:
        """Forget all other groups, and all other partitions of the groups in ``latest``."""
        for key in [key for key in self.points if key[0] not in groups]:
            del self.points[key]
        for key, partitions in latest.items():
            for gone in [name for name in self.points.get(key, ()) if name not in partitions]:
                del self.points[key][gone]


def read_history(path: Path, cluster_id: str | None, now_ms: int) -> History:
    """Read this cluster's samples of the last day; a missing file counts as empty.

    Raises:
        NotFound: its folder does not exist.
        BadRequest: it is not a history at all.
    """
    history = History()
    if not path.parent.is_dir():
        raise NotFound("no such folder", where=str(path.parent))
    try:
        with path.open("rb") as file:
            fcntl.flock(file, fcntl.LOCK_SH)
            lines = file.read().splitlines()
    except FileNotFoundError:
        return history
    except IsADirectoryError as error:
        raise BadRequest("a folder, not a file of samples", where=str(path)) from error
    looks = _latest_looks(path, lines, cluster_id, now_ms, history.complaints)
    for time_ms, groups in reversed(looks):
        _take(history.points, time_ms, groups)
    return history


def _latest_looks(
    path: Path, lines: list[bytes], cluster_id: str | None, now_ms: int, complaints: list[str]
) -> list[tuple[int, _Groups]]:
    """Return this cluster's latest samples, newest first; parses only the end of a long file."""
    looks: list[tuple[int, _Groups]] = []
    has_good = False
    for number in range(len(lines), 0, -1):
        try:
            time_ms, its_cluster, groups = _parse(lines[number - 1])
        except _DAMAGE:
            complaints.insert(0, f"{path}: line {number} is damaged and was left out")
            continue
        has_good = True
        if its_cluster == cluster_id and now_ms - KEPT_MS <= time_ms <= now_ms:
            looks.append((time_ms, groups))
        if len(looks) == _LOOKS_MAX:
            break
    if lines and not has_good:
        hint = Phrase("give a new name after ", Parameter.HISTORY)
        raise BadRequest("not a file of samples", where=str(path), hint=hint)
    return looks


def append_sample(path: Path, cluster_id: str | None, sample: Sample) -> None:
    """Add a sample to the file; readers see all of it or nothing."""
    line = json.dumps(_document(cluster_id, sample), ensure_ascii=False, separators=(",", ":")).encode() + b"\n"
    with _locked(path) as file:
        _drop_old(file, sample.time_ms)
        end = file.seek(0, os.SEEK_END)
        if end and _last_byte(file, end) != b"\n":
            line = b"\n" + line
        file.write(line)
        file.flush()
        os.fsync(file.fileno())


@contextmanager
def _locked(path: Path) -> Iterator[BinaryIO]:
    descriptor = os.open(path, os.O_RDWR | os.O_CREAT, 0o644)
    with os.fdopen(descriptor, "r+b") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        yield file


def _last_byte(file: BinaryIO, end: int) -> bytes:
    file.seek(end - 1)
    last = file.read(1)
    file.seek(end)
    return last


def _drop_old(file: BinaryIO, now_ms: int) -> None:
    """Rewrite the file without old lines, once it is twice as long as it should be; the lock is held."""
    file.seek(0)
    first_ms = _time_of(file.readline())
    size = file.seek(0, os.SEEK_END)
    if size <= 2 * FILE_BYTES and (first_ms is None or first_ms >= now_ms - 2 * KEPT_MS):
        return
    file.seek(0)
    kept, used = [], 0
    for line in reversed(file.read().splitlines(keepends=True)):
        used += len(line)
        time_ms = _time_of(line)
        if used > FILE_BYTES:
            break
        if time_ms is not None and time_ms >= now_ms - KEPT_MS:
            kept.append(line)
    file.seek(0)
    file.truncate()
    file.writelines(reversed(kept))


def _time_of(line: bytes) -> int | None:
    """Return a line's time without parsing all of it; None if that part is damaged."""
    match = _TIME.match(line)
    return None if match is None else _time_ms(match[1].decode())


def _document(cluster_id: str | None, sample: Sample) -> dict[str, object]:
    moment = datetime.fromtimestamp(sample.time_ms / 1000, UTC)
    return {
        "time": f"{moment:%Y-%m-%dT%H:%M:%S}.{sample.time_ms % 1000:03d}Z",
        "cluster_id": cluster_id,
        "groups": [
            {
                "group": group.group,
                "type": group.type,
                "partitions": [
                    [*name, partition.committed, partition.end] for name, partition in sorted(group.partitions.items())
                ],
            }
            for group in sample.groups.values()
        ],
    }


_Groups = Mapping[_GroupKey, list[tuple[TopicPartition, int | None, int | None]]]


def _parse(line: bytes) -> tuple[int, str | None, _Groups]:
    document = json.loads(line)
    groups: dict[_GroupKey, list[tuple[TopicPartition, int | None, int | None]]] = {
        (str(group["group"]), GroupType(group["type"])): [
            (TopicPartition(str(topic), int(number)), _offset(committed), _offset(end))
            for topic, number, committed, end in group["partitions"]
        ]
        for group in document["groups"]
    }
    return _time_ms(document["time"]), document["cluster_id"], groups


def _time_ms(text: str) -> int:
    return round(datetime.fromisoformat(text).timestamp() * 1000)


def _offset(value: object) -> int | None:
    if value is None or (isinstance(value, int) and value >= 0):
        return value
    raise ValueError(f"not an offset: {value!r}")


def _take(points: Points, time_ms: int, groups: _Groups) -> None:
    for key, partitions in groups.items():
        series = points.setdefault(key, {})
        for name, committed, end in partitions:
            mine = series.setdefault(name, [])
            # A clock that was set back must not make time run backwards here.
            if not mine or time_ms > mine[-1].time_ms:
                mine.append(Point(time_ms, committed, end))
                del mine[: -(POINTS_MAX - 1)]
