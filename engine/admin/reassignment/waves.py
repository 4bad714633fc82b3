"""Waves of a plan: which partitions move together, so that no broker copies more than the caps allow. Pure.

A partition moves as a whole, in one wave. So after every wave each partition has the replicas that it had before the
plan or those that the plan gives it, and nothing in between.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from enum import IntEnum, StrEnum

from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot


@dataclass(frozen=True, slots=True)
class WaveMove:
    """One partition of a plan: where its replicas are before, and where they should be.

    ``size_bytes`` is that of its largest replica, None if no broker reported it. ``dirs_before`` is empty, or names a
    log dir or "any" for each replica of ``before``.
    """

    move: PartitionMove
    before: tuple[int, ...]
    size_bytes: int | None = None
    dirs_before: tuple[str, ...] = ()

    @property
    def name(self) -> TopicPartition:
        return self.move.name

    @property
    def target(self) -> tuple[int, ...]:
        return self.move.replicas

    @property
    def adding(self) -> tuple[int, ...]:
        return tuple(broker for broker in self.target if broker not in self.before)

    @property
    def changes_leader(self) -> bool:
        """Whether another replica comes first, which is the preferred leader."""
        return self.before[:1] != self.target[:1]

    @property
    def changing_dirs(self) -> tuple[int, ...]:
        """The brokers that keep their replica and move it to another of their log dirs."""
        dirs = PartitionMove(self.name, self.before, self.dirs_before).wanted_dirs
        return tuple(
            broker
            for broker, path in self.move.wanted_dirs.items()
            if broker in self.before and dirs.get(broker) != path
        )

    @property
    def disks(self) -> tuple[str, ...]:
        """What it changes inside brokers: ``2: /a → /b`` for each replica that goes to another log dir."""
        wanted = self.move.wanted_dirs
        old = dict(zip(self.before, self.dirs_before, strict=False))
        return tuple(f"{broker}: {old.get(broker, 'any')} → {wanted[broker]}" for broker in self.changing_dirs)

    @property
    def copied_bytes(self) -> int | None:
        """What all its new replicas have to copy; None if the size is unknown."""
        copies = len(self.adding) + len(self.changing_dirs)
        return None if self.size_bytes is None else self.size_bytes * copies


Wave = tuple[WaveMove, ...]
"""Partitions that move at the same time."""


@dataclass(frozen=True, slots=True)
class WaveCaps:
    """What one broker may copy in one wave, in and out each; None is no cap.

    A single partition above a cap moves alone: it cannot be moved in parts.
    """

    replicas: int | None = 10
    size_bytes: int | None = None


class _Phase(IntEnum):
    """Leaders move last: a wave of an earlier phase leaves every preferred leader where it is."""

    KEEPS_LEADER = 0
    CHANGES_LEADER = 1
    REORDERS = 2


class Standing(StrEnum):
    """Where a partition of a plan is."""

    DONE = "done"
    MOVING = "moving"
    WAITING = "waiting"
    """It is where the plan expects it, or on its way back there; nothing is moving it to its target."""
    DRIFTED = "drifted"
    """It was moved elsewhere, or is being moved there."""
    GONE = "gone"


def waves_of(moves: Iterable[WaveMove], caps: WaveCaps) -> tuple[Wave, ...]:
    """Spread moves over as few waves as the caps allow, each move in the first wave that has room for it."""
    waves: list[Wave] = []
    for phase in _Phase:
        packing = _Packing(caps)
        for move in sorted((move for move in moves if _phase_of(move) is phase), key=lambda move: move.name):
            packing.add(move)
        waves += [tuple(wave) for wave in packing.waves]
    return tuple(waves)


def turned_round(moves: Iterable[WaveMove]) -> tuple[WaveMove, ...]:
    """Return the moves that lead back, into the previous log dirs if known."""
    return tuple(
        WaveMove(
            PartitionMove(move.name, move.before, move.dirs_before), move.target, move.size_bytes, move.move.log_dirs
        )
        for move in moves
    )


def standing_of(move: WaveMove, partition: PartitionSnapshot | None, listed: Sequence[int] | None = None) -> Standing:
    """Return where a partition is. ``listed`` is the target that the controller is working on after a request through
    ZooKeeper.

    The order of the replicas only counts for the target: Kafka does not keep it when a reassignment is cancelled.
    """
    if partition is None:
        return Standing.GONE
    under_way = partition.assignment.target_replicas if partition.assignment.is_being_reassigned else listed
    if under_way is not None:
        if tuple(under_way) == move.target:
            return Standing.MOVING
        return Standing.WAITING if set(under_way) == set(move.before) else Standing.DRIFTED
    if partition.replicas == move.target:
        return Standing.DONE
    known = (set(move.before), set(move.target))
    return Standing.WAITING if set(partition.replicas) in known else Standing.DRIFTED


def _phase_of(move: WaveMove) -> _Phase:
    if not move.changes_leader:
        return _Phase.KEEPS_LEADER
    return _Phase.CHANGES_LEADER if set(move.before) != set(move.target) else _Phase.REORDERS


@dataclass(slots=True)
class _Load:
    """What a broker copies in one wave, one way."""

    replicas: int = 0
    size_bytes: int = 0


@dataclass(slots=True)
class _Packing:
    """The waves of one phase while they are filled."""

    caps: WaveCaps
    waves: list[list[WaveMove]] = field(default_factory=list)
    _loads: list[dict[tuple[int, bool], _Load]] = field(default_factory=list)
    _first_open: dict[tuple[int, bool], int] = field(default_factory=dict)
    """The first wave in which a broker is below its cap of replicas: earlier ones need no check."""

    def add(self, move: WaveMove) -> None:
        flows = _flows(move)
        index = max((self._first_open.get(end, 0) for end, _ in flows), default=0)
        while index < len(self.waves) and not self._has_room(index, move, flows):
            index += 1
        if index == len(self.waves):
            self.waves.append([])
            self._loads.append({})
        self.waves[index].append(move)
        for end, replicas in flows:
            load = self._loads[index].setdefault(end, _Load())
            load.replicas += replicas
            load.size_bytes += replicas * self._size(move)
            self._skip_full(end)

    def _has_room(self, index: int, move: WaveMove, flows: Sequence[tuple[tuple[int, bool], int]]) -> bool:
        for end, replicas in flows:
            load = self._loads[index].get(end)
            if load is None:
                continue
            if self.caps.replicas is not None and load.replicas + replicas > self.caps.replicas:
                return False
            if (
                self.caps.size_bytes is not None
                and load.size_bytes + replicas * self._size(move) > self.caps.size_bytes
            ):
                return False
        return True

    def _skip_full(self, end: tuple[int, bool]) -> None:
        index = self._first_open.get(end, 0)
        while index < len(self.waves) and self._is_full(index, end):
            index += 1
        self._first_open[end] = index

    def _is_full(self, index: int, end: tuple[int, bool]) -> bool:
        load = self._loads[index].get(end)
        return load is not None and self.caps.replicas is not None and load.replicas >= self.caps.replicas

    def _size(self, move: WaveMove) -> int:
        """An unknown size fills a wave, because it may be anything."""
        return (self.caps.size_bytes or 0) if move.size_bytes is None else move.size_bytes


def _flows(move: WaveMove) -> list[tuple[tuple[int, bool], int]]:
    """Return the ends of the copies, each a broker and whether it receives, with the number of replicas.

    The first replica sends, because followers fetch from the leader. A move between log dirs is both ends at one
    broker.
    """
    flows: dict[tuple[int, bool], int] = {}
    inside = move.changing_dirs
    for broker in (*move.adding, *inside):
        flows[broker, True] = flows.get((broker, True), 0) + 1
    for broker in (*(move.before[0] for _ in move.adding), *inside):
        flows[broker, False] = flows.get((broker, False), 0) + 1
    return sorted(flows.items())
