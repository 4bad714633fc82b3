"""Reads topics: lists and describes them, with the filters of kafka-topics. Changes are in ``changes``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass

from engine.admin.cluster.errors import AdminError, NotFound, Unreachable
from engine.admin.cluster.remedies import Operation, Phrase
from engine.admin.cluster.settings_silence import UNKNOWN_SETTINGS_HINT
from engine.admin.configs.values import known_configs
from engine.admin.topics.access import TopicReader
from engine.admin.topics.selection import MIN_ISR_FILTERS, PartitionFilter, TopicSelection, matches, topic_not_found
from engine.admin.topics.values import DEFAULT_MIN_ISR, TopicName
from engine.common.quantities import counted
from engine.common.snapshot import PartitionSnapshot, TopicSnapshot
from engine.common.topic_id import topic_id_text
from engine.common.topic_names import INTERNAL_TOPICS


@dataclass(frozen=True, slots=True)
class PartitionDescription:
    """One partition as the tools show it; ``leader`` -1 is none, None is unknown."""

    partition: int
    leader: int
    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    osr: tuple[int, ...]
    adding_replicas: tuple[int, ...]
    removing_replicas: tuple[int, ...]
    leader_epoch: int | None
    zk_version: int | None


@dataclass(frozen=True, slots=True)
class TopicDescription:
    """One topic as the tools show it; ``configs`` are its overrides, None if they are unknown."""

    topic: str
    topic_id: str | None
    partition_count: int
    replication_factor: int
    internal: bool
    configs: Mapping[str, str] | None
    marked_for_deletion: bool
    partitions: tuple[PartitionDescription, ...]


@dataclass(frozen=True, slots=True)
class DescribeOptions:
    """What to leave out of a description."""

    filters: tuple[PartitionFilter, ...] = ()
    with_overrides_only: bool = False
    exclude_internal: bool = False
    if_exists: bool = False
    topic_id: bytes | None = None


async def list_topics(
    reader: TopicReader, selection: TopicSelection, *, exclude_internal: bool = False
) -> list[TopicName]:
    """Return the topics by name; none if the selection matches none."""
    known = {entry.topic: entry for entry in await reader.names()}
    return [known[name] for name in selection.choose(known) if not (exclude_internal and known[name].internal)]


async def describe_topics(
    reader: TopicReader, selection: TopicSelection, options: DescribeOptions
) -> list[TopicDescription]:
    """Return the topics chosen, by name, with the partitions that the filters let through.

    With a partition filter, topics without such a partition are left out.

    Raises:
        NotFound: a named topic or id does not exist, and ``if_exists`` is not set.
        Unreachable: settings that a filter needs are unknown.
    """
    topics = await read_selected(reader, selection, if_exists=options.if_exists)
    if options.exclude_internal:
        topics = [topic for topic in topics if not topic.is_internal]
    if options.topic_id is not None:
        topics = _with_id(topics, options.topic_id, if_exists=options.if_exists)
    if options.with_overrides_only:
        topics = [topic for topic in topics if known_configs(topic)]
    if not options.filters:
        return [describe(topic) for topic in topics]
    live = await reader.live_brokers()
    min_isr = await _min_isr(reader, topics) if MIN_ISR_FILTERS & set(options.filters) else {}
    described = []
    for topic in topics:
        wanted = min_isr.get(topic.name, DEFAULT_MIN_ISR)
        shown = [p for p in topic.partitions if matches(p, options.filters, min_isr=wanted, live_brokers=live)]
        if shown:
            described.append(describe(topic, shown))
    return described


async def _min_isr(reader: TopicReader, topics: Sequence[TopicSnapshot]) -> Mapping[str, int]:
    min_isrs = await reader.min_isr(topics)
    unknown = sum(topic.name not in min_isrs for topic in topics)
    if unknown:
        warning = f"min.insync.replicas of {counted(unknown, 'topic')} is not known"
        raise Unreachable(warning, hint=UNKNOWN_SETTINGS_HINT)
    return min_isrs


async def read_selected(reader: TopicReader, selection: TopicSelection, *, if_exists: bool) -> list[TopicSnapshot]:
    """Return the chosen topics; only a pattern, or no name at all, lists all topics of the cluster.

    Raises:
        NotFound: something that was named does not exist, and ``if_exists`` is not set.
    """
    if selection.wants_list:
        known = [entry.topic for entry in await reader.names()]
        names = selection.choose(known)
    else:
        names = sorted(selection.names)
    topics = await reader.topics(names)
    missing = selection.unmatched([topic.name for topic in topics])
    if missing and not if_exists:
        raise topic_not_found(missing, await _names(reader))
    return topics


async def _names(reader: TopicReader) -> list[str]:
    """Return the topics that a person may have meant, if they can be read."""
    with suppress(AdminError):
        return [entry.topic for entry in await reader.names()]
    return []


def describe(topic: TopicSnapshot, partitions: Sequence[PartitionSnapshot] | None = None) -> TopicDescription:
    """Return a topic's description, with all its partitions or only some."""
    return TopicDescription(
        topic=topic.name,
        topic_id=None if topic.topic_id is None else topic_id_text(topic.topic_id),
        partition_count=len(topic.partitions),
        replication_factor=topic.replication_factor,
        internal=topic.name in INTERNAL_TOPICS,
        configs=None if topic.configs is None else dict(sorted(topic.configs.items())),
        marked_for_deletion=topic.is_marked_for_deletion,
        partitions=tuple(_describe_partition(p) for p in (topic.partitions if partitions is None else partitions)),
    )


def _describe_partition(partition: PartitionSnapshot) -> PartitionDescription:
    return PartitionDescription(
        partition=partition.partition,
        leader=partition.leader,
        replicas=partition.replicas,
        isr=partition.isr,
        osr=partition.osr,
        adding_replicas=partition.assignment.adding_replicas,
        removing_replicas=partition.assignment.removing_replicas,
        leader_epoch=partition.leader_epoch,
        zk_version=partition.zk_version,
    )


def _with_id(topics: Sequence[TopicSnapshot], topic_id: bytes, *, if_exists: bool) -> list[TopicSnapshot]:
    with_id = [topic for topic in topics if topic.topic_id == topic_id]
    if not with_id and not if_exists:
        hint = Phrase("see them with: ", Operation.DESCRIBE_TOPICS)
        raise NotFound(f"no topic has the id {topic_id_text(topic_id)!r}", hint=hint)
    return with_id
