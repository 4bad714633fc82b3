"""Which operation an action means for the chosen rows: at once, after a form, or not, and why. Pure."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from engine.admin.analysis.disks import DirTrend
from engine.admin.analysis.standstills import scope_text
from engine.admin.analysis.throttles import throttle_texts
from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import Side
from engine.admin.configs.values import Entity, EntityType, plain_value
from engine.admin.elections.scope_and_result import ElectionScope, ElectionType
from engine.admin.health.report import Check
from engine.admin.lag.group_lag import PartitionLag
from engine.admin.watch.frame import Stage
from engine.common.quantities import counted
from tui.drawing.units import byte_rate, size
from tui.operations.operation import Operation
from tui.pages.page import View
from tui.state.board import PartitionItem

if TYPE_CHECKING:
    from plans.options import PlanOptions, Strategy


_HELD_S = 900
"""Producers are held back so far that a disk has room for this long, until a lower retention has made some."""


@dataclass(frozen=True, slots=True)
class FieldNeeded:
    """One thing that an operation has to know."""

    name: str
    label: str
    value: str = ""
    hint: str = ""


@dataclass(frozen=True, slots=True)
class Ask:
    """Ask for these first.

    Attributes:
        build: makes the operation from what was typed; raises AdminError.
        hints: reads better hints from the cluster, by field, while the form is open already.
        problem: why what was typed the last time was refused.
    """

    title: str
    fields: tuple[FieldNeeded, ...]
    build: Callable[[Mapping[str, str]], Any]
    hints: Callable[[Cluster], Awaitable[Mapping[str, str]]] | None = None
    problem: str = ""

    def at_fault(self) -> FieldNeeded | None:
        """Return the field that the problem names: by what was typed there, by its label, or by a part of the text."""
        problem = self.problem.lower()
        if not problem:
            return None
        tests: tuple[Callable[[FieldNeeded], bool], ...] = (
            lambda field: bool(field.value) and f"{field.value.lower()!r}" in problem,
            lambda field: field.label.lower() in problem,
            lambda field: any(len(word) > 2 and word in problem for word in re.split(r"[\s,=]+", field.value.lower())),
        )
        return next((field for test in tests for field in self.fields if test(field)), None)


@dataclass(frozen=True, slots=True)
class EditSettings:
    """Show all settings, to be edited in place: ``edits`` by name (None drops one), with the cursor on ``first``."""

    entity: Entity
    edits: Mapping[str, str | None] = field(default_factory=dict)
    problem: str = ""
    first: str = ""


@dataclass(frozen=True, slots=True)
class NotNow:
    """It cannot be done with this choice."""

    why: str


@dataclass(frozen=True, slots=True)
class PlanWish:
    """A plan to make. ``capacity_file`` is the file from which the options' capacities were read."""

    strategy: Strategy
    options: PlanOptions
    capacity_file: Path | None = None


Offer = Operation | Ask | EditSettings | NotNow


def offer_for(action_id: str, view: View, items: Sequence[Any]) -> Offer:
    """Return what an action means on a screen for the chosen rows."""
    if action_id != "topic.create" and (gone := topic_gone(view, items)) is not None:
        return gone
    return _OFFERS[action_id](view, items)


def topics_of(view: View, items: Sequence[Any]) -> tuple[str, ...]:
    """Return the topics of rows of topics or partitions; without a row, the topic whose partitions are shown."""
    if not items and view.location.page == "partitions" and view.location.topic is not None:
        return (view.location.topic,)
    names = (item.topic.name if isinstance(item, PartitionItem) else item.name for item in items)
    return tuple(dict.fromkeys(names))


def topic_gone(view: View, items: Sequence[Any]) -> NotNow | None:
    """Return that a topic is gone, if the screen shows one that the cluster does not have any more.

    A frozen view still has its row, and a screen that was opened from its row stays.
    """
    if view.location.screen not in ("topics", "partitions"):
        return None
    names = topics_of(view, items) or ((view.location.topic,) if view.location.topic is not None else ())
    frame = view.newest or view.board.frame
    if frame.cluster is None or frame.stage(Stage.METADATA).read_at_ms is None:
        return None
    known = {topic.name for topic in frame.cluster.topics}
    gone = [name for name in names if name not in known]
    if not gone:
        return None
    others = f", and so {'is' if len(gone) == 2 else 'are'} {counted(len(gone) - 1, 'other')}" if len(gone) > 1 else ""
    return NotNow(f"topic {gone[0]} is gone: the cluster has no topic of this name{others}")


