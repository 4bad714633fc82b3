"""ZooKeeper's side of a feed: changes at once through watches, and partition states in rotation if no broker is asked.

One task reads one thing after the other, so an older answer never follows a newer one. A watch only says that something
must be read again.

What it costs: at the start it reads each topic's znode and settings once, and each partition's state if no broker
reports it. From then on it checks ZooKeeper's speed every two seconds, and reads changes and READS_PER_S states a
second (none if brokers report them): below ten requests a second while little changes. After a broker came or went, it
reads up to SUSPECTS_PER_S states a second until it has read all that involve that broker.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable, Generator, Iterable, Mapping, Sequence
from functools import partial

from engine.admin.cluster.errors import Unreachable
from engine.admin.cluster.target import Side
from engine.admin.cluster.zookeeper import open_zookeeper, servers_down
from engine.admin.health.reading import zookeeper_delay_ms
from engine.admin.watch.frame import BrokerRegistration, Stage, StageSource
from engine.admin.watch.knowledge import Knowledge
from engine.admin.watch.link_states import Board, Failure, failure_of
from engine.admin.watch.merging import Assignments
from engine.admin.watch.schedule import BACK_OFF_MAX_MS, BACK_OFF_MS, Rotation
from engine.common.clock import Clock
from engine.common.errors import CoordinationError
from engine.common.model import NO_CONTROLLER, BrokerInfo, TopicPartition
from engine.kafka.zk.admin_nodes import DeleteTopicsZNode, ReassignPartitionsZNode
from engine.kafka.zk.brokers import BrokerIdsZNode, BrokerIdZNode
from engine.kafka.zk.client import ReadOutcome, ZkClient
from engine.kafka.zk.configs import (
    DEFAULT_ENTITY,
    ConfigEntityChangeNotificationSequenceZNode,
    ConfigEntityChangeNotificationZNode,
    ConfigType,
)
from engine.kafka.zk.controller import ControllerZNode
from engine.kafka.zk.errors import SessionLost, ZnodeFormatError, ZooKeeperError
from engine.kafka.zk.kafka_client import KafkaZkClient
from engine.kafka.zk.notifications import IsrChangeNotificationZNode
from engine.kafka.zk.reads import children_or_empty
from engine.kafka.zk.security import OPEN, ZkSecurity
from engine.kafka.zk.session_keeper import SessionEvent
from engine.kafka.zk.topics import TopicsZNode, TopicZNode
from engine.kafka.zk.watches import WatchEvent, WatchEventKind
from engine.runtime.turns import carry_out

log = logging.getLogger(__name__)

CONNECT_S = 10.0
LOOK_EVERY_S = 2.0
"""How often ZooKeeper's speed is measured, which also shows whether it still answers."""
LOOK_LIMIT_S = 4.0
SERVERS_EVERY_S = 10.0
"""How often the servers of an ensemble are looked at."""
_EPOCH_AGAIN_S = 1.0
"""This long after a new controller was seen with the epoch of the one before, read again. Nothing watches the epoch."""
_SLICE = 500
_MANY = 100
_ROTATE_EVERY_S = 0.2
_TOPICS_PREFIX = f"{TopicsZNode.path}/"
_NOTICES = (IsrChangeNotificationZNode.path, ConfigEntityChangeNotificationZNode.path)
_ALL_SETTINGS = "all settings"


