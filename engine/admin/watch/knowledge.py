"""Everything that a feed knows about a cluster, from many answers, and a frame of it at any time. No I/O.

One fact has one source at a time. Members come from ZooKeeper while it is connected, else from Metadata. Assignments
come from the topics' znodes while these are watched, else from Metadata and the controller's list of reassignments.
Leaders and ISR come from Metadata while brokers are asked, else from the state znodes.
"""

from __future__ import annotations

from collections.abc import Generator, Iterable, Mapping
from dataclasses import replace

from engine.admin.brokers.metrics import BrokerFigures, TopicTraffic
from engine.admin.cluster.errors import MixedClusters
from engine.admin.cluster.rights import Right
from engine.admin.cluster.target import Side
from engine.admin.health.report import HoldingTransaction
from engine.admin.log_dirs.describing import LogDir
from engine.admin.topics.values import default_min_isr, min_isr_in
from engine.admin.watch.diff import diff_in_turns
from engine.admin.watch.frame import (
    BrokerRegistration,
    BrokerWords,
    Frame,
    Link,
    Stage,
    StageStatus,
    WatchedGroup,
    WatchedQuery,
)
from engine.admin.watch.judging import HealthMemory
from engine.admin.watch.merging import (
    Assignments,
    topic_of_metadata,
    topic_of_znode,
    with_partitions,
    with_reassignments,
    with_state,
)
from engine.admin.watch.packed_logs import LogEnds, LogsMaker, ReplicaLogs
from engine.common.model import (
    NO_CONTROLLER,
    BrokerInfo,
    Endpoint,
    LeaderIsrAndControllerEpoch,
    ReplicaAssignment,
    SecurityProtocol,
    TopicPartition,
)
from engine.common.snapshot import ClusterSnapshot, ReplicaLog, SnapshotSource, TopicSnapshot
from engine.common.topic_names import GROUP_METADATA_TOPIC
from engine.common.turns import at_once
from engine.kafka.protocol.apis.metadata import MetadataResponse

_TOPIC_GONE = 3
"""UNKNOWN_TOPIC_OR_PARTITION."""


