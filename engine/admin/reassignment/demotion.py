"""Takes leadership away from brokers during maintenance, and gives it back.

A demoted broker goes to the end of every replica list, so that no later election makes it leader again. No replica is
copied: only the order changes. The other replicas share its leaderships evenly.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.cluster.members import read_members
from engine.admin.elections.scope_and_result import ElectionScope, read_scope
from engine.admin.log_dirs.describing import note_hidden_topics, read_log_dirs, topics_in
from engine.admin.reassignment.access import read_topics, reassignment_changer, require_partitions
from engine.admin.reassignment.reassignment_file import PartitionMove
from engine.admin.topics.access import topic_reader
from engine.admin.topics.values import partitions_of
from engine.common.model import TopicPartition
from engine.common.snapshot import PartitionSnapshot


@dataclass(frozen=True, slots=True)
class Demotion:
    """What it takes to make brokers lead nothing.

    Attributes:
        moves: partitions whose order of replicas changes.
        elections: those that the brokers lead; their preferred leaders are elected once the order has changed.
        stuck: those that the brokers must go on leading, with the reason.
        dead: those of the brokers that are not alive.
        hidden: topics on the brokers that the principal may not see; the brokers may go on leading them.
        silent: those of the brokers that do not say whether they have such topics, with the reason.
    """

    moves: tuple[PartitionMove, ...]
    elections: tuple[TopicPartition, ...]
    stuck: Mapping[TopicPartition, str]
    dead: tuple[int, ...] = ()
    hidden: tuple[str, ...] = ()
    silent: Mapping[int, str] = field(default_factory=dict)

    @property
    def is_whole(self) -> bool:
        """Whether the brokers lead nothing once this is done."""
        return not (self.stuck or self.hidden or self.silent)


async def read_demotion(cluster: Cluster, brokers: Sequence[int]) -> Demotion:
    """Look at all partitions and return what demoting these brokers takes. Changes nothing.

    Raises:
        BadRequest: a broker is neither alive nor in any replica list.
    """
    reader = await topic_reader(cluster, on_unknown_settings=cluster.observe)
    partitions = dict(await read_scope(reader, ElectionScope()))
    live = frozenset(broker.id for broker in (await read_members(cluster)).brokers)
    known = live.union(*(partition.replicas for partition in partitions.values()))
    unknown = sorted(set(brokers) - known)
    if unknown:
        raise BadRequest(f"no broker has the id {unknown[0]}", hint=f"brokers: {', '.join(map(str, sorted(known)))}")
    dead = known - live
    held_up_by = dead if dead and await (await reassignment_changer(cluster)).orders_wait() else frozenset[int]()
    planned = plan_demotion(partitions, frozenset(brokers), live, held_up_by)
    planned = replace(planned, dead=tuple(sorted(set(brokers) - live)))
    asked = sorted(live.intersection(brokers))
    if not (asked and cluster.may_hide_topics):
        return planned
    dirs = await read_log_dirs(cluster, asked)
    hidden = await note_hidden_topics(cluster, topics_in(dirs), {name.topic for name in partitions})
    silent = {answer.broker: answer.error or "" for answer in dirs if answer.log_dir is None}
    return replace(planned, hidden=tuple(hidden), silent=silent)


def plan_demotion(
    partitions: Mapping[TopicPartition, PartitionSnapshot],
    brokers: frozenset[int],
    live: frozenset[int],
    held_up_by: frozenset[int] = frozenset(),
) -> Demotion:
    """Return what it takes. The in-sync replica whose broker leads the fewest partitions so far takes over. Pure.

    Args:
        held_up_by: dead brokers that the controller waits for before it changes the order of their partitions.
    """
    moves: list[PartitionMove] = []
    elections: list[TopicPartition] = []
    stuck: dict[TopicPartition, str] = {}
    leads = Counter(partition.preferred_leader for partition in partitions.values())
    for name, partition in sorted(partitions.items()):
        if partition.preferred_leader not in brokers and partition.leader not in brokers:
            continue
        able = [
            broker
            for broker in partition.replicas
            if broker in partition.isr and broker in live and broker not in brokers
        ]
        if partition.assignment.is_being_reassigned:
            stuck[name] = "it is being reassigned"
        elif not able:
            has_others = len(partition.replicas) > 1
            stuck[name] = "no other replica is in sync" if has_others else "there is no other replica"
        elif partition.preferred_leader not in able and (away := held_up_by.intersection(partition.replicas)):
            stuck[name] = f"the controller would wait for broker {min(away)}, which is dead"
        else:
            elections.append(name)
            if partition.preferred_leader not in able:
                first = min(able, key=lambda broker: (leads[broker], broker))
                leads[first] += 1
                moves.append(PartitionMove(name, _last(partition.replicas, first, brokers)))
    return Demotion(tuple(moves), tuple(elections), stuck)


def _last(replicas: Sequence[int], first: int, brokers: frozenset[int]) -> tuple[int, ...]:
    others = [broker for broker in replicas if broker != first]
    return (
        first,
        *(other for other in others if other not in brokers),
        *(other for other in others if other in brokers),
    )


async def check_restores(cluster: Cluster, plan: Sequence[PartitionMove], where: str) -> None:
    """Raise BadRequest if a file does more than change the order of replicas, which is all a demotion does."""
    partitions = partitions_of((await read_topics(cluster, {move.name.topic for move in plan})).values())
    require_partitions([move.name for move in plan], partitions)
    for move in plan:
        if set(move.replicas) != set(partitions[move.name].replicas):
            raise BadRequest(
                f"{move.name} has other replicas now: {', '.join(map(str, partitions[move.name].replicas))}",
                where=where,
                hint="remove it from the file, or execute the file as an ordinary reassignment",
            )
