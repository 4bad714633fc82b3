"""Sets and drops settings of a topic or a broker."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial

from engine.admin.cluster.connection import Cluster
from engine.admin.cluster.target import Side
from engine.admin.configs.access import alter_entity, describe_entity
from engine.admin.configs.changes import read_changes
from engine.admin.configs.values import ConfigEntry, ConfigSource, Entity, EntityType
from engine.admin.log_dirs.retention import deletion_lines
from engine.admin.reassignment.throttle_settings import THROTTLE_SETTINGS
from engine.admin.topics.access import with_warnings
from engine.kafka.config.broker_configs import BROKER_CONFIG_DEF
from engine.kafka.config.topic_configs import TOPIC_CONFIG_DEF
from tui.drawing.cells import Cell
from tui.operations.operation import Operation, Outcome, Prepared, command_text, result_cell

_SOURCES = {
    ConfigSource.DYNAMIC_TOPIC_CONFIG: "topic",
    ConfigSource.DYNAMIC_BROKER_CONFIG: "broker",
    ConfigSource.DYNAMIC_DEFAULT_BROKER_CONFIG: "all brokers",
    ConfigSource.STATIC_BROKER_CONFIG: "broker's file",
    ConfigSource.DEFAULT_CONFIG: "Kafka",
}
_OWN = {EntityType.TOPIC: ConfigSource.DYNAMIC_TOPIC_CONFIG, EntityType.BROKER: ConfigSource.DYNAMIC_BROKER_CONFIG}
_OPTIONS = {EntityType.TOPIC: "--topic", EntityType.BROKER: "--broker"}
ALL_CLIENTS = Entity(EntityType.CLIENT, None)
_OF_QUOTAS = (
    "it holds for each client id without its own, on each broker, until you remove it (Q)",
    "a record that waits for longer than delivery.timeout.ms (by default 2 minutes) fails",
)


@dataclass(frozen=True, slots=True)
class Setting:
    """One setting that is in force.

    Attributes:
        value: None: it is secret, or not set.
        source: who sets it, in a word or two.
        default: what holds without a value of its own; None: not known.
        meaning: what it does.
        is_own: it is set for this topic or broker, so it can be dropped.
        is_fixed: it cannot be altered while the broker runs.
    """

    name: str
    value: str | None
    source: str
    default: str | None
    meaning: str
    is_own: bool = False
    is_fixed: bool = False
    is_secret: bool = False


async def read_settings(cluster: Cluster, entity: Entity) -> list[Setting]:
    """Return everything in force for a topic or a broker, its own settings first.

    Only brokers know what their files say; from ZooKeeper alone come those that are set there.

    Raises:
        AdminError: it cannot be read.
    """
    is_told = entity.type is EntityType.TOPIC or cluster.changes_by is Side.WIRE
    described = await describe_entity(cluster, entity, include_all=is_told)
    settings = [_setting(entity, entry) for entry in described.configs]
    return sorted(settings, key=lambda setting: (not setting.is_own, setting.is_fixed, setting.name))


def _setting(entity: Entity, entry: ConfigEntry) -> Setting:
    # The wire and a znode differ in whether a setting's own value is among its synonyms.
    others = [synonym for synonym in entry.synonyms if synonym.source not in (entry.source, _OWN[entity.type])]
    is_own = entry.source is _OWN[entity.type]
    key = (TOPIC_CONFIG_DEF if entity.type is EntityType.TOPIC else BROKER_CONFIG_DEF).get(entry.name)
    kafkas = None if key is None else key.default_text
    default = (others[0].value if others else kafkas) if is_own else entry.value
    return Setting(
        entry.name,
        entry.value,
        _SOURCES.get(entry.source, entry.source.value.lower().replace("_", " ")),
        default,
        entry.documentation or ("" if key is None else key.doc),
        is_own,
        entry.read_only,
        entry.sensitive,
    )


@dataclass(frozen=True, slots=True)
class AlterSettings(Operation):
    """Alters settings of one entity, all or none of them."""

    entity: Entity
    additions: dict[str, str]
    deletions: tuple[str, ...]
    title: str = "Settings"

    @staticmethod
    def of(entity: Entity, edits: Mapping[str, str | None]) -> AlterSettings:
        """Return the operation that sets what has a value, and drops what has none."""
        wanted = {name: value for name, value in edits.items() if value is not None}
        return AlterSettings(entity, wanted, tuple(name for name, value in edits.items() if value is None))

    async def prepare(self, cluster: Cluster) -> Prepared:
        await alter_entity(cluster, self.entity, self.additions, self.deletions, validate_only=True)
        changes = await read_changes(cluster, self.entity, self.additions, self.deletions, tells_inherited=True)
        changes = await with_warnings(cluster, self.entity, changes)
        risky = [change.name for change in changes if change.may_lose_data]
        is_lowered = any(name in self.additions and name in ("retention.bytes", "retention.ms") for name in risky)
        is_told = is_lowered and self.entity.type is EntityType.TOPIC
        notes = await deletion_lines(cluster, self.entity.name or "", self.additions) if is_told else ()
        if self.entity == ALL_CLIENTS and self.additions:
            notes = _OF_QUOTAS
        return Prepared(
            f"Alter {self.entity} in {cluster.target.name}?",
            (*map(str, changes), *notes),
            (
                *((f"{', '.join(risky)}: records may be lost, present or later ones",) if risky else ()),
                *(warning for change in changes for warning in change.warnings),
            ),
            command_text(self._words(), cluster.target),
            typed=(self.entity.name or "default") if risky else None,
            run=partial(self._run, notes=notes),
            touches=self._touched(),
        )

    def _touched(self) -> frozenset[str] | None:
        if THROTTLE_SETTINGS.isdisjoint((*self.additions, *self.deletions)):
            return frozenset()
        return frozenset((self.entity.name or "",)) if self.entity.type is EntityType.TOPIC else None

    def _words(self) -> list[str]:
        of_one = () if self.entity == ALL_CLIENTS else (_OPTIONS[self.entity.type], self.entity.name or "")
        words = ["configs", "alter", *(of_one or ("--client-defaults",))]
        if self.additions:
            pairs = (f"{key}=[{value}]" if "," in value else f"{key}={value}" for key, value in self.additions.items())
            words += ["--add-config", ",".join(pairs)]
        return words + (["--delete-config", ",".join(self.deletions)] if self.deletions else [])

    async def _run(self, cluster: Cluster, notes: tuple[str, ...]) -> Outcome:
        await alter_entity(cluster, self.entity, self.additions, self.deletions)
        rows = [(Cell(key), Cell(value), result_cell("set", is_good=True)) for key, value in self.additions.items()]
        rows += [(Cell(key), Cell(""), result_cell("dropped", is_good=True)) for key in self.deletions]
        return Outcome(f"{self.title} of {self.entity}", ("setting", "value", "result"), tuple(rows), notes=notes)
