"""The lives of topics on three brokers: random histories of whole topics, and a memory of every record.

Brokers die at a random change of their files, or a moment after a request. Lines fall silent. Names are deleted and
used again. ``topic_life`` remembers what all in-sync replicas have acknowledged. Now and then everything is repaired,
and every replica of every partition must hold exactly what its life says.
"""

from __future__ import annotations

import random
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from cut_proxy import Cut
from fault_cluster import FaultCluster
from faults import NOT_NOW
from quiet_replicas import Folder, check_replicas, folders, wait_until_quiet
from reassigning import reassign
from topic_life import Life, Pair
from wire_client import WireClient, ask_controller, describe_topic, produce

from engine.common.errors import ErrorCode
from engine.common.model import TopicPartition
from engine.kafka.protocol.apis.alter_replica_log_dirs import (
    AlterReplicaLogDir,
    AlterReplicaLogDirsRequest,
    AlterReplicaLogDirTopic,
)
from engine.kafka.protocol.apis.create_partitions import CreatePartitionsRequest, CreatePartitionsTopic
from engine.kafka.protocol.apis.create_topics import CreatableTopic, CreatableTopicConfig, CreateTopicsRequest
from engine.kafka.protocol.apis.delete_records import DeleteRecordsPartition, DeleteRecordsRequest, DeleteRecordsTopic
from engine.kafka.protocol.apis.delete_topics import DeleteTopicsRequest
from engine.kafka.protocol.records.attributes import Codec
from engine.kafka.protocol.records.encode import encode_batch
from engine.kafka.protocol.records.record import Record

SETTINGS = {
    "log.cleaner.backoff.ms": "300",
    "log.retention.check.interval.ms": "400",
    "log.flush.offset.checkpoint.interval.ms": "700",
    "log.flush.start.offset.checkpoint.interval.ms": "2500",
    "replica.high.watermark.checkpoint.interval.ms": "300",
    # A dead leader is not in the ISR. Its records are safe all the same.
    "unclean.leader.election.enable": "false",
}
_SMALL = {"segment.bytes": "700", "segment.index.bytes": "120", "index.interval.bytes": "100", "retention.ms": "-1"}
RETAINED_BYTES = {"loose": 3000}
"""The limit beyond which a topic loses its oldest records."""
TOPICS: dict[str, tuple[int, dict[str, str]]] = {
    "loose": (3, {**_SMALL, "retention.bytes": str(RETAINED_BYTES["loose"]), "min.insync.replicas": "1"}),
    "synced": (2, {**_SMALL, "flush.messages": "1", "min.insync.replicas": "1"}),
    "keyed": (3, {**_SMALL, "cleanup.policy": "compact", "min.cleanable.dirty.ratio": "0.01"}),
}
KEYS = [b"k%d" % n for n in range(5)]
PARTITIONS_MAX = 3
ANSWER_S = 4.0
_NOTING_S = 3.0
"""A checkpoint has been written after this time: see ``SETTINGS``."""


class Broken(Exception):
    """A promise was broken. Operations that may fail because of a dead broker let this error pass."""


@dataclass
class Topic:
    """One topic from its creation to its deletion."""

    topic_id: bytes
    lives: dict[int, Life] = field(default_factory=dict)
    is_deleted: bool = False
    """Whether a client was told so. Otherwise the topic may live on."""


