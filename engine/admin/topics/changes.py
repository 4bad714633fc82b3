"""Changes of topics, as checked values, and their outcomes.

``access`` chooses who carries them out. Error texts are those of kafka-topics.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum

from engine.admin.cluster.errors import BadRequest, no_live_broker
from engine.admin.cluster.remedies import Give, Parameter, Phrase
from engine.admin.configs.values import plain_value
from engine.common.listing import repeated
from engine.common.quantities import counted, plural
from engine.common.topic_names import (
    GROUP_METADATA_TOPIC,
    TRANSACTION_STATE_TOPIC,
    has_collision_chars,
    invalid_topic_name,
)

REPLICATION_FACTOR_MAX = 32767

METRIC_NAME_WARNING = (
    "topics with a period ('.') or underscore ('_') could collide in metric names; it is best to use either, not both"
)

MORE_PARTITIONS_WARNING = "with more partitions, records with a key may go to another partition than before"
_LOST_WITH = {
    GROUP_METADATA_TOPIC: f"{GROUP_METADATA_TOPIC} holds the offsets of all consumer groups",
    TRANSACTION_STATE_TOPIC: f"{TRANSACTION_STATE_TOPIC} holds the state of all transactions",
}

ReplicaLists = tuple[tuple[int, ...], ...]
"""The replicas of each partition, the preferred one first."""


class TopicOutcome(StrEnum):
    CREATED = "created"
    ALTERED = "altered"
    DELETED = "deleted"
    MARKED_FOR_DELETION = "marked_for_deletion"
    EXISTS = "exists"
    WOULD_BE_CREATED = "would_be_created"
    WOULD_BE_ALTERED = "would_be_altered"
    WOULD_BE_DELETED = "would_be_deleted"


@dataclass(frozen=True, slots=True)
class TopicChange:
    """The result for one topic; numbers are None if the cluster did not return them.

    ``held_up_by`` are the dead brokers whose replicas a deletion still waits for.
    """

    topic: str
    result: TopicOutcome
    topic_id: str | None = None
    partition_count: int | None = None
    replication_factor: int | None = None
    held_up_by: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True)
class NewTopic:
    """A topic to create. Without an assignment, None leaves count and factor to the cluster's defaults."""

    name: str
    partition_count: int | None = None
    replication_factor: int | None = None
    assignment: ReplicaLists = ()
    configs: Mapping[str, str] = field(default_factory=dict)

    @property
    def warnings(self) -> tuple[str, ...]:
        return (METRIC_NAME_WARNING,) if has_collision_chars(self.name) else ()


@dataclass(frozen=True, slots=True)
class TopicAlteration:
    """More partitions for a topic, other settings, or both.

    ``assignment`` is, as in kafka-topics, that of all partitions; those that exist already are ignored.
    """

    name: str
    partition_count: int | None = None
    assignment: ReplicaLists | None = None
    additions: Mapping[str, str] = field(default_factory=dict)
    deletions: tuple[str, ...] = ()

    @property
    def changes_configs(self) -> bool:
        return bool(self.additions or self.deletions)

    @property
    def is_irreversible(self) -> bool:
        """Whether it cannot be undone: nothing takes partitions away again."""
        return self.partition_count is not None

    @property
    def warnings(self) -> tuple[str, ...]:
        return (MORE_PARTITIONS_WARNING,) if self.is_irreversible else ()

    def check(self) -> None:
        """Raise BadRequest if nothing is requested, or the request contradicts itself."""
        check_counts(self.partition_count, None)
        if self.partition_count is None and not self.changes_configs:
            hint = Phrase("give ", Parameter.PARTITIONS, ", ", Parameter.CONFIG, " or ", Parameter.DELETE_CONFIG)
            raise BadRequest("nothing to alter", hint=hint)
        if self.assignment is not None and self.partition_count != len(self.assignment):
            count = len(self.assignment)
            message = Phrase(Parameter.REPLICA_ASSIGNMENT, f" assigns {counted(count, 'partition')}")
            raise BadRequest(message, hint=Phrase("give ", Give(Parameter.PARTITIONS, str(count)), " with it"))
        both = sorted(set(self.additions) & set(self.deletions))
        if both:
            raise BadRequest(f"both set and deleted: {', '.join(both)}")

    def assignment_after(self, present_count: int) -> ReplicaLists | None:
        """Return the replicas of the new partitions, or None for an automatic assignment."""
        return None if self.assignment is None else self.assignment[present_count:]


