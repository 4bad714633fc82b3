"""Groups in ZooKeeper, as a feed reads them: over its own session, a few in turn."""

from __future__ import annotations

from dataclasses import replace

from engine.admin.groups.old_consumers import old_group_names, read_old_states
from engine.admin.groups.scope import FoundGroups, GroupScope
from engine.admin.groups.values import GroupState, GroupType
from engine.admin.lag.measuring import LagMeter, LagOptions
from engine.admin.lag.results import GroupLag
from engine.admin.watch.by_wire import unmeasured
from engine.admin.watch.frame import WatchedGroup
from engine.admin.watch.shared_cluster import SharedCluster

OLD_GROUPS_PER_READING = 5
"""Each costs ZooKeeper two reads per partition, and ZooKeeper has other work to do."""


class OldGroupReader:
    """Reads them repeatedly: all names and states each time, lag and members of a few in turn."""

    def __init__(self, cluster: SharedCluster) -> None:
        self._cluster = cluster
        options = LagOptions(looks_max=1)
        self._meter = LagMeter(cluster, GroupScope(), lambda topic: True, options)
        self._turn: list[str] = []
        self.known: dict[str, WatchedGroup] = {}
        """What was read last; it stays while ZooKeeper cannot be asked."""

    async def read(self, now_ms: int) -> None:
        """Bring ``known`` up to date.

        Raises:
            AdminError, ZooKeeperError: ZooKeeper does not answer.
        """
        zk = await self._cluster.zookeeper()
        states = await read_old_states(zk, await old_group_names(zk))
        still_listed = [name for name in self._turn if name in states]
        waiting = set(still_listed)
        ordered = [name for name in states if name not in waiting] + still_listed
        chosen = ordered[:OLD_GROUPS_PER_READING]
        self._turn = ordered[OLD_GROUPS_PER_READING:] + chosen
        measured: dict[str, GroupLag] = {}
        if chosen:
            answer, _ = await self._meter.measure(found=FoundGroups((), tuple(chosen), {}))
            measured = {group.group: group for group in answer.groups}
        self.known = {name: self._watched(name, states[name], measured.get(name), now_ms) for name in states}
        self._meter.forget_all_but(self.known)

    def _watched(self, name: str, state: GroupState, lag: GroupLag | None, now_ms: int) -> WatchedGroup:
        known = self.known.get(name)
        if lag is None:
            lag = unmeasured(name, GroupType.ZOOKEEPER, state) if known is None else replace(known.lag, state=state)
        has_lag = lag.partition_count > 0 or (known is not None and known.has_lag)
        sample = self._meter.latest.get((name, GroupType.ZOOKEEPER))
        members = sample.members if sample is not None else None if known is None else known.members
        since_ms = known.since_ms if known is not None and known.lag.state == lag.state else now_ms
        return WatchedGroup(lag, members, None, "", since_ms, has_lag)
