"""What a live feed reads when a stage is due: from brokers, from old groups' znodes and from Spark's traces.

Metadata and offsets have their own connections. Slow requests use others, because brokers answer the requests of a
connection in order.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, replace
from operator import is_
from typing import TYPE_CHECKING

from engine.admin.brokers.metrics import TOPICS_MAX
from engine.admin.cluster.asking import FAILURES
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import AdminError, AnswerLost, Refused, Unreachable
from engine.admin.cluster.rights import Right
from engine.admin.cluster.target import ClusterTarget, Side
from engine.admin.cluster.wire import WireCluster
from engine.admin.groups.scope import FoundGroups, GroupScope
from engine.admin.groups.values import GroupState, GroupType
from engine.admin.health.checks import has_throttles
from engine.admin.health.reading import holding_of, read_holding
from engine.admin.lag.group_lag import GroupLag, QueryLag
from engine.admin.lag.measuring import LagMeter, LagOptions
from engine.admin.lag.spark_positions import Query, ReaderKind
from engine.admin.lag.spark_queries import jobs_of, measure_queries
from engine.admin.lag.spark_traces import QueryTraces
from engine.admin.log_dirs.describing import NOT_ALLOWED, note_hidden_topics, read_log_dirs, topics_in
from engine.admin.reassignment.lock import plan_in_the_way
from engine.admin.topics.by_wire import read_reassignments
from engine.admin.watch import by_wire
from engine.admin.watch.by_wire import unmeasured
from engine.admin.watch.frame import Stage, WatchedGroup, WatchedQuery
from engine.admin.watch.knowledge import Knowledge
from engine.admin.watch.link_states import Board
from engine.admin.watch.shared_cluster import SharedCluster
from engine.common.clock import Clock
from engine.common.errors import ErrorCode
from engine.common.model import IsolationLevel
from engine.common.snapshot import ClusterSnapshot
from engine.kafka.client.broker_client import LastAnswer
from engine.kafka.protocol.apis.metadata import MetadataResponse
from engine.kafka.zk.errors import SessionLost, ZooKeeperError
from engine.runtime.offload import in_daemon_thread

if TYPE_CHECKING:
    from engine.admin.brokers.metrics_sources import ReadJmx
    from engine.admin.brokers.reading_metrics import FiguresReader
    from engine.kafka.zk.client import ZkClient

OPERATION_S = 10.0
"""The longest time for one reading."""

_REASSIGNMENTS_LIMIT_S = 3.0
_NO_BROKERS = "no broker is registered in ZooKeeper"
_WAITS = "no broker is named, and ZooKeeper has not reported any yet"
_TRANSACTIONS_EVERY_S = 30.0
_DOUBT_S = 1.0
"""This long after a broker named another controller than ZooKeeper does, ask it again."""
_DENIED_MS = 60_000
"""All stages are read within this time, unless they take very long."""

StageResult = tuple[int, tuple[str, ...]]
"""How many requests a reading took, and a line for each missing thing."""

OLD_GROUPS_PER_READING = 5
"""Each costs ZooKeeper two reads per partition, and ZooKeeper has other work to do."""

READ_LIMIT_S = 20.0
"""A store that has not answered by then is reported as hanging. Its late answer still counts."""

_Found = tuple[list[Query], list[AdminError]]


class StageReadings:
    """Reads stages into the knowledge of a feed.

    Args:
        client: ZooKeeper's client, as long as the feed has a session.
        newest: the newest cluster that was shown.
        trigger: has a stage read soon.
        read_jmx: reads brokers' metrics by JMX; None: the metrics of brokers are not wanted.
    """

    def __init__(
        self,
        target: ClusterTarget,
        knowledge: Knowledge,
        board: Board,
        clock: Clock,
        *,
        client: Callable[[], ZkClient | None],
        newest: Callable[[], ClusterSnapshot | None],
        trigger: Callable[[Stage], None],
        groups_per_reading: int = by_wire.GROUPS_PER_READING,
        read_jmx: ReadJmx | None = None,
    ) -> None:
        self._target = target
        self._knowledge = knowledge
        self._board = board
        self._clock = clock
        self._newest = newest
        self._trigger = trigger
        self._groups_per_reading = groups_per_reading
        self.uses_wire = target.may_ask_brokers
        # The feed keeps the only session with ZooKeeper.
        self.wire = Cluster(replace(target, zookeeper=None, via=Side.WIRE), timeout_s=OPERATION_S)
        shared = self.wire.target if self.uses_wire else target
        self.slow = SharedCluster(shared, client, timeout_s=OPERATION_S)
        self._last_metadata = LastAnswer()
        self._basis: tuple[object, ...] = ()
        """What the last answer was merged with."""
        self._transactions_due_s = 0.0
        self._misses_ends = False
        self._denied_before: tuple[Right, ...] = ()
        self._denied_until_ms = clock.monotonic_ms() + _DENIED_MS
        self._groups: by_wire.GroupReader | None = None
        self._old_groups: OldGroupReader | None = None
        traces = QueryTraces(target.checkpoints, target.event_logs)
        self._queries = None if traces.is_empty else QueryReader(traces)
        self._read_jmx = read_jmx
        self._metrics: FiguresReader | None = None

    @property
    def has_queries(self) -> bool:
        """Whether Spark's traces are named."""
        return self._queries is not None

    @property
    def wants_metrics(self) -> bool:
        return self._read_jmx is not None

    def read_old_groups(self) -> None:
        """From now on read the groups that keep themselves in ZooKeeper, too."""

        self._old_groups = OldGroupReader(self.slow)

    async def close(self) -> None:
        """End all connections."""
        await self.wire.close()
        await self.slow.close()

    async def close_wire(self) -> None:
        """End the connections to brokers: the next question opens new ones."""
        await self.wire.close_wire()
        await self.slow.close_wire()

    def read(self, stage: Stage) -> Awaitable[StageResult]:
        """Read a stage other than the metadata.

        Raises:
            AdminError, TimeoutError, OSError: it cannot be read.
        """
        return _READERS[stage](self)

    @property
    def principal(self) -> str | None:
        """The principal that brokers see; None if only they know it."""
        return self.wire.principal

    @property
    def denied(self) -> list[Right]:
        """The rights that have been missing in the last minutes."""
        return list(dict.fromkeys((*self._denied_before, *self.wire.denied, *self.slow.denied)))

    def note_denied(self) -> None:
        """Show in the frames which rights are missing, until everything was read twice without needing them."""
        self._knowledge.denied = tuple(self.denied)
        now_ms = self._clock.monotonic_ms()
        if now_ms >= self._denied_until_ms:
            self._denied_until_ms = now_ms + _DENIED_MS
            self._denied_before = tuple(dict.fromkeys((*self.wire.denied, *self.slow.denied)))
            self.wire.forget_denied()
            self.slow.forget_denied()

    def find_brokers(self) -> None:
        """Direct connections to the named brokers, and to all known live ones.

        Raises:
            Unreachable: none is named or known.
        """
        known = tuple(
            (endpoint.host, endpoint.port)
            for broker in self._knowledge.brokers
            for endpoint in broker.endpoints_for(self._target.client_properties.security_protocol)
        )
        addresses = tuple(dict.fromkeys((*self._target.bootstrap, *known)))
        if not addresses:
            raise Unreachable(_NO_BROKERS if self._knowledge.members_by_znode else _WAITS)
        for cluster in (self.wire, self.slow):
            cluster.target = replace(cluster.target, bootstrap=addresses)

    async def metadata(self) -> MetadataResponse | None:
        """Return what a broker says; None if it says the same as before, and no other broker has said anything
        since."""
        basis, self._basis = self._basis, ()
        if not basis or not all(map(is_, basis, self._knowledge.basis)):
            self._last_metadata.content = b""
        try:
            answer = await by_wire.read_metadata(await self.wire.wire(), self._last_metadata)
        except AnswerLost:
            # The broker that was asked has ended, or fell silent: another one answers.
            answer = await by_wire.read_metadata(await self.wire.wire(), self._last_metadata)
        if answer is None:
            self._basis = basis
        return answer

    def metadata_taken(self) -> None:
        """The last answer is part of what is known: the same again brings nothing new."""
        self._basis = self._knowledge.basis

    async def _read_reassignments(self) -> StageResult:
        wire = await self.wire.wire()
        running = await read_reassignments(wire, limit_s=_REASSIGNMENTS_LIMIT_S, is_patient=False)
        if not self._knowledge.assignments_by_znode:
            self._knowledge.take_reassignments(running)
        return 1, ()

    async def _read_offsets(self) -> StageResult:
        live = frozenset(broker.id for broker in self._knowledge.brokers)
        wire = await self.wire.wire()
        ends, missing, requests = await by_wire.read_ends(
            wire, self._knowledge.topics.values(), live, self._knowledge.silent_ms
        )
        self._knowledge.take_ends(ends, self._clock.now_ms())
        if bool(missing) != self._misses_ends:
            # A broker has fallen silent, or is back: the probes say which, long before its session ends.
            self._misses_ends = bool(missing)
            self._trigger(Stage.PROBES)
        return requests, missing

    async def _read_log_dirs(self) -> StageResult:
        dirs = await read_log_dirs(self.slow)
        self._knowledge.take_log_dirs(dirs)
        await note_hidden_topics(self.slow, topics_in(dirs), self._knowledge.topics)
        silent = tuple(f"broker {log_dir.broker}: {log_dir.error}" for log_dir in dirs if log_dir.log_dir is None)
        if dirs and all(log_dir.error == NOT_ALLOWED for log_dir in dirs):
            raise Refused(ErrorCode.CLUSTER_AUTHORIZATION_FAILED, where="log dirs")
        if silent and len(silent) == len(dirs):
            raise Unreachable("; ".join(silent))
        return len({log_dir.broker for log_dir in dirs}), silent

    async def _read_groups(self) -> StageResult:
        old, missing = await self._read_old_groups()
        # The topic in which groups live is hidden from most logins.
        may_have_groups = self._knowledge.has_groups_topic or self.slow.may_hide_topics
        if not self.uses_wire or not may_have_groups:
            self._knowledge.groups = old
            return 0, missing
        wire = await self.slow.wire()
        if self._groups is None:
            options = LagOptions(looks_max=1)
            meter = LagMeter(self.slow, GroupScope(), lambda topic: True, options)
            self._groups = by_wire.GroupReader(meter, self._groups_per_reading)
        read = await self._groups.read(wire, self._clock.now_ms())
        self._knowledge.groups = tuple(
            sorted((*read.groups, *old), key=lambda group: (group.name, group.lag.type or ""))
        )
        return read.requests, (*read.missing, *missing)

    async def _read_old_groups(self) -> tuple[tuple[WatchedGroup, ...], tuple[str, ...]]:
        """Return the groups in ZooKeeper, and why they are stale; while it is lost, its link says that."""
        reader = self._old_groups
        if reader is None:
            return (), ()
        missing: tuple[str, ...] = ()
        if self.slow.has_zookeeper:
            try:
                await reader.read(self._clock.now_ms())
            except SessionLost as error:
                missing = (f"groups in ZooKeeper: {error}; klamm reads them in the next session",)
            except (*FAILURES, ZooKeeperError) as error:
                missing = (f"groups in ZooKeeper: {error}",)
        return tuple(reader.known.values()), missing

    async def _read_metrics(self) -> StageResult:
        from engine.admin.brokers.reading_metrics import FiguresReader

        assert self._read_jmx is not None
        self._metrics = self._metrics or FiguresReader(self.slow, self._read_jmx)
        knowledge = self._knowledge
        ports = {broker: registration.jmx_port for broker, registration in knowledge.registrations.items()}
        has_topics = len(knowledge.topics) <= TOPICS_MAX
        read = await self._metrics.read(knowledge.brokers, ports, knowledge.silent_ms, topics=has_topics)
        knowledge.figures, knowledge.traffic = read.brokers, read.topics
        return read.requests, read.missing

    async def _read_spark(self) -> StageResult:
        assert self._queries is not None
        wire = await self.slow.wire() if self._board.is_connected(Side.WIRE) else None
        read = await self._queries.read(wire)
        self._knowledge.queries = read.queries
        return read.requests, read.missing

    async def _read_settings(self) -> StageResult:
        topics = list(self._knowledge.topics.values())
        wire = await self.slow.wire()
        configs, brokers, min_isr, missing = await by_wire.read_wire_settings(wire, topics)
        if not self._knowledge.assignments_by_znode:
            self._knowledge.take_settings(configs, brokers, min_isr)
            self._knowledge.forget_settings_but(self._knowledge.topics)
        return len(topics) // 500 + len(brokers) + 1, missing

    async def _read_probes(self) -> StageResult:
        cluster = self._newest()
        assert cluster is not None
        words = await by_wire.read_words(self.slow, cluster, self._knowledge.silent_ms)
        if self._knowledge.take_words(words):
            asyncio.get_running_loop().call_later(_DOUBT_S, self._trigger, Stage.PROBES)
        await self._read_plan_lock(cluster)
        missing = await self._read_transactions(cluster)
        silent = [f"broker {broker}: {said.trouble}" for broker, said in self._knowledge.words.items() if said.trouble]
        if silent and len(silent) == len(self._knowledge.words):
            raise Unreachable("; ".join(silent))
        return 2 * len(self._knowledge.words), missing

    async def _read_plan_lock(self, cluster: ClusterSnapshot) -> None:
        """Find out who carries out a plan, while there are throttles that it may need."""
        if not has_throttles(cluster):
            self._knowledge.plan = None
            return
        holder = await plan_in_the_way(self.slow, None)
        self._knowledge.plan = "" if holder is None else holder.description

    async def _read_transactions(self, cluster: ClusterSnapshot) -> tuple[str, ...]:
        """Find out which transactions hold readers up; return what could not be read."""
        now_s = asyncio.get_running_loop().time()
        if now_s < self._transactions_due_s:
            return ()
        self._transactions_due_s = now_s + _TRANSACTIONS_EVERY_S
        try:
            holding = await read_holding(self.slow, cluster)
        except FAILURES as error:
            return (f"open transactions: {error}",)
        self._knowledge.holding = tuple(map(holding_of, holding.transactions))
        return tuple(f"open transactions: {failure}" for failure in holding.failures)


