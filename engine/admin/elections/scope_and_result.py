"""Which partitions a leader election covers, which replicas would lead them, and the result for each.

Pure; ``running`` asks the cluster. The rules are those of Kafka's controller: the preferred leader is the first
replica, and is elected only if it is alive and in sync; an unclean election takes the first live replica of a
partition without a leader (KIP-460). A replica in a failed log dir is not alive, though its broker is.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from enum import StrEnum

from engine.admin.cluster.errors import BadRequest, NotFound
from engine.admin.cluster.json_files import parse_document
from engine.admin.cluster.remedies import Do, Operation, Parameter, Phrase
from engine.admin.topics.access import TopicReader
from engine.admin.topics.selection import topic_not_found
from engine.common.listing import repeated
from engine.common.model import NO_LEADER, TopicPartition
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot


class ElectionType(StrEnum):
    """Which replicas may be elected."""

    PREFERRED = "preferred"
    UNCLEAN = "unclean"

    @property
    def wire_code(self) -> int:
        """The number that ElectLeaders carries."""
        return 0 if self is ElectionType.PREFERRED else 1


class ElectionResult(StrEnum):
    """What became of one partition."""

    ELECTED = "elected"
    NOT_NEEDED = "not_needed"
    FAILED = "failed"
    UNDER_WAY = "under_way"
    WOULD_BE_ELECTED = "would_be_elected"
    WOULD_FAIL = "would_fail"


@dataclass(frozen=True, slots=True)
class PartitionElection:
    """The result for one partition; leader -1 is none. ``error`` says why it failed."""

    topic: str
    partition: int
    before: int
    after: int
    preferred: int
    result: ElectionResult
    error: str | None = None

    @property
    def name(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


@dataclass(frozen=True, slots=True)
class ElectionPreview:
    """What an election would do to one partition. ``obstacle`` says why no leader would be elected."""

    name: TopicPartition
    before: int
    after: int
    preferred: int
    obstacle: str | None = None

    @property
    def is_needed(self) -> bool:
        return self.obstacle is not None or self.before != self.after

    def as_result(self) -> PartitionElection:
        """Return what a dry run shows of it."""
        result = ElectionResult.WOULD_BE_ELECTED if self.is_needed else ElectionResult.NOT_NEEDED
        if self.obstacle is not None:
            result = ElectionResult.WOULD_FAIL
        return PartitionElection(*self.name, self.before, self.after, self.preferred, result, self.obstacle)

    def __str__(self) -> str:
        if self.obstacle is not None:
            return f"{self.name}: stays with {_leader(self.before)}: {self.obstacle}"
        return f"{self.name}: leader {_leader(self.before)} → {_leader(self.after)}"


@dataclass(frozen=True, slots=True)
class ElectionScope:
    """Which partitions are meant: pairs of topic and partition, where None is all of the topic's; no pair is all."""

    wanted: tuple[tuple[str, int | None], ...] = ()

    @property
    def is_all(self) -> bool:
        return not self.wanted


def scope_of(topics: Sequence[str], partitions: Sequence[int]) -> ElectionScope:
    """Return the scope that options name: each partition belongs to the topic at its place, or to the only topic.

    Raises:
        BadRequest: partitions without topics, or not as many as topics.
    """
    if partitions and not topics:
        raise BadRequest(Phrase(Parameter.PARTITION, " is only allowed with ", Parameter.TOPIC))
    if not partitions:
        return ElectionScope(tuple((topic, None) for topic in dict.fromkeys(topics)))
    if len(topics) == 1:
        topics = list(topics) * len(partitions)
    if len(topics) != len(partitions):
        hint = Phrase(
            "give one ", Parameter.PARTITION, " after each ", Parameter.TOPIC, ", or a list with ", Parameter.JSON_FILE
        )
        raise BadRequest(f"{len(topics)} topics, but {len(partitions)} partitions", hint=hint)
    return ElectionScope(tuple(dict.fromkeys(zip(topics, partitions, strict=True))))


