"""Settings of a topic or a broker, set and dropped."""

from __future__ import annotations

from dataclasses import dataclass

from engine.admin.cluster.connection import Cluster
from engine.admin.configs.access import alter_entity
from engine.admin.configs.changes import read_changes
from engine.admin.configs.values import Entity, EntityType, parse_additions
from engine.admin.reassignment.throttle_settings import THROTTLE_SETTINGS
from tui.drawing.cells import Cell
from tui.operations.operation import Outcome, Prepared, command_text, result_cell

_OPTIONS = {EntityType.TOPIC: "--topic", EntityType.BROKER: "--broker"}


@dataclass(frozen=True, slots=True)
class AlterSettings:
    """Alters settings of one entity, all or none of them."""

    entity: Entity
    additions: dict[str, str]
    deletions: tuple[str, ...]
    title: str = "Settings"
    asks: bool = True

    @staticmethod
    def of(entity: Entity, additions: str, deletions: str) -> AlterSettings:
        """Return the operation that a form asks for: ``k=v,k=[a,b]``, and the names to drop.

        Raises:
            BadRequest: a setting is not KEY=VALUE.
        """
        wanted = parse_additions(additions) if additions.strip() else {}
        return AlterSettings(entity, wanted, tuple(key for key in deletions.replace(",", " ").split() if key))

    async def prepare(self, cluster: Cluster) -> Prepared:
        await alter_entity(cluster, self.entity, self.additions, self.deletions, validate_only=True)
        changes = await read_changes(cluster, self.entity, self.additions, self.deletions, tells_inherited=True)
        risky = [change.name for change in changes if change.may_lose_data]
        return Prepared(
            f"Alter {self.entity} in {cluster.target.name}?",
            tuple(map(str, changes)),
            (f"{', '.join(risky)}: records may be lost, present or later ones",) if risky else (),
            command_text(self._words(), cluster.target),
            typed=(self.entity.name or "default") if risky else None,
            run=self._run,
            touches=self._touched(),
        )

    def _touched(self) -> frozenset[str] | None:
        if THROTTLE_SETTINGS.isdisjoint((*self.additions, *self.deletions)):
            return frozenset()
        return frozenset((self.entity.name or "",)) if self.entity.type is EntityType.TOPIC else None

    def _words(self) -> list[str]:
        words = ["configs", "alter", _OPTIONS[self.entity.type], self.entity.name or ""]
        if self.additions:
            pairs = (f"{key}=[{value}]" if "," in value else f"{key}={value}" for key, value in self.additions.items())
            words += ["--add-config", ",".join(pairs)]
        return words + (["--delete-config", ",".join(self.deletions)] if self.deletions else [])

    async def _run(self, cluster: Cluster) -> Outcome:
        await alter_entity(cluster, self.entity, self.additions, self.deletions)
        rows = [(Cell(key), Cell(value), result_cell("set", is_good=True)) for key, value in self.additions.items()]
        rows += [(Cell(key), Cell(""), result_cell("dropped", is_good=True)) for key in self.deletions]
        return Outcome(f"{self.title} of {self.entity}", ("setting", "value", "result"), tuple(rows))