class ClusterLives:
    """One history. ``step`` does one thing; ``settle`` repairs everything and checks everything."""

    def __init__(self, cluster: FaultCluster, orders: Path, seed: int) -> None:
        self.cluster = cluster
        self.orders = orders
        self.rng = random.Random(seed)
        self.topics: dict[str, Topic] = {}
        self.dying: dict[str, list[Topic]] = {name: [] for name in TOPICS}
        """By name: topics whose deletion was requested, and which may still exist."""
        self.known_ids: set[bytes] = set()
        self.sent = 0
        self.acknowledged = 0
        self.kills = 0
        self.births = 0
        self.taken_back = 0
        """Number of replicas that came back to a broker that had kept their files."""
        self.told: list[str] = []
        """What was done, to find the cause of a failure."""
        self._producers: dict[int, tuple[int, int]] = {}
        """Producer id and next sequence, by the number of the life."""
        self._cuts: list[tuple[int, int]] = []
        self._losing: set[Folder] = set()
        """Which broker loses which replica to a reassignment, as far as is known.

        A broker that dies before it hears of this keeps its files, as in Kafka: no controller tells it later.
        """
        self._last_leader = 0
        """The broker that was last asked about a partition."""

    # --- steps

    def step(self) -> None:
        """Do one thing, perhaps with a broker that dies during it or just after it."""
        action, weight = zip(*self._actions(), strict=True)
        chosen = self.rng.choices(action, weight)[0]
        self._say(chosen.__name__)
        victim = self.rng.choice(self.cluster.local.broker_ids) if self.rng.random() < self._danger() else None
        is_in_the_middle = self.rng.random() < 0.6
        if victim is not None and is_in_the_middle:
            self._order(victim, self.rng.choice([0, 1, 2, 3, 5, 8, 13, 21, 34]))
        with suppress(*NOT_NOW):
            chosen()
        if victim is not None and not is_in_the_middle:
            self._kill_now(self._last_leader if self.rng.random() < 0.5 else victim)
        if chosen in (self.delete, self.delete_and_create, self.reassign) and self.rng.random() < 0.7:
            self._kill_who_loses_replicas()
        self._bring_back()

    def _kill_who_loses_replicas(self) -> None:
        """Write for up to a second, while brokers are told to delete replicas; then kill one broker, or all."""
        if self._dead() or not self.topics:
            return
        name = list(self.topics)[-1]
        until = time.monotonic() + self.rng.uniform(0.0, 1.0)
        while time.monotonic() < until:
            with suppress(*NOT_NOW):
                self.write(name)
        able = self.cluster.running
        for broker_id in able if self.rng.random() < 0.5 else self.rng.sample(able, min(1, len(able))):
            self._kill(broker_id)

    def _kill_now(self, broker_id: int) -> None:
        time.sleep(self.rng.choice([0.0, 0.0, 0.01, 0.2]))
        self._kill(broker_id)

    def _kill(self, broker_id: int) -> None:
        self.cluster.broker(broker_id).kill()
        self._say(f"kill -9 {broker_id}")

    def _danger(self) -> float:
        """Return the probability that another broker dies: usually one is dead, sometimes two, rarely all."""
        return (0.3, 0.1, 0.05, 0.0)[len(self._dead())]

    def _actions(self) -> list[tuple[Callable[[], None], int]]:
        return [
            (self.write, 14),
            (self.delete_records, 6),
            (self.create, 3),
            (self.delete, 1),
            (self.delete_and_create, 8),
            (self.grow, 1),
            (self.move, 3),
            (self.reassign, 4),
            (self.stop_in_order, 1),
            (self.silence, 1),
            (self.isolate_write_and_kill, 2),
            (self.let_pass, 1),
        ]

    def _say(self, text: str) -> None:
        self.told.append(f"{time.strftime('%H:%M:%S')}.{time.time_ns() // 1_000_000 % 1000:03d} {text}")

    def _order_file(self, broker_id: int) -> Path:
        return self.orders / f"order-{broker_id}"

    def _order(self, broker_id: int, changes: int) -> None:
        self._say(f"broker {broker_id} dies in {changes} changes")
        self._order_file(broker_id).write_text(str(changes))

    def _bring_back(self) -> None:
        """Let one of the dead brokers live again, the sooner the more there are; its line is repaired."""
        dead = self._dead()
        if dead and self.rng.random() < 0.35 * len(dead):
            self._start(self.rng.choice(dead))
        if self._cuts and self.rng.random() < 0.5:
            self.cluster.proxies.mend(*self._cuts.pop())

    def _mend(self) -> None:
        self.cluster.proxies.mend_all()
        self._cuts.clear()

    def _dead(self) -> list[int]:
        return [b.id for b in self.cluster.local.brokers.values() if not b.is_alive]

    def _start(self, *broker_ids: int) -> None:
        self.kills += len(broker_ids)
        for broker_id in broker_ids:
            self._order_file(broker_id).unlink(missing_ok=True)
        # A broker has restarted when all others know it.
        self._mend()
        self._say(f"start {broker_ids}")
        self.cluster.local.start_brokers(broker_ids)

    # --- what happens to topics

    def create(self) -> None:
        """Create a topic that nobody believes to exist."""
        free = [name for name in TOPICS if name not in self.topics]
        if free:
            self._create(self.rng.choice(free))

    def _create(self, name: str) -> None:
        factor, configs = TOPICS[name]
        wanted = CreatableTopic(
            name=name,
            num_partitions=self.rng.randint(1, 2),
            replication_factor=factor,
            assignments=[],
            configs=[CreatableTopicConfig(name=key, value=value) for key, value in configs.items()],
        )
        request = CreateTopicsRequest(topics=[wanted], timeout_ms=int(ANSWER_S * 1000))
        answer = self._of_controller(request, 7, lambda answer: [answer.topics[0].error_code]).topics[0]
        self._say(f"create {name}: {ErrorCode(answer.error_code).name}")
        if answer.error_code == ErrorCode.NONE:
            self.topics[name] = self._born(name, answer.topic_id, range(wanted.num_partitions))

    def _born(self, name: str, topic_id: bytes, partitions: Any) -> Topic:
        if topic_id in self.known_ids:
            raise Broken(f"{name} has the id of an earlier topic")
        self.known_ids.add(topic_id)
        topic = Topic(topic_id)
        for partition in partitions:
            self._add_life(name, topic, partition)
        return topic

    def _add_life(self, name: str, topic: Topic, partition: int) -> None:
        self.births += 1
        topic.lives[partition] = Life(self.births, name == "keyed", topic.topic_id)

    def delete(self) -> None:
        """Delete a topic."""
        if names := self._deletable():
            self._delete(self.rng.choice(names))

    def _deletable(self) -> list[str]:
        """Return the topics of which no broker may keep files that it was never told to delete.

        A topic created under the name of such files has no replica there, as in Kafka (INCONSISTENT_TOPIC_ID).
        """
        self._losing.intersection_update(folders(self.cluster))
        kept = {folder.rpartition("-")[0] for _, folder in self._losing}
        return sorted(set(self.topics) - kept)

    def delete_and_create(self) -> None:
        """Delete a topic, recreate it as soon as possible, and write to it at once."""
        if not (names := self._deletable()):
            self.create()
            return
        trimmed = [name for name in names if any(life.start for life in self.topics[name].lives.values())]
        # Notes about one life could be mistaken for notes about the next.
        name = self.rng.choice(trimmed if trimmed and self.rng.random() < 0.8 else names)
        if self.rng.random() < 0.6:
            with suppress(*NOT_NOW):
                self._trim(name)
            time.sleep(self.rng.uniform(0.0, _NOTING_S))
        self._delete(name)
        deadline = time.monotonic() + 1.0
        while name not in self.topics and time.monotonic() < deadline:
            self._create(name)
        if name in self.topics:
            self.write(name)

    def _delete(self, name: str) -> None:
        topic = self.topics.pop(name)
        self.dying[name].append(topic)
        request = DeleteTopicsRequest(topic_names=[name], timeout_ms=int(ANSWER_S * 1000))
        answer = self._of_controller(request, 5, lambda answer: [answer.responses[0].error_code])
        error = ErrorCode(answer.responses[0].error_code)
        self._say(f"delete {name}: {error.name}")
        topic.is_deleted = error is ErrorCode.NONE

    def write(self, name: str | None = None) -> None:
        """Write some batches, to one topic or to any."""
        if not self.topics:
            self.create()
        for _ in range(self.rng.randint(1, 8)):
            self.produce(name)

    def produce(self, name: str | None = None) -> None:
        """Write a batch to a partition. If it is refused or not answered, the same batch may be sent again."""
        if (some := self._some(name)) is None:
            return
        name, partition, life = some
        pairs = [
            (self.rng.choice(KEYS), b"%d/%d/%d" % (life.number, self.sent, n) + bytes(self.rng.randrange(60)))
            for n in range(self.rng.randint(1, 3))
        ]
        self.sent += 1
        life.maybe.update(pairs)
        producer_id, sequence = self._producers.pop(life.number, (1_000_000 + self.sent, 0))
        batch = _batch(pairs, producer_id, sequence, self.rng.choice([Codec.NONE, Codec.NONE, Codec.GZIP]))
        for _ in range(self.rng.choice([1, 1, 3])):
            offset = self._send(name, partition, life, batch)
            if offset is not None:
                self._acknowledged(f"{name}-{partition}", life, offset, pairs)
                self._producers[life.number] = producer_id, sequence + len(pairs)
                return

    def _send(self, name: str, partition: int, life: Life, batch: bytes) -> int | None:
        """Return the offset of a batch; None if it is unknown."""
        with suppress(*NOT_NOW), self._leader(TopicPartition(name, partition), life.topic_id) as client:
            response = produce(client, name, batch, partition=partition, acks=-1, timeout_ms=int(ANSWER_S * 700))
            self._say(f"{name}-{partition} {ErrorCode(response.error_code).name} at {response.base_offset}")
            return (
                int(response.base_offset)
                if response.error_code == ErrorCode.NONE and response.base_offset >= 0
                else None
            )
        return None

    def _acknowledged(self, name: str, life: Life, offset: int, pairs: list[Pair]) -> None:
        if offset < life.end:
            raise Broken(f"{name} acknowledges at {offset}, {life.end} were acknowledged before")
        self.acknowledged += len(pairs)
        life.note(offset, pairs)
        life.maybe.difference_update(pairs)

    def delete_records(self) -> None:
        """Delete the first records of a topic's partitions."""
        if (some := self._some()) is not None:
            self._trim(some[0])

    def _trim(self, name: str) -> None:
        for partition, life in self.topics[name].lives.items():
            if life.end > life.start and not life.is_keyed:
                offset = self.rng.randint(life.start + 1, min(life.start + 5, life.end))
                self._delete_records(TopicPartition(name, partition), life, offset)

    def _delete_records(self, topic_partition: TopicPartition, life: Life, offset: int) -> None:
        with self._leader(topic_partition, life.topic_id) as client:
            life.start = offset
            wanted = [DeleteRecordsPartition(partition_index=topic_partition.partition, offset=offset)]
            topics = [DeleteRecordsTopic(name=topic_partition.topic, partitions=wanted)]
            request = DeleteRecordsRequest(topics=topics, timeout_ms=int(ANSWER_S * 700))
            result = client.ask(request, 2).topics[0].partitions[0]
        self._say(f"{topic_partition} begins at {offset}: {ErrorCode(result.error_code).name}, {result.low_watermark}")
        if result.error_code == ErrorCode.NONE and result.low_watermark < offset:
            raise Broken(f"{topic_partition}: {result}")

    def grow(self) -> None:
        """Give a topic one more partition."""
        if (some := self._some()) is None:
            return
        name, topic = some[0], self.topics[some[0]]
        count = len(topic.lives) + 1
        if count > PARTITIONS_MAX:
            return
        request = CreatePartitionsRequest(
            topics=[CreatePartitionsTopic(name=name, count=count, assignments=None)],
            timeout_ms=int(ANSWER_S * 1000),
            validate_only=False,
        )
        answer = self._of_controller(request, 2, lambda answer: [answer.results[0].error_code]).results[0]
        self._say(f"grow {name}: {ErrorCode(answer.error_code).name}")
        if answer.error_code == ErrorCode.NONE:
            self._add_life(name, topic, count - 1)

    def move(self) -> None:
        """Send a replica to one of its broker's log dirs."""
        if (some := self._some()) is None or not self.cluster.running:
            return
        broker = self.cluster.broker(self.rng.choice(self.cluster.running))
        path = self.rng.choice(broker.spec.log_dirs)
        topics = [AlterReplicaLogDirTopic(name=some[0], partitions=[some[1]])]
        with WireClient(broker.address, timeout_s=ANSWER_S) as client:
            client.ask(AlterReplicaLogDirsRequest(dirs=[AlterReplicaLogDir(path=str(path), topics=topics)]), 2)

    def reassign(self) -> None:
        """Reassign a partition to two or three brokers, in any order."""
        if (some := self._some()) is None:
            return
        partition = TopicPartition(some[0], some[1])
        present = self.cluster.assignments([partition.topic])[partition].replicas
        replicas = self.rng.sample(self.cluster.local.broker_ids, self.rng.randint(2, 3))
        self._losing |= {(b, str(partition)) for b in present if b not in replicas}
        self._say(f"{partition} to {replicas}: {reassign(self.cluster, {partition: replicas})}")

    def stop_in_order(self) -> None:
        """Stop a broker with TERM."""
        if len(self.cluster.running) > 1:
            self.cluster.broker(self.rng.choice(self.cluster.running)).stop(20.0)

    def silence(self) -> None:
        """Block the line between two brokers for a while; then everything arrives."""
        broker, other = self.rng.sample(self.cluster.local.broker_ids, 2)
        self.cluster.proxies.cut(broker, other, Cut.SILENT)
        self._cuts.append((broker, other))

    def isolate_write_and_kill(self) -> None:
        """Isolate a leader, write to it, and kill it while its lines are silent."""
        if (some := self._some()) is None or self._dead():
            return
        name, partition, life = some
        with self._leader(TopicPartition(name, partition), life.topic_id):
            leader = self._last_leader
        for other in self.cluster.local.broker_ids:
            if other != leader:
                self.cluster.proxies.cut(leader, other, Cut.SILENT)
                self._cuts.append((leader, other))
        for _ in range(2):
            self.produce(name)
        self._kill_now(leader)

    def let_pass(self) -> None:
        """Give background work some time."""
        time.sleep(self.rng.uniform(0.1, 0.8))

    # --- asking

    def _some(self, name: str | None = None) -> tuple[str, int, Life] | None:
        if not self.topics or (name is not None and name not in self.topics):
            return None
        name = name or self.rng.choice(sorted(self.topics))
        partition = self.rng.choice(sorted(self.topics[name].lives))
        return name, partition, self.topics[name].lives[partition]

    def _leader(self, topic_partition: TopicPartition, topic_id: bytes) -> WireClient:
        """Return a connection to the leader of a partition of exactly this topic."""
        deadline = time.monotonic() + 1.5
        while True:
            for broker_id in self.rng.sample(self.cluster.running, len(self.cluster.running)):
                with suppress(*NOT_NOW), WireClient(self.cluster.broker(broker_id).address, timeout_s=1.0) as client:
                    description = describe_topic(client, topic_partition.topic)
                    leaders = [
                        p.leader_id for p in description.partitions if p.partition_index == topic_partition.partition
                    ]
                    if description.topic_id == topic_id and leaders and leaders[0] in self.cluster.running:
                        self._last_leader = leaders[0]
                        return WireClient(self.cluster.broker(leaders[0]).address, timeout_s=ANSWER_S)
            assert time.monotonic() < deadline, f"nobody leads {topic_partition}"
            time.sleep(0.02)

    def _of_controller(self, request: Any, version: int, errors: Callable[[Any], list[int]]) -> Any:
        address = self.cluster.broker(self.rng.choice(self.cluster.running)).address
        return ask_controller(address, request, version, errors, timeout_s=5.0)

    # --- checks

    def settle(self) -> int:
        """Repair everything, wait until it is quiet, and check everything; return the number of records."""
        self._say("settle")
        self._mend()
        for broker_id in self.cluster.local.broker_ids:
            self._order_file(broker_id).unlink(missing_ok=True)
        # A broker that read its order a moment ago may still die of it.
        time.sleep(0.1)
        while dead := self._dead():
            self._start(*dead)
        self.cluster.wait_for("no deletion is under way", lambda: not self.cluster.leftovers())
        self._look_who_lives()
        wait_until_quiet(self.cluster, list(self.topics), self._losing)
        self._take_back()
        return sum(
            check_replicas(self.cluster, TopicPartition(name, partition), life, self._leader, RETAINED_BYTES.get(name))
            for name, topic in self.topics.items()
            for partition, life in topic.lives.items()
        )

    def _take_back(self) -> None:
        """Give replicas back to brokers that have kept their files. Old records in them must not come back."""
        wanted: dict[TopicPartition, list[int]] = {}
        assignments = self.cluster.assignments(list(self.topics)) if self.topics else {}
        kept = self._losing.intersection(folders(self.cluster))
        for topic_partition, assignment in assignments.items():
            back = [b for b, name in kept if name == str(topic_partition) and b not in assignment.replicas]
            if back:
                wanted[topic_partition] = [*assignment.replicas, *back]
        if wanted:
            self.taken_back += len(wanted)
            self._say(f"back {wanted}: {reassign(self.cluster, wanted)}")
            wait_until_quiet(self.cluster, list(self.topics), ())
        self._losing.clear()

    def _look_who_lives(self) -> None:
        """Find out how unanswered operations ended."""
        assignments = self.cluster.zk(lambda zk: zk.topics.get_topic_assignments(list(TOPICS)))
        for name in TOPICS:
            assignment = assignments.get(name)
            topic_id = None if assignment is None else assignment.topic_id
            if name in self.topics:
                assert topic_id == self.topics[name].topic_id, f"{name} is lost: {topic_id!r} is there"
            elif topic_id is not None:
                again = [topic for topic in self.dying[name] if topic.topic_id == topic_id]
                assert not any(topic.is_deleted for topic in again), f"{name} was deleted and is there"
                self.topics[name] = again[0] if again else self._born(name, topic_id, ())
            self.dying[name].clear()
            if assignment is not None:
                topic = self.topics[name]
                for partition in sorted(set(assignment.assignment) - set(topic.lives)):
                    self._add_life(name, topic, partition)
                assert set(topic.lives) == set(assignment.assignment), f"{name} has lost partitions: {assignment}"


def _batch(pairs: list[Pair], producer_id: int, sequence: int, codec: Codec) -> bytes:
    now_ms = time.time_ns() // 1_000_000
    records = [Record(n, now_ms, key, value) for n, (key, value) in enumerate(pairs)]
    return encode_batch(records, producer_id=producer_id, producer_epoch=0, base_sequence=sequence, codec=codec)
