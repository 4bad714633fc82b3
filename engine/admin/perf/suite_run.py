"""Carries out the experiments of ``suite``: a topic for each case, loaded by the caller's processes, then deleted.

It ends early, with the results so far, when a broker's disk gets full or fails, when a broker goes away, or when the
time is up. It leaves out cases for which a disk has too little room. It always deletes the topics.
"""

from __future__ import annotations

import asyncio
import math
import socket
import time
import uuid
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Protocol

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, FailureKind, OutcomeUnknown, StillUnderWay, Unreachable
from engine.admin.perf.suite import Case, CaseResult, Experiment, MustStop, WatchedDisks, records_of_producer
from engine.admin.topics.access import topic_changer, topic_reader
from engine.admin.topics.changes import NewTopic
from engine.common.topic_names import SUITE_TOPIC_PREFIX

_LOOK_AT_DISKS_EVERY_S = 1.0
_FILES_GO_WITHIN_S = 90.0
"""A deleted topic's files go after the brokers' log.segment.delete.delay.ms, 60 s by default, whatever the topic's
file.delete.delay.ms says (Kafka's LogManager.deleteLogs)."""
_CLEAN_UP_S = 60.0
_CONSUMERS_PATIENCE = 5


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
    """Runs producers and consumers, each in a separate process, so that they do not slow each other down."""

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
    """It stops when less of a broker's disk is free, and begins no case that may write more than the rest."""
    deadline_s: float | None = None
    """No case begins if it would end later than this many seconds after the start."""
    lead_s: float = 1.0
    """How long processes have to start."""


