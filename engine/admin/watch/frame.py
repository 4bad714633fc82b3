"""One frame: all that is known about a cluster at one tick, as a frozen value. Pure.

A part's age is that of the stage that read it: a part that could not be read again keeps its last good value, and its
stage has the error. A fact that was never read is None (or missing from its mapping), never a guess.

Frames share what did not change. An unchanged ``TopicSnapshot`` or ``PartitionSnapshot`` is the same object as in the
frame before, so ``is`` quickly finds what changed. The mappings of a frame are never changed after it was made.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from engine.admin.brokers.metrics import BrokerFigures, TopicTraffic
from engine.admin.cluster.certificates import Validity
from engine.admin.cluster.rights import Right
from engine.admin.cluster.target import Side
from engine.admin.groups.values import GroupMember
from engine.admin.health.report import HealthReport, HoldingTransaction
from engine.admin.lag.group_lag import GroupLag, QueryLag
from engine.admin.lag.spark_queries import Job
from engine.admin.log_dirs.describing import LogDir
from engine.admin.watch.events import Event
from engine.common.model import TopicPartition
from engine.common.snapshot import ClusterSnapshot, ReplicaLog


class Stage(StrEnum):
    """What is read on its own, with its own age, cost and error."""

    MEMBERS = "members"
    """Brokers and controller. With ZooKeeper they come from watches, else with the metadata."""
    METADATA = "metadata"
    """Topics, assignments, leaders, ISR. With ZooKeeper alone, assignments come from watches, states in rotation."""
    REASSIGNMENTS = "reassignments"
    OFFSETS = "offsets"
    """Where each partition's log ends."""
    LOG_DIRS = "log_dirs"
    """Sizes, volumes and follower lag, from each broker."""
    GROUPS = "groups"
    SETTINGS = "settings"
    """Settings of topics and brokers, min.insync.replicas among them."""
    PROBES = "probes"
    """What only a broker or ZooKeeper itself can say: who it thinks the controller is, whether it answers."""
    METRICS = "metrics"
    """Rates and latencies that each broker reports by JMX or over HTTP: beside Kafka's protocol, and often nowhere."""
    SPARK = "spark"
    """Streaming queries of Spark, from their checkpoints and event logs: files, not part of the cluster."""


class LinkState(StrEnum):
    """The state of the feed's link to ZooKeeper or to the brokers."""

    UNUSED = "unused"
    """Nobody named it, or it must not be asked."""
    CONNECTING = "connecting"
    """It was never reached, and the feed is trying it."""
    CONNECTED = "connected"
    LOST = "lost"
    """It was connected, or a first attempt failed, and it does not answer now."""
    DENIED = "denied"
    """It answers, and refuses klamm: wrong credentials, or a missing right."""


@dataclass(frozen=True, slots=True)
class Link:
    """The feed's link to one side of the cluster.

    Attributes:
        address: where, as it was named.
        since_ms: since when it is in this state.
        cause: why it is not connected; empty if it is.
        last_answer_ms: when it last answered anything; None: never.
        next_try_ms: when the next attempt is due; None: none is needed, or one is under way.
    """

    state: LinkState
    address: str = ""
    since_ms: int = 0
    cause: str = ""
    last_answer_ms: int | None = None
    next_try_ms: int | None = None


class StageSource(StrEnum):
    """How a stage learns its data."""

    WATCH = "watch"
    """ZooKeeper reports each change within milliseconds."""
    POLL = "poll"
    """The brokers are polled; what comes and goes between two polls is not seen."""
    ROTATION = "rotation"
    """A few znodes at each tick, in turn; ``Frame.read_at_ms`` has the age of each partition."""


@dataclass(frozen=True, slots=True)
class StageStatus:
    """The status of one stage.

    Attributes:
        source: how it learns its data; None for one that this feed cannot read (``error`` says why).
        read_at_ms: when the data were last read completely (with watches: when they were last known to be valid); None:
        never. Their age is the frame's time minus this.
        cost_ms: how long the last good reading took; None: there was none.
        requests: how many requests the last reading took.
        interval_ms: how often it is read; a stage that takes long is read less often.
        error: why the last reading failed; empty if it did not.
        is_denied: the cluster refused it, because a right is missing.
        missing: what an otherwise good reading lacks, such as one silent broker: a line for each.
    """

    source: StageSource | None = None
    read_at_ms: int | None = None
    cost_ms: float | None = None
    requests: int = 0
    interval_ms: int | None = None
    error: str = ""
    is_denied: bool = False
    missing: tuple[str, ...] = ()


