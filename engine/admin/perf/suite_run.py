"""Carries out the experiments of ``suite``: a topic for each case, loaded by the caller's processes, then deleted.

It ends early, with what was measured so far, when a broker's disk gets full or the time is up. It always deletes the
topics.
"""

from __future__ import annotations

import asyncio
import time
import uuid
from collections.abc import Callable, Coroutine, Sequence
from dataclasses import dataclass, replace
from typing import Any, Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, Refused, Unreachable
from engine.admin.log_dirs.describing import read_log_dirs
from engine.admin.perf.broker_cpu import cpu_seconds, find_processes
from engine.admin.perf.suite import TOPIC_PREFIX, Case, CaseResult, Experiment
from engine.admin.topics.access import topic_changer, topic_reader
from engine.admin.topics.changes import NewTopic

_LOOK_AT_DISKS_EVERY_S = 1.0
_CLEAN_UP_S = 60.0
_CONSUMERS_PATIENCE = 5
_SETTINGS = {"file.delete.delay.ms": "1000", "segment.bytes": str(256 * 1024 * 1024)}
"""So that a case's bytes leave the disk while the next one runs."""


@dataclass(frozen=True, slots=True)
class WorkerFigures:
    """What one producer or consumer measured; a consumer has no latencies."""

    records: int
    records_per_sec: float
    mb_per_sec: float
    p50_latency_ms: float | None = None
    p95_latency_ms: float | None = None
    p99_latency_ms: float | None = None
    p999_latency_ms: float | None = None


class Workers(Protocol):
    """Runs producers and consumers, each in a process of its own, so that they do not slow each other down."""

    async def produce(
        self, topic: str, record_bytes: int, duration_s: float, record_count_max: int, start_at_s: float
    ) -> WorkerFigures: ...

    async def consume(self, topic: str, record_count: int, duration_s: float, start_at_s: float) -> WorkerFigures: ...


@dataclass(frozen=True, slots=True)
class SuiteOptions:
    """How long each case loads the cluster, how much a producer sends at most, and when to stop."""

    seconds: float = 10.0
    producer_bytes_max: int = 2_000_000_000
    free_share_min: float = 0.1
    """It stops when less of a broker's disk is free."""
    deadline_s: float | None = None
    """No case begins if it would end later than this many seconds after the start."""
    lead_s: float = 1.0
    """How long processes have to start."""


class DiskFull(Exception):
    """A broker's disk has too little free space; the text says which."""


