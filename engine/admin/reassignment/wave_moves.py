"""The moves of a plan with the sizes that brokers report, spread over waves."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.reassignment.log_dirs import read_log_dirs
from engine.admin.reassignment.waves import Wave, WaveCaps, WaveMove, waves_of
from engine.common.model import TopicPartition


async def plan_waves(cluster: Cluster, moves: Sequence[WaveMove], caps: WaveCaps) -> tuple[Wave, ...]:
    """Return the waves that carry out ``moves``."""
    return waves_of(await with_sizes(cluster, moves), caps)


async def with_sizes(cluster: Cluster, moves: Sequence[WaveMove]) -> list[WaveMove]:
    """Return the moves with the sizes of their partitions; None stays if no broker reports it."""
    sizes: dict[TopicPartition, int] = {}
    holders = {broker for move in moves for broker in move.before}
    try:
        live = await (await cluster.wire()).live_brokers()
        found = await read_log_dirs(cluster, holders & live, [move.name for move in moves])
    except AdminError as error:
        cluster.observe(f"no sizes: {error}")
        return list(moves)
    for (name, _), place in found.places.items():
        sizes[name] = max(sizes.get(name, 0), place.size_bytes)
    return [replace(move, size_bytes=sizes.get(move.name)) for move in moves]
