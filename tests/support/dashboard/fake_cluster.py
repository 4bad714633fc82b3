"""A made-up cluster: the same calls always give the same frames. For tests, pictures and trying things out.

It has no protocol and no timing of its own: a call changes it, ``advance`` moves its time on with traffic, catching up
and copying, and ``frame`` shows its state. ``fake_feed`` plays it.
"""

from __future__ import annotations

from array import array
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from operator import is_

from fake_readers import FakeGroup, FakeQuery

from engine.admin.brokers.metrics import BrokerFigures, Rate, Teller, TopicTraffic
from engine.admin.cluster.target import Side
from engine.admin.log_dirs.describing import LogDir
from engine.admin.watch.diff import diff
from engine.admin.watch.frame import (
    BrokerRegistration,
    BrokerWords,
    Frame,
    Link,
    LinkState,
    PartitionOffsets,
    Stage,
    StageSource,
    StageStatus,
)
from engine.admin.watch.judging import HealthMemory
from engine.admin.watch.packed_logs import LogEnds, LogsMaker, ReplicaLogs, Rows
from engine.common.assignment import assign_replicas
from engine.common.collection import shared
from engine.common.model import (
    NO_CONTROLLER,
    NO_LEADER,
    BrokerInfo,
    Endpoint,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from engine.common.snapshot import ClusterSnapshot, PartitionSnapshot, ReplicaLog, SnapshotSource, TopicSnapshot

START_MS = 1_795_000_000_000
"""When a made-up cluster's time begins by default."""
_VOLUME_BYTES = 2_000_000_000_000
_RECORD_BYTES = 1_000
_INTERVALS_MS: Mapping[Stage, int] = {
    Stage.MEMBERS: 1_000, Stage.METADATA: 1_000, Stage.REASSIGNMENTS: 1_000, Stage.OFFSETS: 1_000,
    Stage.LOG_DIRS: 10_000, Stage.GROUPS: 5_000, Stage.SETTINGS: 30_000, Stage.PROBES: 5_000,
    Stage.METRICS: 15_000, Stage.SPARK: 10_000,
}  # fmt: skip
_DIR = "/var/lib/kafka"
_ADDRESSES = {Side.ZOOKEEPER: "zk1:2181,zk2:2181,zk3:2181", Side.WIRE: "kafka1:9092"}
_SIDES: Mapping[Stage, tuple[Side, ...]] = {
    Stage.MEMBERS: (Side.ZOOKEEPER, Side.WIRE), Stage.METADATA: (Side.WIRE, Side.ZOOKEEPER),
    Stage.REASSIGNMENTS: (Side.WIRE, Side.ZOOKEEPER), Stage.OFFSETS: (Side.WIRE,), Stage.LOG_DIRS: (Side.WIRE,),
    Stage.GROUPS: (Side.WIRE,), Stage.SETTINGS: (Side.ZOOKEEPER, Side.WIRE), Stage.PROBES: (Side.WIRE,),
    Stage.METRICS: (Side.WIRE,), Stage.SPARK: (),
}  # fmt: skip
_PARTS: Mapping[Stage, tuple[str, ...]] = {
    Stage.MEMBERS: ("cluster", "registrations"), Stage.METADATA: ("cluster",), Stage.REASSIGNMENTS: (),
    Stage.OFFSETS: ("offsets",), Stage.LOG_DIRS: ("log_dirs", "logs"), Stage.GROUPS: ("groups",),
    Stage.SETTINGS: ("min_isr",), Stage.PROBES: ("words", "zookeeper_ms"), Stage.SPARK: ("queries",),
    Stage.METRICS: ("figures", "traffic"),
}  # fmt: skip
"""What a frame has from each stage."""

SMALL_TOPICS: Mapping[str, int] = {
    "__consumer_offsets": 6, "audit": 1, "clicks": 6, "invoices": 3, "orders": 12, "payments": 6,
}  # fmt: skip
"""Topics with their partitions, as a small shop has them."""

_Change = Callable[[PartitionSnapshot], PartitionSnapshot]


class FakeCluster:
    """Brokers 1…n in three racks, topics with partitions, some traffic, two consumer groups.

    Args:
        topics: partitions by topic.
        rate: records that each partition gets in a second.
        copy_rate: bytes a second that a new replica copies; a moving partition joins the ISR when it has them all.
    """

    def __init__(
        self,
        brokers: int = 3,
        topics: Mapping[str, int] | None = None,
        *,
        replication_factor: int = 3,
        min_isr: int = 2,
        rate: int = 100,
        copy_rate: int = 50_000_000,
        partition_bytes: int = 2_000_000_000,
        now_ms: int = START_MS,
        has_zookeeper: bool = True,
        has_wire: bool = True,
    ) -> None:
        self.now_ms = now_ms
        self.rate = rate
        self.copy_rate = copy_rate
        self._touched = False
        self._read: set[Stage] = set()
        self._has_zookeeper, self._has_wire = has_zookeeper, has_wire
        self._brokers = {b: _broker(b, 100 + b) for b in range(1, brokers + 1)}
        self._registered_ms = {b: now_ms - 86_400_000 + 60_000 * b for b in self._brokers}
        self._down: dict[int, BrokerInfo] = {}
        self._next_epoch = 1_000
        self._controller_id, self._controller_epoch = 1, 7
        self._topics: dict[str, TopicSnapshot] = {}
        self._live: tuple[BrokerInfo, ...] = tuple(self._brokers.values())
        self._min_isr: dict[str, int] = {}
        self._ends = LogEnds()
        self._copied: dict[TopicPartition, float] = {}
        self._stalled: set[TopicPartition] = set()
        self._groups: dict[str, FakeGroup] = {}
        self._queries: dict[str, FakeQuery] = {}
        self._links: dict[Side, Link] = {}
        self._errors: dict[Stage, StageStatus] = {}
        self._waiting: dict[Stage, int] = {}
        self._read_at: dict[Stage, int] = {}
        self._broker_configs: dict[int | None, Mapping[str, str]] = {}
        self._failed_dirs: dict[int, str] = {}
        self._silent: dict[int, str] = {}
        self._untold: dict[int, str] = {}
        self._idle: dict[int, float] = {}
        self._throttle_ms: dict[int, float] = {}
        self._frozen: Frame | None = None
        self._sequence = 0
        self._last: Frame | None = None
        self._health = HealthMemory()
        self.partition_bytes = partition_bytes
        for name, count in (SMALL_TOPICS if topics is None else topics).items():
            self.create_topic(name, count, replication_factor=min(replication_factor, brokers), min_isr=min_isr)
        for side, has in ((Side.ZOOKEEPER, has_zookeeper), (Side.WIRE, has_wire)):
            self._links[side] = _connected(side, now_ms) if has else Link(LinkState.UNUSED)

    # What operators and failures do

    def create_topic(
        self, name: str, partitions: int, *, replication_factor: int = 3, min_isr: int = 2, **configs: str
    ) -> None:
        """Create a topic; write keys of settings with underscores for dots."""
        self._touched = True
        live = {broker.id: broker.rack for broker in self._live}
        start = len(self._topics) % len(live)
        assignment = assign_replicas(live, partitions, replication_factor, fixed_start_index=start)
        settings = {"min.insync.replicas": str(min_isr)} | {k.replace("_", "."): v for k, v in configs.items()}
        self._topics[name] = TopicSnapshot(
            name,
            tuple(
                PartitionSnapshot(
                    p, shared(ReplicaAssignment(replicas)), replicas[0], replicas, 0, self._controller_epoch, 0
                )
                for p, replicas in ((p, shared(replicas)) for p, replicas in assignment.items())
            ),
            len(self._topics).to_bytes(16, "big"),
            settings,
        )
        self._topics = dict(sorted(self._topics.items()))
        self._min_isr = self._min_isr | {name: min_isr}
        end = self.partition_bytes // _RECORD_BYTES
        self._ends = self._ends.with_ends((TopicPartition(name, n), end, self.now_ms) for n in range(partitions))

    def delete_topic(self, name: str) -> None:
        """Remove a topic and everything known about it."""
        self._touched = True
        del self._topics[name]
        self._ends = self._ends.only({name: len(topic.partitions) for name, topic in self._topics.items()})

    def set_topic_config(self, name: str, key: str, value: str) -> None:
        """Set one setting of a topic."""
        self._touched = True
        topic = self._topics[name]
        self._topics[name] = replace(topic, configs={**(topic.configs or {}), key: value})
        if key == "min.insync.replicas":
            self._min_isr = self._min_isr | {name: int(value)}

    def set_broker_config(self, broker: int | None, key: str, value: str) -> None:
        """Set one dynamic setting of a broker, or (None) of all."""
        self._touched = True
        self._broker_configs[broker] = {**self._broker_configs.get(broker, {}), key: value}

    def kill(self, broker: int, *, elects: bool = True) -> None:
        """End a broker: its session ends, leaders move, ISRs shrink, another broker becomes the controller.

        Without ``elects`` the controller does nothing until ``elect_without``.
        """
        self._touched = True
        self._down[broker] = self._brokers.pop(broker)
        self._registered_ms.pop(broker, None)
        self._live = tuple(self._brokers.values())
        if elects:
            self.elect_without(broker)
        if self._controller_id == broker:
            self.move_controller(min(self._brokers, default=NO_CONTROLLER))

    def elect_without(self, broker: int) -> None:
        """Elect other leaders than a dead broker, and take it out of the ISRs."""
        self._touched = True
        self._each_partition(lambda p: self._without(p, broker) if broker in p.isr or p.leader == broker else p)

    def start(self, broker: int) -> None:
        """Start a broker that was killed. Its replicas are in sync again at the next ``advance``."""
        self._touched = True
        self._next_epoch += 1
        self._brokers[broker] = replace(self._down.pop(broker), broker_epoch=self._next_epoch)
        self._brokers = dict(sorted(self._brokers.items()))
        self._registered_ms[broker] = self.now_ms
        self._live = tuple(self._brokers.values())
        if self._controller_id == NO_CONTROLLER:
            self.move_controller(broker)

    def move_controller(self, broker: int) -> None:
        """Make another broker the controller."""
        self._touched = True
        self._controller_id = broker
        self._controller_epoch += broker != NO_CONTROLLER

    def shrink_isr(self, partition: TopicPartition, broker: int) -> None:
        """Make a live follower fall out of the ISR; ``advance`` brings it back."""
        self._touched = True
        self._change(partition, lambda p: self._with_isr(p, tuple(b for b in p.isr if b != broker)))

    def elect_preferred(self, topics: Iterable[str] | None = None) -> None:
        """Make the preferred replicas lead if they are in sync."""
        self._touched = True
        names = self._topics if topics is None else set(topics)

        def elected(p: PartitionSnapshot) -> PartitionSnapshot:
            if p.leader == p.preferred_leader or p.preferred_leader not in p.isr:
                return p
            return self._next(replace(p, leader=p.preferred_leader))

        self._each_partition(elected, names)

    def move_leader(self, partition: TopicPartition, broker: int) -> None:
        """Make another replica lead."""
        self._touched = True
        self._change(partition, lambda p: self._next(replace(p, leader=broker)))

    def reassign(self, partition: TopicPartition, replicas: Sequence[int], *, is_stalled: bool = False) -> None:
        """Begin to move a partition; ``advance`` copies unless the copy is stuck."""
        self._touched = True

        def begun(p: PartitionSnapshot) -> PartitionSnapshot:
            adding = tuple(b for b in replicas if b not in p.replicas)
            removing = tuple(b for b in p.replicas if b not in replicas)
            both = ReplicaAssignment((*replicas, *removing), adding, removing)
            return self._next(replace(p, assignment=both))

        self._change(partition, begun)
        self._copied[partition] = 0.0
        if is_stalled:
            self._stalled.add(partition)

    def cancel(self, partition: TopicPartition) -> None:
        """Cancel a reassignment."""
        self._touched = True
        self._change(partition, lambda p: replace(p, assignment=ReplicaAssignment(p.assignment.origin_replicas)))
        self._copied.pop(partition, None)

    def fail_log_dir(self, broker: int) -> None:
        """Make a broker's log dir fail."""
        self._touched = True
        self._failed_dirs[broker] = "KAFKA_STORAGE_ERROR"

    def silence(self, broker: int, trouble: str = "no answer within 5 s") -> None:
        """Make a broker hang: it stays registered, and answers nothing."""
        self._touched = True
        self._silent[broker] = trouble

    def hide_figures(self, broker: int, why: str) -> None:
        """Make a broker tell none of what it measures."""
        self._touched = True
        self._untold[broker] = why

    def overload(self, broker: int, *, idle_percent: float, throttle_ms: float = 0.0) -> None:
        """Make a broker work without a rest, and hold answers back for a quota."""
        self._touched = True
        self._idle[broker], self._throttle_ms[broker] = idle_percent, throttle_ms

    def add_group(self, name: str, topic: str, *, reads: float, lag: int = 0, members: int = 2) -> None:
        """Add a consumer group that reads ``reads`` records of each partition in a second and is ``lag`` behind now."""
        self._touched = True
        self._groups[name] = FakeGroup(name, topic, reads=reads, rate=self.rate, members=members, now_ms=self.now_ms)
        for p in self._topics[topic].partitions:
            partition = TopicPartition(topic, p.partition)
            self._groups[name].committed[partition] = self._ends[partition].end - lag

    def stop_reading(self, group: str) -> None:
        """Make the members of a group hang: they stay, and commit nothing."""
        self._groups[group].reads = 0.0

    def stop_at(self, group: str, name: TopicPartition, offset: int) -> None:
        """Make one record hold up the reader of a partition: the others are read as before."""
        self._groups[group].committed[name] = offset
        self._groups[group].stuck.add(name)

    def leave(self, group: str) -> None:
        """Make all members of a group leave."""
        self._groups[group].leave()

    def resume_reading(self, group: str, reads: float) -> None:
        """Let the members of a group read again, so many records of each partition in a second."""
        self._groups[group].reads = reads

    def remove_group(self, name: str) -> None:
        """Remove a consumer group."""
        self._touched = True
        del self._groups[name]

    def add_query(self, name: str, topic: str, *, reads: float, lag: int = 0, took_ms: int = 2_000) -> None:
        """Add a query of Spark that reads up to ``reads`` records of each partition in a second, ``lag`` behind now."""
        self._touched = True
        names = [TopicPartition(topic, p.partition) for p in self._topics[topic].partitions]
        starts_at = {name: self._ends[name].end - lag for name in names}
        self._queries[name] = FakeQuery(
            name, starts_at, reads=reads, rate=self.rate, took_ms=took_ms, now_ms=self.now_ms
        )

    def stop_batch(self, query: str) -> None:
        """Make the batch that a query runs, or begins next, run without end."""
        self._queries[query].is_stuck = True

    # What happens to the feed

    def set_link(self, side: Side, state: LinkState, cause: str = "", *, next_try_in_ms: int | None = None) -> None:
        """Set the feed's link to ZooKeeper or the brokers from now on. Data freeze while it is not connected."""
        before = self._links[side]
        answered = before.last_answer_ms
        if before.state is LinkState.CONNECTED and state is not LinkState.CONNECTED:
            answered = self.now_ms
        next_ms = None if next_try_in_ms is None else self.now_ms + next_try_in_ms
        if state is LinkState.CONNECTED:
            answered = self.now_ms
        self._links[side] = Link(state, before.address or _ADDRESSES[side], self.now_ms, cause, answered, next_ms)

    def fail_stage(self, stage: Stage, error: str, *, is_denied: bool = False) -> None:
        """Make a stage fail from now on; its data keep their age."""
        self._errors[stage] = StageStatus(error=error, is_denied=is_denied)

    def delay_stage(self, stage: Stage) -> None:
        """Make a stage's readings never end from now on."""
        self._waiting[stage] = self.now_ms

    def heal_stage(self, stage: Stage) -> None:
        """Make a stage readable again."""
        self._errors.pop(stage, None)
        self._waiting.pop(stage, None)

    def forget_reads(self) -> None:
        """Go back to the start: nothing was read yet."""
        self._read_at.clear()
        self._last = self._frozen = None

    # Time

    def advance(self, ms: int = 1_000) -> None:
        """Move time on: records come and are read, replicas catch up, moving partitions copy."""
        self.now_ms += ms
        seconds = ms / 1_000
        if self.rate:
            self._grow(round(self.rate * seconds))
        self._each_partition(self._caught_up)
        for partition in list(self._copied):
            self._copy(partition, seconds)
        for group in self._groups.values():
            group.read(seconds, self._ends_for(group), self.now_ms)
        for query in self._queries.values():
            query.read(self._ends, self.now_ms)

    def _grow(self, records: int) -> None:
        grown: dict[str, Rows] = {}
        for name, rows in self._ends.by_topic.items():
            grown[name] = ends = array("q", rows)
            for p in self._topics[name].partitions:
                if p.leader != NO_LEADER:
                    ends[2 * p.partition] += records
                    ends[2 * p.partition + 1] = self.now_ms
        self._ends = LogEnds(grown)

    def frame(self) -> Frame:
        """Return the present state, with what happened since the frame before."""
        self._sequence += 1
        for side, link in self._links.items():
            if link.state is LinkState.CONNECTED:
                self._links[side] = replace(link, last_answer_ms=self.now_ms)
        self._read = {stage for stage in Stage if self._can_read(stage) and self._is_due(stage)}
        self._read_at.update(dict.fromkeys(self._read, self.now_ms))
        self._touched = False
        fresh = Frame(
            self._sequence,
            self.now_ms,
            links=dict(self._links),
            stages={stage: self._stage(stage) for stage in Stage},
            **self._data(),  # type: ignore[arg-type]
        )
        fresh = self._frozen_parts(fresh)
        fresh = replace(fresh, health=self._health.judge(fresh))
        if self._last is not None:
            fresh = replace(fresh, events=diff(self._last, fresh))
        self._last = fresh
        return fresh

    # Inside

    def _data(self) -> dict[str, object]:
        snapshot = ClusterSnapshot(
            self._live,
            self._topics_tuple(),
            SnapshotSource.WIRE if self._has_wire else SnapshotSource.ZOOKEEPER,
            self.now_ms,
            "k1amm-made-up-cluster",
            self._controller_id,
            self._controller_epoch if self._has_zookeeper else None,
            dict(self._broker_configs),
        )
        # Nobody carries out a plan, and that has been looked up.
        data: dict[str, object] = {"cluster": snapshot, "min_isr": self._min_isr, "plan": ""}
        data["queries"] = tuple(query.watched(self._ends) for _, query in sorted(self._queries.items()))
        if self._has_zookeeper:
            data["registrations"] = {b: BrokerRegistration(ms, 0) for b, ms in self._registered_ms.items()}
            data["zookeeper_ms"] = 1.2
        if self._has_wire:
            data["offsets"] = self._ends
            if Stage.LOG_DIRS in self._read:
                data |= {"log_dirs": self._log_dirs(), "logs": self._logs()}
            data["groups"] = tuple(
                group.watched(self._ends_for(group), self._coordinator()) for _, group in sorted(self._groups.items())
            )
            if Stage.METRICS in self._read:
                data |= {"figures": {b: self._figures(b) for b in self._brokers}, "traffic": self._traffic()}
            data["words"] = {
                b: BrokerWords(None, (), self._silent[b]) if b in self._silent
                else BrokerWords(self._controller_id, (_DIR,) if b in self._failed_dirs else (), release="3.9")
                for b in self._brokers
            }  # fmt: skip
        return data

    def _topics_tuple(self) -> tuple[TopicSnapshot, ...]:
        """The same object while no topic changed."""
        topics = tuple(self._topics.values())
        last = self._last.cluster.topics if self._last is not None and self._last.cluster is not None else ()
        return last if len(last) == len(topics) and all(map(is_, last, topics)) else topics

    def _frozen_parts(self, fresh: Frame) -> Frame:
        """Keep the last good value of each part whose stage was not read now."""
        parts = {stage: names for stage, names in _PARTS.items() if stage not in self._read}
        if not parts:
            return fresh
        before = self._last or Frame(0, self.now_ms)
        kept = {name: getattr(before, name) for names in parts.values() for name in names}
        if Stage.METADATA in parts and Stage.MEMBERS not in parts and fresh.cluster is not None:
            topics = before.cluster.topics if before.cluster is not None else ()
            kept["cluster"] = replace(fresh.cluster, topics=topics)
        return replace(fresh, **kept)

    def _can_read(self, stage: Stage) -> bool:
        if stage in self._errors or stage in self._waiting:
            return False
        if stage is Stage.SPARK:
            return bool(self._queries)
        sides = [side for side in _SIDES[stage] if self._links[side].state is not LinkState.UNUSED]
        return any(self._links[side].state is LinkState.CONNECTED for side in sides)

    def _is_due(self, stage: Stage) -> bool:
        """A stage is read when its interval is over, and after each call that changed the cluster."""
        read_at_ms = self._read_at.get(stage)
        return self._touched or read_at_ms is None or self.now_ms - read_at_ms >= _INTERVALS_MS[stage]

    def _stage(self, stage: Stage) -> StageStatus:
        if stage is Stage.SPARK and not self._queries:
            return StageStatus(error="no checkpoint and no event log is named")
        if stage is not Stage.SPARK and not any(
            self._links[side].state is not LinkState.UNUSED for side in _SIDES[stage]
        ):
            return StageStatus(error="no brokers are named" if _SIDES[stage] == (Side.WIRE,) else "nobody tells it")
        read_at_ms = self._read_at.get(stage)
        watched = self._has_zookeeper and stage is Stage.MEMBERS
        status = StageStatus(
            StageSource.WATCH if watched else StageSource.POLL,
            read_at_ms,
            None if read_at_ms is None else 4.0,
            1,
            _INTERVALS_MS[stage],
        )
        failed = self._errors.get(stage)
        if failed is not None:
            return replace(status, error=failed.error, is_denied=failed.is_denied)
        if not self._can_read(stage) and stage not in self._waiting:
            causes = [self._links[side].cause for side in _SIDES[stage] if self._links[side].cause]
            return replace(status, error="; ".join(causes))
        return status

    def _figures(self, broker: int) -> BrokerFigures:
        if why := self._silent.get(broker) or self._untold.get(broker):
            return BrokerFigures(broker, trouble=why)
        led = sum(p.leader == broker for topic in self._topics.values() for p in topic.partitions)
        records, throttle_ms = led * self.rate, self._throttle_ms.get(broker, 0.0)
        bytes_in = records * _RECORD_BYTES
        return BrokerFigures(
            broker, Teller.JOLOKIA, f"http://kafka{broker}:8778/jolokia",
            messages_in=Rate(one_minute=records), bytes_in=Rate(one_minute=bytes_in),
            bytes_out=Rate(one_minute=2 * bytes_in), handler_idle_percent=self._idle.get(broker, 90.0 + broker % 7),
            produce_p99_ms=3.0 + broker + throttle_ms, fetch_p99_ms=500.0 + broker, produce_throttle_ms=throttle_ms,
            fetch_throttle_ms=0.0,
        )  # fmt: skip

    def _traffic(self) -> dict[str, TopicTraffic]:
        live = self._brokers.keys() - self._silent.keys() - self._untold.keys()
        traffic = {}
        for name, topic in self._topics.items():
            bytes_in = sum(p.leader in live for p in topic.partitions) * self.rate * _RECORD_BYTES
            if bytes_in or not live.isdisjoint(p.leader for p in topic.partitions):
                traffic[name] = TopicTraffic(bytes_in, 2 * bytes_in)
        return traffic

    def _log_dirs(self) -> tuple[LogDir, ...]:
        sizes: dict[int, list[int]] = {broker: [] for broker in self._brokers}
        for topic in self._topics.values():
            for p in topic.partitions:
                for broker in p.replicas:
                    if broker in sizes:
                        sizes[broker].append(self._size(TopicPartition(topic.name, p.partition)))
        return tuple(
            LogDir(b, None, self._silent[b], 0, 0, None, None) if b in self._silent
            else LogDir(b, _DIR, self._failed_dirs[b], 0, 0, None, None) if b in self._failed_dirs
            else LogDir(b, _DIR, None, sum(of), len(of), _VOLUME_BYTES, max(0, _VOLUME_BYTES - sum(of)))
            for b, of in sizes.items()
        )  # fmt: skip

    def _logs(self) -> ReplicaLogs:
        making = LogsMaker()
        for topic in self._topics.values():
            for p in topic.partitions:
                name = TopicPartition(topic.name, p.partition)
                size = self._size(name)
                for broker in p.replicas:
                    if self._tells(broker):
                        making.add(topic.name, p.partition, self._replica_log(name, p, broker, size))
        return making.made(ReplicaLogs() if self._last is None else ReplicaLogs.of(self._last.logs))

    def _replica_log(self, name: TopicPartition, p: PartitionSnapshot, broker: int, size: int) -> ReplicaLog:
        if broker in p.assignment.adding_replicas and broker not in p.isr:
            size = min(size, int(self._copied.get(name, 0)))
            return ReplicaLog(broker, _DIR, size, max(0, self._size(name) - size) // _RECORD_BYTES)
        return ReplicaLog(broker, _DIR, size, 0 if broker in p.isr else 1_000)

    def _ends_for(self, group: FakeGroup) -> dict[TopicPartition, PartitionOffsets]:
        """Where a group's partitions end, as far as a leader says so."""
        led = {p.partition for p in self._topics[group.topic].partitions if p.leader != NO_LEADER}
        return {name: self._ends[name] for name in group.committed if name.partition in led}

    def _coordinator(self) -> int | None:
        return min(self._brokers, default=None)

    def _tells(self, broker: int) -> bool:
        return broker in self._brokers and broker not in self._failed_dirs and broker not in self._silent

    def _size(self, name: TopicPartition) -> int:
        return self._ends[name].end * _RECORD_BYTES

    def _without(self, p: PartitionSnapshot, broker: int) -> PartitionSnapshot:
        isr = tuple(b for b in p.isr if b != broker)
        if not isr:
            return self._next(replace(p, leader=NO_LEADER, isr=(broker,)))
        leader = p.leader if p.leader != broker else next(b for b in p.replicas if b in isr)
        return self._next(replace(p, leader=leader, isr=isr))

    def _caught_up(self, p: PartitionSnapshot) -> PartitionSnapshot:
        """Live replicas rejoin the ISR, except those that a reassignment adds: they copy first."""
        if p.leader == NO_LEADER:
            if p.isr and p.isr[0] in self._brokers:
                return self._next(replace(p, leader=p.isr[0]))
            return p
        out = [b for b in p.replicas if b not in p.isr and b in self._brokers and b not in p.assignment.adding_replicas]
        return self._with_isr(p, (*p.isr, *out)) if out else p

    def _copy(self, partition: TopicPartition, seconds: float) -> None:
        if partition in self._stalled:
            return
        self._copied[partition] += self.copy_rate * seconds
        if self._copied[partition] >= self._size(partition):
            del self._copied[partition]
            target = self._topics[partition.topic].partitions[partition.partition].assignment.target_replicas
            self._change(partition, lambda p: self._moved(p, target))

    def _moved(self, p: PartitionSnapshot, target: tuple[int, ...]) -> PartitionSnapshot:
        isr = tuple(b for b in target if b in self._brokers)
        leader = p.leader if p.leader in isr else isr[0] if isr else NO_LEADER
        return self._next(replace(p, assignment=ReplicaAssignment(target), isr=isr, leader=leader))

    def _with_isr(self, p: PartitionSnapshot, isr: tuple[int, ...]) -> PartitionSnapshot:
        return replace(p, isr=isr, zk_version=(p.zk_version or 0) + 1)

    def _next(self, p: PartitionSnapshot) -> PartitionSnapshot:
        """Return the partition as the controller has just written it."""
        return replace(
            p,
            leader_epoch=(p.leader_epoch or 0) + 1,
            zk_version=(p.zk_version or 0) + 1,
            controller_epoch=self._controller_epoch,
        )

    def _change(self, partition: TopicPartition, change: _Change) -> None:
        topic = self._topics[partition.topic]
        self._topics[partition.topic] = _changed(
            topic, lambda p: change(p) if p.partition == partition.partition else p
        )

    def _each_partition(self, change: _Change, names: Iterable[str] | None = None) -> None:
        for name in list(self._topics if names is None else names):
            self._topics[name] = _changed(self._topics[name], change)


def small_cluster(now_ms: int = START_MS) -> FakeCluster:
    """Return three brokers, six topics with 34 partitions, a group that keeps up, one that falls behind, one empty."""
    cluster = FakeCluster(3, now_ms=now_ms)
    cluster.add_group("billing", "orders", reads=100, lag=40, members=3)
    cluster.add_group("search-index", "clicks", reads=60, lag=18_000, members=2)
    cluster.add_group("nightly-report", "payments", reads=0, lag=250_000, members=0)
    return cluster


def big_cluster(
    brokers: int = 12, topics: int = 1_000, partitions: int = 50_000, *, now_ms: int = START_MS, rate: int = 100
) -> FakeCluster:
    """Return a cluster with this many brokers, topics and partitions in all."""
    each, more = divmod(partitions, topics)
    names = {f"topic-{number:04}": each + (number < more) for number in range(topics)}
    return FakeCluster(brokers, names, now_ms=now_ms, rate=rate, partition_bytes=200_000_000)


def _broker(broker_id: int, broker_epoch: int) -> BrokerInfo:
    endpoint = Endpoint(f"kafka{broker_id}", 9092, "PLAINTEXT", SecurityProtocol.PLAINTEXT)
    return BrokerInfo(broker_id, (endpoint,), f"rack-{(broker_id - 1) % 3 + 1}", broker_epoch)


def _connected(side: Side, now_ms: int) -> Link:
    return Link(LinkState.CONNECTED, _ADDRESSES[side], now_ms, last_answer_ms=now_ms)


def _changed(topic: TopicSnapshot, change: _Change) -> TopicSnapshot:
    """Return the topic with its partitions changed; the same object if none was."""
    partitions = tuple(map(change, topic.partitions))
    return topic if all(map(is_, partitions, topic.partitions)) else replace(topic, partitions=partitions)