class Knowledge:
    """What is known about one cluster. Belongs to one feed.

    Attributes:
        members_by_znode: brokers and controller come from ZooKeeper now.
        assignments_by_znode: so do assignments.
        states_by_wire: leaders and ISR come from the brokers now.
    """

    def __init__(self, source: SnapshotSource, protocol: SecurityProtocol = SecurityProtocol.PLAINTEXT) -> None:
        """``protocol`` is the one by which brokers are asked."""
        self.members_by_znode = False
        self.assignments_by_znode = False
        self.states_by_wire = False
        self.brokers: tuple[BrokerInfo, ...] = ()
        self.topics: dict[str, TopicSnapshot] = {}
        self.registrations: Mapping[int, BrokerRegistration] = {}
        self.assignments: dict[str, Assignments] = {}
        """The topics whose znodes are watched."""
        self.read_at_ms: dict[TopicPartition, int] = {}
        self.min_isr: Mapping[str, int] = {}
        self.broker_configs: Mapping[int | None, Mapping[str, str]] = {}
        self.offsets = LogEnds()
        self.log_dirs: tuple[LogDir, ...] = ()
        self.logs = ReplicaLogs()
        self.groups: tuple[WatchedGroup, ...] = ()
        self.queries: tuple[WatchedQuery, ...] = ()
        self.words: Mapping[int, BrokerWords] = {}
        self.figures: Mapping[int, BrokerFigures] = {}
        self.traffic: Mapping[str, TopicTraffic] = {}
        self.silent_ms: Mapping[int, int] = {}
        """For how long brokers that do not answer have not."""
        self.marked_at_ms: Mapping[str, int] = {}
        """When topics were marked for deletion."""
        self.listed_reassignments: tuple[str, ...] = ()
        self.zookeeper_ms: float | None = None
        self.zookeepers_down: tuple[str, ...] = ()
        self.plan: str | None = None
        self.unreadable: tuple[str, ...] = ()
        self.holding: tuple[HoldingTransaction, ...] = ()
        self.principal: str | None = None
        self.denied: tuple[Right, ...] = ()
        self._source = source
        self._protocol = protocol
        self._knows_members = False
        self._cluster_id: str | None = None
        self._id_in_zookeeper: str | None = None
        self._id_of_brokers: str | None = None
        self._controller_id = NO_CONTROLLER
        self._controller_epoch: int | None = None
        self._configs: dict[str, Mapping[str, str]] = {}
        self._default_min_isr: int | None = None
        self._snapshot: ClusterSnapshot | None = None
        self._sequence = 0
        self._last: Frame | None = None
        self._health = HealthMemory()
        self._listed: frozenset[TopicPartition] | None = None
        """What moves, if brokers have listed it since they were last asked about topics."""
        self._knew_moves = False
        """Whether the last answer about topics was merged with moves that brokers had listed."""
        self._has_doubts = False
        """Whether a broker named another controller when it was asked last."""

    # Members

    def take_members(
        self,
        brokers: Iterable[BrokerInfo],
        registrations: Mapping[int, BrokerRegistration],
        controller_id: int,
        controller_epoch: int | None,
        cluster_id: str | None,
    ) -> bool:
        """Take what ZooKeeper says about brokers and controller; return whether to read them again soon.

        The epoch of a controller that was elected during the reading may still be that of the one before.
        """
        self._set_brokers(tuple(sorted(brokers, key=lambda broker: broker.id)))
        self.registrations = registrations
        self._set_controller(controller_id, controller_epoch)
        self._id_in_zookeeper = cluster_id
        self._cluster_id = cluster_id or self._cluster_id
        self._snapshot = None
        return controller_epoch is not None and self._controller_epoch is None

    def check_is_one(self, answer: MetadataResponse | None) -> None:
        """Raise MixedClusters if a broker's answer (None: as before) is of another cluster than ZooKeeper's."""
        if answer is not None:
            self._id_of_brokers = answer.cluster_id
        brokers, zookeeper = self._id_of_brokers, self._id_in_zookeeper
        if brokers and zookeeper and brokers != zookeeper:
            raise MixedClusters(brokers, zookeeper)

    def take_metadata(self, answer: MetadataResponse) -> bool:
        """Take what a broker says about all topics; return whether anything changed.

        A broker that does not know a topic yet leaves it out; the next answer has it.
        """
        if not self.members_by_znode:
            self._take_nodes(answer)
        self._cluster_id = answer.cluster_id or self._cluster_id
        topics: dict[str, TopicSnapshot] = {}
        self._knew_moves = False
        for topic in answer.topics:
            name = topic.name
            if name is None or topic.error_code == _TOPIC_GONE or (topic.error_code and not topic.partitions):
                continue
            known = self.topics.get(name)
            if self.assignments_by_znode:
                topics[name] = self._dressed(topic_of_metadata(known, topic, {}, self.assignments.get(name, {})))
            else:
                moving = self._moving(name)
                self._knew_moves = self._knew_moves or bool(moving)
                topics[name] = self._dressed(topic_of_metadata(known, topic, moving))
        self._listed = None
        for name in self.marked_at_ms:
            # Brokers stop reporting a topic as soon as its deletion begins.
            if name not in topics and name in self.topics:
                topics[name] = self.topics[name]
        return self._set_topics(topics)

    @property
    def basis(self) -> tuple[object, ...]:
        """What an answer about all topics is merged with: while these are the same objects, so is the result.

        While only brokers say what moves, each listing of it counts: it says which moves have ended.
        """
        moves = object() if not self.assignments_by_znode and (self._listed or self._knew_moves) else None
        sides = self.members_by_znode, self.assignments_by_znode, self.states_by_wire
        return (self.topics, self.brokers, self.marked_at_ms, moves, *sides)

    def _take_nodes(self, answer: MetadataResponse) -> None:
        known = {broker.id: broker for broker in self.brokers}
        brokers = []
        for node in answer.brokers:
            endpoint = Endpoint.of_protocol(node.host, node.port, self._protocol)
            fresh = BrokerInfo(node.node_id, (endpoint,), node.rack)
            old = known.get(node.node_id)
            same = old is not None and old.rack == node.rack and endpoint in old.endpoints
            brokers.append(old if old is not None and same else fresh)
        self._set_brokers(tuple(sorted(brokers, key=lambda broker: broker.id)))
        if answer.controller_id != self._controller_id:
            self._set_controller(answer.controller_id, None)
            self._snapshot = None

    # Topics

    def take_topic_znodes(self, znodes: Mapping[str, tuple[bytes | None, Assignments] | None]) -> bool:
        """Take the content of these topics' znodes (None: it is gone); return whether anything changed."""
        topics = dict(self.topics)
        for name, content in znodes.items():
            if content is None:
                self.assignments.pop(name, None)
                topics.pop(name, None)
                continue
            topic_id, assignment = content
            self.assignments[name] = assignment
            if name in topics or not self.states_by_wire:
                topics[name] = self._dressed(topic_of_znode(topics.get(name), name, topic_id, assignment))
        return self._set_topics(topics)

    def take_states(self, states: Mapping[TopicPartition, LeaderIsrAndControllerEpoch | None], now_ms: int) -> bool:
        """Take the content of state znodes; return whether anything changed."""
        by_topic: dict[str, dict[int, LeaderIsrAndControllerEpoch | None]] = {}
        for name, state in states.items():
            by_topic.setdefault(name.topic, {})[name.partition] = state
            self.read_at_ms[name] = now_ms
        topics = dict(self.topics)
        for topic, topic_states in by_topic.items():
            if topic in topics:
                known = topics[topic]
                partitions = [
                    with_state(p, topic_states[p.partition]) if p.partition in topic_states else p
                    for p in known.partitions
                ]
                topics[topic] = with_partitions(known, partitions)
        return self._set_topics(topics)

    def take_reassignments(self, running: Mapping[TopicPartition, ReplicaAssignment]) -> bool:
        """Take the controller's list of reassignments; return whether anything changed."""
        self._listed = frozenset(running)
        changed = with_reassignments(self.topics, running)
        return self._set_topics(self.topics | changed) if changed else False

    def take_marks(self, marked_at_ms: Mapping[str, int]) -> None:
        """Take which topics are marked for deletion, and since when."""
        self.marked_at_ms = marked_at_ms
        self._set_topics({name: self._dressed(topic) for name, topic in self.topics.items()})

    def take_settings(
        self,
        configs: Mapping[str, Mapping[str, str]],
        broker_configs: Mapping[int | None, Mapping[str, str]] | None = None,
        min_isr: Mapping[str, int] | None = None,
    ) -> None:
        """Take the settings of the topics that were read, and of brokers.

        Args:
            min_isr: the effective one, if a broker reports it; else it follows from the topic's settings and the
            brokers' default.
        """
        self._configs.update(configs)
        if broker_configs is not None and broker_configs != self.broker_configs:
            self.broker_configs, self._snapshot = broker_configs, None
        if min_isr is None:
            self._find_min_isrs(configs)
        elif any(self.min_isr.get(name) != number for name, number in min_isr.items()):
            self.min_isr = {**self.min_isr, **min_isr}
        self._set_topics({name: self._dressed(topic) for name, topic in self.topics.items()})

    def forget_settings_but(self, topics: Iterable[str]) -> None:
        """Forget what belongs to topics that are gone."""
        present = set(topics)
        for name in self._configs.keys() - present:
            del self._configs[name]
        if self.min_isr.keys() - present:
            self.min_isr = {name: number for name, number in self.min_isr.items() if name in present}

    # The rest

    def take_ends(self, ends: Mapping[TopicPartition, int], now_ms: int) -> None:
        """Take the ends of logs; a missing one keeps its last value, unless its partition is gone."""
        present = self.offsets.only({name: len(topic.partitions) for name, topic in self.topics.items()})
        self.offsets = present.with_ends((name, end, now_ms) for name, end in ends.items())

    def take_log_dirs(self, dirs: Iterable[LogDir]) -> None:
        """Take what brokers reported about their log dirs. A silent broker's replicas keep their last values."""
        log_dirs = list(dirs)
        answered = {log_dir.broker for log_dir in log_dirs if log_dir.log_dir is not None}
        making = LogsMaker()
        for log_dir in log_dirs:
            for r in log_dir.replicas:
                log = ReplicaLog(log_dir.broker, log_dir.log_dir or "", r.size_bytes, _lag(r.offset_lag), r.is_future)
                making.add(r.topic, r.partition, log)
        silent = {broker.id for broker in self.brokers} - answered
        if silent:
            for topic, partition, log in self.logs.logs():
                if log.broker in silent and self._has_partition(TopicPartition(topic, partition)):
                    making.add(topic, partition, log)
        self.logs = making.made(self.logs)
        self.log_dirs = tuple(replace(log_dir, replicas=()) for log_dir in log_dirs)

    def take_words(self, words: Mapping[int, BrokerWords]) -> bool:
        """Take what each broker said about itself; return whether they should be asked again soon.

        A broker learns of a new controller a moment after ZooKeeper. So a change of
        controller counts only once a broker has named the new one twice.
        """
        had_doubts = self._has_doubts
        self._has_doubts = any(
            broker_words.controller_id not in (None, self._controller_id) for broker_words in words.values()
        )
        is_new = self._has_doubts and not had_doubts
        self.words = (
            {b: replace(broker_words, controller_id=None) for b, broker_words in words.items()} if is_new else words
        )
        if self.assignments_by_znode:
            self._find_min_isrs({})
        return is_new

    @property
    def has_groups_topic(self) -> bool:
        """Whether the topic is known in which groups live. It is created with the first one."""
        return GROUP_METADATA_TOPIC in self.topics

    # Frames

    def frame(self, now_ms: int, links: Mapping[Side, Link], stages: Mapping[Stage, StageStatus]) -> Frame:
        """Return a frame of everything, with what happened since the one before."""
        return at_once(self.frame_in_turns(now_ms, links, stages))

    def frame_in_turns(
        self, now_ms: int, links: Mapping[Side, Link], stages: Mapping[Stage, StageStatus]
    ) -> Generator[None, None, Frame]:
        """Make a frame in turns of an event loop. It holds what is known when it is begun."""
        self._sequence += 1
        fresh = Frame(
            self._sequence,
            now_ms,
            links,
            stages,
            self._cluster(now_ms),
            dict(self.read_at_ms) if not self.states_by_wire else {},
            self.registrations,
            self.min_isr,
            self.offsets,
            self.log_dirs,
            self.logs,
            self.groups,
            self.queries,
            self._words_now(),
            self.figures,
            self.traffic,
            {name: max(0, now_ms - at_ms) for name, at_ms in self.marked_at_ms.items()},
            self.listed_reassignments,
            self.zookeeper_ms,
            self.zookeepers_down,
            self.plan,
            self.unreadable,
            self.holding,
            self.principal,
            self.denied,
        )
        yield from self._health.turns(fresh)
        fresh = replace(fresh, health=self._health.judge(fresh))
        if self._last is not None:
            fresh = replace(fresh, events=(yield from diff_in_turns(self._last, fresh)))
        # Only what the next diff needs is kept of a frame.
        self._last = fresh
        return fresh

    def _words_now(self) -> Mapping[int, BrokerWords]:
        """Return what brokers said when they were probed; one that has fallen silent since says nothing."""
        if not self.silent_ms:
            return self.words
        silent = {broker: BrokerWords(trouble=f"no answer for {ms // 1000} s") for broker, ms in self.silent_ms.items()}
        return {**self.words, **silent}

    def _cluster(self, now_ms: int) -> ClusterSnapshot | None:
        if self._snapshot is None and self._knows_members:
            self._snapshot = ClusterSnapshot(
                self.brokers,
                tuple(self.topics.values()),
                self._source,
                now_ms,
                self._cluster_id,
                self._controller_id,
                self._controller_epoch,
                self.broker_configs,
            )
        return self._snapshot

    # Inside

    def _set_controller(self, controller_id: int, controller_epoch: int | None) -> None:
        if controller_id != self._controller_id:
            if controller_epoch == self._controller_epoch and controller_id != NO_CONTROLLER:
                # Each new controller raises it: this one was read a moment before.
                controller_epoch = None
            # What brokers said before they knew the new controller means nothing.
            self.words = {
                broker: replace(broker_words, controller_id=None) for broker, broker_words in self.words.items()
            }
            self._has_doubts = False
        self._controller_id, self._controller_epoch = controller_id, controller_epoch

    def _set_brokers(self, brokers: tuple[BrokerInfo, ...]) -> None:
        self._knows_members = True
        if brokers != self.brokers:
            # What a broker said before it was started again means nothing.
            epochs = {broker.id: broker.broker_epoch for broker in self.brokers}
            kept = {broker.id for broker in brokers if epochs.get(broker.id) == broker.broker_epoch}
            self.words = {broker: said for broker, said in self.words.items() if broker in kept}
        if brokers != self.brokers or self._snapshot is None:
            self.brokers, self._snapshot = brokers if brokers != self.brokers else self.brokers, None

    def _set_topics(self, topics: Mapping[str, TopicSnapshot]) -> bool:
        same = len(topics) == len(self.topics) and all(self.topics.get(name) is topic for name, topic in topics.items())
        if same:
            return False
        self.topics = dict(sorted(topics.items()))
        self._snapshot = None
        for name in [name for name in self.read_at_ms if name.topic not in self.topics]:
            del self.read_at_ms[name]
        return True

    def _dressed(self, topic: TopicSnapshot) -> TopicSnapshot:
        """Return the topic with its settings and its mark; the same object if it has them."""
        configs, marked = self._configs.get(topic.name), topic.name in self.marked_at_ms
        if configs == topic.configs and (configs is None) == (topic.configs is None):
            configs = topic.configs
        if configs is topic.configs and marked == topic.is_marked_for_deletion:
            return topic
        return replace(topic, configs=configs, is_marked_for_deletion=marked)

    def _moving(self, name: str) -> Assignments:
        topic = self.topics.get(name)
        if topic is None:
            return {}
        return {
            p.partition: p.assignment
            for p in topic.partitions
            if p.assignment.is_being_reassigned
            and (self._listed is None or TopicPartition(name, p.partition) in self._listed)
        }

    def _find_min_isrs(self, configs: Mapping[str, Mapping[str, str]]) -> None:
        """Find the min ISR of topics whose settings came from znodes; of all topics if the default is another one.

        Brokers' files may have the default: until one has said it, it is unknown. Then it stays known.
        """
        by_brokers = (said.min_isr for said in self.words.values())
        default = default_min_isr(self.broker_configs, by_brokers) or self._default_min_isr
        if default != self._default_min_isr:
            self._default_min_isr, configs = default, self._configs
        minimums = {name: min_isr_in(texts) or default for name, texts in configs.items()}
        if any(self.min_isr.get(name) != number for name, number in minimums.items()):
            self.min_isr = {
                name: minimum for name, minimum in {**self.min_isr, **minimums}.items() if minimum is not None
            }

    def _has_partition(self, name: TopicPartition) -> bool:
        topic = self.topics.get(name.topic)
        return topic is not None and name.partition < len(topic.partitions)


def _lag(offset_lag: int | None) -> int:
    return -1 if offset_lag is None else offset_lag