def check_new_topic(topic: NewTopic) -> None:
    """Check what can be checked without asking the cluster.

    Raises:
        BadRequest: name, count or factor is invalid for a topic, or contradicts the assignment.
    """
    reason = invalid_topic_name(topic.name)
    if reason is not None:
        hint = "use up to 249 letters, digits, dots, underscores and hyphens"
        raise BadRequest(f"topic name is invalid: {reason}", hint=hint)
    if topic.assignment and (topic.partition_count is not None or topic.replication_factor is not None):
        partitions, factor = Parameter.PARTITIONS, Parameter.REPLICATION_FACTOR
        message = Phrase(Parameter.REPLICA_ASSIGNMENT, " cannot be used with ", partitions, " or ", factor)
        leave_out = Phrase("the assignment determines both counts: leave ", partitions, " and ", factor, " out")
        raise BadRequest(message, hint=leave_out)
    check_counts(topic.partition_count, topic.replication_factor)


def check_counts(partition_count: int | None, replication_factor: int | None) -> None:
    """Raise BadRequest if a count is out of its range."""
    if partition_count is not None and partition_count < 1:
        raise BadRequest(
            "the partitions must be greater than 0", where=Give(Parameter.PARTITIONS, str(partition_count))
        )
    if replication_factor is not None and not 1 <= replication_factor <= REPLICATION_FACTOR_MAX:
        message = f"the replication factor must be between 1 and {REPLICATION_FACTOR_MAX} inclusive"
        raise BadRequest(message, where=Give(Parameter.REPLICATION_FACTOR, str(replication_factor)))


def check_brokers(assignment: ReplicaLists, live: Collection[int]) -> None:
    """Raise NotFound if an assignment by hand names a broker that is not alive.

    Kafka's controller accepts such a topic and leaves the replica offline until a broker with that id starts.
    """
    unknown = sorted({broker for replicas in assignment for broker in replicas} - set(live))
    if unknown:
        raise no_live_broker(unknown[0], live, Parameter.REPLICA_ASSIGNMENT)


def parse_replica_assignment(text: str) -> ReplicaLists:
    """Return the replicas of ``0:1,1:2``: one part per partition, brokers separated by colons.

    Raises:
        BadRequest: a part is not a list of broker ids, names a broker twice, or is longer than the first.
    """
    assignment: list[tuple[int, ...]] = []
    for index, part in enumerate(text.split(",")):
        try:
            replicas = tuple(int(broker) for broker in part.split(":"))
        except ValueError:
            hint = "write BROKER:BROKER,BROKER:BROKER with one part per partition"
            raise BadRequest(
                f"not a list of broker ids: {part!r}", where=Parameter.REPLICA_ASSIGNMENT, hint=hint
            ) from None
        if duplicates := repeated(replicas):
            listed = ", ".join(map(str, duplicates))
            message = f"partition replica lists may not contain duplicate entries: {listed}"
            raise BadRequest(message, where=Parameter.REPLICA_ASSIGNMENT)
        if assignment and len(replicas) != len(assignment[0]):
            message = f"partition {index} has different replication factor: {list(replicas)}"
            raise BadRequest(message, where=Parameter.REPLICA_ASSIGNMENT)
        assignment.append(replicas)
    return tuple(assignment)


def parse_topic_configs(texts: Sequence[str]) -> dict[str, str]:
    """Return keys and values of ``key=value`` texts.

    Raises:
        BadRequest: a text is not of that form.
    """
    configs = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not equals or not key.strip():
            raise BadRequest(f"not KEY=VALUE: {text!r}", where=Parameter.CONFIG)
        configs[key.strip()] = plain_value(key.strip(), value.strip())
    return configs


def marked_or_gone(change: TopicChange, left: Mapping[str, tuple[int, ...]]) -> TopicChange:
    """Return the result of a deletion; ``left`` has the topics that are still marked, with what holds them up."""
    if change.topic not in left:
        return replace(change, result=TopicOutcome.DELETED)
    return replace(change, result=TopicOutcome.MARKED_FOR_DELETION, held_up_by=left[change.topic])


def deletion_obstacles(changes: Iterable[TopicChange]) -> list[str]:
    """Return what the deletions under way wait for, as far as klamm knows."""
    waiting = [change for change in changes if change.result is TopicOutcome.MARKED_FOR_DELETION]
    brokers = sorted({broker for change in waiting for broker in change.held_up_by})
    if not brokers:
        return ["waits for the brokers that hold its replicas"] if waiting else []
    listed = f"{plural('broker', len(brokers))} {', '.join(map(str, brokers))}"
    return [f"waits for {listed}, which {'is' if len(brokers) == 1 else 'are'} dead; until then the name stays blocked"]


def deletion_warnings(names: Iterable[str]) -> list[str]:
    """Return what is lost for others with topics of Kafka's own."""
    return [_LOST_WITH[name] for name in names if name in _LOST_WITH]
