"""Creates, grows and deletes topics."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TypeVar

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.errors import BadRequest
from engine.admin.configs.access import describe_entity
from engine.admin.configs.values import Entity, EntityType
from engine.admin.topics.access import topic_changer
from engine.admin.topics.changes import (
    NewTopic,
    TopicAlteration,
    TopicChange,
    TopicOutcome,
    check_new_topic,
    deletion_obstacles,
    deletion_warnings,
    parse_topic_configs,
)
from engine.admin.topics.values import min_isr_warnings
from engine.common.quantities import counted
from tui.drawing.cells import Cell
from tui.operations.operation import (
    Operation,
    Outcome,
    Prepared,
    command_text,
    failure_texts,
    repeated,
    result_cell,
    shortened,
)

Number = TypeVar("Number", int, float)

DEFAULT_HINT = "empty: the cluster's default"
_DEFAULTS = {"partitions": "num.partitions", "factor": "default.replication.factor"}
_COLUMNS = ("topic", "result", "partitions", "factor")


@dataclass(frozen=True, slots=True)
class CreateTopic(Operation):
    topic: NewTopic
    title: str = "New topic"

    @staticmethod
    def of(name: str, partitions: str, factor: str, configs: str, *, has_defaults: bool = True) -> CreateTopic:
        """Return the operation that a form asks for; empty counts are the cluster's defaults.

        Raises:
            BadRequest: a topic cannot have this value, or a count is empty and the defaults are not known.
        """
        topic = NewTopic(
            name.strip(),
            whole_number("partitions", partitions),
            whole_number("replication factor", factor),
            configs=parse_topic_configs(configs.split()),
        )
        check_new_topic(topic)
        for label, number in (("partitions", topic.partition_count), ("replication factor", topic.replication_factor)):
            if number is None and not has_defaults:
                raise BadRequest(f"{label}: a number is needed", hint="the cluster's defaults are not in ZooKeeper")
        return CreateTopic(topic)

    async def prepare(self, cluster: Cluster) -> Prepared:
        topic = self.topic
        change = await (await topic_changer(cluster)).create(topic, validate_only=True)
        words = ["topics", "create", topic.name]
        for option, number in (("partitions", topic.partition_count), ("replication-factor", topic.replication_factor)):
            words += [] if number is None else [f"--{option}", str(number)]
        words += repeated("--config", (f"{key}={value}" for key, value in topic.configs.items()))
        return Prepared(
            f"Create topic {topic.name} in {cluster.target.name}?",
            (
                f"partitions          {change.partition_count or 'the default of the cluster'}",
                f"replication factor  {change.replication_factor or 'the default of the cluster'}",
                *(f"{key} = {value}" for key, value in topic.configs.items()),
            ),
            (*topic.warnings, *min_isr_warnings(topic.configs, change.replication_factor)),
            command_text(words, cluster.target),
            run=self._run,
        )

    async def _run(self, cluster: Cluster) -> Outcome:
        change = await (await topic_changer(cluster)).create(self.topic)
        return Outcome(self.title, _COLUMNS, (_row(change),))


@dataclass(frozen=True, slots=True)
class GrowTopic(Operation):
    """More partitions for a topic."""

    alteration: TopicAlteration
    before: int
    title: str = "Add partitions"

    @staticmethod
    def of(topic: str, before: int, partitions: str) -> GrowTopic:
        """Return the operation that a form asks for; raises BadRequest if it is not a number above 0."""
        alteration = TopicAlteration(topic, whole_number("partitions", partitions))
        alteration.check()
        return GrowTopic(alteration, before)

    async def prepare(self, cluster: Cluster) -> Prepared:
        name, count = self.alteration.name, self.alteration.partition_count
        await (await topic_changer(cluster)).alter(self.alteration, validate_only=True)
        return Prepared(
            f"Give topic {name} in {cluster.target.name} {count} partitions?",
            (f"partitions  {self.before} → {count}",),
            self.alteration.warnings,
            command_text(["topics", "alter", name, "--partitions", str(count)], cluster.target),
            run=self._run,
            touches=frozenset((name,)),
        )

    async def _run(self, cluster: Cluster) -> Outcome:
        change = await (await topic_changer(cluster)).alter(self.alteration)
        return Outcome(self.title, _COLUMNS, (_row(change),))


@dataclass(frozen=True, slots=True)
class DeleteTopics(Operation):
    """Deletes topics with all their records."""

    names: tuple[str, ...]
    holds: str = field(default="", compare=False)
    """What all of them hold, as far as that is known."""
    title: str = "Delete topics"

    async def prepare(self, cluster: Cluster) -> Prepared:
        changer = await topic_changer(cluster)
        for name in self.names:
            await changer.exists(name, if_exists=False)
        subject = f"topic {self.names[0]}" if len(self.names) == 1 else counted(len(self.names), "topic")
        return Prepared(
            f"Delete {subject} in {cluster.target.name}, with all records?",
            (*self._sums, *shortened(self.names)),
            ("records of deleted topics are gone for good", *deletion_warnings(self.names)),
            command_text(["topics", "delete", *self.names], cluster.target),
            typed=self.names[0] if len(self.names) == 1 else f"{len(self.names)} topics",
            run=self._run,
            touches=frozenset(self.names),
        )

    async def _run(self, cluster: Cluster) -> Outcome:
        changes, refusals = await (await topic_changer(cluster)).delete(self.names, waits=True)
        notes = tuple(f"the deletion goes on: it {reason}" for reason in deletion_obstacles(changes))
        errors = failure_texts(refusals)
        return Outcome(self.title, _COLUMNS, tuple(map(_row, changes)), errors, notes, sums=self._sums)

    @property
    def _sums(self) -> tuple[str, ...]:
        return (self.holds,) if self.holds else ()


async def new_topic_hints(cluster: Cluster) -> dict[str, str]:
    """Return what empty fields of a new topic mean, by the controller's settings; raises AdminError if it is silent."""
    wire = await cluster.wire()
    controller = (await wire.metadata([])).controller_id
    described = await describe_entity(cluster, Entity(EntityType.BROKER, str(controller)), include_all=True)
    values = {entry.name: entry.value for entry in described.configs}
    return {name: f"{DEFAULT_HINT}, {values[key]}" for name, key in _DEFAULTS.items() if values.get(key)}


def whole_number(name: str, text: str) -> int | None:
    """Return the number in a field; None if it is empty; raises BadRequest if it is no whole number."""
    try:
        return int(text.replace(" ", "")) if text.strip() else None
    except ValueError:
        raise BadRequest(f"{name} must be a whole number, not {text.strip()!r}") from None


def quantity(parse: Callable[[str], Number], name: str, text: str) -> Number | None:
    """Return the size, rate or time in a field; None if it is empty; raises BadRequest if it is none."""
    try:
        return parse(text.strip()) if text.strip() else None
    except ValueError as error:
        raise BadRequest(f"{name}: {error}") from error


def _row(change: TopicChange) -> tuple[Cell, ...]:
    is_pending = change.result is TopicOutcome.MARKED_FOR_DELETION
    return (
        Cell(change.topic),
        result_cell(change.result.value, is_good=True, is_pending=is_pending),
        Cell("" if change.partition_count is None else str(change.partition_count)),
        Cell("" if change.replication_factor is None else str(change.replication_factor)),
    )
