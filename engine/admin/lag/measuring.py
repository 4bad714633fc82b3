"""Measures the lag of a cluster's groups: takes samples until it can judge, then reads the times of unread records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Collection, Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError
from engine.admin.groups.scope import FoundGroups, GroupScope, find_groups
from engine.admin.groups.values import GroupType
from engine.admin.lag.commits import Reader, readers_within_pace
from engine.admin.lag.history import History, append_sample, read_history
from engine.admin.lag.pace import seems_still
from engine.admin.lag.queries import measure_queries
from engine.admin.lag.results import GroupLag, LagAnswer, group_lag, place_of_newest, place_of_unread
from engine.admin.lag.rules import Reason, Verdict, judge
from engine.admin.lag.sampling import GroupSample, IsWanted, PartitionSample, Sample, take_sample
from engine.admin.lag.traces import QueryTraces
from engine.admin.lag.unread import Times, read_times
from engine.admin.topics.selection import TopicSelection, topic_not_found
from engine.common.model import IsolationLevel, TopicPartition

_PATIENCE_S = 2.0
_Key = tuple[str, GroupType | None]

OnLook = Callable[[int, int], None]
"""Called with how many samples there were, and how many groups still need another."""


@dataclass(frozen=True, slots=True)
class LagOptions:
    """How to measure: as many samples as the rules need, at most ``looks_max``; or exactly this many."""

    interval_s: float = 5.0
    looks_max: int = 3
    looks_are_fixed: bool = False
    with_times: bool = True
    history: Path | None = None
    isolation: IsolationLevel = IsolationLevel.READ_UNCOMMITTED
    """Which end counts: the high watermark, or the last stable offset, where readers of committed records stop."""


class LagMeter:
    """Measures once or repeatedly, and remembers what it saw from one answer to the next."""

    def __init__(
        self,
        cluster: Cluster,
        scope: GroupScope | None,
        is_wanted: IsWanted,
        options: LagOptions,
        traces: QueryTraces | None = None,
    ) -> None:
        """Measure the groups of ``scope``, if any, and the queries of Spark that left ``traces``."""
        self._cluster = cluster
        self._scope = scope
        self._is_wanted = is_wanted
        self._options = options
        self._traces = traces
        self._history: History | None = None
        self._cluster_id: str | None = None
        self.latest: dict[_Key, GroupSample] = {}
        """The groups as the last measurement saw them, with their members."""

    async def measure(
        self, on_look: OnLook | None = None, *, found: FoundGroups | None = None
    ) -> tuple[LagAnswer, list[str]]:
        """Sample as often as needed and return the answer, and complaints about the history.

        Args:
            found: the groups to measure, if they have been found already.

        Raises:
            AdminError: nothing at all could be read.
        """
        queries, failures = await self._queries()
        if self._scope is None:
            return self._told(queries, failures), []
        history, complaints = await self._begin()
        if found is None:
            found = await find_groups(self._cluster, self._scope)
        latest: dict[_Key, GroupSample] = {}
        failures += found.failures
        asked = found
        for look in range(self._options.looks_max):
            if look:
                await asyncio.sleep(self._options.interval_s)
            sample = await take_sample(self._cluster, asked, self._is_wanted, self._options.isolation)
            history.add(sample)
            await self._keep(sample)
            failures += sample.failures
            # A group that is gone by now no longer has a lag.
            gone = {key for key in _keys(asked, latest) if key not in sample.groups}
            latest = {key: one for key, one in latest.items() if key not in gone}
            latest.update(sample.groups)
            asked = self._undecided(found, latest, history)
            if on_look is not None:
                on_look(look + 1, len(asked.brokers) + len(asked.zookeeper))
            if not (asked.brokers or asked.zookeeper):
                break
        self.latest = latest
        return self._told([*queries, *await self._groups(latest, history)], failures), complaints

    async def _queries(self) -> tuple[list[GroupLag], list[AdminError]]:
        if self._traces is None:
            return [], []
        queries, failures = await asyncio.to_thread(self._traces.read)
        if not queries:
            return [], failures
        wire = await self._cluster.wire()
        options = self._options
        rows = await measure_queries(wire, queries, self._is_wanted, options.isolation, with_times=options.with_times)
        return [*rows], failures

    def forget_all_but(self, groups: Collection[str]) -> None:
        """Forget groups that are gone, and partitions without offsets: measuring for hours needs the memory."""
        if self._history is not None:
            self._history.keep_only(groups, {key: sample.partitions for key, sample in self.latest.items()})

    async def _begin(self) -> tuple[History, list[str]]:
        if self._history is not None:
            return self._history, []
        self._history = History()
        if self._options.history is not None:
            self._cluster_id = await _cluster_id(self._cluster)
            now_ms = time.time_ns() // 1_000_000
            self._history = await asyncio.to_thread(read_history, self._options.history, self._cluster_id, now_ms)
        return self._history, self._history.complaints

    async def _keep(self, sample: Sample) -> None:
        if self._options.history is not None:
            await asyncio.to_thread(append_sample, self._options.history, self._cluster_id, sample)

    def _undecided(self, found: FoundGroups, latest: dict[_Key, GroupSample], history: History) -> FoundGroups:
        """Return the groups that another sample may tell more about."""
        wanted = {
            key for key, group in latest.items() if self._options.looks_are_fixed or _wants_more(key, group, history)
        }
        at_brokers = {name for name, kind in wanted if kind is not GroupType.ZOOKEEPER}
        return replace(
            found,
            brokers=tuple(name for name in found.brokers if name in at_brokers),
            zookeeper=tuple(name for name in found.zookeeper if (name, GroupType.ZOOKEEPER) in wanted),
        )

    async def _groups(self, latest: dict[_Key, GroupSample], history: History) -> list[GroupLag]:
        times = await self._times(latest)
        within_pace = await self._within_pace(latest, history)
        now_ms = time.time_ns() // 1_000_000
        groups: list[GroupLag] = []
        for key, sample in latest.items():
            series = {name: history.points[key][name] for name in sample.partitions}
            is_old = sample.type is GroupType.ZOOKEEPER
            in_pace = {name for name in series if not is_old and (sample.group, name) in within_pace}
            groups.append(group_lag(sample, series, times, now_ms, in_pace))
        return groups

    def _told(self, groups: list[GroupLag], failures: list[AdminError]) -> LagAnswer:
        groups.sort(key=lambda one: (-one.status.rank, -(one.lag or 0), one.group, one.kind, one.type or ""))
        unique = {(str(error), error.where): error for error in failures}
        return LagAnswer(datetime.now(UTC), tuple(groups), tuple(unique.values()))

    async def _times(self, latest: dict[_Key, GroupSample]) -> Times:
        places = {
            place
            for group in latest.values()
            for name, one in group.partitions.items()
            for place in (place_of_unread(name, one), place_of_newest(name, one))
            if place is not None
        }
        if not places or not self._options.with_times:
            return {}
        return await read_times(await self._cluster.wire(), sorted(places), patience_s=_PATIENCE_S)

    async def _within_pace(self, latest: dict[_Key, GroupSample], history: History) -> frozenset[Reader]:
        """Return the readers that seem to stand still, but just commit rarely."""
        still: dict[Reader, int] = {}
        unowned: set[Reader] = set()
        for key, group in latest.items():
            if group.type is GroupType.ZOOKEEPER or not self._options.with_times:
                continue
            for name, one in group.partitions.items():
                if one.committed is not None and seems_still(_verdict(key, name, one, history)):
                    still[group.group, name] = one.committed
                    if one.is_owned is False:
                        unowned.add((group.group, name))
        if not still:
            return frozenset()
        now_ms = time.time_ns() // 1_000_000
        wire = await self._cluster.wire()
        return await readers_within_pace(wire, still, now_ms, patience_s=_PATIENCE_S, unowned=unowned)


async def absent_topics(cluster: Cluster, topics: TopicSelection, answer: LagAnswer) -> list[AdminError]:
    """Return the failure for named topics that neither a group nor the cluster knows."""
    unread = topics.unmatched({one.topic for group in answer.groups for one in group.partitions})
    names = [name for name in unread if name in topics.names]
    if not names:
        return []
    metadata = await (await cluster.wire()).metadata(names)
    there = {topic.name for topic in metadata.topics if topic.partitions}
    missing = [name for name in names if name not in there]
    return [topic_not_found(missing)] if missing else []


def _verdict(key: _Key, name: TopicPartition, one: PartitionSample, history: History) -> Verdict:
    return judge(history.points[key][name], is_owned=one.is_owned, start=one.start, why_unknown=one.why_unknown)


def _keys(asked: FoundGroups, latest: Iterable[_Key]) -> list[_Key]:
    """Return the groups that were asked about."""
    at_brokers, old = set(asked.brokers), set(asked.zookeeper)
    return [(name, kind) for name, kind in latest if name in (old if kind is GroupType.ZOOKEEPER else at_brokers)]


def _wants_more(key: _Key, group: GroupSample, history: History) -> bool:
    return any(
        _verdict(key, name, one, history).reason is Reason.TOO_FEW_SAMPLES for name, one in group.partitions.items()
    )


async def _cluster_id(cluster: Cluster) -> str | None:
    wire = await cluster.wire()
    await wire.metadata([])
    return wire.cluster_id