_READERS: Mapping[Stage, Callable[[StageReadings], Awaitable[StageResult]]] = {
    Stage.REASSIGNMENTS: StageReadings._read_reassignments,
    Stage.OFFSETS: StageReadings._read_offsets,
    Stage.LOG_DIRS: StageReadings._read_log_dirs,
    Stage.GROUPS: StageReadings._read_groups,
    Stage.SETTINGS: StageReadings._read_settings,
    Stage.PROBES: StageReadings._read_probes,
    Stage.METRICS: StageReadings._read_metrics,
    Stage.SPARK: StageReadings._read_spark,
}


class OldGroupReader:
    """Reads groups in ZooKeeper: all names and states each time, lag and members of a few in turn."""

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
        from engine.admin.groups.old_consumers import old_group_names, read_old_states

        zk = await self._cluster.zookeeper()
        states = await read_old_states(zk, await old_group_names(zk))
        still_listed = [name for name in self._turn if name in states]
        waiting = set(still_listed)
        ordered = [name for name in states if name not in waiting] + still_listed
        chosen = ordered[:OLD_GROUPS_PER_READING]
        self._turn = ordered[OLD_GROUPS_PER_READING:] + chosen
        measured: dict[str, GroupLag] = {}
        if chosen:
            answer, _ = await self._meter.measure(chosen=FoundGroups((), tuple(chosen), {}))
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