def _create_topic(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.topics import DEFAULT_HINT, CreateTopic, new_topic_hints

    has_defaults = view.target is None or view.target.changes_by is Side.WIRE
    hint = DEFAULT_HINT if has_defaults else "needed: ZooKeeper does not hold the cluster's default"
    fields = (
        FieldNeeded("name", "Name"),
        FieldNeeded("partitions", "Partitions", hint=hint),
        FieldNeeded("factor", "Replication factor", hint=hint),
        FieldNeeded("configs", "Settings", hint="retention.ms=3600000 cleanup.policy=compact"),
    )

    def build(values: Mapping[str, str]) -> CreateTopic:
        given = (values["name"], values["partitions"], values["factor"], values["configs"])
        return CreateTopic.of(*given, has_defaults=has_defaults)

    return Ask("New topic", fields, build, new_topic_hints if has_defaults else None)


def _grow_topic(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.topics import GrowTopic

    topics = topics_of(view, items)
    if len(topics) != 1:
        return NotNow("choose one topic to give it more partitions")
    name = topics[0]
    before = next((len(topic.partitions) for topic in view.board.topics if topic.name == name), 0)
    needed = FieldNeeded("partitions", "Partitions in all", str(before), f"now {before}")
    return Ask(f"Add partitions to {name}", (needed,), lambda v: GrowTopic.of(name, before, v["partitions"]))


def _alter_settings(view: View, items: Sequence[Any]) -> Offer:
    if view.location.page == "overview":
        full = {item.id for item in items}
        known = (*view.board.filling, *view.board.filled.values())
        filling = [trend for trend in known if trend.broker in full and trend.grower is not None]
        if not filling or filling[0].grower is None:
            return NotNow("put the cursor on a problem of a disk that a topic fills")
        topic = filling[0].grower.topic
        edits = _making_room(view, topic, filling[0])
        return EditSettings(Entity(EntityType.TOPIC, topic), edits, first="retention.bytes")
    if len(items) != 1 and not (view.location.page == "partitions" and view.location.topic):
        return NotNow("choose one topic or broker to alter its settings")
    if view.location.page == "brokers":
        return EditSettings(Entity(EntityType.BROKER, str(items[0].id)))
    return EditSettings(Entity(EntityType.TOPIC, topics_of(view, items)[0]))


def _making_room(view: View, topic: str, trend: DirTrend) -> dict[str, str | None]:
    """Return settings that halve the largest replica of a topic, at once if there is no time left."""
    replicas = (log for name, logs in view.board.frame.logs.items() if name.topic == topic for log in logs)
    largest = max((log.size_bytes for log in replicas if log.broker == trend.broker), default=0)
    edits: dict[str, str | None] = {"retention.bytes": str(largest // 2)} if largest else {}
    return edits | ({"file.delete.delay.ms": "1000"} if trend.is_urgent else {})


def _limit_producers(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.reassignments import typed_rate
    from tui.operations.settings import ALL_CLIENTS, AlterSettings

    board, name = view.board, "producer_byte_rate"
    # What one client sends to any broker may all be copied to the fullest.
    rates = [trend.free_bytes // (_HELD_S * len(board.live)) for trend in board.filling if trend.free_bytes]
    suggested = max(1_000, int(float(f"{min(rates):.1e}"))) if rates else 0
    now = "" if board.producer_quota is None else f", now {byte_rate(board.producer_quota)}"
    hint = f"for each client id, to each broker{now}; empty: no quota"
    needed = FieldNeeded("rate", "Bytes a second", typed_rate(suggested), hint)

    def build(values: Mapping[str, str]) -> AlterSettings:
        return AlterSettings.of(ALL_CLIENTS, {name: plain_value(name, values["rate"].strip()) or None})

    return Ask("Quota of all producers", (needed,), build)


def _delete_topics(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.topics import DeleteTopics

    names = topics_of(view, items)
    return DeleteTopics(names, _held_by(view, names)) if names else NotNow("choose a topic to delete")


def _held_by(view: View, names: Sequence[str]) -> str:
    """Return what topics hold together: ``18 partitions, 35.4 GB on all brokers``."""
    wanted = set(names)
    topics = [topic for topic in view.board.topics if topic.name in wanted]
    sizes = [view.board.topic_bytes(topic) for topic in topics]
    text = counted(sum(len(topic.partitions) for topic in topics), "partition")
    if not topics or None in sizes:
        return text if topics else ""
    return f"{text}, {size(sum(size_bytes or 0 for size_bytes in sizes))} on all brokers"


def _elect(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.elections import Elect

    if view.location.page == "overview":
        return Elect(ElectionType.PREFERRED, ElectionScope(), view.board.total.leaders)
    return _election(ElectionType.PREFERRED, view, items)


def _elect_unclean(view: View, items: Sequence[Any]) -> Offer:
    if view.location.page == "overview" and not items:
        is_there = view.cursor_key == Check.OFFLINE_PARTITIONS.value
        where = "put the cursor on a problem of offline partitions"
        return NotNow("no replica is alive that could lead: see what to do (w)" if is_there else where)
    return _election(ElectionType.UNCLEAN, view, items)


def _election(election: ElectionType, view: View, items: Sequence[Any]) -> Offer:
    """Return an election among the chosen rows, never among all partitions, which an empty scope would mean."""
    from tui.operations.elections import Elect

    if not items:
        return NotNow("nothing is chosen whose leaders could be elected")
    wanted = _wanted(view, items)
    leaders = view.board.total.leaders
    return Elect(election, ElectionScope(wanted), leaders) if wanted else NotNow("no partition prefers to be led by it")


def _wanted(view: View, items: Sequence[Any]) -> tuple[tuple[str, int | None], ...]:
    """Return the chosen partitions, those of topics (None: all of a topic), or those that a broker should lead."""
    match view.location.screen:
        case "topics":
            return tuple((topic.name, None) for topic in items)
        case "brokers":
            brokers = {item.id for item in items}
            items = [item for item in view.board.items if item.partition.preferred_leader in brokers]
    return tuple((item.topic.name, item.partition.partition) for item in items)


def _cancel(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.reassignments import CancelReassignments

    if not items:
        is_problem = view.location.page == "overview"
        return NotNow("put the cursor on a problem of moves" if is_problem else "nothing is being moved")
    return CancelReassignments(tuple(dict.fromkeys(item.name for item in items)))


def _throttle(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.reassignments import ChangeThrottle, typed_rate

    if not view.board.total.moving:
        return NotNow("nothing is being moved")
    advice = view.board.throttles
    suggested = max((throttle.suggested_rate or 0 for throttle in advice), default=0)
    rates = sorted({throttle.rate for throttle in advice})
    value = typed_rate(suggested or max(rates, default=None))
    now = f"now {' or '.join(map(byte_rate, rates))}" if rates else "for example 50M; now without a throttle"
    more = f", {byte_rate(suggested)} would let it end within an hour" if suggested else ""
    needed = FieldNeeded("rate", "Bytes a second", value, f"for each broker, {now}{more}")
    return Ask("Change the throttle", (needed,), lambda v: ChangeThrottle.of(v["rate"]))


def _remove_throttles(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.reassignments import RemoveThrottles

    return RemoveThrottles(tuple(text for text, _ in throttle_texts(view.board.throttles)))


def _verify(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.partitions import VerifyReplicas

    topics = topics_of(view, items)
    if not topics:
        return NotNow("choose a topic")
    return VerifyReplicas(topics, items[0].name if view.location.page == "partition" else None)


def _delete_records(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.partitions import DeleteRecords

    if not items:
        return NotNow("choose a partition")
    names = tuple(item.name for item in items)
    subject = str(names[0]) if len(names) == 1 else f"{len(names)} partitions"
    needed = FieldNeeded("before", "Records before this offset", hint="-1: all that are committed")
    return Ask(f"Delete records of {subject}", (needed,), lambda v: DeleteRecords.of(names, v["before"]))


def _abort_hanging(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.partitions import AbortHanging

    if not items:
        is_problem = view.location.page == "overview"
        return NotNow("put the cursor on a problem of transactions" if is_problem else "choose a partition")
    return AbortHanging(tuple(item.name for item in items))


def _one_group(view: View, items: Sequence[Any]) -> str | None:
    if view.location.group is not None:
        return view.location.group
    if view.location.page != "overview":
        return str(items[0].name) if len(items) == 1 else None
    # The problem of a group is about its partitions.
    groups = view.board.frame.groups
    return next((group.name for group in groups if items and items[0] in group.lag.partitions), None)


def _reset(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.groups import RESET_HINT, ResetOffsets

    group = _one_group(view, items)
    if group is None:
        is_problem = view.location.page == "overview"
        return NotNow("put the cursor on a group that one record holds up" if is_problem else "choose one group")
    named, holds_up = _partitions_of(view, group, items), view.board.standstills.holds_up
    if view.location.page != "group":
        named = [partition for partition in named if holds_up(group, partition)]
    fields = (
        FieldNeeded("topics", "Topics", scope_text(named), "orders or orders:0,1; *: all that the group has committed"),
        FieldNeeded("to", "To", _next_offset(view, group, named), RESET_HINT),
    )
    return Ask(f"Reset offsets of group {group}", fields, lambda v: ResetOffsets.of(group, v["topics"], v["to"]))


def _partitions_of(view: View, name: str, items: Sequence[Any]) -> Sequence[PartitionLag]:
    """Return the chosen partitions of a group, or all if the group as a whole is chosen."""
    if view.location.page != "groups":
        return items
    return next((group.lag.partitions for group in view.board.frame.groups if group.name == name), ())


def _next_offset(view: View, name: str, named: Sequence[PartitionLag]) -> str:
    """Return where the one partition that a record holds up continues; empty: only a person can say where to."""
    if len(named) != 1 or not view.board.standstills.holds_up(name, named[0]):
        return ""
    read = view.off_board.record_at(named[0].topic, named[0].partition, named[0].committed_offset)
    # In a compacted topic the record may come some offsets later.
    return "+1" if read is None or read.record is None else str(read.record.offset + 1)


def _delete_offsets(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.groups import DeleteOffsets

    group = _one_group(view, items)
    if group is None:
        return NotNow("choose one group")
    partitions = _partitions_of(view, group, items)
    names = dict.fromkeys(partition.topic for partition in partitions)
    topics = " ".join(names) if view.location.page == "groups" else scope_text(partitions)
    needed = FieldNeeded("topics", "Topics", topics, "orders or orders:0,1")
    title = f"Delete offsets of group {group}"
    return Ask(title, (needed,), lambda v: DeleteOffsets(group, tuple(v["topics"].split())))


def _delete_groups(view: View, items: Sequence[Any]) -> Offer:
    from tui.operations.groups import DeleteGroups

    # On a group's own page the rows are its partitions.
    group = view.location.group
    names = tuple(dict.fromkeys(str(item.name) for item in items)) if group is None else (group,)
    return DeleteGroups(names) if names else NotNow("choose a group to delete")


_OFFERS: Mapping[str, Callable[[View, Sequence[Any]], Offer]] = {
    "topic.create": _create_topic,
    "topic.grow": _grow_topic,
    "settings.alter": _alter_settings,
    "producers.quota": _limit_producers,
    "topic.delete": _delete_topics,
    "leader.elect": _elect,
    "leader.elect_unclean": _elect_unclean,
    "reassignment.cancel": _cancel,
    "reassignment.throttle": _throttle,
    "reassignment.unthrottle": _remove_throttles,
    "replicas.verify": _verify,
    "records.delete": _delete_records,
    "transactions.abort": _abort_hanging,
    "group.reset": _reset,
    "group.delete_offsets": _delete_offsets,
    "group.delete": _delete_groups,
}
"""The operation behind each action that has one."""

OPERATIONS = frozenset(_OFFERS)

ASK_CLUSTER = OPERATIONS | {"plan.check", "plan.history"}
"""What a recording cannot answer, apart from changes; it can be planned for."""