def parse_election_file(text: str, where: str) -> ElectionScope:
    """Return the scope of Kafka's ``{"partitions": [{"topic", "partition"}, …]}``.

    Raises:
        BadRequest: it is not of that form, lists nothing, or lists a partition twice.
    """
    example = 'write {"partitions":[{"topic":"orders","partition":0}]}'
    entries = parse_document(text, where, example).get("partitions")
    if not isinstance(entries, list):
        raise BadRequest('replica election data is missing "partitions" field', where=where, hint=example)
    wanted = [_entry(entry, where, example) for entry in entries]
    twice = repeated(wanted)
    if twice:
        message = f"replica election data contains duplicate partitions: {', '.join(map(str, twice))}"
        raise BadRequest(message, where=where)
    if not wanted:
        raise BadRequest("replica election data lists no partition", where=where, hint=example)
    return ElectionScope(tuple((name.topic, name.partition) for name in wanted))


async def read_scope(reader: TopicReader, scope: ElectionScope) -> dict[TopicPartition, PartitionSnapshot]:
    """Return the partitions that a scope means, by name.

    Raises:
        NotFound: a named topic or partition does not exist.
    """
    if scope.is_all:
        names: Iterable[str] = (entry.topic for entry in await reader.names())
    else:
        names = {topic for topic, _ in scope.wanted}
    topics = {topic.name: topic for topic in await reader.topics(sorted(names))}
    missing = sorted({topic for topic, _ in scope.wanted} - set(topics))
    if missing:
        raise topic_not_found(missing)
    pairs = scope.wanted or tuple((name, None) for name in topics)
    chosen = [named for topic, partition in pairs for named in _chosen(topics[topic], partition)]
    return dict(sorted(chosen))


def preview(
    election: ElectionType, partitions: Mapping[TopicPartition, PartitionSnapshot], live_brokers: Set[int]
) -> list[ElectionPreview]:
    """Return what an election would do to each partition."""
    preview = _preferred if election is ElectionType.PREFERRED else _unclean
    return [preview(name, partition, live_brokers) for name, partition in partitions.items()]


_OFFLINE = "is offline although its broker is alive (a failed log dir?)"


def _preferred(name: TopicPartition, partition: PartitionSnapshot, live: Set[int]) -> ElectionPreview:
    preferred, leader = partition.preferred_leader, partition.leader
    if preferred == leader and leader in live:
        return ElectionPreview(name, leader, leader, preferred)
    if preferred not in live:
        return ElectionPreview(name, leader, leader, preferred, f"preferred replica {preferred} is dead")
    if preferred in partition.offline_replicas:
        return ElectionPreview(name, leader, leader, preferred, f"preferred replica {preferred} {_OFFLINE}")
    if preferred not in partition.isr:
        return ElectionPreview(name, leader, leader, preferred, f"preferred replica {preferred} is not in sync")
    return ElectionPreview(name, leader, preferred, preferred)


def _unclean(name: TopicPartition, partition: PartitionSnapshot, live: Set[int]) -> ElectionPreview:
    preferred, leader = partition.preferred_leader, partition.leader
    if leader in live:
        return ElectionPreview(name, leader, leader, preferred)
    alive = [replica for replica in partition.replicas if replica in live]
    able = [replica for replica in alive if replica not in partition.offline_replicas]
    in_sync = [replica for replica in able if replica in partition.isr]
    if not able:
        obstacle = f"no replica is alive: {', '.join(map(str, partition.replicas))}"
        if alive:
            causes = [f"{r} {_OFFLINE if r in alive else 'is dead'}" for r in partition.replicas]
            obstacle = f"no replica can lead: {', '.join(causes)}"
        return ElectionPreview(name, leader, leader, preferred, obstacle)
    return ElectionPreview(name, leader, (in_sync or able)[0], preferred)


def _chosen(topic: TopicSnapshot, partition: int | None) -> list[tuple[TopicPartition, PartitionSnapshot]]:
    chosen = [p for p in topic.partitions if partition in (None, p.partition)]
    if not chosen and partition is not None:
        hint = Phrase("see its partitions with: ", Do(Operation.DESCRIBE_TOPIC, topic.name))
        raise NotFound(f"partition {topic.name}-{partition} does not exist", hint=hint)
    return [(TopicPartition(topic.name, p.partition), p) for p in chosen]


def _entry(entry: object, where: str, example: str) -> TopicPartition:
    topic = entry.get("topic") if isinstance(entry, dict) else None
    partition = entry.get("partition") if isinstance(entry, dict) else None
    if not isinstance(topic, str) or not isinstance(partition, int) or isinstance(partition, bool):
        raise BadRequest(f"not a topic with a partition: {json.dumps(entry)}", where=where, hint=example)
    return TopicPartition(topic, partition)


def _leader(broker_id: int) -> str:
    return "none" if broker_id == NO_LEADER else str(broker_id)