class ZooKeeperSide:
    """Keeps a session open, and uses it to keep the known state up to date.

    Args:
        on_news: called after something was read, with True if it should be shown at once.
    """

    def __init__(
        self,
        connect: str,
        knowledge: Knowledge,
        board: Board,
        clock: Clock,
        on_news: Callable[[bool], None],
        *,
        security: ZkSecurity = OPEN,
    ) -> None:
        self.requests = 0
        """How many requests were sent to ZooKeeper, not counting pings and watches re-armed after an event."""
        self._connect = connect
        self._security = security
        self._knowledge = knowledge
        self._board = board
        self._clock = clock
        self._on_news = on_news
        self._rotation = Rotation()
        self._wake = asyncio.Event()
        self._dirty: dict[str, None] = {}
        self._watched: set[str] = set()
        self._seen_changes: set[str] = set()
        self._unreadable: dict[str, str] = {}
        self._unreadable_settings: dict[str, str] = {}
        """By the entity's path below /config."""
        self._is_paused = False
        self._is_open = False
        """There is a connected session, as far as ZooKeeper's client knows."""
        self._is_over = False
        self._zk: ZkClient | None = None

    @property
    def client(self) -> ZkClient | None:
        """The client of the session; None while there is no session."""
        return self._zk if self._is_open and not self._is_over and not self._is_paused else None

    def pause(self, is_paused: bool) -> None:
        """Ask nothing, or continue."""
        self._is_paused = is_paused
        self._wake.set()

    def refresh(self) -> None:
        """Read again what watches reported, and all states if brokers do not report them."""
        self._dirty.update(dict.fromkeys(self._everything()))
        self._rotation.suspect_all()
        self._wake.set()

    async def run(self) -> None:
        """Follow ZooKeeper until cancelled, in one session after the other."""
        looking = asyncio.create_task(self._look_at_servers(), name="look-at-zookeeper-servers")
        try:
            await self._run_sessions()
        finally:
            looking.cancel()
            await asyncio.wait([looking])

    async def _run_sessions(self) -> None:
        back_off_ms = BACK_OFF_MS
        while True:
            self._board.trying(Side.ZOOKEEPER)
            try:
                zk = await open_zookeeper(self._connect, security=self._security, timeout_s=CONNECT_S)
            except (Unreachable, ZooKeeperError) as error:
                self._lose(failure_of(error), self._clock.now_ms() + back_off_ms)
                await self._pause_for(back_off_ms)
                back_off_ms = min(back_off_ms * 2, BACK_OFF_MAX_MS)
                continue
            back_off_ms = BACK_OFF_MS
            try:
                await self._follow(zk)
            finally:
                self._zk = None
                await zk.close()

    async def _pause_for(self, back_off_ms: int) -> None:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(back_off_ms / 1000):
                self._wake.clear()
                await self._wake.wait()

    # One client, with as many sessions as it takes

    async def _follow(self, zk: ZkClient) -> None:
        kafka = KafkaZkClient(zk)
        self._zk = zk
        self._is_open, self._is_over = True, False
        self._seen_changes.clear()
        zk.add_session_listener(self._on_session)
        for path in (BrokerIdsZNode.path, TopicsZNode.path, DeleteTopicsZNode.path, *_NOTICES):
            zk.watch_children(path, self._on_watch)
        for path in (ControllerZNode.path, ReassignPartitionsZNode.path):
            zk.watch_data(path, self._on_watch)
        # After a refused login another client follows. It watches the topics of the one before: some may be gone.
        for name in self._watched:
            zk.watch_data(TopicZNode.path(name), self._on_watch)
        self._board.answered(Side.ZOOKEEPER)
        self._dirty = dict.fromkeys(self._everything())
        looked_s = rotated_s = 0.0
        loop = asyncio.get_running_loop()
        while not self._is_over:
            if self._is_open and not self._is_paused:
                await self._step(kafka, self._read_dirty)
                if loop.time() - looked_s >= LOOK_EVERY_S:
                    looked_s = loop.time()
                    await self._step(kafka, self._look)
                elapsed_s = min(2.0, loop.time() - rotated_s)
                if not self._knowledge.states_by_wire and elapsed_s >= _ROTATE_EVERY_S:
                    rotated_s = loop.time()
                    await self._step(kafka, partial(self._rotate, elapsed_s=elapsed_s))
            await self._wait_for_news(0.25 if self._rotation.suspect_count else 1.0)

    async def _step(self, kafka: KafkaZkClient, read: Callable[[KafkaZkClient], Awaitable[None]]) -> None:
        try:
            await read(kafka)
        except SessionLost:
            # The session's own events report what follows.
            self._dirty.update(dict.fromkeys(self._everything()))

    async def _wait_for_news(self, limit_s: float) -> None:
        if self._dirty and not self._is_paused and self._is_open:
            return
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(limit_s):
                await self._wake.wait()
        self._wake.clear()

    def _on_session(self, event: SessionEvent) -> None:
        match event:
            case SessionEvent.SUSPENDED:
                self._is_open = False
                self._lose(Failure("the connection broke; klamm connects again"))
            case SessionEvent.LOST:
                self._is_open = False
                self._lose(Failure("the session is over; klamm opens another"))
            case SessionEvent.AUTH_FAILED:
                self._lose(Failure("the credentials were refused", is_denied=True))
                self._is_over = True
            case SessionEvent.RECONNECTED | SessionEvent.NEW_SESSION:
                self._is_open = True
                self._board.answered(Side.ZOOKEEPER)
                self._dirty.update(dict.fromkeys(self._everything()))
        self._wake.set()

    def _lose(self, failure: Failure, next_try_ms: int | None = None) -> None:
        self._knowledge.members_by_znode = self._knowledge.assignments_by_znode = False
        self._board.lost(Side.ZOOKEEPER, failure, next_try_ms)
        for stage in (Stage.MEMBERS, Stage.SETTINGS):
            self._board.failed(stage, Failure(f"ZooKeeper: {failure.message}", failure.is_denied))
        if not self._knowledge.states_by_wire:
            self._board.failed(Stage.METADATA, Failure(f"ZooKeeper: {failure.message}", failure.is_denied))
        self._on_news(True)

    def _on_watch(self, event: WatchEvent) -> None:
        # The path of one topic is the key of its pending reads.
        self._read_soon(event.path)
        if event.path.startswith(_TOPICS_PREFIX) and event.kind is WatchEventKind.DELETED:
            self._read_soon(TopicsZNode.path)

    def _read_soon(self, path: str) -> None:
        self._dirty[path] = None
        self._wake.set()

    def _everything(self) -> Sequence[str]:
        """Return what to read again: members first, because they matter most to a person."""
        topics = (TopicZNode.path(name) for name in sorted(self._watched))
        rest = (DeleteTopicsZNode.path, ReassignPartitionsZNode.path, IsrChangeNotificationZNode.path, _ALL_SETTINGS)
        return (BrokerIdsZNode.path, TopicsZNode.path, *topics, *rest)

    # Reading

    async def _read_dirty(self, kafka: KafkaZkClient) -> None:
        """Read everything that watches reported, one thing after the other."""
        while self._dirty and not self._is_paused and self._is_open:
            topics = [path for path in self._dirty if path.startswith(_TOPICS_PREFIX)][:_SLICE]
            if next(iter(self._dirty)) in topics:
                for path in topics:
                    del self._dirty[path]
                await self._read_topics(kafka, [path.removeprefix(_TOPICS_PREFIX) for path in topics])
                continue
            path = next(iter(self._dirty))
            del self._dirty[path]
            stage, read = self._reader_of(path)
            try:
                await read(kafka)
            except SessionLost:
                raise
            except (ZooKeeperError, ZnodeFormatError) as error:
                self._board.failed(stage, failure_of(error))
                self._on_news(False)

    def _reader_of(self, path: str) -> tuple[Stage, Callable[[KafkaZkClient], Awaitable[None]]]:
        match path:
            case BrokerIdsZNode.path | ControllerZNode.path:
                return Stage.MEMBERS, self._read_members
            case TopicsZNode.path:
                return Stage.METADATA, self._read_topic_names
            case DeleteTopicsZNode.path:
                return Stage.METADATA, self._read_marks
            case ReassignPartitionsZNode.path:
                return Stage.REASSIGNMENTS, self._read_listed
            case IsrChangeNotificationZNode.path:
                return Stage.METADATA, self._read_isr_notices
            case ConfigEntityChangeNotificationZNode.path:
                return Stage.SETTINGS, self._read_config_notices
            case _:
                return Stage.SETTINGS, self._read_settings

    async def _read_members(self, kafka: KafkaZkClient) -> None:
        for path in (BrokerIdsZNode.path, ControllerZNode.path):
            self._dirty.pop(path, None)
        known = {broker.id for broker in self._knowledge.brokers}
        ids = await kafka.brokers.get_broker_ids()
        # Asked at the same time: one way to ZooKeeper and back, wherever it is.
        registrations, controller_id, epoch, cluster_id = await asyncio.gather(
            kafka.client.read_many(map(BrokerIdZNode.path, ids), lambda i, content: _registration(ids[i], content)),
            kafka.controller.get_controller_id(),
            kafka.controller.get_controller_epoch(),
            kafka.cluster.get_cluster_id(),
        )
        self._count(len(ids) + 4)
        brokers = [broker for broker, _ in filter(None, registrations)]
        is_too_early = self._knowledge.take_members(
            brokers,
            {broker.id: registration for broker, registration in filter(None, registrations)},
            NO_CONTROLLER if controller_id is None else controller_id,
            None if epoch is None else epoch.controller_epoch,
            cluster_id,
        )
        if is_too_early:
            asyncio.get_running_loop().call_later(_EPOCH_AGAIN_S, self._read_soon, ControllerZNode.path)
        self._knowledge.members_by_znode = True
        self._board.read(Stage.MEMBERS, StageSource.WATCH, requests=len(ids) + 4)
        self._on_news(True)
        changed = known ^ set(ids)
        if changed:
            await carry_out(self._suspect_replicas_of(changed))

    def _suspect_replicas_of(self, brokers: set[int]) -> Generator[None, None, None]:
        for topic, assignment in list(self._knowledge.assignments.items()):
            self._rotation.suspect(
                TopicPartition(topic, number)
                for number, assigned in assignment.items()
                if not brokers.isdisjoint(assigned.replicas)
            )
            yield

    async def _read_topic_names(self, kafka: KafkaZkClient) -> None:
        names = set(await kafka.topics.get_all_topics())
        self._count(1)
        for name in self._watched - names:
            kafka.client.unwatch(TopicZNode.path(name), self._on_watch)
            self._dirty.pop(TopicZNode.path(name), None)
        new = sorted(names - self._watched)
        for name in new:
            kafka.client.watch_data(TopicZNode.path(name), self._on_watch)
        gone = self._watched - names
        self._watched = names
        if gone:
            self._knowledge.take_topic_znodes(dict.fromkeys(gone))
            self._knowledge.forget_settings_but(names)
            for name in gone:
                self._unreadable.pop(name, None)
                self._unreadable_settings.pop(f"{ConfigType.TOPIC.value}/{name}", None)
                self._rotation.set_partitions(name, frozenset())
            self._tell_unreadable()
        for start in range(0, len(new), _SLICE):
            await self._read_topics(kafka, new[start : start + _SLICE])
        if not new:
            # Watches report changes in the others, so it is known what moves; without topics, that nothing does.
            self._board.read(Stage.REASSIGNMENTS, StageSource.WATCH, requests=1)
        self._knowledge.assignments_by_znode = True
        if new and self._board.stages[Stage.SETTINGS].read_at_ms is not None:
            await self._read_topic_settings(kafka, new)
        self._on_news(True)

    async def _read_topics(self, kafka: KafkaZkClient, names: Sequence[str]) -> None:
        read = await kafka.topics.read_topics(names)
        self._count(len(names))
        read_topics: dict[str, tuple[bytes | None, Assignments] | None] = {}
        for name, topic in read.items():
            if isinstance(topic, SessionLost):
                raise topic
            if isinstance(topic, CoordinationError):
                self._unreadable[name] = str(topic)
            else:
                self._unreadable.pop(name, None)
                read_topics[name] = None if topic is None else (topic.topic_id, topic.assignment)
                self._rotation.set_partitions(name, frozenset() if topic is None else topic.assignment.keys())
        self._tell_unreadable()
        self._knowledge.take_topic_znodes(read_topics)
        self._board.read(Stage.REASSIGNMENTS, StageSource.WATCH, requests=len(names))
        self._on_news(True)

    def _tell_unreadable(self) -> None:
        of_topics = f"{ConfigType.TOPIC.value}/"
        settings = [why for path, why in self._unreadable_settings.items() if path.startswith(of_topics)]
        self._knowledge.unreadable = (*self._unreadable.values(), *settings)

    async def _read_marks(self, kafka: KafkaZkClient) -> None:
        marked_at_ms = await kafka.admin.get_topic_deletion_times()
        self._count(1 + len(marked_at_ms))
        self._knowledge.take_marks(marked_at_ms)
        self._on_news(True)

    async def _read_listed(self, kafka: KafkaZkClient) -> None:
        listed = await kafka.admin.get_reassignments() or {}
        self._count(1)
        self._knowledge.listed_reassignments = tuple(sorted(map(str, listed)))
        self._on_news(True)

    async def _read_isr_notices(self, kafka: KafkaZkClient) -> None:
        """Brokers before 2.7's protocol leave notices for the controller about ISRs that they changed."""
        if self._knowledge.states_by_wire:
            self._on_news(True)
            return
        notices = await kafka.notifications.get_isr_change_notifications()
        self._count(1 + len(notices.names))
        self._rotation.suspect(notices.values)

    # Settings

    async def _read_settings(self, kafka: KafkaZkClient) -> None:
        self._seen_changes = set(await children_or_empty(kafka.client, ConfigEntityChangeNotificationZNode.path))
        brokers = await kafka.configs.get_entity_names(ConfigType.BROKER)
        await self._read_broker_settings(kafka, brokers)
        names = sorted(self._watched)
        for start in range(0, len(names), _SLICE):
            await self._read_topic_settings(kafka, names[start : start + _SLICE])
        self._count(2)
        self._settings_read(len(names) + len(brokers) + 2)
        self._on_news(False)

    async def _read_config_notices(self, kafka: KafkaZkClient) -> None:
        names = await children_or_empty(kafka.client, ConfigEntityChangeNotificationZNode.path)
        new = sorted(name for name in names if name not in self._seen_changes)
        self._seen_changes = set(names)
        notices = await kafka.client.get_many(map(ConfigEntityChangeNotificationSequenceZNode.path, new))
        self._count(1 + len(new))
        entities: dict[tuple[str, str], None] = {}
        for name, outcome in zip(new, notices, strict=True):
            if not isinstance(outcome, ZooKeeperError):
                with contextlib.suppress(ZnodeFormatError):
                    kind, _, entity = ConfigEntityChangeNotificationSequenceZNode.decode(name, outcome[0]).partition(
                        "/"
                    )
                    entities[kind, entity] = None
        topics = [entity for kind, entity in entities if kind == ConfigType.TOPIC.value and entity in self._watched]
        if topics:
            await self._read_topic_settings(kafka, topics)
        if any(kind == ConfigType.BROKER.value for kind, _ in entities):
            await self._read_broker_settings(kafka, await kafka.configs.get_entity_names(ConfigType.BROKER))
        self._settings_read(1 + len(new) + len(topics))
        self._on_news(False)

    async def _read_topic_settings(self, kafka: KafkaZkClient, names: Sequence[str]) -> None:
        texts = await kafka.configs.get_topic_configs(names)
        self._count(len(names))
        self._note_unreadable({f"{ConfigType.TOPIC.value}/{name}": text for name, text in texts.items()})
        self._tell_unreadable()
        self._knowledge.take_settings(
            {name: text for name, text in texts.items() if not isinstance(text, CoordinationError)}
        )

    def _note_unreadable(self, read: Mapping[str, object]) -> None:
        for path, settings in read.items():
            if isinstance(settings, ZnodeFormatError):
                self._unreadable_settings[path] = str(settings)
            else:
                self._unreadable_settings.pop(path, None)

    def _settings_read(self, requests: int) -> None:
        missing = tuple(self._unreadable_settings.values())
        self._board.read(Stage.SETTINGS, StageSource.WATCH, requests=requests, missing=missing)

    async def _read_broker_settings(self, kafka: KafkaZkClient, names: Sequence[str]) -> None:
        texts = await kafka.configs.get_entities_configs([f"{ConfigType.BROKER.value}/{name}" for name in names])
        self._count(len(names))
        self._note_unreadable(texts)
        configs: dict[int | None, Mapping[str, str]] = {}
        for name, text in zip(names, texts.values(), strict=True):
            if not isinstance(text, CoordinationError) and text and (name == DEFAULT_ENTITY or name.isdecimal()):
                configs[None if name == DEFAULT_ENTITY else int(name)] = text
        self._knowledge.take_settings({}, configs)

    # States in rotation, and ZooKeeper's own speed

    async def _rotate(self, kafka: KafkaZkClient, elapsed_s: float) -> None:
        names = self._rotation.take(elapsed_s)
        if not names:
            if self._knowledge.assignments_by_znode and self._rotation.is_empty:
                self._board.read(Stage.METADATA, StageSource.ROTATION)
            return
        now_ms = self._clock.now_ms()
        read = await kafka.partitions.get_partition_states(names)
        self._count(len(names))
        states = {}
        for name, state in read.items():
            if isinstance(state, SessionLost):
                raise state
            if not isinstance(state, CoordinationError):
                states[name] = state
        self._rotation.was_read(names, now_ms)
        self._knowledge.take_states(states, now_ms)
        oldest = self._rotation.age_of_oldest(now_ms, self._knowledge.read_at_ms)
        if oldest is not None:
            self._board.read(Stage.METADATA, StageSource.ROTATION, read_at_ms=now_ms - oldest, requests=len(names))
        self._suspect_leaderless(states)
        if self._rotation.suspect_count == 0:
            self._on_news(len(names) > _MANY)

    def _suspect_leaderless(self, states: Iterable[TopicPartition]) -> None:
        """Partitions that a dead broker leads will have another leader soon."""
        live = {broker.id for broker in self._knowledge.brokers}
        waiting = []
        for name in states:
            topic = self._knowledge.topics.get(name.topic)
            if topic is not None and name.partition < len(topic.partitions):
                partition = topic.partitions[name.partition]
                if partition.leader not in live and live.intersection(partition.isr):
                    waiting.append(name)
        self._rotation.suspect(waiting)

    async def _look(self, kafka: KafkaZkClient) -> None:
        async def read() -> None:
            async with asyncio.timeout(LOOK_LIMIT_S):
                await kafka.controller.controller_exists()
            self._count(1)

        was_lost = not self._board.is_connected(Side.ZOOKEEPER)
        try:
            self._knowledge.zookeeper_ms = await zookeeper_delay_ms(read)
        except TimeoutError:
            # It is frozen. The next look shows whether it recovers; otherwise the session ends by itself.
            self._lose(Failure(f"no answer within {LOOK_LIMIT_S:g} s"))
            return
        if was_lost:
            self._dirty.update(dict.fromkeys(self._everything()))

    async def _look_at_servers(self) -> None:
        """Look at each server now and then: a session shows only the one that it is with."""
        while True:
            if not self._is_paused:
                try:
                    down = await servers_down(self._connect, self._security)
                except Exception:
                    # The other looks continue.
                    log.exception("the servers of ZooKeeper could not be looked at")
                    down = ()
                if down != self._knowledge.zookeepers_down:
                    self._knowledge.zookeepers_down = down
                    self._on_news(True)
            await asyncio.sleep(SERVERS_EVERY_S)

    def _count(self, requests: int) -> None:
        self.requests += requests
        self._board.answered(Side.ZOOKEEPER)


def _registration(broker_id: int, outcome: ReadOutcome) -> tuple[BrokerInfo, BrokerRegistration] | None:
    """Return what a broker registered, with both clocks; None if it is gone or unreadable."""
    if isinstance(outcome, SessionLost):
        raise outcome
    if isinstance(outcome, ZooKeeperError):
        return None
    data, stat = outcome
    try:
        znode = BrokerIdZNode.decode(broker_id, data, stat.czxid, stat.mtime_ms)
    except ZnodeFormatError:
        return None
    jmx_port = None if znode.jmx_port < 0 else znode.jmx_port
    return znode.broker, BrokerRegistration(stat.ctime_ms, znode.clock_apart_ms, jmx_port)
