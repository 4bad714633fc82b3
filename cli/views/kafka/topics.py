"""What kafka-topics prints."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from cli.output.report import KafkaText
from cli.views.kafka.hash_order import in_hash_order
from engine.admin.configs.values import ConfigEntry, ConfigSource
from engine.admin.topics.changes import TopicChange, TopicOutcome
from engine.admin.topics.describing import PartitionDescription, TopicDescription
from engine.common.model import NO_LEADER
from engine.common.topic_names import has_collision_chars

Settings = Sequence[tuple[str, str | None]]
"""Settings of a topic that are not defaults, in the order in which they are shown."""

_WOULD = (TopicOutcome.WOULD_BE_CREATED, TopicOutcome.WOULD_BE_ALTERED, TopicOutcome.WOULD_BE_DELETED)
_COLLISION = (
    "WARNING: Due to limitations in metric names, topics with a period ('.') or underscore ('_') could collide. "
    "To avoid issues it is best to use either, but not both.\n"
)


def settings_shown(entries: Sequence[ConfigEntry]) -> Settings:
    """Return those of a topic's settings that are not defaults, in the tool's order; ``entries`` are all of them."""
    ordered = in_hash_order(entries, lambda entry: entry.name)
    return [(entry.name, entry.value) for entry in ordered if entry.source is not ConfigSource.DEFAULT_CONFIG]


def names_text(names: Sequence[str]) -> KafkaText:
    """``--list``: a name per line; an empty line if there is none."""
    return KafkaText("\n".join(names) + "\n")


def described_text(
    topics: Sequence[TopicDescription], settings: Mapping[str, Settings], *, is_filtered: bool, with_partitions: bool
) -> KafkaText:
    """``--describe``: a line per topic unless partitions are filtered, then one per partition."""
    lines: list[str] = []
    for topic in in_hash_order(topics, lambda topic: topic.topic, len(topics)):
        if not is_filtered:
            lines.append(_topic_line(topic, settings.get(topic.topic, ())))
        if with_partitions:
            lines += [_partition_line(topic.topic, partition) for partition in topic.partitions]
    return KafkaText("".join(f"{line}\n" for line in lines))


def _topic_line(topic: TopicDescription, settings: Settings) -> str:
    configs = ",".join(f"{name}={'null' if value is None else value}" for name, value in settings)
    first = topic.partitions[0] if topic.partitions else None
    factor = topic.replication_factor if first is None else len(first.replicas) - len(first.adding_replicas)
    ids = "" if topic.topic_id is None else f"\tTopicId: {topic.topic_id}"
    return (
        f"Topic: {topic.topic}{ids}\tPartitionCount: {topic.partition_count}"
        f"\tReplicationFactor: {factor}\tConfigs: {configs}"
    )


def _partition_line(topic: str, partition: PartitionDescription) -> str:
    leader = "none" if partition.leader == NO_LEADER else partition.leader
    line = (
        f"\tTopic: {topic}\tPartition: {partition.partition}\tLeader: {leader}"
        f"\tReplicas: {_listed(partition.replicas)}\tIsr: {_listed(partition.isr)}"
    )
    if partition.adding_replicas or partition.removing_replicas:
        line += f"\tAdding Replicas: {_listed(partition.adding_replicas)}"
        line += f"\tRemoving Replicas: {_listed(partition.removing_replicas)}"
    return f"{line}\tElr: N/A\tLastKnownElr: N/A"


def changes_text(changes: Sequence[TopicChange]) -> KafkaText | None:
    """``--create`` names what it made, after a warning about odd names; ``--alter`` and ``--delete`` say nothing.

    None for a dry run.
    """
    if any(change.result in _WOULD for change in changes):
        return None
    created = [change.topic for change in changes if change.result is TopicOutcome.CREATED]
    named = [change.topic for change in changes if change.result in (TopicOutcome.CREATED, TopicOutcome.EXISTS)]
    warnings = "".join(_COLLISION for name in named if has_collision_chars(name))
    return KafkaText(warnings + "".join(f"Created topic {name}.\n" for name in created))


def _listed(ids: Sequence[int]) -> str:
    return ",".join(map(str, ids))