@dataclass(frozen=True, slots=True)
class ReadQueries:
    """The result of one reading; ``missing`` has a line for each missing thing. ``requests`` went to brokers."""

    queries: tuple[WatchedQuery, ...]
    missing: tuple[str, ...]
    requests: int


class QueryReader:
    """Reads the traces of Spark's queries repeatedly, and asks brokers how far behind the queries are."""

    def __init__(self, traces: QueryTraces, *, limit_s: float = READ_LIMIT_S) -> None:
        self._traces = traces
        self._limit_s = limit_s
        self._reading: asyncio.Future[_Found] | None = None

    async def read(self, wire: WireCluster | None) -> ReadQueries:
        """Return the queries by path; without their lags if there is no ``wire`` or no broker answers.

        Raises:
            AdminError: nothing could be read, or the store hangs.
        """
        queries, failures = await self._read_traces()
        if failures and not queries:
            raise failures[0]
        missing = [f"{error}: {error.where}" if error.where else str(error) for error in failures]
        rows: list[QueryLag] | None = None
        requests = 0
        if wire is not None and queries:
            try:
                # A query is judged by its own history, so one sample is enough.
                rows = await measure_queries(
                    wire, queries, lambda topic: True, IsolationLevel.READ_UNCOMMITTED, with_times=True
                )
                requests = 2 * len(await wire.nodes())
            except FAILURES as error:
                missing.append(f"how far behind queries are is not known: {error}")
        return ReadQueries(_watched(queries, rows), tuple(missing), requests)

    async def _read_traces(self) -> _Found:
        if self._reading is None:
            self._reading = in_daemon_thread(self._traces.read, "watch-spark")
        done, _ = await asyncio.wait({self._reading}, timeout=self._limit_s)
        if not done:
            raise Unreachable(f"the checkpoints and event logs could not be read within {self._limit_s:g} s")
        reading, self._reading = self._reading, None
        return reading.result()


def _watched(queries: list[Query], rows: list[QueryLag] | None) -> tuple[WatchedQuery, ...]:
    by_query: dict[tuple[ReaderKind, str, str], list[QueryLag]] = {}
    for row in rows or ():
        by_query.setdefault((row.kind, row.path, row.query_id), []).append(row)
    watched = [
        WatchedQuery(job, tuple(by_query.get((job.kind, job.path, job.query_id), ()))) for job in jobs_of(queries, rows)
    ]
    return tuple(sorted(watched, key=lambda query: (query.job.path, query.job.query_id)))