class Suite:
    """One run: ``run``, then ``results`` and ``stopped``, even after it was interrupted."""

    def __init__(self, cluster: Cluster, workers: Workers, disks: WatchedDisks, options: SuiteOptions) -> None:
        self._cluster = cluster
        self._workers = workers
        self._disks = disks
        self._options = options
        self._prefix = f"{SUITE_TOPIC_PREFIX}{uuid.uuid4().hex[:8]}-"
        self._made: list[str] = []
        self._unanswered: set[str] = set()
        """Those whose creation got no answer."""
        self._absent: set[str] = set()
        """Those that the cluster did not list when it was last asked."""
        self._number = 0
        self._files_go_by = 0.0
        self._begin_by = math.inf
        self._pids: list[int] | None = None
        self.results: list[CaseResult] = []
        self.stopped: str | None = None
        """Why it ended early."""
        self.left_topics: list[str] = []
        """Topics that could not be deleted."""
        self.topics_that_may_appear: list[str] = []
        """Topics that are not there, but whose creation got no answer."""

    async def run(self, experiments: Sequence[Experiment], tell: Callable[[str], None]) -> None:
        """Carry out the experiments; ``tell`` gets a line as each case begins, or waits for room.

        Raises:
            AdminError: the cluster could not be asked at all, or a right is missing.
            WorkerFailed: a right is missing, says a producer or consumer.
        """
        cases = [case for experiment in experiments for case in experiment.cases]
        nodes = await (await self._cluster.wire()).nodes()
        self._pids = find_processes((node.host, node.port) for node in nodes.values())
        started, longest_s = time.monotonic(), self._options.seconds
        try:
            await self._check_start(cases)
            for number, case in enumerate(cases, 1):
                began = time.monotonic()
                self._begin_by = started + (self._options.deadline_s or math.inf) - longest_s
                if number > 1 and began > self._begin_by:
                    self.stopped = f"the time is up after {number - 1} of {len(cases)} cases"
                    return
                tell(f"{number} of {len(cases)}: {case.experiment} {case.label}")
                shortage = await self._shortage(case, tell)
                began = time.monotonic()
                if shortage is None:
                    await self._measure(case)
                else:
                    self.results.append(CaseResult(case, error=f"not run: {shortage}"))
                longest_s = max(longest_s, time.monotonic() - began)
        except (MustStop, Unreachable) as error:
            self.stopped = str(error)
        finally:
            await self._clean_up()

    async def _check_start(self, cases: Sequence[Case]) -> None:
        """Raise MustStop if the disks are too full to begin."""
        await self._disks.look(must_answer=True)
        shortages = [self._disks.shortage(case, self._options.producer_bytes_max) for case in cases]
        if shortages and None not in shortages:
            raise MustStop(f"no case has room: {cases[0].experiment} {cases[0].label}: {shortages[0]}")

    async def _shortage(self, case: Case, tell: Callable[[str], None]) -> str | None:
        """Return which disk has too little room; if it had room at the start, wait until deleted topics' files go."""
        size = self._options.producer_bytes_max
        shortage, is_told = self._disks.shortage(case, size), False
        if shortage is not None:
            return shortage
        while shortage := self._disks.shortage(case, size, await self._disks.look(must_answer=True)):
            left_s = min(self._files_go_by, self._begin_by) - time.monotonic()
            if left_s <= 0:
                break
            if not is_told:
                tell(f"waiting up to {left_s:.0f} s for brokers to delete the files of earlier topics: {shortage}")
            is_told = True
            await asyncio.sleep(_LOOK_AT_DISKS_EVERY_S)
        return shortage

    async def _measure(self, case: Case) -> None:
        """Add the result of a case, and delete its topic.

        Raises:
            MustStop, Unreachable: the case failed, and the next one would too.
            AdminError, WorkerFailed: a right is missing, for which no case can be measured.
        """
        self._number += 1
        topic = f"{self._prefix}{self._number}"
        try:
            changer = await topic_changer(self._cluster)
            self._made.append(topic)
            self._unanswered.add(topic)
            async with asyncio.timeout(self._cluster.timeout_s):
                await changer.create(NewTopic(topic, case.partitions, case.replicas))
            self._unanswered.discard(topic)
            self.results.append(await self._watched(self._loaded(case, topic)))
        except (AdminError, TimeoutError, WorkerFailed) as error:
            if not isinstance(error, OutcomeUnknown | StillUnderWay | TimeoutError):
                self._unanswered.discard(topic)
            self.results.append(CaseResult(case, error=str(error) or "no answer in time"))
            await self._disks.look(must_answer=True)
            if isinstance(error, Unreachable) or _lacks_a_right(error):
                raise
        await self._delete_what_is_there()

    async def _loaded(self, case: Case, topic: str) -> CaseResult:
        options = self._options
        count_max = records_of_producer(case, options.producer_bytes_max)
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
        result = _summed(case, [task.result() for task in sending], [task.result() for task in reading])
        # Count a pair's records once: the reader reads what the producer sends.
        records = result.sent_records or result.read_records
        if before is None or after is None or not records:
            return result
        return replace(result, broker_cpu_s_per_million=(after - before) / records * 1e6)

    async def _watched(self, work: Coroutine[Any, Any, CaseResult]) -> CaseResult:
        """Do the work while watching the disks; raises MustStop and ends the work when one gets full or fails."""
        doing = asyncio.create_task(work, name="perf suite: case")
        try:
            while not (await asyncio.wait({doing}, timeout=_LOOK_AT_DISKS_EVERY_S))[0]:
                # Whether brokers that are too busy to answer are away shows when the work has ended.
                with suppress(AdminError):
                    await self._disks.look(must_answer=False)
        except BaseException:
            doing.cancel()
            await asyncio.gather(doing, return_exceptions=True)
            raise
        try:
            return doing.result()
        except* (AdminError, TimeoutError, WorkerFailed) as group:
            raise group.exceptions[0] from group
        raise AssertionError("unreachable")

    async def _delete(self, topics: Sequence[str]) -> None:
        try:
            async with asyncio.timeout(_CLEAN_UP_S):
                changes, refusals = await (await topic_changer(self._cluster)).delete(topics, waits=True)
        except (AdminError, TimeoutError) as error:
            self._cluster.observe(f"not deleted yet: {', '.join(topics)}: {error}")
            return
        for refusal in refusals:
            self._cluster.observe(f"not deleted: {refusal}")
        gone = {change.topic for change in changes}
        self._made = [topic for topic in self._made if topic not in gone]
        self._files_go_by = time.monotonic() + _FILES_GO_WITHIN_S

    async def _clean_up(self) -> None:
        """Delete the remaining topics, even if everything is being cancelled."""
        if self._made:
            await asyncio.shield(asyncio.create_task(self._delete_what_is_there(), name="perf suite: clean up"))
        self.left_topics = [topic for topic in self._made if topic not in self._absent]
        self.topics_that_may_appear = [topic for topic in self._made if topic in self._absent & self._unanswered]

    async def _delete_what_is_there(self) -> None:
        try:
            async with asyncio.timeout(_CLEAN_UP_S):
                existing = {name.topic for name in await (await topic_reader(self._cluster)).names()}
        except (AdminError, TimeoutError):
            return
        self._absent = set(self._made) - existing
        if left := [topic for topic in self._made if topic in existing]:
            await self._delete(left)


class WorkerFailed(Exception):
    """A producer or consumer ended with an error; the text is what it said."""

    def __init__(self, message: str, lacks: Mapping[str, str] | None = None) -> None:
        """``lacks`` has the fields of an error about a missing right, as ``-o json`` prints it."""
        super().__init__(message)
        self.lacks = lacks


