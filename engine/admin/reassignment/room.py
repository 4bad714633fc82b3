"""Whether what a reassignment copies fits into the log dirs that it goes to. Pure.

Only known figures count. They exclude what is written or deleted while it runs.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from engine.admin.reassignment.prepare import PlannedDir, PlannedMove
from engine.admin.reassignment.waves import WaveMove
from engine.common.model import TopicPartition
from engine.common.snapshot import LogDirSnapshot


@dataclass(frozen=True, slots=True)
class RoomShortage:
    """More bytes will be copied than are free: into one log dir, or (None) into all those of a broker together."""

    broker: int
    log_dir: str | None
    bytes_to_copy: int
    usable_bytes: int


def room_shortages(
    moves: Iterable[PlannedMove], sizes: Mapping[TopicPartition, int], volumes: Sequence[LogDirSnapshot]
) -> list[RoomShortage]:
    """Return where there is too little room, by broker, a broker as a whole before its log dirs.

    Partitions of unknown size count as empty. A broker with an unknown volume is left out.
    """
    by_broker: Counter[int] = Counter()
    by_dir: Counter[tuple[int, str]] = Counter()
    for move in moves:
        size = sizes.get(move.name, 0)
        for broker in {*move.adding, *(log_dir.broker for log_dir in move.log_dirs)}:
            by_broker[broker] += size
        for log_dir in move.log_dirs:
            by_dir[log_dir.broker, log_dir.after] += size
    free_of_broker = {broker: _free(volumes, broker) for broker in by_broker}
    free_of_dir = {(volume.broker, volume.log_dir): volume.usable_bytes for volume in volumes}
    shortages = [
        RoomShortage(broker, None, size, free)
        for broker, size in by_broker.items()
        if (free := free_of_broker[broker]) is not None and size > free
    ]
    shortages += [
        RoomShortage(*place, size, free)
        for place, size in by_dir.items()
        if (free := free_of_dir.get(place)) is not None and size > free
    ]
    return sorted(shortages, key=lambda shortage: (shortage.broker, shortage.log_dir or ""))


def of_wave(move: WaveMove) -> PlannedMove:
    """Return a move of a plan's wave with the log dirs that its copies are meant for."""
    copied = {*move.adding, *move.changing_dirs}
    dirs = [PlannedDir(broker, None, path) for broker, path in move.move.wanted_dirs.items() if broker in copied]
    removing = tuple(broker for broker in move.before if broker not in move.target)
    return PlannedMove(*move.name, move.before, move.target, move.adding, removing, tuple(dirs))


def _free(volumes: Sequence[LogDirSnapshot], broker: int) -> int | None:
    """Return the free bytes of a broker; log dirs that report the same figures are on one volume, which counts once."""
    disks = {(volume.total_bytes, volume.usable_bytes) for volume in volumes if volume.broker == broker}
    known = [usable for _, usable in disks if usable is not None]
    return sum(known) if known and len(known) == len(disks) else None