class Suite:
    """One run: ``run``, then ``results`` and ``stopped``, even after it was interrupted."""

    def __init__(self, cluster: Cluster, workers: Workers, options: SuiteOptions) -> None:
        self._cluster = cluster
        self._workers = workers
        self._options = options
        self._prefix = f"{TOPIC_PREFIX}{uuid.uuid4().hex[:8]}-"
        self._made: list[str] = []
        self._number = 0
        self._pids: list[int] | None = None
        self.results: list[CaseResult] = []
        self.stopped: str | None = None
        """Why it ended early."""
        self.left_topics: list[str] = []
        """Topics that could not be deleted."""

    async def run(self, experiments: Sequence[Experiment], on_case: Callable[[Case, int, int], None]) -> None:
        """Carry out the experiments; ``on_case`` gets each case as it begins, its number, and how many there are.

        Raises:
            AdminError: the cluster could not be asked at all.
        """
        cases = [case for experiment in experiments for case in experiment.cases]
        nodes = await (await self._cluster.wire()).nodes()
        self._pids = find_processes((node.host, node.port) for node in nodes.values())
        started = time.monotonic()
        try:
            for number, case in enumerate(cases, 1):
                per_case_s = (time.monotonic() - started) / max(number - 1, 1) if number > 1 else self._options.seconds
                deadline_s = self._options.deadline_s
                if deadline_s is not None and time.monotonic() - started + per_case_s > deadline_s:
                    self.stopped = f"the time is up after {number - 1} of {len(cases)} cases"
                    return
                on_case(case, number, len(cases))
                await self._guard_disks()
                self.results.append(await self._measure(case))
        except DiskFull as error:
            self.stopped = str(error)
        finally:
            await self._clean_up()

    async def _measure(self, case: Case) -> CaseResult:
        self._number += 1
        topic = f"{self._prefix}{self._number}"
        try:
            changer = await topic_changer(self._cluster)
            self._made.append(topic)
            async with asyncio.timeout(self._cluster.timeout_s):
                await changer.create(NewTopic(topic, case.partitions, case.replicas, configs=_SETTINGS))
            result = await self._watched(self._loaded(case, topic))
        except (Refused, Unreachable, TimeoutError, WorkerFailed) as error:
            return CaseResult(case, error=str(error) or "no answer in time")
        await self._delete([topic])
        return result

    async def _loaded(self, case: Case, topic: str) -> CaseResult:
        options = self._options
        count_max = max(1, options.producer_bytes_max // case.record_bytes)
        if case.consumers and not case.is_pair:
            start = time.time() + options.lead_s
            filled = await self._workers.produce(topic, case.record_bytes, options.seconds, count_max, start)
            patience_s = options.seconds * _CONSUMERS_PATIENCE
            return await self._all_at_once(case, topic, 0, filled.records, patience_s, count_max)
        read_max = count_max * case.producers if case.is_pair else 0
        return await self._all_at_once(case, topic, case.producers, read_max, options.seconds, count_max)

    async def _all_at_once(
        self, case: Case, topic: str, producers: int, read_count: int, duration_s: float, count_max: int
    ) -> CaseResult:
        before = None if self._pids is None else cpu_seconds(self._pids)
        start = time.time() + self._options.lead_s
        async with asyncio.TaskGroup() as group:
            sending = [
                group.create_task(
                    self._workers.produce(topic, case.record_bytes, duration_s, count_max, start),
                    name=f"perf suite: producer {number}",
                )
                for number in range(producers)
            ]
            reading = [
                group.create_task(
                    self._workers.consume(topic, read_count, duration_s, start), name=f"perf suite: consumer {number}"
                )
                for number in range(case.consumers)
            ]
        after = None if self._pids is None else cpu_seconds(self._pids)
        result = _summed(case, [one.result() for one in sending], [one.result() for one in reading])
        # Count a pair's records once: the reader reads what the producer sends.
        records = result.sent_records or result.read_records
        if before is None or after is None or not records:
            return result
        return replace(result, broker_cpu_s_per_million=(after - before) / records * 1e6)

    async def _watched(self, work: Coroutine[Any, Any, CaseResult]) -> CaseResult:
        """Do the work and watch the disks meanwhile; raises DiskFull and ends the work when one gets full."""
        doing = asyncio.create_task(work, name="perf suite: case")
        try:
            while not (await asyncio.wait({doing}, timeout=_LOOK_AT_DISKS_EVERY_S))[0]:
                await self._guard_disks()
        except BaseException:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
            raise
        try:
            return doing.result()
        except* (Refused, Unreachable, TimeoutError, WorkerFailed) as group:
            raise group.exceptions[0] from group
        raise AssertionError("unreachable")

    async def _guard_disks(self) -> None:
        """Raise DiskFull if a disk has too little space left. A disk of unknown size is not watched."""
        try:
            dirs = await read_log_dirs(self._cluster, None, ())
        except AdminError:
            return
        for one in dirs:
            if one.total_bytes and one.usable_bytes is not None:
                share = one.usable_bytes / one.total_bytes
                if share < self._options.free_share_min:
                    raise DiskFull(f"{one.log_dir} of broker {one.broker} has only {share:.0%} left")

    async def _delete(self, topics: Sequence[str]) -> None:
        changer = await topic_changer(self._cluster)
        try:
            async with asyncio.timeout(_CLEAN_UP_S):
                await changer.delete(topics, waits=True)
        except (AdminError, TimeoutError) as error:
            self._cluster.observe(f"not deleted yet: {', '.join(topics)}: {error}")
            return
        self._made = [one for one in self._made if one not in topics]

    async def _clean_up(self) -> None:
        """Delete the remaining topics, even if everything is being cancelled."""
        if self._made:
            await asyncio.shield(asyncio.create_task(self._delete_what_is_there(), name="perf suite: clean up"))
        self.left_topics = list(self._made)

    async def _delete_what_is_there(self) -> None:
        try:
            async with asyncio.timeout(_CLEAN_UP_S):
                there = {one.topic for one in await (await topic_reader(self._cluster)).names()}
        except (AdminError, TimeoutError):
            return
        self._made = [one for one in self._made if one in there]
        if self._made:
            await self._delete(list(self._made))


class WorkerFailed(Exception):
    """A producer or consumer ended with an error; the text is what it said."""


async def old_topics(cluster: Cluster) -> list[str]:
    """Return topics that a killed run has left behind."""
    return [one.topic for one in await (await topic_reader(cluster)).names() if one.topic.startswith(TOPIC_PREFIX)]


def _summed(case: Case, sent: Sequence[WorkerFigures], read: Sequence[WorkerFigures]) -> CaseResult:
    return CaseResult(
        case,
        sum(one.records for one in sent) if sent else None,
        sum(one.records_per_sec for one in sent) if sent else None,
        sum(one.mb_per_sec for one in sent) if sent else None,
        sum(one.records for one in read) if read else None,
        sum(one.records_per_sec for one in read) if read else None,
        sum(one.mb_per_sec for one in read) if read else None,
        *(
            max((value for one in sent if (value := getattr(one, name)) is not None), default=None)
            for name in ("p50_latency_ms", "p95_latency_ms", "p99_latency_ms", "p999_latency_ms")
        ),
    )
