"""Compares the last states in the logs with a cluster's present ones.

The state znode's version, or, if that is unknown, the leader epoch, says which of the two is newer. A cluster that is
newer than the logs is no contradiction; one that is older, or has another state of the same version, is.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping, Set

from engine.admin.state_changes.findings import Check, FindingBook
from engine.admin.topics.access import TopicReader
from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot
from engine.kafka.formats.state_change_events import PrintedState

FindHidden = Callable[[Set[str], Iterable[str]], Awaitable[Iterable[str]]]
"""Returns which of the topics that a list lacks this login may not see, whether they exist or not."""


async def compare_with_cluster(
    states: Mapping[TopicPartition, PrintedState], reader: TopicReader, book: FindingBook, find_hidden: FindHidden
) -> None:
    """Note where the cluster contradicts the logs. Reads the topics that the logs name, and no others."""
    named, existing = {partition.topic for partition in states}, {topic.topic for topic in await reader.names()}
    wanted = sorted(named & existing)
    present: dict[TopicPartition, PartitionSnapshot] = {}
    # It cannot be said that those are gone.
    passed_over = set(await find_hidden(named, existing))
    for topic in await reader.topics(wanted):
        present |= {TopicPartition(topic.name, each.partition): each for each in topic.partitions}
        if topic.is_marked_for_deletion:
            passed_over.add(topic.name)
    for partition, state in sorted(states.items()):
        if partition.topic not in passed_over:
            compare_partition(partition, state, present.get(partition), book)


def compare_partition(
    partition: TopicPartition, state: PrintedState, present: PartitionSnapshot | None, book: FindingBook
) -> None:
    """Note what the cluster says about one partition, unless the logs say the same."""
    logged = _text(state.leader, state.isr, state.leader_epoch, state.partition_epoch)
    if present is None:
        book.note(Check.GONE_FROM_CLUSTER, None, f"{partition}: last logged {logged}")
        return
    in_cluster = _text(present.leader, present.isr, present.leader_epoch, present.zk_version)
    age = _age(state, present)
    if age > 0:
        book.note(Check.CHANGED_SINCE, None, f"{partition}: {logged}, now {in_cluster}")
    elif age < 0:
        book.note(Check.DIFFERS_FROM_CLUSTER, None, f"{partition}: {logged}, but the cluster is older: {in_cluster}")
    elif present.leader != state.leader or set(present.isr) != set(state.isr):
        book.note(Check.DIFFERS_FROM_CLUSTER, None, f"{partition}: {logged}, but the cluster says {in_cluster}")


def _age(state: PrintedState, present: PartitionSnapshot) -> int:
    """Return above 0 if the cluster's state is newer, below 0 if it is older, 0 if it is the same."""
    leader_epoch = -1 if present.leader_epoch is None else present.leader_epoch
    if present.zk_version is not None and state.partition_epoch is not None:
        return present.zk_version - state.partition_epoch or leader_epoch - state.leader_epoch
    if leader_epoch == state.leader_epoch and set(present.isr) != set(state.isr) and present.leader == state.leader:
        # A leader changes its ISR without a new leader epoch.
        return 1
    return leader_epoch - state.leader_epoch


def _text(leader: int, isr: tuple[int, ...], leader_epoch: int | None, partition_epoch: int | None) -> str:
    epochs = "no state" if leader_epoch is None else f"leader epoch {leader_epoch}"
    number = "" if partition_epoch is None else f", version {partition_epoch}"
    return f"leader {leader} ISR [{','.join(map(str, isr))}] ({epochs}{number})"