def _lacks_a_right(error: Exception) -> bool:
    if isinstance(error, WorkerFailed):
        return error.lacks is not None
    return isinstance(error, AdminError) and error.kind is FailureKind.AUTHORIZATION


async def old_topics(cluster: Cluster) -> list[str]:
    """Return topics that a killed run has left behind."""
    return [
        name.topic for name in await (await topic_reader(cluster)).names() if name.topic.startswith(SUITE_TOPIC_PREFIX)
    ]


def _summed(case: Case, sent: Sequence[WorkerFigures], read: Sequence[WorkerFigures]) -> CaseResult:
    return CaseResult(
        case,
        sum(figures.records for figures in sent) if sent else None,
        sum(figures.records_per_sec for figures in sent) if sent else None,
        sum(figures.mb_per_sec for figures in sent) if sent else None,
        sum(figures.records for figures in read) if read else None,
        sum(figures.records_per_sec for figures in read) if read else None,
        sum(figures.mb_per_sec for figures in read) if read else None,
        *(
            max((value for figures in sent if (value := getattr(figures, name)) is not None), default=None)
            for name in ("p50_latency_ms", "p95_latency_ms", "p99_latency_ms", "p999_latency_ms")
        ),
    )


# How much CPU brokers on this machine use. Finds their processes by their listening sockets, if it may read them.

_LISTENING = "0A"
_PROC = Path("/proc")


def find_processes(addresses: Iterable[tuple[str, int]]) -> list[int] | None:
    """Return the processes that listen at these addresses; None unless all of them are here and readable.

    Only Linux's ``/proc`` has them, so elsewhere it is None.
    """
    wanted = [(host, port) for host, port in addresses]
    if not wanted or not all(_is_here(host) for host, _ in wanted):
        return None
    sockets = _listeners()
    if not sockets:
        return None
    owners = _owners()
    pids = [owners[inode] for host, port in wanted if (inode := _inode(sockets, host, port)) in owners and inode]
    return sorted(set(pids)) if len(pids) == len(wanted) else None


def cpu_seconds(pids: Iterable[int]) -> float | None:
    """Return the CPU that processes have used so far; None if one is gone."""
    try:
        return sum(time.clock_gettime(_cpu_clock(pid)) for pid in pids)
    except OSError:
        return None


def _cpu_clock(pid: int) -> int:
    """Return Linux's clock of a process's CPU, as clock_getcpuclockid(3) does.

    It counts nanoseconds; ``/proc/PID/stat`` counts hundredths of a second, too coarse for a short case.
    """
    return ~pid << 3 | 2


def _is_here(host: str) -> bool:
    """Whether an address is this machine's: a socket can be bound to it."""
    try:
        family, kind, _, _, place = socket.getaddrinfo(host, 0, type=socket.SOCK_STREAM)[0]
        with socket.socket(family, kind) as probe:
            probe.bind(place)
    except OSError:
        return False
    return True


def _listeners() -> dict[tuple[str, int], str]:
    """Return the inodes of IPv4 and IPv6 sockets that listen, by address as /proc writes it, and port."""
    listeners: dict[tuple[str, int], str] = {}
    for name in ("tcp", "tcp6"):
        with suppress(OSError):
            for line in (_PROC / "net" / name).read_text().splitlines()[1:]:
                fields = line.split()
                if fields[3] == _LISTENING:
                    host, _, port = fields[1].rpartition(":")
                    listeners[host, int(port, 16)] = fields[9]
    return listeners


def _inode(sockets: dict[tuple[str, int], str], host: str, port: int) -> str | None:
    with suppress(OSError):
        place = socket.getaddrinfo(host, port, socket.AF_INET, socket.SOCK_STREAM)[0][4]
        exact = socket.inet_aton(str(place[0]))[::-1].hex().upper()
        mapped = f"0000000000000000FFFF0000{exact}"
        return next(
            (sockets[address, port] for address in (exact, mapped, "0" * 8, "0" * 32) if (address, port) in sockets),
            None,
        )
    return None


def _owners() -> dict[str, int]:
    """Return the processes of sockets, by inode, as far as permissions allow."""
    owners: dict[str, int] = {}
    for folder in _PROC.iterdir():
        if not folder.name.isdigit():
            continue
        with suppress(OSError):
            for link in (folder / "fd").iterdir():
                with suppress(OSError):
                    target = str(link.readlink())
                    if target.startswith("socket:["):
                        owners[target[8:-1]] = int(folder.name)
    return owners