class PartitionOffsets(NamedTuple):
    """Where a partition's log ends, according to its leader; the next record gets this offset."""

    end: int
    at_ms: int
    """When ``end`` was read. It stays the same while the end does not change."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What ZooKeeper knows about a live broker, apart from ``BrokerInfo``.

    ``created_ms`` is by ZooKeeper's clock, ``clock_apart_ms`` how far the broker's was ahead of it. None if unknown.
    """

    created_ms: int | None = None
    clock_apart_ms: int | None = None
    jmx_port: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerWords:
    """What one broker said when it was probed.

    Attributes:
        controller_id: the broker that it thinks is the controller; None: none, or it did not say.
        trouble: what it did instead of answering; empty if it answered.
    """

    controller_id: int | None = None
    offline_log_dirs: tuple[str, ...] = ()
    trouble: str = ""
    caps_min_isr: bool = False
    """It wants no more replicas in sync than a partition has, whatever min.insync.replicas says (Kafka 3.7)."""
    release: str = ""
    """The release of Kafka whose APIs it offers; empty: unknown."""
    min_isr: int | None = None
    """The ``min.insync.replicas`` of topics that have none of their own; None: it does not say."""
    certificate: Validity | None = None
    hint: str = ""
    """What helps if TLS or the login failed."""


@dataclass(frozen=True, slots=True)
class WatchedGroup:
    """One consumer group: its lag as ``klamm lag`` shows it, and its members.

    Attributes:
        lag: state, verdict, lag in records and in time, rates; None inside it is unknown.
        members: who is in it; None: unknown.
        coordinator: the broker that keeps it; None: unknown, or kept in ZooKeeper.
        since_ms: when the feed first saw it in its present state.
        has_lag: partitions and verdict were measured; False: only the state has been read so far.
    """

    lag: GroupLag
    members: tuple[GroupMember, ...] | None = None
    coordinator: int | None = None
    protocol: str = ""
    since_ms: int = 0
    has_lag: bool = True

    @property
    def name(self) -> str:
        return self.lag.group


@dataclass(frozen=True, slots=True)
class WatchedQuery:
    """One query of Spark: as ``klamm spark jobs`` lists it, and as ``klamm lag`` shows each of its sources.

    ``lags`` is empty while no broker says where the logs end.
    """

    job: Job
    lags: tuple[QueryLag, ...] = ()


