"""One frame: all that is known of a cluster at one tick, as a frozen value. Pure.

Each part is as old as the stage says that read it: a part that could not be read again keeps its last good value, and
its stage carries the error. A fact that was never read is None (or missing from its mapping), never a guess.

Frames share what did not change. A ``TopicSnapshot`` or ``PartitionSnapshot`` that is as it was is the same object as
in the frame before, so ``is`` tells quickly what changed. The mappings of a frame are never changed after it was made.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import NamedTuple

from engine.admin.cluster.target import Side
from engine.admin.groups.values import GroupMember
from engine.admin.health.report import HealthReport
from engine.admin.lag.jobs import Job
from engine.admin.lag.results import GroupLag, QueryLag
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
    """What only a broker or ZooKeeper itself can say: whom it takes for the controller, whether it answers."""
    SPARK = "spark"
    """Streaming queries of Spark, from their checkpoints and event logs: files, and no part of the cluster."""


class LinkState(StrEnum):
    """How the feed stands with ZooKeeper, or with the brokers."""

    UNUSED = "unused"
    """Nobody named it, or it was said not to ask it."""
    CONNECTING = "connecting"
    """It was never reached, and is being tried."""
    CONNECTED = "connected"
    LOST = "lost"
    """It was there, or a first try failed, and it does not answer now."""
    DENIED = "denied"
    """It answers, and refuses us: wrong credentials, or a right is missing."""


@dataclass(frozen=True, slots=True)
class Link:
    """How the feed stands with one side of the cluster.

    Attributes:
        address: where, as it was named.
        since_ms: since when it is in this state.
        cause: why it is not connected; empty if it is.
        last_answer_ms: when it last answered anything; None: never.
        next_try_ms: when it is tried again; None: it needs no trying, or is being tried right now.
    """

    state: LinkState
    address: str = ""
    since_ms: int = 0
    cause: str = ""
    last_answer_ms: int | None = None
    next_try_ms: int | None = None


class StageSource(StrEnum):
    """How a stage gets to know."""

    WATCH = "watch"
    """ZooKeeper reports each change within milliseconds."""
    POLL = "poll"
    """The brokers are asked again and again; what comes and goes between two polls is not seen."""
    ROTATION = "rotation"
    """A few znodes at each tick, in turn; ``Frame.read_at_ms`` has the age of each partition."""


@dataclass(frozen=True, slots=True)
class StageStatus:
    """How one stage fares.

    Attributes:
        source: how it gets to know; None for one that this feed cannot read (``error`` says why).
        read_at_ms: when the data were last read whole and good (with watches: when they were last known to hold); None:
            never. Their age is the frame's time less this.
        started_at_ms: when the reading began that is going on now; None: none is.
        cost_ms: how long the last good reading took; None: there was none.
        requests: how many requests the last reading took.
        interval_ms: how often it is read, as the load allows: a stage that takes long is read less often.
        next_at_ms: when it is read next; None: at once, when something changes, or never.
        error: why the last reading failed; empty if it did not.
        is_denied: the cluster refused it: a right is missing.
        missing: what was left out of a reading that is good otherwise, such as one silent broker: a line for each.
    """

    source: StageSource | None = None
    read_at_ms: int | None = None
    started_at_ms: int | None = None
    cost_ms: float | None = None
    requests: int = 0
    interval_ms: int | None = None
    next_at_ms: int | None = None
    error: str = ""
    is_denied: bool = False
    missing: tuple[str, ...] = ()


class PartitionOffsets(NamedTuple):
    """Where a partition's log ends, as its leader told; the next record gets this offset."""

    end: int
    at_ms: int
    """When ``end`` was read. It stays as it was while the end does not change."""


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """What ZooKeeper knows about a live broker beside ``BrokerInfo``.

    ``written_ms`` is by the broker's own clock, ``created_ms`` by ZooKeeper's: they lie milliseconds apart where both
    clocks are right. None if it is not told.
    """

    created_ms: int | None = None
    written_ms: int | None = None
    jmx_port: int | None = None


@dataclass(frozen=True, slots=True)
class BrokerWords:
    """What one broker said when it was probed.

    Attributes:
        controller_id: whom it takes for the controller; None: for nobody, or it did not say.
        trouble: what it did instead of answering; empty if it answered.
    """

    controller_id: int | None = None
    offline_log_dirs: tuple[str, ...] = ()
    trouble: str = ""


@dataclass(frozen=True, slots=True)
class WatchedGroup:
    """One consumer group: its lag as ``klamm lag`` tells it, and its members.

    Attributes:
        lag: state, verdict, lag in records and in time, rates; None inside it is not known.
        members: who is in it; None: not known.
        coordinator: the broker that keeps it; None: not known, or kept in ZooKeeper.
        since_ms: since when the feed has seen it in its state.
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
        sequence: grows from frame to frame of one feed; it jumps where frames were left out because nobody took them.
        at_ms: the time of the tick (wall clock).
        links: how the feed stands with each side.
        stages: how each stage fares; all stages are in it.
        cluster: brokers, topics, partitions, settings; None until they were read the first time. While only brokers are
            known, ``topics`` is empty and stage METADATA has no ``read_at_ms``. Adding and removing replicas stand in
            each partition's assignment. Sizes do not stand in it: see ``logs``.
        read_at_ms: when each partition's state was read, where that is done in rotation; empty elsewhere, where stage
            METADATA's time holds for all.
        registrations: by broker id, with ZooKeeper only.
        min_isr: min.insync.replicas in effect, by topic; a topic that is not in it has an unknown one.
        offsets: the ends of the logs; empty until read, a leaderless partition is not in it.
        log_dirs: every log dir without its replicas (``replicas`` is empty); a silent broker has one with an error.
        logs: the replicas of partitions on disk with size and lag, from the brokers that answered.
        groups: consumer groups by name; empty until stage GROUPS was read.
        queries: Spark's queries whose traces are named, by path; empty until stage SPARK was read.
        words: by broker id, what each said when it was probed.
        deletion_ages_ms: for how long topics have been marked for deletion; with ZooKeeper only.
        listed_reassignments: names in ``/admin/reassign_partitions``; with ZooKeeper only.
        zookeeper_ms: how long ZooKeeper takes for a read; None: not asked.
        unreadable: what is wrong with znodes that nobody understands.
        health: what ``klamm cluster health`` says of this frame; None until there is something to judge.
        events: what happened since the frame before, oldest first; of frames that were left out, too.
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
    deletion_ages_ms: Mapping[str, int] = field(default_factory=dict)
    listed_reassignments: tuple[str, ...] = ()
    zookeeper_ms: float | None = None
    unreadable: tuple[str, ...] = ()
    health: HealthReport | None = None
    events: tuple[Event, ...] = ()

    def stage(self, stage: Stage) -> StageStatus:
        """Return how a stage fares; one that the feed does not know was never read."""
        return self.stages.get(stage, _NEVER)

    def link(self, side: Side) -> Link:
        """Return how the feed stands with a side; one that the feed does not know is unused."""
        return self.links.get(side, _UNUSED)

    def age_ms(self, stage: Stage) -> int | None:
        """Return how old a stage's data are at this frame; None: there are none."""
        read_at_ms = self.stage(stage).read_at_ms
        return None if read_at_ms is None else max(0, self.at_ms - read_at_ms)


_NEVER = StageStatus()
_UNUSED = Link(LinkState.UNUSED)
