"""The gate before each wave: whether the cluster is as healthy as when the plan began.

What was wrong at the start does not close the gate: the plan may be meant to fix it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.reassignment.waves import Wave, WaveMove
from engine.admin.topics.access import topic_reader
from engine.common.model import NO_LEADER, TopicPartition

_NAMED_MAX = 3


@dataclass(frozen=True, slots=True)
class ClusterHealth:
    """Which brokers are alive, which replicas are out of sync (not counting those being added), what has no leader."""

    live: frozenset[int]
    out_of_sync: Mapping[TopicPartition, frozenset[int]]
    leaderless: frozenset[TopicPartition]


async def read_health(cluster: Cluster) -> ClusterHealth:
    """Look at all partitions.

    Raises:
        Unreachable: nobody answers.
    """
    reader = await topic_reader(cluster, on_unreadable=cluster.observe, on_unknown_settings=cluster.observe)
    topics = await reader.topics([entry.topic for entry in await reader.names()])
    out_of_sync: dict[TopicPartition, frozenset[int]] = {}
    leaderless = set()
    for topic in topics:
        for partition in topic.partitions:
            name = TopicPartition(topic.name, partition.partition)
            missing = frozenset(partition.osr) - set(partition.assignment.adding_replicas)
            if missing:
                out_of_sync[name] = missing
            if partition.leader == NO_LEADER:
                leaderless.add(name)
    return ClusterHealth(await reader.live_brokers(), out_of_sync, frozenset(leaderless))


def obstacles(start: ClusterHealth, now: ClusterHealth, wave: Wave) -> list[str]:
    """Return why a wave must not begin, one sentence for each reason."""
    found = []
    dead = sorted({broker for move in wave for broker in move.adding} - now.live)
    if dead:
        found.append(f"dead target: broker{_s(dead)} {_listed(dead)} should receive replicas and cannot be reached")
    held_up = {
        move.name: kept
        for move in wave
        if (kept := set(move.target) & set(move.before) - now.live) and _changes_set(move)
    }
    if held_up:
        # Kafka ends no move before all its targets are in the ISR.
        gone = sorted(set().union(*held_up.values()))
        keeps = "keeps its replica" if len(gone) == 1 else "keep their replicas"
        found.append(f"{_named(sorted(held_up))} would wait for dead broker{_s(gone)} {_listed(gone)}, which {keeps}")
    leaderless = sorted(now.leaderless & {move.name for move in wave})
    if leaderless:
        found.append(f"no leader to copy from: {_named(leaderless)}")
    shrunk = shrunk_since(start, now)
    if shrunk:
        found.append(f"the ISR has shrunk for {_named(shrunk)}")
    return found


def _changes_set(move: WaveMove) -> bool:
    return set(move.target) != set(move.before)


def shrunk_since(start: ClusterHealth, now: ClusterHealth) -> list[TopicPartition]:
    """Return the partitions that have lost an in-sync replica since the start."""
    return sorted(name for name, out in now.out_of_sync.items() if out - start.out_of_sync.get(name, frozenset()))


def behind_since(start: ClusterHealth, now: ClusterHealth) -> list[TopicPartition]:
    """Return the partitions of which a live replica has left the ISR since the start: a slower copy may help it."""
    fallen = {name: out - start.out_of_sync.get(name, frozenset()) for name, out in now.out_of_sync.items()}
    return sorted(name for name, out in fallen.items() if out & now.live)


def _named(names: list[TopicPartition]) -> str:
    more = len(names) - _NAMED_MAX
    return ", ".join(map(str, names[:_NAMED_MAX])) + (f" and {more} more" if more > 0 else "")


def _listed(values: list[int]) -> str:
    return ", ".join(map(str, values))


def _s(values: list[int]) -> str:
    return "" if len(values) == 1 else "s"