@dataclass(frozen=True, slots=True)
class Frame:
    """A cluster at one tick.

    Attributes:
        sequence: grows from frame to frame of one feed; it jumps if frames were dropped because they were not taken.
        at_ms: the time of the tick (wall clock). links: the feed's link to each side. stages: the status of each stage;
        it contains all stages. cluster: brokers, topics, partitions, settings; None until the first reading. While only
        brokers are known, ``topics`` is empty and stage METADATA has no ``read_at_ms``. Adding and removing replicas
        are in each partition's assignment. Sizes are not in it: see ``logs``. read_at_ms: when each partition's state
        was read, if that is done in rotation; else empty, and stage METADATA's time applies to all. registrations: by
        broker id, with ZooKeeper only. min_isr: the effective min.insync.replicas, by topic; unknown for a topic that
        is not in it. offsets: the ends of the logs; empty until read, a leaderless partition is not in it. log_dirs:
        every log dir without its replicas (``replicas`` is empty); a silent broker has one with an error. logs: the
        replicas of partitions on disk with size and lag, from the brokers that answered. groups: consumer groups by
        name; empty until stage GROUPS was read. queries: Spark's queries whose traces are named, by path; empty until
        stage SPARK was read. words: by broker id, what each said when it was probed. figures: by broker id, the rates
        and latencies that each reports, or why it does not. traffic: by topic, over the brokers that report it; a topic
        that is not used may be missing. Both are empty until stage METRICS was read. deletion_ages_ms: how long topics
        have been marked for deletion; with ZooKeeper only. listed_reassignments: names in
        ``/admin/reassign_partitions``; with ZooKeeper only. zookeeper_ms: how long a ZooKeeper read takes; None: not
        asked. zookeepers_down: which servers of its ensemble do not serve, and why. plan: who carries out which plan;
        empty: nobody. It is looked up while something is throttled; None: not yet. unreadable: what is wrong with
        unreadable znodes. holding: transactions that hold readers of committed records up, by partition. principal: who
        asks the brokers; None: nobody in particular, or only they know. denied: the rights that this principal lacked
        in the last minutes; what they would show is hidden, not absent or broken. health: what ``klamm cluster health``
        says about this frame; None until there is something to judge. events: what happened since the frame before,
        oldest first, including dropped frames.
    """

    sequence: int
    at_ms: int
    links: Mapping[Side, Link] = field(default_factory=dict)
    stages: Mapping[Stage, StageStatus] = field(default_factory=dict)
    cluster: ClusterSnapshot | None = None
    read_at_ms: Mapping[TopicPartition, int] = field(default_factory=dict)
    registrations: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    min_isr: Mapping[str, int] = field(default_factory=dict)
    offsets: Mapping[TopicPartition, PartitionOffsets] = field(default_factory=dict)
    log_dirs: tuple[LogDir, ...] = ()
    logs: Mapping[TopicPartition, tuple[ReplicaLog, ...]] = field(default_factory=dict)
    groups: tuple[WatchedGroup, ...] = ()
    queries: tuple[WatchedQuery, ...] = ()
    words: Mapping[int, BrokerWords] = field(default_factory=dict)
    figures: Mapping[int, BrokerFigures] = field(default_factory=dict)
    traffic: Mapping[str, TopicTraffic] = field(default_factory=dict)
    deletion_ages_ms: Mapping[str, int] = field(default_factory=dict)
    listed_reassignments: tuple[str, ...] = ()
    zookeeper_ms: float | None = None
    zookeepers_down: tuple[str, ...] = ()
    plan: str | None = None
    unreadable: tuple[str, ...] = ()
    holding: tuple[HoldingTransaction, ...] = ()
    principal: str | None = None
    denied: tuple[Right, ...] = ()
    health: HealthReport | None = None
    events: tuple[Event, ...] = ()

    @property
    def caps_min_isr(self) -> bool:
        """Whether all brokers that answer want no more replicas in sync than a partition has."""
        reported = [word.caps_min_isr for word in self.words.values() if not word.trouble]
        return bool(reported) and all(reported)

    def failed_log_dirs(self, broker: int) -> list[str]:
        return [
            log_dir.log_dir
            for log_dir in self.log_dirs
            if log_dir.broker == broker and log_dir.log_dir is not None and log_dir.error
        ]

    def stage(self, stage: Stage) -> StageStatus:
        """Return the status of a stage; one that the feed does not know was never read."""
        return self.stages.get(stage, _NEVER)

    def link(self, side: Side) -> Link:
        """Return the feed's link to a side; one that the feed does not know is unused."""
        return self.links.get(side, _UNUSED)

    @property
    def has_tried_links(self) -> bool:
        """Whether each side that may be asked has answered, or failed, once."""
        return all(link.state is not LinkState.CONNECTING for link in self.links.values())

    def is_settled(self, stages: Iterable[Stage]) -> bool:
        """Whether each of these was read once, or has an error: that it failed, or cannot be read here."""
        statuses = map(self.stage, stages)
        return self.has_tried_links and all(status.read_at_ms is not None or bool(status.error) for status in statuses)

    def age_ms(self, stage: Stage) -> int | None:
        """Return the age of a stage's data at this frame; None: there are none."""
        read_at_ms = self.stage(stage).read_at_ms
        return None if read_at_ms is None else max(0, self.at_ms - read_at_ms)


_NEVER = StageStatus()
_UNUSED = Link(LinkState.UNUSED)
