"""Measures the lag of a cluster's groups: takes samples until it can judge, then reads the times of unread records."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncGenerator, Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Final

from engine.admin.cluster.asking import FAILURES, ask_all, beside_limit_s
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Refused, Unknown, Unreachable
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.group_reading import needless, offsets_topic
from engine.admin.groups.scope import FoundGroups, GroupScope, find_groups
from engine.admin.groups.values import GroupType
from engine.admin.lag.group_lag import (
    Followed,
    GroupLag,
    LagAnswer,
    doubtful_places,
    group_lag,
    place_of_newest,
    place_of_unread,
)
from engine.admin.lag.group_paces import Paces
from engine.admin.lag.history import History, append_sample, read_history
from engine.admin.lag.pace import Commit, is_within_pace, seems_still, steps_of
from engine.admin.lag.sampling import GroupSample, IsWanted, PartitionSample, Sample, take_sample
from engine.admin.lag.spark_queries import measure_queries
from engine.admin.lag.spark_traces import QueryTraces
from engine.admin.lag.unread import Behind, Place, Times, UnreadRecord, look_behind, read_times
from engine.admin.lag.verdicts import Reason, Verdict, judge
from engine.admin.offsets.listing import end_offsets, leaders_of, offsets_at
from engine.admin.records.fetching import FetchFrom, fetch
from engine.admin.topics.selection import TopicSelection, topic_not_found
from engine.common.acl import AclOperation
from engine.common.errors import ErrorCode, KafkaError
from engine.common.model import IsolationLevel, TopicPartition
from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.kafka.formats.consumer_offsets import (
    OffsetCommitKey,
    OffsetCommitValue,
    decode_value,
    encode_offset_key,
    partition_for,
)
from engine.kafka.protocol.records.decode import iter_batch_records
from engine.kafka.protocol.records.header import iter_batches
from engine.kafka.protocol.records.record import Record

_PATIENCE_S = 2.0
_Key = tuple[str, GroupType | None]

OnLook = Callable[[int, int, int], None]
"""Called with how many samples there were, and how many groups and how many Spark queries get another."""

Told = tuple[LagAnswer, list[str]] | Unreachable
"""An answer with complaints about the history, or why there is no answer this time."""


@dataclass(frozen=True, slots=True)
class LagOptions:
    """How to measure: as many samples as the rules need, at most ``looks_max``; or exactly this many.

    Of Spark queries, which keep their own history, the last sample counts.
    """

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
        self.others: tuple[str, ...] = ()
        """Groups of other protocols, which it left out."""

    async def measure(
        self, on_look: OnLook | None = None, *, chosen: FoundGroups | None = None
    ) -> tuple[LagAnswer, list[str]]:
        """Sample as often as needed and return the answer, and complaints about the history.

        Args:
            chosen: the groups to measure, if they have been looked up already.

        Raises:
            AdminError: nothing at all could be read.
        """
        queries, failures = await self._queries()
        history, complaints = (History(), []) if self._scope is None else await self._begin()
        if chosen is None:
            chosen = _NO_GROUPS if self._scope is None else await find_groups(self._cluster, self._scope)
        self.others = chosen.others
        latest: dict[_Key, GroupSample] = {}
        failures += chosen.failures
        asked = chosen
        for look in range(self._options.looks_max):
            if look:
                await asyncio.sleep(self._options.interval_s)
            if look and self._options.looks_are_fixed:
                queries, failed = await self._queries()
                failures += failed
            if _is_any(asked):
                sample = await take_sample(self._cluster, asked, self._is_wanted, self._options.isolation)
                history.add(sample)
                await self._keep(sample)
                failures += sample.failures
                # A group that is gone by now no longer has a lag.
                gone = {key for key in _keys(asked, latest) if key not in sample.groups}
                latest = {key: group for key, group in latest.items() if key not in gone}
                latest.update(sample.groups)
                asked = self._undecided(chosen, latest, history)
            followed = len(queries) if self._options.looks_are_fixed else 0
            if on_look is not None:
                on_look(look + 1, len(asked.brokers) + len(asked.zookeeper), followed)
            if not (followed or _is_any(asked)):
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

    def _undecided(self, chosen: FoundGroups, latest: dict[_Key, GroupSample], history: History) -> FoundGroups:
        """Return the groups that another sample may tell more about."""
        wanted = {
            key for key, group in latest.items() if self._options.looks_are_fixed or _wants_more(key, group, history)
        }
        at_brokers = {name for name, kind in wanted if kind is not GroupType.ZOOKEEPER}
        return replace(
            chosen,
            brokers=tuple(name for name in chosen.brokers if name in at_brokers),
            zookeeper=tuple(name for name in chosen.zookeeper if (name, GroupType.ZOOKEEPER) in wanted),
        )

    async def _groups(self, latest: dict[_Key, GroupSample], history: History) -> list[GroupLag]:
        times = await self._times(latest)
        within_pace = await self._within_pace(latest, history, times)
        followed: list[Followed] = []
        for key, sample in latest.items():
            series = {name: history.points[key][name] for name in sample.partitions}
            is_old = sample.type is GroupType.ZOOKEEPER
            in_pace = {name for name in series if not is_old and (sample.group, name) in within_pace}
            followed.append((sample, series, in_pace))
        behind = Behind()
        if ends := doubtful_places(followed, times):
            wire = await self._cluster.wire()
            behind = await look_behind(wire, ends, times, self._options.isolation, patience_s=_PATIENCE_S)
        now_ms = time.time_ns() // 1_000_000
        groups = [
            group_lag(sample, series, times, now_ms, in_pace, behind=behind) for sample, series, in_pace in followed
        ]
        for key, group in zip(latest, groups, strict=True):
            for partition in group.partitions:
                if partition.reason is Reason.NO_RECORDS:
                    history.has_read_all(key, TopicPartition(partition.topic, partition.partition))
        return groups

    def _told(self, groups: list[GroupLag], failures: list[AdminError]) -> LagAnswer:
        groups.sort(key=lambda lag: (-lag.status.rank, -(lag.lag or 0), lag.group, lag.kind, lag.type or ""))
        unique = {(str(error), error.where): error for error in failures}
        return LagAnswer(datetime.now(UTC), tuple(groups), tuple(unique.values()))

    async def _times(self, latest: dict[_Key, GroupSample]) -> Times:
        places = {
            place
            for group in latest.values()
            for name, partition in group.partitions.items()
            for place in (place_of_unread(name, partition), place_of_newest(name, partition))
            if place is not None
        }
        if not places or not self._options.with_times:
            return {}
        wire, isolation = await self._cluster.wire(), self._options.isolation
        return await read_times(wire, sorted(places), patience_s=_PATIENCE_S, isolation=isolation)

    async def _within_pace(self, latest: dict[_Key, GroupSample], history: History, times: Times) -> frozenset[Reader]:
        """Return the readers that seem to stand still, but just commit rarely."""
        still: dict[Reader, int] = {}
        unowned: set[Reader] = set()
        for key, group in latest.items():
            if group.type is GroupType.ZOOKEEPER or not self._options.with_times:
                continue
            for name, partition in group.partitions.items():
                place, committed = place_of_unread(name, partition), partition.committed
                if place is None or committed is None or (place in times and times[place] is None):
                    continue
                if seems_still(_verdict(key, name, partition, history)):
                    still[group.group, name] = committed
                    if partition.is_owned is False:
                        unowned.add((group.group, name))
        if not still:
            return frozenset()
        now_ms = time.time_ns() // 1_000_000
        wire = await self._cluster.wire()
        return await readers_within_pace(wire, still, now_ms, patience_s=_PATIENCE_S, unowned=unowned)


async def absent_topics(cluster: Cluster, topics: TopicSelection, answer: LagAnswer) -> list[AdminError]:
    """Return the failure for named topics that neither a group nor the cluster knows."""
    unread = topics.unmatched({partition.topic for group in answer.groups for partition in group.partitions})
    names = [name for name in unread if name in topics.names]
    if not names:
        return []
    answers = (await (await cluster.wire()).metadata(names)).topics
    hidden = [topic for topic in answers if topic.error_code == ErrorCode.TOPIC_AUTHORIZATION_FAILED]
    known = {topic.name for topic in (*hidden, *(topic for topic in answers if topic.partitions))}
    missing = [name for name in names if name not in known]
    refusals = [Refused(ErrorCode.TOPIC_AUTHORIZATION_FAILED, where=f"topic {topic.name}") for topic in hidden]
    return [*refusals, *([topic_not_found(missing)] if missing else [])]


_NO_GROUPS = FoundGroups((), (), {})


def _is_any(groups: FoundGroups) -> bool:
    return bool(groups.brokers or groups.zookeeper)


def _verdict(key: _Key, name: TopicPartition, partition: PartitionSample, history: History) -> Verdict:
    return judge(
        history.points[key][name], is_owned=partition.is_owned, start=partition.start, why_unknown=partition.why_unknown
    )


def _keys(asked: FoundGroups, latest: Iterable[_Key]) -> list[_Key]:
    at_brokers, old = set(asked.brokers), set(asked.zookeeper)
    return [(name, kind) for name, kind in latest if name in (old if kind is GroupType.ZOOKEEPER else at_brokers)]


def _wants_more(key: _Key, group: GroupSample, history: History) -> bool:
    return any(
        _verdict(key, name, partition, history).reason is Reason.TOO_FEW_SAMPLES
        for name, partition in group.partitions.items()
    )


async def _cluster_id(cluster: Cluster) -> str | None:
    wire = await cluster.wire()
    await wire.metadata([])
    return wire.cluster_id


# Which readers just commit rarely: what they have committed lately and when, from the end of ``__consumer_offsets``.
#
# Coordinators tell what is committed, but not when; the topic tells both. A user who may not read it learns nothing
# here. It includes commits of transactions that do not count yet, and may never count.

Reader = tuple[str, TopicPartition]
"""A group, and a partition that it reads."""

Commits = dict[Reader, list[Commit]]

_WINDOW_MS: Final = 3_600_000
_READERS_MAX: Final = 1_000
_RECORDS_MAX: Final = 200_000
"""At most this many records are read, which takes about a second."""

_ANSWER_BYTES: Final = 1024 * 1024

_KEY = OffsetCommitKey()


async def readers_within_pace(
    wire: WireCluster,
    committed: Mapping[Reader, int],
    now_ms: int,
    *,
    patience_s: float,
    unowned: Collection[Reader] = (),
) -> frozenset[Reader]:
    """Return the readers whose next commit is not late, of those that seem to stand still where they have committed.

    The result is an extra: if the commits cannot be read in time, it is empty. If there are very many readers, it
    checks only some. Nobody reads those that are ``unowned``.
    """
    some = dict(list(committed.items())[:_READERS_MAX])
    if not some:
        return frozenset()
    try:
        async with asyncio.timeout(beside_limit_s(wire)):
            with needless(wire, AclOperation.READ):
                commits = await _read_commits(wire, some, now_ms, patience_s)
            steps = {reader: taken for reader in commits if (taken := steps_of(commits[reader], some[reader]))}
            places = {
                Place(name, commit.offset) for (_, name), taken in steps.items() for step in taken for commit in step
            }
            times = await read_times(wire, places, patience_s=patience_s)
    except (*FAILURES, TimeoutError):
        return frozenset()
    came_ms: dict[TopicPartition, dict[int, int]] = {}
    for (name, offset), record in times.items():
        if isinstance(record, UnreadRecord) and record.timestamp_ms is not None:
            came_ms.setdefault(name, {})[offset] = record.timestamp_ms
    return frozenset(
        reader
        for reader, taken in steps.items()
        if is_within_pace(taken, came_ms.get(reader[1], {}), now_ms, is_owned=reader not in unowned)
    )


async def _read_commits(wire: WireCluster, readers: Collection[Reader], now_ms: int, patience_s: float) -> Commits:
    """Return what readers have committed in the last hour, in order, as far as it can be read."""
    keys = await _record_keys(wire, readers)
    begins = await offsets_at(wire, dict.fromkeys(keys, now_ms - _WINDOW_MS), patience_s=patience_s)
    ends = await end_offsets(wire, keys, patience_s=patience_s)
    each = _RECORDS_MAX // max(1, len(keys))
    spans = {
        home: (max(begin, end - each), end)
        for home in keys
        # -1: nothing has been written since.
        if isinstance(begin := begins[home], int) and begin >= 0 and isinstance(end := ends[home], int)
    }

    async def homes(wanted: list[TopicPartition]) -> Mapping[TopicPartition, int | Unknown]:
        return await leaders_of(wire, wanted)

    async def ask(broker_id: int, some: list[TopicPartition]) -> Mapping[TopicPartition, Commits | Unknown]:
        return {home: await _read(wire, broker_id, home, spans[home], keys[home]) for home in some}

    answers = await ask_all(wire, spans, homes, ask, batch=len(spans) or 1, patience_s=patience_s)
    read: Commits = {}
    for commits in answers.values():
        if not isinstance(commits, Unknown):
            read.update(commits)
    return read


async def _record_keys(wire: WireCluster, readers: Collection[Reader]) -> dict[TopicPartition, dict[bytes, Reader]]:
    count = sum(len(topic.partitions) for topic in await offsets_topic(wire))
    keys: dict[TopicPartition, dict[bytes, Reader]] = {}
    for group, name in readers if count else ():
        home = TopicPartition(GROUP_METADATA_TOPIC, partition_for(group, count))
        keys.setdefault(home, {})[encode_offset_key(group, *name)] = (group, name)
    return keys


async def _read(
    wire: WireCluster, broker_id: int, home: TopicPartition, span: tuple[int, int], keys: Mapping[bytes, Reader]
) -> Commits | Unknown:
    commits: Commits = {}
    position, end = span
    while position < end:
        wanted = {home: FetchFrom(position, _ANSWER_BYTES)}
        data = (await fetch(wire, broker_id, wanted, max_bytes=_ANSWER_BYTES))[home]
        if isinstance(data, Unknown):
            return data
        before = position
        try:
            for place, header in iter_batches(data.records or b""):
                if not header.is_control:
                    for record in iter_batch_records(data.records or b"", place, header):
                        _take(record, keys, commits)
                position = header.next_offset
        except KafkaError as error:
            return Unknown(str(error), error.code)
        if position == before:
            return Unknown("the broker returns no whole batch")
    return commits


def _take(record: Record, keys: Mapping[bytes, Reader], commits: Commits) -> None:
    reader = keys.get(bytes(record.key or b""))
    if reader is None:
        return
    value = decode_value(_KEY, None if record.value is None else bytes(record.value))
    if isinstance(value, OffsetCommitValue):
        commits.setdefault(reader, []).append(Commit(value.commit_timestamp, value.offset))
    else:
        # Deleted: earlier commits say nothing about later ones.
        commits.pop(reader, None)


async def watch_lag(meter: LagMeter, interval_s: float) -> AsyncGenerator[Told, None]:
    """Yield an answer, or why there is none, every interval without end.

    Rates do not count what groups that have stopped read before.

    Raises:
        AdminError: nothing could ever be read. A cluster that answered once may come back.
    """
    loop = asyncio.get_running_loop()
    has_answer = False
    paces = Paces()
    while True:
        started = loop.time()
        try:
            answer = await meter.measure()
        except Unreachable as error:
            if not has_answer:
                raise
            yield error
        else:
            has_answer = True
            measured, complaints = answer
            at_ms = round(measured.time.timestamp() * 1000)
            yield replace(measured, groups=paces.take(measured.groups, at_ms)), complaints
        await asyncio.sleep(max(0.0, started + interval_s - loop.time()))
